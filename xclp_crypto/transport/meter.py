"""What a run costs: bytes per link, message type and step; rounds; seconds per party and step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Traffic(NamedTuple):
    """One kind of message on one link in one step."""

    step: str
    message: str
    sender: str
    receiver: str


class Work(NamedTuple):
    """One kind of work of one party in one step."""

    step: str
    function: str
    party: str


@dataclass
class Cost:
    """Measured cost of one protocol run.

    Bytes are those of encoded messages (tag, body and, where sealed, the authentication tag),
    before the framing of a transport. Client-to-client messages count once on their own link; a
    relaying server forwards them in addition. Seconds are wall-clock seconds of this machine, in
    which the parties of a simulation run one after the other.

    Attributes:
        bytes_sent: bytes by `Traffic`.
        messages: number of messages by `Traffic`.
        seconds: seconds by `Work`; ``wire`` is encoding and decoding, ``role`` all the rest of a
            party's own code, such as packing and sealing.
        depths: by step, the lengths of the chains of messages that ended in it; for `rounds`.
    """

    bytes_sent: defaultdict[Traffic, int] = field(default_factory=lambda: defaultdict(int))
    messages: defaultdict[Traffic, int] = field(default_factory=lambda: defaultdict(int))
    seconds: defaultdict[Work, float] = field(default_factory=lambda: defaultdict(float))
    depths: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        """Return the cost of several runs together: sums, and the rounds of the longest."""
        found = cls()
        for cost in costs:
            for traffic, size in cost.bytes_sent.items():
                found.bytes_sent[traffic] += size
                found.messages[traffic] += cost.messages[traffic]
            for work, seconds in cost.seconds.items():
                found.seconds[work] += seconds
            for step, depths in cost.depths.items():
                found.depths[step] |= depths
        return found

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all messages."""
        return sum(self.bytes_sent.values())

    @property
    def total_messages(self) -> int:
        """Return the number of all messages."""
        return sum(self.messages.values())

    @property
    def total_seconds(self) -> float:
        """Return the seconds of all parties together."""
        return sum(self.seconds.values())

    @property
    def rounds(self) -> int:
        """Return the length of the longest chain of messages, each sent after the one before."""
        return max((depth for depths in self.depths.values() for depth in depths), default=0)

    @property
    def steps(self) -> tuple[str, ...]:
        """Return the steps in the order in which they first did something."""
        return tuple(
            dict.fromkeys([w.step for w in self.seconds] + [t.step for t in self.messages])
        )

    def bytes_by(self, key: Callable[[Traffic], str]) -> dict[str, int]:
        """Return the bytes grouped by ``key(traffic)``, largest first."""
        groups: dict[str, int] = defaultdict(int)
        for traffic, count in self.bytes_sent.items():
            groups[key(traffic)] += count
        return dict(sorted(groups.items(), key=lambda item: -item[1]))

    def bytes_by_link(self) -> dict[str, int]:
        """Return the bytes of each link, as ``sender → receiver``."""
        return self.bytes_by(lambda t: f"{t.sender} → {t.receiver}")

    def bytes_by_message(self) -> dict[str, int]:
        """Return the bytes of each message type."""
        return self.bytes_by(lambda t: t.message)

    def sent_by(self, party: str, step: str | None = None) -> int:
        """Return the bytes that `party` sent, in one step or in all."""
        return self.bytes_by_party(step)[0].get(party, 0)

    def received_by(self, party: str, step: str | None = None) -> int:
        """Return the bytes that were sent to `party`, in one step or in all."""
        return self.bytes_by_party(step)[1].get(party, 0)

    def bytes_by_party(self, step: str | None = None) -> tuple[dict[str, int], dict[str, int]]:
        """Return the bytes that each party sent and received, in one step or in all."""
        sent: dict[str, int] = defaultdict(int)
        received: dict[str, int] = defaultdict(int)
        for traffic, size in self.bytes_sent.items():
            if step is None or traffic.step == step:
                sent[traffic.sender] += size
                received[traffic.receiver] += size
        return dict(sent), dict(received)

    def seconds_by_party(self, step: str | None = None) -> dict[str, float]:
        """Return the seconds of each party, in one step or in all."""
        parties: dict[str, float] = defaultdict(float)
        for work, seconds in self.seconds.items():
            if step is None or work.step == step:
                parties[work.party] += seconds
        return dict(parties)

    def rounds_in(self, step: str) -> int:
        """Return the number of message rounds of one step."""
        return len(self.depths.get(step, ()))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values: totals, and a record per step."""
        parties = sorted({t.sender for t in self.messages} | {t.receiver for t in self.messages})
        steps = {}
        for step in self.steps:
            sent, received = self.bytes_by_party(step)
            steps[step] = {
                "rounds": self.rounds_in(step),
                "seconds": self.seconds_by_party(step),
                "bytes_sent": {p: sent.get(p, 0) for p in parties},
                "bytes_received": {p: received.get(p, 0) for p in parties},
            }
        return {
            "bytes": self.total_bytes,
            "rounds": self.rounds,
            "seconds": self.total_seconds,
            "steps": steps,
            "bytes_by_link": self.bytes_by_link(),
            "bytes_by_message": self.bytes_by_message(),
        }

    def __repr__(self) -> str:
        return (
            f"<Cost {self.total_bytes:,} bytes, {self.rounds} rounds, "
            f"{self.total_seconds:.3g} s over {len(self.steps)} steps>"
        )
