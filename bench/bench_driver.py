"""The in-process driver: what a message costs, encoding, metering and decoding included."""

from __future__ import annotations

import pytest

from xclp_crypto.protocols.setup.seed_agreement import SeedShare
from xclp_crypto.transport.simulate import Simulation

MESSAGES = 10_000


@pytest.mark.benchmark(group="messages: 10,000 of 32 bytes, in one process")
def test_ping_pong(benchmark, record):
    async def ping(io):
        for _ in range(MESSAGES // 2):
            await io.send("pong", SeedShare(bytes(32)))
            await io.recv(SeedShare, "pong")

    async def pong(io):
        for _ in range(MESSAGES // 2):
            await io.recv(SeedShare, "ping")
            await io.send("ping", SeedShare(bytes(32)))

    def run():
        return Simulation().run({"ping": ping, "pong": pong}).raise_errors().cost

    record(benchmark.pedantic(run, rounds=7, warmup_rounds=1), items=MESSAGES)
