"""Functions on lists of big integers: powers of one base, products over subsets, random numbers.

All are pure. Those that take `workers` (a LOCAL parameter) split their work over so many processes;
the result is the same for every number. Each process is started afresh, so a script that asks for
more than one must guard its own start by ``if __name__ == "__main__":``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.rng import Rng, require_rng

Mpz: TypeAlias = Any
"""A `gmpy2.mpz`; gmpy2 has no type information."""

Items = TypeVar("Items", list[Mpz], NDArray[np.uint8], NDArray[np.bool_])

SMALL_PRIMES: Mpz = gmpy2.primorial(1 << 12)
"""The product of all primes below 4096; no factor of a modulus may divide it."""
_SIEVE: Final = (gmpy2.primorial(1 << 8), SMALL_PRIMES, gmpy2.primorial(1 << 16))
"""What candidates for primes are tried against, one after the other."""

MAX_WINDOW = 12
_BLOCKS = 4
_USES = 256
_POWERS = range(1, 6)
"""Widths of tables with powers of many bases; wider ones would take much memory."""
_NEVER = 1 << 30
_FILLER = 1 << 14  # 3 to this is far longer than a modulus, and so looks like any number modulo it


def spread(
    function: Callable[..., list[Mpz]], items: Items, workers: int, *common: object
) -> list[Mpz]:
    """Return ``function(items, *common)``, contiguous parts of the items in different processes.

    Raises:
        ParameterError: fewer than one worker, or processes that cannot be started.
    """
    if not isinstance(workers, int) or workers < 1:
        raise ParameterError(f"workers must be at least 1, got {workers!r}")
    count = min(workers, len(items) // 16)
    if count <= 1:
        return function(items, *common)
    bounds = [len(items) * i // count for i in range(count + 1)]
    # A limit of tasks makes the pool start fresh processes instead of forking this one.
    with ProcessPoolExecutor(count, max_tasks_per_child=_NEVER) as pool:
        parts = [
            pool.submit(function, items[start:stop], *common) for start, stop in pairwise(bounds)
        ]
        try:
            return [value for part in parts for value in part.result()]
        except BrokenProcessPool:
            raise ParameterError(
                f"{workers} worker processes could not be started; guard the start of your script "
                'by `if __name__ == "__main__":` or use workers=1'
            ) from None


def best_window(cost: Callable[[int], int]) -> int:
    """Return the window width 1 … 12 of the least cost."""
    return min(range(1, MAX_WINDOW + 1), key=cost)


class Comb:
    """Tables for powers of one base, with exponents of one length (Lim and Lee, CRYPTO 1994).

    The bits of an exponent are cut into h rows of v blocks of b columns. Table j has, for every
    pattern of h bits, the product of the powers of the base that these bits of the first column of
    block j stand for. A power is then, column by column, v factors and one squaring: b·(v + 1)
    multiplications, about L/h·(1 + 1/v) for L bits. The tables take v·2^h more, and L squarings;
    h is such that `_USES` powers cost least: 10 from 1024 bits on.

    Args:
        base: reduced.
        modulus: above 1.
        bits: L, a multiple of 8.
    """

    __slots__ = ("columns", "modulus", "rows", "tables")

    def __init__(self, base: Mpz, modulus: Mpz, bits: int) -> None:
        self.modulus = modulus
        self.rows = best_window(lambda h: (_BLOCKS << h) + _USES * -(-bits // h))
        self.columns = -(-bits // (self.rows * _BLOCKS))
        bases = [base]  # of the first column of every block of every row
        for _ in range(1, self.rows * _BLOCKS):
            bases.append(gmpy2.powmod(bases[-1], mpz(1) << self.columns, modulus))
        self.tables: list[list[Mpz]] = []
        for block in range(_BLOCKS):
            table = [mpz(1)]
            for factor in bases[block::_BLOCKS]:
                table += [x * factor % modulus for x in table]
            self.tables.append(table)


def powers(exponents: NDArray[np.uint8], comb: Comb) -> list[Mpz]:
    """Return powers of the comb's base.

    Args:
        exponents: (count, bytes), little-endian, at most as long as the comb is for.
        comb: of the base.
    """
    bits = np.unpackbits(exponents, axis=1, bitorder="little")
    padded = np.zeros((len(bits), comb.rows * _BLOCKS * comb.columns), np.int64)
    padded[:, : bits.shape[1]] = bits
    cells = padded.reshape(len(bits), comb.rows, _BLOCKS, comb.columns)
    digits = np.einsum("erbc,r->ecb", cells, 1 << np.arange(comb.rows))[:, ::-1]
    modulus = comb.modulus
    results = []
    for columns in digits.tolist():
        power = mpz(1)
        for column in columns:
            power = power * power % modulus
            for table, digit in zip(comb.tables, column, strict=True):
                power = power * table[digit] % modulus
        results.append(power)
    return results


def subset_products(rows: NDArray[np.bool_], values: list[Mpz], modulus: Mpz) -> list[Mpz]:
    """Return, for every row, the product of the values at its true entries.

    Rows are taken b at a time. Each value is multiplied into one of 2^b buckets, by its pattern of
    bits in the b rows; then bucket after bucket, from the highest pattern down, goes into the
    result of its lowest row and into the bucket without that row. That is ⌈n/b⌉·(L + 2^b)
    multiplications instead of n·L/2: the method of four Russians, inputs and outputs exchanged.

    Which numbers are multiplied depends on the rows, but not how many, in which order, or how long
    they are: buckets begin with a power of 3, and results with what takes it away.

    Args:
        rows: (n, L).
        values: L of them, reduced.
        modulus: no multiple of 3, above 1.
    """
    n, length = rows.shape
    width = best_window(lambda b: _subset_cost(n, length, b))
    return [
        product
        for start in range(0, n, width)
        for product in _window_products(rows[start : start + width], values, modulus)
    ]


def _subset_cost(n: int, length: int, width: int) -> int:
    return -(-n // width) * (length + (1 << width))


def subset_multiplications(n: int, length: int) -> int:
    """Return how many multiplications `subset_products` needs for n rows of `length` bits."""
    return min(_subset_cost(n, length, width) for width in range(1, MAX_WINDOW + 1))


def _window_products(rows: NDArray[np.bool_], values: list[Mpz], modulus: Mpz) -> list[Mpz]:
    patterns: list[int] = ((1 << np.arange(len(rows))) @ rows).tolist()
    filler = gmpy2.powmod(3, _FILLER, modulus)
    # objects of their own, since GMP is faster where both factors are one
    buckets = [filler % modulus for _ in range(1 << len(rows))]
    for pattern, value in zip(patterns, values, strict=True):
        buckets[pattern] = buckets[pattern] * value % modulus
    # half of the buckets go into a result
    results = [gmpy2.powmod(filler, -(1 << len(rows) - 1), modulus)] * len(rows)
    for pattern in range(len(buckets) - 1, 0, -1):
        bucket = buckets[pattern]
        low = (pattern & -pattern).bit_length() - 1
        results[low] = results[low] * bucket % modulus
        rest = pattern & (pattern - 1)
        if rest:
            buckets[rest] = buckets[rest] * bucket % modulus
    return results


def products_of_powers(
    rows: list[list[tuple[int, Mpz]]], bases: list[Mpz], modulus: Mpz
) -> list[Mpz]:
    """Return, for every row, the product of powers of bases (Straus).

    The squarings are those of one power for each row, and all rows share a table of the first
    2^b − 1 powers of each base.

    Args:
        rows: of each factor, which base, and an exponent, which may be negative.
        bases: units, reduced.
        modulus: above 1.
    """
    bits = max((abs(e).bit_length() for row in rows for _, e in row), default=0)
    count = sum(map(len, rows))
    width = min(_POWERS, key=lambda b: (len(bases) << b) + count * -(-bits // b))
    tables = []
    for base in bases:
        table = [mpz(1), base]
        while len(table) >> width == 0:
            table.append(table[-1] * base % modulus)
        tables.append(table)
    results = []
    for row in rows:
        up, down = (
            _product_of_powers(
                [(i, abs(e)) for i, e in row if e * sign > 0], tables, width, modulus
            )
            for sign in (1, -1)
        )
        results.append(up if down == 1 else up * gmpy2.invert(down, modulus) % modulus)
    return results


def _product_of_powers(
    factors: list[tuple[int, Mpz]], tables: list[list[Mpz]], width: int, modulus: Mpz
) -> Mpz:
    bits = max((e.bit_length() for _, e in factors), default=0)
    result = mpz(1)
    for start in reversed(range(0, bits, width)):
        for _ in range(width):
            result = result * result % modulus
        for base, exponent in factors:
            digit = exponent[start : start + width]
            if digit:
                result = result * tables[base][digit] % modulus
    return result


def product(values: Sequence[Mpz], modulus: Mpz) -> Mpz:
    """Return the product of all values modulo `modulus`."""
    result = mpz(1)
    for value in values:
        result = result * value % modulus
    return result


def require_ciphertexts(values: Sequence[Mpz], n: Mpz) -> None:
    """Refuse integers that are not reduced units modulo n².

    Raises:
        DecodeError: names the first value that is out of range.
    """
    square = n * n
    for index, value in enumerate(values):
        if not 0 < value < square:
            raise DecodeError(f"ciphertext {index} is not in the range of this key")
    if gmpy2.gcd(product(values, n), n) != 1:
        raise DecodeError("a ciphertext has a factor in common with the modulus")


def powers_of(bases: list[Mpz], exponent: Mpz, modulus: Mpz) -> list[Mpz]:
    """Return the bases raised to one exponent."""
    result: list[Mpz] = gmpy2.powmod_base_list(bases, exponent, modulus)
    return result


def draw_exponents(count: int, bits: int, rng: Rng) -> NDArray[np.uint8]:
    """Return uniform exponents of `bits` bits, a multiple of 8, as (count, bits/8) bytes."""
    length = bits // 8
    data = require_rng(rng).bytes(count * length)
    return np.frombuffer(data, dtype=np.uint8).reshape(count, length)


def draw_below(modulus: Mpz, count: int, rng: Rng) -> list[Mpz]:
    """Return `count` independent uniform integers in [0, modulus), by rejection."""
    bits = modulus.bit_length()
    length = (bits + 7) // 8
    values: list[Mpz] = []
    while len(values) < count:
        wanted = count - len(values)
        data = require_rng(rng).bytes(wanted * length)
        for start in range(0, len(data), length):
            value = mpz.from_bytes(data[start : start + length], "little")
            value = gmpy2.f_mod_2exp(value, bits)
            if value < modulus:
                values.append(value)
    return values


def draw_units(modulus: Mpz, count: int, rng: Rng) -> list[Mpz]:
    """Return `count` independent uniform units modulo `modulus`: neither 0 nor with a factor of it.

    As a randomiser, a multiple of p or q would make a number that does not decrypt.
    """
    units: list[Mpz] = []
    while len(units) < count:
        drawn = draw_below(modulus, count - len(units), rng)
        units += [value for value in drawn if gmpy2.gcd(value, modulus) == 1]
    return units


def draw_prime(bits: int, rounds: int, rng: Rng, other: Mpz = 3) -> Mpz:
    """Return a uniform prime that is 3 modulo 4 and has its two highest bits set.

    Every candidate is drawn afresh: the next prime after a random number would favour primes that
    follow long gaps. GMP chooses the bases of its test by itself, which is no loss for candidates
    that no adversary has chosen.

    Args:
        bits: a multiple of 8, at least 24.
        rounds: see `PaillierParameters.drawn_prime_rounds`.
        rng: the source.
        other: a prime p with which the result q has gcd(p − 1, q − 1) = 2; any has it with 3.
    """
    fixed = (mpz(3) << (bits - 2)) | 3
    small = gmpy2.gcd(other - 1, _SIEVE[0])  # most of what p − 1 could share with q − 1
    while True:
        candidate = mpz.from_bytes(require_rng(rng).bytes(bits // 8), "big") | fixed
        if (
            gmpy2.gcd(candidate - 1, small) == 2
            and all(gmpy2.gcd(candidate, factors) == 1 for factors in _SIEVE)
            and gmpy2.gcd(candidate - 1, other - 1) == 2
            and gmpy2.is_prime(candidate, rounds)
        ):
            return candidate


def to_bytes(values: Sequence[Mpz], length: int) -> bytes:
    """Encode integers as `length` bytes each, big-endian."""
    return b"".join([value.to_bytes(length, "big") for value in values])


def from_bytes(data: bytes, length: int) -> list[Mpz]:
    """Invert `to_bytes`."""
    return [
        mpz.from_bytes(data[start : start + length], "big") for start in range(0, len(data), length)
    ]
