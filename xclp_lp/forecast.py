"""What a run will cost, before anything of it is computed.

Bytes and rounds follow from the public sizes by the formulas of the messages; only how many columns
of S have zeros that do not travel depends on the data, so bytes from the server are the most that
they can be. Memory is that of `xclp_lp.memory`. Seconds are those of one core of a server of 2023,
from the numbers of operations: right to a factor of two or three, since machines differ as much,
several cores share some of the work, and other programs slow it down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from xclp_crypto.protocols.hamming import BACKENDS, Estimate, get_backend
from xclp_crypto.protocols.hamming.interface import column_ranges
from xclp_crypto.protocols.secure_sum.costs import row_sums_bytes
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.protocols.setup.channel import sealed_size
from xclp_crypto.protocols.setup.costs import key_exchange_bytes
from xclp_crypto.protocols.setup.seed_agreement import Confirm, Received, Roster, SeedShare
from xclp_lp.dropouts import STEPS
from xclp_lp.influence import block_columns
from xclp_lp.labelling import rows_of_sums
from xclp_lp.leave_one_out import alphas, counts_width
from xclp_lp.memory import hamming_estimate, hamming_memory, memory
from xclp_lp.messages import (
    Geometry,
    Influence,
    Labelled,
    Participants,
    Prepared,
    Reach,
    Sensitivity,
)
from xclp_lp.parameters import Parameters, Shape
from xclp_lp.scaling import moments_rows, moments_width

Links = dict[tuple[str, str], int]

ANNOUNCED = 3
"""Public numbers of each client: rows, labelled rows, features."""
ROUNDS = {"setup": 8, "hashing": 1, "propagation": 1, "row sums": 9, "labels": 1, "validation": 0}
"""Messages that wait for each other in each step but ``hamming``."""
OVERLAPPING = 2
"""Rounds that need not wait: the first ones of ``hashing`` and of ``hamming`` go with the last one
of ``setup``."""

SECONDS = {
    # Of the operations of back ends, by the names of `HammingBackend.operations`:
    "float32 multiply-adds": 15e-12,
    "multiply-adds": 60e-12,
    "mask residues": 0.55e-9,
    "encrypted rows": 0.35e-3,
    "evaluated rows": 0.25e-3,
    "fixed-base multiplications": 13e-6,
    "variable-base multiplications": 40e-6,
    "extended transfers": 0.4e-6,
    "AES blocks": 16e-9,
    "key pairs": 0.7,  # of Paillier, with 3072 bits, as the next three
    "encryptions": 1.3e-3,
    "multiplications of ciphertexts": 10e-6,
    "re-randomised and decrypted answers": 10e-3,
    # Of what else takes time:
    "link": 0.12e-3,  # keys, shares and headers between two parties in a step
    "byte": 0.9e-9,  # of numbers: written, sealed, opened, read
    "packed byte": 8.5e-9,  # the same of residues that are packed
    "bit": 80e-12,  # of a hash, for each feature
    "projection": 2.4e-9,  # of each bit and feature
    "distance": 9e-9,  # from shares to graph
    "influence": 25e-9,  # an entry of S, for each neighbour of a point; graphs differ
    "influence added": 1.7e-9,  # the same at a client, to its scores
    "mask byte": 0.6e-9,  # in row sums
    "sum byte": 2e-9,  # added by the server
}
"""Seconds on one core of a server of 2023."""
SERVER_SHARE = {"plain": 1.0, "masked": 1 / 3}
"""Of the operations of a back end: what the server does of them, where it does any."""
FAST = ("plain", "masked", "rlwe")
"""Back ends whose cost is told for runs of any size."""
FEW_CLIENTS, FEW_ROWS = 50, 10_000
"""Most clients and rows for which others are compared; to count their messages would take long."""


def message_bytes(params: Parameters, shape: Shape) -> dict[str, Links]:
    """Return the bytes of all messages by step and (from, to), sealing included.

    Exact if nobody drops out and the graph is connected; otherwise fewer values of S travel.
    """
    rows, p, n = shape.rows, len(shape.rows), shape.n
    steps: dict[str, Links] = {step: defaultdict(int) for step in STEPS}
    setup = steps["setup"]
    setup |= key_exchange_bytes(
        tuple(rows), params.agreement().size, ANNOUNCED, post_quantum=params.post_quantum
    )
    for client, own in rows.items():
        setup[client, SERVER] += sealed_size(Received.size(clients=p))
        setup[client, SERVER] += sealed_size(Confirm.size())
        setup[SERVER, client] += sealed_size(Roster.size(clients=p))
        for peer in rows:
            if peer != client:
                setup[client, peer] = sealed_size(SeedShare.size())
        steps["hashing"][client, SERVER] = sealed_size(Prepared.size(rows=own))
        steps["labels"][client, SERVER] = sealed_size(Labelled.size())
        down = sealed_size(Participants.size(clients=p)) + sealed_size(Geometry.size(rows=n))
        down += _columns_bytes(n, shape.labelled[client])
        if params.noise is not None:
            down += sealed_size(Sensitivity.size())
        steps["propagation"][SERVER, client] = down
    if params.shared_scale:
        clients, columns = tuple(rows), moments_width(shape.features)
        sums = row_sums_bytes(moments_rows(clients), columns, params.moments_graph(clients))
        for link, number in sums.items():
            steps["hashing"][link] += number
    steps["hamming"] |= hamming_estimate(params, shape).bytes_per_link
    graph = params.mask_graph(tuple(rows))
    steps["row sums"] |= row_sums_bytes(rows_of_sums(params, rows), len(params.classes), graph)
    if params.validated:
        steps["validation"] |= validation_bytes(params, shape)
    return {step: dict(links) for step, links in steps.items()}


def validation_bytes(params: Parameters, shape: Shape) -> Links:
    """Return the bytes of leaving labelled rows out, as `message_bytes`."""
    clients = tuple(shape.rows)
    graph, labelled = params.mask_graph(clients), sum(shape.labelled.values())
    each = {client: np.array([i]) for i, client in enumerate(clients)}
    links: Links = defaultdict(int, row_sums_bytes(each, counts_width(params), graph))
    if not (others := len(alphas(params))):
        return links
    rows = column_ranges(shape.labelled)
    scores = {client: np.arange(own.start, own.stop) for client, own in rows.items()}
    for link, number in row_sums_bytes(scores, len(params.classes) * others, graph).items():
        links[link] += number
    for client, own in shape.labelled.items():
        links[SERVER, client] += others * _columns_bytes(labelled, own)
    return links


def _columns_bytes(rows: int, labelled: int) -> int:
    """Return the bytes of the columns of a client's labelled rows, with so many rows each."""
    if not labelled:
        return 0
    width = block_columns(rows)
    whole, rest = divmod(labelled, width)
    size = sealed_size(Reach.size(rows=rows, labelled=labelled))
    size += whole * sealed_size(Influence.size(values=width * rows))
    return size + (sealed_size(Influence.size(values=rest * rows)) if rest else 0)


def rounds(params: Parameters, shape: Shape) -> dict[str, int]:
    """Return the messages that wait for each other, by step; the whole run has two fewer."""
    hamming = hamming_estimate(params, shape).rounds
    waits = {step: ROUNDS.get(step, hamming) for step in STEPS}
    sums = params.validated + (1 if alphas(params) else 0)
    return waits | {
        "hashing": waits["hashing"] + ROUNDS["row sums"] * params.shared_scale,
        "validation": ROUNDS["row sums"] * sums + (1 if alphas(params) else 0),
    }


def computing_seconds(operations: Mapping[str, int]) -> float:
    """Return the seconds of so many operations on one core; those not in `SECONDS` take none."""
    return sum(SECONDS.get(kind, 0.0) * number for kind, number in operations.items())


def seconds(
    params: Parameters, shape: Shape, links: Mapping[str, Links]
) -> dict[str, dict[str, float]]:
    """Return the predicted seconds by step and party.

    Args:
        params: the agreement.
        shape: the sizes of the run.
        links: its `message_bytes`.
    """
    n, summed = shape.n, 8 * shape.n * len(params.classes)
    steps = {step: _carrying_seconds(shape, links[step]) for step in STEPS}
    steps["hamming"] = _hamming_seconds(params, shape, hamming_estimate(params, shape))
    degree = params.mask_graph(tuple(shape.rows)).degree
    for client, rows in shape.rows.items():
        each = SECONDS["projection"] + SECONDS["bit"] * rows
        steps["hashing"][client] += each * params.n_bits * shape.features
        steps["propagation"][client] += SECONDS["influence added"] * n * shape.labelled[client]
        steps["row sums"][client] += SECONDS["mask byte"] * summed * (degree + 2)
        steps["row sums"][SERVER] += SECONDS["sum byte"] * summed
    solved = n * sum(shape.labelled.values()) * params.k
    steps["propagation"][SERVER] += SECONDS["distance"] * n**2 + SECONDS["influence"] * solved
    steps["validation"][SERVER] += SECONDS["influence"] * solved * len(alphas(params))
    return steps


def _carrying_seconds(shape: Shape, links: Links, to_server: str = "byte") -> dict[str, float]:
    """Return the seconds of all messages by party, half of them at either end."""
    found = dict.fromkeys([*shape.rows, SERVER], 0.0)
    for (sender, receiver), size in links.items():
        byte = SECONDS[to_server if receiver == SERVER else "byte"]
        found[sender] += (SECONDS["link"] + byte * size) / 2
        found[receiver] += (SECONDS["link"] + byte * size) / 2
    return found


def _hamming_seconds(params: Parameters, shape: Shape, distances: Estimate) -> dict[str, float]:
    """Return the predicted seconds of the distances by party; clients share by their rows."""
    backend, n = get_backend(params.hamming), shape.n
    found = _carrying_seconds(shape, distances.bytes_per_link, "packed byte")
    work = computing_seconds(distances.operations)
    share = SERVER_SHARE.get(backend.name, 0.0)
    found[SERVER] += share * work + SECONDS["distance"] * n**2 / 2
    for client, own in shape.rows.items():
        found[client] += (1 - share) * work * own / max(n, 1)
    return found


@dataclass(frozen=True)
class StepForecast:
    """What one step will cost.

    Attributes:
        rounds: messages that wait for each other.
        seconds: by party.
        bytes_sent, bytes_received: by party, at most.
        memory: bytes of all parties in one process.
    """

    rounds: int
    seconds: dict[str, float]
    bytes_sent: dict[str, int]
    bytes_received: dict[str, int]
    memory: int


@dataclass(frozen=True)
class Forecast:
    """What a run will cost: several federations one after the other, if there are groups.

    Attributes:
        steps: by name.
        back_ends: what the distances cost by each back end: bytes, rounds, seconds, memory, trust.
        rounds: of the whole run.
        longest_message: bytes of the longest message, or a little more: distances of one client.
    """

    steps: dict[str, StepForecast]
    back_ends: dict[str, dict[str, Any]]
    rounds: int
    longest_message: int

    @property
    def memory(self) -> int:
        """Return the bytes that all parties in one process need at the peak."""
        return max(step.memory for step in self.steps.values())

    @property
    def seconds(self) -> float:
        """Return the seconds of all parties, one after the other."""
        return sum(sum(step.seconds.values()) for step in self.steps.values())

    @property
    def bytes(self) -> int:
        """Return the bytes of all messages, at most."""
        return sum(sum(step.bytes_sent.values()) for step in self.steps.values())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return {
            "bytes": self.bytes,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "memory": self.memory,
            "longest_message": self.longest_message,
            "steps": {name: asdict(step) for name, step in self.steps.items()},
            "back_ends": self.back_ends,
        }


def forecast(params: Parameters, groups: Iterable[Shape]) -> Forecast:
    """Predict what a run will cost.

    Args:
        params: the agreement.
        groups: the sizes of the federation, or of each of its groups.
    """
    shapes = list(groups)
    links = [message_bytes(params, shape) for shape in shapes]
    spent = [seconds(params, *own) for own in zip(shapes, links, strict=True)]
    waits = [rounds(params, shape) for shape in shapes]
    peaks = [memory(params, shape) for shape in shapes]
    steps = {}
    for step in STEPS:
        sent: dict[str, int] = defaultdict(int)
        received: dict[str, int] = defaultdict(int)
        for (sender, receiver), size in (item for own in links for item in own[step].items()):
            sent[sender] += size
            received[receiver] += size
        by_party: dict[str, float] = defaultdict(float)
        for party, value in (item for own in spent for item in own[step].items()):
            by_party[party] += value
        steps[step] = StepForecast(
            rounds=max(own[step] for own in waits),
            seconds=dict(by_party),
            bytes_sent=dict(sent),
            bytes_received=dict(received),
            memory=max(own[step] for own in peaks),
        )
    chosen = get_backend(params.hamming)
    few = all(len(shape.rows) <= FEW_CLIENTS and shape.n <= FEW_ROWS for shape in shapes)
    names = [name for name in BACKENDS if few or name in FAST]
    others = {name: get_backend(name) for name in names} | {chosen.name: chosen}
    compared = {b: _compared(replace(params, hamming=own), shapes) for b, own in others.items()}
    uploads = [s for own in links for (_, to), s in own["hamming"].items() if to == SERVER]
    waits_in_all = sum(step.rounds for step in steps.values()) - OVERLAPPING
    return Forecast(steps, compared, waits_in_all, max(uploads))


def _compared(params: Parameters, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Return what the distances cost by one back end."""
    backend = get_backend(params.hamming)
    each = [(shape, hamming_estimate(params, shape)) for shape in shapes]
    return {
        "bytes": sum(estimate.total_bytes for _, estimate in each),
        "rounds": max(estimate.rounds for _, estimate in each),
        "seconds": sum(
            sum(_hamming_seconds(params, shape, estimate).values()) for shape, estimate in each
        ),
        "memory": max(hamming_memory(params, shape, estimate) for shape, estimate in each),
        "trust": backend.trust,
    }
