"""Write costs.json: `python tests/vectors/generate_costs.py`.

The file holds what every protocol costs at fixed sizes, as far as no clock is needed: rounds, and
messages and bytes of each link. `metered` is of real runs with few rows and bits; `foretold` is of
sizes as in use, from the formulas that other tests equate with what is metered: with bytes and
rounds, the operations that take the time and the memory.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.extend(str(Path(__file__).parents[1] / d) for d in ("vectors", "helpers"))
from generate_wire import PROTOCOLS
from session_runs import client, federation

from xclp_crypto.front import secure_sum_bytes
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.hamming import BACKENDS, estimate
from xclp_crypto.protocols.secure_sum import MODES, MaskGraph
from xclp_crypto.protocols.secure_sum.costs import row_sums_bytes
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import Factory, run
from xclp_lp.forecast import message_bytes, rounds
from xclp_lp.parameters import Parameters, Shape

FILE = Path(__file__).with_name("costs.json")

Costs = dict[str, dict[str, Any]]

CIRCLE = 2 * np.pi * np.arange(12) / 12
POINTS = np.column_stack([np.cos(CIRCLE), np.sin(CIRCLE), 0.5 * np.cos(3 * CIRCLE)])
SESSION = {
    "a": client(POINTS[:5], [0, -1, 1, -1, -1]),
    "b": client(POINTS[5:9], [-1, 1, -1, 0]),
    "c": client(POINTS[9:], [-1, -1, 0]),
}


BARE = partial(Parameters, class_weight="none", scale="none")
"""Parameters of the sessions: labels without weights, features as they are."""


def session(hamming: str) -> Factory:
    """Return a session of three clients with 12 rows, 64 bits and two classes."""
    params = BARE(
        classes=(0, 1),
        n_bits=64,
        k=2,
        alpha=0.9,
        hamming=hamming,
    )
    return federation(SESSION, params)


RUNS: dict[str, Callable[[], Factory]] = PROTOCOLS | {
    f"session {name}": partial(session, name) for name in ("plain", "masked", "rlwe", "shade-ext")
}


def metered(make: Factory) -> dict[str, Any]:
    """Return rounds, and by link and type of message [how many there were, their bytes]."""
    cost = run(make).raise_errors().cost
    links: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for traffic, count in cost.messages.items():
        sums = links[f"{traffic.sender} → {traffic.receiver}: {traffic.message}"]
        sums[0] += count
        sums[1] += cost.bytes_sent[traffic]
    return {"rounds": cost.rounds} | dict(sorted(links.items()))


def by_kind(links: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Return bytes by kind of sender and receiver."""
    kinds: Counter[str] = Counter()
    for parties, size in links.items():
        kinds[" → ".join(p if p == SERVER else "client" for p in parties)] += size
    return dict(sorted(kinds.items()))


def of_distances(backend: str, p: int, rows: int, n_bits: int) -> dict[str, Any]:
    """Return what `estimate` says."""
    cost = estimate(BACKENDS[backend], {f"client-{i}": rows for i in range(p)}, n_bits)
    return {
        "rounds": cost.rounds,
        "bytes": by_kind(cost.bytes_per_link),
        "operations": cost.operations,
        "memory": cost.memory_bytes,
        "memory of all parties": cost.simulation_bytes,
    }


def of_sums(p: int, *, sparse: bool = False) -> Costs:
    """Return the bytes of sums of p clients, with 100,000 values or 1,600 rows of 62."""
    names = tuple(f"client-{i}" for i in range(p))
    graph = MaskGraph.choose(names, sparse=sparse)
    rows = {c: np.arange(1600)[i::p] for i, c in enumerate(names)}
    kind = ", sparse" if sparse else ""
    codec = FixedPoint(20, p)
    found = {f"sum, {p} clients{kind}": by_kind(secure_sum_bytes(graph, (100_000,), codec))}
    for mode in ("recover",) if sparse else MODES:
        found[f"row sums, {mode}, {p} clients{kind}"] = by_kind(
            row_sums_bytes(rows, 62, graph, codec.modulus, mode)
        )
    return {name: {"bytes": links} for name, links in found.items()}


def of_sessions(hamming: str, p: int, rows: int) -> dict[str, Any]:
    """Return rounds and bytes of a session, one row in ten labelled, 10 classes and 4096 bits."""
    names = tuple(f"client-{i}" for i in range(p))
    params = BARE(
        classes=tuple(range(10)),
        n_bits=4096,
        k=10,
        alpha=0.99,
        hamming=hamming,
    )
    shape = Shape(dict.fromkeys(names, rows), dict.fromkeys(names, rows // 10), features=64)
    steps = message_bytes(params, shape)
    return {
        "rounds": rounds(params, shape),
        "bytes": {step: by_kind(links) for step, links in steps.items()},
    }


def foretold() -> Costs:
    """Return what runs of sizes as in use would cost."""
    found: Costs = {
        f"hamming {name}, {p} clients × {rows} rows × {n_bits} bits": of_distances(
            name, p, rows, n_bits
        )
        for name in BACKENDS
        for p, rows, n_bits in ((2, 500, 4096), (10, 50, 1024))
    }
    found |= of_sums(10) | of_sums(100) | of_sums(100, sparse=True)
    for name in ("masked", "rlwe"):
        found[f"session {name}, 5 clients × 500 rows"] = of_sessions(name, 5, 500)
    return found


def flat(entry: Any, path: str = "") -> dict[str, int]:
    """Return the numbers of nested dictionaries and lists by their whole path."""
    if isinstance(entry, int):
        return {path: entry}
    pairs = (
        entry.items() if isinstance(entry, dict) else zip(("messages", "bytes"), entry, strict=True)
    )
    return {
        key: number
        for name, inner in pairs
        for key, number in flat(inner, f"{path}, {name}" if path else name).items()
    }


def differences(now: Costs, then: Costs) -> list[str]:
    """Return a line for every number that is not what it was."""
    after, before = flat(now), flat(then)
    lines = []
    for key in dict.fromkeys([*before, *after]):
        new, old = after.get(key, 0), before.get(key, 0)
        if new != old:
            share = f" ({new / old - 1:+.1%})" if old else ""
            lines.append(f"{key}: {new:,}, was {old:,}{share}")
    return lines


if __name__ == "__main__":
    measured = {name: metered(make()) for name, make in RUNS.items()}
    text = json.dumps({"metered": measured, "foretold": foretold()}, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text)
    FILE.write_text(text + "\n", encoding="utf-8")
