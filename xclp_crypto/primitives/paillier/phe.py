"""Exchange with python-paillier (`phe`), an independent implementation.

`phe` is GPL-3 and optional (``pip install xclp[phe]``); it is imported when one of these functions
is called, and nothing else needs it. Its keys have no h, so ours lose it on the way out, and keys
that come in encrypt and re-randomise as in the original scheme, which is slower.
"""

from __future__ import annotations

import math
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from xclp_crypto.errors import EncodingOverflow, ParameterError
from xclp_crypto.params import PAILLIER_3072, PaillierParameters
from xclp_crypto.primitives.paillier.arithmetic import require_ciphertexts
from xclp_crypto.primitives.paillier.arrays import numpy_errors, object_array
from xclp_crypto.primitives.paillier.ciphertexts import Ciphertexts
from xclp_crypto.primitives.paillier.encrypted_numbers import (
    MAX_WIDTH,
    EncryptedNumbers,
    Slots,
)
from xclp_crypto.primitives.paillier.keys import PrivateKey, PublicKey, require
from xclp_crypto.rng import Rng


def _phe() -> Any:
    try:
        return import_module("phe")
    except ImportError:
        raise ParameterError("phe is not installed; run: pip install 'xclp[phe]'") from None


def public_key_to_phe(key: PublicKey) -> Any:
    """Return a `phe.PaillierPublicKey` with the same modulus."""
    require("key", key, PublicKey)
    return _phe().PaillierPublicKey(int(key.n))


def public_key_from_phe(key: Any, parameters: PaillierParameters = PAILLIER_3072) -> PublicKey:
    """Return the public key of a `phe.PaillierPublicKey`, checked.

    Raises:
        ParameterError: the key does not belong to the parameter set, or is not phe's.
    """
    require("key", key, _phe().PaillierPublicKey)
    return PublicKey(key.n, None, parameters)


def private_key_to_phe(key: PrivateKey) -> Any:
    """Return a `phe.PaillierPrivateKey`; whoever sees it can decrypt."""
    require("key", key, PrivateKey)
    return _phe().PaillierPrivateKey(public_key_to_phe(key.public), *key.export_primes())


def private_key_from_phe(key: Any, parameters: PaillierParameters = PAILLIER_3072) -> PrivateKey:
    """Return the private key of a `phe.PaillierPrivateKey`, checked.

    Raises:
        ParameterError: the key does not belong to the parameter set, or is not phe's.
    """
    require("key", key, _phe().PaillierPrivateKey)
    return PrivateKey(key.p, key.q, public_key_from_phe(key.public_key, parameters))


def ciphertexts_to_phe(ciphertexts: Ciphertexts, rng: Rng) -> NDArray[np.object_]:
    """Return an array of `phe.EncryptedNumber` of exponent 0, re-randomised.

    Magnitudes must be at most n/3, the largest that phe decrypts.
    """
    require("ciphertexts", ciphertexts, Ciphertexts)
    return _to_phe(ciphertexts, 0, rng)


def ciphertexts_from_phe(numbers: Any, key: PublicKey) -> Ciphertexts:
    """Return the ciphertexts in an array of `phe.EncryptedNumber`, checked.

    Raises:
        ParameterError: a number of another key or not of phe, or one with a fractional exponent.
        DecodeError: a number that is not a ciphertext.
    """
    ciphertexts, exponents = _from_phe(numbers, key)
    for exponent in exponents.reshape(-1):
        if exponent != 0:
            raise ParameterError(
                f"a number has exponent {exponent}; encrypt integers, for which it is 0, or take "
                "numbers_from_phe"
            )
    return ciphertexts


def numbers_to_phe(numbers: EncryptedNumbers, rng: Rng) -> NDArray[np.object_]:
    """Return `phe.EncryptedNumber`, re-randomised, which phe decrypts to the same floats.

    Raises:
        ParameterError: the numbers share ciphertexts, or do not fit into the n/3 of phe.
    """
    require("numbers", numbers, EncryptedNumbers)
    if numbers.slots.packed:
        raise ParameterError(
            "phe has one number in each ciphertext; encrypt with Slots(packed=False)"
        )
    digits = -(-numbers.fraction_bits // 4)  # of base 16
    shift = 4 * digits - numbers.fraction_bits
    if numbers.bound << shift > numbers.key.n // 3:
        raise ParameterError("phe decrypts magnitudes up to n/3 only; use smaller slots")
    return _to_phe(numbers._ciphertexts * (1 << shift), -digits, rng)


def numbers_from_phe(numbers: Any, key: PublicKey, slots: Slots) -> EncryptedNumbers:
    """Return the numbers in an array of `phe.EncryptedNumber`, exactly.

    They get as many fraction bits as the one with the lowest exponent needs; phe uses 56 for 0.5.

    Args:
        numbers: of any exponents, and of magnitudes up to ``slots.max_abs``. That is not checked:
            larger ones give wrong results.
        key: whose numbers they are.
        slots: ``Slots(packed=False)``.

    Raises:
        ParameterError: a number of another key or not of phe, or packed slots.
        EncodingOverflow: that many fraction bits do not fit into the slots.
        DecodeError: a number that is not a ciphertext.
    """
    require("slots", slots, Slots)
    if slots.packed:
        raise ParameterError("phe has one number in each ciphertext; take Slots(packed=False)")
    slots.in_one(key)
    ciphertexts, exponents = _from_phe(numbers, key)
    for exponent in exponents.reshape(-1):
        if abs(exponent) > MAX_WIDTH:
            raise EncodingOverflow(f"a number has exponent {exponent}, too much for any slots")
    fraction_bits = max([slots.fraction_bits, *(-4 * e for e in exponents.reshape(-1))])
    bound = math.ceil(Fraction(slots.max_abs) * (1 << fraction_bits))
    result = EncryptedNumbers(ciphertexts, slots, 0, fraction_bits, bound, Fraction(0))
    result._fitting(bound)
    shifts = [1 << (fraction_bits + 4 * e) for e in exponents.reshape(-1)]
    return result._with(ciphertexts * object_array(shifts, exponents.shape))


def _to_phe(ciphertexts: Ciphertexts, exponent: int, rng: Rng) -> NDArray[np.object_]:
    phe, key = _phe(), public_key_to_phe(ciphertexts.key)
    values = ciphertexts.rerandomise(rng)._values.reshape(-1)
    numbers = [phe.EncryptedNumber(key, int(c), exponent) for c in values]
    return object_array(numbers, ciphertexts.shape)


def _from_phe(numbers: Any, key: PublicKey) -> tuple[Ciphertexts, NDArray[np.object_]]:
    """Return ciphertexts and their exponents to the base 16."""
    require("key", key, PublicKey)
    with numpy_errors("array"):
        array = np.array(numbers, dtype=object)
    for number in array.reshape(-1):
        require("each of the numbers", number, _phe().EncryptedNumber)
        if number.public_key.n != key.n:
            raise ParameterError("a number is encrypted under another key")
    values = [mpz(number.ciphertext()) for number in array.reshape(-1)]
    require_ciphertexts(values, key.n)
    exponents = [int(number.exponent) for number in array.reshape(-1)]
    ciphertexts = Ciphertexts(key, object_array(values, array.shape))
    return ciphertexts, object_array(exponents, array.shape)
