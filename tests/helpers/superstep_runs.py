"""A relay and clients that only answer, whose questions and answers may get lost; no engine."""

import random
from collections import deque

from durable_runs import KEY

from xclp_crypto.errors import LogRolledBack
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.failures import Failure
from xclp_crypto.transport.log import Log, NoLog
from xclp_crypto.transport.questions import Answer, Ask, answer_from, ask_from, header_of, sizes_of
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.supersteps import Relay, answer

MAX = 1 << 20


class Node:
    """A node that rebuilds its client for each question, and may be slow to keep its log.

    `failure`, `signer` and `cost` are those of its role when it was last asked.
    """

    def __init__(self, name, role, peers, deferred, slow):
        self.name, self.role, self.peers = name, role, peers
        self.deferred, self.slow = deferred, slow
        self.log = self.later = b""
        self.starts = 0
        self.questions = deque()
        self.result = self.failure = self.signer = self.cost = None

    def handle(self, ask):
        if self.deferred and not self.slow():
            self.log = self.later or self.log
        self.starts += 1
        rng = SeededRng(self.starts).child("log of", self.name)
        log = Log.from_bytes(self.log, KEY, rng=rng)
        durable = DurableRole(self.name, self.role, log, peers=self.peers, rng=rng)
        try:
            got = answer(durable, ask, deferred=self.deferred)
        except LogRolledBack as error:
            return Answer(self.name, failure=Failure.of(error))
        self.later = log.to_bytes()
        if not self.deferred:
            self.log = self.later
        self.failure, self.signer, self.cost = durable.failure, durable.signer, durable.cost
        if durable.ended and durable.failure is None:
            self.result = durable.result()
        durable.close()
        return got


class Engine:
    """A relay and its nodes, of `SeededRole`s by name, the server's last; a turn is a second.

    `asked` has whom the relay asked, in order, and `sent` all bytes by sender, receiver and number;
    a rebuilt role must send the same again. Nodes in `absent` answer nothing. An entry of `answers`
    is called with a question in place of its node.
    """

    def __init__(self, roles, seed=0, deferred=False, lossy=False, **limits):
        self.now = 0.0
        self.chance = random.Random(seed)
        self.lossy = lossy
        clients = tuple(name for name in roles if name != SERVER)
        self.nodes = {
            name: Node(name, roles[name], [p for p in roles if p != name], deferred, self.lost)
            for name in clients
        }
        self.answers = {}
        self.sent = {}
        self.absent = set()
        self.asked = []
        self.relay = Relay(
            DurableRole(SERVER, roles[SERVER], NoLog(), peers=clients, rng=SeededRng(seed)),
            clients,
            clock=lambda: self.now,
            **{"join": 50, "deadline": 2000 if lossy else 100, "total": 10_000, "retry": 5}
            | {"max_message": MAX}
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
            for name, node in self.nodes.items():
                if name not in came and self.now % 5 == 1:
                    node.questions.append(Ask())
            for name, ask in self.relay.due():
                self.asked.append(name)
                self.note(ask.items)
                if self.lossy and self.chance.random() < 0.2:
                    self.nodes[name].questions.append(ask)  # twice
                if not self.lost():
                    self.nodes[name].questions.append(over_the_wire(ask))
            for name, node in self.nodes.items():
                if name in self.absent:
                    node.questions.clear()
                elif node.questions:
                    self.take(self.answers.get(name, node.handle)(node.questions.popleft()))
            self.relay.turn()
        raise AssertionError(f"does not end: {self.relay.role.step}")

    def take(self, got):
        self.note(got.items)
        if not self.lost():
            self.relay.take(over_the_wire(got))

    def note(self, items):
        for item in items:
            place = (item.sender, item.receiver, item.number)
            assert self.sent.setdefault(place, item.payload) == item.payload

    def results(self):
        """Results of the clients whose roles have ended well, by name."""
        return {n: node.result for n, node in self.nodes.items() if node.result is not None}


def over_the_wire(message):
    header = header_of(message)
    payloads = [bytes(i.payload) for i in message.items]
    assert sizes_of(header, MAX) == [len(p) for p in payloads]
    decoded = (ask_from if isinstance(message, Ask) else answer_from)(header, payloads)
    assert decoded == message
    return decoded
