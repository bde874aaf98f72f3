"""`xclp run --keep` and `xclp predict`: later rows of files, and what does not fit a run."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import Xclp

from xclp_lp import CrossClientLabelPropagation

CLIENTS = ("north", "south", "east")
CENTRES = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])
KINDS = np.array(["one", "three", "two"])
KEYS = "ab" * 32, "cd" * 32


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, n)
    return CENTRES[true] + rng.normal(size=(n, 2)), true


OLD = {c: rows(20, i) for i, c in enumerate(CLIENTS)}
NEW = {"north": rows(5, 7), "east": rows(4, 8), "harbour": rows(3, 9)}


def table(path: Path, x: np.ndarray, labels: Any = None, order: str = "uv") -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *order, *(["kind"] if labels is not None else [])])
        for i, row in enumerate(x.tolist()):
            values = [row["uv".index(c)] for c in order]
            writer.writerow([f"p{i}", *values, *([labels[i]] if labels is not None else [])])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three clients with old rows, two of them and a newcomer with new ones."""
    monkeypatch.setenv("XCLP_LOG_KEY", KEYS[0])
    parts = ['[parameters]\nn_bits = 256\nk = 4\nhamming = "plain"\nrandom_state = 0\n']
    for name, (x, true) in OLD.items():
        labels = [KINDS[t] if i < 6 else "" for i, t in enumerate(true)]
        table(tmp_path / f"{name}.csv", x, labels)
        parts.append(f'[clients.{name}]\nfeatures = "{name}.csv"\nlabel_column = "kind"\n')
        parts.append('id_column = "id"\n')
    (tmp_path / "run.toml").write_text("".join(parts))
    for name, (x, _) in NEW.items():
        table(tmp_path / f"{name}-new.csv", x, order="vu" if name == "east" else "uv")
    text = "".join(parts)
    for name in ("north", "east"):
        found = f'features = "{name}.csv"\n'
        text = text.replace(found, f'{found}new_features = "{name}-new.csv"\n')
    (tmp_path / "all.toml").write_text(text)
    newcomer = '[clients.harbour]\nnew_features = "harbour-new.csv"\nid_column = "id"\n'
    (tmp_path / "later.toml").write_text(text + newcomer)
    return tmp_path


def labels(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_new_rows_of_files_get_the_labels_of_the_estimator(folder: Path, xclp: Xclp) -> None:
    kept = folder / "kept"
    code, out, err = xclp("run", folder / "run.toml", "--keep", kept)
    assert code == 0, err
    assert (
        f"kept in {kept} for rows that come later: 'north.kept', 'south.kept', 'east.kept'" in out
    )
    assert {stat.S_IMODE(f.stat().st_mode) for f in kept.iterdir()} == {0o600}
    content = b"".join(f.read_bytes() for f in kept.iterdir())
    assert not any(word in content for word in (b"one", b"three", b"plain", b"north", b"pickle"))
    code, out, err = xclp("predict", folder / "later.toml", "--keep", kept)
    assert code == 0, err
    for line in (
        "4 clients, 12 new rows, 60 rows of the session",
        "720 distances by plain; a run of all rows has 2,556",
        "not in the session, and told the projection and what scales; their confidences are not "
        "calibrated as others' are: 'harbour'",
        "hamming …",
        "Cost by step",
        "estimated accuracy: ",
        f"4 files written to {folder / 'results' / 'new'}",
    ):
        assert line in out
    fit = CrossClientLabelPropagation(
        256, 4, hamming="plain", random_state=0, classes=KINDS.tolist()
    ).fit(
        [x for x, _ in OLD.values()],
        [[KINDS[t] if i < 6 else None for i, t in enumerate(y)] for _, y in OLD.values()],
    )
    nothing = np.zeros((0, 2))
    wanted = fit.predict([NEW.get(c, (nothing,))[0] for c in CLIENTS])
    for c, own, sure in zip(CLIENTS, wanted, fit.predicted_confidence_, strict=True):
        if not len(own):
            assert not (folder / "results" / "new" / f"{c}.csv").exists()
            continue
        found = labels(folder / "results" / "new" / f"{c}.csv")
        assert [row["label"] for row in found] == list(own)
        assert [row["id"] for row in found] == [f"p{i}" for i in range(len(own))]
        assert [float(row["confidence"]) for row in found] == pytest.approx(sure, abs=1e-6)
        assert {row["given"] for row in found} <= {""}
    harbour = [row["label"] for row in labels(folder / "results" / "new" / "harbour.csv")]
    assert harbour == KINDS[NEW["harbour"][1]].tolist()
    cost = json.loads((folder / "results" / "new" / "cost.json").read_text())
    assert cost["rounds"] > 0
    assert len(labels(folder / "results" / "north.csv")) == 20  # those of the run are as they were


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_what_does_not_fit_the_run_is_said(
    folder: Path, xclp: Xclp, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, file = folder / "kept", folder / "all.toml"
    command = ("predict", file, "--keep", kept)
    assert xclp("run", folder / "run.toml", "--keep", kept)[0] == 0

    def says(words: str, *arguments: str | Path) -> None:
        code, _, err = xclp(*(arguments or command))
        assert code == 2, err
        assert words in err

    says("nothing was kept of 'north'; name the folder", "predict", file, "--keep", folder)
    with monkeypatch.context() as other:
        other.setenv("XCLP_LOG_KEY", KEYS[1])
        says("north.kept does not open: another key was given")
        other.delenv("XCLP_LOG_KEY")
        says("needs a key that it is encrypted under: --key-file FILE")
    key = folder / "own.key"
    key.write_text(KEYS[0])
    key.chmod(0o644)
    says(f"others may read or write it: chmod 600 {key}\n", *command, "--key-file", key)
    for old, new, words in [
        ("k = 4", "k = 5\nclient_prior = 'own'", "all parties must agree on class_weight"),
        ("k = 4", "k = 5", "agree on k (here 5); the session of the kept file"),
        ("k = 4", "k = 4\nclasses = ['one', 'two']", "agree on classes (here ('one', 'two'))"),
        ('"north-new.csv"', '"north.npy"', "3 features instead of 2; give new rows the columns"),
        ('new_features = "', '# "', "no client has new rows; name their file in new_features"),
    ]:
        before = file.read_text()
        if "npy" in new:  # an array has no ids
            np.save(folder / "north.npy", np.ones((2, 3)))
            change(file, 'id_column = "id"', "")
        change(file, old, new)
        says(words)
        file.write_text(before)
    only = folder / "only.toml"
    only.write_text('[clients.a]\nnew_features = "east-new.csv"\n')
    says("no client has features, so none was in a session", "predict", only, "--keep", kept)
    table(folder / "north-new.csv", NEW["north"][0], order="u")
    says(f"are not those of the kept file {kept / 'north.kept'}: missing 'v'")
    assert xclp("run", folder / "run.toml", "--keep", folder / "other")[0] == 0
    (folder / "other" / "east.kept").replace(kept / "east.kept")
    table(folder / "north-new.csv", NEW["north"][0])
    says("are of different sessions; use what all clients kept of the same one")
    says("--key-file is the key of what --keep names", "run", file, "--key-file", file)
    says("features is missing: with new_features alone a client can", "run", folder / "later.toml")
    says("--keep", "run", file, "--keep", file)
