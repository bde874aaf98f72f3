"""Result files of experiments, and Markdown tables made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xclp_crypto.errors import DataError
from xclp_crypto.whole_files import write_whole
from xclp_lp.study.experiments.forms import FORMS
from xclp_lp.wording import count

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

SSL_FORM = "federated-ssl"
"""The form in the results of `xclp ssl`; its names are made of these parts."""
STRATEGY_NAMES = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "fedmatch": "FedMatch",
    "fedsiam": "FedSiam",
    "fedsem+": "FedSem+",
}
LABELLER_NAMES = {
    "per-client": "per-client LP",
    "network": "network",
    "network-once": "network, once",
    "xclp": "XCLP",
    "pooled": "LP on pooled features",
}


def read_result(file: Path) -> dict[str, Any]:
    """Read a result file.

    Raises:
        DataError: it is not a result file.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {error}") from None
    if not isinstance(content, dict) or not {"experiment", "data", "table"} <= set(content):
        raise DataError(f"{file} is not a result of an experiment")
    return content


def _cell(result: Mapping[str, Any], mean: float, std: float) -> str:
    """Write a mean in percent, with its standard deviation where a result has several seeds."""
    several = len(result["experiment"]["seeds"]) > 1
    return f"{100 * mean:.1f} ± {100 * std:.1f}" if several else f"{100 * mean:.1f}"


def markdown(result: Mapping[str, Any]) -> str:
    """Return the table of a result: settings in rows, methods in columns, in percent."""
    if result["experiment"]["form"] == SSL_FORM:
        return _ssl_markdown(result)
    metric, table = result["experiment"]["metric"], result["table"]
    methods = dict.fromkeys(entry["method"] for entry in table)
    rows: dict[str, tuple[dict[str, Any], dict[str, dict[str, float]]]] = {}
    for entry in table:
        key = json.dumps({k: v for k, v in entry["setting"].items() if k != "n"})
        _, cells = rows.setdefault(key, (entry["setting"], {}))
        cells[entry["method"]] = entry[metric]
    names = table[0]["setting"] if table else ()
    head = [*names, *(METHOD_NAMES.get(m, m) for m in methods)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for setting, cells in rows.values():
        shown = {m: _cell(result, own["mean"], own["std"]) for m, own in cells.items()}
        fair = [m for m in cells if m not in ("pooled", "label-spreading")]
        if fair:  # the best that pools nothing, as in the paper
            best = max(fair, key=lambda m: cells[m]["mean"])
            shown[best] = f"**{shown[best]}**"
        row = [*(str(v) for v in setting.values()), *(shown.get(m, "–") for m in methods)]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def _ssl_markdown(result: Mapping[str, Any]) -> str:
    """Return the table of a study of federated training: methods in rows."""
    metric = result["experiment"]["metric"]
    # What pools features is a ceiling, not a method to be compared.
    fair = [e[metric]["mean"] for e in result["table"] if not e["method"].endswith("+pooled")]
    lines = ["| method | accuracy | pseudo-labels right | seconds |", "|---|---|---|---|"]
    for entry in result["table"]:
        method, value = entry["method"], entry[metric]
        runs = [r for r in result["runs"] if r["method"] == method]
        shown = _cell(result, value["mean"], value["std"])
        if value["mean"] == max(fair, default=None):
            shown = f"**{shown}**"
        right = [r["pseudo_accuracy"] for r in runs if r["pseudo_accuracy"] is not None]
        labels = f"{100 * sum(right) / len(right):.1f}" if right else "–"
        seconds = sum(r["seconds"] for r in runs) / len(runs)
        lines.append(f"| {ssl_name(method)} | {shown} | {labels} | {seconds:.0f} |")
    return "\n".join(lines)


def ssl_name(method: str) -> str:
    """Return what the tables call a method of federated training."""
    if method in STRATEGY_NAMES:
        labels = ", labelled only" if method in ("fedavg", "fedprox", "scaffold") else ""
        return STRATEGY_NAMES[method] + labels
    strategy, _, labeller = method.partition("+")
    names = STRATEGY_NAMES.get(strategy, strategy), LABELLER_NAMES.get(labeller, labeller)
    return " + ".join(names)


def _ssl_section(name: str, result: Mapping[str, Any]) -> str:
    """Return a heading, what was run, and the table of a study of federated training."""
    experiment, data = result["experiment"], result["data"]
    partition, training = experiment["partition"], experiment["training"]
    kind = partition.get("kind", "iid")
    each = f", {partition.get('classes_per_client', 2)} classes per client" * (kind == "classes")
    words = [
        f"{experiment['dataset']}, partition {kind}{each}",
        f"{count(data['clients'], 'client')}, {data['clients_with_labels']} with labels",
        f"{data['labels']:,} of {data['client_rows']:,} rows labelled",
        f"{len(data['classes'])} classes",
        f"network {experiment['network']}, augmentation {experiment['augmentation']}",
        ", ".join(f"{k} = {v}" for k, v in training.items()),
        ", ".join(f"{k} = {v}" for k, v in experiment["parameters"].items()),
        f"seeds {', '.join(map(str, experiment['seeds']))}",
    ]
    own = [f"{m}: {json.dumps(o)}" for m, o in experiment["options"].items()]
    metric = experiment["metric"].replace("_", " ")
    return (
        f"### {name}\n\nFederated training; {'; '.join(w for w in [*words, *own] if w)}. "
        f"{metric.capitalize()} in % on {data['test_rows']:,} test rows of the network that is "
        f"best on {data['validation_rows']:,} validation rows, mean ± standard deviation over the "
        "seeds; pseudo-labels of the last round; seconds per run.\n\n"
        f"{_ssl_markdown(result)}\n"
    )


def section(name: str, result: dict[str, Any]) -> str:
    """Return a heading, what was run, and the table of a result."""
    experiment, data = result["experiment"], result["data"]
    if experiment["form"] == SSL_FORM:
        return _ssl_section(name, result)
    parameters = {"n_bits": 4096, "k": 3, "alpha": 0.99} | experiment["parameters"]
    several = len(experiment["seeds"]) > 1
    words = [
        f"{data['clients']} clients, {data['rows']:,} rows, {data['features']} features",
        f"{len(data['classes'])} classes",
        f"features: {experiment['extractor']}",
        ", ".join(f"{k} = {v}" for k, v in parameters.items()),
        f"{'seeds' if several else 'seed'} {', '.join(map(str, experiment['seeds']))}",
    ]
    metric = experiment["metric"].replace("_", " ")
    spread = ", mean ± standard deviation over the seeds" if several else ""
    return (
        f"### {name}\n\n{FORMS[experiment['form']].title}; {'; '.join(words)}. "
        f"{metric.capitalize()} in %{spread}.\n\n"
        f"{markdown(result)}\n"
    )


def sections(folder: Path) -> str:
    """Return the sections of all result files of a folder, by name.

    Raises:
        DataError: there is none, or a file is not a result.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"{folder} has no result files")
    return "\n".join(section(file.stem, read_result(file)) for file in files)


def with_tables(document: str, text: str) -> str:
    """Return a document with other text after the line `MARK`, and the line ends that it has.

    Raises:
        DataError: the document has no such line.
    """
    end = "\r\n" if "\r\n" in document else "\n"
    before, mark, _ = document.partition(MARK.replace("\n", end))
    if not mark:
        raise DataError(f"the document has no line {MARK.strip()}")
    return f"{before}{mark}{end}" + text.replace("\n", end)


def write_tables(file: Path, text: str) -> None:
    """Put other text into a document, see `with_tables`.

    Raises:
        DataError: it cannot be read.
    """
    try:
        document = file.read_bytes().decode()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{file} is not encoded in UTF-8; save it as UTF-8") from None
    write_whole(file, with_tables(document, text).encode())
