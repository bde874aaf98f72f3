"""The exception tree: what went wrong, and who is to blame.

Local misuse (`ParameterError`, `DataError`, `ReuseError`) and remote fault (`DecodeError`,
`ProtocolError` and its children) are different kinds. Messages name the value, the limit and
what to do; they never contain a secret. They are for whoever runs the party that raised them, and
may quote cells, labels, ids and paths; others are told `XclpError.public` only.
"""

from __future__ import annotations


class XclpError(Exception):
    """Base of every error that xclp raises on purpose.

    Args:
        args: the message.
        public: whether others may be told the message: it has names of parties, parameters of the
            session and sizes that all know, and nothing of anybody's data or machine.
    """

    def __init__(self, *args: object, public: bool = False) -> None:
        super().__init__(*args)
        self._is_public = public

    def public(self, step: str = "") -> str:
        """Return what is sent to others and logged of them: type, step and parties.

        Args:
            step: in which it was raised, where that is known.
        """
        return str(self) if self._is_public else self._outline(step)

    def _outline(self, step: str) -> str:
        kind = next(k for k in type(self).__mro__ if k.__module__ == __name__)
        return f"{kind.__name__}{_in(step)}"


def _in(step: str) -> str:
    return f" in step {step!r}" if step else ""


class ParameterError(XclpError, ValueError):
    """A parameter is out of range or two parameters contradict each other."""


class OtherParameters(ParameterError):
    """Another party has other parameters, and all must have the same; names the fields."""


class DataError(XclpError, ValueError):
    """The caller's own data cannot be used; names the client and, where known, the row."""


class EncodingOverflow(DataError):
    """A value, or a sum of as many values as there are parties, would not fit the ring."""


class ReuseError(XclpError):
    """Something that may be used once (a key, a domain tag, a session) was used again."""


class DecodeError(XclpError, ValueError):
    """Bytes do not decode to the message, element or value that they should be."""


class ProtocolError(XclpError):
    """Another party did not do its part; subclasses say which one."""


class FaultyPeer(ProtocolError):
    """A party sent something that no honest party sends.

    Attributes:
        parties: the names of the parties of which at least one is at fault.
    """

    def __init__(self, party: str | tuple[str, ...], reason: str, *, public: bool = False) -> None:
        self.parties: tuple[str, ...] = (party,) if isinstance(party, str) else party
        self.reason = reason
        super().__init__(f"{' or '.join(self.parties)} {self.suffix}: {reason}", public=public)

    def _outline(self, step: str) -> str:
        return f"{' or '.join(self.parties)} {self.suffix}{_in(step)}"

    suffix = "did not follow the protocol"


class FaultyPeerOrServer(FaultyPeer):
    """Like `FaultyPeer`, but the relaying server could have caused it as well."""

    suffix = "(or the server that relays its messages) did not follow the protocol"


class TooFewParties(ProtocolError):
    """Fewer parties are left than the protocol needs.

    Attributes:
        step: the step in which they were missing.
        present: how many answered.
        needed: how many would have to.
        missing: those that did not, as far as that is known.
    """

    def __init__(
        self,
        step: str,
        present: int,
        needed: int,
        reason: str = "",
        missing: tuple[str, ...] = (),
    ) -> None:
        self.step, self.present, self.needed, self.missing = step, present, needed, missing
        without = f", without {', '.join(missing)}" if missing else ""
        super().__init__(
            f"step {step!r}: {present} of the parties answered and {needed} are needed{without}"
            f"{f' ({reason})' if reason else ''}; nothing was revealed",
            public=True,
        )


class Stalled(ProtocolError):
    """A party waits for a message that will not come."""

    def __init__(
        self,
        party: str,
        step: str,
        waiting_for: tuple[str, ...],
        expected: str,
        reason: str = "",
        where: str = "",
    ) -> None:
        self.party, self.step, self.waiting_for = party, step, waiting_for
        super().__init__(
            f"{party} stalled in step {step!r}: no {expected} from {', '.join(waiting_for)}"
            f"{f', {where}' if where else ''}{f'; {reason}' if reason else ''}",
            public=True,
        )


class Excluded(ProtocolError):
    """The server went on without this party, which was too late or lost a message.

    Attributes:
        party: this one.
        step: in which.
        missing: those of which nothing came in time, so that it was late.
    """

    def __init__(self, party: str, step: str, missing: tuple[str, ...] = ()) -> None:
        self.party, self.step, self.missing = party, step, missing
        why = f"nothing came in time from {', '.join(missing)}" if missing else "it was too late"
        super().__init__(
            f"{party} was excluded in step {step!r}: the server went on without it; {why}",
            public=True,
        )


class Endless(XclpError):
    """A run did not end within the number of operations that it was allowed.

    A driver ends every wait, so waiting never loops by itself. What does: a role that sends or
    computes in a loop, or that gathers again and again although every wait runs into its deadline.
    A loop inside one computation, or without an `await`, cannot be noticed.

    Attributes:
        operations: by party, how many operations it performed.
    """

    def __init__(self, operations: dict[str, int], limit: int) -> None:
        self.operations, self.limit = operations, limit
        counts = ", ".join(f"{party} {count}" for party, count in operations.items())
        super().__init__(f"the run exceeds {limit} operations: {counts}")


class StorageError(XclpError):
    """A file that a run needs cannot be written, for example because the disk is full."""


class LogError(XclpError):
    """A durable log cannot be used: damaged, of another version, key or session, or in use."""


class LogInUseError(LogError):
    """Another program has a log open; it can be used once that program has ended."""


class LogRolledBack(LogError):
    """A log is older than what its party has sent: an earlier copy of it was restored.

    A role that goes on from there would use its randomness again, with other messages.

    Attributes:
        parties: who says so, if it is not a file: it is at fault if the log is the newest one.
    """

    def __init__(
        self, message: str, *, public: bool = False, parties: tuple[str, ...] = ()
    ) -> None:
        self.parties = parties
        super().__init__(message, public=public)


class ReplayError(LogError):
    """A role that is rebuilt from its log does other things than it did before.

    What it would send now must not leave: a sealed channel would use a nonce for a second message.
    """


class NetworkError(XclpError):
    """A connection cannot be made or cannot be used; subclasses say why."""


class Unreachable(NetworkError):
    """Nobody answers at the other end, or nobody does any more."""


class AddressInUse(NetworkError):
    """The address to listen on is taken, or is none of this machine's."""


class CertificateRefused(NetworkError):
    """A certificate is of another authority, has expired, or does not fit its key."""


class WrongServer(NetworkError):
    """Whoever answers has a certificate for another name."""


class VersionMismatch(NetworkError):
    """The other program speaks another version of the protocol, or another one altogether."""

    def public(self, step: str = "") -> str:
        """See `XclpError.public`; the message is about bytes of the protocol."""
        return str(self)


class AccuracyWarning(UserWarning):
    """The computation is right, but its result is coarser than the user may expect."""


class PrivacyWarning(UserWarning):
    """The computation is right, but reveals more than the user may expect."""
