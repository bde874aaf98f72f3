from __future__ import annotations

import csv
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from command_lines import change as changed
from command_lines import content_of
from pyarrow import parquet

from xclp_crypto.errors import DataError, ParameterError, StorageError, XclpError
from xclp_crypto.privacy import RandomizedResponse
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.files import results
from xclp_lp.files.federation import FederationFile, load_federation
from xclp_lp.files.results import require_writable, write_results
from xclp_lp.labels import UNLABELLED
from xclp_lp.parameters import Arguments
from xclp_lp.plan import Result

PARAMETERS = "[parameters]\nn_bits = 64\nk = 2\nalpha = 0.9\nrandom_state = 0\n"


def arrays() -> tuple[list[Any], list[Any]]:
    """Three clients with the classes 3 and 5, two labels each."""
    rng = np.random.default_rng(0)
    Xs, ys = [], []
    for n in (6, 4, 5):
        y = rng.integers(0, 2, n)
        x = 2 * np.eye(2)[y] @ rng.standard_normal((2, 3)) + rng.standard_normal((n, 3))
        Xs.append(x.round(3))
        ys.append(np.where(np.arange(n) < 2, 3 + 2 * y, -1))
    ys[0][:2] = [3, 5]
    return Xs, ys


def write_csv(path: Path, columns: dict[str, list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def columns_of(x: Any) -> dict[str, list[Any]]:
    return {f"f{i}": x[:, i].tolist() for i in range(x.shape[1])}


def blank(y: Any, value: Any) -> list[Any]:
    return [value if v == -1 else v for v in y.tolist()]


def as_csv(folder: Path, name: str, x: Any, y: Any) -> str:
    write_csv(folder / f"{name}.csv", {"label": blank(y, ""), **columns_of(x)})
    return f'features = "{name}.csv"\nlabel_column = "label"'


def as_two_csv(folder: Path, name: str, x: Any, y: Any) -> str:
    write_csv(folder / f"{name}.csv", columns_of(x))
    write_csv(folder / f"{name}_y.csv", {"label": y.tolist()})
    return f'features = "{name}.csv"\nlabels = "{name}_y.csv"'


def as_csv_with_single_column(folder: Path, name: str, x: Any, y: Any) -> str:
    write_csv(folder / f"{name}.csv", columns_of(x))
    lines = ["label", *("" if v == -1 else str(v) for v in y.tolist())]
    (folder / f"{name}_y.csv").write_text("\n".join(lines) + "\n")
    return f'features = "{name}.csv"\nlabels = "{name}_y.csv"'


def as_npy(folder: Path, name: str, x: Any, y: Any) -> str:
    np.save(folder / f"{name}.npy", x)
    np.save(folder / f"{name}_y.npy", y)
    return f'features = "{name}.npy"\nlabels = "{name}_y.npy"'


def as_npz(folder: Path, name: str, x: Any, y: Any) -> str:
    np.savez(folder / f"{name}.npz", x=x, y=y)
    return f'features = "{name}.npz"\nfeatures_array = "x"\nlabels_array = "y"'


def as_two_npz(folder: Path, name: str, x: Any, y: Any) -> str:
    np.savez(folder / f"{name}.npz", x=x)
    np.savez(folder / f"{name}_y.npz", y=y, z=x)
    return f'features = "{name}.npz"\nlabels = "{name}_y.npz"\nlabels_array = "y"'


def as_parquet(folder: Path, name: str, x: Any, y: Any) -> str:
    columns = {"label": blank(y, None), **columns_of(x)}
    parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
    return f'features = "{name}.parquet"\nlabel_column = "label"'


def as_parquet_and_npy(folder: Path, name: str, x: Any, y: Any) -> str:
    parquet.write_table(pa.table(columns_of(x)), folder / f"{name}.parquet")
    np.save(folder / f"{name}_y.npy", y.astype(np.int16))
    return f'features = "{name}.parquet"\nlabels = "{name}_y.npy"'


FORMATS = {
    f.__name__[3:]: f
    for f in (
        as_csv,
        as_two_csv,
        as_csv_with_single_column,
        as_npy,
        as_npz,
        as_two_npz,
        as_parquet,
        as_parquet_and_npy,
    )
}
NAMES = ("north", "south", "east")


def write_federation(folder: Path, formats: list[Callable[..., str]], top: str = "") -> Path:
    Xs, ys = arrays()
    sections = [
        f"[clients.{name}]\n{save(folder, name, x, y)}\n"
        for name, save, x, y in zip(NAMES, formats, Xs, ys, strict=True)
    ]
    path = folder / "federation.toml"
    path.write_text("\n".join([top, PARAMETERS, *sections]))
    return path


def ran(federation: FederationFile) -> Result:
    return federation.plan().run()


def with_ids(path: Path, ids: list[str], column: str = "tree", label: str = "label") -> None:
    """Give north's table, of `as_csv`, a column of ids, and its labels another name."""
    Xs, ys = arrays()
    columns = {column: ids, label: blank(ys[0], ""), **columns_of(Xs[0])}
    write_csv(path.parent / "north.csv", columns)
    new = f'label_column = "{label}"\nid_column = "{column}"'
    path.write_text(path.read_text().replace('label_column = "label"', new, 1))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# All formats


@cache
def fitted() -> CrossClientLabelPropagation:
    """What comes of the arrays themselves."""
    return CrossClientLabelPropagation(64, 2, 0.9, random_state=0).fit(*arrays())


def mixtures() -> list[Any]:
    names = list(FORMATS)
    same = [[name] * 3 for name in names]
    mixed = [[names[(i + s) % len(names)] for s in (0, 3, 5)] for i in range(len(names))]
    return [pytest.param([FORMATS[n] for n in m], id="-".join(m)) for m in same + mixed]


@pytest.mark.parametrize("formats", mixtures())
def test_all_formats_and_mixtures_give_the_same(
    tmp_path: Path, formats: list[Callable[..., str]]
) -> None:
    Xs, reference = arrays()[0], fitted()
    loaded = load_federation(write_federation(tmp_path, formats))
    assert loaded.output == tmp_path / "results"
    assert tuple(c.name for c in loaded.clients) == NAMES
    for c, x in zip(loaded.clients, Xs, strict=True):
        assert np.array_equal(c.features, x)
        assert c.ids == list(range(len(x)))
    result = ran(loaded)
    assert result.plan.params.classes == (3, 5)
    assert tuple(result.predictions) == NAMES
    for j, name in enumerate(NAMES):
        assert result.labels(name).tolist() == reference.transduction_[j].tolist()
        assert np.array_equal(result.predictions[name].confidence, reference.confidence_[j])


def test_one_client_with_text_keeps_all_classes_text(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_two_csv, as_csv])
    loaded = load_federation(path)
    assert loaded.clients[0].labels == [3, 5, None, None, None, None]
    assert loaded.clients[1].labels[2:] == [-1, -1]
    write_csv(
        tmp_path / "east.csv", {"label": ["cat", "", "", "", ""], **columns_of(arrays()[0][2])}
    )
    loaded = load_federation(path)
    assert loaded.clients[0].labels == ["3", "5", None, None, None, None]
    assert loaded.clients[1].labels[2:] == ["-1", "-1"]  # beside text, a class like any other
    with pytest.warns(UserWarning, match="client 'south': the labels '-1' look like missing ones"):
        assert ran(loaded).plan.params.classes == ("-1", "3", "5", "cat")


def test_text_in_csv_and_integers_in_an_array_are_one_class(tmp_path: Path) -> None:
    loaded = load_federation(write_federation(tmp_path, [as_csv, as_npy, as_parquet]))
    assert loaded.clients[0].labels[0] == 3
    assert ran(loaded).plan.params.classes == (3, 5)


def test_labels_are_the_same_in_every_kind_of_file(tmp_path: Path) -> None:
    """Beyond 2^53, beside a file of small floats; then booleans, which .csv files have as text."""
    path = write_federation(tmp_path, [as_parquet, as_csv, as_npy])
    large = [2**64 - 1, 2**64 - 2]
    for known, kind, others in (
        (large, "uint64", [7.0, np.nan]),
        ([True, False], "bool", [True, False]),
    ):
        Xs, ys = arrays()
        column = pa.array([None, *known, *[None] * (len(ys[0]) - 3)], kind)
        table = pa.table({"label": column, **columns_of(Xs[0])})
        parquet.write_table(table, tmp_path / "north.parquet")
        texts = [*map(str, known), *[""] * (len(ys[1]) - 2)]
        write_csv(tmp_path / "south.csv", {"label": texts, **columns_of(Xs[1])})
        np.save(tmp_path / "east_y.npy", np.resize(others, len(ys[2])))
        classes = ran(load_federation(path)).plan.params.classes
        assert classes == ((7, *sorted(large)) if known is large else (False, True))
        assert {type(c) for c in classes} == {type(known[0])}


def test_text_in_arrays_means_text(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_npy, as_csv])
    np.save(tmp_path / "south_y.npy", np.array(["3", "5", "5", "3"]))
    assert ran(load_federation(path)).plan.params.classes == ("3", "5")


def test_byte_order_mark_quotes_and_columns(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_npy, as_npy, as_npy])
    Xs, ys = arrays()
    plain = [c.features for c in load_federation(path).clients]
    columns = {
        'the "name", quoted': [f'row "{i}", here' for i in range(6)],
        "note": ["not a number\nat all"] * 6,
        **columns_of(Xs[0]),
        "grün": blank(ys[0], ""),
    }
    write_csv(tmp_path / "north.csv", columns)
    content = (tmp_path / "north.csv").read_bytes()
    (tmp_path / "north.csv").write_bytes(b"\xef\xbb\xbf" + content)
    text = path.read_text().replace(
        'features = "north.npy"\nlabels = "north_y.npy"',
        'features = "north.csv"\nlabel_column = "grün"\n'
        'id_column = "the \\"name\\", quoted"\nfeature_columns = ["f2", "f0", "f1"]',
    )
    path.write_text(text, encoding="utf-8")
    loaded = load_federation(path)
    north = loaded.clients[0]
    assert north.ids == [f'row "{i}", here' for i in range(6)]
    assert np.array_equal(north.features, plain[0][:, [2, 0, 1]])
    assert north.labels == blank(ys[0], None)


def test_clients_without_labels_or_rows(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_csv, as_npy])
    text = path.read_text().replace('\nlabels = "east_y.npy"', "")
    path.write_text(text + '\n[clients.empty]\nfeatures = "empty.csv"\nlabel_column = "label"\n')
    write_csv(tmp_path / "empty.csv", {"f1": [], "label": [], "f2": [], "f0": []})
    with pytest.warns(UserWarning, match=r"^client 'empty': .*empty.csv has no rows$"):
        loaded = load_federation(path)
    assert loaded.clients[2].labels == [None] * 5
    assert loaded.clients[3].features.shape == (0, 3)
    result = ran(loaded)
    write_results(loaded, result)
    assert rows_of(tmp_path / "results" / "empty.csv") == []
    assert len(rows_of(tmp_path / "results" / "east.csv")) == 5


def test_parameters_and_names_reach_the_estimator(tmp_path: Path) -> None:
    """That each parameter of a file does is in `test_parameters`."""
    path = write_federation(tmp_path, [as_npy] * 3)
    text = "gamma = 2.0\nclasses = [5, 3]\n"
    path.write_text(path.read_text().replace("k = 2\n", "k = 2\n" + text))
    given = {"n_bits": 64, "k": 2, "alpha": 0.9, "random_state": 0, "gamma": 2.0}
    given |= {"classes": [5, 3]}
    given |= {"class_weight": "sqrt", "scale": "shared", "validation": "leave-one-out"}  # preset
    loaded = load_federation(path)
    assert loaded.arguments.keywords() == Arguments(**given).keywords()
    assert tuple(loaded.plan().data) == NAMES


PRIVATE = {"epsilon": "2.0", "delta": "1e-6", "noise_contributors": "2"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": None}, ["[parameters.privacy]: epsilon is missing"]),
        ({"noise_contributors": None}, ["noise_contributors is missing"]),
        ({"epsilon": "0"}, ["[parameters.privacy]: epsilon must be in (0, 700], got 0.0"]),
        ({"epsilon": '"2"'}, ["[parameters.privacy]: epsilon must be a number, got '2'"]),
        ({"delta": "1"}, ["delta must be strictly between 0 and 1, got 1.0"]),
        ({"noise_contributors": "1.5"}, ["noise_contributors must be an integer", "1.5"]),
        ({"epsilom": "1"}, ["unknown field 'epsilom'", "did you mean 'epsilon'?"]),
    ],
)
def test_a_section_of_privacy_that_cannot_be_used(
    tmp_path: Path, change: dict[str, str | None], words: list[str]
) -> None:
    path = write_federation(tmp_path, [as_npy] * 3)
    fields = {k: v for k, v in (PRIVATE | change).items() if v is not None}
    section = "".join(f"{k} = {v}\n" for k, v in fields.items())
    text = path.read_text()
    path.write_text(text.replace("[clients.", f"[parameters.privacy]\n{section}\n[clients.", 1))
    with pytest.raises(ParameterError) as caught:
        load_federation(path)
    assert all(word in str(caught.value) for word in words), caught.value
    assert str(path) in str(caught.value)
    path.write_text(text.replace("k = 2\n", "k = 2\nprivacy = 3\n"))
    with pytest.raises(ParameterError, match=r"\[parameters.privacy\] must be a section, got 3"):
        load_federation(path)


def test_epsilon_alone_asks_for_randomised_labels(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_npy] * 3)
    section = "[parameters.privacy]\nepsilon = 3\n\n"
    path.write_text(path.read_text().replace("[clients.", section + "[clients.", 1))
    assert load_federation(path).arguments.privacy == RandomizedResponse(3.0)
    path.write_text(path.read_text().replace("epsilon = 3", "epsilon = 0"))
    with pytest.raises(ParameterError, match=r"\[parameters.privacy\]: epsilon must be in"):
        load_federation(path)


def test_a_federation_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_npy] * 3)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(load_federation(path).clients) == 3


def test_text_with_point_zero_is_the_same_class(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_csv, as_csv])
    y = arrays()[1][1]
    points = ["" if v == -1 else f"{v}.0" for v in y.tolist()]
    write_csv(tmp_path / "south.csv", {"label": points, **columns_of(arrays()[0][1])})
    loaded = load_federation(path)
    assert loaded.clients[1].labels == blank(y, None)
    assert ran(loaded).plan.params.classes == (3, 5)


# Columns by name


def shuffled(save: Callable[..., str], order: list[str]) -> Callable[..., str]:
    """Write the same columns in another order, and the labels somewhere between them."""

    def write(folder: Path, name: str, x: Any, y: Any) -> str:
        section = save(folder, name, x, y)
        columns = columns_of(x) | {"label": blank(y, "" if save is as_csv else None)}
        columns = {c: columns[c] for c in order}
        if save is as_csv:
            write_csv(folder / f"{name}.csv", columns)
        else:
            parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
        return section

    return write


def test_columns_are_matched_by_name_across_clients(tmp_path: Path) -> None:
    Xs, ys = arrays()
    reference = CrossClientLabelPropagation(64, 2, 0.9, random_state=0).fit(Xs, ys)
    formats = [
        as_csv,
        shuffled(as_csv, ["f2", "f0", "label", "f1"]),
        shuffled(as_parquet, ["f1", "label", "f2", "f0"]),
    ]
    loaded = load_federation(write_federation(tmp_path, formats))
    for client, x in zip(loaded.clients, Xs, strict=True):
        assert client.columns == ("f0", "f1", "f2")
        assert np.array_equal(client.features, x)
    result = ran(loaded)
    for j in range(3):
        assert result.labels(NAMES[j]).tolist() == reference.transduction_[j].tolist()


def test_the_first_table_gives_the_order_of_columns(tmp_path: Path) -> None:
    orders = (["f2", "f0", "label", "f1"], ["f1", "f0", "f2", "label"])
    formats = [as_npy, *(shuffled(as_csv, order) for order in orders)]
    path = write_federation(tmp_path, formats)
    loaded = load_federation(path)
    assert [c.columns for c in loaded.clients] == [None, ("f2", "f0", "f1"), ("f2", "f0", "f1")]
    changed("[clients.east]", '[clients.east]\nfeature_columns = ["f0", "f1", "f2"]')(path)
    assert load_federation(path).clients[2].columns == ("f2", "f0", "f1")
    changed("[clients.south]", '[clients.south]\nfeature_columns = ["f1", "f2", "f0"]')(path)
    assert [c.columns for c in load_federation(path).clients[1:]] == [("f1", "f2", "f0")] * 2


def test_listed_columns_may_have_other_names(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_csv, as_npy])
    x, y = arrays()[0][1], arrays()[1][1]
    write_csv(
        tmp_path / "south.csv", {"label": blank(y, ""), "c": x[:, 2], "a": x[:, 0], "b": x[:, 1]}
    )
    with pytest.raises(
        DataError,
        match=r"client 'south': the feature columns of .*south.csv are not those of client "
        "'north': missing 'f0', 'f1', 'f2' and extra 'c', 'a', 'b'; name them alike",
    ):
        load_federation(path)
    changed("[clients.south]", '[clients.south]\nfeature_columns = ["a", "b", "c"]')(path)
    assert np.array_equal(load_federation(path).clients[1].features, x)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_like_a_row_number_is_warned_of(tmp_path: Path, suffix: str) -> None:
    path = write_federation(tmp_path, [as_npy] * 3)
    x = arrays()[0][0]
    columns = {"record": [7 + i for i in range(6)], "f0": x[:, 0].tolist(), "f1": x[:, 1].tolist()}
    if suffix == "csv":
        write_csv(tmp_path / "north.csv", columns)
    else:
        parquet.write_table(pa.table(columns), tmp_path / "north.parquet")
    changed("north.npy", f"north.{suffix}")(path)
    with pytest.warns(
        UserWarning, match=r"client 'north': column 'record' counts .* id_column = \"record\"$"
    ) as caught:
        assert load_federation(path).clients[0].features.shape == (6, 3)
    assert len(caught) == 1
    changed("[clients.north]", '[clients.north]\nfeature_columns = ["record", "f0", "f1"]')(path)
    assert load_federation(path).clients[0].features.shape == (6, 3)  # it is meant
    changed('feature_columns = ["record", "f0", "f1"]', 'id_column = "f0"')(path)
    with pytest.warns(UserWarning, match=r"if it is none, delete it or list feature_columns$"):
        load_federation(path)
    changed('id_column = "f0"', 'id_column = "record"')(path)
    assert load_federation(path).clients[0].features.shape == (6, 2)


def test_rows_are_called_by_their_ids_or_numbers_from_1(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_csv, as_npy])
    with_ids(path, list("abcdef"))
    north, south, east = load_federation(path).clients
    assert north.row_names == ["'a'", "'b'", "'c'", "'d'", "'e'", "'f'"]
    assert south.row_names == ["1", "2", "3", "4"]
    assert east.row_names is None


# Labels by id


@pytest.fixture
def two_tables(tmp_path: Path) -> Path:
    """North has ids in both tables; the labels are in another order and fewer."""
    path = write_federation(tmp_path, [as_npy] * 3)
    write_csv(tmp_path / "x.csv", {"id": list("abcdef"), **columns_of(arrays()[0][0])})
    write_csv(tmp_path / "y.csv", {"id": ["f", "b", "a"], "digit": [5, 3, ""]})
    changed(
        'features = "north.npy"\nlabels = "north_y.npy"',
        'features = "x.csv"\nlabels = "y.csv"\nid_column = "id"',
    )(path)
    return path


@pytest.mark.parametrize("label_column", ["", 'label_column = "digit"\n'])
def test_a_table_of_labels_is_joined_by_id(two_tables: Path, label_column: str) -> None:
    changed('id_column = "id"\n', f'id_column = "id"\n{label_column}')(two_tables)
    x = two_tables.parent / "x.csv"
    right = x.read_text()
    x.write_text(right.replace("b,", "b,?", 1))
    with pytest.raises(DataError, match="row 'b', column 'f0' of"):
        load_federation(two_tables)
    x.write_text(right)
    north = load_federation(two_tables).clients[0]
    assert north.ids == list("abcdef")
    assert north.labels == [None, 3, None, None, None, 5]
    assert np.array_equal(north.features, arrays()[0][0])


def test_ids_in_a_parquet_file_join_those_in_a_csv_file(two_tables: Path) -> None:
    folder = two_tables.parent
    write_csv(folder / "x.csv", {"id": range(6), **columns_of(arrays()[0][0])})
    table = pa.table({"id": [4, 0], "digit": [3, 5]})
    parquet.write_table(table, folder / "y.parquet")
    changed("y.csv", "y.parquet")(two_tables)
    assert load_federation(two_tables).clients[0].labels == [5, None, None, None, 3, None]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("a,x", "row 2 of .*y.csv has the id 'x', which no row of .*x.csv has"),
        ("a,a", "rows 1 and 2 of .*y.csv have the same id 'a'"),
    ],
)
def test_ids_that_do_not_fit(two_tables: Path, ids: str, message: str) -> None:
    write_csv(two_tables.parent / "y.csv", {"id": ids.split(","), "digit": [3, 5]})
    with pytest.raises(DataError, match=f"client 'north': {message}"):
        load_federation(two_tables)


@pytest.mark.filterwarnings("ignore:.* has no ids")
def test_without_the_id_column_labels_are_joined_by_position(two_tables: Path) -> None:
    labels = two_tables.parent / "y.csv"
    labels.write_text("digit\n3\n\n5\n\n\n\n\n\n")  # two lines too many, all blank
    with pytest.warns(
        UserWarning, match="'north': .*y.csv has no ids, so its labels are taken in the"
    ):
        assert load_federation(two_tables).clients[0].labels == [3, None, 5, None, None, None]
    for wrong in ("digit\n3\n", "digit\n3\n\n\n\n\n\n\n5\n"):
        labels.write_text(wrong)
        with pytest.raises(
            DataError,
            match=r"client 'north': .*x.csv has 6 rows and .*y.csv has . labels?, which are joined "
            "by position; .* id_column",
        ):
            load_federation(two_tables)
    write_csv(labels, {"digit": [3] + [""] * 7, "note": [""] * 8})
    changed('id_column = "id"', 'id_column = "id"\nlabel_column = "digit"')(two_tables)
    with pytest.raises(DataError, match=r"client 'north': .*y.csv has no column 'id' to join"):
        load_federation(two_tables)
    changed('id_column = "id"\n', 'feature_columns = ["f0", "f1", "f2"]\n')(two_tables)
    with pytest.raises(DataError, match=r"has 8 labels, which are joined by position"):
        load_federation(two_tables)


def test_labels_with_an_id_column_of_another_name_are_not_joined_by_position(
    two_tables: Path,
) -> None:
    write_csv(two_tables.parent / "y.csv", {"patient": list("fedcba"), "digit": [5, 3, 5, 3, 5, 3]})
    changed('id_column = "id"', 'id_column = "id"\nlabel_column = "digit"')(two_tables)
    with pytest.raises(DataError, match=r"no column 'id' to join its labels by; rename"):
        load_federation(two_tables)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            "abcadf",
            "rows 1 and 4 of .*north.csv have the same id 'a'; rows are told apart by id_co",
        ),
        ("abc ef", "row 4 of .*north.csv has no id; rows are told apart by id_column"),
    ],
)
def test_ids_of_one_table_must_tell_rows_apart(tmp_path: Path, ids: str, message: str) -> None:
    path = write_federation(tmp_path, [as_csv, as_npy, as_npy])
    with_ids(path, list(ids))
    with pytest.raises(DataError, match=f"client 'north': {message}"):
        load_federation(path)


def test_two_clients_cannot_have_one_file_of_features(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_csv, as_npz])
    (tmp_path / "again.csv").symlink_to("north.csv")
    changed("south.csv", "again.csv")(path)
    with pytest.raises(
        ParameterError,
        match=r"clients 'north' and 'south' have the same features, .*again.csv; give",
    ):
        load_federation(path)
    Xs, ys = arrays()
    np.savez(tmp_path / "all.npz", **{f"x{i}": x for i, x in enumerate(Xs)}, y0=ys[0])
    sections = [
        f'[clients.{name}]\nfeatures = "all.npz"\nfeatures_array = "x{i}"\n'
        for i, name in enumerate(NAMES)
    ]
    sections[0] += 'labels_array = "y0"\n'
    path.write_text("\n".join([PARAMETERS, *sections]))
    assert [len(c.features) for c in load_federation(path).clients] == [6, 4, 5]


# What cannot be read


def rewritten(file: str, content: str) -> Callable[[Path], None]:
    return lambda path: (path.parent / file).write_text(content) and None


def removed(file: str) -> Callable[[Path], None]:
    return lambda path: (path.parent / file).unlink()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("k = 2", "hamming = plain",
         r"Invalid value \(at line 4, .*; text needs quotes, as in hamming = \"plain\"$"),
        ("k = 2", "k = 2 3",
         r"Expected newline or end of document after a statement \(at line 4, column 7\)$"),
        ("[parameters]", "[[parameters]]", r"\[parameters\] must be a section, got"),
        ("[parameters]", "[parametres]",
         r"unknown field 'parametres'; .*; did you mean 'parameters'\?$"),
        ("n_bits = 64", "nbits = 64", r"unknown field 'nbits'; .*; did you mean 'n_bits'\?$"),
        ("[parameters]", "min_confidence = 0.8\n[parameters]",
         r"unknown field 'min_confidence'; it belongs under \[parameters\]$"),
        ("[parameters]", 'epsilon = 3.0\nlabels = "x"\n[parameters]',
         r"'epsilon'; it .* \[parameters.privacy\].*'labels'; it .* \[clients.NAME\]$"),
        ("k = 2", "kk = 2", r"\[parameters\]: unknown field 'kk'; the"),
        ("k = 2", 'k = 2\nclass_weight = "even"',
         r"^/.*/federation.toml, \[parameters\]: class_weight must be .*, got 'even'$"),
        ("k = 2", "k = 2\nthreshold = 1",
         r"^/.*/federation.toml, \[parameters\]: threshold must be at least 2, got 1$"),
        ("[parameters]", 'client_names = "x"\n[parameters]',
         "unknown field 'client_names'; the fields are parameters, clients, schema, output"),
        ("[parameters]", "output = 3\n[parameters]", "folder, got 3"),
        ("[parameters]", 'output = ""\n[parameters]', "folder, got ''"),
        ("[clients.south]", "[clients.north]", "federation.toml: .*north"),
        ("label_column", "labels_column",
         r"\[clients.north\]: unknown field 'labels_column'; .*; did you mean 'label_column'"),
        ('features = "north.csv"', "", r"\[clients.north\]: features is missing; name the file"),
        ('features = "north.csv"', "features = 7",
         r"\[clients.north\]: features must be text, got 7"),
        ('features = "north.csv"', 'features = "north.csv"\nfeature_columns = "f0"',
         r"\[clients.north\]: feature_columns must be a list of names, got 'f0'"),
        ('labels = "south_y.npy"', 'id_column = "x"',
         r"\[clients.south\]: id_column needs a .csv, .parquet or .xlsx file"),
        ('labels = "south_y.npy"', 'label_column = "x"',
         r"\[clients.south\]: label_column needs a .csv, .parquet or .xlsx file"),
        ('labels = "south_y.npy"', 'truth_column = "x"',
         r"\[clients.south\]: truth_column needs a .csv, .parquet or .xlsx file"),
    ],
)  # fmt: skip
def test_a_federation_file_with_a_mistake(tmp_path: Path, old: str, new: str, message: str) -> None:
    _refused(tmp_path, changed(old, new), ParameterError, message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('features = "north.csv"', 'features = "north.csv"\nfeature_columns = ["f9"]',
         "client 'north': .*north.csv has no column 'f9'; its columns are 'label', 'f0'"),
        ('features = "north.csv"', 'features = "gone.csv"',
         "client 'north': there is no file .*gone.csv"),
        ('features = "north.csv"', 'features = "federation.toml"',
         "client 'north': .*federation.toml is none of the kinds that can be read"),
        ('features = "north.csv"', 'features = "north.csv"\nid_column = "name"',
         "client 'north': .*north.csv has no column 'name'"),
        ('label_column = "label"', 'label_column = "digit"',
         "client 'north': .*north.csv has no column 'digit'; its .* 'label', 'f0', 'f1', 'f2'$"),
        ('label_column = "label"', 'label_column = "label"\ntruth_column = "f9"',
         "client 'north': .*north.csv has no column 'f9'"),
        ('labels_array = "y"', 'labels_array = "z"',
         "client 'east': .*east.npz holds the arrays x, y; choose one with labels_array"),
        ('features_array = "x"', "",
         "client 'east': .*east.npz holds the arrays x, y; choose one with features_array"),
        ('labels = "south_y.npy"', 'labels = "north.csv"',
         "client 'south': say which column .*north.csv holds the labels: label_column"),
    ],
)  # fmt: skip
def test_data_that_a_federation_file_does_not_fit(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    _refused(tmp_path, changed(old, new), DataError, message)


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda p: p.unlink(), ParameterError, "there is no file .*federation.toml"),
        (lambda p: p.unlink() or p.mkdir(), ParameterError, "federation.toml is a folder"),
        (lambda p: p.write_bytes(b"\xff"), ParameterError,
         "federation.toml is not encoded in UTF-8; save it as UTF-8"),
        (lambda p: p.write_text("k = "), ParameterError,
         "federation.toml: Invalid value .at end of document"),
        (rewritten("south.npy", ""), DataError, "client 'south': .*south.npy is empty$"),
        (lambda p: p.write_text(""), ParameterError, r"no section \[clients.NAME\]"),
        (lambda p: p.write_text("clients = 3"), ParameterError, "clients must be a section, got 3"),
        (removed("south_y.npy"), DataError, "client 'south': there is no file .*south_y.npy"),
        (rewritten("north.csv", "label,f0,f1,f2\n3,1,2,x\n"), DataError,
         "client 'north': row 1, column 'f2' of .*north.csv is 'x', which is not a number"),
        (rewritten("north.csv", "label,f0,f1,f2\n3,1,2,3\n3,1,,3\n"), DataError,
         "client 'north': row 2, column 'f1' of .*north.csv is empty"),
        (rewritten("north.csv", "label,f0,f0,f2\n3,1,2,3\n"), DataError,
         "client 'north': .*north.csv names the column 'f0' twice"),
        (rewritten("north.csv", "label,f0,f1,f2\n3,1,2\n"), DataError,
         "client 'north': row 1 of .*north.csv has 3 fields; the header has 4"),
        (rewritten("north.csv", "label\n3\n"), DataError,
         "client 'north': .*north.csv has no feature columns"),
        (rewritten("north.csv", "label,f0,f1,f2\n3,1,2,nan\n"), DataError,
         "client 'north': row 1, column 'f2' of .*north.csv is empty .'nan'."),
        (lambda p: np.save(p.parent / "south_y.npy", np.zeros(3)), DataError,
         "client 'south': .*south.npy has 4 rows and .*south_y.npy has 3 labels, which are join"),
        (rewritten("south.npy", "x"), DataError, "client 'south': .*south.npy cannot be read"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(
    tmp_path: Path, spoil: Callable[[Path], None], error: type[XclpError], message: str
) -> None:
    _refused(tmp_path, spoil, error, message)


def _refused(
    folder: Path, spoil: Callable[[Path], None], error: type[XclpError], message: str
) -> None:
    path = write_federation(folder, [as_csv, as_npy, as_npz])
    spoil(path)
    with pytest.raises(error, match=message) as caught:
        load_federation(path)
    assert "\n" not in str(caught.value)


def test_without_any_label_it_is_said_where_there_is_none(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_npy, as_npy])
    for labels in ('labels = "south_y.npy"', 'labels = "east_y.npy"'):
        changed(labels, "")(path)
    write_csv(tmp_path / "north.csv", {"label": [""] * 6, **columns_of(arrays()[0][0])})
    with pytest.raises(
        DataError,
        match=r"^no client has a label: column 'label' of .*north.csv is empty, or -1, in every",
    ):
        load_federation(path)
    changed('label_column = "label"', 'id_column = "label"')(path)
    write_csv(tmp_path / "north.csv", {"label": list("abcdef"), **columns_of(arrays()[0][0])})
    with pytest.raises(DataError, match="no client has a label: name them with label_column or"):
        load_federation(path)


UNSAFE = ["../north", "a/b", "a\\\\b", "c:north", ".hidden", "..", "", "a\\nb", "a\\u0000b"]
RESERVED = ["CON", "nul", "Aux.old", "prn", "COM1", "lpt9", "com0.x.y", "cost", "Cost"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "the name becomes the name of a file") for name in UNSAFE),
        *((name, f"so it cannot be '{name}'; choose another") for name in RESERVED),
    ],
)
def test_names_that_cannot_be_those_of_results(tmp_path: Path, name: str, message: str) -> None:
    path = write_federation(tmp_path, [as_csv, as_npy, as_npz])
    changed("[clients.north]", f'[clients."{name}"]')(path)
    with pytest.raises(ParameterError, match=message) as refusal:
        load_federation(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("one", "two"), [("north", "NORTH"), ("Straße", "STRASSE"), ("caf\u00e9", "cafe\u0301")]
)
def test_names_that_differ_only_by_case(tmp_path: Path, one: str, two: str) -> None:
    def rename(path: Path) -> None:
        changed("[clients.north]", f'[clients."{one}"]')(path)
        changed("[clients.south]", f'[clients."{two}"]')(path)

    message = f"{one}' and '{two}' become the name of one file"
    _refused(tmp_path, rename, ParameterError, message)


@pytest.mark.parametrize("name", ["Zürich 1", "a-b_c", "x.y", "客户", "console", "com", "costs"])
def test_other_names_are_fine(tmp_path: Path, name: str) -> None:
    path = write_federation(tmp_path, [as_csv, as_npy, as_npz])
    changed("[clients.north]", f'[clients."{name}"]')(path)
    loaded = load_federation(path)
    write_results(loaded, ran(loaded))
    assert (tmp_path / "results" / f"{name}.csv").is_file()


# Results


def test_results(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_csv, as_npy, as_npz], 'output = "deep/er/out"')
    _, ys = arrays()
    ids = ["ä", "b,c", 'd"e', "f\ng", "-", "=1+1"]
    with_ids(path, ids)
    loaded = load_federation(path)
    result = ran(loaded)
    result.predictions["east"].class_ids[1] = -1
    out = tmp_path / "deep" / "er" / "out"
    written = write_results(loaded, result)
    assert written == [out / f"{name}.csv" for name in NAMES] + [out / "cost.json"]
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in written)
    assert sorted(p.name for p in out.parent.iterdir()) == ["out"]  # no scratch left
    for j, name in enumerate(NAMES):
        rows = rows_of(out / f"{name}.csv")
        first = "id" if j else "tree"
        assert list(rows[0]) == [first, "label", "given", "confidence", "p(3)", "p(5)"]
        shown = [*ids[:-2], "'-", "'=1+1"]  # no formulas for a spreadsheet
        assert [r[first] for r in rows] == (shown if j == 0 else [str(i) for i in range(len(rows))])
        assert [r["given"] for r in rows] == [str(v) for v in blank(ys[j], "")]
        expected = ["" if v == -1 else str(v) for v in result.labels(name).tolist()]
        assert [r["label"] for r in rows] == expected
        found = result.predictions[name]
        assert np.allclose([float(r["confidence"]) for r in rows], found.confidence, atol=1e-6)
        p = [[float(r["p(3)"]), float(r["p(5)"])] for r in rows]
        assert np.allclose(p, found.distribution, atol=1e-6)
    assert rows_of(out / "east.csv")[1]["label"] == ""
    cost = json.loads((out / "cost.json").read_text())
    assert cost == {
        "contributors": list(NAMES),
        "dropouts": [],
        "contradictions": [],
        "warnings": [],
        "without_result": [],
        "validation": {"all": result.validations["all"].to_dict()},
        **json.loads(json.dumps(result.cost.to_dict())),
    }


@pytest.mark.parametrize("name", ["label", "given", "confidence", "p(5)"])
def test_an_id_column_with_the_name_of_another_column_is_called_id(
    tmp_path: Path, name: str
) -> None:
    path = write_federation(tmp_path, [as_csv, as_npy, as_npz])
    with_ids(path, list("abcdef"), name, "y")
    loaded = load_federation(path)
    write_results(loaded, ran(loaded))
    rows = rows_of(tmp_path / "results" / "north.csv")
    assert list(rows[0]) == ["id", "label", "given", "confidence", "p(3)", "p(5)"]
    assert [r["id"] for r in rows] == list("abcdef")


def test_unlabelled_rows_of_text_classes_are_empty_and_minus_one_is_a_class(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_npy] * 3)
    for name, y in zip(NAMES, arrays()[1], strict=True):
        np.save(tmp_path / f"{name}_y.npy", np.where(y == 3, "-1", "5"))
    loaded = load_federation(path)
    with pytest.warns(UserWarning, match="the labels '-1' look like missing ones"):
        result = ran(loaded)
    result.predictions["north"].class_ids[:] = [0, UNLABELLED, 1, 1, 1, 1]
    write_results(loaded, result)
    rows = rows_of(tmp_path / "results" / "north.csv")
    assert [r["label"] for r in rows] == ["-1", "", "5", "5", "5", "5"]


@pytest.fixture
def finished(tmp_path: Path) -> tuple[FederationFile, Result]:
    loaded = load_federation(write_federation(tmp_path, [as_csv, as_npy, as_npz]))
    return loaded, ran(loaded)


def kept_elsewhere(federation: FederationFile, result: Result, message: str) -> None:
    """Results that cannot be written where they should be are in a folder that is named."""
    with pytest.raises(StorageError, match=message) as caught:
        write_results(federation, result)
    found = re.search(r"they are in (.+) instead$", str(caught.value))
    assert found is not None
    assert sorted(file.name for file in Path(found[1]).iterdir()) == sorted(
        [*(f"{client.name}.csv" for client in federation.clients), "cost.json"]
    )
    shutil.rmtree(found[1])


def unwritable(federation: FederationFile, result: Result, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        require_writable(federation)
    kept_elsewhere(federation, result, message)


def test_existing_results_are_replaced(
    tmp_path: Path, finished: tuple[FederationFile, Result]
) -> None:
    out = tmp_path / "results"
    out.mkdir()
    (out / "north.csv").write_text("old")
    (out / "mine.txt").write_text("keep")
    write_results(*finished)
    first = content_of(out)
    assert first["mine.txt"] == b"keep"
    assert first["north.csv"].startswith(b"id,label")
    write_results(*finished)
    assert content_of(out) == first


def test_when_writing_fails_the_old_results_stand(
    tmp_path: Path, finished: tuple[FederationFile, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_results(*finished)
    before = content_of(tmp_path)
    original = results.write_table

    def full_disk(file: Path, client: Any, *rest: Any) -> None:
        if client.name == "east":
            file.write_text("half")
            raise OSError(28, "No space left on device")
        original(file, client, *rest)

    monkeypatch.setattr(results, "write_table", full_disk)
    with pytest.raises(
        StorageError, match=r"results cannot .*results: No space left on device; nor elsewhere"
    ):
        write_results(*finished)
    assert content_of(tmp_path) == before
    monkeypatch.setattr(results, "write_table", original)
    moved = Path.replace

    def stuck(file: Path, place: Path) -> Path:
        if place == tmp_path / "results" / "east.csv":
            raise PermissionError(1, "Operation not permitted")
        return moved(file, place)

    monkeypatch.setattr(Path, "replace", stuck)
    monkeypatch.setattr(results, "require_place", lambda *_: None)
    kept_elsewhere(*finished, "Operation not permitted")
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("output", ["results", "results/deep", "results/deep/er"])
def test_a_file_in_the_way_of_the_results(
    tmp_path: Path, finished: tuple[FederationFile, Result], output: str
) -> None:
    (tmp_path / "results").write_text("mine")
    before = content_of(tmp_path)
    federation = FederationFile(finished[0].clients, Arguments(), tmp_path / output)
    unwritable(federation, finished[1], r"results cannot be written to .*: .*results is a")
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("name", ["south.csv", "cost.json"])
def test_a_folder_in_the_way_of_a_result(
    tmp_path: Path, finished: tuple[FederationFile, Result], name: str
) -> None:
    (tmp_path / "results" / name).mkdir(parents=True)
    before = content_of(tmp_path)
    unwritable(*finished, f"results cannot be written to .*{name} is a folder")
    assert content_of(tmp_path) == before


def test_a_folder_that_may_not_be_written(
    tmp_path: Path, finished: tuple[FederationFile, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.TemporaryDirectory

    def refuse(*, prefix: str, dir: Path) -> Any:
        if dir == tmp_path:
            raise PermissionError(13, "Permission denied", str(dir / prefix))
        return make(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(ParameterError) as caught:
        require_writable(finished[0], "--output x: ")
    assert str(caught.value) == (
        f"--output x: results cannot be written to {tmp_path / 'results'}: {tmp_path} cannot be "
        "written: Permission denied"
    )
    (tmp_path / "results").mkdir()
    require_writable(finished[0])
    assert len(write_results(*finished)) == 4  # where it is only the folder above that may not be


@pytest.mark.parametrize("file", ["north.csv", "north_y.csv"])
@pytest.mark.parametrize("link", [False, True])
def test_what_was_read_is_not_replaced(tmp_path: Path, file: str, link: bool) -> None:
    path = write_federation(tmp_path, [as_two_csv, as_npy, as_npz])
    if file == "north_y.csv":  # a client whose results would have this name
        path.write_text(path.read_text().replace("[clients.south]", "[clients.north_y]"))
    if link:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / file).symlink_to(tmp_path / file)
    loaded = replace(load_federation(path), output=tmp_path / ("other" if link else "."))
    result = ran(loaded)
    before = content_of(tmp_path)
    unwritable(loaded, result, f"{file} is one of the files that were read; choose another")
    assert content_of(tmp_path) == before


def test_the_federation_file_is_not_replaced(tmp_path: Path) -> None:
    path = write_federation(tmp_path, [as_npy] * 3, 'output = "."')
    path = path.rename(tmp_path / "cost.json")
    with pytest.raises(ParameterError, match=r"cost.json is one of the files that were read"):
        require_writable(load_federation(path))


def test_requiring_a_folder_does_not_make_it(
    tmp_path: Path, finished: tuple[FederationFile, Result]
) -> None:
    require_writable(finished[0])
    assert not (tmp_path / "results").exists()
