"""How far the default settings are from the best ones, which only who knows all labels can find.

    python bench/defaults.py --path .data      nine data sets, seeds 6 to 8, some minutes
    python bench/defaults.py --seeds 3 4 5 --data wine --data digits

Every data set is split over clients (its own people, else Dirichlet(0.3) by class), has 1, 3 or 10
labels per client, features scaled over all rows, and L = 2048. *Regret* is how many points of
accuracy on the unlabelled rows a setting is below the best of all 54, which are compared on those
rows' true labels; rows that no label reaches count as wrong. Prints the tables of
docs/understand/evidence.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_wine, make_classification

from xclp_lp.graph import neighbour_graph_from_bits
from xclp_lp.labels import class_weights, one_hot
from xclp_lp.lsh import projection_seed
from xclp_lp.predictions import predict
from xclp_lp.propagation import propagate
from xclp_lp.session import hash_rows
from xclp_lp.study.data import label_count_mask, load
from xclp_lp.study.data.dealing import class_shares, deal

N_BITS, MOST_ROWS = 2048, 1833
BUDGETS = (1, 3, 10)
NEIGHBOURS, ALPHAS, GAMMAS = (5, 10, 20), (0.8, 0.9, 0.99), (1.0, 3.0)
WEIGHTS = ("none", "sqrt", "balanced")
Clients = list[tuple[NDArray[np.float64], NDArray[np.int64]]]
Setting = tuple[int, float, float, str]
Runs = list[dict[Setting, tuple[float, float]]]

SHOWN: dict[str, Setting] = {
    "defaults: k = 10, γ = 3, α = 0.9, sqrt": (10, 3.0, 0.9, "sqrt"),
    "the same with γ = 1": (10, 1.0, 0.9, "sqrt"),
    "balanced": (10, 3.0, 0.9, "balanced"),
    "no class weight, α = 0.8": (10, 3.0, 0.8, "none"),
    "the paper's: k = 10, γ = 1, α = 0.99, none": (10, 1.0, 0.99, "none"),
}
"""Settings that the table has."""


def of_people(name: str, most: int | None = None, **options: int | str) -> Callable[[int], Clients]:
    """Return what gives the data of a federation's own clients, thinned to `MOST_ROWS` in all."""

    def clients(seed: int) -> Clients:
        federation = load(name, **options)
        pairs = list(zip(federation.features, federation.class_ids, strict=True))[:most]
        rng = np.random.default_rng(seed)
        share = min(1.0, MOST_ROWS / sum(len(y) for _, y in pairs))
        picks = [np.sort(rng.permutation(len(y))[: round(share * len(y))]) for _, y in pairs]
        return [(x[p], y[p]) for (x, y), p in zip(pairs, picks, strict=True)]

    return clients


def dealt(
    data: Callable[[], tuple[NDArray[np.float64], NDArray[np.int64]]], p: int
) -> Callable[[int], Clients]:
    """Return what deals data without clients out to p of them."""

    def clients(seed: int) -> Clients:
        x, y = data()
        keep = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
        x, y = x[keep], y[keep]
        parts = deal(y, class_shares(int(y.max()) + 1, p, "dirichlet", 0.3, seed), seed)
        return [(x[rows], y[rows]) for rows in parts if len(rows)]

    return clients


def pooled_rows(name: str, **options: int | str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the rows of a data set without its clients."""
    federation = load(name, **options)
    return np.concatenate(federation.features), np.concatenate(federation.class_ids)


def synthetic(weights: list[float]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return 1,200 rows of classes of these shares."""
    return make_classification(
        1200, 20, n_informative=10, n_classes=len(weights), weights=weights, random_state=7
    )


def data_sets(path: str | None) -> dict[str, Callable[[int], Clients]]:
    """Return every data set by name; `path` has the files of vowel and fashion, if given."""
    there = {} if path is None else {"path": path}
    return {
        "watch": of_people("watch"),
        "hapt": of_people("hapt", 10),
        "vowel": of_people("vowel", **there),
        "digits": dealt(lambda: pooled_rows("digits"), 8),
        "fashion": dealt(lambda: pooled_rows("fashion", n_rows=2000, **there), 10),
        "wine": dealt(lambda: load_wine(return_X_y=True), 4),
        "breast cancer": dealt(lambda: load_breast_cancer(return_X_y=True), 5),
        "synthetic 90:10": dealt(lambda: synthetic([0.9, 0.1]), 6),
        "synthetic 55:25:13:7": dealt(lambda: synthetic([0.55, 0.25, 0.13, 0.07]), 6),
    }


def scaled(clients: Clients) -> list[NDArray[np.float64]]:
    """Return each client's features, standardised over the rows of all."""
    rows = np.concatenate([x for x, _ in clients]).astype(np.float64)
    deviation = rows.std(axis=0)
    deviation[deviation < 1e-9] = 1.0
    return [(x - rows.mean(axis=0)) / deviation for x, _ in clients]


def accuracies(
    found: NDArray[np.int64], truth: NDArray[np.int64], hidden: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the accuracy on hidden rows, by row and as the mean over classes, in points."""
    right = (found == truth)[hidden]
    by_class = [right[truth[hidden] == c].mean() for c in np.unique(truth[hidden])]
    return 100 * float(right.mean()), 100 * float(np.mean(by_class))


def measured(clients: Clients, budget: int, seed: int) -> dict[Setting, tuple[float, float]]:
    """Return the accuracies of every setting on one split."""
    truth = np.concatenate([y for _, y in clients])
    shown = np.concatenate(label_count_mask([y for _, y in clients], budget, seed))
    n_classes, counts = int(truth.max()) + 1, np.bincount(truth[shown], minlength=truth.max() + 1)
    secret = projection_seed(seed) or b""
    bits = np.concatenate([hash_rows(secret, x, N_BITS)[0] for x in scaled(clients)])
    Y = one_hot(np.where(shown, truth, -1), n_classes)
    found = {}
    for k, gamma in product(NEIGHBOURS, GAMMAS):
        graph = neighbour_graph_from_bits(bits, k=k, gamma=gamma)
        for alpha in ALPHAS:
            scores = propagate(graph, Y, alpha)
            for weight in WEIGHTS:
                labels = predict(scores * class_weights(counts, weight)).class_ids
                found[k, gamma, alpha, weight] = accuracies(labels, truth, ~shown)
    return found


def runs_of(
    data: Callable[[int], Clients], seeds: list[int]
) -> Iterator[dict[Setting, tuple[float, float]]]:
    """Yield the accuracies of every setting, for every seed and budget."""
    for seed in seeds:
        clients = data(seed)
        for budget in BUDGETS:
            found = measured(clients, budget, seed)
            yield found


def regret(runs: Runs, setting: Setting, gammas: tuple[float, ...] = GAMMAS) -> str:
    """Return how far a setting is below the best of each run, as cells: mean and worst."""
    below = np.array(
        [
            np.max([a for s, a in run.items() if s[1] in gammas], axis=0) - run[setting]
            for run in runs
        ]
    )
    cells = (
        f"{rows:.1f}, {classes:.1f}" for rows, classes in (below.mean(axis=0), below.max(axis=0))
    )
    return " | ".join(cells)


def main() -> None:
    """Measure the data sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=list(data_sets(None)), action="append")
    parser.add_argument("--seeds", type=int, nargs="+", default=[6, 7, 8])
    parser.add_argument("--path", help="the folder with vowel and fashion, from `make data`")
    options = parser.parse_args()
    data = data_sets(options.path)
    runs: Runs = []
    defaults = next(iter(SHOWN.values()))
    print("| data set | mean regret of the defaults: rows, classes | worst |\n|---|---|---|")
    for name in options.data or data:
        own = list(runs_of(data[name], options.seeds))
        print(f"| {name} | {regret(own, defaults)} |", flush=True)
        runs += own
    print("\n| setting | mean regret: rows, classes | worst |\n|---|---|---|")
    for words, setting in SHOWN.items():
        print(f"| {words} | {regret(runs, setting)} |")
    best = max(runs[0], key=lambda setting: sum(map(sum, (run[setting] for run in runs))))
    print(f"\nBest on average: {best}.")
    print(f"The defaults against the 27 settings with γ = 3: {regret(runs, defaults, (3.0,))}.")


if __name__ == "__main__":
    main()
