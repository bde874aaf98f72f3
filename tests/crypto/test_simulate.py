"""The simulation driver and its meter: determinism, costs, faults, deadlines, errors."""

import json
import weakref
from dataclasses import replace

import numpy as np
import pytest
from durable_runs import Blob
from protocol_runs import assert_blames, hamming

from xclp_crypto import wire
from xclp_crypto.errors import (
    Endless,
    FaultyPeer,
    ParameterError,
    ProtocolError,
    Stalled,
    TooFewParties,
)
from xclp_crypto.testing import deliveries, every_corruption, every_dropout, run, transcript_digest
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Faults, Simulation


class Other(Blob):
    TAG = 0xFE11


def sender(to, *texts):
    async def role(io):
        for text in texts:
            await io.send(to, Blob(text))

    return role


def receiver(frm, times=1, n=1):
    async def role(io):
        return [(await io.recv(Blob, frm, n=n)).data for _ in range(times)]

    return role


def gatherer(parties, at_least=None, n=1):
    async def role(io):
        got = await io.gather(Blob, parties, at_least, n=n)
        return {c: m.data for c, m in got.items()}

    return role


def taker(parties, at_least=None, n=1, taken=None):
    """Gather each; return the order of arrival and the answer."""

    async def role(io):
        seen = [] if taken is None else taken

        def take(party, message):
            seen.append((party, message.data))

        return seen, await io.gather_each(Blob, parties, take, at_least, n=n)

    return role


async def nothing(io):
    return "nothing"


BITS = {"a": np.eye(2, 5), "b": np.ones((1, 5)), "c": np.zeros((2, 5))}


# Determinism


@pytest.mark.parametrize("backend", ["plain", "masked", "shade"])
def test_the_same_seed_gives_the_same_transcript_and_another_seed_another(backend):
    first = transcript_digest(hamming(backend, BITS, seed=1))
    assert first == transcript_digest(hamming(backend, BITS, seed=1))
    other = transcript_digest(hamming(backend, BITS, seed=2))
    assert first.keys() == other.keys()
    assert all(first[key] != other[key] for key in first)


def test_digest_names_direction_and_type():
    make = hamming("masked", BITS)
    assert set(transcript_digest(make)) == {
        "Hello: client → server",
        "Directory: server → client",
        "Opening: client → server",
        "Openings: server → client",
        "Sealed[SeedShare]: client → client",
        "Sealed[Received]: client → server",
        "Sealed[Roster]: server → client",
        "Sealed[Confirm]: client → server",
        "Sealed[MaskedRows]: client → server",
        "Sealed[DistanceShares]: client → server",
    }
    assert "MaskedRows: client → server" in transcript_digest(make, opened=True)


# The meter


@pytest.mark.parametrize("backend", ["plain", "masked", "shade"])
def test_metered_bytes_are_the_encoded_messages_by_link_type_and_step(backend):
    make = hamming(backend, BITS)
    sent = deliveries(make)
    cost = run(make).cost
    totals, counts = {}, {}
    for d in sent:
        key = (d.step, d.message, d.sender, d.receiver)
        totals[key] = totals.get(key, 0) + len(d.payload)
        counts[key] = counts.get(key, 0) + 1
    assert dict(cost.bytes_sent) == totals
    assert dict(cost.messages) == counts
    assert cost.total_bytes == sum(len(d.payload) for d in sent)
    assert sum(cost.bytes_by_link().values()) == cost.total_bytes
    assert sum(cost.bytes_by_message().values()) == cost.total_bytes
    for party in ("a", "server"):
        for step in (None, "setup", "hamming"):
            chosen = [d for d in sent if step in (None, d.step)]
            out = sum(len(d.payload) for d in chosen if d.sender == party)
            into = sum(len(d.payload) for d in chosen if d.receiver == party)
            assert cost.sent_by(party, step) == out
            assert cost.received_by(party, step) == into
    assert cost.sent_by("a", "hamming") < cost.sent_by("a")
    assert cost.sent_by("nobody") == cost.sent_by("a", "no step") == 0


def test_lost_messages_are_metered_because_they_were_sent():
    roles = {"a": sender("b", b"x", b"y"), "b": nothing}
    cost = Simulation(faults=Faults(on_message=lambda d: None)).run(roles).cost
    assert cost.total_bytes == 2 * 3


def test_rounds_are_chains_of_messages():
    async def ping(io):
        for _ in range(3):
            with io.step("there"):
                await io.send("pong", Blob(b"x"))
            with io.step("back"):
                await io.recv(Blob, "pong", n=1)

    async def pong(io):
        for _ in range(3):
            await io.recv(Blob, "ping", n=1)
            with io.step("back"):
                await io.send("ping", Blob(b"x"))

    cost = Simulation().run({"ping": ping, "pong": pong}).cost
    assert (cost.rounds, cost.rounds_in("there"), cost.rounds_in("back")) == (6, 3, 3)
    # Messages that do not wait for one another are one round, however many.
    parallel = {"a": sender("c", *[b"x"] * 5), "b": sender("c", b"y"), "c": nothing}
    assert Simulation().run(parallel).cost.rounds == 1
    assert Simulation().run({"a": nothing}).cost.rounds == 0


@pytest.mark.parametrize(("backend", "rounds"), [("plain", 5), ("masked", 8), ("shade", 8)])
def test_rounds_of_the_protocols(backend, rounds):
    # Hello, Directory, Opening, Openings; then plain: bits; masked: share, received, roster,
    # upload; shade: three of the transfer, shares.
    assert run(hamming(backend, BITS)).cost.rounds == rounds


def test_seconds_are_attributed_to_party_step_and_function():
    cost = run(hamming("masked", BITS)).cost
    work = set(cost.seconds)
    for party in BITS:
        assert ("setup", "_Ephemeral", party) in work
        assert ("hamming", "client_upload", party) in work
        assert ("hamming", "wire", party) in work
    assert ("hamming", "_assemble", "server") in work
    assert not any(w.party == "server" and w.function == "client_upload" for w in work)
    assert all(seconds >= 0 for seconds in cost.seconds.values())
    assert set(cost.seconds_by_party()) == {*BITS, "server"}
    assert sum(cost.seconds_by_party().values()) == pytest.approx(cost.total_seconds)
    assert {"setup", "hamming"} <= set(cost.steps)


def test_the_outermost_step_wins():
    async def role(io):
        assert io.current_step == "run"
        with io.step("outer"), io.step("inner"):
            assert io.current_step == "outer"
            await io.send("b", Blob(b"x"))
        assert io.current_step == "run"

    outcome = Simulation().run({"a": role, "b": nothing}).raise_errors()
    assert {t.step for t in outcome.cost.bytes_sent} == {"outer"}


def test_cost_is_json_ready_and_its_repr_readable():
    cost = run(hamming("masked", BITS)).cost
    record = json.loads(json.dumps(cost.to_dict()))
    assert record["bytes"] == cost.total_bytes
    assert repr(cost).startswith(f"<Cost {cost.total_bytes:,} bytes, 8 rounds")
    assert json.loads(json.dumps(Cost().to_dict()))["rounds"] == 0


# Faults


def test_a_party_drops_out_before_its_kth_operation():
    async def talker(io):
        await io.send("b", Blob(b"1"))
        await io.compute(len, b"")
        await io.send("b", Blob(b"2"))
        return "done"

    arrived = []
    for k in range(4):
        roles = {"a": talker, "b": nothing}
        outcome = Simulation(faults=Faults(dropouts={"a": k})).run(roles)
        arrived.append(outcome.unread.get(("a", "b"), 0))
        assert outcome.operations["a"] == k
        assert outcome.dropouts == (("a",) if k < 3 else ())
        assert ("a" in outcome.results) == (k == 3)
        assert not outcome.errors
    assert arrived == [0, 1, 1, 2]


def test_dropping_out_closes_the_role_so_that_its_cleanup_runs():
    closed = []

    async def careful(io):
        try:
            await io.send("b", Blob(b"1"))
        finally:
            closed.append(io.name)

    Simulation(faults=Faults(dropouts={"a": 0})).run({"a": careful, "b": nothing})
    assert closed == ["a"]


def test_a_party_that_does_not_exist_cannot_drop_out():
    for faults in (Faults(dropouts={"z": 1}), Faults(dropouts={"z": "x"}), Faults(away={"z": 1})):
        with pytest.raises(ParameterError, match=r"'z'.*a, b"):
            Simulation(faults=faults).run({"a": nothing, "b": nothing})


async def stepping(io):
    """Operations outside of steps, in an outer and in an inner step, and in that step again."""
    await io.send("b", Blob(b"1"))
    with io.step("outer"):
        await io.send("b", Blob(b"2"))
        with io.step("inner"):
            await io.send("b", Blob(b"3"))
        await io.send("b", Blob(b"4"))
    with io.step("empty"):
        pass
    with io.step("inner"):
        await io.send("b", Blob(b"5"))
    return "done"


@pytest.mark.parametrize(
    ("point", "sent"), [("outer", 1), ("inner", 2), ("empty", 5), ("run", 5), ("no step", 5)]
)
def test_a_party_drops_out_before_its_first_operation_in_a_step(point, sent):
    outcome = Simulation(faults=Faults(dropouts={"a": point})).run({"a": stepping, "b": nothing})
    assert outcome.unread == {("a", "b"): sent}
    assert outcome.operations["a"] == sent
    assert outcome.dropouts == (("a",) if sent < 5 else ())
    assert ("a" in outcome.results) == (sent == 5)


def three_rounds(*, clients=("a", "b", "c")):
    """The server asks all who answered the last time and sends them how many these were."""

    async def client(io):
        counts = []
        for i in range(3):
            with io.step(f"round {i}"):
                await io.send("s", Blob(b"%d" % i))
                counts.append((await io.recv(Blob, "s", n=1)).data)
        return counts

    async def server(io):
        here, kept = clients, []
        for _ in range(3):
            got = await io.gather(Blob, here, 1, n=1)
            here = tuple(got)
            kept.append({c: m.data for c, m in got.items()})
            await io.send(clients, Blob(b"%d" % len(here)))
        return kept

    return {**dict.fromkeys(clients, client), "s": server}


@pytest.mark.parametrize(
    ("point", "round_"), [(0, 0), (2, 1), ("round 1", 1), (3, 1), (4, 2), (5, 2)]
)
def test_a_party_that_is_cut_off_comes_back_when_the_others_went_on_without_it(point, round_):
    outcome = Simulation(faults=Faults(away={"b": point})).run(three_rounds()).raise_errors()
    sent_before = point in (3, 5)  # then it is cut off before it receives
    numbers = [{*"abc"} if i < round_ + sent_before else {*"ac"} for i in range(3)]
    assert [set(kept) for kept in outcome.results["s"]] == numbers
    counts = [b"%d" % len(n) for n in numbers]
    # What was sent to it has waited for it.
    assert outcome.results == {
        **dict.fromkeys("abc", counts),
        "s": [{c: b"%d" % i for c in "abc" if c in n} for i, n in enumerate(numbers)],
    }
    assert outcome.returned == ("b",)
    assert not outcome.dropouts
    # and its own messages arrive, too late
    assert outcome.unread.get(("b", "s"), 0) == 3 - sum("b" in n for n in numbers)


def test_a_wait_without_a_deadline_lasts_until_a_party_comes_back():
    outcome = Simulation(faults=Faults(away={"s": 0})).run(three_rounds()).raise_errors()
    assert outcome.results["a"] == [b"3"] * 3
    assert outcome.returned == ("s",)


@pytest.mark.parametrize("order", ["cba", "bca", "abc"])
def test_nobody_gives_up_a_peer_that_waits_for_a_party_that_is_cut_off(order):
    """c waits for b, which waits for a: only b's wait runs into its deadline."""

    def relay(frm, to):
        async def role(io):
            got = await io.gather(Blob, [frm], 0, n=1) if frm else {}
            await io.send(to, Blob(b"x"))
            return tuple(got)

        return role

    async def last(io):
        return tuple(await io.gather(Blob, ["b"], 0, n=1))

    roles = {"a": relay(None, "b"), "b": relay("a", "c"), "c": last}
    faults = Faults(away={"a": 0})
    outcome = Simulation(faults=faults).run({name: roles[name] for name in order}).raise_errors()
    assert outcome.results == {"a": (), "b": (), "c": ("b",)}


def test_parties_come_back_one_after_the_other_and_only_once():
    order = []

    async def talker(io):
        with io.step("talk"):
            await io.send("s", Blob(b"x"))
            order.append(io.name)
            await io.send("s", Blob(b"y"))

    async def server(io):
        while len(await io.gather(Blob, "abc", 0, n=1)):
            order.append("s")

    roles = {"a": talker, "b": talker, "c": talker, "s": server}
    outcome = Simulation(faults=Faults(away={"b": "talk", "a": 1})).run(roles).raise_errors()
    assert outcome.returned == ("a", "b")
    assert order == ["a", "c", "s", "s", "b"]
    # a party may be cut off, come back and then drop out, or drop out first
    gone = Simulation(faults=Faults(away={"a": 0}, dropouts={"a": 1})).run(roles)
    assert (gone.returned, gone.dropouts, gone.operations["a"]) == (("a",), ("a",), 1)
    gone = Simulation(faults=Faults(away={"a": 1}, dropouts={"a": 0})).run(roles)
    assert (gone.returned, gone.dropouts, gone.operations["a"]) == ((), ("a",), 0)
    assert not Simulation(faults=Faults(away={"a": "no step"})).run(roles).returned


def test_messages_may_be_held_back_repeated_and_redirected():
    def outcome(change, times):
        roles = {"a": sender("b", b"1", b"2", b"3"), "b": receiver("a", times=times)}
        return Simulation(faults=Faults(on_message=change)).run(roles)

    held = []

    def late(d):
        if d.index == 0:
            held.append(d)
            return []
        return [d, held.pop()] if d.index == 2 else [d]

    assert outcome(late, 3).results["b"] == [b"2", b"3", b"1"]
    assert outcome(lambda d: [d, d], 6).results["b"] == [b"1", b"1", b"2", b"2", b"3", b"3"]
    assert isinstance(outcome(lambda d: [], 1).errors["b"], Stalled)
    altered = outcome(lambda d: [replace(d, payload=wire.encode(Blob(b"z")))], 3)
    assert altered.results["b"] == [b"z"] * 3
    assert altered.cost.total_bytes == 9  # what was sent counts
    forged = outcome(lambda d: [replace(d, sender="b", receiver="a")], 1)
    assert forged.unread == {("b", "a"): 3}
    with pytest.raises(ParameterError, match="nobody does not run here"):
        outcome(lambda d: [replace(d, receiver="nobody")], 1)


def test_a_message_that_comes_late_keeps_its_place_in_the_chain_of_messages():
    held = []

    def late(d):
        if d.sender == "a":
            held.append(d)
            return []
        return [d, *held] if d.sender == "c" else [d]

    async def after_b(io):
        await io.recv(Blob, "b", n=1)
        await io.send("d", Blob(b"z"))

    async def last(io):
        await io.recv(Blob, "a", n=1)
        await io.send("b", Blob(b"!"))

    # a → d is sent first and arrives with c → d, which is second in its chain.
    roles = {"a": sender("d", b"x"), "b": sender("c", b"y"), "c": after_b, "d": last}
    outcome = Simulation(faults=Faults(on_message=late)).run(roles).raise_errors()
    assert outcome.unread == {("c", "d"): 1, ("d", "b"): 1}
    assert outcome.cost.rounds == 2


@pytest.mark.parametrize("loop", ["sends", "computes", "gathers"])
def test_a_run_without_end_is_ended_at_the_limit(loop):
    closed = []

    async def endless(io):
        try:
            while True:
                if loop == "sends":
                    await io.send("b", Blob(b"x"))
                elif loop == "computes":
                    await io.compute(len, b"")
                else:
                    await io.gather(Blob, "b", 0, n=1)
        finally:
            closed.append(io.name)

    with pytest.raises(Endless, match="the run exceeds 50 operations: a 51, b 0") as caught:
        Simulation(max_operations=50).run({"a": endless, "b": nothing})
    assert caught.value.operations == {"a": 51, "b": 0}
    assert closed == ["a"]
    roles = {"a": sender("b", *[b"x"] * 50), "b": nothing}
    Simulation(max_operations=50).run(roles).raise_errors()


def test_an_error_of_a_fault_itself_is_not_blamed_on_the_sender():
    def broken(d):
        raise ParameterError("the fault is broken")

    with pytest.raises(ParameterError, match="the fault is broken"):
        Simulation(faults=Faults(on_message=broken)).run({"a": sender("b", b"x"), "b": nothing})


def test_a_lost_message_stalls_its_receiver_who_is_told_the_step_and_the_sender():
    async def role(io):
        with io.step("wait"):
            await io.recv(Blob, "a", n=1)

    faults = Faults(on_message=lambda d: None)
    outcome = Simulation(faults=faults).run({"a": sender("b", b"x"), "b": role})
    error = outcome.errors["b"]
    assert isinstance(error, Stalled)
    assert (error.party, error.step, error.waiting_for) == ("b", "wait", ("a",))
    assert "no Blob from a" in str(error)
    assert outcome.results == {"a": None}
    with pytest.raises(Stalled):
        outcome.raise_errors()


@pytest.mark.parametrize(
    "altered",
    [b"", b"\xfe", b"\xfe\x10", b"\xfe\x10xy", b"\xfe\x11x", b"\xff\xffx"],
    ids=["nothing", "half a tag", "no body", "too long", "another type", "unknown"],
)
def test_an_altered_message_is_its_senders_fault(altered):
    faults = Faults(on_message=lambda d: altered)
    outcome = Simulation(faults=faults).run({"a": sender("b", b"x"), "b": receiver("a")})
    error = outcome.errors["b"]
    assert_blames(error, ("a",))
    assert str(error).startswith("a did not follow the protocol: Blob")
    assert "a" in outcome.results


def test_a_fault_sees_index_step_link_type_and_bytes():
    seen = []

    def watch(delivery):
        seen.append(delivery)
        return delivery.payload

    Simulation(faults=Faults(on_message=watch)).run({"a": sender("b", b"x", b"y"), "b": nothing})
    assert [(d.index, d.sender, d.receiver, d.message, d.payload) for d in seen] == [
        (0, "a", "b", "Blob", b"\xff\x51x"),
        (1, "a", "b", "Blob", b"\xff\x51y"),
    ]


def test_unread_messages_are_counted_by_link():
    roles = {"a": sender("c", b"x", b"y"), "b": sender("c", b"z"), "c": receiver("a")}
    outcome = Simulation().run(roles).raise_errors()
    assert outcome.results["c"] == [b"x"]
    assert outcome.unread == {("a", "c"): 1, ("b", "c"): 1}


@pytest.mark.parametrize("to", ["nobody", "a", ("b", "nobody")])
def test_sending_to_an_unknown_party_or_to_oneself_is_the_senders_error(to):
    outcome = Simulation().run({"a": sender(to, b"x"), "b": nothing})
    assert set(outcome.errors) == {"a"}
    assert isinstance(outcome.errors["a"], ParameterError)
    assert "not another party" in str(outcome.errors["a"])


@pytest.mark.parametrize("message", [b"x", Blob("x"), Blob])
def test_sending_what_is_not_a_message_is_the_senders_error(message):
    async def role(io):
        await io.send("b", message)

    outcome = Simulation().run({"a": role, "b": nothing})
    assert {name: type(e) for name, e in outcome.errors.items()} == {"a": ParameterError}


def test_a_role_that_is_not_async_is_refused():
    with pytest.raises(ParameterError, match="role of b must be async, or return the coroutine"):
        Simulation().run({"a": nothing, "b": lambda io: 3})


@pytest.mark.parametrize("frm", ["nobody", "a"])
def test_receiving_from_an_unknown_party_or_from_oneself_is_the_receivers_error(frm):
    outcome = Simulation().run({"a": receiver(frm), "b": nothing})
    assert set(outcome.errors) == {"a"}
    assert isinstance(outcome.errors["a"], ParameterError)
    assert "not another party" in str(outcome.errors["a"])


def test_one_message_goes_to_several_and_each_is_metered():
    roles = {"a": sender(("b", "c"), b"x"), "b": receiver("a"), "c": receiver("a")}
    outcome = Simulation().run(roles).raise_errors()
    assert outcome.results["b"] == outcome.results["c"] == [b"x"]
    assert outcome.cost.bytes_by_link() == {"a → b": 3, "a → c": 3}


def test_messages_of_one_link_arrive_in_order_and_sizes_may_differ_by_sender():
    roles = {"a": sender("b", b"1", b"2", b"3"), "b": receiver("a", times=3)}
    assert Simulation().run(roles).results["b"] == [b"1", b"2", b"3"]
    roles = {
        "a": sender("c", b"1"),
        "b": sender("c", b"22"),
        "c": gatherer(["a", "b"], n={"a": 1, "b": 2}),
    }
    assert Simulation().run(roles).results["c"] == {"a": b"1", "b": b"22"}


# Gathering and deadlines


def test_gather_waits_for_all_unless_told_how_many_are_enough():
    def roles(at_least):
        return {
            "a": sender("s", b"x"),
            "b": nothing,
            "c": sender("s", b"y"),
            "s": gatherer("abc", at_least),
        }

    for at_least in (0, 1, 2):
        outcome = Simulation().run(roles(at_least)).raise_errors()
        assert outcome.results["s"] == {"a": b"x", "c": b"y"}
    error = Simulation().run(roles(3)).errors["s"]
    assert isinstance(error, TooFewParties)
    assert (error.present, error.needed, error.step) == (2, 3, "run")
    error = Simulation().run(roles(None)).errors["s"]
    assert isinstance(error, Stalled)
    assert error.waiting_for == ("b",)
    assert isinstance(error, ProtocolError)


def test_at_least_does_not_end_a_gather_early():
    roles = {"s": gatherer("ab", 0), "a": sender("s", b"x"), "b": sender("s", b"y")}
    assert Simulation().run(roles).results["s"] == {"a": b"x", "b": b"y"}
    assert Simulation().run({"s": gatherer((), 0)}).results["s"] == {}
    assert Simulation().run({"s": gatherer(())}).results["s"] == {}


def test_gather_each_hands_over_in_order_of_arrival_and_returns_the_order_asked_for():
    roles = {"s": taker("cab"), "a": sender("s", b"x", b"!"), "b": sender("s", b"y")}
    roles["c"] = sender("s", b"z")
    outcome = Simulation(record=True).run(roles).raise_errors()
    arrived = [("a", b"x"), ("b", b"y"), ("c", b"z")]
    assert outcome.results["s"] == (arrived, ("c", "a", "b"))
    assert [(frm, m.data) for frm, m in outcome.views["s"]] == arrived
    assert outcome.unread == {("a", "s"): 1}
    # those that came before the wait are handed over when it starts
    late = {"a": roles["a"], "b": roles["b"], "c": roles["c"], "s": taker("cab")}
    seen, answered = Simulation().run(late).raise_errors().results["s"]
    assert seen == [("c", b"z"), ("a", b"x"), ("b", b"y")]
    assert answered == ("c", "a", "b")
    assert Simulation().run({"s": taker(())}).results["s"] == ([], ())
    sized = {"a": sender("s", b"1"), "b": sender("s", b"22"), "s": taker("ab", n={"a": 1, "b": 2})}
    assert Simulation().run(sized).results["s"][0] == [("a", b"1"), ("b", b"22")]


@pytest.mark.parametrize("server_first", [True, False])
def test_gather_each_has_the_deadline_and_the_errors_of_gather(server_first):
    def outcome(at_least, taken):
        roles = {"a": sender("s", b"x"), "b": nothing, "c": sender("s", b"y")}
        server = {"s": taker("abc", at_least, taken=taken)}
        return Simulation().run({**server, **roles} if server_first else {**roles, **server})

    for at_least in (0, 1, 2):
        taken = []
        assert outcome(at_least, taken).raise_errors().results["s"] == (taken, ("a", "c"))
        assert taken == [("a", b"x"), ("c", b"y")]
    taken = []
    error = outcome(3, taken).errors["s"]
    assert isinstance(error, TooFewParties)
    assert (error.present, error.needed) == (2, 3)
    assert len(taken) == 2
    error = outcome(None, []).errors["s"]
    assert isinstance(error, Stalled)
    assert error.waiting_for == ("b",)


@pytest.mark.parametrize("server_first", [True, False])
@pytest.mark.parametrize("fault", ["type", "each"])
def test_an_error_of_one_message_is_raised_in_the_role_that_gathers_each(server_first, fault):
    taken, after = [], []

    def take(party, message):
        if message.data == b"!":
            raise ParameterError("refused")
        taken.append(party)

    async def server(io):
        try:
            await io.gather_each(Blob, "abc", take, n=1)
        except (FaultyPeer, ParameterError) as error:
            after.extend(taken)
            return error

    async def other(io):
        await io.send("s", Other(b"x"))

    bad = other if fault == "type" else sender("s", b"!")
    roles = {"a": sender("s", b"x"), "b": bad, "c": sender("s", b"y")}
    roles = {"s": server, **roles} if server_first else {**roles, "s": server}
    outcome = Simulation().run(roles).raise_errors()
    error = outcome.results["s"]
    if fault == "type":
        assert_blames(error, ("b",))
    else:
        assert str(error) == "refused"
    assert taken == after == ["a"]
    assert outcome.unread == {("c", "s"): 1}
    assert outcome.results["a"] is outcome.results["b"] is None  # not blamed on a sender


def test_gather_each_keeps_no_message():
    """Of many large messages only the one that arrives exists, sealed or not."""
    alive, most = weakref.WeakSet(), []

    def take(party, message):
        alive.add(message)
        most.append(len(alive))

    async def server(io):
        await io.send([f"c{i}" for i in range(20)], Blob(b"x"))
        await io.gather_each(Blob, [f"c{i}" for i in range(20)], take, n=3)

    async def client(io):
        await io.recv(Blob, "s", n=1)
        await io.send("s", Blob(b"big"))

    roles = {**{f"c{i}": client for i in range(20)}, "s": server}
    assert not Simulation().run(roles).raise_errors().unread
    assert most == [1] * 20


def test_time_of_each_belongs_to_the_receiver_under_its_name():
    def add_up(party, message):
        pass

    async def server(io):
        with io.step("sum"):
            await io.gather_each(Blob, "ab", add_up, n=1)

    roles = {"s": server, "a": sender("s", b"x"), "b": sender("s", b"y")}
    work = Simulation().run(roles).raise_errors().cost.seconds
    assert ("sum", "add_up", "s") in work
    assert ("sum", "wire", "s") in work
    assert {w.party for w in work if w.function == "add_up"} == {"s"}


def test_gathering_from_a_party_twice_is_gathering_from_it_once():
    roles = {"a": sender("s", b"1", b"2"), "s": gatherer("aa")}
    assert Simulation().run(roles).results["s"] == {"a": b"1"}
    assert Simulation().run({**roles, "s": taker("aa")}).results["s"] == ([("a", b"1")], ("a",))


def test_hundreds_of_parties_answer_one():
    names = [f"c{i}" for i in range(700)]
    for server in (gatherer(names, 699), taker(names, 699)):
        roles = {"s": server, **dict.fromkeys(names, sender("s", b"x")), "c5": nothing}
        result = Simulation().run(roles).raise_errors().results["s"]
        answered = list(result) if isinstance(result, dict) else list(result[1])
        assert answered == [c for c in names if c != "c5"]


def test_at_the_deadline_waits_on_parties_that_ended_are_given_up_first():
    order = []

    def patient(frm):
        async def role(io):
            await io.gather(Blob, [frm], 0, n=1)
            order.append(io.name)
            await io.send("s", Blob(b"x"))

        return role

    # `first` waits on `gone` through `second`; `second` waits on `gone`, which has ended.
    roles = {
        "first": patient("second"),
        "second": patient("gone"),
        "gone": nothing,
        "s": gatherer(["first", "second"], 0),
    }
    outcome = Simulation().run(roles).raise_errors()
    assert order == ["second", "first"]
    assert outcome.results["s"] == {"first": b"x", "second": b"x"}


def test_otherwise_the_party_given_first_gives_up_first_and_the_server_last():
    order = []

    def role(frm):
        async def wait(io):
            await io.gather(Blob, frm, 0, n=1)
            order.append(io.name)

        return wait

    # Everybody waits on somebody who still runs.
    Simulation().run({"a": role(["b"]), "b": role(["s"]), "s": role(["a"])})
    assert order[0] == "a"
    order.clear()
    Simulation().run({"s": role(["a"]), "b": role(["s"]), "a": role(["b"])})
    assert order[0] == "s"


def test_a_wait_without_a_deadline_outlasts_every_deadline():
    # The client waits for the server, whose own wait on another client has a deadline.
    async def server(io):
        got = await io.gather(Blob, ["a", "b"], 1, n=1)
        await io.send(tuple(got), Blob(b"z"))
        return set(got)

    async def lost(io):
        await io.send("s", Blob(b"x"))
        await io.recv(Blob, "s", n=1)

    roles = {"a": lost, "b": lost, "s": server}
    faults = Faults(on_message=lambda d: None if d.sender == "a" else d.payload)
    outcome = Simulation(faults=faults).run(roles)
    assert outcome.results == {"b": None, "s": {"b"}}
    assert isinstance(outcome.errors["a"], Stalled)


def test_parties_that_wait_on_one_another_stall_and_do_not_hang():
    outcome = Simulation().run({"a": receiver("b"), "b": receiver("a")})
    assert all(isinstance(e, Stalled) for e in outcome.errors.values())
    assert set(outcome.errors) == {"a", "b"}


# Errors and progress


def test_an_error_of_a_computation_is_raised_inside_the_role():
    def fail():
        raise ParameterError("refused")

    async def catches(io):
        try:
            await io.compute(fail)
        except ParameterError as error:
            return str(error)

    async def does_not(io):
        await io.compute(fail)

    outcome = Simulation().run({"a": catches, "b": does_not, "c": nothing})
    assert outcome.results == {"a": "refused", "c": "nothing"}
    assert set(outcome.errors) == {"b"}


@pytest.mark.parametrize("where", ["role", "compute"])
def test_an_error_that_is_not_ours_is_a_bug_and_propagates(where):
    closed = []

    def fail():
        raise KeyError("bug")

    async def role(io):
        if where == "role":
            fail()
        await io.compute(fail)

    async def waits(io):
        try:
            await io.recv(Blob, "a", n=1)
        finally:
            closed.append(io.name)

    with pytest.raises(KeyError, match="bug"):
        Simulation().run({"b": waits, "a": role})
    assert closed == ["b"]


def test_progress_is_reported_before_each_computation():
    seen = []

    def square_root(x):
        seen.append("computing")
        return x**0.5

    async def role(io):
        with io.step("roots"):
            return await io.compute(square_root, 4) + await io.compute(square_root, x=9)

    outcome = Simulation(progress=seen.append).run({"a": role})
    assert outcome.results["a"] == 5
    report = Progress("a", "roots", "square root")
    assert seen == [report, "computing", report, "computing"]


def test_views_hold_what_was_received_and_only_if_asked_for():
    roles = {"a": sender("b", b"x"), "b": receiver("a")}
    assert Simulation().run(roles).views == {"a": [], "b": []}
    (frm, message), *rest = Simulation(record=True).run(roles).views["b"]
    assert (frm, message.data, rest) == ("a", b"x", [])


# The public helpers


def test_every_dropout_covers_every_operation_of_every_party():
    make = hamming("plain", BITS)
    operations = run(make).operations
    cases = [(c.party, c.after) for c in every_dropout(make)]
    assert cases == [(p, k) for p, n in operations.items() for k in range(n)]
    assert [c.party for c in every_dropout(make, ["b"])] == ["b"] * operations["b"]
    assert str(next(every_dropout(make, ["b"]))) == "b drops out after 0 operations"
    with pytest.raises(ParameterError, match="'z'"):
        next(every_dropout(make, ["z"]))


def test_every_corruption_covers_every_message_and_changes_it():
    make = hamming("plain", BITS)
    sent = deliveries(make)
    cases = list(every_corruption(make))
    assert {c.delivery.index for c in cases} == set(range(len(sent)))
    for index in range(len(sent)):
        names = {c.tamper for c in cases if c.delivery.index == index}
        assert {"lost", "truncated", "extended", "emptied", "tag altered"} <= names
    only = list(every_corruption(make, {"cut": lambda p, _: p[:1]}, lambda d: d.sender == "a"))
    assert len(only) == sum(d.sender == "a" for d in sent)
    assert str(only[0]) == "message 0, Hello a → server: cut"
    assert not list(every_corruption(make, {"kept": lambda p, _: p}))


# What waits, and how far things are


def test_a_receiver_that_was_waiting_reads_before_it_is_sent_more():
    """So at most one message waits, though the sender never does."""
    log = []

    async def source(io):
        for i in range(5):
            log.append(f"send {i}")
            await io.send("sink", Blob(b"%d" % i))

    async def sink(io):
        for i in range(5):
            await io.recv(Blob, "source", n=1)
            log.append(f"read {i}")

    Simulation().run({"sink": sink, "source": source}).raise_errors()
    assert log == [
        *("send 0", "send 1", "read 0", "send 2", "read 1"),
        *("send 3", "read 2", "send 4", "read 3", "read 4"),
    ]


def test_a_broadcast_is_not_interrupted():
    log = []

    async def source(io):
        await io.send(("a", "b"), Blob(b"1"))
        await io.send("c", Blob(b"2"))
        log.append("sent")

    async def sink(io):
        await io.recv(Blob, "source", n=1)
        log.append(io.name)

    Simulation().run({"a": sink, "b": sink, "c": sink, "source": source}).raise_errors()
    assert log == ["sent", "a", "b", "c"]


def test_reports_of_a_computation_say_party_step_and_how_far_it_is():
    seen = []

    def half(report):
        report("halves", 1, 2)

    async def role(io):
        with io.step("cutting"):
            await io.compute(half, io.report)

    Simulation(progress=seen.append).run({"a": role}).raise_errors()
    assert seen == [Progress("a", "cutting", "half"), Progress("a", "cutting", "halves", 1, 2)]
    Simulation().run({"a": role}).raise_errors()


def test_costs_of_several_runs_add_up():
    roles = {"a": sender("b", b"x"), "b": receiver("a")}
    one, two = (Simulation().run(roles).cost for _ in range(2))
    both = Cost.total([one, two])
    assert both.total_bytes == one.total_bytes + two.total_bytes
    assert both.total_seconds == pytest.approx(one.total_seconds + two.total_seconds)
    assert both.rounds == one.rounds
    assert sum(both.messages.values()) == 2 * sum(one.messages.values())
    sent, received = both.bytes_by_party()
    assert sent == {"a": both.sent_by("a")}
    assert received == {"b": both.received_by("b")}
