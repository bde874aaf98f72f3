"""What parties receive in a run, opened, and what must not be in it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from xclp_crypto import wire
from xclp_crypto.rng import SeededRng
from xclp_crypto.role import DriverIO
from xclp_crypto.transport.driver import Driver
from xclp_crypto.wire import Message

RECOGNISABLE = 16
"""Random bytes of a secret, at least, for it to be in no message by chance."""


class Views:
    """What happens while `watching`.

    Attributes:
        received: by party, what it received and opened.
        drawn: by party, the random bytes that it drew: keys, seeds of masks, contributions.
    """

    def __init__(self) -> None:
        self.received: defaultdict[str, list[Message]] = defaultdict(list)
        self.drawn: defaultdict[str, set[bytes]] = defaultdict(set)

    def leaks(
        self, honest: Collection[str], inputs: Mapping[str, Collection[bytes]]
    ) -> set[tuple[str, str]]:
        """Return who received what an honest party drew, or its inputs, and in which message."""
        secrets = {party: self.drawn[party].union(inputs.get(party, ())) for party in honest}
        found = set()
        for receiver, messages in self.received.items():
            of_others = set().union(*(secrets[p] for p in honest if p != receiver))
            for message in messages:
                payload = wire.encode(message)
                if any(secret in payload for secret in of_others):
                    found.add((receiver, type(message).__name__))
        return found


@contextmanager
def watching() -> Iterator[Views]:
    """Record what all parties that run in this process draw and receive."""
    views, now = Views(), threading.local()
    resume, compute, draw = Driver._resume, Driver._compute, SeededRng.bytes

    def resumed(self: Driver, party: Any, answer: Any) -> Any:
        now.party = party.name
        return resume(self, party, answer)

    def computed(self: Driver, party: Any, operation: Any) -> Any:
        now.party = party.name
        return compute(self, party, operation)

    def drawn(self: SeededRng, n: int) -> bytes:
        found = draw(self, n)
        if n >= RECOGNISABLE:
            views.drawn[getattr(now, "party", "")].add(found)
        return found

    def observed(self: DriverIO, frm: str, message: Message) -> None:
        views.received[self.name].append(message)

    with (
        patch.object(Driver, "_resume", resumed),
        patch.object(Driver, "_compute", computed),
        patch.object(SeededRng, "bytes", drawn),
        patch.object(DriverIO, "observe", observed),
    ):
        yield views
