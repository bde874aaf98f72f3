"""CIFAR-10 and CIFAR-100, from their python or binary archives, dealt out to clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError
from xclp_lp.study.data.archives import archive_files
from xclp_lp.study.data.dealing import Dealing, dealt_federation
from xclp_lp.study.data.federation import Federation, Place
from xclp_lp.study.data.pickles import flat_array, read_pickle

_PIXELS = 3 * 32 * 32
_Pictures = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (n, 3072) pixels, (n,) class ids


class _Archive(NamedTuple):
    """What the archives have: batches, and the files and keys of names and labels.

    Records of the binary one begin with `head` label bytes (CIFAR-100: coarse and fine).
    """

    n_classes: int
    train: tuple[str, ...]
    test: str
    meta: str
    text: str
    names: str
    labels: str
    head: int


_CIFAR_10 = _Archive(
    10, tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch",
    "batches.meta", "batches.meta.txt", "label_names", "labels", 1,
)  # fmt: skip
_CIFAR_100 = _Archive(
    100, ("train",), "test", "meta", "fine_label_names.txt", "fine_label_names", "fine_labels", 2
)


def load_cifar10(path: Place, **dealing: Unpack[Dealing]) -> Federation:
    """Load CIFAR-10, pictures of 32×32 pixels in three colours, as pixels in [0, 1].

    Args:
        path: cifar-10-python.tar.gz, cifar-10-binary.tar.gz, or a folder with what is in it.
        dealing: out to clients, see `Dealing`.

    Returns:
        d = 3072, red, green and blue one after the other; labels are the classes' names.

    Errors are those of `xclp_lp.study.data.load`.

    Source: Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
    """
    return _load(_CIFAR_10, Path(path), dealing)


def load_cifar100(path: Place, **dealing: Unpack[Dealing]) -> Federation:
    """Load CIFAR-100 with its 100 fine classes; see `load_cifar10`."""
    return _load(_CIFAR_100, Path(path), dealing)


def _load(kind: _Archive, path: Path, dealing: Dealing) -> Federation:
    n_classes, wanted = kind.n_classes, (*kind.train, kind.test)
    binary = [f"{w}.bin" for w in wanted]
    found = archive_files(path, (*wanted, *binary, kind.meta, kind.text))
    files = {PurePosixPath(n).name: content for n, content in found.items()}
    if {*wanted, kind.meta} <= set(files):
        described = read_pickle(files[kind.meta])
        names = described.get(kind.names) if isinstance(described, dict) else None
        parts = [_python(files, w, kind) for w in wanted]
    elif {*binary, kind.text} <= set(files):
        names = files[kind.text].decode("ascii", "replace").split()
        parts = [_binary(files, w, kind) for w in binary]
    else:
        raise DataError(f"{path} has not all files of CIFAR-{n_classes}: {', '.join(wanted)}")
    if not isinstance(names, list) or len(set(map(str, names))) != n_classes:
        raise DataError(f"{path} does not name {n_classes} classes")
    *train, test = parts
    pixels, class_ids = (np.concatenate(own) for own in zip(*train, strict=True))
    return dealt_federation(
        (pixels, class_ids),
        test,
        classes=tuple(map(str, names)),
        source=f"A. Krizhevsky, CIFAR-{n_classes}, 2009",
        licence="not stated",
        **dealing,
    )


def _python(files: Mapping[str, bytes], name: str, kind: _Archive) -> _Pictures:
    batch: Any = read_pickle(files[name])
    if not isinstance(batch, dict) or not {"data", kind.labels} <= set(batch):
        raise DataError(
            f"{name} is not a batch of CIFAR-{kind.n_classes}: it lacks data or {kind.labels}"
        )
    return _checked(batch["data"], batch[kind.labels], name, kind.n_classes)


def _binary(files: Mapping[str, bytes], name: str, kind: _Archive) -> _Pictures:
    """Read records of label bytes and 3072 pixels."""
    size = kind.head + _PIXELS
    if len(files[name]) % size:
        raise DataError(f"{name} is not made of records of {size} bytes")
    records = np.frombuffer(files[name], np.uint8).reshape(-1, size)
    return _checked(records[:, kind.head :], records[:, kind.head - 1], name, kind.n_classes)


def _checked(data: Any, labels: Any, name: str, n_classes: int) -> _Pictures:
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_PIXELS,):
        raise DataError(f"{name} has no pictures of {_PIXELS} bytes")
    class_ids = flat_array(labels, f"the labels of {name}")
    if (len(class_ids) and class_ids.dtype.kind not in "iu") or class_ids.shape != data.shape[:1]:
        raise DataError(f"{name} has {len(data)} pictures and labels of shape {class_ids.shape}")
    if len(class_ids) and not 0 <= class_ids.min() <= class_ids.max() < n_classes:
        raise DataError(
            f"{name} has labels {class_ids.min()} to {class_ids.max()}, not 0 to {n_classes - 1}"
        )
    return data, class_ids.astype(np.int64)
