"""What XCLP costs in a round of federated training, beside the rest of the round.

    python bench/ssl_round.py                          5 clients × 500 rows, masked and rlwe
    python bench/ssl_round.py --hamming plain --repeat 5 --json FILE

Pictures are noise around ten patterns, 28×28 pixels; the network is the small CNN. Medians over the
rounds, of which the first is not counted. Exit code 0 if the limits of seconds are kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch

from xclp_lp.parameters import Arguments
from xclp_lp.study.experiments.methods import arguments
from xclp_lp.study.training import ClientRows, FederatedTrainer, Network, Training, network
from xclp_lp.study.training.augment import AUGMENTATIONS
from xclp_lp.study.training.client import PseudoLabels
from xclp_lp.study.training.labellers import PropagatedLabels
from xclp_lp.study.training.strategies import FedAvg

LIMITS = {"masked": 4.0, "rlwe": 10.0}
CLASSES = 10


class Timed(PropagatedLabels):
    """Notes how long each round's labels take."""

    def __init__(self, chosen: Arguments) -> None:
        super().__init__("xclp", CLASSES, chosen)
        self.seconds: list[float] = []
        self.busy: list[float] = []

    def __call__(
        self, model: Network, clients: Mapping[int, ClientRows], turn: int
    ) -> dict[int, PseudoLabels]:
        start, busy = perf_counter(), process_time()
        found = super().__call__(model, clients, turn)
        self.seconds.append(perf_counter() - start)
        self.busy.append(process_time() - busy)
        return found


def measure(hamming: str, clients: int, rows: int, bits: int, repeat: int) -> dict[str, object]:
    """Do some rounds with all clients and return the medians."""
    rng = np.random.default_rng(0)
    patterns = rng.standard_normal((CLASSES, 1, 28, 28))
    data, truth = [], []
    for _ in range(clients):
        y = rng.integers(CLASSES, size=rows)
        x = patterns[y] + 2 * rng.standard_normal((rows, 1, 28, 28))
        labelled = np.arange(rows) < 5
        data.append(ClientRows(torch.from_numpy(x).float(), np.where(labelled, y, -1)))
        truth.append(y)
    training = Training(rounds=repeat + 1, sampled=1.0, epochs=1)
    labeller = Timed(arguments(n_bits=bits, k=10, hamming=hamming))
    trainer = FederatedTrainer(
        network("small-cnn", (1, 28, 28), CLASSES, seed=0),
        data,
        FedAvg(training, AUGMENTATIONS["translate-flip"]),
        labeller,
        training,
        seed=0,
        truth=truth,
    )
    whole = []
    for _ in range(repeat + 1):
        start = perf_counter()
        trainer.round()
        whole.append(perf_counter() - start)
    seconds = statistics.median(labeller.seconds[1:])
    return {
        "hamming": hamming,
        "clients": clients,
        "rows": rows,
        "bits": bits,
        "xclp_seconds": seconds,
        "xclp_cpu_seconds": statistics.median(labeller.busy[1:]),
        "round_seconds": statistics.median(whole[1:]),
        "limit": LIMITS.get(hamming),
        "met": seconds <= LIMITS.get(hamming, float("inf")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="XCLP's share of a round of training.")
    parser.add_argument("--hamming", nargs="+", default=list(LIMITS))
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--bits", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file to write everything to")
    args = parser.parse_args()
    results = [measure(h, args.clients, args.rows, args.bits, args.repeat) for h in args.hamming]
    text = json.dumps(results, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    sys.exit(0 if all(r["met"] for r in results) else 1)


if __name__ == "__main__":
    main()
