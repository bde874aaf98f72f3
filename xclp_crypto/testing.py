"""Helpers to test protocols with: views, dropouts, corruptions, random faults, uniformity, digests.

Each helper takes a *factory*: a function without arguments that returns fresh roles by party name,
the server last. Give the roles their randomness from `SeededRng(seed)` inside the factory. Then
every run of it is the same, and "operation 3" or "message 7" means the same thing in all runs::

    def make():
        rng = SeededRng(1)
        return {"alice": lambda io: alice(io, rng.child("alice")), "server": server}

    for case in every_dropout(make):
        assert case.outcome.errors or case.outcome.results["server"] == expected, case

No run with faults hangs: the simulation ends every wait, and a run with more than
`ENDLESS` times the operations of the run without faults raises `Endless`.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from xclp_crypto.errors import (
    FaultyPeer,
    FaultyPeerOrServer,
    LogRolledBack,
    ParameterError,
    XclpError,
)
from xclp_crypto.protocols.setup.channel import SERVER, Sealed
from xclp_crypto.rng import Rng, SeededRng, require_rng
from xclp_crypto.transport.driver import Role
from xclp_crypto.transport.simulate import Delivery, Faults, Outcome, Simulation
from xclp_crypto.wire import TAG_BYTES, Message, encode

Factory = Callable[[], Mapping[str, Role]]
"""Makes the roles of one run, by party name, the server last; the same ones each time."""

Tamper = Callable[[bytes, Sequence[Delivery]], bytes | None]
"""Takes a payload and the deliveries up to and including it; returns what arrives, None to lose."""


@dataclass(frozen=True)
class Dropout:
    """A run in which `party` dropped out after `after` operations."""

    party: str
    after: int
    outcome: Outcome

    def __str__(self) -> str:
        return f"{self.party} drops out after {self.after} operations"


@dataclass(frozen=True)
class Corruption:
    """A run in which one message was altered or lost."""

    delivery: Delivery
    tamper: str
    outcome: Outcome

    def __str__(self) -> str:
        d = self.delivery
        return f"message {d.index}, {d.message} {d.sender} → {d.receiver}: {self.tamper}"


ENDLESS = 100
"""How many times the operations of the run without faults a run with faults may have."""


def run(
    make: Factory,
    faults: Faults | None = None,
    *,
    record: bool = False,
    max_operations: int | None = None,
) -> Outcome:
    """Run fresh roles once; see `Simulation`."""
    return Simulation(faults=faults, record=record, max_operations=max_operations).run(make())


@dataclass(frozen=True)
class _Original:
    """The run without faults: what later runs are compared with."""

    operations: Mapping[str, int]
    sent: list[Delivery]

    @property
    def limit(self) -> int:
        """Return the operations after which another run counts as endless."""
        return ENDLESS * max(1, sum(self.operations.values()))


def _original(make: Factory) -> _Original:
    seen: list[Delivery] = []

    def watch(delivery: Delivery) -> bytes:
        seen.append(delivery)
        return delivery.payload

    return _Original(run(make, Faults(on_message=watch)).raise_errors().operations, seen)


def views(make: Factory) -> dict[str, list[tuple[str, Message]]]:
    """Return what each party receives and opens, as (sender, message), in a run without faults.

    Raises:
        XclpError: the first error of any party.
    """
    return run(make, record=True).raise_errors().views


def deliveries(make: Factory) -> list[Delivery]:
    """Return every encoded message of a run without faults, in order; raises as `views` does."""
    return _original(make).sent


def every_dropout(make: Factory, parties: Sequence[str] | None = None) -> Iterator[Dropout]:
    """Let each party drop out before each of its operations, one run for each case.

    A party's operations are its sends, receives and computations. A first run without faults
    counts them; it must finish without errors.

    Args:
        make: the factory.
        parties: who drops out, by default everybody.

    Raises:
        XclpError: the run without faults failed.
        ParameterError: no such party.
        Endless: a run does not end.

    Examples:
        >>> from xclp_crypto.protocols.ot import Choices, naor_pinkas
        >>> from xclp_crypto.testing import every_dropout, views
        >>> pairs, wanted = np.array([[[1], [2]]], np.uint8), Choices(np.array([True]), 1)
        >>> def make():
        ...     one, two = SeededRng(1), SeededRng(2)
        ...     return {
        ...         "alice": lambda io: naor_pinkas(io, {"bob": pairs}, {}, b"1", one),
        ...         "bob": lambda io: naor_pinkas(io, {}, {"alice": wanted}, b"1", two),
        ...     }
        >>> [type(message).__name__ for _, message in views(make)["bob"]]
        ['OtSetup', 'OtOffers']
        >>> got = [case.outcome.results.get("bob") for case in every_dropout(make)]
        >>> all(chosen["alice"] == 2 for chosen in got if chosen is not None)
        True
    """
    original = _original(make)
    operations = original.operations
    for party in operations if parties is None else parties:
        if party not in operations:
            raise ParameterError(f"{party!r} is none of the parties {', '.join(operations)}")
        for after in range(operations[party]):
            faults = Faults(dropouts={party: after})
            yield Dropout(party, after, run(make, faults, max_operations=original.limit))


def _flip(position: Callable[[int], int], mask: int = 0xFF) -> Tamper:
    def tamper(payload: bytes, earlier: Sequence[Delivery]) -> bytes:
        altered = bytearray(payload)
        altered[position(len(altered))] ^= mask
        return bytes(altered)

    return tamper


def _replay(payload: bytes, earlier: Sequence[Delivery]) -> bytes:
    now = earlier[-1]
    same = [d for d in earlier[:-1] if (d.sender, d.receiver) == (now.sender, now.receiver)]
    return same[-1].payload if same else payload


def _swap(payload: bytes, earlier: Sequence[Delivery]) -> bytes:
    now = earlier[-1]
    other = [d for d in earlier[:-1] if d.sender != now.sender]
    same_type = [d for d in other if d.message == now.message]
    return (same_type or other)[-1].payload if other else payload


TAMPERS: Mapping[str, Tamper] = {
    "tag altered": _flip(lambda n: 0),
    "first byte altered": _flip(lambda n: min(TAG_BYTES, n - 1)),
    "first byte one bit off": _flip(lambda n: min(TAG_BYTES, n - 1), 1),
    "third byte altered": _flip(lambda n: min(TAG_BYTES + 2, n - 1)),
    "middle byte altered": _flip(lambda n: n // 2),
    "last byte altered": _flip(lambda n: n - 1),
    "last byte one bit off": _flip(lambda n: n - 1, 1),
    "zeroed": lambda payload, _: payload[:TAG_BYTES] + bytes(len(payload) - TAG_BYTES),
    "truncated": lambda payload, _: payload[:-1],
    "emptied": lambda payload, _: b"",
    "extended": lambda payload, _: payload + b"\0",
    "replaced by the one before on this link": _replay,
    "replaced by another party's": _swap,
    "lost": lambda payload, _: None,
}
"""Ways to alter one message: every region of it, its length, its origin, its very arrival."""


def every_corruption(
    make: Factory,
    tampers: Mapping[str, Tamper] = TAMPERS,
    which: Callable[[Delivery], bool] = lambda delivery: True,
) -> Iterator[Corruption]:
    """Alter each message in each way, one run for each case.

    A tamper that leaves a certain message as it is gives no case for it.

    Args:
        make: the factory; its run without faults must finish without errors.
        tampers: ways to alter a message, by description.
        which: chooses the messages to alter, by default all.

    Raises:
        XclpError: the run without faults failed.
        Endless: a run does not end.
    """
    original = _original(make)
    for target in filter(which, original.sent):
        for name, tamper in tampers.items():
            altered = tamper(target.payload, original.sent[: target.index + 1])
            if altered != target.payload:
                faults = Faults(on_message=_replace(target.index, altered))
                outcome = run(make, faults, max_operations=original.limit)
                yield Corruption(target, name, outcome)


def _replace(index: int, altered: bytes | None) -> Callable[[Delivery], bytes | None]:
    return lambda delivery: altered if delivery.index == index else delivery.payload


PARTY_FAULTS = ("drop", "away")
MESSAGE_FAULTS = ("lose", "delay", "duplicate", "corrupt", "replay")

FAULT_KINDS = PARTY_FAULTS + MESSAGE_FAULTS
"""What a random schedule is made of.

``drop``, ``away``: a party drops out, or is cut off and comes back, at a random operation.
``lose``, ``delay``, ``duplicate``: a message never arrives, arrives after a random number of later
messages (and is lost when there are not so many), or arrives twice.
``corrupt``: one of `TAMPERS`. ``replay``: a message arrives, and once more after later ones.
"""

MAX_FAULTS = 3
"""Most faults of one random schedule."""


@dataclass(frozen=True)
class MessageFault:
    """What happens to one message.

    Attributes:
        sender: who sends it.
        receiver: to whom.
        number: which message of this link it is, from 0.
        message: the type that it has in the run without faults.
        kind: one of `MESSAGE_FAULTS`.
        tamper: for ``corrupt``, the name in `TAMPERS`.
        later: for ``delay`` and ``replay``, after how many later messages of all links it arrives.
    """

    sender: str
    receiver: str
    number: int
    message: str
    kind: str
    tamper: str = ""
    later: int = 0

    def __str__(self) -> str:
        what = {
            "lose": "lost",
            "delay": f"delayed by {self.later} messages",
            "duplicate": "duplicated",
            "corrupt": self.tamper,
            "replay": f"replayed after {self.later} messages",
        }[self.kind]
        return f"message {self.number}, {self.message} {self.sender} → {self.receiver}: {what}"


@dataclass(frozen=True)
class Schedule:
    """A few faults of one run.

    Attributes:
        dropouts: by party, after how many operations it drops out.
        away: by party, after how many operations it is cut off.
        messages: what happens to messages.
    """

    dropouts: Mapping[str, int]
    away: Mapping[str, int]
    messages: Sequence[MessageFault]

    def faults(self) -> Faults:
        """Return the faults, which serve for one run: they count messages."""
        disturber = _Disturber(self.messages) if self.messages else None
        return Faults(self.dropouts, self.away, disturber)

    def __str__(self) -> str:
        parts = [f"{p} drops out after {k} operations" for p, k in self.dropouts.items()]
        parts += [f"{p} is away after {k} operations" for p, k in self.away.items()]
        return "; ".join([*parts, *map(str, self.messages)])


class _Disturber:
    """Does to messages what a schedule says; for one run."""

    def __init__(self, faults: Iterable[MessageFault]) -> None:
        self._faults = {(f.sender, f.receiver, f.number): f for f in faults}
        self._seen: list[Delivery] = []
        self._on_link: Counter[tuple[str, str]] = Counter()
        self._late: list[tuple[int, Delivery]] = []

    def __call__(self, now: Delivery) -> list[Delivery]:
        self._seen.append(now)
        link = now.sender, now.receiver
        fault = self._faults.get((*link, self._on_link[link]))
        self._on_link[link] += 1
        arriving = [now] if fault is None else self._disturb(fault, now)
        arriving += [d for due, d in self._late if due <= len(self._seen)]
        self._late = [(due, d) for due, d in self._late if due > len(self._seen)]
        return arriving

    def _disturb(self, fault: MessageFault, now: Delivery) -> list[Delivery]:
        match fault.kind:
            case "duplicate":
                return [now, now]
            case "corrupt":
                altered = TAMPERS[fault.tamper](now.payload, self._seen)
                return [] if altered is None else [replace(now, payload=altered)]
            case "delay" | "replay":
                self._late.append((len(self._seen) + fault.later, now))
        return [now] if fault.kind == "replay" else []


def random_schedule(
    rng: Rng,
    operations: Mapping[str, int],
    sent: Sequence[Delivery],
    kinds: Collection[str] = FAULT_KINDS,
) -> Schedule:
    """Draw 1 to `MAX_FAULTS` faults, of kinds, parties and messages that are equally likely.

    Args:
        rng: decides everything.
        operations: by party, its operations in the run without faults.
        sent: the messages of the run without faults.
        kinds: some of `FAULT_KINDS`.

    Raises:
        ParameterError: an unknown kind, or nothing that these kinds could disturb.
    """

    def below(n: int) -> int:
        return int(require_rng(rng).residues(n, 1)[0])

    if not set(kinds) <= set(FAULT_KINDS):
        raise ParameterError(f"the kinds of faults are {', '.join(FAULT_KINDS)}, got {kinds}")
    busy = [party for party, count in operations.items() if count]
    possible = [k for k in FAULT_KINDS if k in kinds and (busy if k in PARTY_FAULTS else sent)]
    if not possible:
        raise ParameterError(f"no faults of the kinds {', '.join(kinds)} are possible in this run")
    points: dict[str, dict[str, int]] = {"drop": {}, "away": {}}
    links: list[tuple[str, str]] = [(d.sender, d.receiver) for d in sent]
    tampers = [name for name in TAMPERS if name != "lost"]
    messages = {}
    for _ in range(1 + below(MAX_FAULTS)):
        kind = possible[below(len(possible))]
        if kind in PARTY_FAULTS:
            party = busy[below(len(busy))]
            points[kind][party] = below(operations[party])
            continue
        at = below(len(sent))
        # Near and far delays are about equally likely.
        later = 1 + below(1 << below(len(sent).bit_length() + 1))
        messages[at] = MessageFault(
            *links[at],
            number=links[:at].count(links[at]),
            message=sent[at].message,
            kind=kind,
            tamper=tampers[below(len(tampers))] if kind == "corrupt" else "",
            later=later if kind in ("delay", "replay") else 0,
        )
    return Schedule(points["drop"], points["away"], tuple(messages.values()))


@dataclass(frozen=True)
class Disturbed:
    """A run under a random schedule of faults."""

    seed: int
    number: int
    schedule: Schedule
    outcome: Outcome

    def __str__(self) -> str:
        return _describe(self.seed, self.number, self.schedule)


def _describe(seed: int, number: int, schedule: Schedule) -> str:
    return f"seed {seed}, schedule {number}: {schedule}"


class _Naming:
    """Adds what was run to any error that leaves the block."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if error is not None:
            error.add_note(self._what)


def every_schedule(
    make: Callable[[int], Factory],
    seeds: Iterable[int],
    *,
    per_seed: int = 1,
    kinds: Collection[str] = FAULT_KINDS,
) -> Iterator[Disturbed]:
    """Run under random faults; a seed and a number fix the roles, the faults and so the whole run.

    ``str(case)`` names both and says what was disturbed. To repeat schedule 7 of seed 123, take
    case number 7 of ``every_schedule(make, [123], per_seed=8)``: the schedules before it do not
    matter. An error that is raised here carries the same text as a note.

    Args:
        make: takes a seed and returns the factory for it; may choose sizes by the seed as well.
        seeds: the seeds to run.
        per_seed: schedules for each seed; they share one run without faults, which must finish
            without errors.
        kinds: some of `FAULT_KINDS`.

    Raises:
        XclpError: a run without faults failed.
        ParameterError: an unknown kind, or nothing that these kinds could disturb.
        Endless: a run does not end.
    """
    for seed in seeds:
        factory = make(seed)
        with _Naming(f"seed {seed}, without faults"):
            original = _original(factory)
        for number in range(per_seed):
            rng = SeededRng(seed).child("schedule", number)
            schedule = random_schedule(rng, original.operations, original.sent, kinds)
            with _Naming(_describe(seed, number, schedule)):
                outcome = run(factory, schedule.faults(), max_operations=original.limit)
            yield Disturbed(seed, number, schedule, outcome)


def blamed(error: XclpError) -> frozenset[str]:
    """Return the parties of which the error says that at least one is at fault; may be empty."""
    if not isinstance(error, FaultyPeer | LogRolledBack):
        return frozenset()
    server = {SERVER} if isinstance(error, FaultyPeerOrServer) else set()
    return frozenset(error.parties) | server


def uniformity(counts: ArrayLike) -> float:
    """Return the chi-square p-value of the hypothesis that all categories are equally likely.

    Args:
        counts: (k,) how often each category occurred; on average at least 5.

    Raises:
        ParameterError: fewer than two categories, or too few observations for the test.
    """
    observed = np.asarray(counts)
    if observed.ndim != 1 or observed.size < 2 or observed.mean() < 5:
        raise ParameterError("a chi-square test needs 2 categories and 5 observations of each")
    return float(stats.chisquare(observed).pvalue)


def same_distribution(counts: ArrayLike, others: ArrayLike) -> float:
    """Return the chi-square p-value of the hypothesis that two samples have one distribution.

    Both are given by how often each category occurred, (k,).

    Raises:
        ParameterError: too few observations for the test.
    """
    table = np.array([np.asarray(counts), np.asarray(others)])
    table = table[:, table.any(axis=0)]
    if not table.size or table.mean() < 5:
        raise ParameterError("a chi-square test needs 5 observations of each category")
    if table.shape[1] == 1:
        return 1.0
    return float(stats.chi2_contingency(table).pvalue)


def _kind_of(party: str) -> str:
    return SERVER if party == SERVER else "client"


def transcript_digest(
    make: Factory, kind_of: Callable[[str], str] = _kind_of, *, opened: bool = False
) -> dict[str, str]:
    """Return SHA-256 digests of everything sent, by message type and direction.

    Two versions of a protocol that give the same digests under the same randomness are compatible
    byte for byte; where they differ, the keys say which messages changed.

    Args:
        make: the factory, with fixed randomness.
        kind_of: takes a party, returns the kind of party it is; by default client or server.
        opened: digest the encodings of the opened messages instead of the bytes that travel, so
            that a change of one message does not change all that is sealed.

    Returns:
        By ``Type: sender kind → receiver kind``, sorted, 64 hexadecimal digits.

    Raises:
        XclpError: the first error of any party.
    """
    digests: defaultdict[str, hashlib._Hash] = defaultdict(hashlib.sha256)

    def add(name: str, sender: str, receiver: str, data: bytes) -> None:
        digest = digests[f"{name}: {kind_of(sender)} → {kind_of(receiver)}"]
        digest.update(len(data).to_bytes(8, "big") + data)

    if opened:
        for receiver, view in sorted(views(make).items()):
            for sender, message in view:
                if not isinstance(message, Sealed):
                    add(type(message).__name__, sender, receiver, encode(message))
    else:
        # Link by link, because which party runs when is the driver's business.
        for d in sorted(deliveries(make), key=lambda d: (d.sender, d.receiver)):
            add(d.message, d.sender, d.receiver, d.payload)
    return {name: digest.hexdigest() for name, digest in sorted(digests.items())}
