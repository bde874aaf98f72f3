"""Whole secure sessions at the paper's sizes, all parties in one process.

    python bench/sessions.py medical --hamming masked     6 clients, 23,247 rows
    python bench/sessions.py medical --hamming rlwe
    python bench/sessions.py handwriting                  700 clients × 23 rows, masked
    python bench/sessions.py … --json FILE                everything that was measured

Vectors are clustered as `xclp_lp.study.benchmarks.clustered` says, spread over clients at random.
The labels are compared with those of the plain pooled computation. Exit code 0 if they are
identical and the limits of seconds and memory are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from xclp_crypto.transport.driver import Progress
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.labels import one_hot
from xclp_lp.lsh import projection_seed
from xclp_lp.propagation import pooled
from xclp_lp.session import hash_rows
from xclp_lp.study.benchmarks import clustered, peak_rss

LIMIT_BYTES = 16 << 30


@dataclass(frozen=True)
class Setting:
    """Sizes of one of the paper's uses; the limits are seconds by back end."""

    sizes: tuple[int, ...]
    n_bits: int
    classes: int
    labelled: float
    limits: dict[str, float]


SETTINGS = {
    "medical": Setting(
        (12_413, 3_954, 3_363, 2_259, 819, 439), 1024, 8, 0.8, {"masked": 600, "rlwe": 1200}
    ),
    "handwriting": Setting((23,) * 700, 4096, 62, 0.1, {"masked": 900}),
}
K = 3


def run(name: str, hamming: str, seed: int, scale: float) -> dict[str, object]:
    """Run one session and return what it cost and whether its labels are right."""
    setting = SETTINGS[name]
    clients = len(setting.sizes) if setting.sizes[0] > 100 else round(len(setting.sizes) * scale)
    sizes = [n if n < 100 else max(2, round(n * scale)) for n in setting.sizes[:clients]]
    vectors, cluster = clustered(sum(sizes), seed, setting.classes)
    rng = np.random.default_rng(seed)
    shown = rng.random(len(vectors)) < setting.labelled
    ends = np.cumsum(sizes)[:-1]
    Xs = np.split(vectors, ends)
    ys = np.split(np.where(shown, cluster, -1), ends)
    estimator = CrossClientLabelPropagation(
        setting.n_bits, K, hamming=hamming, random_state=seed, classes=list(range(setting.classes))
    )
    started = spoken = perf_counter()
    busy = process_time()

    def progress(now: Progress) -> None:
        nonlocal spoken
        if perf_counter() - spoken > 5:
            spoken = perf_counter()
            share = f", {now.done:,} of {now.total:,}" if now.total else ""
            text = f"{spoken - started:5.0f} s  {now.step}: {now.party}, {now.activity}{share}"
            print(f"{text}, {peak_rss() / 2**30:.2f} GiB", file=sys.stderr, flush=True)

    estimator.fit(Xs, ys, progress=progress)
    seconds, busy, peak = perf_counter() - started, process_time() - busy, peak_rss()
    bits = [hash_rows(projection_seed(seed) or b"", x, setting.n_bits)[0] for x in Xs]
    plain = pooled(bits, [one_hot(y, setting.classes) for y in ys], k=K, alpha=estimator.alpha)
    cost = estimator.cost_
    sent, received = cost.bytes_by_party()
    return {
        "setting": name,
        "clients": len(sizes),
        "rows": sum(sizes),
        "labelled": int(shown.sum()),
        "hamming": hamming,
        "seconds": seconds,
        "cpu_seconds": busy,
        "peak_rss": peak,
        "identical_labels": all(
            np.array_equal(found, p.class_ids)
            for found, p in zip(estimator.transduction_, plain, strict=True)
        ),
        "bytes": cost.total_bytes,
        "client_sends": max(sent[c] for c in estimator.client_names_),
        "client_receives": max(received[c] for c in estimator.client_names_),
        "rounds": cost.rounds,
        "messages": cost.total_messages,
        "seconds_by_step": {s: sum(cost.seconds_by_party(s).values()) for s in cost.steps},
        "bytes_by_message": cost.bytes_by_message(),
        "met": seconds <= setting.limits[hamming] and peak <= LIMIT_BYTES,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Whole sessions at the paper's sizes.")
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--hamming", default="masked")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the sizes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file to write everything to")
    args = parser.parse_args()
    result = run(args.setting, args.hamming, args.seed, args.scale)
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    sys.exit(0 if result["met"] and result["identical_labels"] else 1)


if __name__ == "__main__":
    main()
