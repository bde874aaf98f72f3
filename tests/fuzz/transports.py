"""The decoders of what arrives over connections, from engines, and from files that roles leave."""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from decoders import Decoder, Finding, require_nothing

from xclp_crypto.params import Agreement
from xclp_crypto.rng import Rng, SeededRng
from xclp_crypto.role import RoleIO, recorded
from xclp_crypto.transport.failures import Accusation, Code, Failure, Reason
from xclp_crypto.transport.log import Log, LogKey, NoLog
from xclp_crypto.transport.network.client import ClientParty
from xclp_crypto.transport.network.frames import (
    Ack,
    Beat,
    Bye,
    Codec,
    Data,
    DroppedOut,
    End,
    Frame,
    Hello,
    Ready,
    Refused,
    Resume,
    Welcome,
)
from xclp_crypto.transport.network.limits import Limits
from xclp_crypto.transport.network.party import Connection
from xclp_crypto.transport.network.server import ServerParty
from xclp_crypto.transport.questions import (
    Answer,
    Ask,
    Item,
    answer_from,
    ask_from,
    header_of,
    sizes_of,
)
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.stream import FRAME, SocketDriver
from xclp_lp.messages import Labelled

KEY = LogKey(bytes(range(32)))
SERVER = "server"
CLIENTS = ("a", "b", "c")
AGREEMENT = Agreement(version=1)
MAX_MESSAGE = 1 << 16


# Frames of `transport.stream`


def _stream() -> Decoder:
    with socket.socket() as unused:
        driver = SocketDriver(unused, ("a", "b", "server"))
    driver._elsewhere = ("b", "server")

    def decode(data: bytes) -> tuple[list[Any], bytes]:
        driver._frames.clear()
        driver._connection.received = bytearray(data)
        driver._take_frames()
        return list(driver._frames), bytes(driver._connection.received)

    def require(data: bytes, value: tuple[list[Any], bytes]) -> None:
        frames, rest = value
        again = b"".join(
            FRAME.pack(len(payload), depth, driver._order.index(s), driver._order.index(r))
            + payload
            for s, r, payload, depth in frames
        )
        if again + rest != data:
            raise Finding("frames are lost or changed")

    one = FRAME.pack(3, 1, 1, 0) + b"abc"
    seeds = (
        one,
        one * 2 + one[:5],
        FRAME.pack(0, 0, 2, 0),
        FRAME.pack(1 << 31, 1, 1, 0),
        FRAME.pack(1, 1, 0, 1),
    )
    return Decoder("stream-frames", decode, seeds, require, 256)


# Connections of `transport.network`


class _Writer:
    """Takes what a party sends and keeps nothing."""

    transport: Any = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.transport = self

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    async def drain(self) -> None: ...

    async def wait_closed(self) -> None: ...

    def get_extra_info(self, _: str) -> dict[str, Any]:
        return {"subject": ((("commonName", self.name),),)}


_LOOPS: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    """Return the one loop of this process; in no cache, which `tests.mutation` empties."""
    if not _LOOPS:
        _LOOPS.append(asyncio.new_event_loop())
    return _LOOPS[0]


async def _waits(io: RoleIO, rng: Rng) -> None:
    """A role that waits forever for everybody."""
    for _ in range(100):
        await io.gather(Labelled, [p for p in (*CLIENTS, SERVER) if p != io.name])


def _durable(name: str, log: Log | None = None) -> DurableRole:
    peers = [p for p in (*CLIENTS, SERVER) if p != name]
    role = DurableRole(name, _waits, log or NoLog(), peers=peers, rng=SeededRng(0))
    role.run()
    return role


LIMITS = Limits(max_message=MAX_MESSAGE)
FAILURES = (OSError, EOFError, TimeoutError)
"""What a connection that ends raises; the callers of what is fuzzed here take it."""


def _reader(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(loop=_loop())
    reader.feed_data(data)
    reader.feed_eof()
    return reader


CODEC = Codec((*CLIENTS, SERVER))


def _bytes(*frames: Frame) -> bytes:
    return b"".join(bytes(part) for frame in frames for part in CODEC.encode(frame))


def _hello(**changed: Any) -> Hello:
    return Hello(instance=bytes(16), incarnation=bytes(16), agreement=AGREEMENT.encode(), **changed)


def _server_frames() -> Decoder:
    """What a client sends, from its greeting on."""
    role = _durable(SERVER)

    def decode(data: bytes) -> None:
        server = ServerParty(role, CLIENTS, AGREEMENT, LIMITS)
        connection = Connection(
            _reader(data),
            _Writer("a"),  # type: ignore[arg-type]
            CODEC,
            LIMITS.grace,
            server.clock,
        )

        async def serve() -> None:
            try:
                await server._serve(connection, "a", lambda: None)
            except FAILURES:
                return

        _loop().run_until_complete(serve())

    hello = _bytes(_hello())
    data = Data("a", SERVER, 0, 1, 2, 0, b"ab")
    other = Data("a", "b", 0, 1, 2, 0, b"ab")
    counts = [kind(sender, "a", 0) for kind in (Resume, Ack) for sender in ("b", SERVER)]
    seeds = (
        hello,
        _bytes(_hello(dry=True)),
        hello + _bytes(data),
        hello + _bytes(other, *counts, Beat(True, 3), Bye(True)),
        hello + _bytes(Data("a", SERVER, 0, 1, 1 << 40, 0, b"")),
        hello + _bytes(Ack(SERVER, "a", 9)),
        hello + _bytes(DroppedOut("a")),
        _bytes(Bye(True)),
        b"GET / HTTP/1.1\r\n\r\n",
    )
    return Decoder("network-server", decode, seeds, require_nothing, 512)


class _InOneThread(ClientParty):
    """A client that keeps its session itself: to start a thread for each input takes too long."""

    async def in_thread(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    def later(self, function: Any, *arguments: Any) -> None:
        function(*arguments)


def _client_frames() -> Decoder:
    """What the server sends, from its READY on."""
    role = _durable("a")

    def decode(data: bytes) -> None:
        client = _InOneThread(role, CLIENTS, SERVER, AGREEMENT, LIMITS)
        connection = Connection(
            _reader(data),
            _Writer(SERVER),  # type: ignore[arg-type]
            CODEC,
            LIMITS.grace,
            client.clock,
        )
        role.note = b""

        async def use() -> None:
            try:
                await client._use(connection)
            except FAILURES:
                return
            finally:
                client.close()

        _loop().run_until_complete(use())

    ready = _bytes(Ready())
    welcome = ready + _bytes(Welcome(bytes(16)))
    frames = (
        Resume("a", SERVER, 0),
        Ack("a", "b", 0),
        Data(SERVER, "a", 0, 1, 2, 0, b"a"),
        Data(SERVER, "a", 0, 1, 2, 1, b"b"),
        DroppedOut("b", Reason(Code.LEFT, "why").encode()),
        Beat(False, 1),
        End(False),
    )
    seeds = (
        welcome,
        welcome + _bytes(*frames),
        welcome + _bytes(End(False)),
        welcome + _bytes(End(True, b"\3why")),
        ready + _bytes(Refused(b"\2why")),
        ready + _bytes(Refused(b"\xff" + Agreement(version=2).encode())),
        welcome + _bytes(Ack("a", "b", 9)),
        welcome + _bytes(Data("a", "b", 0, 1, 2, 0, b"ab")),
        welcome + _bytes(Data("b", "c", 0, 1, 2, 0, b"ab")),
        ready.replace(b"XCLP", b"HTTP"),
    )
    return Decoder("network-client", decode, seeds, require_nothing, 512)


# `transport.questions`


def _supersteps() -> Iterator[Decoder]:
    def parts(data: bytes) -> tuple[str, list[bytes]]:
        header = data.decode("utf-8", "surrogateescape")
        return header, [bytes(n) for n in sizes_of(header, MAX_MESSAGE)]

    item = Item("b", "a", 3, 7, b"\0" * 5)
    gone = {"c": None, "d": Reason(Code.FAULTY, "why")}
    ask = Ask((item,), {"b": 2, "server": 1}, gone, {"b": 1})
    answer = Answer(
        "a",
        bytes(16),
        (item,),
        {"b": 4},
        {"b": 3},
        ("server",),
        True,
        False,
        Failure(7, ("b",), "why", (Accusation("a", ("b",), 7, "sum", bytes(64)),)),
    )
    for name, read, example in (("ask", ask_from, ask), ("answer", answer_from, answer)):
        seeds = (
            header_of(example).encode(),
            header_of(type(example)("") if name == "answer" else Ask()).encode(),  # type: ignore[arg-type]
            b'{"version": 1, "items": [["a", "b", 0, 0, 99999999]]}',
            b"[" * 2000,
        )

        def require(data: bytes, value: Any, read: Any = read) -> None:
            # JSON has no canonical form; what is read must survive being written and read.
            header = header_of(value)
            if read(header, [bytes(n) for n in sizes_of(header, MAX_MESSAGE)]) != value:
                raise Finding("what was read is written as something else")

        yield Decoder(
            f"superstep-{name}", lambda data, read=read: read(*parts(data)), seeds, require, 2048
        )


# Logs


def _log_bytes(*records: tuple[int, bytes]) -> bytes:
    log = Log.from_bytes(b"", KEY, rng=SeededRng(3))
    list(log.replay())
    for kind, data in records:
        log.append(kind, data)
    return log.to_bytes()


def _repaired(data: bytes) -> bytes:
    """Put the right checksum into every piece, or no mutation would get past the first."""
    out, at, number = bytearray(data), 26, 0
    while at + 8 <= len(out):
        (length,) = struct.unpack_from(">I", out, at)
        struct.pack_into(">I", out, at + 4, zlib.crc32(struct.pack(">IQ", length, number)))
        at, number = at + 20 + length, number + 1
    return bytes(out)


def _log_files() -> Decoder:
    def decode(data: bytes) -> tuple[list[tuple[int, bytes]], bytes, bytes]:
        content = _repaired(data[1:]) if data[:1] == b"\1" else data[1:]
        log = Log.from_bytes(content, KEY, rng=SeededRng(4))
        return list(log.replay()), log.to_bytes(), content

    def require(data: bytes, value: tuple[list[tuple[int, bytes]], bytes, bytes]) -> None:
        records, kept, content = value
        if not content.startswith(kept) and records:
            raise Finding("a log that is read changes what it keeps")
        if list(Log.from_bytes(kept, KEY).replay()) != records:
            raise Finding("a log has other records when it is read again")

    sound = _log_bytes((1, b"start"), (3, b"a message"), (6, b""))
    seeds = [
        b"\0" + sound,
        b"\1" + sound,
        b"\1" + sound[:-3],
        b"\1" + sound + bytes(40),
        b"\0",
        b"\0XCLP",
    ]
    return Decoder("log-file", decode, tuple(seeds), require, 512)


def _recorded(io: RoleIO) -> Any:
    return np.arange(3), b"bytes"


recorded(_recorded)


async def _records(io: RoleIO, rng: Rng) -> Any:
    result = await io.compute(_recorded, io)
    await io.recv(Labelled, SERVER)
    return result


def _log_records() -> Decoder:
    """The records of a log after a true start, ``kind ‖ length (2) ‖ data``; the key is known."""
    fresh = Log.from_bytes(b"", KEY, rng=SeededRng(5))
    role = DurableRole("a", _records, fresh, peers=[SERVER], rng=SeededRng(6))
    role.run()
    role.feed(SERVER, b"\x10\x04", 1)
    role.run()
    whole = list(Log.from_bytes(fresh.to_bytes(), KEY).replay())

    def split(data: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at + 3 <= len(data):
            size = int.from_bytes(data[at + 1 : at + 3], "big")
            yield data[at] % 8, data[at + 3 : at + 3 + size]
            at += 3 + size

    def decode(data: bytes) -> None:
        log = Log.from_bytes(_log_bytes(whole[0], *split(data)), KEY)
        DurableRole("a", _records, log, peers=[SERVER]).close()

    def joined(records: list[tuple[int, bytes]]) -> bytes:
        return b"".join(bytes([k]) + len(d).to_bytes(2, "big") + d for k, d in records)

    start, arrived = whole[1:-1], whole[-1]
    wrong = [
        [*start, (arrived[0], arrived[1][:3])],
        [*start, (arrived[0], arrived[1].replace(SERVER.encode(), b"nobody"))],
        [(kind, data.replace(b"NUMPY", b"numpy")) for kind, data in start],
        [(kind, data.replace(b"'shape': (3,)", b"'shape': (9,)")) for kind, data in start],
    ]
    seeds = tuple(
        map(
            joined,
            (whole[1:], whole[1:2], [], [*whole[1:], (6, b"note"), (7, b"\0\1b\3why")], *wrong),
        )
    )
    return Decoder("log-records", decode, seeds, require_nothing, 512)


def _pieces() -> Decoder:
    """What is inside a piece of a log, sealed under its key."""
    empty = _log_bytes()
    log = Log.from_bytes(empty, KEY)
    cipher, header = log._cipher, empty

    def decode(data: bytes) -> list[tuple[int, bytes]]:
        sealed = cipher.encrypt(bytes(12), data, header + bytes(8))
        crc = zlib.crc32(struct.pack(">IQ", len(sealed), 0))
        content = header + struct.pack(">II12s", len(sealed), crc, bytes(12)) + sealed
        return list(Log.from_bytes(content, KEY).replay())

    def require(data: bytes, records: list[tuple[int, bytes]]) -> None:
        if [bytes([kind, 0]) + plain for kind, plain in records] not in ([data], []):
            raise Finding("a piece of a log is read as something else")

    return Decoder("log-piece", decode, (b"\1\0data", b"\1\1data", b"\1\0", b""), require, 64)


def transports() -> Iterator[Decoder]:
    """Yield the decoders of everything that carries messages."""
    yield _stream()
    yield _server_frames()
    yield _client_frames()
    yield from _supersteps()
    yield _log_files()
    yield _log_records()
    yield _pieces()
