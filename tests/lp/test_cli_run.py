"""`xclp run` and `xclp plan`: what is said, written and refused."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from canaries import CANARY, RANDOM_STATE, forms_of, leaks, write_table
from command_lines import (
    SOUTH,
    TOML,
    Xclp,
    array,
    arrays,
    cell,
    change,
    content_of,
    labelled_rows,
    never,
    one_line,
    shell,
)

from xclp_crypto.errors import ParameterError, Stalled
from xclp_crypto.protocols.hamming.rlwe import require_sizes
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.files import results
from xclp_lp.plan import Plan


def test_running_a_federation(federation: Path) -> None:
    elsewhere = federation.parent / "elsewhere"
    elsewhere.mkdir()
    done = shell("run", "../federation.toml", cwd=elsewhere)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 clients, 15 rows" in done.stdout
    assert "4 files written to ../results" in done.stdout
    Xs, ys = arrays()
    reference = CrossClientLabelPropagation(64, 2, 0.9, preset="paper", random_state=0).fit(Xs, ys)
    for j, name in enumerate(("north", "south", "east")):
        with (federation.parent / "results" / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        expected = ["" if v == -1 else str(v) for v in reference.transduction_[j].tolist()]
        assert [r["label"] for r in rows] == expected
    assert list(elsewhere.iterdir()) == []


@pytest.mark.filterwarnings("always")
def test_two_clients_are_warned_in_one_line(xclp: Xclp, federation: Path) -> None:
    text = federation.read_text()
    two = text[: text.index("[clients.east]")]
    federation.write_text(two)
    code, _, err = xclp("run", federation)
    assert (code, "choose threshold = 2 if each may" in one_line(err)) == (2, True)
    federation.write_text(two.replace("[parameters]", "[parameters]\nthreshold = 2"))
    code, _, err = xclp("run", federation)
    assert code == 0
    assert one_line(err).startswith("warning: with two clients, each learns")


@pytest.mark.filterwarnings("always")
def test_warnings_of_classes_and_columns_are_lines(xclp: Xclp, federation: Path) -> None:
    columns = (federation.parent / "north.csv").read_text().splitlines()
    numbered = [f"{line},{c}" for line, c in zip(columns, ["id", *range(5)], strict=True)]
    (federation.parent / "north.csv").write_text("\n".join(numbered))
    federation.write_text(
        TOML.replace('"south.npy"', '"south.csv"').replace('"south_y.npy"', '"south_y.csv"')
    )
    south = np.column_stack([arrays()[0][1], [5, 3, 8, 1]])
    header = "u,v,w,id"
    np.savetxt(federation.parent / "south.csv", south, "%.3f", ",", header=header, comments="")
    (federation.parent / "south_y.csv").write_text("label\nNaN\n\n\n\n")
    change("features_array", "#features_array")(federation)
    change("labels_array", "#labels_array")(federation)
    np.savez(federation.parent / "east.npz", x=np.ones((6, 4)))
    code, _, err = xclp("run", federation)
    assert code == 0
    first, second = err.splitlines()
    assert first.startswith("xclp: warning: client 'north': column 'id' counts up by one")
    assert second.startswith("xclp: warning: client 'south': the labels 'NaN' look like missing")


@pytest.mark.filterwarnings("always")
def test_messages_count_rows_of_tables_from_1_and_of_arrays_from_0(
    xclp: Xclp, federation: Path
) -> None:
    cell(5, 1, "0")(federation)
    cell(5, 2, "0")(federation)
    cell(5, 3, "0")(federation)
    array("south.npy", np.where(np.arange(4)[:, None] == 3, 0, SOUTH))(federation)
    for command in ("plan", "run"):
        code, _, err = xclp(command, federation)
        assert code == 0
        north, south = err.splitlines()
        assert north.startswith("xclp: warning: client 'north': row 5 is all zero, so it has no")
        assert south.startswith("xclp: warning: client 'south': row 3 (counted from 0) is all zero")


def test_another_output_folder(xclp: Xclp, federation: Path) -> None:
    out = federation.parent / "[red]else [b]where"
    code, text, err = xclp("run", federation, "--output", out)
    assert (code, err) == (0, "")
    assert "[red]else [b]where" in text.replace("\n", "")
    assert sorted(p.name for p in out.iterdir()) == [
        "cost.json",
        "east.csv",
        "north.csv",
        "south.csv",
    ]
    assert not (federation.parent / "results").exists()


@pytest.mark.filterwarnings("default:only north and south are in the sums")
def test_a_client_of_a_federation_drops_out(xclp: Xclp, federation: Path) -> None:
    results = federation.parent / "results"
    results.mkdir()
    (results / "east.csv").write_text("of an earlier run")
    (results / "west.csv").write_text("of an earlier federation")
    content = federation.read_text()
    federation.write_text(content.replace("[parameters]", "[parameters]\nthreshold = 2"))
    code, out, err = xclp("run", federation, "--drop", "east:row sums")
    assert code == 0
    assert one_line(err).startswith("warning: only north and south are in the sums, so each learns")
    assert (
        "east dropped out before the end of the step 'row sums': its points are in the graph, its "
        "labels are not counted, for anybody: as if it had none. It gets its own labels if it "
        "comes back within the session."
    ) in out.splitlines()
    assert "no file written for 'east', without a result" in out.splitlines()
    assert "and not of this run: 'east.csv', 'west.csv'" in " ".join(out.split())
    content = json.loads((results / "cost.json").read_text())
    assert content["contributors"] == ["north", "south"]
    (dropout,) = content["dropouts"]
    assert dropout["client"] == "east"
    assert content["without_result"] == ["east"]
    left = [line for line in content["warnings"] if line.startswith("only north and south are in")]
    assert len(left) == 1
    assert (results / "east.csv").read_text() == "of an earlier run"
    assert {p.name for p in results.iterdir()} == {
        *("cost.json", "east.csv", "north.csv", "south.csv", "west.csv")
    }
    assert xclp("run", federation)[1].endswith(
        f"already in {results}, and not of this run: 'west.csv'\n"
    )
    code, _, err = xclp("run", federation, "--drop", "east:hamming", "--drop", "south:hamming")
    assert code == 1
    assert "step 'hamming': 1 of the parties answered and 2 are needed" in one_line(err)


@pytest.mark.filterwarnings("ignore:client 'north'. row 2 is all zero")
def test_labelled_rows_with_another_label_are_counted(xclp: Xclp, federation: Path) -> None:
    for column in (1, 2, 3):
        cell(2, column, "0")(federation)
    array("south_y.npy", np.array([2, 1, 2, 1]))(federation)
    assert xclp("run", federation)[0] == 0
    found = labelled_rows(federation.parent / "results")
    assert len(found) == 6
    changed = sum(row["label"] not in ("", row["given"]) for row in found)
    assert changed > 0
    line = f"of 6 labelled rows {changed} got another label and 1 got none"
    assert line in xclp("run", federation)[1]
    change("k = 2", "k = 2\nreset_labelled = true")(federation)
    assert "labelled rows" not in xclp("run", federation)[1].replace("15 rows labelled", "")
    assert all(r["label"] == r["given"] for r in labelled_rows(federation.parent / "results"))
    change("reset_labelled = true", "")(federation)
    out = xclp("run", federation, "--drop", "south:labels")[1]  # it has no result
    assert "of 2 labelled rows" in out


def test_true_labels_are_compared_with_the_result_and_not_used(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    folder = federation.parent
    monkeypatch.chdir(folder)
    assert xclp("run", federation)[0] == 0
    without = content_of(folder / "results")
    table = (folder / "north.csv").read_text().splitlines()
    truth = ["species", 1, 2, "2.0", 1, ""]
    (folder / "north.csv").write_text(
        "".join(f"{line},{y}\n" for line, y in zip(table, truth, strict=True))
    )
    change('label_column = "label"', 'label_column = "label"\ntruth_column = "species"')(federation)
    monkeypatch.setenv("MPLBACKEND", "module://of_a_notebook_and_not_installed")
    code, out, err = xclp("run", federation, "--report", "r.html")
    assert (code, err, os.environ["MPLBACKEND"]) == (0, "", "agg")
    results = content_of(folder / "results")
    assert all(results[name] == without[name] for name in results if name.endswith(".csv"))
    with (folder / "results" / "north.csv").open(newline="", encoding="utf-8") as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    right = (labels[2] == "2") + (labels[3] == "1")
    assert f"{right} of 2 unlabelled rows came out right ({right / 2:.1%})" in out.splitlines()
    assert "Accuracy by client" in Path("r.html").read_text(encoding="utf-8")
    assert "features of 'north': 'u', 'v', 'w'" in out.splitlines()


@pytest.mark.parametrize(
    ("truth", "options", "message"),
    [
        (
            ["1", "", "2", "5", ""],
            [],
            "truth_column: client 'north', row 4: label 5 is none of the",
        ),
        (["1", "2", "", "", ""], [], "truth_column says nothing of any row without a label"),
        (
            ["1", "2", "1", "1", "1"],
            ["--drop", "north:labels"],
            "truth_column says nothing of any row without a label",
        ),
    ],
)
def test_true_labels_that_say_nothing_are_found_before_the_computation(
    xclp: Xclp, federation: Path, truth: list[str], options: list[str], message: str
) -> None:
    table = (federation.parent / "north.csv").read_text().splitlines()
    (federation.parent / "north.csv").write_text(
        "".join(f"{line},{y}\n" for line, y in zip(table, ["species", *truth], strict=True))
    )
    change('label_column = "label"', 'label_column = "label"\ntruth_column = "species"')(federation)
    code, out, err = xclp("run", federation, *options)
    assert (code, one_line(err).startswith(message)) == (2, True), err
    assert "setup" not in out


def test_an_interrupted_run_writes_nothing(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    def interrupt(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Plan, "run", interrupt)
    before = content_of(federation.parent)
    code, _, err = xclp("run", federation)
    assert (code, one_line(err)) == (130, "interrupted; nothing was written")
    assert content_of(federation.parent) == before


def test_a_file_of_data_is_no_federation_file(xclp: Xclp, federation: Path) -> None:
    for name in ("north.csv", "south.npy"):
        code, _, err = xclp("run", federation.parent / name)
        assert code == 2
        assert "is not a federation file (TOML) but data" in one_line(err)
        assert one_line(err).endswith(f'features = "{name}"')


def test_a_failed_party_is_exit_code_1(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    def stall(*args: Any, **options: Any) -> Any:
        raise Stalled("north", "hamming", ("server",), "Participants\nand more")

    monkeypatch.setattr(Plan, "run", stall)
    code, _, err = xclp("run", federation)
    assert code == 1
    assert one_line(err) == "north stalled in step 'hamming': no Participants and more from server"
    assert not (federation.parent / "results").exists()


BAD_INPUT: dict[str, tuple[str, Callable[[Path], Any]]] = {
    # Words of the message, and how the federation is spoilt. The tests of tables, of federation
    # files and of the estimator have all other cases; here is one of each part that refuses.
    "a cell": ("'north'|row 3|'v'|north.csv|nan", cell(3, 2, "nan")),
    "an array": ("'south'|complex128", array("south.npy", SOUTH.astype(complex))),
    "strings": ("'south'|row 0, column 0 (counted from 0)", array("south.npy", SOUTH.astype(str))),
    "columns": ("'south'|2 features|'north'|3", array("south.npy", SOUTH[:, :2])),
    "types of labels": (
        "several types|'north'|'south'",
        array("south_y.npy", np.array([True, False, True, False])),
    ),
    "unknown class": ("'north', row 2: label 2|(1, 3)", change("k = 2", "k = 2\nclasses = [1, 3]")),
    "no label": (
        "no client has a label: column 'label' of |north.csv, |south_y.npy, |"
        "east.npz are empty, or -1, in every row",
        lambda p: (cell(1, 0, "")(p), cell(2, 0, "")(p), array("south_y.npy", np.full(4, -1))(p)),
    ),
    "one client": (
        "at least 2 clients|got 1",
        lambda p: p.write_text(TOML[: TOML.index("[clients.south]")]),
    ),
    "a parameter": ("hamming|3", change("k = 2", "k = 2\nhamming = 3")),
    "k = n": ("k = 15|rows = 15", change("k = 2", "k = 15")),
    "overflow": ("'north'|62 fraction", change("k = 2", "k = 2\nfraction_bits = 62")),
    "long number": ("federation.toml|digits", change("k = 2", "k = 1" + "0" * 5000)),
    "unknown field": ("unknown field 'kay'", change("k = 2", "kay = 2")),
    "no file": ("there is no file|federation.toml", lambda p: p.unlink()),
    "results over input": (
        "north.csv is one of the files that were read",
        change("[parameters]", 'output = "."\n[parameters]'),
    ),
    "output is taken": (
        "cost.json is a folder",
        lambda p: (p.parent / "results" / "cost.json").mkdir(parents=True),
    ),
}


@pytest.mark.parametrize("wrong", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2(xclp: Xclp, federation: Path, wrong: str) -> None:
    words, spoil = BAD_INPUT[wrong]
    spoil(federation)
    before = content_of(federation.parent)
    code, out, err = xclp("run", federation)
    message = one_line(err)
    assert code == 2
    assert all(word in message for word in words.split("|")), message
    assert "distances by" not in out or "62 fraction" in message  # found before the estimate
    assert content_of(federation.parent) == before


def test_a_bad_output_is_found_before_the_computation(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    monkeypatch.setattr(Plan, "run", never)
    code, _, err = xclp("run", federation, "--output", federation)
    assert code == 2
    assert one_line(err).startswith(f"--output {federation}: results cannot be written to")
    assert "federation.toml is a file" in one_line(err)
    code, _, err = xclp("run", federation.parent)
    assert (code, one_line(err)) == (
        2,
        f"{federation.parent} is a folder; name a federation file in it",
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "--output must be the name of a folder, got ''"),
        (
            ".",
            "--output .: results cannot be written to .: north.csv is one of the files that were",
        ),
    ],
)
def test_outputs_that_would_surprise(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path, output: str, message: str
) -> None:
    monkeypatch.chdir(federation.parent)
    before = content_of(federation.parent)
    code, out, err = xclp("run", federation, "--output", output)
    assert (code, out) == (2, "")
    assert one_line(err).startswith(message)
    assert content_of(federation.parent) == before


def test_what_was_understood_is_said_before_anything_is_computed(
    xclp: Xclp, federation: Path
) -> None:
    code, out, err = xclp("run", federation)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:4] == [
        "3 clients, 15 rows, 3 features",
        "features of 'north': 'u', 'v', 'w'",
        "2 classes: 1, 2",
        "3 of 15 rows labelled; clients without labels: 'east'",
    ]
    assert lines[4].startswith("distances by rlwe: ")
    assert lines[5] == "  setup …"


def test_runs_that_cannot_be_repeated_say_so(xclp: Xclp, federation: Path) -> None:
    assert "random_state" not in xclp("run", federation)[1]
    change("random_state = 0", "")(federation)
    code, out, _ = xclp("run", federation)
    assert code == 0
    line = next(line for line in out.splitlines() if "random_state" in line)
    assert line.startswith("random_state is not set: every run draws another projection")
    assert out.index(line) < out.index("  setup …")


def test_when_writing_fails_there_are_no_results(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "write_table", full)
    before = content_of(federation.parent)
    code, _, err = xclp("run", federation)
    assert code == 2
    assert "No space left on device" in one_line(err)
    assert content_of(federation.parent) == before


def test_a_plan_of_a_federation_says_its_cost_and_runs_nothing(
    xclp: Xclp, federation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plan, "run", never)
    before = content_of(federation.parent)
    file = federation.parent / "plan.json"
    code, out, err = xclp("plan", str(federation), "--json", str(file))
    assert (code, err) == (0, "")
    assert "3 clients, 15 rows, 3 features" in out
    shown = ("Cost by step", "propagation", "all parties", "rlwe (chosen)", "paillier")
    for words in (*shown, "collude with", "any clients"):
        assert words in out
    found = json.loads(file.read_text())
    assert found["hamming"] == "rlwe"
    assert found["rounds"] == 21
    assert found["bytes"] == sum(
        sum(step["bytes_sent"].values()) for step in found["steps"].values()
    )
    assert set(found["steps"]["hamming"]["bytes_sent"]) == {"north", "south", "east"}
    file.unlink()
    assert content_of(federation.parent) == before


def test_a_plan_overwrites_no_input_and_takes_no_sizes_beside_a_file(
    xclp: Xclp, federation: Path
) -> None:
    before = content_of(federation.parent)
    for file in (federation, *federation.parent.glob("*.csv")):
        code, _, err = xclp("plan", str(federation), "--json", str(file))
        assert code == 2
        assert "--json must end in .json" in one_line(err)
    for option, value in (("--hamming", "masked"), ("-k", "3"), ("--bits", "64")):
        code, _, err = xclp("plan", str(federation), option, value)
        assert code == 2
        assert "is for a plan without a file" in one_line(err)
    assert content_of(federation.parent) == before


def test_a_plan_of_sizes_alone(xclp: Xclp, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ("--clients", "4", "--rows", "30", "--bits", "64", "--hamming", "masked", "-k", "3")
    code, out, _ = xclp("plan", *sizes)
    assert code == 0
    assert "masked (chosen)" in out
    assert "in 37 rounds" in " ".join(out.split())
    two = ("--clients", "2", "--threshold", "2")
    code, _, err = xclp("plan", *two, "--rows", "2", "-k", "9", "--scale", "none")
    assert (code, one_line(err)[:19]) == (2, "k must be smaller t")
    code, _, err = xclp("plan", "--rows", "10000000", "--clients", "3", "--hamming", "masked")
    assert code == 2
    assert "30,000,000 rows with 4,096 bits by masked need 1,800,122.9 GB" in one_line(err)
    code, _, err = xclp("plan", "--rows", "1000000000", "--clients", "3")  # at once
    assert (code, "fewer rows" in one_line(err)) == (2, True)
    with monkeypatch.context() as large:
        large.setattr(os, "sysconf", lambda name: 10**9)
        with pytest.raises(ParameterError, match=r"hiding bound .* n_bits = 4097 or") as session:
            require_sizes(dict.fromkeys("abcdefghij", 9000), 4096)
        code, _, err = xclp("plan", "--rows", "9000")
        assert (code, one_line(err)) == (2, str(session.value))
        code, _, err = xclp("plan", "--rows", "9000", "--bits", "4097")
        words = (
            "a client sends a message of 1.3 GB; at most 2.1 GB is taken by xclp serve, and 1.1 GB"
        )
        assert (code, one_line(err)[: len(words)]) == (0, words)
        code, _, err = xclp("plan", "--rows", "1048577", "--hamming", "masked")
        assert (code, "such as its rows, are 0 … 1048576, got" in one_line(err)) == (2, True)
    code, _, err = xclp("plan", "--clients", "2", "--rows", "20")
    assert (code, "choose threshold = 2 if" in one_line(err)) == (2, True)
    assert "choose scale = 'client'" in one_line(err)
    code, _, err = xclp("plan", "--rows", "50", "--labelled", "0")
    assert (code, one_line(err)) == (
        2,
        "--labelled 0 of 50 rows leaves no label, so nothing can spread",
    )
    code, _, err = xclp("plan", "--hamming", "mask")
    assert code == 2


def test_a_run_writes_a_report_with_no_row_seed_key_or_path(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    """The same of all that is not a client's own table: what clients keep, and the costs."""
    monkeypatch.chdir(federation.parent)
    monkeypatch.setenv("XCLP_LOG_KEY", key := "5eed0123" * 8)
    x = np.random.default_rng(0).standard_normal((5, 3))
    table = federation.parent / f"{CANARY}-table.csv"
    write_table(table, "north", x, ["1", "2", None, None, None])
    change("random_state = 0", f"random_state = {RANDOM_STATE}")(federation)
    change('"north.csv"', f'"{table}"\nid_column = "{CANARY} id"')(federation)
    change('label_column = "label"', f'label_column = "{CANARY} label"')(federation)
    files = ("--report", "r.html", "--png", "pictures", "--keep", "kept")
    code, out, err = xclp("run", "federation.toml", *files)
    assert (code, err) == (0, "")
    assert out.endswith("written to r.html\nwritten to pictures\n")
    page = Path("r.html").read_text(encoding="utf-8")
    assert "north" in page
    assert "can only estimate how many labels are right" in page
    assert Path("pictures/labels-by-client.png").is_file()
    forms = forms_of("north", x, [], b"", key_file=key) | {"folder": [bytes(federation.parent)]}
    for name in ("r.html", "results/cost.json", "kept/north.kept"):
        shown = {"columns"} if name == "r.html" else set()
        assert leaks(Path(name).read_bytes(), forms) <= shown, name
    given = [federation, table, Path("kept/north.kept").absolute()]
    found = leaks(b"".join(bytes(f) + f.read_bytes() for f in given) + key.encode(), forms)
    assert found == {kind for kind, own in forms.items() if own}


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_report_without_its_packages_says_what_to_install(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "xclp_lp.study.report", raising=False)
    monkeypatch.chdir(federation.parent)
    code, _, err = xclp("run", "federation.toml", "--report", "r.html")
    assert code == 2
    assert one_line(err) == f"reports need {package}; install with: pip install 'xclp[report]'"
    assert not Path("results").exists()
    assert xclp("run", "federation.toml")[0] == 0


def test_the_home_folder_may_be_named(
    xclp: Xclp, federation: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    assert xclp("run", federation, "--output", "~/deep")[0] == 0
    assert (tmp_path / "home" / "deep" / "cost.json").exists()
    change("[parameters]", 'output = "~nobody-here/x"\n[parameters]')(federation)
    code, _, err = xclp("run", federation)
    assert (code, one_line(err)) == (
        2,
        f"{federation} names ~nobody-here/x, and there is no such home folder",
    )
