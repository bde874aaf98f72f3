"""What is public: `__all__` of the packages that people import from, and nothing else in `dir`."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = [
    "xclp_crypto",
    "xclp_crypto.primitives.paillier",
    "xclp_crypto.protocols.hamming",
    "xclp_crypto.protocols.ot",
    "xclp_crypto.protocols.secure_sum",
    "xclp_crypto.protocols.setup",
    "xclp_crypto.transport.network",
    "xclp_lp",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_dir_shows_what_is_public_and_all_of_it_is_there(name):
    package = import_module(name)
    assert dir(package) == sorted(package.__all__)
    assert len(set(package.__all__)) == len(package.__all__)
    for member in package.__all__:
        assert getattr(package, member) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018 - asking is the test


def test_what_is_loaded_on_demand_is_the_same_for_all_ways_to_import_it():
    script = "".join(
        f"import {name}; print(*dir({name})); own = {{}}; exec('from {name} import *', own);"
        "print(*own)\n"
        for name in ("xclp_crypto", "xclp_lp")
    )
    lines = subprocess.run(  # noqa: S603 - a constant script
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.splitlines()
    assert len(lines) == 4
    for shown, imported in zip(lines[::2], lines[1::2], strict=True):
        assert set(shown.split()) <= set(imported.split())
