"""The examples, the README's code and the example data do what they say."""

from __future__ import annotations

import csv
import re
import runpy
import shutil
import sys
import warnings
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_programs import PAGES, program, python_blocks

from xclp_lp.cli.main import app
from xclp_lp.files.federation import load_federation
from xclp_lp.labels import encode, marked_values, one_hot
from xclp_lp.lsh import projection_seed
from xclp_lp.propagation import per_client
from xclp_lp.session import hash_rows

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
QUICKSTART = EXAMPLES / "quickstart"


Python = Callable[..., str]


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Python:
    """Run a script in its folder, but in this process; return what it prints."""

    def call(script: Path, *arguments: str | Path) -> str:
        monkeypatch.chdir(script.parent)
        monkeypatch.setattr(sys, "argv", [script.name, *map(str, arguments)])
        runpy.run_path(script.name, run_name="__main__")
        return capsys.readouterr().out

    return call


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the examples, so that nothing is written into the repository."""
    return Path(
        shutil.copytree(
            EXAMPLES,
            tmp_path_factory.mktemp("copy") / "examples",
            ignore=shutil.ignore_patterns("results", "__pycache__"),
        )
    )


@pytest.fixture(scope="module")
def outputs(examples: Path) -> dict[str, str]:
    """What ``xclp run`` prints for each federation, run as it lies there."""
    return {
        file: printed_by("run", Path(file).name, folder=(examples / file).parent)
        for file in relative("federation.toml")
    }


def printed_by(*arguments: str, folder: Path) -> str:
    """Run ``xclp`` in a folder, but in this process; return what it prints."""
    printed = StringIO()
    with chdir(folder), redirect_stdout(printed), warnings.catch_warnings(action="ignore"):
        app(arguments, standalone_mode=False)
    return printed.getvalue()


def relative(pattern: str) -> list[str]:
    return sorted(str(p.relative_to(EXAMPLES)) for p in EXAMPLES.rglob(pattern))


def test_there_are_examples() -> None:
    assert "quickstart/federation.toml" in relative("federation.toml")
    assert "quickstart/make_data.py" in relative("*.py")


# Flower runs the apps in the folders flower…; `make nodes` starts them.
SCRIPTS = [s for s in relative("*.py") if not s.startswith("flower")]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.usefixtures("outputs")  # which one of them reads
def test_scripts_run_as_they_lie_there(python: Python, examples: Path, script: str) -> None:
    python(examples / script)


@pytest.mark.parametrize("file", relative("federation.toml"))
def test_federations_run_as_they_lie_there(
    examples: Path, outputs: dict[str, str], file: str
) -> None:
    loaded = load_federation(examples / file)
    assert f"{len(loaded.clients) + 1} files written to" in outputs[file]
    names = {p.name for p in loaded.output.iterdir()}
    assert names == {f"{c.name}.csv" for c in loaded.clients} | {"cost.json"}


def test_the_code_in_the_readme_runs(python: Python, tmp_path: Path) -> None:
    """All blocks in order, as one script."""
    blocks = python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    python(script)


PRINTED = {
    "channels": "xclp-ed25519:",
    "circuits": "of 1000 are below 100; ",
    "distances": " 2\n",
    "index": "",
    "own-protocol": "1 in common",
    "paillier": "111 230\n(2, 200) within 9e-08\n",
    "sums": "2 of the parties answered and 3 are needed",
    "transfers": "bob → alice",
}
"""Some of what the program on each page prints; where there is none, two programs talk."""


RUN_TESTS = "\nfor name in [n for n in dir() if n.startswith('test_')]:\n    globals()[name]()\n"


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_the_programs_on_the_pages_of_protocols_run(
    page: str, python: Python, tmp_path: Path
) -> None:
    script = tmp_path / "program.py"
    script.write_text(program(page) + RUN_TESTS, encoding="utf-8")
    printed = python(script)
    assert bool(printed) == bool(PRINTED[page])
    assert PRINTED[page] in printed


def test_the_lines_for_a_flower_app_are_those_of_the_example() -> None:
    page = (PAGES / "sums.md").read_text("utf-8")
    block = page.split("```py\n")[1].split("```")[0]
    app = EXAMPLES / "flower-mean" / "xclp_mean_app"
    written = "".join((app / name).read_text("utf-8") for name in ("client.py", "server.py"))
    lines = [line for line in block.splitlines() if line and not line.startswith("#")]
    assert len(lines) == 4
    assert set(lines) <= set(written.splitlines())


def test_an_order_that_tells_something_fails_the_test_on_the_page(
    python: Python, tmp_path: Path
) -> None:
    sorting = "tuple(sorted((multiply(secret, point) for point in points), key=Point.encode))"
    kept = "tuple(multiply(secret, point) for point in points)"
    text = program("own-protocol")
    assert sorting in text
    script = tmp_path / "program.py"
    script.write_text(text.replace(sorting, kept) + RUN_TESTS, encoding="utf-8")
    with pytest.raises(AssertionError):
        python(script)


def test_the_code_of_the_documentation_of_reports_runs(python: Python, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "do" / "experiments.md").read_text(encoding="utf-8")
    text = page.split("## Reports\n")[1].split("\n## ")[0]
    (block,) = python_blocks(text)
    script = tmp_path / "report.py"
    script.write_text(block + "assert '<h1>' in html\nprint(*pictures)\n", encoding="utf-8")
    names = python(script).split()
    assert all(f"| `{name}` |" in text for name in names)


def test_blocks_are_found_and_failures_too(python: Python, tmp_path: Path) -> None:
    text = "a\n```python\nx = 1\n```\nb\n```\nno\n```\n```python\nassert x == 2\n```\n"
    blocks = python_blocks(text)
    assert blocks == ["x = 1\n", "assert x == 2\n"]
    (tmp_path / "x.py").write_text("\n".join(blocks))
    with pytest.raises(AssertionError):
        python(tmp_path / "x.py")


# The quickstart


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_data_can_be_made_again_byte_for_byte(python: Python, tmp_path: Path) -> None:
    python(QUICKSTART / "make_data.py", tmp_path)
    made = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert set(made) == {
        *("north.csv", "south.npy", "south_labels.npy", "harbour.npz", "truth.csv")
    }
    assert made == {name: (QUICKSTART / name).read_bytes() for name in made}


def test_the_example_is_small() -> None:
    files = [p for p in QUICKSTART.rglob("*") if p.is_file() and "results" not in p.parts]
    assert sum(p.stat().st_size for p in files) < 150_000


def test_labels_in_the_files_are_true_and_few() -> None:
    truth = rows_of(QUICKSTART / "truth.csv")
    for client in load_federation(QUICKSTART / "federation.toml").clients:
        expected = [int(r["digit"]) for r in truth if r["client"] == client.name]
        values, labelled = marked_values(client.labels, client.name)
        assert [v for v, has in zip(values, labelled, strict=True) if has] == [
            v for v, has in zip(expected, labelled, strict=True) if has
        ]
        assert labelled.mean() == pytest.approx(0.08, abs=0.005)


@pytest.mark.usefixtures("outputs")
@pytest.mark.filterwarnings("ignore:'column 11' has 100%")
def test_the_hospitals_come_out_right_by_default(python: Python, examples: Path) -> None:
    """At least 88% do, at most half do with the paper's settings, and the files can be made."""
    folder = examples / "hospitals"
    said = python(folder / "score.py").splitlines()[-1]
    right, of = map(int, re.findall(r"(\d+) of (\d+)", said)[0])
    assert right / of >= 0.88
    assert f"{right / of:.0%} of the unlabelled patients" in " ".join(
        (folder / "README.md").read_text(encoding="utf-8").split()
    )
    file = folder / "federation.toml"
    text = file.read_text(encoding="utf-8")
    paper = '[parameters]\npreset = "paper"\nhamming = "plain"\nrandom_state = 0\n'
    file.write_text(paper + text, encoding="utf-8")
    federation = load_federation(file)
    file.write_text(text, encoding="utf-8")
    result = federation.plan().run()
    truth = {r["patient"]: r["diagnosis"] for r in rows_of(folder / "truth.csv")}
    found = [
        label == truth[patient]
        for client in federation.clients
        for patient, given, label in zip(
            client.ids, client.labels, result.labels(client.name), strict=True
        )
        if given is None
    ]
    assert np.mean(found) <= 0.5


def test_the_numbers_in_the_readme(python: Python, examples: Path) -> None:
    folder = examples / "quickstart"
    loaded = load_federation(folder / "federation.toml")
    p = loaded.arguments
    truth = rows_of(folder / "truth.csv")
    codes, bits = [], []
    right = alone = hidden = 0
    for client in loaded.clients:
        codes.append(encode(*marked_values(client.labels, client.name), range(10)))
        seed: Any = projection_seed(p.random_state)
        deviation = client.features.std(axis=0)
        centred = client.features - client.features.mean(axis=0)
        bits.append(hash_rows(seed, centred / np.where(deviation, deviation, 1), p.n_bits)[0])
    weights = [1 / np.sqrt(np.maximum(np.bincount(c[c >= 0], minlength=10), 1)) for c in codes]
    onehot = [one_hot(c, 10) * w for c, w in zip(codes, weights, strict=True)]
    baseline = per_client(bits, onehot, k=p.k, alpha=0.9, gamma=3.0)
    for client, own, without in zip(loaded.clients, codes, baseline, strict=True):
        expected = [r for r in truth if r["client"] == client.name]
        found = rows_of(loaded.output / f"{client.name}.csv")
        assert [r["id"] for r in found] == [r["id"] for r in expected]
        for f, e, code, label in zip(found, expected, own, without.class_ids, strict=True):
            if code < 0:
                hidden += 1
                right += f["label"] == e["digit"]
                alone += str(label) == e["digit"]
    readme = " ".join((folder / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"{right} of the {hidden} unlabelled rows ({right / hidden:.1%}) come out right" in readme
    )
    assert f"with its own labels only, gets {alone / hidden:.1%}" in readme
    assert python(folder / "score.py").splitlines() == [
        f"together: {right} of {hidden} unlabelled rows ({right / hidden:.1%}) come out right",
        f"each client alone: {alone} of {hidden} ({alone / hidden:.1%})",
    ]
