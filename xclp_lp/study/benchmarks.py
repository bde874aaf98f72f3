"""Measurements that people run on their own machine by `xclp bench`, and what `bench/` shares.

Each runs the plain computation beside the secure one and returns JSON-ready values: its arguments,
``seconds`` (the median over `repeat` runs with all parties, key exchange and encoding included),
``peak_rss`` (bytes of the whole process at its peak), and what its function says.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto import secure_hamming, secure_sum
from xclp_crypto.errors import ParameterError
from xclp_crypto.front import client_names, secure_sum_bytes
from xclp_crypto.params import residue_width
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum import MaskGraph
from xclp_crypto.protocols.secure_sum.costs import ROUNDS
from xclp_crypto.protocols.secure_sum.secure_sum import check_upload
from xclp_crypto.protocols.setup.costs import ROUNDS as EXCHANGE_ROUNDS
from xclp_crypto.role import OnProgress
from xclp_crypto.transport.driver import Progress
from xclp_lp.graph import neighbour_graph, neighbour_graph_from_bits
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.machine import available_memory, require_available
from xclp_lp.memory import BASE_BYTES, require_memory
from xclp_lp.predictions import predict
from xclp_lp.propagation import hamming_distances
from xclp_lp.solvers import Propagator, Solver

CLASSES = 10
CLUSTERS = 5
"""Of the vectors that propagation is measured on: clusters of each class."""
FEATURES = 64
DIMENSIONS = 12
"""In which a cluster extends; real features lie near surfaces of few dimensions too."""
DENSE_SHARE = 0.6
"""Of this machine's memory: what the dense baseline may take, else it is left out."""
SECONDS = ("seconds", "columns_seconds", "dense_seconds", "dense_inverse_seconds")
"""What is timed of propagation."""
RINGS = (32, 64)
"""Bits of the rings that sums are measured in."""
PAIR_BYTES, LINK_BYTES = 350, 7000
"""Memory that a simulated sum holds for each pair of clients, and more for each two neighbours."""


def peak_rss() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def timed(work: Callable[[], Any], seconds: list[float]) -> Any:
    """Return what some work returns, and append how long it took."""
    started = perf_counter()
    found = work()
    seconds.append(perf_counter() - started)
    return found


def _require_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise ParameterError(f"{name} must be at least 1, got {value}")


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
    """Time one back end between two clients with n and m rows, and ``plain`` in turn with it.

    Returns:
        Also ``bit_comparisons_per_second`` (n·m·L per second), ``bytes`` (of all messages),
        ``ratio_to_plain`` (of seconds) and ``exact`` (every distance right).

    Raises:
        ParameterError: a size is below 1, does not fit into memory, or the back end refuses it.
    """
    _require_positive(n=n, m=m, repeat=repeat)
    residue_width(n_bits)
    require_memory({"client-0": n, "client-1": m}, n_bits, backend)
    rng = np.random.default_rng(seed)
    bits = [rng.integers(0, 2, (rows, n_bits), dtype=np.uint8) for rows in (n, m)]
    expected = hamming_distances(np.concatenate(bits))
    own: list[float] = []
    plain: list[float] = []
    exact, total_bytes, peak = True, 0, 0
    for _ in range(repeat):
        found, cost = timed(lambda: secure_hamming(bits, backend, progress=progress), own)
        exact = exact and bool((found == expected).all())
        total_bytes, peak = cost.total_bytes, peak or peak_rss()
        if backend != "plain":
            timed(lambda: secure_hamming(bits, "plain"), plain)
    seconds = float(np.median(own))
    return {
        "backend": backend,
        "n": n,
        "m": m,
        "bits": n_bits,
        "repeat": repeat,
        "seconds": seconds,
        "bit_comparisons_per_second": n * m * n_bits / seconds,
        "bytes": total_bytes,
        "ratio_to_plain": seconds / float(np.median(plain or own)),
        "exact": exact,
        "peak_rss": peak,
    }


@dataclass(frozen=True)
class SumBench:
    """A secure sum of integers that is to be measured, and what it will cost.

    Attributes:
        clients: p, at least 2.
        size: values of each client, at least 1.
        drop: how many clients drop out in stage ``upload``: their masks are agreed on and their
            values do not come, which is the most expensive to recover from.
        bits: of the ring, 32 or 64.
        threshold: fewest survivors, by default that of `secure_sum`.
        sparse: as for `secure_sum`.

    Raises:
        ParameterError: an argument is out of range, fewer clients than the threshold would be left,
            an upload is too long, or this machine has too little memory.
    """

    clients: int
    size: int
    drop: int = 0
    bits: int = 64
    threshold: int | None = None
    sparse: bool | None = None

    rounds = EXCHANGE_ROUNDS + ROUNDS
    """Messages that wait for each other, key exchange included."""

    def __post_init__(self) -> None:
        client_names(self.clients, None)
        _require_positive(size=self.size)
        if self.bits not in RINGS:
            raise ParameterError(f"bits must be 32 or 64, got {self.bits}")
        most = self.clients - self.graph.threshold
        if not 0 <= self.drop <= most:
            raise ParameterError(
                f"drop must be in 0 … {most}, got {self.drop}: of {self.clients} clients the "
                f"threshold of {self.graph.threshold} must be left"
            )
        check_upload(self.size, self.codec.modulus)
        what = f"{self.clients} clients with {self.size:,} values"
        require_available(self.memory, what, "use fewer clients or values")

    @cached_property
    def graph(self) -> MaskGraph:
        """Return clients, threshold, and who shares masks with whom."""
        names = client_names(self.clients, None)
        return MaskGraph.choose(names, self.threshold, sparse=self.sparse)

    @property
    def codec(self) -> FixedPoint:
        """Return integers modulo 2^bits."""
        return FixedPoint(0, parties=self.clients, modulus=1 << self.bits)

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all messages if nobody drops out, key exchange included."""
        return sum(secure_sum_bytes(self.graph, (self.size,), self.codec).values())

    @property
    def memory(self) -> int:
        """Return the rough bytes that this process needs.

        All clients hold their values, and those that are not yet masked their residues; the plain
        sum, the result, and copies of one message on its way.
        """
        word = self.bits // 8
        arrays = self.size * (self.clients * (8 + word) + 8 * word + 32)
        links = self.clients * PAIR_BYTES + self.graph.degree * LINK_BYTES
        return BASE_BYTES + arrays + self.clients * links

    def run(
        self, repeat: int = 3, seed: int = 0, progress: Callable[[Progress], None] | None = None
    ) -> dict[str, Any]:
        """Time the sum of values that fill the ring, and NumPy's sum of the same in turn with it.

        Returns:
            Also ``exact`` (every sum right and the survivors those that stayed), ``survivors`` (how
            many), ``bytes`` (of all messages), ``upload_bytes_per_client`` (all that the busiest
            client sent), ``ratio_to_plain`` (of seconds), ``mask_gb_per_s`` (10^9 bytes of masks
            made and added per second by one client) and ``neighbours`` (with whom each shares
            masks).

        Raises:
            ParameterError: a repeat below 1.
        """
        _require_positive(repeat=repeat)
        rng = np.random.default_rng(seed)
        limit, shape = int(self.codec.max_abs), (self.clients, self.size)
        values = list(rng.integers(-limit, limit, shape, endpoint=True))
        seconds: list[float] = []
        plain: list[float] = []
        masking: list[float] = []
        exact, peak = True, 0
        for _ in range(repeat):
            expected = timed(lambda: sum(values[self.drop :]), plain)
            found = timed(
                lambda: secure_sum(
                    values,
                    threshold=self.threshold,
                    drop=range(self.drop),
                    sparse=self.sparse,
                    fraction_bits=0,
                    modulus=1 << self.bits,
                    progress=progress,
                ),
                seconds,
            )
            peak = peak or peak_rss()
            exact = exact and bool((found.total == expected.astype(np.float64)).all())
            exact = exact and found.survivors == self.graph.clients[self.drop :]
            masking += [s for work, s in found.cost.seconds.items() if work.function == "mask"]
        masks_bytes = (self.graph.degree + 1) * self.size * self.bits // 8
        return asdict(self) | {
            "threshold": self.graph.threshold,
            "sparse": self.graph.degree < self.clients - 1,
            "neighbours": self.graph.degree,
            "repeat": repeat,
            "seed": seed,
            "seconds": float(np.median(seconds)),
            "exact": exact,
            "survivors": len(found.survivors),
            "bytes": found.cost.total_bytes,
            "upload_bytes_per_client": max(found.cost.sent_by(c) for c in found.survivors),
            "ratio_to_plain": float(np.median(seconds) / np.median(plain)),
            "peak_rss": peak,
            "mask_gb_per_s": masks_bytes / float(np.median(masking)) / 1e9,
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
    progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Time the server's half on `clustered` vectors, from distances to scores, in three ways.

    At once, solving for one column per class; by the columns of S of all labelled points, as in a
    private run; and by dense float64 matrices where they fit into memory and `dense` asks for them,
    once only from 5,000 points on. With `from_features` only at once, from vectors, without a
    matrix of all distances.

    Returns:
        ``seconds``, ``columns_seconds``, ``dense_seconds`` and ``dense_inverse_seconds``
        (`numpy.linalg.inv` alone), ``ratio_to_dense`` and ``columns_ratio_to_dense`` (how many
        times as long the dense way takes), ``residual`` and ``columns_residual`` (largest entries),
        ``solver`` and ``columns_solver``, ``identical_labels`` (of all ways), and ``peak_rss``
        before the dense way. What was not measured is None.

    Raises:
        ParameterError: a size is out of range or does not fit into memory.
    """
    given = {"n": n, "labelled": labelled, "bits": n_bits, "k": k, "alpha": alpha}
    given |= {"from_features": from_features, "repeat": repeat, "seed": seed}
    _require_positive(repeat=repeat)
    _require_propagation(n, labelled, n_bits, from_features=from_features)
    report: OnProgress = progress or (lambda *_: None)
    vectors, classes = clustered(n, seed)
    picked = np.sort(np.random.default_rng(seed).permutation(n)[:labelled])
    Y = np.zeros((n, CLASSES))
    Y[picked, classes[picked]] = 1.0
    report("hashing", 0, n)
    pi = projection(bytes(32), n_bits, FEATURES)
    H = None if from_features else hamming_distances(hash_bits(vectors, pi))

    def solved(points: NDArray[np.int64] | None) -> tuple[Propagator, NDArray[np.float64]]:
        if H is None:
            graph = neighbour_graph_from_bits(hash_bits(vectors, pi), k, progress=progress)
        else:
            graph = neighbour_graph(H, n_bits, k)
        columns = CLASSES if points is None else labelled
        propagator = Propagator(graph, alpha, columns, solver=solver, progress=progress)
        if points is None:
            return propagator, propagator.scores(Y)
        blocks = (S @ Y[points[block]] for block, S in propagator.influence(points))
        return propagator, sum(blocks, np.zeros((n, CLASSES)))

    ways = {"": None} if H is None else {"": None, "columns_": picked}
    seconds: dict[str, list[float]] = {name: [] for name in SECONDS}
    labels = []
    result: dict[str, Any] = {"columns_solver": None, "columns_residual": None}
    for _ in range(repeat):
        for prefix, points in ways.items():
            way, Z = timed(partial(solved, points), seconds[f"{prefix}seconds"])
            labels.append(predict(Z).class_ids)
            result |= {f"{prefix}solver": way.solver, f"{prefix}residual": way.residual}
    result["peak_rss"] = peak_rss()
    if dense and H is not None and 32 * n**2 <= DENSE_SHARE * available_memory():
        for _ in range(repeat if n < 5000 else 1):
            report("dense inverse", 0, n)
            work = partial(dense_scores, H, n_bits, k, alpha, Y)
            Z, inverse = timed(work, seconds["dense_seconds"])
            labels.append(predict(Z).class_ids)
            seconds["dense_inverse_seconds"].append(inverse)
    result["identical_labels"] = all((found == labels[0]).all() for found in labels)
    medians = {name: float(np.median(own)) if own else None for name, own in seconds.items()}
    whole = medians["dense_seconds"]
    for prefix in ("", "columns_"):
        own = medians[f"{prefix}seconds"]
        result[f"{prefix}ratio_to_dense"] = whole / own if whole and own else None
    return given | result | medians


def _require_propagation(n: int, labelled: int, n_bits: int, *, from_features: bool) -> None:
    if not 1 <= labelled <= n:
        raise ParameterError(f"labelled must be in 1..{n}, got {labelled}")
    residue_width(n_bits)
    if not from_features:
        what = f"all distances of {n:,} points"
        require_available(3 * n**2 + 6 * n * n_bits, what, "start from features instead")


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
