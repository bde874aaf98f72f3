"""Who shares masks with whom in a secure sum, and how many have to stay.

In the complete graph (Bonawitz et al. 2017) every client shares masks, and the secrets that can
recover them, with every other one: work and bytes grow with p². In a sparse graph (Bell et al.
2020) each does so with k neighbours only: its clients stand on a circle in a random order, and the
k/2 nearest on either side are neighbours (a Harary graph).

*Why k neighbours are enough.* Let a fraction γ of the p clients collude with the server, and a
fraction δ drop out, both independently of the order, which is drawn after the clients have
committed to their keys. `sparse` takes the smallest even k, and a share threshold t, such that
each of these bounds holds for all p clients together (union bound; sampling without replacement):

1. *Hiding.* The sum of the honest survivors is hidden among all of them if they are connected. They
   are, unless k/2 in a row are missing or collude: p·(γ+δ)^(k/2) ≤ 2^-40.
2. *Secrecy of the secrets.* t colluding among the k+1 holders of a client's shares would reveal
   its masks: p·P[Hypergeometric(p−1, ⌈γp⌉, k) ≥ t] ≤ 2^-40.
3. *Completion.* A sum cannot be unmasked when a client has fewer than t neighbours left:
   p·P[Hypergeometric(p−1, p−1−⌈δp⌉, k) < t] ≤ 2^-20; then it stops and nothing is revealed.

*Why t may be small.* That no two sets of survivors are told to the clients unnoticed is not left to
t, as it is in the complete graph, but to signatures of a majority of all clients, whether they are
neighbours or not: see `MaskGraph.signatures`, and `survivors` for what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType

import numpy as np

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key, expand
from xclp_crypto.errors import ParameterError
from xclp_crypto.params import COMPLETION_BITS, MIN_CLIENTS, STATISTICAL_BITS

MAX_COMPLETE = 100
"""Most clients for which the complete graph is chosen where nothing else is asked for."""


@dataclass(frozen=True)
class MaskGraph:
    """The public plan of a secure sum; the same for all parties.

    Attributes:
        clients: all that may take part, in the agreed order.
        threshold: fewest clients whose values a sum may have; with fewer the protocol stops.
        degree: k, the number of neighbours of each client.
        share_threshold: t, how many of the k+1 holders of a client's shares recover its secrets;
            so many colluding ones can, too.
        colluding: c, in a sparse graph how many clients may collude with the server that shows
            different survivors to different clients.

    Raises:
        ParameterError: a number is out of range.

    Examples:
        >>> from xclp_crypto.protocols.secure_sum import MaskGraph
        >>> MaskGraph.complete(["a", "b", "c"]).threshold
        2
    """

    clients: tuple[str, ...]
    threshold: int
    degree: int
    share_threshold: int
    colluding: int = 0

    def __post_init__(self) -> None:
        p = len(self.clients)
        if len(set(self.clients)) != p or p < MIN_CLIENTS:
            raise ParameterError(
                f"a secure sum needs at least {MIN_CLIENTS} different clients, got {p}"
            )
        for name in ("threshold", "degree", "share_threshold", "colluding"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise ParameterError(f"{name} must be an integer, got {value!r}")
            object.__setattr__(self, name, int(value))
        if not MIN_CLIENTS <= self.threshold <= p:
            raise ParameterError(
                f"threshold must be in {MIN_CLIENTS} … {p}, the number of clients, "
                f"got {self.threshold}"
            )
        if self.degree != p - 1 and not (0 < self.degree < p - 1 and self.degree % 2 == 0):
            raise ParameterError(
                f"degree must be even and below {p - 1}, or {p - 1} for all, got {self.degree}"
            )
        if not MIN_CLIENTS <= self.share_threshold <= self.degree + 1:
            raise ParameterError(
                f"share_threshold must be in {MIN_CLIENTS} … {self.degree + 1}, the holders of a "
                f"share, got {self.share_threshold}"
            )
        if not 0 <= self.colluding < p:
            raise ParameterError(f"colluding must be in 0 … {p - 1}, got {self.colluding}")

    @property
    def signatures(self) -> int:
        """Return T: how many clients must sign the same survivors before one reveals its shares.

        Honest clients sign one set, colluding ones any number. Two sets with T signatures each take
        2·T ≤ (p − c) + 2·c of them, so where 2·T > p + c at most one set has as many.

        - Sparse: T = ⌊(p + c)/2⌋ + 1, which is that bound. A sum over fewer survivors could not be
          revealed, so `sparse` has no lower threshold; with one, T is the threshold, and the bound
          is 2·threshold > p + c.
        - Complete: T is the threshold, which is the share threshold too; so a higher one stands as
          many more colluding clients in both respects.
        """
        p = len(self.clients)
        if self.degree == p - 1:
            return self.threshold
        return min(self.threshold, (p + self.colluding) // 2 + 1)

    @classmethod
    def complete(cls, clients: Sequence[str], threshold: int | None = None) -> MaskGraph:
        """Return the graph in which all are neighbours.

        Args:
            clients: all that may take part.
            threshold: fewest survivors, by default a majority: ⌊p/2⌋ + 1. It is the share threshold
                too. Below a majority it weakens both promises of the shares: so few colluding
                clients and the server unmask a client, and a server that shows different clients
                different survivors may do so unnoticed.
        """
        p = len(clients)
        threshold = p // 2 + 1 if threshold is None else threshold
        return cls(tuple(clients), threshold, p - 1, threshold)

    @classmethod
    def sparse(
        cls,
        clients: Sequence[str],
        threshold: int | None = None,
        *,
        colluding: float = 0.1,
        dropouts: float = 0.1,
    ) -> MaskGraph:
        """Return a graph with few neighbours, or the complete one if that is too small for it.

        Args:
            clients: all that may take part.
            threshold: fewest survivors, by default all but the fraction `dropouts`; in a sparse
                graph never fewer than the `signatures` that it takes, ⌊(p + ⌈γp⌉)/2⌋ + 1.
            colluding: γ, the fraction of clients that may collude with the server.
            dropouts: δ, the fraction that may drop out; γ + δ < 1.

        Raises:
            ParameterError: fractions out of range.
        """
        for name, fraction in (("colluding", colluding), ("dropouts", dropouts)):
            real = isinstance(fraction, int | float | np.integer | np.floating)
            if not real or isinstance(fraction, bool):
                raise ParameterError(f"{name} must be a number, got {fraction!r}")
        if not (colluding >= 0 and dropouts >= 0 and colluding + dropouts < 1):
            raise ParameterError(
                "colluding and dropouts must be fractions with a sum below 1, got "
                f"{colluding} and {dropouts}"
            )
        p = len(clients)
        found = _sparse_parameters(p, colluding, dropouts)
        if threshold is None:
            threshold = max(MIN_CLIENTS, p - int(np.ceil(dropouts * p)))
        if found is None:
            return cls.complete(clients, threshold)
        bad = int(np.ceil(colluding * p))
        return cls(tuple(clients), max(threshold, (p + bad) // 2 + 1), *found, colluding=bad)

    @classmethod
    def choose(
        cls, clients: Sequence[str], threshold: int | None = None, *, sparse: bool | None = None
    ) -> MaskGraph:
        """Return a complete graph, or a sparse one.

        Args:
            clients: in the order that all parties agree on.
            threshold: fewest survivors, by default that of the graph's kind.
            sparse: which one; None leaves it to the number of clients.

        Raises:
            ParameterError: `sparse` is not a bool, or another parameter is out of range.
        """
        if sparse is not None and not isinstance(sparse, bool | np.bool_):
            raise ParameterError(f"sparse must be True, False or None, got {sparse!r}")
        if sparse is None:
            sparse = len(clients) > MAX_COMPLETE
        return (cls.sparse if sparse else cls.complete)(clients, threshold)

    @cached_property
    def indices(self) -> Mapping[str, int]:
        """Return the index that each client's shares have: 1 … p."""
        return {c: i for i, c in enumerate(self.clients, start=1)}

    def neighbours(self, tag: bytes) -> Mapping[str, tuple[str, ...]]:
        """Return each client's neighbours in the agreed order; the sum's tag fixes the circle."""
        return _neighbours(self.clients, self.degree, tag)


@lru_cache(maxsize=4)  # every party of a simulation asks for the same one; all of it is public
def _neighbours(clients: tuple[str, ...], degree: int, tag: bytes) -> Mapping[str, tuple[str, ...]]:
    p = len(clients)
    if degree == p - 1:
        return MappingProxyType({c: clients[:j] + clients[j + 1 :] for j, c in enumerate(clients)})
    key = derive_key(tag, domain_tag("mask graph"))
    circle = np.argsort(expand(key, domain_tag("mask graph order"), 1 << 64, p), kind="stable")
    steps = np.arange(1, degree // 2 + 1)
    near = np.empty((p, degree), dtype=np.intp)
    near[circle] = circle[(np.arange(p)[:, None] + np.concatenate([-steps, steps])[None, :]) % p]
    near.sort(axis=1)
    return MappingProxyType({c: tuple(clients[i] for i in near[j]) for j, c in enumerate(clients)})


@lru_cache
def _sparse_parameters(p: int, colluding: float, dropouts: float) -> tuple[int, int] | None:
    """Return the smallest degree with its share threshold, None where the complete graph it is."""
    from scipy import stats  # half of the time that importing the package took, for few callers

    bad, out = int(np.ceil(colluding * p)), int(np.ceil(dropouts * p))
    for degree in range(2, p - 1, 2):
        if p * (colluding + dropouts) ** (degree / 2) > 2.0**-STATISTICAL_BITS:
            continue
        thresholds = np.arange(MIN_CLIENTS, degree + 2)
        reveal = p * stats.hypergeom.sf(thresholds - 1, p - 1, bad, degree)
        # The last one is always safe: a client has fewer neighbours than it.
        t = int(thresholds[reveal <= 2.0**-STATISTICAL_BITS][0])
        if p * stats.hypergeom.cdf(t - 1, p - 1, p - 1 - out, degree) <= 2.0**-COMPLETION_BITS:
            return degree, t
    return None
