from __future__ import annotations

import builtins
import datetime
import decimal
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.tables import (
    SUFFIXES,
    Table,
    column_of,
    features_of,
    integers_if_all,
    labels_of,
    read_file,
)


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_table(path: Path) -> Table:
    table = read_file(path, "alice")
    assert isinstance(table, Table)
    return table


def features(source: Any, **options: Any) -> Any:
    defaults: dict[str, Any] = {"array": None, "columns": None, "leave_out": ()}
    return features_of(source, "alice", Path("file"), **(defaults | options))


def labels(source: Any, **options: Any) -> Any:
    return labels_of(source, "alice", Path("file"), **({"array": None, "column": None} | options))


# Reading


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("a,b\n1,2\n3,4\n", {"a": ["1", "3"], "b": ["2", "4"]}),
        ("a,b\r\n1,2\r\n", {"a": ["1"], "b": ["2"]}),
        ("a,b\n1,2", {"a": ["1"], "b": ["2"]}),
        (b"\xef\xbb\xbfa,b\n1,\xc3\xa9\n", {"a": ["1"], "b": ["é"]}),
        ('"a, b","c ""d"""\n"1\n2",""\n', {"a, b": ["1\n2"], 'c "d"': [""]}),
        ("a,b\n", {"a": [], "b": []}),
        ("a,b\n,\n", {"a": [""], "b": [""]}),
        ("digit\n3\n\n4\n", {"digit": ["3", "", "4"]}),
        ('digit\n""\n4\n', {"digit": ["", "4"]}),
    ],
)
def test_csv(tmp_path: Path, content: str | bytes, columns: dict[str, list[str]]) -> None:
    table = read_table(text(tmp_path / "x.csv", content))
    assert table.columns == columns
    assert len(table) == len(next(iter(columns.values())))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", "row 2 of .*x.csv has 1 fields; the header has 2"),
        ("a,b\n1,2,3\n", "row 1 of .*x.csv has 3 fields; the header has 2"),
        ("a,b\n1,2\n\n3,4\n", "row 2 of .*x.csv has 0 fields; the header has 2"),
        ("a,a\n1,2\n", "the first line of .*x.csv must name every column once"),
        ("", "the first line of .*x.csv must name every column once"),
        ("\n1\n", "the first line of .*x.csv must name every column once"),
        ('a\n"1\n', "line 2 of .*x.csv: unexpected end of data"),
        ('a\n"1"2\n', "line 2 of .*x.csv: ',' expected after"),
        (b"a\n\xff\n", "x.csv cannot be read: 'utf-8' codec can't decode"),
    ],
)
def test_csv_that_cannot_be_read(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^client 'alice': .*{message}"):
        read_file(text(tmp_path / "x.csv", content), "alice")


def test_arrays(tmp_path: Path) -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.array([1, -1, 0])
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    np.savez_compressed(tmp_path / "small.npz", y=y)
    assert np.array_equal(read_file(tmp_path / "x.npy", "alice"), x)
    both = read_file(tmp_path / "both.npz", "alice")
    assert isinstance(both, dict)
    assert list(both) == ["x", "y"]
    assert np.array_equal(both["x"], x)
    assert np.array_equal(features(both, array="x"), x)
    assert np.array_equal(labels(both, array="y"), y)
    assert np.array_equal(labels(read_file(tmp_path / "small.npz", "alice")), y)
    assert np.array_equal(features(x), x)


def damaged_npz(path: Path) -> None:
    np.savez_compressed(path, x=np.random.default_rng(0).random((50, 50)))
    content = bytearray(path.read_bytes())
    content[2000:2200] = bytes(200)
    path.write_bytes(content)


def truncated_npz(path: Path) -> None:
    np.savez(path, x=np.zeros(9))
    path.write_bytes(path.read_bytes()[:100])


def zip_of_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", "not an array")


def pickled(path: Path) -> None:
    np.save(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)


def pickled_inside(path: Path) -> None:
    np.savez(path, x=np.array([{"a": 1}], dtype=object))


def archive_as_array(path: Path) -> None:
    np.savez(path.with_suffix(".npz"), x=np.zeros(3))
    path.with_suffix(".npz").rename(path)


def array_as_archive(path: Path) -> None:
    np.save(path.with_suffix(".npy"), np.zeros(3))
    path.with_suffix(".npy").rename(path)


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("x.npy", pickled, "x.npy cannot be read: Object arrays cannot be loaded"),
        ("x.npz", pickled_inside, "x.npz cannot be read: Object arrays cannot be loaded"),
        ("x.npy", lambda p: p.write_bytes(b"hello"), "x.npy cannot be read: .*pickle"),
        ("x.npy", lambda p: p.write_bytes(b""), "x.npy cannot be read"),
        ("x.npy", lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\x05\x00{'de'"), "cannot be read"),
        ("x.npy", archive_as_array, "it holds named arrays; rename it to .npz"),
        ("x.npz", array_as_archive, "it holds a single array; rename it to .npy"),
        ("x.npz", damaged_npz, "x.npz cannot be read: "),
        ("x.npz", truncated_npz, "x.npz cannot be read: File is not a zip file"),
        ("x.npz", zip_of_text, "x.npz cannot be read: x.* in it is no array"),
        ("x.npz", lambda p: p.write_bytes(b"PK\x03\x04"), "x.npz cannot be read"),
        ("x.parquet", lambda p: p.write_bytes(b"PAR1"), "x.parquet cannot be read"),
        ("x.csv", lambda p: p.mkdir(), "x.csv cannot be read: .*[Ii]s a directory"),
        ("x.npy", lambda p: p.mkdir(), "x.npy cannot be read"),
        ("gone.csv", lambda p: None, "there is no file .*gone.csv"),
        ("gone.npy", lambda p: None, "there is no file .*gone.npy"),
        ("gone.npz", lambda p: None, "there is no file .*gone.npz"),
        ("gone.parquet", lambda p: None, "there is no file .*gone.parquet"),
        ("x.txt", lambda p: p.write_text("a"), "none of the kinds .*: .npy, .npz, .csv, .parquet"),
        ("x", lambda p: p.write_text("a"), "none of the kinds that can be read"),
        ("x.CSV", lambda p: p.write_text("a"), "none of the kinds that can be read"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, spoil: Any, message: str) -> None:
    spoil(tmp_path / name)
    with pytest.raises(DataError, match=f"^client 'alice': .*{message}"):
        read_file(tmp_path / name, "alice")


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    columns = {"a": [1.5, 2.0], "n": [1, None], "t": ["x", None], "b": [True, False]}
    parquet.write_table(pa.table(columns), path)
    table = read_table(path)
    assert table.columns == columns
    assert features(table, columns=["a", "b"]).tolist() == [[1.5, 1], [2, 0]]
    assert labels(table, column="n") == [1, None]
    assert labels(table, column="t") == ["x", None]
    with pytest.raises(DataError, match="row 2, column 'n' of file is empty"):
        features(table, columns=["a", "n"])


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "pyarrow")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ParameterError, match=r"needs pyarrow; install it with: pip install 'xclp"):
        read_file(tmp_path / "x.parquet", "alice")


# Features

TABLE = Table({"id": ["x", "y"], "u": ["1", "-2.5"], "v": [" 3 ", "1e3"], "digit": ["", "7"]})


def test_features_are_all_columns_but_those_left_out() -> None:
    matrix = features(TABLE, leave_out=["id", "digit"])
    assert matrix.dtype == np.float64
    assert matrix.tolist() == [[1, 3], [-2.5, 1000]]
    assert features(TABLE, columns=["v", "u"]).tolist() == [[3, 1], [1000, -2.5]]
    assert features(Table({"u": [], "v": []})).shape == (0, 2)


@settings(deadline=None)
@given(st.lists(st.floats(), max_size=5))
def test_numbers_survive_their_way_through_text(numbers: list[float]) -> None:
    table = Table({"u": [repr(x) for x in numbers]})
    assert np.array_equal(features(table)[:, 0], numbers, equal_nan=True)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        (None, "is empty"),
        ("x", "is 'x', which is no number"),
        ("1,5", "is '1,5', which is no number"),
        ("1_000", "is '1_000', which is no number"),
        ("0x10", "is '0x10', which is no number"),
        ([1], r"is \[1\], which is no number"),
        (datetime.date(2020, 1, 1), r"is datetime.date\(2020, 1, 1\), which is no number"),
    ],
)
def test_cells_that_are_no_numbers(cell: Any, message: str) -> None:
    table = Table({"u": ["1", "2"], "v": ["1", cell]})
    with pytest.raises(DataError, match=f"^client 'alice': row 2, column 'v' of file {message}$"):
        features(table)


def test_other_numbers_of_a_parquet_file() -> None:
    assert features(Table({"u": [decimal.Decimal("1.5"), True, 3]}))[:, 0].tolist() == [1.5, 1, 3]


def test_columns_that_are_not_there() -> None:
    with pytest.raises(
        DataError, match="client 'alice': file has no column 'w'; its columns are id, u, v, digit"
    ):
        features(TABLE, columns=["u", "w"])
    with pytest.raises(DataError, match="client 'alice': file has no feature columns"):
        features(TABLE, leave_out=list(TABLE.columns))
    with pytest.raises(DataError, match="client 'alice': file has no feature columns"):
        features(TABLE, columns=[])
    with pytest.raises(DataError, match="file has no column 'w'"):
        column_of(TABLE, "alice", Path("file"), "w")


# Labels


def test_labels_of_a_table() -> None:
    assert labels(TABLE, column="digit") == [None, "7"]
    assert labels(Table({"any": ["a", "", "  ", "-1", "nan"]})) == ["a", None, None, "-1", "nan"]
    with pytest.raises(
        DataError, match=r"say which column .* label_column = one of id, u, v, digit"
    ):
        labels(TABLE)
    with pytest.raises(DataError, match="no column 'w'"):
        labels(TABLE, column="w")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ({"x": 1, "y": 2}, {}, "client 'alice': file holds the arrays x, y; choose one with"),
        ({"x": 1}, {"array": "z"}, "holds the arrays x; choose one with"),
        ({}, {}, r"holds the arrays \(none\); choose one with"),
    ],
)
def test_arrays_that_are_not_there(source: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"{message} features_array"):
        features(source, **options)
    with pytest.raises(DataError, match=f"{message} labels_array"):
        labels(source, **options)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([["1", None, "-1"], ["0", "12"]], [[1, None, -1], [0, 12]]),
        ([["1", "2"], ["cat"]], [["1", "2"], ["cat"]]),
        ([["1", "2.0"]], [["1", "2.0"]]),
        ([["01", "2"]], [["01", "2"]]),
        ([["+1"]], [["+1"]]),
        ([["1_0"]], [["1_0"]]),
        ([["٣"]], [["٣"]]),
        ([[" 7", "8 "]], [[7, 8]]),
        ([["1", 2], [3, None]], [[1, 2], [3, None]]),
        ([[None], []], [[None], []]),
    ],
)
def test_text_becomes_integers_if_all_of_it_is(before: Any, after: Any) -> None:
    result = integers_if_all(before)
    assert result == after
    assert [[type(v) for v in ys] for ys in result] == [[type(v) for v in ys] for ys in after]


def test_text_beside_arrays() -> None:
    numbers = np.array([3, -1])
    result = integers_if_all([["1", None], numbers])
    assert result[0] == [1, None]
    assert result[1] is numbers
    # An array of text says that text is meant.
    for words in (np.array(["1", "2"]), np.array(["1", None], dtype=object), np.array(["cat"])):
        result = integers_if_all([["1", None], words])
        assert result[0] == ["1", None]
        assert result[1] is words


def test_the_suffixes_of_the_documentation() -> None:
    assert SUFFIXES == (".npy", ".npz", ".csv", ".parquet")
