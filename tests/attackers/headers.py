"""Numbers, names and flags in the headers of transports, each at its limits."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import network_runs
from carriers import Ending, supersteps
from durable_runs import seedless
from subjects import SUBJECTS

from xclp_crypto.errors import XclpError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.failures import Failure
from xclp_crypto.transport.network import client as client_module
from xclp_crypto.transport.network import frames
from xclp_crypto.transport.network.limits import Limits
from xclp_crypto.transport.questions import Answer, Item

ATTACKER = "c"
NUMBERS = (
    0,
    1,
    2,
    255,
    1 << 16,
    (1 << 31) - 1,
    (1 << 32) - 1,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
PIECE = b"\x04\x21four"


@dataclass(frozen=True)
class HeaderCase:
    """A client whose header is false.

    Attributes:
        carrier: of the header.
        message: what has the header.
        what: describes what is false.
        ending: runs it.
    """

    carrier: str
    message: str
    what: str
    ending: Callable[[], Ending]
    protocol: str = "sum"
    attacker: str = ATTACKER

    @property
    def kind(self) -> tuple[str, ...]:
        return self.carrier, self.message, self.what

    def __str__(self) -> str:
        return f"{self.protocol}, by {self.carrier}: {self.attacker}, {self.message}: {self.what}"


@cache
def _tls() -> Callable[[str], Any]:
    folder = Path(tempfile.mkdtemp(prefix="xclp-attackers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return network_runs.authority(folder / "certs", ("a", "b", "c"))


def _network(sent: frames.Frame) -> Ending:
    """Run over TLS; the attacker sends one more frame first."""

    class Liar(client_module.ClientParty):
        async def write_to(self, connection: Any, peers: Any) -> None:
            if self.me == ATTACKER:
                await connection.send(sent)
            await super().write_to(connection, peers)

    make = SUBJECTS["sum"].make()
    with patch.object(client_module, "ClientParty", Liar):
        limits = Limits(join=20, grace=6, deadline=3)
        found = network_runs.run(seedless(make), _tls(), limits=limits)
    errors = {p: r for p, r in found.items() if isinstance(r, BaseException)}
    for party, error in errors.items():
        if party != ATTACKER and not isinstance(error, XclpError):
            raise error
    return Ending({p: r for p, r in found.items() if p not in errors}, errors)


def _frames() -> Iterator[tuple[str, frames.Frame]]:
    examples = [
        kind(peer, ATTACKER, 0) for kind in (frames.Ack, frames.Resume) for peer in ("a", SERVER)
    ]
    examples += [frames.Data(ATTACKER, peer, 0, 1, len(PIECE), 0, PIECE) for peer in ("a", SERVER)]
    examples += [
        frames.Beat(False, 0),
        frames.Ack("a", "b", 0),
        frames.Data("a", "b", 0, 1, 1, 0, b""),
    ]
    for frame in examples:
        for field in fields(frame):
            if field.type == "int":
                for number in NUMBERS if field.name != "depth" else NUMBERS[:7]:
                    where = f" to {frame.addressee}" if isinstance(frame, frames._Between) else ""
                    yield f"{field.name} = {number}{where}", replace(frame, **{field.name: number})
    yield "computing without end", frames.Beat(True, 0)
    yield "of the server", frames.Welcome(bytes(16))
    yield "of the server", frames.DroppedOut("a")
    yield "of the server", frames.End(False)
    yield "well", frames.Bye(True)
    for parties in ((), ("a",), ("a", "b"), (SERVER,), (ATTACKER,), ("nobody",)):
        yield f"blames {parties}", frames.Bye(False, frames.told(Failure(7, parties, "why")))
    for why in (b"", b"\xff", b"\xff" * 4, b"\7\xff\xffa"):
        yield f"why {why!r}", frames.Bye(False, why)


def _false_answers() -> Iterator[tuple[str, Callable[[Answer], Answer]]]:
    def items(change: Callable[[Item], Item]) -> Callable[[Answer], Answer]:
        return lambda got: replace(got, items=tuple(map(change, got.items)))

    for number in NUMBERS[:-1]:
        for name in ("number", "depth"):
            yield f"{name} = {number}", items(partial(replace, **{name: number}))
        for name in ("fed", "kept"):
            for party in ("a", SERVER, "nobody"):
                yield (
                    f"{name} of {party} = {number}",
                    lambda got, name=name, party=party, number=number: replace(
                        got, **{name: {**getattr(got, name), party: number}}
                    ),
                )
    for name in ("sender", "receiver"):
        for party in ("a", ATTACKER, SERVER, "nobody", ""):
            yield f"{name} {party!r}", items(partial(replace, **{name: party}))
    for changes in (
        *({"missing": m} for m in ((), ("a",), (SERVER,), ("nobody",))),
        *({"more": m} for m in (True, False)),
        *({"ended": m} for m in (True, False)),
        *({"name": m} for m in ("a", "nobody", "")),
        *({"instance": m} for m in (b"", b"other")),
        {"items": ()},
        *(
            {"failure": Failure(code, parties, "why")}
            for code in (0, 7, 1 << 40)
            for parties in ((), ("a",), ("a", "b"), (SERVER,), (ATTACKER,), ("nobody",))
        ),
    ):
        yield f"{changes}", lambda got, changes=changes: replace(got, **changes)


def header_cases() -> Iterator[HeaderCase]:
    """Yield all."""
    for what, frame in _frames():
        yield HeaderCase("network", type(frame).__name__, what, partial(_network, frame))
    for what, change in _false_answers():
        for always in (True, False):
            when = "always" if always else "once it has spoken"
            roles: Callable[[], Mapping[str, Any]] = SUBJECTS["sum"].make()
            yield HeaderCase(
                "supersteps",
                "Answer",
                f"{what}, {when}",
                lambda roles=roles, change=change, always=always: supersteps(
                    roles(), {ATTACKER: (change, always)}
                ),
            )
