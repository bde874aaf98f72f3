"""Deadlines of a federation, how much is taken from others, and the clock that both go by."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from time import monotonic

from xclp_crypto.errors import ParameterError
from xclp_crypto.params import DEADLINES_IN_ALL, WINDOW


def _half_of_memory() -> int:
    """Return half the bytes of the machine's memory: a role needs as much for what it decodes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):  # as on Windows
        return 8 << 30


@dataclass(frozen=True)
class Limits:
    """How long is waited, and how much is taken; of each party for itself.

    Attributes:
        join: seconds after its start in which the server waits for clients that never came.
        grace: seconds without a connection, or without a sign of life on it, after which a client
            is given up, and a client gives up the server.
        deadline: seconds in which a client that computes must make some progress, longer than its
            longest single computation; and for which all may wait.
        total: seconds that a client may compute, send, keep senders waiting and be away in a
            session, whatever progress it makes; by default 10 deadlines.
        window: bytes that may be on the way to one receiver; at most `WINDOW`, which receivers
            take.
        max_message: bytes of a message at most; a longer one is refused before it is read.
        memory: bytes of messages that wait for the role at most, of all senders together.

    Raises:
        ParameterError: a value is not positive, the window is too large, or `total` is less than
            `deadline`.
    """

    join: float = 600.0
    grace: float = 60.0
    deadline: float = 1800.0
    total: float | None = None
    window: int = WINDOW
    max_message: int = 1 << 31
    memory: int = field(default_factory=_half_of_memory)

    def __post_init__(self) -> None:
        values = vars(self) | {"total": self.in_all}
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ParameterError(f"{name} must be a positive number, got {value!r}")
        if self.window > WINDOW:
            raise ParameterError(f"window must be at most {WINDOW}, got {self.window}")
        if self.in_all < self.deadline:
            raise ParameterError(f"total must be at least deadline, {self.deadline:g} seconds")

    @property
    def in_all(self) -> float:
        """Return `total`, or what it is by default."""
        return DEADLINES_IN_ALL * self.deadline if self.total is None else self.total

    @property
    def beat(self) -> float:
        """Return the seconds between signs of life."""
        return min(5.0, self.grace / 4)


class Clock:
    """Seconds in which this program ran.

    A gap between two looks that is longer than `gap` seconds counts as `gap`: the program was
    stopped, or its machine was, and heard nobody meanwhile, whoever spoke. On waking, connections
    may be over and deadlines of asyncio passed, but nobody has been away for longer. `keep` looks
    often enough.
    """

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._seen = monotonic()
        self._ran = 0.0

    def __call__(self) -> float:
        """Return the seconds so far."""
        now = monotonic()
        self._ran += min(now - self._seen, self._gap)
        self._seen = now
        return self._ran

    async def keep(self) -> None:
        """Look at it forever."""
        while True:
            self()
            await asyncio.sleep(self._gap / 2)
