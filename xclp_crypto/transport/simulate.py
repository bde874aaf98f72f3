"""All parties of a protocol in one process, with every message really encoded, moved and decoded.

The driver meters bytes and rounds, attributes seconds to party and step, can let parties drop out
and messages be lost or altered, and is deterministic: parties run in the order in which they were
given, each until it waits, or until it would send to a party that has not yet read what it was
waiting for, which then goes first: so the messages of a party that never waits do not pile up. Time
does not pass; a *deadline* is the moment at which nobody can move any more. Then one wait ends, in
this order: one on parties that have all ended; one that has a deadline (`gather` with `at_least`)
and waits only for parties that have ended or are cut off; any other that has a deadline, of the
party given first, so give the server last: its deadlines are the longest. Only then a party that
was cut off comes back, and when there is none, a wait without a deadline stalls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xclp_crypto import wire
from xclp_crypto.errors import Endless, ParameterError, XclpError
from xclp_crypto.role import Operation
from xclp_crypto.transport.driver import Driver, Progress, Role, Running
from xclp_crypto.transport.meter import Cost
from xclp_crypto.wire import Message


@dataclass(frozen=True, slots=True)
class Delivery:
    """One encoded message on its way, as a fault sees it."""

    index: int
    step: str
    sender: str
    receiver: str
    payload: bytes
    depth: int
    """Length of the chain of messages that ends in this one, for `Cost.rounds`."""

    @property
    def message(self) -> str:
        """Return the name of the message type."""
        return wire.type_name(self.payload)


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong in a run.

    A point of a party is the number of operations (sends, receives, computations) after which it
    is reached, or the name of a step, at any level of nesting, before whose first operation it is.
    A point that is never reached has no effect.

    Attributes:
        dropouts: by party, the point at which it leaves without a word, for good.
        away: by party, the point at which it is cut off, once. Messages to it wait. It comes back
            and goes on when nobody else can move and no wait with a deadline is left, that is,
            after the others went on without it; of several, the one that was cut off first.
        on_message: takes each message and says what arrives in its place: bytes; None when it is
            lost; or a sequence of deliveries, in their order, which may be altered, repeated, held
            back from earlier calls, or none.
    """

    dropouts: Mapping[str, int | str] = field(default_factory=dict)
    away: Mapping[str, int | str] = field(default_factory=dict)
    on_message: Callable[[Delivery], bytes | Sequence[Delivery] | None] | None = None


@dataclass(frozen=True)
class Outcome:
    """What a run produced.

    Attributes:
        results: return value by party that finished.
        errors: typed error by party that failed, in the order of failing.
        dropouts: parties that `Faults.dropouts` removed.
        returned: parties that `Faults.away` cut off and that came back.
        cost: the metered cost.
        views: by party, what it received and opened as ``(sender, message)``; empty unless
            recorded.
        operations: by party, how many operations it performed.
        unread: messages by ``(sender, receiver)`` that nobody read.
    """

    results: dict[str, Any]
    errors: dict[str, XclpError]
    dropouts: tuple[str, ...]
    returned: tuple[str, ...]
    cost: Cost
    views: dict[str, list[tuple[str, Message]]]
    operations: dict[str, int]
    unread: dict[tuple[str, str], int]

    def raise_errors(self) -> Outcome:
        """Return this outcome, or raise the first error of any party."""
        for error in self.errors.values():
            raise error
        return self


class Simulation(Driver):
    """Driver for all parties in this process.

    Args:
        faults: what goes wrong.
        record: keep every party's view, for tests of what a party learns.
        progress: called before each computation, and as those go on that take long.
        max_operations: operations of all parties together after which the run is ended as endless;
            without it, there is no limit.
    """

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        record: bool = False,
        progress: Callable[[Progress], None] | None = None,
        max_operations: int | None = None,
    ) -> None:
        super().__init__(record=record, progress=progress)
        self._faults = faults or Faults()
        self._max_operations = max_operations

    def run(self, roles: Mapping[str, Role]) -> Outcome:
        """Run the parties, by name and the server last; their errors are collected, not raised.

        Raises:
            ParameterError: a fault names a party that does not exist, or a role is not async.
            Endless: more than `max_operations`.
        """
        self._faulty = {*self._faults.dropouts, *self._faults.away}
        for name in self._faulty:
            if name not in roles:
                raise ParameterError(f"cannot drop {name!r}: the parties are {', '.join(roles)}")
        self._operations = dict.fromkeys(roles, 0)
        self._performed = 0  # operations of all parties
        self._index = 0
        self._dropouts: list[str] = []
        self._away: dict[str, Operation] = {}  # what each does first when it comes back
        self._returned: list[str] = []
        try:
            self._start(roles)
            while self._ready or self._wait_for_more():
                self._advance(*self._ready.popleft())
        finally:
            self._close()
        return Outcome(
            results=self._results,
            errors=self._errors,
            dropouts=tuple(self._dropouts),
            returned=tuple(self._returned),
            cost=self._cost,
            views={p.name: p.view for p in self._parties.values()},
            operations=self._operations,
            unread={
                (sender, p.name): len(queue)
                for p in self._parties.values()
                for sender, queue in p.inbox.items()
                if queue
            },
        )

    def _may(self, party: Running, operation: Operation) -> bool:
        if party.name in self._faulty and self._removed(party, operation):
            return False
        self._count_operation(party)
        return True

    def _removed(self, party: Running, operation: Operation) -> bool:
        """Return whether a fault keeps `party` from its next operation."""
        if self._reached(party, self._faults.dropouts):
            self._dropouts.append(party.name)
            self._end(party)
            return True
        away_before = party.name in self._away or party.name in self._returned
        if not away_before and self._reached(party, self._faults.away):
            self._count_operation(party)
            self._away[party.name] = operation
            return True
        return False

    def _count_operation(self, party: Running) -> None:
        self._operations[party.name] += 1
        self._performed += 1
        if self._max_operations is not None and self._performed > self._max_operations:
            raise Endless(self._operations, self._max_operations)

    def _reached(self, party: Running, points: Mapping[str, int | str]) -> bool:
        """Return whether the next operation of `party` comes after its point of `Faults`."""
        point = points.get(party.name)
        if isinstance(point, str):
            return point in party.io.steps
        return point is not None and self._operations[party.name] >= point

    def _deliver(self, sender: str, receiver: str, payload: bytes, depth: int) -> None:
        """Deliver what a fault makes of a message."""
        on_message = self._faults.on_message
        if on_message is None:
            super()._deliver(sender, receiver, payload, depth)
            return
        step = self._parties[sender].step
        arriving = on_message(Delivery(self._index, step, sender, receiver, payload, depth))
        self._index += 1
        if isinstance(arriving, bytes):
            super()._deliver(sender, receiver, arriving, depth)
            return
        for d in arriving or ():
            super()._deliver(d.sender, d.receiver, d.payload, d.depth)

    def _gone(self, name: str) -> bool:
        return name not in self._parties or self._parties[name].ended

    def _wait_for_more(self) -> bool:
        """Nobody can move: end one wait or bring one party back; False when nobody is left."""
        waiting = [(p, p.waiting) for p in self._parties.values() if p.waiting is not None]
        limited = [(p, wait) for p, wait in waiting if wait.at_least is not None]
        urgent = [(p, wait) for p, wait in waiting if all(map(self._gone, p.missing))]
        # Whoever waits for a party that itself waits for one that is cut off would blame the wrong.
        urgent = urgent or [
            (p, wait)
            for p, wait in limited
            if all(self._gone(name) or name in self._away for name in p.missing)
        ]
        urgent = urgent or limited
        if self._away and not urgent:
            name = next(iter(self._away))
            self._returned.append(name)
            self._ready.append((self._parties[name], self._away.pop(name)))
            return True
        if not waiting:
            return False
        self._end_at_deadline(*(urgent or waiting)[0])
        return True
