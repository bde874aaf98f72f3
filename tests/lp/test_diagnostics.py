"""What looks wrong with features is said, in words that name the column or the client."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_lines import Xclp
from scipy.sparse import csr_array
from session_runs import SMALL, bits_of, blobs, federation

from xclp_crypto.errors import DataError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import run
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.diagnostics import (
    CautionWarning,
    feature_cautions,
    geometry_of,
    moment_cautions,
)
from xclp_lp.files.federation import load_federation
from xclp_lp.graph import neighbour_graph_from_bits
from xclp_lp.scaling import own_moments

HOSPITALS = Path(__file__).parents[2] / "examples" / "hospitals"
NAMES = ("city", "coast", "hill", "lake")


@pytest.fixture
def hospitals() -> dict[str, pd.DataFrame]:
    return {
        name: pd.read_csv(HOSPITALS / f"{name}.csv").drop(columns=["patient", "diagnosis"])
        for name in NAMES
    }


def cautions(data: dict[str, pd.DataFrame], scale: Any = "shared") -> list[str]:
    columns = list(data["city"].columns)
    return list(feature_cautions({c: x.to_numpy() for c, x in data.items()}, scale, columns))


def test_nothing_is_said_of_the_hospitals_as_they_are(hospitals: dict[str, pd.DataFrame]) -> None:
    assert cautions(hospitals) == cautions(hospitals, "client") == []


def test_a_column_that_drowns_the_others(hospitals: dict[str, pd.DataFrame]) -> None:
    (line,) = cautions(hospitals, "none")
    assert line.startswith("'platelets' has 100% of the squared length")
    assert "scale = 'shared'" in line
    (line,) = cautions({c: x[["age", "bmi"]] + 0 for c, x in hospitals.items()} | {}, "none")
    assert line.startswith("all rows point nearly the same way")


def test_a_constant_column(hospitals: dict[str, pd.DataFrame]) -> None:
    for scale in ("shared", "client", "none"):
        found = cautions({c: x.assign(ward=7.3) for c, x in hospitals.items()}, scale)
        assert found[0] == "constant over all rows, so they tell nothing: 'ward'"
        found = cautions(hospitals | {"hill": hospitals["hill"].assign(bmi=25.0)}, scale)
        assert found[0].startswith("client 'hill' has one value only in 'bmi', and others have")


def test_a_site_with_other_units_or_that_scaled_its_data(
    hospitals: dict[str, pd.DataFrame],
) -> None:
    fahrenheit = hospitals["hill"].assign(temperature=1.8 * hospitals["hill"]["temperature"] + 32)
    (line,) = cautions(hospitals | {"hill": fahrenheit})
    assert line.startswith("client 'hill' measures differently: the mean or spread of 'temp")
    assert "(mean 98.5, others 37; spread 1.8 times theirs) is far from the other" in line
    own = hospitals["coast"]
    (line,) = cautions(hospitals | {"coast": (own - own.mean()) / own.std()})
    assert line.startswith("client 'coast' measures differently")
    assert "whether it scaled them already" in line
    assert cautions(hospitals | {"hill": fahrenheit}, "client") == []


def test_a_direction_that_most_of_the_length_is_in() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6))
    columns = ["a", "b", "c", "d", "e", "f"]
    assert list(feature_cautions({"all": x}, "shared", columns)) == []
    x[:, [1, 2, 3, 4]] += 9 * rng.normal(size=(300, 1))
    for scale in ("shared", "client"):
        (line,) = feature_cautions({"one": x[:150], "two": x[150:]}, scale, columns)
        assert line.startswith("one direction has 6")
        assert "once scaled, mostly in " in line
        assert "'a'" not in line
        assert "'f'" not in line
    x[:, :] = rng.lognormal(0, 1, (300, 1)) * (1 + 0.01 * rng.normal(size=(300, 6)))
    (line,) = feature_cautions({"all": x}, "none", columns)
    assert line.startswith("half of all pairs of rows have a cosine above 0.99, so hashes")


def test_few_rows_say_nothing() -> None:
    assert list(feature_cautions({"a": np.ones((3, 2)), "b": np.zeros((3, 2))}, "none")) == []
    data = {"a": np.eye(9), "b": 100 + np.eye(9)}
    assert not any("differently" in line for line in feature_cautions(data, "shared"))


def test_fit_warns_and_run_says_so(
    hospitals: dict[str, pd.DataFrame], tmp_path: Path, xclp: Xclp
) -> None:
    Xs = [x.assign(ward=7.3)[:40] for x in hospitals.values()]
    ys = [[*np.arange(20) % 2, *[-1] * 20]] * 4
    with pytest.warns(CautionWarning, match="tell nothing: 'ward'") as caught:
        CrossClientLabelPropagation(64, hamming="plain", random_state=0).fit(Xs, ys)
    assert {w.filename for w in caught} == {__file__}
    assert any("labelled rows" in str(w.message) for w in caught)
    with pytest.warns(CautionWarning, match="how good the labels are .* 12 labels are too few, 13"):
        CrossClientLabelPropagation(64, hamming="plain").fit(Xs, [[0, 1, 0, *[-1] * 37]] * 4)
    sections = ""
    for name, x in zip(NAMES, Xs, strict=True):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = [*x.columns, "label"], *([*row, "ab"[i % 2]] for i, row in enumerate(x.values))
            csv.writer(file).writerows(rows)
        sections += f'[clients.{name}]\nfeatures = "{name}.csv"\nlabel_column = "label"\n'
    (tmp_path / "federation.toml").write_text(
        f'[parameters]\nn_bits = 64\nhamming = "plain"\nrandom_state = 0\n{sections}'
    )
    _, out, said = xclp("run", tmp_path / "federation.toml")
    assert re.search(r"labels that came back: ('[a-z]+' \d+ of 40(, |$)){4}", out, re.MULTILINE)
    assert "xclp: constant over all rows, so they tell nothing: 'ward'" in said
    assert said.splitlines()[-1].startswith("xclp: as said before the run, constant over all")


@pytest.mark.parametrize("include_self", [False, True])
def test_the_geometry_is_that_of_the_graph(include_self: bool) -> None:
    data = blobs({"a": 6, "b": 0, "c": 5, "d": 2}, seed=3)
    owner = np.repeat(np.arange(4), [6, 0, 5, 2])
    bits = np.concatenate([bits_of(own, 64) for own in data.values()])
    graph = neighbour_graph_from_bits(bits, 3, include_self=include_self).toarray() > 0
    others = ~np.eye(13, dtype=bool)
    apart = owner[:, None] != owner
    found = run(federation(data, replace(SMALL, k=3, include_self=include_self))).raise_errors()
    told = found.results[SERVER].geometry
    assert told.neighbours == graph.sum() / 13
    assert told.mixing == pytest.approx(graph[apart].mean() / graph[others].mean())
    assert all(own.geometry == told for c, own in found.results.items() if c != SERVER)
    empty = geometry_of(csr_array((3, 3)), {"a": 3, "b": 0})
    assert (empty.neighbours, empty.mixing) == (0, 1)


def unscaled(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Where every hospital but one has scaled its data."""
    own = table.iloc[:, 2:]
    return table if name == "hill" else table.iloc[:, :2].join((own - own.mean()) / own.std())


TRAPS: dict[str, tuple[Callable[[str, pd.DataFrame], pd.DataFrame], str, str]] = {
    "raw numbers": (lambda _, table: table, 'preset = "paper"', "'platelets' has 100% of"),
    "a constant column": (lambda _, table: table.assign(ward=7.3), "", "they tell nothing: 'ward'"),
    "a constant column at one site": (
        lambda name, table: table.assign(bmi=25.0) if name == "hill" else table,
        "",
        "client 'hill' has one value only in 'bmi'",
    ),
    "one unscaled site": (unscaled, "", "client 'hill' measures differently: the mean or spread"),
    "columns in another order": (
        lambda name, table: table[table.columns[:: -1 if name == "coast" else 1]],
        "",
        "",
    ),
    "rows in another order": (
        lambda _, table: table,
        "",
        "has the rows of city.csv in another order, as the column 'age' of both shows",
    ),
}
"""What is done to the four hospitals' files, what is set, and what is said of it."""


@pytest.mark.parametrize("trap", TRAPS)
def test_each_trap_is_said_in_words_that_name_the_column_or_site(
    trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spoil, parameters, words = TRAPS[trap]
    sections = f"[parameters]\nhamming = 'plain'\n{parameters}\n"
    for name in NAMES:
        table = spoil(name, pd.read_csv(HOSPITALS / f"{name}.csv"))
        table.to_csv(f"{name}.csv", index=False)
        sections += f"[clients.{name}]\nfeatures = '{name}.csv'\nlabel_column = 'diagnosis'\n"
        if trap == "rows in another order":
            table[["age", "diagnosis"]][::-1].to_csv(f"{name}-labels.csv", index=False)
            table.iloc[:, 2:].to_csv(f"{name}.csv", index=False)
            sections += f"labels = '{name}-labels.csv'\n"
        else:
            sections += "id_column = 'patient'\n"
    Path("federation.toml").write_text(sections)
    try:
        loaded = load_federation(Path("federation.toml"))
        said = loaded.plan().cautions(loaded.clients[0].columns)
    except DataError as error:
        said = [str(error)]
    assert [words in line for line in said] == [True] * bool(words)


def test_a_column_without_any_value_at_one_client_is_said_as_that() -> None:
    rng = np.random.default_rng(0)
    data = {c: rng.normal([100, 5], [10, 1], (40, 2)) for c in "abc"}
    data["c"][:, 0] = np.nan
    (line,) = feature_cautions(data, "shared", ["temp", "rate"])
    assert line == "client 'c' has no value in 'temp': all its rows count as the mean"


def test_a_client_compares_its_rows_with_the_moments_of_all() -> None:
    """What `join` and later rows have; as of whoever has all rows, where those are the same."""
    rng = np.random.default_rng(0)
    data = {c: rng.normal([100, 5], [10, 1], (40, 2)) for c in "abc"}
    data["c"][:, 0] = 0.555 * data["c"][:, 0] - 17
    every = own_moments(np.concatenate(list(data.values())))
    names = ["temp", "rate"]
    (line,) = moment_cautions("c", data["c"], every, names, rows=120)
    assert line.startswith("client 'c' measures differently: the mean or spread of 'temp' (mean 3")
    assert not [*moment_cautions("a", data["a"], every, names, rows=120)]
    good = own_moments(np.concatenate([data["a"], data["b"]]))
    for rows in (data["c"][:3], data["c"]):
        (line,) = moment_cautions("c", rows, good, names)
        assert "'temp'" in line
        assert "'rate'" not in line
    assert not [*moment_cautions("a", data["a"][:3], good, names)]
    assert not [*moment_cautions("a", data["a"][:0], good, names)]
    constant = np.full((40, 1), 3.0)
    assert not [*moment_cautions("a", constant, own_moments(constant))]
