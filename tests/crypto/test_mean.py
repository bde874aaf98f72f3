"""Weighted means: the plain mean to 2^-20, in the structure and dtypes of the updates."""

import warnings
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xclp_crypto import secure_mean
from xclp_crypto.errors import (
    AccuracyWarning,
    DataError,
    EncodingOverflow,
    ParameterError,
    PrivacyWarning,
)
from xclp_crypto.mean import Clipped, secure_update_sum
from xclp_crypto.updates import from_vector, layout, to_vector

Pair = namedtuple("Pair", "one other")


def update(seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape).astype(dtype)  # noqa: E731
    return OrderedDict(
        [("z", draw(2, 3)), ("a", [draw(4), Pair(draw(), draw(1, 2))]), ("n", np.int64(seed))]
    )


@settings(max_examples=15)
@given(st.lists(st.floats(1e-6, 1e4), min_size=3, max_size=6), st.integers(0, 99))
@example([0.1, 0.2, 0.7], 0)
@example([1e-6, 1e-6, 1e-6], 0)
def test_the_mean_is_the_plain_one_within_its_bound(weights, seed):
    updates = [update(seed + i, np.float64) for i in range(len(weights))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = secure_mean(updates, weights)
    largest = np.abs(np.delete(to_vector(result.mean, "x"), 7)).max()
    coarse = int(result.error > 2.0**-10 * largest)
    assert [w.category for w in caught] == [AccuracyWarning] * coarse
    plain = np.average([to_vector(u, "x") for u in updates], axis=0, weights=weights)
    off = np.abs(to_vector(result.mean, "x") - plain)
    assert off[7] <= 0.5 + result.error  # "n", which is rounded to an integer
    assert np.delete(off, 7).max() <= result.error
    assert min(weights) < 1 or result.error <= 2.0**-20
    assert result.total_weight == pytest.approx(sum(weights), abs=1e-6)


def test_structure_and_dtypes_come_back():
    result = secure_mean([update(i, np.float16) for i in range(3)])
    assert type(result.mean) is OrderedDict
    assert list(result.mean) == ["z", "a", "n"]
    assert type(result.mean["a"][1]) is Pair
    assert result.mean["z"].dtype == np.float16
    assert result.mean["n"] == 1
    assert isinstance(result.mean["n"], np.int64)
    assert layout(result.mean, "x") == layout(update(0, np.float16), "x")
    assert [leaf.path for leaf in layout(update(0), "x")] == [
        "a[0]",
        "a[1][0]",
        "a[1][1]",
        "n",
        "z",
    ]


def test_a_state_dict_of_a_network_is_averaged_to_its_dtypes():
    torch = pytest.importorskip("torch")
    states = []
    for seed in range(3):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        net[0].to(torch.bfloat16)
        states.append(net.state_dict())
    result = secure_mean(states, [1, 2, 3], drop={"client-1"})
    assert list(result.mean) == list(states[0])
    for name, value in result.mean.items():
        plain = (states[0][name].double() + 3 * states[2][name].double()) / 4
        assert value.dtype == states[0][name].dtype
        assert not value.requires_grad
        expected = plain.to(value.dtype) if value.is_floating_point() else plain.round().long()
        assert torch.equal(value, expected)
    net.load_state_dict(result.mean)


def test_sums_of_updates_are_wide_and_those_of_integers_exact():
    torch = pytest.importorskip("torch")
    ours = OrderedDict(n=np.int8([100, -2]), m=[2**60 + 1], t=torch.tensor([100], dtype=torch.int8))
    found = secure_update_sum([ours] * 4, drop={"client-1"}, threshold=3)
    assert list(found.total) == ["n", "m", "t"]
    assert found.total["n"].tolist() == [300, -6]
    assert found.total["m"] == [3 * 2**60 + 3]
    assert found.total["t"].tolist() == [300]
    assert found.survivors == ("client-0", "client-2", "client-3")
    ours = {"h": np.float16(6e4), "n": np.uint8(255), "b": torch.ones(2, dtype=torch.bfloat16) / 3}
    total = secure_update_sum([ours] * 3).total
    assert (total["h"], total["n"], total["n"].dtype) == (18e4, 765, np.int64)
    assert total["b"].tolist() == pytest.approx(3 * ours["b"].double().numpy(), abs=2**-39)
    with pytest.raises(DataError, match=r"'client-0': n\[1\] is 9223372036854775808, above 2\^63"):
        secure_update_sum([{"n": np.uint64([1, 2**63])}] * 3)
    with pytest.raises(DataError, match="'client-1' has n of shape"):
        secure_update_sum([{"n": 1}, {"n": 1.5}, {"n": 1}])


def test_names_that_print_alike_are_not_mixed_up():
    one, other = {1: 1.0, "1": 5.0}, {"1": 5.0, 1: 1.0}
    assert secure_mean([one, other, one]).mean == one
    for update, another in (
        ({"a/b": 1.0}, {"a": {"b": 1.0}}),
        ({"a.b": 1.0}, {"a": {"b": 1.0}}),
        ([1.0], {"0": 1.0}),
        ([1.0], {0: 1.0}),
    ):
        with pytest.raises(DataError, match="'client-1' not"):
            secure_mean([update, another, update])


def test_weights_may_be_of_any_type_of_number():
    updates = [np.array([1.0]), np.array([3.0]), np.array([100.0])]
    for kind in (np.uint8, np.int8, np.float16, np.float64, int):
        assert secure_mean(updates, [kind(1), kind(1), kind(0)]).mean.tolist() == [2.0]
    assert secure_mean(updates, np.array([1, 1, 0], np.uint8)).mean.tolist() == [2.0]


def test_the_order_of_names_does_not_matter():
    one = {"a": np.ones(2), "b": np.zeros(3)}
    other = {"b": np.full(3, 6.0), "a": np.full(2, 4.0)}
    mean = secure_mean([one, one, other]).mean
    assert mean["a"].tolist() == [2, 2]
    assert mean["b"].tolist() == [2, 2, 2]


def test_dropouts_take_their_weights_with_them():
    result = secure_mean([[1.0], [2.0], [30.0], [4.0]], [1, 1, 5, 2], drop={"client-2": "upload"})
    assert result.mean == [2.75]
    assert result.total_weight == 4
    assert result.survivors == ("client-0", "client-1", "client-3")
    assert "30" not in repr(result)


def test_clipping_is_reported_and_values_go_first():
    updates = [np.array([3.0, -4.0]), np.array([0.3, 0.4]), np.array([9.0, 0.0])]
    result = secure_mean(updates, clip_value=4.0, clip_norm=2.0)
    assert result.clipped == {"client-0": Clipped(0, 0.4), "client-2": Clipped(1, 0.5)}
    assert result.mean == pytest.approx([(1.2 + 0.3 + 2) / 3, (-1.6 + 0.4) / 3], abs=1e-8)
    assert not secure_mean(updates).clipped
    states = [{"w": np.array([3.0, 4.0]), "batches": np.int64(10_000)}] * 3
    result = secure_mean(states, clip_value=3.5, clip_norm=1.0)
    assert result.mean["batches"] == 10_000
    assert np.linalg.norm(result.mean["w"]) == pytest.approx(1)
    assert result.clipped["client-0"].values == 1


@pytest.mark.parametrize(
    ("updates", "match"),
    [
        (
            [{"a": 1.0}, {"a": 1.0}, {"b": 1.0}],
            r"client 'client-0' has a of shape \(\).*'client-2' not",
        ),
        ([[1.0], [1.0, 2.0], [1.0]], r"client 'client-1' has \[1\] of shape \(\).*-0' not"),
        ([[1.0, 2.0], [1.0], [1.0]], r"client 'client-0' has \[1\] of shape .*'client-1' not"),
        ([np.ones(2), np.ones(3), np.ones(2)], r"has the update of shape \(3,\)"),
        ([np.ones(2), np.ones(2), np.float32([1, 1])], "dtype float32"),
        (
            [{"w": np.ones((2, 2))}] * 2 + [{"w": np.array([[1, np.nan], [0, 0]])}],
            r"w\[0, 1\] is n",
        ),
        ([{"w": "x"}] * 3, "w is str"),
        ([[True]] * 3, r"\[0\] is bool"),
        ([np.array([1 + 1j])] * 3, "of dtype complex128"),
        ([np.ma.array([1.0], mask=[True])] * 3, "is MaskedArray"),
    ],
)
def test_what_is_wrong_with_updates_is_said_with_client_and_path(updates, match):
    with pytest.raises(DataError, match=match):
        secure_mean(updates)


def test_wrong_weights_and_bounds_are_refused():
    updates = [np.ones(2)] * 3
    for weights, match in (
        ([1, -1, 1], "client-1.*a number ≥ 0"),
        ([True, 1, 1], "client-0.*a number ≥ 0, got True"),
        ([1, "2", 1], "client-1.*a number ≥ 0, got '2'"),
        ([1, 1, np.inf], "client-2"),
        ([1, 1, 1e-9], r"client-2.* 1e-09 is too small: in multiples of 2\^-30 .* in 1024"),
        ([0, 0, 0], "in the sum are 0"),
    ):
        with pytest.raises(DataError, match=match):
            secure_mean(updates, weights)
    with pytest.raises(ParameterError, match="2 weights for 3 clients"):
        secure_mean(updates, [1, 1])
    for options in (
        {"clip_value": 0},
        {"clip_norm": -1.0},
        {"clip_value": float("nan")},
        {"clip_norm": "1"},
    ):
        with pytest.raises(ParameterError, match="must be a positive number"):
            secure_mean(updates, **options)
    with pytest.raises(ParameterError, match="a list with one for each client, got dict"):
        secure_mean({"north": updates[0]})
    states = [{"a": 1.0, "w": np.array([[0.0, 2.0]])}] * 3
    for weights, match in (
        ([1, 2.5e9, 1], r"-1': w\[0, 1\], times the weight, is too large: with 3 clients and 30 "),
        ([1, 1e12, 1], r"fits. Scale the values down, or multiply the weights .* \(fraction_bits"),
    ):
        with pytest.raises(EncodingOverflow, match=match):
            secure_mean(states, weights)
    with pytest.raises(EncodingOverflow, match="-0': its weight is too large"):
        secure_mean([[0.1]] * 3, [1e12, 1, 1])
    with pytest.raises(EncodingOverflow, match=r"-0': n\[1\] is too large.* values down$"):
        secure_update_sum([{"n": [1, -(2**62)]}] * 3)
    with pytest.warns(AccuracyWarning, match="off by up to 4.7e-10, and the largest is 9.3e-10: "):
        secure_mean([[1e-9]] * 3)
    with pytest.raises(DataError, match="3 values for an update of 2"):
        from_vector(np.zeros(3), np.ones(2))
    with pytest.warns(PrivacyWarning):
        secure_mean(updates[:2])
