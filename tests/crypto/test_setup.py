"""Key exchange, sealed channels and seed agreement."""

import copy
import pickle
import re
import weakref
from collections import Counter

import numpy as np
import pytest
from forged import forge
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import agreed_secret, assert_blames, on, setup, with_session

from xclp_crypto import wire
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import (
    DecodeError,
    Excluded,
    FaultyPeer,
    FaultyPeerOrServer,
    ParameterError,
    ProtocolError,
    ReuseError,
    Stalled,
    TooFewParties,
)
from xclp_crypto.params import MAX_ANNOUNCED, Agreement, residue_width
from xclp_crypto.primitives.key_agreement import KeyPair
from xclp_crypto.primitives.sealed_box import channel_pair
from xclp_crypto.protocols.setup import (
    SERVER,
    key_exchange_client,
    key_exchange_server,
    seed_agreement_server,
)
from xclp_crypto.protocols.setup.channel import Sealed, sealed_size
from xclp_crypto.protocols.setup.key_exchange import OPENINGS
from xclp_crypto.protocols.setup.messages import Directory, Hello, Opening, Openings
from xclp_crypto.protocols.setup.seed_agreement import Confirm, Received, Roster, SeedShare
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import (
    blamed,
    deliveries,
    every_corruption,
    every_dropout,
    run,
    uniformity,
    views,
)
from xclp_crypto.transport.simulate import Faults, Simulation

CLIENTS = ("a", "b", "c")


async def give_session(session, rng):
    return session


# Agreement on a secret


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1 << 32), p=st.integers(2, 10))
def test_all_clients_get_one_secret_and_the_server_who_holds_it(seed, p):
    clients = tuple(f"c{i}" for i in range(p))
    outcome = run(setup(clients, seed)).raise_errors()
    (secret,) = {outcome.results[c] for c in clients}
    assert len(secret) == 32
    assert outcome.results[SERVER] == clients
    assert not outcome.unread


def test_another_run_gives_another_secret():
    secrets = {run(setup(seed=seed)).results["a"] for seed in range(20)}
    assert len(secrets) == 20


def test_the_secret_depends_on_every_clients_contribution_and_on_the_session():
    base = run(setup()).results["a"]
    for changed in CLIENTS:

        async def client(session, rng, changed=changed):
            own = SeededRng(99) if session.io.name == changed else rng
            return await agreed_secret(session, own)

        async def server(session, rng):
            from xclp_crypto.protocols.setup import seed_agreement_server

            return await seed_agreement_server(session)

        outcome = run(with_session(CLIENTS, client, server)).raise_errors()
        assert outcome.results["a"] == outcome.results["b"] != base


def test_neither_the_secret_nor_a_contribution_is_in_what_the_server_sees():
    make = setup()
    seen = views(make)
    secret = run(make).results["a"]
    contributions = [m.value for c in CLIENTS for _, m in seen[c] if isinstance(m, SeedShare)]
    assert len(contributions) == 6  # each client's, at the two others
    view = b"".join(wire.encode(m) for _, m in seen[SERVER])
    # The server relays what clients send to each other, so it sees those bytes as well.
    view += b"".join(d.payload for d in deliveries(make))
    confirms = {m.value for _, m in seen[SERVER] if isinstance(m, Confirm)}
    assert len(confirms) == 1
    for hidden in (secret, *contributions):
        assert hidden not in view
        assert hidden not in confirms
    # The same search does find what the server is meant to see.
    assert next(iter(confirms)) in view


def test_what_the_server_opens_is_confirmations_and_bitmaps_only():
    kinds = [type(m) for _, m in views(setup())[SERVER] if not isinstance(m, Sealed)]
    assert Counter(kinds) == dict.fromkeys((Hello, Opening, Received, Confirm), 3)


def test_sealed_contributions_look_uniform_to_the_relay():
    counts = np.zeros(256, int)
    for seed in range(60):
        for d in deliveries(setup(seed=seed)):
            if d.message == "Sealed[SeedShare]":
                counts += np.bincount(np.frombuffer(d.payload[4:], np.uint8), minlength=256)
    assert uniformity(counts) > 1e-4


# Parameters that must agree


def test_a_client_with_other_parameters_is_named_with_every_field_that_differs():
    agreement = {
        "a": {"n_bits": 64, "alpha": 0.9, "k": 5},
        "b": {"n_bits": 64, "alpha": 0.5, "k": 6},
        "c": {"n_bits": 64, "alpha": 0.9, "k": 5},
        SERVER: {"n_bits": 64, "alpha": 0.9, "k": 5},
    }
    outcome = run(setup(agreement=agreement))
    error = outcome.errors[SERVER]
    assert_blames(error, ("b",), "alpha (here 0.9)")
    assert "k (here 5)" in str(error)
    assert "n_bits" not in str(error)
    assert set(outcome.errors) == {*CLIENTS, SERVER}


def test_another_number_of_fields_is_refused_too():
    outcome = run(setup(agreement={"b": {"extra": 1}}))
    assert outcome.errors[SERVER].parties == ("b",)


@pytest.mark.parametrize(
    ("numpy", "python"),
    [
        (np.int64(1), 1),
        (np.uint8(1), 1),
        (np.float64(0.1), 0.1),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.bytes_(b"x"), b"x"),
        ((np.int64(2), (np.int32(3),)), (2, (3,))),
    ],
)
def test_user_case_numbers_of_numpy_are_those_of_python_to_agree_on(numpy, python):
    Agreement(v=numpy).require_same(Agreement(v=python).encode(), "b")
    with pytest.raises(FaultyPeer, match=re.escape(f"v (here {python!r});")):
        Agreement(v=numpy).require_same(Agreement(v=None).encode(), "b")


@pytest.mark.parametrize("value", [[1], {1}, {"a": 1}, object(), np.zeros(2), (1, [2]), 1j])
def test_what_may_look_different_to_others_is_not_agreed_on(value):
    with pytest.raises(ParameterError, match=r"^v must be text, a number"):
        Agreement(v=value)


def test_agreement_tells_names_types_and_values_apart():
    base = Agreement(k=1, name="x")
    base.require_same(Agreement(name="x", k=1).encode(), "b")
    assert base.size == len(base.encode()) == 16
    others = [
        Agreement(k=2, name="x"),
        Agreement(k=1, name="y"),
        Agreement(k="1", name="x"),
        Agreement(k=True, name="x"),
        Agreement(j=1, name="x"),
        Agreement(k=1, name=None),
    ]
    for other in others:
        with pytest.raises(FaultyPeer, match="b has another value"):
            base.require_same(other.encode(), "b")
    with pytest.raises(FaultyPeer, match="compares 24 bytes of parameters, and 16 are"):
        base.require_same(base.encode() + bytes(8), "b")


@pytest.mark.parametrize(
    ("n_bits", "width"), [(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (4096, 13), (32768, 16)]
)
def test_residues_are_wide_enough_for_every_distance(n_bits, width):
    assert residue_width(n_bits) == width
    assert n_bits < 1 << width


@pytest.mark.parametrize("n_bits", [0, -1, 32769])
def test_lengths_out_of_range_are_refused(n_bits):
    with pytest.raises(ParameterError, match=f"between 1 and 32768, got {n_bits}"):
        residue_width(n_bits)


# The directory


def edit(directory, numbers=0, **changes):
    return forge(directory, Directory, changes, invited=3, numbers=numbers, signature=0, kem=0)


def to(client):
    return lambda d: d.message == "Directory" and d.receiver == client


def own_key(keys):
    return (bytes([9]) + bytes(31), *keys[1:])


def absent(present):
    return np.array([False, *present[1:]])


@pytest.mark.parametrize(
    "changes", [{"keys": own_key}, {"present": absent}], ids=["key", "presence"]
)
def test_a_client_that_is_listed_otherwise_than_it_announced_blames_the_server(changes):
    outcome = run(setup(), on(to("a"), lambda d: edit(d.payload, **changes)))
    assert_blames(outcome.errors["a"], (SERVER,), "does not list a")


def test_a_client_whose_public_numbers_are_listed_wrongly_blames_the_server():
    make = setup(numbers={"a": [3, 1], "b": [2, 0], "c": [0, 7]})
    run(make).raise_errors()
    fault = on(to("b"), lambda d: edit(d.payload, numbers=2, values=lambda v: v + 1))
    assert run(make, fault).errors["b"].parties == (SERVER,)


def swap(position):
    def change(keys):
        return tuple(bytes([9]) + bytes(31) if i == position else k for i, k in enumerate(keys))

    return change


def test_a_peers_key_replaced_for_one_client_keeps_it_from_talking_to_anybody():
    outcome = run(setup(), on(to("a"), lambda d: edit(d.payload, keys=swap(1))))
    assert outcome.errors
    for party, error in outcome.errors.items():
        assert isinstance(error, ProtocolError), party
        if blamed(error):
            assert blamed(error) & {"a", SERVER}
    assert "a" not in outcome.results


LOW_ORDER = [
    bytes(32),
    bytes([1]) + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


@pytest.mark.parametrize("key", LOW_ORDER)
def test_a_clients_key_of_low_order_is_refused_by_the_server_and_names_the_client(key):
    fault = on(
        lambda d: d.message == "Hello" and d.sender == "b",
        lambda d: d.payload[:2] + key + d.payload[34:],
    )
    assert_blames(run(setup(), fault).errors[SERVER], ("b",), "small order")


def test_a_key_of_low_order_in_the_directory_may_be_the_servers_doing():
    zero = on(to("a"), lambda d: edit(d.payload, keys=lambda k: (k[0], bytes(32), k[2])))
    error = run(setup(), zero).errors["a"]
    assert type(error) is FaultyPeerOrServer
    assert blamed(error) == {"b", SERVER}
    servers_own = on(to("a"), lambda d: edit(d.payload, server_key=lambda k: bytes(32)))
    assert_blames(run(setup(), servers_own).errors["a"], (SERVER,))


def test_an_announced_number_that_nobody_can_mean_is_refused_by_everybody():
    make = setup(numbers={"a": [3], "b": [2], "c": [MAX_ANNOUNCED]})
    run(make).raise_errors()
    too_many = (MAX_ANNOUNCED + 1).to_bytes(4, "little")
    from_b = on(
        lambda d: d.message == "Hello" and d.sender == "b", lambda d: d.payload[:-4] + too_many
    )
    error = run(make, from_b).errors[SERVER]
    assert_blames(error, ("b",), str(MAX_ANNOUNCED))
    from_server = on(
        to("a"), lambda d: edit(d.payload, 1, values=lambda v: np.array([v[0], [1 << 31], v[2]]))
    )
    error = run(make, from_server).errors["a"]
    assert blamed(error) == {"b", SERVER}


@pytest.mark.parametrize("number", [-1, MAX_ANNOUNCED + 1, 1 << 32])
def test_a_client_does_not_announce_a_number_out_of_range(number):
    outcome = run(setup(numbers={"a": [number], "b": [0], "c": [0]}))
    assert isinstance(outcome.errors["a"], ParameterError)
    assert str(number) in str(outcome.errors["a"])
    assert outcome.operations["a"] == 0


def test_a_client_that_is_not_invited_is_told_so():
    async def stranger(io):
        await key_exchange_client(io, CLIENTS, Agreement(), [], SeededRng(0))

    outcome = Simulation().run({"z": stranger})
    assert isinstance(outcome.errors["z"], ParameterError)
    assert "'z' is none of the invited clients a, b, c" in str(outcome.errors["z"])


@pytest.mark.parametrize("invited", [("a", "a"), ("a", SERVER)])
def test_the_server_refuses_names_that_collide(invited):
    async def server(io):
        await key_exchange_server(io, invited, Agreement(), 0, SeededRng(0))

    outcome = Simulation().run({SERVER: server})
    assert isinstance(outcome.errors[SERVER], ParameterError)


def test_an_absent_client_is_left_out_by_everybody():
    make = with_session(CLIENTS, give_session, give_session)
    outcome = run(make, Faults(dropouts={"b": 0})).raise_errors()
    for party in ("a", "c", SERVER):
        assert outcome.results[party].clients == ("a", "c")
    assert outcome.results["a"].peers == ("c",)


def test_with_one_client_left_there_is_no_session():
    outcome = run(setup(), Faults(dropouts={"b": 0, "c": 0}))
    assert isinstance(outcome.errors[SERVER], TooFewParties)


# Sessions


def sessions(seed=0):
    return run(with_session(CLIENTS, give_session, give_session, seed=seed)).raise_errors().results


def test_all_parties_hold_one_session_and_pairs_share_keys_that_differ_from_all_others():
    of = sessions()
    assert len({s.id for s in of.values()}) == 1
    assert sessions(1)["a"].id != of["a"].id
    keys = set()
    for one, other in [("a", "b"), ("a", "c"), ("b", "c"), ("a", SERVER)]:
        for tag in (b"x", b"y"):
            key = of[one].pair_key(other, tag)
            assert key == of[other].pair_key(one, tag)
            keys.add(key)
    assert len(keys) == 8


def test_a_label_is_given_out_once():
    session = sessions()["a"]
    first = session.once("masks", 1)
    assert session.id in first
    assert session.once("masks", 2) != first
    assert session.once("masks", "1") != first
    with pytest.raises(ReuseError, match="'masks' was already used in this session"):
        session.once("masks", 1)
    part = session.part(" again")
    assert part.once("masks", 1) not in (first, session.once("masks"), part.once("masks"))
    with pytest.raises(ReuseError):
        session.part(" again").once("masks", 1)
    assert sessions(1)["a"].once("masks", 1) != first


def test_running_seed_agreement_twice_in_one_session_is_refused():
    from xclp_crypto.protocols.setup import seed_agreement_client, seed_agreement_server

    async def client(session, rng):
        await seed_agreement_client(session, rng)
        await seed_agreement_client(session, rng)

    async def server(session, rng):
        await seed_agreement_server(session)

    outcome = run(with_session(CLIENTS, client, server))
    assert {type(outcome.errors[c]) for c in CLIENTS} == {ReuseError}


def test_sessions_show_no_secret_and_are_not_pickled():
    session = sessions()["a"]
    session.common_secret = bytes(range(32))
    assert repr(session) == str(session) == "<Session of a with 3 clients>"
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            action(session)


# Sealed channels


def chat(each=False):
    """Each client sends every other two messages of 32 bytes, and the server two."""

    async def gather(io, parties):
        if not each:
            return await io.gather(SeedShare, parties)
        got = {}
        answered = await io.gather_each(SeedShare, parties, got.__setitem__)
        assert answered == tuple(parties)
        return got

    async def client(session, rng):
        io = session.io
        for number in (1, 2):
            await io.send([*session.peers, SERVER], SeedShare(bytes([number]) * 32))
        got = []
        for _ in (1, 2):
            messages = await gather(io, session.peers)
            got.append({c: m.value[0] for c, m in messages.items()})
        return got

    async def server(session, rng):
        for _ in (1, 2):
            got = await gather(session.io, session.clients)
        return {c: m.value[0] for c, m in got.items()}

    return with_session(CLIENTS, client, server)


@pytest.mark.parametrize("each", [False, True])
def test_sealed_messages_arrive_in_order(each):
    outcome = run(chat(each), record=True).raise_errors()
    opened = [
        m.value[0]
        for _, m in outcome.views["a"]
        if not isinstance(m, Sealed | Directory | Openings)
    ]
    assert opened == [1, 1, 2, 2]
    assert outcome.results["a"] == [{"b": 1, "c": 1}, {"b": 2, "c": 2}]
    assert outcome.results[SERVER] == {"a": 2, "b": 2, "c": 2}


def test_a_sealed_message_has_the_size_it_states_and_never_the_same_bytes_twice():
    payloads = [d.payload for d in deliveries(chat()) if d.message == "Sealed[SeedShare]"]
    assert {len(p) for p in payloads} == {sealed_size(32)} == {52}
    assert len(set(payloads)) == len(payloads) == 18


def relayed(changed, each):
    """Errors when message number `changed(sent)` from b to a is replaced."""
    sent = [d for d in deliveries(chat()) if d.message.startswith("Sealed")]
    link = [d for d in sent if (d.sender, d.receiver) == ("b", "a")]
    target, payload = changed(link, sent)
    return run(chat(each), on(lambda d: d.index == target.index, lambda d: payload)).errors


def redirected(link, sent):
    other = next(d for d in sent if (d.sender, d.receiver) == ("c", "a"))
    return link[0], other.payload


def reflected(link, sent):
    return link[0], next(d for d in sent if (d.sender, d.receiver) == ("a", "b")).payload


RELAY_FAULTS = {
    "altered": lambda link, _: (link[0], link[0].payload[:-1] + b"\0"),
    "replayed": lambda link, _: (link[1], link[0].payload),
    "reordered": lambda link, _: (link[0], link[1].payload),
    "inner type changed": lambda link, _: (
        link[0],
        link[0].payload[:2] + Confirm.TAG.to_bytes(2, "big") + link[0].payload[4:],
    ),
    "outer type changed": lambda link, _: (
        link[0],
        Confirm.TAG.to_bytes(2, "big") + link[0].payload[2:],
    ),
    "cut": lambda link, _: (link[0], link[0].payload[:-1]),
    "emptied": lambda link, _: (link[0], b""),
    "from another sender": redirected,
    "reflected": reflected,
}


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("fault", RELAY_FAULTS)
def test_what_a_relay_does_to_a_message_blames_the_sender_or_the_server(fault, each):
    errors = relayed(RELAY_FAULTS[fault], each)
    assert set(errors) == {"a"}
    assert type(errors["a"]) is FaultyPeerOrServer
    assert errors["a"].parties == ("b",)
    assert "or the server that relays" in str(errors["a"])


def test_a_lost_message_makes_the_next_one_fail():
    target = next(d for d in deliveries(chat()) if (d.sender, d.receiver) == ("b", "a"))
    error = run(chat(), on(lambda d: d.index == target.index, lambda d: None)).errors["a"]
    assert type(error) is FaultyPeerOrServer


def test_what_arrives_wrong_at_the_server_is_its_clients_fault():
    make = chat()
    target = next(d for d in deliveries(make) if d.receiver == SERVER and "Sealed" in d.message)
    fault = on(lambda d: d.index == target.index, lambda d: d.payload[:-1] + b"\0")
    assert_blames(run(make, fault).errors[SERVER], (target.sender,))


def test_an_authentic_message_with_a_wrong_content_is_its_senders_own_fault():
    async def client(session, rng):
        if session.io.name == "a":
            await session.io.send("b", Received(np.array([True] * 9)))
        elif session.io.name == "b":
            await session.io.recv(Received, "a", clients=10)  # 2 bytes as well, zero-padded

    async def bad(session, rng):
        # 2 bytes in which bit 10 is set: not an encoding of ten booleans.
        if session.io.name == "a":
            await session.io.send("b", Received(np.array([True] * 11)))
        elif session.io.name == "b":
            await session.io.recv(Received, "a", clients=10)

    run(with_session(CLIENTS, client, give_session)).raise_errors()
    assert_blames(run(with_session(CLIENTS, bad, give_session)).errors["b"], ("a",), "padding")


def test_sealed_messages_that_are_gathered_each_are_not_kept():
    alive, most = weakref.WeakSet(), []

    def take(client, message):
        alive.add(message)
        most.append(len(alive))

    async def client(session, rng):
        await session.io.recv(Confirm, SERVER)
        await session.io.send(SERVER, SeedShare(bytes(32)))

    async def server(session, rng):
        await session.io.send(session.clients, Confirm(bytes(32)))
        with session.io.step("sum"):
            return await session.io.gather_each(SeedShare, session.clients, take, 2)

    make = with_session(CLIENTS, client, server)
    outcome = run(make).raise_errors()
    assert outcome.results[SERVER] == CLIENTS
    assert most == [1, 1, 1]
    assert ("sum", "take", SERVER) in outcome.cost.seconds
    lost = run(make, on(lambda d: d.sender == "b" and "SeedShare" in d.message, lambda d: None))
    assert lost.results[SERVER] == ("a", "c")


def test_there_is_no_channel_to_a_stranger():
    async def client(session, rng):
        await session.io.send("stranger", SeedShare(bytes(32)))

    async def listener(session, rng):
        await session.io.recv(SeedShare, "stranger")

    for role in (client, listener):
        outcome = run(with_session(CLIENTS, role, give_session))
        assert isinstance(outcome.errors["a"], ParameterError)
        assert "no channel to 'stranger'" in str(outcome.errors["a"])


# Equivocation


def seed_roles(server):
    return with_session(CLIENTS, agreed_secret, server)


def test_a_server_that_counts_a_contribution_which_did_not_arrive_is_named():
    async def server(session, rng):
        await session.io.gather(Received, session.clients, clients=3)
        await session.io.send(session.clients, Roster(np.ones(3, bool), np.ones(3, bool)))

    make = seed_roles(server)
    lost = on(lambda d: (d.message, d.receiver) == ("Sealed[SeedShare]", "c"), lambda d: None)
    assert_blames(run(make, lost).errors["c"], (SERVER,))
    assert run(make).errors == {}


def test_a_server_that_counts_no_contribution_is_named():
    async def server(session, rng):
        await session.io.gather(Received, session.clients, clients=3)
        await session.io.send(session.clients, Roster(np.zeros(3, bool), np.ones(3, bool)))

    errors = run(seed_roles(server)).errors
    assert {errors[c].parties for c in CLIENTS} == {(SERVER,)}


def test_a_server_that_gives_clients_different_rosters_splits_their_secrets():
    async def server(session, rng):
        from xclp_crypto.protocols.setup.seed_agreement import Confirm

        await session.io.gather(Received, session.clients, clients=3)
        everybody = np.ones(3, bool)
        await session.io.send(["a", "b"], Roster(everybody, everybody))
        await session.io.send("c", Roster(np.array([True, False, True]), everybody))
        got = await session.io.gather(Confirm, session.clients)
        return {c: m.value for c, m in got.items()}

    confirmed = run(seed_roles(server)).raise_errors().results[SERVER]
    assert confirmed["a"] == confirmed["b"] != confirmed["c"]


def test_a_client_with_another_secret_is_found():
    async def client(session, rng):
        if session.io.name != "b":
            return await agreed_secret(session, rng)
        for peer in session.peers:  # tells everyone something else
            await session.io.send(peer, SeedShare(rng.bytes(32)))
        await session.io.gather(SeedShare, session.peers)
        await session.io.send(SERVER, Received(np.ones(3, bool)))
        await session.io.recv(Roster, SERVER, clients=3)
        await session.io.send(SERVER, Confirm(bytes(32)))
        return None

    async def server(session, rng):
        from xclp_crypto.protocols.setup import seed_agreement_server

        return await seed_agreement_server(session)

    error = run(with_session(CLIENTS, client, server)).errors[SERVER]
    assert type(error) is FaultyPeer
    assert set(error.parties) == set(CLIENTS)  # one of whom may have sent others different shares
    assert "different common secrets" in str(error)


def test_a_client_whose_bitmap_is_lost_is_excluded_and_told_so():
    lost = on(lambda d: (d.message, d.sender) == ("Sealed[Received]", "b"), lambda d: None)
    outcome = run(setup(), lost)
    assert isinstance(outcome.errors["b"], Excluded)
    assert outcome.errors["b"].party == "b"
    assert outcome.results[SERVER] == ("a", "c")
    assert outcome.results["a"] == outcome.results["c"]


def test_without_a_contribution_that_reached_everybody_the_server_goes_no_further():
    """Each client lacks the share of the next one."""
    after = dict(zip("abc", "bca", strict=True))
    lost = on(
        lambda d: d.message == "Sealed[SeedShare]" and after[d.sender] == d.receiver, lambda d: None
    )
    outcome = run(setup(), lost)
    error = outcome.errors[SERVER]
    assert isinstance(error, TooFewParties)
    assert (error.step, error.present, error.needed) == ("run", 0, 1)
    assert not set(outcome.results) & set(CLIENTS)


def test_who_missed_a_deadline_is_not_waited_for_again():
    """What it sends late is of an earlier step; a wait that needs it names it."""
    caught = []

    async def client(session, rng):
        if session.io.name != "b":
            await session.io.send(SERVER, Confirm(bytes(32)))
        await session.io.send(SERVER, Confirm(bytes(32)))

    async def server(session, rng):
        with session.io.step("late"):
            got = await session.io.gather(Confirm, CLIENTS, 1)
            for at_least in (None, 3):
                try:
                    await session.io.gather(Confirm, CLIENTS, at_least)
                except (Stalled, TooFewParties) as error:
                    caught.append(error)
            return sorted(got), sorted(await session.io.gather(Confirm, CLIENTS, 2))

    lost = on(lambda d: (d.message, d.sender) == ("Sealed[Confirm]", "b"), lambda d: None)
    outcome = run(with_session(CLIENTS, client, server), lost)
    assert outcome.results[SERVER] == (["a", "c"], ["a", "c"])
    stalled, too_few = caught
    assert str(stalled) == str(Stalled(SERVER, "late", ("b",), "Confirm"))
    assert (too_few.step, too_few.present, too_few.needed) == ("late", 2, 3)


# The order of clients, and secrets that a quantum computer does not find


def test_attack_15_a_server_that_has_seen_all_values_can_only_have_others_opened():
    """It leaves out c, which changes the identifier to one that depends on values it lacks."""
    seen, ids = {}, {}

    def without_c(delivery):
        if delivery.message == "Opening" and delivery.sender == "c":
            return None
        if delivery.message == "Opening":
            seen.setdefault(delivery.sender, []).append(delivery.payload[2:])
        return delivery.payload

    async def client(session, rng):
        ids[session.io.name] = session.id, session.clients

    outcome = run(with_session(CLIENTS, client, give_session), Faults(on_message=without_c))
    assert ids["a"] == ids["b"]
    assert ids["a"][1] == ("a", "b")
    assert isinstance(outcome.errors["c"], Excluded)
    first, second = (tuple(values[i] for values in seen.values()) for i in (0, 1))
    assert not set(first) & set(second)

    def other_value(delivery):
        if delivery.message != "Openings" or delivery.receiver != "a":
            return delivery.payload
        chosen = {"values": lambda v: (*v[:2], second[0])}
        return forge(delivery.payload, Openings, chosen, invited=3, count=0)

    error = run(setup(), Faults(on_message=other_value)).errors["a"]
    assert_blames(error, (SERVER,), "another value than c has committed to")
    lying = on(
        lambda d: d.message == "Opening" and d.sender == "b", lambda d: d.payload[:2] + second[0]
    )
    assert_blames(run(setup(), lying).errors[SERVER], ("b",), "another value")


def test_clients_cannot_be_left_out_in_every_attempt():
    clients, attempt = tuple(f"c{i}" for i in range(OPENINGS + 2)), Counter()

    def lost(delivery):  # of c2 in the first attempt, of c3 in the second
        attempt[delivery.sender] += 1
        return attempt[delivery.sender] == int(delivery.sender[1:]) - 1

    fault = on(lambda d: d.message == "Opening" and lost(d), lambda d: None)
    outcome = run(setup(clients), fault)
    assert isinstance(outcome.errors[SERVER], TooFewParties)
    assert "left in every attempt" in str(outcome.errors[SERVER])
    assert not outcome.results


@pytest.mark.parametrize("post_quantum", [False, True])
def test_who_finds_all_x25519_keys_of_a_recorded_session_opens_it_only_without_ml_kem(post_quantum):
    """A quantum computer finds them; here they come from the seeds."""
    sent, opened, of = [], [], {}

    def recorder(delivery):
        if delivery.message == "Sealed[SeedShare]":
            sent.append((delivery.sender, delivery.receiver, delivery.payload))
        return delivery.payload

    async def client(session, rng):
        of[session.io.name] = session
        return await agreed_secret(session, rng)

    async def server(session, rng):
        return await seed_agreement_server(session)

    make = with_session(CLIENTS, client, server, post_quantum=post_quantum)
    run(make, Faults(on_message=recorder)).raise_errors()
    keys = {c: KeyPair.generate(SeededRng(0).child(c)) for c in CLIENTS}
    for sender, receiver, payload in sent:
        secret = keys[sender].shared_secret(keys[receiver].public, receiver)
        _, box = channel_pair(secret, receiver, sender, of["a"].id)
        try:
            opened.append(box.open(wire.decode(Sealed, payload, body=32).box, payload[2:4]))
        except DecodeError:
            continue
    assert len(sent) == 6
    assert len(opened) == (0 if post_quantum else 6)
    secret = keys["a"].shared_secret(keys["b"].public, "b")  # nor does it give masks of sums
    mask_key = derive_key(secret, domain_tag("pair key", "a", "b", b"of a sum"))
    assert (mask_key == of["a"].pair_key("b", b"of a sum")) != post_quantum


def test_a_key_of_ml_kem_that_is_out_of_range_or_echoed_is_refused_naming_the_client():
    make = setup(post_quantum=True)
    kem_keys = {
        d.sender: d.payload[34 : 34 + 1184] for d in deliveries(make) if d.message == "Hello"
    }

    def with_key(key):
        return on(
            lambda d: d.message == "Hello" and d.sender == "b",
            lambda d: d.payload[:34] + key + d.payload[34 + 1184 :],
        )

    error = run(make, with_key(b"\xff" * 1184)).errors[SERVER]
    assert_blames(error, ("b",), "out of range")
    assert_blames(run(make, with_key(kem_keys["a"])).errors[SERVER], ("a", "b"), "echoes")


def test_a_signing_key_that_is_malformed_or_echoed_is_refused_naming_the_client():
    announced = {d.sender: d.payload[66:98] for d in deliveries(setup()) if d.message == "Hello"}

    def with_key(key):
        return on(
            lambda d: d.message == "Hello" and d.sender == "b",
            lambda d: d.payload[:66] + key + d.payload[98:],
        )

    for key, why in ((bytes(32), "small order"), (b"\xff" * 32, "canonical encoding")):
        assert_blames(run(setup(), with_key(key)).errors[SERVER], ("b",), why)
    assert_blames(run(setup(), with_key(announced["a"])).errors[SERVER], ("a", "b"), "echoes")
    # What a server that hands it on does; the directory's entry of b has the key of a.
    listed = on(to("c"), lambda d: edit(d.payload, verify_keys=lambda k: (k[0], k[0], k[2])))
    assert_blames(run(setup(), listed).errors["c"], ("a", "b", SERVER), "echoes")
    listed = on(to("b"), lambda d: edit(d.payload, verify_keys=lambda k: (k[0], k[0], k[2])))
    assert_blames(run(setup(), listed).errors["b"], (SERVER,), "does not list b")


def test_what_a_client_signs_is_its_own_in_one_session_for_one_purpose():
    def sessions(seed):
        of = {}

        async def keep(session, rng):
            of[session.io.name] = session

        run(with_session(CLIENTS, keep, keep, seed=seed)).raise_errors()
        return of

    of, later = sessions(0), sessions(1)
    signature = of["a"].sign("seen", "b", 3)
    for session in of.values():
        assert session.signed_by("a", signature, "seen", "b", 3)
        assert not session.signed_by("b", signature, "seen", "b", 3)
        assert not session.signed_by("z", signature, "seen", "b", 3)
        assert not session.signed_by("a", signature, "said", "b", 3)
        assert not session.signed_by("a", signature, "seen", "b", 4)
        assert not session.signed_by("a", signature[:-1], "seen", "b", 3)
        assert not session.signed_by("a", later["a"].sign("seen", "b", 3), "seen", "b", 3)
    with pytest.raises(ParameterError, match="server has no signing key"):
        of[SERVER].sign("seen")


# Every fault


def right_or_typed(outcome, context):
    """Clients that the server says hold the secret do hold the same one."""
    if SERVER in outcome.results:
        secrets = {outcome.results[c] for c in outcome.results[SERVER] if c in outcome.results}
        assert len(secrets) <= 1, context
    else:
        assert SERVER in outcome.errors or SERVER in outcome.dropouts, context
    for error in outcome.errors.values():
        assert isinstance(error, ProtocolError), context


@pytest.mark.parametrize(("p", "post_quantum"), [(2, True), (3, False), (4, True)])
def test_every_dropout_of_setup_gives_one_secret_or_a_typed_error(p, post_quantum):
    clients = tuple("abcd"[:p])
    finished = 0
    for case in every_dropout(setup(clients, post_quantum=post_quantum)):
        right_or_typed(case.outcome, case)
        left = [c for c in clients if c != case.party]
        if case.party == SERVER:
            assert not case.outcome.results.get(SERVER)
        elif p > 2:
            assert set(left) <= set(case.outcome.results[SERVER]), case
            assert not case.outcome.errors, case
            finished += 1
    assert finished > 0 or p == 2


def test_every_corruption_of_setup_gives_one_secret_or_names_whom_to_blame():
    cases = 0
    numbers = {"a": [1], "b": [2], "c": [3]}
    for case in every_corruption(setup(numbers=numbers, post_quantum=True)):
        cases += 1
        outcome, ends = case.outcome, {case.delivery.sender, case.delivery.receiver}
        right_or_typed(outcome, case)
        if set(outcome.results) != {*CLIENTS, SERVER}:
            assert outcome.errors, case
        for error in outcome.errors.values():
            if blamed(error):
                assert blamed(error) & ends, (case, error)
        if case.tamper != "lost":  # somebody notices every alteration
            assert any(blamed(e) & ends for e in outcome.errors.values()), case
    assert cases > 200
