"""The front door: arguments, errors, warnings, and the cost that comes with every result."""

import json
import re

import numpy as np
import pytest

from xclp_crypto import secure_hamming, secure_row_sums, secure_sum
from xclp_crypto.errors import (
    DataError,
    EncodingOverflow,
    ParameterError,
    PrivacyWarning,
    ReuseError,
    Stalled,
    TooFewParties,
)
from xclp_crypto.front import STAGES, client_names
from xclp_crypto.protocols.hamming import BACKENDS, interface, rlwe
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.protocols.ot import ideal_ot
from xclp_crypto.protocols.secure_sum import mask_graph
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Faults

BITS = [np.array([[0, 1, 1], [1, 1, 1]]), np.zeros((0, 3), int), np.array([[1, 0, 0]])]
VALUES = [np.arange(6).reshape(3, 2) * (i + 1.5) for i in range(3)]
ROWS = [[2], [0], [1]]
FOUR_VALUES, FOUR_ROWS = [*VALUES, -VALUES[2]], [*ROWS, []]


@pytest.mark.parametrize(
    "backend",
    [*BACKENDS, BACKENDS["masked"], Shade(ideal_ot)],
    ids=[*BACKENDS, "masked-object", "shade-ideal-ot"],
)
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
    blocks, survivors, dropouts, cost = secure_row_sums(VALUES, ROWS, rng=SeededRng(1))
    total = np.sum(VALUES, axis=0)
    for rows, block in zip(ROWS, blocks, strict=True):
        assert np.allclose(block, total[rows], rtol=0, atol=3 * 2.0**-41)
        assert block.dtype == np.float64
    assert survivors == ("client-0", "client-1", "client-2")
    assert dropouts == {}
    assert set(STAGES) == set(cost.steps)
    coarse = secure_row_sums(VALUES, ROWS, fraction_bits=0).blocks[0]
    assert np.array_equal(coarse, np.rint(coarse))


def test_a_sum_and_its_cost():
    result = secure_sum(VALUES, rng=SeededRng(1))
    assert np.allclose(result.total, np.sum(VALUES, axis=0), rtol=0, atol=3 * 2.0**-41)
    assert result.survivors == ("client-0", "client-1", "client-2")
    assert result.dropouts == {}
    assert set(STAGES) - {"result"} == set(result.cost.steps)
    assert secure_sum(VALUES, rng=SeededRng(1)).cost.bytes_by_link() == result.cost.bytes_by_link()


@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 3), (2, 0, 3), (2, 1, 3)])
@pytest.mark.parametrize("modulus", [1 << 64, 1 << 32, 10007])
def test_the_sum_has_the_shape_of_the_values(shape, modulus):
    values = [np.arange(np.prod(shape), dtype=int).reshape(shape) * k for k in (1, 2, -5)]
    result = secure_sum(values, fraction_bits=0, modulus=modulus)
    assert result.total.shape == shape
    assert np.array_equal(result.total, -2 * values[0])


@pytest.mark.parametrize("stage", ["setup", "share", "upload", "reveal"])
@pytest.mark.parametrize("who", [["client-3"], [3, "client-0"]])
def test_user_case_drop_each_client_at_each_stage_of_a_sum(stage, who):
    values = [np.array([10**k, -k]) for k in range(5)]
    result = secure_sum(values, drop=dict.fromkeys(who, stage))
    dropped = {"client-3", "client-0"} if 3 in who else {"client-3"}
    summed = dropped if stage != "reveal" else set()
    assert result.survivors == tuple(f"client-{k}" for k in range(5) if f"client-{k}" not in summed)
    assert result.dropouts == dict.fromkeys(sorted(dropped), stage)
    expected = sum(values[k] for k in range(5) if f"client-{k}" not in summed)
    assert np.array_equal(result.total, expected)
    assert secure_sum(values, drop=who).survivors == tuple(
        f"client-{k}" for k in range(5) if f"client-{k}" not in dropped
    )


@pytest.mark.parametrize("mode", ["recover", "restart"])
@pytest.mark.parametrize("stage", STAGES)
def test_user_case_drop_each_client_at_each_stage_of_row_sums_the_result_names_it_and_when(
    mode, stage
):
    if mode == "restart" and stage in ("share", "reveal"):
        with pytest.raises(ParameterError, match=r"can drop out in setup, upload, result, not"):
            secure_row_sums(VALUES, ROWS, mode=mode, drop={1: stage})
        return
    result = secure_row_sums(FOUR_VALUES, FOUR_ROWS, mode=mode, drop={1: stage})
    kept = stage in ("reveal", "result")
    assert result.survivors == tuple(f"client-{k}" for k in range(4) if kept or k != 1)
    assert result.dropouts == {"client-1": stage}
    assert result.blocks[1] is None
    total = sum(FOUR_VALUES[k] for k in range(4) if kept or k != 1)
    for k in (0, 2, 3):
        assert np.allclose(result.blocks[k], total[FOUR_ROWS[k]], rtol=0, atol=4 * 2.0**-41)


@pytest.mark.parametrize("stage", STAGES)
def test_user_case_nobody_waits_for_a_straggler_and_the_result_names_it_and_when(stage):
    """It comes back after all deadlines; of row sums it then gets what is its own."""
    values = [np.array([[k], [0], [k * k]]) for k in (0, 1, 2, 0)]
    faults = Faults(away={"client-1": stage})
    summed = stage in ("reveal", "result")
    expected = {"client-1": stage}
    if stage != "result":
        found = secure_sum(values, faults=faults)
        assert ("client-1" in found.survivors) == summed
        assert found.dropouts == expected
        assert np.array_equal(found.total, values[2] + (values[1] if summed else 0))
    sums = secure_row_sums(values, FOUR_ROWS, faults=faults)
    assert ("client-1" in sums.survivors) == summed
    assert sums.dropouts == (expected if stage != "result" else {})
    total = values[2] + (values[1] if summed else 0)
    for block, rows in zip(sums.blocks, FOUR_ROWS, strict=True):
        assert block is None or np.array_equal(block, total[rows])
    assert [b is None for b in sums.blocks] == [False, stage == "setup", False, False]
    if stage not in ("share", "reveal"):
        again = secure_row_sums(values, FOUR_ROWS, faults=faults, mode="restart")
        assert ("client-1" in again.survivors) == (stage == "result")
        assert (again.blocks[1] is None) == (stage != "result")


def test_a_client_whose_block_is_lost_is_lost_in_the_result():
    def lose(d):
        lost = d.message == "Sealed[RowSumsBlock]" and d.receiver == "client-2"
        return None if lost else d.payload

    for mode in ("recover", "restart"):
        sums = secure_row_sums(VALUES, ROWS, faults=Faults(on_message=lose), mode=mode)
        assert sums.survivors == ("client-0", "client-1", "client-2")
        assert sums.dropouts == {"client-2": "result"}
        assert [b is None for b in sums.blocks] == [False, False, True]


def test_user_case_a_threshold_is_enforced_and_nothing_is_revealed_below_it():
    values = [np.array([k]) for k in range(5)]
    assert secure_sum(values, threshold=4, drop=[1]).total == 9
    for call in (
        lambda **how: secure_sum(values, **how),
        lambda **how: secure_row_sums([np.ones((5, 1))] * 5, [[k] for k in range(5)], **how),
    ):
        for drop in ([1, 2], {1: "share", 2: "upload"}, {0: "setup", 4: "reveal"}):
            with pytest.raises(TooFewParties, match=r"\d .* 4 are needed.*; nothing was"):
                call(threshold=4, drop=drop)
        for threshold in (1, 6, 2.5):
            with pytest.raises(ParameterError, match="threshold must be"):
                call(threshold=threshold)


@pytest.mark.parametrize(
    ("drop", "message"),
    [
        ({"client-1": "hamming"}, "'client-1' can drop out in setup, share, upload, reveal, not"),
        ({"client-1": "result"}, "can drop out in"),
        (["nobody"], "cannot drop 'nobody': the clients are client-0, client-1, client-2"),
        ([3], "cannot drop 3"),
        ([-1], "cannot drop -1"),
        ("client-1", "drop must be a set of clients or a mapping to stages, got 'client-1'"),
        (None, "drop must be a set of clients or a mapping to stages, got None"),
        ([["client-1"]], r"cannot drop \['client-1'\]: the clients are client-0"),
        ([True], "cannot drop True: the clients are client-0"),
        ({"client-1": ["share"]}, "'client-1' can drop out in setup, .*, not \\['share'\\]"),
        (
            {0: "upload", "client-0": "share"},
            "'client-0' cannot drop out in both 'upload' and 'share'",
        ),
    ],
)
def test_drops_of_clients_or_stages_that_do_not_exist_are_refused(drop, message):
    with pytest.raises(ParameterError, match=message):
        secure_sum(VALUES, drop=drop)


@pytest.mark.parametrize("mode", ["restore", "", None])
def test_modes_that_do_not_exist_are_refused(mode):
    with pytest.raises(ParameterError, match="mode must be one of recover, restart"):
        secure_row_sums(VALUES, ROWS, mode=mode)


@pytest.mark.parametrize(("most", "sparse", "degree"), [(43, None, 40), (44, None, 43)])
def test_a_sparse_sum_of_many_clients_is_chosen_by_itself(monkeypatch, most, sparse, degree):
    monkeypatch.setattr(mask_graph, "MAX_COMPLETE", most)
    found = secure_sum([np.array([k, 1]) for k in range(44)], sparse=sparse)
    assert found.total.tolist() == [sum(range(44)), 44]
    shares = found.cost.bytes_by_message()["Sealed[SumShares]"]
    assert shares == 44 * degree * (2 * 37 + 20)


def test_user_case_two_clients_are_warned_and_three_are_not():
    with pytest.warns(PrivacyWarning, match="each learns the other's part") as warned:
        sums = secure_row_sums([v[:2] for v in VALUES[:2]], [[0], [1]])
    assert warned[0].filename == __file__  # points at the caller
    assert len(sums.blocks) == 2
    secure_row_sums(VALUES, ROWS)  # a warning would be an error here
    with pytest.warns(PrivacyWarning, match="the server, which alone receives the sum") as warned:
        assert secure_sum([1, 2]).total == 3
    assert warned[0].filename == __file__
    assert "each learns" not in str(warned[0].message)
    secure_sum([1, 2, 3])


@pytest.mark.parametrize("count", [0, 1])
def test_user_case_fewer_than_two_clients_are_refused(count):
    with pytest.raises(ParameterError, match=f"at least 2 clients are needed, got {count}"):
        secure_hamming(BITS[:count])
    with pytest.raises(ParameterError, match=f"at least 2 clients are needed, got {count}"):
        secure_row_sums(VALUES[:count], ROWS[:count])
    with pytest.raises(ParameterError, match=f"at least 2 clients are needed, got {count}"):
        secure_sum(VALUES[:count])


NAMES = [
    (["a", "b", "a"], "two clients are called 'a'"),
    (["a", "", "c"], "'' cannot be the name"),
    (["a", "server", "c"], "'server' cannot be the name"),
    (["a", 2, "c"], "2 cannot be the name"),
    (["a", None, "c"], "None cannot be the name"),
    (["a", "b"], "2 names for 3 clients"),
    ([], "0 names for 3 clients"),
    ({"a", "b", "c"}, "names must be a list with one name per client, got {"),
    (dict.fromkeys("abc"), "names must be a list with one name per client, got {"),
]


@pytest.mark.parametrize(("names", "message"), NAMES)
def test_names_that_cannot_be_used_are_refused(names, message):
    for call in (
        lambda: secure_hamming(BITS, names=names),
        lambda: secure_row_sums(VALUES, ROWS, names=names),
        lambda: secure_sum(VALUES, names=names),
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
    assert {type(n) for n in client_names(2, np.array(["a", "b"]))} == {str}


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
        (VALUES, None, DataError, "rows must be a list .* got a value of type NoneType"),
        (
            VALUES,
            [[0], [0], [1]],
            ParameterError,
            "more than one client: 'client-0' and 'client-1'",
        ),
        (VALUES, [[0], [1, 1], [2]], ParameterError, "'client-1' has row 1 more than once"),
        (VALUES, [[0], [3], [1]], ParameterError, "'client-1' owns row 3, .* partition of 0 … 2"),
        (VALUES, [[0], [-1], [1]], ParameterError, "'client-1' owns row -1, "),
        (
            VALUES,
            [[0], np.array([2**63], np.uint64), [1]],
            ParameterError,
            "'client-1' owns row -1",
        ),
        (VALUES, [[0], [1, [2]], [2]], DataError, "'client-1': the values do not form an array"),
        (VALUES, [[0], [1.0], [2]], ParameterError, "'client-1': rows must be a vector of int"),
        (VALUES, [[0], [[1]], [2]], ParameterError, "'client-1': rows must be a vector of int"),
        (VALUES, [[0], [True], [2]], ParameterError, "'client-1': rows must be a vector of int"),
        (VALUES, [[0], [1], []], ParameterError, "row 2 of 0 … 2 belongs to none of the clients"),
        ([*VALUES[:2], VALUES[2][:, :1]], ROWS, DataError, r"'client-2': values have shape \(3, 1"),
        ([v[:, 0] for v in VALUES], ROWS, DataError, r"'client-0': values have shape \(3,\)"),
        ([*VALUES[:2], VALUES[2] * np.nan], ROWS, DataError, "'client-2': row 0, column 0"),
        ([*VALUES[:2], VALUES[2] * 1j], ROWS, DataError, "'client-2': cannot encode dtype"),
        ([[[2**53 + 1, 0.5]]] * 3, [[0], [], []], DataError, "row 0, column 0: the list mixes int"),
        ([*VALUES[:2], VALUES[2] + 1e9], ROWS, EncodingOverflow, "'client-2': row .* modulus of 2"),
    ],
)
def test_values_and_rows_that_cannot_be_used_are_refused(values, rows, error, message):
    with pytest.raises(error, match=message):
        secure_row_sums(values, rows)


def test_nothing_is_computed_or_sent_when_a_value_does_not_fit():
    seen = []
    faults = Faults(on_message=seen.append)
    bad = [*VALUES[:2], VALUES[2] + 1e9]
    with pytest.raises(EncodingOverflow):
        secure_row_sums(bad, ROWS, faults=faults, progress=seen.append)
    with pytest.raises(EncodingOverflow):
        secure_sum(bad, faults=faults, progress=seen.append)
    with pytest.raises(DataError, match="'client-2': row 0, column 0: the value is NaN"):
        secure_sum([*VALUES[:2], VALUES[2] * np.nan], faults=faults, progress=seen.append)
    with pytest.raises(DataError, match=r"'client-2': values have shape \(2, 2\), 'client-0'"):
        secure_sum([*VALUES[:2], VALUES[2][:2]], faults=faults, progress=seen.append)
    assert seen == []


@pytest.mark.parametrize("fraction_bits", [-1, 63, 2.0])
def test_fraction_bits_out_of_range_are_refused(fraction_bits):
    with pytest.raises(ParameterError, match="fraction_bits"):
        secure_row_sums(VALUES, ROWS, fraction_bits=fraction_bits)


def test_values_of_no_rows_or_no_columns():
    blocks = secure_row_sums([np.zeros((0, 2))] * 3, [[], [], []]).blocks
    assert [b.shape for b in blocks] == [(0, 2)] * 3
    blocks = secure_row_sums([np.zeros((3, 0))] * 3, ROWS).blocks
    assert [b.shape for b in blocks] == [(1, 0)] * 3


def test_faults_and_progress_are_passed_on():
    with pytest.raises(TooFewParties):
        secure_hamming(BITS, faults=Faults(dropouts={"client-0": 0, "client-1": 0}))
    with pytest.raises(Stalled):
        secure_row_sums(VALUES, ROWS, faults=Faults(dropouts={"server": 0}))
    with pytest.raises(ParameterError, match="cannot drop 'nobody'"):
        secure_hamming(BITS, faults=Faults(dropouts={"nobody": 0}))
    seen = []
    secure_hamming(BITS, "masked", progress=seen.append)
    assert {p.party for p in seen} == {"client-0", "client-1", "client-2", "server"}
    assert "client upload" in {p.activity for p in seen}


def counted(seen):
    """Return the reports of what is counted, by activity and party."""
    found = {}
    for p in seen:
        if p.total:
            found.setdefault((p.activity, p.party), []).append((p.done, p.total))
    return found


def test_what_is_counted_is_reported_to_its_end(monkeypatch):
    monkeypatch.setattr(rlwe, "BLOCK_ROWS", 2)
    monkeypatch.setattr(interface, "_REPORTED", 35)
    seen = []
    bits = np.random.default_rng(0).integers(0, 2, (12, 8))
    secure_hamming(np.split(bits, [5, 9]), "rlwe", progress=seen.append)
    a, b, c = "client-0", "client-1", "client-2"
    reports = counted(seen)
    assert reports["distances", "server"] == [(35, 47), (47, 47)]
    owned = {
        client: rows[-1][1] for (what, client), rows in reports.items() if what == "decrypted rows"
    }
    sizes = {a: 5, b: 4, c: 3}
    assert owned
    assert owned == {client: sizes[client] for client in owned}
    for activity in ("evaluated rows", "decrypted rows"):
        mine = [rows for (what, _), rows in reports.items() if what == activity]
        assert mine
        for rows in mine:
            done = [number for number, _ in rows]
            assert len(done) > 1
            assert done == sorted(set(done))
            assert rows[-1][0] == rows[-1][1] == rows[0][1]


@pytest.mark.parametrize("run", ["hamming", "row sums", "sum"])
def test_the_cost_is_json_and_adds_up(run):
    cost = {
        "hamming": lambda: secure_hamming(BITS)[1],
        "row sums": lambda: secure_row_sums(VALUES, ROWS).cost,
        "sum": lambda: secure_sum(VALUES).cost,
    }[run]()
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


# What a new user tried


CALLS = [
    lambda values, **how: secure_sum(values, **how),
    lambda values, **how: secure_row_sums(values, ROWS, **how),
    lambda values, **how: secure_hamming(values, **how),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "values",
    [5, None, "abc", {"a": 1, "b": 2}, np.array(5), iter(VALUES)],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_list_of_arrays_is_refused(call, values):
    with pytest.raises(DataError, match="must be a list with one array per client, got a value of"):
        call(values)


@pytest.mark.parametrize("call", CALLS)
def test_values_that_are_hidden_by_a_mask_are_refused_and_named(call):
    hidden = np.ma.array(np.ones((3, 2), int), mask=[[0, 0], [0, 1], [0, 0]])
    with pytest.raises(DataError, match="client 'client-1': row 1, column 1: the value is masked"):
        call([VALUES[0], hidden, VALUES[2]] if call is not CALLS[2] else [BITS[0], hidden])
    shown = np.ma.array(np.ones((3, 2), int), mask=False)
    if call is not CALLS[2]:
        call([shown] * 3)


@pytest.mark.parametrize("call", CALLS)
def test_ragged_values_name_the_client(call):
    with pytest.raises(DataError, match="client 'client-1': the values do not form an array"):
        call([BITS[0], [1, [2, 3]], BITS[0]])


class Tensor:
    """As one of PyTorch's that requires a gradient."""

    def detach(self):
        raise NotImplementedError

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


def test_user_case_layers_and_state_dicts_are_refused_with_advice():
    layers = {"weight": np.ones((2, 3)), "bias": np.ones(2)}
    advice = r"several arrays x are one vector by np.concatenate\(\[np.ravel\(a\) for a in x"
    with pytest.raises(DataError, match=rf"'client-0': .*; {advice}\.values\(\)\]\)"):
        secure_sum([layers] * 3)
    with pytest.raises(DataError, match=rf"'client-0': .*; {advice}\]\)"):
        secure_sum([list(layers.values())] * 3)
    flat = np.concatenate([np.ravel(a) for a in layers.values()])
    assert secure_sum([flat] * 3).total.tolist() == [3.0] * 8


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint64])
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 3, 2)])
def test_user_case_packed_bits_are_refused_with_advice_that_works(dtype, shape):
    x = np.random.default_rng(0).integers(2, 200, shape).astype(dtype)
    with pytest.raises(DataError, match="if bits x are packed, pass x") as caught:
        secure_hamming([x] * 3)
    advice = re.search("pass (x.*) with packed=L, where L is at most (.*)", str(caught.value))
    rows, n_bits = eval(advice[1], {"x": x}), int(advice[2])  # noqa: S307  # what users would copy
    assert n_bits == 8 * x[0].nbytes
    matrix, _ = secure_hamming([rows] * 3, "plain", packed=n_bits)
    unpacked = np.unpackbits(
        x.astype(x.dtype.newbyteorder(">")).view(np.uint8).reshape(4, -1), axis=1
    )
    assert np.array_equal(matrix, secure_hamming([unpacked] * 3, "plain")[0])


def test_a_tensor_that_numpy_cannot_read_is_refused_with_advice():
    with pytest.raises(DataError, match=r"'client-0': .* requires grad\); of a tensor, pass \.det"):
        secure_sum([Tensor()] * 3)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("rng", [0, "x", np.random.default_rng(0)], ids=str)
def test_randomness_that_is_none_is_refused(call, rng):
    with pytest.raises(ParameterError, match="rng must be a SystemRng, or a SeededRng in tests"):
        call(BITS, rng=rng)


def test_clients_may_be_dropped_by_numpy_integers():
    assert secure_sum([1, 2, 4], drop=np.array([1])).total == 5
    assert secure_sum([1, 2, 4], drop=[1, "client-1"]).total == 5


@pytest.mark.parametrize("sparse", ["no", "yes", 2, 0])
def test_sparse_is_true_false_or_none(sparse):
    with pytest.raises(ParameterError, match="sparse must be True, False or None, got"):
        secure_sum(VALUES, sparse=sparse)


def test_restart_has_no_sparse_masks_and_needs_a_majority_whatever_the_number_of_clients():
    with pytest.raises(ParameterError, match="mode 'restart' has no sparse masks"):
        secure_row_sums(VALUES, ROWS, mode="restart", sparse=True)
    values = [np.ones((1, 1))] * 101
    rows = [[0], *[[]] * 100]
    found = secure_row_sums(values, rows, mode="restart", drop=range(1, 51))
    assert found.blocks[0].tolist() == [[51]]


def test_sums_without_fraction_bits_are_exact_integers():
    total = secure_sum([[2**53 + 1], [2**60], [0]], fraction_bits=0).total
    assert total.dtype == np.int64
    assert total.tolist() == [2**53 + 1 + 2**60]
    assert secure_sum([0.5, 1.5, 2.4], fraction_bits=np.int64(0)).total == 4
    assert secure_sum([1, 2, -5], fraction_bits=0, modulus=np.uint64(2**63)).total == -2


@pytest.mark.parametrize("mode", ["recover", "restart"])
@pytest.mark.parametrize("modulus", [2**64, 2**61, 2**61 - 1])
def test_user_case_row_sums_without_fraction_bits_are_exact_integers(mode, modulus):
    large = (modulus - 1) // 6  # of three clients
    values = [[[2**53 + 1, large], [5, -large]], [[0, large], [2, -large]], [[-1, large], [3, 0]]]
    rows = [[0], [1], []]
    found = secure_row_sums(values, rows, fraction_bits=0, modulus=modulus, mode=mode)
    assert [block.dtype for block in found.blocks] == [np.int64] * 3
    assert [block.tolist() for block in found.blocks] == [
        [[2**53, 3 * large]],
        [[10, -2 * large]],
        [],
    ]
    values[0][0][1] += 1
    with pytest.raises(EncodingOverflow):
        secure_row_sums(values, rows, fraction_bits=0, modulus=modulus, mode=mode)


@pytest.mark.parametrize("mode", ["recover", "restart"])
def test_row_sums_that_end_with_two_of_more_clients_warn(mode):
    """Each of the two subtracts its own part and holds the other's."""
    with pytest.warns(PrivacyWarning, match="only 'client-1' and 'client-2' are left") as warned:
        secure_row_sums(VALUES, ROWS, drop=[0], mode=mode)
    assert warned[0].filename == __file__
    assert len(warned) == 1
    secure_row_sums(FOUR_VALUES, FOUR_ROWS, drop=[0], mode=mode)  # a warning would be an error here
    secure_row_sums(VALUES, ROWS, drop={0: "result"}, mode=mode)
    with pytest.warns(PrivacyWarning, match="with two clients") as warned:
        secure_row_sums([v[:2] for v in VALUES[:2]], [[0], [1]], mode=mode)
    assert len(warned) == 1


def test_row_sums_print_the_shapes_of_blocks_and_not_what_is_in_them():
    found = secure_row_sums(FOUR_VALUES, FOUR_ROWS, drop={0: "result"})
    shapes = [None, *(block.shape for block in found.blocks[1:])]
    assert repr(found).startswith(f"RowSumsResult(blocks of shapes {shapes}, survivors=(")
    assert repr(found).endswith(f"dropouts={{'client-0': 'result'}}, cost={found.cost!r})")
    assert "array" not in repr(found)


def test_too_few_in_the_last_step_are_counted():
    with pytest.raises(TooFewParties, match="2 of the parties answered and 3 are needed"):
        secure_sum([1] * 5, drop={0: "share", 1: "upload", 2: "reveal"})
