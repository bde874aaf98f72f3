"""Exchange with python-paillier (`phe`), an independent implementation.

`phe` is GPL-3 and optional (``pip install xclp[phe]``); it is imported when one of these functions
is called, and nothing else needs it. Its keys have no h, so ours lose it on the way out, and keys
that come in encrypt and re-randomise as in the original scheme, which is slower.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.params import PAILLIER_3072, PaillierParameters
from xclp_crypto.primitives.paillier.arithmetic import require_ciphertexts
from xclp_crypto.primitives.paillier.ciphertexts import Ciphertexts, _array
from xclp_crypto.primitives.paillier.keys import PrivateKey, PublicKey
from xclp_crypto.rng import Rng


def _phe() -> Any:
    try:
        return import_module("phe")
    except ImportError:
        raise ParameterError("phe is not installed; run: pip install 'xclp[phe]'") from None


def public_key_to_phe(key: PublicKey) -> Any:
    """Return a `phe.PaillierPublicKey` with the same modulus."""
    return _phe().PaillierPublicKey(int(key.n))


def public_key_from_phe(key: Any, parameters: PaillierParameters = PAILLIER_3072) -> PublicKey:
    """Return the public key of a `phe.PaillierPublicKey`, checked.

    Raises:
        ParameterError: the key does not belong to the parameter set.
    """
    return PublicKey(key.n, None, parameters)


def private_key_to_phe(key: PrivateKey) -> Any:
    """Return a `phe.PaillierPrivateKey`; whoever sees it can decrypt."""
    return _phe().PaillierPrivateKey(public_key_to_phe(key.public), *key.export_primes())


def private_key_from_phe(key: Any, parameters: PaillierParameters = PAILLIER_3072) -> PrivateKey:
    """Return the private key of a `phe.PaillierPrivateKey`, checked.

    Raises:
        ParameterError: the key does not belong to the parameter set.
    """
    return PrivateKey(key.p, key.q, public_key_from_phe(key.public_key, parameters))


def ciphertexts_to_phe(ciphertexts: Ciphertexts, rng: Rng) -> NDArray[np.object_]:
    """Return an array of `phe.EncryptedNumber` of exponent 0, re-randomised.

    Magnitudes must be at most n/3, the largest that phe decrypts.
    """
    phe, key = _phe(), public_key_to_phe(ciphertexts.key)
    values = ciphertexts.rerandomise(rng)._values.reshape(-1)
    return _array([phe.EncryptedNumber(key, int(c), 0) for c in values], ciphertexts.shape)


def ciphertexts_from_phe(numbers: Any, key: PublicKey) -> Ciphertexts:
    """Return the ciphertexts in an array of `phe.EncryptedNumber`, checked.

    Raises:
        ParameterError: a number of another key, or one with a fractional exponent.
        DecodeError: a number that is not a ciphertext.
    """
    array = np.array(numbers, dtype=object)
    for number in array.reshape(-1):
        if number.public_key.n != key.n:
            raise ParameterError("a number is encrypted under another key")
        if number.exponent != 0:
            raise ParameterError(
                f"a number has exponent {number.exponent}; encrypt integers, for which it is 0"
            )
    values = [mpz(number.ciphertext()) for number in array.reshape(-1)]
    require_ciphertexts(values, key.n)
    return Ciphertexts(key, _array(values, array.shape))
