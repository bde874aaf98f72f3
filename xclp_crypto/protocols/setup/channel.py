"""Sealed channels: everything after the key exchange is encrypted end to end.

Each ordered pair of parties has its own AES-256-GCM key and counts its messages, so that a relay
can neither read nor alter, reorder, repeat or redirect them: `FaultyPeerOrServer` otherwise. This
holds for links to the server too: in the ``masked`` back end, for instance, a client could read
what another client sends to the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from xclp_crypto import wire
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    FaultyPeerOrServer,
    ParameterError,
    ReuseError,
    Stalled,
    TooFewParties,
)
from xclp_crypto.fields import Raw
from xclp_crypto.primitives.identity import IdentityKey, verifies
from xclp_crypto.primitives.sealed_box import OVERHEAD, SealedBox, channel_pair
from xclp_crypto.role import Dim, RoleIO, Signer, dims_for, name_of
from xclp_crypto.wire import TAG_BYTES, M, Message, sent

P = ParamSpec("P")
R = TypeVar("R")

SERVER = "server"
"""Name of the coordinating party."""


def sealed_size(body: int) -> int:
    """Return the metered bytes of a sealed message whose body has `body` bytes: body + 20."""
    return TAG_BYTES + Sealed.size(body=body)


class Sealed(Message):
    """An encrypted message of a type that is named in the clear.

    Size: 2 + body + 16 bytes, where body is the size of the message inside.
    """

    TAG = 0x0001
    inner_tag: bytes = sent(Raw(TAG_BYTES))
    box: bytes = sent(Raw(lambda body: body + OVERHEAD))


class SealedIO(RoleIO):
    """A `RoleIO` that seals what it sends and opens what it receives.

    A party that missed a deadline is not waited for again, by this party: what it sends late is a
    message of an earlier step and would be taken for the next one.

    Args:
        io: the `RoleIO` underneath.
        secrets: by peer, the secret shared with it. The keys of a link are derived when it is
            first used: among hundreds of clients, most links never are.
        session_id: what both ends of every link bind its keys to.
    """

    def __init__(self, io: RoleIO, secrets: Mapping[str, bytes], session_id: bytes) -> None:
        super().__init__(io.name)
        self._io = io
        self._steps = io._steps
        self._secrets = dict(secrets)
        self._session_id = session_id
        self._boxes: dict[str, tuple[SealedBox, SealedBox]] = {}
        self._late: set[str] = set()

    @property
    def late(self) -> tuple[str, ...]:
        """Return the parties that missed a deadline."""
        return tuple(sorted(self._late))

    async def send(self, to: str | Collection[str], message: Message) -> None:
        """Encode `message` once and seal it for each recipient."""
        # What may be large is in memory twice at most: each form goes when the next is there.
        tag = type(message).TAG.to_bytes(TAG_BYTES, "big")
        body = wire.body(message)
        del message
        peers = (to,) if isinstance(to, str) else tuple(to)
        for number, peer in enumerate(peers, 1):
            sealed = Sealed(tag, self._box(peer)[0].seal(body, tag))
            if number == len(peers):
                del body
            await self._io.send(peer, sealed)

    async def recv(self, kind: type[M], frm: str, **dims: int) -> M:
        """See `RoleIO.recv`."""
        self._box(frm)
        self._in_time(kind, (frm,), None)
        with self._relayed():  # in a list, which gives up what may be large to `_open`
            got = [await self._io.recv(Sealed, frm, body=kind.size(**dims))]
        return self._open(kind, frm, got.pop(), dims)

    async def gather(
        self, kind: type[M], parties: Collection[str], at_least: int | None = None, **dims: Dim
    ) -> dict[str, M]:
        """See `RoleIO.gather`."""
        asked = self._in_time(kind, parties, at_least)
        bodies = {party: kind.size(**dims_for(party, dims)) for party in asked}
        with self._relayed():
            got = await self._io.gather(Sealed, asked, at_least, body=bodies)
        self._late.update(party for party in asked if party not in got)
        return {frm: self._open(kind, frm, got.pop(frm), dims_for(frm, dims)) for frm in tuple(got)}

    async def gather_each(
        self,
        kind: type[M],
        parties: Collection[str],
        each: Callable[[str, M], None],
        at_least: int | None = None,
        **dims: Dim,
    ) -> tuple[str, ...]:
        """See `RoleIO.gather_each`; opening a message is part of the time of `each`."""
        asked = self._in_time(kind, parties, at_least)
        bodies = {party: kind.size(**dims_for(party, dims)) for party in asked}

        blamed: list[FaultyPeer] = []

        def opened(frm: str, sealed: Sealed) -> None:
            try:
                each(frm, self._open(kind, frm, sealed, dims_for(frm, dims)))
            except FaultyPeer as error:
                blamed.append(error)
                raise

        opened.__name__ = name_of(each)
        with self._relayed(blamed):
            got = await self._io.gather_each(Sealed, asked, opened, at_least, body=bodies)
        self._late.update(party for party in asked if party not in got)
        return got

    async def compute(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """See `RoleIO.compute`."""
        return await self._io.compute(function, *args, **kwargs)

    def observe(self, frm: str, message: Message) -> None:
        """See `RoleIO.observe`."""
        self._io.observe(frm, message)

    def report(self, activity: str, done: int, total: int) -> None:
        """See `RoleIO.report`."""
        self._io.report(activity, done, total)

    def introduce(self, signer: Signer) -> None:
        """See `RoleIO.introduce`."""
        self._io.introduce(signer)

    def _in_time(
        self, kind: type[Message], parties: Collection[str], at_least: int | None
    ) -> tuple[str, ...]:
        """Return the parties that missed no deadline; an error where they are too few."""
        asked = tuple(party for party in parties if party not in self._late)
        late = tuple(party for party in parties if party in self._late)
        if at_least is None and late:
            raise Stalled(self.name, self.current_step, late, kind.__name__)
        if at_least is not None and len(asked) < at_least:
            raise TooFewParties(self.current_step, len(asked), at_least, missing=late)
        return asked

    def _box(self, peer: str) -> tuple[SealedBox, SealedBox]:
        if peer not in self._boxes:
            if peer not in self._secrets:
                raise ParameterError(f"{self.name} has no channel to {peer!r} in this session")
            secret = self._secrets[peer]
            self._boxes[peer] = channel_pair(secret, self.name, peer, self._session_id)
        return self._boxes[peer]

    @contextlib.contextmanager
    def _relayed(self, opened: Sequence[FaultyPeer] = ()) -> Iterator[None]:
        """Blame the relay too for what is wrong between two clients, but not in what was opened."""
        try:
            yield
        except FaultyPeer as error:
            if error in opened or SERVER in (self.name, *error.parties):
                raise
            raise FaultyPeerOrServer(error.parties, error.reason) from None

    def _open(self, kind: type[M], frm: str, sealed: Sealed, dims: Mapping[str, Any]) -> M:
        blame = FaultyPeer if SERVER in (frm, self.name) else FaultyPeerOrServer
        tag = kind.TAG.to_bytes(TAG_BYTES, "big")
        if sealed.inner_tag != tag:
            found = wire.tag_name(int.from_bytes(sealed.inner_tag, "big"))
            raise blame(frm, f"sent {found}, not {kind.__name__}")
        try:
            body = self._box(frm)[1].open(sealed.box, tag)
        except DecodeError as error:
            raise blame(frm, f"{kind.__name__} does not open: {error}") from None
        del sealed  # as large as the body
        try:
            message = wire.decode_body(kind, body, **dims)
        except DecodeError as error:  # authentic, so the sender itself wrote it
            raise FaultyPeer(frm, f"{kind.__name__}: {error}") from None
        self.observe(frm, message)
        return message


class Session:
    """What one party knows of one session after the key exchange.

    Attributes:
        io: sealed channels to every other party of the session.
        id: 32 bytes that bind all keys, sizes and agreement parameters of this session.
        clients: names of the clients that take part, in the agreed order.
        numbers: by client, the public numbers that it announced.
        cross_only: whether clients hide the distances between their own rows.
        authenticated: whether everybody's keys were signed by the identities that this party pins.
        common_secret: 32 bytes that all clients share and the server does not have.

    Args:
        io: the connection to the other parties, not sealed.
        session_id: see `id`.
        secrets: by peer, the secret shared with it.
        announced: see `numbers`.
        authenticated: see above.
        verify_keys: by client, the public half of its signing key for this session.
        signing: the own signing key; the server has none.
    """

    cross_only = False
    _part = ""

    def __init__(
        self,
        io: RoleIO,
        session_id: bytes,
        secrets: Mapping[str, bytes],
        announced: Mapping[str, Iterable[int]],
        *,
        authenticated: bool,
        verify_keys: Mapping[str, bytes],
        signing: IdentityKey | None,
    ) -> None:
        self.io = SealedIO(io, secrets, session_id)
        self.id = session_id
        self.numbers = {client: tuple(map(int, row)) for client, row in announced.items()}
        self.clients = tuple(self.numbers)
        self.authenticated = authenticated
        self._secrets = dict(secrets)
        self._verify_keys, self._signing = dict(verify_keys), signing
        self._common_secret: bytes | None = None
        self._used: set[bytes] = set()
        if authenticated and signing is not None:
            io.introduce(self)

    @property
    def peers(self) -> tuple[str, ...]:
        """Return the other clients, in the agreed order."""
        return tuple(c for c in self.clients if c != self.io.name)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the first number that each client announced: its rows, wherever rows are meant."""
        return {client: numbers[0] for client, numbers in self.numbers.items()}

    @property
    def common_secret(self) -> bytes:
        """Return what `seed_agreement_client` has set; raises `ParameterError` if nothing has."""
        if self._common_secret is None:
            raise ParameterError(
                f"{self.io.name} has no secret in common with the other clients of this session; "
                "await seed_agreement_client first"
            )
        return self._common_secret

    @common_secret.setter
    def common_secret(self, secret: bytes) -> None:
        self._common_secret = secret

    def part(self, name: str) -> Session:
        """Return this session for a part of it, whose tags from `once` are those of no other part.

        So what a session can do once, such as a run of a back end, can be done in each of its
        parts.

        Args:
            name: the same for all parties; it is added to the purpose of each tag.
        """
        part = object.__new__(type(self))
        part.__dict__ = {**self.__dict__, "_part": self._part + name}
        return part

    def once(self, purpose: str, *context: str | int | bytes) -> bytes:
        """Return a domain tag bound to this session, which gives it out only once.

        Raises:
            ReuseError: the same tag was asked for before, which would repeat masks or hashes.
        """
        name = domain_tag(purpose + self._part, self.id, *context)
        if name in self._used:
            raise ReuseError(
                f"{purpose!r} was already used in this session; masks must not repeat, "
                "so start a new session with fresh keys"
            )
        self._used.add(name)
        return name

    def pair_key(self, peer: str, tag: bytes) -> bytes:
        """Return a 32-byte key that only this client and client `peer` can compute.

        Both names are in HKDF's info, in the order of the alphabet, and so is the session, if the
        tag is from `once`: keys of two pairs are unrelated even if a peer makes their secrets equal
        by an echoed public key. Roles of the two, where they differ, belong into the tag.
        """
        pair = sorted((self.io.name, peer))
        return derive_key(self._secrets[peer], domain_tag("pair key", *pair, tag))

    def sign(self, purpose: str, *context: str | int | bytes) -> bytes:
        """Sign a statement of this client, bound to its name and to this session.

        Everybody who knows the session can verify it, by the key that this client announced in the
        key exchange, which its identity has certified where identities are pinned.

        Args:
            purpose: what the statement is for, as of a domain tag.
            context: what it says; a digest where that is long.

        Returns:
            64 bytes, the same for the same statement.

        Raises:
            ParameterError: at the server, which has no signing key.
        """
        if self._signing is None:
            raise ParameterError(f"{self.io.name} has no signing key in this session")
        return self._signing.sign(domain_tag(purpose, self.id, self.io.name, *context))

    def signed_by(
        self, client: str, signature: bytes, purpose: str, *context: str | int | bytes
    ) -> bool:
        """Return whether a client of this session made this signature by `sign`.

        Args:
            client: who should have.
            signature: any bytes, perhaps not 64 of them.
            purpose: see `sign`.
            context: see `sign`.

        Returns:
            False as well where `client` is not in the session.
        """
        key = self._verify_keys.get(client, b"")
        return verifies(key, signature, domain_tag(purpose, self.id, client, *context))

    def __repr__(self) -> str:
        return f"<Session of {self.io.name} with {len(self.clients)} clients>"

    def __reduce__(self) -> Any:
        raise TypeError("a session holds secret keys and cannot be pickled or copied")
