"""Compare two runs of the benchmarks: `python bench/compare.py BASE.json NOW.json 25%`.

The files are those of `pytest --benchmark-json`. Prints every median and what multiple it is of
that of the first run, the largest last, and ends with 1 where one is more than the share longer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def medians(file: str) -> dict[str, float]:
    """Return the median seconds of each benchmark."""
    found = json.loads(Path(file).read_text(encoding="utf-8"))["benchmarks"]
    return {entry["fullname"]: entry["stats"]["median"] for entry in found}


def main(base: str, now: str, slower: str) -> str | None:
    before, after = medians(base), medians(now)
    most = 1 + float(slower.removesuffix("%")) / 100
    for name in sorted(before.keys() ^ after.keys()):
        print(f"not in both runs: {name}")
    ratios = sorted((after[name] / before[name], name) for name in before.keys() & after.keys())
    for ratio, name in ratios:
        mark = "  too slow" if ratio > most else ""
        print(f"{after[name]:9.3g} s, {ratio:5.2f} × before: {name}{mark}")
    if not ratios:
        return "No benchmark is in both runs."
    slow = sum(ratio > most for ratio, _ in ratios)
    if not slow:
        return None
    return (
        f"{slow} of {len(ratios)} medians are more than {slower} longer. "
        "A busy machine does that too: run it again."
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
