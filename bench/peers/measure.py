"""What the scripts of the peers and `ours.py` have in common: arguments, data, clock, result.

Standard library and NumPy only, because every peer imports it in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

SUM_CLIENTS, SUM_THRESHOLD = 10, 7
"""Clients of a secure sum, and how many of their shares recover a secret."""

MEAN_DROPOUT = 3
"""The client of a mean that drops out after it shared its secrets, before its update leaves."""


def updates() -> tuple[list[np.ndarray], list[int]]:
    """Return the update of each client, 1,000,000 values of float32, and its weight."""
    rng = np.random.default_rng(2024)
    values = [0.1 * rng.standard_normal(1_000_000, np.float32) for _ in range(SUM_CLIENTS)]
    return values, [int(w) for w in rng.integers(100, 1000, SUM_CLIENTS)]


def mean_error(found: np.ndarray) -> float:
    """Return how far a mean of `updates` without the dropout is off, at most."""
    values, weights = updates()
    left = [i for i in range(SUM_CLIENTS) if i != MEAN_DROPOUT]
    expected = sum(weights[i] * values[i].astype(np.float64) for i in left)
    return float(np.abs(found - expected / sum(weights[i] for i in left)).max())


def arguments() -> argparse.Namespace:
    """Return the arguments that the runner passes; unknown ones are left to the peer."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True, help="folder with x.npy and y.npy")
    parser.add_argument("--result", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--variant", default="", help="which way to use the peer")
    parser.add_argument("--key-bits", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="encryptions or transfers to do")
    return parser.parse_known_args()[0]


def load(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the 0/1 matrices x (n, L) and y (m, L) as uint8."""
    return np.load(folder / "x.npy"), np.load(folder / "y.npy")


def distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the (n, m) Hamming distances in the clear, exact for L < 2^24."""
    products = x.astype(np.float32) @ y.T.astype(np.float32)
    weights = x.sum(1, dtype=np.int64)[:, None] + y.sum(1, dtype=np.int64)
    return weights - 2 * products.astype(np.int64)


class Clock:
    """Wall and CPU seconds of a block; CPU is that of all threads of this process."""

    def __enter__(self) -> Clock:
        self.seconds, self.cpu = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter()
        self.cpu += time.process_time()


def write(args: argparse.Namespace, clock: Clock, *, sent: int, exact: bool, **more: float) -> None:
    """Write the result: seconds, CPU seconds, bytes on the wire, exactness, details."""
    values = {"seconds": clock.seconds, "cpu": clock.cpu, "bytes": int(sent), "exact": bool(exact)}
    args.result.write_text(json.dumps(values | more))
