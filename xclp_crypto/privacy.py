"""Differential privacy of labels in a secure sum: how much noise clients add, and what it buys.

Client k contributes Z_k = S_k·Y_k, where the columns S_k, one for each of its labelled rows, are
known to the server and Y_k, which says of what class these rows are, is secret::

    X_k = ⌊2^f·S_k⌉·Y_k + N_k mod 2^b     N_k: discrete Gaussian of parameter s² in every entry

*Neighbours.* Two inputs are neighbours if one row of one client has another class. Which rows are
labelled is public. Then two columns of ΣX_k differ, by ±⌊2^f·S_i⌉ of that row i, so the sum moves
by exactly √2·‖⌊2^f·S_i⌉‖₂ on the grid. Because S is rounded *before* it is summed, and sums in a
ring are exact, no rounding error depends on a label. (Rounding float64 sums instead would add up to
√(2n) by the grid, and the errors of the sums, which are larger than the grid for f = 40.)

*Noise.* Let Δ be the largest such step of all clients, m the independent N_k that an observer does
not know. Then (Kairouz, Liu, Steinke, ICML 2021, Proposition 14), for s ≥ 1/2 and all orders a ≥ 1,

    Rényi divergence ≤ a/2·(Δ/(√m·s) + τ·√d)²,    τ = 10·Σ_{k=1}^{m−1} exp(−2π²s²k/(k+1))

for d = 2n, the entries of two columns; the others do not change and cancel. That is ρ-concentrated
differential privacy with ρ half that square, the Rényi curve of a continuous Gaussian of noise
multiplier 1/√(2ρ). τ is what sums of discrete Gaussians lack to one; from s = 10 on it is nothing.
Reduction mod 2^b and decoding follow the noise and cost no privacy.

`RandomizedResponse` needs none of this: every client randomises its labels by itself, and on the
data of `docs/understand/privacy.md` that costs far less accuracy.

The (ε, δ) of ρ come from the accountant of Google's `dp-accounting`, an optional package (``pip
install 'xclp[dp]'``) that is imported when one of these functions is called.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import EncodingOverflow, ParameterError
from xclp_crypto.params import MAX_ANNOUNCED, STATISTICAL_BITS
from xclp_crypto.primitives.discrete_gaussian import MAX_VARIANCE, MIN_VARIANCE, sample
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.rng import Rng, require_rng

MAX_EPSILON = 700.0
"""Largest ε: e^ε is a float64. At ε = 10 the odds of a guess may already grow 22,000-fold."""

# What the sampler lacks to a discrete Gaussian adds at most (1 + e^ε)·2^-3900 a sample to δ, less
# than the rest of any δ that a float64 holds.
_DELTA_SHARE = 1 - 2.0**-20
# Sensitivities and variances are computed in float64, with relative errors below 2^-31 for up to
# 2^20 rows, the most that a client may announce.
_UP = 1 + 2.0**-30


@dataclass(frozen=True)
class LabelPrivacy:
    """The guarantee asked for: (ε, δ)-differential privacy of every single label.

    It holds towards observers of one sum who do not know the noise of `noise_contributors` of those
    who contributed to it. An owner knows its own noise, and colluding parties know theirs: with at
    least t clients in the sum, of which c share what they know, m ≤ t − c; c ≥ 1, the owner.

    Attributes:
        epsilon: ε, in (0, 700].
        delta: δ, in (0, 1); far below 1 over the number of labels.
        noise_contributors: m, in 1 … 2^20.

    Raises:
        ParameterError: a value out of range.
    """

    epsilon: float
    delta: float
    noise_contributors: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _epsilon(self.epsilon))
        object.__setattr__(self, "delta", _real("delta", self.delta))
        if not 0 < self.delta < 1:
            raise ParameterError(f"delta must be strictly between 0 and 1, got {self.delta}")
        count = self.noise_contributors
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ParameterError(
                f"noise_contributors must be an integer of at least 1, got {count!r}"
            )
        if count > MAX_ANNOUNCED:
            raise ParameterError(f"noise_contributors must be at most {MAX_ANNOUNCED}")
        object.__setattr__(self, "noise_contributors", int(count))

    @property
    def min_clients(self) -> int:
        """Fewest clients in a sum: m and the owner of the rows, who knows its own noise.

        With fewer the guarantee is gone, so nothing must be released. Every further client that may
        collude with an owner adds one.
        """
        return self.noise_contributors + 1

    def rho(self) -> float:
        """Return the largest ρ whose concentrated privacy gives (ε, δ).

        Raises:
            ParameterError: dp-accounting is not installed, or (ε, δ) too small to compute with.
        """
        return _calibrate(self.epsilon, self.delta)

    def noise_multiplier(self) -> float:
        """Return z = 1/√(2ρ), see `rho`: the noise of m clients has standard deviation z·Δ."""
        return 1 / math.sqrt(2 * self.rho())

    def client_variance(self, sensitivity: float, rows: int) -> float:
        """Return the s² that every client passes to `add_noise`.

        Args:
            sensitivity: Δ > 0 in units of the grid: the largest `label_sensitivity` of all clients.
            rows: n ≥ 1 of the sum.

        Raises:
            ParameterError: an argument out of range, so little room on the grid that the noise does
                not fit, or dp-accounting is not installed.
        """
        m, rho = self.noise_contributors, self.rho()
        if not 0 < sensitivity < math.inf:
            raise ParameterError(f"the sensitivity must be positive and finite, got {sensitivity}")
        variance = max(MIN_VARIANCE, sensitivity**2 / (2 * rho * m) * _UP)
        while variance <= MAX_VARIANCE and concentrated(sensitivity, variance, m, rows) > rho:
            variance *= 1.01  # only on grids so coarse that τ counts
        if variance > MAX_VARIANCE:
            raise ParameterError(
                f"epsilon = {self.epsilon} and delta = {self.delta} need noise of standard "
                f"deviation 2^{math.log2(variance) / 2:.0f} on the grid, above 2^50; use fewer "
                "fraction bits"
            )
        return variance


@dataclass(frozen=True)
class RandomizedResponse:
    """ε-differential privacy of every single label, by each client for itself (Warner 1965).

    A client replaces its labels before the run: it keeps a label with probability
    e^ε/(e^ε + C − 1) and otherwise takes one of the other classes, each with the same probability.
    Whatever it does with the result, δ = 0, towards everybody, whoever colludes or drops out.

    Attributes:
        epsilon: ε, in (0, 700].

    Raises:
        ParameterError: a value out of range.

    Examples:
        >>> from xclp_crypto.privacy import RandomizedResponse
        >>> from xclp_crypto.rng import SeededRng
        >>> labels = np.zeros(10_000, int)
        >>> given = RandomizedResponse(epsilon=2.0).randomize(labels, 3, SeededRng(1))
        >>> round(float((given == labels).mean()), 1)  # e^2 / (e^2 + 2)
        0.8
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _epsilon(self.epsilon))

    def randomize(
        self, codes: NDArray[np.integer[Any]], n_classes: int, rng: Rng
    ) -> NDArray[np.int64]:
        """Return the labels that a client uses instead of its own; only once for each.

        The probability of keeping a label is a multiple of 2^-64, rounded down, so the odds between
        two labels are at most e^ε exactly.

        Args:
            codes: (l,) classes, in 0 … C − 1.
            n_classes: C.
            rng: secret; never replayed, or the average over runs shows the labels.

        Raises:
            ParameterError: a class out of range.
        """
        if len(codes) and not 0 <= codes.min() <= codes.max() < n_classes:
            raise ParameterError(f"classes must be in 0 … {n_classes - 1}")
        if n_classes == 1:
            return codes.astype(np.int64)
        keep = 1 / (1 + (n_classes - 1) * math.exp(-self.epsilon))
        threshold = np.uint64(int(math.ldexp(keep * (1 - 2.0**-50), 64)))
        source = require_rng(rng)
        kept = source.residues(1 << 64, codes.shape) < threshold
        others = source.residues(n_classes - 1, codes.shape).astype(np.int64)
        others += others >= codes
        return np.where(kept, codes, others)


def concentrated(sensitivity: float, variance: float, contributors: int, rows: int) -> float:
    """Return the ρ that one sum spends.

    Args:
        sensitivity: Δ ≥ 0 in units of the grid.
        variance: s² ≥ 1/4 of each client.
        contributors: how many clients' noise was in the sum and unknown to the observer, ≥ 1.
        rows: n ≥ 1 of the sum.

    Raises:
        ParameterError: an argument out of range.

    Source: Kairouz, Liu, Steinke, ICML 2021, Proposition 14.

    Examples:
        >>> from xclp_crypto.privacy import concentrated
        >>> round(concentrated(sensitivity=1.0, variance=50.0, contributors=4, rows=100), 6)
        0.0025
    """
    if not sensitivity >= 0 or not variance >= MIN_VARIANCE or contributors < 1 or rows < 1:
        raise ParameterError(
            f"sensitivity {sensitivity} ≥ 0, variance {variance} ≥ 1/4, contributors "
            f"{contributors} ≥ 1 and rows {rows} ≥ 1 are needed"
        )
    k = np.arange(1, contributors)
    tau = 10 * float(np.exp(-2 * math.pi**2 * variance * k / (k + 1)).sum())
    epsilon = sensitivity / math.sqrt(contributors * variance) + tau * math.sqrt(2 * rows)
    return epsilon**2 / 2


def epsilon_spent(rhos: Iterable[float], delta: float) -> float:
    """Return the ε at which sums that spent these ρ are (ε, δ)-private together.

    Composition adds up ρ, also if later sums were chosen in view of earlier ones. A group of g
    labels that change together has g²·ρ.

    Args:
        rhos: ρ ≥ 0 of each sum, from `concentrated` or `LabelPrivacy.rho`.
        delta: δ, in (0, 1).

    Raises:
        ParameterError: an argument out of range, or dp-accounting is not installed.
    """
    dp, accountant = _accountant()
    for rho in rhos:
        if not 0 <= rho < math.inf:
            raise ParameterError(f"rho must be at least 0 and finite, got {rho}")
        accountant.compose(dp.ZCDpEvent(rho))
    if not 0 < delta < 1:
        raise ParameterError(f"delta must be strictly between 0 and 1, got {delta}")
    return float(accountant.get_epsilon(delta * _DELTA_SHARE))


def label_sensitivity(columns: NDArray[np.float64], codec: FixedPoint) -> float:
    """Return how far another class of one row moves a client's contribution.

    Args:
        columns: (n, l), the columns of S of a client's l labelled rows.
        codec: the fixed-point code, which sets the grid.

    Returns:
        √2·max_i ‖⌊2^f·S_i⌉‖₂ in units of 2^-f, rounded up; 0 for l = 0.
    """
    largest = 0.0
    for column in columns.T:
        grid = np.rint(np.ldexp(column, codec.fraction_bits))
        largest = max(largest, float(grid @ grid))
    return math.sqrt(2 * largest) * _UP


def encode_label_sums(
    columns: NDArray[np.float64],
    codes: NDArray[np.integer[Any]],
    n_classes: int,
    codec: FixedPoint,
    *,
    client: str | None = None,
) -> Residues:
    """Return ⌊2^f·S⌉·Y, exact in the ring: no rounding depends on a label.

    Args:
        columns: (n, l) finite, ≥ 0: the columns of S of a client's labelled rows.
        codes: (l,) their classes, in 0 … n_classes − 1.
        n_classes: C.
        codec: the fixed-point code, modulo 2^32 or 2^64.
        client: whose labels these are, for the errors.

    Returns:
        (n, C) residues, off from S·Y by at most l·2^-(f+1) in each row.

    Raises:
        DataError, EncodingOverflow: a value, or a row's sum over all labels, cannot be encoded;
            which error does not depend on the labels.
        ParameterError: a negative value, a class out of range, or shapes that do not fit.
    """
    if columns.ndim != 2 or codes.shape != columns.shape[1:]:
        raise ParameterError(
            f"columns of shape {columns.shape} and classes of shape {codes.shape} do not fit"
        )
    if len(codes) and not 0 <= codes.min() <= codes.max() < n_classes:
        raise ParameterError(f"classes must be in 0 … {n_classes - 1}")
    if (columns < 0).any():
        raise ParameterError("columns have a negative value")
    if codec.modulus != 1 << 8 * codec.dtype.itemsize:
        raise ParameterError(f"the modulus must be 2^32 or 2^64, got {codec.modulus}")
    # What a class may get at most. If this can be encoded, so can every value.
    codec.encode(columns.sum(axis=1), client=client)
    sums = np.zeros((len(columns), n_classes), codec.dtype)
    for code in range(n_classes):
        sums[:, code] = codec.encode(columns[:, codes == code]).sum(axis=1, dtype=codec.dtype)
    return sums


def add_noise(encoded: Residues, variance: float, rng: Rng) -> Residues:
    """Return the residues plus fresh discrete Gaussian noise.

    Noise serves one sum: a second sum of the same values with the same noise, or with some of its
    contributors missing, is not covered by the guarantee.

    Args:
        encoded: residues of a client, any shape.
        variance: from `LabelPrivacy.client_variance`.
        rng: secret; never shared and never replayed with other values.

    Returns:
        Same shape and dtype.

    Raises:
        ParameterError: a variance out of range.
    """
    noise = sample(rng, variance, encoded.shape).view(np.uint64)
    return np.asarray(encoded + noise.astype(encoded.dtype))


def noise_bound(variance: float, parties: int, entries: int) -> int:
    """Return what the noise of a sum exceeds nowhere, up to a probability of 2^-40.

    A discrete Gaussian is sub-Gaussian with its own parameter (Canonne, Kamath, Steinke 2020,
    Corollary 17), so a sum of p of them is with p·s².

    Args:
        variance: s² of each client.
        parties: p ≥ 1 clients that add noise.
        entries: numbers in the sum, ≥ 1.

    Returns:
        √(2·p·s²·ln(2·entries·2^40)) in units of the grid, rounded up.

    Raises:
        ParameterError: an argument out of range.
    """
    if not 0 < variance < math.inf or parties < 1 or entries < 1:
        raise ParameterError(
            f"variance {variance} > 0, parties {parties} ≥ 1 and entries {entries} ≥ 1 are needed"
        )
    tail = math.log(2 * entries) + STATISTICAL_BITS * math.log(2)
    return math.ceil(math.sqrt(2 * parties * variance * tail) * _UP)


def require_room(codec: FixedPoint, largest: float, variance: float, entries: int) -> None:
    """Refuse noise with which a sum could wrap, before anything is sent.

    A sum that wraps is private but wrong. All values are public bounds, none depends on a label.

    Args:
        codec: the fixed-point code; its `parties` all add noise.
        largest: the largest score that the sum may have.
        variance: s² of each client.
        entries: numbers in the sum.

    Raises:
        EncodingOverflow: names the number of bits that would do.
        ParameterError: an argument out of range.
    """
    if not 0 <= largest < math.inf:
        raise ParameterError(f"the largest score must be at least 0 and finite, got {largest}")
    noise = noise_bound(variance, codec.parties, entries)
    # One bit is for the rounding of every label's column.
    needed = 2 * (math.ceil(math.ldexp(largest, codec.fraction_bits)) + noise)
    bits = codec.modulus.bit_length() - 1
    if needed >= codec.modulus // 2:
        fewer = "fewer fraction bits or " if codec.fraction_bits else ""
        raise EncodingOverflow(
            f"scores up to {largest:g} and noise up to {math.ldexp(noise, -codec.fraction_bits):g} "
            f"with {codec.fraction_bits} fraction bits need {needed.bit_length() + 1} ring bits, "
            f"there are {bits}. Use {fewer}a larger epsilon"
        )


@lru_cache(maxsize=64)
def _calibrate(epsilon: float, delta: float) -> float:
    dp, _ = _accountant()
    # ρ + 2·√(ρ·ln(1/δ)) ≤ ε here (Bun and Steinke 2016, Proposition 1.3), so ρ is too small.
    low = epsilon**2 / (4 * (epsilon - math.log(delta))) / 2
    try:  # by the logarithm, because the library's tolerance is absolute
        exponent = dp.calibrate_dp_mechanism(
            lambda: _accountant()[1],
            lambda log_rho: dp.ZCDpEvent(math.exp(log_rho)),
            epsilon,
            delta * _DELTA_SHARE,
            dp.LowerEndpointAndGuess(math.log(low), math.log(low) + 1),
            tol=1e-6,
        )
    except (ValueError, OverflowError):
        raise ParameterError(
            f"epsilon = {epsilon} and delta = {delta} are too small for float64; their noise would "
            "hide everything, so choose larger ones"
        ) from None
    return math.exp(exponent)


def _accountant() -> tuple[Any, Any]:
    """Return dp-accounting and a fresh accountant with orders for every ε of use."""
    try:
        dp = import_module("dp_accounting")
    except ImportError:
        raise ParameterError(
            "dp-accounting is not installed; run: pip install 'xclp[dp]'"
        ) from None
    # Any orders are valid; 400 between 1.011, the library's lowest, and 10^7 lose less than 1%.
    return dp, dp.rdp.RdpAccountant(1 + np.geomspace(0.011, 1e7, 400))


def _epsilon(value: object) -> float:
    epsilon = _real("epsilon", value)
    if not 0 < epsilon <= MAX_EPSILON:
        raise ParameterError(f"epsilon must be in (0, {MAX_EPSILON:g}], got {epsilon}")
    return epsilon


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ParameterError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ParameterError(f"{name} is too large for a number of 64 bits") from None
