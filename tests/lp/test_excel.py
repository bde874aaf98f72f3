"""Tables in .xlsx files."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from xclp_crypto.errors import DataError
from xclp_lp.files.tables import read_file

ROWS = [
    ["id", "u", "when", "digit", None],
    ["ä", 1, datetime.date(2026, 1, 2), 3, None],
    ["b", 2.5, None, None, " "],
]


def write(path: Path, **sheets: Sequence[Sequence[Any]]) -> Path:
    book = Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_sheet_is_a_table(tmp_path: Path) -> None:
    path = write(tmp_path / "x.xlsx", data=[*ROWS, [None], [" "]], empty=[])
    found = read_file(path, "alice")
    assert found.table is not None
    assert list(found.table.columns) == ["id", "u", "when", "digit"]
    assert found.column("id") == ["ä", "b"]
    assert found.features(columns=["u"]).tolist() == [[1], [2.5]]
    assert found.labels(array=None, column="digit") == [3, None]
    with pytest.raises(DataError, match=r"row 1, column 'when' of .*x.xlsx is .* not a number"):
        found.features(columns=["when"])


def test_the_index_of_a_data_frame_is_not_a_feature(tmp_path: Path) -> None:
    path = write(tmp_path / "x.xlsx", data=[[None, "u"], [17, 1], [4, 2]])
    assert read_file(path, "alice").feature_columns(columns=None, leave_out=[]) == ["u"]


@pytest.mark.parametrize(
    ("sheets", "words"),
    [
        ({"one": [["u"], [1]], "two": [["v"]]}, "x.xlsx has data in 'one', 'two'; leave only one"),
        ({"one": []}, "x.xlsx has no data"),
        ({"one": [["u", "u"], [1, 2]]}, "names the column 'u' twice"),
        (
            {"one": [["u", "v"], [" "], [1, 2]]},
            "row 1 of .*x.xlsx is blank before the end; delete it",
        ),
    ],
)
def test_sheets_that_cannot_be_read(tmp_path: Path, sheets: Any, words: str) -> None:
    with pytest.raises(DataError, match=f"^client 'alice': .*{words}"):
        read_file(write(tmp_path / "x.xlsx", **sheets), "alice")


@pytest.mark.parametrize("content", [b"no workbook", b"PK\x05\x06" + bytes(18)])
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.xlsx").write_bytes(content)
    with pytest.raises(DataError, match=r"^client 'alice': .*x.xlsx cannot be read"):
        read_file(tmp_path / "x.xlsx", "alice")
