"""Fixed-point numbers as residues, so that sums of masked values are exact.

    x ↦ X = round(x·2^f) mod m      ΣX mod m ↦ (ΣX lifted to −⌊m/2⌋ … ⌊(m−1)/2⌋) / 2^f

A residue r is lifted to r if 2r < m, and to r − m otherwise. Let X_1, …, X_p be the rounded values
and M = ⌊(m−1)/2⌋. If p·|X_i| ≤ M for every i, then |ΣX_i| ≤ M, the lift of ΣX_i mod m is ΣX_i
itself, and so is that of the sum over any part of the p values. An even m has one more value at the
bottom, −m/2, which is not used, so that the bound is the same on both sides. The codec refuses a
value with p·|X| > M before anything is sent; decoding needs no number of parties, so it stays right
after a drop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.algebra.ring import MAX_MODULUS, Residues, residue_dtype
from xclp_crypto.errors import DataError, EncodingOverflow, ParameterError

_WORD = 1 << 64
_PIECE = 1 << 14
"""Numbers that are encoded at a time, so that what is between stays in the caches."""
_FLATTEN = "several arrays x are one vector by np.concatenate([np.ravel(a) for a in "


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The codec between real numbers and Z_m.

    Rounding is to nearest, ties to even. Let S be the true sum of at most `parties` values. The
    decoded sum differs from S by at most parties·2^-(f+1), the rounding of the inputs, plus
    2^-53·|decoded sum|, the rounding of the result to float64, which is zero while
    |S|·2^f ≤ 2^53. Sums of integers with |S| ≤ 2^53 are exact, and with f = 0 and
    `decode_integers` those of all integers that can be encoded. None of this depends on m.

    Attributes:
        fraction_bits: f ≥ 0, with 2^f ≤ ⌊(m−1)/2⌋, so that 1 can be encoded for one party.
        parties: 1 ≤ p ≤ ⌊(m−1)/2⌋, the most values that will be summed.
        modulus: 3 ≤ m ≤ 2^64.

    Raises:
        ParameterError: a parameter is out of range or not an integer, or there are so many parties
            that only zero could be encoded.

    Examples:
        >>> from xclp_crypto.primitives.fixed_point import FixedPoint
        >>> codec = FixedPoint(fraction_bits=8, parties=3, modulus=2**32)
        >>> codec.encode([1.5, -1])
        array([       384, 4294967040], dtype=uint32)
        >>> codec.decode(codec.encode([1.5, -1]) + codec.encode([2, 0.25])).tolist()
        [3.5, -0.75]
    """

    fraction_bits: int = 40
    parties: int = 2
    modulus: int = MAX_MODULUS

    def __post_init__(self) -> None:
        for name in ("fraction_bits", "parties", "modulus"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise ParameterError(f"{name} must be an integer, got {value!r}")
            object.__setattr__(self, name, int(value))
        if not 3 <= self.modulus <= MAX_MODULUS:
            raise ParameterError(f"modulus must be in 3 … 2^64, got {self.modulus}")
        ring = _power(self.modulus)
        if not 0 <= self.fraction_bits < self._top.bit_length():
            raise ParameterError(
                f"fraction_bits must be in 0 … {self._top.bit_length() - 1} for modulus {ring}, "
                f"got {self.fraction_bits}"
            )
        if not 1 <= self.parties <= self._top:
            raise ParameterError(
                f"parties must be in 1 … {self._top} for modulus {ring}, got {self.parties}"
            )

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The dtype of residues, `ring.residue_dtype(modulus)`."""
        return residue_dtype(self.modulus)

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
    def _top(self) -> int:
        """M, the largest number that a residue stands for."""
        return (self.modulus - 1) // 2

    @property
    def _limit(self) -> int:
        """The largest |X|, such that p·|X| ≤ M."""
        return self._top // self.parties

    def encode(self, values: ArrayLike, *, client: str | None = None) -> Residues:
        """Encode numbers as residues.

        Integers and bools stay exact. Python lists become arrays as NumPy makes them, so a list
        that mixes integers with floats is one of floats; integers that no float is are refused.

        Args:
            values: float16/32/64, any integers, or bools, in any shape, also empty or 0-d. A
                masked array must not hide any.
            client: whose values these are, for the errors.

        Returns:
            `residue_dtype(modulus)`, in the shape of `values`.

        Raises:
            DataError: NaN, infinity, a hidden value of a masked array, or something that is no
                real number; names client, row, column.
            EncodingOverflow: a value above the limit; names client, row and column, the limit, and
                the power of two that would do as the modulus. The value itself is not shown.
        """
        array = self._checked(values, client)
        if array.dtype.kind == "f":
            signed = np.empty(array.size, np.int64)
            flat, room = array.reshape(-1), np.empty(min(array.size, _PIECE))
            for start in range(0, array.size, _PIECE):
                # Exact: 2^f only moves the exponent, |x·2^f| < 2^63, and rint returns an integer.
                piece = flat[start : start + _PIECE]
                wide = room[: len(piece)]
                np.multiply(piece, 2.0**self.fraction_bits, out=wide, dtype=np.float64)
                signed[start : start + _PIECE] = np.rint(wide, out=wide)
            scaled = signed.view(np.uint64).reshape(array.shape)
        else:
            # Sign-extended to 64 bits and then modulo 2^64, so the shift is exact.
            scaled = array.astype(np.int64).view(np.uint64)
            np.left_shift(scaled, np.uint64(self.fraction_bits), out=scaled)
        if self.modulus < _WORD:
            # −|X| is 2^64 − |X| here, and adding m to it gives m − |X|.
            scaled += (scaled >> np.uint64(63)) * np.uint64(self.modulus)
        residues: Residues = scaled.astype(self.dtype, copy=False)
        return residues

    def check(self, values: ArrayLike, *, client: str | None = None) -> None:
        """Refuse what `encode` refuses, without encoding it.

        Raises:
            DataError, EncodingOverflow: as from `encode`.
        """
        self._checked(values, client)

    def decode(self, residues: Residues) -> NDArray[np.float64]:
        """Decode residues, or sums of them mod m, by the centred lift.

        Args:
            residues: `residue_dtype(modulus)`, any shape, every value below m.

        Returns:
            float64, same shape.

        Raises:
            DataError: another dtype, so that numbers that were never encoded are not decoded, or a
                value that is not below m.
        """
        return np.asarray(np.ldexp(self._lift(residues).astype(np.float64), -self.fraction_bits))

    def decode_numbers(self, residues: Residues) -> NDArray[np.float64 | np.int64]:
        """Decode residues exactly to int64 where there are no fraction bits, else as `decode`.

        Args:
            residues: as for `decode`.

        Raises:
            DataError: as from `decode`.
        """
        return self.decode(residues) if self.fraction_bits else self.decode_integers(residues)

    def decode_integers(self, residues: Residues) -> NDArray[np.int64]:
        """Decode residues, or sums of them mod m, without going through floats.

        Args:
            residues: as for `decode`.

        Returns:
            int64, same shape.

        Raises:
            ParameterError: the codec has fraction bits.
            DataError: as from `decode`.
        """
        if self.fraction_bits:
            raise ParameterError(
                f"only a codec with fraction_bits = 0 decodes to integers, this one has "
                f"{self.fraction_bits}"
            )
        return self._lift(residues)

    def _lift(self, residues: Residues) -> NDArray[np.int64]:
        array = np.asarray(residues)
        if array.dtype.kind != "u" or array.dtype.itemsize != self.dtype.itemsize:
            raise DataError(
                f"decode takes residues of dtype {self.dtype}, got {array.dtype}: "
                "plain numbers have to go through encode"
            )
        wide = array.astype(np.uint64)
        if self.modulus < _WORD:
            if int(wide.max(initial=0)) >= self.modulus:
                place = _where(np.argmax(wide), wide.shape)
                raise DataError(f"{place}the value is not a residue modulo {_power(self.modulus)}")
            # Modulo 2^64, so that r − m of the upper half becomes a negative int64.
            wide -= (wide > np.uint64(self._top)) * np.uint64(self.modulus)
        return wide.view(np.int64)

    def _checked(self, values: ArrayLike, client: str | None) -> NDArray[Any]:
        """Return the values as an array of floats, integers or bools that can be encoded."""
        array = as_array(values, client)
        match array.dtype.kind:
            case "f" if array.dtype.itemsize <= 8:
                self._check_floats(array, client)
            case "i" | "u" | "b":
                self._check_integers(array, client)
            case kind:
                if kind == "O":
                    self._refuse_huge_integers(array, client)
                advice = "use float64, integers or bools"
                if kind in "fO":
                    advice = "convert the array first, by astype(np.float64) or astype(np.int64)"
                raise DataError(f"{_who(client)}cannot encode dtype {array.dtype}; {advice}")
        return array

    def _check_floats(self, x: NDArray[Any], client: str | None) -> None:
        # Two passes over the values and no array of their size; NaN is the extreme of its array.
        low, high = float(x.min(initial=0.0)), float(x.max(initial=0.0))
        if not (math.isfinite(low) and math.isfinite(high)):
            where = _where(np.argmin(np.isfinite(x)), x.shape)
            raise DataError(
                f"{_who(client)}{where}the value is NaN or infinite, which cannot be summed"
            )
        if max(high, -low) > self.max_abs:
            worst = np.argmax(np.abs(x))
            self._overflow(Fraction(max(high, -low)), worst, x.shape, client)

    def _check_integers(self, x: NDArray[Any], client: str | None) -> None:
        if x.size:
            limit = self._limit >> self.fraction_bits
            low, high = int(x.min()), int(x.max())
            if max(high, -low) > limit:
                worst = np.argmax(x) if high >= -low else np.argmin(x)
                self._overflow(Fraction(max(high, -low)), worst, x.shape, client)

    def _refuse_huge_integers(self, x: NDArray[np.object_], client: str | None) -> None:
        """Give integers that no NumPy dtype holds the same error as any other overflow."""
        limit = self._limit >> self.fraction_bits
        for position, value in enumerate(x.flat):
            if isinstance(value, int) and abs(value) > limit:
                self._overflow(Fraction(abs(value)), position, x.shape, client)

    def _overflow(
        self, size: Fraction, position: int | np.intp, shape: tuple[int, ...], client: str | None
    ) -> NoReturn:
        # p·|X| ≤ 2^(needed−1) − 1.
        needed = (self.parties * math.ceil(size * 2**self.fraction_bits)).bit_length() + 1
        remedies = ["fewer fraction bits"] if self.fraction_bits else []
        if self.modulus < MAX_MODULUS:
            remedies.append("a larger modulus (at most 2^64)")
        advice = "scale the values down"
        if remedies:
            advice = f"use {' or '.join(remedies)}, or {advice}"
        raise EncodingOverflow(
            f"{_who(client)}{_where(position, shape)}the value is too large: with {self.parties} "
            f"parties, {self.fraction_bits} fraction bits and modulus {_power(self.modulus)}, |x| "
            f"may be at most {self.max_abs!r}; this one needs a modulus of "
            f"2^{needed}. {advice[0].upper()}{advice[1:]}"
        )


def as_array(values: ArrayLike, client: str | None = None) -> NDArray[Any]:
    """Return values as an array.

    Args:
        values: whatever NumPy makes an array of.
        client: whose values these are, for the errors.

    Raises:
        DataError: NumPy makes none, values are hidden by a mask, or integers of a list would be
            rounded; names client and place.
    """
    if isinstance(values, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(values)
        if hidden.any():
            place = _where(np.argmax(hidden), hidden.shape)
            raise DataError(
                f"{_who(client)}{place}the value is masked; fill masked values first, for instance "
                "by .filled(0)"
            )
    if isinstance(values, Mapping):
        raise DataError(
            f"{_who(client)}a mapping, such as a state dict, is not an array; {_FLATTEN}"
            "x.values()])"
        )
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        remedy = ""
        if hasattr(values, "detach"):
            remedy = "; of a tensor, pass .detach().float().numpy()"
        elif isinstance(values, list | tuple) and any(hasattr(a, "shape") for a in values):
            remedy = f"; {_FLATTEN}x])"
        raise DataError(
            f"{_who(client)}the values do not form an array ({error}){remedy}"
        ) from None
    mixed = array.dtype == np.float64 and isinstance(values, list | tuple)
    if mixed and not (np.abs(array) < 1 << 53).all():
        exact = np.array(values, dtype=object)
        if all(isinstance(value, int | np.integer) for value in exact.flat):
            return exact  # NumPy makes floats of integers below 0 beside some of 2^63 and more
        for at, value in enumerate(exact.flat):
            if isinstance(value, int | np.integer) and int(value) != float(value):
                raise DataError(
                    f"{_who(client)}{_where(at, array.shape)}the list mixes integers with "
                    "floats, and no float is this integer; use an array of integers"
                )
    return array


def _power(modulus: int) -> str:
    """Write a modulus, a power of two as such."""
    bits = modulus.bit_length() - 1
    return f"2^{bits}" if modulus == 1 << bits else str(modulus)


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
