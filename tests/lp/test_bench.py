"""What `xclp bench hamming` reports is what happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xclp_crypto.errors import ParameterError
from xclp_lp import bench

KEYS = {
    *("backend", "n", "m", "bits", "repeat", "seconds", "bit_comparisons_per_second", "bytes"),
    *("ratio_to_plain", "exact", "peak_rss"),
}


@pytest.mark.parametrize("backend", ["plain", "masked", "rlwe", "shade"])
def test_reports_every_key(backend: str) -> None:
    result = bench.bench_hamming(backend, 3, 2, 40, repeat=2)
    assert set(result) == KEYS
    assert result["exact"] is True
    assert result["bytes"] > 0
    assert result["peak_rss"] > 10_000_000
    assert result["bit_comparisons_per_second"] == pytest.approx(3 * 2 * 40 / result["seconds"])
    if backend == "plain":
        assert result["ratio_to_plain"] == 1.0


def test_wrong_distances_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = bench.secure_hamming

    def wrong(bits, backend, **options):  # type: ignore[no-untyped-def]
        found, cost = real(bits, backend, **options)
        found[0, 1] ^= np.uint16(backend != "plain")
        return found, cost

    monkeypatch.setattr(bench, "secure_hamming", wrong)
    assert bench.bench_hamming("masked", 3, 2, 40, repeat=1)["exact"] is False


@pytest.mark.parametrize("change", [{"n": 0}, {"m": 0}, {"repeat": 0}, {"n_bits": 0}])
def test_sizes_below_one_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ParameterError):
        bench.bench_hamming(**{"backend": "masked", "n": 2, "m": 2, "n_bits": 8} | change)


def test_more_than_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 10**9}.__getitem__)
    monkeypatch.setattr(bench, "secure_hamming", None)  # so that nothing starts if it is not
    with pytest.raises(
        ParameterError, match=r"paillier need .* use hamming = 'rlwe', hamming = 'mask"
    ):
        bench.bench_hamming("paillier", 2000, 2000, 64)


def test_command_writes_the_same_keys(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    command = "bench hamming --backend masked --n 4 --m 3 --bits 64 --repeat 1 --json"
    subprocess.run(  # noqa: S603  # our own command line
        [sys.executable, "-m", "xclp_lp", *command.split(), str(file)], check=True
    )
    result = json.loads(file.read_text("utf-8"))
    assert set(result) == KEYS
    assert (result["n"], result["m"], result["bits"]) == (4, 3, 64)
