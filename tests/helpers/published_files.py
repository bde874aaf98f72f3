"""Small files in the published formats of data sets, for tests of their loaders and of training."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from xclp_crypto.errors import DataError
from xclp_lp.study.data import load

RNG = np.random.default_rng(0)


def refused(name: str, path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(name, path=path)


def tagged(n: int, d: int, first: int = 0) -> NDArray[np.uint8]:
    """Pictures that have their number in the first pixel."""
    pixels = RNG.integers(256, size=(n, d), dtype=np.uint8)
    pixels[:, 0] = np.arange(n) + first
    return pixels


FINE = [f"fine{c:02d}" for c in range(100)]
TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def cifar_10(folder: Path, kind: str) -> Path:
    inside = folder / f"cifar-10-batches-{kind}"
    inside.mkdir()
    for i, name in enumerate([*(f"data_batch_{b}" for b in range(1, 6)), "test_batch"]):
        pixels, labels = tagged(20, 3072, 20 * i), [(20 * i + j) % 10 for j in range(20)]
        if kind == "py":
            batch = {"data": pixels, "labels": labels, "filenames": ["x.png"] * 20}
            (inside / name).write_bytes(pickle.dumps(batch, 2))
        else:
            rows = np.concatenate([np.array(labels, np.uint8)[:, None], pixels], axis=1)
            (inside / f"{name}.bin").write_bytes(rows.tobytes())
    if kind == "py":
        (inside / "batches.meta").write_bytes(pickle.dumps({"label_names": TEN}, 2))
    else:
        (inside / "batches.meta.txt").write_text("\n".join(TEN) + "\n\n")
    return inside


def cifar_100(folder: Path, kind: str) -> Path:
    inside = folder / f"cifar-100-{kind}"
    inside.mkdir()
    for name, n, first in (("train", 100, 0), ("test", 20, 100)):
        fine = [(first + j) % 100 for j in range(n)]
        coarse = [f // 5 for f in fine]
        pixels = tagged(n, 3072, first)
        if kind == "py":
            batch = {"data": pixels, "fine_labels": fine, "coarse_labels": coarse}
            (inside / name).write_bytes(pickle.dumps(batch, 2))
        else:
            rows = np.concatenate([np.array([coarse, fine], np.uint8).T, pixels], axis=1)
            (inside / f"{name}.bin").write_bytes(rows.tobytes())
    if kind == "py":
        (inside / "meta").write_bytes(pickle.dumps({"fine_label_names": FINE}, 2))
    else:
        (inside / "fine_label_names.txt").write_text("\n".join(FINE) + "\n")
    return inside


def cache(file: Path, classes: dict[str, int], first: int) -> None:
    data = np.zeros((sum(classes.values()), 84, 84, 3), dtype=np.uint8)
    data[:, 0, 0, 0] = np.arange(len(data)) + first
    ends = np.cumsum(list(classes.values()))
    rows = {
        name: list(range(end - n, end))
        for (name, n), end in zip(classes.items(), ends.tolist(), strict=True)
    }
    file.write_bytes(pickle.dumps({"image_data": data, "class_dict": rows}, 2))
