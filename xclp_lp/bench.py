"""Measurements that people run on their own machine: ``xclp bench``."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np

from xclp_crypto import secure_hamming, secure_sum
from xclp_crypto.errors import ParameterError
from xclp_crypto.front import client_names, secure_sum_bytes
from xclp_crypto.params import residue_width
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.protocols.secure_sum import MaskGraph
from xclp_crypto.protocols.secure_sum.double_masks import ROUNDS
from xclp_crypto.protocols.secure_sum.secure_sum import check_upload
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


RINGS: Final = (32, 64)
"""Bits of the rings that sums are measured in."""
BASE_BYTES: Final = 150_000_000
"""Memory of the interpreter and its libraries."""
PAIR_BYTES: Final = 350
"""Memory that a simulation holds for each client and each other one: keys and counters."""
LINK_BYTES: Final = 7000
"""Memory more for each client and each neighbour: keys of the link, shares."""


@dataclass(frozen=True)
class SumPlan:
    """A sum that is to be measured, and what it will cost.

    Attributes:
        graph: clients, threshold, and who shares masks with whom.
        size: values of each client.
        drop: how many clients vanish.
        codec: integers modulo 2^32 or 2^64.
        total_bytes: of all messages if nobody vanished, key exchange included.
        rounds: messages that wait for each other.
        memory: rough bytes that this process needs.
    """

    graph: MaskGraph
    size: int
    drop: int
    codec: FixedPoint
    total_bytes: int
    rounds: int
    memory: int


def plan_sum(
    clients: int,
    size: int,
    *,
    drop: int = 0,
    bits: int = 64,
    threshold: int | None = None,
    sparse: bool | None = None,
) -> SumPlan:
    """Check the arguments of `bench_sum` and say what it will cost.

    Raises:
        ParameterError: an argument is out of range, fewer clients than the threshold would be left,
            an upload is too long, or this machine has too little memory.
    """
    names = client_names(clients, None)
    if size < 1:
        raise ParameterError(f"size must be at least 1, got {size}")
    if bits not in RINGS:
        raise ParameterError(f"bits must be 32 or 64, got {bits}")
    graph = MaskGraph.choose(names, threshold, sparse=sparse)
    if not 0 <= drop <= clients - graph.threshold:
        raise ParameterError(
            f"drop must be in 0 … {clients - graph.threshold}, got {drop}: of {clients} clients "
            f"the threshold of {graph.threshold} must be left"
        )
    codec = FixedPoint(0, parties=clients, modulus=1 << bits)
    check_upload(size, codec.modulus)
    total_bytes = sum(secure_sum_bytes(graph, (size,), codec).values())
    # All clients hold their values, and those that are not yet masked their residues; the plain
    # sum, the result, and copies of one message on its way.
    word = bits // 8
    memory = BASE_BYTES + size * (clients * (8 + word) + 8 * word + 32)
    memory += clients * (clients * PAIR_BYTES + graph.degree * LINK_BYTES)
    if hasattr(os, "sysconf"):  # Windows does not say it this way
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if memory > available:
            raise ParameterError(
                f"{clients} clients with {size:,} values need {memory / 1e9:,.1f} GB and this "
                f"machine has {available / 1e9:,.1f} GB; use fewer clients or values"
            )
    return SumPlan(graph, size, drop, codec, total_bytes, 2 + ROUNDS, memory)


def bench_sum(
    clients: int,
    size: int,
    *,
    drop: int = 0,
    bits: int = 64,
    threshold: int | None = None,
    sparse: bool | None = None,
    repeat: int = 3,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Time a secure sum of integers, and NumPy's sum of the same beside it in the same run.

    Args:
        clients: p, at least 2.
        size: values of each client, at least 1.
        drop: how many clients vanish in stage ``upload``: their masks are agreed on and their
            values do not come, which is the most expensive to recover from.
        bits: of the ring, 32 or 64.
        threshold: fewest survivors, by default that of `secure_sum`.
        sparse: as for `secure_sum`.
        repeat: runs of each, alternating; medians are reported.
        seed: of the values, which fill the ring.
        progress: called before each computation.

    Returns:
        ``seconds`` (whole run with all parties, key exchange and encoding included), ``exact``
        (every sum right and the survivors those that did not vanish), ``survivors`` (how many),
        ``bytes`` (of all messages), ``upload_bytes_per_client`` (all that the busiest client
        sent), ``ratio_to_plain`` (of seconds), ``peak_rss`` (bytes of the whole process),
        ``mask_gb_per_s`` (10^9 bytes of masks made and added per second by one client),
        ``neighbours`` (with whom each client shares masks) and the arguments.

    Raises:
        ParameterError: as from `plan_sum`, or a repeat below 1.
    """
    if repeat < 1:
        raise ParameterError(f"repeat must be at least 1, got {repeat}")
    plan = plan_sum(clients, size, drop=drop, bits=bits, threshold=threshold, sparse=sparse)
    rng = np.random.default_rng(seed)
    limit = int(plan.codec.max_abs)
    values = [rng.integers(-limit, limit, size, endpoint=True) for _ in range(clients)]
    masks_bytes = (plan.graph.degree + 1) * size * bits // 8
    seconds, plain_seconds, speeds = [], [], []
    exact, survivors, total_bytes, upload, peak = True, 0, 0, 0, 0
    for _ in range(repeat):
        started = perf_counter()
        expected = np.zeros(size, dtype=np.int64)
        for own in values[drop:]:
            expected += own
        plain_seconds.append(perf_counter() - started)
        started = perf_counter()
        found = secure_sum(
            values,
            threshold=threshold,
            drop=range(drop),
            sparse=sparse,
            fraction_bits=0,
            modulus=1 << bits,
            progress=progress,
        )
        seconds.append(perf_counter() - started)
        peak = peak or peak_rss()
        exact = exact and bool((found.total == expected.astype(np.float64)).all())
        exact = exact and found.survivors == plan.graph.clients[drop:]
        sent = found.cost.bytes_by(lambda traffic: traffic.sender)
        survivors, total_bytes = len(found.survivors), found.cost.total_bytes
        upload = max(sent[client] for client in found.survivors)
        speeds += [
            masks_bytes / spent / 1e9
            for work, spent in found.cost.seconds.items()
            if work.function == "mask"
        ]
    return {
        "clients": clients,
        "size": size,
        "drop": drop,
        "bits": bits,
        "threshold": plan.graph.threshold,
        "sparse": plan.graph.degree < clients - 1,
        "neighbours": plan.graph.degree,
        "repeat": repeat,
        "seed": seed,
        "seconds": float(np.median(seconds)),
        "exact": exact,
        "survivors": survivors,
        "bytes": total_bytes,
        "upload_bytes_per_client": upload,
        "ratio_to_plain": float(np.median(seconds) / np.median(plain_seconds)),
        "peak_rss": peak,
        "mask_gb_per_s": float(np.median(speeds)),
    }
