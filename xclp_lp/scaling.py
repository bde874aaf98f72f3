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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.protocols.secure_sum import Rows
from xclp_crypto.role import recorded
from xclp_lp.lsh import zero_rows

Scale: TypeAlias = Literal["shared", "shared-by-two", "client", "none"]

UNIT_BITS, DIGIT_BITS, DIGITS = 128, 32, 8
"""Numbers are multiples of 2^-128 of less than 2^128, in digits of base 2^32."""

LARGEST = 2.0**48
"""Of a feature's size: n·x² stays below 2^128 for up to 2^31 rows."""

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
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def scaled(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Return (n, d) vectors, centred and scaled."""
        return (vectors - self.mean) / self.deviation


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
        vectors: (n_j, d), finite.

    Returns:
        (1 + 16·d,) integers of less than 2^32 in size.

    Raises:
        DataError: a feature is larger than 2^48; names the column.
    """
    n, d = vectors.shape
    x = vectors.astype(np.float64)
    if n and (far := np.abs(x).max(axis=0) > LARGEST).any():
        raise DataError(
            f"column {int(np.argmax(far))} (counted from 0) has a value beyond 2^48, which shared "
            "scaling cannot sum; use another unit, or scale = 'client'"
        )
    centre = x.mean(axis=0) if n else np.zeros(d)
    squares = ((x - centre) ** 2).sum(axis=0)
    sums = [Fraction(m) * n for m in centre.tolist()]
    totals = [Fraction(q) + s * s / max(n, 1) for q, s in zip(squares.tolist(), sums, strict=True)]
    digits = [digit for number in (*sums, *totals) for digit in _digits(number)]
    return np.array([n, *digits], dtype=np.int64)


def _digits(number: Fraction) -> list[int]:
    """Return a number in multiples of 2^-128, as digits from the lowest on, with its sign."""
    units = round(number * (1 << UNIT_BITS))
    sign, size = (-1, -units) if units < 0 else (1, units)
    mask = (1 << DIGIT_BITS) - 1
    return [sign * ((size >> (DIGIT_BITS * i)) & mask) for i in range(DIGITS)]


def moments(totals: NDArray[np.int64]) -> Moments:
    """Return the moments of all rows.

    Args:
        totals: (1 + 16·d,) the sum of what all clients' `encoded_moments` are.

    Raises:
        DataError: there is no row.
    """
    n, *digits = (int(total) for total in totals)
    if n < 1:
        raise DataError("no client has any rows, so features cannot be scaled")
    numbers = [
        Fraction(
            sum(digit << (DIGIT_BITS * i) for i, digit in enumerate(digits[at : at + DIGITS])),
            1 << UNIT_BITS,
        )
        for at in range(0, len(digits), DIGITS)
    ]
    d = len(numbers) // 2
    mean = np.array([float(s / n) for s in numbers[:d]])
    variance = [float((t - s * s / n) / n) for s, t in zip(numbers[:d], numbers[d:], strict=True)]
    return _moments(mean, np.array(variance))


def _moments(mean: NDArray[np.float64], variance: NDArray[np.float64]) -> Moments:
    deviation = np.sqrt(np.maximum(variance, 0.0))
    constant = (deviation <= CONSTANT * np.abs(mean)) | (deviation < SMALLEST)
    return Moments(mean, np.where(constant, np.inf, deviation))


def own_moments(vectors: NDArray[Any]) -> Moments:
    """Return the moments of (n, d) vectors alone."""
    n, d = vectors.shape
    if not n:
        return Moments(np.zeros(d), np.ones(d))
    x = vectors.astype(np.float64)
    return _moments(x.mean(axis=0), x.var(axis=0))


def scaled_by_one(
    data: Mapping[str, NDArray[Any]], scale: Scale, summed: Iterable[str]
) -> dict[str, NDArray[Any]]:
    """Return what vectors are before they are hashed, where one party has those of all clients.

    Args:
        data: by client, (n_j, d).
        scale: how they are scaled.
        summed: clients whose moments are in the sum.
    """
    if scale == "none":
        return dict(data)
    if scale == "client":
        return {c: own_moments(x).scaled(x) for c, x in data.items()}
    shared = moments(np.sum([encoded_moments(data[c]) for c in summed], axis=0))
    return {c: shared.scaled(x) for c, x in data.items()}


def in_graph(vectors: NDArray[Any], scale: Scale) -> NDArray[np.bool_]:
    """Return which rows take part: those that have a direction.

    A row that is zero only after shared scaling takes part, since its client has told its number of
    rows before.

    Args:
        vectors: (n, d), as the client has them.
        scale: how they will be scaled.
    """
    if scale == "none":
        return ~zero_rows(vectors)
    if scale == "client":
        return ~zero_rows(own_moments(vectors).scaled(vectors))
    return np.ones(len(vectors), dtype=np.bool_)


def require_company(scale: Scale, clients: int) -> None:
    """Refuse shared moments where they are those of the one other client.

    Raises:
        ParameterError: says what to do.
    """
    if scale == "shared" and clients < FEWEST:
        raise ParameterError(
            "with two clients shared moments are the other's own; choose scale = 'client', or "
            "'none', or 'shared-by-two' if each may know the other's means and variances"
        )
