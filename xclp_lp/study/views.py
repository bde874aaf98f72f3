"""What a run was and what each party learned in it, in the words of docs/understand/security.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.protocols.hamming.interface import Trust
from xclp_crypto.transport.meter import Cost
from xclp_lp.dropouts import Dropout
from xclp_lp.parameters import Parameters
from xclp_lp.plan import Result

SERVER_LEARNS = (
    "all pairwise Hamming distances H",
    "which rows are labelled",
    "columns of the influence matrix S (it computes them)",
)
SERVER_DOES_NOT = ("vectors", "hashes", "the random projection", "labels", "scores")
CLIENT_LEARNS = (
    "scores of its own rows",
    "for each of its labelled rows, how strongly every row of the federation is tied to it",
)
CLIENT_OF_TWO_LEARNS = "the other's part of its scores"
CLIENT_DOES_NOT = "the others' vectors, hashes, distances, labels, scores"
CLIENT_LEARNS_TOTALS = "how many labels each class has over all contributors"
CLIENT_LEARNS_MOMENTS = "mean and variance of each feature over the rows of all clients"
RELAY_LEARNS = (
    "who sends how many bytes to whom, from which follows how many rows a client's labels reach"
)
RELAY_DOES_NOT = "contents"
PUBLIC = (
    "rows and labelled rows of each client, number of features, bits and classes, and the "
    "parameters"
)
DISTANCES_TELL = (
    "cos(πH/L) estimates all angles, and angles fix the points up to length, rotation and "
    "reflection."
)
MAY_COLLUDE: Mapping[Trust, str] = {
    "2pc": "The server may collude with any clients: nothing is learned beyond what follows from "
    "the distances, which with a client's hashes are linear equations in the others' bits, and "
    "with its scores in their labels.",
    "non-colluding": "The server may collude with no client: one client that hands its keys to "
    "the server reveals every client's hashes.",
    "none": "This back end hides no hashes from the server: the server gets the hashes.",
}
"""With whom the server may collude, by the trust that a back end asks for."""


@dataclass(frozen=True)
class View:
    """What one kind of party learns.

    Attributes:
        party: who.
        learns: beyond its own input and what is public.
        not_learned: what the protocol keeps from it.
    """

    party: str
    learns: tuple[str, ...]
    not_learned: tuple[str, ...]


@dataclass(frozen=True)
class RunRecord:
    """What a run was and cost, without anybody's vectors, labels or keys.

    Attributes:
        params: what all parties had in common.
        rows: number of rows by client.
        labelled: number of labelled rows by client.
        groups: clients by group, each a federation of its own.
        fixed_projection: whether a number that people know fixes the random projection.
        contributors: clients whose labels are counted.
        dropouts: who dropped out.
        cost: of all messages and computations.
    """

    params: Parameters
    rows: Mapping[str, int]
    labelled: Mapping[str, int]
    groups: Mapping[str, tuple[str, ...]]
    fixed_projection: bool
    contributors: tuple[str, ...]
    dropouts: tuple[Dropout, ...]
    cost: Cost

    @property
    def backend(self) -> str:
        """Return the name of the back end of the distances."""
        return get_backend(self.params.hamming).name

    @property
    def trust(self) -> Trust:
        """Return with whom the server may collude."""
        return get_backend(self.params.hamming).trust

    @classmethod
    def of(cls, result: Result) -> RunRecord:
        """Take it from what came of a plan."""
        plan = result.plan
        return cls(
            params=plan.params,
            rows=plan.sizes,
            labelled=plan.labelled,
            groups=plan.groups,
            fixed_projection=plan.seed is not None,
            contributors=result.participation.contributors,
            dropouts=result.participation.dropouts,
            cost=result.cost,
        )

    @classmethod
    def together(cls, records: Sequence[RunRecord]) -> RunRecord:
        """Return the record of runs of other clients each, as groups of one; at least one."""
        if len(records) == 1:
            return records[0]
        first = records[0]
        return cls(
            params=first.params,
            rows={c: n for r in records for c, n in r.rows.items()},
            labelled={c: n for r in records for c, n in r.labelled.items()},
            groups={f"group-{i}": tuple(r.rows) for i, r in enumerate(records)},
            fixed_projection=first.fixed_projection,
            contributors=tuple(c for r in records for c in r.contributors),
            dropouts=tuple(d for r in records for d in r.dropouts),
            cost=Cost.total(r.cost for r in records),
        )


def views(record: RunRecord) -> tuple[View, ...]:
    """Return what the server, a client and the network learn in this run."""
    hashes = record.trust == "none"
    server = View(
        "server",
        (*(("the hashes",) if hashes else ()), *SERVER_LEARNS),
        tuple(what for what in SERVER_DOES_NOT if not (hashes and what == "hashes")),
    )
    learns: tuple[str, ...] = CLIENT_LEARNS
    counted = set(record.contributors)
    if any(len(counted & set(own)) <= MIN_CLIENTS for own in record.groups.values()):
        learns = (*learns, f"where only two clients contribute, {CLIENT_OF_TWO_LEARNS}")
    if record.params.weighted:
        learns = (*learns, CLIENT_LEARNS_TOTALS)
    if record.params.shared_scale:
        learns = (*learns, CLIENT_LEARNS_MOMENTS)
    return (
        server,
        View("each client", learns, (CLIENT_DOES_NOT,)),
        View("relay, network", (RELAY_LEARNS,), (RELAY_DOES_NOT,)),
    )


def remarks(record: RunRecord) -> tuple[str, ...]:
    """Return what else there is to know about who learns what in this run."""
    said = [
        f"Public to all: {PUBLIC}.",
        f"Distances by {record.backend}. {MAY_COLLUDE[record.trust]}",
        f"What the distances give away: {DISTANCES_TELL}",
    ]
    if record.fixed_projection:
        said.append(
            "The random projection was fixed by a number, random_state: anybody who knows the "
            "number knows the projection."
        )
    if len(record.groups) > 1:
        said.append("Each group is a federation of its own: distances are within groups only.")
    said.append(
        "Clients reach each other through the server. Messages are sealed from end to end, so "
        "the server as a relay sees their sizes only."
    )
    said.append(
        "This was a simulation: all parties ran in one process, which of course sees everything."
    )
    return tuple(said)
