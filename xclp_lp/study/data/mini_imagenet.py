"""Mini-ImageNet, from pickles or folders of pictures, dealt out to clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.study.data.dealing import Dealing, dealt_federation
from xclp_lp.study.data.federation import Count, Federation, Place
from xclp_lp.study.data.pickles import flat_array, read_pickle
from xclp_lp.study.data.pictures import small_picture

_TEST_SHARE = 1 / 6  # 100 of 600 pictures of each class, as in the paper


def load_mini_imagenet(path: Place, *, side: Count = 84, **dealing: Unpack[Dealing]) -> Federation:
    """Load the pictures of all classes as pixels in [0, 1]; a sixth of each class is for testing.

    Args:
        path: a folder with ``mini-imagenet-cache-train.pkl``, ``-val.pkl`` and ``-test.pkl``, each
            with image_data (n, 84, 84, 3) and class_dict (rows of each class), of which those that
            are there are read; or a folder with a folder of .jpg or .png files for each class, at
            any depth.
        side: pixels of the pictures' sides; those of pickles have 84.
        dealing: out to clients, see `Dealing`; the seed is that of test rows as well.

    Returns:
        d = 3·side²; labels are WordNet's numbers of the classes, or whatever names them.

    Errors are those of `xclp_lp.study.data.load`.

    Source: Vinyals et al. 2016, arXiv:1606.04080; classes of the pickles by Ravi and Larochelle.
    """
    seed = dealing.get("seed", 0)
    folder = Path(path)
    pickles = [
        file
        for part in ("train", "val", "test")
        for file in sorted(folder.glob(f"mini-imagenet-cache-{part}.pkl"))
    ]
    classes = _from_pickles(pickles, side) if pickles else _from_folders(folder, side)
    names = tuple(sorted(classes))
    rng = np.random.Generator(np.random.PCG64([seed, len(names)]))
    train: list[tuple[NDArray[Any], NDArray[Any]]] = []
    test: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for class_id, name in enumerate(names):
        order = rng.permutation(len(classes[name]))
        first = round(len(order) * _TEST_SHARE)
        for part, rows in ((train, order[first:]), (test, order[:first])):
            part.append((classes[name][np.sort(rows)], np.full(len(rows), class_id)))
    (x, y), (x_test, y_test) = (
        map(np.concatenate, zip(*part, strict=True)) for part in (train, test)
    )
    return dealt_federation(
        (x, y),
        (x_test, y_test),
        classes=names,
        source="O. Vinyals et al., Matching Networks, 2016, arXiv:1606.04080; pictures of ImageNet",
        licence="ImageNet's terms: for research and teaching, not for commerce",
        **dealing,
    )


def _from_pickles(files: list[Path], side: int) -> dict[str, NDArray[np.uint8]]:
    classes: dict[str, NDArray[np.uint8]] = {}
    for file in files:
        with file.open("rb") as stream:
            content: Any = read_pickle(stream)
        data = content.get("image_data") if isinstance(content, dict) else None
        rows = content.get("class_dict") if isinstance(content, dict) else None
        if (
            not isinstance(data, np.ndarray)
            or data.dtype != np.uint8
            or data.ndim != 4
            or data.shape[3] != 3
            or data.shape[1] != data.shape[2]
            or not isinstance(rows, dict)
        ):
            raise DataError(f"{file} has no image_data (n, 84, 84, 3) with class_dict")
        if data.shape[1] != side:
            raise ParameterError(f"the pictures of {file} have {data.shape[1]} pixels, not {side}")
        for name, own in rows.items():
            index = flat_array(own, f"{file}: class {name!r}")
            if index.dtype.kind not in "iu" or (
                len(index) and not 0 <= index.min() <= index.max() < len(data)
            ):
                raise DataError(f"{file}: class {name!r} names rows that are not there")
            if str(name) in classes:
                raise DataError(
                    f"{file}: class {name!r} is in another file as well, or twice in this one"
                )
            classes[str(name)] = data[index].reshape(len(index), 3 * side**2)
    return classes


def _from_folders(folder: Path, side: int) -> dict[str, NDArray[np.uint8]]:
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in (".jpg", ".jpeg", ".png") and file.parent != folder:
            files.setdefault(file.parent.name, []).append(file)
    if len(files) < 2:
        raise DataError(
            f"{folder} has neither mini-imagenet-cache-train.pkl nor a folder of pictures for each "
            "class"
        )
    return {
        name: np.stack([small_picture(f.read_bytes(), side, str(f)).ravel() for f in own])
        for name, own in files.items()
    }
