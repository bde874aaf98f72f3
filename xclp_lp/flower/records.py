"""Questions and answers in Flower's messages.

::

    RecordDict
      "xclp":     ConfigRecord {"header": JSON text}        # who sends what, and how long it is
      "payloads": ArrayRecord {"0": Array, "1": Array, …}   # one after the other, in pieces

A piece has at most `PIECE_BYTES`. Flower moves each as an object of its own, so that no request is
larger, and so that a long message is in memory once, and each piece of it once more for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from xclp_crypto.errors import DecodeError
from xclp_crypto.transport.supersteps import Answer, Ask, answer_from, ask_from, header_of, sizes_of

PIECE_BYTES: Final = 4 << 20
"""Bytes of a piece; below the 5 MB in which Flower would cut it again."""

HEADER: Final = "xclp"
PAYLOADS: Final = "payloads"


def pack(message: Ask | Answer) -> RecordDict:
    """Return the content of a Flower message."""
    pieces = ArrayRecord()
    room = bytearray()

    def cut() -> None:
        data = bytes(room)
        pieces[str(len(pieces))] = Array(
            dtype="uint8", shape=(len(data),), stype="bytes", data=data
        )
        room.clear()

    for item in message.items:
        at, view = 0, memoryview(item.payload)
        while at < len(view):
            part = view[at : at + PIECE_BYTES - len(room)]
            room += part
            at += len(part)
            if len(room) == PIECE_BYTES:
                cut()
    if room:
        cut()
    header = ConfigRecord({"header": header_of(message)})
    return RecordDict({HEADER: header, PAYLOADS: pieces})


def unpack_ask(content: RecordDict, max_message: int) -> Ask:
    """Read a question, and take its pieces out of `content`.

    Args:
        content: of the message.
        max_message: bytes of a payload at most.

    Raises:
        DecodeError: it is none.
    """
    header = _header(content)
    return ask_from(header, list(_payloads(content, sizes_of(header, max_message))))


def unpack_answer(content: RecordDict, max_message: int) -> Answer:
    """Read an answer; see `unpack_ask`."""
    header = _header(content)
    return answer_from(header, list(_payloads(content, sizes_of(header, max_message))))


def bytes_of(content: RecordDict) -> int:
    """Return the bytes of header and pieces, without what Flower adds to them."""
    pieces = content.array_records[PAYLOADS].values()
    return len(_header(content)) + sum(len(piece.data) for piece in pieces)


def _header(content: RecordDict) -> str:
    record = content.config_records.get(HEADER)
    header = None if record is None else record.get("header")
    if not isinstance(header, str) or PAYLOADS not in content.array_records:
        raise DecodeError("a message of Flower's is not one of this app; check the app's version")
    return header


def _payloads(content: RecordDict, sizes: list[int]) -> Iterator[bytearray]:
    """Put the payloads together; each piece goes as soon as it is copied."""
    pieces = content.array_records[PAYLOADS]
    there = sum(len(piece.data) for piece in pieces.values())
    if there != sum(sizes):
        raise DecodeError(f"a message announces {sum(sizes)} bytes and has {there}")
    number, piece = 0, memoryview(b"")
    for size in sizes:
        payload, at = bytearray(size), 0
        while at < size:
            while not piece:
                if str(number) not in pieces:
                    raise DecodeError(f"piece {number} of a message is missing")
                piece = memoryview(pieces.pop(str(number)).data)
                number += 1
            part = piece[: size - at]
            payload[at : at + len(part)] = part
            at, piece = at + len(part), piece[len(part) :]
        yield payload
