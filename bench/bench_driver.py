"""The in-process driver: seconds per message, encoding, metering and decoding included."""

from __future__ import annotations

import pytest

from xclp_crypto.protocols.setup.seed_agreement import SeedShare
from xclp_crypto.transport.simulate import Simulation

MESSAGES = 10_000


@pytest.mark.benchmark(group="driver")
def test_ping_pong(benchmark):
    async def ping(io):
        for _ in range(MESSAGES // 2):
            await io.send("pong", SeedShare(bytes(32)))
            await io.recv(SeedShare, "pong")

    async def pong(io):
        for _ in range(MESSAGES // 2):
            await io.recv(SeedShare, "ping")
            await io.send("ping", SeedShare(bytes(32)))

    def run():
        Simulation().run({"ping": ping, "pong": pong}).raise_errors()

    benchmark.pedantic(run, rounds=7, warmup_rounds=1)
    per_message = benchmark.stats.stats.median / MESSAGES
    benchmark.extra_info["microseconds_per_message"] = 1e6 * per_message
    print(f"\ndriver: {1e6 * per_message:.1f} µs per message")
