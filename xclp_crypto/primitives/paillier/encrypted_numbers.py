"""Arrays of encrypted fixed-point numbers, many of them in one ciphertext.

::

    x ↦ X = round(x·2^f), |X| ≤ M        plaintext = Σ_i X_i·2^(w·i)        i = 0 … s−1

*Slots.* A plaintext has s digits of w bits, and a digit is any integer |X| < 2^(w−1). The sum above
is then below (2^(w−1) − 1)·(2^(w·s) − 1)/(2^w − 1) < 2^(w·s−1) in magnitude. With s = ⌊(|n| − 1)/w⌋
that is at most 2^(|n|−2) ≤ n/2, so that it does not wrap modulo n, and its digits are unique: the
lowest one is the plaintext modulo 2^w, lifted to −2^(w−1) … 2^(w−1) − 1, and so on with what is
left. Adding plaintexts adds digits, and multiplying a plaintext with an integer K multiplies all of
its digits with K, as long as none leaves its range.

*No digit leaves its range* because every array knows a bound B ≥ |X| for all its numbers, and an
operation whose result could exceed 2^(w−1) − 1 raises `EncodingOverflow` before anything is
computed. Bounds follow from what is declared and from the scalars, never from encrypted numbers:
fresh numbers have B = M, sums add their bounds, B becomes B·max|K| in products with integers K, and
B·max_i Σ_j|K_ij| in products with a matrix. Numbers with fewer fraction bits are first multiplied
with 2^d, which multiplies their bound as well.

*Errors.* Every array also knows a bound e on how far its numbers are from what the same operations
give with real numbers. For fresh ones it is 2^−(f+1). A float k is rounded to K·2^−g, by at most
δ = 2^−(g+1), or δ = 0 where all floats of the operand are such multiples. With |x| ≤ B·2^−f + e for
the exact x, a product with k is off by |K·2^−g·X·2^−f − k·x| ≤ |K|·2^−g·e + δ·(B·2^−f + e). In sums
these add up. Decrypting rounds once more, to the nearest float64: by 2^−53 of the number at most.

*What others learn.* Bytes show the shape, the slots, how many fraction bits scalars have used, and
whether anything was computed. They do not show the bound, which tells about scalars. Whoever
decrypts sees results exactly, with all their fraction bits: more than their rounded values.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import NoneType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError, DecodeError, EncodingOverflow, ParameterError
from xclp_crypto.primitives.fixed_point import as_array
from xclp_crypto.primitives.paillier.arrays import EncryptedArray, numpy_errors, object_array
from xclp_crypto.primitives.paillier.ciphertexts import Ciphertexts, decrypt, encrypt
from xclp_crypto.primitives.paillier.keys import (
    BYTES,
    PrivateKey,
    PublicKey,
    public_part,
    require,
)
from xclp_crypto.rng import Rng

FORMAT = b"xPN\x01"
MAX_WIDTH = 1000
"""Most bits of a slot, so that every number in it is a float64."""

_HEAD: Final = struct.Struct(">4sBHdHHHI")
_PACKED, _FRESH = 1, 2
_SAME_SCALAR = (
    "numbers that share a ciphertext cannot be multiplied with different scalars or added up among "
    "themselves: put what is added up into the same column of other rows, or encrypt with "
    "Slots(packed=False)"
)
_NUMBER: Final = (int, float, np.integer, np.floating)
Integers = NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Slots:
    """How numbers are rounded, and how much room they have to grow.

    Attributes:
        max_abs: the largest magnitude of a number that is encrypted; public.
        fraction_bits: f, numbers are rounded to multiples of 2^-f.
        scalar_bits: g, floats with which encrypted numbers are multiplied are rounded to multiples
            of 2^-g.
        room_bits: results may be 2^room_bits times as large as fresh numbers, each counted in
            units of its own last fraction bit. A product with floats takes g bits and those of
            their integer part, a sum of t numbers log2(t).
        packed: as many numbers as fit share a ciphertext, along the last axis; otherwise each has
            one for itself.

    Raises:
        ParameterError: a value of the wrong type or out of range, or slots of more than 1000 bits.

    Examples:
        >>> Slots(max_abs=100, fraction_bits=20, room_bits=40).width
        68
    """

    max_abs: float
    fraction_bits: int = 32
    scalar_bits: int = 24
    room_bits: int = 48
    packed: bool = True

    def __post_init__(self) -> None:
        if not (isinstance(self.max_abs, _NUMBER) and 0 < self.max_abs < math.inf):
            raise ParameterError(f"max_abs must be a positive number, got {self.max_abs!r}")
        if not isinstance(self.packed, bool):
            raise ParameterError(f"packed must be True or False, got {self.packed!r}")
        for name in ("fraction_bits", "scalar_bits", "room_bits"):
            bits = getattr(self, name)
            if not isinstance(bits, int | np.integer) or isinstance(bits, bool):
                raise ParameterError(f"{name} must be an integer, got {bits!r}")
            if not 0 <= bits < MAX_WIDTH:
                raise ParameterError(f"{name} must be in 0 … {MAX_WIDTH - 1}, got {bits}")
            object.__setattr__(self, name, int(bits))
        try:
            object.__setattr__(self, "max_abs", float(self.max_abs))
        except OverflowError:  # of an integer
            raise ParameterError(f"max_abs must be a float, got {self.max_abs!r}") from None
        if not (self.limit and self.width <= MAX_WIDTH):
            raise ParameterError(
                f"numbers up to {self.max_abs!r} with {self.fraction_bits} fraction bits and room "
                f"for {self.room_bits} more do not fit into a slot of 1 … {MAX_WIDTH} bits"
            )

    @property
    def limit(self) -> int:
        """M, the largest |X| of fresh numbers."""
        return round(Fraction(self.max_abs) * (1 << self.fraction_bits))

    @property
    def width(self) -> int:
        """w, the bits of a slot: those of M, the room and a sign."""
        return self.limit.bit_length() + self.room_bits + 1

    def in_one(self, key: PublicKey) -> int:
        """Return s, how many numbers share a ciphertext.

        Raises:
            ParameterError: a plaintext of this key has no room for a slot, or it is not a public
                key.
        """
        require("key", key, PublicKey)
        fitting = (key.parameters.modulus_bits - 1) // self.width
        if not fitting:
            raise ParameterError(
                f"slots of {self.width} bits do not fit into plaintexts of "
                f"{key.parameters.modulus_bits - 1} bits; use a larger key or less room_bits"
            )
        return fitting if self.packed else 1


class EncryptedNumbers(EncryptedArray):
    """An array of encrypted fixed-point numbers; see the module for bounds and errors.

    ``+`` and ``-`` take other arrays with the same key and slots, or numbers of anybody who
    computes. ``*`` takes scalars, and ``@``, `np.dot` and `sum` are those of NumPy. They broadcast,
    except that numbers in one ciphertext stay together: along the last axis all are multiplied with
    the same scalar, and nothing is added up. So ``weights @ numbers`` works and ``numbers @
    weights`` does not, unless each number has its own ciphertext (``Slots(packed=False)``).

    Integers are exact and take no fraction bits; floats do, see `Slots`.

    Attributes:
        slots: as at encryption.
        fraction_bits: of these numbers.
        bound: B, in units of 2^-fraction_bits.

    Examples:
        >>> from xclp_crypto.params import INSECURE_TEST_512
        >>> from xclp_crypto.primitives.paillier import generate
        >>> from xclp_crypto.rng import SystemRng
        >>> rng = SystemRng()
        >>> key = generate(rng, INSECURE_TEST_512)
        >>> sent = encrypt_numbers(key, [[0.5, 1.5], [2, -3]], Slots(max_abs=10), rng).encode(rng)
        >>> numbers = EncryptedNumbers.decode(sent, key.public)
        >>> total = 0.25 * numbers[0] + numbers[1]
        >>> decrypt_numbers(key, total).tolist()
        [2.125, -2.625]
        >>> total.error_bound == (1 + 0.25) * 2**-33
        True
    """

    __slots__ = ("_ciphertexts", "_error", "_length", "bound", "fraction_bits", "slots")

    def __init__(
        self,
        ciphertexts: Ciphertexts,
        slots: Slots,
        length: int,
        fraction_bits: int,
        bound: int,
        error: Fraction | None,
    ) -> None:
        self._ciphertexts, self.slots, self._length = ciphertexts, slots, length
        self.fraction_bits, self.bound, self._error = fraction_bits, bound, error

    @property
    def key(self) -> PublicKey:
        """Return the key."""
        return self._ciphertexts.key

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape, as that of numbers."""
        shape = self._ciphertexts.shape
        return (*shape[:-1], self._length) if self.slots.packed else shape

    @property
    def error_bound(self) -> float | None:
        """Return e, rounded up; None for results of others, who alone know it."""
        if self._error is None:
            return None
        rounded = float(self._error)
        return math.nextafter(rounded, math.inf) if rounded < self._error else rounded

    def __getitem__(self, where: Any) -> EncryptedNumbers:
        places = where if isinstance(where, tuple) else (where,)
        if self.slots.packed and (
            len(places) >= self.ndim
            or not all(isinstance(p, int | np.integer | slice) for p in places)
            or any(isinstance(p, bool) for p in places)
        ):
            raise ParameterError(
                "numbers that share a ciphertext stay together: index packed numbers by integers "
                "and slices, and not along the last axis"
            )
        return self._with(self._ciphertexts[where])

    def __add__(self, other: Any) -> EncryptedNumbers:
        """Add encrypted numbers, or numbers."""
        if not isinstance(other, EncryptedNumbers):
            return self._add_plain(other)
        if self.slots != other.slots:
            raise ParameterError(f"these numbers have different slots: {self.slots}, {other.slots}")
        if self.slots.packed and self._length != other._length:
            raise ParameterError(f"+ of ciphertexts: shapes {self.shape} and {other.shape}")
        fraction_bits = max(self.fraction_bits, other.fraction_bits)
        left, right = (a._with_fraction_bits(fraction_bits) for a in (self, other))
        bound = self._fitting(left.bound + right.bound)
        error = left._error
        if error is not None:
            error = None if right._error is None else error + right._error
        return left._with(left._ciphertexts + right._ciphertexts, bound, error)

    def _add_plain(self, values: Any, sign: int = 1) -> EncryptedNumbers:
        scaled, exact = _scaled(values, self.fraction_bits)
        scaled = np.asarray(sign * scaled, dtype=object)
        with numpy_errors("+"):
            shape = np.broadcast_shapes(self.shape, scaled.shape)
            if self.slots.packed:
                if shape[-1] != self._length:
                    raise ParameterError(f"+ of ciphertexts: shapes {self.shape}, {scaled.shape}")
                along = np.broadcast_shapes(scaled.shape, (self._length,))
                scaled = np.broadcast_to(scaled, along)
        bound = self._fitting(self.bound + _largest(scaled))
        error = self._error
        if error is not None and not exact:
            error += Fraction(1, 2 << self.fraction_bits)
        return self._with(self._ciphertexts + _pack(scaled, self.slots, self.key), bound, error)

    def __sub__(self, other: Any) -> EncryptedNumbers:
        """Subtract encrypted numbers, or numbers."""
        if isinstance(other, EncryptedNumbers):
            return self + -other
        return self._add_plain(other, -1)

    def __mul__(self, other: Any) -> EncryptedNumbers:
        """Multiply with numbers."""
        scalars, bits, exact = self._scalars(other)
        if self.slots.packed and scalars.ndim and scalars.shape[-1] != 1:
            raise ParameterError(_SAME_SCALAR)
        grown = self._grown(_largest(scalars), 1, bits, exact)
        return grown._with(self._ciphertexts * scalars)

    def __matmul__(self, other: Any) -> EncryptedNumbers:
        scalars, bits, exact = self._factors(other, left=False)
        if self.slots.packed:
            raise ParameterError(_SAME_SCALAR)
        sizes = abs(scalars).sum(axis=-min(scalars.ndim, 2))
        grown = self._grown(_largest(sizes), self.shape[-1], bits, exact)
        return grown._with(self._ciphertexts @ scalars)

    def __rmatmul__(self, other: Any) -> EncryptedNumbers:
        scalars, bits, exact = self._factors(other, left=True)
        if self.slots.packed and self.ndim < 2:
            raise ParameterError(_SAME_SCALAR)
        sizes = abs(scalars).sum(axis=-1)
        grown = self._grown(_largest(sizes), scalars.shape[-1], bits, exact)
        return grown._with(scalars @ self._ciphertexts)

    def sum(self, axis: int | None = None) -> EncryptedNumbers:
        """Add up numbers.

        Args:
            axis: along which; None for all, if each number has its own ciphertext.

        Returns:
            The sums, without this axis.

        Raises:
            ParameterError: there is no such axis, or its numbers share ciphertexts.
            EncodingOverflow: the sums could be too large for their slots.
        """
        require("axis", axis, int, np.integer, NoneType)
        if axis is not None and not -self.ndim <= axis < self.ndim:
            raise ParameterError(f"sum of ciphertexts: no axis {axis} in shape {self.shape}")
        if self.slots.packed and (axis is None or axis % self.ndim == self.ndim - 1):
            raise ParameterError(_SAME_SCALAR)
        terms = self.size if axis is None else self.shape[axis]
        grown = self._grown(terms, terms, 0, exact=True)
        return grown._with(self._ciphertexts.sum(axis))

    def __array_function__(
        self, function: Any, types: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        sizes = {np.shape: self.shape, np.ndim: self.ndim, np.size: self.size}
        if function in sizes and len(args) == 1 and not kwargs:
            return sizes[function]
        if function is np.sum and len(args) == 1 and kwargs.keys() <= {"axis"}:
            return self.sum(**kwargs)
        vectors_or_matrices = all(1 <= np.ndim(a) <= 2 for a in args)
        if function is np.dot and len(args) == 2 and not kwargs and vectors_or_matrices:
            return np.matmul(*args)
        return self._refuse()

    def encode(self, rng: Rng, workers: int = 1) -> bytes:
        """Encode for somebody else, re-randomised as `Ciphertexts.encode` does.

        The bytes are format and version (4), whether numbers are packed (1) and fresh (2) (1),
        their fraction bits (2), the slots: max_abs as float64 (8), fraction, scalar and room bits
        (2 each), then the length of the packed axis (4), big-endian, and the ciphertexts.

        Args:
            rng: source of the randomisers.
            workers: processes to use.

        Raises:
            ParameterError: a shape that cannot be encoded, or more than 65535 fraction bits.
        """
        slots, rounding = self.slots, Fraction(1, 2 << self.slots.fraction_bits)
        fresh = (
            self.fraction_bits == slots.fraction_bits
            and self.bound <= slots.limit
            and self._error is not None
            and self._error <= rounding
        )
        flags = _PACKED * slots.packed + _FRESH * fresh
        length = self._length if slots.packed else 0
        layout = (slots.max_abs, slots.fraction_bits, slots.scalar_bits, slots.room_bits)
        try:
            head = _HEAD.pack(FORMAT, flags, self.fraction_bits, *layout, length)
        except struct.error:
            raise ParameterError(
                f"numbers of {self.fraction_bits} fraction bits, {length} in a row, have no bytes"
            ) from None
        return head + self._ciphertexts.encode(rng, workers)

    @classmethod
    def decode(cls, data: bytes, key: PublicKey, max_abs: float | None = None) -> Self:
        """Decode numbers under this key.

        Args:
            data: what `encode` returned.
            key: the public key.
            max_abs: the largest magnitude of these numbers, where they are not fresh but results,
                and more is to be computed with them. Without it there is room for nothing more.

        Raises:
            DecodeError: other bytes, numbers of another key, or numbers that are no ciphertexts.
            EncodingOverflow: numbers up to max_abs do not fit into the slots.
            ParameterError: max_abs is negative, infinite or not a number, `data` is not bytes, or
                `key` is not a public key.
        """
        require("data", data, *BYTES)
        require("key", key, PublicKey)
        if data[: len(FORMAT)] != FORMAT or len(data) < _HEAD.size:
            raise DecodeError(f"these bytes are no encrypted numbers of version {FORMAT[-1]}")
        _, flags, fraction_bits, largest, *bits, length = _HEAD.unpack_from(data)
        if flags > _PACKED | _FRESH:
            raise DecodeError(f"unknown flags {flags}")
        packed, fresh = bool(flags & _PACKED), bool(flags & _FRESH)
        try:
            slots = Slots(largest, bits[0], bits[1], bits[2], packed)
            in_one = slots.in_one(key)
        except ParameterError as refused:
            raise DecodeError(str(refused)) from None
        if fraction_bits < slots.fraction_bits or (fresh and fraction_bits > slots.fraction_bits):
            raise DecodeError(f"{fraction_bits} fraction bits in slots of {slots.fraction_bits}")
        ciphertexts = Ciphertexts.decode(data[_HEAD.size :], key)
        groups = ciphertexts.shape[-1] if ciphertexts.ndim and packed else 0
        if -(-length // in_one) != groups or (packed and not ciphertexts.ndim):
            raise DecodeError(f"{length} numbers in {groups} ciphertexts of {in_one}")
        error = Fraction(1, 2 << fraction_bits) if fresh else None
        found = cls(ciphertexts, slots, length, fraction_bits, slots.limit, error)
        if not fresh:
            found.bound = (1 << (slots.width - 1)) - 1
            if max_abs is not None:
                require("max_abs", max_abs, *_NUMBER)
                if not 0 <= max_abs < math.inf:
                    raise ParameterError(f"max_abs must be a number, got {max_abs!r}")
                found.bound = found._fitting(math.ceil(Fraction(max_abs) * (1 << fraction_bits)))
        return found

    def _with(
        self, ciphertexts: Ciphertexts, bound: int | None = None, error: Fraction | None = None
    ) -> EncryptedNumbers:
        """Return these ciphertexts, with the same bound and error where none is given."""
        known = (self.bound, self._error) if bound is None else (bound, error)
        return EncryptedNumbers(ciphertexts, self.slots, self._length, self.fraction_bits, *known)

    def _with_fraction_bits(self, fraction_bits: int) -> EncryptedNumbers:
        shift = fraction_bits - self.fraction_bits
        if not shift:
            return self
        bound = self._fitting(self.bound << shift)
        shifted = self._with(self._ciphertexts * (1 << shift), bound, self._error)
        shifted.fraction_bits = fraction_bits
        return shifted

    def _grown(self, factor: int, terms: int, bits: int, exact: bool) -> EncryptedNumbers:
        """Return bound, fraction bits and error of sums of so many products, without their values.

        Args:
            factor: the largest sum of |K| of a result.
            terms: most products that are added up.
            bits: fraction bits of the scalars.
            exact: no scalar was rounded.
        """
        bound, error = self._fitting(self.bound * factor), self._error
        if error is not None:
            rounding = Fraction(0 if exact else terms, 2 << bits)
            largest = Fraction(self.bound, 1 << self.fraction_bits) + error
            error = Fraction(factor, 1 << bits) * error + rounding * largest
        grown = self._with(self._ciphertexts, bound, error)
        grown.fraction_bits += bits
        return grown

    def _fitting(self, bound: int) -> int:
        """Return a bound that fits into the slots."""
        missing = bound.bit_length() + 1 - self.slots.width
        if missing > 0:
            raise EncodingOverflow(
                f"numbers could need slots of {bound.bit_length() + 1} bits and have "
                f"{self.slots.width}; take Slots(room_bits={self.slots.room_bits + missing}) or "
                "more, or for products smaller scalars or fewer scalar_bits"
            )
        return bound

    def _scalars(self, values: Any) -> tuple[Integers, int, bool]:
        """Return integers K, their fraction bits, and whether they are exact."""
        if isinstance(values, EncryptedArray):
            raise ParameterError("Paillier ciphertexts can be added, not multiplied")
        array = as_array(values)
        bits = self.slots.scalar_bits if array.dtype.kind == "f" else 0
        scaled, exact = _scaled(array, bits)
        return scaled, bits, exact

    def _factors(self, values: Any, *, left: bool) -> tuple[Integers, int, bool]:
        """Return `_scalars` for @, on the left of these numbers or on the right."""
        found = self._scalars(values)
        first, second = (found[0].shape, self.shape)[:: 1 if left else -1]
        if not (first and second):
            raise ParameterError("@ of ciphertexts: a single number has no axis; multiply by *")
        if first[-1] != second[-min(len(second), 2)]:
            raise ParameterError(f"@ of ciphertexts: shapes {first} and {second} do not fit")
        return found

    def __repr__(self) -> str:
        return f"<EncryptedNumbers of shape {self.shape} in {self.slots} under {self.key!r}>"


def encrypt_numbers(
    key: PublicKey | PrivateKey, values: ArrayLike, slots: Slots, rng: Rng, workers: int = 1
) -> EncryptedNumbers:
    """Encrypt numbers, rounded to multiples of 2^-fraction_bits.

    Args:
        key: the private key encrypts faster than the public one.
        values: floats, integers or booleans, an array or nested lists. Packed numbers need at
            least one axis; as many as fit along the last one share a ciphertext.
        slots: rounding and room.
        rng: source of the randomisers.
        workers: processes to use.

    Raises:
        DataError: something that is not a finite number; names its place.
        EncodingOverflow: a number above `max_abs`; names its place.
        ParameterError: a single number that is to be packed, slots that do not fit the key, or
            something else instead of key or slots.

    Examples:
        >>> from xclp_crypto.params import INSECURE_TEST_512
        >>> from xclp_crypto.primitives.paillier import generate
        >>> from xclp_crypto.rng import SystemRng
        >>> key = generate(SystemRng(), INSECURE_TEST_512)
        >>> rows = [[1.5, -2.0, 0.25], [4.0, 1.0, -1.0]]
        >>> numbers = encrypt_numbers(key.public, rows, Slots(max_abs=10), SystemRng())
        >>> decrypt_numbers(key, [[0.5, 0.25], [1, -1]] @ numbers + 0.125).tolist()
        [[1.875, -0.625, 0.0], [-2.375, -2.875, 1.375]]
    """
    public = public_part(key)
    require("slots", slots, Slots)
    scaled, _ = _scaled(values, slots.fraction_bits)
    if slots.packed and not scaled.ndim:
        raise ParameterError(
            "a single number is not packed: put it into a list, or take Slots(packed=False)"
        )
    sizes = abs(scaled)
    if _largest(sizes) > slots.limit:
        place = tuple(int(i) for i in np.argwhere(sizes > slots.limit)[0])
        raise EncodingOverflow(f"number {place} is above max_abs={slots.max_abs!r}")
    ciphertexts = encrypt(key, _pack(scaled, slots, public), rng, workers=workers)
    length = scaled.shape[-1] if slots.packed else 0
    error = Fraction(1, 2 << slots.fraction_bits)
    return EncryptedNumbers(ciphertexts, slots, length, slots.fraction_bits, slots.limit, error)


def decrypt_numbers(
    key: PrivateKey, numbers: EncryptedNumbers, workers: int = 1
) -> NDArray[np.float64]:
    """Decrypt to float64, each the nearest to the encrypted number.

    So they are within `error_bound` and 2^-53 of their magnitude of what the same operations give
    with exact numbers.

    Args:
        key: the private key.
        numbers: of this key.
        workers: processes to use.

    Raises:
        ParameterError: the numbers belong to another key, or an argument is something else, such as
            a public key or bytes.
        DataError: a plaintext is not made of slots, because whoever encrypted or computed did not
            follow these rules.
    """
    require("numbers", numbers, EncryptedNumbers)
    plain = decrypt(key, numbers._ciphertexts, workers=workers)
    scaled = _unpack(plain, numbers.slots, numbers.key, numbers.shape)
    one = 1 << numbers.fraction_bits
    floats = [x / one for x in scaled.reshape(-1)]  # of two integers: the nearest float
    return np.array(floats, dtype=np.float64).reshape(numbers.shape)


def _scaled(values: Any, bits: int) -> tuple[Integers, bool]:
    """Return round(x·2^bits), and whether nothing was rounded.

    Raises:
        DataError: something that is not a finite number; names its place.
    """
    array = as_array(values)
    kind = array.dtype.kind
    if kind not in "fiubO" or (kind == "f" and array.dtype.itemsize > 8):
        raise DataError(f"cannot encode dtype {array.dtype}; use float64, integers or bools")
    numbers = [x.item() if isinstance(x, np.generic) else x for x in array.reshape(-1).tolist()]
    allowed = int if kind == "O" else int | float
    for i, x in enumerate(numbers):
        if not isinstance(x, allowed) or not math.isfinite(x):
            place = tuple(int(j) for j in np.unravel_index(i, array.shape))
            raise DataError(f"number {place} is not a finite number of dtype {array.dtype}")
    exact = [Fraction(x) * (1 << bits) for x in numbers]
    scaled = [round(x) for x in exact]
    return object_array(scaled, array.shape), exact == scaled


def _largest(values: Integers) -> int:
    return max((abs(x) for x in np.asarray(values, dtype=object).reshape(-1)), default=0)


def _pack(scaled: Integers, slots: Slots, key: PublicKey) -> Integers:
    """Return plaintexts of numbers along the last axis."""
    count = slots.in_one(key)
    if count == 1:
        return scaled
    *others, length = scaled.shape
    padded = np.zeros((*others, -(-length // count) * count), dtype=object)
    padded[..., :length] = scaled
    weights = object_array([1 << (slots.width * i) for i in range(count)], (count,))
    packed: Integers = padded.reshape(*others, -(-length // count), count) @ weights
    return packed


def _unpack(plain: Integers, slots: Slots, key: PublicKey, shape: tuple[int, ...]) -> Integers:
    """Invert `_pack`."""
    count, one, half = slots.in_one(key), 1 << slots.width, 1 << (slots.width - 1)
    digits = []
    for value in plain.reshape(-1):
        left = value
        for _ in range(count):
            digit = (left + half) % one - half
            digits.append(digit)
            left = (left - digit) >> slots.width
        if left:
            raise DataError("a plaintext has more than its slots: it was not made by these rules")
    if not slots.packed:
        return object_array(digits, shape)
    along = (*shape[:-1], plain.shape[-1] * count)
    return object_array(digits, along)[..., : shape[-1]]
