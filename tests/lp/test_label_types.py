from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.labels import UNLABELLED, class_values, decode, encode, marked_values, one_hot

NAN = float("nan")


def marks(y: Any) -> list[bool]:
    return marked_values(y, "alice")[1].tolist()


def classes_of(*ys: Any, classes: Any = None) -> tuple[Any, ...]:
    names = [f"client-{i}" for i in range(len(ys))]
    marked = [marked_values(y, name) for y, name in zip(ys, names, strict=True)]
    return class_values(marked, classes, names)


# Which rows are labelled


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([0, 1, -1], [1, 1, 0]),
        (np.array([0, 1, -1], dtype=np.int8), [1, 1, 0]),
        (np.array([0, 255], dtype=np.uint8), [1, 1]),
        ([0.0, -1.0, NAN, 2.5, float("inf")], [1, 0, 0, 1, 1]),
        (np.array([0, np.nan, -1], dtype=np.float32), [1, 0, 0]),
        ([None, "a", "-1", "", "nan"], [0, 1, 1, 1, 1]),
        (np.array(["-1", "b"]), [1, 1]),
        (np.array([None, "a", np.nan, -1], dtype=object), [0, 1, 0, 0]),
        (np.array([np.int64(-1), np.int64(3), np.float64("nan")], dtype=object), [0, 1, 0]),
        ([np.int64(-1), np.float32("nan"), np.str_("-1"), np.bool_(False)], [0, 0, 1, 1]),
        ([True, False, None], [1, 1, 0]),
        (np.array([True, False]), [1, 1]),
        (np.ma.masked_array([1, 2, -1], mask=[True, False, False]), [0, 1, 0]),
        (np.ma.masked_array([1, 2]), [1, 1]),
        (np.ma.masked_array(["a", "b"], mask=[False, True]), [1, 0]),
        (np.ma.masked_array([None, "b"], mask=[False, False], dtype=object), [0, 1]),
        (pd.Series(["a", None, pd.NA]), [1, 0, 0]),
        (pd.Series([1, pd.NA, -1], dtype="Int64"), [1, 0, 0]),
        (pd.Series([True, pd.NA], dtype="boolean"), [1, 0]),
        (pd.Series([0.0, np.nan]), [1, 0]),
        (pd.Series(["x", "y", None]).astype("category"), [1, 1, 0]),
        ([pd.NaT, "a"], [0, 1]),
        ((1, -1), [1, 0]),
        (range(-1, 2), [0, 1, 1]),
        ([], []),
        (np.array([]), []),
    ],
)
def test_marked_rows(y: Any, expected: list[int]) -> None:
    values, labelled = marked_values(y, "alice")
    assert labelled.dtype == bool
    assert labelled.tolist() == [bool(e) for e in expected]
    assert len(values) == len(expected)
    assert not any(isinstance(v, np.generic) for v in values)


def test_a_list_of_integers_and_text_stays_what_it_is() -> None:
    values, _ = marked_values([1, "a"], "alice")
    assert values == [1, "a"]


@pytest.mark.parametrize(
    "y",
    [
        *(np.zeros((2, 1)), np.array(3), np.zeros((0, 2)), 5, None, "abc", b"abc", {1}.__iter__()),
        *({1, 2}, {1: 2}, sparse.csr_array(np.eye(1, 3)), (v for v in [1])),
    ],
)
def test_labels_that_are_no_vector_are_refused(y: Any) -> None:
    with pytest.raises(DataError, match="client 'alice': labels must be") as caught:
        marked_values(y, "alice")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "y",
    [
        [[1, 2], [3, 4]],
        [[1], [2, 3]],
        [b"a"],
        [1j],
        [(1, 2)],
        [np.array([1, 2])],
        np.array(["2020-01-01"], dtype="M8[D]"),
    ],
)
def test_labels_of_other_types_are_refused_with_client_and_row(y: Any) -> None:
    with pytest.raises(
        DataError, match=r"client 'client-1', row 0 \(counted from 0\): a label of type \w+"
    ):
        classes_of(["a"], y)


# Classes


@pytest.mark.parametrize(
    ("ys", "expected", "kind"),
    [
        ([[3, -1], [1, 3]], (1, 3), int),
        ([["b", "-1"], ["a", None]], ("-1", "a", "b"), str),
        ([[True], [False, None]], (False, True), bool),
        ([[2.5, NAN], [0.5]], (0.5, 2.5), float),
        ([[1, 2], [2.0, NAN]], (1, 2), int),
        ([[2.0, NAN], [1, 2]], (1, 2), int),
        ([[2.0, NAN], [1, 2], [0.5]], (0.5, 1.0, 2.0), float),
        ([[2**53 + 1, 2**53], [1.0, NAN]], (1, 2**53, 2**53 + 1), int),
        ([[2**60, 2**60 + 1], [np.uint64(2**64 - 1), -5]], (-5, 2**60, 2**60 + 1, 2**64 - 1), int),
        ([[1e300], [0.5], [3]], (0.5, 3.0, 1e300), float),
        ([[7], [], [-1]], (7,), int),
        ([np.array([2], dtype=np.uint8), [1]], (1, 2), int),
    ],
)
def test_classes_are_those_that_occur(
    ys: list[Any], expected: tuple[Any, ...], kind: type[Any]
) -> None:
    found = classes_of(*ys)
    assert found == expected
    assert {type(c) for c in found} == {kind}


@settings(deadline=None)
@given(st.permutations([[1, -1], [2.0], [0], [NAN, 1.0]]))
def test_classes_do_not_depend_on_the_order_of_clients(ys: list[list[float]]) -> None:
    assert repr(classes_of(*ys)) == "(0, 1, 2)"


@pytest.mark.parametrize(
    ("ys", "message"),
    [
        ([[1], ["a"]], r"int \(client 'client-0', row 0 .*, str \(client 'client-1', row 0"),
        (
            [[-1, "a"], [None, 2]],
            r"str \(client 'client-0', row 1 .*, int \(client 'client-1', row",
        ),
        ([[True, False], [1, 0]], r"bool \(client 'client-0', row 0 .*, int \(client 'client-1'"),
        ([[0, 1, 2], [True]], r"int \(client 'client-0', row 0 .*, bool \(client 'client-1'"),
        ([["a"], [0.5]], r"str \(client 'client-0', row 0 .*, float \(client 'client-1', row 0"),
        ([[1], ["2", "3"], ["x"]], r"int .*, str \(client 'client-2', row 0"),
        ([[1], ["1"]], r"int \(client 'client-0', row 0 .*, str \(client 'client-1', row 0"),
    ],
)
def test_mixed_types_name_the_clients(ys: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=f"labels are of several types: .*{message}"):
        classes_of(*ys)


@pytest.mark.parametrize(
    ("ys", "told"),
    [
        ([[2**53 + 1], [0.5]], r"9007199254740993 \(client 'client-0', .* 0.5 \(client 'client-1'"),
        ([[3, 1], [2.0**53]], r"9007199254740992.0 \(client 'client-1', .* 3 \(client 'client-0'"),
        (
            [[1e17, NAN], [10**17 + 1]],
            r"1e\+17 \(client 'client-0', .* 100000000000000001 \(client",
        ),
    ],
)
def test_floats_that_could_be_several_of_the_integers_are_refused(ys: Any, told: str) -> None:
    with pytest.raises(DataError, match=f"labels cannot be told apart: {told}.*give integers"):
        classes_of(*ys)
    with pytest.raises(DataError, match=r"9007199254740993 \(classes\) and|and 9007199254740993"):
        classes_of([2.0**53], classes=[2**53 + 1, 2**53])
    with pytest.raises(ParameterError, match="labels cannot be told apart"):
        classes_of([2.0**53], classes=[2**53 + 1, 0.5])


@pytest.mark.parametrize("ys", [[[], []], [[-1, None], [NAN]], [["a"][:0], [None]]])
def test_no_label_anywhere(ys: list[Any]) -> None:
    with pytest.raises(DataError, match="no client has a label; mark unlabelled rows with -1"):
        classes_of(*ys)
    with pytest.raises(DataError, match="no client has a label"):
        classes_of(*ys, classes=["a"])


@pytest.mark.parametrize(
    ("classes", "ys"),
    [
        (["b", "a", "c"], [["a"], [None]]),
        ((2, 0, 5), [[5, -1], []]),
        (np.array([2, 0, 5]), [[5, -1], []]),
        ([np.int8(2), 0], [[2.0, NAN]]),
        ([True, False], [[False]]),
        (pd.Index(["x", "y"]), [["y"]]),
        (["-1"], [["-1"]]),
        ([0.5], [[0.5]]),
        (range(3), [[1]]),
    ],
)
def test_given_classes_keep_their_order(classes: Any, ys: list[Any]) -> None:
    assert classes_of(*ys, classes=classes) == tuple(classes)


@pytest.mark.parametrize(
    ("classes", "ys", "label", "place"),
    [
        ([0, 1], [[0, -1], [-1, 7]], "7", "client 'client-1', row 1 (counted from 0)"),
        (["a"], [["a", "b"]], "'b'", "client 'client-0', row 1 (counted from 0)"),
        (["1"], [[1]], "1", "client 'client-0', row 0 (counted from 0)"),
        ([1], [["1"]], "'1'", "client 'client-0', row 0 (counted from 0)"),
        ([0, 1], [[True]], "True", "client 'client-0', row 0 (counted from 0)"),
        ([True, False], [[1]], "1", "client 'client-0', row 0 (counted from 0)"),
    ],
)
def test_unknown_classes_name_client_row_label_and_classes(
    classes: Any, ys: list[Any], label: str, place: str
) -> None:
    with pytest.raises(DataError) as caught:
        classes_of(*ys, classes=classes)
    assert str(caught.value).startswith(f"{place}: label {label} is none of the classes (")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], "distinct and at least one"),
        ([1, 2, 1], r"distinct and at least one, got \(1, 2, 1\)"),
        ([1, 1.0], "distinct"),
        ([0, -1], r"marker of unlabelled rows .* got \(0, -1\)"),
        (["a", None], "marker of unlabelled rows"),
        ([0.0, NAN], "marker of unlabelled rows"),
        ("abc", "must be a list of labels, got 'abc'"),
        (3, "must be a list of labels, got 3"),
        ([1, "a"], r"must all be numbers, all strings or all booleans, got 1 \(int\), 'a' \(str\)"),
        ([True, 0], r"got True \(bool\), 0 \(int\)"),
        ([[1, 2], [3, 4]], r"got \[1, 2\] \(list\)"),
        ([b"a"], r"got b'a' \(bytes\)"),
        (np.eye(2), "ndarray"),
    ],
)
def test_classes_that_cannot_be(classes: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        classes_of([1], classes=classes)


# Indices and back

Make: TypeAlias = Callable[[list[Any]], Any]


def series(dtype: Any) -> Make:
    return lambda values: pd.Series(values, dtype=dtype)


def objects(values: list[Any]) -> NDArray[Any]:
    return np.array([*values, None], dtype=object)[:-1]


ANY: list[Make] = [
    list,
    tuple,
    objects,
    series(object),
    lambda values: pd.Index(values, dtype=object),
    lambda values: pd.Series(objects(values)).astype("category"),
    lambda values: np.ma.masked_array(
        [v is not None and v for v in values], [v is None for v in values], dtype=object
    ),
]
INTEGERS = [*ANY, pa.array, series("Int64"), series(pd.ArrowDtype(pa.int64()))]
CONTAINERS: dict[str, tuple[st.SearchStrategy[Any], list[Make]]] = {
    "int": (st.integers(-(2**63), 2**63 - 1).filter(lambda v: v != -1), INTEGERS),
    "uint": (st.integers(0, 2**64 - 1), [*ANY, series("UInt64"), lambda v: pa.array(v, "uint64")]),
    "long": (st.integers(2**64), ANY),
    "str": (
        st.text("-1ab é\0", max_size=4),
        [*ANY, pa.array, series("string"), lambda v: pa.chunked_array([v], "string")],
    ),
    "bool": (
        st.booleans(),
        [*ANY, pa.array, series("boolean"), series(pd.ArrowDtype(pa.bool_()))],
    ),
    "float": (
        st.floats(allow_nan=False).filter(lambda v: v != -1),
        [*ANY, np.array, pa.array, series("float64"), series("Float64")],
    ),
}


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(CONTAINERS)))
def test_labels_keep_their_identity_whatever_holds_them(data: st.DataObject, kind: str) -> None:
    strategy, makers = CONTAINERS[kind]
    known, other = (
        data.draw(st.lists(strategy | st.none(), min_size=1, max_size=5)) for _ in range(2)
    )
    missing = kind == "float" and data.draw(st.booleans())
    clients = [[NAN if missing and v is None else v for v in own] for own in (known, other)]
    held = [data.draw(st.sampled_from(makers))(own) for own in clients]
    assume(any(v is not None for v in (*known, *other)))
    marked = [marked_values(y, name) for y, name in zip(held, "ab", strict=True)]
    classes = class_values(marked, None, "ab")
    integers = kind in ("int", "uint", "long")
    assert {type(c) for c in classes} == {int if integers else type(classes[0])}
    for own, (values, labelled) in zip((known, other), marked, strict=True):
        class_ids = encode(values, labelled, classes)
        assert class_ids.dtype == np.int64
        assert ((class_ids == UNLABELLED) == ~labelled).all()
        back = decode(class_ids, classes).tolist()
        assert back == [-1 if integers and v is None else v for v in own]
        assert {type(v) for v in back if v is not None} <= {type(classes[0])}
        if integers:  # beside whole floats too, since integers are exact
            beside = class_values([(values, labelled), marked_values([7.0, NAN], "c")], None, "ac")
            assert set(beside) == {*(v for v in own if v is not None), 7}


@pytest.mark.parametrize(
    ("classes", "whole", "with_missing", "missing"),
    [
        ((3, 5), "i", "i", -1),
        (("x", "yy"), "U", "O", None),
        ((False, True), "b", "O", None),
        ((0.5, 2.0), "f", "O", None),
        ((3, 2**64 - 1), "u", "O", -1),
        ((-3, 2**64 - 1), "O", "O", -1),
        (("x", "x\0"), "O", "O", None),
    ],
)
def test_dtypes_of_decoded_labels(
    classes: tuple[Any, ...], whole: str, with_missing: str, missing: Any
) -> None:
    full = decode(np.array([1, 0, 1]), classes)
    assert full.dtype.kind == whole
    assert full.tolist() == [classes[1], classes[0], classes[1]]
    partial = decode(np.array([1, UNLABELLED]), classes)
    assert partial.dtype.kind == with_missing
    assert partial.tolist() == [classes[1], missing]
    assert decode(np.zeros(0, dtype=np.int64), classes).shape == (0,)
    assert decode(np.array([UNLABELLED]), classes).tolist() == [missing]


def test_one_hot() -> None:
    assert one_hot(np.array([1, UNLABELLED, 0]), 3).tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert one_hot(np.zeros(0, dtype=np.int64), 2).shape == (0, 2)
