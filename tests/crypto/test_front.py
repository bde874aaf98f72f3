"""The front door: arguments, errors, warnings, and the cost that comes with every result."""

import json

import numpy as np
import pytest

from xclp_crypto import secure_hamming, secure_row_sums
from xclp_crypto.errors import (
    DataError,
    EncodingOverflow,
    ParameterError,
    PrivacyWarning,
    ReuseError,
    Stalled,
    TooFewParties,
)
from xclp_crypto.front import client_names
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.protocols.ot import ideal_ot
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Faults

BITS = [np.array([[0, 1, 1], [1, 1, 1]]), np.zeros((0, 3), int), np.array([[1, 0, 0]])]
VALUES = [np.arange(6).reshape(3, 2) * (i + 1.5) for i in range(3)]
ROWS = [[2], [0], [1]]


@pytest.mark.parametrize("backend", [*BACKENDS, BACKENDS["masked"], Shade(ideal_ot)], ids=str)
def test_distances_and_cost(backend):
    matrix, cost = secure_hamming(BITS, backend, rng=SeededRng(1))
    assert matrix.tolist() == [[0, 1, 3], [1, 0, 2], [3, 2, 0]]
    assert isinstance(cost, Cost)
    assert {"setup", "hamming"} == set(cost.steps)


def test_bits_may_be_lists_or_booleans():
    matrix, _ = secure_hamming([[[0, 1]], np.array([[True, True]])])
    assert matrix.tolist() == [[0, 1], [1, 0]]


def test_the_systems_randomness_is_the_default_and_a_seed_makes_runs_equal():
    sent = [secure_hamming(BITS, rng=SeededRng(5))[1].bytes_by_link() for _ in range(2)]
    assert sent[0] == sent[1]
    assert np.array_equal(secure_hamming(BITS)[0], secure_hamming(BITS)[0])
    rng = SeededRng(5)
    secure_hamming(BITS, rng=rng)
    with pytest.raises(ReuseError):  # would repeat every key and mask
        secure_hamming(BITS, rng=rng)


def test_sums_and_cost():
    blocks, cost = secure_row_sums(VALUES, ROWS, rng=SeededRng(1))
    total = np.sum(VALUES, axis=0)
    for rows, block in zip(ROWS, blocks, strict=True):
        assert np.allclose(block, total[rows], rtol=0, atol=3 * 2.0**-41)
        assert block.dtype == np.float64
    assert {"setup", "row sums"} == set(cost.steps)
    coarse, _ = secure_row_sums(VALUES, ROWS, fraction_bits=0)
    assert np.array_equal(coarse[0], np.rint(coarse[0]))


def test_two_clients_are_warned_and_three_are_not():
    with pytest.warns(PrivacyWarning, match="each learns the other's part") as warned:
        blocks, _ = secure_row_sums([v[:2] for v in VALUES[:2]], [[0], [1]])
    assert warned[0].filename == __file__  # points at the caller
    assert len(blocks) == 2
    secure_row_sums(VALUES, ROWS)  # a warning would be an error here


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_clients_are_refused(count):
    with pytest.raises(ParameterError, match=f"at least 2 clients are needed, got {count}"):
        secure_hamming(BITS[:count])
    with pytest.raises(ParameterError, match=f"at least 2 clients are needed, got {count}"):
        secure_row_sums(VALUES[:count], ROWS[:count])


NAMES = [
    (["a", "b", "a"], "two clients are called 'a'"),
    (["a", "", "c"], "'' cannot be the name"),
    (["a", "server", "c"], "'server' cannot be the name"),
    (["a", 2, "c"], "2 cannot be the name"),
    (["a", None, "c"], "None cannot be the name"),
    (["a", "b"], "2 names for 3 clients"),
    ([], "0 names for 3 clients"),
]


@pytest.mark.parametrize(("names", "message"), NAMES)
def test_names_that_cannot_be_used_are_refused(names, message):
    for call in (
        lambda: secure_hamming(BITS, names=names),
        lambda: secure_row_sums(VALUES, ROWS, names=names),
    ):
        with pytest.raises(ParameterError, match=message):
            call()


def test_names_appear_in_costs_and_errors():
    names = ["Zürich", "Ōsaka", "a → b"]
    _, cost = secure_hamming(BITS, names=iter(names))
    assert "Ōsaka → server" in cost.bytes_by_link()
    with pytest.raises(DataError, match="client 'Ōsaka'"):
        secure_hamming([BITS[0], [[0, 1, 2]], BITS[2]], names=names)
    assert client_names(2, None) == ("client-0", "client-1")


@pytest.mark.parametrize(
    ("bits", "error", "message"),
    [
        ([[[0, 1]], [[0, 1, 1]]], DataError, "'client-1' has rows of 3 bits, 'client-0' of 2"),
        ([[[0.0, 1.0]], [[0, 1]]], DataError, "client 'client-0': bits must be integers"),
        ([[[0, 1]], [[0, 2]]], DataError, "client 'client-1', row 0, bit 1"),
        ([[0, 1], [[0, 1]]], DataError, r"client 'client-0': bits must have shape"),
        ([np.zeros((1, 0), int)] * 2, ParameterError, "n_bits must be between 1 and 32768, got 0"),
        ([np.zeros((1, 32769), int)] * 2, ParameterError, "got 32769"),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_bits_that_cannot_be_used_are_refused(bits, error, message, backend):
    with pytest.raises(error, match=message):
        secure_hamming(bits, backend)


def test_an_unknown_back_end_is_refused_with_those_that_exist():
    with pytest.raises(ParameterError, match=f"'rot13' is none of {', '.join(sorted(BACKENDS))}"):
        secure_hamming(BITS, "rot13")


@pytest.mark.parametrize(
    ("values", "rows", "error", "message"),
    [
        (VALUES, ROWS[:2], ParameterError, "2 row sets for 3 clients"),
        (VALUES, [[0], [0], [1]], ParameterError, "row 0 belongs to more than one"),
        (VALUES, [[0], [3], [1]], ParameterError, "partition of 0 … 2"),
        (VALUES, [[0], [1.0], [2]], ParameterError, "'client-1': rows must be a vector of int"),
        (VALUES, [[0], [[1]], [2]], ParameterError, "'client-1': rows must be a vector of int"),
        (VALUES, [[0], [True], [2]], ParameterError, "'client-1': rows must be a vector of int"),
        (VALUES, [[0], [1], []], DataError, r"'client-0': values have shape \(3, 2\)"),
        ([*VALUES[:2], VALUES[2][:, :1]], ROWS, DataError, r"'client-2': values have shape \(3, 1"),
        ([v[:, 0] for v in VALUES], ROWS, DataError, r"'client-0': values have shape \(3,\)"),
        ([*VALUES[:2], VALUES[2] * np.nan], ROWS, DataError, "'client-2': row 0, column 0"),
        ([*VALUES[:2], VALUES[2] * 1j], ROWS, DataError, "'client-2': cannot encode dtype"),
        ([*VALUES[:2], VALUES[2] + 1e9], ROWS, EncodingOverflow, "'client-2': row .* modulus of 2"),
    ],
)
def test_values_and_rows_that_cannot_be_used_are_refused(values, rows, error, message):
    with pytest.raises(error, match=message):
        secure_row_sums(values, rows)


def test_nothing_is_computed_or_sent_when_a_value_does_not_fit():
    seen = []
    faults = Faults(on_message=seen.append)
    with pytest.raises(EncodingOverflow):
        secure_row_sums([*VALUES[:2], VALUES[2] + 1e9], ROWS, faults=faults, progress=seen.append)
    assert seen == []


@pytest.mark.parametrize("fraction_bits", [-1, 63, 2.0])
def test_fraction_bits_out_of_range_are_refused(fraction_bits):
    with pytest.raises(ParameterError, match="fraction_bits"):
        secure_row_sums(VALUES, ROWS, fraction_bits=fraction_bits)


def test_values_of_no_rows_or_no_columns():
    blocks, _ = secure_row_sums([np.zeros((0, 2))] * 3, [[], [], []])
    assert [b.shape for b in blocks] == [(0, 2)] * 3
    blocks, _ = secure_row_sums([np.zeros((3, 0))] * 3, ROWS)
    assert [b.shape for b in blocks] == [(1, 0)] * 3


def test_faults_and_progress_are_passed_on():
    with pytest.raises(TooFewParties):
        secure_hamming(BITS, faults=Faults(vanish={"client-0": 0, "client-1": 0}))
    with pytest.raises(Stalled):
        secure_row_sums(VALUES, ROWS, faults=Faults(vanish={"server": 0}))
    with pytest.raises(ParameterError, match="cannot drop 'nobody'"):
        secure_hamming(BITS, faults=Faults(vanish={"nobody": 0}))
    seen = []
    secure_hamming(BITS, "masked", progress=seen.append)
    assert {p.party for p in seen} == {"client-0", "client-1", "client-2", "server"}
    assert "client upload" in {p.activity for p in seen}


@pytest.mark.parametrize("run", ["hamming", "sums"])
def test_the_cost_is_json_and_adds_up(run):
    _, cost = secure_hamming(BITS) if run == "hamming" else secure_row_sums(VALUES, ROWS)
    record = json.loads(json.dumps(cost.to_dict()))
    assert record["bytes"] == sum(record["bytes_by_link"].values())
    assert record["bytes"] == sum(record["bytes_by_message"].values())
    for direction in ("bytes_sent", "bytes_received"):
        assert record["bytes"] == sum(
            n for step in record["steps"].values() for n in step[direction].values()
        )
    assert record["seconds"] == pytest.approx(
        sum(s for step in record["steps"].values() for s in step["seconds"].values())
    )
    rounds = [step["rounds"] for step in record["steps"].values()]
    assert max(rounds) <= record["rounds"] <= sum(rounds)  # steps of different parties overlap
    links = list(record["bytes_by_link"].values())
    assert links == sorted(links, reverse=True)
