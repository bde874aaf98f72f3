"""Data frames and series: columns match by name, rows by index, and labels keep their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclp_crypto.errors import DataError
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.dataframes import labels_by_index, like_labels, with_same_columns

XCLP = CrossClientLabelPropagation(64, 2, hamming="plain", scale="client", random_state=0)


def frames() -> tuple[list[pd.DataFrame], list[pd.Series]]:
    rng = np.random.default_rng(0)
    Xs = [
        pd.DataFrame(
            rng.normal(size=(8, 3)) + 4 * np.eye(3)[np.arange(8) % 3],
            columns=["u", "v", "w"],
            index=[f"{name}{i}" for i in range(8)],
        )
        for name in "abc"
    ]
    ys = [pd.Series(["x", "y", "z"], index=x.index[:3], name="kind") for x in Xs]
    return Xs, ys


def test_rows_match_by_index_and_columns_by_name() -> None:
    Xs, ys = frames()
    plain = [np.array([*y, *[None] * 5], dtype=object) for y in ys]
    expected = XCLP.fit([x.to_numpy() for x in Xs], plain).transduction_
    assert all(isinstance(found, np.ndarray) for found in expected)
    mixed = [Xs[0], Xs[1][["w", "u", "v"]], Xs[2]]
    XCLP.fit(mixed, [y[::-1] for y in ys])
    for found, x, labels in zip(XCLP.transduction_, Xs, expected, strict=True):
        assert isinstance(found, pd.Series)
        assert found.index.equals(x.index)
        assert found.name == "kind"
        assert found.tolist() == labels.tolist()
    assert XCLP.feature_names_in_.tolist() == ["u", "v", "w"]


@pytest.mark.parametrize("dtype", ["string", "category", "object"])
def test_labels_keep_their_dtype(dtype: str) -> None:
    Xs, ys = frames()
    XCLP.fit(Xs, [y.astype(dtype) for y in ys])
    assert [str(y.dtype) for y in XCLP.transduction_] == [dtype] * 3


@pytest.mark.parametrize(
    ("dtype", "found", "expected"),
    [
        ("Int64", np.array([3, -1]), "Int64"),
        ("uint8", np.array([3, 4]), "uint8"),
        ("Int64", np.array([3, None], dtype=object), "Int64"),
        ("bool", np.array([True, None], dtype=object), "object"),
        ("boolean", np.array([True, None], dtype=object), "boolean"),
        ("float64", np.array([1.5, None], dtype=object), "float64"),
        ("datetime64[ns]", np.array(["x", "y"]), "object"),
    ],
)
def test_a_dtype_is_kept_where_it_holds_what_came_out(
    dtype: str, found: Any, expected: str
) -> None:
    x = pd.DataFrame({"u": [1.0, 2.0]}, index=[7, 9])
    series = like_labels(found, x, pd.Series([None, None], dtype=object).astype("object"))
    assert series.tolist() == found.tolist()
    given = pd.Series([], dtype=dtype)
    kept = like_labels(found, x, given)
    assert kept.index.tolist() == [7, 9]
    assert str(kept.dtype).replace("str", "object") == expected


def test_columns_that_differ_are_refused() -> None:
    Xs, ys = frames()
    other = Xs[1].rename(columns={"w": "q"})
    with pytest.raises(DataError, match=r"'client-1' has other columns than .*: missing 'w'"):
        XCLP.fit([Xs[0], other, Xs[2]], ys)
    twice = pd.concat([Xs[1], Xs[1][["u"]]], axis=1)
    with pytest.raises(DataError, match="'b' has the columns 'u' twice"):
        with_same_columns([Xs[0], twice], ["a", "b"])
    assert with_same_columns([np.eye(2), Xs[0]], ["a", "b"])[0].tolist() == np.eye(2).tolist()
    with pytest.raises(DataError, match="'c' has an array, whose columns have no names, and data"):
        with_same_columns([Xs[0], Xs[1][["w", "u", "v"]], np.eye(3)], ["a", "b", "c"])


def test_indices_that_do_not_fit_are_refused() -> None:
    Xs, ys = frames()
    with pytest.raises(DataError, match="entries for the rows 0, 1, 2, which the features do not"):
        labels_by_index(Xs[0], ys[0].reset_index(drop=True), "a")
    with pytest.raises(DataError, match="different indices, and one names a row twice"):
        labels_by_index(Xs[0], pd.concat([ys[0], ys[0]]), "a")
    same = pd.Series(range(8), index=Xs[0].index)
    assert labels_by_index(Xs[0], same, "a") is same
    assert labels_by_index(Xs[0], [1, 2], "a") == [1, 2]


@given(st.permutations(range(8)), st.integers(0, 8))
def test_any_order_and_any_part_of_the_labels(order: list[int], known: int) -> None:
    x = pd.DataFrame({"u": np.arange(8.0)}, index=[f"r{i}" for i in range(8)])
    y = pd.Series(range(8), index=x.index).iloc[order[:known]]
    found = [None if v != v else v for v in labels_by_index(x, y, "a").tolist()]
    assert found == [i if i in order[:known] else None for i in range(8)]
