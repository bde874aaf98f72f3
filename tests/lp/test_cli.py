from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xclp_crypto import __version__
from xclp_crypto.errors import Stalled
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.cli import bench as bench_cli
from xclp_lp.cli import main as cli
from xclp_lp.cli import run as run_cli
from xclp_lp.cli import study as study_cli
from xclp_lp.files import results
from xclp_lp.plan import Plan
from xclp_lp.study.data import load_digits
from xclp_lp.study.demo import compare

TOML = """
[parameters]
n_bits = 64
k = 2
alpha = 0.9
random_state = 0

[clients.north]
features = "north.csv"
label_column = "label"

[clients.south]
features = "south.npy"
labels = "south_y.npy"

[clients.east]
features = "east.npz"
features_array = "x"
labels_array = "y"
"""


def arrays() -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    Xs = [rng.standard_normal((n, 3)).round(3) for n in (5, 4, 6)]
    return Xs, [np.array([1, 2, -1, -1, -1]), np.array([2, -1, -1, -1]), np.full(6, -1)]


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    Xs, ys = arrays()
    with (tmp_path / "north.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "u", "v", "w"])
        for y, x in zip(ys[0].tolist(), Xs[0].tolist(), strict=True):
            writer.writerow(["" if y == -1 else y, *x])
    np.save(tmp_path / "south.npy", Xs[1])
    np.save(tmp_path / "south_y.npy", ys[1])
    np.savez(tmp_path / "east.npz", x=Xs[2], y=ys[2])
    path = tmp_path / "federation.toml"
    path.write_text(TOML)
    return path


def shell(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "xclp_lp", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture
def xclp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: exit code, standard output and standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["xclp", *map(str, arguments)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        code = exit_.value.code
        return 0 if code is None else int(code), out, err

    return call


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digits, cut down to 4 clients with 40 rows each."""
    whole = load_digits(4)
    small = replace(
        whole,
        features=tuple(x[:40] for x in whole.features),
        labels=tuple(y[:40] for y in whole.labels),
    )
    monkeypatch.setattr(study_cli, "load", {"digits": small}.__getitem__)


def content_of(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


def one_line(err: str) -> str:
    assert err.startswith("xclp: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err[6:-1]


# As a user calls it


def test_version_and_help(tmp_path: Path) -> None:
    assert shell("--version", cwd=tmp_path).stdout == f"xclp {__version__}\n"
    done = shell("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert "run" in done.stdout
    assert done.stderr == ""
    assert "Exit codes: 0 done; 1 a party failed" in done.stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "demo",
            ["--dataset", "--labelled", "--bits", "--hamming", "--json", "--repeat", "--drop"],
        ),
        (
            "run",
            [
                *("federation", "--output", "label_column", "unlabelled", "one process"),
                *("Each section [clients.NAME] names", "The section [parameters] takes"),
            ],
        ),
    ],
)
def test_help_of_the_commands(
    xclp: Callable[..., tuple[int, str, str]], command: str, words: list[str]
) -> None:
    code, out, err = xclp(command, "--help")
    assert (code, err) == (0, "")
    assert all(word in " ".join(out.split()) for word in words)
    assert xclp(command, "-h")[1] == out


def test_the_demonstration(tmp_path: Path) -> None:
    done = shell(
        *("demo", "--dataset", "digits", "--labelled", ".05", "--bits", "512"),
        *("--hamming", "masked"),
        *("--json", "out.json"),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Secure and plain labels are identical." in done.stdout
    assert (
        "\n10 clients, 1,797 rows, 64 features\n10 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9\n"
        "90 of 1,797 rows labelled\ndistances by masked: "
    ) in done.stdout
    result = json.loads((tmp_path / "out.json").read_text())
    assert set(result) == {
        *("accuracy", "balanced_accuracy", "identical_labels"),
        *("contributors", "dropouts", "cost", "parameters"),
    }
    assert len(result["contributors"]) == 10
    assert result["dropouts"] == []
    accuracy = result["accuracy"]
    assert set(accuracy) == {"per_client", "xclp", "plain"}
    assert accuracy["xclp"] == accuracy["plain"] > accuracy["per_client"] + 0.1
    for value in (*accuracy.values(), *result["balanced_accuracy"].values()):
        assert f"{value:.1%}" in done.stdout
    assert result["identical_labels"] is True
    assert result["parameters"] == {
        "dataset": "digits",
        "labelled": 0.05,
        "k": 3,
        "alpha": 0.99,
        "n_bits": 512,
        "hamming": "masked",
        "gamma": 1.0,
        "projection": "random",
        "include_self": False,
        "ties": "all",
        "fraction_bits": 40,
        "reset_labelled": False,
        "relative_confidence": False,
        "class_weight": None,
        "imbalance": 1.0,
        "threshold": None,
        "epsilon": None,
        "drop": {},
        "rows_per_client": None,
        "seeds": [0],
    }
    steps = result["cost"]["steps"]
    assert list(steps) == ["setup", "hashing", "hamming", "propagation", "row sums", "labels"]
    for step in steps.values():
        assert set(step) == {"rounds", "seconds", "bytes_sent", "bytes_received"}
    assert len(steps["hamming"]["bytes_sent"]) == 10 + 1
    assert sum(sum(s["bytes_sent"].values()) for s in steps.values()) == result["cost"]["bytes"]
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]  # no scratch left


def test_running_a_federation(federation: Path) -> None:
    elsewhere = federation.parent / "elsewhere"
    elsewhere.mkdir()
    done = shell("run", "../federation.toml", cwd=elsewhere)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 clients, 15 rows" in done.stdout
    assert "4 files written to ../results" in done.stdout
    Xs, ys = arrays()
    reference = CrossClientLabelPropagation(64, 2, 0.9, random_state=0).fit(Xs, ys)
    for j, name in enumerate(("north", "south", "east")):
        with (federation.parent / "results" / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        expected = ["" if v == -1 else str(v) for v in reference.transduction_[j].tolist()]
        assert [r["label"] for r in rows] == expected
    assert list(elsewhere.iterdir()) == []


def test_two_clients_are_warned_in_one_line(federation: Path) -> None:
    text = federation.read_text()
    federation.write_text(text[: text.index("[clients.east]")])
    done = shell("run", federation, cwd=federation.parent)
    assert done.returncode == 0
    assert one_line(done.stderr).startswith("warning: with two clients, each learns")


def test_bad_input_of_a_real_process(federation: Path) -> None:
    federation.write_text(TOML.replace("k = 2", "k = 15"))
    before = content_of(federation.parent)
    done = shell("run", federation, cwd=federation.parent)
    assert done.returncode == 2
    assert "k = 15, rows = 15" in one_line(done.stderr)
    assert content_of(federation.parent) == before


def test_warnings_of_classes_and_columns_are_lines(federation: Path) -> None:
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
    done = shell("run", federation, cwd=federation.parent)
    assert done.returncode == 0
    first, second = done.stderr.splitlines()
    assert first.startswith("xclp: warning: client 'north': column 'id' counts up by one")
    assert second.startswith("xclp: warning: client 'south': the labels 'NaN' look like missing")


def bare_shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S602  # redirections are what is tested
        command.replace("xclp", f"{sys.executable} -m xclp_lp", 1),
        shell=True,
        executable="/bin/bash",
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )


@pytest.mark.filterwarnings("always")
def test_messages_count_rows_of_tables_from_1_and_of_arrays_from_0(
    xclp: Callable[..., tuple[int, str, str]], federation: Path
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


def test_a_terminal_without_unicode(federation: Path) -> None:
    federation.write_text(TOML.replace("[clients.north]", '[clients."Zürich"]'), encoding="utf-8")
    done = bare_shell(
        "xclp run federation.toml", federation.parent, LC_ALL="C", PYTHONIOENCODING="ascii"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"features of 'Z?rich'" in done.stdout
    federation.write_text(TOML.replace("k = 2", 'hamming = "ü"'), encoding="utf-8")
    done = bare_shell(
        "xclp run federation.toml", federation.parent, LC_ALL="C", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"xclp: hamming back end '?' is none of")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", ["run federation.toml", "--help"])
def test_a_full_disk_for_the_output(federation: Path, arguments: str) -> None:
    done = bare_shell(f"xclp {arguments} > /dev/full", federation.parent)
    assert done.returncode == 1
    assert "No space left on device" in one_line(done.stderr.decode())


def test_a_reader_that_has_seen_enough(federation: Path) -> None:
    done = bare_shell("xclp run federation.toml | head -n 1", federation.parent)
    assert (done.stdout, done.stderr) == (b"3 clients, 15 rows, 3 features\n", b"")


def test_output_that_is_closed(federation: Path) -> None:
    done = bare_shell("xclp run federation.toml >&-", federation.parent)
    assert (done.returncode, done.stderr) == (0, b"")


# In this process


def test_another_output_folder(xclp: Callable[..., tuple[int, str, str]], federation: Path) -> None:
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


@pytest.mark.usefixtures("few_digits")
def test_repeated_seeds_are_averaged(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    results = []
    for extra in (["--seed", "4"], ["--seed", "5"], ["--seed", "4", "--repeat", "2"]):
        code, out, _ = xclp(
            *("demo", "--dataset", "digits", "--bits", "64", "--hamming", "plain"),
            *("--json", tmp_path / "out.json", *extra),
        )
        assert code == 0
        results.append(json.loads((tmp_path / "out.json").read_text()))
    assert "seed 4" in out
    assert "seed 5" in out
    assert out.count("distances by plain") == 1
    one, two, both = (r["accuracy"]["xclp"] for r in results)
    assert one != two
    assert both == pytest.approx((one + two) / 2)
    assert results[2]["parameters"]["seeds"] == [4, 5]
    assert "the server bits" in out


@pytest.mark.usefixtures("few_digits")
def test_different_labels_are_an_error(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        study_cli,
        "compare",
        lambda *args, **options: replace(compare(*args, **options), identical=False),
    )
    code, out, err = xclp(
        *("demo", "--dataset", "digits", "--bits", "64", "--json", tmp_path / "out.json")
    )
    assert (code, err) == (1, "")
    assert "Secure and plain labels are DIFFERENT." in " ".join(out.split())
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["identical_labels"] is False
    assert result["parameters"]["hamming"] == "rlwe"  # the default


@pytest.mark.usefixtures("few_digits")
def test_the_demonstration_with_a_threshold_and_randomised_labels(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    options = ["demo", "--dataset", "digits", "--bits", "64", "--hamming", "plain"]
    code, out, err = xclp(*options, "--epsilon", "0.001", "--json", tmp_path / "out.json")
    assert (code, err) == (0, "")
    assert "every client randomises its labels" in out
    assert "The secure labels come from randomised ones" in " ".join(out.split())
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["identical_labels"] is None
    assert result["parameters"]["epsilon"] == 0.001
    assert result["accuracy"]["xclp"] < result["accuracy"]["plain"]
    gone = ["--drop", "client-01:hamming", "--drop", "client-02:hamming"]
    code, _, err = xclp(*options, "--threshold", "3", *gone)
    assert code == 1
    assert "2 of the parties answered and 3 are needed" in one_line(err)


@pytest.mark.usefixtures("few_digits")
def test_clients_of_the_demonstration_vanish(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, err = xclp(
        *("demo", "--dataset", "digits", "--bits", "64", "--hamming", "plain"),
        *("--drop", "client-02:hamming", "--drop", "client-04:labels"),
        *("--class-weight", "balanced", "--imbalance", "4"),
        *("--json", tmp_path / "out.json"),
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "labels weigh 1/(labels of their class), totals that the server does not learn" in lines
    assert (
        "client-02 dropped out before the end of the step 'hamming': to the others it is as if it "
        "had never taken part: its points are not in the graph. It gets no labels."
    ) in lines
    assert (
        "client-04 dropped out before the end of the step 'labels': its labels are counted, so "
        "nothing changes for the others. It gets its own labels if it comes back within the "
        "session."
    ) in lines
    assert "Secure and plain labels are identical." in " ".join(out.split())
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["contributors"] == ["client-01", "client-03", "client-04"]
    assert [(d["client"], d["step"], d["contributed"]) for d in result["dropouts"]] == [
        ("client-02", "hamming", False),
        ("client-04", "labels", True),
    ]
    assert all(d["effect"] in out for d in result["dropouts"])
    assert "Accuracy on the unlabelled rows of clients that stayed" in out
    rows = [json.loads(line) for line in re.findall(r"(\d+) (?:labels were|rows\.)", out)]
    labelled = int(re.findall(r"(\d+) of \d+ rows were labelled", out)[0])
    assert 0 < rows[0] < labelled  # counted
    assert 0 < rows[1] < 160 - labelled  # predicted
    assert result["parameters"]["drop"] == {"client-02": "hamming", "client-04": "labels"}
    assert result["parameters"]["class_weight"] == "balanced"
    assert result["parameters"]["imbalance"] == 4


@pytest.mark.filterwarnings("default:only north and south are in the sums")
def test_a_client_of_a_federation_vanishes(
    xclp: Callable[..., tuple[int, str, str]], federation: Path
) -> None:
    results = federation.parent / "results"
    results.mkdir()
    (results / "east.csv").write_text("of an earlier run")
    (results / "west.csv").write_text("of an earlier federation")
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
def test_labelled_rows_with_another_label_are_counted(
    xclp: Callable[..., tuple[int, str, str]], federation: Path
) -> None:
    for column in (1, 2, 3):
        cell(2, column, "0")(federation)
    array("south_y.npy", np.array([2, 1, 2, 1]))(federation)
    assert xclp("run", federation)[0] == 0
    found = labelled_rows(federation.parent / "results")
    assert len(found) == 6
    changed = sum(row["label"] not in ("", row["given"]) for row in found)
    assert changed > 0
    line = (
        f"of 6 labelled rows {changed} got another label and 1 got none; reset_labelled = true "
        "keeps the given ones"
    )
    assert line in xclp("run", federation)[1].splitlines()
    change("k = 2", "k = 2\nreset_labelled = true")(federation)
    assert "labelled rows" not in xclp("run", federation)[1].replace("15 rows labelled", "")
    assert all(r["label"] == r["given"] for r in labelled_rows(federation.parent / "results"))
    change("reset_labelled = true", "")(federation)
    out = xclp("run", federation, "--drop", "south:labels")[1]  # it has no result
    assert "of 2 labelled rows" in out


def test_true_labels_are_compared_with_the_result_and_not_used(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, federation: Path
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
    code, out, err = xclp("run", federation, "--report", "r.html")
    assert (code, err) == (0, "")
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
    xclp: Callable[..., tuple[int, str, str]],
    federation: Path,
    truth: list[str],
    options: list[str],
    message: str,
) -> None:
    table = (federation.parent / "north.csv").read_text().splitlines()
    (federation.parent / "north.csv").write_text(
        "".join(f"{line},{y}\n" for line, y in zip(table, ["species", *truth], strict=True))
    )
    change('label_column = "label"', 'label_column = "label"\ntruth_column = "species"')(federation)
    code, out, err = xclp("run", federation, *options)
    assert (code, one_line(err).startswith(message)) == (2, True), err
    assert "setup" not in out


def labelled_rows(folder: Path) -> list[dict[str, str]]:
    rows = []
    for file in folder.glob("*.csv"):
        with file.open(newline="", encoding="utf-8") as lines:
            rows += [row for row in csv.DictReader(lines) if row["given"]]
    return rows


def test_an_interrupted_run_writes_nothing(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    def interrupt(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Plan, "run", interrupt)
    before = content_of(federation.parent)
    code, _, err = xclp("run", federation)
    assert (code, one_line(err)) == (130, "interrupted; nothing was written")
    assert content_of(federation.parent) == before


def test_a_file_of_data_is_no_federation_file(
    xclp: Callable[..., tuple[int, str, str]], federation: Path
) -> None:
    for name in ("north.csv", "south.npy"):
        code, _, err = xclp("run", federation.parent / name)
        assert code == 2
        assert "is not a federation file (TOML) but data" in one_line(err)
        assert one_line(err).endswith(f'features = "{name}"')


def test_a_failed_party_is_exit_code_1(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    def stall(*args: Any, **options: Any) -> Any:
        raise Stalled("north", "hamming", ("server",), "Participants\nand more")

    monkeypatch.setattr(Plan, "run", stall)
    code, _, err = xclp("run", federation)
    assert code == 1
    assert one_line(err) == "north stalled in step 'hamming': no Participants and more from server"
    assert not (federation.parent / "results").exists()


def change(old: str, new: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return apply


def cell(row: int, column: int, value: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        with (path.parent / "north.csv").open(newline="") as file:
            rows = list(csv.reader(file))
        rows[row][column] = value
        (path.parent / "north.csv").write_text("\n".join(map(",".join, rows)) + "\n")

    return apply


def array(name: str, value: Any) -> Callable[[Path], None]:
    return lambda path: np.save(path.parent / name, value)


SOUTH = arrays()[0][1]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(cell(3, 2, "nan"), ["'north'", "row 3", "'v'", "north.csv", "nan"], id="NaN"),
        pytest.param(cell(1, 1, "-inf"), ["'north'", "row 1", "'u'", "-inf"], id="infinity"),
        pytest.param(cell(2, 3, ""), ["'north'", "row 2", "'w'", "north.csv", "empty"], id="empty"),
        pytest.param(cell(2, 3, "1,2"), ["'north'", "row 2", "5 fields", "has 4"], id="ragged"),
        pytest.param(cell(2, 3, "red"), ["'north'", "row 2", "'w'", "'red'"], id="text"),
        pytest.param(
            array("south.npy", SOUTH.astype(complex)), ["'south'", "complex128"], id="complex"
        ),
        pytest.param(
            array("south.npy", SOUTH.astype(str)),
            ["'south'", "row 0, column 0 (counted from 0)"],
            id="strings",
        ),
        pytest.param(array("south.npy", SOUTH[0]), ["'south'", "shape (3,)"], id="a vector"),
        pytest.param(
            array("south.npy", SOUTH[:, :2]), ["'south'", "2 features", "'north'", "3"], id="d"
        ),
        pytest.param(
            array("south_y.npy", np.array([2, -1])), ["'south'", "4 rows", "2 labels"], id="rows"
        ),
        pytest.param(
            array("south_y.npy", np.array([True, False, True, False])),
            ["several types", "'north'", "'south'"],
            id="types of labels",
        ),
        pytest.param(
            array("south_y.npy", np.ones((4, 2))), ["'south'", "shape (4, 2)"], id="one-hot"
        ),
        pytest.param(
            change("k = 2", "k = 2\nclasses = [1, 3]"),
            ["'north', row 2: label 2", "(1, 3)"],
            id="unknown class",
        ),
        pytest.param(change("k = 2", "k = 2\nclasses = []"), ["classes", "()"], id="no class"),
        pytest.param(
            lambda p: (
                cell(1, 0, "")(p),
                cell(2, 0, "")(p),
                array("south_y.npy", np.full(4, -1))(p),
            ),
            [
                *("no client has a label: column 'label' of ", "north.csv, ", "south_y.npy, "),
                *("east.npz are empty, or -1, in every row",),
            ],
            id="no label",
        ),
        pytest.param(
            change("[clients.south]", "[clients.north]"), ["federation.toml", "north"], id="names"
        ),
        pytest.param(
            change("[clients.south]", "[clients.server]"), ["'server'"], id="reserved name"
        ),
        pytest.param(
            lambda p: p.write_text(TOML[: TOML.index("[clients.south]")]),
            ["at least 2 clients", "got 1"],
            id="one client",
        ),
        pytest.param(change("n_bits = 64", "n_bits = 0"), ["n_bits", "1", "32768", "0"], id="L=0"),
        pytest.param(change("n_bits = 64", "n_bits = 40000"), ["n_bits", "40000"], id="long L"),
        pytest.param(change("n_bits = 64", "n_bits = 6.4"), ["n_bits", "6.4"], id="fractional L"),
        pytest.param(change("n_bits = 64", 'n_bits = "x"'), ["n_bits", "'x'"], id="L is text"),
        pytest.param(change("k = 2", "k = 15"), ["k = 15", "rows = 15"], id="k = n"),
        pytest.param(change("k = 2", "k = 0"), ["k must be", "got 0"], id="k = 0"),
        pytest.param(change("k = 2", "k = true"), ["k must be", "True"], id="k is true"),
        pytest.param(change("alpha = 0.9", "alpha = 0"), ["alpha", "0", "1"], id="alpha = 0"),
        pytest.param(change("alpha = 0.9", "alpha = 1.0"), ["alpha", "got 1.0"], id="alpha = 1"),
        pytest.param(change("alpha = 0.9", "alpha = nan"), ["alpha", "got nan"], id="alpha is nan"),
        pytest.param(change("alpha = 0.9", 'alpha = "a"'), ["alpha", "'a'"], id="alpha is text"),
        pytest.param(change("k = 2", "k = 2\ngamma = -1"), ["gamma", "-1"], id="gamma"),
        pytest.param(change("k = 2", 'k = 2\nties = "no"'), ["ties", "'no'"], id="ties"),
        pytest.param(change("k = 2", "k = 2\nhamming = 3"), ["hamming", "3"], id="back end"),
        pytest.param(
            change("k = 2", 'k = 2\ninclude_self = "no"'), ["include_self", "'no'"], id="self"
        ),
        pytest.param(
            change("k = 2", "k = 2\nfraction_bits = 62"), ["'north'", "62 fraction"], id="overflow"
        ),
        pytest.param(
            change("random_state = 0", "random_state = -1"), ["random_state", "-1"], id="seed"
        ),
        pytest.param(
            change("k = 2", "k = 1" + "0" * 5000), ["federation.toml", "digits"], id="long number"
        ),
        pytest.param(change("k = 2", "kay = 2"), ["unknown field 'kay'"], id="unknown field"),
        pytest.param(change("[clients.east]", "[clients.'a/b']"), ["'a/b'"], id="unsafe name"),
        pytest.param(lambda p: p.unlink(), ["there is no file", "federation.toml"], id="no file"),
        pytest.param(
            lambda p: (p.parent / "south.npy").unlink(), ["'south'", "no file"], id="no data"
        ),
        pytest.param(
            change("[clients.south]", "[clients.NORTH]"), ["'NORTH'", "'north'"], id="case"
        ),
        pytest.param(change("[clients.south]", "[clients.nul]"), ["'nul'"], id="a device"),
        pytest.param(
            change("[parameters]", 'output = "."\n[parameters]'),
            ["north.csv is one of the files that were read"],
            id="results over input",
        ),
        pytest.param(
            lambda p: (p.parent / "results").write_text("mine"),
            ["results is a file"],
            id="output is a file",
        ),
        pytest.param(
            lambda p: (p.parent / "results" / "cost.json").mkdir(parents=True),
            ["cost.json is a folder"],
            id="output is taken",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    xclp: Callable[..., tuple[int, str, str]],
    federation: Path,
    spoil: Callable[[Path], Any],
    words: list[str],
) -> None:
    spoil(federation)
    before = content_of(federation.parent)
    code, out, err = xclp("run", federation)
    message = one_line(err)
    assert code == 2
    assert all(word in message for word in words), message
    assert "distances by" not in out or "62 fraction" in message  # found before the estimate
    assert content_of(federation.parent) == before


def test_a_bad_output_is_found_before_the_computation(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    def never(*args: Any, **options: Any) -> Any:
        raise AssertionError("the computation was started")

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
    xclp: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    federation: Path,
    output: str,
    message: str,
) -> None:
    monkeypatch.chdir(federation.parent)
    before = content_of(federation.parent)
    code, out, err = xclp("run", federation, "--output", output)
    assert (code, out) == (2, "")
    assert one_line(err).startswith(message)
    assert content_of(federation.parent) == before


def test_what_was_understood_is_said_before_anything_is_computed(
    xclp: Callable[..., tuple[int, str, str]], federation: Path
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


def test_runs_that_cannot_be_repeated_say_so(
    xclp: Callable[..., tuple[int, str, str]], federation: Path
) -> None:
    assert "random_state" not in xclp("run", federation)[1]
    change("random_state = 0", "")(federation)
    code, out, _ = xclp("run", federation)
    assert code == 0
    line = next(line for line in out.splitlines() if "random_state" in line)
    assert line.startswith("random_state is not set: every run draws another projection")
    assert out.index(line) < out.index("  setup …")


def test_when_writing_fails_there_are_no_results(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "write_table", full)
    before = content_of(federation.parent)
    code, _, err = xclp("run", federation)
    assert code == 2
    assert "No space left on device" in one_line(err)
    assert content_of(federation.parent) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dataset", "mnist"], ["--dataset", "digits", "watch", "'mnist'"]),
        (["--labelled", "0"], ["0.0", "(0, 1]"]),
        (["--labelled", "1"], ["labelled", "1.0"]),
        (["--labelled", "1.5"], ["1.5", "(0, 1]"]),
        (["--k", "0"], ["k must be", "got 0"]),
        (["-k", "160"], ["k = 160", "rows = 160"]),
        (["--alpha", "1"], ["alpha", "got 1.0"]),
        (["--alpha", "nan"], ["alpha", "got nan"]),
        (["--hamming", "rot13"], ["'rot13'", "masked", "plain"]),
        (["--hamming", "maskd"], ["'maskd'", "; did you mean 'masked'?"]),
        (["--seed", "-1"], ["seed", "-1"]),
        (["--class-weight", "odd"], ["class_weight", "'balanced'", "'odd'"]),
        (["--imbalance", "0.5"], ["imbalance must be at least 1", "0.5"]),
        (["--imbalance", "nan"], ["imbalance", "nan"]),
        (["--drop", "client-01"], ["--drop must be CLIENT:STEP", "'client-01'"]),
        (["--drop", "nobody:hamming"], ["cannot drop 'nobody'", "client-01"]),
        (["--drop", "client-01:lunch"], ["'client-01' can drop out before setup", "'lunch'"]),
        (["--drop", "client-01:row:sums"], ["not 'row:sums'; did you mean 'row sums'"]),
        (["--drop", "Client-01:hamming"], ["cannot drop 'Client-01'", "did you mean 'client-01'"]),
        (["--threshold", "1"], ["threshold must be at least 2, got 1"]),
        (["--epsilon", "0"], ["epsilon must be in (0, 700]", "0"]),
        (["--drop", "client-01:"], ["'client-01' can drop out before setup", "not ''"]),
        (
            ["--drop", "client-01:setup", "--drop", "client-01:labels"],
            ["--drop client-01:labels", "drops out only once"],
        ),
    ],
)
@pytest.mark.usefixtures("few_digits")
def test_bad_options_of_the_demonstration(
    xclp: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    arguments: list[str],
    words: list[str],
) -> None:
    options = {"--dataset": "digits", "--bits": "64"}
    for name, value in options.items():
        if name not in arguments:
            arguments = [*arguments, name, value]
    code, out, err = xclp("demo", *arguments, "--json", tmp_path / "out.json")
    message = one_line(err)
    assert code == 2
    assert out == ""
    assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("gone/out.json", "there is no folder"),
        (".", "is a folder"),
        ("", "must be the name of a file"),
        ("x/y.json", "no folder"),
    ],
)
def test_a_bad_json_path_is_found_before_the_computation(
    xclp: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    target: str,
    message: str,
) -> None:
    def never(*args: Any, **options: Any) -> Any:
        raise AssertionError("the computation was started")

    monkeypatch.setattr(study_cli, "compare", never)
    monkeypatch.setattr(study_cli, "load", never)
    (tmp_path / "x").write_text("a file")
    before = content_of(tmp_path)
    file = tmp_path / target if target else target
    code, _, err = xclp("demo", "--dataset", "digits", "--json", file)
    assert code == 2
    assert one_line(err).startswith("--json ")
    assert message in err
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("arguments", [["demo", "--json"], ["run", "federation.toml", "--output"]])
def test_places_are_tried_before_the_computation(
    xclp: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    federation: Path,
    arguments: list[str],
) -> None:
    """Permissions alone do not tell, for root or in /proc."""

    def refuse(*, prefix: str, dir: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(Path(dir) / prefix))

    def never(*args: Any, **options: Any) -> Any:
        raise AssertionError("the computation was started")

    monkeypatch.setattr(study_cli, "compare", never)
    monkeypatch.setattr(Plan, "run", never)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    monkeypatch.chdir(federation.parent)
    code, _, err = xclp(*arguments, "out")
    assert code == 2
    assert one_line(err).startswith(f"{arguments[-1]} out: ")
    assert one_line(err).endswith(". cannot be written: Permission denied")


@pytest.mark.parametrize(
    "arguments", [["demo", "--bits", "many"], ["run"], ["nothing"], ["demo", "--repeat", "0"]]
)
def test_wrong_usage_is_exit_code_2(
    xclp: Callable[..., tuple[int, str, str]], arguments: list[str]
) -> None:
    code, out, err = xclp(*arguments)
    assert (code, out) == (2, "")
    assert "Usage: " in err


@pytest.mark.parametrize("command", ["demo", "plan", "bench hamming", "bench propagation"])
@pytest.mark.parametrize("bits", [0, 32769])
def test_bits_out_of_range_are_refused_by_the_name_of_the_option(
    xclp: Callable[..., tuple[int, str, str]], command: str, bits: int
) -> None:
    code, out, err = xclp(*command.split(), "--bits", str(bits))
    assert (code, out) == (2, "")
    assert "Invalid value for '--bits'" in " ".join(err.replace("│", " ").split())
    assert "n_bits" not in err


def test_without_arguments_the_help_is_shown(xclp: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = xclp()
    assert code in (0, 2)
    assert "Usage: " in out + err


def test_bench_sum_says_what_it_will_cost_and_then_what_it_did(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "sum.json"
    options = "--clients 4 --size 500 --drop 1 --bits 32 --threshold 3 --repeat 1 --seed 3"
    code, out, err = xclp("bench", "sum", *options.split(), "--json", file)
    assert (code, err) == (0, "")
    estimate, *rest = out.splitlines()
    assert estimate.startswith(
        "sum over 4 clients, each with 500 values modulo 2^32 and masks with 3 others: 1"
    )
    assert " kB in 9 rounds, about " in estimate
    assert estimate.endswith(" of memory; at least 3 must stay, 1 drop out")
    text = "\n".join(rest)
    for words in ("setup …", "reveal …", "4 clients × 500 values × 32 bits", "3 of 4", "yes"):
        assert words in text
    result = json.loads(file.read_text("utf-8"))
    assert (result["exact"], result["survivors"], result["seed"]) == (True, 3, 3)


def test_bench_sum_takes_sparse_masks(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "sum.json"
    for option, neighbours in (("--sparse", 40), ("--complete", 59)):
        arguments = ["--clients", "60", "--size", "1", "--repeat", "1", option, "--json", file]
        assert xclp("bench", "sum", *arguments)[0] == 0
        assert json.loads(file.read_text("utf-8"))["neighbours"] == neighbours


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "4", "--drop", "2"], "drop must be in 0 … 1, got 2"),
        (["--bits", "16"], "bits must be 32 or 64"),
        (["--threshold", "11"], "threshold must be in 2 … 10"),
        (["--clients", "9000", "--size", "10000000"], " GB; use fewer clients or values"),
        (["--json", "gone/out.json"], "there is no folder"),
    ],
)
def test_bench_sum_refuses_before_anything_is_computed(
    xclp: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    def never(*args: Any, **options: Any) -> Any:
        raise AssertionError("the computation was started")

    monkeypatch.setattr(bench_cli.SumBench, "run", never)
    code, out, err = xclp("bench", "sum", *arguments)
    assert (code, out) == (2, "")
    assert message in one_line(err)


def test_bench_sum_exits_1_when_a_sum_is_wrong(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bench_cli.SumBench.run
    monkeypatch.setattr(bench_cli.SumBench, "run", lambda *a: real(*a) | {"exact": False})
    code, out, _ = xclp("bench", "sum", "--clients", "3", "--size", "5", "--repeat", "1")
    assert code == 1
    assert "NO" in out


# Experiments


def test_experiment_writes_a_result_that_tables_prints(
    tmp_path: Path, xclp: Callable[..., tuple[int, str, str]]
) -> None:
    config = tmp_path / "e.toml"
    config.write_text(
        'dataset = "digits"\nvalues = [5]\nmethods = ["per-client", "xclp"]\n'
        "[data]\nn_clients = 4\n[parameters]\nn_bits = 64\n"
    )
    out = tmp_path / "results"
    out.mkdir()
    code, said, err = xclp("experiment", "labels", "--config", config, "--out", out, "--seeds", 2)
    assert (code, err) == (0, "")
    assert "| labels per client | each client alone | XCLP |" in said
    result = json.loads((out / "digits-labels.json").read_text())
    assert result["experiment"]["seeds"] == [0, 1]
    assert result["experiment"]["parameters"] == {"n_bits": 64}
    assert result["data"]["clients"] == 4
    assert len(result["runs"]) == 4
    code, _, err = xclp(
        "experiment", "labels", "--config", config, "--out", out, "--seeds", 2,
        "--hamming", "masked", "--name", "digits-masked",
    )  # fmt: skip
    assert (code, err) == (0, "")
    masked = json.loads((out / "digits-masked.json").read_text())
    assert masked["experiment"]["parameters"] == {"n_bits": 64, "hamming": "masked"}
    for one, other in zip(result["runs"], masked["runs"], strict=True):
        assert one["labels_sha256"] == other["labels_sha256"]
    code, printed, err = xclp("tables", out)
    assert (code, err) == (0, "")
    assert printed.index("### digits-labels") < printed.index("### digits-masked")
    document = tmp_path / "d.md"
    document.write_text("before\n<!-- tables -->\nold\n")
    code, said, err = xclp("tables", out, "--into", document)
    assert (code, err) == (0, "")
    before, after = document.read_text().split("<!-- tables -->\n")
    assert before == "before\n"
    assert after.strip() == printed.strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["experiment", "labels", "--out", "."], "the experiment: dataset is missing"),
        (["experiment", "sizes", "--dataset", "digits", "--out", "."], "no form 'sizes'"),
        (["experiment", "labels", "--dataset", "digits", "--out", "none"], "no folder none"),
        (["experiment", "labels", "--dataset", "vowel", "--path", "x", "--out", "."], "Vowel.rda"),
        (["experiment", "labels", "--dataset", "watch", "--path", "x", "--out", "."], "no option"),
        (["tables", "."], "no result files"),
    ],
)
def test_mistakes_in_experiments(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    xclp: Callable[..., tuple[int, str, str]],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = xclp(*arguments)
    assert code == 2
    assert message in one_line(err)


# What a run would cost


def test_a_plan_of_a_federation_says_its_cost_and_runs_nothing(
    xclp: Callable[..., tuple[int, str, str]], federation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: Any, **options: Any) -> None:
        pytest.fail("something ran")

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
    assert found["rounds"] == 18
    assert found["bytes"] == sum(
        sum(step["bytes_sent"].values()) for step in found["steps"].values()
    )
    assert set(found["steps"]["hamming"]["bytes_sent"]) == {"north", "south", "east"}
    file.unlink()
    assert content_of(federation.parent) == before


def test_a_plan_overwrites_no_input_and_takes_no_sizes_beside_a_file(
    xclp: Callable[..., tuple[int, str, str]], federation: Path
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


def test_a_plan_of_sizes_alone(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ("--clients", "4", "--rows", "30", "--bits", "64", "--hamming", "masked", "-k", "3")
    code, out, _ = xclp("plan", *sizes)
    assert code == 0
    assert "masked (chosen)" in out
    assert "in 16 rounds" in " ".join(out.split())
    code, _, err = xclp("plan", "--clients", "2", "--rows", "2", "-k", "9")
    assert (code, one_line(err)[:19]) == (2, "k must be smaller t")
    code, _, err = xclp("plan", "--rows", "10000000", "--clients", "3", "--hamming", "masked")
    assert code == 2
    assert "30,000,000 rows with 4,096 bits by masked need 1,800,122.9 GB" in one_line(err)
    code, _, err = xclp("plan", "--rows", "1000000000", "--clients", "2")  # at once
    assert (code, "fewer rows" in one_line(err)) == (2, True)
    code, _, err = xclp("plan", "--rows", "50", "--labelled", "0")
    assert (code, one_line(err)) == (2, "--labelled 0 of 50 rows is no label: nothing can spread")
    code, _, err = xclp("plan", "--hamming", "mask")
    assert code == 2


# Reports


@pytest.mark.usefixtures("few_digits")
def test_the_demonstration_writes_a_report(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file, folder = tmp_path / "r.html", tmp_path / "pictures"
    code, out, err = xclp(
        *("demo", "--dataset", "digits", "--bits", "64", "--hamming", "plain", "--repeat", "2"),
        *("--report", file, "--png", folder, "--json", tmp_path / "r.json"),
    )
    assert (code, err) == (0, "")
    said = "".join(out.split())  # long names of files are broken over lines
    assert said.endswith(f"writtento{file}writtento{folder}")
    page = file.read_text(encoding="utf-8")
    accuracy = json.loads((tmp_path / "r.json").read_text())["accuracy"]
    for value in accuracy.values():  # the means over both seeds
        assert f"<dd>{value:.1%}</dd>" in page
    assert {p.name for p in folder.iterdir()} == {
        f"{name}.png"
        for name in ("accuracy-by-client", "confidence", "confusion", "cost", "parties")
    }


def test_a_run_writes_a_report(
    xclp: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    monkeypatch.chdir(federation.parent)
    code, out, err = xclp("run", "federation.toml", "--report", "r.html", "--png", "pictures")
    assert (code, err) == (0, "")
    assert out.endswith("written to r.html\nwritten to pictures\n")
    page = Path("r.html").read_text(encoding="utf-8")
    assert "north" in page
    assert "cannot say how many labels are right" in page
    assert str(federation.parent) not in page
    assert Path("pictures/labels-by-client.png").is_file()
    assert Path("results/cost.json").is_file()


def test_an_experiment_writes_a_report(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    config = tmp_path / "e.toml"
    config.write_text(
        'dataset = "digits"\nvalues = [5]\nmethods = ["per-client", "xclp"]\nseeds = [0]\n'
        "[data]\nn_clients = 4\n[parameters]\nn_bits = 64\n"
    )
    code, _, err = xclp(
        *("experiment", "labels", "--config", config, "--out", tmp_path),
        *("--report", tmp_path / "r.html", "--png", tmp_path / "p"),
    )
    assert (code, err) == (0, "")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    table = json.loads((tmp_path / "digits-labels.json").read_text())["table"]
    for entry in table:
        assert f">{100 * entry['accuracy']['mean']:.1f}<" in page
        assert "±" not in page
    assert (tmp_path / "p" / "accuracy.png").is_file()


@pytest.mark.parametrize(
    ("option", "target", "message"),
    [
        ("--report", "gone/r.html", "there is no folder"),
        ("--report", ".", "is a folder"),
        ("--report", "r.csv", "the name of a report ends in .html"),
        ("--report", "federation.toml", "the name of a report ends in .html"),
        ("--png", "gone/p", "there is no folder"),
        ("--png", "federation.toml", "is a file"),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--dataset", "digits"],
        ["run", "federation.toml"],
        ["experiment", "labels", "--dataset", "digits", "--out", "."],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_bad_place_for_a_report_is_found_before_the_computation(
    xclp: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    federation: Path,
    arguments: list[str],
    option: str,
    target: str,
    message: str,
) -> None:
    def never(*args: Any, **options: Any) -> Any:
        raise AssertionError("the computation was started")

    for name in ("compare", "load", "run_experiment"):
        monkeypatch.setattr(study_cli, name, never)
    monkeypatch.setattr(run_cli, "load_federation", never)
    monkeypatch.chdir(federation.parent)
    before = content_of(federation.parent)
    code, _, err = xclp(*arguments, option, target)
    assert code == 2
    assert one_line(err).startswith(f"{option} ")
    assert message in err
    assert content_of(federation.parent) == before


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_report_without_its_packages_says_what_to_install(
    xclp: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    federation: Path,
    package: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "xclp_lp.study.report", raising=False)
    monkeypatch.chdir(federation.parent)
    code, _, err = xclp("run", "federation.toml", "--report", "r.html")
    assert code == 2
    assert one_line(err) == f"reports need {package}; install with: pip install 'xclp[report]'"
    assert not Path("results").exists()
    assert xclp("run", "federation.toml")[0] == 0


def test_messages_do_not_command_the_terminal(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "f.toml"
    file.write_text('[clients."\\u001b[31mred\\u0007"]\nfeatures = "a.csv"\n')
    code, out, err = xclp("run", str(file))
    assert code == 2
    assert "red" in err
    assert not {"\x1b", "\x07"} & set(out + err)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "."])
def test_a_result_stays_in_its_folder(
    xclp: Callable[..., tuple[int, str, str]], tmp_path: Path, name: str
) -> None:
    code, _, err = xclp(
        *("experiment", "labels", "--dataset", "digits", "--out", str(tmp_path), "--name", name)
    )
    assert (code, "--name must be a name without folders" in one_line(err)) == (2, True)
