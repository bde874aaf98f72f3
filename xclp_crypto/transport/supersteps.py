"""Parties that only answer: for engines in which a server asks, and clients are started anew.

::

    server                                                       client, started for each question
    Relay: its role, and what waits for whom
    Ask: messages for the client, how many of its own   ───────▶ rebuild the role from its log,
         have arrived, who is given up                           give it the messages, run it
                                        ◀─────────────── Answer: what it sends, what it has taken

A question may be lost, asked twice, or answered late: messages have numbers by sender and receiver,
so each is taken once, and what was not taken is sent again. Messages between clients go through the
relay, sealed by `SealedIO`.

*Secrets*: a role that is rebuilt from an older log would use the randomness again that it has used
before, for other messages. So a question says what the relay knows that the log must have, and a
client whose log lacks some of it answers that and nothing else. And nothing may leave before the
log is kept. `answer` does that in two
ways. Where the log is a file, it is on the disk before the answer is given. Where the log only
lives in what an engine keeps for the client *after* it has sent the answer (``deferred``), an
answer has only what an earlier question made, and says by `Answer.more` that it should be asked
again.

*Memory*: of what waits from one sender for one receiver, the relay takes a window (`WINDOW`,
`MESSAGES`), and asks for the rest when that one has taken all.

*Deadlines*, on the relay's clock: a client is given up that has not come `join` seconds after the
start, that has not answered for `deadline` seconds, or to whose answers it took `total` seconds in
all, whatever progress they made. What such a client sends later is taken all the same. A wait ends
when all that it lacks are given up, or when nobody at all can go on: then first waits of clients
for such clients as wait for the server and were silent, the server's last.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from time import monotonic

from xclp_crypto.errors import DecodeError, FaultyPeer, LogRolledBack, ParameterError, XclpError
from xclp_crypto.params import MAX_DEPTH, MESSAGES, WINDOW
from xclp_crypto.transport.failures import (
    Accusations,
    Code,
    Failure,
    Reason,
    printable,
    waits_to_end,
)
from xclp_crypto.transport.questions import Answer, Ask, Item
from xclp_crypto.transport.replay import DurableRole

_logger = logging.getLogger(__name__)


def _fills_window(sizes: Collection[int]) -> bool:
    """Return whether messages of these sizes fill a window."""
    return len(sizes) >= MESSAGES or sum(sizes) > WINDOW


def answer(role: DurableRole, ask: Ask, *, deferred: bool) -> Answer:
    """Give a role what it is asked with, and return what it has to say.

    Args:
        role: of the client, new or rebuilt.
        ask: the question; items that the role has are left out.
        deferred: whether the log is kept only after the answer has left.

    Raises:
        DecodeError: a message is from nobody of this session, or at an impossible depth.
        LogRolledBack: the log is older than what the relay has of the role.
        XclpError: the log cannot be written.
    """
    kept = dict(role.fed)
    lacks = any(
        role.fed[p] < ask.kept.get(p, 0) or role.sent[p] < ask.taken.get(p, 0) for p in kept
    )
    if lacks and not role.fresh:  # which starts with other randomness
        raise LogRolledBack(
            "its log was rolled back: it has not all that was sent and taken before", public=True
        )
    for party, reason in ask.gone.items():
        if reason is not None:
            role.note_reason(party, reason)
    leaving: list[Item] = []
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    held = False

    def collect() -> None:
        nonlocal held
        for sent in role.outgoing():
            if sent.number < ask.taken.get(sent.to, 0):
                continue
            if deferred and not sent.before:
                held = True
                continue
            if _fills_window(sizes[sent.to][:-1]):  # one more than fits, so that it is asked for
                continue
            sizes[sent.to].append(len(sent.payload))
            leaving.append(Item(role.name, sent.to, sent.number, sent.depth, sent.payload))

    def run() -> None:
        while role.ready:
            role.advance()
            collect()

    collect()
    run()
    whole = True
    for item in ask.items:
        if item.sender not in role.fed:
            raise DecodeError(f"a message is from {item.sender!r}, who is nobody here")
        if item.depth > MAX_DEPTH:
            raise DecodeError(f"a message at depth {item.depth}; at most {MAX_DEPTH} is possible")
        if role.ended or item.number < role.fed[item.sender]:
            continue
        if item.number > role.fed[item.sender]:
            whole = False  # an older log than the one that took what came before
            break
        role.feed(item.sender, item.whole, item.depth)
        run()
    while whole and (wait := role.waiting) is not None and set(wait.missing) <= ask.gone.keys():
        _logger.warning("given up: %s waits for %s", role.name, ", ".join(wait.missing))
        role.give_up()
        run()
    wait = role.waiting
    failure = None
    if role.failure is not None and not held:
        failure = Failure.of(role.failure, role.step, accusations=role.accusations)
    return Answer(
        name=role.name,
        instance=b"" if deferred and role.fresh else role.instance,
        items=tuple(leaving),
        fed=dict(role.fed),
        kept=kept if deferred else dict(role.fed),
        missing=() if wait is None else wait.missing,
        more=held,
        ended=role.ended and not held,
        failure=failure,
    )


@dataclass
class _Correspondent:
    """What the relay knows of one client."""

    queue: deque[Item] = field(default_factory=deque)
    taken: dict[str, int] = field(default_factory=dict)
    fed: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    instance: bytes = b""
    sent: dict[str, int] = field(default_factory=dict)  # to it, by sender
    moved: int = -1  # messages that it has sent, taken and kept, at best
    missing: tuple[str, ...] = ()
    came: bool = False
    more: bool = False
    gap: bool = False
    full: set[str] = field(default_factory=set)  # for whom it has more than waits here
    urged: bool = False  # others have more for it than waits here
    ended: bool = False
    failed: bool = False
    since: float | None = None  # when the oldest question without an answer was asked
    counted: float = 0.0  # until when the time of its answers is in `spent`
    spent: float = 0.0
    again: float = 0.0  # when to ask again
    tries: int = 0
    dropped_out: bool = False
    without: set[str] = field(default_factory=set)  # of whom nothing will come for it


class Relay:
    """The server's role, and what waits for whom; asks nobody itself.

    ::

        while not relay.done:
            for name, ask in relay.due(): …      # ask these clients, without waiting for them
            relay.take(answer)                   # for each answer that has come
            relay.turn()

    Args:
        role: of the server.
        clients: names of all clients.
        join: seconds after the start in which clients may come.
        deadline: seconds in which a client must answer, and make some progress.
        total: seconds that its answers may take in all.
        retry: seconds after which a client that has not answered is asked again; each time twice as
            many, as it may only be slow.
        max_message: bytes of a message at most.
        clock: seconds of a clock that only goes forward.
    """

    def __init__(
        self,
        role: DurableRole,
        clients: Sequence[str],
        *,
        join: float,
        deadline: float,
        total: float,
        retry: float,
        max_message: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        times = {"join": join, "deadline": deadline, "total": total, "retry": retry}
        for what, value in times.items():
            if not value > 0:
                raise ParameterError(f"{what} must be a positive number of seconds, got {value!r}")
        self.role = role
        self.clients = {name: _Correspondent() for name in clients}
        self._join, self._deadline, self._total, self._retry = join, deadline, total, retry
        self._max_message = max_message
        self._clock = clock
        self._start = clock()
        self._over = False
        self._accusations = Accusations(self.clients)
        self._blamed: XclpError | None = None
        self._run()

    @property
    def failure(self) -> XclpError | None:
        """Return why the session failed: a client blames others, or its own role failed."""
        return self._blamed or self.role.failure

    @property
    def told(self) -> Failure | None:
        """Return what clients are told of `failure`."""
        if self.failure is None:
            return None
        return Failure.of(self.failure, self.role.step, accusations=self._accusations.signed)

    @property
    def done(self) -> bool:
        """Return whether the server's role has ended, and all clients have or are given up.

        Or the session failed.
        """
        if self._blamed is not None:
            return True
        if not self.role.ended:
            return False
        if self.role.failure is not None:
            return True
        return all(c.ended or self._expired(c) for c in self.clients.values())

    def instance_of(self, name: str) -> bytes:
        """Return the instance of the role that a client has shown; empty before."""
        return self.clients[name].instance

    @property
    def present(self) -> tuple[str, ...]:
        """Return the clients that have come and have not failed."""
        return tuple(n for n, c in self.clients.items() if c.came and not c.failed)

    def take(self, got: Answer) -> None:
        """Take an answer; one that comes twice, or late, changes nothing that should not be.

        Raises:
            ParameterError: it is of no client of this session.
        """
        client = self.clients.get(got.name)
        if client is None:
            raise ParameterError(
                f"a node calls itself {got.name!r}, which is none of the clients "
                f"{', '.join(self.clients)}; correct its name, or the list of clients",
                public=True,
            )
        client.came = True
        if client.failed:
            return
        if client.since is not None:
            client.spent += self._clock() - client.counted
            client.counted = self._clock()
        if got.failure is None and client.instance and got.instance != client.instance:
            text = "has lost its log: it is another start of its role"
            self._fail(got.name, Reason(Code.LEFT, text))
            return
        if got.failure is not None:
            self._fail(got.name, Reason(Code.LEFT, printable(got.failure.text)))
            came = [name for name, other in self.clients.items() if other.came]
            self._blamed = self._accusations.add(got.name, got.failure, came) or self._blamed
            return
        client.instance = got.instance
        try:
            self._take_items(got, client)
        except FaultyPeer as error:
            self._fail(got.name, Reason(Code.FAULTY, printable(error.reason)))
            return
        client.fed, client.missing = dict(got.fed), got.missing
        client.kept |= {p: n for p, n in got.kept.items() if n > client.kept.get(p, 0)}
        client.more = got.more or client.gap
        client.ended = client.ended or (got.ended and not client.full)
        while client.queue and client.queue[0].number < got.kept.get(client.queue[0].sender, 0):
            client.queue.popleft()
        if got.ended:
            client.queue.clear()
        client.urged = client.urged and bool(client.queue)
        asked, client.since = client.since, None
        moved = sum(map(sum, (client.taken.values(), got.fed.values(), got.kept.values())))
        if moved <= client.moved and self._wants(got.name, client):
            # Its deadline goes on: an answer alone is not progress.
            client.since, client.again, client.tries = asked, self._clock(), 0
        if moved > client.moved:
            client.moved = moved
            client.without.clear()

    def _take_items(self, got: Answer, client: _Correspondent) -> None:
        client.gap = False
        client.full.clear()
        strange = any(n > client.sent.get(p, 0) for p, n in (*got.fed.items(), *got.kept.items()))
        if strange or not {*got.fed, *got.kept, *got.missing} <= {*self.clients, self.role.name}:
            raise FaultyPeer(got.name, "counts messages that nobody sent", public=True)
        for item in got.items:
            if item.sender != got.name:
                raise FaultyPeer(got.name, "sends in the name of another party", public=True)
            if len(item.payload) > self._max_message:
                raise FaultyPeer(
                    got.name,
                    f"sends a message of {len(item.payload)} bytes, and at most "
                    f"{self._max_message} are taken",
                    public=True,
                )
            if item.receiver not in {*self.clients, self.role.name} - {got.name}:
                raise FaultyPeer(
                    got.name, f"sends to {item.receiver!r}, who is nobody here", public=True
                )
            if item.depth > MAX_DEPTH:
                raise FaultyPeer(
                    got.name,
                    f"sends a message at depth {item.depth}, and at most {MAX_DEPTH} is possible",
                    public=True,
                )
            taken = client.taken.get(item.receiver, 0)
            if item.number != taken:  # it came before, or an answer before this one did not
                client.gap = client.gap or (
                    item.number > taken and item.receiver not in client.full
                )
                continue
            full = _fills_window(self._sizes_of(got.name, item.receiver))
            if full and not self._gone(item.receiver):
                client.full.add(item.receiver)
                if item.receiver != self.role.name:
                    self.clients[item.receiver].urged = True
                continue
            client.taken[item.receiver] = item.number + 1
            if item.receiver != self.role.name:
                if not full:
                    self._put(item)
            elif not self.role.ended:
                self.role.feed(item.sender, item.whole, item.depth)
                self._run()

    def _sizes_of(self, sender: str, receiver: str) -> list[int]:
        """Return the sizes of messages of a client that wait here for whom they are for."""
        if receiver == self.role.name:
            return self.role.sizes_of(sender)
        return [len(i.payload) for i in self.clients[receiver].queue if i.sender == sender]

    def _gone(self, receiver: str) -> bool:
        """Return whether nobody waits any more until a party takes what is for it."""
        if receiver == self.role.name:
            return self.role.ended
        return self._silent(self.clients[receiver])

    def _fail(self, name: str, reason: Reason) -> None:
        _logger.warning("%s takes no further part (%s): %s", name, reason.code, reason.text)
        self.role.note_reason(name, reason)
        self.clients[name].failed = True
        self.clients[name].queue.clear()

    def lost(self, name: str, pause: float) -> None:
        """Hear that a question did not reach a client, or that its answer is lost."""
        client = self.clients[name]
        if client.since is not None:
            client.again = min(client.again, self._clock() + pause)

    def turn(self) -> None:
        """Let the server's role go on, without those that are given up where it must."""
        if self._blamed is not None:
            return
        self._run()
        for name, client in self.clients.items():
            dropped_out = not client.ended and self._expired(client)
            if dropped_out and not client.dropped_out and not client.failed:
                slow = Reason(Code.SLOW, f"took more than {self._total:g} seconds in all")
                reason = slow if self._took(client) > self._total else Reason()
                _logger.warning("%s is given up: it %s", name, reason.text or "does not answer")
                self.role.note_reason(name, reason)
            client.dropped_out = dropped_out
        wait = self.role.waiting
        if wait is None:
            self._over = self._over or self._still()
            return
        hopeless = all(self._silent(self.clients[name]) for name in wait.missing)
        if hopeless or (self._still() and not self._end_waits_of_clients()):
            _logger.warning("given up in %s: %s", wait.step, ", ".join(wait.missing))
            self.role.give_up()
            self._run()

    def due(self) -> list[tuple[str, Ask]]:
        """Return the questions that are to be asked now; they count as asked."""
        now = self._clock()
        asks = []
        for name, client in self.clients.items():
            if client.failed or not self._wants(name, client):
                continue
            if client.since is not None and now < client.again:
                continue
            if client.since is None:
                client.since, client.counted, client.tries = now, now, 0
            client.again = now + self._retry * 2**client.tries
            client.tries += 1
            items = tuple(i for i in client.queue if i.number >= client.fed.get(i.sender, 0))
            # With an older log, a client would give up whose messages it had, and gets again.
            unsure = {i.sender for i in client.queue if i.number < client.fed.get(i.sender, 0)}
            gone = {n: why for n, why in self._gone_for(name).items() if n not in unsure}
            asks.append((name, Ask(items, dict(client.taken), gone, dict(client.kept))))
        return asks

    def _end_waits_of_clients(self) -> bool:
        """End waits of clients for clients where nobody can go on; return whether there are any."""
        waits = {
            name: {*client.missing} - client.without
            for name, client in self.clients.items()
            if self.role.name not in client.missing and not self._silent(client)
        }
        waits = {name: lacks for name, lacks in waits.items() if lacks}
        for name, lacks in waits_to_end(waits).items():
            self.clients[name].without.update(lacks)
        return bool(waits)

    def _wants(self, name: str, client: _Correspondent) -> bool:
        """Return whether there is something to ask a client."""
        if not client.came or client.ended:
            return False
        return (
            client.since is not None
            or client.more
            or client.urged  # to take what is here, or to keep it
            or any(self._gone(to) or not self._sizes_of(name, to) for to in client.full)
            or (self._over and not client.missing)  # it waits for nobody, and has to end
            or any(i.number >= client.fed.get(i.sender, 0) for i in client.queue)
            or (bool(client.missing) and set(client.missing) <= self._gone_for(name).keys())
        )

    def _gone_for(self, name: str) -> dict[str, Reason | None]:
        """Return of whom nothing more will come for this client, and why."""
        others = [(n, c) for n, c in self.clients.items() if n != name]
        gone = {n: self._reason(n) for n, c in others if self._over or self._silent(c)}
        without = dict.fromkeys(self.clients[name].without, Reason())
        return without | gone | ({self.role.name: None} if self.role.ended else {})

    def _reason(self, name: str) -> Reason | None:
        """Return why the others go on without a client, if they do."""
        return self.role.reasons.get(name, Reason()) if self._expired(self.clients[name]) else None

    def _silent(self, client: _Correspondent) -> bool:
        return client.ended or self._expired(client)

    def _expired(self, client: _Correspondent) -> bool:
        if client.failed:
            return True
        if not client.came:
            return self._clock() - self._start > self._join
        now = self._clock()
        late = client.since is not None and now - client.since > self._deadline
        return late or self._took(client) > self._total

    def _took(self, client: _Correspondent) -> float:
        """Return the seconds that the answers of a client took."""
        return client.spent + (0 if client.since is None else self._clock() - client.counted)

    def _still(self) -> bool:
        """Return whether everybody waits for somebody else."""
        return not any(
            not self._silent(c) and (not c.came or self._wants(name, c))
            for name, c in self.clients.items()
        )

    def _run(self) -> None:
        while self.role.ready:
            self.role.advance()
            for sent in self.role.outgoing():
                self._put(Item(self.role.name, sent.to, sent.number, sent.depth, sent.payload))

    def _put(self, item: Item) -> None:
        if len(item.payload) > self._max_message:
            raise ParameterError(
                f"a message of {len(item.payload)} bytes to {item.receiver} is longer than the "
                f"{self._max_message} that may be sent; raise max_message"
            )
        receiver = self.clients[item.receiver]
        receiver.sent[item.sender] = item.number + 1
        if not receiver.failed:
            receiver.queue.append(item)
