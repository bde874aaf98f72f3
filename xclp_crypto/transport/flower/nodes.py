"""Asks the nodes of a Flower grid for a server's role, and hands messages on between them.

Every node is asked who it is. Then each client is asked whenever there is something for it:
messages of the server or of other clients, or that others are given up. See
`xclp_crypto.transport.supersteps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from xclp_crypto.errors import DecodeError, ParameterError, XclpError
from xclp_crypto.transport.failures import Code, Failure, Reason
from xclp_crypto.transport.flower.records import bytes_of, pack, unpack_answer
from xclp_crypto.transport.questions import Answer, Ask
from xclp_crypto.transport.supersteps import Relay

POLL_SECONDS: Final = 0.2
"""Between two looks for answers."""

PAUSE_SECONDS: Final = 3.0
"""Before a node is asked again that could not be reached, or whose app crashed; after each further
crash twice as long. A machine with so much to do that its app cannot start must not get more."""

_logger = logging.getLogger("flwr")  # whose lines Flower shows to whoever started the run


@dataclass(eq=False, repr=False)
class Nodes:
    """The nodes of a grid: which client each is, and what it was asked.

    Attributes:
        grid: of Flower.
        relay: of the server's role.
        retry: seconds after which a node that has not said who it is is asked again.
        max_message: bytes of a message at most.
        clock: seconds of a clock that only goes forward.
        sleep: waits so many seconds of that clock.
        pushed: bytes to the nodes.
        pulled: bytes from the nodes.
    """

    grid: Grid
    relay: Relay
    retry: float
    max_message: int
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    pushed: int = 0
    pulled: int = 0
    _online: set[int] = field(default_factory=set)
    _greeted: dict[int, float] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _refused: set[int] = field(default_factory=set)
    _asked: dict[str, int] = field(default_factory=dict)
    _crashes: dict[int, int] = field(default_factory=dict)

    def carry(self) -> None:
        """Run the server's role with the nodes until all have ended, or the session failed."""
        role, step = self.relay.role, ""
        while not self.relay.done:
            self._look()
            self._pull()
            self.relay.turn()
            if role.step != step and not role.ended:
                step = role.step
                _logger.info("step %s: waiting for clients", step)
            for name, ask in self.relay.due():
                self._ask(name, ask)
            self.sleep(POLL_SECONDS)

    def end(self, failure: Failure | None, seconds: float) -> None:
        """Tell the nodes that the session is over, and why, so that they forget secrets.

        Args:
            failure: why it is, if it failed.
            seconds: for which to wait for their answers.
        """
        self._asked.clear()
        self._online = set(self.grid.get_node_ids())
        for node in self._online & self._names.keys():
            self._push(node, Ask(end=True, failure=failure))
        until = self.clock() + seconds
        while self._asked and self.clock() < until:
            for question in list(self._asked):
                if list(self.grid.pull_messages([question])):
                    del self._asked[question]
            self.sleep(POLL_SECONDS)

    def candidates(self) -> set[int]:
        """Return the nodes to greet: those that are there."""
        return self._online

    def message(self, node: int, content: RecordDict, greeting: bool) -> Message:
        """Return a question as a message of Flower's.

        Args:
            node: whom it is for.
            content: the question.
            greeting: whether the node has not said yet who it is.
        """
        return Message(content, dst_node_id=node, message_type=MessageType.QUERY)

    def answer_in(self, content: RecordDict) -> Answer:
        """Read an answer, and count its bytes.

        Raises:
            DecodeError: it is none.
        """
        self.pulled += bytes_of(content)
        return unpack_answer(content, self.max_message, self.relay.role.name)

    def admit(self, node: int, answer: Answer, content: RecordDict) -> None:
        """Take what a node says first, or refuse it.

        Args:
            node: which one.
            answer: says who it is.
            content: what else is in the message.

        Raises:
            ParameterError: another node is that client, and this one has not its log.
        """
        before = [n for n, other in self._names.items() if other == answer.name]
        if answer.name in self.relay.clients and before:
            instance = self.relay.instance_of(answer.name)
            if not instance or instance != answer.instance:
                raise ParameterError(f"another node is {answer.name!r} already", public=True)
            del self._names[before[0]]

    def failed(self, node: int, error: Error, pause: float) -> None:
        """Hear that the app of a node crashed that has not said yet who it is.

        Args:
            node: which one.
            error: what Flower says of it.
            pause: seconds after which it should be asked again.
        """
        self._greeted[node] = self.clock() + pause

    def _look(self) -> None:
        """Ask nodes who they are that have not said so."""
        self._online = set(self.grid.get_node_ids())
        now = self.clock()
        for node in self.candidates() - self._names.keys() - self._refused:
            if now >= self._greeted.get(node, now):
                self._greeted[node] = now + self.retry
                self._push(node, Ask())

    def _ask(self, name: str, ask: Ask) -> None:
        """Ask a client, if its node is there."""
        node = next((n for n, other in self._names.items() if other == name), None)
        if node is None or node not in self._online or not self._push(node, ask):
            self.relay.lost(name, PAUSE_SECONDS)

    def _push(self, node: int, ask: Ask) -> bool:
        content = pack(ask)
        self.pushed += bytes_of(content)
        question = self.message(node, content, node not in self._names)
        pushed = [i for i in self.grid.push_messages([question]) if i]
        self._asked.update(dict.fromkeys(pushed, node))
        return bool(pushed)

    def _pull(self) -> None:
        """Take the answers that have come, one at a time, as they may be large."""
        for question, node in list(self._asked.items()):
            for reply in self.grid.pull_messages([question]):
                del self._asked[question]
                self._take(node, reply)

    def _take(self, node: int, reply: Message) -> None:
        name = self._names.get(node)
        if reply.has_error():
            crashes = self._crashes.get(node, 0)
            self._crashes[node] = crashes + 1
            pause = min(PAUSE_SECONDS * 2**crashes, self.retry)
            if name is None:
                self.failed(node, reply.error, pause)
            else:
                self.relay.lost(name, pause)
            return
        self._crashes.pop(node, None)
        if node in self._refused:
            return
        try:
            answer = self.answer_in(reply.content)
            if name is None:
                self.admit(node, answer, reply.content)
                self._names[node] = answer.name
            elif answer.name != name:
                raise ParameterError(
                    f"it called itself {name!r} before, and {answer.name!r} now", public=True
                )
            del reply
            self.relay.take(answer)
        except (DecodeError, ParameterError) as error:
            self.refuse(node, name, error)

    def refuse(self, node: int, name: str | None, error: XclpError) -> None:
        """Take nothing more from a node.

        Args:
            node: which one.
            name: of the client that it is, if it has said so.
            error: why.
        """
        _logger.warning("node %d is refused: %s", node, error.public())
        self._refused.add(node)
        if name is not None:
            self.relay.role.note_reason(name, Reason(Code.FAULTY, error.public()))
            del self._names[node]
