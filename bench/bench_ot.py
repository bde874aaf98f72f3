"""Oblivious transfer and the back ends that stand on it.

    python -m pytest bench/bench_ot.py --benchmark-only

Both parties run in one process and on one core, so times are those of both together. Random
transfers are those of one extension in batches of 2^16, without its base transfers, which are
timed on their own; `shade-ext` includes them. The plain baseline runs in the same rounds.
"""

from __future__ import annotations

from time import perf_counter

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
from xclp_crypto.protocols.ot.extension import FIELD_BITS
from xclp_crypto.rng import SystemRng
from xclp_crypto.transport.simulate import Simulation

BATCH = 1 << 16


def run_extension(method, sender, receiver, batches=1, check_receiver=False, field_bits=1):
    """Run batches of one extension; return the seconds without base transfers, and the cost."""
    started = []
    pair, choice = np.zeros((1, 2, 1), np.uint8), Choices(np.zeros(1, bool), 1)

    async def role(io, to, frm, arguments):
        rng = SystemRng()
        base = await base_transfers(io, to, frm, b"base", rng, ideal_ot, field_bits=field_bits)
        extension = Extension(base, b"extension", rng, check_receiver=check_receiver)
        # One transfer with an answer, after which both parties have their keys.
        await extension.chosen(io, dict.fromkeys(to, pair), dict.fromkeys(frm, choice))
        started.append(perf_counter())
        with io.step("extension"):
            for _ in range(batches):
                await getattr(extension, method)(io, *arguments)

    outcome = Simulation().run(
        {
            "s": lambda io: role(io, ("r",), (), sender),
            "r": lambda io: role(io, (), ("s",), receiver),
        }
    )
    outcome.raise_errors()
    return perf_counter() - max(started), outcome.cost


def report(benchmark, name, seconds, count, n_bytes=None):
    """Add best and median rates to the report."""
    best, median = count / min(seconds), count / float(np.median(seconds))
    benchmark.extra_info |= {"per_second_best": best, "per_second_median": median}
    size = "" if n_bytes is None else f", {n_bytes / count:.2f} bytes each"
    print(f"\n{name}: {best:.3g} /s best, {median:.3g} /s median{size}")


def rate(benchmark, name, method, arguments, **options):
    """Time 16 batches of a method, and report the rate and the bytes of each transfer."""
    seconds = []

    def once():
        took, cost = run_extension(method, *arguments, batches=16, **options)
        seconds.append(took)
        return sum(n for t, n in cost.bytes_sent.items() if t.step == "extension")

    n_bytes = benchmark.pedantic(once, rounds=9, warmup_rounds=1)
    report(benchmark, name, seconds, 16 * BATCH, n_bytes)


BITS = np.random.default_rng(0).integers(0, 2, BATCH).astype(bool)


@pytest.mark.parametrize("field_bits", FIELD_BITS, ids="k = {}".format)
@pytest.mark.parametrize("check", [False, True], ids=["semi-honest", "checked"])
@pytest.mark.benchmark(group="random transfers of 128 bits, 16 batches of 65536")
def test_random_transfers(benchmark, check, field_bits):
    arguments = ({"r": BATCH}, {}), ({}, {"s": Choices(BITS, 16)})
    name = f"random transfers, k = {field_bits}{', checked' if check else ''}"
    options = {"check_receiver": check, "field_bits": field_bits}
    rate(benchmark, name, "random", arguments, **options)


@pytest.mark.parametrize("field_bits", [2, 4], ids="k = {}".format)
@pytest.mark.benchmark(group="correlated transfers, 16 batches of 65536")
def test_transfers_of_a_fixed_offset(benchmark, field_bits):
    arguments = ({"r": BATCH}, {}), ({}, {"s": BITS})
    rate(benchmark, f"fixed offset, k = {field_bits}", "fixed", arguments, field_bits=field_bits)


@pytest.mark.benchmark(group="correlated transfers, 16 batches of 65536")
def test_correlated_transfers_of_64_bits(benchmark):
    offsets = np.full((BATCH, 1), 12345, np.uint64)
    arguments = ({"r": offsets}, {}, 64), ({}, {"s": Choices(BITS, 1)}, 64)
    rate(benchmark, "correlated modulo 2^64, k = 2", "correlated", arguments, field_bits=2)


@pytest.mark.parametrize(
    ("make", "count", "products"),
    [(bit_triples, 1 << 13, 1 << 19), (ring_triples, 1 << 13, 1 << 13)],
    ids=["bits", "words"],
)
@pytest.mark.benchmark(group="triples, k = 4")
def test_triples(benchmark, make, count, products):
    seconds = []

    def once():
        started = []

        async def role(io, peer):
            rng = SystemRng()
            base = await base_transfers(io, peer, peer, b"base", rng, ideal_ot, field_bits=4)
            extension = Extension(base, b"extension", rng)
            await make(io, peer, 1, extension, rng)
            started.append(perf_counter())
            with io.step("triples"):
                await make(io, peer, count, extension, rng)

        parties = {"a": lambda io: role(io, "b"), "b": lambda io: role(io, "a")}
        outcome = Simulation().run(parties).raise_errors()
        seconds.append(perf_counter() - max(started))
        return sum(n for t, n in outcome.cost.bytes_sent.items() if t.step == "triples")

    n_bytes = benchmark.pedantic(once, rounds=5, warmup_rounds=1)
    report(benchmark, f"{make.__name__}, k = 4", seconds, products, n_bytes)


@pytest.mark.parametrize("length", [16, 256])
@pytest.mark.benchmark(group="chosen messages, 65536 transfers")
def test_chosen_messages(benchmark, length):
    rng = np.random.default_rng(0)
    messages = rng.integers(0, 256, (BATCH, 2, length), dtype=np.uint8)
    bits = rng.integers(0, 2, BATCH).astype(bool)
    arguments = ({"r": messages}, {}), ({}, {"s": Choices(bits, length)})
    seconds = []
    benchmark.pedantic(
        lambda: seconds.append(run_extension("chosen", *arguments)[0]), rounds=9, warmup_rounds=1
    )
    report(benchmark, f"chosen messages of {length} bytes", seconds, BATCH)


def transfers(construction, count, length=16):
    """Run one batch between two parties."""
    rng = np.random.default_rng(0)
    messages = rng.integers(0, 256, (count, 2, length), dtype=np.uint8)
    choices = Choices(rng.integers(0, 2, count).astype(bool), length)
    outcome = Simulation().run(
        {
            "s": lambda io: construction(io, {"r": messages}, {}, b"batch", SystemRng()),
            "r": lambda io: construction(io, {}, {"s": choices}, b"batch", SystemRng()),
        }
    )
    outcome.raise_errors()


@pytest.mark.benchmark(group="Naor-Pinkas, 1024 transfers")
def test_naor_pinkas(benchmark):
    benchmark.pedantic(transfers, args=(naor_pinkas, 1024), rounds=9, warmup_rounds=1)
    stats = benchmark.stats.stats
    benchmark.extra_info["milliseconds_per_transfer"] = 1e3 * stats.min / 1024
    print(
        f"\nNaor-Pinkas: {1e3 * stats.min / 1024:.3f} ms for each transfer best, "
        f"{1e3 * stats.median / 1024:.3f} ms median"
    )


@pytest.mark.benchmark(group="one transfer by extension: 128 base transfers")
def test_base_transfers(benchmark):
    benchmark.pedantic(transfers, args=(extended_ot, 1), rounds=9, warmup_rounds=1)


@pytest.mark.parametrize(
    ("backend", "rows", "n_bits", "rounds"),
    [(Shade(), 8, 64, 5), (ShadeExt(), 500, 4096, 3)],
    ids=["shade-8x8x64", "shade-ext-500x500x4096"],
)
@pytest.mark.benchmark(group="bit comparisons")
def test_bit_comparisons(benchmark, backend, rows, n_bits, rounds):
    """Two clients; the plain baseline runs before every round."""
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 2, (rows, n_bits), dtype=np.uint8) for _ in range(2)]
    plain, secure, costs = [], [], []

    def once():
        for method, seconds in (("plain", plain), (backend, secure)):
            started = perf_counter()
            matrix, cost = secure_hamming(bits, method)
            seconds.append(perf_counter() - started)
            costs.append((matrix, cost))

    benchmark.pedantic(once, rounds=rounds, warmup_rounds=0)
    assert np.array_equal(costs[-2][0], costs[-1][0])
    n_bytes = costs[-1][1].total_bytes
    report(benchmark, backend.name, secure, rows * rows * n_bits)
    ratio = float(np.median(np.array(secure) / np.array(plain)))
    benchmark.extra_info |= {"bytes": n_bytes, "ratio_to_plain": ratio}
    formula = rows * n_bits * (128 + rows * n_bits.bit_length()) / 8
    print(f"{n_bytes / 1e6:.0f} MB, {n_bytes / formula:.4f} of the formula; {ratio:.0f} × plain")
