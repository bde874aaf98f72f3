"""The server's side of a secure mean in a Flower app: a grid for strategies, and a workflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.server.workflow.default_workflows import default_fit_workflow
from flwr.serverapp import Grid

from xclp_crypto.errors import DataError, DecodeError, FaultyPeer, ParameterError, XclpError
from xclp_crypto.flower.client import MAX_MESSAGE
from xclp_crypto.flower.records import APP, ROUND, Places, Round, arrays_of, under
from xclp_crypto.front import warn_if_two
from xclp_crypto.mean import mean_of
from xclp_crypto.params import DEADLINES_IN_ALL
from xclp_crypto.protocols.secure_sum import SecureSum
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.rng import SystemRng
from xclp_crypto.sum_plans import SumOptions, SumPlan, mean_terms
from xclp_crypto.transport.failures import Failure
from xclp_crypto.transport.flower.nodes import Nodes
from xclp_crypto.transport.flower.records import HEADER
from xclp_crypto.transport.log import NoLog
from xclp_crypto.transport.questions import Answer
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.supersteps import Relay
from xclp_crypto.updates import layout

FAREWELL_SECONDS: Final = 10.0
"""How long nodes are waited for that are told that a round failed."""

_logger = logging.getLogger("flwr")


@dataclass(frozen=True)
class RoundLimits:
    """How long the nodes of a round are waited for.

    Attributes:
        join: seconds in which they must have trained, if the app does not say.
        deadline: seconds in which one must answer from then on.
        retry: seconds after which one that has not answered is asked again.
        max_message: bytes of a message at most.
    """

    join: float = 3600.0
    deadline: float = 600.0
    retry: float = 600.0
    max_message: int = MAX_MESSAGE


class SecureMeanGrid(Grid):  # type: ignore[misc] # Flower is not there when types are checked
    """A grid that gives a strategy the mean of updates in place of each of them.

    ``strategy.start(SecureMeanGrid(grid), …)``: of what TRAIN messages return, the strategy sees
    from each node that stayed its metrics, the mean of all of them in place of its arrays, and an
    equal part of the sum of weights in place of its weight; from each other node an error. All
    other messages pass as they are. Nodes have `xclp_crypto.flower.client.SecureMeanMod`.

    Args:
        grid: Flower's.
        options: the same as the clients'.
        identities: the server's key, and the identities that it pins, by node id; see the mod.
        limits: see there.
        clock: seconds of a clock that only goes forward.
        sleep: waits so many seconds of that clock.

    Raises:
        ParameterError: an argument of another type.
    """

    def __init__(
        self,
        grid: Grid,
        options: SumOptions | None = None,
        *,
        identities: Identities | None = None,
        limits: RoundLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not isinstance(grid, Grid):
            raise ParameterError(f"grid must be Flower's Grid, got {type(grid).__name__}")
        if not isinstance(identities, Identities | None):
            raise ParameterError(f"identities must be Identities, got {type(identities).__name__}")
        if not isinstance(limits, RoundLimits | None):
            raise ParameterError(f"limits must be RoundLimits, got {type(limits).__name__}")
        self._grid = grid
        self._options = SumOptions.of(options, tell=False)
        self._identities = identities
        self._limits = limits or RoundLimits()
        self._clock, self._sleep = clock, sleep

    def set_run(self, run: Any) -> None:
        """See Flower's."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """See Flower's."""
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """See Flower's."""
        return self._grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Any:
        """See Flower's."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Any:
        """See Flower's."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Any:
        """See Flower's."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Any:
        """See Flower's."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies; those to TRAIN messages as the class says.

        Args:
            messages: to nodes.
            timeout: seconds in which nodes must have trained, or answered other messages.

        Raises:
            DataError: the arrays that are sent are not an update.
            ParameterError: a round has too few nodes, or other messages in it.
        """
        asked = list(messages)
        kinds = {message.metadata.message_type.split(".")[0] for message in asked}
        if MessageType.TRAIN not in kinds:
            replies: Iterable[Message] = self._grid.send_and_receive(asked, timeout=timeout)
            return replies
        if len(kinds) > 1:
            raise ParameterError("messages that train and others cannot be sent together")
        return self._trained(asked, timeout)

    def _trained(self, asked: Sequence[Message], timeout: float | None) -> list[Message]:
        """Run one round; return a reply to each message."""
        instructions = {str(message.metadata.dst_node_id): message for message in asked}
        if len(instructions) < len(asked):
            raise ParameterError("a node can train once in a round")
        template = arrays_of(asked[0].content)
        plan = SumPlan(tuple(instructions), *mean_terms(layout(template, SERVER), self._options))
        warn_if_two(len(plan.clients), server_learns=True)
        durable = DurableRole(
            SERVER,
            plan.server_role(self._identities),
            NoLog(),
            peers=plan.clients,
            progress=lambda now: _logger.debug("%s: %s", now.step, now.activity),
        )
        limits = self._limits
        relay = Relay(
            durable,
            plan.clients,
            join=limits.join if timeout is None else timeout,
            deadline=limits.deadline,
            total=DEADLINES_IN_ALL * limits.deadline,
            retry=limits.retry,
            max_message=limits.max_message,
            clock=self._clock,
        )
        nodes = _Nodes(
            self._grid,
            relay,
            limits.retry,
            limits.max_message,
            self._clock,
            self._sleep,
            instructions=instructions,
            round=Round(SystemRng().bytes(16).hex(), plan.clients, plan.agreement.encode()),
        )
        try:
            nodes.carry()
            if relay.failure is not None:
                nodes.end(relay.told, FAREWELL_SECONDS)
                raise relay.failure
            found: SecureSum = durable.result()
            return _replies(nodes, found, template, plan)
        except XclpError as error:
            _logger.error("there is no secure mean of this round: %s", error)
            return [_error(message, "there is no secure mean") for message in asked]
        finally:
            durable.close()


def _replies(
    nodes: _Nodes, found: SecureSum, template: Mapping[str, Any], plan: SumPlan
) -> list[Message]:
    """Return what the strategy sees in place of the nodes' replies."""
    survivors, dropouts = found.record.survivors, found.record.dropouts
    faulty = partial(FaultyPeer, survivors)
    mean, weight, error = mean_of(found.total, template, plan.codec, faulty)
    _logger.info(
        "secure mean of %d nodes, weights %g in all, off by at most %.2g (%d bytes down, %d up)",
        len(survivors),
        weight,
        error,
        nodes.pushed,
        nodes.pulled,
    )
    replies = []
    for name, message in nodes.instructions.items():
        if name in survivors:
            places, rest = nodes.rests[name]
            content = places.filled(rest, mean, weight / len(survivors))
            replies.append(Message(content, reply_to=message))
        else:
            reason = nodes.relay.role.reasons.get(name)
            why = f": {reason.text}" if reason is not None and reason.text else ""
            step = dropouts.get(name, "setup")
            replies.append(_error(message, f"dropped out before the end of {step!r}{why}"))
    return replies


def _error(message: Message, reason: str) -> Message:
    return Message(Error(0, reason), reply_to=message)


@dataclass(eq=False, repr=False)
class _Nodes(Nodes):
    """The nodes of one round, each of which is the client that is called by its id.

    Attributes:
        instructions: by client, what the app asks it.
        round: which one it is.
        rests: by client, what it shows of its reply.
    """

    instructions: Mapping[str, Message] = field(kw_only=True)
    round: Round = field(kw_only=True)
    rests: dict[str, tuple[Places, RecordDict]] = field(default_factory=dict, kw_only=True)

    def candidates(self) -> set[int]:
        """Return the nodes of the round, there or not: Flower says which cannot be reached."""
        return set(map(int, self.instructions))

    def message(self, node: int, content: RecordDict, greeting: bool) -> Message:
        """Return a question in a message like the app's, and with it while it may not have come."""
        given = self.instructions[str(node)]
        records = {**content, ROUND: self.round.record()}
        if greeting:
            records |= under(APP, given.content)
        return Message(
            RecordDict(records),
            dst_node_id=node,
            message_type=given.metadata.message_type,
            group_id=given.metadata.group_id,
        )

    def answer_in(self, content: RecordDict) -> Answer:
        """See `Nodes.answer_in`; most often a node that answers something else lacks the mod."""
        if HEADER not in content:
            raise DecodeError(
                "its app has no SecureMeanMod, and what it returned was in the clear: give the mod "
                "first, in ClientApp(mods=[SecureMeanMod(), …])",
                public=True,
            )
        return super().answer_in(content)

    def admit(self, node: int, answer: Answer, content: RecordDict) -> None:
        """Take the rest of a node's reply.

        Raises:
            DecodeError: it has a name that is not its own, or nothing to put the mean into.
        """
        if answer.name != str(node):
            raise DecodeError(f"node {node} calls itself {answer.name!r}", public=True)
        if answer.failure is None:
            self.rests[answer.name] = Places.of(content)

    def failed(self, node: int, error: Error, pause: float) -> None:
        """Go on without a node that could not be reached or did not train."""
        self.refuse(node, None, DataError(f"did not train: {error.reason}"[:500], public=True))

    def refuse(self, node: int, name: str | None, error: XclpError) -> None:
        """Take nothing more from a node; if it has not come yet, go on without it."""
        super().refuse(node, name, error)
        if name is None:
            self.relay.take(Answer(str(node), failure=Failure.of(error)))


class SecureMeanWorkflow:
    """A round of training that gives the strategy the mean of updates in place of each of them.

    ``DefaultWorkflow(fit_workflow=SecureMeanWorkflow())``; see `SecureMeanGrid`, whose arguments
    these are.

    Args:
        options: the same as the clients'.
        identities: see there.
        limits: see there.

    Raises:
        ParameterError: the options are something else.
    """

    def __init__(
        self,
        options: SumOptions | None = None,
        *,
        identities: Identities | None = None,
        limits: RoundLimits | None = None,
    ) -> None:
        self._options = SumOptions.of(options)
        self._identities, self._limits = identities, limits

    def __call__(self, grid: Grid, context: Any) -> None:
        """Run a round, as Flower's workflow for it does.

        Args:
            grid: Flower's.
            context: a ``LegacyContext``.

        Raises:
            XclpError: see `SecureMeanGrid.send_and_receive`.
        """
        secure = SecureMeanGrid(
            grid, self._options, identities=self._identities, limits=self._limits
        )
        default_fit_workflow(secure, context)
