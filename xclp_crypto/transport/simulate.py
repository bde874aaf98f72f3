"""All parties of a protocol in one process, with every message really encoded, moved and decoded.

The driver meters bytes and rounds, attributes seconds to party and step, can let parties vanish
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

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from xclp_crypto import wire
from xclp_crypto.errors import (
    DecodeError,
    Endless,
    FaultyPeer,
    ParameterError,
    Stalled,
    TooFewParties,
    XclpError,
)
from xclp_crypto.role import (
    Compute,
    DriverIO,
    Operation,
    Receive,
    ReceiveEach,
    RoleIO,
    Send,
    dims_for,
    name_of,
)
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
        vanish: by party, the point at which it disappears without a word.
        away: by party, the point at which it is cut off, once. Messages to it wait. It comes back
            and goes on when nobody else can move and no wait with a deadline is left, that is,
            after the others went on without it; of several, the one that was cut off first.
        on_message: takes each message and says what arrives in its place: bytes; None when it is
            lost; or a sequence of deliveries, in their order, which may be altered, repeated, held
            back from earlier calls, or none.
    """

    vanish: Mapping[str, int | str] = field(default_factory=dict)
    away: Mapping[str, int | str] = field(default_factory=dict)
    on_message: Callable[[Delivery], bytes | Sequence[Delivery] | None] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A party is about to compute something, or has done part of it.

    Attributes:
        party: its name.
        step: the step that it is in.
        activity: what it computes.
        done: how much of it is done, in units of the activity.
        total: how much there is; 0 where that is not counted.
    """

    party: str
    step: str
    activity: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a run produced.

    Attributes:
        results: return value by party that finished.
        errors: typed error by party that failed, in the order of failing.
        vanished: parties that `Faults.vanish` removed.
        returned: parties that `Faults.away` cut off and that came back.
        cost: the metered cost.
        views: by party, what it received and opened as ``(sender, message)``; empty unless
            recorded.
        operations: by party, how many operations it performed.
        unread: messages by ``(sender, receiver)`` that nobody read.
    """

    results: dict[str, Any]
    errors: dict[str, XclpError]
    vanished: tuple[str, ...]
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


class _Party:
    """State of one running role.

    Attributes:
        waiting: the wait that it is in, if any.
        missing: the parties that this wait lacks, in its order.
        cut_off: the operation that it performs when it comes back.
    """

    def __init__(
        self, name: str, role: Role, record: bool, progress: Callable[[Progress], None] | None
    ) -> None:
        self.name = name
        self.view: list[tuple[str, Message]] = []

        def report(activity: str, done: int, total: int) -> None:
            if progress is not None:
                progress(Progress(name, self.step, activity, done, total))

        self.io = DriverIO(name, self.view if record else None, report)
        self.coroutine = role(self.io)
        self.inbox: dict[str, deque[tuple[bytes | bytearray, int]]] = {}
        self.waiting: Receive | None = None
        self.missing: dict[str, None] = {}
        self.cut_off: Operation | None = None
        self.step = self.io.current_step
        self.ended = False
        self.depth = 0
        self.operations = 0

    def take(self, sender: str) -> tuple[bytes | bytearray, int]:
        """Return the next message of `sender`, which is there."""
        queue = self.inbox[sender]
        message = queue.popleft()
        if not queue:  # among hundreds of parties, most links are used once
            del self.inbox[sender]
        return message

    def reached(self, point: int | str | None) -> bool:
        """Return whether the next operation comes after this point of `Faults`."""
        if isinstance(point, str):
            return point in self.io.steps
        return point is not None and self.operations >= point


class Driver:
    """What all drivers share: parties that run until they wait, and messages between them.

    Args:
        faults: what goes wrong.
        record: keep every party's view.
        progress: called before each computation, and as those go on that take long.
        max_operations: see `Simulation`.
    """

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        record: bool = False,
        progress: Callable[[Progress], None] | None = None,
        max_operations: int | None = None,
    ) -> None:
        self._faults = faults or Faults()
        self._elsewhere: tuple[str, ...] = ()
        self._record = record
        self._progress = progress
        self._max_operations = max_operations

    def _start(self, roles: Mapping[str, Role]) -> None:
        """Make the parties ready to run."""
        self._faulty = {*self._faults.vanish, *self._faults.away}
        for name in self._faulty:
            if name not in roles:
                raise ParameterError(f"cannot drop {name!r}: the parties are {', '.join(roles)}")
        self._parties = {
            name: _Party(name, role, self._record, self._progress) for name, role in roles.items()
        }
        self._known = {*roles, *self._elsewhere}
        # What a party gets next: an answer to its last operation, an error to raise, or an
        # operation that is to be performed first.
        self._ready: deque[tuple[_Party, Any]] = deque((p, None) for p in self._parties.values())
        self._woken: set[str] = set()  # those whose wait is over and that did not run since
        self._cost = Cost()
        self._index = 0
        self._operations = 0
        self._results: dict[str, Any] = {}
        self._errors: dict[str, XclpError] = {}
        self._vanished: list[str] = []
        self._away: dict[str, _Party] = {}
        self._returned: list[str] = []

    def _close(self) -> None:
        for party in self._parties.values():
            party.coroutine.close()

    def _outcome(self) -> Outcome:
        """Return what the run produced."""
        return Outcome(
            results=self._results,
            errors=self._errors,
            vanished=tuple(self._vanished),
            returned=tuple(self._returned),
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
        """Let `party` run until it waits, is cut off, ends, or should let a receiver read first."""
        self._woken.discard(party.name)
        if isinstance(answer, Operation):
            answer = self._perform(party, answer)
        faulty = self._faulty
        while party.waiting is None:
            operation = self._resume(party, answer)
            if operation is None or (party.name in faulty and self._removed(party, operation)):
                return
            self._count_operation(party)
            if self._gives_way(operation):
                self._ready.append((party, operation))
                return
            answer = self._perform(party, operation)

    def _gives_way(self, operation: Operation) -> bool:
        """Return whether others go first; the operation is performed afterwards."""
        return isinstance(operation, Send) and not self._woken.isdisjoint(operation.to)

    def _count_operation(self, party: _Party) -> None:
        party.operations += 1
        self._operations += 1
        if self._max_operations is not None and self._operations > self._max_operations:
            counts = {p.name: p.operations for p in self._parties.values()}
            raise Endless(counts, self._max_operations)

    def _resume(self, party: _Party, answer: Any) -> Operation | None:
        """Return the next operation of `party`, or None when it has ended."""
        started = perf_counter()
        try:
            if isinstance(answer, XclpError):
                operation: Operation = party.coroutine.throw(answer)
            else:
                operation = party.coroutine.send(answer)
        except StopIteration as stop:
            self._results[party.name] = stop.value
        except XclpError as error:
            self._errors[party.name] = error
        else:
            party.step = party.io.current_step
            self._count(party.step, "role", party, started)
            return operation
        self._count(party.step, "role", party, started)
        self._end(party)
        return None

    def _count(self, step: str, function: str, party: _Party, since: float) -> None:
        """Attribute the time since `since`."""
        self._cost.seconds[Work(step, function, party.name)] += perf_counter() - since

    def _removed(self, party: _Party, operation: Operation) -> bool:
        """Return whether a fault keeps `party` from its next operation."""
        if party.reached(self._faults.vanish.get(party.name)):
            self._vanished.append(party.name)
            self._end(party)
            return True
        gone_before = party.name in self._away or party.name in self._returned
        if not gone_before and party.reached(self._faults.away.get(party.name)):
            self._count_operation(party)
            party.cut_off = operation
            self._away[party.name] = party
            return True
        return False

    def _end(self, party: _Party) -> None:
        party.ended = True
        party.coroutine.close()

    def _perform(self, party: _Party, operation: Operation) -> Any:
        """Return the answer to `operation`, unless `party` then waits."""
        match operation:
            case Send():
                return self._send(party, operation)
            case Compute():
                return self._compute(party, operation)
            case Receive():
                return self._start_wait(party, operation)

    def _send(self, party: _Party, operation: Send) -> XclpError | None:
        step = party.step
        started = perf_counter()
        payload = wire.encode(operation.message)
        self._count(step, "wire", party, started)
        name = wire.type_name(payload)
        depth = party.depth + 1
        for to in operation.to:
            if to not in self._known or to == party.name:
                return ParameterError(
                    f"{party.name} sends {name} to {to!r}, which is no other party"
                )
            traffic = Traffic(step, name, party.name, to)
            self._cost.bytes_sent[traffic] += len(payload)
            self._cost.messages[traffic] += 1
            self._cost.depths[step].add(depth)
            if self._faults.on_message is None:
                self._deliver(party.name, to, payload, depth)
            else:
                self._deliver_faulty(Delivery(self._index, step, party.name, to, payload, depth))
            self._index += 1
        return None

    def _deliver_faulty(self, sent: Delivery) -> None:
        """Deliver what a fault makes of a message."""
        arriving = self._faults.on_message(sent) if self._faults.on_message else None
        if isinstance(arriving, bytes):
            self._deliver(sent.sender, sent.receiver, arriving, sent.depth)
        else:
            for d in arriving or ():
                self._deliver(d.sender, d.receiver, d.payload, d.depth)

    def _deliver(self, sender: str, receiver: str, payload: bytes, depth: int) -> None:
        if receiver in self._parties:
            self._put(sender, receiver, payload, depth)
        else:
            self._forward(sender, receiver, payload, depth)

    def _forward(self, sender: str, receiver: str, payload: bytes, depth: int) -> None:
        """Hand a message to a party that does not run here; for drivers that know some."""
        raise ParameterError(f"{receiver} does not run here")

    def _put(self, sender: str, receiver_name: str, payload: bytes | bytearray, depth: int) -> None:
        """Give a message to a party, which goes on if it waited for nothing else."""
        party = self._parties[receiver_name]
        wait = party.waiting
        if wait is None or sender not in party.missing:
            party.inbox.setdefault(sender, deque()).append((payload, depth))
            return
        del party.missing[sender]
        if isinstance(wait, ReceiveEach):
            error = self._hand_over(party, wait, sender, payload, depth)
            if error is not None:
                self._end_wait(party, error)
                return
        else:
            party.inbox.setdefault(sender, deque()).append((payload, depth))
        if not party.missing:
            # Messages that are kept are decoded when the party runs, so that of one sent to many
            # there are not many decoded copies at once.
            self._end_wait(party, wait.parties if isinstance(wait, ReceiveEach) else wait)

    def _end_wait(self, party: _Party, answer: Any) -> None:
        party.waiting = None
        self._woken.add(party.name)
        self._ready.append((party, answer))

    def _start_wait(self, party: _Party, wait: Receive) -> Any:
        """Return the answer to `wait` if everything that it lacks has arrived."""
        missing: dict[str, None] = {}
        for sender in wait.parties:
            queue = party.inbox.get(sender)
            if not queue:
                missing[sender] = None
            elif isinstance(wait, ReceiveEach):
                error = self._hand_over(party, wait, sender, *party.take(sender))
                if error is not None:
                    return error
        if missing:
            party.waiting, party.missing = wait, missing
            return None
        return self._answer(party, wait, missing)

    def _answer(self, party: _Party, wait: Receive, missing: Mapping[str, None]) -> Any:
        """Return the answer to `wait` without the messages that are missing."""
        present = tuple(p for p in wait.parties if p not in missing)
        if isinstance(wait, ReceiveEach):
            return present
        try:
            return {p: self._decode(party, wait, p, *party.take(p)) for p in present}
        except FaultyPeer as error:
            return error

    def _decode(
        self, party: _Party, wait: Receive, sender: str, payload: bytes | bytearray, depth: int
    ) -> Message:
        party.depth = max(party.depth, depth)
        started = perf_counter()
        try:
            return wire.decode(wait.kind, payload, **dims_for(sender, wait.dims))
        except DecodeError as error:
            raise FaultyPeer(sender, f"{wait.kind.__name__}: {error}") from None
        finally:
            self._count(party.step, "wire", party, started)

    def _hand_over(
        self,
        party: _Party,
        wait: ReceiveEach,
        sender: str,
        payload: bytes | bytearray,
        depth: int,
    ) -> XclpError | None:
        """Decode a message and let the receiver have it; return the error that this raised."""
        try:
            message = self._decode(party, wait, sender, payload, depth)
            started = perf_counter()
            try:
                wait.each(sender, message)
            finally:
                self._count(party.step, name_of(wait.each), party, started)
        except XclpError as error:
            return error
        return None

    def _compute(self, party: _Party, operation: Compute) -> Any:
        name = name_of(operation.function)
        if self._progress is not None:
            self._progress(Progress(party.name, party.step, name.replace("_", " ").strip()))
        started = perf_counter()
        try:
            return operation.function(*operation.args, **operation.kwargs)
        except XclpError as error:
            return error
        finally:
            self._count(party.step, name, party, started)

    def _end_at_deadline(self, party: _Party, wait: Receive) -> None:
        """End a wait without the messages that are missing, or in an error if they are needed."""
        present = len(wait.parties) - len(party.missing)
        answer: Any
        if wait.at_least is None:
            missing = tuple(party.missing)
            reason = self._why_missing()
            answer = Stalled(party.name, party.step, missing, wait.kind.__name__, reason)
        elif present < wait.at_least:
            answer = TooFewParties(party.step, present, wait.at_least, self._why_missing())
        else:
            answer = self._answer(party, wait, party.missing)
        self._end_wait(party, answer)

    def _why_missing(self) -> str:
        """Say why messages do not come; for drivers that know."""
        return ""


class Simulation(Driver):
    """Driver for all parties in this process.

    Args:
        faults: what goes wrong.
        record: keep every party's view, for tests of what a party learns.
        progress: called before each computation, and as those go on that take long.
        max_operations: operations of all parties together after which the run is ended as endless;
            without it, there is no limit.
    """

    def run(self, roles: Mapping[str, Role]) -> Outcome:
        """Run the parties to their ends; errors of parties are collected, not raised.

        Args:
            roles: party name to role, the server last.

        Raises:
            ParameterError: a fault names a party that does not exist.
            Endless: more than `max_operations`.
        """
        self._start(roles)
        try:
            while self._ready or self._wait_for_more():
                self._advance(*self._ready.popleft())
        finally:
            self._close()
        return self._outcome()

    def _wait_for_more(self) -> bool:
        """Nobody can move: make someone able to, or return False when nobody is left."""
        return self._give_up_one_wait()

    def _hopeless(self, party: _Party) -> bool:
        """Return whether `party` waits only for parties that have ended or do not exist."""
        return all(map(self._gone, party.missing))

    def _gone(self, name: str) -> bool:
        return name not in self._parties or self._parties[name].ended

    def _give_up_one_wait(self) -> bool:
        """At the deadline, end one wait or bring one party back; False when nobody is left."""
        waiting = [(p, p.waiting) for p in self._parties.values() if p.waiting is not None]
        limited = [(p, wait) for p, wait in waiting if wait.at_least is not None]
        urgent = [(p, wait) for p, wait in waiting if self._hopeless(p)]
        # Whoever waits for a party that itself waits for one that is cut off would blame the wrong.
        urgent = urgent or [
            (p, wait)
            for p, wait in limited
            if all(self._gone(name) or name in self._away for name in p.missing)
        ]
        urgent = urgent or limited
        if self._away and not urgent:
            name = next(iter(self._away))
            party = self._away.pop(name)
            self._returned.append(name)
            self._ready.append((party, party.cut_off))
            return True
        if not waiting:
            return False
        self._end_at_deadline(*(urgent or waiting)[0])
        return True
