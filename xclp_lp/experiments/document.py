"""Result files of experiments, and Markdown tables made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xclp_crypto.errors import DataError
from xclp_lp.experiments.forms import FORMS

MARK = "<!-- tables -->\n"
"""The line of a document after which its tables are."""

METHOD_NAMES = {
    "per-client": "each client alone",
    "xclp": "XCLP",
    "pooled": "pooled data, exact cosines",
    "label-spreading": "pooled data, scikit-learn",
    "fedavg-linear": "FedAvg, linear",
    "fedavg-mlp": "FedAvg, MLP",
}
"""What the tables call the methods."""


def read_result(file: Path) -> dict[str, Any]:
    """Read a result file.

    Raises:
        DataError: it is no result file.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}") from None
    if not isinstance(content, dict) or not {"experiment", "data", "table"} <= set(content):
        raise DataError(f"{file} is no result of an experiment")
    return content


@dataclass(frozen=True)
class Grid:
    """The table of a result.

    Attributes:
        methods: its columns.
        rows: setting, and mean and standard deviation of the metric by method.
    """

    methods: tuple[str, ...]
    rows: tuple[tuple[dict[str, Any], dict[str, tuple[float, float]]], ...]


def grid(result: Mapping[str, Any]) -> Grid:
    """Return settings in rows and methods in columns."""
    metric = result["experiment"]["metric"]
    rows: dict[str, tuple[dict[str, Any], dict[str, tuple[float, float]]]] = {}
    for entry in result["table"]:
        key = json.dumps({k: v for k, v in entry["setting"].items() if k != "n"})
        value = entry[metric]
        _, cells = rows.setdefault(key, (entry["setting"], {}))
        cells[entry["method"]] = (value["mean"], value["std"])
    methods = tuple(dict.fromkeys(entry["method"] for entry in result["table"]))
    return Grid(methods, tuple(rows.values()))


def cell(mean: float, std: float) -> str:
    """Write mean and standard deviation in percent."""
    return f"{100 * mean:.1f} ± {100 * std:.1f}"


def markdown(result: Mapping[str, Any]) -> str:
    """Return the table of a result: settings in rows, methods in columns, in percent."""
    table = grid(result)
    names = list(table.rows[0][0]) if table.rows else []
    head = [*names, *(METHOD_NAMES.get(m, m) for m in table.methods)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for setting, cells in table.rows:
        shown = {m: cell(*value) for m, value in cells.items()}
        fair = [m for m in cells if m not in ("pooled", "label-spreading")]
        if fair:  # the best that pools nothing, as in the paper
            best = max(fair, key=lambda m: cells[m][0])
            shown[best] = f"**{shown[best]}**"
        row = [*(str(v) for v in setting.values()), *(shown.get(m, "–") for m in table.methods)]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def section(name: str, result: dict[str, Any]) -> str:
    """Return a heading, what was run, and the table of a result."""
    experiment, data = result["experiment"], result["data"]
    parameters = {"n_bits": 4096, "k": 3, "alpha": 0.99} | experiment["parameters"]
    words = [
        f"{data['clients']} clients, {data['rows']:,} rows, {data['features']} features",
        f"{len(data['classes'])} classes",
        f"features: {experiment['extractor']}",
        ", ".join(f"{k} = {v}" for k, v in parameters.items()),
        f"seeds {', '.join(map(str, experiment['seeds']))}",
    ]
    metric = experiment["metric"].replace("_", " ")
    return (
        f"### {name}\n\n{FORMS[experiment['form']].title}; {'; '.join(words)}. "
        f"{metric.capitalize()} in %, mean ± standard deviation over the seeds.\n\n"
        f"{markdown(result)}\n"
    )


def sections(folder: Path) -> str:
    """Return the sections of all result files of a folder, by name.

    Raises:
        DataError: there is none, or a file is no result.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"{folder} has no result files")
    return "\n".join(section(file.stem, read_result(file)) for file in files)


def with_tables(document: str, text: str) -> str:
    """Return a document with other text after the line `MARK`.

    Raises:
        DataError: the document has no such line.
    """
    before, mark, _ = document.partition(MARK)
    if not mark:
        raise DataError(f"the document has no line {MARK.strip()}")
    return f"{before}{mark}\n{text}"
