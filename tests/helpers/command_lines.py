"""Runs of the command line on a small federation of three clients."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Xclp: TypeAlias = Callable[..., tuple[int, str, str]]
"""Runs the command line in this process: exit code, standard output and standard error."""

TOML = """
[parameters]
preset = "paper"
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
"""The file of the fixture `federation`: a table, arrays, and an archive."""


def arrays() -> tuple[list[Any], list[Any]]:
    """Return features and labels of its clients."""
    rng = np.random.default_rng(0)
    Xs = [rng.standard_normal((n, 3)).round(3) for n in (5, 4, 6)]
    return Xs, [np.array([1, 2, -1, -1, -1]), np.array([2, -1, -1, -1]), np.full(6, -1)]


SOUTH = arrays()[0][1]


def shell(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "xclp_lp", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def bare_shell(command: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line of the shell, with redirections."""
    return subprocess.run(  # noqa: S602  # redirections are what is tested
        command.replace("xclp", f"{sys.executable} -m xclp_lp", 1),
        shell=True,
        executable="/bin/bash",
        cwd=cwd,
        capture_output=True,
        check=False,
    )


def never(*args: Any, **options: Any) -> Any:
    """Stand for what must not be started."""
    raise AssertionError("the computation was started")


def content_of(folder: Path) -> dict[str, bytes | None]:
    """Return every file below a folder, and None for folders."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


def one_line(err: str) -> str:
    """Return the only line of errors."""
    assert err.startswith("xclp: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err[6:-1]


def change(old: str, new: str) -> Callable[[Path], None]:
    """Return what replaces words in the federation file."""

    def apply(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return apply


def cell(row: int, column: int, value: str) -> Callable[[Path], None]:
    """Return what replaces a cell of north's table."""

    def apply(path: Path) -> None:
        with (path.parent / "north.csv").open(newline="") as file:
            rows = list(csv.reader(file))
        rows[row][column] = value
        (path.parent / "north.csv").write_text("\n".join(map(",".join, rows)) + "\n")

    return apply


def array(name: str, value: Any) -> Callable[[Path], None]:
    """Return what replaces an array of numbers."""
    return lambda path: np.save(path.parent / name, value)


def labelled_rows(folder: Path) -> list[dict[str, str]]:
    """Return all rows of results that had a label."""
    rows = []
    for file in folder.glob("*.csv"):
        with file.open(newline="", encoding="utf-8") as lines:
            rows += [row for row in csv.DictReader(lines) if row["given"]]
    return rows
