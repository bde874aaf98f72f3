"""What keeps sums of hundreds of clients within memory and time."""

from __future__ import annotations

import numpy as np
import pytest

from xclp_crypto import secure_row_sums, secure_sum
from xclp_crypto.errors import DataError
from xclp_crypto.front import secure_sum_bytes
from xclp_crypto.params import Agreement
from xclp_crypto.primitives import sealed_box
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum import (
    MODES,
    MaskGraph,
    secure_row_sums_client,
    secure_row_sums_server,
)
from xclp_crypto.protocols.setup import SERVER, channel, key_exchange_client, key_exchange_server
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.simulate import Faults, Simulation

P, N, COLUMNS = 8, 24, 3
CLIENTS = tuple(f"c{i}" for i in range(P))
ROWS = dict(zip(CLIENTS, np.array_split(np.arange(N), P), strict=True))


def late_row_sums(mode, make, faults=None):
    """Run row sums whose clients make their values late, by ``make(client)``."""
    rng = SeededRng(0)
    graph = MaskGraph.complete(CLIENTS)
    codec = FixedPoint(parties=P)

    async def client_role(io):
        own = rng.child(io.name)
        session = await key_exchange_client(io, CLIENTS, Agreement(), [], own)
        return await secure_row_sums_client(
            session, lambda: make(io.name), ROWS, codec, graph, own, mode=mode
        )

    async def server_role(io):
        session = await key_exchange_server(io, CLIENTS, Agreement(), 0, rng.child(SERVER))
        return await secure_row_sums_server(session, ROWS, COLUMNS, codec, graph, mode=mode)

    roles = dict.fromkeys(CLIENTS, client_role) | {SERVER: server_role}
    return Simulation(faults=faults).run(roles)


def values_of(client):
    return np.random.default_rng(CLIENTS.index(client)).integers(-9, 9, (N, COLUMNS)) / 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drop", [(), ("c2", "c5")])
def test_values_that_are_made_late_give_the_same_sums(mode, drop):
    made = []

    def make(client):
        made.append(client)
        return values_of(client)

    outcome = late_row_sums(mode, make, Faults(dropouts=dict.fromkeys(drop, "upload")))
    expected = secure_row_sums(
        [values_of(c) for c in CLIENTS], list(ROWS.values()), names=CLIENTS, mode=mode, drop=drop
    )
    outcome.raise_errors()
    assert sorted(made) == [c for c in CLIENTS if c not in drop]
    for client, block in zip(CLIENTS, expected.blocks, strict=True):
        if client in drop:
            assert block is None
        else:
            assert np.array_equal(outcome.results[client].values, block)


def test_values_that_are_made_late_are_sent_before_the_next_are_made():
    events = []

    def make(client):
        events.append("made")
        return values_of(client)

    def watch(delivery):
        if "RowSumsUpload" in delivery.message:
            events.append("sent")
        return delivery.payload

    late_row_sums("recover", make, Faults(on_message=watch)).raise_errors()
    assert events == ["made", "sent"] * P


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.full((N, COLUMNS), np.nan), "'c1': row 0, column 0"),
        (np.zeros((N - 1, COLUMNS)), "'c1': values of shape"),
    ],
)
def test_wrong_values_that_are_made_late_are_refused_and_not_sent(mode, wrong, message):
    outcome = late_row_sums(mode, lambda client: wrong if client == "c1" else values_of(client))
    assert isinstance(outcome.errors["c1"], DataError)
    assert message in str(outcome.errors["c1"])
    uploads = [t.sender for t in outcome.cost.messages if "RowSumsUpload" in t.message]
    assert "c1" not in uploads
    right = sum(values_of(c) for c in CLIENTS if c != "c1")
    assert np.array_equal(outcome.results["c0"].values, right[ROWS["c0"]])


def test_a_client_derives_keys_for_the_links_that_it_uses_only(monkeypatch):
    pairs = []

    def counting(shared, me, peer, context):
        pairs.append((me, peer))
        return sealed_box.channel_pair(shared, me, peer, context)

    monkeypatch.setattr(channel, "channel_pair", counting)
    p = 44
    secure_sum([[1]] * p, sparse=True)
    degree = MaskGraph.sparse([f"client-{i}" for i in range(p)]).degree
    assert degree < p - 1
    assert len(pairs) == len(set(pairs)) == p * degree + 2 * p


def test_the_graph_is_drawn_once_for_all_parties_and_cannot_be_changed():
    graph = MaskGraph.sparse([f"client-{i}" for i in range(60)])
    near = graph.neighbours(b"x" * 32)
    assert graph.neighbours(b"x" * 32) is near
    assert MaskGraph.sparse(graph.clients).neighbours(b"x" * 32) is near
    assert graph.neighbours(b"y" * 32) != near
    with pytest.raises(TypeError):
        near["client-0"] = ()


@pytest.mark.parametrize(
    ("p", "shape", "modulus", "sparse"),
    [(2, (), 1 << 64, False), (5, (7, 3), 1 << 32, False), (44, (4,), 1009, True)],
)
@pytest.mark.filterwarnings("ignore::xclp_crypto.errors.PrivacyWarning")
def test_the_bytes_of_a_sum_are_known_beforehand(p, shape, modulus, sparse):
    names = [f"client-{i}" for i in range(p)]
    graph = MaskGraph.choose(names, sparse=sparse)
    codec = FixedPoint(0, parties=p, modulus=modulus)
    planned = secure_sum_bytes(graph, shape, codec)
    values = [np.ones(shape, int)] * p
    cost = secure_sum(values, sparse=sparse, fraction_bits=0, modulus=modulus).cost
    assert sum(planned.values()) == cost.total_bytes
    for client in names:
        assert cost.sent_by(client) == sum(n for (a, _), n in planned.items() if a == client)
        assert cost.received_by(client) == sum(n for (_, b), n in planned.items() if b == client)
    if not sparse:
        assert {f"{a} → {b}": n for (a, b), n in planned.items()} == cost.bytes_by_link()


@pytest.mark.parametrize("modulus", [1 << 64, 1 << 32, 1009])
def test_checking_values_refuses_what_encoding_refuses(modulus):
    codec = FixedPoint(2, parties=3, modulus=modulus)
    top = codec.max_abs
    for values in ([top, -top], [], [[0.5]], [True], np.float32(1), 7, [np.int8(-3)]):
        codec.check(values)
        codec.encode(values)
    for values in ([0, np.nan], [-np.inf], ["x"], [1j], [[top], [top * 2 + 1]], 1 << 70, -2 * top):
        with pytest.raises(DataError) as by_encode:
            codec.encode(values, client="a")
        with pytest.raises(DataError) as by_check:
            codec.check(values, client="a")
        assert str(by_check.value) == str(by_encode.value)
