"""All parties of a protocol in one process, with every message really encoded, moved and decoded.

The driver meters bytes and rounds, attributes seconds to party and step, can let parties vanish
and messages be lost or altered, and is deterministic: parties run in the order in which they were
given, each until it waits. Time does not pass; a *deadline* is the moment at which nobody can
move any more. Then one wait ends, in this order: one on parties that have all ended; one that has
a deadline (`gather` with `at_least`), of the party given first, so give the server last: its
deadlines are the longest; and only then one without a deadline, which stalls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from xclp_crypto import wire
from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    ParameterError,
    Stalled,
    TooFewParties,
    XclpError,
)
from xclp_crypto.role import Compute, DriverIO, Operation, Receive, RoleIO, Send, dims_for
from xclp_crypto.transport.meter import Cost, Traffic, Work
from xclp_crypto.wire import Message

Role = Callable[[RoleIO], Coroutine[Any, Any, Any]]
"""A party: takes its `RoleIO`, returns the coroutine to run."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One encoded message on its way, as a fault sees it."""

    index: int
    step: str
    sender: str
    receiver: str
    payload: bytes

    @property
    def message(self) -> str:
        """Return the name of the message type."""
        return wire.type_name(self.payload)


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong in a run.

    Attributes:
        vanish: by party, the number of operations (sends, receives, computations) after which it
            disappears without a word.
        on_message: takes each message and returns the bytes to deliver, or None to lose it.
    """

    vanish: Mapping[str, int] = field(default_factory=dict)
    on_message: Callable[[Delivery], bytes | None] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A party is about to compute something."""

    party: str
    step: str
    activity: str


@dataclass(frozen=True)
class Outcome:
    """What a run produced.

    Attributes:
        results: return value by party that finished.
        errors: typed error by party that failed, in the order of failing.
        vanished: parties that `Faults.vanish` removed.
        cost: the metered cost.
        views: by party, what it received and opened as ``(sender, message)``; empty unless
            recorded.
        operations: by party, how many operations it performed.
        unread: messages by ``(sender, receiver)`` that nobody read.
    """

    results: dict[str, Any]
    errors: dict[str, XclpError]
    vanished: tuple[str, ...]
    cost: Cost
    views: dict[str, list[tuple[str, Message]]]
    operations: dict[str, int]
    unread: dict[tuple[str, str], int]

    def raise_errors(self) -> Outcome:
        """Return this outcome, or raise the first error of any party."""
        for error in self.errors.values():
            raise error
        return self


class _Party:
    """State of one running role."""

    def __init__(self, name: str, role: Role, record: bool) -> None:
        self.name = name
        self.view: list[tuple[str, Message]] = []
        self.io = DriverIO(name, self.view if record else None)
        self.coroutine = role(self.io)
        self.inbox: dict[str, deque[tuple[bytes, int]]] = {}
        self.waiting: Receive | None = None
        self.step = self.io.current_step
        self.ended = False
        self.depth = 0
        self.operations = 0

    def missing(self) -> tuple[str, ...]:
        """Return the parties that the current wait lacks."""
        if self.waiting is None:
            return ()
        return tuple(p for p in self.waiting.parties if not self.inbox.get(p))


class Simulation:
    """Driver for all parties in this process.

    Args:
        faults: what goes wrong.
        record: keep every party's view, for tests of what a party learns.
        progress: called before each computation.
    """

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        record: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._faults = faults or Faults()
        self._elsewhere: tuple[str, ...] = ()
        self._record = record
        self._progress = progress

    def run(self, roles: Mapping[str, Role]) -> Outcome:
        """Run the parties to their ends; errors of parties are collected, not raised.

        Args:
            roles: party name to role, the server last.
        """
        for name in self._faults.vanish:
            if name not in roles:
                raise ParameterError(f"cannot drop {name!r}: the parties are {', '.join(roles)}")
        self._parties = {name: _Party(name, role, self._record) for name, role in roles.items()}
        self._ready: deque[tuple[_Party, Any]] = deque((p, None) for p in self._parties.values())
        self._cost = Cost()
        self._index = 0
        self._results: dict[str, Any] = {}
        self._errors: dict[str, XclpError] = {}
        self._vanished: list[str] = []
        try:
            while self._ready or self._wait_for_more():
                party, answer = self._ready.popleft()
                self._advance(party, answer)
        finally:
            for party in self._parties.values():
                party.coroutine.close()
        return Outcome(
            results=self._results,
            errors=self._errors,
            vanished=tuple(self._vanished),
            cost=self._cost,
            views={p.name: p.view for p in self._parties.values()},
            operations={p.name: p.operations for p in self._parties.values()},
            unread={
                (sender, p.name): len(queue)
                for p in self._parties.values()
                for sender, queue in p.inbox.items()
                if queue
            },
        )

    def _advance(self, party: _Party, answer: Any) -> None:
        """Let `party` run until it waits or ends; `answer` is a value, or an error to raise."""
        resumed = perf_counter()
        try:
            while True:
                if isinstance(answer, XclpError):
                    operation: Operation = party.coroutine.throw(answer)
                else:
                    operation = party.coroutine.send(answer)
                party.step = party.io.current_step
                self._count_role(party, resumed)
                if party.operations >= self._faults.vanish.get(party.name, party.operations + 1):
                    self._vanished.append(party.name)
                    self._end(party)
                    return
                party.operations += 1
                match operation:
                    case Send():
                        answer = self._send(party, operation)
                    case Compute():
                        answer = self._compute(party, operation)
                    case Receive():
                        party.waiting = operation
                        if party.missing():
                            return
                        answer = self._receive(party, operation)
                resumed = perf_counter()
        except StopIteration as stop:
            self._count_role(party, resumed)
            self._results[party.name] = stop.value
            self._end(party)
        except XclpError as error:
            self._count_role(party, resumed)
            self._errors[party.name] = error
            self._end(party)

    def _count_role(self, party: _Party, since: float) -> None:
        """Attribute the time that the role itself took since it was resumed."""
        self._cost.seconds[Work(party.step, "role", party.name)] += perf_counter() - since

    def _end(self, party: _Party) -> None:
        party.ended = True
        party.waiting = None
        party.coroutine.close()

    def _send(self, party: _Party, operation: Send) -> XclpError | None:
        step = party.io.current_step
        started = perf_counter()
        payload = wire.encode(operation.message)
        self._cost.seconds[Work(step, "wire", party.name)] += perf_counter() - started
        name = wire.type_name(payload)
        for to in operation.to:
            if to not in (*self._parties, *self._elsewhere) or to == party.name:
                return ParameterError(
                    f"{party.name} sends {name} to {to!r}, which is no other party"
                )
            traffic = Traffic(step, name, party.name, to)
            self._cost.bytes_sent[traffic] += len(payload)
            self._cost.messages[traffic] += 1
            self._cost.depths[step].add(party.depth + 1)
            self._deliver(Delivery(self._index, step, party.name, to, payload), party.depth + 1)
            self._index += 1
        return None

    def _deliver(self, delivery: Delivery, depth: int) -> None:
        payload: bytes | None = delivery.payload
        if self._faults.on_message is not None:
            payload = self._faults.on_message(delivery)
        if payload is None:
            return
        if delivery.receiver in self._parties:
            self._put(delivery.sender, delivery.receiver, payload, depth)
        else:
            self._forward(delivery.sender, delivery.receiver, payload, depth)

    def _forward(self, sender: str, receiver: str, payload: bytes, depth: int) -> None:
        """Hand a message to a party that does not run here; for drivers that know some."""
        raise ParameterError(f"{receiver} does not run here")

    def _put(self, sender: str, receiver_name: str, payload: bytes, depth: int) -> None:
        """Put a message into the inbox of a party, which goes on if it waited for it."""
        receiver = self._parties[receiver_name]
        receiver.inbox.setdefault(sender, deque()).append((payload, depth))
        if receiver.waiting is not None and not receiver.missing():
            self._ready.append((receiver, self._receive(receiver, receiver.waiting)))

    def _receive(self, party: _Party, wait: Receive) -> dict[str, Message] | XclpError:
        """End `wait` with one message from each of its parties that has sent one."""
        party.waiting = None
        started = perf_counter()
        got: dict[str, Message] = {}
        for sender in wait.parties:
            if not party.inbox.get(sender):
                continue
            payload, depth = party.inbox[sender].popleft()
            party.depth = max(party.depth, depth)
            try:
                got[sender] = wire.decode(wait.kind, payload, **dims_for(sender, wait.dims))
            except DecodeError as error:
                return FaultyPeer(sender, f"{wait.kind.__name__}: {error}")
        self._cost.seconds[Work(party.io.current_step, "wire", party.name)] += (
            perf_counter() - started
        )
        return got

    def _compute(self, party: _Party, operation: Compute) -> Any:
        name = getattr(operation.function, "__name__", type(operation.function).__name__)
        step = party.io.current_step
        if self._progress is not None:
            self._progress(Progress(party.name, step, name.replace("_", " ").strip()))
        started = perf_counter()
        try:
            return operation.function(*operation.args, **operation.kwargs)
        except XclpError as error:
            return error
        finally:
            self._cost.seconds[Work(step, name, party.name)] += perf_counter() - started

    def _wait_for_more(self) -> bool:
        """Nobody can move: make someone able to, or return False when nobody waits."""
        return self._give_up_one_wait()

    def _give_up_one_wait(self) -> bool:
        """At the deadline, end one wait; False when nobody waits."""
        waiting = [(p, p.waiting) for p in self._parties.values() if p.waiting is not None]
        if not waiting:
            return False
        hopeless = [
            (p, wait)
            for p, wait in waiting
            if all(m not in self._parties or self._parties[m].ended for m in p.missing())
        ]
        deadlines = [(p, wait) for p, wait in waiting if wait.at_least is not None]
        party, wait = (hopeless or deadlines or waiting)[0]
        missing = party.missing()
        present = len(wait.parties) - len(missing)
        answer: dict[str, Message] | XclpError
        if wait.at_least is None:
            answer = Stalled(party.name, party.io.current_step, missing, wait.kind.__name__)
        elif present < wait.at_least:
            answer = TooFewParties(party.io.current_step, present, wait.at_least)
        else:
            answer = self._receive(party, wait)
        party.waiting = None
        self._ready.append((party, answer))
        return True
