"""Print how many lines and branches of xclp_crypto ran: ``python -m tests.mutation.rates``.

It reads what ``make coverage`` left, and exits with 1 if a share is below what is asked.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
ASKED = {"lines": 97.0, "branches": 93.0}
"""In per cent."""


def main() -> None:
    """Print both shares, and every line and branch that did not run."""
    measured = coverage.Coverage(
        data_file=str(ROOT / ".coverage"), config_file=str(ROOT / "pyproject.toml")
    )
    measured.load()
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        measured.json_report(outfile=report.name)
        found = json.loads(Path(report.name).read_text(encoding="utf-8"))
    for path, file in found["files"].items():
        if file["missing_lines"] or file["missing_branches"]:
            print(f"{path}: lines {file['missing_lines']}, branches {file['missing_branches']}")
    totals = found["totals"]
    rates = {
        "lines": (totals["covered_lines"], totals["num_statements"]),
        "branches": (totals["covered_branches"], totals["num_branches"]),
    }
    for name, (covered, of) in rates.items():
        print(f"{name}: {covered} of {of}, {covered / of:.2%}; asked: {ASKED[name]}%")
    sys.exit(any(covered / of * 100 < ASKED[name] for name, (covered, of) in rates.items()))


if __name__ == "__main__":
    main()
