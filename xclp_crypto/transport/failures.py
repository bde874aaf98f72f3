"""What parties tell each other of failures and dropouts, and who is at fault if some blame some."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from xclp_crypto import errors

_KINDS: Final[tuple[type[errors.XclpError], ...]] = (
    errors.ProtocolError,
    errors.DataError,
    errors.ParameterError,
    errors.CertificateRefused,
    errors.VersionMismatch,
    errors.LogError,
    errors.FaultyPeerOrServer,
    errors.FaultyPeer,
)
"""What one program tells another about, by code; anything else is a `ProtocolError`."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What others are told of an error.

    Attributes:
        code: of what kind it is.
        parties: of which one is at fault, as whoever failed says; empty if it blames nobody.
        text: see `XclpError.public`.
    """

    code: int
    parties: tuple[str, ...]
    text: str

    @classmethod
    def of(cls, error: errors.XclpError, step: str = "", more: str = "") -> Self:
        """Return what others are told.

        Args:
            error: what was raised.
            step: in which.
            more: what else they are told.
        """
        codes = [i for i, kind in enumerate(_KINDS) if i and isinstance(error, kind)]
        parties = error.parties if isinstance(error, errors.FaultyPeer) else ()
        return cls(codes[0] if codes else 0, parties, error.public(step) + more)

    def heard(self, who: str, known: Collection[str]) -> errors.XclpError:
        """Return the error to raise where this was heard.

        Args:
            who: said so, and what; a server.
            known: all parties; others cannot be blamed.
        """
        text = f"{who}: {printable(self.text)}"
        parties = tuple(party for party in self.parties if party in known)
        if parties:  # by what the server says
            return errors.FaultyPeerOrServer(parties, text, public=True)
        kind = _KINDS[self.code] if self.code < len(_KINDS) else errors.ProtocolError
        return (errors.ProtocolError if issubclass(kind, errors.FaultyPeer) else kind)(text)


def printable(text: str) -> str:
    """Return what another party wrote as one line that any terminal can show."""
    return "".join(c if c.isprintable() else " " for c in text)


class Code(StrEnum):
    """Why the others go on without a party, in a word."""

    SILENT = "silent"
    """It did not come, or did not answer, in its time."""
    DECLINED = "declined"
    """It said that it takes no part."""
    LEFT = "left"
    """Its role failed, and it blames nobody."""
    FAULTY = "faulty"
    """It did not follow the protocol, as the server saw itself."""
    SLOW = "slow"
    """It went on, but took longer in all than it may."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the others go on without a party.

    Attributes:
        code: in a word.
        text: of an error that says more, see `XclpError.public`; may be empty.
    """

    code: Code = Code.SILENT
    text: str = ""

    def encode(self) -> bytes:
        """Return the number of the code, and up to 500 characters of text."""
        return bytes([list(Code).index(self.code)]) + self.text[:500].encode(errors="replace")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote, at least one byte; an unknown number says that it left."""
        codes = dict(enumerate(Code))
        return cls(codes.get(data[0], Code.LEFT), printable(data[1:].decode(errors="replace")))


class Accusations:
    """Whom clients blame that have failed; for the server, which relays what they send."""

    def __init__(self, clients: Collection[str]) -> None:
        self._clients = tuple(clients)
        self._by: dict[str, tuple[str, ...]] = {}

    def add(self, client: str, failure: Failure, came: Collection[str]) -> errors.FaultyPeer | None:
        """Hear what a client failed with; return what the session is to be stopped with, if it is.

        A client that more than half of those that came blame, each of them it alone, is at fault.
        Otherwise one of the accused and the accusers is.
        """
        if not failure.parties:
            return None
        # An honest server knows that it is not it.
        accused = tuple(p for p in failure.parties if p in self._clients and p != client)
        self._by[client] = accused
        parties = verdict(self._by, came)
        return errors.FaultyPeer(
            parties, f"{client} says: {printable(failure.text)[:500]}", public=True
        )


def verdict(accusations: Mapping[str, Collection[str]], came: Collection[str]) -> tuple[str, ...]:
    """Return the parties of which at least one is at fault.

    Args:
        accusations: by accuser, whom it blames.
        came: all clients that took part so far, also those that left.
    """
    alone = [accused for accused in accusations.values() if len(accused) == 1]
    for party in came:
        if 2 * sum(party in accused for accused in alone) > len(came):
            return (party,)
    return tuple(dict.fromkeys([p for by in accusations.values() for p in by] + [*accusations]))
