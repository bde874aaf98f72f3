"""``xclp check`` lists everything that is wrong with a client's file and data, at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_lines import Xclp

from xclp_crypto.transport.tls import make_authority
from xclp_lp.files.check import check_client
from xclp_lp.files.network import load_client_file

CLIENTS = ["north", "south", "east"]
TABLE = """patient,diagnosis,age,bmi,ward
p1,flu,50,20.5,7
p2,,61,24.0,7
p3,cold,47,22.5,7
p4,,39,31.0,7
p5,,28,19.5,7
p6,,33,27.0,7
p7,,64,23.5,7
p8,,55,21.0,7
p9,,42,26.5,7
p10,,71,25.0,7
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority") / "certs"
    make_authority(folder, CLIENTS, ["localhost"])
    return folder


@pytest.fixture
def north(tmp_path: Path, authority: Path) -> Path:
    (tmp_path / "north.csv").write_text(TABLE)
    file = tmp_path / "north.toml"
    file.write_text(
        f"""clients = {CLIENTS}
identities = "{authority}/identities.toml"
identity = "{authority}/north.identity"
[parameters]
classes = ["flu", "cold"]
[tls]
authority = "{authority}/authority.pem"
certificate = "{authority}/north.pem"
key = "{authority}/north.key"
[client]
name = "north"
server = "localhost:7777"
features = "north.csv"
id_column = "patient"
label_column = "diagnosis"
"""
    )
    return file


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_what_was_read_is_said_and_nothing_is_written(xclp: Xclp, north: Path) -> None:
    before = {path: path.read_bytes() for path in north.parent.iterdir()}
    code, out, err = xclp("check", north)
    assert code == 0
    lines = out.replace("\n", " ")
    for words in (
        "certificates can be used; results go to",
        "10 rows, 3 features: 'age', 'bmi', 'ward'",
        "2 of 10 rows labelled: 'flu' 1, 'cold' 1",
        "nothing wrong in",
    ):
        assert words in lines
    first, second = err.splitlines()
    assert first.startswith("xclp: caution: no columns are agreed on, so a client with")
    assert (
        second
        == "xclp: caution: constant over all rows of client 'north', so they tell nothing: 'ward'"
    )
    assert {path: path.read_bytes() for path in north.parent.iterdir()} == before


def test_all_problems_are_listed_at_once(xclp: Xclp, north: Path, authority: Path) -> None:
    change(north.parent / "north.csv", "p2,,61,24.0,7", "p2,flue,,x,inf")
    change(north.parent / "north.csv", "p4,,39,", "p4,flue,,")
    change(north.parent / "north.csv", "22.5", '"22,500"')
    change(north, f"{authority}/north.key", "gone.key")
    change(north, "[parameters]", "[parameters]\nk = 0\nalfa = 0.5\nalpha = 2.0")
    (north.parent / "results").write_text("not a folder")
    code, out, err = xclp("check", north)
    assert code == 2
    lines = " ".join(err.split())
    for words in (
        "[parameters]: unknown field 'alfa'",
        "[parameters]: k must be at least 1, got 0",
        "[parameters]: alpha must be strictly between 0 and 1, got 2.0",
        "gone.key",
        "results is a file",
        "column 'age': 2 cells empty (rows 'p2', 'p4')",
        "column 'bmi': 1 cell not a number (row 'p2')",
        "column 'ward': 1 cell not finite (row 'p2')",
        "column 'bmi': 1 cell with a comma between thousands or before decimals (row 'p3')",
    ):
        assert words in lines
    assert "9 problems in" in out  # what is a class is not known yet
    change(north, "k = 0\nalfa = 0.5\nalpha = 2.0", "")
    found = check_client(north).problems
    assert len(found) == 7
    words = "'flue' (rows 'p2', 'p4') is none of the classes 'flu', 'cold'; did you mean 'flu'?"
    assert found[-1].endswith(words)
    change(north, '["flu", "cold"]', '["flu", "?"]')
    assert "the classes '?' look like missing ones" in check_client(north).cautions[-1]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "north"', 'name = "nort"', "did you mean 'north'"),
        ('server = "localhost:7777"', 'server = "localhost"', "server must be HOST:PORT"),
        ('label_column = "diagnosis"', 'label_column = "diagnose"', "did you mean 'diagnosis'"),
        ('id_column = "patient"', 'id_column = "ward"', "ids must be unique"),
        ("[parameters]", 'columns = ["age", "bmi"]\n[parameters]', "extra 'ward'"),
        ("north.identity", "south.identity", "identit"),
        ("north.csv", "nort.csv", "there is no file"),
    ],
)
def test_each_mistake_is_a_problem(north: Path, old: str, new: str, words: str) -> None:
    change(north, old, new)
    (problem,) = check_client(north).problems
    assert words in problem


def test_a_federation_file_is_checked_by_plan(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text('[clients.a]\nfeatures = "a.csv"')
    (problem,) = check_client(file).problems
    assert "is a federation file, with the data of all clients: xclp plan checks it" in problem


def test_the_certificate_is_the_clients_own(north: Path) -> None:
    for file in ("north.pem", "north.key"):
        change(north, file, file.replace("north", "south"))
    (problem,) = check_client(north).problems
    assert "south.pem is the certificate of 'south', and this client is 'north'" in problem


def test_a_certificate_of_another_authority_is_a_caution(north: Path) -> None:
    make_authority(north.parent / "other", ["north"], ["localhost"])
    for kind, file in (("certificate", "north.pem"), ("key", "north.key")):
        change(north, f'{kind} = "', f'{kind} = "other/{file}" # "')
    found = check_client(north)
    assert found.problems == []
    assert "other/north.pem is of no authority in " in found.cautions[0]


def test_columns_are_matched_by_name(north: Path) -> None:
    given = load_client_file(north).load()[1]
    assert given.columns == ("age", "bmi", "ward")
    file = north.parent / "north.csv"
    rows = [line.split(",") for line in TABLE.splitlines()]
    file.write_text("\n".join(",".join(row[i] for i in (4, 0, 3, 1, 2)) for row in rows))
    same = load_client_file(north).load()[1]
    assert same.columns == given.columns
    assert (same.vectors == given.vectors).all()
    file.write_text(TABLE)
    change(north, "[parameters]", 'columns = ["bmi", "age"]\n[parameters]')
    change(north, "id_column", 'feature_columns = ["age", "bmi"]\nid_column')
    assert "2 features: 'bmi', 'age'" in check_client(north).facts[1]
    loaded = load_client_file(north).load()[1]
    assert (loaded.vectors[0].tolist(), loaded.columns) == ([20.5, 50.0], ())
    change(north, '["age", "bmi"]', '["age", "ward"]')
    (problem,) = check_client(north).problems
    assert (
        "not those of the agreement: missing 'bmi' and extra 'ward'; name them alike, or mark"
    ) in problem


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        (np.array([[1.0, np.nan]]), np.array(["flu"]), "is nan"),
        (np.ones((2, 2)), np.array(["flu"]), "2 rows and"),
        (np.ones(3), np.array(["flu"] * 3), "matrix"),
        (np.ones((2, 2)), np.array(["flu", "measles"]), "'measles' (row 1 (counted from 0))"),
    ],
)
def test_arrays_too(north: Path, features: object, labels: object, words: str) -> None:
    np.save(north.parent / "x.npy", np.asarray(features))
    np.save(north.parent / "y.npy", np.asarray(labels))
    change(north, 'features = "north.csv"', 'features = "x.npy"\nlabels = "y.npy"')
    change(north, 'id_column = "patient"\nlabel_column = "diagnosis"\n', "")
    (problem,) = check_client(north).problems
    assert words in problem
    np.save(north.parent / "x.npy", np.ones((2, 2)))
    np.save(north.parent / "y.npy", np.array(["flu", "cold"]))
    found = check_client(north)
    assert found.problems == []
    assert "labels are those of y.npy by position, which nothing can check" in found.facts[-2]


def test_cells_are_those_of_the_schema(north: Path) -> None:
    schema = """[schema]
ward = {kind = "categories", values = [7, 8]}
age = {kind = "number"}
bmi = {kind = "number"}
[parameters]"""
    before = load_client_file(north).agreement()
    change(north, "[parameters]", schema)
    assert check_client(north).facts[1].endswith("4 features: 'ward = 7', 'ward = 8', 'age', 'bmi'")
    assert load_client_file(north).agreement().encode() != before.encode()
    change(north.parent / "north.csv", "p2,,61,24.0,7", "p2,,61,24.0,9")
    (problem,) = check_client(north).problems
    assert problem.endswith("column 'ward': 1 cell none of the declared values (row 'p2')")
    change(north, "clients =", 'columns = ["ward"]\nclients =')
    assert any("a schema names the columns" in told for told in check_client(north).problems)


def test_rows_that_come_later_are_read_too_and_may_be_all_that_there_is(north: Path) -> None:
    (north.parent / "new.csv").write_text(TABLE)
    change(north, 'features = "north.csv"', 'new_features = "new.csv"')
    found = check_client(north)
    assert found.problems == []
    assert found.facts[-1].startswith("new rows: ")
    assert found.facts[-1].endswith("new.csv: 10 rows, 3 features: 'age', 'bmi', 'ward'")
    change(north, 'new_features = "', 'features = "north.csv"\nnew_features = "no-')
    found = check_client(north)
    assert ["there is no file" in problem for problem in found.problems] == [True]
    assert any("2 of 10 rows labelled" in fact for fact in found.facts)
