"""`xclp demo`, `xclp experiment` and `xclp tables`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_lines import Xclp, content_of, never, one_line

from xclp_lp.cli import demo as demo_cli
from xclp_lp.dropouts import STEPS
from xclp_lp.study.demo import compare


def test_the_demonstration(xclp: Xclp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = xclp(
        *("demo", "--dataset", "digits", "--labelled", ".05", "--bits", "512"),
        *("--hamming", "masked", "--json", "out.json"),
    )
    assert (code, err) == (0, "")
    assert "Secure and plain labels are identical." in out
    assert (
        "\n10 clients, 1,797 rows, 64 features\n10 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9\n"
        "90 of 1,797 rows labelled\nfeatures are scaled over the rows of all clients, who learn "
        "each feature's mean and variance; the server does not\nlabels weigh 1/√N with N labels of "
        "their class, which the server does not learn\neach label is left out in turn to see "
    ) in out
    result = json.loads((tmp_path / "out.json").read_text())
    assert set(result) == {
        *("accuracy", "balanced_accuracy", "identical_labels"),
        *("contributors", "dropouts", "contradictions", "cost", "parameters"),
    }
    assert len(result["contributors"]) == 10
    assert result["dropouts"] == []
    accuracy = result["accuracy"]
    assert set(accuracy) == {"per_client", "xclp", "plain"}
    assert accuracy["xclp"] == accuracy["plain"] > accuracy["per_client"] + 0.1
    for value in (*accuracy.values(), *result["balanced_accuracy"].values()):
        assert f"{value:.1%}" in out
    assert result["identical_labels"] is True
    assert result["parameters"] == {
        "dataset": "digits",
        "labelled": 0.05,
        "k": 10,
        "preset": "default",
        "alpha": 0.9,
        "scale": "shared",
        "n_bits": 512,
        "hamming": "masked",
        "gamma": 3.0,
        "projection": "random",
        "include_self": False,
        "ties": "all",
        "fraction_bits": 40,
        "reset_labelled": False,
        "relative_confidence": False,
        "min_confidence": 0.0,
        "missing": "refuse",
        "winsorise": None,
        "class_weight": "sqrt",
        "client_prior": "none",
        "validation": "leave-one-out",
        "imbalance": 1.0,
        "threshold": None,
        "post_quantum": True,
        "epsilon": None,
        "drop": {},
        "rows_per_client": None,
        "seeds": [0],
    }
    steps = result["cost"]["steps"]
    assert tuple(steps) == STEPS
    for step in steps.values():
        assert set(step) == {"rounds", "seconds", "bytes_sent", "bytes_received"}
    assert len(steps["hamming"]["bytes_sent"]) == 10 + 1
    assert sum(sum(s["bytes_sent"].values()) for s in steps.values()) == result["cost"]["bytes"]
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]  # no scratch left


@pytest.mark.usefixtures("few_digits")
def test_repeated_seeds_are_averaged(xclp: Xclp, tmp_path: Path) -> None:
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
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        demo_cli,
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
    xclp: Xclp, tmp_path: Path
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
    drop = ["--drop", "client-01:hamming", "--drop", "client-02:hamming"]
    code, _, err = xclp(*options, "--threshold", "3", *drop)
    assert code == 1
    assert "2 of the parties answered and 3 are needed" in one_line(err)


@pytest.mark.usefixtures("few_digits")
def test_clients_of_the_demonstration_drop_out(xclp: Xclp, tmp_path: Path) -> None:
    code, out, err = xclp(
        *("demo", "--dataset", "digits", "--bits", "64", "--hamming", "plain"),
        *("--drop", "client-02:hamming", "--drop", "client-04:labels"),
        *("--class-weight", "balanced", "--imbalance", "4"),
        *("--json", tmp_path / "out.json"),
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "labels weigh 1/N with N labels of their class, which the server does not learn" in lines
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dataset", "mnist"], ["--dataset", "digits", "watch", "'mnist'"]),
        (["--labelled", "0"], ["0.0", "(0, 1]"]),
        (["-k", "160"], ["k = 160", "rows = 160"]),
        (["--hamming", "maskd"], ["'maskd'", "; did you mean 'masked'?"]),
        (["--imbalance", "0.5"], ["imbalance must be at least 1", "0.5"]),
        (["--drop", "client-01"], ["--drop must be CLIENT:STEP", "'client-01'"]),
        (["--drop", "client-01:lunch"], ["'client-01' can drop out before setup", "'lunch'"]),
        (["--drop", "Client-01:hamming"], ["cannot drop 'Client-01'", "did you mean 'client-01'"]),
        (["--epsilon", "0"], ["epsilon must be in (0, 700]", "0"]),
        (
            ["--drop", "client-01:setup", "--drop", "client-01:labels"],
            ["--drop client-01:labels", "drops out only once"],
        ),
    ],
)
@pytest.mark.usefixtures("few_digits")
def test_bad_options_of_the_demonstration(
    xclp: Xclp, tmp_path: Path, arguments: list[str], words: list[str]
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
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, message: str
) -> None:
    monkeypatch.setattr(demo_cli, "compare", never)
    monkeypatch.setattr(demo_cli, "load", never)
    (tmp_path / "x").write_text("a file")
    before = content_of(tmp_path)
    file = tmp_path / target if target else target
    code, _, err = xclp("demo", "--dataset", "digits", "--json", file)
    assert code == 2
    assert one_line(err).startswith("--json ")
    assert message in err
    assert content_of(tmp_path) == before


def test_experiment_writes_a_result_that_tables_prints(tmp_path: Path, xclp: Xclp) -> None:
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
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xclp: Xclp
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = xclp(*arguments)
    assert code == 2
    assert message in one_line(err)


@pytest.mark.usefixtures("few_digits")
def test_the_demonstration_writes_a_report(xclp: Xclp, tmp_path: Path) -> None:
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


def test_an_experiment_writes_a_report(xclp: Xclp, tmp_path: Path) -> None:
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
        assert f">{entry['accuracy']['mean']:.1%}<" in page
        assert "±" not in page
    assert (tmp_path / "p" / "accuracy.png").is_file()


@pytest.mark.parametrize("name", ["../x", "a/b", "", "."])
def test_a_result_stays_in_its_folder(xclp: Xclp, tmp_path: Path, name: str) -> None:
    code, _, err = xclp(
        *("experiment", "labels", "--dataset", "digits", "--out", str(tmp_path), "--name", name)
    )
    assert (code, "--name must be a name without folders" in one_line(err)) == (2, True)
