"""Compare the hospitals' labels with the true ones, after ``xclp run federation.toml``."""

import csv
from pathlib import Path

FOLDER = Path(__file__).parent


def rows_of(file: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with file.open(newline="", encoding="utf-8") as table:
        return list(csv.DictReader(table))


def main() -> None:
    """Print how many of the unlabelled patients of each hospital come out right."""
    truth = {row["patient"]: row["diagnosis"] for row in rows_of(FOLDER / "truth.csv")}
    right = hidden = 0
    for table in sorted((FOLDER / "results").glob("*.csv")):
        rows = [row for row in rows_of(table) if not row["given"]]
        own = sum(row["label"] == truth[row["patient"]] for row in rows)
        print(f"{table.stem}: {own} of {len(rows)} ({own / len(rows):.1%})")
        right, hidden = right + own, hidden + len(rows)
    print(
        f"together: {right} of {hidden} unlabelled patients ({right / hidden:.1%}) come out right"
    )


if __name__ == "__main__":
    main()
