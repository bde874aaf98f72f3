"""Labels for rows that come later, by `predict` and by `update`, beside a run of all rows.

    python bench/later.py                                2,000 rows of 5 clients, 5% of them new
    python bench/later.py --rows 5000 --bits 4096 --hamming rlwe

Vectors are clustered as `xclp_lp.study.benchmarks.clustered` says, 5% of the old ones labelled. Of
each back end the fastest of three runs counts. Seconds are of the processor, of all parties.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from xclp_lp import CrossClientLabelPropagation
from xclp_lp.study.benchmarks import clustered

CLIENTS, CLASSES, NEW, LABELLED, RUNS = 5, 5, 0.05, 0.05, 3


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of the processor that something takes, and what it returns."""
    started = process_time()
    found = work()
    return process_time() - started, found


def measure(rows: int, n_bits: int, hamming: str) -> tuple[list[float], list[int], float]:
    """Return seconds and bytes of `fit`, `predict`, `update`; which share of `predict` agrees."""
    vectors, cluster = clustered(rows, 0, CLASSES)
    rng = np.random.default_rng(0)
    client, new = np.arange(rows) % CLIENTS, rng.random(rows) < NEW
    shown = np.where((rng.random(rows) < LABELLED) & ~new, cluster, -1)

    def cut(array: np.ndarray, which: np.ndarray) -> list[np.ndarray]:
        return [array[which & (client == j)] for j in range(CLIENTS)]

    everything = np.ones(rows, dtype=bool)
    whole, later, updated = [], [], []
    for _ in range(RUNS):
        model = CrossClientLabelPropagation(n_bits, hamming=hamming, random_state=0)
        seconds, _ = timed(partial(model.fit, cut(vectors, everything), cut(shown, everything)))
        whole.append(seconds)
        sizes, parts = [model.cost_.total_bytes], cut(new, everything)
        of_all = [own[part] for own, part in zip(model.transduction_, parts, strict=True)]
        model.fit(cut(vectors, ~new), cut(shown, ~new), keep_distances=True)
        seconds, found = timed(partial(model.predict, cut(vectors, new)))
        later.append(seconds)
        seconds, _ = timed(partial(model.update, cut(vectors, new), cut(shown, new)))
        updated.append(seconds)
        sizes += [model.predict_cost_.total_bytes, model.cost_.total_bytes]
    same = np.concatenate(found) == np.concatenate(of_all)
    return [min(whole), min(later), min(updated)], sizes, float(same.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows that come later, beside a whole run.")
    parser.add_argument("--rows", type=int, default=2000, help="of all clients, new ones included")
    parser.add_argument("--bits", type=int, default=2048)
    parser.add_argument("--hamming", nargs="+", default=["rlwe", "masked", "plain"])
    args = parser.parse_args()
    print("| back end | run of all | `predict` | of a run | same labels | `update` | of a run |")
    print("|---|---|---|---|---|---|---|")
    for hamming in args.hamming:
        seconds, sizes, same = measure(args.rows, args.bits, hamming)
        figures = [
            f"{s:.2f} s, {size / 1e6:.1f} MB" for s, size in zip(seconds, sizes, strict=True)
        ]
        of_predict, of_update = (
            f"× {seconds[i] / seconds[0]:.3f}, × {sizes[i] / sizes[0]:.3f}" for i in (1, 2)
        )
        print(
            f"| `{hamming}` | {figures[0]} | {figures[1]} | {of_predict} | {same:.1%} "
            f"| {figures[2]} | {of_update} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
