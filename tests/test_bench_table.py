"""Benchmarks of protocols show what they send, in a table at the end and in the JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Collect all benchmarks, and run those of the smallest distances by two back ends."""
    file = tmp_path_factory.mktemp("bench") / "found.json"
    command = [sys.executable, "-m", "pytest", "bench", "-k", "test_small and (plain or masked)"]
    command += ["--benchmark-only", f"--benchmark-json={file}", "-p", "no:xdist"]
    alone = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}  # not xdist's
    done = subprocess.run(  # noqa: S603
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=alone
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(file.read_text("utf-8"))


def test_the_last_table_has_seconds_bytes_rounds_and_messages_side_by_side(run):
    printed, found = run
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0][:5] == ["benchmark", "seconds", "bytes", "rounds", "messages"]
    assert rows[2][0] == "**distances: 3 clients × 8 rows × 64 bits**"
    assert len({len(line.rpartition("|")[0].rpartition("|")[0]) for line in lines}) == 1
    for entry, row in zip(found["benchmarks"], rows[3:], strict=True):
        name, seconds, *counts = row[:5]
        assert name in ("small: plain", "small: masked")
        number, unit = seconds.split()
        scale = {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]
        assert float(number) * scale == pytest.approx(entry["stats"]["median"], rel=0.01)
        cost = entry["extra_info"]
        assert counts == [f"{cost[key]:,}" for key in ("bytes", "rounds", "messages")]
        assert min(cost.values()) > 0


def test_the_json_says_which_versions_and_machine_but_not_its_name(run):
    machine = run[1]["machine_info"]
    assert {"cpu", "cores", "load", "threads", "packages", "python_version"} <= machine.keys()
    assert {"xclp", "numpy", "cryptography"} <= machine["packages"].keys()
    assert "node" not in machine
