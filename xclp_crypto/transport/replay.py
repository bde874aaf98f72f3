"""One role that can be stopped at any time and rebuilt from its log.

::

    role = DurableRole("a", start, log, peers=("b", "server"))    # a new role, or that of the log
    role.run()                                    # until it waits for messages, or has ended
    for sent in role.outgoing(): …                # what to deliver; the log is on the disk by then
    role.feed("server", payload)                  # a message that arrived
    role.give_up()                                # or: no more will come for this wait
    role.result()                                 # once `role.ended`

A role is a function of its seed, of what it receives, and of when a wait ended without messages.
These are in the log; so are a digest of everything that it sends, and the results of computations
that are marked by `xclp_crypto.role.recorded`. All other computations are done again. A role that
would do or send anything else than it did before is refused: `ReplayError`.

The log also has the digest of a *binding*, which says what the role depends on beside its seed: its
parameters and its data. With another binding it is not taken.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    LogError,
    ParameterError,
    ReplayError,
    XclpError,
)
from xclp_crypto.params import SEED_BYTES
from xclp_crypto.rng import Rng, SeededRng, rng_or_system
from xclp_crypto.role import Compute, Operation, RoleIO, Send, Signer, is_recorded, name_of
from xclp_crypto.transport.driver import Driver, Progress, Running
from xclp_crypto.transport.failures import Accusation, Code, Reason
from xclp_crypto.transport.log import Log
from xclp_crypto.transport.meter import Cost

SeededRole = Callable[[RoleIO, Rng], Coroutine[Any, Any, Any]]
"""A party: takes its `RoleIO` and its randomness, returns the coroutine to run."""

HIGH_WATER = 64 << 20
"""Bytes of messages after which a role that goes on sending lets them leave first."""

_START, _SENT, _FED, _GAVE_UP, _RESULT, _NOTE, _REASON = range(1, 8)
_KINDS = {
    _START: "its start",
    _SENT: "a message that it sends",
    _FED: "a message that arrives",
    _GAVE_UP: "a wait that ends",
    _RESULT: "a result",
    _NOTE: "a note",
    _REASON: "why a party is missing",
}
_FEED = struct.Struct(">HI")  # bytes of the sender's name, depth
_NAMED = struct.Struct(">H")  # bytes of a name
_DIGEST_BYTES = 32


_NO_ARRAY: tuple[type[Exception], ...] = (ArithmeticError, EOFError, LookupError, MemoryError)
_NO_ARRAY += (OSError, RecursionError, SyntaxError, TokenError, TypeError, ValueError, BadZipFile)
"""What NumPy raises for bytes that are not an array; wide, for it promises nothing here."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that leaves.

    Attributes:
        to: the receiver.
        number: of the messages of this role to `to`, from 0.
        payload: the encoded message.
        depth: length of the chain of messages that ends in it, for `Cost.rounds`.
        before: whether it was in the log already, so that it may have arrived.
    """

    to: str
    number: int
    payload: bytes
    depth: int
    before: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a role waits for.

    Attributes:
        step: the step that it is in.
        missing: parties of which a message is missing.
        patient: whether the wait cannot end well without them.
    """

    step: str
    missing: tuple[str, ...]
    patient: bool


class DurableRole(Driver):
    """A role and its log; rebuilds the role where it was.

    Args:
        name: of this party.
        role: what to run.
        log: records of this role, or an empty one.
        peers: all other parties.
        rng: source of the seed of a new role; the operating system's by default.
        binding: what the role depends on beside its seed, such as its parameters.
        progress: called before each computation.

    Attributes:
        name: of this party.
        fed: by party, how many of its messages this role was given.
        sent: by party, how many messages this role has sent it.
        note: what `keep` kept; empty before.
        reasons: by party that others went on without, why, as far as that is known.
        instance: 16 public bytes that rebuilding keeps and another start of the role does not.
        fresh: whether the log was empty.

    Raises:
        LogError: the log does not open, or is that of another role or binding.
        ReplayError: the role does other things than the log says.
    """

    def __init__(
        self,
        name: str,
        role: SeededRole,
        log: Log,
        *,
        peers: Sequence[str],
        rng: Rng | None = None,
        binding: bytes = b"",
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        super().__init__(progress=progress)
        self.name = name
        self.fed = dict.fromkeys(peers, 0)
        self._elsewhere = tuple(peers)
        self._log = log
        self._records = log.replay()
        self.note = b""
        self.reasons: dict[str, Reason] = {}
        self._next: tuple[int, bytes] | None = None
        self._next_record()
        self.sent = dict.fromkeys(peers, 0)
        self._outgoing: list[Outgoing] = []
        self._held = 0
        bound = hashlib.sha256(domain_tag("log binding", name, binding)).digest()
        start = self._replayed(_START)
        self.fresh = start is None
        if start is None:
            start = bound + rng_or_system(rng).bytes(SEED_BYTES)
            log.append(_START, start)
        if start[:_DIGEST_BYTES] != bound:
            raise LogError(
                f"{log.name} is of another party, or of one with other parameters or other data "
                f"than {name!r} has now; give back what it had, or begin a new session without it"
            )
        seed = start[_DIGEST_BYTES:]
        self.instance = hashlib.sha256(domain_tag("role instance", seed)).digest()[:16]
        self._start({name: lambda io: role(io, SeededRng(seed))})
        self._party: Running = self._parties[name]
        try:
            self._rebuild()
        except XclpError:
            self._close()
            raise

    def _rebuild(self) -> None:
        """Do everything that the log says."""
        if self._next is not None:
            self.run()
        while self._next is not None:
            kind, data = self._next
            wait = self._party.waiting
            if kind == _FED and not self.ended:
                self._next_record()
                self._take(*self._fed_by(data))
            elif kind == _GAVE_UP and wait is not None:
                self._next_record()
                self._end_at_deadline(self._party, wait)
            else:
                raise ReplayError(self._difference("has ended" if self.ended else "waits"))
            del data
            self.run()

    def _fed_by(self, data: bytes) -> tuple[str, bytes, int]:
        """Return sender, payload and depth of a record of a message that arrived."""
        if len(data) >= _FEED.size:
            length, depth = _FEED.unpack_from(data)
            at = _FEED.size + length
            sender = data[_FEED.size : at].decode(errors="replace")
            if sender in self.fed:
                return sender, data[at:], depth
        raise LogError(f"{self._log.name} has a message of nobody in this session")

    def _reason_of(self, data: bytes) -> tuple[str, Reason]:
        """Return whom a record of why a party is missing is about, and why it is."""
        if len(data) >= _NAMED.size:
            at = _NAMED.size + _NAMED.unpack_from(data)[0]
            name = data[_NAMED.size : at].decode(errors="replace")
            if name in self.fed and len(data) > at:
                return name, Reason.decode(data[at:])
        raise LogError(f"{self._log.name} says why nobody of this session is missing")

    @property
    def ready(self) -> bool:
        """Return whether the role can go on now."""
        return bool(self._ready)

    @property
    def ended(self) -> bool:
        """Return whether the role has returned or failed."""
        return self._party.ended

    @property
    def failure(self) -> XclpError | None:
        """Return what the role failed with, or None."""
        return self._errors.get(self.name)

    @property
    def signer(self) -> Signer | None:
        """Return whom the role has introduced: at a client, once its keys are certified."""
        return self._party.io.signer

    @property
    def accusations(self) -> tuple[Accusation, ...]:
        """Return what this client signs of its failure: whom it blames, if it does."""
        failure, signer = self.failure, self.signer
        if signer is None or not isinstance(failure, FaultyPeer):
            return ()
        return (Accusation.signed(signer, self.name, failure, self.step),)

    @property
    def step(self) -> str:
        """Return the step that the role is in."""
        return self._party.step

    @property
    def cost(self) -> Cost:
        """Return what the role cost here: its seconds, what it sent, and the rounds up to it."""
        return self._cost

    @property
    def waiting(self) -> Waiting | None:
        """Return what the role waits for, or None while it is ready or has ended."""
        wait = self._party.waiting
        if wait is None:
            return None
        return Waiting(self.step, tuple(self._party.missing), wait.at_least is None)

    def advance(self) -> None:
        """Let the role go on until it waits, ends, or lets its messages leave first."""
        if self._ready:
            self._advance(*self._ready.popleft())

    def run(self) -> None:
        """Let the role go on until it waits or has ended."""
        while self._ready:
            self.advance()

    def sizes_of(self, sender: str) -> list[int]:
        """Return how many bytes each message of a party has that the role has not taken."""
        return [len(payload) for payload, _ in self._party.inbox.get(sender, ())]

    def feed(self, sender: str, payload: bytes | bytearray, depth: int = 0) -> None:
        """Give the role a message; it is kept if the role does not wait for it yet.

        Messages of one sender come in their order, each once.

        Raises:
            ParameterError: the role is ready, so that it is not clear what came first; call `run`.
        """
        self._require_rest()
        if self.ended:
            return
        name = sender.encode()
        self._log.append(_FED, _FEED.pack(len(name), depth), name, payload)
        self._take(sender, payload, depth)

    def give_up(self) -> None:
        """End the role's wait without what is missing; raises `ParameterError` if there is none."""
        self._require_rest()
        if self._party.waiting is None:
            raise ParameterError(f"{self.name} does not wait for anything")
        self._log.append(_GAVE_UP)
        self._end_at_deadline(self._party, self._party.waiting)

    def keep(self, note: bytes) -> None:
        """Keep something beside the role, such as whom it talks to; read it from `note`."""
        self._log.append(_NOTE, note)
        self.note = note

    def note_reason(self, party: str, reason: Reason) -> None:
        """Keep why others go on without a party; the first reason counts, or that it is faulty."""
        known = self.reasons.get(party)
        news = known is None or (reason.code is Code.FAULTY and known.code is not Code.FAULTY)
        if news and party in self.fed:  # others may be named by a server that lies
            name = party.encode()
            self._log.append(_REASON, _NAMED.pack(len(name)), name, reason.encode())
            self.reasons[party] = reason

    def outgoing(self) -> list[Outgoing]:
        """Return the messages that are to leave, each once, after the log is on the disk.

        After a rebuild these are all messages from the first on, marked by `Outgoing.before`. Call
        it before saying that a message has arrived, too.

        Raises:
            StorageError: the log cannot be written; nothing may leave.
        """
        self._log.sync()
        leaving, self._outgoing, self._held = self._outgoing, [], 0
        return leaving

    def result(self) -> Any:
        """Return what the role returned.

        Raises:
            XclpError: what it failed with.
            ParameterError: it has not ended.
        """
        if self.failure is not None:
            raise self.failure
        if not self.ended:
            raise ParameterError(f"{self.name} has not ended; it is in step {self.step!r}")
        return self._results[self.name]

    def close(self) -> None:
        """Stop the role where it is; its log can be opened again."""
        self._close()
        self._log.close()

    def _take(self, sender: str, payload: bytes | bytearray, depth: int) -> None:
        self.fed[sender] += 1
        self._put(sender, self.name, payload, depth)

    def _require_rest(self) -> None:
        if self._ready:
            raise ParameterError(f"{self.name} can go on; call run() first")

    def _gives_way(self, operation: Operation) -> bool:
        """Let what was sent leave before a computation, and when it is much."""
        if self._next is not None or not self._outgoing:
            return False
        return isinstance(operation, Compute) or (
            isinstance(operation, Send) and self._held > HIGH_WATER
        )

    def _forward(self, sender: str, receiver: str, payload: bytes, depth: int) -> None:
        number = self.sent[receiver]
        self.sent[receiver] += 1
        digest = hashlib.sha256(domain_tag("sent", receiver, number))
        digest.update(payload)
        logged = self._replayed(_SENT)
        if logged is None:
            self._log.append(_SENT, digest.digest())
        elif logged != digest.digest():
            raise ReplayError(
                f"{self.name} would send other bytes to {receiver} than before, in step "
                f"{self.step!r}; the program, its libraries or its data have changed: begin a new "
                "session without its log"
            )
        self._outgoing.append(Outgoing(receiver, number, payload, depth, logged is not None))
        self._held += len(payload)

    def _compute(self, party: Running, operation: Compute) -> Any:
        if not is_recorded(operation.function):
            return super()._compute(party, operation)
        logged = self._replayed(_RESULT)
        if logged:
            return _decoded(logged)
        result = super()._compute(party, operation)
        if logged is None:
            self._log.append(_RESULT, *_encoded(operation, result))
        return result

    def _replayed(self, kind: int) -> bytes | None:
        """Return the data of the next record, which must be of this kind; None after the last."""
        if self._next is None:
            return None
        if self._next[0] != kind:
            raise ReplayError(self._difference(f"comes to {_KINDS[kind]}"))
        data = self._next[1]
        self._next_record()
        return data

    def _next_record(self) -> None:
        self._next = None  # before the next one is read, which may be as large
        self._next = next(self._records, None)
        while self._next is not None and self._next[0] in (_NOTE, _REASON):
            kind, data = self._next
            if kind == _NOTE:
                self.note = data
            else:
                name, reason = self._reason_of(data)
                self.reasons[name] = reason
            self._next = next(self._records, None)

    def _difference(self, what: str) -> str:
        kind = 0 if self._next is None else self._next[0]
        return (
            f"{self.name} {what} where {self._log.name} has {_KINDS.get(kind, 'another record')}; "
            "the program, its libraries or its data have changed: begin a new session without it"
        )


def _encoded(operation: Compute, result: Any) -> list[bytes]:
    """Encode a recorded result; nothing stands for an error, which is computed again."""
    if isinstance(result, XclpError):
        return []
    single = not isinstance(result, tuple)
    parts = [bytes([single])]
    for item in (result,) if single else result:
        if isinstance(item, bytes):
            kind, data = b"b", item
        elif isinstance(item, np.ndarray) and not item.dtype.hasobject:
            buffer = io.BytesIO()
            np.save(buffer, item, allow_pickle=False)
            kind, data = b"a", buffer.getvalue()
        else:
            raise ParameterError(
                f"{name_of(operation.function)} is marked as recorded and returns "
                f"{type(item).__name__}; a log keeps arrays, bytes and tuples of these"
            )
        parts += [kind + len(data).to_bytes(8, "big"), data]
    return parts


def _decoded(data: bytes) -> Any:
    """Decode what `_encoded` gave."""
    items: list[Any] = []
    at = 1
    while at < len(data):
        kind, length = data[at : at + 1], int.from_bytes(data[at + 1 : at + 9], "big")
        item = data[at + 9 : at + 9 + length]
        if len(item) != length or kind not in (b"a", b"b"):
            raise DecodeError("a recorded result does not decode")
        items.append(_array(item) if kind == b"a" else item)
        at += 9 + length
    if data[0] and not items:
        raise DecodeError("a recorded result does not decode")
    return items[0] if data[0] else tuple(items)


def _array(data: bytes) -> NDArray[Any]:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except _NO_ARRAY as error:
        raise DecodeError(f"a recorded array does not decode: {error}") from None
    if not isinstance(array, np.ndarray):  # a zip archive of arrays
        raise DecodeError("a recorded array does not decode")
    return array
