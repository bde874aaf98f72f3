"""Make the data files of this folder again: three shares of scikit-learn's handwritten digits.

Run ``python make_data.py`` here, or ``python make_data.py FOLDER`` to write somewhere else.
"""

from __future__ import annotations

import csv
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from sklearn.datasets import load_digits

CLIENTS = {"north": 100, "south": 110, "harbour": 90}  # rows of each
LABELLED = 0.08
SEED = 1  # the first one with which each digit is labelled by somebody
UNLABELLED = -1
MID_GREY = 8  # pixels are 0 … 16; around 0, a dark pixel and a bright one have opposite signs


def write_table(file: Path, rows: list[list[Any]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows(rows)


def write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Do what `numpy.savez` does, but without the time and the machine inside."""
    with zipfile.ZipFile(file, "w") as out:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.create_system = 3
            with out.open(entry, "w") as member:
                npy.write_array(member, array, version=(1, 0), allow_pickle=False)


def main(folder: Path) -> None:
    pixels, digits = load_digits(return_X_y=True)
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(len(pixels))
    truth: list[list[Any]] = [["client", "id", "digit"]]
    start = 0
    for name, n in CLIENTS.items():
        share = order[start : start + n]
        start += n
        x = (pixels[share] - MID_GREY).astype(np.int8)
        y = digits[share].astype(np.int8)
        shown = np.where(np.arange(n) < round(LABELLED * n), y, UNLABELLED).astype(np.int8)
        match name:
            case "north":
                header = ["id", "digit", *(f"pixel{i}" for i in range(64))]
                ids = [f"n{i:03d}" for i in range(n)]
                cells = ["" if v == UNLABELLED else v for v in shown.tolist()]
                body = zip(ids, cells, x.tolist(), strict=True)
                write_table(folder / "north.csv", [header, *([i, c, *r] for i, c, r in body)])
            case "south":
                ids = list(range(n))
                np.save(folder / "south.npy", x)
                np.save(folder / "south_labels.npy", shown)
            case "harbour":
                ids = list(range(n))
                write_arrays(folder / "harbour.npz", {"pixels": x, "digits": shown})
        truth += [[name, i, v] for i, v in zip(ids, y.tolist(), strict=True)]
    write_table(folder / "truth.csv", truth)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
