"""What a run of a secure sum may end in: the exact sum over the survivors, or a typed error."""

import numpy as np

from xclp_crypto.algebra import ring
from xclp_crypto.algebra.ring import residue_dtype
from xclp_crypto.errors import ProtocolError
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum import MaskGraph
from xclp_crypto.protocols.setup import SERVER


def names(p):
    return tuple(f"c{i}" for i in range(p))


def a_graph(clients, rng, *, sparse=None):
    """A graph with random parameters, complete or sparse."""
    p = len(clients)
    if sparse is None:
        sparse = p >= 4 and bool(rng.integers(0, 2))
    threshold = int(rng.integers(2, p + 1))
    if not sparse:
        return MaskGraph.complete(clients, threshold)
    degree = 2 * int(rng.integers(1, (p - 2) // 2 + 1))
    return MaskGraph(tuple(clients), threshold, degree, int(rng.integers(2, degree + 2)))


def a_partition(clients, n, rng):
    """Rows 0 … n−1 dealt to the clients, unsorted, some maybe without any."""
    owner = rng.integers(0, len(clients), n)
    return {c: rng.permutation(np.flatnonzero(owner == i)) for i, c in enumerate(clients)}


def exact(values, contributors, codec):
    """The sum over these clients, bit for bit, by integers of any size.

    These are the result if there are no fraction bits.
    """
    encoded = [codec.encode(values[c]).astype(object) for c in contributors]
    if not codec.fraction_bits:
        half = codec.modulus // 2
        return np.asarray((sum(encoded) + half) % codec.modulus - half).astype(np.int64)
    total = np.asarray(sum(encoded) % codec.modulus)
    return codec.decode(total.astype(residue_dtype(codec.modulus)))


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def all_ended(outcome, context):
    """Nobody hangs, and every error is typed and about the protocol."""
    assert {*outcome.results, *outcome.errors, *outcome.dropouts} == set(outcome.operations), (
        context
    )
    for error in outcome.errors.values():
        assert isinstance(error, ProtocolError), (context, error)


def right_sum(outcome, values, codec, graph, context):
    """SecureSum ended rightly; returns who survived, or None after an error of the server."""
    all_ended(outcome, context)
    if SERVER not in outcome.results:
        return None
    found = outcome.results[SERVER]
    survivors = found.record.survivors
    assert len(survivors) >= graph.threshold, context
    assert same(found.total, exact(values, survivors, codec)), context
    assert set(survivors) | set(found.record.dropouts) == set(graph.clients), context
    return survivors


def right_row_sums(outcome, values, rows, codec, graph, context):
    """Every client with a result has its rows of the sum over those that the server names."""
    all_ended(outcome, context)
    record = outcome.results.get(SERVER)
    for client in values:
        if client in outcome.results:
            sums = outcome.results[client]
            assert len(sums.contributors) >= graph.threshold, context
            assert record is None or sums.contributors == record.survivors, context
            expected = exact(values, sums.contributors, codec)[rows[client]]
            assert same(sums.values, expected), (context, client)
    if record is None:
        return None
    assert set(record.survivors) | set(record.dropouts) == set(graph.clients), context
    return record.survivors


def sent(outcome, message, sender=None):
    """How many messages of a type were sent, by all or by one."""
    return sum(
        n
        for t, n in outcome.cost.messages.items()
        if t.message == f"Sealed[{message}]" and sender in (None, t.sender)
    )


def codec_for(values, fraction_bits=20, modulus=1 << 64):
    return FixedPoint(fraction_bits, len(values), modulus)


def ring_sum(arrays, modulus):
    """The sum of residues of one shape."""
    total = np.zeros_like(arrays[0])
    for array in arrays:
        ring.add_into(total, array, modulus)
    return total
