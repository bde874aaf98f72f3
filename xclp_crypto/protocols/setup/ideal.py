"""The ideal twin of key exchange and seed agreement: the server deals all keys. For tests only.

::

    client j                          server
    IdealHello(agreement, numbers) ─▶
                                   ◀─ IdealKeys(session, present, numbers, a secret for each party)
                                   ◀─ IdealSecret(common secret)

*Server learns* every key, so nothing that is built on this setup is private.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.labels import label
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import Excluded
from xclp_crypto.params import MIN_CLIENTS, SEED_BYTES, Agreement
from xclp_crypto.protocols.setup.channel import SERVER, SealedIO, Session
from xclp_crypto.protocols.setup.identities import Identities
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, Reader, SeedFields, Writer


@dataclass(frozen=True, repr=False)
class IdealHello(Message):
    """Digests of what must be agreed, and public numbers. Size: agreement + 4·numbers bytes."""

    TAG = 0x0121
    agreement: bytes
    values: NDArray[np.uint32]

    @staticmethod
    def size(*, agreement: int, numbers: int) -> int:
        """Return agreement + 4·numbers."""
        return agreement + 4 * numbers

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.raw(self.agreement)
        out.uints(self.values, 4)

    @classmethod
    def read(cls, data: Reader, *, agreement: int, numbers: int) -> IdealHello:
        """See `Message.read`."""
        return cls(data.raw(agreement), data.uints((numbers,), 4))


@dataclass(frozen=True, repr=False)
class IdealKeys(Message):
    """A session as one client is to know it, with a secret for each invited client and the server.

    Size: 32 + ⌈p/8⌉ + 4·p·numbers + 32·(p + 1) bytes for p invited clients.
    """

    TAG = 0x0122
    session_id: bytes
    present: NDArray[np.bool_]
    values: NDArray[np.uint32]
    secrets: tuple[bytes, ...]

    @staticmethod
    def size(*, invited: int, numbers: int) -> int:
        """Return 32 + ⌈p/8⌉ + 4·p·numbers + 32·(p + 1)."""
        return SEED_BYTES * (invited + 2) + (invited + 7) // 8 + 4 * invited * numbers

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.raw(self.session_id)
        out.bits(self.present)
        out.uints(self.values, 4)
        out.raw(b"".join(self.secrets))

    @classmethod
    def read(cls, data: Reader, *, invited: int, numbers: int) -> IdealKeys:
        """See `Message.read`."""
        return cls(
            session_id=data.raw(SEED_BYTES),
            present=data.bits(invited),
            values=data.uints((invited, numbers), 4),
            secrets=tuple(data.raw(SEED_BYTES) for _ in range(invited + 1)),
        )


@dataclass(frozen=True, repr=False)
class IdealSecret(SeedFields, Message):
    """The common secret, from the server. Size: 32 bytes."""

    TAG = 0x0123
    value: bytes


def _pair_secret(master: bytes, one: str, other: str) -> bytes:
    return derive_key(master, label("ideal pair", *sorted((one, other))))


def _session(
    io: RoleIO,
    keys: IdealKeys,
    invited: Sequence[str],
) -> Session:
    secrets = dict(zip((*invited, SERVER), keys.secrets, strict=True))
    here = [c for c, present in zip(invited, keys.present, strict=True) if present]
    secrets = {p: secrets[p] for p in (*here, SERVER) if p != io.name}
    numbers = {
        c: tuple(int(v) for v in row)
        for c, row in zip(invited, keys.values, strict=True)
        if c in here
    }
    return Session(SealedIO(io, secrets, keys.session_id), keys.session_id, numbers, secrets)


async def ideal_key_exchange_client(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: Sequence[int],
    rng: Rng,
    identities: Identities | None = None,
) -> Session:
    """See `key_exchange_client`; nothing is signed, because no key can be swapped."""
    if identities is not None:
        agreement = identities.bind(agreement, io.name, invited)
    values = np.array(numbers, dtype=np.uint32)
    await io.send(SERVER, IdealHello(agreement.encode(), values))
    keys = await io.recv(IdealKeys, SERVER, invited=len(invited), numbers=len(values))
    if not keys.present[list(invited).index(io.name)]:
        raise Excluded(io.name, io.current_step)
    session = _session(io, keys, invited)
    session.authenticated = identities is not None
    return session


async def ideal_key_exchange_server(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: int,
    rng: Rng,
    at_least: int = MIN_CLIENTS,
    identities: Identities | None = None,
) -> Session:
    """See `key_exchange_server`."""
    if identities is not None:
        agreement = identities.bind(agreement, io.name, invited)
    hellos = await io.gather(
        IdealHello, invited, at_least, agreement=agreement.size, numbers=numbers
    )
    for client, hello in hellos.items():
        agreement.require_same(hello.agreement, client)
    session_id, master = rng.bytes(SEED_BYTES), rng.bytes(SEED_BYTES)
    values = np.zeros((len(invited), numbers), dtype=np.uint32)
    for i, client in enumerate(invited):
        if client in hellos:
            values[i] = hellos[client].values
    present = np.array([c in hellos for c in invited])

    def keys_of(party: str) -> IdealKeys:
        secrets = tuple(_pair_secret(master, party, other) for other in (*invited, SERVER))
        return IdealKeys(session_id, present, values, secrets)

    for client in invited:
        await io.send(client, keys_of(client))
    session = _session(io, keys_of(SERVER), invited)
    session.authenticated = identities is not None
    return session


async def ideal_seed_agreement_client(session: Session, rng: Rng) -> None:
    """See `seed_agreement_client`."""
    session.common_secret = (await session.io.recv(IdealSecret, SERVER)).value


async def ideal_seed_agreement_server(
    session: Session, at_least: int = MIN_CLIENTS
) -> tuple[str, ...]:
    """See `seed_agreement_server`; the secret is one that the server knows."""
    secret = session.pair_key(session.clients[0], session.once("ideal seed"))
    await session.io.send(session.clients, IdealSecret(secret))
    return session.clients
