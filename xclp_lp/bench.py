"""Measurements that people run on their own machine: ``xclp bench``."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from xclp_crypto import secure_hamming
from xclp_crypto.errors import ParameterError
from xclp_crypto.params import residue_width
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.transport.simulate import Progress
from xclp_lp.estimator import require_memory


def peak_rss() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def bench_hamming(
    backend: str,
    n: int,
    m: int,
    n_bits: int,
    *,
    repeat: int = 3,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Time one back end between two clients, and ``plain`` beside it in the same run.

    Args:
        backend: name of the back end.
        n: rows of the first client, at least 1.
        m: rows of the second client, at least 1.
        n_bits: L.
        repeat: runs of each, alternating; medians are reported.
        seed: of the bits.
        progress: called before each computation of the back end.

    Returns:
        ``seconds`` (whole run with all parties, setup and encoding included),
        ``bit_comparisons_per_second`` (n·m·L per second), ``bytes`` (of all messages, setup
        included), ``ratio_to_plain`` (of seconds), ``exact`` (every distance right), ``peak_rss``
        (bytes of the whole process) and the arguments.

    Raises:
        ParameterError: a size is below 1, does not fit into memory, or the back end refuses it.
    """
    for name, value in (("n", n), ("m", m), ("repeat", repeat)):
        if value < 1:
            raise ParameterError(f"{name} must be at least 1, got {value}")
    get_backend(backend)
    residue_width(n_bits)
    require_memory({"client-0": n, "client-1": m}, n_bits, backend)
    rng = np.random.default_rng(seed)
    bits = [rng.integers(0, 2, (rows, n_bits), dtype=np.uint8) for rows in (n, m)]
    stacked = np.concatenate(bits).astype(np.float32)
    expected = stacked @ (1 - stacked).T
    expected += expected.T
    seconds: dict[str, list[float]] = {backend: [], "plain": []}
    exact, total_bytes, peak = True, 0, 0
    for _ in range(repeat):
        for name in dict.fromkeys((backend, "plain")):
            started = perf_counter()
            found, cost = secure_hamming(bits, name, progress=progress if name == backend else None)
            seconds[name].append(perf_counter() - started)
            if name == backend:
                exact = exact and bool((found == expected).all())
                total_bytes, peak = cost.total_bytes, peak or peak_rss()
    median = {name: float(np.median(times)) for name, times in seconds.items()}
    return {
        "backend": backend,
        "n": n,
        "m": m,
        "bits": n_bits,
        "repeat": repeat,
        "seconds": median[backend],
        "bit_comparisons_per_second": n * m * n_bits / median[backend],
        "bytes": total_bytes,
        "ratio_to_plain": median[backend] / median["plain"],
        "exact": exact,
        "peak_rss": peak,
    }
