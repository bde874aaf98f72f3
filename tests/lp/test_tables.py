from __future__ import annotations

import csv
import datetime
import decimal
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.files.clients import LoadedClient, joined_by_id, looks_like_row_numbers
from xclp_lp.files.results import write_table
from xclp_lp.files.tables import (
    SUFFIXES,
    CsvFormat,
    Expected,
    Source,
    Table,
    read_file,
    values_of_texts,
)
from xclp_lp.predictions import Prediction


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_table(path: Path) -> Table:
    table = read_file(path, "alice").table
    assert table is not None
    return table


def source(content: Any, path: str = "file") -> Source:
    return content if isinstance(content, Source) else Source(content, "alice", Path(path))


def features(content: Any, **options: Any) -> Any:
    array = options.pop("array", None)
    chosen = columns(content, **options) if source(content).table is not None else ()
    return source(content).features(array=array, columns=chosen)


def columns(content: Any, **options: Any) -> list[str]:
    return source(content).feature_columns(**{"columns": None, "leave_out": ()} | options)


def labels(content: Any, **options: Any) -> Any:
    return source(content).labels(**{"array": None, "column": None} | options)


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
        ("a,b\n1,2\n\n", {"a": ["1"], "b": ["2"]}),
        ("a,b\r\n1,2\r\n\r\n  \r\n\r\n", {"a": ["1"], "b": ["2"]}),
        ("a,b\n\n\n", {"a": [], "b": []}),
        ("digit\n3\n\n", {"digit": ["3", ""]}),
        ("a;b,c\n1,2\n", {"a;b": ["1"], "c": ["2"]}),
    ],
)
def test_csv(tmp_path: Path, content: str | bytes, columns: dict[str, list[str]]) -> None:
    table = read_table(text(tmp_path / "x.csv", content))
    assert table.columns == columns
    assert len(table) == len(next(iter(columns.values())))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", "row 2 of .*x.csv has 1 field; the header has 2; put"),
        ("a,b\n1,2,3\n", "row 1 of .*x.csv has 3 fields; the header has 2"),
        ("a,b\n1,2\n\n3,4\n", "row 2 of .*x.csv is a blank line before the end; delete"),
        ("a,b,b\n1,2,3\n", "x.csv names the column 'b' twice; give every column a name"),
        ("", "x.csv is empty$"),
        ("\n1\n", "the first line of .*x.csv is blank; it names the columns"),
        (
            'a,b\n1,"2\n3,4\n5,6\n',
            "line 4 of .*x.csv: unexpected end of data; the quote that is opened in line 2 is not",
        ),
        ('a\n"1"2\n', "line 2 of .*x.csv: ',' expected after '\"'; put the whole value in quotes"),
        ('a,b\n1,"2\n3,4\n5,"6"\n', "line 4 of .*: ',' .* the quote that is opened in line 2 is"),
        ('a,b\n1,"2\n3,4",7\n', "row 1 of .*x.csv has 3 fields; .* over several lines; close the"),
        (
            "sep=;\na;b\n1;2\n",
            "the first line of .*x.csv is 'sep=;', which tells only .* delete the",
        ),
        ("a,b\n1,2\n\n \n3,4\n", "row 2 of .*x.csv is a blank line before the end; delete"),
        ("a,b\n1,2\n\n3\n", "row 2 of .*x.csv is a blank line before the end; delete"),
        ("a\n\xff\n".encode("latin-1"), "x.csv is not encoded in UTF-8; save it as UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "x.csv is not encoded in UTF-8; save it as UTF-8"),
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
    assert np.array_equal(read_file(tmp_path / "x.npy", "alice").content, x)
    both = read_file(tmp_path / "both.npz", "alice").content
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
        ("x.npy", lambda p: p.write_bytes(b""), "x.npy is empty"),
        ("x.npy", lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\x05\x00{'de'"), "cannot be read"),
        ("x.npy", archive_as_array, "it holds named arrays; rename it to .npz"),
        ("x.npz", array_as_archive, "it holds a single array; rename it to .npy"),
        ("x.npz", damaged_npz, "x.npz cannot be read: "),
        ("x.npz", truncated_npz, "x.npz cannot be read: File is not a zip file"),
        ("x.npz", zip_of_text, "x.npz cannot be read: x.* in it is not an array"),
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
        ("x.NPZ", lambda p: array_as_archive(p), "single array; rename it to .npy"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, spoil: Any, message: str) -> None:
    spoil(tmp_path / name)
    with pytest.raises(DataError, match=f"^client 'alice': .*{message}"):
        read_file(tmp_path / name, "alice")


def test_suffixes_in_capitals(tmp_path: Path) -> None:
    text(tmp_path / "x.CSV", "a\n1\n")
    np.save(tmp_path / "x.npy", np.arange(3))
    (tmp_path / "x.npy").rename(tmp_path / "x.NPY")
    np.savez(tmp_path / "x.npz", x=np.arange(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.Npz")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "x.PARQUET")
    assert read_table(tmp_path / "x.CSV").columns == {"a": ["1"]}
    assert read_table(tmp_path / "x.PARQUET").columns == {"a": [1]}
    assert features(read_file(tmp_path / "x.NPY", "alice")).tolist() == [0, 1, 2]
    assert features(read_file(tmp_path / "x.Npz", "alice")).tolist() == [0, 1, 2]


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


@pytest.mark.parametrize("name", ["patient", None])
def test_a_stored_index_is_not_a_feature_but_can_name_rows(
    tmp_path: Path, name: str | None
) -> None:
    index = pd.Index([17, 4], name=name)
    frame = pd.DataFrame({"u": [1.0, 2.0], "label": ["a", None]}, index=index)
    frame.to_parquet(tmp_path / "x.parquet")
    found = read_file(tmp_path / "x.parquet", "alice")
    assert features(found, leave_out=["label"]).tolist() == [[1], [2]]
    assert found.column(name or "__index_level_0__") == [17, 4]
    frame[["label"]].to_parquet(tmp_path / "y.parquet")
    assert labels(read_file(tmp_path / "y.parquet", "alice")) == ["a", None]
    frame.reset_index(drop=True).to_parquet(tmp_path / "z.parquet")  # a range, not stored
    assert columns(read_file(tmp_path / "z.parquet", "alice")) == ["u", "label"]


def test_the_index_of_a_data_frame_in_a_csv_file_is_not_a_feature(tmp_path: Path) -> None:
    pd.DataFrame({"u": [1.0, 2.0]}, index=[17, 4]).to_csv(tmp_path / "x.csv")
    found = read_file(tmp_path / "x.csv", "alice")
    assert columns(found) == ["u"]
    assert columns(found, columns=["", "u"]) == ["", "u"]  # by name only
    assert columns(
        read_file(text(tmp_path / "y.csv", "\n1\n2\n".replace("\n", '""\n', 1)), "a")
    ) == [""]


def test_columns_of_the_same_name_in_a_parquet_file(tmp_path: Path) -> None:
    parquet.write_table(pa.table([[1], [2]], names=["u", "u"]), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet names the column 'u' twice; give every column"):
        read_file(tmp_path / "x.parquet", "alice")


@pytest.mark.parametrize(
    ("package", "suffix", "extra"),
    [("pyarrow", "parquet", "parquet"), ("openpyxl", "xlsx", "excel")],
)
def test_kinds_that_need_a_package_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, suffix: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    file = tmp_path / f"x.{suffix}"
    file.write_bytes(b"PAR1")
    with pytest.raises(
        ParameterError, match=rf"needs {package}; install it with: pip install 'xclp\[{extra}\]'"
    ):
        read_file(file, "alice")


# Features

TABLE = Table({"id": ["x", "y"], "u": ["1", "-2.5"], "v": [" 3 ", "1e3"], "digit": ["", "7"]})


def test_features_are_all_columns_but_those_left_out() -> None:
    matrix = features(TABLE, leave_out=["id", "digit"])
    assert matrix.dtype == np.float64
    assert matrix.tolist() == [[1, 3], [-2.5, 1000]]
    assert features(TABLE, columns=["v", "u"]).tolist() == [[3, 1], [1000, -2.5]]
    assert features(Table({"u": [], "v": []})).shape == (0, 2)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_numbers_survive_their_way_through_text(numbers: list[float]) -> None:
    table = Table({"u": [repr(x) for x in numbers]})
    assert np.array_equal(features(table)[:, 0], numbers)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        (None, "is empty"),
        ("x", "is 'x', which is not a number"),
        ("1_000", "is '1_000', which is not a number"),
        ("0x10", "is '0x10', which is not a number"),
        ([1], r"is \[1\], which is not a number"),
        (datetime.date(2020, 1, 1), r"is datetime.date\(2020, 1, 1\), which is not a number"),
        ("NA", r"is empty \('NA'\)"),
        ("-Infinity", "is '-Infinity', which is not finite"),
        ("1e999", "is '1e999', which is not finite"),
        (float("nan"), r"is empty \(nan\)"),
    ],
)
def test_cells_that_are_no_numbers(cell: Any, message: str) -> None:
    table = Table({"u": ["1", "2"], "v": ["1", cell]})
    hint = "id_column or label_column" if "not a number" in message else "fill it in"
    with pytest.raises(
        DataError, match=f"^client 'alice': row 2, column 'v' of file {message}; .*{hint}"
    ):
        features(table)


def test_a_decimal_comma_beside_commas_says_what_to_do(tmp_path: Path) -> None:
    found = read_file(text(tmp_path / "x.csv", 'a,b\n"364,000","2,5"\n'), "alice")
    with pytest.raises(
        DataError,
        match=r"column 'b' of .* is '2,5', which has a decimal comma; save the file with decimal p",
    ):
        features(found, columns=["b"])
    with pytest.raises(DataError, match=r"has a comma: if it is between thousands, .* without"):
        features(found, columns=["a"])
    with pytest.raises(DataError, match="not a number"):
        features(Table({"a": ["1", "1,2,3"]}))


def test_other_numbers_of_a_parquet_file() -> None:
    assert features(Table({"u": [decimal.Decimal("1.5"), True, 3]}))[:, 0].tolist() == [1.5, 1, 3]
    assert features(Table({"u": ["True", " false", "TRUE"]}))[:, 0].tolist() == [1, 0, 1]


def test_columns_that_are_not_there() -> None:
    with pytest.raises(
        DataError,
        match="client 'alice': file has no column 'w'; its columns are 'id', 'u', 'v', 'd",
    ):
        features(TABLE, columns=["u", "w"])
    with pytest.raises(DataError, match="client 'alice': file has no feature columns"):
        features(TABLE, leave_out=list(TABLE.columns))
    with pytest.raises(DataError, match="client 'alice': file has no feature columns"):
        features(TABLE, columns=[])
    with pytest.raises(DataError, match="file has no column 'w'"):
        source(TABLE).column("w")
    with pytest.raises(DataError, match=r"'digit'; did you mean 'digit'\?$"):
        source(TABLE).column("digits")
    wide = Table({f"c{i}": [] for i in range(100)})
    with pytest.raises(DataError, match=r"its columns are 'c0', .* 'c7', … \(100 in all\)$"):
        source(wide).column("w")


def test_columns_are_matched_by_name() -> None:
    table = Table({"w": [], "id": [], "u": [], "v": []})
    assert columns(table, leave_out=["id"]) == ["w", "u", "v"]
    like = Expected("client 'bob'", ["u", "v", "w"])
    assert columns(table, leave_out=["id"], like=like) == ["u", "v", "w"]
    assert columns(table, columns=["v", "w", "u"], like=like) == ["u", "v", "w"]
    assert columns(table, columns=["v"], like=like) == ["v"]


@pytest.mark.parametrize(
    ("leave_out", "difference"),
    [
        ([], "extra 'id'"),
        (["id", "w", "u"], "missing 'u', 'w'"),
        (["v"], "missing 'v' and extra 'id'"),
    ],
)
def test_other_columns_are_named(leave_out: list[str], difference: str) -> None:
    table = Table({"w": [], "id": [], "u": [], "v": []})
    with pytest.raises(DataError) as caught:
        columns(table, leave_out=leave_out, like=Expected("client 'bob'", ["u", "v", "w"]))
    assert str(caught.value).startswith(
        "client 'alice': the feature columns of file are not those of client 'bob': "
        f"{difference}; name them alike, list feature_columns"
    )


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([0, 1, 2], True),
        ([-1, 0, 1, 2], True),
        ([7, 8, 9, 10], True),
        ([0, 1], False),
        ([], False),
        ([0, 1, 3], False),
        ([2, 1, 0], False),
        ([0.5, 1.5, 2.5], False),
        ([1, 1, 1], False),
    ],
)
def test_row_numbers(column: list[float], expected: bool) -> None:
    assert looks_like_row_numbers(np.array(column, dtype=float)) is expected


# Labels


def test_labels_of_a_table() -> None:
    assert labels(TABLE, column="digit") == [None, "7"]
    assert labels(Table({"any": ["a", "", "  ", "-1", "nan"]})) == ["a", None, None, "-1", "nan"]
    with pytest.raises(
        DataError, match=r"say which column .* label_column = one of 'id', 'u', 'v', 'digit'"
    ):
        labels(TABLE)
    with pytest.raises(DataError, match="no column 'w'"):
        labels(TABLE, column="w")
    assert labels(Table({"id": ["x"], "y": ["7"]}), id_column="id") == ["7"]


def joined(values: list[Any], label_ids: list[Any], ids: list[Any]) -> list[Any]:
    of, file = source(TABLE, "features"), source(TABLE, "labels")
    return joined_by_id(values, label_ids, file, ids, of)


def test_labels_are_joined_by_id() -> None:
    assert joined(["7", None, "9"], ["c", "a", "b"], ["a", "b", "c", "d"]) == [None, "9", "7", None]
    assert joined([1, 2], [" 8", "7"], [7, 8]) == [2, 1]  # text beside integers of a .parquet file
    assert joined([], [], ["a"]) == [None]


@pytest.mark.parametrize(
    ("label_ids", "ids", "message"),
    [
        (["a", "a"], ["a", "b"], "rows 1 and 2 of labels have the same id 'a'; .* unique"),
        (["a"], ["b", "a", "b"], "rows 1 and 3 of features have the same id 'b'; .* unique"),
        (["a", "c"], ["a", "b"], "row 2 of labels has the id 'c', which no row of features has"),
        (["a", " "], ["a", "b"], "row 2 of labels has no id"),
        (["a"], ["a", None], "row 2 of features has no id"),
    ],
)
def test_ids_that_cannot_be_joined(label_ids: list[Any], ids: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=f"^client 'alice': {message}"):
        joined([1] * len(label_ids), label_ids, ids)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ({"x": 1, "y": 2}, {}, "client 'alice': file holds the arrays x, y; choose one with"),
        ({"x": 1}, {"array": "z"}, "holds the arrays x; choose one with"),
        ({}, {}, r"holds the arrays \(none\); choose one with"),
    ],
)
def test_arrays_that_are_not_there(content: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"{message} features_array"):
        features(content, **options)
    with pytest.raises(DataError, match=f"{message} labels_array"):
        labels(content, **options)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([["1", None, "-1"], ["0", "12"]], [[1, None, -1], [0, 12]]),
        ([["1", "2"], ["cat"]], [["1", "2"], ["cat"]]),
        ([["1", "2.0"]], [[1, 2]]),
        ([["0", "1"], ["0.0", "1.00", None]], [[0, 1], [0, 1, None]]),
        ([["-1.0", "10"]], [[-1, 10]]),
        ([["1.0", "1.5"]], [["1.0", "1.5"]]),
        ([["1.0", "cat"]], [["1.0", "cat"]]),
        ([["1."]], [["1."]]),
        ([["-0.0"]], [["-0.0"]]),
        ([["9" * 19]], [[10**19 - 1]]),
        ([["9" * 40]], [["9" * 40]]),
        ([["01", "2"]], [["01", "2"]]),
        ([["+1"]], [["+1"]]),
        ([["1_0"]], [["1_0"]]),
        ([["٣"]], [["٣"]]),
        ([[" 7", "8 "]], [[7, 8]]),
        ([["1", 2], [3, None]], [[1, 2], [3, None]]),
        ([[None], []], [[None], []]),
    ],
)
def test_text_becomes_values_of_texts_of_it_is(before: Any, after: Any) -> None:
    result = values_of_texts(before)
    assert result == after
    assert [[type(v) for v in ys] for ys in result] == [[type(v) for v in ys] for ys in after]


def test_text_becomes_booleans_beside_booleans() -> None:
    words = ["True", " false", None]
    assert values_of_texts([words, [1]]) == [words, [1]]
    for others in ([[True, None]], [np.array([False])]):
        assert values_of_texts([words, *others])[0] == [True, False, None]
    assert values_of_texts([words], [False, True]) == [[True, False, None]]
    assert values_of_texts([["true", "x"]], [True]) == [["true", "x"]]


def test_text_beside_arrays() -> None:
    numbers = np.array([3, -1])
    result = values_of_texts([["1", None], numbers])
    assert result[0] == [1, None]
    assert result[1] is numbers
    # An array of text says that text is meant.
    for words in (np.array(["1", "2"]), np.array(["1", None], dtype=object), np.array(["cat"])):
        result = values_of_texts([["1", None], words])
        assert result[0] == ["1", None]
        assert result[1] is words


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.none()), st.booleans())
def test_numbers_in_text_are_the_same_class_as_elsewhere(own: list[Any], as_array: bool) -> None:
    texts = [None if v is None else repr(v) for v in own]
    numbers = np.array(own, dtype=float) if as_array else own
    read, same = values_of_texts([texts, numbers])
    assert len(same) == len(numbers)
    assert read == own or not any(isinstance(v, float) and v != -1 for v in own)
    assert values_of_texts([texts], [0.5])[0] == own
    assert values_of_texts([["0.5", "01"], [0.5]])[0] == ["0.5", "01"]
    assert values_of_texts([["0.5", str(2**60 + 1)], [0.5]])[0] == [0.5, 2**60 + 1]


def test_the_suffixes_of_the_documentation() -> None:
    assert SUFFIXES == (".npy", ".npz", ".csv", ".parquet", ".xlsx")


# Other separators and decimal commas


@pytest.mark.parametrize(
    ("content", "expected", "said"),
    [
        (
            "a;b\n1,5;2\n-3;1,0e2\n",
            [[1.5, 2], [-3, 100]],
            "semicolons between cells and decimal commas",
        ),
        ('"a";"b"\n"1.5";"2"\n', [[1.5, 2]], "semicolons between cells and decimal points"),
        ("\ufeffa\tb\n1\t2,25\n", [[1, 2.25]], "tabs between cells and decimal commas"),
        ("a;b\n1;2\n", [[1, 2]], "semicolons between cells and decimal points"),
        (
            "a;b\n364,000;2\n-1,250;2\n",
            [[364, 2], [-1.25, 2]],
            "semicolons.* decimal commas; .*; if '364,000' has a comma between thousands, save",
        ),
    ],
)
def test_separators_and_decimal_commas_are_recognised_and_said(
    tmp_path: Path, content: str, expected: list[list[float]], said: str
) -> None:
    with pytest.warns(
        UserWarning,
        match=f"client 'alice': .*x.csv is read with (?=.*; to silence this, save it with ){said}",
    ):
        source = read_file(text(tmp_path / "x.csv", content), "alice")
    assert features(source, columns=["a", "b"]).tolist() == expected


@pytest.mark.parametrize(
    ("form", "content", "expected"),
    [
        (CsvFormat(";", ","), "a;b\n1,5;x\n", 1.5),
        (CsvFormat(";", "."), "a;b\n1.5;1,5\n", 1.5),
        (CsvFormat("\t", ","), "a\tb\n1,5\t1.5\n", 1.5),
        (CsvFormat(), "a,b\n1.5,2\n", 1.5),
    ],
)
def test_how_a_file_is_written_can_be_said(
    tmp_path: Path, form: CsvFormat, content: str, expected: float
) -> None:
    source = read_file(text(tmp_path / "x.csv", content), "alice", form)
    assert features(source, columns=["a"]).tolist() == [[expected]]


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        (None, "a;b\n1,5;2\n1;2.5\n", r"has '1,5' in row 1 and '2.5' in row 2; say which marks"),
        (
            CsvFormat(";", ","),
            "a;b\n1.5;2\n",
            "row 1, column 'a' .* is '1.5', .* with a decimal comma",
        ),
        (
            CsvFormat(";", "."),
            "a;b\n1,5;2\n",
            "row 1, column 'a' .* is '1,5', which has a decimal comma;",
        ),
        (CsvFormat(";"), "a;b\n1;2;3\n", "has 3 fields; .* contain a semicolon in quotes"),
    ],
)
def test_another_decimal_mark_is_refused(
    tmp_path: Path, form: CsvFormat | None, content: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        features(read_file(text(tmp_path / "x.csv", content), "alice", form), columns=["a", "b"])


def test_one_character_cannot_mean_both() -> None:
    with pytest.raises(ParameterError, match="delimiter and decimal are both a comma"):
        CsvFormat(",", ",")
    with pytest.raises(ParameterError, match=r"delimiter must be .*, got ':'"):
        CsvFormat(":")


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n", "'=", "''@"])
def test_attack_14_text_of_results_is_no_formula_and_reads_back(tmp_path: Path, first: str) -> None:
    """Ids, names of columns and classes; what begins with an apostrophe keeps it."""
    texts = [f"{first}HYPERLINK(A1)", "-5", "+1.5e3", "'quoted'", "plain"]
    client = LoadedClient("a", np.ones((5, 1)), [None] * 5, texts, id_column=f"{first}id")
    numbers = np.arange(5)
    found = Prediction(numbers, np.ones(5), np.ones((5, 5)) / 5)
    write_table(tmp_path / "a.csv", client, texts, numbers, found)
    with (tmp_path / "a.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    dangerous = [c for c in cells if c[:1] in set("=+-@\t\r\n")]
    assert set(dangerous) == {"-5", "+1.5e3"}
    columns = read_table(tmp_path / "a.csv").columns
    assert columns[f"{first}id"] == columns["label"] == columns["given"] == texts
    assert list(columns)[4:] == [f"p({text})" for text in texts]
