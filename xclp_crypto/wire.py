"""Typed messages: what travels, how long it is, and what is refused.

A message on the wire is ``tag (2 bytes, big-endian) || body``. The body has no lengths inside:
every length follows from public sizes that both ends know, so decoding checks the exact length
first, then every field, and nothing may be left over. Transports add their own framing.

A message class states its size formula in `Message.size` independently of its encoder; a test
equates the two for every class.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.ring import Residues, wire_bytes
from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.params import SEED_BYTES

TAG_BYTES = 2
MAX_PACKED_WIDTH = 16
_PACK_GROUPS = 1 << 12  # groups of eight residues packed at once: what the caches hold

_registry: dict[int, type[Message]] = {}


class Message:
    """Base of all messages; subclasses are frozen dataclasses with a unique `TAG`.

    Fields of a message are values already validated; bytes become a message only through
    `decode`. Printing shows the type and never the content, and messages cannot be pickled.
    """

    TAG: ClassVar[int]

    def __init_subclass__(cls) -> None:
        """Register the tag, which must be unique over all messages."""
        if not 0 <= cls.TAG < 1 << 8 * TAG_BYTES or cls.TAG in _registry:
            raise ParameterError(
                f"message tag {cls.TAG:#06x} of {cls.__name__} is taken or too large"
            )
        _registry[cls.TAG] = cls

    @staticmethod
    def size(*args: Any, **dims: Any) -> int:
        """Return the length of the body in bytes, the formula of the message."""
        raise TypeError("every message states its own size")

    def write(self, out: Writer) -> None:
        """Append the fields to `out`."""
        raise TypeError("every message writes its own fields")

    @classmethod
    def read(cls, data: Reader, *args: Any, **dims: Any) -> Self:
        """Read and validate the fields; `dims` are the public sizes that `size` takes."""
        raise TypeError("every message reads its own fields")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be pickled; use wire.encode")


M = TypeVar("M", bound=Message)


def packed_size(count: int, width: int) -> int:
    """Return the bytes that `count` residues of `width` bits take: ⌈count·width/8⌉."""
    return (count * width + 7) // 8


def _lane_shifts(width: int) -> NDArray[np.uint64]:
    return np.arange(4, dtype=np.uint64) * np.uint64(width)


def pack(values: NDArray[Any], width: int) -> bytes:
    """Pack residues of `width` ≤ 16 bits densely, little-endian, the last byte zero-padded.

    Eight residues fill `width` bytes exactly, so they are combined as two 64-bit lanes of four.
    """
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


class Writer:
    """Collects the encoded fields of one message."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []

    def raw(self, data: bytes) -> None:
        """Append bytes of a length that the reader knows."""
        self.parts.append(data)

    def uint(self, value: int, n_bytes: int) -> None:
        """Append an unsigned big-endian integer."""
        self.parts.append(int(value).to_bytes(n_bytes, "big"))

    def uints(self, values: NDArray[Any], n_bytes: int) -> None:
        """Append an array of unsigned little-endian integers of 1, 2, 3, 4, 5 or 8 bytes.

        Of 3 and 5 bytes, first the low 2 or 4 bytes of all values, then the high byte of all.
        """
        if n_bytes in (3, 5):
            self.uints(values & ((1 << 8 * (n_bytes - 1)) - 1), n_bytes - 1)
            self.uints(values >> 8 * (n_bytes - 1), 1)
        else:
            self._array(values, f"<u{n_bytes}")

    def floats(self, values: NDArray[np.floating[Any]], n_bytes: int = 8) -> None:
        """Append an array of little-endian floats of 4 or 8 bytes."""
        self._array(values, f"<f{n_bytes}")

    def _array(self, values: NDArray[Any], dtype: str) -> None:
        """Append the bytes of an array, without a copy if they are in memory as they travel."""
        self.parts.append(np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8).data)

    def residues(self, values: NDArray[Any], width: int) -> None:
        """Append residues modulo 2^width, 1 ≤ width ≤ 16, densely packed.

        Raises:
            ParameterError: another width.
        """
        if not 1 <= width <= MAX_PACKED_WIDTH:
            raise ParameterError(f"residues of {width} bits; 1 to {MAX_PACKED_WIDTH} are packed")
        self.parts.append(pack(values, width))

    def bits(self, values: NDArray[Any]) -> None:
        """Append booleans, eight to a byte."""
        self.residues(values, 1)


class Reader:
    """Strict reader over the body of one message."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0

    def _take(self, n_bytes: int) -> memoryview:
        if self._at + n_bytes > len(self._data):
            raise DecodeError(f"body ends after {len(self._data)} bytes, inside a field")
        piece = self._data[self._at : self._at + n_bytes]
        self._at += n_bytes
        return piece

    def raw(self, n_bytes: int) -> bytes:
        """Read exactly `n_bytes` bytes."""
        return bytes(self._take(n_bytes))

    def uint(self, n_bytes: int) -> int:
        """Read an unsigned big-endian integer."""
        return int.from_bytes(self._take(n_bytes), "big")

    def uints(self, shape: tuple[int, ...], n_bytes: int) -> NDArray[Any]:
        """Read what `Writer.uints` wrote; 3 bytes become uint32 and 5 bytes uint64."""
        if n_bytes in (3, 5):
            wide = self.uints(shape, n_bytes - 1).astype(f"u{2 * (n_bytes - 1)}")
            wide |= self.uints(shape, 1).astype(wide.dtype) << 8 * (n_bytes - 1)
            return wide
        piece = self._take(int(np.prod(shape, dtype=np.int64)) * n_bytes)
        return np.frombuffer(piece, dtype=f"<u{n_bytes}").astype(f"u{n_bytes}").reshape(shape)

    def floats(self, shape: tuple[int, ...], n_bytes: int = 8) -> NDArray[Any]:
        """Read an array of finite little-endian floats of 4 or 8 bytes.

        Raises:
            DecodeError: a number is NaN or infinite, or bytes are missing.
        """
        piece = self._take(int(np.prod(shape, dtype=np.int64)) * n_bytes)
        values = np.frombuffer(piece, dtype=f"<f{n_bytes}").astype(f"f{n_bytes}").reshape(shape)
        if not np.isfinite(values).all():
            raise DecodeError("an array of floats contains NaN or infinity")
        return values

    def residues(self, shape: tuple[int, ...], width: int) -> NDArray[np.uint16]:
        """Read residues modulo 2^width."""
        count = int(np.prod(shape, dtype=np.int64))
        return unpack(self._take(packed_size(count, width)), count, width).reshape(shape)

    def bits(self, count: int) -> NDArray[np.bool_]:
        """Read `count` booleans."""
        return self.residues((count,), 1).astype(bool)

    def finish(self) -> None:
        """Refuse trailing bytes.

        Raises:
            DecodeError: there are some.
        """
        if self._at != len(self._data):
            raise DecodeError(f"{len(self._data) - self._at} trailing bytes")


class ResidueFields:
    """Fields and encoding of a message that is one matrix of residues modulo m, 1 ≤ m ≤ 2^64.

    `values` has `residue_dtype(m)` and shape (rows, columns). Size: `wire_bytes(m)`·rows·columns
    bytes. The modulus does not travel.
    """

    values: Residues
    modulus: int

    @staticmethod
    def size(*, rows: int, columns: int, modulus: int) -> int:
        """Return `wire_bytes(m)`·rows·columns."""
        return wire_bytes(modulus) * rows * columns

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.uints(self.values, wire_bytes(self.modulus))

    @classmethod
    def read(cls, data: Reader, *, rows: int, columns: int, modulus: int) -> Self:
        """See `Message.read`."""
        values = data.uints((rows, columns), wire_bytes(modulus))
        if modulus < 1 << 8 * values.dtype.itemsize and (values >= modulus).any():
            raise DecodeError(f"a value is no residue modulo {modulus}")
        return cls(values, modulus)  # type: ignore[call-arg]  # of the dataclass


class ClientSetFields:
    """Fields and encoding of a message that is a set of clients. Size: ⌈p/8⌉ bytes.

    `clients` is a mask over the p clients in the order that both ends agree on.
    """

    clients: NDArray[np.bool_]

    @staticmethod
    def size(*, clients: int) -> int:
        """Return ⌈p/8⌉."""
        return (clients + 7) // 8

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.bits(self.clients)

    @classmethod
    def read(cls, data: Reader, *, clients: int) -> Self:
        """See `Message.read`."""
        return cls(data.bits(clients))  # type: ignore[call-arg]  # of the dataclass


class SeedFields:
    """Fields and encoding of a message that is 32 opaque bytes. Size: 32 bytes."""

    value: bytes

    @staticmethod
    def size() -> int:
        """Return 32."""
        return SEED_BYTES

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.raw(self.value)

    @classmethod
    def read(cls, data: Reader) -> Self:
        """See `Message.read`."""
        return cls(data.raw(SEED_BYTES))  # type: ignore[call-arg]  # of the dataclass


def body(message: Message) -> bytes:
    """Encode the fields of `message`, without its tag."""
    out = Writer()
    message.write(out)
    return b"".join(out.parts)


def encode(message: Message) -> bytes:
    """Encode `message` with its tag."""
    out = Writer()
    out.uint(type(message).TAG, TAG_BYTES)
    message.write(out)
    return b"".join(out.parts)  # one copy, of what may be many megabytes


def decode_body(kind: type[M], data: bytes | memoryview, **dims: Any) -> M:
    """Decode the body of a message of a known type; raises `DecodeError`."""
    expected = kind.size(**dims)
    if len(data) != expected:
        raise DecodeError(f"{kind.__name__} has {len(data)} bytes; its sizes require {expected}")
    reader = Reader(data)
    message = kind.read(reader, **dims)
    reader.finish()
    return message


def decode(kind: type[M], payload: bytes | bytearray, **dims: Any) -> M:
    """Decode a message that must be of type `kind`; raises `DecodeError`."""
    if len(payload) < TAG_BYTES:
        raise DecodeError("a message shorter than its tag")
    if payload[:TAG_BYTES] != kind.TAG.to_bytes(TAG_BYTES, "big"):
        raise DecodeError(f"got {type_name(payload)} where {kind.__name__} is expected")
    return decode_body(kind, memoryview(payload)[TAG_BYTES:], **dims)


def tag_name(tag: int) -> str:
    """Return the name of the message type with this tag, for reports."""
    return _registry[tag].__name__ if tag in _registry else f"unknown tag {tag:#06x}"


def type_name(payload: bytes | bytearray) -> str:
    """Return the name of an encoded message's type, for reports; never raises."""
    name = tag_name(int.from_bytes(payload[:TAG_BYTES], "big"))
    if name == "Sealed":
        return f"Sealed[{tag_name(int.from_bytes(payload[TAG_BYTES : 2 * TAG_BYTES], 'big'))}]"
    return name
