"""Algorithm 1 with clients that only answer, whose questions and answers get lost."""

import random
import sys
from collections import deque
from pathlib import Path

import pytest
import session_runs as sessions

from xclp_crypto.errors import DecodeError, ParameterError, TooFewParties
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.log import Log, NoLog
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.supersteps import (
    Answer,
    Ask,
    Item,
    Relay,
    answer,
    answer_from,
    ask_from,
    header_of,
    sizes_of,
)
from xclp_lp.session import client_role, server_role

sys.path.insert(0, str(Path(__file__).parents[1] / "crypto"))
from durable_runs import KEY

DATA = sessions.blobs({"a": 4, "b": 3, "c": 3, "d": 3})
MAX = 1 << 20


class Node:
    """A node that rebuilds its client for each question, and may be slow to keep its log."""

    def __init__(self, name, deferred, slow):
        self.name, self.deferred, self.slow = name, deferred, slow
        self.log = self.later = b""
        self.starts = 0
        self.questions = deque()
        self.result = None
        self.dead = False

    def handle(self, ask, dies=False):
        if self.deferred and not self.slow():
            self.log = self.later or self.log
        self.starts += 1
        peers = [p for p in (*DATA, SERVER) if p != self.name]
        rng = SeededRng(self.starts).child("log of", self.name)
        log = Log.from_bytes(self.log, KEY, rng=rng)
        params, invited = sessions.SMALL, tuple(DATA)

        async def role(io, rng):
            return await client_role(io, DATA[self.name], params, invited, rng, sessions.SEED)

        durable = DurableRole(self.name, role, log, peers=peers, rng=rng)
        got = answer(durable, ask, deferred=self.deferred)
        self.later = log.to_bytes()
        if not self.deferred:
            self.log = self.later
        if durable.ended and durable.failure is None:
            self.result = durable.result()
        durable.close()
        return None if dies else got


class Engine:
    """A relay and its nodes; a turn is a second."""

    def __init__(self, seed=0, deferred=False, lossy=False, **limits):
        self.now = 0.0
        self.chance = random.Random(seed)
        self.lossy = lossy
        self.nodes = {name: Node(name, deferred, self.lost) for name in DATA}
        self.sent = {}
        self.absent = set()
        self.steps = []

        async def role(io, rng):
            return await server_role(io, sessions.SMALL, tuple(DATA), rng)

        peers = tuple(DATA)
        self.relay = Relay(
            DurableRole(SERVER, role, NoLog(), peers=peers, rng=SeededRng(seed)),
            peers,
            clock=lambda: self.now,
            **{"join": 50, "deadline": 2000 if lossy else 100, "retry": 5, "max_message": MAX}
            | limits,
        )

    def lost(self):
        return self.lossy and self.chance.random() < 0.2

    def run(self, turns=10_000, each=lambda engine: None):
        for _ in range(turns):
            if self.relay.done:
                return self
            each(self)
            self.now += 1
            came = self.relay.present
            for name in DATA:
                if name not in came and self.now % 5 == 1:
                    self.nodes[name].questions.append(Ask())
            for name, ask in self.relay.due():
                self.steps.append(name)
                if self.lossy and self.chance.random() < 0.2:
                    self.nodes[name].questions.append(ask)  # twice
                if not self.lost():
                    self.nodes[name].questions.append(over_the_wire(ask))
            for name, node in self.nodes.items():
                if name in self.absent:
                    node.questions.clear()
                elif node.questions:
                    got = node.handle(node.questions.popleft())
                    for item in got.items:
                        place = (item.sender, item.receiver, item.number)
                        assert self.sent.setdefault(place, bytes(item.payload)) == item.payload
                    if not self.lost():
                        self.relay.take(over_the_wire(got))
            self.relay.turn()
        raise AssertionError(f"does not end: {self.relay.role.step}")

    def labels(self):
        return {
            name: node.result.labels.tolist()
            for name, node in self.nodes.items()
            if node.result is not None
        }


def over_the_wire(message):
    header = header_of(message)
    payloads = [bytes(i.payload) for i in message.items]
    assert sizes_of(header, MAX) == [len(p) for p in payloads]
    decoded = (ask_from if isinstance(message, Ask) else answer_from)(header, payloads)
    assert decoded == message
    return decoded


def labels(present, contributors):
    found = sessions.expected_labels(DATA, sessions.SMALL, tuple(present), tuple(contributors))
    return {name: own.tolist() for name, own in found.items()}


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_questions_and_answers_may_be_lost_repeated_and_find_an_older_log(deferred, seed):
    engine = Engine(seed, deferred, lossy=True).run()
    assert engine.labels() == labels(DATA, DATA)
    graph = engine.relay.role.result()
    assert graph.contributors == tuple(DATA)


@pytest.mark.parametrize("deferred", [False, True])
def test_without_losses_a_client_is_asked_a_few_times(deferred):
    engine = Engine(deferred=deferred).run()
    assert engine.labels() == labels(DATA, DATA)
    assert max(engine.steps.count(name) for name in DATA) <= (20 if deferred else 9)


@pytest.mark.parametrize(
    ("asked", "step"),
    [(0, "setup"), (1, "setup"), (2, "row sums"), (4, "row sums"), (6, "row sums")],
)
def test_a_client_that_does_not_answer_in_time_is_a_dropout(asked, step):
    def vanish(engine):
        if engine.steps.count("d") > asked:
            engine.absent.add("d")

    engine = Engine().run(each=vanish)
    graph = engine.relay.role.result()
    assert [(d.client, d.step) for d in graph.departures] == [("d", step)]
    rest = [name for name in DATA if name != "d"]
    assert list(graph.sizes) == (rest if step == "setup" else list(DATA))
    assert ("d" in graph.contributors) == (asked > 4)
    expected = labels(graph.sizes, graph.contributors)
    assert engine.labels() == {name: expected[name] for name in rest}


def test_a_client_that_is_killed_and_comes_back_gets_its_labels():
    gone = []

    def restart(engine):
        if engine.relay.role.step == "row sums" and not gone:
            gone.append(engine.now)
            engine.absent.add("d")
        if gone and engine.now > gone[0] + 20:
            engine.absent.discard("d")

    engine = Engine().run(each=restart)
    assert gone
    assert engine.labels() == labels(DATA, DATA)
    assert engine.relay.role.result().departures == ()


def test_a_client_that_never_comes_is_missed_in_the_setup():
    engine = Engine()
    engine.absent.add("b")
    engine.run()
    assert [(d.client, d.step) for d in engine.relay.role.result().departures] == [("b", "setup")]
    rest = [name for name in DATA if name != "b"]
    assert engine.labels() == labels(rest, rest)


def test_nobody_comes():
    engine = Engine()
    engine.absent.update(DATA)
    engine.run()
    with pytest.raises(TooFewParties):
        engine.relay.role.result()


def test_a_client_that_has_lost_its_log_takes_no_further_part():
    def forget(engine):
        if engine.steps.count("d") == 2 and engine.nodes["d"].log:
            engine.nodes["d"].log = b""
            engine.sent = {}

    engine = Engine().run(each=forget)
    graph = engine.relay.role.result()
    assert "d" in {d.client for d in graph.departures}


@pytest.mark.parametrize(
    "item",
    [
        Item("b", SERVER, 0, 1, b"x"),
        Item("a", "nobody", 0, 1, b"x"),
        Item("a", SERVER, 0, 1, bytes(MAX + 1)),
    ],
)
def test_a_client_that_sends_what_it_may_not_takes_no_further_part(item):
    relay = Engine().relay
    relay.take(Answer("a", b"a" * 16, (item,)))
    assert relay.present == ()
    assert relay.role.fed["a"] == 0


def test_what_is_no_client_is_refused():
    with pytest.raises(ParameterError, match="'z', which is none of the clients a, b, c, d"):
        Engine().relay.take(Answer("z", b"a" * 16))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "items": []}',
        '{"version": 1, "items": [["a", "b", 0, 0]]}',
        '{"version": 1, "items": [["a", "b", 0, 0, -1]]}',
        '{"version": 1, "items": [["a", "b", 0, true, 1]]}',
        '{"version": 1, "items": []}',
        '{"version": 1, "items": [], "taken": {"a": "b"}}',
        '{"version": 1, "items": [], "taken": {}, "gone": [1]}',
        '{"version": 1, "items": [], "taken": {}, "gone": [], "end": 1}',
        '{"version": 1, "items": [], "name": "a", "instance": "zz", "error": ""}',
        "[" * 100_000,
    ],
)
def test_headers_that_are_none_are_refused(header):
    for decode in (ask_from, answer_from):
        with pytest.raises(DecodeError):
            decode(header, [])


def test_a_message_that_is_too_long_is_refused_before_it_is_read():
    header = header_of(Ask((Item("a", "b", 0, 1, bytes(11)),)))
    assert sizes_of(header, 11) == [11]
    with pytest.raises(DecodeError, match="11 bytes, and at most 10"):
        sizes_of(header, 10)
