"""Questions and answers in Flower's messages.

::

    RecordDict
      "xclp":     ConfigRecord {"header": JSON text}        # who sends what, and how long it is
      "payloads": ArrayRecord {"0": Array, "1": Array, …}   # one after the other, in pieces

A piece has at most `PIECE_BYTES`. Flower moves each as an object of its own, so that no request is
larger. While a message arrives and while one leaves, Flower has every piece twice. So that nobody
has more than that, pieces go out of a message as they are read, and a message that the server only
hands on stays in the pieces in which it came.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from xclp_crypto.errors import DecodeError
from xclp_crypto.transport import questions
from xclp_crypto.transport.questions import Answer, Ask, Parts

PIECE_BYTES: Final = 4 << 20
"""Bytes of a piece; below the 5 MB in which Flower would cut it again."""

HEADER: Final = "xclp"
PAYLOADS: Final = "payloads"


def pack(message: Ask | Answer) -> RecordDict:
    """Return the content of a Flower message.

    Payloads of a piece or more begin with a piece of their own, so that whoever hands them on can
    take the pieces as they are.
    """
    pieces = ArrayRecord()
    room = bytearray()

    def put(data: bytes) -> None:
        pieces[str(len(pieces))] = Array(
            dtype="uint8", shape=(len(data),), stype="bytes", data=data
        )

    def cut() -> None:
        if room:
            put(bytes(room))
            room.clear()

    for item in message.items:
        if len(item.payload) >= PIECE_BYTES:
            cut()
        parts = item.payload.parts if isinstance(item.payload, Parts) else (item.payload,)
        for part in parts:
            if isinstance(part, bytes) and len(part) == PIECE_BYTES and not room:
                put(part)
                continue
            at, view = 0, memoryview(part)
            while at < len(view):
                more = view[at : at + PIECE_BYTES - len(room)]
                room += more
                at += len(more)
                if len(room) == PIECE_BYTES:
                    cut()
    cut()
    header = ConfigRecord({"header": questions.header_of(message)})
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
    pieces = _Pieces(content, questions.sizes_of(header, max_message))
    return questions.ask_from(header, [pieces.whole(size) for size in pieces.sizes])


def unpack_answer(content: RecordDict, max_message: int, reader: str) -> Answer:
    """Read an answer; see `unpack_ask`.

    Args:
        content: of the message.
        max_message: bytes of a payload at most.
        reader: who reads payloads; those for others stay in `Parts`.
    """
    header = _header(content)
    pieces = _Pieces(content, questions.sizes_of(header, max_message))
    payloads = [
        pieces.whole(size) if receiver == reader else pieces.parts(size)
        for size, receiver in zip(pieces.sizes, questions.receivers_of(header), strict=True)
    ]
    return questions.answer_from(header, payloads)


def bytes_of(content: RecordDict) -> int:
    """Return the bytes of header and pieces, without what Flower adds to them.

    Raises:
        DecodeError: it is not a message of this app.
    """
    header = _header(content)
    return len(header) + sum(len(p.data) for p in content.array_records[PAYLOADS].values())


def _header(content: RecordDict) -> str:
    record = content.config_records.get(HEADER)
    header = None if record is None else record.get("header")
    if not isinstance(header, str) or PAYLOADS not in content.array_records:
        raise DecodeError(
            "a message of Flower's is not one of this app; check the app's version", public=True
        )
    return header


class _Pieces:
    """The pieces of a message; each goes out of it when it is taken.

    Args:
        content: of the message.
        sizes: of its payloads, in bytes.

    Raises:
        DecodeError: there are more or fewer bytes.
    """

    def __init__(self, content: RecordDict, sizes: list[int]) -> None:
        self.sizes = sizes
        self._pieces = content.array_records[PAYLOADS]
        there = sum(len(piece.data) for piece in self._pieces.values())
        if there != sum(sizes):
            raise DecodeError(f"a message announces {sum(sizes)} bytes and has {there}")
        self._number = 0
        self._piece = memoryview(b"")

    def whole(self, size: int) -> bytearray:
        """Put the next payload together."""
        payload, at = bytearray(size), 0
        for view in self._views(size):
            payload[at : at + len(view)] = view
            at += len(view)
        return payload

    def parts(self, size: int) -> Parts:
        """Take the next payload as it lies in the pieces."""
        parts = []
        for view in self._views(size):
            piece = cast(bytes, view.obj)
            parts.append(piece if len(piece) == len(view) else bytes(view))
        return Parts(tuple(parts))

    def _views(self, size: int) -> Iterator[memoryview]:
        while size:
            while not self._piece:
                if str(self._number) not in self._pieces:
                    raise DecodeError(f"piece {self._number} of a message is missing")
                self._piece = memoryview(self._pieces.pop(str(self._number)).data)
                self._number += 1
            view, self._piece = self._piece[:size], self._piece[size:]
            size -= len(view)
            yield view
