"""Whole secure sessions at the paper's sizes; see sessions.py for what is measured and its limits.

python -m pytest bench/bench_paper_sizes.py --benchmark-only -m long
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

SCRIPT = Path(__file__).with_name("sessions.py")


@pytest.mark.long
@pytest.mark.parametrize(
    ("setting", "hamming"), [("medical", "masked"), ("medical", "rlwe"), ("handwriting", "masked")]
)
@pytest.mark.benchmark(group="labels: whole sessions at the paper's sizes", timer=perf_counter)
def test_session(benchmark, tmp_path, setting, hamming):
    file = tmp_path / "result.json"
    command = [sys.executable, str(SCRIPT), setting, "--hamming", hamming, "--json", str(file)]
    benchmark.pedantic(lambda: subprocess.run(command, check=False), rounds=1)  # noqa: S603
    result = json.loads(file.read_text("utf-8"))
    assert result["identical_labels"]
    assert result["met"]
    benchmark.extra_info |= {key: result[key] for key in ("bytes", "rounds", "messages")}
    benchmark.extra_info["result"] = result
