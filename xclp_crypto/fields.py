"""How one field of a message travels: packing, integers, floats, and what is refused.

A kind says it once for both directions: how many bytes a value takes, which follows from public
sizes, how they are written and how they are read. The writer is refused what the reader could not
receive, by a `ParameterError`; the reader refuses by a `DecodeError` what no writer sends. Values
may be secret, so no message shows any.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from inspect import signature
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.ring import wire_bytes
from xclp_crypto.errors import DecodeError, ParameterError

MAX_PACKED_WIDTH = 16
_PACK_GROUPS = 1 << 12  # groups of eight residues packed at once: what the caches hold
_LOW_BYTES = {3: 2, 5: 4}

T = TypeVar("T")
Buffer: TypeAlias = bytes | memoryview
Dims: TypeAlias = Mapping[str, int]
"""Public sizes by name."""
Length: TypeAlias = int | str | Callable[..., int]
"""A number, the name of a public size, or a function of the public sizes its parameters name."""


@cache
def _parameters(function: Callable[..., int]) -> tuple[str, ...]:
    return tuple(signature(function).parameters)


def length_of(length: Length, dims: Dims) -> int:
    """Return a length; raises `KeyError` for a public size that is not there."""
    if isinstance(length, int):
        return length
    if isinstance(length, str):
        return dims[length]
    return length(*[dims[name] for name in _parameters(length)])


def packed_size(count: int, width: int) -> int:
    """Return the bytes that `count` residues of `width` bits take: ⌈count·width/8⌉."""
    return (count * width + 7) // 8


def _lane_shifts(width: int) -> NDArray[np.uint64]:
    return np.arange(4, dtype=np.uint64) * np.uint64(width)


def pack(values: NDArray[Any], width: int) -> bytes:
    """Pack residues of `width` ≤ 16 bits densely, little-endian, the last byte zero-padded.

    Eight residues fill `width` bytes exactly, so they are combined as two 64-bit lanes of four.

    Raises:
        ParameterError: another width, or a value is not a residue.
    """
    if not 1 <= width <= MAX_PACKED_WIDTH:
        raise ParameterError(f"residues of {width} bits; 1 to {MAX_PACKED_WIDTH} are packed")
    _require_below(values, 1 << width)
    flat = np.ascontiguousarray(values).reshape(-1)
    if width == 8:
        return flat.astype(np.uint8).tobytes()
    if width == 16:
        return flat.astype("<u2").tobytes()
    if width == 1:
        return np.packbits(flat.astype(np.uint8), bitorder="little").tobytes()
    out = np.empty(((flat.size + 7) // 8, width), dtype=np.uint8)
    bits = np.uint64(4 * width)
    for start in range(0, len(out), _PACK_GROUPS):
        groups = out[start : start + _PACK_GROUPS]
        part = flat[8 * start : 8 * (start + len(groups))]
        lanes = np.zeros((len(groups), 2, 4), dtype=np.uint64)
        lanes.reshape(-1)[: part.size] = part
        lanes <<= _lane_shifts(width)
        joined = lanes[..., 0] | lanes[..., 1] | lanes[..., 2] | lanes[..., 3]
        low, high = joined[:, 0], joined[:, 1]
        words = np.empty((len(groups), 2), dtype="<u8")
        words[:, 0] = low | high << bits
        words[:, 1] = high >> (np.uint64(64) - bits)
        groups[:] = words.view(np.uint8).reshape(-1, 16)[:, :width]
    return out.reshape(-1)[: packed_size(flat.size, width)].tobytes()


def unpack(data: bytes | memoryview, count: int, width: int) -> NDArray[np.uint16]:
    """Invert `pack`; raises `DecodeError` when the padding bits are not zero."""
    raw = np.frombuffer(data, dtype=np.uint8)
    if raw.size != packed_size(count, width):
        raise DecodeError(f"{raw.size} bytes where {packed_size(count, width)} are expected")
    spare = 8 * raw.size - count * width
    if spare and raw[-1] >> (8 - spare):
        raise DecodeError("padding bits are not zero")
    if width == 8:
        return raw.astype(np.uint16)
    if width == 16:
        return raw.view("<u2").astype(np.uint16)
    if width == 1:
        return np.unpackbits(raw, count=count, bitorder="little").astype(np.uint16)
    bits, mask = np.uint64(4 * width), np.uint64((1 << width) - 1)
    lanes = np.empty(((count + 7) // 8, 2, 4), dtype=np.uint16)
    for start in range(0, len(lanes), _PACK_GROUPS):
        groups = lanes[start : start + _PACK_GROUPS]
        part = raw[width * start : width * (start + len(groups))]
        padded = np.zeros((len(groups), 16), dtype=np.uint8)
        full = part.size // width
        padded[:full, :width] = part[: full * width].reshape(full, width)
        if full < len(groups):
            padded[full, : part.size - full * width] = part[full * width :]
        words = padded.view("<u8").astype(np.uint64, copy=False)
        high = words[:, 0] >> bits | words[:, 1] << (np.uint64(64) - bits)
        groups[:, 0] = words[:, :1] >> _lane_shifts(width) & mask
        groups[:, 1] = high[:, None] >> _lane_shifts(width) & mask
    return lanes.reshape(-1)[:count]


def _require_below(values: NDArray[Any], bound: int) -> None:
    """Refuse numbers that are not integers in 0 … bound − 1."""
    kind = values.dtype.kind
    if kind not in "bui":
        raise ParameterError(f"has dtype {values.dtype}, which is not of integers")
    limit = 2 if kind == "b" else 1 << 8 * values.dtype.itemsize - (kind == "i")
    if values.size and (
        (kind == "i" and values.min() < 0) or (bound < limit and values.max() >= bound)
    ):
        raise ParameterError(f"has a value that is not in 0 … {bound - 1}")


def _memory(values: NDArray[Any], dtype: str) -> memoryview:
    """Return the bytes of an array, without a copy if they are in memory as they travel."""
    return np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8).data


class Kind(ABC, Generic[T]):
    """How a field travels; its size, writing and reading follow from what a message declares.

    Args:
        lengths: how many of what it consists of, for each of its dimensions.

    Attributes:
        named: whether a length is a public size.
    """

    def __init__(self, *lengths: Length) -> None:
        self.lengths = lengths
        self.named = any(isinstance(length, str) for length in lengths)

    def measure(self, value: T) -> tuple[int, ...]:
        """Return the lengths of a value; raises `ParameterError` if it is not of this kind."""
        return ()

    @abstractmethod
    def size(self, dims: Dims) -> int:
        """Return the bytes that it takes, which may follow from public sizes only."""

    @abstractmethod
    def write(self, value: T, dims: Dims) -> list[Buffer]:
        """Encode a value of the right lengths.

        Raises:
            ParameterError: `read` would not return this value.
        """

    @abstractmethod
    def read(self, data: memoryview, dims: Dims) -> T:
        """Decode `size` bytes; raises `DecodeError`."""

    def bind(self, value: T, dims: dict[str, int]) -> None:
        """Add to `dims` the public sizes that are lengths of this value."""
        for length, found in zip(self.lengths, self._measured(value), strict=True):
            if isinstance(length, str):
                dims.setdefault(length, found)

    def encode(self, value: T, dims: Dims) -> list[Buffer]:
        """Check the lengths that `dims` tell, and encode.

        Raises:
            ParameterError: `read` would not return this value.
        """
        found = self._measured(value)
        if found != self.lengths:  # unless all of them are numbers, and right
            expected = tuple(
                _expected(*pair, dims) for pair in zip(self.lengths, found, strict=True)
            )
            if found != expected:
                raise ParameterError(f"has shape {found}, not {expected}")
        return self.write(value, dims)

    def _measured(self, value: T) -> tuple[int, ...]:
        found = self.measure(value)
        if len(found) != len(self.lengths):
            raise ParameterError(f"has {len(found)} dimensions, not {len(self.lengths)}")
        return found


def _expected(length: Length, found: int, dims: Dims) -> int:
    """Return what a length must be, or `found` where `dims` do not tell."""
    try:
        return length_of(length, dims)
    except KeyError:  # it follows from sizes that only the reader needs
        return found


class Raw(Kind[bytes]):
    """Opaque bytes."""

    def measure(self, value: bytes) -> tuple[int, ...]:
        """See `Kind.measure`."""
        if not isinstance(value, bytes):
            raise ParameterError(f"is {type(value).__name__}, not bytes")
        return (len(value),)

    def size(self, dims: Dims) -> int:
        """See `Kind.size`."""
        return length_of(self.lengths[0], dims)

    def write(self, value: bytes, dims: Dims) -> list[Buffer]:
        """See `Kind.write`."""
        return [value]

    def read(self, data: memoryview, dims: Dims) -> bytes:
        """See `Kind.read`."""
        return bytes(data)


class Encoded(Kind[T]):
    """A value that encodes itself.

    Args:
        kind: its type.
        n_bytes: what its `encode` gives.
        decode: takes these bytes and the public sizes, and returns the value.
    """

    def __init__(self, kind: type[T], n_bytes: Length, decode: Callable[[bytes, Dims], T]) -> None:
        super().__init__()
        self.kind, self.n_bytes, self.decode = kind, n_bytes, decode

    def measure(self, value: T) -> tuple[int, ...]:
        """See `Kind.measure`."""
        if not isinstance(value, self.kind):
            raise ParameterError(f"is {type(value).__name__}, not {self.kind.__name__}")
        return ()

    def size(self, dims: Dims) -> int:
        """See `Kind.size`."""
        return length_of(self.n_bytes, dims)

    def write(self, value: Any, dims: Dims) -> list[Buffer]:
        """See `Kind.write`."""
        return [value.encode()]

    def read(self, data: memoryview, dims: Dims) -> T:
        """See `Kind.read`."""
        return self.decode(bytes(data), dims)


class _Array(Kind[NDArray[Any]]):
    """An array, one number after the other in the order of memory (row-major)."""

    def measure(self, value: NDArray[Any]) -> tuple[int, ...]:
        if not isinstance(value, np.ndarray):
            raise ParameterError(f"is {type(value).__name__}, not an array")
        return value.shape

    def shape(self, dims: Dims) -> tuple[int, ...]:
        """Return the shape of the array."""
        return tuple(length_of(length, dims) for length in self.lengths)


class Packed(_Array):
    """Residues modulo 2^width, 1 ≤ width ≤ 16, densely packed together: see `pack`."""

    def __init__(self, *lengths: Length, width: Length, dtype: Any = np.uint16) -> None:
        super().__init__(*lengths)
        self.width, self.dtype = width, dtype

    def size(self, dims: Dims) -> int:
        """See `Kind.size`."""
        return packed_size(math.prod(self.shape(dims)), length_of(self.width, dims))

    def write(self, value: NDArray[Any], dims: Dims) -> list[Buffer]:
        """See `Kind.write`."""
        return [pack(value, length_of(self.width, dims))]

    def read(self, data: memoryview, dims: Dims) -> NDArray[Any]:
        """See `Kind.read`."""
        shape = self.shape(dims)
        values = unpack(data, math.prod(shape), length_of(self.width, dims))
        return values.astype(self.dtype, copy=False).reshape(shape)


class Bits(Packed):
    """Booleans, eight to a byte."""

    def __init__(self, length: Length) -> None:
        super().__init__(length, width=1, dtype=np.bool_)


class Uints(_Array):
    """Unsigned little-endian integers of 1, 2, 3, 4, 5 or 8 bytes.

    Of 3 and 5 bytes, first the low 2 or 4 bytes of all values, then the high byte of all.

    Args:
        lengths: the shape.
        n_bytes: bytes of each integer.
        dtype: of what is read; by default the smallest unsigned type.
    """

    def __init__(self, *lengths: Length, n_bytes: Length, dtype: Any = None) -> None:
        super().__init__(*lengths)
        self.n_bytes, self.dtype = n_bytes, dtype

    def size(self, dims: Dims) -> int:
        """See `Kind.size`."""
        return math.prod(self.shape(dims)) * length_of(self.n_bytes, dims)

    def bound(self, dims: Dims) -> int:
        """Return what every number is below."""
        return 1 << 8 * length_of(self.n_bytes, dims)

    def write(self, value: NDArray[Any], dims: Dims) -> list[Buffer]:
        """See `Kind.write`."""
        n_bytes = length_of(self.n_bytes, dims)
        _require_below(value, self.bound(dims))
        low = _LOW_BYTES.get(n_bytes, n_bytes)
        parts: list[Buffer] = [_memory(value, f"<u{low}")]  # the low bytes of each
        return parts if low == n_bytes else [*parts, _memory(value >> 8 * low, "u1")]

    def read(self, data: memoryview, dims: Dims) -> NDArray[Any]:
        """See `Kind.read`."""
        shape, n_bytes = self.shape(dims), length_of(self.n_bytes, dims)
        low, count = _LOW_BYTES.get(n_bytes, n_bytes), math.prod(shape)
        dtype = np.dtype(self.dtype or f"u{low if low == n_bytes else 2 * low}")
        values = np.frombuffer(data[: low * count], f"<u{low}").astype(dtype)
        if low < n_bytes:
            high = np.frombuffer(data[low * count :], np.uint8).astype(dtype)
            high <<= dtype.type(8 * low)
            values |= high
        return values.reshape(shape)


class Modular(Uints):
    """Residues modulo the public size ``modulus``, 1 ≤ m ≤ 2^64, of `wire_bytes(m)` bytes each."""

    def __init__(self, *lengths: Length) -> None:
        super().__init__(*lengths, n_bytes=wire_bytes)

    def bound(self, dims: Dims) -> int:
        """See `Uints.bound`: at most what `wire_bytes` have room for."""
        return dims["modulus"]

    def read(self, data: memoryview, dims: Dims) -> NDArray[Any]:
        """See `Kind.read`."""
        values, modulus = super().read(data, dims), dims["modulus"]
        if modulus < 1 << 8 * values.dtype.itemsize and (values >= modulus).any():
            raise DecodeError(f"a value is not a residue modulo {modulus}")
        return values


class Floats(_Array):
    """Finite little-endian floats of 4 or 8 bytes."""

    def __init__(self, *lengths: Length, n_bytes: int = 8) -> None:
        super().__init__(*lengths)
        self.dtype = np.dtype(f"f{n_bytes}")

    def size(self, dims: Dims) -> int:
        """See `Kind.size`."""
        return math.prod(self.shape(dims)) * self.dtype.itemsize

    def write(self, value: NDArray[Any], dims: Dims) -> list[Buffer]:
        """See `Kind.write`."""
        if value.dtype != self.dtype:
            raise ParameterError(f"has dtype {value.dtype}, not {self.dtype}")
        if not np.isfinite(value).all():
            raise ParameterError("contains NaN or infinity")
        return [_memory(value, f"<f{self.dtype.itemsize}")]

    def read(self, data: memoryview, dims: Dims) -> NDArray[Any]:
        """See `Kind.read`."""
        values = np.frombuffer(data, self.dtype.newbyteorder("<")).astype(self.dtype)
        if not np.isfinite(values).all():
            raise DecodeError("an array of floats contains NaN or infinity")
        return values.reshape(self.shape(dims))


class One(Kind[Any]):
    """A number that travels as an array of one."""

    def __init__(self, kind: _Array) -> None:
        super().__init__()
        self.kind = kind

    def size(self, dims: Dims) -> int:
        """See `Kind.size`."""
        return self.kind.size(dims)

    def write(self, value: Any, dims: Dims) -> list[Buffer]:
        """See `Kind.write`."""
        return self.kind.encode(np.array([value]), dims)

    def read(self, data: memoryview, dims: Dims) -> Any:
        """See `Kind.read`."""
        return self.kind.read(data, dims)[0].item()


class Many(Kind[tuple[T, ...]]):
    """A tuple of values of one kind."""

    def __init__(self, kind: Kind[T], count: Length) -> None:
        super().__init__(count)
        self.kind = kind
        self.named |= kind.named

    def measure(self, value: tuple[T, ...]) -> tuple[int, ...]:
        """See `Kind.measure`."""
        if not isinstance(value, tuple):
            raise ParameterError(f"is {type(value).__name__}, not a tuple")
        return (len(value),)

    def bind(self, value: tuple[T, ...], dims: dict[str, int]) -> None:
        """See `Kind.bind`."""
        super().bind(value, dims)
        if value:
            self.kind.bind(value[0], dims)

    def size(self, dims: Dims) -> int:
        """See `Kind.size`."""
        return length_of(self.lengths[0], dims) * self.kind.size(dims)

    def write(self, value: tuple[T, ...], dims: Dims) -> list[Buffer]:
        """See `Kind.write`."""
        return [part for one in value for part in self.kind.encode(one, dims)]

    def read(self, data: memoryview, dims: Dims) -> tuple[T, ...]:
        """See `Kind.read`."""
        n, count = self.kind.size(dims), length_of(self.lengths[0], dims)
        return tuple(self.kind.read(data[i * n : (i + 1) * n], dims) for i in range(count))
