"""Handwritten characters by writer, as LEAF prepares them; every writer is a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError
from xclp_lp.study.data.archives import archive_files
from xclp_lp.study.data.federation import Count, Federation, Place, Seed, require_between

CHARACTERS = (*"0123456789", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *"abcdefghijklmnopqrstuvwxyz")
"""The 62 classes in LEAF's order."""

_PIXELS = 784


def load_femnist(path: Place, *, n_clients: Count | None = None, seed: Seed = 0) -> Federation:
    """Load the training and test characters of LEAF's writers.

    Args:
        path: the folder or archive with ``train/*.json`` and ``test/*.json`` that LEAF's
            ``preprocess.sh -t sample`` writes. Each file has ``users``, ``num_samples`` and
            ``user_data``, which gives x (784 numbers in [0, 1] for each character) and y (0..61).
        n_clients: so many writers, drawn at random; all by default.
        seed: of that draw.

    Returns:
        d = 784; labels are the characters; test rows are those of ``test``.

    Errors are those of `xclp_lp.study.data.load`.

    Source: Caldas et al. 2018, arXiv:1812.01097 (LEAF).
    """
    files = archive_files(Path(path), ("train/*.json", "test/*.json"))
    writers: dict[str, list[tuple[NDArray[np.float64], NDArray[np.int64], bool]]] = {}
    for name in sorted(files, key=lambda n: ("test/" in n, n)):
        for writer, x, y in _writers(files[name], name):
            writers.setdefault(writer, []).append((x, y, Path(name).parent.name == "test"))
    names = sorted(writers)
    if n_clients is not None:
        require_between("n_clients", n_clients, 1, len(names))
        rng = np.random.Generator(np.random.PCG64(seed))
        names = [names[i] for i in sorted(rng.permutation(len(names))[:n_clients].tolist())]
    known = np.array(CHARACTERS)
    return Federation(
        names=tuple(names),
        features=tuple(np.concatenate([x for x, _, _ in writers[w]]) for w in names),
        labels=tuple(known[np.concatenate([y for _, y, _ in writers[w]])] for w in names),
        classes=CHARACTERS,
        source="S. Caldas et al., LEAF: A Benchmark for Federated Settings, 2018, "
        "arXiv:1812.01097; characters of NIST Special Database 19",
        licence="public domain (NIST); LEAF is BSD 2-Clause",
        test=tuple(np.concatenate([np.full(len(y), t) for _, y, t in writers[w]]) for w in names),
    )


def _writers(content: bytes, name: str) -> list[tuple[str, NDArray[np.float64], NDArray[np.int64]]]:
    try:
        part: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} is no JSON: {error}") from None
    if not isinstance(part, dict) or not {"users", "num_samples", "user_data"} <= set(part):
        raise DataError(f"{name} is not a file of LEAF: it lacks users, num_samples or user_data")
    users, counts, data = (part[key] for key in ("users", "num_samples", "user_data"))
    if not isinstance(users, list) or not isinstance(counts, list) or not isinstance(data, dict):
        raise DataError(
            f"{name} is not a file of LEAF: users, num_samples or user_data is not a list"
        )
    if len(users) != len(counts) or sorted(map(str, users)) != sorted(data):
        raise DataError(f"{name}: users and user_data name different writers")
    found = []
    for writer, samples in zip(map(str, users), counts, strict=True):
        own = data[writer]
        try:
            x = np.array(own["x"], dtype=np.float64).reshape(-1, _PIXELS)
            y = np.array(own["y"], dtype=np.int64)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise DataError(
                f"{name}: writer {writer!r} has no x with {_PIXELS} numbers each and y"
            ) from None
        if (
            y.shape != (len(x),)
            or len(y) != samples
            or not ((y >= 0) & (y < len(CHARACTERS))).all()
        ):
            raise DataError(
                f"{name}: writer {writer!r} has {len(x)} characters and labels of shape {y.shape}, "
                f"of {samples}; or a label outside 0..{len(CHARACTERS) - 1}"
            )
        found.append((writer, x, y))
    return found
