"""What each back end costs, from the sizes alone: bytes of every link, rounds, operations, memory.

Bytes and rounds are exact, setup not counted, for a run without dropouts; tests equate them with
what is metered. Rounds of back ends that work in batches are counted by following their steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.prg import KEY_BYTES
from xclp_crypto.errors import ParameterError
from xclp_crypto.params import KAPPA, residue_width
from xclp_crypto.primitives import rlwe as lattice
from xclp_crypto.protocols.hamming import paillier, rlwe, shade, shade_ext
from xclp_crypto.protocols.hamming.checks import GRAM_ROWS
from xclp_crypto.protocols.hamming.interface import (
    DistanceShares,
    HammingBackend,
    cross_pairs,
    share_sizes,
)
from xclp_crypto.protocols.hamming.masked import Masked, MaskedRows
from xclp_crypto.protocols.hamming.plain import Plain, PlainBits
from xclp_crypto.protocols.ot.bits import BLOCK_LANES
from xclp_crypto.protocols.ot.extension import OtChallenge, OtColumns, OtCorrections, OtProof
from xclp_crypto.protocols.ot.link import batch_words
from xclp_crypto.protocols.ot.naor_pinkas import OtChoices, OtOffers, OtSetup
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.protocols.setup.channel import sealed_size

Sizes = Mapping[str, int]
"""Number of rows by client."""

TRANSFER_BYTES = 600
"""Memory of one transfer of `shade` at work, at both ends, measured: points and scalars are Python
objects."""


@dataclass(frozen=True)
class Estimate:
    """What a run will cost.

    Attributes:
        rounds: messages that must wait for each other.
        bytes_per_link: bytes of all messages by (from, to), sealing included; exact.
        operations: number of the operations that dominate the time, of all parties, by kind.
        memory_bytes: what the party with most needs at its peak, roughly.
        streams: whether messages are read as they come, so that few of them wait at a time.
    """

    rounds: int
    bytes_per_link: dict[tuple[str, str], int]
    operations: dict[str, int]
    memory_bytes: int
    streams: bool = False

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all messages."""
        return sum(self.bytes_per_link.values())

    @property
    def simulation_bytes(self) -> int:
        """Return what all parties in one process need at its peak, roughly: with what waits."""
        return self.memory_bytes + (0 if self.streams else self.total_bytes)


class Chains:
    """Counts the rounds of messages that need not be sent: by following who waits for whom.

    Attributes:
        depth: by party, messages in the longest chain that ends in what it has received.
    """

    def __init__(self) -> None:
        self.depth: defaultdict[str, int] = defaultdict(int)

    def send(self, links: Iterable[tuple[str, str]]) -> list[tuple[str, int]]:
        """Send a message on every link (from, to); none is received yet."""
        return [(to, self.depth[frm] + 1) for frm, to in links]

    def receive(self, messages: Iterable[tuple[str, int]]) -> None:
        """Receive messages that were sent."""
        for to, chain in messages:
            self.depth[to] = max(self.depth[to], chain)

    @property
    def rounds(self) -> int:
        """Return the rounds, with one more message of every party at the end."""
        return max(self.depth.values(), default=0) + 1


@singledispatch
def estimate(backend: HammingBackend, sizes: Sizes, n_bits: int) -> Estimate:
    """Return what a run of a back end without dropouts will cost.

    Args:
        backend: one of those below, or one whose class has a function that is registered by
            ``@estimate.register``.
        sizes: number of rows by client.
        n_bits: L.

    Raises:
        ParameterError: nothing is known of this back end, or L is out of range.

    Examples:
        >>> from xclp_crypto.protocols.hamming import estimate, get_backend
        >>> cost = estimate(get_backend("masked"), {"alice": 500, "bob": 500}, 4096)
        >>> cost.rounds, cost.total_bytes
        (1, 7362020)
    """
    raise ParameterError(
        f"nothing says what back end {backend.name!r} costs: register a function by "
        "xclp_crypto.protocols.hamming.estimate.register"
    )


def _share_bytes(sizes: Sizes, n_bits: int) -> dict[tuple[str, str], int]:
    """Return the bytes of every client's `DistanceShares`."""
    dims = share_sizes(sizes, residue_width(n_bits))
    return {(c, SERVER): sealed_size(DistanceShares.size(**dims[c])) for c in sizes}


def _own_bytes(sizes: Sizes, n_bits: int) -> int:
    """Return the memory of ±1 matrix and own distances, with 8 bytes for each of their places."""
    most = max(sizes.values(), default=0)
    return 9 * most * n_bits + 8 * most * most


def _check_bytes(n: int) -> int:
    """Return the memory of the server's check of the distances of n rows."""
    return 10 * min(n, GRAM_ROWS) ** 2


@estimate.register
def _(backend: Plain, sizes: Sizes, n_bits: int) -> Estimate:
    """One message of each client; the server holds the ±1 matrix in float32 and the distances."""
    n = sum(sizes.values())
    links = {
        (c, SERVER): sealed_size(PlainBits.size(rows=m, n_bits=n_bits)) for c, m in sizes.items()
    }
    work = {"float32 multiply-adds": n**2 * n_bits}
    return Estimate(1, links, work, 6 * n * n_bits + 2 * n * n)


@estimate.register
def _(backend: Masked, sizes: Sizes, n_bits: int) -> Estimate:
    """Two products at the clients, one at the server, which holds masked rows in float64."""
    n = sum(sizes.values())
    links = {
        (c, to): shares + sealed_size(MaskedRows.size(rows=sizes[c], n_bits=n_bits))
        for (c, to), shares in _share_bytes(sizes, n_bits).items()
    }
    work = {
        "multiply-adds": 3 * cross_pairs(sizes) * n_bits,
        "mask residues": len(sizes) * n * n_bits,
    }
    return Estimate(1, links, work, 10 * n * n_bits + 4 * n * n + _check_bytes(n))


@estimate.register
def _(backend: rlwe.Rlwe, sizes: Sizes, n_bits: int) -> Estimate:
    """Memory: evaluation matrix, masks, secrets and shares."""
    p = lattice.parameters_for(n_bits)
    ring = p.chunks(n_bits) * p.degree
    heights = {c: [b.stop - b.start for b in rlwe.blocks(n)] for c, n in sizes.items()}
    links = _share_bytes(sizes, n_bits)
    encrypted = evaluated = 0
    for owner, rows in sizes.items():
        evaluators, owners = rlwe.roles_of(owner, sizes)
        encrypted += rows if evaluators else 0
        evaluated += rows if owners else 0
        for peer in evaluators:
            links[owner, peer] = sum(
                sealed_size(rlwe.RlweCiphertexts.size(rows=h, values=n_bits + ring, n_bits=n_bits))
                for h in heights[owner]
            )
            links[peer, owner] = sum(
                sealed_size(rlwe.RlweMasks.size(rows=h, n_bits=n_bits)) for h in heights[peer]
            ) + sum(
                sealed_size(rlwe.RlweAnswers.size(rows=h, evaluated=sizes[peer], n_bits=n_bits))
                for h in heights[owner]
            )
    work = {
        "multiply-adds": cross_pairs(sizes) * (p.limbs * (n_bits + ring) + ring),
        "encrypted rows": encrypted,
        "evaluated rows": evaluated,
    }
    n, most = sum(sizes.values()), max(sizes.values(), default=0)
    memory = 14 * most * (n_bits + ring) + 2 * n * n + _check_bytes(n) + 2**28
    return Estimate(3, links, work, memory)


@estimate.register
def _(backend: shade.Shade, sizes: Sizes, n_bits: int) -> Estimate:
    """For Naor–Pinkas transfers; about two rounds for every batch.

    Operations are those at the two ends of every transfer together. Memory: all clients' transfers
    at work, own distances, all distances.
    """
    n, pairs, place = sum(sizes.values()), cross_pairs(sizes), {c: i for i, c in enumerate(sizes)}
    batches = np.zeros((len(sizes), len(sizes)), dtype=np.int64)
    links = _share_bytes(sizes, n_bits)
    for (sender, receiver), count in shade.transfers(sizes, n_bits).items():
        number = -(-count // shade.batch_size(len(sizes)))
        batches[place[sender], place[receiver]] = number
        links[sender, receiver] = number * (
            sealed_size(OtSetup.size()) + sealed_size(0)
        ) + OtOffers.size(count=count, length=shade.RESIDUE_BYTES)
        links[receiver, sender] = number * sealed_size(0) + OtChoices.size(count=count)
    work = {
        "fixed-base multiplications": pairs * n_bits,
        "variable-base multiplications": 2 * pairs * n_bits,
    }
    at_work = min(len(sizes) * shade.CLIENT_TRANSFERS // 2, pairs * n_bits)
    memory = TRANSFER_BYTES * at_work + _own_bytes(sizes, n_bits) + 6 * n * n + _check_bytes(n)
    return Estimate(shade_rounds(batches), links, work, memory, streams=True)


def shade_rounds(batches: NDArray[np.int64]) -> int:
    """Return the longest chain of messages, by following the steps of `Shade.client`.

    Batches are counted from sender to receiver, (clients, clients).
    """
    depth, done = np.zeros(len(batches), dtype=np.int64), 0
    for stop in np.unique(batches[batches > 0]).tolist():
        down = batches >= stop
        active = (down | down.T).any(axis=0)
        while done < stop:
            before = depth
            for links in (down, down.T, down):  # OtSetup, OtChoices, OtOffers
                depth = np.maximum(depth, np.where(links, depth[:, None] + 1, 0).max(axis=0))
            done += 1
            longer = (depth - before)[active]
            if (longer == longer[0]).all():  # so every batch up to `stop` adds the same
                depth = depth + active * longer[0] * (stop - done)
                done = stop
    return int(depth.max(initial=0)) + 1  # DistanceShares


@estimate.register
def _(backend: shade_ext.ShadeExt, sizes: Sizes, n_bits: int) -> Estimate:
    """For Naor–Pinkas base transfers; about one round for every group of blocks.

    Operations are transfers, and the two ends' AES blocks together. Memory: blocks in work,
    offsets, ±1 matrix and distances.
    """
    width, n, most = residue_width(n_bits), sum(sizes.values()), max(sizes.values(), default=0)
    links, cut = _share_bytes(sizes, n_bits), shade_ext.pairs(sizes, n_bits)
    for sender, receiver, groups in cut:
        batches = [shade_ext.transfers(group) for group in groups]
        links[receiver, sender] = (
            sealed_size(OtSetup.size())
            + sealed_size(OtOffers.size(count=KAPPA, length=KEY_BYTES))
            + sum(
                sealed_size(OtColumns.size(trees=KAPPA, words=batch_words(m, True)))
                for m in batches
            )
            + len(groups) * sealed_size(OtProof.size())
        )
        links[sender, receiver] = (
            sealed_size(OtChoices.size(count=KAPPA))
            + len(groups) * sealed_size(OtChallenge.size())
            + sum(
                sealed_size(OtCorrections.size(count=b.count, lanes=sizes[sender], width=width))
                for group in groups
                for b in group
            )
        )
    extended = [(sizes[s], sizes[r] * n_bits) for s, r, _ in cut]
    work = {
        "fixed-base multiplications": KAPPA * len(cut),
        "variable-base multiplications": 2 * KAPPA * len(cut),
        "extended transfers": sum(m for _, m in extended),
        # G: three times one block; H: two pads and one, of 1 + ⌈n/8⌉ blocks each.
        "AES blocks": sum(3 * m * (2 - -lanes // BLOCK_LANES) for lanes, m in extended),
    }
    memory = 4 * shade_ext.CLIENT_BYTES + 9 * most * n_bits + 6 * n * n + _check_bytes(n)
    return Estimate(_shade_ext_rounds(cut), links, work, memory, streams=True)


def _shade_ext_rounds(cut: list[tuple[str, str, list[shade_ext.Group]]]) -> int:
    """Return the longest chain of messages, by following the steps of `ShadeExt.client`."""
    chains = Chains()
    down = [(sender, receiver) for sender, receiver, _ in cut]
    up = [(receiver, sender) for sender, receiver in down]
    for links in (up, down, up):  # OtSetup, OtChoices, OtOffers
        chains.receive(chains.send(links))

    def due(step: int) -> list[tuple[str, str, int]]:
        return [(s, r, len(groups[step])) for s, r, groups in cut if 0 <= step < len(groups)]

    def to_senders(step: int) -> list[tuple[str, int]]:
        return chains.send((r, s) for s, r, _ in due(step))

    challenges: list[tuple[str, int]] = []
    for step in range(-shade_ext.AHEAD, max((len(groups) for _, _, groups in cut), default=0)):
        columns = to_senders(step + shade_ext.AHEAD)
        chains.receive(challenges)
        proofs = to_senders(step + 1)
        for index in range(max((blocks for _, _, blocks in due(step)), default=0)):
            chains.receive(chains.send((s, r) for s, r, blocks in due(step) if index < blocks))
        chains.receive(columns)
        challenges = chains.send((s, r) for s, r, _ in due(step + shade_ext.AHEAD))
        chains.receive(proofs)
    return chains.rounds  # the last are DistanceShares


@estimate.register
def _(backend: paillier.Paillier, sizes: Sizes, n_bits: int) -> Estimate:
    """Of both forms; about two rounds for every window.

    Memory: shares exist four times, as integers, as bytes, sealed and at their owners, and what is
    at work likewise; what waits is counted for all clients together; tables; own distances, all
    distances.
    """
    pairs, dims = backend.pairs(sizes, n_bits), backend.share_sizes(sizes, n_bits)
    groups = {c: backend.packing(n, n_bits).groups for c, n in sizes.items()}
    bits = backend.parameters.modulus_bits
    links = {(c, SERVER): sealed_size(paillier.PaillierShares.size(**dims[c])) for c in sizes}
    shares = sum(links.values())
    largest, key = (1 << bits) - 1, sealed_size(paillier.PaillierKey.size(bits=bits))
    rows = sealed_size(paillier.PaillierRows.size(count=n_bits, n=largest))
    for owner, evaluator in pairs:
        answers = sealed_size(paillier.PaillierAnswers.size(count=sizes[evaluator], n=largest))
        links[owner, evaluator] = key + groups[owner] * rows
        links[evaluator, owner] = groups[owner] * answers
    owners = {owner for owner, _ in pairs}
    work = {
        "key pairs": len(owners),
        "encryptions": n_bits * sum(groups[owner] for owner in owners),
        "multiplications of ciphertexts": sum(
            groups[o] * backend.evaluation_work(sizes[e], n_bits) for o, e in pairs
        ),
        "re-randomised and decrypted answers": sum(pairs.values()),
    }
    between, n = sum(links.values()) - shares, sum(sizes.values())
    at_work = min(len(sizes) * backend.longest(sizes, n_bits), between)
    waiting = min(len(sizes) * paillier.WINDOW_BYTES // 2, between)
    tables = (1 << 13) * bits // 4
    own = _own_bytes(sizes, n_bits) + 6 * n * n
    memory = 4 * (shares + at_work) + waiting + tables + own + _check_bytes(sum(sizes.values()))
    rounds = _paillier_rounds(
        {pair: groups[pair[0]] for pair in pairs}, backend.window(sizes, n_bits)
    )
    return Estimate(rounds, links, work, memory, streams=True)


def _paillier_rounds(groups: Mapping[tuple[str, str], int], window: int) -> int:
    """Return the longest chain of messages, by following the steps of `Paillier.client`.

    Args:
        groups: of each owner, by (owner, evaluator).
        window: groups that an owner sends before it waits for answers.
    """
    chains, most = Chains(), max(groups.values(), default=0)
    rows = {
        index: chains.send(pair for pair, n in groups.items() if index < n)
        for index in range(min(window, most))
    }
    last: list[tuple[str, int]] = []
    for index in range(most):
        chains.receive(rows.pop(index))
        answers = chains.send((e, o) for (o, e), n in groups.items() if index < n)
        more = [pair for pair, n in groups.items() if index + window < n]
        sending = {owner for owner, _ in more}
        chains.receive(answer for answer in answers if answer[0] in sending)
        last += [answer for answer in answers if answer[0] not in sending]
        if more:
            rows[index + window] = chains.send(more)
    chains.receive(last)
    return chains.rounds
