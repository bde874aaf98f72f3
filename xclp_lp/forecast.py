"""What a run will cost, before anything of it is computed.

Bytes and rounds follow from the public sizes by the formulas of the messages; only how many columns
of S have zeros that do not travel depends on the data, so bytes from the server are the most that
they can be. Memory is the sum of the arrays that exist at once. Seconds are those of short runs of
each primitive on this machine (`Speeds.measure`), scaled to the sizes at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto import wire
from xclp_crypto.algebra.prg import accumulate
from xclp_crypto.algebra.products import exact_product
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.params import residue_width
from xclp_crypto.primitives import rlwe
from xclp_crypto.primitives.sealed_box import SealedBox
from xclp_crypto.protocols.hamming import BACKENDS, get_backend
from xclp_crypto.protocols.hamming import masked as masked_rows
from xclp_crypto.protocols.hamming.interface import DistanceShares, Estimate, local_distances
from xclp_crypto.protocols.hamming.rlwe import roles_of
from xclp_crypto.protocols.secure_sum.row_sums import bytes_per_link as row_sum_bytes
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.protocols.setup.channel import sealed_size
from xclp_crypto.protocols.setup.key_exchange import Directory, Hello
from xclp_crypto.protocols.setup.seed_agreement import Confirm, Received, Roster, SeedShare
from xclp_crypto.rng import SystemRng
from xclp_crypto.transport.driver import Role
from xclp_crypto.transport.simulate import Simulation
from xclp_lp.graph import neighbour_graph, neighbour_graph_from_bits
from xclp_lp.influence import Layout, PartialScores, block_columns
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.messages import Influence, Labelled, Participants, Prepared, Reach, Sensitivity
from xclp_lp.parameters import Parameters
from xclp_lp.session import STEPS, ClientData, client_role, rows_of_sums, server_role
from xclp_lp.solvers import DENSE_BYTES, Propagator

Links = dict[tuple[str, str], int]

BASE_BYTES = 200_000_000
"""Memory of the interpreter and its libraries."""
PAIR_BYTES = 2_000
"""Memory of the keys and counters that a simulation holds for each ordered pair of clients."""
ANNOUNCED = 3
"""Public numbers of each client: rows, labelled rows, features."""
ROUNDS = {"setup": 6, "hashing": 1, "propagation": 1, "row sums": 8, "labels": 1}
"""Messages that wait for each other in each step but ``hamming``."""
OVERLAPPING = 2
"""Rounds that need not wait: the first ones of ``hashing`` and of ``hamming`` go with the last one
of ``setup``."""

OPERATION_SECONDS = {
    "fixed-base multiplications": 13e-6,
    "variable-base multiplications": 40e-6,
    "extended transfers": 0.4e-6,
    "AES blocks": 16e-9,
    "key pairs": 0.7,
    "encryptions": 1.3e-3,
    "multiplications of ciphertexts": 10e-6,
    "re-randomised and decrypted answers": 10e-3,
}
"""Rough seconds of one operation on one core of a server of 2023; Paillier with 3072 bits. What is
not listed is too fast to need a warning, or measured."""
MEASURED = ("plain", "masked", "rlwe")
"""Back ends whose operations are measured; seconds of others are rough."""
REPEATS = 3
"""Runs of each primitive, of which the shortest counts: others may work on this machine too."""
FEW_CLIENTS, FEW_ROWS = 50, 10_000
"""Most clients and rows for which other back ends are compared; with more nobody would want to
wait, neither for them nor for their messages to be counted."""


@dataclass(frozen=True)
class Shape:
    """The public sizes of a federation.

    Attributes:
        rows: by client.
        labelled: labelled rows by client.
        features: d.
    """

    rows: Mapping[str, int]
    labelled: Mapping[str, int]
    features: int

    @property
    def n(self) -> int:
        """Return the number of all rows."""
        return sum(self.rows.values())


def message_bytes(params: Parameters, shape: Shape) -> dict[str, Links]:
    """Return the bytes of all messages by step and (from, to), sealing included.

    Exact if nobody vanishes and the graph is connected; otherwise fewer values of S travel.
    """
    rows, p, n = shape.rows, len(shape.rows), shape.n
    steps: dict[str, Links] = {step: defaultdict(int) for step in STEPS}
    setup, width = steps["setup"], block_columns(n)
    for client, own in rows.items():
        hello = Hello.size(agreement=params.agreement().size, numbers=ANNOUNCED)
        setup[client, SERVER] = wire.TAG_BYTES + hello
        setup[client, SERVER] += sealed_size(Received.size(clients=p))
        setup[client, SERVER] += sealed_size(Confirm.size())
        setup[SERVER, client] = wire.TAG_BYTES + Directory.size(invited=p, numbers=ANNOUNCED)
        setup[SERVER, client] += sealed_size(Roster.size(clients=p))
        for peer in rows:
            if peer != client:
                setup[client, peer] = sealed_size(SeedShare.size())
        steps["hashing"][client, SERVER] = sealed_size(Prepared.size(rows=own))
        steps["labels"][client, SERVER] = sealed_size(Labelled.size())
        down = sealed_size(Participants.size(clients=p))
        labelled = shape.labelled[client]
        if labelled:
            down += sealed_size(Reach.size(rows=n, labelled=labelled))
            whole, rest = divmod(labelled, width)
            down += whole * sealed_size(Influence.size(values=width * n))
            down += sealed_size(Influence.size(values=rest * n)) if rest else 0
        if params.noise is not None:
            down += sealed_size(Sensitivity.size())
        steps["propagation"][SERVER, client] = down
    steps["hamming"] |= get_backend(params.hamming).bytes_per_link(rows, params.n_bits)
    graph = params.mask_graph(tuple(rows))
    steps["row sums"] |= row_sum_bytes(rows_of_sums(params, rows), len(params.classes), graph)
    return {step: dict(links) for step, links in steps.items()}


def rounds(params: Parameters, shape: Shape) -> dict[str, int]:
    """Return the messages that wait for each other, by step; the whole run has two fewer."""
    hamming = get_backend(params.hamming).estimate(shape.rows, params.n_bits).rounds
    return {step: ROUNDS.get(step, hamming) for step in STEPS}


def memory(params: Parameters, shape: Shape) -> dict[str, int]:
    """Return the bytes that all parties in one process need in each step at its peak, roughly."""
    n, p, classes = shape.n, len(shape.rows), len(params.classes)
    kept = _kept_bytes(shape)
    hashes = n * params.n_bits
    word = 8 * n
    own = sum(word * min(classes, labelled) for labelled in shape.labelled.values())
    columns = min(block_columns(n), sum(shape.labelled.values()))
    solver = min(8 * n**2, DENSE_BYTES) + 64 * 3 * params.k * n + 6 * word * columns
    noise = p * word * classes if params.noise is not None else 0
    sums = own + noise + 6 * word * classes
    estimate = get_backend(params.hamming).estimate(shape.rows, params.n_bits)
    return {
        "setup": kept,
        "hashing": kept + hashes,
        "hamming": hamming_memory(params, shape, estimate),
        "propagation": kept + 2 * n**2 + max(own + solver, own + noise),
        "row sums": kept + sums,
        "labels": kept + 4 * word * classes,
    }


def hamming_memory(params: Parameters, shape: Shape, estimate: Estimate) -> int:
    """Return the bytes that all parties in one process need while distances are computed."""
    hashes = shape.n * params.n_bits
    return _kept_bytes(shape) + hashes + max(2 * shape.n**2, estimate.simulation_bytes)


def _kept_bytes(shape: Shape) -> int:
    return BASE_BYTES + PAIR_BYTES * len(shape.rows) ** 2 + 8 * shape.n * shape.features


@dataclass(frozen=True)
class Speeds:
    """Seconds of the primitives on this machine.

    Attributes:
        message: by step, of a small message and what belongs to it (key exchange, shares, …).
        packed: of a byte of packed residues: packing, sealing, opening, unpacking.
        raw: the same of a byte of numbers of whole bytes.
        projection: of making the projection.
        hashed: of hashing a row.
        product: of a float32 multiply-add in distances in the clear.
        mask: of a residue of the masks of ``masked``.
        masked: of a multiply-add of ``masked``: at a client with a later one, with an earlier one,
            at the server.
        encrypted, prepared: of a row in ``rlwe``.
        evaluated, decrypted: of a pair of rows in ``rlwe``.
        entry: of an entry of H, from shares to graph.
        solve: takes n and a number of columns.
        value: of a value of S at a client.
        summed: of a byte of masks in row sums.
    """

    message: Mapping[str, float]
    packed: float
    raw: float
    projection: float
    hashed: float
    product: float
    mask: float
    masked: tuple[float, float, float]
    encrypted: float
    prepared: float
    evaluated: float
    decrypted: float
    entry: float
    solve: Callable[[int, int], float]
    value: float
    summed: float

    @classmethod
    def measure(
        cls, params: Parameters, shape: Shape, vectors: Sequence[NDArray[Any]] = ()
    ) -> Speeds:
        """Measure all, in a few seconds.

        Args:
            params: the agreement.
            shape: the sizes of the run.
            vectors: of some or all clients; the graph of a sample of them predicts how long the
                solver takes. Without them random ones are taken.
        """
        rng, generator, n_bits = SystemRng(), np.random.default_rng(0), params.n_bits
        height = max(1, min(int(median([n for n in shape.rows.values() if n] or [1])), 256))
        bits = generator.integers(0, 2, (512, n_bits), dtype=np.uint8)
        own = bits[:height]
        sample = _sample(shape, vectors, generator)

        width = residue_width(n_bits)
        local = generator.integers(0, 2, 1 << 19, dtype=np.uint16)
        shares = DistanceShares(np.ones(1, np.bool_), local[:0], local[None], width)
        dims = {"clients": 1, "rows": 1, "others": local.size, "width": width}
        values = generator.random(1 << 20, dtype=np.float32)

        fixed = partial(projection, bytes(32), n_bits, shape.features, params.projection)
        pi = fixed()
        hashes = hash_bits(sample, pi)

        stack = max(1, min(masked_rows.STACK_ENTRIES // n_bits, shape.n))
        mask = masked_rows.row_mask(bytes(32), b"", "", stack, n_bits)
        pair = np.zeros((height, stack), np.uint16)
        weights = np.zeros(height, np.uint16)
        high = own.astype(np.uint16)
        wide = mask.astype(np.float64)

        ring = rlwe.Ring.from_label(bytes(32), b"calibration", rlwe.parameters_for(n_bits))
        parameters = ring.parameters
        block = bits[: min(height, 128)]
        secret, limbs = rlwe.encrypt(rng, ring, block)
        matrix, c1 = rlwe.prepare(rng, ring, block)
        drawn = rlwe.drawn_masks(rng, (len(block), len(block)), parameters)
        c2 = rlwe.evaluate(rng, matrix, list(limbs), drawn, parameters)
        pairs = len(block) ** 2

        H = generator.integers(n_bits // 4, n_bits // 2 + 1, (1024, 1024), dtype=np.uint16)
        H = np.minimum(H, H.T)
        layout = Layout(np.ones(1 << 12, np.uint16), np.arange(1 << 8))
        scores = PartialScores(
            layout, generator.integers(0, len(params.classes), 1 << 8), len(params.classes)
        )
        total: Residues = np.zeros(max(1, min(shape.n * len(params.classes), 1 << 22)), np.uint64)

        macs = height * stack * n_bits
        return cls(
            message=_small_messages(params),
            packed=_timed(partial(_carry, shares, dims)) / DistanceShares.size(**dims),
            raw=_timed(partial(_carry, Influence(values), {"values": values.size}))
            / (4 * values.size),
            projection=_timed(fixed),
            hashed=_timed(partial(hash_bits, sample[:512], pi)) / len(sample[:512]),
            product=_timed(partial(local_distances, bits)) / (len(bits) ** 2 / 2 * n_bits),
            mask=_timed(partial(masked_rows.row_mask, bytes(32), b"", "", stack, n_bits))
            / mask.size,
            masked=(
                _timed(partial(masked_rows.share_with, own, mask, weights, pair, n_bits)) / macs,
                _timed(partial(masked_rows.share_with, high, mask, weights, pair, n_bits)) / macs,
                _timed(lambda: masked_rows.twice(exact_product(wide[:height], wide.T)))
                / (min(height, len(wide)) * stack * n_bits),
            ),
            encrypted=_timed(partial(rlwe.encrypt, rng, ring, block)) / len(block),
            prepared=_timed(partial(rlwe.prepare, rng, ring, block)) / len(block),
            evaluated=_timed(partial(rlwe.evaluate, rng, matrix, list(limbs), drawn, parameters))
            / pairs,
            decrypted=_timed(partial(rlwe.decrypt, secret, c1, c2, parameters)) / pairs,
            entry=_timed(partial(neighbour_graph, H, n_bits, min(params.k, len(H) - 1))) / H.size,
            solve=_solver(params, hashes),
            value=_timed(partial(scores.add_block, 0, values)) / values.size,
            summed=_timed(partial(accumulate, total, bytes(32), b"", 1 << 64)) / total.nbytes,
        )


def seconds(params: Parameters, shape: Shape, speeds: Speeds) -> dict[str, dict[str, float]]:
    """Return the predicted seconds by step and party."""
    n, classes = shape.n, len(params.classes)
    steps: dict[str, dict[str, float]] = {
        step: dict.fromkeys([*shape.rows, SERVER], 0.0) for step in STEPS
    }
    everything = message_bytes(params, shape)
    p = len(shape.rows)
    degree = params.mask_graph(tuple(shape.rows)).degree
    # In row sums, every client also makes a mask for each owner, and strips as many.
    small = {"setup": p + 4, "hashing": 1, "row sums": 2 * degree + 6 + 2 * p, "labels": 1}
    for step, count in small.items():
        for client in shape.rows:
            steps[step][client] += count * speeds.message.get(step, 0.0)
    for client, rows in shape.rows.items():
        steps["hashing"][client] += speeds.projection + rows * speeds.hashed
        steps["propagation"][client] += n * shape.labelled[client] * speeds.value
        steps["row sums"][client] += (degree + 2) * 8 * n * classes * speeds.summed
        steps["row sums"][SERVER] += 2 * 8 * n * classes * speeds.summed
    for step in ("propagation", "row sums"):
        for (sender, receiver), size in everything[step].items():
            steps[step][sender] += size * speeds.raw / 2
            steps[step][receiver] += size * speeds.raw / 2
    steps["propagation"][SERVER] += n**2 * speeds.entry
    steps["propagation"][SERVER] += speeds.solve(n, sum(shape.labelled.values()))
    for party, spent in _hamming_seconds(params, shape, speeds, everything["hamming"]).items():
        steps["hamming"][party] += spent
    return steps


def _hamming_seconds(
    params: Parameters, shape: Shape, speeds: Speeds, links: Links
) -> dict[str, float]:
    """Return the predicted seconds of the distances by party."""
    backend, rows, n, n_bits = get_backend(params.hamming), shape.rows, shape.n, params.n_bits
    found: dict[str, float] = defaultdict(float)
    carried = speeds.raw if backend.name == "rlwe" else speeds.packed
    for (sender, receiver), size in links.items():
        rate = speeds.packed if receiver == SERVER else carried
        found[sender] += size * rate / 2
        found[receiver] += size * rate / 2
    if backend.name == "plain":
        found[SERVER] += n**2 / 2 * n_bits * speeds.product
        return found
    before, (later, earlier, server) = 0, speeds.masked
    for client, own in rows.items():
        found[client] += own**2 / 2 * n_bits * speeds.product
        after = n - before - own
        if backend.name == "masked":
            found[client] += (n * n_bits + own * (n - own)) * speeds.mask
            found[client] += own * n_bits * (after * later + before * earlier)
            found[SERVER] += own * n_bits * after * server
        before += own
    found[SERVER] += n**2 / 2 * speeds.entry
    if backend.name == "rlwe":
        for client, own in rows.items():
            evaluators, owners = roles_of(client, rows)
            found[client] += own * speeds.encrypted * bool(evaluators)
            found[client] += own * speeds.prepared * bool(owners)
            found[client] += own * sum(rows[c] for c in owners) * speeds.evaluated
            found[client] += own * sum(rows[c] for c in evaluators) * speeds.decrypted
    elif backend.name != "masked":
        work = backend.operations(rows, n_bits)
        spent = sum(OPERATION_SECONDS.get(kind, 0.0) * number for kind, number in work.items())
        for client, own in rows.items():
            found[client] += spent * own / max(n, 1)
    return found


@dataclass(frozen=True)
class StepForecast:
    """What one step will cost.

    Attributes:
        rounds: messages that wait for each other.
        sent, received: bytes by party, at most.
        seconds: by party.
        memory: bytes of all parties in one process.
    """

    rounds: int
    sent: dict[str, int]
    received: dict[str, int]
    seconds: dict[str, float]
    memory: int


@dataclass(frozen=True)
class Forecast:
    """What a run will cost: several federations one after the other, if there are groups.

    Attributes:
        steps: by name.
        back_ends: what the distances cost by each back end: bytes, rounds, seconds, memory, trust.
        rounds: of the whole run.
    """

    steps: dict[str, StepForecast]
    back_ends: dict[str, dict[str, Any]]
    rounds: int

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
        return sum(sum(step.sent.values()) for step in self.steps.values())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""
        return {
            "bytes": self.bytes,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "memory": self.memory,
            "steps": {
                name: {
                    "rounds": step.rounds,
                    "seconds": step.seconds,
                    "bytes_sent": step.sent,
                    "bytes_received": step.received,
                    "memory": step.memory,
                }
                for name, step in self.steps.items()
            },
            "back_ends": self.back_ends,
        }


def forecast(
    params: Parameters, groups: Iterable[Shape], vectors: Sequence[NDArray[Any]] = ()
) -> Forecast:
    """Measure this machine for a few seconds and predict what a run will cost.

    Args:
        params: the agreement.
        groups: the sizes of the federation, or of each of its groups.
        vectors: of some or all clients, see `Speeds.measure`.
    """
    shapes = list(groups)
    speeds = Speeds.measure(params, max(shapes, key=lambda shape: shape.n), vectors)
    sent: dict[str, dict[str, int]] = {step: defaultdict(int) for step in STEPS}
    received: dict[str, dict[str, int]] = {step: defaultdict(int) for step in STEPS}
    spent: dict[str, dict[str, float]] = {step: defaultdict(float) for step in STEPS}
    waits = dict.fromkeys(STEPS, 0)
    peaks = dict.fromkeys(STEPS, 0)
    for shape in shapes:
        for step, links in message_bytes(params, shape).items():
            for (sender, receiver), size in links.items():
                sent[step][sender] += size
                received[step][receiver] += size
        for step, parties in seconds(params, shape, speeds).items():
            for party, value in parties.items():
                spent[step][party] += value
        for step, count in rounds(params, shape).items():
            waits[step] = max(waits[step], count)
        for step, size in memory(params, shape).items():
            peaks[step] = max(peaks[step], size)
    steps = {
        s: StepForecast(waits[s], dict(sent[s]), dict(received[s]), dict(spent[s]), peaks[s])
        for s in STEPS
    }
    chosen = get_backend(params.hamming)
    few = all(len(shape.rows) <= FEW_CLIENTS and shape.n <= FEW_ROWS for shape in shapes)
    names = [name for name in BACKENDS if few or name in MEASURED]
    others = {name: get_backend(name) for name in names} | {chosen.name: chosen}
    compared = {
        name: _compared(replace(params, hamming=backend), shapes, speeds)
        for name, backend in others.items()
    }
    return Forecast(steps, compared, sum(waits.values()) - OVERLAPPING)


def _compared(params: Parameters, shapes: Sequence[Shape], speeds: Speeds) -> dict[str, Any]:
    """Return what the distances cost by one back end."""
    backend = get_backend(params.hamming)
    estimates = [backend.estimate(shape.rows, params.n_bits) for shape in shapes]
    spent, peak = 0.0, 0
    for shape, estimate in zip(shapes, estimates, strict=True):
        spent += sum(_hamming_seconds(params, shape, speeds, estimate.bytes_per_link).values())
        peak = max(peak, hamming_memory(params, shape, estimate))
    return {
        "bytes": sum(estimate.total_bytes for estimate in estimates),
        "rounds": max(estimate.rounds for estimate in estimates),
        "seconds": spent,
        "memory": peak,
        "trust": backend.trust,
    }


def _timed(work: Callable[[], object]) -> float:
    """Return the shortest of at least three runs, within a tenth of a second or so."""
    times: list[float] = []
    while len(times) < REPEATS or sum(times) < 0.1:
        before = perf_counter()
        work()
        times.append(perf_counter() - before)
    return min(times)


def _carry(message: wire.Message, dims: Mapping[str, Any]) -> None:
    """Encode, seal, open and decode a message."""
    sealed = SealedBox(bytes(32), b"").seal(wire.body(message))
    wire.decode_body(type(message), SealedBox(bytes(32), b"").open(sealed), **dims)


def _sample(
    shape: Shape, vectors: Sequence[NDArray[Any]], generator: np.random.Generator
) -> NDArray[Any]:
    """Return at most 2000 vectors, all of those given if they are fewer."""
    if not vectors:
        # Points near surfaces of few dimensions, as real features are.
        basis = generator.standard_normal((10, 12, shape.features))
        of = generator.integers(0, 10, min(2000, max(shape.n, 2)))
        points = np.einsum("ij,ijk->ik", generator.standard_normal((len(of), 12)), basis[of])
        return np.asarray(points + generator.standard_normal(points.shape))
    stacked = np.concatenate(list(vectors))
    return stacked[generator.permutation(len(stacked))[:2000]]


def _small_messages(params: Parameters) -> dict[str, float]:
    """Return the seconds of a small message by step, from a session of a few tiny clients."""
    generator, rng = np.random.default_rng(0), SystemRng()
    invited = tuple(f"client-{i}" for i in range(min(12, max(4, params.fewest_clients))))
    tiny = Parameters(classes=(0, 1), n_bits=64, k=1, hamming="plain")
    roles: dict[str, Role] = {
        name: partial(
            client_role,
            data=ClientData(generator.standard_normal((2, 3)), np.array([0, 1])),
            params=tiny,
            invited=invited,
            rng=rng,
        )
        for name in invited
    }
    roles[SERVER] = partial(server_role, params=tiny, invited=invited, rng=rng)
    best: dict[str, float] = dict.fromkeys(STEPS, np.inf)
    for _ in range(REPEATS):
        cost = Simulation().run(roles).cost
        sent: dict[str, int] = defaultdict(int)
        for traffic, count in cost.messages.items():
            sent[traffic.step] += count
        for step, least in best.items():
            spent = sum(cost.seconds_by_party(step).values())
            best[step] = min(least, spent / max(sent[step], 1))
    return best


def _solver(params: Parameters, hashes: NDArray[np.uint8]) -> Callable[[int, int], float]:
    """Return what predicts the seconds of the columns of S, from the graph of a sample."""
    if len(hashes) < 2:
        return lambda n, columns: 0.0
    k = min(params.k, len(hashes) - 1)
    graph = neighbour_graph_from_bits(
        hashes, k, gamma=params.gamma, include_self=params.include_self, ties=params.ties
    )
    columns = min(len(hashes), 128)
    propagator = Propagator(graph, params.alpha, columns)
    spent = _timed(lambda: Propagator(graph, params.alpha, columns).columns(np.arange(columns)))
    ratio = spent / propagator.forecast(len(hashes), columns)
    return lambda n, count: ratio * propagator.forecast(n, count) if n and count else 0.0
