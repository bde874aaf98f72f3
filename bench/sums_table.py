"""The tables of secure sums in docs/lookup/costs.md: each row is measured in a process of its own.

    python bench/sums_table.py                  everything; up to an hour, most of it 700 clients
    python bench/sums_table.py --clients 10,100

Seconds are those of all parties together, which share one process; in brackets, CPU seconds of that
process without its start. On a quiet machine both are nearly the same.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
VALUES = 100_000
ROWS, COLUMNS = 1_600, 62


def run(*words: object) -> dict[str, object]:
    """Run a command that writes JSON, and return that with the CPU seconds of the process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *map(str, words), "--json", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not file.exists():
            raise SystemExit(done.stdout + done.stderr)
        result = json.loads(file.read_text())
    if not result["exact"]:
        raise SystemExit(f"a wrong sum: {result}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result | {"cpu": spent}


def start() -> float:
    """Return the CPU seconds of a process that sums next to nothing."""
    smallest = ("--clients", 3, "--size", 1, "--repeat", 1)
    return min(run("-m", "xclp_lp", "bench", "sum", *smallest)["cpu"] for _ in range(3))


def say(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def took(result: dict[str, object], started: float) -> str:
    return f"{result['seconds']:.3g} ({max(result['cpu'] - started, 0):.2g})"


def sums(clients: list[int], started: float) -> None:
    """Print the table of SecureSum with one dropout."""
    say("clients", "masks with", "seconds (CPU)", "bytes a client sends", "rounds", "peak memory")
    say(*["---"] * 6)
    for p in clients:
        for option in ("--complete", "--sparse"):
            words = ("bench", "sum", "--clients", p, "--size", VALUES, "--drop", 1, "--repeat", 1)
            found = run("-m", "xclp_lp", *words, option)
            if option == "--complete" or found["sparse"]:
                say(
                    p,
                    found["neighbours"],
                    took(found, started),
                    f"{found['upload_bytes_per_client']:,}",
                    9,
                    f"{found['peak_rss'] / 1e9:.2f} GB",
                )


def row_sums(clients: list[int], started: float) -> None:
    """Print the table of SecureRowSums, without and with dropouts."""
    heads = ("seconds (CPU)", "of a client", "bytes a client sends", "receives", "rounds")
    say("clients", "mode", "masks with", "dropouts", *heads, "peak memory")
    say(*["---"] * 10)
    for p in clients:
        for mode, option in (("recover", ["--complete"]), ("recover", []), ("restart", [])):
            for drop in (0, max(1, p // 20)):
                words = ("--clients", p, "--rows", ROWS, "--columns", COLUMNS, "--mode", mode)
                found = run(HERE / "row_sums_700.py", *words, "--drop", drop / p, *option)
                if mode == "recover" and not option and found["neighbours"] == p - 1:
                    continue
                say(
                    p,
                    mode,
                    found["neighbours"] if mode == "recover" else p - 1,
                    drop,
                    took(found, started),
                    f"{found['client_seconds_median']:.2g}",
                    f"{found['client_sends_bytes']:,}",
                    f"{found['client_receives_bytes']:,}",
                    found["rounds"],
                    f"{found['peak_rss'] / 1e9:.2f} GB",
                )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the tables of secure sums.")
    parser.add_argument("--clients", default="10,100,700", help="numbers of clients")
    args = parser.parse_args()
    clients = [int(p) for p in args.clients.split(",")]
    started = start()
    print(f"SecureSum, {VALUES:,} values of 64 bits, one client drops out\n")
    sums(clients, started)
    print(f"\nSecureRowSums, {ROWS:,} rows × {COLUMNS} columns\n")
    row_sums(clients, started)


if __name__ == "__main__":
    main()
