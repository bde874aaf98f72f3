"""Measurements that people run on their own machine: `xclp bench`, and those of bench/."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto import secure_hamming, secure_sum
from xclp_crypto.errors import ParameterError
from xclp_crypto.front import client_names, secure_sum_bytes
from xclp_crypto.params import residue_width
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.protocols.secure_sum import MaskGraph
from xclp_crypto.protocols.secure_sum.costs import ROUNDS
from xclp_crypto.protocols.secure_sum.secure_sum import check_upload
from xclp_crypto.role import Report
from xclp_crypto.transport.driver import Progress
from xclp_lp.graph import neighbour_graph, neighbour_graph_from_bits
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.memory import BASE_BYTES, available_memory, require_available, require_memory
from xclp_lp.propagation import hamming_distances, predict
from xclp_lp.solvers import Propagator, Solver

CLASSES = 10
CLUSTERS = 5
"""Of the vectors that propagation is measured on: clusters of each class."""
FEATURES = 64
DIMENSIONS = 12
"""In which a cluster extends; real features lie near surfaces of few dimensions too."""
DENSE_SHARE = 0.6
"""Of this machine's memory: what the dense baseline may take, else it is left out."""


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
    require_available(
        memory, f"{clients} clients with {size:,} values", "use fewer clients or values"
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


def clustered(
    n: int, seed: int, classes: int = CLASSES
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw vectors of clusters of 12 dimensions each, five to a class, in 64 features.

    Their graph looks like those of real data: with k = 10 one component, or few, whose neighbours
    mostly are of the same class, and with k = 3 some dozens of components.

    Args:
        n: number of vectors.
        seed: of centres, directions and vectors.
        classes: number of classes.

    Returns:
        Shape (n, 64), float64, and shape (n,), int64: classes from 0 on.
    """
    rng = np.random.default_rng(seed)
    clusters = CLUSTERS * classes
    centres = 0.2 * rng.standard_normal((clusters, FEATURES))
    directions = rng.standard_normal((clusters, DIMENSIONS, FEATURES)) / np.sqrt(DIMENSIONS)
    cluster = rng.integers(0, clusters, n)
    vectors = centres[cluster] + 0.1 * rng.standard_normal((n, FEATURES))
    for c in range(clusters):
        own = np.flatnonzero(cluster == c)
        vectors[own] += rng.standard_normal((len(own), DIMENSIONS)) @ directions[c]
    return vectors, cluster % classes


def bench_propagation(
    n: int,
    labelled: int,
    n_bits: int,
    *,
    k: int = 10,
    alpha: float = 0.99,
    solver: Solver = "auto",
    from_features: bool = False,
    dense: bool = True,
    repeat: int = 3,
    seed: int = 0,
    progress: Report | None = None,
) -> dict[str, Any]:
    """Time the server's half, from distances to scores, and a dense inverse in the same run.

    The vectors are those of `clustered`. Everything is done as a whole ``repeat`` times, and the
    medians are reported; the dense inverse only once from 5,000 points on.

    Args:
        n: points.
        labelled: labelled points, in 1..n.
        n_bits: L.
        k: neighbours per point.
        alpha: α.
        solver: see `Propagator`.
        from_features: start from the vectors, without a matrix of all distances, and compute the
            scores only.
        dense: whether to time the dense inverse, if it fits into memory.
        repeat: runs.
        seed: of the vectors, and of which are labelled.
        progress: called as the work goes on.

    Returns:
        ``seconds`` (from distances, or features, to the scores of all points, solving for one
        column per class), ``columns_seconds`` (from distances to the columns of S of all labelled
        points and to the scores by them, as in a private run), ``dense_seconds`` (from distances to
        scores by dense float64 matrices) and ``dense_inverse_seconds`` (`numpy.linalg.inv` alone),
        ``ratio_to_dense`` and ``columns_ratio_to_dense`` (how many times as long the dense way
        takes), ``residual`` and ``columns_residual`` (largest entries), ``solver`` and
        ``columns_solver``, ``identical_labels`` (of all ways), ``peak_rss`` (bytes of the whole
        process before the dense inverse) and the arguments. What was not measured is None.

    Raises:
        ParameterError: a size is out of range or does not fit into memory.
    """
    if not 1 <= labelled <= n:
        raise ParameterError(f"labelled must be in 1..{n}, got {labelled}")
    if repeat < 1:
        raise ParameterError(f"repeat must be at least 1, got {repeat}")
    residue_width(n_bits)
    if not from_features:
        require_available(
            3 * n**2 + 6 * n * n_bits,
            f"all distances of {n:,} points",
            "start from features instead",
        )
    report: Report = progress or (lambda *_: None)
    vectors, classes = clustered(n, seed)
    picked = np.sort(np.random.default_rng(seed).permutation(n)[:labelled])
    Y = np.zeros((n, CLASSES))
    Y[picked, classes[picked]] = 1.0
    report("hashing", 0, n)
    pi = projection(bytes(32), n_bits, FEATURES)
    H = np.empty((0, 0), np.uint16)
    if not from_features:
        H = hamming_distances(hash_bits(vectors, pi))

    seconds: dict[str, list[float]] = {}
    labels = []
    result: dict[str, Any] = {}

    def measure(name: str, started: float, Z: NDArray[np.float64]) -> None:
        seconds.setdefault(name, []).append(perf_counter() - started)
        labels.append(predict(Z).labels)

    for _ in range(repeat):
        started = perf_counter()
        if from_features:
            graph = neighbour_graph_from_bits(hash_bits(vectors, pi), k, progress=progress)
        else:
            graph = neighbour_graph(H, n_bits, k)
        graph_seconds = perf_counter() - started
        direct = Propagator(graph, alpha, CLASSES, solver=solver, progress=progress)
        measure("seconds", started, direct.scores(Y))
        result |= {"solver": direct.solver, "residual": direct.residual}
        if not from_features:
            started = perf_counter() - graph_seconds
            by_columns = Propagator(graph, alpha, labelled, solver=solver, progress=progress)
            Z = np.zeros((n, CLASSES))
            for block, S in by_columns.influence(picked):
                Z += S @ Y[picked[block]]
            measure("columns_seconds", started, Z)
            result["columns_solver"] = by_columns.solver
            result["columns_residual"] = by_columns.residual
    result["peak_rss"] = peak_rss()
    if dense and not from_features and 32 * n**2 <= DENSE_SHARE * available_memory():
        for _ in range(repeat if n < 5000 else 1):
            report("dense inverse", 0, n)
            started = perf_counter()
            Z, inverse = dense_scores(H, n_bits, k, alpha, Y)
            measure("dense_seconds", started, Z)
            seconds.setdefault("dense_inverse_seconds", []).append(inverse)
    result["identical_labels"] = all((found == labels[0]).all() for found in labels)
    names = ("seconds", "columns_seconds", "dense_seconds", "dense_inverse_seconds")
    median = {s: float(np.median(seconds[s])) if s in seconds else None for s in names}
    whole = median["dense_seconds"]
    for ratio, name in (
        ("ratio_to_dense", "seconds"),
        ("columns_ratio_to_dense", "columns_seconds"),
    ):
        ours = median[name]
        result[ratio] = whole / ours if whole and ours else None
    arguments = {
        "n": n,
        "labelled": labelled,
        "bits": n_bits,
        "k": k,
        "alpha": alpha,
        "from_features": from_features,
        "repeat": repeat,
        "seed": seed,
    }
    return arguments | {"columns_solver": None, "columns_residual": None} | median | result


def dense_scores(
    H: NDArray[np.uint16], n_bits: int, k: int, alpha: float, Y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Compute Z with dense matrices throughout, as a straightforward implementation would.

    Args:
        H: shape (n, n): distances; not modified.
        n_bits: L.
        k: neighbours per point, with all that are as near as the k-th.
        alpha: α.
        Y: shape (n, C).

    Returns:
        Z, shape (n, C), float64, and the seconds of the inverse alone.
    """
    A = np.cos(np.pi / n_bits * H)
    np.fill_diagonal(A, -np.inf)
    for row in A:
        row[row < max(np.partition(row, -k)[-k], 1e-15)] = 0.0
    W = A + A.T
    del A
    degree = W.sum(axis=1)
    root = np.sqrt(np.where(degree > 0, degree, 1.0))
    W /= root[:, None]
    W /= root
    W *= -alpha
    W[np.diag_indices(len(W))] += 1.0
    started = perf_counter()
    S = np.linalg.inv(W)
    inverse = perf_counter() - started
    Z: NDArray[np.float64] = np.maximum(S @ Y, 0.0)
    return Z, inverse
