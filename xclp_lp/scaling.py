"""Putting features on one scale before they are hashed: angles depend on units and on the origin.

Features are centred and divided by their standard deviation: over the rows of all clients
(``shared``), or over each client's own (``client``). A client's own moments cost nothing and hide
how its measuring differs from others'; but where its cases differ, as they do where one has most of
a class, they hide the class.

*Shared moments* come from one secure sum of rows, in which every client has a row of its own, so
that the clients learn the sums and the server nothing. Let client j have n_j rows with mean m_j and
sum of squares Q_j about it in a column. It adds

    n_j,    S_j = n_j·m_j,    T_j = Q_j + S_j²/n_j,

and with S = ΣS_j and so on the mean is S/n and the variance (T − S²/n)/n. The difference is taken
of integers, of any size, so nothing cancels: S_j and T_j are rounded to multiples of 2^-128 and cut
into eight digits of 32 bits, and digits are summed as integers modulo 2^64. A sum of p digits is
below p·2^32, and so exact while p ≤ 2^21. Mean and variance are off by at most p·2^-129/n, and by
the rounding of m_j and Q_j to float64. All clients compute the same integers, so they scale alike.

*A client learns* n and each column's mean and variance over all rows: with two clients these are
the other's own, and with any number all others together know the moments of the one that is left.

*Missing values* are refused, or become the mean, over the values that are there. Each column then
has an *indicator*, a column that is 1 where a value is missing. It is centred, and not divided by
its deviation: a rare one would outweigh all else, which costs about ten points of accuracy. Its sum
is the number of missing values, which is how n is known by column; so the clients learn these
numbers over all rows, and nothing of which rows or whose they are.

*Heavy tails* are clipped, by each client for itself, at a number of deviations after all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.protocols.secure_sum import Rows
from xclp_crypto.role import recorded
from xclp_lp.lsh import zero_rows

Scale: TypeAlias = Literal["shared", "shared-by-two", "client", "none"]
Missing: TypeAlias = Literal["refuse", "mean"]

UNIT_BITS, DIGIT_BITS, DIGITS = 128, 32, 8
"""Numbers are multiples of 2^-128 of less than 2^128, in digits of base 2^32."""

LARGEST = 2.0**48
"""Of a feature's size: n·x² stays below 2^128 for up to 2^31 rows."""

MOST_SQUARED, ROUNDING = Fraction(2) ** 97, Fraction(1, 1 << 60)
"""What no square of a value exceeds, even after rounding, and what rounding of sums takes from a
variance at most: p·2^-80 where each of p clients has a row, see above."""

CONSTANT, SMALLEST = 1e-12, 2.0**-60
"""A column is constant if its deviation is no larger part of its mean, or smaller than this: what
rounding can make of a constant one."""

FEWEST = 3
"""Clients whose shared moments are not those of one other client."""


@dataclass(frozen=True)
class Moments:
    """How features are scaled.

    Attributes:
        mean: (d,) float64.
        deviation: (d,) float64, > 0; infinite for a constant column, which becomes 0.
        winsorise: deviations at which values are clipped, if they are.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    winsorise: float | None = None

    def scaled(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return (n, d) vectors, centred and scaled; what is missing becomes the mean, 0."""
        found = (vectors - self.mean) / self.deviation
        found[np.isnan(found)] = 0.0
        return clipped(found, self.winsorise)


def clipped(vectors: NDArray[Any], winsorise: float | None) -> NDArray[Any]:
    """Return vectors with nothing beyond ±winsorise."""
    return vectors if winsorise is None else np.clip(vectors, -winsorise, winsorise)


@dataclass(frozen=True)
class Scaling:
    """What is agreed on of how features become the vectors that are hashed.

    Attributes:
        scale: over whose rows they are scaled.
        missing: what becomes of values that are not there.
        winsorise: see `Moments`.
    """

    scale: Scale
    missing: Missing = "refuse"
    winsorise: float | None = None

    @property
    def shared(self) -> bool:
        """Return whether clients sum up moments."""
        return self.scale in ("shared", "shared-by-two")

    def width(self, columns: int) -> int:
        """Return how many features so many columns become."""
        return columns if self.missing == "refuse" else 2 * columns

    def features(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return (n, d) features: the columns, and their indicators if values may be missing."""
        return vectors if self.missing == "refuse" else np.hstack([vectors, np.isnan(vectors)])

    def moments_alone(self, features: NDArray[Any]) -> Moments:
        """Return the moments of one client's (n, d) features."""
        return self._as_agreed(own_moments(features))

    def moments_of_all(self, totals: NDArray[np.int64]) -> Moments:
        """Return the moments of all rows, of the sum of all clients' `encoded_moments`.

        Raises:
            DataError: there is no row.
        """
        return self._as_agreed(moments(totals, indicators=self.missing != "refuse"))

    def are_moments(self, totals: NDArray[np.int64], rows: int) -> bool:
        """Return whether a sum of `encoded_moments` can be of some clients with so many rows."""
        n, there, sums, squares = _decoded(totals, indicators=self.missing != "refuse")
        return n == rows and all(
            0 <= k <= n and t - s * s / max(k, 1) >= -n * ROUNDING and t <= n * MOST_SQUARED
            for k, s, t in zip(there, sums, squares, strict=True)
        )

    def _as_agreed(self, found: Moments) -> Moments:
        deviation = found.deviation.copy()
        if self.missing != "refuse":
            indicators = deviation[len(deviation) // 2 :]
            indicators[np.isfinite(indicators)] = 1.0
        return Moments(found.mean, deviation, self.winsorise)

    def before_sums(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return (n, d) features as they are hashed, or where moments are shared, as summed up."""
        features = self.features(vectors)
        if self.scale == "client":
            return self.moments_alone(features).scaled(features)
        return features if self.shared else clipped(features, self.winsorise)


def moments_width(features: int) -> int:
    """Return how many integers say what a client's moments are."""
    return 1 + 2 * features * DIGITS


def moments_rows(clients: Sequence[str]) -> Rows:
    """Return the rows of the sum of moments: one for each client."""
    return {client: np.array([i]) for i, client in enumerate(clients)}


@recorded
def encoded_moments(vectors: NDArray[Any]) -> NDArray[np.int64]:
    """Return what a client adds to the shared moments: n_j, and digits of S_j and T_j by column.

    Args:
        vectors: (n_j, d), finite, or NaN where a value is missing.

    Returns:
        (1 + 16·d,) integers of less than 2^32 in size.

    Raises:
        DataError: a feature is larger than 2^48; names the column.
    """
    if (far := (np.abs(vectors) > LARGEST).any(axis=0)).any():
        raise DataError(
            f"column {int(np.argmax(far))} (counted from 0) has a value beyond 2^48, which shared "
            "scaling cannot sum; use another unit, or scale = 'client'"
        )
    there, mean, squares = (own.tolist() for own in _centred(vectors))
    sums = [Fraction(m) * k for m, k in zip(mean, there, strict=True)]
    totals = [Fraction(q) + s * s / max(k, 1) for q, s, k in zip(squares, sums, there, strict=True)]
    digits = [digit for number in (*sums, *totals) for digit in _digits(number)]
    return np.array([len(vectors), *digits], dtype=np.int64)


def _digits(number: Fraction) -> list[int]:
    """Return a number in multiples of 2^-128, as digits from the lowest on, with its sign."""
    units = round(number * (1 << UNIT_BITS))
    sign, size = (-1, -units) if units < 0 else (1, units)
    mask = (1 << DIGIT_BITS) - 1
    return [sign * ((size >> (DIGIT_BITS * i)) & mask) for i in range(DIGITS)]


def moments(totals: NDArray[np.int64], indicators: bool = False) -> Moments:
    """Return the moments of all rows.

    Args:
        totals: (1 + 16·d,) the sum of what all clients' `encoded_moments` are.
        indicators: whether the second half of the columns counts what the first has not.

    Raises:
        DataError: there is no row.
    """
    n, there, sums, squares = _decoded(totals, indicators)
    if n < 1:
        raise DataError("no client has any rows, so features cannot be scaled")
    mean = [float(s / max(k, 1)) for s, k in zip(sums, there, strict=True)]
    variance = [
        float((t - s * s / max(k, 1)) / max(k, 1))
        for s, t, k in zip(sums, squares, there, strict=True)
    ]
    return _moments(np.array(mean), np.array(variance))


def _decoded(
    totals: NDArray[np.int64], indicators: bool
) -> tuple[int, list[int], list[Fraction], list[Fraction]]:
    """Return the number of rows, and by column of values, their sum and that of their squares."""
    n, *digits = (int(total) for total in totals)
    numbers = [
        Fraction(
            sum(digit << (DIGIT_BITS * i) for i, digit in enumerate(digits[at : at + DIGITS])),
            1 << UNIT_BITS,
        )
        for at in range(0, len(digits), DIGITS)
    ]
    d = len(numbers) // 2
    sums, squares, there = numbers[:d], numbers[d:], [n] * d
    if indicators:
        there = [n - round(missing) for missing in sums[d // 2 :]] + there[d // 2 :]
    return n, there, sums, squares


def _moments(mean: NDArray[np.float64], variance: NDArray[np.float64]) -> Moments:
    deviation = np.sqrt(np.maximum(variance, 0.0))
    constant = (deviation <= CONSTANT * np.abs(mean)) | (deviation < SMALLEST)
    return Moments(mean, np.where(constant, np.inf, deviation))


def _centred(
    vectors: NDArray[Any],
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return by column of (n, d) vectors the number of values, their mean, and squares about it."""
    x, missing = vectors.astype(np.float64), np.isnan(vectors)
    there = len(x) - missing.sum(axis=0)
    x[missing] = 0.0
    mean = x.sum(axis=0) / np.maximum(there, 1)
    x -= mean  # in place: there may be gigabytes
    x[missing] = 0.0
    x *= x
    return there, mean, x.sum(axis=0)


def own_moments(vectors: NDArray[Any]) -> Moments:
    """Return the moments of (n, d) vectors alone, over the values that are there."""
    n, d = vectors.shape
    if not n:
        return Moments(np.zeros(d), np.ones(d))
    there, mean, squares = _centred(vectors)
    return _moments(mean, squares / np.maximum(there, 1))


def scaled_by_one(
    data: Mapping[str, NDArray[Any]], scaling: Scaling, summed: Iterable[str]
) -> dict[str, NDArray[Any]]:
    """Return what vectors are before they are hashed, where one party has those of all clients.

    Args:
        data: by client, (n_j, d).
        scaling: how they are scaled.
        summed: clients whose moments are in the sum.
    """
    features = {c: scaling.before_sums(x) for c, x in data.items()}
    if not scaling.shared:
        return features
    shared = scaling.moments_of_all(np.sum([encoded_moments(features[c]) for c in summed], axis=0))
    return {c: shared.scaled(x) for c, x in features.items()}


def in_graph(vectors: NDArray[Any], scaling: Scaling) -> NDArray[np.bool_]:
    """Return which rows take part: those that have a direction.

    A row that is zero only after shared scaling takes part, since its client has told its number of
    rows before.

    Args:
        vectors: (n, d), as the client has them.
        scaling: how they will be scaled.
    """
    if scaling.shared:
        return np.ones(len(vectors), dtype=np.bool_)
    return ~zero_rows(scaling.before_sums(vectors))


def require_company(scaling: Scaling, clients: int, *, asked: bool) -> None:
    """Refuse two clients that nobody asked for, and shared moments of the one other client.

    Args:
        scaling: the choice.
        clients: how many are invited.
        asked: whether a threshold says that there may be two.

    Raises:
        ParameterError: says what to do.
    """
    faults = []
    if clients == MIN_CLIENTS and not asked:
        faults.append(
            "with two clients each learns the other's part of every sum that it receives; choose "
            "threshold = 2 if each may"
        )
    if scaling.scale == "shared" and clients < FEWEST:
        none = " 'none'," * (scaling.missing == "refuse")
        faults.append(
            f"with two clients shared moments are the other's own; choose scale = 'client',{none} "
            "or 'shared-by-two' if each may know the other's means and variances"
        )
    if faults:
        raise ParameterError("; ".join(faults))
