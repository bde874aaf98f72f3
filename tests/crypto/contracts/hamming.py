"""The contract of back ends for distances: what all of them must do.

`test_hamming.py` runs it over every back end; tests of one back end run parts of it over settings
of its own: batches, blocks, windows.
"""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import strategies as st
from protocol_runs import hamming, on_the_last_link, with_session

from xclp_crypto.errors import ProtocolError, ReuseError
from xclp_crypto.params import INSECURE_TEST_128
from xclp_crypto.protocols.hamming import BACKENDS, estimate
from xclp_crypto.protocols.hamming.interface import DistanceShares
from xclp_crypto.protocols.hamming.masked import MaskedRows
from xclp_crypto.protocols.hamming.paillier import Paillier
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.protocols.hamming.shade_ext import ShadeExt
from xclp_crypto.protocols.ot import ideal_ot
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import (
    blamed,
    every_corruption,
    every_dropout,
    run,
    same_distribution,
    uniformity,
    views,
)

SHADE_IDEAL = Shade(ideal_ot)
QUICK = BACKENDS | {
    b.name: b
    for b in (Paillier(INSECURE_TEST_128), PaillierPacked(INSECURE_TEST_128), ShadeExt(ideal_ot))
}
"""All back ends, the slow ones with short keys or ideal base transfers."""
ALL = [*QUICK.values(), SHADE_IDEAL]
FAST = [b for b in ALL if b.name != "rlwe" and b is not BACKENDS["shade"]]


def ident(backend):
    return f"{backend.name}-ideal-ot" if backend is SHADE_IDEAL else backend.name


EVERY = pytest.mark.parametrize("backend", ALL, ids=ident)
EVERY_FAST = pytest.mark.parametrize("backend", FAST, ids=ident)


# Inputs


def random_bits(sizes, n_bits, seed=0):
    rng = np.random.default_rng([seed, n_bits, *sizes])
    return {f"c{i}": rng.integers(0, 2, (n, n_bits)).astype(np.uint8) for i, n in enumerate(sizes)}


BITS = random_bits([2, 1, 2], 5)


@st.composite
def federations(draw, lengths, max_rows=4, max_clients=4):
    n_bits = draw(st.sampled_from(lengths))
    sizes = draw(st.lists(st.integers(0, max_rows), min_size=2, max_size=max_clients))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    density = draw(st.sampled_from([0.0, 0.5, 0.5, 1.0]))
    return {
        f"c{i}": (rng.random((n, n_bits)) < density).astype(np.uint8) for i, n in enumerate(sizes)
    }


# Exact distances, and their costs


def oracle(bits, clients=None):
    stacked = np.concatenate([np.asarray(bits[c]) for c in (clients or bits)])
    return (stacked[:, None, :] != stacked[None, :, :]).sum(axis=2)


def result(backend, bits, seed=0):
    return run(hamming(backend, bits, seed)).raise_errors().results[SERVER]


def exact(backend, bits, seed=0):
    """The distances are those in the clear."""
    got = result(backend, bits, seed)
    assert got.matrix.dtype == np.uint16
    assert got.sizes == {c: len(b) for c, b in bits.items()}
    assert list(got.sizes) == list(bits)
    assert np.array_equal(got.matrix, oracle(bits))


def costs_what_was_foretold(backend, bits):
    """Bytes of every link and rounds are those of the estimate, which is returned."""
    outcome = run(hamming(backend, bits)).raise_errors()
    assert np.array_equal(outcome.results[SERVER].matrix, oracle(bits))
    metered = {}
    for traffic, count in outcome.cost.bytes_sent.items():
        if traffic.step == "hamming":
            link = traffic.sender, traffic.receiver
            metered[link] = metered.get(link, 0) + count
    n_bits = next(iter(bits.values())).shape[1]
    foretold = estimate(backend, {c: len(b) for c, b in bits.items()}, n_bits)
    assert foretold.bytes_per_link == metered
    assert foretold.total_bytes == sum(metered.values()) > 0
    setup_rounds = 7 if backend.needs_common_secret else 4
    assert foretold.rounds == outcome.cost.rounds - setup_rounds
    return foretold


# Faults and misuse


def right_or_typed(outcome, bits, context):
    """The server has the exact submatrix of the clients it names, or a typed error."""
    if SERVER in outcome.results:
        got = outcome.results[SERVER]
        assert len(got.sizes) >= 2, context
        assert got.sizes == {c: len(bits[c]) for c in got.sizes}, context
        assert np.array_equal(got.matrix, oracle(bits, list(got.sizes))), context
    else:
        assert SERVER in outcome.errors or SERVER in outcome.dropouts, context
    for error in outcome.errors.values():
        assert isinstance(error, ProtocolError), context


def every_dropout_costs_only_the_rows_of_its_client(backend, bits=BITS):
    """Wherever a party drops out, the others' distances are right.

    The first client is left out: what it does with its peers the second does, and the last.
    """
    full, (_, *some) = 0, bits
    for case in every_dropout(hamming(backend, bits), [*some, SERVER]):
        right_or_typed(case.outcome, bits, case)
        if case.party != SERVER:
            assert not case.outcome.errors, case
            assert set(bits) - {case.party} <= set(case.outcome.results[SERVER].sizes), case
            full += len(case.outcome.results[SERVER].sizes) == len(bits)
    assert full <= 2 * len(some)  # a client that dropped out after its last message


def every_corruption_is_blamed_on_an_end_of_its_link(backend, bits=BITS, *, fewest=12):
    """Whatever a message is replaced by, distances are right or one of its ends is to blame.

    Messages of the setup are altered in its own tests.
    """
    make = hamming(backend, bits)
    chosen = on_the_last_link(make)
    cases = right = 0
    for case in every_corruption(make, which=lambda d: d.step == "hamming" and chosen(d)):
        cases += 1
        ends = {case.delivery.sender, case.delivery.receiver}
        right_or_typed(case.outcome, bits, case)
        right += SERVER in case.outcome.results
        for error in case.outcome.errors.values():
            if blamed(error):
                assert blamed(error) & ends, (case, error)
        if case.tamper != "lost":
            assert any(blamed(e) & ends for e in case.outcome.errors.values()), case
        elif not case.outcome.errors:
            assert len(case.outcome.results[SERVER].sizes) < len(bits), case
    assert cases >= fewest
    assert right > 0 or len(bits) == 2


def a_second_run_in_a_session_is_refused(backend):
    async def client(session, rng):
        session.common_secret = bytes(range(32))
        for _ in range(2):
            await backend.client(session, np.ones((1, 4), np.uint8), rng)

    async def server(session, rng):
        return await backend.server(session, 4)

    errors = run(with_session("ab", client, server, numbers={"a": [1], "b": [1]})).errors
    assert {type(errors[c]) for c in "ab"} == {ReuseError}


# What the server sees

MASK = np.array([1, 1, 0, 1, 0], np.uint8)
X = {
    "a": np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], np.uint8),
    "b": np.array([[1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], np.uint8),
}
X_MASKED = {c: b ^ MASK for c, b in X.items()}
"""Other bits, of other weights, with the same distances."""


def observations(bits, seeds, backend, kinds):
    """By field and sender, what the server opened in each run, stacked."""
    seen = {}
    for seed in seeds:
        for frm, message in views(hamming(backend, bits, seed))[SERVER]:
            for kind, name in kinds:
                if isinstance(message, kind):
                    seen.setdefault((name, frm), []).append(getattr(message, name).astype(int))
    return {key: np.array(blocks) for key, blocks in seen.items()}


def with_differences(blocks):
    """Stack the blocks of all clients as columns, and add differences between neighbours."""
    columns = [b.reshape(len(b), -1) for b in blocks]
    flat = np.concatenate(columns, axis=1)
    between_rows = [(b[:, 1:] - b[:, :-1]).reshape(len(b), -1) for b in blocks if b.ndim == 3]
    across = [a[:, :1] - b[:, :1] for a, b in combinations(blocks, 2) if a.ndim == 3]
    return np.concatenate(
        [flat, flat[:, 1:] - flat[:, :-1], *between_rows, *[a.reshape(len(a), -1) for a in across]],
        axis=1,
    )


def counts_of(samples, modulus):
    return [np.bincount(column % modulus, minlength=modulus) for column in samples.T]


def worst_uniform(samples, modulus):
    """The smallest p-value over all columns, corrected for their number."""
    return min(uniformity(c) for c in counts_of(samples, modulus)) * samples.shape[1]


def worst_same(one, other, modulus):
    pairs = zip(counts_of(one, modulus), counts_of(other, modulus), strict=True)
    return min(same_distribution(a, b) for a, b in pairs) * one.shape[1]


def server_view(bits, seeds, backend):
    """Masked rows modulo t/2 = 4, and one client's shares modulo t = 8, with differences."""
    kinds = [(DistanceShares, "shares")]
    kinds += [(MaskedRows, "rows")] if backend.name == "masked" else []
    seen = observations(bits, seeds, backend, kinds)
    rows = [seen[key] for key in seen if key[0] == "rows"]
    # The shares of b follow from those of a and H, so the two are uniform each, not jointly.
    shares = [with_differences([seen["shares", c]]) for c in bits]
    return (with_differences(rows) if rows else None), shares


def view_p_values(backend, runs):
    """Smallest corrected p-values: uniformity, and equality for X and X_MASKED."""
    (rows_1, shares_1), (rows_2, shares_2) = (
        server_view(bits, seeds, backend)
        for bits, seeds in ((X, range(runs)), (X_MASKED, range(runs, 2 * runs)))
    )
    uniform = [worst_uniform(s, 8) for s in (*shares_1, *shares_2)]
    same = [worst_same(s, z, 8) for s, z in zip(shares_1, shares_2, strict=True)]
    if rows_1 is not None:
        uniform += [worst_uniform(r, 4) for r in (rows_1, rows_2)]
        same += [worst_same(rows_1, rows_2, 4)]
    return min(uniform), min(same)


def only_views_can_show_it(backend, runs):
    """The distances stay right; return the p-values of what the server sees."""
    assert np.array_equal(result(backend, X).matrix, oracle(X))
    return view_p_values(backend, runs)
