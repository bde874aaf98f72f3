"""Pictures of skin lesions from six centres, as FLamby prepares Fed-ISIC2019."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError
from xclp_lp.study.data.federation import Count, Federation, Place
from xclp_lp.study.data.pictures import small_picture

LESIONS = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
"""The eight classes, FLamby's targets 0 to 7."""

_CENTRES = 6
_COLUMNS = {"image", "target", "center", "fold", "fold2"}


def load_isic(path: Place, *, side: Count = 32) -> Federation:
    """Load the pictures as pixels, reduced to one size, one client per centre.

    Args:
        path: a folder with ``ISIC_2019_Training_Input_preprocessed/`` (or, if that is not there,
            ``ISIC_2019_Training_Input/``) and FLamby's ``train_test_split``, in it or beside it,
            with the columns image, target, center, fold and fold2.
        side: pixels of the reduced pictures' sides.

    Returns:
        d = 3·side², values in [0, 1]; labels are the names in `LESIONS`; test rows are those with
        fold ``test``. Centres are named centre-0 to centre-5 as in FLamby.

    Errors are those of `xclp_lp.study.data.load`.

    Source: Ogier du Terrail et al. 2022, arXiv:2210.04620 (FLamby).
    """
    folder = Path(path)
    pictures = _pictures(folder)
    table = _table(folder)
    features: list[list[NDArray[np.float64]]] = [[] for _ in range(_CENTRES)]
    labels: list[list[str]] = [[] for _ in range(_CENTRES)]
    test: list[list[bool]] = [[] for _ in range(_CENTRES)]
    for image, target, centre, fold in table:
        file = pictures / f"{image}.jpg"
        if not file.is_file():
            raise DataError(f"{pictures} has no {file.name}, which the table names")
        features[centre].append(small_picture(file.read_bytes(), side, str(file)).ravel() / 255.0)
        labels[centre].append(LESIONS[target])
        test[centre].append(fold == "test")
    used = [c for c in range(_CENTRES) if labels[c]]
    return Federation(
        names=tuple(f"centre-{c}" for c in used),
        features=tuple(np.stack(features[c]) for c in used),
        labels=tuple(np.array(labels[c]) for c in used),
        classes=LESIONS,
        source="J. Ogier du Terrail et al., FLamby, 2022, arXiv:2210.04620; ISIC 2019 challenge "
        "(BCN_20000, HAM10000, MSK)",
        licence="CC BY-NC 4.0",
        test=tuple(np.array(test[c], dtype=np.bool_) for c in used),
    )


def _pictures(folder: Path) -> Path:
    for name in ("ISIC_2019_Training_Input_preprocessed", "ISIC_2019_Training_Input"):
        if (folder / name).is_dir():
            return folder / name
    raise DataError(f"{folder} has no ISIC_2019_Training_Input_preprocessed")


def _table(folder: Path) -> list[tuple[str, int, int, str]]:
    names = ("train_test_split", "train_test_split.csv")
    files = [f for f in (p / n for p in (folder, folder.parent) for n in names) if f.is_file()]
    if not files:
        raise DataError(f"{folder} has no train_test_split, FLamby's table")
    try:
        return _rows(files[0])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{files[0]} is not a table: {error}") from None


def _rows(table: Path) -> list[tuple[str, int, int, str]]:
    rows = []
    with table.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not set(reader.fieldnames or ()) >= _COLUMNS:
            raise DataError(f"{table} lacks one of the columns {', '.join(sorted(_COLUMNS))}")
        for number, line in enumerate(reader, 2):
            try:
                target, centre = int(line["target"]), int(line["center"])
            except (TypeError, ValueError):
                raise DataError(
                    f"{table}, line {number}: target or center is not a number"
                ) from None
            fold = line["fold"]
            if (
                not (0 <= target < len(LESIONS) and 0 <= centre < _CENTRES)
                or fold not in ("train", "test")
                or line["fold2"] != f"{fold}_{centre}"
                or Path(line["image"]).name != line["image"]
            ):
                raise DataError(f"{table}, line {number} is none of FLamby's")
            rows.append((line["image"], target, centre, fold))
    if not rows:
        raise DataError(f"{table} has no rows")
    return rows
