"""``paillier-packed``: Paillier encryption with many rows in one plaintext, and shared products.

The messages and what everybody learns are those of ``paillier``, see there, with two changes.

*Slots.* A group of s rows is the digits of one plaintext to the base B, so it takes L ciphertexts,
and its distances to a row x take one. The largest s with (L + 1)^s ≤ 2^(|n|−1) says how many groups
are needed (L = 4096, 3072 bits: 255 rows each); rows are spread over them evenly, and B is then the
largest base that fits. Against slots of w = ⌈log2(L + 1)⌉ bits (236 rows) this saves a third of
all work for 500 rows; and the room between L and B tells wrong shares: random ones pass for
distances with probability (L + 1)^s/n.

*Products.* Σ_{x_l=0} y_l − Σ_{x_l=1} y_l = Σ_l y_l − 2·Σ_{x_l=1} y_l, so that each row needs the
product of a subset of the ciphertexts, one inversion, and the product of all ciphertexts. Subset
products of many rows share their factors (`subset_products`).

Work for n_j·n_k rows: ⌈n_j/s⌉ groups, each with L encryptions by j, n_k·(L + 2^b)/b multiplications
(b about 10) and n_k re-randomisations by k, and n_k decryptions by j.
"""

from __future__ import annotations

import math

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from xclp_crypto.primitives.paillier import arithmetic
from xclp_crypto.primitives.paillier.arithmetic import Mpz
from xclp_crypto.protocols.hamming.paillier import Packing, Paillier


class PaillierPacked(Paillier):
    """Packed Paillier encryption. See the module; arguments as for `Paillier`."""

    name = "paillier-packed"

    def packing(self, rows: int, n_bits: int) -> Packing:
        """Return how `rows` rows are packed: evenly into as few groups as possible."""
        room = mpz(1) << (self.parameters.modulus_bits - 1)
        most = int((self.parameters.modulus_bits - 1) / math.log2(n_bits + 1)) + 1
        while (n_bits + 1) ** most > room:  # the logarithm is rounded
            most -= 1
        groups = max(-(-rows // most), 1)
        slots = max(-(-rows // groups), 1)
        return Packing(rows, slots, gmpy2.iroot(room, slots)[0])

    def evaluate(self, rows: NDArray[np.bool_], values: list[Mpz], square: Mpz) -> list[Mpz]:
        """Return Π_l c_l · (Π_{x_l=1} c_l)^-2 for every row x."""
        ones = arithmetic.spread(arithmetic.subset_products, rows, self.workers, values, square)
        everything = arithmetic.product(values, square)
        return [everything * gmpy2.invert(s * s % square, square) % square for s in ones]

    def evaluation_work(self, rows: int, n_bits: int) -> int:
        """Return how many multiplications `evaluate` needs."""
        return arithmetic.subset_multiplications(rows, n_bits) + n_bits
