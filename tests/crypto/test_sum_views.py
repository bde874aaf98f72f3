"""What the server can form of a secure sum is uniform, and is not when a mask is left out.

The sums are modulo 17, so that a chi-square test has power, of arrays of equal entries, so that
every entry of every run is a sample. `Knowledge` takes off an upload all that the server may know,
alone or together with some clients. The last client, d, stays, drops out before its upload, or
uploads too late.
"""

from contextlib import contextmanager
from itertools import combinations

import numpy as np
import pytest
from protocol_runs import row_sums, secure_sum, with_session

from xclp_crypto.algebra import ring
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import accumulate, expand
from xclp_crypto.algebra.ring import residue_dtype
from xclp_crypto.params import SHAMIR_PRIME
from xclp_crypto.primitives import shamir
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.primitives.shamir import Share, recover_secret
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    double_masks,
    keyed_masks,
    row_sums_recover,
    row_sums_restart,
    secure_row_sums_client,
    secure_row_sums_server,
    secure_sum_server,
)
from xclp_crypto.protocols.secure_sum.double_masks import (
    ClientMasks,
    SumReady,
    SumReveal,
    SumShares,
)
from xclp_crypto.protocols.secure_sum.keyed_masks import add_pair_mask, under_pads
from xclp_crypto.protocols.secure_sum.row_sums_restart import pair_masks
from xclp_crypto.protocols.secure_sum.rows import RowSumsBlock, RowSumsUpload, rows_of_others
from xclp_crypto.protocols.secure_sum.secure_sum import SumUpload
from xclp_crypto.protocols.secure_sum.survivors import SumMasked
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.testing import deliveries, run, same_distribution, uniformity, views
from xclp_crypto.transport.simulate import Faults

M = 17
ENTRIES = 2048
CLIENTS = tuple("abcd")
GRAPH = MaskGraph.complete(CLIENTS, 3)
ROWS = {"a": np.array([0, 3]), "b": np.array([1]), "c": np.array([2]), "d": np.array([4])}
SEEDS = range(2)

STATUS = {
    "living": Faults(),
    "dropped": Faults(dropouts={"d": "upload"}),
    "late": Faults(away={"d": "upload"}),
}
INPUT = {"a": 1, "b": -1, "c": 2, "d": -2}
ANOTHER = {  # with the same sum over the survivors
    "living": {"a": 2, "b": 2, "c": -2, "d": -2},
    "dropped": {"a": 2, "b": 2, "c": -2, "d": 1},
    "late": {"a": 2, "b": 2, "c": -2, "d": 1},
}


def arrays(inputs, shape):
    return {c: np.full(shape, x) for c, x in inputs.items()}


def plus(*parts):
    total = np.zeros_like(parts[0])
    for part in parts:
        ring.add_into(total, part, M)
    return total


def minus(a, b):
    total = a.copy()
    ring.subtract_from(total, b, M)
    return total


@contextmanager
def masks_of_clients():
    """Yield what keeps the `ClientMasks` of a run, by client."""
    masks = {}
    made = ClientMasks.__init__

    def spying(self, me, *others):
        masks[me] = self
        made(self, me, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientMasks, "__init__", spying)
        yield masks


class Knowledge:
    """What the server and the clients of a coalition learn of the masks in one run.

    That is what the server's view gives, the shares that the coalition's clients received of the
    secrets of others, and their pair keys.
    """

    def __init__(self, views, masks, tag, shape, coalition=""):
        view = views[SERVER]
        self.tag, self.shape = tag, shape
        self.ready = {f: m for f, m in view if isinstance(m, SumReady)}
        revealing = [f for f, m in view if isinstance(m, SumReveal)]
        seeds, keys = ({c: {} for c in self.ready} for _ in range(2))

        def add(shares, client, data):
            share = Share.decode(data)
            shares[client][share.index] = share

        for holder, message in view:
            if isinstance(message, SumReveal):
                order = (*(c for c in self.ready if c != holder), holder)
                for client, data in zip(order, message.shares, strict=True):
                    add(seeds if client in revealing else keys, client, data)
        self.pair_keys = {}
        for mine in coalition:
            for client, message in views[mine]:
                if isinstance(message, SumShares):
                    add(seeds, client, message.seed_share)
                    add(keys, client, message.key_share)
            for peer, key in masks[mine]._pair_keys.items():
                self.pair_keys[frozenset((mine, peer))] = key
        self.seeds = dict(self.recovered(seeds))
        for mine, pad_key in self.recovered(keys):
            self.pair_keys |= self.under_pads(mine, pad_key)

    @staticmethod
    def recovered(shares):
        for client, by_index in shares.items():
            held = [*by_index.values()]
            if held and len(held) >= held[0].threshold:
                yield client, recover_secret(held)

    def zeros(self):
        return np.zeros(self.shape, residue_dtype(M))

    def under_pads(self, client, pad_key):
        """What this client sent of its pair keys, under the pads of a key, by pair."""
        # As the protocol does, so that a pad that is left out there is left out here.
        sent = self.ready[client].padded_keys
        return by_pair(client, double_masks.under_pads(sent, pad_key, self.tag, client))

    def known_masks(self, client, pair_keys=None, seeds=None):
        """The sum of all masks of this client that these secrets give; by default the known."""
        total = self.zeros()
        pair_keys = self.pair_keys if pair_keys is None else pair_keys
        seeds = self.seeds if seeds is None else seeds
        if client in seeds:
            double_masks.add_self_mask(total, M, seeds[client], self.tag, client, negative=False)
        for peer in self.ready:
            key = pair_keys.get(frozenset((client, peer)))
            if key is not None:
                double_masks.add_pair_mask(total, M, key, self.tag, client, peer, negative=False)
        return total

    def guessed_masks(self, client):
        """By guess, all masks of this client: no pads, one pad for all, images as secrets."""
        ready = self.ready[client]
        sent, pad = ready.padded_keys, np.zeros(32, np.uint8)
        for pair, row in by_pair(client, sent).items():
            if pair in self.pair_keys:
                pad = np.frombuffer(row, np.uint8) ^ np.frombuffer(self.pair_keys[pair], np.uint8)
        guesses = {
            "no pads": by_pair(client, sent),
            "one pad": by_pair(client, sent ^ pad),
            "images": self.under_pads(client, ready.key_image),
        }
        seeds = {client: ready.seed_image} | self.seeds
        return {
            name: self.known_masks(client, keys | self.pair_keys, seeds)
            for name, keys in guesses.items()
        }


def by_pair(client, keys):
    """Keys of this client and each other one, (3, 32) bytes, by pair."""
    peers = (c for c in CLIENTS if c != client)
    return {frozenset((client, c)): k.tobytes() for c, k in zip(peers, keys, strict=True)}


def served(kind, honest, late):
    """A server that also takes d's late upload, and returns the label of the sum as well."""

    async def server(session, first, second, third, graph=None, clients=(), **how):
        if kind == "sum":
            shape, codec, graph = first, second, third
            purpose, dims = "sum", {"rows": shape[0], "columns": 1}
            found = await honest(session, shape, codec, graph, clients=clients)
        else:
            rows, columns, modulus = first, second, third
            purpose = "row sums"
            dims = {"rows": sum(len(r) for c, r in rows.items() if c != "d"), "columns": columns}
            found = await honest(session, rows, columns, modulus, graph, clients=clients, **how)
        tag = domain_tag(
            "secure sum", session.id, purpose, graph.threshold, graph.degree,
            graph.share_threshold, *graph.clients,
        )  # fmt: skip
        if late:
            session.io._late.clear()
            upload = SumUpload if kind == "sum" else RowSumsUpload
            await session.io.gather(SumMasked, ["d"])
            await session.io.gather(upload, ["d"], **dims, modulus=M)
        return found, tag

    return server


# SecureSum


def sum_run(inputs, status, seed, coalition="", graph=GRAPH):
    """One run: the coalition's knowledge, the uploads, and who survived."""
    make = secure_sum(
        arrays(inputs, (ENTRIES,)),
        graph=graph, fraction_bits=0, modulus=M, seed=seed,
        server=served("sum", secure_sum_server, status == "late"),
    )  # fmt: skip
    with masks_of_clients() as masks:
        outcome = run(make, STATUS[status], record=True)
    found, tag = outcome.results[SERVER]
    survivors = CLIENTS if status == "living" else CLIENTS[:3]
    assert found.record.survivors == survivors
    assert (found.total == sum(inputs[c] for c in survivors)).all()  # the sum does not tell
    known = Knowledge(outcome.views, masks, tag, (ENTRIES, 1), coalition)
    uploads = {f: m.values for f, m in outcome.views[SERVER] if isinstance(m, SumUpload)}
    assert set(uploads) == set(CLIENTS if status == "late" else survivors)
    return known, uploads, survivors


def sum_forms(inputs, status, seed, leak=None):
    """By name, everything that the server can form, (ENTRIES,) each, and pairs of these."""
    known, uploads, survivors = sum_run(inputs, status, seed)
    if leak is not None:
        known.seeds.update(leak)
    forms = {f"upload {c}": u for c, u in uploads.items()}
    bare = {c: minus(u, known.known_masks(c)) for c, u in uploads.items()}
    forms |= {f"stripped {c}": u for c, u in bare.items()}
    forms |= {
        f"{c}, guessing {guess}": minus(u, masks)
        for c, u in uploads.items()
        for guess, masks in known.guessed_masks(c).items()
    }
    if "d" in uploads and "d" not in survivors:
        forms["all and d"] = plus(*bare.values())
    pairs = {f"{c} with {o}": (bare[c], bare[o]) for c, o in combinations(bare, 2)}
    return forms, pairs


def gather_counts(samples):
    """Counts of all forms, of the differences of neighbouring entries, and of pairs."""
    columns, joint = {}, {}
    for forms, pairs in samples:
        for name, form in forms.items():
            columns.setdefault(name, []).append(form.reshape(-1))
            step = minus(form[1:], form[:-1]).reshape(-1)
            columns.setdefault(f"steps of {name}", []).append(step)
        for name, (one, other) in pairs.items():
            cells = one.reshape(-1).astype(int) * M + other.reshape(-1)
            joint.setdefault(name, []).append(cells)
    counts = {n: np.bincount(np.concatenate(c), minlength=M) for n, c in columns.items()}
    return counts | {n: np.bincount(np.concatenate(c), minlength=M * M) for n, c in joint.items()}


def worst_uniform(counts):
    """The smallest p-value, corrected for the number of tests, and where it is."""
    return min((min(1.0, uniformity(c) * len(counts)), name) for name, c in counts.items())


def worst_same(counts, others):
    assert set(counts) == set(others)
    return min(
        (min(1.0, same_distribution(c, others[name]) * len(counts)), name)
        for name, c in counts.items()
    )


def sum_counts(inputs, status, seeds=SEEDS, **how):
    return gather_counts(sum_forms(inputs, status, seed, **how) for seed in seeds)


@pytest.mark.parametrize("status", STATUS)
def test_all_that_the_server_can_form_of_a_sum_is_uniform_and_the_same_for_other_inputs(status):
    counts = sum_counts(INPUT, status)
    assert worst_uniform(counts) > (1e-3, "")
    others = sum_counts(ANOTHER[status], status, range(1000, 1000 + len(SEEDS)))
    assert worst_uniform(others) > (1e-3, "")
    assert worst_same(counts, others) > (1e-3, "")


def leave_out(monkeypatch, purpose):
    """Let all parties leave out the masks of this purpose."""

    def some(total, key, tag, modulus, *, subtract=False):
        if purpose not in tag:
            accumulate(total, key, tag, modulus, subtract=subtract)

    monkeypatch.setattr(keyed_masks, "accumulate", some)


def one_mask_for_all_entries(monkeypatch, purpose):
    """Let all parties repeat the first residue of the masks of this purpose."""

    def repeated(total, key, tag, modulus, *, subtract=False):
        if purpose not in tag:
            accumulate(total, key, tag, modulus, subtract=subtract)
            return
        mask = np.broadcast_to(expand(key, tag, modulus, 1), total.shape).copy()
        (ring.subtract_from if subtract else ring.add_into)(total, mask, modulus)

    monkeypatch.setattr(keyed_masks, "accumulate", repeated)


FEWER = range(1)
SELF, PAIR = b"sum self mask", b"sum pair mask"


@pytest.mark.parametrize("breaking", [leave_out, one_mask_for_all_entries])
@pytest.mark.parametrize(
    ("purpose", "status", "where"),
    [
        (PAIR, "living", "stripped a"),
        (PAIR, "dropped", "stripped a"),
        (PAIR, "late", "stripped c"),
        (SELF, "late", "stripped d"),
    ],
)
def test_the_same_test_fails_without_a_mask_or_with_a_mask_used_twice(
    monkeypatch, breaking, purpose, status, where
):
    breaking(monkeypatch, purpose)
    counts = sum_counts(INPUT, status, FEWER)
    assert worst_uniform(counts)[0] < 1e-9
    step = counts[f"steps of {where}"]
    assert step[0] == step.sum()  # of a mask that repeats, the steps between entries tell
    if breaking is leave_out:
        value = counts[where]
        assert value[INPUT[where[-1]] % M] == value.sum()  # the value itself
        others = sum_counts(ANOTHER[status], status, range(1000, 1000 + len(FEWER)))
        assert worst_same(counts, others)[0] < 1e-9


HIDING_LESS = {
    "no pads": ("under_pads", lambda keys, *others: keys),
    "one pad": ("under_pads", lambda *args: args[0] ^ (under_pads(*args) ^ args[0])[:1]),
    "images": ("secret_image", lambda secret, *others: secret),
}


@pytest.mark.parametrize(
    ("guess", "status", "client"),
    [
        ("no pads", "living", "a"),
        ("one pad", "dropped", "a"),
        ("images", "living", "a"),
        ("images", "late", "d"),
    ],
)
def test_the_same_test_fails_when_pads_or_images_hide_less(monkeypatch, guess, status, client):
    monkeypatch.setattr(double_masks, *HIDING_LESS[guess])
    counts = sum_counts(INPUT, status, FEWER)
    assert worst_uniform(counts)[0] < 1e-9
    value = counts[f"{client}, guessing {guess}"]
    assert value[INPUT[client] % M] == value.sum()


def test_the_same_test_fails_when_both_secrets_of_a_late_client_are_revealed(monkeypatch):
    seeds = {}
    made = ClientMasks.__init__

    def spying(self, me, tag, clients, seed, *others):
        seeds[me] = seed
        made(self, me, tag, clients, seed, *others)

    monkeypatch.setattr(ClientMasks, "__init__", spying)

    class Leak:  # the seed of the run that is looked at
        def keys(self):
            return ["d"]

        def __getitem__(self, client):
            return seeds[client]

    counts = sum_counts(INPUT, "late", FEWER, leak=Leak())
    assert worst_uniform(counts)[0] < 1e-9
    assert counts["stripped d"][INPUT["d"] % M] == counts["stripped d"].sum()


# SecureSum, what the server and clients together see


TOGETHER = [("a", "living"), ("a", "dropped"), ("a", "late"), ("ab", "living"), ("ab", "late")]
"""Fewer clients than the share threshold of three. With a and b and without d, c alone is left."""


def alike(coalition, status):
    """Inputs that are the same to the coalition: its own, and the sum of the honest survivors."""
    if status == "living":
        changed = {"b": 2, "c": -2, "d": -1} if coalition == "a" else {"c": -2, "d": 2}
    else:
        changed = {"b": 2, "c": -1, "d": 1} if coalition == "a" else {"d": 1}
    return INPUT | changed


def bare_uploads(inputs, status, seed, coalition, graph=GRAPH):
    """What is left of each honest upload, and who of the honest clients survived."""
    known, uploads, survivors = sum_run(inputs, status, seed, coalition, graph)
    bare = {c: minus(u, known.known_masks(c)) for c, u in uploads.items() if c not in coalition}
    return bare, [c for c in bare if c in survivors]


def joint_forms(inputs, status, seed, coalition):
    """What is left of the honest uploads, each and in pairs, but for what their sum tells.

    The sum over the honest survivors must be right. Where each pair of three is uniform, this gives
    the distribution of all three.
    """
    bare, honest = bare_uploads(inputs, status, seed, coalition)
    assert (plus(*(bare[c] for c in honest)) == sum(inputs[c] for c in honest) % M).all()
    forms = {f"stripped {c}": u for c, u in bare.items() if honest != [c]}
    pairs = {
        f"{c} with {o}": (bare[c], bare[o])
        for c, o in combinations(bare, 2)
        if honest not in ([c], [o], [c, o])
    }
    return forms, pairs


def joint_counts(inputs, status, coalition, seeds=SEEDS):
    return gather_counts(joint_forms(inputs, status, seed, coalition) for seed in seeds)


@pytest.mark.parametrize(("coalition", "status"), TOGETHER)
def test_server_and_fewer_than_t_clients_together_learn_the_sum_over_the_honest_ones_only(
    coalition, status
):
    counts = joint_counts(INPUT, status, coalition)
    assert ("stripped d" in counts) == (status != "dropped")
    assert worst_uniform(counts) > (1e-3, "")
    others = joint_counts(
        alike(coalition, status), status, coalition, range(1000, 1000 + len(SEEDS))
    )
    assert worst_uniform(others) > (1e-3, "")
    assert worst_same(counts, others) > (1e-3, "")


@pytest.mark.parametrize("breaking", [leave_out, one_mask_for_all_entries])
@pytest.mark.parametrize(
    ("purpose", "coalition", "status", "where"),
    [
        (PAIR, "a", "living", "b"),
        (PAIR, "a", "dropped", "c"),
        (PAIR, "a", "late", "b"),
        (SELF, "a", "late", "d"),
        (PAIR, "ab", "living", "c"),
        (SELF, "ab", "late", "d"),
    ],
)
def test_the_same_test_of_server_and_clients_fails_without_a_mask_or_with_a_mask_used_twice(
    monkeypatch, breaking, purpose, coalition, status, where
):
    breaking(monkeypatch, purpose)
    counts = joint_counts(INPUT, status, coalition, FEWER)
    assert worst_uniform(counts)[0] < 1e-9
    step = counts[f"steps of stripped {where}"]
    assert step[0] == step.sum()
    if breaking is leave_out:
        value = counts[f"stripped {where}"]
        assert value[INPUT[where] % M] == value.sum()
        others = joint_counts(alike(coalition, status), status, coalition, FEWER)
        assert worst_same(counts, others)[0] < 1e-9


def masks_with_one_client_only(monkeypatch):
    """Let all clients leave out their masks with all but a."""

    def some(total, modulus, key, tag, me, peer, *, negative):
        if "a" in (me, peer):
            add_pair_mask(total, modulus, key, tag, me, peer, negative=negative)

    monkeypatch.setattr(double_masks, "add_pair_mask", some)


def test_the_same_test_finds_masks_that_one_client_knows_which_the_server_alone_does_not(
    monkeypatch,
):
    masks_with_one_client_only(monkeypatch)
    assert worst_uniform(sum_counts(INPUT, "living", FEWER)) > (1e-3, "")
    counts = joint_counts(INPUT, "living", "a", FEWER)
    assert worst_uniform(counts)[0] < 1e-9
    for client in "bcd":
        value = counts[f"stripped {client}"]
        assert value[INPUT[client] % M] == value.sum()


def test_the_same_test_finds_one_mask_that_all_pairs_use(monkeypatch):
    """All that is left of c's upload is c's value: its masks with b and d cancel."""

    def add_same(total, modulus, key, tag, me, peer, *, negative):
        accumulate(total, bytes(32), tag, modulus, subtract=(me > peer) != negative)

    monkeypatch.setattr(double_masks, "add_pair_mask", add_same)
    counts = joint_counts(INPUT, "living", "a", FEWER)
    assert worst_uniform(counts)[0] < 1e-9
    value = counts["stripped c"]
    assert value[INPUT["c"] % M] == value.sum()
    pair = counts["b with d"]
    assert np.count_nonzero(pair) == M  # b's mask is the negative of d's


@pytest.mark.parametrize("status", STATUS)
def test_limit_server_and_t_clients_together_read_every_upload(status):
    """Here t is two: a and b hold enough shares of both secrets of c and d."""
    bare, _ = bare_uploads(INPUT, status, 0, "ab", MaskGraph.complete(CLIENTS, 2))
    assert set(bare) == set("c" if status == "dropped" else "cd")
    for client, upload in bare.items():
        assert (upload == INPUT[client] % M).all()


# SecureSum, what clients see


def small_sum(inputs, seed=0):
    return secure_sum(arrays(inputs, (4,)), graph=GRAPH, fraction_bits=0, modulus=M, seed=seed)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_of_a_sum_sees_the_same_whatever_the_others_have(client):
    """Byte for byte with the same randomness, so also in distribution."""
    another = {"a": 2, "b": 1, "c": -2, "d": 0} | {client: INPUT[client]}
    one, other = (
        {
            party: [(d.sender, d.payload) for d in sent if d.receiver == party]
            for party in (client, SERVER)
        }
        for sent in (deliveries(small_sum(inputs)) for inputs in (INPUT, another))
    )
    assert one[client] == other[client]
    assert one[SERVER] != other[SERVER]


def share_counts(seeds):
    """What a and b hold of the secrets of c and d, of which three give each.

    High digits of their shares of one secret together, and high and low digits of each alone.
    """
    columns = []
    for seed in seeds:
        seen = views(small_sum(INPUT, seed))
        for peer in "cd":
            for name in ("key_share", "seed_share"):
                x, y = (
                    Share.decode(getattr(m, name)).value
                    for holder in "ab"
                    for sender, m in seen[holder]
                    if isinstance(m, SumShares) and sender == peer
                )
                high = [16 * v // SHAMIR_PRIME for v in (x, y)]
                columns.append([4 * (high[0] // 4) + high[1] // 4, *high, x % 16, y % 16])
    return [np.bincount(c, minlength=16) for c in np.array(columns, dtype=int).T]


def test_shares_that_two_clients_hold_of_the_secrets_of_others_are_uniform():
    counts = share_counts(range(20))
    assert min(map(uniformity, counts)) * len(counts) > 1e-3


def test_the_same_test_fails_without_random_coefficients(monkeypatch):
    monkeypatch.setattr(shamir, "random_elements", lambda count, *others: [0] * count)
    found = run(small_sum(INPUT)).raise_errors().results[SERVER]
    assert (found.total == sum(INPUT.values())).all()
    counts = share_counts(range(20))
    assert min(map(uniformity, counts)) * len(counts) < 1e-9


# SecureRowSums, mode recover


def rows_run(inputs, status, seed, coalition=""):
    """One run: the coalition's knowledge, the uploads, who survived, and the clients' sessions."""
    sessions = {}

    async def client(session, *others, **how):
        sessions[session.io.name] = session
        return await secure_row_sums_client(session, *others, **how)

    make = row_sums(
        arrays(inputs, (5, ENTRIES)), ROWS,
        graph=GRAPH, fraction_bits=0, modulus=M, seed=seed, client=client,
        server=served("row sums", secure_row_sums_server, status == "late"),
    )  # fmt: skip
    with masks_of_clients() as masks:
        outcome = run(make, STATUS[status], record=True).raise_errors()
    record, tag = outcome.results[SERVER]
    survivors = CLIENTS if status == "living" else CLIENTS[:3]
    assert record.survivors == survivors
    for client in CLIENTS if status != "dropped" else survivors:
        values = outcome.results[client].values
        assert (values == sum(inputs[c] for c in survivors)).all()  # the sums do not tell
    known = Knowledge(outcome.views, masks, tag, (5, ENTRIES), coalition)
    uploads = {}
    for client, message in outcome.views[SERVER]:
        if isinstance(message, RowSumsUpload):
            uploads[client] = known.zeros()
            uploads[client][rows_of_others(ROWS, CLIENTS, client)] = message.values
    assert set(uploads) == set(CLIENTS if status == "late" else survivors)
    return known, uploads, survivors, sessions


def forms_of_rows(known, uploads, survivors, take_off=lambda client, owner, piece: piece):
    """By uploader and owner, what is left of an upload; and the sums of these, by owner."""
    forms, pairs = {}, {}
    for owner in CLIENTS:
        bare = {}
        for client, upload in uploads.items():
            if client != owner:
                own = ROWS[owner]
                piece = minus(upload, known.known_masks(client))[own]
                bare[client] = take_off(client, owner, piece)
                forms[f"upload {client}, rows of {owner}"] = upload[own]
                forms[f"{client}, rows of {owner}"] = bare[client]
        block = [bare[c] for c in survivors if c != owner]
        forms[f"block {owner}"] = plus(*block)
        if len(block) < len(bare):
            forms[f"block {owner} and d"] = plus(*bare.values())
        pairs |= {
            f"{c} with {o}, rows of {owner}": (bare[c], bare[o]) for c, o in combinations(bare, 2)
        }
    return {name: form.T for name, form in forms.items()}, pairs


def server_counts(inputs, status, seeds=SEEDS):
    return gather_counts(forms_of_rows(*rows_run(inputs, status, seed)[:3]) for seed in seeds)


@pytest.mark.parametrize("status", STATUS)
def test_all_that_the_server_can_form_of_row_sums_is_uniform_and_the_same_for_other_inputs(status):
    """For living, dropped and late clients: each upload and block, that of the dropped one too."""
    counts = server_counts(INPUT, status)
    assert "block d" in counts
    assert worst_uniform(counts) > (1e-3, "")
    others = server_counts(ANOTHER[status], status, range(1000, 1000 + len(SEEDS)))
    assert worst_uniform(others) > (1e-3, "")
    assert worst_same(counts, others) > (1e-3, "")


def no_owner_masks(monkeypatch):
    def nothing(session, adder, owner, tag, modulus, shape):
        return np.zeros(shape, residue_dtype(modulus))

    monkeypatch.setattr(row_sums_recover, "owner_mask", nothing)


@pytest.mark.parametrize("status", ["dropped", "late"])
def test_without_owner_masks_the_server_learns_what_survivors_gave_for_a_dropped_client(
    monkeypatch, status
):
    """Erratum 4: the keys of a client that dropped out are recovered, and its rows lie open."""
    no_owner_masks(monkeypatch)
    counts = server_counts(INPUT, status, FEWER)
    assert worst_uniform(counts)[0] < 1e-9
    block = counts["block d"]
    assert block[(INPUT["a"] + INPUT["b"] + INPUT["c"]) % M] == block.sum()
    # The rows of those that stay remain hidden: their owners' pair masks are still on them.
    assert uniformity(counts["block a"]) > 1e-6


def test_a_label_that_is_used_for_two_sums_would_tell_how_they_differ(monkeypatch):
    """The blocks of a client that is not there differ by the sums if its owner masks repeat."""
    codec = FixedPoint(0, 4, M)

    def difference(seed, same_label):
        blocks = []
        if same_label:
            monkeypatch.setattr(Session, "once", lambda session, *_: session.id)

        async def client(session, rng):
            for purpose, factor in (("first", 1), ("second", 2)):
                values = np.full((5, ENTRIES), INPUT[session.io.name] * factor // 2)
                await secure_row_sums_client(session, values, ROWS, codec, GRAPH, rng, purpose)

        async def server(session, rng):
            honest = session.io.send

            async def send(to, message):
                if isinstance(message, RowSumsBlock) and to == "d":
                    blocks.append(message.values)
                await honest(to, message)

            session.io.send = send
            for purpose in ("first", "second"):
                await secure_row_sums_server(session, ROWS, ENTRIES, codec, GRAPH, purpose)

        make = with_session(CLIENTS, client, server, seed=seed)
        run(make, Faults(dropouts={"d": "share"})).raise_errors()
        assert len(blocks) == 2
        return minus(*blocks).reshape(-1)

    fresh = np.concatenate([difference(seed, False) for seed in FEWER])
    assert uniformity(np.bincount(fresh, minlength=M)) > 1e-3
    reused = np.concatenate([difference(seed, True) for seed in FEWER])
    assert len(set(reused)) == 1


def colluding_counts(status, seeds):
    """The same with all that a has, whose rows are looked at: owner masks, masks, shares."""
    samples = []
    for seed in seeds:
        known, uploads, survivors, sessions = rows_run(INPUT, status, seed, "a")

        def take_off(client, owner, piece, session=sessions["a"], tag=known.tag):
            if owner != "a":
                return piece
            mask = row_sums_recover.owner_mask(session, client, "a", tag, M, piece.shape)
            return minus(piece, mask)

        forms, pairs = forms_of_rows(known, uploads, survivors, take_off)
        del forms["block a"]  # which it may learn: the sum of the others
        pairs = {name: pair for name, pair in pairs.items() if name.endswith("rows of a")}
        if status != "living":  # two pieces of which it may know the sum
            pairs.pop("b with c, rows of a")
        samples.append((forms, pairs))
    return gather_counts(samples)


@pytest.mark.parametrize("status", STATUS)
def test_server_and_owner_together_learn_nothing_of_a_late_client(status):
    """Mode recover closes `test_limit_server_and_owner_together_learn_a_late_clients_part`."""
    counts = colluding_counts(status, SEEDS)
    if status == "late":
        assert "d, rows of a" in counts
        assert "block a and d" in counts
    assert worst_uniform(counts) > (1e-3, "")


@pytest.mark.parametrize(
    ("purpose", "status", "where"),
    [
        (SELF, "late", "d, rows of a"),
        (PAIR, "living", "b, rows of a"),
        (PAIR, "dropped", "c, rows of a"),
    ],
)
def test_the_same_test_fails_without_self_or_pair_masks(monkeypatch, purpose, status, where):
    leave_out(monkeypatch, purpose)
    counts = colluding_counts(status, FEWER)
    assert worst_uniform(counts)[0] < 1e-9
    assert counts[where][INPUT[where[0]] % M] == counts[where].sum()


# SecureRowSums, mode restart, in which d's upload comes too late for the first of two attempts


def restart_forms(inputs, seed):
    """What the server and a make of the uploads of others, but for what a's rows of sums tell.

    These must be the sum over the honest clients that stay, and from the first attempt d's values.
    """
    masks = []
    drawn = row_sums_restart.pair_masks

    def spying(session, *others):
        found = drawn(session, *others)
        if session.io.name == "a":
            masks.append(found)
        return found

    async def server(session, *others, **how):
        gather_each = session.io.gather_each

        async def without_d(*args, **dims):
            return tuple(c for c in await gather_each(*args, **dims) if c != "d")

        session.io.gather_each = without_d
        return await secure_row_sums_server(session, *others, **how)

    make = row_sums(
        arrays(inputs, (5, ENTRIES)), ROWS, mode="restart",
        graph=GRAPH, fraction_bits=0, modulus=M, seed=seed, server=server,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_sums_restart, "pair_masks", spying)
        outcome = run(make, record=True)
    assert outcome.results["a"].contributors == CLIENTS[:3]
    assert (outcome.results["a"].values == sum(inputs[c] for c in "abc")).all()
    uploads = [(c, m) for c, m in outcome.views[SERVER] if isinstance(m, RowSumsUpload)]
    first, second = dict(uploads[:4]), dict(uploads[4:])
    bare = {owner: {} for owner in CLIENTS}
    for number, (got, own_masks) in enumerate(zip((first, second), masks, strict=True), 1):
        order = tuple(c for c in CLIENTS if c in got)
        for client in order[1:]:
            upload = np.zeros((5, ENTRIES), residue_dtype(M))
            upload[rows_of_others(ROWS, order, client)] = got[client].values
            ring.add_into(upload, own_masks[client], M)  # a is the first, so others subtract it
            for owner in order:
                if owner != client:
                    bare[owner][f"{client} in {number}"] = upload[ROWS[owner]]
    own = bare["a"]
    assert set(own) == {"b in 1", "c in 1", "d in 1", "b in 2", "c in 2"}
    block = plus(own["b in 2"], own["c in 2"])
    assert (block == (inputs["b"] + inputs["c"]) % M).all()
    whole = plus(own["b in 1"], own["c in 1"], own["d in 1"])
    assert (minus(whole, block) == inputs["d"] % M).all()
    forms = {f"{n}, rows of {o}": x.T for o, parts in bare.items() for n, x in parts.items()}
    forms |= {f"{n}, between rows of a": minus(x[1:], x[:1]).T for n, x in own.items()}
    forms |= {
        f"block {o}": plus(*(x for n, x in bare[o].items() if n.endswith("1"))).T for o in "bcd"
    }
    pairs = {
        f"{n} with {k}, rows of {o}": (parts[n], parts[k])
        for o, parts in bare.items()
        for n, k in combinations(parts, 2)
    }
    del pairs["b in 2 with c in 2, rows of a"]  # of which it may know the sum
    return forms, pairs


def restart_counts(inputs, seeds):
    return gather_counts(restart_forms(inputs, seed) for seed in seeds)


RESTART_ALIKE = {"a": 1, "b": 2, "c": -1, "d": -2}  # the same d, and the same sum of b and c


def test_server_and_owner_together_learn_of_a_restart_the_sum_and_the_late_clients_part_only():
    """`test_limit_server_and_owner_together_learn_a_late_clients_part` is all that they learn."""
    counts = restart_counts(INPUT, FEWER)
    assert worst_uniform(counts) > (1e-3, "")
    others = restart_counts(RESTART_ALIKE, range(1000, 1000 + len(FEWER)))
    assert worst_uniform(others) > (1e-3, "")
    assert worst_same(counts, others) > (1e-3, "")


def none_for_owners(mask, pair):
    """Leave the mask of a pair out of the rows of these two."""
    own = np.isin(np.arange(len(mask)), np.concatenate([ROWS[c] for c in pair]))
    return mask * ~own[:, None]


BROKEN_MASKS = {
    "no mask": lambda mask, pair: np.zeros_like(mask),
    "one mask for all entries": lambda mask, pair: np.repeat(mask[:, :1], mask.shape[1], axis=1),
    "one mask for all rows": lambda mask, pair: np.repeat(mask[:1], len(mask), axis=0),
    "no mask in the rows of its owners": none_for_owners,
}


@pytest.mark.parametrize("broken", BROKEN_MASKS)
def test_the_same_test_of_a_restart_fails_without_masks_or_with_a_mask_used_twice(
    monkeypatch, broken
):
    def some(session, clients, tag, shape, modulus):
        masks = pair_masks(session, clients, tag, shape, modulus)
        return {c: BROKEN_MASKS[broken](m, (c, session.io.name)) for c, m in masks.items()}

    monkeypatch.setattr(row_sums_restart, "pair_masks", some)
    counts = restart_counts(INPUT, FEWER)
    assert worst_uniform(counts)[0] < 1e-9
    if broken in ("no mask", "one mask for all entries"):
        step = counts["steps of c in 2, rows of a"]
        assert step[0] == step.sum()
    if broken == "no mask":
        value = counts["c in 2, rows of a"]
        assert value[INPUT["c"] % M] == value.sum()
        others = restart_counts(RESTART_ALIKE, FEWER)
        assert worst_same(counts, others)[0] < 1e-9
