"""What the server and some clients learn together in SecureHamming, for every back end.

Three clients; those in the coalition give the server all that they have. Two inputs of the honest
clients are compared that differ, but have the same distances to all others, so that the output and
the inputs of the coalition are the same. For the back ends that promise privacy under any collusion
all that the coalition receives from honest clients must be uniform and have one distribution for
both inputs: then a simulator that has the distances and the coalition's inputs alone, and takes any
bits of the honest clients that fit them, gives the same view. The clients of a coalition without
the server have no output, so what these receive must not depend on the distances either. What they
can open with their keys is looked at opened. For the other back ends the coalition reads every bit,
and the tests show how.
"""

from functools import cache

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from protocol_runs import hamming
from rlwe_noise import flood_quantiles, noise_of

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.params import INSECURE_TEST_128
from xclp_crypto.primitives import rlwe
from xclp_crypto.primitives.paillier import PrivateKey, PublicKey
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
from xclp_crypto.protocols.hamming.shade_ext import ShadeExt, take_block
from xclp_crypto.protocols.ot import ideal_ot
from xclp_crypto.protocols.ot.bits import HashPoints, lane_groups
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
    "b": [[0, 1, 0, 0, 0], [1, 0, 1, 0, 0]],
    "c": [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1]],
}
COPIES = 3
"""How often each client has these rows: a run with many pairs of rows costs less than many runs."""
FLIP = np.array([1, 1, 0, 0, 0])
"""Honest rows are equal in these two bits and colluding ones are not, so flipping both bits of all
honest rows changes no distance."""

# The client in the middle plays both parts of every protocol with its two honest peers; and the
# honest one in the middle plays both with a coalition of all others.
COALITIONS = pytest.mark.parametrize("coalition", ["b", "ac"], ids=["one", "all but one"])


def inputs(coalition):
    """Return two inputs, an array by client, that are the same to the coalition."""
    rows = {c: COLLUDING[c] if c in coalition else HONEST[c] for c in CLIENTS}
    first = {c: np.tile(x, (COPIES, 1)) for c, x in rows.items()}
    second = {c: x if c in coalition else x ^ FLIP for c, x in first.items()}
    return first, second


def at_other_distances(coalition):
    """Return the first input with zeros for the bits of the honest clients."""
    return {c: x if c in coalition else 0 * x for c, x in inputs(coalition)[0].items()}


def all_distances(bits):
    stacked = np.concatenate(list(bits.values())).astype(np.uint8)
    return distances_between(stacked, stacked)


@COALITIONS
def test_two_inputs_have_the_same_output_and_all_the_same_rows_of_the_coalition(coalition):
    first, second = inputs(coalition)
    assert np.array_equal(all_distances(first), all_distances(second))
    third = at_other_distances(coalition)
    for client in CLIENTS:
        for mine in coalition:
            pairs = [{c: x[c] for c in (client, mine)} for x in (first, third)]
            same_distances = np.array_equal(*map(all_distances, pairs))
            assert same_distances == (client in coalition)
        same_weights = np.array_equal(first[client].sum(axis=1), second[client].sum(axis=1))
        assert np.array_equal(first[client], second[client]) == (client in coalition)
        assert same_weights == (client in coalition)


# What clients of a coalition can open. Each back end keeps what its clients hold, and says in
# digits what client `mine`, which sent `sent`, can make of the messages `got` from another client.
# Where it could test a guess of that one's rows, the right guess is tested.


class WatchingShade(Shade):
    """`shade` over ideal transfers, in which each client's chosen messages are kept.

    The view of the ideal twin has both messages of a transfer; of the real one only the chosen.
    """

    def __init__(self):
        self.chosen = {}
        super().__init__(self.transfer)

    async def transfer(self, io, sending, receiving, sid, rng, **options):
        got = await ideal_ot(io, sending, receiving, sid, rng, **options)
        for sender, messages in got.items():
            self.chosen[io.name, sender] = messages.view("<u2").reshape(-1)
        return got

    def opened(self, mine, client, got, sent, rows):
        if (mine, client) in self.chosen:
            values = self.chosen[mine, client]
            yield "transfers", values
            yield "transfers in pairs", paired(values[:-1], values[1:])


class WatchingShadeExt(ShadeExt):
    """`shade-ext` over ideal base transfers, in which each client's pads are kept."""

    def __init__(self):
        self.taken = {}
        super().__init__(ideal_ot)

    async def client(self, session, *others):
        compute, taken = session.io.compute, self.taken.setdefault(session.io.name, [])

        async def watched(function, *args, **how):
            if function is take_block:
                taken.append(args)
            return await compute(function, *args, **how)

        session.io.compute = watched
        await super().client(session, *others)

    def opened(self, mine, client, got, sent, rows):
        for message in got:
            if isinstance(message, OtColumns):
                yield "OtColumns", message.columns.view(np.uint8) & 7
            if isinstance(message, OtCorrections):
                (args,) = (t for t in self.taken[mine] if np.array_equal(t[1], message.residues))
                pads, corrections, choices, lanes = args
                chosen = choices.reshape(-1, 1)
                for first, stop, part in lane_groups(corrections, choices.size, lanes):
                    values = (pads.lanes(first, stop)[:, :, : part.shape[2]] + part * chosen) & 7
                    yield "OtCorrections", part & 7
                    yield "transfers", values
                    yield "transfers and corrections in pairs", paired(values, part & 7)
                    yield "transfers in pairs", paired(values[:, :, :-1], values[:, :, 1:])


class WatchingRlwe(Rlwe):
    """`rlwe` in which each owner's secrets are kept, and the public polynomials."""

    def __init__(self):
        self.secrets = {}

    async def _evaluate(self, session, ring, *others):
        self.ring = ring
        return await super()._evaluate(session, ring, *others)

    async def _decrypt(self, session, parameters, n_bits, secrets, *others):
        self.secrets[session.io.name] = np.concatenate(secrets)
        return await super()._decrypt(session, parameters, n_bits, secrets, *others)

    def opened(self, mine, client, got, sent, rows):
        p = rlwe.parameters_for(rows.shape[1])
        modulus = 1 << p.switched_bits
        for message in got:
            if isinstance(message, RlweCiphertexts):
                for limb in message.limbs:
                    yield "RlweCiphertexts", limb >> (p.limb_bits - 3)
            if isinstance(message, RlweMasks):
                c1 = message.values
                yield "RlweMasks", c1 >> (p.switched_bits - 3)
                u = rlwe.chunked((1 - 2 * rows).astype(np.int8), p)[:, :, ::-1]
                known = rlwe.switched(self.ring.products(u)[0], p).reshape(len(rows), -1)
                unknown = (c1 - known.astype(int)) % modulus
                yield "c1 without u·a", unknown >> (p.switched_bits - 3)
                differences = (unknown[1:] - unknown[:-1]) % modulus
                yield "c1 between rows", differences >> (p.switched_bits - 3)
            if isinstance(message, RlweAnswers):
                secrets, c2 = self.secrets[mine], message.values
                plain = rlwe.decrypt(secrets, c1, c2, p).astype(int)
                noise = noise_of(secrets, c1, c2, p).reshape(-1)
                digits = (8 * flood_quantiles(noise, p)).astype(int)
                yield "RlweAnswers", c2 >> (p.switched_bits - 3)
                yield "plaintexts", plain >> (p.plain_bits - 3)
                yield "plaintexts, low bits", plain & 7
                yield "noise", digits
                yield "noise in pairs", paired(digits[:-1], digits[1:])


class WatchingPaillier:
    """What both forms of Paillier have in common: each owner's key is kept."""

    def __init__(self):
        self.keys = {}
        super().__init__(INSECURE_TEST_128)

    async def _send_rows(self, io, key, *others):
        self.keys[io.name] = key
        await super()._send_rows(io, key, *others)

    def opened(self, mine, client, got, sent, rows):
        groups = [m.values for m in sent if isinstance(m, PaillierRows)]
        for message in got:
            if isinstance(message, PaillierRows):
                yield "PaillierRows", ciphertext_digits(message.values, message.n)
                yield "ratios of PaillierRows", ratios(message.values, message.n)
            if isinstance(message, PaillierAnswers):
                key, square = self.keys[mine], message.n**2
                yield "PaillierAnswers", ciphertext_digits(message.values, message.n)
                plain = key.decrypt_residues(message.values)
                yield "plaintexts", eighths(plain, message.n)
                yield "steps between plaintexts", steps(plain, message.n)
                # Of the right rows the product of own ciphertexts is known, and can be divided off.
                known = self.evaluate(rows.astype(bool), groups.pop(0), square)
                quotients = [
                    c * gmpy2.invert(k, square) % square
                    for c, k in zip(message.values, known, strict=True)
                ]
                masks = key.decrypt_residues(quotients)
                fresh = [
                    q * (1 - r * message.n) % square for q, r in zip(quotients, masks, strict=True)
                ]
                yield "randomisers", ciphertext_digits(fresh, message.n)
                yield "ratios of randomisers", ratios(fresh, message.n)


class WatchingLiteral(WatchingPaillier, Paillier):
    pass


class WatchingPacked(WatchingPaillier, PaillierPacked):
    pass


BACKENDS = {
    "rlwe": WatchingRlwe,
    "shade": WatchingShade,
    "shade-ext": WatchingShadeExt,
    "paillier": WatchingLiteral,
    "paillier-packed": WatchingPacked,
}
"""By name, those that promise privacy whoever colludes; with short keys and ideal transfers."""
EVERY = pytest.mark.parametrize("name", BACKENDS)


def eighths(numbers, modulus):
    """Return in which eighth of 0 … modulus − 1 each number lies."""
    return np.array([int(8 * x // modulus) for x in numbers])


def steps(numbers, modulus):
    """Return the high digits of differences between neighbours."""
    pairs = zip(numbers[1:], numbers[:-1], strict=True)
    return eighths([(one - other) % modulus for one, other in pairs], modulus)


def ciphertext_digits(values, n):
    """Return the low and the high digits of numbers modulo n²."""
    return np.concatenate([np.array([int(v % 8) for v in values]), eighths(values, n**2)])


def ratios(values, n):
    """Return the high digits of ratios of neighbours modulo n, where plaintexts do not show."""
    pairs = zip(values[1:], values[:-1], strict=True)
    return eighths([one * gmpy2.invert(other, n) % n for one, other in pairs], n)


def paired(digits, others):
    """Return one digit of 0 … 15 for two of 0 … 7."""
    return 4 * (digits >> 1) + (others >> 1)


def shares_of(view, sizes):
    """Return what the server got, by (client, peer): shares of 0 … 7."""
    found = {}
    moduli = {f: n for f, m in view if isinstance(m, PaillierShares) for n in m.moduli}
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
                low = [int(x % 8) for x in part]
                digits = (eighths(part, modulus), steps(part, modulus), low)
                found[client, peer] = np.concatenate(digits)
    return found


def joint_view(name, bits, coalition, seed):
    """Return, by what it is, all that the coalition gets of honest clients, as digits 0 … 7.

    Values that come in pairs, which must be independent, are joined by their two highest bits.
    """
    backend = BACKENDS[name]()
    outcome = run(hamming(backend, bits, seed), record=True).raise_errors()
    # With masks missing as well, so that only views show it.
    assert np.array_equal(outcome.results[SERVER].matrix, all_distances(bits))
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
            got, sent = (
                [m for sender, m in outcome.views[to] if sender == frm]
                for frm, to in ((client, mine), (mine, client))
            )
            for what, digits in backend.opened(mine, client, got, sent, bits[client]):
                add(f"{what} from {client} to {mine}", digits)
    return {what: np.concatenate(parts) for what, parts in seen.items()}


def counts_of(name, bits, coalition, seeds):
    """Return how often each digit occurs in these runs, by what it is."""
    found = {}
    for seed in seeds:
        for what, digits in joint_view(name, bits, coalition, seed).items():
            size = 16 if "in pairs" in what else 8
            found[what] = found.get(what, 0) + np.bincount(digits, minlength=size)
    return found


RUNS = {"rlwe": 4, "shade": 5, "shade-ext": 3, "paillier": 6, "paillier-packed": 14}
"""As many as give five observations of each digit, also where a run has few."""


@cache
def honest_counts(name, coalition, which):
    """Return the counts of the first, the second or the third input, of runs of their own."""
    bits = (*inputs(coalition), at_other_distances(coalition))[which]
    runs = RUNS[name]
    return counts_of(name, bits, coalition, range(which * runs, (which + 1) * runs))


def of_clients(counts):
    """Leave out what only the server receives."""
    return {what: c for what, c in counts.items() if "'s shares" not in what}


def worst_uniform(*samples):
    """Return the smallest p-value of uniformity, corrected for the number of tests."""
    every = [counts for found in samples for counts in found.values()]
    return min(map(uniformity, every)) * len(every)


def worst_same(one, other):
    """Return the smallest p-value of equality, corrected for the number of tests."""
    assert one.keys() == other.keys()
    return min(same_distribution(one[what], other[what]) for what in one) * len(one)


SEEN = {
    "rlwe": {
        "RlweCiphertexts from a to b",
        "c1 without u·a from c to b",
        "plaintexts from c to b",
        "noise from c to b",
    },
    "shade": {"transfers from a to b"},
    "shade-ext": {"transfers from a to b", "OtColumns from c to b"},
    "paillier": {"PaillierRows from a to b", "plaintexts from c to b", "randomisers from c to b"},
}
SEEN["paillier-packed"] = SEEN["paillier"]


@EVERY
@COALITIONS
def test_server_and_clients_together_see_the_same_whatever_the_others_bits_are(name, coalition):
    one, other = (honest_counts(name, coalition, which) for which in (0, 1))
    assert SEEN[name] <= one.keys() or coalition != "b"
    assert worst_uniform(one, other) > 1e-3
    assert worst_same(one, other) > 1e-3


@EVERY
@COALITIONS
def test_clients_together_see_the_same_whatever_the_distances_are(name, coalition):
    one, other = (of_clients(honest_counts(name, coalition, which)) for which in (0, 2))
    assert worst_uniform(one, other) > 1e-3
    assert worst_same(one, other) > 1e-3


def no_mask(rng, shape, parameters):
    return np.zeros(shape, np.uint16)


def one_mask_for_all_peers(rng, shape, parameters):
    return DRAWN_MASKS(SeededRng(rng._key), shape, parameters)


def no_flood(rng, shape, parameters):
    return [np.zeros(shape, np.int64) for _ in range(parameters.limbs)]


def one_flood(rng, shape, parameters):
    return [np.broadcast_to(limb[:1, :1], shape).copy() for limb in FLOODS(rng, shape, parameters)]


def no_secrets(rng, ring, bits):
    """Encrypt with s = 0."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rlwe, "ternary", lambda rng, shape: np.zeros(shape, np.int8))
        return ENCRYPT(rng, ring, bits)


def no_blinding(rng, ring, bits):
    """Prepare with ρ = 0 and e1 = 0."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ternary", "binomial_error"):
            patch.setattr(rlwe, name, lambda rng, shape, *eta: np.zeros(shape, np.int8))
        return PREPARE(rng, ring, bits)


def one_blinding(rng, ring, bits):
    """Prepare with the same ρ and e1 for all rows."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ternary", "binomial_error"):
            patch.setattr(rlwe, name, first_of_all(getattr(rlwe, name)))
        return PREPARE(rng, ring, bits)


def first_of_all(draw):
    return lambda *args: np.repeat(draw(*args)[:1], args[1][0], axis=0)


def one_pad_for_all_rows(self, first, stop):
    return np.repeat(LANES(self, first, stop)[:, :, :1], 8, axis=2)


def no_randomisers(self, count, *others):
    return [mpz(1)] * count


def one_mask_for_all_bits(self, modulus, shape):
    first = RESIDUES(self, modulus, shape[:-1])
    return np.repeat(first[..., None], shape[-1], axis=-1)


def short_masks(n, count, rng):
    return [mpz(int.from_bytes(rng.bytes(15), "big")) for _ in range(count)]


DRAWN_MASKS, FLOODS, PREPARE, ENCRYPT = rlwe.drawn_masks, rlwe.flood, rlwe.prepare, rlwe.encrypt
LANES, RESIDUES = HashPoints.lanes, SeededRng.residues
RANDOMISERS, RANDOM_MASKS = PublicKey.randomisers, paillier_module.random_masks
BROKEN = {
    "rlwe, no mask": (rlwe, "drawn_masks", no_mask),
    "rlwe, one mask for all peers": (rlwe, "drawn_masks", one_mask_for_all_peers),
    "rlwe, no flood": (rlwe, "flood", no_flood),
    "rlwe, one flood": (rlwe, "flood", one_flood),
    "rlwe, c1 is u·a": (rlwe, "prepare", no_blinding),
    "rlwe, one ρ for all rows": (rlwe, "prepare", one_blinding),
    "rlwe, rows without secrets": (rlwe, "encrypt", no_secrets),
    "shade, no mask": (
        SeededRng,
        "residues",
        lambda self, modulus, shape: np.zeros(shape, np.uint16),
    ),
    "shade, one mask for all bits": (SeededRng, "residues", one_mask_for_all_bits),
    "shade-ext, no pad": (
        HashPoints,
        "lanes",
        lambda self, first, stop: np.zeros((stop - first, len(self), 8), np.uint16),
    ),
    "shade-ext, one pad for all rows": (HashPoints, "lanes", one_pad_for_all_rows),
    "paillier, no mask": (paillier_module, "random_masks", lambda n, count, rng: [mpz(0)] * count),
    "paillier, short masks": (paillier_module, "random_masks", short_masks),
    "paillier, one mask for all answers": (
        paillier_module,
        "random_masks",
        lambda n, count, rng: RANDOM_MASKS(n, 1, rng) * count,
    ),
    "paillier, no re-randomisation": (PublicKey, "randomisers", no_randomisers),
    "paillier, one randomiser": (
        PublicKey,
        "randomisers",
        lambda self, count, *others: RANDOMISERS(self, 1, *others) * count,
    ),
    "paillier, rows without randomisers": (PrivateKey, "_randomisers", no_randomisers),
}
BROKEN |= {
    name.replace("paillier", "paillier-packed"): how
    for name, how in BROKEN.items()
    if name.startswith("paillier")
}
ONLY_WITH_THE_SERVER = "rlwe, one mask for all peers"
CASES = [
    pytest.param(broken, coalition, id=f"{broken}, {name}")
    for broken in BROKEN
    for coalition, name in (("b", "one"), ("ac", "all but one"))
    # What is used twice, and rows, are looked at in one coalition: the other takes as long.
    if coalition == "b" or ", no " in broken or broken == "rlwe, c1 is u·a"
]


@pytest.mark.parametrize(("broken", "coalition"), CASES)
def test_the_same_test_fails_without_masks(monkeypatch, broken, coalition):
    """A mask, a flood, a pad or a randomiser is missing or used twice."""
    monkeypatch.setattr(*BROKEN[broken])
    name, bits = broken.split(",")[0], inputs(coalition)[0]
    counts = counts_of(name, bits, coalition, range(RUNS[name]))
    assert worst_uniform(counts) < 1e-6
    if broken != ONLY_WITH_THE_SERVER:
        assert worst_uniform(of_clients(counts)) < 1e-6
    if coalition == "b" and broken.endswith(("no mask", "no pad")):
        other = counts_of(name, at_other_distances(coalition), coalition, range(RUNS[name]))
        assert worst_same(of_clients(counts), of_clients(other)) < 1e-6


# Back ends that rest on nobody colluding


class Talking(Masked):
    """`masked` with clients that keep what they could tell the server."""

    def __init__(self):
        self.told = {}

    async def client(self, session, bits, rng):
        self.told[session.io.name] = session.common_secret, session.id
        await super().client(session, bits, rng)


@pytest.mark.parametrize("traitor", CLIENTS)
def test_limit_with_masked_server_and_one_client_together_read_every_bit(traitor):
    bits, _ = inputs(traitor)
    backend = Talking()
    view = run(hamming(backend, bits), record=True).raise_errors().views[SERVER]
    key, session_id = backend.told[traitor]
    tag = domain_tag("masked hamming", session_id)
    uploads = {client: m for client, m in view if isinstance(m, MaskedRows)}
    assert set(uploads) == set(CLIENTS)
    for client, message in uploads.items():
        mask = row_mask(key, tag, client, *message.rows.shape)
        assert np.array_equal((message.rows - mask) % 4, bits[client])  # modulo t/2, t = 8
        # With any other key nothing can be read.
        wrong = row_mask(bytes(32), tag, client, *message.rows.shape)
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
