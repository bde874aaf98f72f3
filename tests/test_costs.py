"""What protocols cost at fixed sizes is what is in costs.json; no clock is looked at."""

import copy
import json
import runpy
from pathlib import Path

import pytest

from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.protocols.secure_sum import MODES

VECTORS = Path(__file__).parent / "vectors"
BASELINE = json.loads((VECTORS / "costs.json").read_text(encoding="utf-8"))
GENERATOR = runpy.run_path(str(VECTORS / "generate_costs.py"))
differences = GENERATOR["differences"]
MEANT = """
If that is meant, run `python tests/vectors/generate_costs.py` and say in CHANGELOG.md what costs
more or less:
"""


@pytest.fixture(scope="module")
def foretold():
    return GENERATOR["foretold"]()


@pytest.mark.parametrize("name", BASELINE["metered"])
def test_a_run_costs_the_messages_bytes_and_rounds_that_it_did(name):
    now = GENERATOR["metered"](GENERATOR["RUNS"][name]())
    found = differences({name: now}, {name: BASELINE["metered"][name]})
    assert not found, MEANT + "\n".join(found)


@pytest.mark.parametrize("name", BASELINE["foretold"])
def test_runs_of_real_sizes_would_cost_what_they_did(foretold, name):
    found = differences({name: foretold[name]}, {name: BASELINE["foretold"][name]})
    assert not found, MEANT + "\n".join(found)


def test_the_costs_of_everything_are_written_down(foretold):
    for backend in BACKENDS:
        for runs in (GENERATOR["RUNS"], foretold):
            assert any(name.split(",")[0] == f"hamming {backend}" for name in runs), (
                f"add a run of {backend} to PROTOCOLS in tests/vectors/generate_wire.py"
            )
    for mode in MODES:
        assert any(name.startswith(f"row sums, {mode}") for name in foretold), mode
    for kind, runs in (("metered", GENERATOR["RUNS"]), ("foretold", foretold)):
        changed = sorted(BASELINE[kind].keys() ^ runs.keys())
        assert not changed, f"run `python tests/vectors/generate_costs.py` for {changed}"


def test_more_and_fewer_bytes_messages_and_rounds_are_found():
    then = {"sum": {"rounds": 9, "a → server: Hello": [2, 1000], "server → a: Directory": [1, 147]}}
    assert differences(then, copy.deepcopy(then)) == []
    now = {"sum": {"rounds": 8, "a → server: Hello": [3, 1500], "a → b: SumShares": [1, 20]}}
    assert differences(now, then) == [
        "sum, rounds: 8, was 9 (-11.1%)",
        "sum, a → server: Hello, messages: 3, was 2 (+50.0%)",
        "sum, a → server: Hello, bytes: 1,500, was 1,000 (+50.0%)",
        "sum, server → a: Directory, messages: 0, was 1 (-100.0%)",
        "sum, server → a: Directory, bytes: 0, was 147 (-100.0%)",
        "sum, a → b: SumShares, messages: 1, was 0",
        "sum, a → b: SumShares, bytes: 20, was 0",
    ]
