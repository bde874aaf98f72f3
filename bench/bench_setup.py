"""What parties do before a protocol: keys, with identities or without, and a common seed.

All parties run in this process, so a client's share of the server's work is in the seconds.
"""

from __future__ import annotations

import pytest

from xclp_crypto.params import Agreement
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.protocols.setup import (
    SERVER,
    Identities,
    key_exchange_client,
    key_exchange_server,
    seed_agreement_client,
    seed_agreement_server,
)
from xclp_crypto.rng import SystemRng
from xclp_crypto.transport.simulate import Simulation

CLIENTS = tuple(f"client-{i}" for i in range(100))


def exchange(identities=None, *, post_quantum=True, seed=False):
    """Run a key exchange, and agree on a seed if asked for; return the cost."""
    pins, rng = identities or {}, SystemRng()
    options = {"post_quantum": post_quantum}

    async def client(io):
        own = pins.get(io.name)
        session = await key_exchange_client(io, CLIENTS, Agreement(), [1], rng, own, **options)
        if seed:
            await seed_agreement_client(session, rng)

    async def server(io):
        own = pins.get(SERVER)
        session = await key_exchange_server(
            io, CLIENTS, Agreement(), 1, rng, identities=own, **options
        )
        if seed:
            await seed_agreement_server(session)

    roles = dict.fromkeys(CLIENTS, client) | {SERVER: server}
    return Simulation().run(roles).raise_errors().cost


@pytest.mark.parametrize(
    "options",
    [{"post_quantum": False}, {}, {"seed": True}],
    ids=["X25519", "X25519 and ML-KEM-768", "the same, and a common seed"],
)
@pytest.mark.benchmark(group="setup: keys of 100 clients and a server")
def test_keys(benchmark, record, options):
    record(benchmark.pedantic(exchange, kwargs=options, rounds=3), items=len(CLIENTS))


@pytest.mark.benchmark(group="identities: keys of 100 clients and a server that check each other")
def test_keys_with_identities(benchmark, record):
    keys = {party: IdentityKey.generate(SystemRng()) for party in (*CLIENTS, SERVER)}
    pinned = {party: key.public for party, key in keys.items()}
    identities = {party: Identities(key, pinned) for party, key in keys.items()}
    record(benchmark.pedantic(exchange, (identities,), rounds=3), items=len(CLIENTS))


@pytest.mark.benchmark(group="identities: one signature")
@pytest.mark.parametrize("way", ["sign", "verify"])
def test_signature(benchmark, record, way):
    key, message = IdentityKey.generate(SystemRng()), b"what is signed"
    arguments = (message,) if way == "sign" else (key.sign(message), message, "client-0")
    benchmark(getattr(key if way == "sign" else key.public, way), *arguments)
    record(items=1)
