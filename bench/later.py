"""Labels for rows that come later, beside a run of all rows: seconds, bytes, and agreement.

    python bench/later.py                                2,000 rows of 5 clients, 5% of them new
    python bench/later.py --rows 5000 --bits 4096 --hamming rlwe

Vectors are clustered as `xclp_lp.study.benchmarks.clustered` says, 5% of the old ones labelled. Of
each back end the fastest of three runs counts. Seconds are of all parties together.
"""

from __future__ import annotations

import argparse

import numpy as np

from xclp_crypto.transport.meter import Cost
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.study.benchmarks import clustered

CLIENTS, CLASSES, NEW, LABELLED, RUNS = 5, 5, 0.05, 0.05, 3


def measure(rows: int, n_bits: int, hamming: str) -> tuple[list[Cost], list[Cost], float]:
    """Return the costs of whole runs and of new rows only, and which share of labels agrees."""
    vectors, cluster = clustered(rows, 0, CLASSES)
    rng = np.random.default_rng(0)
    client, new = np.arange(rows) % CLIENTS, rng.random(rows) < NEW
    shown = np.where((rng.random(rows) < LABELLED) & ~new, cluster, -1)

    def cut(array: np.ndarray, which: np.ndarray) -> list[np.ndarray]:
        return [array[which & (client == j)] for j in range(CLIENTS)]

    whole, later = [], []
    for _ in range(RUNS):
        model = CrossClientLabelPropagation(n_bits, hamming=hamming, random_state=0)
        everything = np.ones(rows, dtype=bool)
        model.fit(cut(vectors, everything), cut(shown, everything))
        whole.append(model.cost_)
        of_all = [own[n] for own, n in zip(model.transduction_, cut(new, everything), strict=True)]
        model.fit(cut(vectors, ~new), cut(shown, ~new))
        found = model.predict(cut(vectors, new))
        later.append(model.predict_cost_)
    return whole, later, float((np.concatenate(found) == np.concatenate(of_all)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows that come later, beside a whole run.")
    parser.add_argument("--rows", type=int, default=2000, help="of all clients, new ones included")
    parser.add_argument("--bits", type=int, default=2048)
    parser.add_argument("--hamming", nargs="+", default=["rlwe", "masked", "plain"])
    args = parser.parse_args()
    print("| back end | run of all | new rows only | seconds | bytes | same labels |")
    print("|---|---|---|---|---|---|")
    for hamming in args.hamming:
        whole, later, same = measure(args.rows, args.bits, hamming)
        seconds = [min(cost.total_seconds for cost in costs) for costs in (whole, later)]
        sizes = [costs[0].total_bytes for costs in (whole, later)]
        figures = [
            f"{s:.2f} s, {size / 1e6:.1f} MB" for s, size in zip(seconds, sizes, strict=True)
        ]
        ratios = seconds[1] / seconds[0], sizes[1] / sizes[0]
        print(
            f"| `{hamming}` | {figures[0]} | {figures[1]} | × {ratios[0]:.3f} | × {ratios[1]:.3f} "
            f"| {same:.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
