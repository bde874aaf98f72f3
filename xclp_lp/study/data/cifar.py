"""CIFAR-10 and CIFAR-100, from their python or binary archives, dealt out to clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError
from xclp_lp.study.data.federation import Federation
from xclp_lp.study.data.files import archive_files
from xclp_lp.study.data.partitions import dealt_federation
from xclp_lp.study.data.pickles import flat_array, read_pickle

_PIXELS = 3 * 32 * 32
_PARTS = {
    10: ([f"data_batch_{i}" for i in range(1, 6)], ["test_batch"]),
    100: (["train"], ["test"]),
}


def load_cifar10(
    path: str | Path,
    *,
    n_clients: int = 10,
    partition: str = "iid",
    concentration: float = 0.5,
    n_rows: int = 6000,
    seed: int = 0,
) -> Federation:
    """Load CIFAR-10, pictures of 32×32 pixels in three colours, as pixels in [0, 1].

    Args:
        path: cifar-10-python.tar.gz, cifar-10-binary.tar.gz, or a folder with what is in it.
        n_clients: see `load_fashion`, as the rest.
        partition: ``iid`` or ``dirichlet``.
        concentration: of the Dirichlet distribution.
        n_rows: so many pictures, training and test set in proportion.
        seed: ≥ 0.

    Returns:
        d = 3072, red, green and blue one after the other; labels are the classes' names.

    Raises:
        ParameterError: an argument is out of range.
        DataError: the files are something else.

    Source: Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
    """
    return _load(10, Path(path), n_clients, partition, concentration, n_rows, seed)


def load_cifar100(
    path: str | Path,
    *,
    n_clients: int = 10,
    partition: str = "iid",
    concentration: float = 0.5,
    n_rows: int = 6000,
    seed: int = 0,
) -> Federation:
    """Load CIFAR-100 with its 100 fine classes; see `load_cifar10`."""
    return _load(100, Path(path), n_clients, partition, concentration, n_rows, seed)


def _load(
    n_classes: int,
    path: Path,
    n_clients: int,
    partition: str,
    concentration: float,
    n_rows: int,
    seed: int,
) -> Federation:
    train, test = _PARTS[n_classes]
    meta = "batches.meta" if n_classes == 10 else "meta"
    text = "batches.meta.txt" if n_classes == 10 else "fine_label_names.txt"
    wanted = [*train, *test]
    files = {
        PurePosixPath(n).name: content
        for n, content in archive_files(
            path, (*wanted, *(f"{w}.bin" for w in wanted), meta, text)
        ).items()
    }
    if set(wanted) <= set(files) and meta in files:
        key = "label_names" if n_classes == 10 else "fine_label_names"
        described = read_pickle(files[meta])
        names = described.get(key) if isinstance(described, dict) else None
        parts = {w: _python(files, w, n_classes) for w in wanted}
    elif {f"{w}.bin" for w in wanted} <= set(files) and text in files:
        names = files[text].decode("ascii", "replace").split()
        parts = {w: _binary(files, w, n_classes) for w in wanted}
    else:
        raise DataError(f"{path} has not all files of CIFAR-{n_classes}: {', '.join(wanted)}")
    if not isinstance(names, list) or len(set(map(str, names))) != n_classes:
        raise DataError(f"{path} does not name {n_classes} classes")
    sets = []
    for members in (train, test):
        pixels = np.concatenate([parts[w][0] for w in members])
        sets.append((pixels, np.concatenate([parts[w][1] for w in members])))
    return dealt_federation(
        sets[0],
        sets[1],
        classes=tuple(map(str, names)),
        n_clients=n_clients,
        partition=partition,
        concentration=concentration,
        n_rows=n_rows,
        seed=seed,
        source=f"A. Krizhevsky, CIFAR-{n_classes}, 2009",
        licence="not stated",
    )


def _python(
    files: Mapping[str, bytes], name: str, n_classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch: Any = read_pickle(files[name])
    key = "labels" if n_classes == 10 else "fine_labels"
    if not isinstance(batch, dict) or not {"data", key} <= set(batch):
        raise DataError(f"{name} is no batch of CIFAR-{n_classes}: it lacks data or {key}")
    return _checked(batch["data"], batch[key], name, n_classes)


def _binary(
    files: Mapping[str, bytes], name: str, n_classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read records of a label byte (CIFAR-100: coarse and fine) and 3072 pixels."""
    head = 1 if n_classes == 10 else 2
    content = files[f"{name}.bin"]
    if len(content) % (head + _PIXELS):
        raise DataError(f"{name}.bin is not made of records of {head + _PIXELS} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, head + _PIXELS)
    return _checked(records[:, head:], records[:, head - 1], f"{name}.bin", n_classes)


def _checked(
    data: Any, labels: Any, name: str, n_classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_PIXELS,):
        raise DataError(f"{name} has no pictures of {_PIXELS} bytes")
    codes = flat_array(labels, f"the labels of {name}")
    if (len(codes) and codes.dtype.kind not in "iu") or codes.shape != data.shape[:1]:
        raise DataError(f"{name} has {len(data)} pictures and labels of shape {codes.shape}")
    if len(codes) and not 0 <= codes.min() <= codes.max() < n_classes:
        raise DataError(
            f"{name} has labels {codes.min()} to {codes.max()}, not 0 to {n_classes - 1}"
        )
    return data, codes.astype(np.int64)
