"""Kill and restart processes at random: ``python -m tests.faults.restarts --schedules 100``.

Each schedule is a federation of a server and three clients, as processes of their own over TLS, of
which any may be killed at a random point and started again with its log. The first that hangs, in
which somebody has a label that no set of contributors explains, or has none although it came back
within the grace of ten seconds, ends the run; the error says by which seed to repeat it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from network_processes import random_kills

from xclp_crypto.transport.tls import make_authority

GRACE = 10.0
"""Seconds; a process that was killed must be back by then, on a machine as busy as it may be."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the schedules and print how many ended in which way."""
    parser = argparse.ArgumentParser(description="Kill and restart processes at random.")
    parser.add_argument("--schedules", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    chosen = parser.parse_args(arguments)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        certificates = Path(name) / "certs"
        make_authority(certificates, [f"hospital-{i}" for i in range(3)], ["localhost"])
        for seed in range(chosen.first, chosen.first + chosen.schedules):
            folder = Path(name) / str(seed)
            folder.mkdir()
            try:
                found[random_kills(folder, certificates, seed, GRACE)] += 1
            except AssertionError:
                outputs = [f"{f.name}:\n{f.read_text()}" for f in folder.glob("*.out")]
                print(f"seed {seed} failed", *outputs, sep="\n", flush=True)
                raise
    for ending, count in found.most_common():
        print(f"{count:6}  {ending}", flush=True)
    print(f"{chosen.schedules} schedules: none hung, no label was wrong or lost", flush=True)


if __name__ == "__main__":
    main()
