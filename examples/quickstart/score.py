"""Compare what `xclp run` wrote with the true digits, which the protocol never sees.

Run ``python score.py`` after ``xclp run federation.toml``.
"""

from __future__ import annotations

import csv
from pathlib import Path

from xclp_lp.files.federation import load_federation
from xclp_lp.labels import UNLABELLED, encode, marked_values, weighted_one_hot
from xclp_lp.lsh import projection_seed
from xclp_lp.propagation import per_client
from xclp_lp.scaling import own_moments
from xclp_lp.session import hash_rows

FOLDER = Path(__file__).parent


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    federation = load_federation(FOLDER / "federation.toml")
    truth = {(row["client"], row["id"]): row["digit"] for row in rows_of(FOLDER / "truth.csv")}
    right = hidden = 0
    for client in federation.clients:
        for row in rows_of(federation.output / f"{client.name}.csv"):
            if not row["given"]:
                hidden += 1
                right += row["label"] == truth[client.name, row["id"]]
    print(f"together: {right} of {hidden} unlabelled rows ({right / hidden:.1%}) come out right")

    given = federation.arguments
    n_classes = len(given.classes)
    seed = projection_seed(given.random_state)
    scaled = [own_moments(c.features).scaled(c.features) for c in federation.clients]
    bits = [hash_rows(seed, x, given.n_bits)[0] for x in scaled]
    codes = [encode(*marked_values(c.labels, c.name), given.classes) for c in federation.clients]
    weighted = [weighted_one_hot([c], n_classes, given.class_weight)[0] for c in codes]
    labels = per_client(bits, weighted, alpha=given.alpha, **given.neighbours)
    right = 0
    for client, own, found in zip(federation.clients, codes, labels, strict=True):
        for row_id, code, label in zip(client.ids, own, found.class_ids, strict=True):
            digit = str(given.classes[label])
            right += code == UNLABELLED and digit == truth[client.name, str(row_id)]
    print(f"each client alone: {right} of {hidden} ({right / hidden:.1%})")


if __name__ == "__main__":
    main()
