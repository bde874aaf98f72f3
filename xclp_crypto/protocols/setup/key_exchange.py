"""Key exchange through the server (paper, Algorithm 1, line 1; Bonawitz et al. 2017, round 0).

::

    client j                          server
    Hello(key, agreement, numbers) ─▶
                                   ◀─ Directory(nonce, key, present, keys, numbers)

Everybody then shares an X25519 secret with everybody. The server learns public keys and the
announced numbers; clients learn the same of each other. Keys are ephemeral and unauthenticated: a
server that replaces keys can read what clients send to each other (there are no identity keys).
All later keys depend on a hash of the whole directory, so parties that saw different directories
cannot talk to each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto import wire
from xclp_crypto.algebra.labels import label
from xclp_crypto.errors import FaultyPeer, FaultyPeerOrServer, ParameterError
from xclp_crypto.params import MAX_ANNOUNCED, MIN_CLIENTS, NONCE_BYTES, Agreement
from xclp_crypto.primitives.key_agreement import KEY_BYTES, KeyPair, PublicKey
from xclp_crypto.primitives.sealed_box import channel_pair
from xclp_crypto.protocols.setup.channel import SERVER, SealedIO, Session
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, Reader, Writer


@dataclass(frozen=True, repr=False)
class Hello(Message):
    """A client's ephemeral key, digests of what must be agreed, and its public numbers.

    Size: 32 + agreement + 4·numbers bytes.
    """

    TAG = 0x0101
    key: bytes
    agreement: bytes
    values: NDArray[np.uint32]

    @staticmethod
    def size(*, agreement: int, numbers: int) -> int:
        """Return 32 + agreement + 4·numbers."""
        return KEY_BYTES + agreement + 4 * numbers

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.raw(self.key)
        out.raw(self.agreement)
        out.uints(self.values, 4)

    @classmethod
    def read(cls, data: Reader, *, agreement: int, numbers: int) -> Hello:
        """See `Message.read`."""
        return cls(data.raw(KEY_BYTES), data.raw(agreement), data.uints((numbers,), 4))


@dataclass(frozen=True, repr=False)
class Directory(Message):
    """The server's nonce and key, and who takes part with which key and numbers.

    Absent clients have zero entries. Size: 16 + 32 + ⌈p/8⌉ + p·(32 + 4·numbers) bytes for p
    invited clients.
    """

    TAG = 0x0102
    nonce: bytes
    server_key: bytes
    present: NDArray[np.bool_]
    keys: tuple[bytes, ...]
    values: NDArray[np.uint32]

    @staticmethod
    def size(*, invited: int, numbers: int) -> int:
        """Return 16 + 32 + ⌈p/8⌉ + p·(32 + 4·numbers)."""
        return NONCE_BYTES + KEY_BYTES + (invited + 7) // 8 + invited * (KEY_BYTES + 4 * numbers)

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.raw(self.nonce)
        out.raw(self.server_key)
        out.bits(self.present)
        out.raw(b"".join(self.keys))
        out.uints(self.values, 4)

    @classmethod
    def read(cls, data: Reader, *, invited: int, numbers: int) -> Directory:
        """See `Message.read`."""
        return cls(
            nonce=data.raw(NONCE_BYTES),
            server_key=data.raw(KEY_BYTES),
            present=data.bits(invited),
            keys=tuple(data.raw(KEY_BYTES) for _ in range(invited)),
            values=data.uints((invited, numbers), 4),
        )


def _blame(io: RoleIO, party: str) -> type[FaultyPeer]:
    """Return the error for a bad entry: clients hear of each other from the server only."""
    return FaultyPeer if SERVER in (io.name, party) else FaultyPeerOrServer


def _open_session(
    io: RoleIO, own: KeyPair, directory: Directory, invited: Sequence[str], agreement: Agreement
) -> Session:
    """Derive all keys of one party from its key pair and the directory."""
    session_id = hashlib.sha256(
        label("session", agreement.encode(), wire.body(directory), *invited)
    ).digest()
    present = [i for i, here in enumerate(directory.present) if here]
    for i in present:
        largest = int(directory.values[i].max(initial=0))
        if largest > MAX_ANNOUNCED:
            raise _blame(io, invited[i])(
                invited[i], f"announces {largest}, and at most {MAX_ANNOUNCED} is allowed"
            )
    keys = {SERVER: directory.server_key} | {invited[i]: directory.keys[i] for i in present}
    secrets = {}
    for party, key in keys.items():
        if party != io.name:
            try:
                secrets[party] = own.shared_secret(PublicKey(key), party)
            except FaultyPeer as error:
                raise _blame(io, party)(party, error.reason) from None
    boxes = {
        party: channel_pair(secret, io.name, party, session_id) for party, secret in secrets.items()
    }
    numbers = {invited[i]: tuple(int(v) for v in directory.values[i]) for i in present}
    return Session(SealedIO(io, boxes), session_id, numbers, secrets)


async def key_exchange_client(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: Sequence[int],
    rng: Rng,
) -> Session:
    """Join a session.

    Args:
        io: this client.
        invited: names of all clients that may take part, in the order that all parties agree on.
        agreement: parameters that all parties must have in common.
        numbers: public numbers to announce, such as the number of rows; 0 … `MAX_ANNOUNCED`.
        rng: source of the ephemeral key.

    Raises:
        ParameterError: this client is not invited, or a number is out of range.
        FaultyPeerOrServer: another client's entry has a weak key or an excessive number.
        FaultyPeer: the server's directory does not list this client as it announced itself.
    """
    if io.name not in invited:
        raise ParameterError(f"{io.name!r} is none of the invited clients {', '.join(invited)}")
    for number in numbers:
        if not 0 <= number <= MAX_ANNOUNCED:
            raise ParameterError(f"announced numbers are 0 … {MAX_ANNOUNCED}, got {number}")
    own = await io.compute(KeyPair.generate, rng)
    values = np.array(numbers, dtype=np.uint32)
    await io.send(SERVER, Hello(own.public.encode(), agreement.encode(), values))
    directory = await io.recv(Directory, SERVER, invited=len(invited), numbers=len(values))
    me = list(invited).index(io.name)
    if (
        not directory.present[me]
        or directory.keys[me] != own.public.encode()
        or not np.array_equal(directory.values[me], values)
    ):
        raise FaultyPeer(SERVER, f"its directory does not list {io.name} as it announced itself")
    return await io.compute(_open_session, io, own, directory, invited, agreement)


async def key_exchange_server(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: int,
    rng: Rng,
    at_least: int = MIN_CLIENTS,
) -> Session:
    """Open a session with those invited clients that answer.

    Args:
        io: the server.
        invited: names of all clients that may take part.
        agreement: parameters that all parties must have in common.
        numbers: how many public numbers each client announces.
        rng: source of the ephemeral key and the session nonce.
        at_least: fewest clients to go on with.

    Raises:
        FaultyPeer: a client has other agreement parameters (which are named), a weak key, or
            announces a number above `MAX_ANNOUNCED`.
        TooFewParties: fewer than `at_least` answered.
    """
    if len(set(invited)) != len(invited) or SERVER in invited:
        raise ParameterError("client names must differ from each other and from 'server'")
    own = await io.compute(KeyPair.generate, rng)
    hellos = await io.gather(Hello, invited, at_least, agreement=agreement.size, numbers=numbers)
    for client, hello in hellos.items():
        agreement.require_same(hello.agreement, client)
    nothing = np.zeros(numbers, dtype=np.uint32)
    directory = Directory(
        nonce=rng.bytes(NONCE_BYTES),
        server_key=own.public.encode(),
        present=np.array([c in hellos for c in invited]),
        keys=tuple(hellos[c].key if c in hellos else bytes(KEY_BYTES) for c in invited),
        values=np.array([hellos[c].values if c in hellos else nothing for c in invited]).reshape(
            len(invited), numbers
        ),
    )
    session = await io.compute(_open_session, io, own, directory, invited, agreement)
    await io.send(tuple(hellos), directory)
    return session
