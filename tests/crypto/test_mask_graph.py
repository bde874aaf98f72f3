"""The graph of masks: the bounds of its parameters, in exact fractions, and its shape."""

from fractions import Fraction
from itertools import combinations
from math import ceil, comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import secure_sum

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.secure_sum import MaskGraph
from xclp_crypto.protocols.secure_sum.mask_graph import MAX_COMPLETE, _sparse_parameters
from xclp_crypto.testing import run, uniformity


def names(p):
    return tuple(f"c{i}" for i in range(p))


def tail(population, marked, drawn, least):
    """P[at least `least` of `drawn` are marked], drawn without replacement, as a fraction."""
    favourable = sum(
        comb(marked, x) * comb(population - marked, drawn - x)
        for x in range(least, min(marked, drawn) + 1)
    )
    return Fraction(favourable, comb(population, drawn))


def bounds(p, degree, t, colluding, dropouts):
    """The three probabilities of the module: hiding, secrecy and completion."""
    bad, out = ceil(colluding * p), ceil(dropouts * p)
    hiding = p * (Fraction(colluding) + Fraction(dropouts)) ** (degree // 2)
    secrecy = p * tail(p - 1, bad, degree, t)
    completion = p * (1 - tail(p - 1, p - 1 - out, degree, t))
    return hiding, secrecy, completion


FRACTIONS = [(0.1, 0.1), (0.05, 0.3), (0.3, 0.05), (0.0, 0.1), (0.2, 0.0), (0.4, 0.3)]


@pytest.mark.parametrize("p", [50, 101, 150, 200, 500])
@pytest.mark.parametrize(("colluding", "dropouts"), FRACTIONS)
def test_parameters_meet_the_three_bounds_and_no_smaller_degree_does(p, colluding, dropouts):
    found = _sparse_parameters(p, colluding, dropouts)
    limits = (Fraction(1, 1 << 40), Fraction(1, 1 << 40), Fraction(1, 1 << 20))

    def meets(degree, t):
        values = bounds(p, degree, t, colluding, dropouts)
        return all(v <= limit for v, limit in zip(values, limits, strict=True))

    if found is None:
        smaller = range(2, p - 1, 2)
    else:
        assert meets(*found)
        smaller = range(2, found[0], 2)
    for degree in [*smaller][-3:]:
        assert not any(meets(degree, t) for t in range(2, degree + 2)), degree


def test_the_bounds_hold_in_simulated_graphs_with_weak_parameters():
    """The union bounds are above what happens, and within what a union bound may lose."""
    p, degree, t, bad, out = 30, 6, 4, 6, 6
    graph = MaskGraph(names(p), 10, degree, t)
    rng = np.random.default_rng(0)
    runs, hidden, revealed, stuck = 3000, 0, 0, 0
    for seed in range(runs):
        near = graph.neighbours(seed.to_bytes(32, "big"))
        chosen = rng.permutation(p)
        colluding = {f"c{i}" for i in chosen[:bad]}
        dropped = {f"c{i}" for i in chosen[bad : bad + out]}
        hidden += not connected(near, set(near) - colluding - dropped)
        honest = [c for c in near if c not in colluding]
        revealed += any(len(colluding & set(near[c])) >= t for c in honest)
        stuck += any(len(set(near[c]) - dropped) < t for c in near)
    hiding, secrecy, completion = map(float, bounds(p, degree, t, bad / p, out / p))
    assert 0 < hidden / runs < hiding
    assert 0.1 * secrecy < revealed / runs < 1.1 * secrecy
    assert 0.1 * completion < stuck / runs < 1.1 * completion


def connected(near, left):
    """Whether all of `left` reach each other without any other client."""
    reached, front = set(), set(sorted(left)[:1])
    while front:
        reached |= front
        front = {n for c in front for n in near[c] if n in left} - reached
    return reached == left


@settings(deadline=None, max_examples=80)
@given(p=st.integers(4, 60), half=st.integers(1, 29), tag=st.binary(min_size=32, max_size=32))
def test_neighbours_are_a_harary_graph(p, half, tag):
    degree = min(2 * half, (p - 2) // 2 * 2)
    graph = MaskGraph(names(p), 2, degree, 2)
    near = graph.neighbours(tag)
    assert tuple(near) == graph.clients
    for client, peers in near.items():
        assert len(peers) == len(set(peers)) == degree
        assert client not in peers
        assert all(client in near[peer] for peer in peers)
        assert list(peers) == sorted(peers, key=graph.clients.index)
    # Removing fewer than `degree` clients never disconnects it.
    rng = np.random.default_rng(list(tag))
    for _ in range(5):
        out = set(rng.choice(graph.clients, degree - 1, replace=False))
        assert connected(near, set(near) - out)


@pytest.mark.parametrize(("p", "degree"), [(7, 2), (7, 4), (9, 4)])
def test_fewer_removals_than_the_degree_never_disconnect_and_the_degree_can(p, degree):
    graph = MaskGraph(names(p), 2, degree, 2)
    near = graph.neighbours(b"x" * 32)
    for out in combinations(near, degree - 1):
        assert connected(near, set(near) - set(out))
    # All the neighbours of one client cut it off.
    assert not connected(near, set(near) - set(near["c0"]))


def test_gaps_in_a_row_shorter_than_half_the_degree_never_disconnect():
    """What the hiding bound rests on: only k/2 in a row that are missing can cut the circle."""
    graph = MaskGraph(names(12), 2, 4, 2)
    near = graph.neighbours(bytes(32))
    circle = ["c0"]
    while len(circle) < 12:  # walk: the next one shares most neighbours with those before
        left = [c for c in near[circle[-1]] if c not in circle]
        circle.append(max(left, key=lambda c: len(set(near[c]) & set(near[circle[-1]]))))
    for count in range(11):
        for out in combinations(circle, count):
            longest = max_run([c in out for c in circle])
            if longest < 2:
                assert connected(near, set(near) - set(out)), out


def max_run(flags):
    """Longest run of True on a circle."""
    if all(flags):
        return len(flags)
    best = current = 0
    for flag in [*flags, *flags]:
        current = current + 1 if flag else 0
        best = max(best, current)
    return best


def test_the_complete_graph_has_all_as_neighbours_whatever_the_label():
    graph = MaskGraph.complete(names(5))
    assert (graph.threshold, graph.degree, graph.share_threshold) == (3, 4, 3)
    for tag in (b"a" * 32, b"b" * 32):
        near = graph.neighbours(tag)
        assert near == {c: tuple(o for o in graph.clients if o != c) for c in graph.clients}
    assert MaskGraph.complete(names(5), 4).share_threshold == 4
    assert MaskGraph.complete(names(2)).threshold == 2
    assert MaskGraph.complete(iter(names(3)) and names(3)).clients == names(3)


def test_the_order_depends_on_the_label_and_on_nothing_else():
    graph = MaskGraph.sparse(names(150))
    assert graph.degree < 149
    first = graph.neighbours(b"a" * 32)
    assert MaskGraph.sparse(list(names(150))).neighbours(b"a" * 32) == first
    assert graph.neighbours(b"b" * 32) != first
    # Every other client is a neighbour equally often.
    small = MaskGraph(names(9), 2, 2, 2)
    counts = np.zeros(9)
    for seed in range(2000):
        for peer in small.neighbours(seed.to_bytes(32, "big"))["c4"]:
            counts[small.clients.index(peer)] += 1
    assert counts[4] == 0
    assert uniformity(np.delete(counts, 4)) > 1e-3


def test_all_parties_of_a_sum_use_the_same_graph():
    """A peer that is not a neighbour of its neighbour would stall the sum or make it wrong."""
    graph = MaskGraph(names(9), threshold=6, degree=4, share_threshold=3)
    values = {c: np.array([k]) for k, c in enumerate(graph.clients)}
    outcome = run(secure_sum(values, graph=graph)).raise_errors()
    assert outcome.results["server"].total == 36
    assert not outcome.unread
    links = {(t.sender, t.receiver) for t in outcome.cost.messages if "SumShares" in t.message}
    assert len(links) == 9 * 4
    assert all((b, a) in links for a, b in links)


def test_choose_takes_the_complete_graph_for_few_clients_and_the_sparse_one_for_many():
    few, many = names(MAX_COMPLETE), names(MAX_COMPLETE + 1)
    assert MaskGraph.choose(few) == MaskGraph.complete(few)
    assert MaskGraph.choose(many) == MaskGraph.sparse(many)
    assert MaskGraph.choose(many, sparse=False) == MaskGraph.complete(many)
    assert MaskGraph.choose(few, sparse=True) == MaskGraph.sparse(few)
    assert MaskGraph.choose(many, 60).threshold == 60
    assert MaskGraph.choose(few, 60) == MaskGraph.complete(few, 60)


def test_sparse_of_few_clients_is_complete_and_its_threshold_allows_the_dropouts():
    assert MaskGraph.sparse(names(10)) == MaskGraph.complete(names(10), 9)
    assert MaskGraph.sparse(names(20)).threshold == 18
    assert MaskGraph.sparse(names(2)) == MaskGraph.complete(names(2))
    assert MaskGraph.sparse(names(20), 5) == MaskGraph.complete(names(20), 5)
    assert MaskGraph.sparse(names(700)).threshold == 630
    assert MaskGraph.sparse(names(700), dropouts=0.2).threshold == 560
    assert MaskGraph.sparse(names(700), 400).threshold == 400
    # Neighbours grow with the logarithm of the number of clients.
    degrees = [MaskGraph.sparse(names(p)).degree for p in (200, 400, 800, 1600)]
    assert degrees[-1] - degrees[0] <= 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((names(1), 2, 0, 2), "at least 2 different clients, got 1"),
        ((("a", "b", "a"), 2, 2, 2), "at least 2 different clients, got 3"),
        ((names(5), 1, 4, 3), "threshold must be in 2 … 5, the number of clients, got 1"),
        ((names(5), 6, 4, 3), "threshold must be in 2 … 5, the number of clients, got 6"),
        ((names(5), 3, 3, 3), "degree must be even and below 4, or 4 for all, got 3"),
        ((names(5), 3, 0, 2), "degree must be even"),
        ((names(5), 3, 6, 3), "degree must be even"),
        ((names(5), 3, 2, 1), "share_threshold must be in 2 … 3, the holders of a share, got 1"),
        ((names(5), 3, 2, 4), "share_threshold must be in 2 … 3, the holders of a share, got 4"),
        ((names(5), 3.0, 4, 3), "threshold must be an integer, got 3.0"),
        ((names(5), True, 4, 3), "threshold must be an integer, got True"),
        ((names(5), 3, "4", 3), "degree must be an integer, got '4'"),
        ((names(5), 3, 4, None), "share_threshold must be an integer, got None"),
    ],
)
def test_user_case_graphs_that_cannot_be_are_refused_t_above_n_among_them(arguments, message):
    with pytest.raises(ParameterError, match=message):
        MaskGraph(*arguments)


@pytest.mark.parametrize("fractions", [(-0.1, 0.1), (0.1, -0.1), (0.5, 0.5), (np.nan, 0.1)])
def test_fractions_out_of_range_are_refused(fractions):
    colluding, dropouts = fractions
    with pytest.raises(ParameterError, match="fractions with a sum below 1"):
        MaskGraph.sparse(names(200), colluding=colluding, dropouts=dropouts)


def test_numpy_integers_are_taken_as_integers():
    graph = MaskGraph(names(5), *np.array([3, 4, 3]))
    assert graph == MaskGraph.complete(names(5))
    assert {type(n) for n in (graph.threshold, graph.degree, graph.share_threshold)} == {int}
    values = {c: np.ones(2) for c in graph.clients}
    assert run(secure_sum(values, graph=graph)).raise_errors().results["server"].total.sum() == 10


@pytest.mark.parametrize("how", [{"colluding": "x"}, {"dropouts": None}, {"colluding": True}])
def test_fractions_that_are_no_numbers_are_refused(how):
    with pytest.raises(ParameterError, match=f"{next(iter(how))} must be a number, got"):
        MaskGraph.sparse(names(5), **how)
