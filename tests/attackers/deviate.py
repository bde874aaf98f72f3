"""How an attacker is written: an honest role of which single statements are replaced.

A *statement* is one message to one receiver, as the role says it: opened, before its channel seals
it. A *lie* takes a statement, with those before it, and returns what is sent in its place, to whom.
What it returns is sealed as an honest party would seal it, so that it arrives as authentic::

    attacker = lying(role, {3}, LIES["silence"])   # which are replaced, by number from 0
    with deviating():
        run(lambda: make() | {"a": attacker})

The role may run under any driver, and over any transport.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from unittest.mock import patch

from xclp_crypto import wire
from xclp_crypto.fields import Raw
from xclp_crypto.protocols.setup.channel import Sealed, SealedIO
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import TAG_BYTES, Message


@dataclass(frozen=True)
class Statement:
    """One message to one receiver, opened.

    Attributes:
        number: of the statements of its sender, from 0.
        act: of its sender's sends, from 0; a message to several receivers is one act.
        step: in which it is made.
        to: the receiver.
        payload: tag and body.
        fields: by name, where they are in the payload.
    """

    number: int
    act: int
    step: str
    to: str
    payload: bytes
    fields: Mapping[str, slice]

    @property
    def message(self) -> str:
        """Return the name of the message type."""
        return wire.type_name(self.payload)


Said = list[tuple[str, bytes]]
"""What is sent in the place of a statement: receivers and payloads."""

Lie = Callable[[Statement, list[Statement]], Said | None]
"""Takes a statement and those before it; None where this lie changes nothing of it."""


def fields_of(message: Message) -> dict[str, slice]:
    """Return where each field lies in the encoded message."""
    dims = {public: getattr(message, public) for public in message._public}
    for name, kind in message._sent:
        if kind.named:
            kind.bind(getattr(message, name), dims)
    places, at = {}, TAG_BYTES
    for name, kind in message._sent:
        n = sum(
            len(memoryview(part).cast("B")) for part in kind.encode(getattr(message, name), dims)
        )
        places[name], at = slice(at, at + n), at + n
    return places


def forged(payload: bytes) -> Message:
    """Return what `wire.encode` writes as this payload."""
    kind = type(
        "Forged",
        (),
        {
            "TAG": int.from_bytes(payload[:TAG_BYTES], "big"),
            "_public": (),
            "_sent": (("data", Raw("n")),),
            "check": lambda self: None,
            "data": payload[TAG_BYTES:],
        },
    )
    return cast(Message, kind())


class LyingIO(RoleIO):
    """A `RoleIO` that says other things than its role.

    Args:
        io: the honest one.
        which: numbers of the statements that are replaced.
        lie: takes these.
        silent: whether it says nothing afterwards.

    Attributes:
        made: all statements so far, as the role made them.
    """

    def __init__(self, io: RoleIO, which: Collection[int], lie: Lie, silent: bool = False) -> None:
        super().__init__(io.name)
        self._steps = io._steps
        self.honest = io
        self.made: list[Statement] = []
        self._which, self._lie = which, lie
        self._last = max(which) if silent else math.inf
        self._acts = 0
        for name in ("recv", "gather", "gather_each", "compute", "observe", "report", "introduce"):
            setattr(self, name, getattr(io, name))

    def said(self, to: str | Collection[str], message: Message) -> Said:
        """Return what is sent in the place of a message."""
        payload, places = wire.encode(message), fields_of(message)
        said: Said = []
        for peer in (to,) if isinstance(to, str) else to:
            number = len(self.made)
            now = Statement(number, self._acts, self.current_step, peer, payload, places)
            lied = self._lie(now, self.made) if number in self._which else None
            self.made.append(now)
            if number <= self._last:
                said += [(peer, payload)] if lied is None else lied
        self._acts += 1
        return said

    async def send(self, to: str | Collection[str], message: Message) -> None:
        for peer, payload in self.said(to, message):
            await self.honest.send(peer, forged(payload))

    recv = gather = gather_each = compute = observe = cast(Any, None)  # see `__init__`
    report = introduce = cast(Any, None)


_send_sealed = SealedIO.send


async def _seal_lies(self: SealedIO, to: str | Collection[str], message: Message) -> None:
    below = self._io
    if not isinstance(below, LyingIO):
        await _send_sealed(self, to, message)
        return
    for peer, payload in below.said(to, message):
        tag = payload[:TAG_BYTES]
        box = self._box(peer)[0].seal(payload[TAG_BYTES:], tag)
        await below.honest.send(peer, Sealed(tag, box))


@contextmanager
def deviating() -> Iterator[None]:
    """Let those who lie do so over sealed channels as well."""
    with patch.object(SealedIO, "send", _seal_lies):
        yield


def lying(
    role: Any,
    which: Collection[int],
    lie: Lie,
    made: list[Statement] | None = None,
    *,
    silent: bool = False,
) -> Any:
    """Return a role of which these statements are replaced.

    Args:
        role: the honest one, with or without randomness as its second argument.
        which: numbers of statements.
        lie: what is said instead.
        made: is given all statements of the honest role.
        silent: whether nothing is said after these.
    """

    async def attacker(io: RoleIO, *rng: Any) -> Any:
        liar = LyingIO(io, which, lie, silent)
        if made is not None:
            liar.made = made
        return await role(liar, *rng)

    return attacker


def _same(now: Statement, change: Callable[[bytes], bytes]) -> Said | None:
    changed = change(now.payload)
    return None if changed == now.payload else [(now.to, changed)]


def _earlier(now: Statement, before: list[Statement]) -> Statement | None:
    """Return the last statement before to the same receiver."""
    return next((s for s in reversed(before) if s.to == now.to), None)


def _late(now: Statement, before: list[Statement]) -> Said | None:
    """Say what comes before after it; the one before is said once more, in its place."""
    earlier = _earlier(now, before)
    return earlier and [(now.to, now.payload), (now.to, earlier.payload)]


def _to_another(now: Statement, before: list[Statement]) -> Said | None:
    other = next((s.to for s in reversed(before) if s.to != now.to), None)
    return other and [(other, now.payload)]


def _of_another_type(now: Statement, before: list[Statement]) -> Said | None:
    other = next((s for s in before if s.message != now.message), None)
    return other and [(now.to, other.payload)]


def _flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


LIES: Mapping[str, Lie] = {
    "silence": lambda now, _: [],
    "said twice": lambda now, _: [(now.to, now.payload)] * 2,
    "said again what came before": lambda now, before: (
        (earlier := _earlier(now, before)) and [(now.to, earlier.payload)]
    ),
    "out of order": _late,
    "to somebody else": _to_another,
    "another type": _of_another_type,
    "unknown type": lambda now, _: [(now.to, b"\xff\xfe" + now.payload[TAG_BYTES:])],
    "a byte too few": lambda now, _: (
        [(now.to, now.payload[:-1])] if len(now.payload) > TAG_BYTES else None
    ),
    "a byte too many": lambda now, _: [(now.to, now.payload + b"\0")],
    "nothing but the type": lambda now, _: _same(now, lambda p: p[:TAG_BYTES]),
    "a megabyte": lambda now, _: [(now.to, now.payload + bytes(1 << 20))],
}
"""Lies about a whole statement: silence, repetition, order, receivers, types and sizes."""

_VALUES: Mapping[str, Callable[[bytes], bytes]] = {
    "all zeros": lambda v: bytes(len(v)),
    "all ones": lambda v: b"\xff" * len(v),
    "first byte one more": lambda v: bytes([(v[0] + 1) % 256]) + v[1:],
    "first bit": lambda v: _flipped(v, 0, 0x80),
    "last bit": lambda v: _flipped(v, len(v) - 1, 1),
    "highest bit of the last byte": lambda v: _flipped(v, len(v) - 1, 0x80),
    "backwards": lambda v: v[::-1],
    "halves exchanged": lambda v: v[len(v) // 2 :] + v[: len(v) // 2],
}
"""Lies about the value of one field: limits of its numbers, the bits beside, and their order."""


def about(field: str, change: Callable[[bytes], bytes]) -> Lie:
    """Return the lie that changes one field."""

    def lie(now: Statement, before: list[Statement]) -> Said | None:
        place = now.fields.get(field, slice(0))
        value = now.payload[place]
        if not value:
            return None
        return _same(now, lambda p: p[: place.start] + change(value) + p[place.stop :])

    return lie


def lies_about(statement: Statement) -> dict[str, Lie]:
    """Return all lies about a statement, by description."""
    values = {
        f"{field}: {what}": about(field, change)
        for field in statement.fields
        for what, change in _VALUES.items()
    }
    return {**LIES, **values}
