"""Helpers to test protocols with: views, every dropout, every corruption, uniformity, digests.

Each helper takes a *factory*: a function without arguments that returns fresh roles by party name,
the server last. Give the roles their randomness from `SeededRng(seed)` inside the factory. Then
every run of it is the same, and "operation 3" or "message 7" means the same thing in all runs::

    def make():
        rng = SeededRng(1)
        return {"alice": lambda io: alice(io, rng.child("alice")), "server": server}

    for case in every_dropout(make):
        assert case.outcome.errors or case.outcome.results["server"] == expected, case
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from xclp_crypto.errors import FaultyPeer, FaultyPeerOrServer, ParameterError, XclpError
from xclp_crypto.protocols.setup.channel import SERVER, Sealed
from xclp_crypto.transport.simulate import Delivery, Faults, Outcome, Role, Simulation
from xclp_crypto.wire import TAG_BYTES, Message, encode

Factory = Callable[[], Mapping[str, Role]]
"""Makes the roles of one run, by party name, the server last; the same ones each time."""

Tamper = Callable[[bytes, Sequence[Delivery]], bytes | None]
"""Takes a payload and the deliveries up to and including it; returns what arrives, None to lose."""


@dataclass(frozen=True)
class Dropout:
    """A run in which `party` vanished after `after` operations."""

    party: str
    after: int
    outcome: Outcome

    def __str__(self) -> str:
        return f"{self.party} vanishes after {self.after} operations"


@dataclass(frozen=True)
class Corruption:
    """A run in which one message was altered or lost."""

    delivery: Delivery
    tamper: str
    outcome: Outcome

    def __str__(self) -> str:
        d = self.delivery
        return f"message {d.index}, {d.message} {d.sender} → {d.receiver}: {self.tamper}"


def run(make: Factory, faults: Faults | None = None, *, record: bool = False) -> Outcome:
    """Run fresh roles once; see `Simulation`."""
    return Simulation(faults=faults, record=record).run(make())


def views(make: Factory) -> dict[str, list[tuple[str, Message]]]:
    """Return what each party receives and opens, as (sender, message), in a run without faults.

    Raises:
        XclpError: the first error of any party.
    """
    return run(make, record=True).raise_errors().views


def deliveries(make: Factory) -> list[Delivery]:
    """Return every encoded message of a run without faults, in order.

    Raises:
        XclpError: the first error of any party.
    """
    seen: list[Delivery] = []

    def watch(delivery: Delivery) -> bytes:
        seen.append(delivery)
        return delivery.payload

    run(make, Faults(on_message=watch)).raise_errors()
    return seen


def every_dropout(make: Factory, parties: Sequence[str] | None = None) -> Iterator[Dropout]:
    """Let each party vanish before each of its operations, one run for each case.

    A party's operations are its sends, receives and computations. A first run without faults
    counts them; it must finish without errors.

    Args:
        make: the factory.
        parties: who vanishes, by default everybody.

    Raises:
        XclpError: the run without faults failed.
        ParameterError: no such party.
    """
    operations = run(make).raise_errors().operations
    for party in operations if parties is None else parties:
        if party not in operations:
            raise ParameterError(f"{party!r} is none of the parties {', '.join(operations)}")
        for after in range(operations[party]):
            yield Dropout(party, after, run(make, Faults(vanish={party: after})))


def _flip(position: Callable[[int], int], mask: int = 0xFF) -> Tamper:
    def tamper(payload: bytes, earlier: Sequence[Delivery]) -> bytes:
        altered = bytearray(payload)
        if altered:
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
    """
    original = deliveries(make)
    for target in filter(which, original):
        for name, tamper in tampers.items():
            altered = tamper(target.payload, original[: target.index + 1])
            if altered != target.payload:
                outcome = run(make, Faults(on_message=_replace(target.index, altered)))
                yield Corruption(target, name, outcome)


def _replace(index: int, altered: bytes | None) -> Callable[[Delivery], bytes | None]:
    return lambda delivery: altered if delivery.index == index else delivery.payload


def blamed(error: XclpError) -> frozenset[str]:
    """Return the parties of which the error says that at least one is at fault; may be empty."""
    if not isinstance(error, FaultyPeer):
        return frozenset()
    return frozenset(error.parties) | (
        {SERVER} if isinstance(error, FaultyPeerOrServer) else frozenset()
    )


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

    Args:
        counts: (k,) how often each category occurred in one sample.
        others: (k,) the same in the other sample.

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
        for d in deliveries(make):
            add(d.message, d.sender, d.receiver, d.payload)
    return {name: digest.hexdigest() for name, digest in sorted(digests.items())}
