"""Everything that reads bytes of others, as functions of one byte string, for fuzzing.

A decoder either takes the bytes, and then what it made of them encodes to the same bytes again, or
raises an error of xclp; `Decoder.check` raises `Finding` for a value that encodes to other bytes,
and lets through any other exception, which is a finding as well. Where a format has no canonical
form (JSON, TOML, pictures, archives, connections), the second half says what must hold instead.

Messages of the wire are in `messages`, and a test finds any that is missing there; other decoders
are in `building_blocks`, `transports` and `files`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xclp_crypto import wire
from xclp_crypto.errors import XclpError

MAX_INPUT = 4096
"""Bytes of an input at most, unless a decoder says otherwise."""


class Finding(AssertionError):
    """A decoder took bytes that it should have refused, or made something else of them."""


@dataclass(frozen=True)
class Decoder:
    """A decoder under test.

    Attributes:
        name: of the decoder, and of the file with its corpus.
        decode: takes the bytes, or raises an error of xclp.
        seeds: inputs to begin with, of which some are taken.
        require: what must hold of the input and the value that was made of it; raises `Finding`.
        max_input: bytes of an input at most.
    """

    name: str
    decode: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]
    require: Callable[[bytes, Any], None]
    max_input: int = MAX_INPUT

    def check(self, data: bytes) -> bool:
        """Return whether the bytes are taken.

        Raises:
            Exception: a finding.
        """
        try:
            value = self.decode(data)
        except XclpError:
            return False
        self.require(data, value)
        return True


def encodes_to_same(encode: Callable[[Any], bytes]) -> Callable[[bytes, Any], None]:
    """Require that a value encodes to the bytes that it was made of."""

    def require(data: bytes, value: Any) -> None:
        if encode(value) != data:
            raise Finding(f"{len(data)} bytes are taken and encode to others")

    return require


def require_nothing(data: bytes, value: Any) -> None:
    """Require no more than that nothing untyped was raised."""


def message_decoder(
    kind: type[wire.Message], examples: Sequence[tuple[dict[str, Any], wire.Message]]
) -> Decoder:
    """Return the decoder of a message type.

    The first byte of an input says which of the examples' sizes are meant, and whether what follows
    is a whole message (from 128 on), or a body that is cut or padded with zeros to its size: few
    random inputs have the right length.
    """
    dims = [d for d, _ in examples]

    def split(data: bytes) -> tuple[dict[str, Any], bytes]:
        first = data[0] if data else 128
        chosen = dims[first % 128 % len(dims)]
        if first >= 128:
            return chosen, data[1:]
        size = kind.size(**chosen)
        return chosen, kind.TAG.to_bytes(2, "big") + data[1 : 1 + size].ljust(size, b"\0")

    def decode(data: bytes) -> tuple[bytes, wire.Message]:
        chosen, payload = split(data)
        return payload, wire.decode(kind, payload, **chosen)

    def require(data: bytes, value: tuple[bytes, wire.Message]) -> None:
        payload, message = value
        if wire.encode(message) != payload:
            raise Finding(f"a {kind.__name__} encodes to other bytes than it was made of")

    seeds = []
    for i, (_, message) in enumerate(examples):
        payload = wire.encode(message)
        seeds.append(bytes([i]) + payload[2 : MAX_INPUT + 1])
        if len(payload) < MAX_INPUT:
            seeds.append(bytes([128 + i]) + payload)
    return Decoder(kind.__name__, decode, tuple(seeds), require)
