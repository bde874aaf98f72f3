"""What `xclp bench` reports is what happened."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import Xclp, never, one_line

from xclp_crypto.errors import ParameterError
from xclp_lp.cli import bench as bench_cli
from xclp_lp.graph import neighbour_graph
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.propagation import hamming_distances, propagate
from xclp_lp.study import benchmarks as bench

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


def test_command_writes_the_same_keys(xclp: Xclp, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    command = "bench hamming --backend masked --n 4 --m 3 --bits 64 --repeat 1 --json"
    assert xclp(*command.split(), file)[0] == 0
    result = json.loads(file.read_text("utf-8"))
    assert set(result) == KEYS
    assert (result["n"], result["m"], result["bits"]) == (4, 3, 64)


SUM_KEYS = {
    *("clients", "size", "drop", "bits", "threshold", "sparse", "neighbours", "repeat", "seed"),
    *("seconds", "exact", "survivors", "bytes", "upload_bytes_per_client", "ratio_to_plain"),
    *("peak_rss", "mask_gb_per_s"),
}


def bench_sum(clients: int, size: int, *, repeat: int = 3, seed: int = 0, **options: Any) -> Any:
    return bench.SumBench(clients, size, **options).run(repeat, seed)


@pytest.mark.parametrize(
    ("clients", "options", "neighbours"),
    [
        (3, {}, 2),
        (5, {"bits": 32, "drop": 2}, 4),
        (5, {"threshold": 2, "drop": 3, "seed": 1}, 4),
        (44, {"sparse": True, "drop": 1, "repeat": 1}, 40),
    ],
)
def test_a_sum_reports_every_key(clients: int, options: dict[str, int], neighbours: int) -> None:
    options = {"repeat": 2} | options
    result = bench_sum(clients, 300, **options)
    assert set(result) == SUM_KEYS
    assert result["exact"] is True
    assert result | {"clients": clients, "size": 300} | options == result
    drop, word = options.get("drop", 0), options.get("bits", 64) // 8
    assert result["survivors"] == clients - drop
    assert result["neighbours"] == neighbours
    assert result["sparse"] is (neighbours < clients - 1)
    keys = 1250 + 1088 * clients  # of ML-KEM, and ciphertexts
    assert 300 * word < result["upload_bytes_per_client"] < 300 * word + 1000 * neighbours + keys
    planned = {k: v for k, v in options.items() if k not in ("repeat", "seed")}
    plan = bench.SumBench(clients, 300, **planned)
    if not drop:
        assert result["bytes"] == plan.total_bytes
    else:
        assert result["bytes"] < plan.total_bytes - drop * 300 * word
    assert result["threshold"] == plan.graph.threshold
    assert result["peak_rss"] > 10_000_000
    assert result["mask_gb_per_s"] > 0
    assert result["ratio_to_plain"] > 0


def test_the_rounds_of_a_sum_are_those_that_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    real, rounds = bench.secure_sum, []

    def spy(values, **options):  # type: ignore[no-untyped-def]
        found = real(values, **options)
        rounds.append(found.cost.rounds)
        return found

    monkeypatch.setattr(bench, "secure_sum", spy)
    bench_sum(3, 1, repeat=1)
    assert rounds == [bench.SumBench(3, 1).rounds]


@pytest.mark.parametrize("bits", [32, 64])
def test_values_of_a_sum_fill_the_ring(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    real, extremes = bench.secure_sum, []

    def spy(values, **options):  # type: ignore[no-untyped-def]
        extremes.append(max(int(abs(v).max()) for v in values))
        return real(values, **options)

    monkeypatch.setattr(bench, "secure_sum", spy)
    assert bench_sum(4, 1000, bits=bits, repeat=1)["exact"] is True
    assert 0.99 < extremes[0] * 4 / 2 ** (bits - 1) <= 1


@pytest.mark.parametrize("wrong", ["total", "survivors"])
def test_wrong_sums_are_reported(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    real = bench.secure_sum

    def broken(values, **options):  # type: ignore[no-untyped-def]
        found = real(values, **options)
        if wrong == "total":
            found.total[0] = np.nextafter(found.total[0], np.inf)
            return found
        return found._replace(survivors=found.survivors[:-1])

    monkeypatch.setattr(bench, "secure_sum", broken)
    assert bench_sum(4, 10, drop=1, repeat=1)["exact"] is False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 1}, "at least 2 clients"),
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"size": 1 << 28}, "too many for one upload"),
        ({"repeat": 0}, "repeat must be at least 1, got 0"),
        ({"bits": 63}, "bits must be 32 or 64, got 63"),
        ({"drop": 3}, r"drop must be in 0 … 2, got 3: of 5 clients the threshold of 3 must be"),
        ({"drop": -1}, "drop must be in 0 … 2, got -1"),
        ({"threshold": 6}, "threshold must be in 2 … 5"),
        ({"clients": 5000, "size": 10**8}, "5000 clients with 100,000,000 values need .* GB"),
    ],
)
def test_a_sum_that_cannot_be_measured_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        bench_sum(**{"clients": 5, "size": 10} | change)


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
        ({"n": 10**6}, "need .* start from features"),
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
def test_propagation_command_writes_the_same_keys(xclp: Xclp, tmp_path: Path, options: str) -> None:
    file = tmp_path / "bench.json"
    command = f"bench propagation --n 80 --labelled 9 --bits 64 --k 3 --repeat 1 {options} --json"
    code, out, _ = xclp(*command.split(), file)
    assert code == 0
    result = json.loads(file.read_text("utf-8"))
    assert set(result) == PROPAGATION_KEYS
    assert (result["n"], result["labelled"], result["bits"], result["k"]) == (80, 9, 64, 3)
    assert "labels identical" in out
    assert result["dense_seconds"] is None


# The command line


def test_bench_sum_says_what_it_will_cost_and_then_what_it_did(xclp: Xclp, tmp_path: Path) -> None:
    file = tmp_path / "sum.json"
    options = "--clients 4 --size 500 --drop 1 --bits 32 --threshold 3 --repeat 1 --seed 3"
    code, out, err = xclp("bench", "sum", *options.split(), "--json", file)
    assert (code, err) == (0, "")
    estimate, *rest = out.splitlines()
    assert estimate.startswith(
        "sum over 4 clients, each with 500 values modulo 2^32 and masks with 3 others: 5"
    )
    assert " kB in 12 rounds, about " in estimate
    assert estimate.endswith(" of memory; at least 3 must stay, 1 drop out")
    text = "\n".join(rest)
    for words in ("setup …", "reveal …", "4 clients × 500 values × 32 bits", "3 of 4", "yes"):
        assert words in text
    result = json.loads(file.read_text("utf-8"))
    assert set(result) == SUM_KEYS
    assert (result["clients"], result["size"], result["drop"]) == (4, 500, 1)
    assert (result["threshold"], result["bits"]) == (3, 32)
    assert (result["exact"], result["survivors"], result["seed"]) == (True, 3, 3)


def test_bench_sum_takes_sparse_masks(xclp: Xclp, tmp_path: Path) -> None:
    file = tmp_path / "sum.json"
    for option, clients, neighbours in (("--sparse", "44", 40), ("--complete", "5", 4)):
        arguments = ["--clients", clients, "--size", "1", "--repeat", "1", option, "--json", file]
        assert xclp("bench", "sum", *arguments)[0] == 0
        assert json.loads(file.read_text("utf-8"))["neighbours"] == neighbours


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clients", "4", "--drop", "2"], "drop must be in 0 … 1, got 2"),
        (["--bits", "16"], "bits must be 32 or 64"),
        (["--threshold", "11"], "threshold must be in 2 … 10"),
        (["--clients", "9000", "--size", "10000000"], " GB; use fewer clients or values"),
        (["--json", "gone/out.json"], "there is no folder"),
    ],
)
def test_bench_sum_refuses_before_anything_is_computed(
    xclp: Xclp, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(bench_cli.SumBench, "run", never)
    code, out, err = xclp("bench", "sum", *arguments)
    assert (code, out) == (2, "")
    assert message in one_line(err)


def test_bench_sum_exits_1_when_a_sum_is_wrong(xclp: Xclp, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bench_cli.SumBench.run
    monkeypatch.setattr(bench_cli.SumBench, "run", lambda *a: real(*a) | {"exact": False})
    code, out, _ = xclp("bench", "sum", "--clients", "3", "--size", "5", "--repeat", "1")
    assert code == 1
    assert "NO" in out
