"""Fixed-point numbers as residues, so that sums of masked values are exact.

    x ↦ X = round(x·2^f) mod 2^b        ΣX mod 2^b ↦ (ΣX lifted to −2^(b−1) … 2^(b−1)−1) / 2^f

A sum of p values cannot wrap while p·max|x|·2^f < 2^(b−1). The codec refuses a value that breaks
this before anything is sent; decoding needs no number of parties, so it stays right after a drop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError, EncodingOverflow, ParameterError

Ring: TypeAlias = NDArray[np.uint64] | NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The codec between real numbers and Z_{2^b}.

    Rounding is to nearest, ties to even. Let S be the true sum of at most `parties` values. The
    decoded sum differs from S by at most parties·2^-(f+1), the rounding of the inputs, plus
    2^-53·|decoded sum|, the rounding of the result to float64, which is zero while
    |S|·2^f ≤ 2^53. Sums of integers with |S| ≤ 2^53 are exact.

    Attributes:
        fraction_bits: f, 0 … ring_bits − 2.
        parties: p ≥ 1, the most values that will be summed.
        ring_bits: b, 64 or 32.

    Raises:
        ParameterError: a parameter out of range or no integer, or so many parties that only zero
            could be encoded.
    """

    fraction_bits: int = 40
    parties: int = 2
    ring_bits: int = 64

    def __post_init__(self) -> None:
        for name in ("fraction_bits", "parties", "ring_bits"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ParameterError(f"{name} must be an integer, got {value!r}")
        if self.ring_bits not in (32, 64):
            raise ParameterError(f"ring_bits must be 32 or 64, got {self.ring_bits}")
        if not 0 <= self.fraction_bits <= self.ring_bits - 2:
            raise ParameterError(
                f"fraction_bits must be in 0 … {self.ring_bits - 2} for ring_bits = "
                f"{self.ring_bits}, got {self.fraction_bits}"
            )
        if not 1 <= self.parties < 1 << (self.ring_bits - 1):
            raise ParameterError(
                f"parties must be in 1 … 2^{self.ring_bits - 1} − 1, got {self.parties}"
            )

    @property
    def modulus(self) -> int:
        """2^b."""
        return 1 << self.ring_bits

    @property
    def dtype(self) -> np.dtype[np.uint64] | np.dtype[np.uint32]:
        """The dtype of residues: uint64 for b = 64, uint32 for b = 32."""
        return np.dtype(np.uint64) if self.ring_bits == 64 else np.dtype(np.uint32)

    @property
    def max_abs(self) -> float:
        """The largest float64 |x| that `encode` takes: no sum of `parties` such values can wrap."""
        top = float(self._limit)
        if int(top) > self._limit:
            top = math.nextafter(top, 0.0)
        return math.ldexp(top, -self.fraction_bits)

    @property
    def error_bound(self) -> float:
        """The bound p·2^-(f+1) on what rounding the inputs adds to a sum of p values."""
        return math.ldexp(self.parties, -self.fraction_bits - 1)

    @property
    def _limit(self) -> int:
        """The largest |X|: p·|X| ≤ 2^(b−1) − 1, so that −p·|X| does not wrap either."""
        return ((1 << (self.ring_bits - 1)) - 1) // self.parties

    def encode(self, values: ArrayLike, *, client: str | None = None) -> Ring:
        """Encode numbers as residues.

        Integers and bools stay exact. Python lists become arrays as NumPy makes them, so a list
        that mixes integers with floats is one of floats.

        Args:
            values: float16/32/64, any integers, or bools, in any shape, also empty or 0-d.
            client: whose values these are, for the errors.

        Returns:
            uint64 (or uint32 for ring_bits = 32), in the shape of `values`.

        Raises:
            DataError: NaN, infinity or something that is no real number; names client, row, column.
            EncodingOverflow: a value above the limit; names client, row and column, the limit, and
                the number of ring bits that would do. The value itself is not shown.
        """
        try:
            array = np.asarray(values)
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(f"{_who(client)}the values do not form an array: {error}") from None
        match array.dtype.kind:
            case "f" if array.dtype.itemsize <= 8:
                scaled = self._scale_floats(array.astype(np.float64), client)
            case "i" | "u" | "b":
                scaled = self._scale_integers(array, client)
            case kind:
                if kind == "O":
                    self._refuse_huge_integers(array, client)
                raise DataError(
                    f"{_who(client)}cannot encode dtype {array.dtype}; "
                    "use float64, integers or bools"
                )
        return scaled if self.ring_bits == 64 else scaled.astype(np.uint32)

    def decode(self, residues: Ring) -> NDArray[np.float64]:
        """Decode residues, or sums of them mod 2^b, by the centred lift.

        Args:
            residues: uint64 (or uint32 for ring_bits = 32), any shape.

        Returns:
            float64, same shape.

        Raises:
            DataError: another dtype, so that numbers that were never encoded are not decoded.
        """
        array = np.asarray(residues)
        if array.dtype.kind != "u" or array.dtype.itemsize != self.dtype.itemsize:
            raise DataError(
                f"decode takes residues of dtype {self.dtype}, got {array.dtype}: "
                "plain numbers have to go through encode"
            )
        signed = array.astype(self.dtype).view(np.int64 if self.ring_bits == 64 else np.int32)
        return np.asarray(np.ldexp(signed.astype(np.float64), -self.fraction_bits))

    def _scale_floats(self, x: NDArray[np.float64], client: str | None) -> NDArray[np.uint64]:
        finite = np.isfinite(x)
        if not finite.all():
            where = _where(np.argmin(finite), x.shape)
            raise DataError(
                f"{_who(client)}{where}the value is NaN or infinite, which cannot be summed"
            )
        size = np.abs(x)
        if size.max(initial=0.0) > self.max_abs:
            worst = np.argmax(size)
            self._overflow(Fraction(float(size.flat[worst])), worst, x.shape, client)
        # Exact: 2^f only moves the exponent, |x·2^f| < 2^63, and rint returns an integer.
        return np.asarray(np.rint(np.ldexp(x, self.fraction_bits)).astype(np.int64)).view(np.uint64)

    def _scale_integers(self, x: NDArray[Any], client: str | None) -> NDArray[np.uint64]:
        if x.size:
            limit = self._limit >> self.fraction_bits
            low, high = int(x.min()), int(x.max())
            if max(high, -low) > limit:
                worst = np.argmax(x) if high >= -low else np.argmin(x)
                self._overflow(Fraction(max(high, -low)), worst, x.shape, client)
        # Sign-extended to 64 bits and then modulo 2^64, so the shift is exact in the ring.
        wide = x.astype(np.int64).view(np.uint64)
        return np.asarray(np.left_shift(wide, np.uint64(self.fraction_bits)))

    def _refuse_huge_integers(self, x: NDArray[np.object_], client: str | None) -> None:
        """Give integers that no NumPy dtype holds the same error as any other overflow."""
        limit = self._limit >> self.fraction_bits
        for position, value in enumerate(x.flat):
            if isinstance(value, int) and abs(value) > limit:
                self._overflow(Fraction(abs(value)), position, x.shape, client)

    def _overflow(
        self, size: Fraction, position: int | np.intp, shape: tuple[int, ...], client: str | None
    ) -> NoReturn:
        needed = (self.parties * math.ceil(size * 2**self.fraction_bits)).bit_length() + 1
        raise EncodingOverflow(
            f"{_who(client)}{_where(position, shape)}the value is too large: with {self.parties} "
            f"parties, {self.fraction_bits} fraction bits and {self.ring_bits} ring bits, |x| may "
            f"be at most {self.max_abs!r}; this one needs {needed} ring bits. Use fewer fraction "
            "bits, a larger ring, or scale the values down"
        )


def _who(client: str | None) -> str:
    return "" if client is None else f"client {client!r}: "


def _where(position: int | np.intp, shape: tuple[int, ...]) -> str:
    """Name the place of a flat (row-major) position."""
    place = tuple(int(i) for i in np.unravel_index(position, shape))
    match place:
        case ():
            return ""
        case (row,):
            return f"row {row}: "
        case (row, column):
            return f"row {row}, column {column}: "
        case _:
            return f"index {place}: "
