"""Parties that are killed and rebuilt from their logs, with messages handed over one by one."""

from collections import deque

import protocol_runs

from xclp_crypto.fields import Raw
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.log import Log, LogKey
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.wire import Message, sent

KEY = LogKey(bytes(range(32)))


class Blob(Message):
    """Any number of bytes, for tests of what carries them."""

    TAG = 0xFF51
    data: bytes = sent(Raw("n"))


def seedless(make):
    """Roles of a factory that has its randomness already."""
    return {name: lambda io, rng, name=name: make()[name](io) for name in make()}


def accusing(by, blame, *, pinned=True):
    """Roles of a, b, c, d and the server; when all know the keys, clients blame others, by name."""

    async def client(session, rng):
        io = session.io
        with io.step("sum"):
            await io.send(session.peers, Blob(b"x"))
            await io.gather(Blob, session.peers, n=1)
            if io.name in by:
                raise blame(by[io.name], "is wrong", public=True)
            await io.recv(Blob, SERVER, n=1)

    async def server(session, rng):
        await session.io.gather(Blob, session.clients, n=1)

    pins = protocol_runs.identities(("a", "b", "c", "d", SERVER)) if pinned else None
    return protocol_runs.with_session("abcd", client, server, identities=pins)()


def durable(name, role, peers, log=b"", seed=0):
    """The role, new or from the bytes of its log."""
    rng = SeededRng(seed).child("log of", name, len(log))
    return DurableRole(name, role, Log.from_bytes(log, KEY), peers=peers, rng=rng)


def started(name, role, peers, log=b""):
    """The role at its first wait, or its end."""
    party = durable(name, role, peers, log)
    party.run()
    return party


class Engine:
    """Runs durable roles of `roles`, by name, the server last; may rebuild them at any time.

    `sent` has all bytes by link, in order; a rebuilt role must send the same again.
    """

    def __init__(self, roles, seed=0):
        self.roles = roles
        self.seed = seed
        self.queues = {(a, b): deque() for a in roles for b in roles if a != b}
        self.sent = {link: [] for link in self.queues}
        self.parties = {}
        for name in roles:
            self.start(name)

    def start(self, name, log=b""):
        peers = [peer for peer in self.roles if peer != name]
        self.parties[name] = durable(name, self.roles[name], peers, log, self.seed)

    def rebuild(self, name):
        """Kill a party and rebuild it; what it had not logged is gone."""
        data = self.parties[name]._log.to_bytes()
        self.parties[name].close()
        self.start(name, data)
        self.deliver(name)

    def deliver(self, name):
        for out in self.parties[name].outgoing():
            sent = self.sent[name, out.to]
            if out.number < len(sent):
                assert sent[out.number] == out.payload, f"{name} sends other bytes to {out.to}"
                continue
            assert out.number == len(sent)
            sent.append(out.payload)
            self.queues[name, out.to].append((out.payload, out.depth))

    def turn(self):
        """Do one thing; return the party that did it, or None when nobody can."""
        for name, party in self.parties.items():
            if party.ready:
                party.advance()
                self.deliver(name)
                return name
            if party.waiting is not None:
                for sender in party.waiting.missing:
                    if self.queues[sender, name]:
                        party.feed(sender, *self.queues[sender, name].popleft())
                        return name
        waiting = [p for p in self.parties.values() if p.waiting is not None]
        if not waiting:
            return None
        gone = [p for p in waiting if all(self.parties[m].ended for m in p.waiting.missing)] or [
            p for p in waiting if not p.waiting.patient
        ]
        (gone or waiting)[0].give_up()
        return (gone or waiting)[0].name

    def run(self, after=lambda engine, name: None):
        """Run to the end; `after` is called after every turn."""
        while (name := self.turn()) is not None:
            after(self, name)
        return self

    def results(self):
        return {name: party.result() for name, party in self.parties.items()}
