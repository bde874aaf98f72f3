"""What `xclp bench` reports is what happened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xclp_crypto.errors import ParameterError
from xclp_lp import bench
from xclp_lp.graph import neighbour_graph
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.propagation import hamming_distances, propagate

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


def test_more_than_the_memory_is_refused() -> None:
    with pytest.raises(
        ParameterError, match=r"shade need .* use hamming = 'rlwe', hamming = 'mask"
    ):
        bench.bench_hamming("shade", 5000, 5000, 4096)


def test_command_writes_the_same_keys(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    command = "bench hamming --backend masked --n 4 --m 3 --bits 64 --repeat 1 --json"
    subprocess.run(  # noqa: S603  # our own command line
        [sys.executable, "-m", "xclp_lp", *command.split(), str(file)], check=True
    )
    result = json.loads(file.read_text("utf-8"))
    assert set(result) == KEYS
    assert (result["n"], result["m"], result["bits"]) == (4, 3, 64)


# Propagation

PROPAGATION_KEYS = {
    *("n", "labelled", "bits", "k", "alpha", "from_features", "repeat", "seed"),
    *("seconds", "columns_seconds", "dense_seconds", "dense_inverse_seconds"),
    *("ratio_to_dense", "columns_ratio_to_dense", "residual", "columns_residual"),
    *("solver", "columns_solver", "identical_labels", "peak_rss"),
}


@pytest.mark.parametrize("solver", ["auto", "cholesky", "sparse", "cg"])
def test_propagation_reports_every_key(solver: Any) -> None:
    result = bench.bench_propagation(300, 40, 128, k=3, solver=solver, repeat=2)
    assert set(result) == PROPAGATION_KEYS
    assert result["identical_labels"] is True
    assert 0 < result["residual"] < 1e-12
    assert 0 < result["columns_residual"] < 1e-12
    assert solver in ("auto", result["solver"])
    assert solver in ("auto", result["columns_solver"])
    assert result["peak_rss"] > 10_000_000
    assert result["dense_inverse_seconds"] < result["dense_seconds"]
    for ratio, name in (("ratio", "seconds"), ("columns_ratio", "columns_seconds")):
        assert result[f"{ratio}_to_dense"] == result["dense_seconds"] / result[name]


def test_what_is_not_measured_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = {"dense_seconds", "dense_inverse_seconds", "ratio_to_dense", "columns_ratio_to_dense"}
    columns = {"columns_seconds", "columns_residual", "columns_solver"}

    def unmeasured(**options: Any) -> set[str]:
        result = bench.bench_propagation(60, 9, 64, repeat=1, **options)
        assert set(result) == PROPAGATION_KEYS
        return {key for key, value in result.items() if value is None}

    assert unmeasured() == set()
    assert unmeasured(dense=False) == dense
    assert unmeasured(from_features=True) == dense | columns
    monkeypatch.setattr(bench, "DENSE_SHARE", 0)
    assert unmeasured() == dense


def test_differing_labels_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = bench.dense_scores

    def wrong(*arguments: Any) -> Any:
        Z, seconds = real(*arguments)
        return Z[:, ::-1], seconds

    monkeypatch.setattr(bench, "dense_scores", wrong)
    assert bench.bench_propagation(60, 9, 64, repeat=1)["identical_labels"] is False


def test_the_dense_baseline_computes_the_same_scores() -> None:
    vectors, classes = bench.clustered(200, 3)
    assert set(classes) == set(range(10))
    H = hamming_distances(hash_bits(vectors, projection(bytes(32), 24, 64)))  # with ties
    Y = np.eye(10)[classes] * (np.arange(200) % 9 == 0)[:, None]
    before = H.copy()
    Z, seconds = bench.dense_scores(H, 24, 4, 0.9, Y)
    assert seconds > 0
    assert (before == H).all()
    np.testing.assert_allclose(Z, propagate(neighbour_graph(H, 24, 4), Y, 0.9), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labelled": 0}, "labelled must be in 1..9, got 0"),
        ({"labelled": 10}, "labelled must be in 1..9, got 10"),
        ({"repeat": 0}, "repeat"),
        ({"n_bits": 0}, "bits"),
        ({"k": 9}, "k is 9"),
        ({"solver": "lu"}, "solver is 'lu'"),
        ({"n": 10**6}, "do not fit .* start from features"),
    ],
)
def test_unusable_arguments_of_propagation(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        bench.bench_propagation(**{"n": 9, "labelled": 2, "n_bits": 64, "k": 3} | change)


def test_progress_of_propagation() -> None:
    reports: list[tuple[str, int, int]] = []
    bench.bench_propagation(
        60, 9, 64, repeat=1, from_features=True, progress=lambda *r: reports.append(r)
    )
    assert [name for name, _, _ in reports] == [
        *("hashing", "distances and neighbours", "dense factors", "scores")
    ]


@pytest.mark.parametrize("options", ["--no-dense", "--from-features --solver cg"])
def test_propagation_command_writes_the_same_keys(tmp_path: Path, options: str) -> None:
    file = tmp_path / "bench.json"
    command = f"bench propagation --n 80 --labelled 9 --bits 64 --k 3 --repeat 1 {options} --json"
    done = subprocess.run(  # noqa: S603  # our own command line
        [sys.executable, "-m", "xclp_lp", *command.split(), str(file)],
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(file.read_text("utf-8"))
    assert set(result) == PROPAGATION_KEYS
    assert (result["n"], result["labelled"], result["bits"], result["k"]) == (80, 9, 64, 3)
    assert "labels identical" in done.stdout
    assert result["dense_seconds"] is None
