"""What differential privacy of labels does to accuracy, on the data sets of the demonstration.

    python bench/label_privacy.py                  both data sets, seeds 0 to 4, half a minute
    python bench/label_privacy.py --seeds 20 --data watch

Prints the tables of docs/understand/privacy.md. Scores are those of the pooled computation,
encoded and noised with the functions that a session uses. *sums* is noise in the
secure sum, as one owner sees it; *labels* is randomised response: each client replaces labels by
random ones before anything else.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.params import FRACTION_BITS
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import (
    LabelPrivacy,
    RandomizedResponse,
    add_noise,
    encode_label_sums,
    label_sensitivity,
)
from xclp_crypto.rng import SeededRng
from xclp_lp.graph import neighbour_graph
from xclp_lp.lsh import projection_seed
from xclp_lp.propagation import hamming_distances, influence
from xclp_lp.session import hash_rows
from xclp_lp.study.data import LOADERS, label_mask, load

N_BITS, NEIGHBOURS, LABELLED, DELTA = 4096, 3, 0.1, 1e-5
ALPHAS = (0.99, 0.9, 0.5)
EPSILONS = (1, 3, 10, 30, 100, 700)


def accuracy(
    scores: NDArray[np.float64], truth: NDArray[np.int64], shown: NDArray[np.bool_]
) -> float:
    """Return the fraction of unlabelled rows whose highest score is right."""
    return float(np.mean(scores.argmax(axis=1)[~shown] == truth[~shown]))


def measure(name: str, seeds: int) -> None:
    """Print the table of one data set."""
    federation = load(name)
    classes = {c: i for i, c in enumerate(federation.classes)}
    truth = np.concatenate([[classes[c] for c in y.tolist()] for y in federation.labels])
    one_hot = np.eye(len(classes))
    contributors = len(federation.names) - 1
    codec = FixedPoint(FRACTION_BITS, len(federation.names))
    found: dict[tuple[float, str], list[float]] = {}

    def note(alpha: float, what: str, value: float) -> None:
        found.setdefault((alpha, what), []).append(value)

    for seed in range(seeds):
        shown = np.concatenate(label_mask(federation.labels, LABELLED, seed))
        secret = projection_seed(seed) or b""
        bits = np.concatenate([hash_rows(secret, v, N_BITS)[0] for v in federation.features])
        graph = neighbour_graph(hamming_distances(bits), N_BITS, NEIGHBOURS)
        codes = truth[shown]
        for alpha in ALPHAS:
            columns = influence(graph, np.flatnonzero(shown), alpha)

            sensitivity = label_sensitivity(columns, codec)
            encoded = encode_label_sums(columns, codes, len(classes), codec)
            note(alpha, "sensitivity", math.ldexp(sensitivity, -FRACTION_BITS))
            scores = columns @ one_hot[codes]
            note(alpha, "median", float(np.median(scores.max(axis=1))))
            note(alpha, "plain", accuracy(scores, truth, shown))
            for epsilon in EPSILONS:
                privacy = LabelPrivacy(epsilon, DELTA, contributors)
                variance = privacy.client_variance(sensitivity, len(truth))
                noisy = encoded
                for client in range(contributors):
                    source = SeededRng(seed).child("noise", int(1000 * alpha), epsilon, client)
                    noisy = add_noise(noisy, variance, source)
                note(alpha, f"sums {epsilon}", accuracy(codec.decode(noisy), truth, shown))
                source = SeededRng(seed).child("labels", int(1000 * alpha), epsilon)
                randomized = RandomizedResponse(epsilon).randomize(codes, len(classes), source)
                other = columns @ one_hot[randomized]
                note(alpha, f"labels {epsilon}", accuracy(other, truth, shown))

    print(f"\n{name}: {len(truth)} rows, {round(LABELLED * len(truth))} labelled, seeds < {seeds}")
    columns_of_table = ["no noise", *(f"ε = {e}" for e in EPSILONS)]
    print(f"| α | Δ | median top score | noise in | {' | '.join(columns_of_table)} |")
    print("|" + "---|" * (4 + len(columns_of_table)))
    for alpha in ALPHAS:
        for where in ("sums", "labels"):
            mean = {w: float(np.mean(v)) for (a, w), v in found.items() if a == alpha}
            cells = [f"{mean['plain']:.1%}", *(f"{mean[f'{where} {e}']:.1%}" for e in EPSILONS)]
            print(
                f"| {alpha} | {mean['sensitivity']:.2f} | {mean['median']:.3f} | {where} | "
                f"{' | '.join(cells)} |"
            )


def main() -> None:
    """Measure the data sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=sorted(LOADERS), action="append")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    noise = [f"{e}: {LabelPrivacy(e, DELTA, 1).noise_multiplier():.2f}" for e in EPSILONS]
    print(f"δ = {DELTA}; noise multiplier by ε: {', '.join(noise)}")
    for name in options.data or sorted(LOADERS):
        measure(name, options.seeds)


if __name__ == "__main__":
    main()
