"""Boolean circuits on shares, and what two programs compare with them or with shares of distances.

    python -m pytest bench/bench_boolean.py --benchmark-only

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
from xclp_crypto.transport.simulate import Simulation

WIDTH = 13  # of distances up to 4096


def report(benchmark, cost):
    benchmark.extra_info |= {"bytes": cost.total_bytes, "rounds": cost.rounds}


@pytest.mark.benchmark(group="the 10 smallest of each row, 2000 rows × 2000 candidates, dealer")
@pytest.mark.parametrize("layout", ["any matrix", "symmetric"])
def test_smallest(benchmark, layout):
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
    outcome = benchmark.pedantic(lambda: Simulation().run(roles), rounds=5, warmup_rounds=1)
    outcome.raise_errors()
    found = words_to_bits(outcome.results["p"], n)
    if pairs:
        upper = np.triu(values, 1).astype(int)
        values, found = upper + upper.T + 5000 * np.eye(n, dtype=int), offsets_to_matrix(found).T
    assert np.array_equal(found, values <= np.sort(values, axis=0)[k - 1])
    report(benchmark, outcome.cost)


def two_programs(door, mine, theirs, **options):
    """Run both ends; return what the receiver gets, and what both sent."""
    results = {}

    def run(name, rows, sock):
        with sock:
            results[name] = door(*rows, sock, receives=name == "receiver", **options)

    ours, other = socket.socketpair()
    sender = threading.Thread(target=run, args=("sender", theirs, other))
    sender.start()
    run("receiver", mine, ours)
    sender.join()
    found, cost = results["receiver"]
    return found, cost.total_bytes + results["sender"][1].total_bytes


LARGE = tuple(np.random.default_rng(s).integers(0, 2, (500, 4096), dtype=np.uint8) for s in (1, 2))


@pytest.mark.benchmark(group="two programs, 500 × 500 rows × 4096 bits, rlwe")
@pytest.mark.parametrize(
    ("door", "options"),
    [(cross_distances, {}), (cross_matches, {"at_most": 1300}), (cross_nearest, {"k": 10})],
    ids=["distances", "matches", "nearest"],
)
def test_two_programs(benchmark, door, options):
    mine, theirs = ((rows,) for rows in LARGE)
    _, sent = benchmark.pedantic(
        two_programs, args=(door, mine, theirs), kwargs=options, rounds=3, warmup_rounds=1
    )
    benchmark.extra_info["bytes"] = sent


@pytest.mark.benchmark(group="two programs, 200 × 200 rows × 2048 bits, rlwe")
@pytest.mark.parametrize("masked", [False, True], ids=["distances", "masked distances"])
def test_masked_distances(benchmark, masked):
    mine, theirs = (
        (rows[:200, :2048], rows[200:400, :2048]) if masked else (rows[:200, :2048],)
        for rows in LARGE
    )
    door = cross_masked_distances if masked else cross_distances
    _, sent = benchmark.pedantic(two_programs, args=(door, mine, theirs), rounds=5, warmup_rounds=1)
    benchmark.extra_info["bytes"] = sent


@pytest.mark.benchmark(group="10 clients × 1,000,000 float32, one vanishes")
@pytest.mark.parametrize("door", ["sum", "weighted mean"])
def test_mean(benchmark, door):
    rng = np.random.default_rng(0)
    updates = [rng.normal(size=10**6).astype(np.float32) for _ in range(10)]
    weights = None if door == "sum" else [float(i + 1) for i in range(10)]

    def run():
        if weights is None:
            return secure_sum(updates, drop={"client-3"})
        return secure_mean(updates, weights, drop={"client-3"})

    report(benchmark, benchmark.pedantic(run, rounds=3, warmup_rounds=1).cost)
