"""How messages are carried between parties of which one lies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from xclp_crypto.errors import DecodeError, ParameterError, XclpError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.failures import Failure
from xclp_crypto.transport.log import NoLog
from xclp_crypto.transport.questions import (
    Answer,
    Ask,
    answer_from,
    ask_from,
    header_of,
    sizes_of,
)
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.simulate import Simulation
from xclp_crypto.transport.supersteps import Relay, answer

MAX_MESSAGE = 4 << 20
MAX_OPERATIONS = 20_000
MAX_TURNS = 2000

M = TypeVar("M", Ask, Answer)


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        results: by party.
        errors: by party.
    """

    results: Mapping[str, Any]
    errors: Mapping[str, XclpError]

    def without(self, party: str) -> Ending:
        """Return how it ended for the others."""
        return Ending(
            *({p: r for p, r in d.items() if p != party} for d in (self.results, self.errors))
        )


@dataclass(frozen=True)
class Carrier:
    """A way to carry messages.

    Attributes:
        run: runs roles, which take a `RoleIO` alone, to their ends.
        through_server: whether there must be a server.
    """

    run: Callable[[Mapping[str, Any]], Ending]
    through_server: bool

    def __call__(self, roles: Mapping[str, Any]) -> Ending:
        return self.run(roles)


def _simulation(roles: Mapping[str, Any]) -> Ending:
    outcome = Simulation(max_operations=MAX_OPERATIONS).run(roles)
    return Ending(outcome.results, outcome.errors)


def _durable(roles: Mapping[str, Any], name: str) -> DurableRole:
    peers = [peer for peer in roles if peer != name]
    role = roles[name]
    return DurableRole(name, lambda io, rng: role(io), NoLog(), peers=peers, rng=SeededRng(0))


Header = Callable[[dict[str, Any]], None]
"""Changes the header of an answer or a question, decoded from JSON."""

VICTIM = "a"
"""The client to whom a server's questions are false."""


def _arrived(message: M, change: Header | None) -> M:
    """Return a question or an answer as it arrives, with a header that may be false."""
    header = json.loads(header_of(message))
    if change is not None:
        change(header)
    text = json.dumps(header)
    sizes = sizes_of(text, MAX_MESSAGE)
    payloads = [bytes(item.whole) for item in message.items][: len(sizes)]
    found = (ask_from if isinstance(message, Ask) else answer_from)(text, payloads)
    return cast(M, found)


def supersteps(
    roles: Mapping[str, Any], changed: Mapping[str, tuple[Header, bool]] | None = None
) -> Ending:
    """Run a relay and clients that are asked; a turn is a second, and nothing gets lost.

    Args:
        roles: by party.
        changed: by party, what becomes of its headers; of all, or from the first on that follows
            one with a message.
    """
    now = 0.0
    clients = {name: _durable(roles, name) for name in roles if name != SERVER}
    relay = Relay(
        _durable(roles, SERVER),
        tuple(clients),
        join=50,
        deadline=100,
        total=1000,
        retry=5,
        max_message=MAX_MESSAGE,
        clock=lambda: now,
    )
    refused = set()
    errors: dict[str, XclpError] = {}
    spoke: set[str] = set()

    def said(party: str, message: M) -> M:
        change, always = (changed or {}).get(party, (None, False))
        lies = always or party in spoke
        if message.items:
            spoke.add(party)
        return _arrived(message, change if lies else None)

    def ask(name: str, question: Ask) -> None:
        try:
            asked = said(SERVER, question) if name == VICTIM else question
            got = answer(clients[name], asked, deferred=False)
        except XclpError as error:  # as the Flower app says
            errors[name] = error
            got = Answer(name, failure=Failure.of(error))
        try:
            arrived = said(name, got)
            if arrived.name == name:
                relay.take(arrived)
                return
        except (DecodeError, ParameterError):
            pass
        refused.add(name)  # as Flower's server does

    for name in clients:
        ask(name, Ask())
    for _ in range(MAX_TURNS):
        if relay.done:
            break
        now += 1
        for name, question in relay.due():
            if name not in refused:
                ask(name, question)
        relay.turn()
    else:
        raise AssertionError(f"does not end: {relay.role.step}")
    parties = {**clients, SERVER: relay.role}
    errors |= {name: role.failure for name, role in parties.items() if role.failure is not None}
    if relay.failure is not None:  # which all that have not ended are told
        errors[SERVER] = relay.failure
        told = relay.told
        assert told is not None
        errors = {
            name: told.heard("the server", tuple(parties), role.signer)
            for name, role in clients.items()
            if not role.ended
        } | errors
    results = {n: r.result() for n, r in parties.items() if r.ended and n not in errors}
    for role in parties.values():
        role.close()
    return Ending(results, errors)


CARRIERS: Mapping[str, Carrier] = {
    "simulation": Carrier(_simulation, through_server=False),
    "supersteps": Carrier(supersteps, through_server=True),
}
