"""What tests of the command line share."""

from __future__ import annotations

import csv
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_lines import TOML, Xclp, arrays

from xclp_lp.study.data import load


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


@pytest.fixture
def xclp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Xclp:
    """Run the command line in this process: exit code, standard output and standard error."""

    from xclp_lp.cli.main import main  # most tests do without

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["xclp", *map(str, arguments)])
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        code = exit_.value.code
        return 0 if code is None else int(code), out, err

    return call


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digits, cut down to 4 clients with 40 rows each."""
    from xclp_lp.cli import demo

    whole = load("digits", n_clients=4)
    small = replace(
        whole,
        features=tuple(x[:40] for x in whole.features),
        labels=tuple(y[:40] for y in whole.labels),
    )
    monkeypatch.setattr(demo, "load", {"digits": small}.__getitem__)
