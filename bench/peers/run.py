"""Compare our back ends with other libraries, each in an environment of its own.

    python bench/peers/run.py                           everything, a few minutes
    python bench/peers/run.py --peers heu-ou,mpyc --sizes 100x100x4096,200x200x4096 --json FILE

See README.md beside this file for what is counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE / ".envs"
SEED = 2024
REQUIRED_AT = (200, 200, 4096)
"""The size at which the requirements hold."""
SLOW_SECONDS = 15
"""Peers whose work, keys included, takes longer run once."""
CRASHES = 5
"""How many crashes of a peer are forgiven."""


class NotAvailable(Exception):
    """A peer, or our counterpart, that cannot be installed or does not run here."""


class Crashed(NotAvailable):
    """A program that a signal ended."""


@dataclass(frozen=True)
class Comparison:
    """A peer, our counterpart, and what the project requires of it.

    Attributes:
        name: how the comparison is chosen.
        folder: of the peer's script and requirements.
        variant: passed to the peer's script.
        ours: passed to `ours.py`: a hamming back end, ``encryption…``, ``mean``, ``naor-pinkas``
            or ``sum-…``.
        trust: whom the peer's users must trust.
        faster: required ratio of times, peer to ours; None where nothing is required.
        bytes: required ratio of bytes, ours to the peer's.
        fewer: whether the required ratio of bytes is strict.
        clock: the time that is compared, ``seconds`` or ``cpu``.
        key_bits: default size of keys.
        count: how often the peer does it, unless it is distances: encryptions, transfers, sums.
        our_count: how many we do in one batch, where that differs.
    """

    name: str
    folder: str
    variant: str
    ours: str
    trust: str
    faster: float | None = None
    bytes: float | None = None
    fewer: bool = False
    clock: str = "seconds"
    key_bits: int = 0
    count: int = 0
    our_count: int = 0


COMPARISONS = (
    Comparison("tenseal", "tenseal", "vector", "rlwe", "two parties", 40, 1, fewer=True),
    Comparison("tenseal-sealapi", "tenseal", "sealapi", "rlwe", "two parties"),
    Comparison("spu-cheetah", "spu", "", "rlwe", "two parties", 12, 1 / 10),
    Comparison("heu-ou", "heu", "OU", "rlwe", "two parties", 8, key_bits=2048),
    Comparison("heu-ou-tables", "heu", "OU-tables", "rlwe", "two parties", key_bits=2048),
    Comparison(
        "heu-zpaillier",
        "heu",
        "ZPaillier",
        "paillier-packed",
        "two parties",
        1.5,
        clock="cpu",
        key_bits=2048,
    ),
    Comparison(
        "heu-zpaillier-tables",
        "heu",
        "ZPaillier-tables",
        "paillier-packed",
        "two parties",
        clock="cpu",
        key_bits=2048,
    ),
    Comparison(
        "pypaillier",
        "pypaillier",
        "",
        "encryption",
        "",
        1,
        clock="cpu",
        key_bits=3072,
        count=500,
        our_count=4096,
    ),
    Comparison(
        "pypaillier-single",
        "pypaillier",
        "single",
        "encryption-single",
        "",
        1,
        clock="cpu",
        key_bits=2048,
        count=500,
    ),
    Comparison(
        "phe",
        "phe",
        "",
        "encryption",
        "",
        20,
        clock="cpu",
        key_bits=3072,
        count=500,
        our_count=4096,
    ),
    Comparison("mpyc", "mpyc", "", "masked", "no two of three collude", 30),
    Comparison("crypten", "crypten", "", "masked", "first party deals", 1, 1 / 4),
    Comparison("otc", "otc", "", "naor-pinkas", "", 1, count=2000),
    Comparison("flower-mask", "flower", "mask", "sum-masking", "", 1, count=10),
    Comparison("flower-unmask", "flower", "unmask", "sum-unmasking", "", 2, count=10),
    Comparison("flower-mean", "flower", "mean", "mean", "", 4, count=3),
    Comparison("flower-share", "flower", "share", "sum-sharing", "", 2, count=200),
    Comparison("flower-recover", "flower", "recover", "sum-recovering", "", count=200),
)


def environment(folder: str) -> Path:
    """Return the interpreter of a peer's environment, made and filled where it is not yet.

    `requirements.txt` pins what is installed; `no-deps.txt`, where there is one, what is installed
    afterwards without its dependencies.

    Raises:
        NotAvailable: pip cannot install it here; says what pip said.
    """
    pins = [p for p in (HERE / folder / "requirements.txt", HERE / folder / "no-deps.txt")
            if p.exists()]  # fmt: skip
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in pins)).hexdigest()
    home = ENVIRONMENTS / folder
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    mark = home / ".installed"
    if mark.exists() and mark.read_text() == digest:
        return python
    log(f"{folder}: making its environment")
    _checked([sys.executable, "-m", "venv", "--clear", str(home)])
    for file in pins:
        options = ["--no-deps"] if file.name == "no-deps.txt" else []
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _checked([*pip, *options, "-r", str(file)])
    mark.write_text(digest)
    return python


def run(
    python: Path | str,
    script: Path,
    data: Path,
    variant: str,
    key_bits: int,
    count: int,
    limit: int,
) -> dict[str, float]:
    """Run a script as a process of its own and return what it measured.

    Raises:
        NotAvailable: it failed or took longer than `limit` seconds; says its last words.
    """
    result = data / "result.json"
    result.unlink(missing_ok=True)
    options = {"data": data, "result": result, "variant": variant, "key-bits": key_bits,
               "count": count}  # fmt: skip
    words = [f"--{name}={value}" for name, value in options.items()]
    _checked([str(python), str(script), *words], limit)
    if not result.exists():
        raise NotAvailable("it ended without a result")
    return json.loads(result.read_text())


def _checked(command: list[str], limit: int | None = None) -> None:
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "VIRTUAL_ENV")}
    variables["PYTHONPATH"] = str(HERE)  # for measure.py
    try:
        done = subprocess.run(  # noqa: S603
            command, env=variables, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"it took more than {limit} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("ERROR:", "error:"))]
        kind = Crashed if done.returncode < 0 else NotAvailable
        raise kind((errors or lines or [f"exit status {done.returncode}"])[-1][:300])


def make_data(folder: Path, n: int, m: int, bits: int) -> None:
    """Write the inputs of every comparison, the same in every run."""
    rng = np.random.default_rng(SEED)
    np.save(folder / "x.npy", rng.integers(0, 2, (n, bits), dtype=np.uint8))
    np.save(folder / "y.npy", rng.integers(0, 2, (m, bits), dtype=np.uint8))
    np.save(folder / "values.npy", rng.integers(0, 1 << 62, 4096))
    np.save(folder / "messages.npy", rng.integers(0, 256, (4096, 2, 16), dtype=np.uint8))
    np.save(folder / "choices.npy", rng.integers(0, 2, 4096))
    np.save(folder / "sum.npy", rng.integers(0, 1 << 22, 1_000_000))


def compare(
    chosen: Comparison, size: tuple[int, int, int], repeat: int, key_bits: int | None, limit: int
) -> dict[str, object]:
    """Run a peer and our counterpart in turn, ours first and last, and return a row.

    Times and bytes are medians over the runs. What is slow runs once, between two runs of ours.
    """
    bits = key_bits or chosen.key_bits if chosen.key_bits else 0
    row: dict[str, object] = asdict(chosen) | {
        "size": str(chosen.count) if chosen.count else "×".join(map(str, size)),
        "key_bits": bits,
    }
    our_count = chosen.our_count or chosen.count
    if our_count != chosen.count:
        row["size"] = f"{chosen.count}, ours {our_count}"
    row |= {"ours_name": row.pop("ours"), "crashes": 0}
    peer_runs: list[dict[str, float]] = []
    our_runs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        make_data(data, *size)

        def peer() -> None:
            script = HERE / chosen.folder / "peer.py"
            while True:
                try:
                    result = run(python, script, data, chosen.variant, bits, chosen.count, limit)
                except Crashed:
                    row["crashes"] += 1
                    if row["crashes"] > CRASHES:
                        raise
                else:
                    peer_runs.append(result)
                    return

        def ours() -> None:
            script = HERE / "ours.py"
            our_runs.append(run(sys.executable, script, data, chosen.ours, bits, our_count, limit))

        try:
            python = environment(chosen.folder)
            for turn in range(repeat):
                log(f"{chosen.name}: run {turn + 1}")
                _run_ours(ours, row)
                peer()
                if _slow(peer_runs[-1]):
                    break
            _run_ours(ours, row)
        except NotAvailable as reason:
            row["peer_not_available"] = str(reason)
    for side, runs, count in (("peer", peer_runs, chosen.count), ("ours", our_runs, our_count)):
        if runs:
            row[side] = summary(runs, count or 1)
    judged = (chosen.count or size == REQUIRED_AT) and bits == chosen.key_bits
    return row | verdict(row, judged=bool(judged))


def _run_ours(ours: Callable[[], None], row: dict[str, object]) -> None:
    if "ours_not_available" not in row:
        try:
            ours()
        except NotAvailable as reason:
            row["ours_not_available"] = str(reason)


def _slow(result: dict[str, float]) -> bool:
    return result["seconds"] + result.get("keys_seconds", 0) > SLOW_SECONDS


def summary(runs: list[dict[str, float]], count: int) -> dict[str, object]:
    """Return the medians of all that was measured, the number of runs, and exactness of all.

    Seconds, CPU and bytes are those of one encryption or transfer where there are `count`.
    """
    medians = {key: statistics.median(r[key] for r in runs) for key in runs[0] if key != "exact"}
    each = {key: medians[key] / count for key in ("seconds", "cpu", "bytes")}
    return medians | each | {"exact": all(r["exact"] for r in runs), "runs": len(runs)}


def verdict(row: dict[str, object], *, judged: bool) -> dict[str, object]:
    """Return the ratios, and whether they are as required; None where nothing can be said."""
    if "peer" not in row or "ours" not in row:
        return dict.fromkeys(("time_ratio", "cpu_ratio", "bytes_ratio", "met"))
    peer, ours = row["peer"], row["ours"]
    ratios = {
        "time_ratio": peer["seconds"] / ours["seconds"],
        "cpu_ratio": peer["cpu"] / ours["cpu"],
        "bytes_ratio": ours["bytes"] / peer["bytes"],
    }
    met = None
    if judged and row["faster"] is not None:
        ratio, share = ratios["cpu_ratio" if row["clock"] == "cpu" else "time_ratio"], row["bytes"]
        met = ours["exact"] and ratio >= row["faster"]
        if share is not None:
            met &= ratios["bytes_ratio"] <= share and not (
                row["fewer"] and ratios["bytes_ratio"] == share
            )
    return ratios | {"met": met}


def machine() -> dict[str, object]:
    """Return what the numbers depend on."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if "model name" in line]
        model = names[0].split(":", 1)[1].strip() if names else model
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def table(rows: list[dict[str, object]]) -> str:
    """Return the rows as a Markdown table, with notes on what is missing below it."""
    heads = ("peer", "trust", "size", "seconds (CPU)", "bytes", "ours", "seconds (CPU)", "bytes",
             "faster (CPU)", "bytes, ours to peer", "required", "met")  # fmt: skip
    lines = [heads, tuple("---" for _ in heads), *map(_cells, rows)]
    text = [f"| {' | '.join(line)} |" for line in lines]
    for row in rows:
        for side, who in (("peer", row["name"]), ("ours", row["ours_name"])):
            if f"{side}_not_available" in row:
                text.append(f"\n{row['name']}: {who} is not available here: "
                            f"{row[f'{side}_not_available']}")  # fmt: skip
            elif side in row and not row[side]["exact"]:
                text.append(f"\n{row['name']}: {who} gave a wrong result at least once")
        if row["crashes"]:
            text.append(f"\n{row['name']}: it crashed {row['crashes']} times and was run again")
    return "\n".join(text)


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    keys = f", {row['key_bits']} bits" if row["key_bits"] else ""
    required = []
    if row["faster"] is not None:
        clock = " of CPU" if row["clock"] == "cpu" else ""
        required.append(f"≥ {row['faster']:g} × faster{clock}")
    if row["bytes"] is not None:
        required.append("fewer bytes" if row["fewer"] else f"≤ {row['bytes']:g} of the bytes")
    return (
        row["name"],
        row["trust"] or "–",
        row["size"] + keys,
        *_numbers(row, "peer"),
        row["ours_name"],
        *_numbers(row, "ours"),
        "–" if row["time_ratio"] is None else f"{row['time_ratio']:.3g} ({row['cpu_ratio']:.3g})",
        "–" if row["bytes_ratio"] is None else f"{row['bytes_ratio']:.3g}",
        ", ".join(required) or "–",
        {True: "yes", False: "NO", None: "–"}[row["met"]],
    )


def _numbers(row: dict[str, object], side: str) -> tuple[str, str]:
    if side not in row:
        return "not available" if f"{side}_not_available" in row else "–", "–"
    values = row[side]
    if row["count"]:
        times = f"{1e3 * values['seconds']:.3g} ({1e3 * values['cpu']:.3g}) ms each"
        return times, f"{values['bytes']:.0f} B each"
    return f"{values['seconds']:.3g} ({values['cpu']:.3g})", f"{values['bytes'] / 1e6:.3g} MB"


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse_sizes(text: str) -> list[tuple[int, int, int]]:
    """Return ``200x200x4096,…`` as triples."""
    sizes = [tuple(int(part) for part in size.split("x")) for size in text.split(",")]
    if any(len(size) != 3 or min(size) < 1 for size in sizes):
        raise ValueError(text)
    return sizes


def main() -> None:
    names = [c.name for c in COMPARISONS]
    parser = argparse.ArgumentParser(description="Compare our back ends with other libraries.")
    parser.add_argument("--peers", default=",".join(names), help=f"some of {', '.join(names)}")
    parser.add_argument(
        "--sizes", type=parse_sizes, default="200x200x4096", help="rows × rows × bits, …"
    )
    parser.add_argument("--key-bits", type=int, help="instead of each comparison's own size")
    parser.add_argument("--repeat", type=int, default=3, help="runs of what is quick")
    parser.add_argument("--limit", type=int, default=900, help="seconds before a run is given up")
    parser.add_argument(
        "--threads", type=int, help="of numerical libraries, on both sides; by default their choice"
    )
    parser.add_argument("--json", type=Path, help="file to write everything to")
    args = parser.parse_args()
    wanted = args.peers.split(",")
    if unknown := set(wanted) - set(names):
        parser.error(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    if args.threads:
        for library in ("OMP", "OPENBLAS", "MKL"):
            os.environ[f"{library}_NUM_THREADS"] = str(args.threads)
    rows = []
    for index, size in enumerate(args.sizes):
        for chosen in COMPARISONS:
            if chosen.name in wanted and not (chosen.count and index):
                rows.append(compare(chosen, size, args.repeat, args.key_bits, args.limit))
    report = {
        "machine": machine(),
        "repeat": args.repeat,
        "threads": args.threads,
        "seed": SEED,
        "rows": rows,
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    facts = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    print(f"{table(rows)}\n\n{facts}")


if __name__ == "__main__":
    main()
