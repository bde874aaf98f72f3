"""Sums and means over TLS: those of the simulation, told to all, with dropouts and mismatches."""

import asyncio
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from network_runs import LIMITS, Patient, authority
from protocol_runs import identities

from xclp_crypto import join_mean, join_sum, serve_mean, serve_sum, served_sums, updates
from xclp_crypto.errors import (
    DataError,
    FaultyPeer,
    FaultyPeerOrServer,
    ParameterError,
    TooFewParties,
    XclpError,
)
from xclp_crypto.mean import Clipped, mean_of, weighted_addend
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.rng import SeededRng
from xclp_crypto.served_sums import Connection, join_update_sum, serve_update_sum
from xclp_crypto.sum_plans import SumOptions, SumPlan, sum_terms
from xclp_crypto.testing import run
from xclp_crypto.transport.network.client import ClientParty

CLIENTS = ("north", "south", "west")
SOON = Patient(join=1.0)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return authority(tmp_path_factory.mktemp("tls"), CLIENTS)


def together(tls, serve, parts, *, limits=LIMITS, clients=CLIENTS):
    """Run a server, and the clients of `parts` once it listens; return results or errors."""
    pinned, found, port = identities((*clients, "server")), {}, []
    ready = threading.Event()

    def connection(name, address):
        return Connection(address, tls(name), pinned[name], limits)

    def run(name, action, *arguments):
        try:
            found[name] = action(*arguments)
        except XclpError as error:
            found[name] = error
        ready.set()

    def listening(number):
        port.append(number)
        ready.set()

    started = connection("server", ("127.0.0.1", 0))
    threads = [threading.Thread(target=run, args=("server", serve, started, listening))]
    threads[0].start()
    ready.wait()
    for name, join in parts.items():
        address = ("127.0.0.1", port[0])
        threads.append(
            threading.Thread(target=run, args=(name, join, name, connection(name, address)))
        )
        threads[-1].start()
    for thread in threads:
        thread.join()
    return found


def of_sum(values, shape, options=None, **changed):
    """The server's and the clients' parts of a sum; `changed` are options of one client each."""

    def serve(connection, listening):
        return serve_sum(CLIENTS, shape, connection, options, listening=listening)

    def part(name):
        own = changed.get(name, options)
        return lambda me, connection: join_sum(values[me], me, CLIENTS, connection, own)

    return serve, {name: part(name) for name in values}


VALUES = {"north": [[1, 2]], "south": [[30, -4]], "west": [[500, 0.5]]}


def test_everybody_has_the_sum(tls):
    found = together(tls, *of_sum(VALUES, (1, 2)))
    assert found["server"].total.tolist() == [[531, -1.5]]
    assert found["server"].survivors == CLIENTS
    assert found["server"].cost.total_bytes > 0
    for name in CLIENTS:
        assert found[name].tolist() == [[531, -1.5]]


def test_rounds_follow_each_other_on_one_port(tls, monkeypatch, caplog):
    """Who is done first finds the server of the first round, and comes again until it has ended."""
    finish = ClientParty.finish

    async def once_north_came_again(party):
        while party.me == "west" and "refused" not in caplog.messages:
            await asyncio.sleep(0.01)
        await finish(party)

    monkeypatch.setattr(ClientParty, "finish", once_north_came_again)

    def serve(connection, listening):
        ports = []
        first = serve_sum(
            CLIENTS, (), connection, listening=lambda p: [ports.append(p), listening(p)]
        )
        again = replace(connection, address=("127.0.0.1", *ports))
        return [found.total for found in (first, serve_sum(CLIENTS, (), again))]

    def join(me, connection):
        return [float(join_sum(part, me, CLIENTS, connection)) for part in (1, 10)]

    found = together(tls, serve, dict.fromkeys(CLIENTS, join), limits=Patient(join=20.0))
    assert found == {name: [3, 30] for name in ("server", *CLIENTS)}


def test_a_client_in_a_notebook_joins_while_its_event_loop_is_running(tls):
    serve, parts = of_sum(VALUES, (1, 2))

    def in_a_loop(me, connection):
        async def cell():
            return parts[me](me, connection)

        return asyncio.run(cell())

    found = together(tls, serve, parts | {"north": in_a_loop})
    assert found["north"].tolist() == [[531, -1.5]]


def test_integers_are_exact_and_the_server_may_keep_the_sum(tls):
    values = {"north": 2**53 + 1, "south": 0, "west": 0}
    found = together(tls, *of_sum(values, (), SumOptions(fraction_bits=0)))
    assert {int(found[name]) for name in CLIENTS} == {2**53 + 1}
    found = together(tls, *of_sum(VALUES, (1, 2), SumOptions(tell=False)))
    assert found["server"].total.tolist() == [[531, -1.5]]
    assert [found[name] for name in CLIENTS] == [None] * 3


def test_a_client_that_never_comes_is_left_out_or_ends_the_sum(tls):
    here = {name: VALUES[name] for name in CLIENTS[:2]}
    found = together(tls, *of_sum(here, (1, 2), SumOptions(threshold=2)), limits=SOON)
    assert found["server"].total.tolist() == [[31, -2]]
    assert found["server"].dropouts == {"west": "setup"}
    assert found["north"].tolist() == [[31, -2]]
    found = together(tls, *of_sum(here, (1, 2)), limits=SOON)
    assert type(found["server"]) is TooFewParties
    for name in here:
        assert isinstance(found[name], XclpError)


def test_other_options_and_shapes_are_named(tls):
    serve, parts = of_sum(VALUES, (1, 2), west=SumOptions(threshold=2))
    found = together(tls, serve, {"west": parts["west"]}, limits=SOON)
    assert isinstance(found["west"], ParameterError)
    assert "threshold" in str(found["west"])
    serve, parts = of_sum(VALUES | {"west": [1, 2, 3]}, (1, 2))
    found = together(tls, serve, {"west": parts["west"]}, limits=SOON)
    assert "shape" in str(found["west"])

    def other_order(me, connection):
        return join_sum(VALUES[me], me, CLIENTS[::-1], connection)

    found = together(tls, serve, {"west": other_order}, limits=SOON)
    assert "clients (here 'west, south, north')" in str(found["west"])


def test_a_client_with_wrong_values_is_not_waited_for(tls):
    serve, parts = of_sum(VALUES | {"west": [[np.nan, 1]]}, (1, 2), SumOptions(threshold=2))
    found = together(tls, serve, parts)  # whose limits are longer than any test
    assert isinstance(found["west"], DataError)
    assert found["server"].total.tolist() == [[31, -2]]

    def serve_means(connection, listening):
        options = SumOptions(threshold=2)
        return serve_mean([1.0], CLIENTS, connection, options, listening=listening)

    def join(me, connection):
        update = [np.nan if me == "west" else 2.0]
        return join_mean(update, 1, me, CLIENTS, connection, SumOptions(threshold=2))

    found = together(tls, serve_means, dict.fromkeys(CLIENTS, join))
    assert isinstance(found["west"], DataError)
    assert found["server"].mean == [2.0]


def test_a_mean_comes_back_in_the_structure_of_the_updates(tls):
    updates = {
        "north": {"w": np.float32([1, 2]), "b": [np.float16(3)]},
        "south": {"b": [np.float16(5)], "w": np.float32([3, 6])},
        "west": {"w": np.float32([9, -9]), "b": [np.float16(1)]},
    }
    weights = {"north": 1, "south": 2, "west": 1}

    def serve(connection, listening):
        return serve_mean(updates["north"], CLIENTS, connection, listening=listening)

    def join(me, connection):
        bound = 6.0 if me == "west" else None
        return join_mean(updates[me], weights[me], me, CLIENTS, connection, clip_value=bound)

    found = together(tls, serve, dict.fromkeys(CLIENTS, join))
    for name in ("server", *CLIENTS):
        assert found[name].mean["w"].tolist() == [3.25, 2.0]
        assert found[name].mean["w"].dtype == np.float32
        assert found[name].mean["b"] == [np.float16(3.5)]
        assert (found[name].total_weight, found[name].survivors) == (4, CLIENTS)
        assert 0 < found[name].error < 2.0**-27
    assert found["west"].clipped == Clipped(2, 1.0)
    assert found["north"].clipped is None
    updates["west"]["w"] = np.float32([1, 2, 3])
    found = together(tls, serve, {"west": join}, limits=SOON)
    assert "w of shape (3,) and dtype float32" in str(found["west"])


def test_who_takes_weights_away_has_all_others_say_who_it_may_be(tls, monkeypatch):
    def lying(update, weight, client, *rest):
        values, clipped = weighted_addend(update, weight, client, *rest)
        values[-1] = -20.0 if client == "west" else weight
        return values, clipped

    def serve(connection, listening):
        return serve_mean([1.0], CLIENTS, connection, listening=listening)

    monkeypatch.setattr(served_sums, "weighted_addend", lying)
    found = together(
        tls, serve, dict.fromkeys(CLIENTS, lambda me, c: join_mean([1.0], 5, me, CLIENTS, c))
    )
    assert type(found["server"]) is FaultyPeer
    assert found["server"].parties == CLIENTS
    assert type(found["north"]) is FaultyPeerOrServer
    assert found["north"].parties == ("south", "west")
    faulty = partial(FaultyPeerOrServer, "west")
    with pytest.raises(FaultyPeerOrServer, match="less than one of them"):
        mean_of(np.array([1.0, 2.0**-30]), [1.0], FixedPoint(30, parties=3), faulty, 5.0)


def test_a_residue_that_no_float_has_reaches_all_as_it_is(monkeypatch):
    honest = FixedPoint.encode

    def encode(codec, values, client=None):
        residues = honest(codec, values, client=client)
        return residues + np.uint64(1 << 63) if client == "west" else residues

    monkeypatch.setattr(FixedPoint, "encode", encode)
    plan = SumPlan(CLIENTS, (1,), SumOptions(), "values")
    parts = {c: plan.client_role(np.zeros(1), None) for c in CLIENTS}
    parts["server"] = plan.server_role(None)
    roles = {name: partial(part, rng=SeededRng(i)) for i, (name, part) in enumerate(parts.items())}
    found = run(lambda: roles).raise_errors().results
    assert found["server"].total.tolist() == found["north"][0].tolist() == [-(2.0**23)]
    assert found["north"][1] == found["server"].record.survivors == CLIENTS


def test_a_sum_of_updates_comes_back_in_their_structure_at_the_cost_that_was_said(tls):
    ours = {"north": 2**53 + 1, "south": 1, "west": 2}
    ours = {name: {"n": np.int32([1] * 999), "m": n} for name, n in ours.items()}

    def serve(connection, listening):
        template = {"m": 0, "n": np.zeros(999, np.int32)}
        return serve_update_sum(template, CLIENTS, connection, listening=listening)

    def join(me, connection):
        return join_update_sum(ours[me], me, CLIENTS, connection)

    found = together(tls, serve, dict.fromkeys(CLIENTS, join))
    for name in ("server", *CLIENTS):
        total = found[name].total
        assert total["n"].tolist() == [3] * 999
        assert total["n"].dtype == np.int64
        assert total["m"] == 2**53 + 4
        assert found[name].survivors == CLIENTS
    said = SumPlan(CLIENTS, *sum_terms(updates.layout(ours["west"], "west"), None)).link_bytes()
    for sender, receiver in said:
        measured = found[sender].cost.bytes_by_link()[f"{sender} → {receiver}"]
        assert 0 <= measured - said[sender, receiver] < 1000


def test_what_cannot_be_is_refused_before_anything_is_sent(tls):
    connection = Connection(("127.0.0.1", 1), tls("north"), None)
    with pytest.raises(ParameterError, match="two clients sum only with threshold=2"):
        join_sum([1.0], "north", CLIENTS[:2], connection)
    with pytest.raises(ParameterError, match=r"tls must be a context from .*, got NoneType"):
        Connection(("127.0.0.1", 1), None, None)
    with pytest.raises(ParameterError, match="options must be SumOptions, got int"):
        join_sum([1.0], "north", CLIENTS, connection, 3)
    with pytest.raises(ParameterError, match="options must be SumOptions, got str"):
        serve_mean([1.0], CLIENTS, connection, "")
    for wrong in (
        {"threshold": 0},
        {"threshold": "x"},
        {"sparse": 1},
        {"fraction_bits": 99},
        {"modulus": 2},
        {"tell": None},
    ):
        with pytest.raises(ParameterError, match=f"{next(iter(wrong))} must be"):
            SumOptions(**wrong)
    for shape in ((-2,), 2):
        with pytest.raises(ParameterError, match="shape must be a tuple of integers ≥ 0"):
            serve_sum(CLIENTS, shape, connection)
    with pytest.raises(ParameterError, match="'east' is none of the clients north, south, west"):
        join_sum([1.0], "east", CLIENTS, connection)
