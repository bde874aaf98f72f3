"""Data frames and series: columns match by name, rows by index, and labels keep their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from xclp_crypto.errors import DataError
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.dataframes import frame_values, labels_by_index, like_labels, with_same_columns
from xclp_lp.study.scores import scores_of

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
        ("Int64", [2**53 + 1, -1], "Int64"),
        ("UInt64", [2**64 - 1, -1], "UInt64"),
        ("int64[pyarrow]", [3, -1], "int64[pyarrow]"),
        ("uint8", [3, 4], "uint8"),
        ("uint8", [3, -1], "int64"),
        ("int8", [3, 300], "int64"),
        ("int64", [3, -1], "int64"),
        ("Int64", [3, None], "Int64"),
        ("bool", [True, None], "object"),
        ("boolean", [True, None], "boolean"),
        ("float64", [1.5, None], "float64"),
        ("float64", [2**53 + 1, 3], "int64"),
        ("float64", [3, -1], "float64"),
        ("float32", [0.1, 0.5], "float64"),
        ("category", ["x", None], "category"),
        ("datetime64[ns]", ["x", "y"], "object"),
    ],
)
def test_a_dtype_is_kept_where_it_holds_what_came_out(
    dtype: str, found: list[Any], expected: str
) -> None:
    x = pd.DataFrame({"u": [1.0, 2.0]}, index=[7, 9])
    array = np.array(found, dtype=object if None in found or 2**64 - 1 in found else None)
    kept = like_labels(array, x.index, pd.Series([], dtype=dtype))
    assert kept.index.tolist() == [7, 9]
    assert str(kept.dtype).replace("str", "object") == expected
    missing = [v is None or (v == -1 and expected != "int64") for v in found]
    assert kept.isna().tolist() == missing
    assert [v for v, none in zip(kept.tolist(), missing, strict=True) if not none] == [
        v for v, none in zip(found, missing, strict=True) if not none
    ]


def test_categories_of_others_are_appended() -> None:
    x = pd.DataFrame({"u": [1.0, 2.0]})
    y = pd.Series(pd.Categorical(["b"], ["c", "b"], ordered=True))
    assert like_labels(np.array(["b", "c"]), x.index, y).dtype == y.dtype
    kept = like_labels(np.array(["b", "a"]), x.index, y)
    assert (kept.tolist(), kept.cat.categories.tolist()) == (["b", "a"], ["c", "b", "a"])
    assert not kept.cat.ordered


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


def frame(column: Any, index: Any = ("p1", "p2")) -> pd.DataFrame:
    return pd.DataFrame({"age": [50, 60], "bp": column}, index=index)


def test_booleans_numbers_and_nullable_numbers_are_features() -> None:
    kinds = pd.get_dummies(pd.Series(["x", "y"], name="kind"), dtype=bool)
    mixed = pd.concat([frame([1.5, 2.0], range(2)), kinds], axis=1)
    mixed["n"] = pd.array([7, 8], dtype="Float64")
    mixed["a"] = pd.Series([True, False], dtype="bool[pyarrow]")
    mixed["o"] = pd.Series([2, 0.5], dtype=object)
    assert frame_values(mixed).tolist() == [[50, 1.5, 1, 0, 7, 1, 2], [60, 2, 0, 1, 8, 0, 0.5]]
    assert frame_values(mixed[["bp"]].astype("float32")).dtype == np.float32


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.array([1.5, pd.NA], dtype="Float64"), "row 'p2', column 'bp' is missing; drop the row"),
        ([1.5, None], "row 'p2', column 'bp' is missing; .* as scikit-learn's SimpleImputer does"),
        (pd.Series([True, None], dtype=object).tolist(), "row 'p2', column 'bp' is missing"),
        ([-np.inf, 1], "row 'p1', column 'bp' is not finite"),
        ([1, 10**400], "row 'p2', column 'bp' is not finite"),
        (["1", "2"], "row 'p1', column 'bp' is '1', .* not a number; encode the column"),
        (pd.Categorical([1, 2]), "row 'p1', column 'bp' is 1, of dtype category, and not a number"),
        (pd.to_datetime(["2020-01-01"] * 2), r"column 'bp' is Timestamp\(.*not a number"),
        ([1j, 2], "column 'bp' is 1j"),
    ],
)
def test_cells_that_are_not_numbers_are_named_by_row_and_column(column: Any, message: str) -> None:
    fine = frame([1.0, 2.0])
    with pytest.raises(DataError, match=f"^client 'client-1': .*{message}"):
        XCLP.fit([fine, frame(column), fine], [[0, 1]] * 3)
    with pytest.raises(DataError, match=r"row 0 \(counted from 0\), column 'bp' is"):
        frame_values(frame([np.nan, 0], [0, 1]))


def test_rows_are_called_what_the_index_calls_them() -> None:
    Xs, ys = frames()
    with pytest.raises(DataError, match="client 'client-2', row 'c1': label 'q' is none of the"):
        clone(XCLP).set_params(classes=["x", "y", "z"]).fit(Xs, [*ys[:2], ys[2].replace("y", "q")])
    Xs[1].iloc[[4, 6]] = 0.0
    with pytest.warns(UserWarning, match="client 'client-1': rows 'b4', 'b6' are all zero"):
        clone(XCLP).set_params(scale="none").plan(Xs, ys)


def test_indices_that_do_not_fit_are_refused() -> None:
    Xs, ys = frames()
    with pytest.raises(DataError, match="entries for the rows 0, 1, 2, which the features do not"):
        labels_by_index(Xs[0].index, ys[0].reset_index(drop=True), "a")
    with pytest.raises(DataError, match=r"'client-1': labels must be one-dim.* got shape \(3, 1\)"):
        XCLP.fit(Xs, [ys[0], ys[1].to_frame(), ys[2]])
    with pytest.raises(DataError, match="different indices, and one names a row twice"):
        labels_by_index(Xs[0].index, pd.concat([ys[0], ys[0]]), "a")
    same = pd.Series(range(8), index=Xs[0].index)
    assert labels_by_index(Xs[0].index, same, "a") is same
    assert labels_by_index(Xs[0].index, [1, 2], "a") == [1, 2]


def test_true_labels_are_matched_by_index_too() -> None:
    Xs, ys = frames()
    result = XCLP.plan(Xs, ys).run()
    truth = [pd.Series(list("xyzxyzxy"), index=x.index) for x in Xs]
    expected = scores_of(result, [y.to_numpy() for y in truth])
    found = scores_of(result, [y[::-1] for y in truth])
    assert found.truth.tolist() == expected.truth.tolist() == [0, 1, 2, 0, 1] * 3
    with pytest.raises(DataError, match="'client-0': the labels have entries for the rows 0, 1"):
        scores_of(result, [y.reset_index(drop=True) for y in truth])


@given(st.permutations(range(8)), st.integers(0, 8))
def test_any_order_and_any_part_of_the_labels(order: list[int], known: int) -> None:
    x = pd.DataFrame({"u": np.arange(8.0)}, index=[f"r{i}" for i in range(8)])
    y = pd.Series(range(8), index=x.index).iloc[order[:known]]
    found = [None if v != v else v for v in labels_by_index(x.index, y, "a").tolist()]
    assert found == [i if i in order[:known] else None for i in range(8)]
