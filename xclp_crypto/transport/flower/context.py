"""What a node keeps of its role between two of Flower's messages."""

from __future__ import annotations

import logging
from typing import Final

from flwr.app import ConfigRecord, RecordDict

from xclp_crypto.errors import XclpError
from xclp_crypto.rng import SystemRng
from xclp_crypto.transport.log import Log, LogKey

CONTEXT: Final = "xclp"
"""Name of the record in the context."""

_logger = logging.getLogger("flwr")


class Unsaid:
    """Ends in an error without text for what is raised inside: Flower sends it to the server."""

    def __enter__(self) -> None:
        """See the class."""

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        """See the class.

        Raises:
            XclpError: whatever was raised inside, by its kind alone.
        """
        if kind is not None:
            _logger.error("the question is not answered", exc_info=error)
            raise XclpError(kind.__name__) from None


class InContext:
    """The log of a session in Flower's context of the node.

    Args:
        state: of the context.
        session: which one; what is kept of another is not taken.

    Attributes:
        session: see above.
        deferred: whether the log is kept only after the answer has left.
    """

    deferred = True

    def __init__(self, state: RecordDict, session: str) -> None:
        self.session = session
        self._state = state
        self._key = self._kept("key") or SystemRng().bytes(32)

    def _kept(self, field: str) -> bytes:
        """Return what is kept of this session; the context outlives sessions."""
        record = self._state.config_records.get(CONTEXT, {})
        value = record.get(field) if record.get("session") == self.session else None
        return value if isinstance(value, bytes) else b""

    def open(self) -> Log:
        """Open the log, or make an empty one."""
        return Log.from_bytes(self._kept("log"), LogKey(self._key))

    def keep(self, log: Log) -> None:
        """Keep what the log has."""
        self._state[CONTEXT] = ConfigRecord(
            {"session": self.session, "key": self._key, "log": log.to_bytes()}
        )

    def forget(self) -> None:
        """Remove the log; that of another session stays."""
        if self._kept("log"):
            del self._state[CONTEXT]
