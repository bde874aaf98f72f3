"""What all parties of one session must have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from xclp_crypto.errors import (
    ParameterError,
)
from xclp_crypto.params import FRACTION_BITS, MIN_CLIENTS, Agreement, residue_width
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import (
    LabelPrivacy,
    RandomizedResponse,
)
from xclp_crypto.protocols.hamming import HammingBackend, get_backend
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
)
from xclp_lp.graph import Ties
from xclp_lp.lsh import Projection
from xclp_lp.propagation import RESOLUTION
from xclp_lp.wording import count

PROTOCOL_VERSION = 2


ClassWeight: TypeAlias = Literal["balanced"] | None


@dataclass(frozen=True)
class Parameters:
    """What all parties of one session must have in common.

    Attributes:
        classes: labels by class index, in the order that all parties agree on.
        n_bits: L, bits of a hash.
        k: neighbours per point.
        alpha: α in (0, 1), how far labels travel.
        gamma: exponent γ > 0 of the similarity.
        projection: ``random`` or ``tight-frame``, see `xclp_lp.lsh.projection`.
        hamming: name of the SecureHamming back end, or a back end.
        include_self: whether a point may be its own neighbour.
        ties: rule for neighbours at the same distance, see `neighbour_graph`.
        fraction_bits: f of the fixed-point scores; at least 30 + log2(clients), see
            `require_resolution`.
        threshold: fewest clients to go on with at every step; by default 2, and in the row sums a
            majority of those in the graph. With up to 100 clients it is also how many, with the
            server, can take one client's part from the sums: below a majority it weakens them.
        class_weight: ``balanced`` weighs every label by 1/(labels of its class over all clients),
            for imbalanced classes; None does not.
        privacy: differential privacy of the labels: `RandomizedResponse` by each client for itself,
            `LabelPrivacy` by noise in the row sums; None has neither.

    Raises:
        ParameterError: a value is out of range; the message gives value and limit.
    """

    classes: tuple[Any, ...]
    n_bits: int = 4096
    k: int = 10
    alpha: float = 0.99
    gamma: float = 1.0
    projection: Projection = "random"
    hamming: str | HammingBackend = "rlwe"
    include_self: bool = False
    ties: Ties = "all"
    fraction_bits: int = FRACTION_BITS
    threshold: int | None = None
    class_weight: ClassWeight = None
    privacy: LabelPrivacy | RandomizedResponse | None = None
    version: int = field(default=PROTOCOL_VERSION, init=False)

    def __post_init__(self) -> None:
        # As Python's own numbers: digests compare the repr, which NumPy's numbers change.
        for name, convert in (
            ("n_bits", _integer),
            ("k", _integer),
            ("fraction_bits", _integer),
            ("alpha", _real),
            ("gamma", _real),
            ("include_self", _boolean),
        ):
            object.__setattr__(self, name, convert(name, getattr(self, name)))
        residue_width(self.n_bits)
        if self.k < 1:
            raise ParameterError(f"k must be at least 1, got {self.k}")
        if not 0 < self.alpha < 1:
            raise ParameterError(f"alpha must be strictly between 0 and 1, got {self.alpha}")
        if not 0 < self.gamma < np.inf:
            raise ParameterError(f"gamma must be positive and finite, got {self.gamma}")
        if self.ties not in ("all", "lowest-index"):
            raise ParameterError(f"ties must be 'all' or 'lowest-index', got {self.ties!r}")
        if self.projection not in get_args(Projection):
            raise ParameterError(
                f"projection must be 'random' or 'tight-frame', got {self.projection!r}"
            )
        if not self.classes:
            raise ParameterError("classes must name at least one class")
        if not isinstance(self.hamming, str | HammingBackend):
            raise ParameterError(f"hamming must be the name of a back end, got {self.hamming!r}")
        get_backend(self.hamming)
        FixedPoint(self.fraction_bits)
        if self.class_weight not in (None, "balanced"):
            raise ParameterError(
                f"class_weight must be None or 'balanced', got {self.class_weight!r}"
            )
        if not isinstance(self.privacy, LabelPrivacy | RandomizedResponse | None):
            raise ParameterError(
                f"privacy must be a RandomizedResponse or a LabelPrivacy, got {self.privacy!r}"
            )
        if self.noise is not None and self.class_weight is not None:
            raise ParameterError(
                "class_weight and privacy by noise in the sums exclude each other: the exact "
                "totals of the classes would tell what the noise hides; use RandomizedResponse"
            )
        if self.threshold is not None:
            object.__setattr__(self, "threshold", _integer("threshold", self.threshold))
            if self.threshold < self.fewest_clients:
                noise = self.noise
                why = noise and (
                    f": privacy needs noise_contributors = {noise.noise_contributors} and the owner"
                )
                raise ParameterError(
                    f"threshold must be at least {self.fewest_clients}, got {self.threshold}"
                    f"{why or ''}"
                )

    @property
    def noise(self) -> LabelPrivacy | None:
        """Return what noise the row sums carry."""
        return self.privacy if isinstance(self.privacy, LabelPrivacy) else None

    @property
    def fewest_clients(self) -> int:
        """Return the fewest clients with which any step can go on."""
        return MIN_CLIENTS if self.noise is None else self.noise.min_clients

    def mask_graph(self, clients: Sequence[str]) -> MaskGraph:
        """Return who shares masks with whom in the row sums of these clients."""
        graph = MaskGraph.choose(clients, self.threshold)
        if graph.threshold < self.fewest_clients:
            graph = MaskGraph.choose(clients, self.fewest_clients)
        return graph

    def agreement(self) -> Agreement:
        """Return the digests that the first message of every client carries."""
        agreed = {f.name: getattr(self, f.name) for f in fields(self)}
        return Agreement(**agreed | {"hamming": get_backend(self.hamming).name})

    def require_accountant(self) -> None:
        """Refuse privacy of labels where its accountant is not installed.

        Raises:
            ParameterError: says what to install.
        """
        if self.noise is not None:
            self.noise.rho()

    def require_resolution(self, clients: int) -> None:
        """Refuse fixed-point sums so coarse that they could decide a tie.

        Sums over p clients are off by at most p·2^-(f+1). Up to half of `RESOLUTION`, scores that
        are zero or equal over pooled data stay so. Noise in the sums promises no such equality.

        Args:
            clients: p.

        Raises:
            ParameterError: fewer fraction bits than p clients need; names the least.
        """
        least = math.ceil(math.log2(clients / RESOLUTION))
        if self.noise is None and self.fraction_bits < least:
            raise ParameterError(
                f"fraction_bits must be at least {least} for {count(clients, 'client')}, got "
                f"{self.fraction_bits}: coarser sums could give other labels than the pooled data"
            )

    def require_rows(self, n: int) -> None:
        """Refuse a k for which n rows in all are too few.

        Raises:
            ParameterError: k ≥ n.
        """
        if self.k >= n:
            raise ParameterError(
                f"k must be smaller than the number of rows of all clients together: k = {self.k}, "
                f"rows = {n}"
            )


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ParameterError(f"{name} must be an integer, got {value!r}")
    return int(value)


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ParameterError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:  # its digits may be too many to be shown
        raise ParameterError(f"{name} must be a number that fits float64") from None


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def label_codec(params: Parameters, clients: int) -> FixedPoint:
    """Return the fixed-point code of the scores."""
    return FixedPoint(params.fraction_bits, parties=clients)
