"""Columns that hold booleans, orders and categories, as a schema declares them for all clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.files.federation import load_federation
from xclp_lp.files.schema import Column, agreed_schema
from xclp_lp.files.tables import Source, Table

SCHEMA = """
[schema]
smoker = {kind = "boolean"}
ward = {kind = "categories", values = ["icu", "surgery", "7"]}
stage = {kind = "ordered", values = ["low", "middle", "high"]}
age = {kind = "number"}
"""
NAMES = ("smoker", "ward = icu", "ward = surgery", "ward = 7", "stage", "age")
TABLE = "label,age,stage,ward,smoker\na,50,high,7,TRUE\n,31.5,low, icu ,0\n"


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    (tmp_path / "north.csv").write_text(TABLE)
    rows = {"stage": ["middle"], "age": [7], "smoker": [False], "ward": [7.0], "label": ["b"]}
    pd.DataFrame(rows).to_parquet(tmp_path / "south.parquet", index=False)
    sections = "".join(
        f'[clients.{file.partition(".")[0]}]\nfeatures = "{file}"\nlabel_column = "label"\n'
        for file in ("north.csv", "south.parquet")
    )
    file = tmp_path / "federation.toml"
    file.write_text(sections + SCHEMA)
    return file


def test_columns_become_features_in_the_order_of_the_schema(federation: Path) -> None:
    north, south = load_federation(federation).clients
    assert north.columns == south.columns == NAMES
    assert north.features.tolist() == [[1, 0, 0, 1, 2, 50], [0, 1, 0, 0, 0, 31.5]]
    assert south.features.tolist() == [[0, 0, 0, 1, 1, 7]]


def test_cells_may_be_empty_where_missing_values_become_means(federation: Path) -> None:
    (federation.parent / "north.csv").write_text(TABLE.replace("31.5,low, icu ,0", ",, ,"))
    federation.write_text(f'[parameters]\nmissing = "mean"\n{federation.read_text()}')
    north, _ = load_federation(federation).clients
    nan = float("nan")
    assert north.features[1].tolist() == pytest.approx([nan, 0, 0, 0, nan, nan], nan_ok=True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("high", "hihg", r"'north': row 1, column 'stage' of .*north.csv is 'hihg', which is none "
         r"of the declared values: 'low', 'middle', 'high'; did you mean 'high'\?"),
        ("TRUE", "2", r"row 1, column 'smoker' of .* is '2', which is neither true nor false"),
        ("31.5", "old", r"row 2, column 'age' of .* is 'old', which is not a number"),
        ("low", "", "row 2, column 'stage' of .* is empty"),
        (",ward", ",room", "are not those of the schema: missing 'ward' and extra 'room'"),
    ],
)  # fmt: skip
def test_what_no_value_is_is_named(federation: Path, old: str, new: str, message: str) -> None:
    (federation.parent / "north.csv").write_text(TABLE.replace(old, new))
    with pytest.raises(DataError, match=message):
        load_federation(federation)


def test_arrays_have_no_columns_to_declare(tmp_path: Path) -> None:
    source = Source(np.ones((2, 1)), "north", tmp_path / "x.npy")
    with pytest.raises(DataError, match=r"north.*x.npy is not a table, which a schema needs"):
        source.features(schema={"age": Column("number")})


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ('{kind = "text"}', "kind must be 'number' or 'boolean' or 'ordered' or 'categories'"),
        ('{kind = "ordered"}', "values must list what a column of kind 'ordered' can hold"),
        ('{kind = "ordered", values = ["a"]}', "values must list what"),
        ('{kind = "categories", values = ["1", 1, 2]}', "values must differ, got"),
        ('{kind = "number", values = [1, 2]}', "a column of kind 'number' takes no values"),
        ("{}", "kind is missing; number, boolean, ordered or categories"),
    ],
)
def test_what_a_schema_may_say(federation: Path, column: str, message: str) -> None:
    text = federation.read_text()
    federation.write_text(text.replace('{kind = "number"}', column))
    with pytest.raises(ParameterError, match=message) as caught:
        load_federation(federation)
    assert "[schema.age]" in str(caught.value)


def test_a_schema_is_agreed_on() -> None:
    one = {"age": Column("number"), "stage": Column("ordered", ("low", "high"))}
    others = [
        {"age": Column("boolean"), "stage": Column("ordered", ("low", "high"))},
        {"age": Column("number"), "stage": Column("ordered", ("high", "low"))},
        dict(reversed(one.items())),
    ]
    assert all(agreed_schema(one) != agreed_schema(other) for other in others)
    assert agreed_schema({}) is None
    cells = Table({"age": ["1"], "stage": [" low"]})
    assert Source(cells, "a", Path("a.csv")).features(columns=[*one], schema=one).tolist() == [
        [1, 0]
    ]
