"""Exact samples of the discrete Gaussian: noise for integers, without floating-point leaks.

    P(X = x) ∝ exp(−x²/(2σ²)),  x ∈ Z

Rejection from steps instead of a curve, as in Canonne, Kamath and Steinke (NeurIPS 2020, Algorithm
3), with steps that halve, so that the proposal needs nothing but random bits::

    t = ⌈σ·√(2 ln 2)⌉    U uniform in 0 … t−1    P(V = v) = 2^-(v+1)    X = ±(U + t·V)
    accept with probability 2^V·exp(−X²/(2σ²))        (X = 0 only with the sign +)

A proposal X has probability 2^-(V+1)/(2t), so what is accepted has the probabilities above. The
acceptance is one: X²/(2σ²) ≥ V²·ln 2 ≥ V·ln 2. About half of all proposals are accepted.

*Exactness.* The acceptance compares 64 random bits with a float64 whose error is below 2^-49. Where
the two are closer than 2^-44 the decision is made with GMP's and MPFR's numbers, with as many more
bits as it takes. What remains is that V ≥ 63 is not proposed, which leaves out |X| ≥ 63·t > 74·σ: a
total variation distance below 2^-3900 for each sample. Nothing is rounded to a grid of floats, so
the attack of Mironov (CCS 2012) has nothing to look at. Running time depends on the number of
rejected proposals, which is independent of the samples, and once in 2^43 proposals on one of them.
"""

from __future__ import annotations

import math

import gmpy2
import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.rng import Rng, require_rng

MIN_VARIANCE = 2.0**-2
"""Smallest σ²: below, samples are almost always 0; sums have their theorem for σ ≥ 1/2 too."""
MAX_VARIANCE = 2.0**100
"""Largest σ²: samples then stay below 2^57 and sums of 64 of them below 2^63."""

_WORD = 1 << 64
_STEP = math.nextafter(math.sqrt(2 * math.log(2)), 2)
_LEVELS = np.uint64((1 << 63) - 1)
# Error of the float64 probability p = 2^V·exp(−a): relative 6·2^-53 in a, and p·a ≤ 1; 2^-50 for
# exp; 2^-53 for the random word. The rest is a margin of 2^5 for libraries with a worse exp.
_DOUBT = 2.0**-44
# Proposals at a time: arrays that fit the cache. The samples of a seed depend on it.
_BATCH = 1 << 15


def sample(rng: Rng, variance: float, shape: int | tuple[int, ...]) -> NDArray[np.int64]:
    """Draw independent samples of N_Z(0, σ²).

    Args:
        rng: source of the randomness; about 46 bytes for each sample.
        variance: the parameter σ², 2^-2 … 2^100. For σ ≥ 1 it is the variance up to 1e-6.
        shape: of the result; zeros are allowed.

    Returns:
        int64 in the given shape, |x| < 63·(1.18·σ + 1).

    Raises:
        ParameterError: a variance or shape out of range.

    Examples:
        >>> from xclp_crypto.primitives.discrete_gaussian import sample
        >>> from xclp_crypto.rng import SeededRng
        >>> round(float(sample(SeededRng(1), variance=100.0, shape=10_000).std()))
        10
    """
    require_variance(variance)
    out = np.empty(shape, np.int64)
    flat = out.reshape(-1)
    done = 0
    while done < len(flat):
        # A few more than expected, so that a small request is mostly served in one go.
        accepted = _propose(rng, variance, min(2 * (len(flat) - done) + 32, _BATCH))
        accepted = accepted[: len(flat) - done]
        flat[done : done + len(accepted)] = accepted
        done += len(accepted)
    return out


def require_variance(variance: float) -> None:
    """Refuse what `sample` cannot draw.

    Raises:
        ParameterError: a variance outside 2^-2 … 2^100.
    """
    if not MIN_VARIANCE <= variance <= MAX_VARIANCE:
        raise ParameterError(
            f"the variance of a discrete Gaussian must be in 2^-2 … 2^100, got {variance!r}"
        )


def _propose(rng: Rng, variance: float, n: int) -> NDArray[np.int64]:
    """Return the accepted ones of n proposals, in order."""
    t = math.ceil(math.sqrt(variance) * _STEP)
    source = require_rng(rng)
    offset = source.residues(t, n).astype(np.int64)
    bits, word = source.residues(_WORD, (2, n)).astype(np.uint64)
    negative = bits > _LEVELS
    bits &= _LEVELS
    power = bits & (~bits + np.uint64(1))  # the lowest one, 2^V
    level = np.bitwise_count(power - np.uint64(1)).astype(np.int64)
    x = offset + t * level
    wide = x.astype(np.float64)
    probability = np.exp(wide * wide * (-0.5 / variance)) * power
    distance = probability - np.ldexp(word.astype(np.float64), -64)
    accept = distance > 0
    for i in np.flatnonzero(np.abs(distance) <= _DOUBT):
        accept[i] = _is_accepted(rng, int(word[i]), int(x[i]), int(level[i]), variance)
    accept &= (bits > 0) & ~(negative & (x == 0))
    np.negative(x, out=x, where=negative)
    return np.asarray(x[accept])


def _is_accepted(rng: Rng, word: int, x: int, level: int, variance: float) -> bool:
    """Decide u < 2^V·exp(−x²/(2σ²)) for a uniform u whose first 64 bits are the word."""
    exponent = gmpy2.mpq(x * x) / (2 * gmpy2.mpq(variance))
    bits = 64
    while True:
        # Rounding moves the exponent, below 2^14 here, and its exponential, below 1, by less
        # than 2^-(bits+100) each; `probability` counts in units of 2^-bits.
        with gmpy2.context(precision=bits + 120):
            probability = gmpy2.exp(-gmpy2.mpfr(exponent)) * gmpy2.mpfr(2) ** (bits + level)
            below = word + 1 <= probability - 2**-30
            above = word >= probability + 2**-30
        if below or above:
            return bool(below)
        word = word << 64 | int.from_bytes(require_rng(rng).bytes(8), "little")
        bits += 64
