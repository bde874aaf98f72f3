"""How near estimated accuracies are to true ones, and confidences to shares that are right.

    python bench/estimates.py --path .data      nine data sets, seeds 6 to 8, a few minutes

The data, splits and budgets of bench/defaults.py, with the default settings, on plain bits. Every
labelled row is left out as a session does it, and the estimate is compared with the accuracy on the
unlabelled rows. The calibration error is that of ten equally wide bins of confidence on these
rows: the mean difference between their confidence and the share that is right. Prints the table of
docs/understand/evidence.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from defaults import BUDGETS, N_BITS, Clients, data_sets, scaled
from numpy.typing import NDArray

from xclp_lp.accuracy import BINS, Setting, Validation
from xclp_lp.graph import neighbour_graph_from_bits
from xclp_lp.labels import UNLABELLED
from xclp_lp.leave_one_out import OwnLabels, counts, validation
from xclp_lp.lsh import projection_seed
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction, predict, weighed
from xclp_lp.propagation import influence
from xclp_lp.session import hash_rows
from xclp_lp.study.data import label_count_mask

BANDS = ((1, 6), (7, 12), (13, 25), (26, 60), (61, 120), (121, 10**6))
NEAR = 0.08


@dataclass
class Run:
    """One split: labels in all, estimated and true accuracy, calibration errors."""

    labels: int
    estimated: float
    true: float
    raw: float
    calibrated: float
    with_prior: tuple[float, float]


def calibration_error(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error over ten equally wide bins."""
    bins = np.minimum((BINS * confidence).astype(int), BINS - 1)
    sizes = np.bincount(bins, minlength=BINS)
    gaps = np.abs(
        np.bincount(bins, confidence, minlength=BINS) - np.bincount(bins, right, minlength=BINS)
    )
    return float(gaps[sizes > 0].sum() / len(right))


def measured(clients: Clients, budget: int, seed: int) -> Run:
    """Return what one split gives."""
    truth = np.concatenate([y for _, y in clients])
    owner = np.repeat(np.arange(len(clients)), [len(y) for _, y in clients])
    shown = np.concatenate(label_count_mask([y for _, y in clients], budget, seed))
    params = Parameters(classes=tuple(range(int(truth.max()) + 1)), n_bits=N_BITS)
    secret, n_classes = projection_seed(seed) or b"", len(params.classes)
    bits = np.concatenate([hash_rows(secret, x, N_BITS)[0] for x in scaled(clients)])
    graph = neighbour_graph_from_bits(bits, **params.neighbours)
    rows = np.flatnonzero(shown)
    columns = influence(graph, rows, params.alpha)
    scores = columns @ np.eye(n_classes)[truth[rows]]
    totals = np.bincount(truth[rows], minlength=n_classes)
    of_client = np.array(
        [np.bincount(truth[shown & (owner == j)], minlength=n_classes) for j in range(len(clients))]
    )
    sums = np.zeros(0, dtype=np.int64)
    for j in range(len(clients)):
        mine = owner[rows] == j
        own = OwnLabels(
            truth[rows][mine], scores[rows][mine], columns[rows, np.arange(len(rows))][mine]
        )
        part = counts(params, totals, {params.alpha: own})
        sums = part if j == 0 else sums + part
    found: Validation = validation(params, sums, np.zeros_like(sums))

    def accuracy(prediction: Prediction) -> float:
        return float((prediction.class_ids == truth)[~shown].mean())

    used = predict(weighed(scores, totals, params.setting, totals))
    prior = Setting(params.alpha, "balanced", "own")
    right = (used.class_ids == truth)[~shown]
    reached = used.class_ids[~shown] != UNLABELLED
    confidence = np.where(reached, used.confidence[~shown], 0.0)
    return Run(
        labels=found.n_labels,
        estimated=float(found.right[found.used].sum() / found.n_labels),
        true=accuracy(used),
        raw=calibration_error(confidence, right),
        calibrated=calibration_error(found.calibrated(confidence), right),
        with_prior=(
            float(found.right[prior].sum() / found.n_labels),
            accuracy(predict(weighed(scores, totals, prior, of_client[owner]))),
        ),
    )


def band(runs: list[Run], least: int, most: int) -> Iterator[str]:
    """Yield the cells of a row of the table."""
    own = [run for run in runs if least <= run.labels <= most]
    if not own:
        return
    off = np.array([run.estimated - run.true for run in own])
    yield f"{least}–{most}" if most < 10**6 else f"{least} and more"
    yield str(len(own))
    yield f"{np.sqrt((off**2).mean()):.3f}"
    yield f"{(np.abs(off) <= NEAR).mean():.0%}"
    for errors in ([run.raw for run in own], [run.calibrated for run in own]):
        yield f"{np.mean(errors):.3f}"


def main() -> None:
    """Measure the data sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=list(data_sets(None)), action="append")
    parser.add_argument("--seeds", type=int, nargs="+", default=[6, 7, 8])
    parser.add_argument("--path", help="the folder with vowel and fashion, from `make data`")
    options = parser.parse_args()
    data = data_sets(options.path)
    runs = [
        measured(data[name](seed), budget, seed)
        for name in options.data or data
        for seed in options.seeds
        for budget in BUDGETS
    ]
    print("| labels | runs | RMSE | within 8 points | calibration error, raw | calibrated |")
    print("|---|---|---|---|---|---|")
    for least, most in (*BANDS, (13, 10**6), (31, 10**6), (61, 10**6)):
        if cells := list(band(runs, least, most)):
            print("| " + " | ".join(cells) + " |")
    told = [r for r in runs if r.labels >= 26 and r.with_prior[0] - r.estimated >= 0.05]
    gain = [100 * (r.with_prior[1] - r.true) for r in told]
    rest = [100 * (r.with_prior[1] - r.true) for r in runs if r.labels >= 26 and r not in told]
    print(
        f"\nThe client prior, where it is advised ({len(gain)} runs): {np.mean(gain):+.1f} points,"
    )
    print(f"worst {min(gain):+.1f}; where it is not ({len(rest)}): {np.mean(rest):+.1f}.")


if __name__ == "__main__":
    main()
