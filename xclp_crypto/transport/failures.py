"""What parties tell each other of failures and dropouts, and who is at fault if some blame some."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from xclp_crypto import errors
from xclp_crypto.role import Signer

_KINDS: Final[tuple[type[errors.XclpError], ...]] = (
    errors.ProtocolError,
    errors.DataError,
    errors.ParameterError,
    errors.CertificateRefused,
    errors.VersionMismatch,
    errors.LogError,
    errors.FaultyPeerOrServer,
    errors.FaultyPeer,
    errors.Unreachable,
)
"""What one program tells another about, by code; anything else is a `ProtocolError`."""


ACCUSATIONS_BYTES: Final = (1 << 16) - 1
"""Bytes of all accusations that are told with a failure, at most."""

_ACCUSATION: Final = struct.Struct(">64sBH")


@dataclass(frozen=True, slots=True)
class Accusation:
    """Whom a client blames, signed under its key for the session.

    Attributes:
        accuser: the client.
        accused: of which one is at fault.
        code: see `Failure.code`.
        step: in which its role failed.
        signature: 64 bytes, of `Signer.sign`; any others from whoever makes it up.
    """

    accuser: str
    accused: tuple[str, ...]
    code: int
    step: str
    signature: bytes

    @classmethod
    def signed(cls, signer: Signer, accuser: str, error: errors.FaultyPeer, step: str) -> Self:
        """Return what a client says of the error in which its role failed."""
        code = _code(error)
        signature = signer.sign("blame", code, step, *error.parties)
        return cls(accuser, error.parties, code, step, signature)

    def holds(self, signer: Signer) -> bool:
        """Return whether the accuser signed this, in this session."""
        return signer.signed_by(
            self.accuser, self.signature, "blame", self.code, self.step, *self.accused
        )

    def __str__(self) -> str:
        said = f"blames {' or '.join(self.accused)} in step {self.step!r}"
        return f"{self.accuser} has signed that it {printable(said)[:500]}"

    @staticmethod
    def encode_all(accusations: Iterable[Accusation]) -> bytes:
        """Return those that fit into `ACCUSATIONS_BYTES`, one after the other.

        For each: signature (64) ‖ code (1) ‖ bytes of names (2) ‖ accuser, step and accused, NUL
        between.
        """
        data = b""
        for one in accusations:
            names = "\0".join((one.accuser, one.step, *one.accused)).encode()
            if len(data) + _ACCUSATION.size + len(names) <= ACCUSATIONS_BYTES:
                data += _ACCUSATION.pack(one.signature, one.code, len(names)) + names
        return data

    @classmethod
    def decode_all(cls, data: bytes) -> tuple[Self, ...]:
        """Read what `encode_all` wrote; raises `DecodeError`."""
        found = []
        while data:
            try:
                signature, code, size = _ACCUSATION.unpack_from(data)
                end = _ACCUSATION.size + size
                accuser, step, *accused = data[_ACCUSATION.size : end].decode().split("\0")
            except (struct.error, ValueError):
                raise errors.DecodeError("an accusation does not say who blames whom") from None
            if len(data) < end:
                raise errors.DecodeError(f"an accusation of {end} bytes has {len(data)}")
            found.append(cls(accuser, tuple(accused), code, step, signature))
            data = data[end:]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Failure:
    """What others are told of an error.

    Attributes:
        code: of what kind it is.
        parties: of which one is at fault, as whoever failed says; empty if it blames nobody.
        text: see `XclpError.public`.
        accusations: of clients that failed, as far as they are signed.
    """

    code: int
    parties: tuple[str, ...]
    text: str
    accusations: tuple[Accusation, ...] = ()

    @classmethod
    def of(
        cls,
        error: errors.XclpError,
        step: str = "",
        more: str = "",
        accusations: tuple[Accusation, ...] = (),
    ) -> Self:
        """Return what others are told.

        Args:
            error: what was raised.
            step: in which.
            more: what else they are told.
            accusations: see above.
        """
        parties: tuple[str, ...] = ()
        if isinstance(error, errors.FaultyPeer | errors.LogRolledBack):
            parties = error.parties
        return cls(_code(error), parties, error.public(step) + more, accusations)

    @property
    def of_log(self) -> bool:
        """Return whether a log could not be used."""
        return self.code == _KINDS.index(errors.LogError)

    def heard(
        self, who: str, known: Collection[str], signer: Signer | None = None
    ) -> errors.XclpError:
        """Return the error to raise where this was heard.

        What clients have signed does not depend on the server, which could make up all else.

        Args:
            who: said so, and what; a server.
            known: all parties; others cannot be blamed.
            signer: of the session, if its keys are known and certified.
        """
        text = f"{who}: {printable(self.text)}"
        by = {a.accuser: a for a in self.accusations if signer is not None and a.holds(signer)}
        if signer is not None and by:
            accused = {c: [p for p in a.accused if p in known and p != c] for c, a in by.items()}
            sure = {a.code for a in by.values()} == {_KINDS.index(errors.FaultyPeer)}
            return (errors.FaultyPeer if sure else errors.FaultyPeerOrServer)(
                verdict(accused, signer.clients),
                "; ".join((*map(str, by.values()), text)),
                public=True,
            )
        parties = tuple(party for party in self.parties if party in known)
        if parties:  # by what the server says
            return errors.FaultyPeerOrServer(parties, text, public=True)
        kind = _KINDS[self.code] if self.code < len(_KINDS) else errors.ProtocolError
        return (errors.ProtocolError if issubclass(kind, errors.FaultyPeer) else kind)(text)


def _code(error: errors.XclpError) -> int:
    codes = [i for i, kind in enumerate(_KINDS) if i and isinstance(error, kind)]
    return codes[0] if codes else 0


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
        self._signed: dict[str, Accusation] = {}

    @property
    def signed(self) -> tuple[Accusation, ...]:
        """Return what clients have signed, one accusation of each; nobody has verified it."""
        return tuple(self._signed.values())

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
        for accusation in failure.accusations:
            if accusation.accuser == client:
                self._signed[client] = accusation
        parties = verdict(self._by, came)
        return errors.FaultyPeer(
            parties, f"{client} says: {printable(failure.text)[:500]}", public=True
        )


def waits_to_end(waits: Mapping[str, Collection[str]]) -> dict[str, Collection[str]]:
    """Return which clients go on without which others, where nobody can go on.

    Who waits for one that waits for a client itself may yet get what it waits for. Where all do,
    they wait for each other, and those are given up for whom most wait: each circle leads through
    somebody who lies.

    Args:
        waits: by client that waits for clients, and not for the server, for whom it waits.
    """
    first = {name: lacks for name, lacks in waits.items() if waits.keys().isdisjoint(lacks)}
    if first or not waits:
        return first
    awaited = Counter(lacked for lacks in waits.values() for lacked in {*lacks} & waits.keys())
    most = {name for name, count in awaited.items() if count == max(awaited.values())}
    return {name: most.intersection(lacks) for name, lacks in waits.items()}


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
