"""Numbers, names, flags and lengths in the headers of transports, each at its limits.

A client's frames and answers, and those of a server for one client. Numbers are changed in bytes
and in JSON, wherever there is one.
"""

from __future__ import annotations

import atexit
import re
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import network_runs
from carriers import VICTIM, Ending, Header, supersteps
from durable_runs import seedless
from subjects import SUBJECTS

from xclp_crypto.errors import XclpError
from xclp_crypto.params import Agreement
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.failures import Accusation, Failure
from xclp_crypto.transport.network import client, frames, server
from xclp_crypto.transport.network.frames import HEAD, PIECE_BYTES, Frame
from xclp_crypto.transport.network.limits import Limits
from xclp_crypto.transport.network.party import Connection

ATTACKER = "c"
CLIENTS = (VICTIM, "b", ATTACKER)
LIMITS = Limits(join=20, grace=6, deadline=3)
SECONDS = 60
"""In which a run over sockets must end, on a busy machine."""

NUMBERS = (0, 1, 2, 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1, 1 << 40, (1 << 63) - 1)
ODD = (-1, 1 << 63, 10**30, 1.5, True, None, "1")
PIECE = b"\x04\x21four"


@dataclass(frozen=True)
class HeaderCase:
    """A party whose header is false.

    Attributes:
        carrier: of the header.
        attacker: whose it is.
        message: what has the header.
        what: describes what is false.
        ending: runs it.
    """

    carrier: str
    attacker: str
    message: str
    what: str
    ending: Callable[[], Ending]
    protocol: str = "sum"

    @property
    def kind(self) -> tuple[str, ...]:
        return self.carrier, self.attacker, self.message, self.what

    def __str__(self) -> str:
        return f"{self.protocol}, by {self.carrier}: {self.attacker}, {self.message}: {self.what}"


@cache
def _tls() -> Callable[[str], Any]:
    folder = Path(tempfile.mkdtemp(prefix="xclp-attackers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return network_runs.authority(folder / "certs", CLIENTS)


@dataclass(frozen=True)
class _False:
    """Bytes that an attacker writes once on each connection.

    Attributes:
        data: the bytes.
        at: the frame at which it does.
        instead: whether in its place, and not after it.
    """

    data: bytes
    at: type[Frame] = frames.Resume
    instead: bool = False

    def on(self, connection: Connection) -> None:
        """Write it on this connection when it is time."""
        send = connection.send

        async def sending(frame: Frame) -> None:
            if not isinstance(frame, self.at):
                await send(frame)
                return
            vars(connection)["send"] = send
            if not self.instead:
                await send(frame)
            async with connection._turn:
                connection._writer.write(self.data)
                await connection._writer.drain()

        vars(connection)["send"] = sending


def _network(attacker: str, lie: _False) -> Ending:
    """Run over TLS; a server lies to one client."""

    class Client(client.ClientParty):
        async def _use(self, connection: Connection) -> None:
            if self.me == attacker:
                lie.on(connection)
            await super()._use(connection)

    class Server(server.ServerParty):
        async def _serve(self, connection: Connection, name: str, known: Any) -> None:
            if (attacker, name) == (SERVER, VICTIM):
                lie.on(connection)
            await super()._serve(connection, name, known)

    begun = time.monotonic()
    with patch.object(client, "ClientParty", Client), patch.object(server, "ServerParty", Server):
        found = network_runs.run(seedless(SUBJECTS["sum"].make()), _tls(), limits=LIMITS)
    assert time.monotonic() - begun < SECONDS, "it takes too long"
    errors = {p: r for p, r in found.items() if isinstance(r, BaseException)}
    for party, error in errors.items():
        if party != attacker and not isinstance(error, XclpError):
            raise error
    return Ending({p: r for p, r in found.items() if p not in errors}, errors)


def _bytes_of(frame: Frame) -> Iterator[tuple[str, bytes]]:
    """Yield each integer of a frame, and of its head, at its limits; and other lengths."""
    fixed, rest = (bytes(part) for part in frames.Codec((*CLIENTS, SERVER)).encode(frame))
    names = ("length", "kind", *(field.name for field in fields(frame)))
    layout = re.findall(r"\d*\w|\?", f"{HEAD.format}{frame.LAYOUT.format}".replace(">", ""))
    longest, at = PIECE_BYTES + frames.Data.LAYOUT.size, 0
    for name, kind in zip(names, layout, strict=False):
        size = struct.calcsize(">" + kind)
        top = 1 << (8 * size)
        more = (longest, longest + 1) if name == "length" else ()
        for number in () if "s" in kind else (0, 1, 2, top // 2 - 1, top // 2, top - 1, *more):
            changed = fixed[:at] + number.to_bytes(size, "big") + fixed[at + size :]
            if changed != fixed:
                yield f"{name} = {number}", changed + rest
        at += size
    for size in (0, 1, PIECE_BYTES, PIECE_BYTES + 1) if frame.REST else ():
        head = HEAD.pack(frame.LAYOUT.size + size, frame.KIND)
        yield f"{size} bytes at its end", head + fixed[HEAD.size :] + (rest + bytes(size))[:size]


def _whys() -> Iterator[tuple[str, bytes]]:
    """Yield what can be told of a failure: codes, blamed parties, lengths."""
    for code in (0, 7, 8, 254, 255):
        for size in (0, 1, 3, 1 << 15, (1 << 16) - 1):
            what = f"code {code}, {size} bytes of names"
            yield what, struct.pack(">BHH", code, size, 0) + b"a\0nobody, why"
    for parties in _BLAMED:
        made_up = Accusation(ATTACKER, parties, 7, "run", bytes(64))
        yield f"blames {parties}", frames.told(Failure(7, parties, "why", (made_up,)))
    for why in (b"", b"\xff", b"\xff" * 4, bytes(1 << 16), b"\xff" * PIECE_BYTES):
        yield f"why {why[:4]!r}, {len(why)} bytes", why


_BLAMED = ((), (VICTIM,), (VICTIM, "b"), (SERVER,), (ATTACKER,), ("nobody",), (VICTIM,) * 10_000)


def _between(kinds: Sequence[type[Frame]], pairs: Sequence[tuple[str, str]]) -> list[Frame]:
    """Return frames about messages of the first of each pair to the second."""
    data = (0, 1, len(PIECE), 0, PIECE)
    return [k(*pair, *(data if k is frames.Data else (0,))) for k in kinds for pair in pairs]


def _examples(attacker: str) -> list[Frame]:
    """Return one of each kind, true or not; of those between parties, one for each addressee."""
    hello = frames.Hello(
        instance=bytes(16), incarnation=bytes(16), agreement=Agreement(version=1).encode()
    )
    me, to = (SERVER, [VICTIM]) if attacker == SERVER else (ATTACKER, [VICTIM, SERVER])
    sent = [(me, peer) for peer in to] + [("b", VICTIM)]
    back = [(peer, me) for peer in to] + [(VICTIM, "b")]
    some = [frames.Ready(), hello, frames.Welcome(bytes(16)), frames.Refused(b"\0\0\0")]
    some += [frames.Beat(False, 0), frames.DroppedOut("b"), frames.Bye(False), frames.End(False)]
    return [*some, *_between((frames.Ack, frames.Resume), back), *_between((frames.Data,), sent)]


def _false_frames(attacker: str) -> Iterator[tuple[str, str, _False]]:
    """Yield the frame, what is false, and the bytes."""
    greetings = (frames.Ready, frames.Welcome) if attacker == SERVER else (frames.Hello,)
    for example in _examples(attacker):
        kind = type(example)
        between = isinstance(example, frames._Between)
        where = f", {example.sender} → {example.receiver}" if between else ""
        for what, data in _bytes_of(example):
            yield kind.__name__, what + where, _False(data)
            if kind in greetings:
                yield kind.__name__, f"{what}, as greeting", _False(data, kind, instead=True)
            if between:
                yield kind.__name__, f"{what}{where}, later", _False(data, frames.Data)
    ends = (frames.End, frames.Refused) if attacker == SERVER else (frames.Bye,)
    for kind in ends:
        for what, why in _whys():
            flag = b"" if kind is frames.Refused else bytes([kind is frames.End])
            why = why[: PIECE_BYTES - 1]
            yield kind.__name__, what, _False(HEAD.pack(len(flag + why), kind.KIND) + flag + why)


def _false_headers(counts: Sequence[str], flags: Sequence[str]) -> Iterator[tuple[str, Header]]:
    """Yield what is false in a header in JSON, and what makes it so."""

    def item(at: int, value: object, header: dict[str, Any]) -> None:
        for entry in header["items"]:
            entry[at] = value

    def count(name: str, party: str, value: object, header: dict[str, Any]) -> None:
        header[name][party] = value

    def whole(name: str, value: object, header: dict[str, Any]) -> None:
        header[name] = value

    parties = (VICTIM, "b", ATTACKER, SERVER, "nobody", "")
    for number in (*NUMBERS, *ODD):
        for at, what in enumerate(("number", "depth", "size"), 2):
            yield f"{what} = {number!r}", partial(item, at, number)
        for name in counts:
            for party in parties[:-1]:
                yield f"{name} of {party} = {number!r}", partial(count, name, party, number)
        yield f"version = {number!r}", partial(whole, "version", number)
    for at, what in enumerate(("sender", "receiver")):
        for party in parties:
            yield f"{what} {party!r}", partial(item, at, party)
    for name in flags:
        for value in (True, False, 1):
            yield f"{name} = {value!r}", partial(whole, name, value)
    for name in (*counts, "items"):
        for value in ([], {}, None):
            yield f"{name} = {value!r}", partial(whole, name, value)
    for code in (*NUMBERS[:4], 7, 8, *ODD):
        for blamed in _BLAMED[:-1]:
            what = f"failure {code!r}, blames {blamed}"
            made_up = Accusation.encode_all([Accusation(ATTACKER, blamed, 7, "run", bytes(64))])
            yield what, partial(whole, "failure", [code, blamed, "why", made_up.hex()])


def _false_answers() -> Iterator[tuple[str, Header]]:
    yield from _false_headers(("fed", "kept"), ("more", "ended"))
    for name, values in {
        "missing": ([], [VICTIM], [SERVER], ["nobody"], [1], "a"),
        "name": (VICTIM, "nobody", "", 1, None),
        "instance": ("", "00", "0", "zz", None),
    }.items():
        for value in values:
            yield f"{name} = {value!r}", partial(dict.update, **{name: value})  # type: ignore[misc]


def _false_questions() -> Iterator[tuple[str, Header]]:
    for what, change in _false_headers(("taken",), ()):
        if not what.startswith("failure"):  # which is looked at where a session ends
            yield what, change
    silent = ["silent", ""]
    for gone in (["a"], {"b": None}, {"b": silent}, {SERVER: silent}, {"b": 1}, {"b": ["x", "x"]}):
        yield f"gone = {gone!r}", partial(dict.update, gone=gone)


def header_cases() -> Iterator[HeaderCase]:
    """Yield all."""
    for attacker in (ATTACKER, SERVER):
        for message, what, lie in _false_frames(attacker):
            ending = partial(_network, attacker, lie)
            yield HeaderCase("network", attacker, message, what, ending)
    make = SUBJECTS["sum"].make()
    kinds = ((ATTACKER, "Answer", _false_answers), (SERVER, "Ask", _false_questions))
    for attacker, message, lies in kinds:
        for what, change in lies():
            for always in (True, False):
                when = "always" if always else "once it has spoken"

                def ending(
                    attacker: str = attacker, change: Header = change, always: bool = always
                ) -> Ending:
                    return supersteps(make(), {attacker: (change, always)})

                yield HeaderCase("supersteps", attacker, message, f"{what}, {when}", ending)
