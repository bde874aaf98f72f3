"""Federations over sockets, measured: ``python bench/network.py``; needs some minutes.

1. Four clients with 200 points each, L = 1024, `rlwe`: processes over TLS with logs, beside all
   parties in one process.
2. One message of 1.5 GB from a client to the server, and the peak memory of both processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
import network_processes as processes

from xclp_crypto.fields import Raw
from xclp_crypto.params import Agreement
from xclp_crypto.transport import network
from xclp_crypto.transport.log import Log, LogKey
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.tls import make_authority, tls_context
from xclp_crypto.wire import Message, sent

LIMITS = {"join": 60.0, "grace": 30.0, "deadline": 600.0}


class Large(Message):
    """Any bytes."""

    TAG = 0xFF52
    data: bytes = sent(Raw("n"))


def session(rows: int) -> tuple[float, float]:
    """Seconds of a session over sockets, from the first client's start, and in one process."""
    with tempfile.TemporaryDirectory() as name:
        federation = processes.Federation(
            Path(name), rows=rows, features=32, limits=LIMITS, n_bits=1024, k=5, hamming="rlwe"
        )
        federation.serve()
        started = time.perf_counter()
        for client in federation.clients:
            federation.start(client)
        codes = federation.finish(600)
        seconds = time.perf_counter() - started
        assert set(codes.values()) == {0}, federation.output(processes.SERVER)
        found = {c: federation.labels(c) for c in federation.clients}
        started = time.perf_counter()
        simulated = federation.simulated()
        alone = time.perf_counter() - started
        assert found == simulated
    return seconds, alone


def party(name: str, folder: Path, size: int, port: Any, peak: Any, logged: bool) -> None:
    """Send or receive one message; tell the peak of memory above that before."""

    async def client(io: Any, rng: Any) -> None:
        await io.send("server", Large(b"x" * size))

    async def server(io: Any, rng: Any) -> int:
        return len((await io.recv(Large, "a", n=size)).data)

    files = [folder / f for f in ("authority.pem", f"{name}.pem", f"{name}.key")]
    tls = tls_context(*files, server=name == "server")
    peers = ["a"] if name == "server" else ["server"]
    log = Log.open(folder / f"{name}.log", LogKey(bytes(32))) if logged else network_log()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    role = DurableRole(name, server if name == "server" else client, log, peers=peers)
    agreement, limits = Agreement(version=1), network.Limits(grace=60)
    if name == "server":
        result = network.serve(
            role, ["a"], agreement, ("localhost", 0), tls, limits=limits, listening=port.send
        )
        assert result == size
    else:
        address = ("localhost", port.recv())
        network.join(role, ["a"], "server", agreement, address, tls, limits=limits)
    peak.send(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


def network_log() -> Log:
    from xclp_crypto.transport.log import NoLog

    return NoLog()


def large(size: int, logged: bool) -> tuple[float, dict[str, int]]:
    """Seconds and peaks of memory of one message."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_authority(folder / "certs", ["a"], ["localhost"])
        reader, writer = context.Pipe(duplex=False)
        peaks = {}
        started = time.perf_counter()
        running = {}
        for who, port in (("server", writer), ("a", reader)):
            out, into = context.Pipe(duplex=False)
            arguments = (who, folder / "certs", size, port, into, logged)
            running[who] = context.Process(target=party, args=arguments), out
            running[who][0].start()
        for who, (process, out) in running.items():
            peaks[who] = out.recv()
            process.join()
        return time.perf_counter() - started, peaks


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure federations over sockets.")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=1.5)
    parser.add_argument("--only", choices=["session", "message"])
    chosen = parser.parse_args()
    if chosen.only != "message":
        runs = [session(chosen.rows) for _ in range(chosen.repeat)]
        sockets, alone = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"4 clients × {chosen.rows} points, L = 1024, rlwe, median of {chosen.repeat}:")
        print(f"  sockets {sockets:.1f} s, in one process {alone:.1f} s, labels identical")
        print(f"  limit 3 × {alone:.1f} + 5 = {3 * alone + 5:.1f} s")
    if chosen.only != "session":
        size = int(chosen.gigabytes * 1e9)
        for logged in (False, True):
            seconds, peaks = large(size, logged)
            print(f"message of {size / 1e9:g} GB, {'with' if logged else 'without'} logs:")
            print(
                f"  {seconds:.1f} s, "
                + ", ".join(f"{who} {peak / size:.2f} × in memory" for who, peak in peaks.items())
            )


if __name__ == "__main__":
    main()
