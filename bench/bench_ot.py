"""Oblivious transfer, triples from it, and the back ends that stand on it.

    make bench BENCH=bench/bench_ot.py

Both parties run in one process and on one core, so times are those of both together. Those of
extended transfers and of triples are without their base transfers, which are timed on their own;
`shade-ext` includes them.
"""

from __future__ import annotations

import numpy as np
import pytest

from xclp_crypto import secure_hamming
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.protocols.hamming.shade_ext import ShadeExt
from xclp_crypto.protocols.ot import (
    Choices,
    Extension,
    base_transfers,
    bit_triples,
    extended_ot,
    ideal_ot,
    naor_pinkas,
    ring_triples,
)
from xclp_crypto.protocols.ot.base import FIELD_BITS
from xclp_crypto.rng import SystemRng
from xclp_crypto.transport.simulate import Simulation

BATCH, BATCHES = 1 << 16, 16
BITS = np.random.default_rng(0).integers(0, 2, BATCH).astype(bool)
FIELDS = pytest.mark.parametrize("field_bits", FIELD_BITS, ids="k = {}".format)


def run(s, r):
    """Run both parties; return the cost."""
    return Simulation().run({"s": s, "r": r}).raise_errors().cost


def extensions(senders, *, field_bits=1, check=False):
    """Return each party's extension after its base transfers, ready for its first batch."""
    made = {}

    async def role(io):
        peer = "r" if io.name == "s" else "s"
        to, frm = (peer if io.name in senders else ()), (peer if peer in senders else ())
        rng = SystemRng()
        base = await base_transfers(io, to, frm, b"base", rng, ideal_ot, field_bits=field_bits)
        made[io.name] = Extension(base, b"extension", rng, check_receiver=check)

    run(role, role)
    return made


def measure(benchmark, record, method, sending, receiving, batches=BATCHES, **options):
    """Time batches of a method, of which each party gives its arguments."""
    made = extensions("s", **options)

    def party(arguments):
        async def role(io):
            for _ in range(batches):
                await getattr(made[io.name], method)(io, *arguments)

        return role

    roles = party(sending), party(receiving)
    record(benchmark.pedantic(run, roles, rounds=9, warmup_rounds=1), items=batches * BATCH)


@FIELDS
@pytest.mark.parametrize("check", [False, True], ids=["semi-honest", "checked"])
@pytest.mark.benchmark(group="transfers: random, of 128 bits, 16 batches of 65,536")
def test_random(benchmark, record, check, field_bits):
    arguments = ({"r": BATCH}, {}), ({}, {"s": Choices(BITS, 16)})
    measure(benchmark, record, "random", *arguments, check=check, field_bits=field_bits)


@FIELDS
@pytest.mark.benchmark(group="transfers: correlated, 16 batches of 65,536")
def test_fixed_offset_of_128_bits(benchmark, record, field_bits):
    arguments = ({"r": BATCH}, {}), ({}, {"s": BITS})
    measure(benchmark, record, "fixed", *arguments, field_bits=field_bits)


@FIELDS
@pytest.mark.benchmark(group="transfers: correlated, 16 batches of 65,536")
def test_modulo_two_to_the_64(benchmark, record, field_bits):
    offsets = np.full((BATCH, 1), 12345, np.uint64)
    arguments = ({"r": offsets}, {}, 64), ({}, {"s": Choices(BITS, 1)}, 64)
    measure(benchmark, record, "correlated", *arguments, field_bits=field_bits)


@pytest.mark.parametrize("length", [16, 256])
@pytest.mark.benchmark(group="transfers: chosen messages, k = 1, 65,536")
def test_bytes(benchmark, record, length):
    messages = np.random.default_rng(0).integers(0, 256, (BATCH, 2, length), dtype=np.uint8)
    arguments = ({"r": messages}, {}), ({}, {"s": Choices(BITS, length)})
    measure(benchmark, record, "chosen", *arguments, batches=1)


@pytest.mark.parametrize(
    ("make", "count", "products"),
    [(bit_triples, 1 << 13, 1 << 19), (ring_triples, 1 << 13, 1 << 13)],
    ids=["bits", "modulo 2^64"],
)
@pytest.mark.benchmark(group="triples: from transfers, k = 4")
def test_triples(benchmark, record, make, count, products):
    made = extensions("sr", field_bits=4)

    async def role(io):
        peer = "r" if io.name == "s" else "s"
        await make(io, peer, count, made[io.name], SystemRng())

    cost = benchmark.pedantic(run, (role, role), rounds=5, warmup_rounds=1)
    record(cost, items=products)


@pytest.mark.parametrize(
    ("construction", "count"),
    [(naor_pinkas, 1024), (extended_ot, 1)],
    ids=["naor-pinkas, 1024", "extended, 1"],
)
@pytest.mark.benchmark(group="transfers: base transfers")
def test_base(benchmark, record, construction, count):
    """A single transfer by extension is the base transfers, and next to nothing."""
    messages, choices = np.zeros((count, 2, 16), np.uint8), Choices(BITS[:count], 16)
    roles = (
        lambda io: construction(io, {"r": messages}, {}, b"batch", SystemRng()),
        lambda io: construction(io, {}, {"s": choices}, b"batch", SystemRng()),
    )
    record(benchmark.pedantic(run, roles, rounds=9, warmup_rounds=1), items=count)


@pytest.mark.parametrize(
    ("backend", "rows", "n_bits", "rounds"),
    [(Shade(), 8, 64, 5), (ShadeExt(), 500, 4096, 3)],
    ids=["shade, 8 x 8 x 64", "shade-ext, 500 x 500 x 4096"],
)
@pytest.mark.benchmark(group="distances: bit comparisons by transfers")
def test_distances(beside, record, backend, rows, n_bits, rounds):
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 2, (rows, n_bits), dtype=np.uint8) for _ in range(2)]
    expected, _ = secure_hamming(bits, "plain")
    (matrix, cost), ratio = beside(
        lambda: secure_hamming(bits, "plain"), secure_hamming, bits, backend, rounds=rounds
    )
    assert np.array_equal(matrix, expected)
    formula = rows * n_bits * (128 + rows * n_bits.bit_length()) / 8
    items = rows * rows * n_bits
    record(cost, items=items, times_plain=ratio, of_the_formula=cost.total_bytes / formula)
