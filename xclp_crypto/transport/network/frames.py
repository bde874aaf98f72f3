"""The bytes of frames, in which server and clients talk over TLS.

::

    frame:  length (4 bytes) ‖ kind (1) ‖ body

    READY:        "XCLP-NET" ‖ version (2)
    HELLO:        "XCLP-NET" ‖ version (2) ‖ dry run (1) ‖ instance (16)
                  ‖ incarnation (16) ‖ agreement
    WELCOME:      session (16)
    REFUSED:      why
    RESUME, ACK:  sender (2) ‖ receiver (2) ‖ how many messages (8)
    DATA:         sender (2) ‖ receiver (2) ‖ number (8) ‖ depth (4) ‖ size (8) ‖ offset (8) ‖ piece
    BEAT:         computing (1) ‖ progress (8) ‖ for whom it waits, a bit for each party
    DROPPED_OUT:  party (2) ‖ why others go on without it (`Reason`); nothing if it ended well
    BYE:          well (1) ‖ why, if it is told
    END:          failed (1) ‖ why, if it failed
    why:          code (1) ‖ bytes of names (2) ‖ bytes of accusations (2)
                  ‖ blamed parties, NUL between ‖ accusations (`Accusation.encode_all`) ‖ text,
                  or OTHER_AGREEMENT (1) ‖ agreement

Parties are numbered in the order that all agree on. What is not written just so is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from xclp_crypto import errors
from xclp_crypto.transport.failures import Accusation, Failure

MAGIC: Final = b"XCLP-NET"
VERSION: Final = 1
PIECE_BYTES: Final = 256 << 10
"""Data of one frame at most."""

OTHER_AGREEMENT: Final = 255

HEAD: Final = struct.Struct(">IB")

_WHY: Final = struct.Struct(">BHH")


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame: fields of fixed sizes, names of parties first, and perhaps one that takes the rest.

    Attributes:
        KIND: what it is on the wire.
        LAYOUT: of the fields of fixed sizes.
        PARTIES: how many of them are parties.
        REST: whether the last field takes the rest.
    """

    KIND: ClassVar[int]
    LAYOUT: ClassVar[struct.Struct]
    PARTIES: ClassVar[int] = 0
    REST: ClassVar[bool] = False

    def require_sense(self) -> None:
        """Refuse, by a `VersionMismatch`, contents that no program of this version sends."""


@dataclass(frozen=True, slots=True)
class Ready(Frame):
    """The server greets first."""

    KIND = 1
    LAYOUT = struct.Struct(">8sH")

    magic: bytes = MAGIC
    version: int = VERSION

    def require_sense(self) -> None:
        """See `Frame.require_sense`."""
        _require_greeting(self.magic, self.version, "this program", VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Frame):
    """A client greets.

    Attributes:
        dry: whether it only asks if it could join.
        instance: see `DurableRole.instance`; 16 bytes.
        incarnation: 16 random bytes of the program, which another one with the same log has not.
        agreement: what all parties must have in common, encoded.
    """

    KIND = 2
    LAYOUT = struct.Struct(">8sH?16s16s")
    REST = True

    magic: bytes = MAGIC
    version: int = VERSION
    dry: bool = False
    instance: bytes
    incarnation: bytes
    agreement: bytes

    def require_sense(self) -> None:
        """See `Frame.require_sense`."""
        _require_greeting(self.magic, VERSION, "the client", self.version)


def _require_greeting(magic: bytes, of_server: int, other: str, version: int) -> None:
    if magic != MAGIC:
        raise errors.VersionMismatch(
            "what is at the other end does not speak this protocol; check the address"
        )
    if of_server != version:
        raise errors.VersionMismatch(
            f"the server speaks version {of_server} and {other} version {version}; install the "
            "same version of xclp"
        )


@dataclass(frozen=True, slots=True)
class Welcome(Frame):
    """The client may join this session; 16 bytes."""

    KIND = 3
    LAYOUT = struct.Struct(">16s")

    session: bytes


@dataclass(frozen=True, slots=True)
class Refused(Frame):
    """The client may not join; `why` is as from `told`, or begins with `OTHER_AGREEMENT`."""

    KIND = 4
    LAYOUT = struct.Struct(">")
    REST = True

    why: bytes

    def require_sense(self) -> None:
        """See `Frame.require_sense`."""
        if not self.why:
            raise _wrong_size(self, 0)


@dataclass(frozen=True, slots=True)
class _Between(Frame):
    """A frame of the sender of messages for their receiver, or one that goes back."""

    PARTIES = 2
    BACK: ClassVar[bool] = False

    sender: str
    receiver: str

    @property
    def author(self) -> str:
        """Return whose frame this is."""
        return self.receiver if self.BACK else self.sender

    @property
    def addressee(self) -> str:
        """Return whom it is for."""
        return self.sender if self.BACK else self.receiver


@dataclass(frozen=True, slots=True)
class _Count(_Between):
    LAYOUT = struct.Struct(">HHQ")
    BACK = True

    count: int


@dataclass(frozen=True, slots=True)
class Resume(_Count):
    """The receiver has so many messages of the sender, and wants those that follow."""

    KIND = 5


@dataclass(frozen=True, slots=True)
class Ack(_Count):
    """The receiver has so many messages of the sender."""

    KIND = 6


@dataclass(frozen=True, slots=True)
class Data(_Between):
    """A piece of a message.

    Attributes:
        number: of the messages of `sender` to `receiver`, from 0.
        depth: see `Outgoing.depth`.
        size: of the whole message, in bytes.
        offset: of the piece.
        piece: the bytes.
    """

    KIND = 7
    LAYOUT = struct.Struct(">HHQIQQ")
    REST = True

    number: int
    depth: int
    size: int
    offset: int
    piece: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Beat(Frame):
    """A sign of life.

    Attributes:
        busy: whether the role computes; it waits otherwise, or has ended.
        progress: a number that changes with what the role does.
        lacks: for whom it waits, as from `Codec.bits`.
    """

    KIND = 8
    LAYOUT = struct.Struct(">?Q")
    REST = True

    busy: bool
    progress: int
    lacks: bytes = b""


@dataclass(frozen=True, slots=True)
class DroppedOut(Frame):
    """No more comes of a client; `party` is empty where it is none that this end knows.

    Attributes:
        reason: a `Reason`, encoded; empty if its role has ended well.
    """

    KIND = 9
    LAYOUT = struct.Struct(">H")
    PARTIES = 1
    REST = True

    party: str
    reason: bytes = b""


@dataclass(frozen=True, slots=True)
class Bye(Frame):
    """The role of a client has ended, well or not; `why` not, as from `told`, may be empty."""

    KIND = 10
    LAYOUT = struct.Struct(">?")
    REST = True

    well: bool
    why: bytes = b""

    def require_sense(self) -> None:
        """See `Frame.require_sense`."""
        if self.well and self.why:
            raise _wrong_size(self, 1 + len(self.why))


@dataclass(frozen=True, slots=True)
class End(Frame):
    """The session is over; `why` it failed, as from `told`, is empty if it did not."""

    KIND = 11
    LAYOUT = struct.Struct(">?")
    REST = True

    failed: bool
    why: bytes = b""

    def require_sense(self) -> None:
        """See `Frame.require_sense`."""
        if self.failed != bool(self.why):
            raise _wrong_size(self, 1 + len(self.why))


def _wrong_size(frame: Frame | type[Frame], size: int) -> errors.VersionMismatch:
    return errors.VersionMismatch(f"a frame of kind {frame.KIND} has {size} bytes")


_FRAMES: Final[dict[int, type[Frame]]] = {
    frame.KIND: frame
    for frame in (Ready, Hello, Welcome, Refused, Resume, Ack, Data, Beat, DroppedOut, Bye, End)
}

_FIELDS: Final = {frame: tuple(f.name for f in fields(frame)) for frame in _FRAMES.values()}


def head_of(head: bytes) -> tuple[int, int]:
    """Return the length of the body and the kind of a frame, from its first `HEAD` bytes.

    Raises:
        VersionMismatch: there is no such kind, or no frame is so long.
    """
    length, kind = HEAD.unpack(head)
    if length > PIECE_BYTES + Data.LAYOUT.size or kind not in _FRAMES:
        raise errors.VersionMismatch(
            "what answers there sends no frames of this protocol; check address and version"
        )
    return length, kind


class Codec:
    """Writes and reads the frames of one session, its parties in the order that all agree on."""

    def __init__(self, parties: Sequence[str]) -> None:
        self._parties = tuple(parties)
        self._numbers = {name: number for number, name in enumerate(parties)}

    def bits(self, names: Iterable[str]) -> bytes:
        """Return a bit for each party, the last for the first one, that says who is among them."""
        marked = sum(1 << self._numbers[name] for name in set(names))
        return marked.to_bytes(-(-len(self._parties) // 8), "big")

    def marked(self, bits: bytes) -> set[str]:
        """Return whom `bits` marked; raises `VersionMismatch` if there is nobody of that number."""
        marked = int.from_bytes(bits, "big")
        if marked >> len(self._parties):
            raise errors.VersionMismatch("a frame names no parties of this session")
        return {name for name, number in self._numbers.items() if marked >> number & 1}

    def encode(self, frame: Frame) -> tuple[bytes, bytes | memoryview]:
        """Return the bytes of a frame in two parts, so that a large piece is not copied."""
        values = [getattr(frame, name) for name in _FIELDS[type(frame)]]
        rest = values.pop() if frame.REST else b""
        for at in range(frame.PARTIES):
            values[at] = self._numbers[values[at]]
        fixed = frame.LAYOUT.pack(*values)
        return HEAD.pack(len(fixed) + len(rest), frame.KIND) + fixed, rest

    def decode(self, kind: int, body: bytes) -> Frame:
        """Return the frame of a kind, as from `head_of`, and a body.

        Raises:
            VersionMismatch: the body is none of this kind; or it names parties that there are not,
                or the same twice.
        """
        frame = _FRAMES[kind]
        size = frame.LAYOUT.size
        if len(body) < size or (len(body) > size and not frame.REST):
            raise _wrong_size(frame, len(body))
        values: list[Any] = list(frame.LAYOUT.unpack_from(body))
        fixed = frame.LAYOUT.pack(*values)
        for at in range(frame.PARTIES):
            known = values[at] < len(self._parties)
            values[at] = self._parties[values[at]] if known else ""
        if frame.PARTIES == 2 and (not all(values[:2]) or values[0] == values[1]):
            raise errors.VersionMismatch("a frame names no parties of this session")
        if frame.REST:
            values.append(memoryview(body)[size:] if frame is Data else body[size:])
        found = frame(**dict(zip(_FIELDS[frame], values, strict=True)))
        found.require_sense()
        if fixed != body[:size]:
            raise errors.VersionMismatch(
                f"a frame of kind {kind} has a flag that is neither 0 nor 1"
            )
        return found


def told(failure: Failure) -> bytes:
    """Encode what the other end is told of a failure."""
    names = "\0".join(failure.parties).encode()[: 1 << 15]
    signed = Accusation.encode_all(failure.accusations)
    lists = _WHY.pack(failure.code, len(names), len(signed)) + names + signed
    return lists + failure.text.encode()[: PIECE_BYTES - len(lists)]


def heard(why: bytes) -> Failure:
    """Decode what `told` encoded; whatever else it is gives a failure as well, not signed."""
    code, size, size_signed = _WHY.unpack(why[: _WHY.size].ljust(_WHY.size, b"\0"))
    rest = why[_WHY.size :]
    names, signed, text = rest[:size], rest[size:][:size_signed], rest[size + size_signed :]
    try:
        accusations = Accusation.decode_all(signed)
    except errors.DecodeError:
        accusations = ()
    parties = tuple(names.decode(errors="replace").split("\0")) if names else ()
    return Failure(code, parties, text.decode(errors="replace"), accusations)
