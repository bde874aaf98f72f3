"""What all commands have in common: help, exit codes, streams, and places that are refused."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from command_lines import TOML, Xclp, bare_shell, cell, content_of, never, one_line

from xclp_crypto import __version__
from xclp_lp.cli import demo as demo_cli
from xclp_lp.cli import run as run_cli
from xclp_lp.cli import study as study_cli
from xclp_lp.plan import Plan


def test_version_and_help(xclp: Xclp) -> None:
    assert xclp("--version") == (0, f"xclp {__version__}\n", "")
    code, out, err = xclp("--help")
    assert (code, err) == (0, "")
    for words in ("demo", "run", "Exit codes: 0 done; 1 a party failed"):
        assert words in out


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
def test_help_of_the_commands(xclp: Xclp, command: str, words: list[str]) -> None:
    code, out, err = xclp(command, "--help")
    assert (code, err) == (0, "")
    assert all(word in " ".join(out.split()) for word in words)
    assert xclp(command, "-h")[1] == out


@pytest.mark.filterwarnings("default")
def test_a_terminal_without_unicode(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    for column in (1, 2, 3):
        cell(5, column, "0")(federation)
    federation.write_text(TOML.replace("[clients.north]", '[clients."Zürich"]'), encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.chdir(federation.parent)
    assert xclp("run", "federation.toml")[0] == 0
    assert b"features of 'Z?rich'" in out.buffer.getvalue()
    assert b"client 'Z?rich': row 5 is all zero" in err.buffer.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", ["run federation.toml", "--help"])
def test_a_full_disk_for_the_output(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path, arguments: str
) -> None:
    monkeypatch.chdir(federation.parent)
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code, _, err = xclp(*arguments.split())
    assert code == 1
    assert "No space left on device" in one_line(err)


def test_a_reader_that_has_seen_enough(federation: Path) -> None:
    done = bare_shell("xclp run federation.toml | head -n 1", federation.parent)
    assert (done.stdout, done.stderr) == (b"3 clients, 15 rows, 3 features\n", b"")


def test_output_that_is_closed(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path
) -> None:
    monkeypatch.chdir(federation.parent)
    monkeypatch.setattr(sys, "stdout", None)  # as Python does
    assert xclp("run", "federation.toml") == (0, "", "")


@pytest.mark.parametrize("arguments", [["demo", "--json"], ["run", "federation.toml", "--output"]])
def test_places_are_tried_before_the_computation(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, federation: Path, arguments: list[str]
) -> None:
    """Permissions alone do not tell, for root or in /proc."""

    def refuse(*, prefix: str, dir: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(Path(dir) / prefix))

    monkeypatch.setattr(demo_cli, "compare", never)
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
def test_wrong_usage_is_exit_code_2(xclp: Xclp, arguments: list[str]) -> None:
    code, out, err = xclp(*arguments)
    assert (code, out) == (2, "")
    assert "Usage: " in err


@pytest.mark.parametrize("command", ["demo", "plan", "bench hamming", "bench propagation"])
@pytest.mark.parametrize("bits", [0, 32769])
def test_bits_out_of_range_are_refused_by_the_name_of_the_option(
    xclp: Xclp, command: str, bits: int
) -> None:
    code, out, err = xclp(*command.split(), "--bits", str(bits))
    assert (code, out) == (2, "")
    assert "Invalid value for '--bits'" in " ".join(err.replace("│", " ").split())
    assert "n_bits" not in err


def test_without_arguments_the_help_is_shown(xclp: Xclp) -> None:
    code, out, err = xclp()
    assert code in (0, 2)
    assert "Usage: " in out + err


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
    xclp: Xclp,
    monkeypatch: pytest.MonkeyPatch,
    federation: Path,
    arguments: list[str],
    option: str,
    target: str,
    message: str,
) -> None:
    monkeypatch.setattr(demo_cli, "compare", never)
    monkeypatch.setattr(demo_cli, "load", never)
    monkeypatch.setattr(study_cli, "run_experiment", never)
    monkeypatch.setattr(run_cli, "load_federation", never)
    monkeypatch.chdir(federation.parent)
    before = content_of(federation.parent)
    code, _, err = xclp(*arguments, option, target)
    assert code == 2
    assert one_line(err).startswith(f"{option} ")
    assert message in err
    assert content_of(federation.parent) == before


def test_messages_do_not_command_the_terminal(xclp: Xclp, tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text('[clients."\\u001b[31mred\\u0007"]\nfeatures = "a.csv"\n')
    code, out, err = xclp("run", str(file))
    assert code == 2
    assert "red" in err
    assert not {"\x1b", "\x07"} & set(out + err)


def test_a_result_that_cannot_be_written_at_last_is_elsewhere(
    xclp: Xclp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "deep" / "plan.json"
    file.parent.mkdir()
    moved = Path.replace

    def full(own: Path, place: Path) -> Path:
        if place == file and own.read_bytes() != b"\0":  # the dummy before the run
            raise OSError(28, "No space left on device")
        return moved(own, place)

    monkeypatch.setattr(Path, "replace", full)
    code, _, err = xclp("plan", "--clients", "3", "--rows", "20", "--json", file)
    assert code == 2
    place = one_line(err).rpartition("No space left on device; they are in ")[2]
    (found,) = Path(place.removesuffix(" instead")).iterdir()
    assert found.name == "plan.json"
    assert json.loads(found.read_text())["hamming"] == "rlwe"
    assert list(file.parent.iterdir()) == []
