"""Distances between rows and columns: the contract of the back ends that know them."""

import numpy as np
import pytest
from contracts.hamming import worst_uniform
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import between, on_the_last_link, with_session

from xclp_crypto.errors import ParameterError, ProtocolError, ReuseError
from xclp_crypto.primitives import rlwe
from xclp_crypto.primitives.rlwe_packed import Packing
from xclp_crypto.protocols.hamming import BACKENDS, BetweenBackend, between_backend, get_backend
from xclp_crypto.protocols.hamming import masked as masked_module
from xclp_crypto.protocols.hamming import rlwe as rlwe_module
from xclp_crypto.protocols.hamming.between import BlockShares, Sizes
from xclp_crypto.protocols.hamming.masked import MaskedRows
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import blamed, every_corruption, every_dropout, run, views

ABLE = [name for name, b in BACKENDS.items() if isinstance(b, BetweenBackend)]
EVERY = pytest.mark.parametrize("backend", ABLE)


def some(sizes, n_bits, seed=0):
    rng = np.random.default_rng([seed, n_bits, *sizes])
    return {
        c: rng.integers(0, 2, (n, n_bits)).astype(np.uint8)
        for c, n in zip("abcd", sizes, strict=False)
    }


ROWS, COLUMNS = some([2, 1, 0], 5), some([1, 0, 2], 5, 1)


def exact(got, rows, columns):
    """The matrix is the block of all distances that belongs to the clients it names."""
    assert list(got.rows) == list(got.columns)
    assert got.rows == {c: len(rows[c]) for c in got.rows}
    assert got.columns == {c: len(columns[c]) for c in got.rows}
    down, across = (np.concatenate([bits[c] for c in got.rows]) for bits in (rows, columns))
    expected = (down[:, None, :] != across[None, :, :]).sum(axis=2)
    assert got.matrix.dtype == np.uint16
    assert np.array_equal(got.matrix, expected)


def check(backend, m, n, n_bits, seed=0):
    rows, columns = some(m, n_bits, seed), some(n, n_bits, seed + 1)
    exact(run(between(backend, rows, columns, seed)).raise_errors().results[SERVER], rows, columns)


numbers = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=2, max_size=4)


@pytest.mark.parametrize("backend", ["plain", "masked"])
@settings(max_examples=15)
@given(sizes=numbers, n_bits=st.sampled_from([1, 7, 8, 63, 255, 1000]), seed=st.integers(0, 99))
def test_the_matrix_is_the_block_of_all_distances(backend, sizes, n_bits, seed):
    check(backend, *zip(*sizes, strict=True), n_bits, seed)


@pytest.mark.parametrize("n_bits", [1, 255, 257, 2048, 4095, 4096, 4097])
def test_the_matrix_of_rlwe_is_that_block_with_and_without_packing(n_bits):
    check("rlwe", [2, 0, 1], [3, 2, 0], n_bits)


@pytest.mark.parametrize(
    ("n_bits", "packed", "chunks"),
    [(1, 32, 1), (128, 32, 1), (257, 16, 2), (2048, 4, 2), (2049, 2, 2), (4096, 2, 2)],
)
def test_as_many_columns_share_a_polynomial_as_fit(n_bits, packed, chunks):
    packing = Packing.of(n_bits, rlwe.parameters_for(n_bits))
    assert (packing.packed, packing.chunks) == (packed, chunks)
    assert Packing.of(4097, rlwe.parameters_for(4097)) is None


def test_sizes_whose_noise_would_not_drown_in_packed_form_are_refused():
    m, n = {"a": 1 << 16, "b": 0}, {"a": 0, "b": 1 << 18}
    rlwe.parameters_for(64).require(64, 1 << 32)
    with pytest.raises(ParameterError, match="hiding bound"):
        rlwe_module.require_between(m, n, 64)


def test_rows_and_shared_polynomials_travel_in_blocks(monkeypatch):
    monkeypatch.setattr(rlwe_module, "BLOCK_ROWS", 2)
    check("rlwe", [3, 1], [1, 5], 2048)


@EVERY
def test_every_dropout_costs_only_the_rows_and_columns_of_its_client(backend):
    for case in every_dropout(between(backend, ROWS, COLUMNS), ["b"]):
        assert not case.outcome.errors, case
        exact(case.outcome.results[SERVER], ROWS, COLUMNS)
        assert {*ROWS} - {case.party} <= {*case.outcome.results[SERVER].rows}, case


@pytest.mark.parametrize("backend", ["plain", "masked"])
def test_every_corruption_is_blamed_on_an_end_of_its_link(backend):
    make = between(backend, ROWS, COLUMNS)
    chosen = on_the_last_link(make)
    cases = 0
    for case in every_corruption(make, which=lambda d: d.step == "hamming" and chosen(d)):
        cases += 1
        if SERVER in case.outcome.results:
            exact(case.outcome.results[SERVER], ROWS, COLUMNS)
        for error in case.outcome.errors.values():
            assert isinstance(error, ProtocolError), case
            if blamed(error):
                assert blamed(error) & {case.delivery.sender, case.delivery.receiver}, case
    assert cases >= 6


@EVERY
def test_a_second_run_in_a_session_is_refused_where_masks_would_repeat(backend):
    method, one = get_backend(backend), np.ones((1, 4), np.uint8)
    sizes = Sizes({"a": 1, "b": 1}, {"a": 1, "b": 1})

    async def client(session, rng):
        session.common_secret = bytes(range(32))
        for _ in range(2):
            await method.client_between(session, sizes, one, one, rng)

    async def server(session, rng):
        return await method.server_between(session, sizes, 4)

    errors = run(with_session("ab", client, server, numbers={"a": [1, 1], "b": [1, 1]})).errors
    refused = {type(errors[c]) for c in "ab" if c in errors}
    assert refused == (set() if backend == "plain" else {ReuseError})


@pytest.mark.parametrize("name", sorted({*BACKENDS} - {*ABLE}))
def test_other_back_ends_are_refused_by_name(name):
    with pytest.raises(ParameterError, match=f"{name}' cannot .*masked, plain, rlwe can"):
        between_backend(name)


def uniform_views(backend, runs):
    """The smallest p-value of what the server sees: masked rows modulo 4, shares modulo 8."""
    seen = {}
    for seed in range(runs):
        for frm, message in views(between(backend, ROWS, COLUMNS, seed))[SERVER]:
            if isinstance(message, MaskedRows):
                seen.setdefault((frm, 4), []).append(message.rows.ravel())
            elif isinstance(message, BlockShares):
                seen.setdefault((frm, 8, "rows"), []).append(message.rows.ravel())
                seen.setdefault((frm, 8, "columns"), []).append(message.columns.ravel())
    samples = {key: np.array(found).astype(int) for key, found in seen.items()}
    return min(worst_uniform(s, key[1]) for key, s in samples.items() if s.size)


def test_what_the_server_of_masked_sees_is_uniform():
    assert uniform_views("masked", 40) > 1e-3


@pytest.mark.parametrize(
    ("mask", "without"),
    [
        ("row_mask", lambda key, tag, client, rows, n_bits: np.zeros((rows, n_bits), np.uint16)),
        ("pair_mask", lambda key, tag, low, high, shape, n_bits: np.zeros(shape, np.uint16)),
    ],
)
def test_the_same_test_fails_without_a_mask(monkeypatch, mask, without):
    monkeypatch.setattr(masked_module, mask, without)
    assert uniform_views("masked", 40) < 1e-6
