"""Ring-LWE where an evaluator has many more rows than the owner: several of them share a c1.

It is the scheme of `rlwe` for vectors of L ≤ N bits, cut into C chunks of ℓ bits, ℓ a power of two.
The owner has one secret for the chunks y_0 … y_{C−1} of a vector, and a public polynomial for each:

    b_c = a_c·s + e_c + Δ·y_c(x)        p = a'·s + e'

The evaluator takes R = N/ℓ of its vectors x_0 … x_{R−1} at a time. With the bits x_rcl of their
chunks,

    u_c(x) = Σ_r Σ_l (1 − 2·x_rcl)·x^(N−1−rℓ−l),    c1 = Σ_c u_c·a_c + ρ·a' + e1,

and the coefficient N−1−rℓ of Σ_c u_c·y_c is h(x_r, y) − |x_r|: terms of x_r' and y_l' with another
r' meet there only if l' − l = (r' − r)·ℓ modulo N, which no l, l' in 0 … ℓ−1 have. So there is a c2
for each of R rows, [Σ_c u_c·b_c + ρ·p]_(N−1−rℓ) + flood + Δ·r, each with a flood and a mask of its
own, and one c1. Since x^N = −1, that coefficient of a product is the inner product with a factor
turned by rℓ: see `turned`.

*Why it hides*: as in `rlwe`. The evaluator sees C + 1 samples for each ternary secret. The owner
sees c1, hidden by ρ, which serves one group of rows, and in every c2 the noise
Σ_c u_c·e_c + ρ·e' − e1·s in its flood, with up to C·N coefficients in u: `support` of
`RlweParameters.require`.

A ciphertext has (C + 1)·N numbers modulo q, and c1 has N/R modulo q' for each row: many chunks suit
an evaluator with many more rows. Two are taken, which suits about twenty times as many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.products import exact_product
from xclp_crypto.params import RlweParameters
from xclp_crypto.primitives import rlwe
from xclp_crypto.primitives.rlwe import Digits, Ring
from xclp_crypto.rng import Rng

CHUNKS = 2
"""C for all vectors but the shortest."""
SHORTEST = 128
"""Least ℓ; shorter chunks would save less than 0.4 kB for each row."""


@dataclass(frozen=True)
class Packing:
    """How vectors lie in polynomials.

    Attributes:
        n_bits: L ≤ N.
        width: ℓ.
        degree: N.
    """

    n_bits: int
    width: int
    degree: int

    @classmethod
    def of(cls, n_bits: int, parameters: RlweParameters) -> Packing | None:
        """Return it for vectors of L bits, None where they are longer than a polynomial."""
        if n_bits > parameters.degree:
            return None
        width = max(SHORTEST, 1 << (-(-n_bits // CHUNKS) - 1).bit_length())
        return cls(n_bits, width, parameters.degree)

    @property
    def chunks(self) -> int:
        """Return C."""
        return -(-self.n_bits // self.width)

    @property
    def packed(self) -> int:
        """Return R."""
        return self.degree // self.width

    @property
    def values(self) -> int:
        """Return how many numbers a ciphertext has."""
        return (self.chunks + 1) * self.degree

    def groups(self, rows: int) -> int:
        """Return how many c1 there are for so many rows of the evaluator."""
        return -(-rows // self.packed)

    def cut(self, rows: NDArray[np.int8]) -> NDArray[np.int8]:
        """Return (rows, L) as (rows, C, ℓ), padded with zeros."""
        padded = np.zeros((len(rows), self.chunks * self.width), dtype=np.int8)
        padded[:, : self.n_bits] = rows
        return padded.reshape(len(rows), self.chunks, self.width)

    def turns(self, factors: NDArray[np.int8]) -> list[NDArray[np.int8]]:
        """Return factors (…, N), reversed, turned to the coefficient of each of R rows."""
        return [turned(factors, at) for at in range(0, self.degree, self.width)]


def turned(factors: NDArray[np.int8], at: int) -> NDArray[np.int8]:
    """Return what picks the coefficient N−1−at: from column `at` on, then the rest negated."""
    return np.concatenate([factors[..., at:], -factors[..., :at]], axis=-1)


def encrypt(
    rng: Rng, ring: Ring, bits: NDArray[np.uint8], packing: Packing
) -> tuple[NDArray[np.int8], Digits]:
    """Encrypt bit vectors.

    Args:
        rng: source of secrets and errors.
        ring: C + 1 public polynomials.
        bits: (rows, L) of 0 and 1.
        packing: how they lie in polynomials.

    Returns:
        The secrets, (rows, N) ternary, reversed as `decrypt` needs them; and the ciphertexts as
        limbs of shape (rows, (C + 1)·N): all b, then p.
    """
    p, n, rows = ring.parameters, packing.degree, len(bits)
    message = packing.cut(bits.astype(np.int8))
    secrets = np.empty((rows, n), dtype=np.int8)
    limbs = [np.empty((rows, packing.values), dtype=np.int64) for _ in range(p.limbs)]

    def encrypt_block(block: slice, own: Rng) -> None:
        s = rlwe.ternary(own, (len(bits[block]), n))
        for i, product in enumerate(ring.products(s)):
            product[0] += rlwe.binomial_error(own, s.shape, p.error_bits)
            if i < packing.chunks:
                shifted = message[block, i].astype(np.int64) << (p.delta_bits % p.limb_bits)
                product[p.delta_bits // p.limb_bits][:, : packing.width] += shifted
            for out, digit in zip(limbs, rlwe.carried(product, p.limb_bits), strict=True):
                out[block, i * n : (i + 1) * n] = digit
        secrets[block] = s[:, ::-1]

    rlwe.for_blocks(encrypt_block, rows, rlwe.ROWS_PER_BLOCK, rng)
    return secrets, limbs


def prepare(
    rng: Rng, ring: Ring, bits: NDArray[np.uint8], packing: Packing
) -> tuple[NDArray[np.int8], NDArray[np.uint32]]:
    """Draw the evaluator's ρ and e1 and return what it needs for all owners.

    Args:
        rng: source of ρ and e1.
        ring: C + 1 public polynomials.
        bits: (rows, L) of 0 and 1.
        packing: how they lie in polynomials.

    Returns:
        The evaluation matrix, (rows, (C + 1)·N) ternary, for `rlwe.evaluate`; and c1 modulo q',
        (⌈rows/R⌉, N).
    """
    p, n, groups = ring.parameters, packing.degree, packing.groups(len(bits))
    signs = np.zeros((groups * packing.packed, packing.chunks, packing.width), dtype=np.int8)
    signs[: len(bits)] = packing.cut((1 - 2 * bits.astype(np.int8)).astype(np.int8))
    by_group = signs.reshape(groups, packing.packed, packing.chunks, packing.width)
    factors = np.empty((groups, packing.chunks + 1, n), dtype=np.int8)  # u_0 …, ρ, all reversed
    factors[:, :-1] = by_group.swapaxes(1, 2).reshape(groups, packing.chunks, n)
    c1 = np.empty((groups, n), dtype=np.uint32)

    def prepare_block(block: slice, own: Rng) -> None:
        factors[block, -1] = rlwe.ternary(own, c1[block].shape)
        limbs = ring.sum_of_products(*factors[block, :, ::-1].swapaxes(0, 1))
        limbs[0] += rlwe.binomial_error(own, c1[block].shape, p.error_bits)
        c1[block] = rlwe.switched(limbs, p)

    rlwe.for_blocks(prepare_block, groups, rlwe.ROWS_PER_BLOCK, rng)
    matrix = np.stack(packing.turns(factors), axis=1)
    return matrix.reshape(groups * packing.packed, packing.values)[: len(bits)], c1


def decrypt(
    secrets: NDArray[np.int8],
    c1: NDArray[np.uint32],
    c2: NDArray[np.uint32],
    parameters: RlweParameters,
    packing: Packing,
) -> NDArray[np.uint16]:
    """Return T modulo t, (rows_j, rows_k).

    Args:
        secrets: (rows_j, N) from `encrypt`.
        c1: (⌈rows_k/R⌉, N) modulo q'.
        c2: (rows_j, rows_k) modulo q'.
        parameters: the parameter set.
        packing: how vectors lie in polynomials.
    """
    columns = c1.astype(np.float64).T  # below 2^24 times 2^12 ternary entries: exact in float64
    products = [exact_product(s.astype(np.float64), columns) for s in packing.turns(secrets)]
    of_rows = np.stack(products, axis=2).reshape(len(c2), -1)[:, : c2.shape[1]]
    return rlwe.opened(c2, of_rows.astype(np.int64), parameters)
