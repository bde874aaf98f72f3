"""Row sums over hundreds of clients in one process: seconds, memory, bytes, and exactness.

    python bench/row_sums_700.py                        700 clients × 16,000 rows × 62 columns
    python bench/row_sums_700.py --drop 0.05 --json FILE

A client makes its values when it masks them, and the plain sum that the result is compared with
grows at the same moment, so nothing of the size of all values ever exists. Takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from xclp_crypto.params import Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum import (
    MODES,
    MaskGraph,
    secure_row_sums_client,
    secure_row_sums_server,
)
from xclp_crypto.protocols.setup import SERVER, key_exchange_client, key_exchange_server
from xclp_crypto.rng import SystemRng
from xclp_crypto.transport.simulate import Faults, Simulation
from xclp_lp.study.benchmarks import peak_rss

LIMIT_SECONDS = 5.0
LIMIT_BYTES = 8 << 30
GRID = 2.0**-20
"""Values are multiples of this, so their sums in float64 are exact."""


def measure(
    p: int, n: int, columns: int, *, drop: float, sparse: bool, mode: str, seed: int
) -> dict[str, object]:
    """Run all parties and return what it cost and whether every client's rows are right."""
    clients = tuple(f"client-{i}" for i in range(p))
    rows = dict(zip(clients, np.array_split(np.arange(n), p), strict=True))
    graph = MaskGraph.choose(clients, sparse=sparse)
    codec = FixedPoint(parties=p)
    agreement = Agreement(
        shape=(n, columns), threshold=graph.threshold, degree=graph.degree, mode=mode
    )
    dropouts = np.random.default_rng(seed).choice(p, round(drop * p), replace=False)
    expected = np.zeros((n, columns))
    rng = SystemRng()
    started = perf_counter()
    spoken = started

    def progress(now) -> None:
        nonlocal spoken
        if perf_counter() - spoken > 10:
            spoken = perf_counter()
            text = f"{spoken - started:5.0f} s  {now.step}: {now.party}, {now.activity}"
            print(f"{text}, {peak_rss() / 2**30:.2f} GiB", file=sys.stderr, flush=True)

    async def client_role(io):
        index = clients.index(io.name)

        def values():
            drawn = np.random.default_rng([seed, index]).integers(-1000, 1001, (n, columns))
            own = drawn * GRID
            np.add(expected, own, out=expected)
            return own

        with io.step("setup"):
            session = await key_exchange_client(io, clients, agreement, [], rng)
        sums = await secure_row_sums_client(session, values, rows, codec, graph, rng, mode=mode)
        return sums.values

    async def server_role(io):
        with io.step("setup"):
            session = await key_exchange_server(io, clients, agreement, 0, rng, graph.threshold)
        return await secure_row_sums_server(
            session, rows, columns, codec, graph, clients=session.clients, mode=mode
        )

    faults = Faults(dropouts={clients[i]: "upload" for i in dropouts})
    roles = dict.fromkeys(clients, client_role) | {SERVER: server_role}
    outcome = Simulation(faults=faults, progress=progress).run(roles)
    if SERVER in outcome.errors:
        raise outcome.errors[SERVER]
    outcome.raise_errors()
    seconds = perf_counter() - started
    survivors = outcome.results[SERVER].survivors
    work = outcome.cost.seconds_by_party()
    of_clients = [work[c] for c in survivors]
    sent = outcome.cost.bytes_by(lambda traffic: traffic.sender)
    received = outcome.cost.bytes_by(lambda traffic: traffic.receiver)
    return {
        "clients": p,
        "rows": n,
        "columns": columns,
        "mode": mode,
        "neighbours": graph.degree,
        "survivors": len(survivors),
        "exact": len(survivors) == p - len(dropouts)
        and all(np.array_equal(outcome.results[c], expected[rows[c]]) for c in survivors),
        "seconds": seconds,
        "client_seconds_median": float(np.median(of_clients)),
        "client_seconds_most": max(of_clients),
        "server_seconds": work[SERVER],
        "client_sends_bytes": max(sent[c] for c in survivors),
        "client_receives_bytes": max(received[c] for c in survivors),
        "rounds": outcome.cost.rounds,
        "peak_rss": peak_rss(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Row sums over hundreds of clients.")
    parser.add_argument("--clients", type=int, default=700)
    parser.add_argument("--rows", type=int, default=16_000)
    parser.add_argument("--columns", type=int, default=62)
    parser.add_argument("--drop", type=float, default=0.0, help="fraction without an upload")
    parser.add_argument("--complete", action="store_true", help="masks with all, not with few")
    parser.add_argument("--mode", choices=MODES, default="recover")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file to write everything to")
    args = parser.parse_args()
    result = measure(
        args.clients,
        args.rows,
        args.columns,
        drop=args.drop,
        sparse=not args.complete,
        mode=args.mode,
        seed=args.seed,
    )
    result["met"] = bool(
        result["exact"]
        and result["client_seconds_most"] <= LIMIT_SECONDS
        and result["peak_rss"] <= LIMIT_BYTES
    )
    text = json.dumps(result, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    sys.exit(0 if result["met"] else 1)


if __name__ == "__main__":
    main()
