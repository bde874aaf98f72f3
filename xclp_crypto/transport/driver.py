"""Parties in one process that run until they wait, and messages between them.

Every message is really encoded, moved and decoded. `Driver` meters bytes, rounds and seconds; what
happens when nobody can move, and where messages to parties elsewhere go, is the business of its
children.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

from xclp_crypto import wire
from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    ParameterError,
    Stalled,
    TooFewParties,
    XclpError,
)
from xclp_crypto.params import MAX_DEPTH
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

    def __str__(self) -> str:
        share = f", {self.done / self.total:.0%}" if self.total else ""
        return f"{self.step}: {self.party}, {self.activity}{share}"


class Running:
    """State of one running role.

    Attributes:
        waiting: the wait that it is in, if any.
        missing: the parties that this wait lacks, in its order.
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
        if not isinstance(self.coroutine, Coroutine):
            raise ParameterError(
                f"the role of {name} must be async, or return the coroutine of one that is; it "
                f"returned {type(self.coroutine).__name__}"
            )
        self.inbox: dict[str, deque[tuple[bytes | bytearray, int]]] = {}
        self.waiting: Receive | None = None
        self.missing: dict[str, None] = {}
        self.step = self.io.current_step
        self.ended = False
        self.depth = 0

    def take(self, sender: str) -> tuple[bytes | bytearray, int]:
        """Return the next message of `sender`, which is there."""
        queue = self.inbox[sender]
        message = queue.popleft()
        if not queue:  # among hundreds of parties, most links are used once
            del self.inbox[sender]
        return message


class Driver:
    """What all drivers share.

    Args:
        record: keep every party's view.
        progress: called before each computation, and as those go on that take long.
    """

    _WHERE: ClassVar[str] = ""  # what is said of parties that run elsewhere

    def __init__(
        self, *, record: bool = False, progress: Callable[[Progress], None] | None = None
    ) -> None:
        self._elsewhere: tuple[str, ...] = ()
        self._record = record
        self._progress = progress

    def _start(self, roles: Mapping[str, Role]) -> None:
        """Make the parties ready to run."""
        self._parties: dict[str, Running] = {}
        for name, role in roles.items():
            self._parties[name] = Running(name, role, self._record, self._progress)
        self._known = {*roles, *self._elsewhere}
        # What a party gets next: an answer to its last operation, an error to raise, or an
        # operation that is to be performed first.
        self._ready: deque[tuple[Running, Any]] = deque((p, None) for p in self._parties.values())
        self._woken: set[str] = set()  # those whose wait is over and that did not run since
        self._cost = Cost()
        self._results: dict[str, Any] = {}
        self._errors: dict[str, XclpError] = {}

    def _close(self) -> None:
        for party in self._parties.values():
            party.coroutine.close()

    def _advance(self, party: Running, answer: Any) -> None:
        """Let `party` run until it waits, is cut off, ends, or should let a receiver read first."""
        self._woken.discard(party.name)
        if isinstance(answer, Operation):
            answer = self._perform(party, answer)
        while party.waiting is None:
            operation = self._resume(party, answer)
            if operation is None or not self._may(party, operation):
                return
            if self._gives_way(operation):
                self._ready.append((party, operation))
                return
            answer = self._perform(party, operation)

    def _may(self, party: Running, operation: Operation) -> bool:
        """Return whether `party` performs its next operation; for drivers with faults."""
        return True

    def _gives_way(self, operation: Operation) -> bool:
        """Return whether others go first; the operation is performed afterwards."""
        return isinstance(operation, Send) and not self._woken.isdisjoint(operation.to)

    def _resume(self, party: Running, answer: Any) -> Operation | None:
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

    def _count(self, step: str, function: str, party: Running, since: float) -> None:
        """Attribute the time since `since`."""
        self._cost.seconds[Work(step, function, party.name)] += perf_counter() - since

    def _end(self, party: Running) -> None:
        party.ended = True
        party.coroutine.close()

    def _perform(self, party: Running, operation: Operation) -> Any:
        """Return the answer to `operation`, unless `party` then waits."""
        match operation:
            case Send():
                return self._send(party, operation)
            case Compute():
                return self._compute(party, operation)
            case Receive():
                return self._start_wait(party, operation)

    def _send(self, party: Running, operation: Send) -> XclpError | None:
        step = party.step
        started = perf_counter()
        try:
            payload = wire.encode(operation.message)
        except ParameterError as error:
            return error
        self._count(step, "wire", party, started)
        name = wire.type_name(payload)
        depth = min(party.depth + 1, MAX_DEPTH)
        for to in operation.to:
            if to not in self._known or to == party.name:
                return ParameterError(
                    f"{party.name} sends {name} to {to!r}, which is not another party"
                )
            traffic = Traffic(step, name, party.name, to)
            self._cost.bytes_sent[traffic] += len(payload)
            self._cost.messages[traffic] += 1
            self._cost.depths[step].add(depth)
            self._deliver(party.name, to, payload, depth)
        return None

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

    def _end_wait(self, party: Running, answer: Any) -> None:
        party.waiting = None
        self._woken.add(party.name)
        self._ready.append((party, answer))

    def _start_wait(self, party: Running, wait: Receive) -> Any:
        """Return the answer to `wait` if everything that it lacks has arrived."""
        missing: dict[str, None] = {}
        for sender in wait.parties:
            if sender not in self._known or sender == party.name:
                return ParameterError(
                    f"{party.name} waits for {wait.kind.__name__} from {sender!r}, which is not "
                    "another party"
                )
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

    def _answer(self, party: Running, wait: Receive, missing: Mapping[str, None]) -> Any:
        """Return the answer to `wait` without the messages that are missing."""
        present = tuple(p for p in wait.parties if p not in missing)
        if isinstance(wait, ReceiveEach):
            return present
        try:
            return {p: self._decode(party, wait, p, *party.take(p)) for p in present}
        except FaultyPeer as error:
            return error

    def _decode(
        self, party: Running, wait: Receive, sender: str, payload: bytes | bytearray, depth: int
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
        self, party: Running, wait: ReceiveEach, sender: str, payload: bytes | bytearray, depth: int
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

    def _compute(self, party: Running, operation: Compute) -> Any:
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

    def _end_at_deadline(self, party: Running, wait: Receive) -> None:
        """End a wait without the messages that are missing, or in an error if they are needed."""
        present = len(wait.parties) - len(party.missing)
        answer: Any
        missing, reason = tuple(party.missing), self._why_missing()
        if wait.at_least is None:
            where = self._WHERE if party.missing.keys() <= {*self._elsewhere} else ""
            answer = Stalled(party.name, party.step, missing, wait.kind.__name__, reason, where)
        elif present < wait.at_least:
            answer = TooFewParties(party.step, present, wait.at_least, reason, missing)
        else:
            answer = self._answer(party, wait, party.missing)
        self._end_wait(party, answer)

    def _why_missing(self) -> str:
        """Say why messages do not come; for drivers that know."""
        return ""
