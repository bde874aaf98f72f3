"""The ServerApp: runs the server's role, and hands messages on between the nodes.

It asks every node that it sees who it is. Then each client is asked whenever there is something for
it: messages of the server or of other clients, or that others are given up. See
`xclp_crypto.transport.supersteps`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.params import DEADLINES_IN_ALL
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.transport.failures import Code, Failure, Reason
from xclp_crypto.transport.log import NoLog
from xclp_crypto.transport.questions import Answer, Ask
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.supersteps import Relay
from xclp_lp.dropouts import with_reasons
from xclp_lp.files.results import write_server_record
from xclp_lp.flower.records import bytes_of, pack, unpack_answer
from xclp_lp.flower.settings import RunSettings
from xclp_lp.labelling import Participation
from xclp_lp.session import server_role
from xclp_lp.summary import dropout_lines, restart_line, two_left_line

POLL_SECONDS: Final = 0.2
"""Between two looks for answers."""

PAUSE_SECONDS: Final = 3.0
"""Before a node is asked again that could not be reached, or whose app crashed; after each further
crash twice as long. A machine with so much to do that its app cannot start must not get more."""

_logger = logging.getLogger("flwr")  # whose lines Flower shows to whoever started the run


def server_app() -> ServerApp:
    """Return the ServerApp; its run's configuration is that of `RunSettings`."""
    app = ServerApp()
    app.main()(_main)
    return app


def _main(grid: Grid, context: Context) -> None:
    run(grid, RunSettings.of(context.run_config))


def run(
    grid: Grid,
    settings: RunSettings,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Participation:
    """Run a session with the nodes of a grid.

    Args:
        grid: of Flower.
        settings: of the run.
        clock: seconds of a clock that only goes forward.
        sleep: waits so many seconds of that clock.

    Raises:
        ParameterError: identities are missing or cannot be used, or what the server writes cannot
            be written.
        XclpError: the server's role failed.
    """
    pinned = settings.read_identities()
    output = settings.require_output()

    async def role(io: RoleIO, rng: Rng) -> Participation:
        return await server_role(io, settings.params, settings.clients, rng, pinned)

    warnings = partial(settings.warnings, settings.clients, identities=pinned is not None)
    for caution in warnings():
        _logger.warning("caution: %s", caution)
    durable = DurableRole(
        SERVER,
        role,
        NoLog(),
        peers=settings.clients,
        progress=lambda now: _logger.info("%s: %s", now.step, now.activity),
    )
    relay = Relay(
        durable,
        settings.clients,
        join=settings.join,
        deadline=settings.deadline,
        total=settings.total or DEADLINES_IN_ALL * settings.deadline,
        retry=settings.retry,
        max_message=settings.max_message,
        clock=clock,
    )
    nodes = _Nodes(grid, relay, settings, clock, sleep)
    step = ""
    while not relay.done:
        nodes.look()
        nodes.pull()
        relay.turn()
        if durable.step != step and not durable.ended:
            step = durable.step
            _logger.info("step %s: waiting for clients", step)
        for name, ask in relay.due():
            nodes.ask(name, ask)
        sleep(POLL_SECONDS)
    failure = relay.failure
    nodes.end(relay.told)
    durable.close()
    if failure is not None:
        if line := restart_line(failure, settings.clients, "the run's configuration"):
            failure.add_note(line)
            _logger.error("%s", line)
        raise failure
    found: Participation = durable.result()
    found = replace(found, dropouts=with_reasons(found.dropouts, durable.reasons))
    if output is not None:
        record = found, durable.cost, warnings(found.contributors)
        for file in write_server_record(output, *record):
            _logger.info("%s is written", file)
    for line in (*dropout_lines(found.dropouts), *two_left_line(found.contributors)):
        _logger.warning("%s", line)
    if found.unvalidated is not None:
        _logger.warning("%s", found.unvalidated)
    _logger.info(
        "%d bytes to the nodes, %d from them; the server's own messages have %d",
        nodes.pushed,
        nodes.pulled,
        durable.cost.sent_by(SERVER),
    )
    _logger.info("labels of %s were counted", ", ".join(found.contributors))
    return found


@dataclass(eq=False, repr=False)
class _Nodes:
    """The nodes of a grid: which client each is, and what it was asked."""

    grid: Grid
    relay: Relay
    settings: RunSettings
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

    def look(self) -> None:
        """Ask nodes who they are that have not said so."""
        self._online = set(self.grid.get_node_ids())
        now = self.clock()
        for node in self._online - self._names.keys() - self._refused:
            if now >= self._greeted.get(node, now):
                self._greeted[node] = now + self.settings.retry
                self._push(node, Ask())

    def ask(self, name: str, ask: Ask) -> None:
        """Ask a client, if its node is there."""
        node = next((n for n, other in self._names.items() if other == name), None)
        if node is None or node not in self._online or not self._push(node, ask):
            self.relay.lost(name, PAUSE_SECONDS)

    def _push(self, node: int, ask: Ask) -> bool:
        content = pack(ask)
        self.pushed += bytes_of(content)
        question = Message(content, dst_node_id=node, message_type=MessageType.QUERY)
        pushed = [i for i in self.grid.push_messages([question]) if i]
        self._asked.update(dict.fromkeys(pushed, node))
        return bool(pushed)

    def pull(self) -> None:
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
            pause = min(PAUSE_SECONDS * 2**crashes, self.settings.retry)
            if name is None:
                self._greeted[node] = self.clock() + pause
            else:
                self.relay.lost(name, pause)
            return
        self._crashes.pop(node, None)
        if node in self._refused:
            return
        try:
            self.pulled += bytes_of(reply.content)
            answer = unpack_answer(reply.content, self.settings.max_message, SERVER)
            del reply
            if name is None:
                self._name(node, answer)
            elif answer.name != name:
                raise ParameterError(
                    f"it called itself {name!r} before, and {answer.name!r} now", public=True
                )
            self.relay.take(answer)
        except (DecodeError, ParameterError) as error:
            _logger.warning("node %d is refused: %s", node, error.public())
            if name is not None:
                self.relay.role.note_reason(name, Reason(Code.FAULTY, error.public()))
            self._refused.add(node)
            if name is not None:
                del self._names[node]

    def _name(self, node: int, answer: Answer) -> None:
        """Note which client a node is.

        Raises:
            ParameterError: another node is that client, and this one has not its log.
        """
        before = [n for n, other in self._names.items() if other == answer.name]
        if answer.name in self.relay.clients and before:
            instance = self.relay.instance_of(answer.name)
            if not instance or instance != answer.instance:
                raise ParameterError(f"another node is {answer.name!r} already", public=True)
            del self._names[before[0]]
        self._names[node] = answer.name

    def end(self, failure: Failure | None) -> None:
        """Tell the nodes that the session is over, and why, so that they forget secrets."""
        self._asked.clear()
        self.look()
        for node in self._online & self._names.keys():
            self._push(node, Ask(end=True, failure=failure))
        until = self.clock() + self.settings.retry
        while self._asked and self.clock() < until:
            for question in list(self._asked):
                if list(self.grid.pull_messages([question])):
                    del self._asked[question]
            self.sleep(POLL_SECONDS)
