"""Arrays of ciphertexts: what NumPy is to numbers, for numbers that nobody here can read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Final

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from xclp_crypto.errors import (
    DataError,
    DecodeError,
    EncodingOverflow,
    ParameterError,
    XclpError,
)
from xclp_crypto.primitives.paillier.arithmetic import (
    Mpz,
    from_bytes,
    products_of_powers,
    require_ciphertexts,
    to_bytes,
)
from xclp_crypto.primitives.paillier.arrays import EncryptedArray, numpy_errors, object_array
from xclp_crypto.primitives.paillier.keys import (
    BYTES,
    FINGERPRINT_BYTES,
    PrivateKey,
    PublicKey,
    public_part,
    require,
)
from xclp_crypto.rng import Rng

FORMAT = b"xPC\x01"
MAX_DIMENSIONS = 32

_SIZES: Final = {np.shape, np.ndim, np.size}
_MOVES: Final = {np.reshape, np.ravel, np.transpose, np.squeeze, np.expand_dims, np.broadcast_to}
_JOINS: Final = {np.concatenate, np.stack, np.vstack, np.hstack}
_OPERANDS: Final = {np.dot: 2, np.inner: 2, np.outer: 2, np.tensordot: 2, np.matmul: 2, np.sum: 1}
"""Of NumPy's products and sums: how many of the first arguments are numbers or ciphertexts."""
_OPTIONS: Final = {"axis", "axes", "keepdims"}


class Ciphertexts(EncryptedArray):
    """An array of encrypted integers under one key, of any shape.

    ``+``, ``-`` and ``*`` work elementwise and broadcast as in NumPy, with another array of
    ciphertexts under the same key (``+`` and ``-``) or with integers. ``@``, `np.dot`, `np.inner`,
    `np.outer`, `np.tensordot` and `np.sum` are the same for ciphertexts and integers, and
    `np.concatenate`, `np.stack` and functions that change the shape work too. Whatever else NumPy
    or Python could do with numbers, such as comparing them, raises `ParameterError`.

    Nothing re-randomises: results would show how they came about, and equal inputs give equal
    results. `encode`, the only way out, therefore re-randomises all but what was just encrypted and
    never sent.

    Examples:
        >>> from xclp_crypto.params import INSECURE_TEST_512
        >>> from xclp_crypto.primitives.paillier import Ciphertexts, decrypt, encrypt, generate
        >>> from xclp_crypto.rng import SystemRng
        >>> rng = SystemRng()
        >>> key = generate(rng, INSECURE_TEST_512)
        >>> received = Ciphertexts.decode(encrypt(key, [3, -1, 4], rng).encode(rng), key.public)
        >>> print(*decrypt(key, received @ np.array([[1, 5], [0, 5], [2, 5]]) + [100, 200]))
        111 230
    """

    __slots__ = ("_fresh", "_values", "key")

    def __init__(self, key: PublicKey, values: NDArray[np.object_], *, fresh: bool = False) -> None:
        self.key = key
        self._values = values
        self._fresh = fresh

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self._values.shape

    def __getitem__(self, where: Any) -> Ciphertexts:
        return self._result(self._values[where])

    def reshape(self, *shape: int) -> Ciphertexts:
        """Return the same ciphertexts in another shape."""
        with numpy_errors("reshape"):
            return Ciphertexts(self.key, self._values.reshape(*shape))

    def __add__(self, other: Any) -> Ciphertexts:
        """Add ciphertexts, or integers of magnitude below n/2."""
        if isinstance(other, Ciphertexts):
            factor = self._of_same_key(other)
        else:
            factor = 1 + lifted(integers(other), self.key, signed=True) * self.key.n
        with numpy_errors("+"):
            return self._result(self._values * factor)

    def __mul__(self, other: Any) -> Ciphertexts:
        """Multiply with integers of magnitude below n/2."""
        with numpy_errors("*"):
            return self._result(_powmod(self._values, self._scalars(other), self.key.n_squared))

    def __sub__(self, other: Any) -> Ciphertexts:
        """Subtract ciphertexts, or integers of magnitude below n/2."""
        return self + (-other if isinstance(other, Ciphertexts) else -integers(other))

    def __matmul__(self, other: Any) -> Ciphertexts:
        return self._sum_of_products(np.matmul, (self, other), {})

    def __rmatmul__(self, other: Any) -> Ciphertexts:
        return self._sum_of_products(np.matmul, (other, self), {})

    def sum(self, axis: int | None = None) -> Ciphertexts:
        """Add up ciphertexts.

        Args:
            axis: along which; None for all.

        Returns:
            Ciphertexts of the sums, without this axis.

        Raises:
            ParameterError: there is no such axis.
        """
        return self._sum_of_products(np.sum, (self,), {"axis": axis})

    def __array_function__(
        self, function: Any, types: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        if function in _OPERANDS:
            return self._sum_of_products(function, args, kwargs)
        if not args or function not in _SIZES | _MOVES | _JOINS:
            self._refuse()
        parts: Sequence[Any] = args[0] if function in _JOINS else args[:1]
        values = [self._of_same_key(part) for part in parts]
        with numpy_errors(function.__name__):
            found = function(values if function in _JOINS else values[0], *args[1:], **kwargs)
        return found if function in _SIZES else Ciphertexts(self.key, found)

    def _sum_of_products(
        self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Ciphertexts:
        """Apply one of `_OPERANDS`."""
        count = _OPERANDS[function]
        if not count <= len(args) <= count + 1 or not kwargs.keys() <= _OPTIONS:
            self._refuse()
        operands = [
            self._terms(a) if isinstance(a, Ciphertexts) else self._scalars(a) for a in args[:count]
        ]
        with numpy_errors(function.__name__, *(a.shape for a in operands)):
            found = np.asarray(function(*operands, *args[count:], **kwargs), dtype=object)
        # Where there is nothing to add up, NumPy says 0 or None; 1 is a ciphertext of 0.
        rows = [t.factors() if isinstance(t, _Term) else [] for t in found.reshape(-1)]
        values = next(a._values for a in args[:count] if isinstance(a, Ciphertexts))
        results = products_of_powers(rows, values.reshape(-1).tolist(), self.key.n_squared)
        return Ciphertexts(self.key, object_array(results, found.shape))

    def _terms(self, other: Ciphertexts) -> NDArray[np.object_]:
        terms = [_Term(i, mpz(1)) for i in range(self._of_same_key(other).size)]
        return object_array(terms, other.shape)

    def _scalars(self, values: Any) -> NDArray[np.object_]:
        """Return integers that ciphertexts can be multiplied with."""
        if isinstance(values, Ciphertexts):
            raise ParameterError("Paillier ciphertexts can be added, not multiplied")
        scalars = integers(values)
        _require_range(scalars, self.key, signed=True)
        return scalars

    def _of_same_key(self, other: object) -> NDArray[np.object_]:
        """Return the numbers in ciphertexts of this key."""
        if not isinstance(other, Ciphertexts):
            raise ParameterError(
                f"ciphertexts do not go into one array with {type(other).__name__}; encrypt it"
            )
        if self.key != other.key:
            raise ParameterError("these ciphertexts belong to different keys")
        return other._values

    def rerandomise(self, rng: Rng, workers: int = 1) -> Ciphertexts:
        """Return ciphertexts of the same integers that do not show how they came about."""
        noise = self.key.randomisers(self.size, rng, workers)
        result = self._result(self._values * object_array(noise, self.shape))
        result._fresh = True
        return result

    def encode(self, rng: Rng, workers: int = 1) -> bytes:
        """Encode for somebody else, re-randomised unless just encrypted and never encoded.

        The bytes are format and version (4), the key's fingerprint (8), the number of dimensions
        (1), each dimension (4), and every ciphertext (bits/4), big-endian.

        Args:
            rng: source of the randomisers.
            workers: processes to use.

        Raises:
            ParameterError: more than 32 dimensions, or a dimension from 2^32 on.
        """
        if self.ndim > MAX_DIMENSIONS or any(n >> 32 for n in self.shape):
            raise ParameterError(f"ciphertexts of shape {self.shape} cannot be encoded")
        values = self._values if self._fresh else self.rerandomise(rng, workers)._values
        self._fresh = False
        shape = b"".join(n.to_bytes(4, "big") for n in self.shape)
        head = FORMAT + self.key.fingerprint + bytes([values.ndim]) + shape
        return head + to_bytes(values.reshape(-1).tolist(), self.key.ciphertext_bytes)

    @classmethod
    def decode(cls, data: bytes, key: PublicKey) -> Ciphertexts:
        """Decode ciphertexts under this key.

        Raises:
            DecodeError: other bytes, ciphertexts of another key, or numbers that are no
                ciphertexts.
            ParameterError: `data` is not bytes, or `key` is not a public key.
        """
        require("data", data, *BYTES)
        require("key", key, PublicKey)
        start = len(FORMAT) + FINGERPRINT_BYTES + 1
        if data[: len(FORMAT)] != FORMAT or len(data) < start:
            raise DecodeError(f"these bytes are no Paillier ciphertexts of version {FORMAT[-1]}")
        if data[len(FORMAT) : start - 1] != key.fingerprint:
            raise DecodeError("these ciphertexts belong to another key")
        ndim = data[start - 1]
        body = start + 4 * ndim
        if ndim > MAX_DIMENSIONS or len(data) < body:
            raise DecodeError(f"a shape of {ndim} dimensions")
        shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(start, body, 4))
        expected = body + math.prod(shape) * key.ciphertext_bytes
        if len(data) != expected:
            raise DecodeError(f"{len(data)} bytes where {expected} are expected")
        values = from_bytes(data[body:], key.ciphertext_bytes)
        require_ciphertexts(values, key.n)
        try:
            return cls(key, object_array(values, shape))
        except ValueError:  # no ciphertexts, and so NumPy alone minds the other dimensions
            raise DecodeError(f"there is no array of shape {shape}") from None

    def _result(self, values: Any) -> Ciphertexts:
        reduced = np.asarray(values, dtype=object) % self.key.n_squared
        return Ciphertexts(self.key, np.asarray(reduced, dtype=object))  # 0-d gave a scalar

    def __repr__(self) -> str:
        return f"<Ciphertexts of shape {self.shape} under {self.key!r}>"


def encrypt(
    key: PublicKey | PrivateKey, values: Any, rng: Rng, *, signed: bool = True, workers: int = 1
) -> Ciphertexts:
    """Encrypt integers of any size, exactly.

    Args:
        key: the private key encrypts several times faster than the public one.
        values: an integer, an array of integers or booleans, or nested lists of integers.
        rng: source of the randomisers.
        signed: the integers have magnitude below n/2; otherwise they are in [0, n).
        workers: processes to use.

    Returns:
        Ciphertexts of the shape of `values`.

    Raises:
        DataError: something that is not an integer; names its place.
        EncodingOverflow: an integer out of range; names its place.
        ParameterError: `key` is not a key.
    """
    public = public_part(key)
    residues = lifted(integers(values), public, signed=signed)
    encrypted = key.encrypt_residues(residues.reshape(-1).tolist(), rng, workers)
    return Ciphertexts(public, object_array(encrypted, residues.shape), fresh=True)


def decrypt(
    key: PrivateKey, ciphertexts: Ciphertexts, *, signed: bool = True, workers: int = 1
) -> NDArray[np.object_]:
    """Decrypt to an array of Python integers.

    Args:
        key: the private key.
        ciphertexts: of this key.
        signed: return the integers of magnitude below n/2; otherwise those in [0, n).
        workers: processes to use.

    Returns:
        Object array of the shape of the ciphertexts.

    Raises:
        ParameterError: the ciphertexts belong to another key, or an argument is something else,
            such as a public key or bytes.
    """
    require("key", key, PrivateKey)
    require("ciphertexts", ciphertexts, Ciphertexts)
    if ciphertexts.key != key.public:
        raise ParameterError("these ciphertexts belong to another key")
    n = key.public.n
    residues = key.decrypt_residues(ciphertexts._values.reshape(-1).tolist(), workers)
    numbers = [int(m - n if signed and 2 * m > n else m) for m in residues]
    return object_array(numbers, ciphertexts.shape)


_powmod = np.frompyfunc(gmpy2.powmod, 3, 1)


class _Term:
    """A ciphertext in NumPy's products, which multiply with integers and add up: which, how often.

    Or a sum of two such terms.
    """

    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __mul__(self, scalar: Mpz | _Term) -> _Term:
        if isinstance(scalar, _Term):
            raise ParameterError("Paillier ciphertexts can be added, not multiplied")
        place, times = self.parts
        return _Term(place, times * scalar)

    __rmul__ = __mul__

    def __add__(self, other: _Term) -> _Term:
        return _Term(self, other)

    def factors(self) -> list[tuple[int, Mpz]]:
        """Return all ciphertexts of this sum, as place and integer."""
        found, left = [], [self]
        while left:
            first, second = left.pop().parts
            if isinstance(first, _Term):
                left += (first, second)
            else:
                found.append((first, second))
        return found


def integers(values: Any) -> NDArray[np.object_]:
    """Return an array of `gmpy2.mpz` with the same integers; no float comes in between.

    Raises:
        DataError: an element is not an integer; names its place.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind not in "biuO":
        raise DataError(f"plaintexts must be integers, got an array of {values.dtype}")
    try:
        array = np.array(values, dtype=object)
    except XclpError:  # what ciphertexts among them say
        raise
    except ValueError:
        raise DataError("plaintexts must form a rectangular array") from None
    result = np.empty(array.size, dtype=object)
    for place, value in enumerate(array.reshape(-1)):
        try:
            result[place] = mpz(index(bool(value) if isinstance(value, np.bool_) else value))
        except TypeError:
            where = tuple(int(i) for i in np.unravel_index(place, array.shape))
            raise DataError(
                f"plaintext {where} must be an integer, got {type(value).__name__}"
            ) from None
    return result.reshape(array.shape)


def _require_range(values: NDArray[np.object_], key: PublicKey, *, signed: bool) -> None:
    low, high = (-(key.n // 2), key.n // 2) if signed else (0, key.n - 1)
    for place, value in enumerate(values.reshape(-1)):
        if not low <= value <= high:
            where = tuple(int(i) for i in np.unravel_index(place, values.shape))
            bound = "magnitude below n/2" if signed else "range 0 to n − 1"
            raise EncodingOverflow(
                f"plaintext {where} has {value.bit_length()} bits and is not in the {bound} of a "
                f"key of {key.parameters.modulus_bits} bits; use a larger key or smaller numbers"
            )


def lifted(values: NDArray[np.object_], key: PublicKey, *, signed: bool) -> Any:
    """Return integers modulo n.

    Raises:
        EncodingOverflow: an integer is out of range.
    """
    _require_range(values, key, signed=signed)
    residues: Mpz = np.asarray(values, dtype=object) % key.n
    return np.asarray(residues, dtype=object)
