"""Clients that do not stay to the end: before which step, and what that means for whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from xclp_crypto.apart import Apart
from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.failures import Code, Reason
from xclp_crypto.wording import did_you_mean

STEPS = ("setup", "hashing", "hamming", "propagation", "row sums", "labels", "validation")
"""Steps of a session, in order."""

BEFORE_GRAPH = STEPS[:3]
"""Steps before all distances are known."""

SILENT = Reason()


@dataclass(frozen=True)
class Dropout:
    """A client that did not stay to the end.

    Attributes:
        client: its name.
        step: the step in which that is seen: ``setup``, ``hashing``, ``hamming``, ``row sums``,
            ``labels`` or ``validation``. That of a dropout in ``propagation``, where clients send
            nothing, is ``row sums``.
        contributed: whether its labels are in the sums.
        reason: why, as the server says; in one process all that drop out are silent.
        later: whether the session was only about rows that came later.
    """

    client: str
    step: str
    contributed: bool
    reason: Reason = SILENT
    later: bool = False

    @property
    def in_graph(self) -> bool:
        """Return whether its points are in the graph."""
        return self.step not in BEFORE_GRAPH

    @property
    def effect(self) -> str:
        """Return what that means, for whom (paper, §4.3, Robustness)."""
        if self.later:
            return (
                f"its old rows {'' if self.contributed else 'do not '}count, for anybody. It gets "
                "its own labels if it comes back within the session"
            )
        if not self.in_graph:
            return (
                "to the others it is as if it had never taken part: its points are not in the "
                "graph. It gets no labels"
            )
        if not self.contributed:
            return (
                "its points are in the graph, its labels are not counted, for anybody: as if it "
                "had none. It gets its own labels if it comes back within the session"
            )
        return (
            "its labels are counted, so nothing changes for the others. It gets its own labels if "
            "it comes back within the session"
        )

    @property
    def why(self) -> str:
        """Return the reason in words; empty for one that was silent, as most are."""
        said = {
            Code.DECLINED: "it takes no part",
            Code.LEFT: "it stopped",
            Code.FAULTY: "the server found it at fault",
            Code.SLOW: "it was too slow",
        }.get(self.reason.code, "")
        return said + f": {self.reason.text}" * bool(self.reason.text)

    def to_dict(self) -> dict[str, Any]:
        """Return who dropped out, when, why, and with what effect, for a file."""
        return {
            "client": self.client,
            "step": self.step,
            "reason": self.reason.code.value,
            "text": self.reason.text,
            "blamed_by": [SERVER] if self.reason.code is Code.FAULTY else [],
            "contributed": self.contributed,
            "effect": self.effect,
        }


def with_reasons(dropouts: Iterable[Dropout], reasons: Mapping[str, Reason]) -> tuple[Dropout, ...]:
    """Return dropouts with what a transport knows of why; see `DurableRole.reasons`."""
    return tuple(replace(own, reason=reasons.get(own.client, own.reason)) for own in dropouts)


@dataclass(frozen=True)
class Contradiction:
    """Two clients of which one says that nothing came from the other, which was there.

    Attributes:
        step: in which.
        client: who says so.
        other: of whom.
    """

    step: str
    client: str
    other: str

    def __str__(self) -> str:
        """Return it as a warning."""
        return (
            f"in the step {self.step!r} {self.client} says that nothing came from {self.other}, "
            "which was there: one of the two was left out, and one of them, or what is between "
            "them, is at fault"
        )


class Leavers(dict[str, str]):
    """By client that has dropped out, the step in which that was seen.

    Attributes:
        contradictions: what some say of others that were there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.contradictions: tuple[Contradiction, ...] = ()

    def note_apart(self, step: str, apart: Apart) -> None:
        """Add what some say of others that were there in a step."""
        self.contradictions += tuple(Contradiction(step, *pair) for pair in apart)

    def note(self, step: str, expected: Iterable[str], present: Collection[str]) -> None:
        """Add those that were expected in a step, are not present, and were not missing before."""
        for client in expected:
            if client not in present:
                self.setdefault(client, step)

    def dropouts(
        self, contributors: Collection[str], *, later: bool = False
    ) -> tuple[Dropout, ...]:
        """Return what that means for whom, given whose labels are in the sums."""
        return tuple(Dropout(c, step, c in contributors, later=later) for c, step in self.items())


def checked_drop(drop: Mapping[str, str] | None, clients: Iterable[str]) -> dict[str, str]:
    """Return `drop` as a dictionary, empty for None; refuse unknown clients and steps.

    Raises:
        ParameterError: names the client or the step.
    """
    if drop is None:
        return {}
    names = tuple(clients)
    if not isinstance(drop, Mapping):
        raise ParameterError(
            "drop must be a mapping from clients to steps, such as "
            f"{{{names[-1]!r}: 'row sums'}}, got {drop!r}"
        )
    for name, step in drop.items():
        if name not in names:
            raise ParameterError(
                f"cannot drop {name!r}: the clients are {', '.join(names)}"
                f"{did_you_mean(str(name), names)}"
            )
        if step not in STEPS:
            raise ParameterError(
                f"{name!r} can drop out before {', '.join(STEPS)}, not {step!r}"
                f"{did_you_mean(str(step), STEPS)}"
            )
    return dict(drop)
