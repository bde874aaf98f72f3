"""The client's side of a secure mean in a Flower app: a mod."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from flwr.app import Context, Message, MessageType, RecordDict
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import DataError, FaultyPeer, LogError, ParameterError, XclpError
from xclp_crypto.flower.records import (
    APP,
    Places,
    Round,
    arrays_of,
    found_under,
    under,
)
from xclp_crypto.mean import Clipped, clip, require_bounds, weighted
from xclp_crypto.protocols.boolean.words import require_integer
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.sum_plans import SumOptions, SumPlan, mean_terms
from xclp_crypto.transport.failures import Failure
from xclp_crypto.transport.flower.context import InContext, Unsaid
from xclp_crypto.transport.flower.records import pack, unpack_ask
from xclp_crypto.transport.questions import Answer, Ask
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.supersteps import answer
from xclp_crypto.updates import Leaf, floats_of, layout, require_same_layout, to_vector

KEPT: Final = "xclp.kept."
"""Begins the names of the reply's records in the context."""

MAX_MESSAGE: Final = 1 << 30
"""Bytes of a message at most, where nothing else is said."""

LEGACY_WEIGHT: Final = "num_examples"
"""The weight's name in the replies of a ``Client`` or ``NumPyClient``."""

_logger = logging.getLogger("flwr")

Train = Callable[[Message, Context], Message]


class SecureMeanMod:
    """Lets the server see of what an app's training returns only the mean with other clients.

    Give it first, in ``ClientApp(mods=[SecureMeanMod(), …])``, so that mods after it still see the
    update. It takes the arrays and the weight out of each reply to a TRAIN message; other metrics,
    and messages of other types, pass as they are. It answers nobody but a server that runs
    `xclp_crypto.flower.server`.

    Args:
        options: the same as the server's.
        clip_value: see `xclp_crypto.secure_mean`; the node's log says what was clipped.
        clip_norm: the same.
        weighted_by: the weight's name among the reply's metrics, as the strategy calls it.
        identities: returns this node's key and the identities that it pins, by node id and for
            "server". None trusts the server with the update, since it could sit between any two
            clients.
        max_message: bytes of a message at most.

    Raises:
        ParameterError: an argument of another type, or out of range.
    """

    def __init__(
        self,
        options: SumOptions | None = None,
        *,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        weighted_by: str = "num-examples",
        identities: Callable[[Context], Identities] | None = None,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        self._options = SumOptions.of(options, tell=False)
        require_bounds(clip_value, clip_norm)
        if not isinstance(weighted_by, str):
            raise ParameterError(
                f"weighted_by must be the name of a metric, got {type(weighted_by).__name__}"
            )
        if identities is not None and not callable(identities):
            raise ParameterError(
                "identities must be a function that takes a Context and returns Identities, got "
                f"{type(identities).__name__}"
            )
        self._clip_value, self._clip_norm = clip_value, clip_norm
        self._weights = (weighted_by, LEGACY_WEIGHT)
        self._identities = identities
        self._max_message = require_integer("max_message", max_message, 1)

    def __call__(self, message: Message, context: Context, call_next: Train) -> Message:
        """Answer a message; see the class.

        Raises:
            XclpError: of which the server hears the kind alone.
        """
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        with Unsaid():
            return self._replied(message, context, call_next)

    def _replied(self, message: Message, context: Context, train: Train) -> Message:
        content, name = message.content, str(context.node_id)
        now = Round.of(content)
        ask = unpack_ask(content, self._max_message)
        kept = _Kept(context.state, now.session)
        message.content = found_under(APP, content)
        if ask.end:
            if ask.failure is not None:
                heard = ask.failure.heard("the server", (*now.clients, SERVER))
                _logger.error("the secure mean failed: %s", heard)
            kept.forget()
            return Message(pack(Answer(name, ended=True)), reply_to=message)
        try:
            shown = RecordDict()
            if message.content:
                if kept.reply is None:
                    expected = layout(arrays_of(message.content), SERVER)
                    self._plan(now, expected)
                    reply = train(message, context)
                    if reply.has_error():
                        return reply
                    self._keep(kept, reply.content, expected, name)
                shown = self._places(kept).without(kept.trained)
            got = self._taken_further(now, kept, ask, name, context)
            return Message(RecordDict({**pack(got), **shown}), reply_to=message)
        except XclpError as error:
            _logger.error("this node takes no part in the secure mean: %s", error)
            kept.forget()
            return Message(pack(Answer(name, failure=Failure.of(error))), reply_to=message)

    def _keep(self, kept: _Kept, reply: RecordDict, expected: tuple[Leaf, ...], name: str) -> None:
        """Keep what training returned, if it can be averaged with what others return."""
        status = reply.config_records.get("fitres.status", {})
        if status.get("code", 0):
            raise DataError(f"fit says {status.get('message')!r}")
        require_same_layout(layout(arrays_of(reply), name), expected, name, SERVER)
        kept.start(reply)
        _, clipped = self._clipped(kept, name)
        if clipped is not None:
            _logger.warning(
                "the update was clipped: %d values, and all of it by the factor %.6g",
                clipped.values,
                clipped.factor,
            )

    def _plan(self, now: Round, leaves: tuple[Leaf, ...]) -> SumPlan:
        """Return this node's plan of a round.

        Raises:
            ParameterError: the server's is another, as a rule because of other options.
        """
        plan = SumPlan(now.clients, *mean_terms(leaves, self._options))
        try:
            plan.agreement.require_same(now.agreement, SERVER)
        except FaultyPeer as error:
            raise ParameterError(error.reason, public=True) from None
        return plan

    def _places(self, kept: _Kept) -> Places:
        return Places.in_reply(kept.trained, self._weights)

    def _clipped(self, kept: _Kept, name: str) -> tuple[NDArray[Any], Clipped | None]:
        update = arrays_of(kept.trained)
        floats = floats_of(layout(update, name))
        return clip(to_vector(update, name), self._clip_value, self._clip_norm, floats)

    def _taken_further(
        self, now: Round, kept: _Kept, ask: Ask, name: str, context: Context
    ) -> Answer:
        """Rebuild the client's role, give it what came, and keep its log."""
        leaves = layout(arrays_of(kept.trained), name)
        plan = self._plan(now, leaves)
        vector, _ = self._clipped(kept, name)
        weight = self._places(kept).weight_in(kept.trained)
        values = weighted(vector, weight, name, leaves, plan.codec)
        plan.check(name, values)
        identities = None if self._identities is None else self._identities(context)
        with closing(kept.log.open()) as log:
            durable = DurableRole(
                name,
                plan.client_role(values, identities),
                log,
                peers=[p for p in (*plan.clients, SERVER) if p != name],
                binding=domain_tag("flower mean", now.session, plan.agreement.encode()),
            )
            with closing(durable):
                got = answer(durable, ask, deferred=kept.log.deferred)
                kept.log.keep(log)
        if got.ended:
            kept.forget()
        return got


class _Kept:
    """What a node keeps of a round in Flower's context: the reply to be averaged, and the log.

    Args:
        state: of the context.
        session: of the round.

    Attributes:
        log: of the client's role.
        reply: what training returned, or None.
    """

    def __init__(self, state: RecordDict, session: str) -> None:
        self._state, self._session = state, session
        self.log = InContext(state, session)
        there = found_under(KEPT + session + ".", state)
        self.reply: RecordDict | None = there or None

    @property
    def trained(self) -> RecordDict:
        """Return what training returned.

        Raises:
            LogError: nothing is kept of this round.
        """
        if self.reply is None:
            raise LogError("nothing is kept of this round: it is over, or the node was restarted")
        return self.reply

    def start(self, reply: RecordDict) -> None:
        """Keep a reply, and none of another round."""
        self._remove(KEPT)
        self.reply = reply
        for name, record in under(KEPT + self._session + ".", reply).items():
            self._state[name] = record

    def forget(self) -> None:
        """Remove what is kept of this round."""
        self._remove(f"{KEPT}{self._session}.")
        self.log.forget()

    def _remove(self, prefix: str) -> None:
        for name in [name for name in self._state if name.startswith(prefix)]:
            del self._state[name]
