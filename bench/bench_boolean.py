"""Boolean circuits on shares, and what two programs compare with them or with shares of distances.

    make bench BENCH=bench/bench_boolean.py

Both parties, and the dealer where there is one, run in one process; programs in threads of it.
"""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from xclp_crypto import (
    cross_distances,
    cross_masked_distances,
    cross_matches,
    cross_nearest,
    secure_mean,
    secure_sum,
)
from xclp_crypto.protocols.boolean import (
    Gates,
    costs,
    deal_triples,
    dealt_triples,
    matrix_to_pairs,
    offsets_to_matrix,
    smallest,
    to_boolean,
)
from xclp_crypto.protocols.boolean.words import words_for, words_to_bits
from xclp_crypto.rng import SystemRng
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Simulation

WIDTH = 13  # of distances up to 4096


@pytest.mark.benchmark(group="boolean circuits: 2000 rows × 2000 candidates, triples dealt")
@pytest.mark.parametrize("layout", ["any matrix", "symmetric"])
def test_the_10_smallest_of_each_row(benchmark, record, layout):
    n, k, pairs = 2000, 10, layout == "symmetric"
    rng = np.random.default_rng(0)
    values = rng.integers(0, 4097, (n, n), dtype=np.uint16)
    mask = rng.integers(0, 1 << WIDTH, (n, n), dtype=np.uint16)
    addends = {"p": values - mask, "q": mask}
    words = words_for(n)
    needed = costs.adding(WIDTH, words * n) + costs.selecting(WIDTH, n, words, k)
    if pairs:
        needed = costs.selecting_pairs(WIDTH, n, k)

    def party(me, peer):
        async def role(io):
            triples = await dealt_triples(io, "dealer", peer, b"bench", needed.triples)
            gates = Gates(io, peer, triples)
            own = matrix_to_pairs(addends[me]) if pairs else addends[me]
            numbers = await to_boolean(gates, own, WIDTH)
            found = await smallest(gates, numbers, k, pairs_of=n if pairs else None)
            return await gates.open(found)

        return role

    async def dealer(io):
        await deal_triples(io, ("p", "q"), b"bench", needed.triples, SystemRng())

    roles = {"p": party("p", "q"), "q": party("q", "p"), "dealer": dealer}
    outcome = benchmark.pedantic(Simulation().run, (roles,), rounds=5, warmup_rounds=1)
    outcome.raise_errors()
    found = words_to_bits(outcome.results["p"], n)
    if pairs:
        upper = np.triu(values, 1).astype(int)
        values, found = upper + upper.T + 5000 * np.eye(n, dtype=int), offsets_to_matrix(found).T
    assert np.array_equal(found, values <= np.sort(values, axis=0)[k - 1])
    record(outcome.cost)


def two_programs(door, mine, theirs, **options):
    """Run both ends; return what both together cost."""
    results = {}

    def run(name, rows, sock):
        with sock:
            results[name] = door(*rows, sock, receives=name == "receiver", **options)

    ours, other = socket.socketpair()
    sender = threading.Thread(target=run, args=("sender", theirs, other))
    sender.start()
    run("receiver", mine, ours)
    sender.join()
    return Cost.total(cost for _, cost in results.values())


LARGE = tuple(np.random.default_rng(s).integers(0, 2, (500, 4096), dtype=np.uint8) for s in (1, 2))


@pytest.mark.benchmark(group="distances: two programs, 500 × 500 rows × 4096 bits, rlwe")
@pytest.mark.parametrize(
    ("door", "options"),
    [(cross_distances, {}), (cross_matches, {"at_most": 1300}), (cross_nearest, {"k": 10})],
    ids=["distances", "matches", "nearest"],
)
def test_cross(benchmark, record, door, options):
    mine, theirs = ((rows,) for rows in LARGE)
    arguments = (door, mine, theirs), options
    record(benchmark.pedantic(two_programs, *arguments, rounds=3, warmup_rounds=1))


@pytest.mark.benchmark(group="distances: two programs, 200 × 200 rows × 2048 bits, rlwe")
@pytest.mark.parametrize("masked", [False, True], ids=["distances", "masked distances"])
def test_cross_masked(benchmark, record, masked):
    mine, theirs = (
        (rows[:200, :2048], rows[200:400, :2048]) if masked else (rows[:200, :2048],)
        for rows in LARGE
    )
    door = cross_masked_distances if masked else cross_distances
    record(benchmark.pedantic(two_programs, (door, mine, theirs), rounds=5, warmup_rounds=1))


@pytest.mark.benchmark(group="means: 10 clients × 1,000,000 float32, one drops out")
@pytest.mark.parametrize("weighted", [False, True], ids=["sum", "weighted mean"])
def test_updates(benchmark, record, weighted):
    rng = np.random.default_rng(0)
    updates = [rng.normal(size=10**6).astype(np.float32) for _ in range(10)]
    door, weights = (secure_mean, (range(1, 11),)) if weighted else (secure_sum, ())
    options = {"drop": {"client-3"}}
    found = benchmark.pedantic(door, (updates, *weights), options, rounds=3, warmup_rounds=1)
    record(found.cost, items=10 * 10**6)
