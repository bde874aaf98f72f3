"""Studies of federated training: files, runs that are killed and go on, results, command line."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.cli import main as cli
from xclp_lp.study.data import Federation
from xclp_lp.study.data.pictures import PICTURES
from xclp_lp.study.experiments.config import read_described
from xclp_lp.study.experiments.document import markdown, read_result, sections
from xclp_lp.study.experiments.methods import arguments
from xclp_lp.study.report import training_report
from xclp_lp.study.training import run as run_module
from xclp_lp.study.training.comparators import FedSiam
from xclp_lp.study.training.config import METHODS, Study
from xclp_lp.study.training.labellers import NetworkLabels, PropagatedLabels
from xclp_lp.study.training.run import read_rounds, read_rows, run_study, trainer_of
from xclp_lp.study.training.strategies import FedProx

ROOT = Path(__file__).parents[2]

TOML = """
dataset = "digits"
network = "mlp"
augmentation = "translate-flip"
methods = ["fedavg", "fedavg+xclp"]
evaluate_every = 2
seeds = [0]

[partition]
clients = 6
labels = 60
rows = 300

[training]
rounds = 3
sampled = 0.5
steps = 2

[parameters]
n_bits = 128
k = 4
"""

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "network": "mlp",
    "methods": ("fedavg+xclp",),
    "partition": {"clients": 6, "labels": 60, "rows": 300},
    "training": {"rounds": 4, "initial_rounds": 1, "sampled": 0.5, "steps": 3},
    "parameters": {"n_bits": 128, "k": 4},
    "evaluate_every": 2,
    "seeds": (0,),
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    (tmp_path / "s.toml").write_text(TOML)
    return tmp_path / "s.toml"


def folders(tmp_path: Path, *names: str) -> list[Path]:
    made = [tmp_path / name for name in names]
    for folder in made:
        folder.mkdir()
    return made


def stopped(study: Study, folder: Path, method: str, turn: int, resume: bool = False) -> None:
    """Run a study until a method has done so many rounds."""

    def report(seed: int, now: str, done: int, total: int) -> None:
        if (now, done) == (method, turn):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, folder, resume=resume, report=report)


def xclp_ssl(toml: Path, *options: str) -> Result:
    return CliRunner().invoke(
        cli.app, ["ssl", str(toml), "--out", str(toml.parent), *options], catch_exceptions=False
    )


def files(folder: Path) -> dict[str, bytes]:
    """The metrics and results of runs, without the seconds."""
    found = {}
    for file in sorted(folder.iterdir()):
        if file.suffix == ".csv" or file.name.startswith("split"):
            found[file.name] = file.read_bytes()
        elif file.suffix == ".json":
            content = json.loads(file.read_text())
            found[file.name] = json.dumps({**content, "seconds": 0}).encode()
    return found


# Files


def test_a_file_and_a_command_line_make_one_study(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(TOML + '\n[options."fedprox+xclp"]\nmu = 0.5\nrate = 0.01\n')
    study = read_described(
        Study, file, {"data": {"seed": 3}, "methods": ["fedprox+xclp"], "seeds": [4]}
    )
    assert (study.methods, study.seeds, study.data) == (("fedprox+xclp",), (4,), {"seed": 3})
    strategy = study.strategy("fedprox+xclp", 6)
    assert isinstance(strategy, FedProx)
    assert (strategy.mu, strategy.training.rate, strategy.training.steps) == (0.5, 0.01, 2)
    assert study.hyper_parameters("fedavg").rate == 0.1
    labeller = study.labeller("fedprox+xclp", 10, 4)
    assert isinstance(labeller, PropagatedLabels)
    assert labeller.arguments == arguments(4, n_bits=128, k=4)
    assert Study(dataset="digits").arguments(0).k == 10
    sem = study.labeller("fedsem+", 10, 0)
    assert isinstance(sem, NetworkLabels)
    assert sem.once
    assert isinstance(study.strategy("fedsiam", 6), FedSiam)


def test_all_methods_of_the_paper_are_there() -> None:
    labellers = ["", "+per-client", "+network", "+xclp"]
    averaged = {s + x for s in ("fedavg", "fedprox", "scaffold") for x in labellers}
    assert {*averaged, "fedsem+", "fedmatch", "fedsiam"} <= set(METHODS)
    study = Study(dataset="digits", methods=tuple(METHODS))
    for method in METHODS:
        study.labeller(method, 3, 0)
        study.strategy(method, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "mnist"}, "no dataset 'mnist'"),
        ({"network": "cnn"}, "no network 'cnn'"),
        ({"augmentation": "cutout"}, "no augmentation"),
        ({"methods": ("fedavg+xlcp",)}, r"did you mean 'fedavg\+xclp'"),
        ({"methods": ()}, "at least one method"),
        ({"seeds": (-1,)}, "seeds must be"),
        ({"metric": "f1"}, "no metric"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"secure": 1}, "secure must be true or false"),
        ({"partition": {"client": 3}}, "unknown field 'client'.* did you mean 'clients'"),
        ({"partition": {"kind": "iit"}}, r"\[partition\]: kind must be .* got 'iit'"),
        ({"training": {"epoch": 3}}, "unknown field 'epoch'.* did you mean 'epochs'"),
        ({"training": {"sampled": 2}}, "sampled"),
        ({"parameters": {"seed": 3}}, r"\[parameters\]: unknown field 'seed'"),
        ({"options": {"fedavg+xclp": {"mu": 3}}}, "no option of fedavg"),
        (
            {"methods": ["fedmatch"], "options": {"fedmatch": {"helpers": 1.5}}},
            "helpers of fedmatch must be an integer, got 1.5",
        ),
        (
            {"methods": ["fedprox"], "options": {"fedprox": {"mu": -1}}},
            "mu of fedprox must be at least 0, got -1",
        ),
        ({"options": {"fedsiam": {"beta": -1}}, "methods": ("fedsiam",)}, "beta of fedsiam"),
        ({"options": {"fedsim": {}}}, "no method 'fedsim'"),
        ({"methods": ("fedmatch",), "secure": True}, "fedmatch needs to see"),
    ],
)
def test_studies_with_mistakes(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Study(**SMALL | change)


def test_files_with_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    for text, message in (
        ("x = ", "Invalid value"),
        ("network = 'mlp'", "dataset is missing"),
        ("dataset = 'digits'\ntraining = 3", "training must be a section, got 3"),
        ("dataset = 'digits'\nround = 3", "unknown field 'round'"),
    ):
        file.write_text(text)
        with pytest.raises(ParameterError, match=message):
            read_described(Study, file, {})


@pytest.mark.parametrize("file", sorted((ROOT / "examples" / "ssl").glob("*.toml")))
def test_the_studies_shown_can_be_read(file: Path) -> None:
    study = read_described(Study, file, {})
    for method in study.methods:
        study.strategy(method, 2)


# Data


def test_pictures_get_their_shape_and_range(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).random((8, 2 * 2 * 3))
    x[0, :2] = [0, 1]
    federation = Federation(
        ("a", "b"), (x[:5], x[5:]), (np.zeros(5, int), np.ones(3, int)), (0, 1), "", "",
        test=(np.arange(5) == 4, np.arange(3) == 2),
    )  # fmt: skip
    monkeypatch.setattr(run_module, "load", lambda name, **options: federation)
    rows = read_rows(Study(dataset="cifar-10"), torch.device("cpu"), 0)
    assert (rows.train.shape, rows.test.shape) == ((6, 3, 2, 2), (2, 3, 2, 2))
    assert rows.class_ids.tolist() == [0, 0, 0, 0, 1, 1]
    assert rows.owners.tolist() == [0, 0, 0, 0, 1, 1]
    assert rows.test_class_ids.tolist() == [0, 1]
    assert rows.train[0, 0, 0].tolist() == [-1, 1]
    np.testing.assert_allclose(rows.train[1, 2, 1, 0], 2 * x[1, 2 * 4 + 2] - 1, rtol=1e-5)
    last = read_rows(Study(dataset="mini-imagenet"), torch.device("cpu"), 0)
    np.testing.assert_allclose(last.train[1, 2, 1, 0], 2 * x[1, 2 * 3 + 2] - 1, rtol=1e-5)
    vectors = read_rows(Study(dataset="hapt"), torch.device("cpu"), 0)
    np.testing.assert_allclose(vectors.train, np.delete(x, [4, 7], axis=0), rtol=1e-6)
    with pytest.raises(ParameterError, match="is for pictures"):
        read_rows(Study(dataset="hapt", augmentation="rotate-flip"), torch.device("cpu"), 0)
    assert set(PICTURES) == {
        "cifar-10", "cifar-100", "digits", "fashion", "femnist", "mini-imagenet"
    }  # fmt: skip


# Runs


def test_a_study_runs_and_repeats(tmp_path: Path) -> None:
    study = Study(**SMALL | {"methods": ("fedavg", "fedavg+xclp"), "seeds": (0, 1)})
    seen: list[tuple[int, str, int, int]] = []
    results = []
    for folder in folders(tmp_path, "one", "two"):
        results.append(run_study(study, folder, report=lambda *a: seen.append(a)))
    assert len(seen) == 2 * 2 * 2 * 5
    assert files(tmp_path / "one") == files(tmp_path / "two")
    result = json.loads(json.dumps(results[0]))
    assert [(r["seed"], r["method"]) for r in result["runs"]] == [
        (0, "fedavg"), (0, "fedavg+xclp"), (1, "fedavg"), (1, "fedavg+xclp")
    ]  # fmt: skip
    data = result["data"]
    assert (data["clients"], data["labels"], data["client_rows"]) == (6, 60, 270)
    assert data["validation_rows"] == 30
    table = (tmp_path / "one" / "fedavg+xclp-0.csv").read_text()
    lines = list(csv.DictReader(table.splitlines()))
    assert [line["turn"] for line in lines] == ["0", "1", "2", "3", "4"]
    assert [line["validation_accuracy"] != "" for line in lines] == [0, 1, 0, 1, 1]
    assert [line["pseudo_accuracy"] != "" for line in lines] == [0, 1, 1, 1, 1]


def test_the_best_network_on_the_validation_rows_is_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network of round 1 answers the validation rows best, and its answers are scored."""
    study = Study(**SMALL | {"evaluate_every": 1})
    truth = read_rows(study, torch.device("cpu"), 0)
    weights: list[float] = []
    tested: list[float] = []

    def answers(model: Any, inputs: torch.Tensor) -> Any:
        mark = float(model.head.bias.detach().sum())
        if len(inputs) != 30:
            tested.append(mark)
            return truth.test_class_ids
        weights.append(mark)
        split = run_module.Split.read(tmp_path / "split-0.json")
        return (
            truth.class_ids[split.validation] if len(weights) == 2 else np.zeros(30, dtype=np.int64)
        )

    monkeypatch.setattr(run_module, "predicted_classes", answers)
    (run,) = run_study(study, tmp_path)["runs"]
    assert (run["best_round"], run["validation_accuracy"], run["accuracy"]) == (1, 1.0, 1.0)
    assert tested == [weights[-1], weights[1]]  # at the end only: the last network, and the best


@pytest.mark.parametrize("method", ["fedavg+xclp", "scaffold+network", "fedsem+", "fedmatch"])
def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path: Path, method: str) -> None:
    study = Study(**SMALL | {"methods": (method,), "augmentation": "noise"})
    whole, broken = folders(tmp_path, "whole", "broken")
    run_study(study, whole)
    stopped(study, broken, method, 3)
    stopped(study, broken, method, 4, resume=True)
    seen: list[tuple[Any, ...]] = []
    run_study(study, broken, resume=True, report=lambda *a: seen.append(a))
    assert seen == [(0, method, 4, 5)]
    assert files(broken) == files(whole)
    run_study(study, broken, resume=True, report=lambda *a: pytest.fail("nothing is left to do"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the study of `TOML`, run without a stop."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "s.toml").write_text(TOML)
    (made,) = folders(folder, "whole")
    run_study(read_described(Study, folder / "s.toml", {}), made)
    return made


def killed_in(study: Study, folder: Path) -> None:
    """Run a study until this process is killed."""

    def report(seed: int, method: str, done: int, total: int) -> None:
        if done == 2 and method == "fedavg+xclp":
            os.kill(os.getpid(), signal.SIGKILL)

    run_study(study, folder, report=report)


def test_a_killed_process_goes_on_from_its_checkpoint(
    tmp_path: Path, toml: Path, whole: Path
) -> None:
    (killed,) = folders(tmp_path, "killed")
    study = read_described(Study, toml, {})
    process = multiprocessing.get_context("fork").Process(target=killed_in, args=(study, killed))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (killed / "fedavg+xclp-0.json").exists()
    run_study(study, killed, resume=True)
    assert files(killed) == files(whole)


def test_runs_of_another_study_are_not_continued(tmp_path: Path) -> None:
    study = Study(**SMALL | {"training": {"rounds": 1, "sampled": 0.5, "steps": 1}})
    run_study(study, tmp_path)
    with pytest.raises(ParameterError, match="has runs already"):
        run_study(study, tmp_path)
    with pytest.raises(ParameterError, match="another study"):
        run_study(Study(**SMALL), tmp_path, resume=True)
    result = tmp_path / f"{study.methods[0]}-0.json"
    for broken in (result.read_bytes()[:40], b"{}", b"[]"):
        result.write_bytes(broken)
        with pytest.raises(DataError, match=r"-0.json is not the result of a run; remove it to"):
            run_study(study, tmp_path, resume=True)


def test_a_trainer_gets_only_the_labels_of_the_split(tmp_path: Path) -> None:
    study = Study(**SMALL)
    rows = read_rows(study, torch.device("cpu"), 0)
    split = run_module._split(study, rows, tmp_path / "split.json", 0)
    trainer = trainer_of(study, rows, split, "fedavg+xclp", 0)
    assert sum(int((c.class_ids >= 0).sum()) for c in trainer.clients) == 60
    assert trainer.truth is not None
    for client, own, known in zip(trainer.clients, trainer.truth, split.labelled, strict=True):
        assert (client.class_ids[client.labelled] == own[client.labelled]).all()
        assert sorted(rows.class_ids[known]) == sorted(client.class_ids[client.labelled])
    with np.testing.assert_raises_regex(ValueError, "more training rows"):
        short = run_module.AllRows(rows.train[:9], rows.class_ids[:9], rows.owners[:9], rows.test,
                                rows.test_class_ids, rows.about)  # fmt: skip
        trainer_of(study, short, split, "fedavg+xclp", 0)


def test_the_code_in_the_documentation_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "do" / "experiments.md").read_text(encoding="utf-8")
    text = page.split("## Federated training with few labels\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "code.py").write_text(code)
    runpy.run_path(str(tmp_path / "code.py"))
    assert capsys.readouterr().out.count("RoundMetrics(turn=") == 3


# Results and the command line


def study_result() -> dict[str, Any]:
    methods = {"fedavg": 0.5, "fedavg+per-client": 0.6, "fedavg+xclp": 0.7, "fedsem+": 0.55,
               "fedavg+pooled": 0.8}  # fmt: skip
    runs = [
        {"seed": seed, "setting": {"partition": "iid"}, "method": method, "seconds": 10.0,
         "accuracy": level + 0.01 * seed, "balanced_accuracy": level,
         "pseudo_accuracy": None if method == "fedavg" else level}
        for seed in (0, 1) for method, level in methods.items()
    ]  # fmt: skip
    return {
        "experiment": {"form": "federated-ssl"} | Study(**SMALL | {"seeds": (0, 1)}).to_dict(),
        "data": {"clients": 6, "clients_with_labels": 3, "labels": 60, "client_rows": 1270,
                 "classes": [0, 1], "test_rows": 100, "validation_rows": 30},
        "runs": runs,
        "table": run_module.table_of(runs),
    }  # fmt: skip


def test_the_table_of_a_study_has_methods_in_rows(tmp_path: Path) -> None:
    assert markdown(study_result()).splitlines() == [
        "| method | accuracy | pseudo-labels right | seconds |",
        "|---|---|---|---|",
        "| FedAvg, labelled only | 50.5 ± 0.7 | – | 10 |",
        "| FedAvg + per-client LP | 60.5 ± 0.7 | 60.0 | 10 |",
        "| FedAvg + XCLP | **70.5 ± 0.7** | 70.0 | 10 |",
        "| FedSem+ | 55.5 ± 0.7 | 55.0 | 10 |",
        "| FedAvg + LP on pooled features | 80.5 ± 0.7 | 80.0 | 10 |",
    ]
    (tmp_path / "s.json").write_text(json.dumps(study_result()))
    text = sections(tmp_path)
    assert "### s\n\nFederated training; digits, partition iid; 6 clients, 3 with labels" in text
    assert "60 of 1,270 rows labelled" in text
    assert "on 100 test rows of the network that is best on 30 validation rows" in text


def python(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_line_runs_a_study(tmp_path: Path, toml: Path) -> None:
    done = xclp_ssl(toml, "--method", "fedavg")
    assert done.exit_code == 0
    assert "seed 0, fedavg: 3 rounds" in done.output
    assert "| FedAvg, labelled only |" in done.output
    result = read_result(tmp_path / "s.json")
    assert result["experiment"]["methods"] == ["fedavg"]
    assert result["software"]["torch"] == torch.__version__
    assert (tmp_path / "s" / "fedavg-0.csv").exists()
    with pytest.raises(ParameterError, match="has runs already"):
        xclp_ssl(toml, "--method", "fedavg")
    assert xclp_ssl(toml, "--method", "fedavg", "--resume").exit_code == 0
    assert read_result(tmp_path / "s.json") == result


def test_an_interrupted_study_says_how_to_go_on(
    toml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("xclp_lp.study.training.run.run_study", interrupted)
    done = xclp_ssl(toml)
    assert done.exit_code == 130
    assert "with --resume it goes on" in done.output + capsys.readouterr().err


WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

found = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name.split(".")[0] == "torch" else found(name, *rest)
)
from xclp_lp.cli.main import main
toml, folder = sys.argv[1:]
for arguments in (["ssl", toml, "--out", folder], ["tables", folder]):
    sys.argv = ["xclp", *arguments]
    try:
        main()
    except SystemExit as end:
        print("exit code", end.code)
"""


def test_without_torch_only_this_command_is_missing(tmp_path: Path, toml: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(study_result()))
    done = python(WITHOUT_TORCH, toml, tmp_path)
    assert "pip install 'xclp[ssl]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    first, *table, last = done.stdout.splitlines()
    assert (first, last) == ("exit code 2", "exit code 0")
    assert "FedAvg + XCLP" in "".join(table)


def test_the_report_of_a_study_that_was_stopped_has_all_rounds(
    tmp_path: Path, toml: Path, whole: Path
) -> None:
    study = read_described(Study, toml, {})
    (folder,) = folders(tmp_path, "s")
    stopped(study, folder, "fedavg+xclp", 2)
    html, png = tmp_path / "r.html", tmp_path / "png"
    with pytest.raises(ParameterError, match=r"ends in \.html"):
        xclp_ssl(toml, "--resume", "--report", "r.txt")
    assert not (tmp_path / "s.json").exists()  # refused before anything is trained
    done = xclp_ssl(toml, "--resume", "--report", str(html), "--png", str(png))
    assert done.exit_code == 0
    assert f"written to {html}" in done.output.replace("\n", "")
    result = read_result(tmp_path / "s.json")
    histories, holdings = read_rounds(study, whole)
    assert html.read_text(encoding="utf-8") == training_report(result, histories, holdings).html()
    assert {file.name for file in png.iterdir()} == {
        "accuracy.png", "validation-accuracy.png", "loss.png", "accuracy-of-pseudo-labels.png",
        "rows-by-client.png",
    }  # fmt: skip
    assert [(h.method, h.seed) for h in histories] == [("fedavg", 0), ("fedavg+xclp", 0)]
    assert all(len(values) == 3 for h in histories for values in h.metrics.values())
    assert np.isnan(histories[0].metrics["pseudo_accuracy"]).all()
    assert np.isnan(histories[1].metrics["validation_accuracy"]).tolist() == [True, False, False]
    assert holdings[0].labelled.tolist() == [10] * 6
    assert int((holdings[0].labelled + holdings[0].unlabelled).sum()) == 270


def test_the_people_of_hapt_train_a_network(tmp_path: Path) -> None:
    """The study of examples/ssl, with fewer rows, rounds and steps."""
    short = {
        "partition": {"rows": 900},
        "training": {"rounds": 2, "steps": 2},
        "parameters": {"n_bits": 128},
        "seeds": [1],
    }
    study = read_described(Study, ROOT / "examples" / "ssl" / "hapt.toml", short)
    result = run_study(study, tmp_path)
    data = result["data"]
    assert (data["clients"], data["classes"][0]) == (30, "walking")
    assert data["test_rows"] == 2657  # everybody's later recordings
    assert [run["method"] for run in result["runs"]] == [*study.methods]
    histories, (own,) = read_rounds(study, tmp_path)
    labelled = study.partition["labelled_clients"]
    each = study.partition["labels"] // labelled
    assert own.labelled.tolist() == [each] * labelled + [0] * (30 - labelled)
    for history in histories:
        assert 0 < history.metrics["loss"][-1] < 3
    right = {h.method: h.metrics["pseudo_accuracy"][-1] for h in histories}
    assert right["fedavg+xclp"] > 1 / 3  # of six classes


def test_a_checkpoint_that_is_cut_short_is_named(tmp_path: Path) -> None:
    study = Study(**SMALL | {"methods": ("fedavg",)})
    run_study(study, tmp_path)
    (checkpoint,) = tmp_path.glob("*.pt")
    whole = checkpoint.read_bytes()
    for result in tmp_path.glob("fedavg-*.json"):
        result.unlink()
    for content in (whole[: len(whole) // 2], b""):
        checkpoint.write_bytes(content)
        with pytest.raises(DataError, match=f"{checkpoint.name} cannot be read"):
            run_study(study, tmp_path, resume=True)
