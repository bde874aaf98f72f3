import json
import re
from collections import Counter
from dataclasses import replace

import protocol_runs as runs
import pytest
from durable_runs import Blob, accusing, durable
from superstep_runs import MAX, Engine, over_the_wire

from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    FaultyPeerOrServer,
    ParameterError,
    Stalled,
    TooFewParties,
)
from xclp_crypto.params import MAX_DEPTH
from xclp_crypto.protocols.secure_sum import MaskGraph
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import run
from xclp_crypto.transport import supersteps
from xclp_crypto.transport.failures import Code, Failure, Reason
from xclp_crypto.transport.log import NoLog
from xclp_crypto.transport.questions import (
    Answer,
    Ask,
    Item,
    Parts,
    answer_from,
    ask_from,
    header_of,
    receivers_of,
    sizes_of,
)
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.supersteps import Relay, answer
from xclp_crypto.wire import encode

VALUES = {"a": [1, 2, 3], "b": [10, 20, 30], "c": [100, 200, 300], "d": [1000, 2000, 3000]}
SUM = runs.secure_sum(VALUES, graph=MaskGraph.complete(tuple(VALUES), 3), fraction_bits=0)
BITS = {"a": [[0, 1, 1, 0]], "b": [[1, 1, 1, 0], [0, 0, 0, 0]], "c": [[1, 0, 0, 1]]}


def total(clients):
    return [sum(VALUES[c][i] for c in clients) for i in range(3)]


# Runs


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(("seed", "lossy"), [(0, False), (0, True), (1, True)])
def test_a_sum_is_that_of_the_simulation_whatever_is_lost_repeated_or_older(seed, deferred, lossy):
    expected = run(SUM)
    engine = Engine(SUM(), seed, deferred, lossy).run()
    result = engine.relay.role.result()
    assert result.total.tolist() == expected.results[SERVER].total.tolist() == total("abcd")
    assert result.record == expected.results[SERVER].record
    assert sum(map(len, engine.sent.values())) == expected.cost.total_bytes
    costs = [engine.relay.role.cost, *(node.cost for node in engine.nodes.values())]
    assert max(cost.rounds for cost in costs) == expected.cost.rounds
    assert not any(node.failure for node in engine.nodes.values())


@pytest.mark.parametrize("backend", ["plain", "masked", "shade"])
@pytest.mark.parametrize("deferred", [False, True])
def test_distances_are_those_of_the_simulation(backend, deferred):
    make = runs.hamming(backend, {c: BITS[c] for c in "abc"})
    engine = Engine(make(), 1, deferred, lossy=True).run()
    expected = run(make)
    result = engine.relay.role.result()
    assert result.matrix.tolist() == expected.results[SERVER].matrix.tolist()
    assert sum(map(len, engine.sent.values())) == expected.cost.total_bytes


@pytest.mark.parametrize(("deferred", "most"), [(False, 6), (True, 13)])
def test_without_losses_a_client_is_asked_a_few_times(deferred, most):
    engine = Engine(SUM(), deferred=deferred).run()
    assert max(Counter(engine.asked).values()) <= most
    assert max(node.starts for node in engine.nodes.values()) <= most + 1


# Dropouts


@pytest.mark.parametrize(("asked", "stage"), [(1, "share"), (2, "upload"), (3, "reveal")])
def test_a_client_that_answers_no_more_drops_out_where_it_stopped(asked, stage, caplog):
    def drop_out(engine):
        if engine.asked.count("d") > asked:
            engine.absent.add("d")

    engine = Engine(SUM(), deadline=100).run(each=drop_out)
    result = engine.relay.role.result()
    assert result.record.dropouts == {"d": stage}
    assert result.total.tolist() == total("abcd" if stage == "reveal" else "abc")
    assert not any(node.failure for name, node in engine.nodes.items() if name != "d")
    assert 100 <= engine.now < 120
    assert caplog.messages.count("d is given up: it does not answer") == 1


def test_a_client_that_is_away_for_less_than_the_deadline_takes_part():
    def away(engine):
        (engine.absent.discard if engine.now > 90 else engine.absent.add)("d")

    engine = Engine(SUM(), join=100).run(each=away)
    assert engine.relay.role.result().record.dropouts == {}
    assert engine.now > 90


def test_a_client_that_never_comes_is_a_dropout_when_the_time_to_join_is_over():
    engine = Engine(SUM(), join=50)
    engine.absent.add("b")
    engine.run()
    result = engine.relay.role.result()
    assert result.record.dropouts == {"b": "setup"}
    assert result.total.tolist() == total("acd")
    assert 50 < engine.now < 70


def test_nobody_comes():
    engine = Engine(SUM())
    engine.absent.update(VALUES)
    engine.run()
    with pytest.raises(TooFewParties, match="step 'setup': 0 of the parties answered and 2"):
        engine.relay.role.result()


def test_a_client_that_has_lost_its_log_takes_no_further_part(caplog):
    def forget(engine):
        if engine.asked.count("d") == 3 and engine.nodes["d"].log:
            engine.nodes["d"].log = b""
            engine.sent = {}

    engine = Engine(SUM()).run(each=forget)
    assert "d takes no further part (left): has lost its log: it is another start of its role" in (
        caplog.messages
    )
    result = engine.relay.role.result()
    assert result.record.dropouts == {"d": "upload"}
    assert result.total.tolist() == total("abc")


# Who breaks the protocol


@pytest.mark.parametrize("deferred", [False, True])
def test_attack_10_who_restores_an_older_log_is_given_up_at_once_and_sends_nothing(
    deferred, caplog
):
    """The engine sees to it that no message is ever sent with other bytes than before."""
    logs = []

    def restore(engine):
        node = engine.nodes["d"]
        if node.log not in logs:
            logs.append(node.log)
        if len(logs) == 3:
            node.log = node.later = logs[1]

    engine = Engine(SUM(), deferred=deferred, deadline=1000).run(each=restore)
    assert engine.relay.role.result().total.tolist() in (total("abc"), total("abcd"))
    assert engine.relay.role.result().record.dropouts.keys() == {"d"}
    assert engine.now < 50
    said = "d takes no further part (left): its log was rolled back: it has not all that was sent"
    assert sum(line.startswith(said) for line in caplog.messages) == 1


def altered(engine, name, receiver, number, alter):
    """Let a node alter one of its messages."""
    before = engine.answers.get(name, engine.nodes[name].handle)

    def handle(ask):
        got = before(ask)
        items = tuple(
            replace(i, payload=alter(i.payload)) if (i.receiver, i.number) == place else i
            for i in got.items
        )
        return replace(got, items=items)

    place = (receiver, number)
    engine.answers[name] = handle


@pytest.mark.parametrize("number", range(3))
def test_a_client_that_sends_the_server_garbage_is_named(number):
    engine = Engine(SUM())
    altered(engine, "d", SERVER, number, lambda payload: bytes(99))
    engine.run()
    with pytest.raises(FaultyPeer, match=r"^d did not follow the protocol") as caught:
        engine.relay.role.result()
    assert caught.value.parties == ("d",)
    assert not isinstance(caught.value, FaultyPeerOrServer)


@pytest.mark.parametrize(("victims", "blamed"), [("a", "da"), ("ab", "dab"), ("abc", "d")])
def test_attack_4_who_gets_garbage_of_a_client_stops_the_session_for_all(victims, blamed):
    """Otherwise it would go on with the attacker and without the victims, down to a single one."""
    engine = Engine(SUM())
    for victim in victims:
        altered(engine, "d", victim, 0, lambda payload: payload[:-1] + bytes([payload[-1] ^ 1]))
    engine.run()
    for victim in victims:
        assert type(engine.nodes[victim].failure) is FaultyPeerOrServer
        assert engine.nodes[victim].failure.parties == ("d",)
    assert type(engine.relay.failure) is FaultyPeer
    assert engine.relay.failure.parties == tuple(blamed)  # by most, or either of them is at fault
    assert not engine.relay.role.ended
    assert not engine.results()


def hears(engine, client, told):
    """The error of a client that is told of a failure."""
    failure = over_the_wire(Ask(end=True, failure=told)).failure
    return failure.heard("the server", (*VALUES, SERVER), engine.nodes[client].signer)


@pytest.fixture(scope="module")
def accused():
    return Engine(accusing({"a": "b"}, FaultyPeer)).run()


@pytest.mark.parametrize(
    ("by", "blame", "parties"),
    [
        ({"a": "b"}, FaultyPeer, "ba"),
        ({"a": "b"}, FaultyPeerOrServer, "ba"),
        ({"a": SERVER}, FaultyPeer, (SERVER, "a")),  # which an honest server passes on as well
        ({"a": "d", "b": "d", "c": "d"}, FaultyPeer, "d"),
    ],
)
def test_a_signed_accusation_says_who_blames_whom_and_leaves_the_server_out(by, blame, parties):
    engine = Engine(accusing(by, blame)).run()
    found = hears(engine, "d", engine.relay.told)
    assert type(found) is blame
    assert found.parties == tuple(parties)
    for accuser, blamed in by.items():
        assert f"{accuser} has signed that it blames {blamed} in step 'sum'" in str(found)


MADE_UP = {
    "a signature": lambda a: replace(a, signature=bytes(64)),
    "another accused": lambda a: replace(a, accused=("d",)),
    "one more accused": lambda a: replace(a, accused=("b", "d")),
    "another accuser": lambda a: replace(a, accuser="d"),
    "nobody's": lambda a: replace(a, accuser="nobody"),
    "another code": lambda a: replace(a, code=6),
    "another step": lambda a: replace(a, step="setup"),
}


def server_says(engine, *accusations):
    """Require that c takes what the server says for the server's word alone."""
    told = replace(engine.relay.told, accusations=accusations)
    found = hears(engine, "c", told)
    assert type(found) is FaultyPeerOrServer
    assert found.parties == ("b", "a")
    assert "signed" not in str(found)


@pytest.mark.parametrize("lie", MADE_UP)
def test_an_accusation_that_a_server_makes_up_or_alters_is_its_word_alone(accused, lie):
    (said,) = accused.relay.told.accusations
    server_says(accused, MADE_UP[lie](said))


def test_an_accusation_of_another_session_or_none_is_the_servers_word_alone(accused):
    other = Engine(accusing({"a": "b"}, FaultyPeer), seed=1).run()  # under the same keys of clients
    server_says(accused, *other.relay.told.accusations)
    server_says(accused)
    accused.nodes["a"].signer = None  # as before its keys are known
    assert type(hears(accused, "a", accused.relay.told)) is FaultyPeerOrServer


def test_without_identities_or_before_keys_are_known_nothing_is_signed():
    unpinned = Engine(accusing({"a": "b"}, FaultyPeer, pinned=False)).run()
    early = accusing({}, FaultyPeer)

    async def blames(io, rng):
        raise FaultyPeer("b", "is wrong", public=True)

    for engine in (unpinned, Engine(early | {"a": blames}).run()):
        assert engine.relay.told.parties == ("b", "a")
        assert engine.relay.told.accusations == ()
        assert type(hears(engine, "c", engine.relay.told)) is FaultyPeerOrServer


# One question


def sending(*sizes):
    """A role that sends the server messages of these sizes, and waits for one byte of each peer."""

    async def role(io, rng):
        for n in sizes:
            await io.send(SERVER, Blob(rng.bytes(n)))
        for peer in ("b", SERVER):
            await io.recv(Blob, peer, n=1)
        await io.send(SERVER, Blob(b"end"))

    return role


X = encode(Blob(b"x"))


def asked(ask, log=b"", deferred=False):
    """Answer of a client a, and its log afterwards."""
    role = durable("a", sending(5, 7), ("b", SERVER), log)
    return answer(role, ask, deferred=deferred), role._log.to_bytes()


def test_a_question_that_comes_twice_is_answered_with_the_same_bytes():
    first, log = asked(Ask())
    assert [len(i.payload) for i in first.items] == [7, 9]
    assert first.missing == ("b",)
    again, after = asked(Ask(), log)
    assert again == first
    assert after == log


def test_what_has_arrived_is_not_sent_again():
    _, log = asked(Ask())
    rest, log = asked(Ask(taken={SERVER: 1}), log)
    assert [i.number for i in rest.items] == [1]
    ask = Ask((Item("b", "a", 0, 1, X), Item(SERVER, "a", 0, 1, X)), {SERVER: 2})
    last, log = asked(ask, log)
    assert [(i.number, bytes(i.payload)[2:]) for i in last.items] == [(2, b"end")]
    assert last.ended
    assert last.fed == last.kept == {"b": 1, SERVER: 1}
    again, _ = asked(ask, log)  # what it has is not taken twice
    assert again == last


def test_nothing_leaves_before_a_log_that_is_kept_later():
    first, log = asked(Ask(), deferred=True)
    assert (first.items, first.instance, first.more) == ((), b"", True)
    other, _ = asked(Ask(), deferred=True)  # it was not kept, so the role may start again
    assert other.instance == b""
    second, _ = asked(Ask(), log, deferred=True)
    assert [i.number for i in second.items] == [0, 1]
    assert second.instance
    assert not second.more
    ask = Ask((Item("b", "a", 0, 1, X), Item(SERVER, "a", 0, 1, X)))
    third, log = asked(ask, log, deferred=True)
    assert [i.number for i in third.items] == [0, 1]
    assert (third.more, third.ended) == (True, False)
    assert (third.fed, third.kept) == ({"b": 1, SERVER: 1}, {"b": 0, SERVER: 0})
    last, _ = asked(ask, log, deferred=True)
    assert [i.number for i in last.items] == [0, 1, 2]
    assert (last.more, last.ended) == (False, True)


def test_a_failure_is_said_when_its_log_is_kept():
    """Before, the role could start again and do well."""
    garbage = Ask((Item("b", "a", 0, 1, b"?"),))
    first, log = asked(garbage, deferred=True)
    assert first.failure is None
    assert first.more
    second, _ = asked(garbage, log, deferred=True)
    said = "b did not follow the protocol in step 'run'"  # and not what b sent
    assert second.failure == Failure(7, ("b",), said)
    assert second.ended


def test_an_older_log_takes_nothing_after_a_gap_and_gives_nobody_up():
    got, _ = asked(Ask((Item("b", "a", 1, 1, X),), gone={"b": None, SERVER: None}))
    assert got.fed == {"b": 0, SERVER: 0}
    assert got.missing == ("b",)
    assert not got.ended


def test_a_role_ends_without_those_that_are_gone_and_says_so(caplog):
    got, _ = asked(Ask(gone={SERVER: None}))
    assert got.missing == ("b",)
    got, _ = asked(Ask(gone={"b": None}))
    assert got.ended
    assert "no Blob from b" in got.failure.text
    assert caplog.messages == ["given up: a waits for b"]


def test_a_message_of_nobody_is_refused():
    with pytest.raises(DecodeError, match="from 'z', who is nobody here"):
        asked(Ask((Item("z", "a", 0, 1, X),)))


# The relay


class Now:
    """A relay of a server that takes one byte of a, and then one of b; `now` is the time."""

    def __init__(self, role=None, **limits):
        async def server(io, rng):
            for client in "ab":
                await io.recv(Blob, client, n=1)
            await io.send(("a", "b"), Blob(b"done"))

        self.now = 0.0
        times = {"join": 50, "deadline": 100, "total": 1000, "retry": 5}
        limits = times | {"max_message": 100} | limits
        durable = DurableRole(SERVER, role or server, NoLog(), peers=("a", "b"))
        try:
            self.relay = Relay(durable, ("a", "b"), clock=lambda: self.now, **limits)
        except ParameterError:
            durable.close()
            raise

    def take(self, name, *items, **fields):
        self.relay.take(Answer(name, name.encode() * 16, items, **fields))
        self.relay.turn()

    def due(self, after=0.0):
        self.now += after
        return dict(self.relay.due())


def to_server(name, number=0, payload=X):
    return Item(name, SERVER, number, 1, payload)


def test_messages_pass_between_clients_as_they_came_and_once():
    engine = Now()
    engine.take("a", Item("a", "b", 0, 3, b"one"), to_server("a"))
    assert engine.due() == {}
    engine.take("b")
    engine.take("a", Item("a", "b", 0, 3, b"one"), Item("a", "b", 1, 4, b"two"))
    ask = engine.due()["b"]
    assert ask == Ask((Item("a", "b", 0, 3, b"one"), Item("a", "b", 1, 4, b"two")))
    engine.take("b", fed={"a": 1}, kept={"a": 0})
    ask = engine.due()["b"]
    assert [i.number for i in ask.items] == [1]  # it has taken the first
    engine.take("b", fed={"a": 0}, kept={"a": 0})  # and lost it
    assert [i.number for i in engine.due()["b"].items] == [0, 1]
    engine.take("b", fed={"a": 2}, kept={"a": 2})
    assert engine.due() == {}
    engine.take("b", fed={"a": 1}, kept={"a": 1})
    assert engine.due()["b"].items == ()  # what it has kept is forgotten here


def test_of_what_a_client_sends_a_window_waits_here_until_its_receiver_has_it(monkeypatch):
    """The rest is asked for then, or when nobody waits for that one any more, and is not kept."""
    monkeypatch.setattr(supersteps, "WINDOW", 10)
    items = [Item("a", "b", number, 1, bytes(4)) for number in range(9)]
    engine = Now(deadline=100)
    engine.take("b")
    engine.take("a", *items, ended=True)
    assert {name: ask.items for name, ask in engine.due().items()} == {"b": (*items[:3],)}
    engine.take("b", fed={"a": 3}, kept={"a": 0})
    assert engine.due() == {"b": Ask()}  # to keep what it has
    engine.take("b", fed={"a": 3}, kept={"a": 3})
    assert engine.due() == {"a": Ask(taken={"b": 3})}
    engine.take("a", *items[3:], ended=True)
    assert [item.number for item in engine.due()["b"].items] == [3, 4, 5]
    assert engine.due(after=99) == {"b": Ask((*items[3:6],), kept={"a": 3})}
    assert engine.due(after=2).keys() == {"a"}  # b is given up
    engine.take("a", *items[6:], to_server("a"), ended=True)
    assert len(engine.relay.clients["b"].queue) == 3
    assert engine.relay.clients["a"].ended
    assert engine.relay.role.fed["a"] == 1


@pytest.mark.parametrize("deferred", [False, True])
def test_messages_that_wait_for_room_all_arrive(monkeypatch, deferred):
    monkeypatch.setattr(supersteps, "WINDOW", 0)  # one at a time

    async def sends(io, rng):
        for number in range(5):
            await io.send(("b", SERVER), Blob(bytes([number])))

    async def takes(io, rng):
        return [(await io.recv(Blob, "a", n=1)).data[0] for _ in range(5)]

    async def server(io, rng):
        await io.recv(Blob, "b", n=1)
        return await takes(io, rng)

    async def b(io, rng):
        await io.send(SERVER, Blob(b"x"))
        return await takes(io, rng)

    engine = Engine({"a": sends, "b": b, SERVER: server}, deferred=deferred, lossy=True).run()
    assert engine.results()["b"] == engine.relay.role.result() == [*range(5)]


def test_who_may_lack_messages_again_does_not_hear_that_their_sender_has_ended():
    """A client with an older log than it had would give up who has sent all that it should."""
    engine = Now()
    engine.take("a", Item("a", "b", 0, 1, X), to_server("a"), ended=True)
    engine.take("b", fed={"a": 1}, kept={"a": 0}, missing=("a",))
    assert engine.due()["b"] == Ask()
    engine.take("b", fed={"a": 1}, kept={"a": 1}, missing=("a",))
    assert engine.due()["b"] == Ask(gone={"a": None}, kept={"a": 1})


def test_after_a_gap_a_client_is_asked_for_what_is_lacking():
    engine = Now()
    engine.take("a", to_server("a", 1))
    assert engine.relay.role.fed["a"] == 0
    assert engine.due() == {"a": Ask()}
    engine.take("a", to_server("a", 0))
    assert engine.relay.role.fed["a"] == 1
    assert engine.due() == {}


def test_who_does_not_answer_is_asked_again_after_longer_and_longer_times():
    engine = Now(retry=5)
    engine.take("a", more=True)
    times = []
    for _ in range(60):
        if engine.due(after=1):
            times.append(engine.now)
    assert times == [1, 6, 16, 36]
    engine.take("a", to_server("a"), more=True)
    assert engine.due(after=1)
    assert engine.due(after=4) == {}
    assert engine.due(after=1)


def test_who_answers_without_going_on_is_given_up():
    """It always has more, but never says what."""
    engine = Now(retry=5)
    for turn in range(200):
        engine.take("a", more=True, fed={"b": turn % 2} if turn < 2 else {})
        engine.due(after=1)
    engine.take("b", to_server("b"))
    assert isinstance(engine.relay.failure, Stalled)


def test_whose_answers_make_progress_for_ever_is_given_up_in_the_end(caplog):
    """It sends another client one message after the other."""
    engine = Now(total=250)
    engine.take("b")
    for number in range(200):
        engine.take("a", Item("a", "b", number, 1, X), more=True)
        for name in engine.due(after=0):
            engine.take("b", fed={"a": number + 1}, missing=("a",)) if name == "b" else None
        engine.now += 2
        engine.relay.turn()
    assert caplog.messages.count("a is given up: it took more than 250 seconds in all") == 1
    assert "b is given up" not in caplog.text
    assert isinstance(engine.relay.role.failure, Stalled)
    assert engine.relay.role.failure.waiting_for == ("a",)
    assert engine.relay.role.reasons["a"].code is Code.SLOW


def test_who_neither_waits_nor_ends_is_given_up_when_all_is_over():
    engine = Now()
    engine.take("a", to_server("a"))
    engine.take("b", to_server("b"))
    engine.due()
    for name, missing in (("a", ()), ("b", ("a",))):
        engine.take(name, fed={SERVER: 1}, kept={SERVER: 1}, missing=missing)
    assert set(engine.due()) == {"a", "b"}
    engine.take("b", fed={SERVER: 1}, kept={SERVER: 1}, ended=True)
    assert not engine.relay.done
    assert engine.due(after=101) is not None
    assert engine.relay.done


@pytest.mark.parametrize("fields", [
    {"fed": {SERVER: 1}}, {"kept": {"b": 1 << 62}}, {"fed": {"z": 0}}, {"missing": ("z",)},
])  # fmt: skip
def test_who_counts_messages_that_nobody_sent_is_left_out(fields, caplog):
    engine = Now()
    engine.take("a", **fields)
    assert "counts messages" in caplog.text
    assert "a" not in engine.relay.present


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1 << 40])
def test_attack_5_a_depth_that_cannot_be_is_the_fault_of_whoever_sends_it(depth, caplog):
    engine = Now()
    engine.take("a", Item("a", SERVER, 0, depth, X))
    engine.take("b", to_server("b"))
    assert "a takes no further part (faulty): sends a message at depth" in caplog.text
    assert engine.relay.role.reasons["a"].code is Code.FAULTY
    assert isinstance(engine.relay.failure, Stalled)
    with pytest.raises(DecodeError, match="at depth"):
        asked(Ask((Item("b", "a", 0, depth, X),)))


def test_a_question_that_is_known_to_be_lost_is_asked_again_after_a_pause():
    engine = Now(retry=50)
    engine.relay.lost("a", 2)  # it was not asked anything
    engine.take("a", more=True)
    assert engine.due()
    engine.relay.lost("a", 2)
    assert engine.due(after=1) == {}
    assert engine.due(after=1)
    engine.relay.lost("a", 200)  # never later than without this
    assert engine.due(after=99) == {}
    assert engine.due(after=1)


def test_a_late_answer_of_a_client_that_was_given_up_is_taken():
    async def server(io, rng):
        got = await io.gather(Blob, ("a", "b"), 1, n=1)
        await io.recv(Blob, "a", n=1)
        return sorted(got)

    engine = Now(server, deadline=100)
    engine.take("b", more=True)
    assert "b" in engine.due()
    engine.take("a", to_server("a"), missing=("b",))
    engine.now += 101
    engine.relay.turn()  # without b
    assert engine.due()["a"].gone == {"b": Reason()}
    engine.take("b", Item("b", "a", 0, 1, b"late"), to_server("b"))
    assert engine.due(after=5)["a"] == Ask((Item("b", "a", 0, 1, b"late"),), {SERVER: 1})
    engine.take("a", to_server("a", 1), ended=True)
    assert engine.relay.role.result() == ["a"]
    assert not engine.relay.done
    engine.take("b", ended=True)
    assert engine.relay.done


def test_the_session_is_over_when_all_clients_have_ended():
    engine = Now()
    engine.take("a", to_server("a"))
    engine.take("b", to_server("b"))
    assert engine.relay.role.ended
    done = Item(SERVER, "a", 0, 2, encode(Blob(b"done")))
    assert engine.due()["a"] == Ask((done,), {SERVER: 1}, {SERVER: None})
    engine.take("a", to_server("a", 1), ended=True)  # nobody takes this any more
    assert engine.relay.role.fed["a"] == 1
    assert not engine.relay.done
    engine.now += 101
    assert engine.relay.done  # b is given up


@pytest.mark.parametrize("b", ["a", SERVER])
def test_when_everybody_waits_for_somebody_else_the_waits_end_the_servers_last(b):
    """Nobody is late, and nothing can come. Who waits for the server has said what it had to."""
    engine = Now()
    engine.take("a", missing=("b",))
    engine.take("b", missing=(b,))
    gone = {name: [*ask.gone] for name, ask in engine.due().items()}
    assert gone == {"a": ["b"]} | ({} if b == SERVER else {"b": ["a"]})
    assert not engine.relay.role.ended
    for name in gone:
        engine.take(name, missing=(SERVER,))
    with pytest.raises(Stalled, match="no Blob from a"):
        engine.relay.role.result()


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (Item("b", SERVER, 0, 1, X), "sends in the name of another"),
        (Item("a", "nobody", 0, 1, X), "sends to 'nobody', who is nobody here"),
        (to_server("a", 0, bytes(101)), "sends a message of 101 bytes, and at most 100 are taken"),
        (Item("a", "b", 0, 1, Parts((bytes(60), bytes(41)))), ".* 101 bytes, and at most"),
    ],
)
def test_a_client_that_sends_what_it_may_not_takes_no_further_part(item, words, caplog):
    engine = Now()
    engine.take("b")
    engine.relay.take(Answer("a", b"a" * 16, (item,)))
    assert engine.relay.present == ("b",)
    (said,) = caplog.messages
    assert re.match(rf"a takes no further part \(faulty\): {words}", said)
    engine.take("a", to_server("a"))  # whatever it says now
    assert engine.relay.role.fed["a"] == 0
    with pytest.raises(Stalled, match="no Blob from a"):
        engine.relay.role.result()


def test_what_goes_to_a_client_that_has_failed_is_not_kept():
    engine = Now()
    engine.take("a", failure=Failure(0, (), "a disk is full"))
    engine.take("b", Item("b", "a", 0, 1, b"x"))
    assert "a" not in engine.due()
    assert not engine.relay.clients["a"].queue


def test_what_is_no_client_is_refused():
    with pytest.raises(ParameterError, match="'z', which is none of the clients a, b;"):
        Now().take("z")


def test_a_message_of_the_server_that_is_too_long_is_its_users_to_correct():
    async def server(io, rng):
        await io.send("b", Blob(bytes(99)))

    with pytest.raises(ParameterError, match="of 101 bytes to b is longer than the 100 that may"):
        Now(server)


@pytest.mark.parametrize("name", ["join", "deadline", "retry"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_times_are_positive(name, value):
    with pytest.raises(ParameterError, match=f"{name} must be a positive number of seconds, got"):
        Now(**{name: value})


def test_which_start_a_client_has_shown():
    engine = Now()
    assert engine.relay.instance_of("a") == b""
    engine.take("a")
    assert engine.relay.instance_of("a") == b"a" * 16


# Headers


ITEM = Item("a", "b", 3, 1, b"three")
GONE = {"c": None, "d": Reason(Code.FAULTY, "lies")}
ASK = Ask((ITEM,), {"b": 3}, GONE, end=True)
ANSWER = Answer(
    "a", b"i" * 16, (ITEM,), {"b": 2}, {"b": 1}, ("c",), True, True, Failure(0, (), "lost")
)


@pytest.mark.parametrize("message", [ASK, ANSWER, Ask(), Answer("a")])
def test_what_is_written_reads_the_same(message):
    assert over_the_wire(message) == message


def test_a_payload_that_is_handed_on_stays_in_its_parts():
    parts = Parts((b"th", b"", b"ree"))
    assert len(parts) == 5
    got = answer_from(header_of(ANSWER), [parts])
    assert got.items[0].payload is parts
    assert got.items[0].whole == ITEM.whole == b"three"
    assert sizes_of(header_of(got), MAX) == [5]
    assert receivers_of(header_of(got)) == ["b"]


def test_what_a_client_failed_with_prints_in_one_line():
    header = header_of(Answer("a", failure=Failure(0, (), "one\ntwo\x1b[2J")))
    assert answer_from(header, []).failure.text == "one two [2J"


@pytest.mark.parametrize("header", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_refused(header):
    for decode in (ask_from, answer_from):
        with pytest.raises(DecodeError, match="a header is no JSON"):
            decode(header, [])


@pytest.mark.parametrize("header", ["[]", "{}", "1", '{"version": 2, "items": []}'])
def test_another_version_is_refused(header):
    for decode in (ask_from, answer_from):
        with pytest.raises(DecodeError, match="another version"):
            decode(header, [])


BAD_COUNTS = [-1, 1.0, True, "1", None, 1 << 63]
BAD_ITEMS = [None, {}, [1], [[]], [["a", "b", 0, 1]], [["a", "b", 0, 1, 5, 0]]]
BAD_ITEMS += [[["a", 2, 0, 1, 5]], [[None, "b", 0, 1, 5]]]
BAD_ITEMS += [
    [["a", "b", *(bad if i == place else 0 for i in range(3))]]
    for bad in BAD_COUNTS
    for place in range(3)
]


@pytest.mark.parametrize("message", [ASK, ANSWER])
@pytest.mark.parametrize("items", BAD_ITEMS)
def test_a_header_without_a_list_of_messages_is_refused(message, items):
    header = json.dumps(json.loads(header_of(message)) | {"items": items})
    decode = ask_from if message is ASK else answer_from
    for read in (lambda h: decode(h, [b"three"]), receivers_of, lambda h: sizes_of(h, MAX)):
        with pytest.raises(DecodeError, match="lists no messages"):
            read(header)


@pytest.mark.parametrize(
    ("message", "field", "values", "words"),
    [
        (ASK, "taken", [None, [], {"b": "3"}, {"b": -1}, {"b": True}], "no counts in taken"),
        (ASK, "gone", [None, ["c"], {"c": 1}, {"c": ["left"]}, {"c": ["left", 1]}], "is gone"),
        (ASK, "end", [None, 1, "true"], "does not say end"),
        (ANSWER, "fed", [None, [], {"b": 1.5}], "no counts in fed"),
        (ANSWER, "kept", [None, [], {"b": 1.5}], "no counts in kept"),
        (ANSWER, "missing", [None, "c", [["c"]]], "no names in missing"),
        (ANSWER, "more", [None, 0], "does not say more"),
        (ANSWER, "ended", [None, 1], "does not say ended"),
        (ANSWER, "name", [None, 1], "an answer has no name"),
        (ANSWER, "instance", [None, 1], "an answer has no name"),
        (
            ANSWER,
            "failure",
            [1, [], [0, [], ""], [0, 1, "", ""], [-1, [], "", ""], [0, [], 1, ""]]
            + [
                [0, [], "", signed]
                for signed in (1, "zz", "00" * 66, "00" * 66 + "01", "00" * (1 << 16))
            ],
            " in failure|why|accusation",
        ),
    ],
)
def test_a_header_that_lacks_a_field_is_refused(message, field, values, words):
    fields = json.loads(header_of(message))
    decode = ask_from if message is ASK else answer_from
    assert decode(json.dumps(fields), [b"three"]) == message
    wrong = [fields | {field: value} for value in values]
    wrong.append({name: value for name, value in fields.items() if name != field})
    for other in wrong:
        with pytest.raises(DecodeError, match=words):
            decode(json.dumps(other), [b"three"])


@pytest.mark.parametrize("instance", ["zz", "abc"])
def test_an_instance_that_is_not_hexadecimal_is_refused(instance):
    header = json.dumps(json.loads(header_of(ANSWER)) | {"instance": instance})
    with pytest.raises(DecodeError, match="names no start of its role"):
        answer_from(header, [b"three"])


def test_a_message_that_is_too_long_is_refused_before_it_is_read():
    header = header_of(Ask((Item("a", "b", 0, 1, bytes(11)),)))
    assert sizes_of(header, 11) == [11]
    with pytest.raises(DecodeError, match="11 bytes, and at most 10"):
        sizes_of(header, 10)
