"""Pictures of clothes, dealt out to clients evenly or by classes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.study.data.federation import Federation
from xclp_lp.study.data.files import unzipped
from xclp_lp.study.data.partitions import dealt_federation

CLOTHES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
"""The ten classes in the order of the data set."""

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts the data."""

_BYTES = 8  # of an idx file's type


def load_fashion(
    path: str | Path | None = None,
    *,
    n_clients: int = 10,
    partition: str = "iid",
    concentration: float = 0.5,
    n_rows: int = 7000,
    seed: int = 0,
) -> Federation:
    """Load Fashion-MNIST, pictures of 28×28 pixels, as pixels in [0, 1].

    Args:
        path: a folder with the four idx files at any depth, gzipped or not; by default where
            Debian's package dataset-fashion-mnist puts them.
        n_clients: ≥ 1.
        partition: ``iid`` or ``dirichlet``, see `class_shares`.
        concentration: of the Dirichlet distribution.
        n_rows: so many pictures in all, drawn at random, training and test set in proportion.
        seed: of draw and partition, ≥ 0.

    Returns:
        d = 784; labels are the names in `CLOTHES`; test rows are those of the published test set,
        dealt out in the same shares of classes.

    Raises:
        ParameterError: the files are not there or an argument is out of range.
        DataError: a file is something else.

    Source: Xiao, Rasul and Vollgraf 2017, arXiv:1708.07747.
    """
    folder = DEBIAN if path is None else Path(path)
    return dealt_federation(
        _part(folder, "train"),
        _part(folder, "t10k"),
        classes=CLOTHES,
        n_clients=n_clients,
        partition=partition,
        concentration=concentration,
        n_rows=n_rows,
        seed=seed,
        source="H. Xiao et al., Fashion-MNIST, 2017, arXiv:1708.07747",
        licence="MIT",
    )


def _part(folder: Path, which: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    pixels = read_idx(_found(folder, f"{which}-images-idx3-ubyte"), 3)
    labels = read_idx(_found(folder, f"{which}-labels-idx1-ubyte"), 1).astype(np.int64)
    if pixels.shape[1:] != (28, 28) or len(pixels) != len(labels) or labels.max(initial=0) > 9:
        raise DataError(
            f"{folder}: {which} has pictures of shape {pixels.shape} and labels of shape "
            f"{labels.shape} up to {labels.max(initial=0)}; 28×28 pixels and 0 to 9 are needed"
        )
    return pixels.reshape(len(pixels), -1), labels


def _found(folder: Path, name: str) -> Path:
    found = sorted(f for f in folder.rglob(f"{name}*") if f.name in (name, name + ".gz"))
    if not found:
        raise ParameterError(
            f"there is no {name}.gz at {folder}; install Debian's dataset-fashion-mnist, run "
            "`make data`, or give the folder with it"
        )
    return found[0]


def read_idx(file: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of bytes, gzipped or not.

    Args:
        file: two zero bytes, 8 for the type, the number of dimensions, their sizes (big-endian, 4
            bytes each), and the bytes.
        dimensions: needed.

    Raises:
        DataError: the file is something else or cut short.
    """
    content = unzipped(file)
    head = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, _BYTES, dimensions]) or len(content) < head:
        raise DataError(f"{file} is no idx file of bytes with {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    if len(content) - head != np.prod(shape, dtype=object):
        raise DataError(
            f"{file} has {len(content) - head:,} bytes of data; its sizes {shape} need "
            f"{np.prod(shape, dtype=object):,}"
        )
    try:
        return np.frombuffer(content, np.uint8, offset=head).reshape(shape)
    except ValueError:  # nothing in one dimension, and too much for NumPy in the others
        raise DataError(f"{file} has no array of sizes {shape}") from None
