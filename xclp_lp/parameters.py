"""What all parties of one session must have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import astuple, dataclass, field, fields
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.params import FRACTION_BITS, MAX_HASH_BITS, MIN_CLIENTS, Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.protocols.hamming import BACKENDS, HammingBackend, get_backend
from xclp_crypto.protocols.secure_sum import MaskGraph
from xclp_lp.accuracy import ClientPrior, Setting, ValidationKind
from xclp_lp.graph import Ties
from xclp_lp.labels import ClassWeight
from xclp_lp.lsh import Projection
from xclp_lp.predictions import (
    RESOLUTION,
    Prediction,
    abstaining,
    calibrated,
    relative_confidence,
    reset_labelled,
)
from xclp_lp.propagation import NeighbourOptions
from xclp_lp.scaling import FEWEST, Missing, Scale, Scaling, require_company
from xclp_lp.validation import FINITE, Validated
from xclp_lp.wording import count

PROTOCOL_VERSION = 3


AUTO: Any = "auto"
"""The value of a field that is as the preset says."""

DEFAULTS: Mapping[str, Any] = {
    "alpha": 0.9,
    "gamma": 3.0,
    "class_weight": "sqrt",
    "scale": "shared",
    "validation": "leave-one-out",
}
"""What a parameter that is ``auto`` is, without a preset."""

WITH_NOISE: Mapping[str, Any] = {"alpha": 0.8, "class_weight": "none"}
"""What differs where there is noise in the sums, which excludes class weights."""

WITH_PRIVACY: Mapping[str, Any] = {"validation": "none"}
"""What differs where labels are private, so that nobody may count which are right."""

WITH_PRIOR: Mapping[str, Any] = {"class_weight": "balanced"}
"""What differs where a client's own classes weigh."""

PAPER: Mapping[str, Any] = {
    "alpha": 0.99,
    "gamma": 1.0,
    "class_weight": "none",
    "scale": "none",
    "validation": "none",
}
"""What a parameter that is ``auto`` is with the preset of the paper."""


@dataclass(frozen=True)
class Agreed(Validated):
    """What all parties agree on, whatever the classes are.

    Every field says what it is for. Estimator, files and command line take name, type, range,
    default and meaning of their parameters from this module.

    Raises:
        ParameterError: a value is out of range; the message gives value and limit.
    """

    n_bits: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_HASH_BITS,
            description="L, bits of a hash; more bits estimate angles better and cost more",
        ),
    ] = 4096
    k: Annotated[int, Meta(ge=1, description="neighbours of each point, fewer than all rows")] = 10
    alpha: Annotated[
        float,
        Meta(gt=0, lt=1, description="α, between 0 and 1; close to 1 lets labels travel far"),
    ] = AUTO
    gamma: Annotated[
        float,
        Meta(gt=0, le=FINITE, description="exponent γ > 0 of the cosine similarity"),
    ] = AUTO
    scale: Annotated[
        Scale,
        Meta(
            description="how features are centred and scaled before they are hashed: shared over "
            "the rows of all clients, by a secure sum that tells the clients means and variances; "
            "client over each client's own; none. With two clients shared-by-two says that each "
            "may know the other's"
        ),
    ] = AUTO
    missing: Annotated[
        Missing,
        Meta(
            description="what becomes of missing values: refuse them, or mean over the values that "
            "are there, of all clients or with scale client of each, with an indicator beside each "
            "column. The clients learn how many values of each column are missing in all"
        ),
    ] = "refuse"
    winsorise: Annotated[
        Annotated[float, Meta(gt=0, le=FINITE)] | None,
        Meta(description="clips heavy tails at so many deviations after scaling, such as 3"),
    ] = None
    projection: Annotated[
        Projection,
        Meta(
            description="random hyperplanes as in the paper, or a tight-frame, whose hyperplanes "
            "are orthogonal in blocks, for at most 4096 features"
        ),
    ] = "random"
    hamming: Annotated[
        str | HammingBackend,
        Meta(
            title="the name of a back end",
            description="back end for the distances: rlwe (private against any collusion), masked "
            "(fastest; private unless a client shares its keys with the server), plain (not "
            f"private), {', '.join(b for b in BACKENDS if b not in ('rlwe', 'masked', 'plain'))}",
        ),
    ] = "rlwe"
    include_self: Annotated[bool, Meta(description="whether a point may be its own neighbour")] = (
        False
    )
    ties: Annotated[
        Ties,
        Meta(
            description="all keeps every neighbour as near as the k-th, so that the order of "
            "clients does not matter; lowest-index keeps exactly k"
        ),
    ] = "all"
    fraction_bits: Annotated[
        int,
        Meta(
            description="fractional bits of the fixed-point scores, at least 30 + log2(clients) "
            "unless there is noise in the sums"
        ),
    ] = FRACTION_BITS
    threshold: Annotated[
        int | None,
        Meta(
            description="fewest clients with which a run goes on; by default a majority of those "
            "invited and at least 3, so that two clients must ask for 2. Where two are left, each "
            "learns the other's part of the sums. With up to 100 clients it is also how many, "
            "with the server, can take one client's part from the sums: do not set it below a "
            "majority of them without need"
        ),
    ] = None
    post_quantum: Annotated[
        bool,
        Meta(
            description="whether channels and masks are closed to whoever records a session and "
            "has a quantum computer later: their keys are of ML-KEM-768 as well as of X25519"
        ),
    ] = True
    class_weight: Annotated[
        ClassWeight,
        Meta(
            description="sqrt weighs every label by 1/√N and balanced by 1/N, N the labels of its "
            "class over all clients; the clients learn these totals, the server does not. With "
            "none every label weighs 1"
        ),
    ] = AUTO
    client_prior: Annotated[
        ClientPrior,
        Meta(
            description="own multiplies a client's scores by the shares of the classes among its "
            "own labels, with class_weight balanced by default: good where the clients' case mixes "
            "differ and each client's labels are a random sample of its rows, bad elsewhere; "
            "leave-one-out says which"
        ),
    ] = "none"
    validation: Annotated[
        ValidationKind,
        Meta(
            description="leave-one-out scores each labelled row as if it had no label, and tells "
            "the clients how many are right, by class and by confidence, over all of them: it "
            "estimates the accuracy and calibrates confidences. tune does so for several alpha, "
            "class weights and client_prior on the same distances. none measures nothing; with "
            "privacy of labels nothing can be measured"
        ),
    ] = AUTO
    privacy: Annotated[
        LabelPrivacy | RandomizedResponse | None,
        Meta(
            title="a RandomizedResponse or a LabelPrivacy",
            description="differential privacy of the labels. "
            "`xclp_crypto.privacy.RandomizedResponse`: each client randomises its labels for "
            "itself. `xclp_crypto.privacy.LabelPrivacy`: noise in the secure sums, which excludes "
            "`class_weight` and costs far more accuracy; scores below zero count as zero. See "
            "docs/understand/privacy.md",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.privacy is not None:
            self._fill(WITH_PRIVACY)
        if self.noise is not None:
            self._fill(WITH_NOISE)
        if self.client_prior == "own":
            self._fill(WITH_PRIOR)
        self._fill(DEFAULTS)
        super().__post_init__()
        if self.missing == "mean" and self.scale == "none":
            raise ParameterError(
                "missing must be 'refuse' where scale is 'none', since nobody computes means; got "
                "'mean'"
            )
        get_backend(self.hamming)
        FixedPoint(self.fraction_bits)
        if self.noise is not None and self.weighted:
            raise ParameterError(
                "class_weight and privacy by noise in the sums exclude each other: the exact "
                "totals of the classes would tell what the noise hides; use RandomizedResponse"
            )
        if self.privacy is not None and self.validation != "none":
            raise ParameterError(
                "validation and privacy of labels exclude each other: how many labels are right "
                "would tell what privacy hides"
            )
        if self.threshold is not None and self.threshold < self.fewest_clients:
            noise = self.noise
            why = noise and (
                f": privacy needs noise_contributors = {noise.noise_contributors} and the owner"
            )
            raise ParameterError(
                f"threshold must be at least {self.fewest_clients}, got {self.threshold}{why or ''}"
            )

    def _fill(self, preset: Mapping[str, Any]) -> None:
        """Give fields that are ``auto`` the value of a preset."""
        for name, value in preset.items():
            if isinstance(given := getattr(self, name), str) and given == AUTO:
                object.__setattr__(self, name, value)

    @property
    def weighted(self) -> bool:
        """Return whether labels weigh by their classes, whose totals the clients then learn."""
        return self.class_weight != "none"

    @property
    def validated(self) -> bool:
        """Return whether the labels are counted that leaving out gives back."""
        return self.validation != "none"

    @property
    def class_totals(self) -> bool:
        """Return whether the clients learn how many labels each class has in all."""
        return self.weighted or self.validated

    @property
    def setting(self) -> Setting:
        """Return what decides the labels once the graph is there."""
        return Setting(self.alpha, self.class_weight, self.client_prior)

    @property
    def neighbours(self) -> NeighbourOptions:
        """Return what decides who is whose neighbour."""
        return NeighbourOptions(
            k=self.k, gamma=self.gamma, include_self=self.include_self, ties=self.ties
        )

    @property
    def scaling(self) -> Scaling:
        """Return what decides how features become vectors to hash."""
        return Scaling(self.scale, self.missing, self.winsorise)

    @property
    def shared_scale(self) -> bool:
        """Return whether clients sum up moments of their features."""
        return self.scaling.shared

    @property
    def fewest_in_moments(self) -> int:
        """Return the fewest clients in sums of moments: three, so that nobody learns another's."""
        return {"shared": FEWEST, "shared-by-two": MIN_CLIENTS}.get(self.scale, 0)

    @property
    def noise(self) -> LabelPrivacy | None:
        """Return what noise the row sums carry."""
        return self.privacy if isinstance(self.privacy, LabelPrivacy) else None

    @property
    def fewest_clients(self) -> int:
        """Return the fewest clients with which any step can go on."""
        return MIN_CLIENTS if self.noise is None else self.noise.min_clients


@dataclass(frozen=True)
class Parameters(Agreed):
    """What all parties of one session must have in common.

    Raises:
        ParameterError: as `Agreed`, or there is no class.
    """

    classes: Annotated[
        tuple[Any, ...],
        Meta(description="labels by class index, in the order that all parties agree on"),
    ] = field(kw_only=True)
    version: int = field(default=PROTOCOL_VERSION, init=False)
    invited: int = field(default=0, init=False, compare=False)
    """How many clients are, in a session; 0 elsewhere. Not agreed on: their names are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.classes:
            raise ParameterError("classes must name at least one class")

    def mask_graph(self, clients: Sequence[str]) -> MaskGraph:
        """Return who shares masks with whom in the row sums of these clients."""
        return self._graph(clients, self.among(self.invited or len(clients)).at_least)

    def closed_mask_graph(self, clients: Sequence[str]) -> MaskGraph:
        """Return who shares masks with whom in a sum that only all of these clients may have.

        Less the sum before it, a sum over fewer would say what those that are missing had added.
        """
        return self._graph(clients, len(clients))

    def _graph(self, clients: Sequence[str], fewest: int) -> MaskGraph:
        graph = MaskGraph.choose(clients, self.threshold)
        return graph if graph.threshold >= fewest else MaskGraph.choose(clients, fewest)

    def among(self, invited: int) -> Parameters:
        """Return the parameters of a session to which so many clients are invited."""
        same = copy(self)
        object.__setattr__(same, "invited", invited)
        return same

    def for_session(self, clients: int) -> Parameters:
        """Return the parameters of a session to which so many clients are invited.

        All roles begin with it, and all that plans for them, so that none goes on with fewer
        clients than others would.

        Raises:
            ParameterError: privacy needs an accountant that is not installed; or see
                `require_resolution` and `require_company`.
        """
        self.require_accountant()
        self.require_resolution(clients)
        require_company(self.scaling, clients, asked=self.threshold is not None)
        return self.among(clients)

    @property
    def at_least(self) -> int:
        """Return the fewest clients with which a session goes on, at every step."""
        if self.threshold is not None:
            return self.threshold
        return max(self.fewest_clients, min(self.invited, max(FEWEST, self.invited // 2 + 1)))

    def agreement(self) -> Agreement:
        """Return the digests that the first message of every client carries."""
        agreed = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "invited"}
        if self.privacy is not None:
            agreed["privacy"] = (type(self.privacy).__name__, *astuple(self.privacy))
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

    def moments_graph(self, clients: Sequence[str]) -> MaskGraph:
        """Return who shares masks with whom in the sum of moments of these clients.

        See `fewest_in_moments`.
        """
        least = self.among(self.invited or len(clients)).at_least
        return self._graph(clients, max(least, self.fewest_in_moments))

    def require_rows(self, n: int) -> None:
        """Refuse a k for which n rows in all are too few.

        Raises:
            ParameterError: k ≥ n.
        """
        if self.k >= n:
            raise ParameterError(
                f"k must be smaller than the number of rows of all clients together: k = {self.k}, "
                f"rows = {n}",
                public=True,
            )


@dataclass(frozen=True)
class Settings(Agreed):
    """What one may choose, beside what is agreed on: a preset, and how clients show results."""

    preset: Annotated[
        Literal["default", "paper"],
        Meta(
            description="what is not given: default is what evidence on nine data sets says "
            "(alpha 0.9, gamma 3, class_weight sqrt, scale shared; with noise in the sums alpha "
            "0.8 and no class weight), paper what the paper has (alpha 0.99, gamma 1, class_weight "
            "none, scale none)"
        ),
    ] = "default"
    reset_labelled: Annotated[
        bool,
        Meta(
            description="whether labelled rows keep their own labels, with confidence 1, instead "
            "of what is predicted for them"
        ),
    ] = False
    relative_confidence: Annotated[
        bool,
        Meta(
            description="whether confidences are 1 minus the normalised entropy of a row's scores, "
            "divided by the client's largest, instead of probabilities of being right"
        ),
    ] = False
    min_confidence: Annotated[
        float,
        Meta(ge=0, le=1, description="rows whose confidence is below get no label"),
    ] = 0.0

    def __post_init__(self) -> None:
        if self.preset == "paper":
            self._fill(PAPER)
        super().__post_init__()

    def parameters(self, classes: Sequence[Any]) -> Parameters:
        """Return what all parties have in common, with these classes."""
        agreed = {f.name: getattr(self, f.name) for f in fields(Agreed)}
        return Parameters(classes=tuple(classes), **agreed)

    def shown(self, prediction: Prediction, class_ids: NDArray[np.int64]) -> Prediction:
        """Return what a client makes of its result.

        Args:
            prediction: of its n_j rows.
            class_ids: (n_j,) class indices of its own labels.
        """
        shown = relative_confidence if self.relative_confidence else calibrated
        prediction = abstaining(shown(prediction), self.min_confidence)
        return reset_labelled(prediction, class_ids) if self.reset_labelled else prediction


@dataclass(frozen=True)
class Arguments(Settings):
    """All arguments of `xclp_lp.CrossClientLabelPropagation` but the names of the clients.

    Classes and groups are checked when the clients are known.
    """

    classes: Annotated[
        Any,
        Meta(
            description="all class labels; by default those that occur, which in a real federation "
            "everybody would have to know beforehand"
        ),
    ] = None
    groups: Annotated[
        Any,
        Meta(
            description="splits the clients into federations that run one after the other and know "
            "nothing of each other: a number of groups, drawn at random by random_state, or the "
            "name of its group for each client. Each needs two clients, a label, and more rows "
            "than k"
        ),
    ] = None
    random_state: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            title="None or an integer of at least 0",
            description="an integer fixes the random projection and random groups, and nothing "
            "else, so that results can be repeated; None lets the clients agree on a secret "
            "projection",
        ),
    ] = None

    @property
    def draws_groups(self) -> bool:
        """Return whether every run draws other groups."""
        number = isinstance(self.groups, int | np.integer) and self.groups > 1
        return bool(number) and self.random_state is None

    def keywords(self) -> dict[str, Any]:
        """Return them by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Shape:
    """The public sizes of a federation.

    Attributes:
        rows: by client.
        labelled: labelled rows by client.
        features: d, indicators of missing values among them.
        equal: pairs of equal rows, both orders counted, where somebody sees all rows; each is an
            entry of the graph where all ties are kept.
    """

    rows: Mapping[str, int]
    labelled: Mapping[str, int]
    features: int
    equal: int = 0

    @property
    def n(self) -> int:
        """Return the number of all rows."""
        return sum(self.rows.values())


def label_codec(params: Parameters, clients: int) -> FixedPoint:
    """Return the fixed-point code of the scores."""
    return FixedPoint(params.fraction_bits, parties=clients)
