"""The comparison of two runs of the benchmarks names what is slower, and fails for that only."""

import json
import runpy
from pathlib import Path

import pytest

main = runpy.run_path(str(Path(__file__).parents[1] / "bench" / "compare.py"))["main"]


@pytest.fixture
def compare(tmp_path, capsys):
    """Compare medians given by name; return what is printed and why it fails."""

    def run(base, now, slower="25%"):
        files = []
        for name, medians in (("base", base), ("now", now)):
            entries = [{"fullname": n, "stats": {"median": m}} for n, m in medians.items()]
            files.append(tmp_path / f"{name}.json")
            files[-1].write_text(json.dumps({"benchmarks": entries}))
        failed = main(*map(str, files), slower)
        return capsys.readouterr().out.splitlines(), failed

    return run


def test_medians_that_are_longer_come_last_and_fail(compare):
    printed, failed = compare({"a": 1.0, "b": 2.0, "c": 0.5}, {"a": 1.26, "b": 2.5, "c": 0.4})
    assert printed == [
        "      0.4 s,  0.80 × before: c",
        "      2.5 s,  1.25 × before: b",
        "     1.26 s,  1.26 × before: a  too slow",
    ]
    assert failed.startswith("1 of 3 medians are more than 25% longer.")
    assert compare({"a": 1.0}, {"a": 1.26}, "30%")[1] is None


def test_benchmarks_of_one_run_only_are_said(compare):
    printed, failed = compare({"a": 1.0, "old": 1.0}, {"a": 1.0, "new": 9.0})
    assert printed[:2] == ["not in both runs: new", "not in both runs: old"]
    assert failed is None
    assert compare({"old": 1.0}, {"new": 1.0})[1] == "No benchmark is in both runs."
