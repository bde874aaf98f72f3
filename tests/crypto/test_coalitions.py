"""What the server and some clients learn together in SecureHamming, for every back end.

Three clients; those in the coalition give the server all that they have. Two inputs of the honest
clients are compared that differ, but have the same distances to all others, so that the output and
the inputs of the coalition are the same. For the back ends that promise privacy under any collusion
all that the coalition receives from honest clients must be uniform and have one distribution for
both inputs: then a simulator that has the distances and the coalition's inputs alone, and takes any
bits of the honest clients that fit them, gives the same view. For the others the coalition reads
every bit, and the tests show how.
"""

import numpy as np
import pytest
from gmpy2 import mpz
from protocol_runs import hamming

from xclp_crypto.algebra.labels import label
from xclp_crypto.params import INSECURE_TEST_128
from xclp_crypto.primitives import rlwe
from xclp_crypto.protocols.hamming import distances_between
from xclp_crypto.protocols.hamming import paillier as paillier_module
from xclp_crypto.protocols.hamming.interface import DistanceShares, column_ranges
from xclp_crypto.protocols.hamming.masked import Masked, MaskedRows, row_mask
from xclp_crypto.protocols.hamming.paillier import (
    Paillier,
    PaillierAnswers,
    PaillierRows,
    PaillierShares,
)
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.protocols.hamming.plain import PlainBits
from xclp_crypto.protocols.hamming.rlwe import Rlwe, RlweAnswers, RlweCiphertexts, RlweMasks
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.protocols.hamming.shade_ext import ShadeExt
from xclp_crypto.protocols.ot import ideal_ot
from xclp_crypto.protocols.ot.bits import HashPoints
from xclp_crypto.protocols.ot.extension import OtColumns, OtCorrections
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import run, same_distribution, uniformity

CLIENTS = tuple("abc")
"""With equally many rows: the earlier of two has one part of a protocol, the later the other."""

HONEST = {
    "a": [[0, 0, 1, 0, 1], [1, 1, 0, 0, 1]],
    "b": [[1, 1, 1, 1, 0], [0, 0, 0, 1, 0]],
    "c": [[0, 0, 0, 1, 1], [1, 1, 1, 0, 1]],
}
COLLUDING = {
    "a": [[0, 1, 0, 1, 0], [1, 0, 1, 1, 0]],
    "b": [[0, 1, 1, 0, 0], [1, 0, 0, 1, 1]],
    "c": [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1]],
}
FLIP = np.array([1, 1, 0, 0, 0])
"""Honest rows are equal in these two bits and colluding ones are not, so flipping both bits of all
honest rows changes no distance."""

# The client in the middle plays both parts of every protocol with its two honest peers; and the
# honest one in the middle plays both with a coalition of all others.
COALITIONS = pytest.mark.parametrize("coalition", ["b", "ac"], ids=["one", "all but one"])


def inputs(coalition):
    """Return two inputs, an array by client, that are the same to the coalition."""
    first = {c: np.array(COLLUDING[c] if c in coalition else HONEST[c]) for c in CLIENTS}
    second = {c: x if c in coalition else x ^ FLIP for c, x in first.items()}
    return first, second


@COALITIONS
def test_the_two_inputs_have_the_same_output_and_the_same_rows_of_the_coalition(coalition):
    first, second = inputs(coalition)
    one, other = (np.concatenate(list(x.values())).astype(np.uint8) for x in (first, second))
    assert np.array_equal(distances_between(one, one), distances_between(other, other))
    for client in CLIENTS:
        same_weights = np.array_equal(first[client].sum(axis=1), second[client].sum(axis=1))
        assert np.array_equal(first[client], second[client]) == (client in coalition)
        assert same_weights == (client in coalition)


class Watching(Shade):
    """`shade` over ideal transfers, in which each client's chosen messages are kept.

    The view of the ideal twin has both messages of a transfer; of the real one only the chosen.
    """

    def __init__(self):
        self.chosen = {}
        super().__init__(self.transfer)

    async def transfer(self, io, sending, receiving, sid, rng):
        got = await ideal_ot(io, sending, receiving, sid, rng)
        for sender, messages in got.items():
            self.chosen[io.name, sender] = messages.view("<u2").reshape(-1)
        return got


BACKENDS = {
    "rlwe": Rlwe,
    "shade": Watching,
    "shade-ext": lambda: ShadeExt(ideal_ot),
    "paillier": lambda: Paillier(INSECURE_TEST_128),
    "paillier-packed": lambda: PaillierPacked(INSECURE_TEST_128),
}
"""By name, those that promise privacy whoever colludes; with short keys and ideal transfers."""
EVERY = pytest.mark.parametrize("name", BACKENDS)


def eighths(numbers, modulus):
    """Return in which eighth of 0 … modulus − 1 each number lies."""
    return np.array([int(8 * x // modulus) for x in numbers])


def received(message):
    """Return what a client of the coalition gets from an honest one, as digits from 0 to 7."""
    match message:
        case RlweCiphertexts():
            bits = rlwe.parameters_for(message.n_bits).limb_bits
            return np.concatenate([limb.reshape(-1) >> (bits - 3) for limb in message.limbs])
        case RlweMasks() | RlweAnswers():
            bits = rlwe.parameters_for(message.n_bits).switched_bits
            return message.values.reshape(-1).astype(int) >> (bits - 3)
        case OtColumns():
            return message.columns.reshape(-1) & 7
        case OtCorrections():
            return message.residues & 7
        case PaillierRows() | PaillierAnswers():
            low = np.array([int(v % 8) for v in message.values])
            return np.concatenate([low, eighths(message.values, message.n**2)])
    return None


def paired(digits, others):
    """Return one digit of 0 … 15 for two of 0 … 7."""
    return 4 * (digits >> 1) + (others >> 1)


def shares_of(view, sizes):
    """Return what the server got, by (client, peer): shares of 0 … 7."""
    found = {}
    moduli = {f: m.modulus for f, m in view if isinstance(m, PaillierShares)}
    for client, message in view:
        ranges = column_ranges(sizes, client)
        if isinstance(message, DistanceShares):
            for peer, place in ranges.items():
                found[client, peer] = message.shares[:, place].reshape(-1)
        elif isinstance(message, PaillierShares):
            count = len(message.residues) // len(ranges)
            for i, peer in enumerate(ranges):  # in every pair the earlier one owns the modulus
                modulus = moduli[min(client, peer)]
                part = message.residues[i * count : (i + 1) * count]
                found[client, peer] = eighths(part, modulus)
    return found


def joint_view(name, bits, coalition, seed):
    """Return, by what it is, all that the coalition gets from honest clients, as digits 0 … 7.

    Values that come in pairs, which must be independent, are joined by their two highest bits.
    """
    backend = BACKENDS[name]()
    outcome = run(hamming(backend, bits, seed), record=True).raise_errors()
    seen = {}

    def add(what, values):
        seen.setdefault(what, []).append(np.asarray(values, dtype=int).reshape(-1))

    shares = shares_of(outcome.views[SERVER], {c: len(x) for c, x in bits.items()})
    for client in set(CLIENTS) - set(coalition):
        peers = [c for c in CLIENTS if c != client]
        for peer in peers:
            add(f"{client}'s shares with {peer}", shares[client, peer])
        add(f"{client}'s shares in pairs", paired(*(shares[client, peer] for peer in peers)))
        for mine in coalition:
            for sender, message in outcome.views[mine]:
                digits = received(message) if sender == client else None
                if digits is not None:
                    add(f"{type(message).__name__} from {client} to {mine}", digits)
            if (mine, client) in getattr(backend, "chosen", {}):
                got = backend.chosen[mine, client]
                add(f"transfers from {client} to {mine}", got)
                add(f"transfers in pairs from {client} to {mine}", paired(got[:-1], got[1:]))
    return {what: np.concatenate(parts) for what, parts in seen.items()}


def counts_of(name, bits, coalition, seeds):
    """Return how often each digit occurs in these runs, by what it is."""
    found = {}
    for seed in seeds:
        for what, digits in joint_view(name, bits, coalition, seed).items():
            size = 16 if "in pairs" in what else 8
            found[what] = found.get(what, 0) + np.bincount(digits, minlength=size)
    return found


RUNS = 40


def worst_uniform(*samples):
    """Return the smallest p-value of uniformity, corrected for the number of tests."""
    every = [counts for found in samples for counts in found.values()]
    return min(map(uniformity, every)) * len(every)


def worst_same(one, other):
    """Return the smallest p-value of equality, corrected for the number of tests."""
    return min(same_distribution(one[what], other[what]) for what in one) * len(one)


SEEN = {
    "rlwe": {"RlweCiphertexts from a to b", "RlweMasks from c to b", "RlweAnswers from c to b"},
    "shade": {"transfers from a to b"},
    "shade-ext": {"OtCorrections from a to b", "OtColumns from c to b"},
    "paillier": {"PaillierRows from a to b", "PaillierAnswers from c to b"},
    "paillier-packed": {"PaillierRows from a to b", "PaillierAnswers from c to b"},
}


@EVERY
@COALITIONS
def test_server_and_clients_together_see_the_same_whatever_the_others_bits_are(name, coalition):
    first, second = inputs(coalition)
    one = counts_of(name, first, coalition, range(RUNS))
    other = counts_of(name, second, coalition, range(RUNS, 2 * RUNS))
    assert one.keys() == other.keys()
    assert SEEN[name] <= one.keys() or coalition != "b"
    assert worst_uniform(one, other) > 1e-3
    assert worst_same(one, other) > 1e-3


def no_mask(rng, shape, parameters):
    return np.zeros(shape, np.uint16)


def one_mask_for_all_peers(rng, shape, parameters):
    return DRAWN_MASKS(SeededRng(rng._key), shape, parameters)


DRAWN_MASKS = rlwe.drawn_masks
BROKEN = {
    "rlwe, no mask": (rlwe, "drawn_masks", no_mask),
    "rlwe, one mask for all peers": (rlwe, "drawn_masks", one_mask_for_all_peers),
    "shade, no mask": (
        SeededRng,
        "residues",
        lambda self, modulus, shape: np.zeros(shape, np.uint16),
    ),
    "shade-ext, no pad": (
        HashPoints,
        "lanes",
        lambda self, first, stop: np.zeros((stop - first, len(self), 8), np.uint16),
    ),
    "paillier, no mask": (
        paillier_module,
        "random_masks",
        lambda n, count, rng: [mpz(0)] * count,
    ),
}
BROKEN["paillier-packed, no mask"] = BROKEN["paillier, no mask"]


@pytest.mark.parametrize("broken", BROKEN)
def test_the_same_test_fails_without_masks(monkeypatch, broken):
    monkeypatch.setattr(*BROKEN[broken])
    name, bits = broken.split(",")[0], inputs("b")[0]
    matrix = run(hamming(BACKENDS[name](), bits)).raise_errors().results[SERVER].matrix
    stacked = np.concatenate(list(bits.values())).astype(np.uint8)
    assert np.array_equal(matrix, distances_between(stacked, stacked))  # so only views show it
    assert worst_uniform(counts_of(name, bits, "b", range(RUNS))) < 1e-6


# Back ends that rest on nobody colluding


class Talking(Masked):
    """`masked` with clients that keep what they could tell the server."""

    def __init__(self):
        self.told = {}

    async def client(self, session, bits, sizes, common_secret, rng):
        self.told[session.io.name] = common_secret, session.id
        await super().client(session, bits, sizes, common_secret, rng)


@pytest.mark.parametrize("traitor", CLIENTS)
def test_limit_with_masked_server_and_one_client_together_read_every_bit(traitor):
    bits, _ = inputs(traitor)
    backend = Talking()
    view = run(hamming(backend, bits), record=True).raise_errors().views[SERVER]
    key, session_id = backend.told[traitor]
    lab = label("masked hamming", session_id)
    uploads = {client: m for client, m in view if isinstance(m, MaskedRows)}
    assert set(uploads) == set(CLIENTS)
    for client, message in uploads.items():
        mask = row_mask(key, lab, client, *message.rows.shape)
        assert np.array_equal((message.rows - mask) % 4, bits[client])  # modulo t/2, t = 8
        # With any other key nothing can be read.
        wrong = row_mask(bytes(32), lab, client, *message.rows.shape)
        assert not np.array_equal((message.rows - wrong) % 4, bits[client])


def test_limit_with_plain_the_server_alone_reads_every_bit():
    bits, _ = inputs("b")
    view = run(hamming("plain", bits), record=True).raise_errors().views[SERVER]
    read = {client: m.bits for client, m in view if isinstance(m, PlainBits)}
    assert all(np.array_equal(read[client], x) for client, x in bits.items())


# What the output gives away, whatever the back end


def test_limit_distances_and_as_many_rows_as_bits_reveal_the_others_rows():
    """|x| and x_l follow from the distances to the zero row and to the unit rows."""
    n_bits = 16
    probes = np.vstack([np.zeros((1, n_bits), int), np.eye(n_bits, dtype=int)])
    theirs = np.random.default_rng(0).integers(0, 2, (3, n_bits))
    bits = {"honest": theirs, "traitor": probes}
    matrix = run(hamming("rlwe", bits)).raise_errors().results[SERVER].matrix.astype(int)
    to_zero, to_units = matrix[3, :3], matrix[4:, :3]
    assert np.array_equal((to_zero - to_units + 1) // 2, theirs.T)
