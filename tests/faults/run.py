"""Run many random fault schedules: ``python -m tests.faults.run --schedules 10000``.

They are shared out evenly among the protocols in `schedules.SUBJECTS`. The first that ends in a
wrong answer, in an error that is not typed, or not at all, ends the run; the error says by which
seed and number to repeat it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from schedules import SUBJECTS, tally


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the schedules and print how many ended in which way."""
    parser = argparse.ArgumentParser(description="Run random fault schedules.")
    parser.add_argument("--schedules", type=int, default=10_000, help="how many in all")
    parser.add_argument("--first", type=int, default=0, help="number of the first of each protocol")
    parser.add_argument("--only", choices=SUBJECTS, help="one protocol instead of all")
    chosen = parser.parse_args(arguments)
    names = [chosen.only] if chosen.only else list(SUBJECTS)
    for position, name in enumerate(names):
        share = chosen.schedules // len(names) + (position < chosen.schedules % len(names))
        found = tally(name, share, chosen.first)
        print(f"{name}: {share} schedules", flush=True)
        for ending, count in found.most_common():
            print(f"  {count:6}  {ending}", flush=True)
    print(
        f"{chosen.schedules} schedules: every one ended in the exact answer or in a typed error",
        flush=True,
    )


if __name__ == "__main__":
    main()
