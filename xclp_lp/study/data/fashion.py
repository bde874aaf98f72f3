"""Pictures of clothes, dealt out to clients evenly or by classes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError
from xclp_lp.study.data.archives import installed_file, unzipped
from xclp_lp.study.data.dealing import Dealing, dealt_federation
from xclp_lp.study.data.federation import Federation, Place

CLOTHES = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
"""The ten classes in the order of the data set."""

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts the data."""

_BYTES = 8  # of an idx file's type


def load_fashion(path: Place | None = None, **dealing: Unpack[Dealing]) -> Federation:
    """Load Fashion-MNIST, pictures of 28×28 pixels, as pixels in [0, 1].

    Args:
        path: a folder with the four idx files at any depth, gzipped or not; by default where
            Debian's package dataset-fashion-mnist puts them.
        dealing: out to clients, see `Dealing`; `n_rows` is 7,000 by default.

    Returns:
        d = 784; labels are the names in `CLOTHES`; test rows are those of the published test set,
        dealt out in the same shares of classes.

    Errors are those of `xclp_lp.study.data.load`.

    Source: Xiao, Rasul and Vollgraf 2017, arXiv:1708.07747.
    """
    folder = DEBIAN if path is None else Path(path)
    dealing.setdefault("n_rows", 7000)
    return dealt_federation(
        _part(folder, "train"),
        _part(folder, "t10k"),
        classes=CLOTHES,
        source="H. Xiao et al., Fashion-MNIST, 2017, arXiv:1708.07747",
        licence="MIT",
        **dealing,
    )


def _part(folder: Path, which: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    pixels, labels = (
        read_idx(installed_file(folder, f"{which}-{name}-ubyte", "dataset-fashion-mnist"), n)
        for name, n in (("images-idx3", 3), ("labels-idx1", 1))
    )
    if pixels.shape[1:] != (28, 28) or len(pixels) != len(labels) or labels.max(initial=0) > 9:
        raise DataError(
            f"{folder}: {which} has pictures of shape {pixels.shape} and labels of shape "
            f"{labels.shape} up to {labels.max(initial=0)}; 28×28 pixels and 0 to 9 are needed"
        )
    return pixels.reshape(len(pixels), -1), labels.astype(np.int64)


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
        raise DataError(f"{file} is not an idx file of bytes with {dimensions} dimensions")
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
