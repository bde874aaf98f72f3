"""Paillier's additively homomorphic encryption, in batches and for both ends.

::

    key owner                                     anybody with the public key n, h
    p, q prime, n = p·q, h = −x² mod n
    c = (1 + m·n)·(h^n)^r mod n²  ──────────────▶ c·c' = Enc(m + m'), c^k = Enc(k·m), c^-1 = Enc(−m)
    m = L(c^(p−1) mod p²)·… mod p, same for q ◀── re-randomised: · (h^n)^r'

Plaintexts are integers modulo n (Paillier, EUROCRYPT 1999, with g = n + 1). Where *signed*, which
is the default, they are the integers |m| < n/2. Sums and products are taken modulo n and nobody can
notice an overflow, so leave room for them.

*Randomisers* follow Damgård, Jurik and Nielsen (Int. J. Information Security, 2010): p and q are
3 modulo 4 with gcd(p − 1, q − 1) = 2, h = −x² for a random x, and powers of h^n with exponents of
|n|/2 bits replace r^n for a uniform r. Security: the decisional composite residuosity assumption,
and that such powers look like uniform elements of ⟨h⟩ (for exponents of half the length of n a
consequence of the hardness of factoring, Goldreich and Rosen, J. Cryptology 2003). Exponents of
2·128 bits, which are common, would need a stronger assumption and are not used. Keys imported from
elsewhere have no h and use a uniform r, the original scheme.

*Re-randomising* must also hide a ciphertext's history from the key owner, who can find out the
randomiser and may even take logarithms modulo p and q. Exponents of |n| + 128 bits do: modulo the
order of h they are uniform up to 2^-128. Where the history is known to be a product of at most 2^16
ciphertexts as the owner makes them, its exponent is below 2^(|n|/2 + 16), and |n|/2 + 144 bits
drown it with statistical distance 2^-128. Both are statements about owners that are honest when
they encrypt.

Arithmetic is GMP's, which takes a time that depends on secrets; Python cannot promise otherwise.

Layers: `arithmetic` (functions on integers), `keys`, `arrays` (their operators), `ciphertexts`
(arrays of integers and their bytes), `encrypted_numbers` (arrays of fixed-point numbers, many of
them in one ciphertext), `phe` (exchange with python-paillier).
"""

from xclp_crypto.primitives.paillier.ciphertexts import Ciphertexts, decrypt, encrypt
from xclp_crypto.primitives.paillier.encrypted_numbers import (
    EncryptedNumbers,
    Slots,
    decrypt_numbers,
    encrypt_numbers,
)
from xclp_crypto.primitives.paillier.keys import PrivateKey, PublicKey, generate

__all__ = [
    "Ciphertexts",
    "EncryptedNumbers",
    "PrivateKey",
    "PublicKey",
    "Slots",
    "decrypt",
    "decrypt_numbers",
    "encrypt",
    "encrypt_numbers",
    "generate",
]


def __dir__() -> list[str]:
    return sorted(__all__)
