"""The ideal twin of key exchange and seed agreement: the server deals all keys. For tests only.

::

    client j                          server
    IdealHello(agreement, signing key,
               numbers)            ─▶
                                   ◀─ IdealKeys(session, present, signing keys, numbers,
                                                a secret for each party)
                                   ◀─ IdealSecret(common secret)

*Server learns* every key, so nothing that is built on this setup is private.

Examples:
    >>> from xclp_crypto.params import Agreement
    >>> from xclp_crypto.protocols.setup import ideal_key_exchange_client, ideal_key_exchange_server
    >>> from xclp_crypto.protocols.setup import ideal_seed_agreement_client
    >>> from xclp_crypto.protocols.setup import ideal_seed_agreement_server
    >>> from xclp_crypto.rng import SystemRng
    >>> from xclp_crypto.transport.simulate import Simulation
    >>> clients, agreement = ("alice", "bob"), Agreement(version=1)
    >>> async def client(io):
    ...     rows = [{"alice": 5, "bob": 7}[io.name]]
    ...     session = await ideal_key_exchange_client(io, clients, agreement, rows, SystemRng())
    ...     await ideal_seed_agreement_client(session, SystemRng())
    ...     return session.sizes
    >>> async def server(io):
    ...     session = await ideal_key_exchange_server(io, clients, agreement, 1, SystemRng())
    ...     return await ideal_seed_agreement_server(session)
    >>> roles = dict.fromkeys(clients, client) | {"server": server}
    >>> results = Simulation().run(roles).raise_errors().results
    >>> results["alice"], results["server"]
    ({'alice': 5, 'bob': 7}, ('alice', 'bob'))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import Excluded
from xclp_crypto.fields import Bits, Many, Raw, Uints
from xclp_crypto.params import MIN_CLIENTS, SEED_BYTES, Agreement
from xclp_crypto.primitives.identity import IDENTITY_BYTES, IdentityKey
from xclp_crypto.protocols.setup.channel import SERVER, Session
from xclp_crypto.protocols.setup.identities import Identities
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, sent


class IdealHello(Message):
    """Digests of what must be agreed, a signing key, and public numbers.

    Size: agreement + 32 + 4·numbers bytes.
    """

    TAG = 0x0121
    agreement: bytes = sent(Raw("agreement"))
    verify_key: bytes = sent(Raw(IDENTITY_BYTES))
    values: NDArray[np.uint32] = sent(Uints("numbers", n_bytes=4))


class IdealKeys(Message):
    """A session as one client is to know it, with a secret for each invited client and the server.

    Size: 64 + ⌈p/8⌉ + 4·p·numbers + 64·p bytes for p invited clients.
    """

    TAG = 0x0122
    session_id: bytes = sent(Raw(SEED_BYTES))
    present: NDArray[np.bool_] = sent(Bits("invited"))
    verify_keys: tuple[bytes, ...] = sent(Many(Raw(IDENTITY_BYTES), "invited"))
    values: NDArray[np.uint32] = sent(Uints("invited", "numbers", n_bytes=4))
    secrets: tuple[bytes, ...] = sent(Many(Raw(SEED_BYTES), lambda invited: invited + 1))


class IdealSecret(Message):
    """The common secret, from the server. Size: 32 bytes."""

    TAG = 0x0123
    value: bytes = sent(Raw(SEED_BYTES))


def _session(
    io: RoleIO,
    keys: IdealKeys,
    invited: Sequence[str],
    signed: bool,
    signing: IdentityKey | None,
) -> Session:
    secrets = dict(zip((*invited, SERVER), keys.secrets, strict=True))
    announced = {
        c: row for c, row, here in zip(invited, keys.values, keys.present, strict=True) if here
    }
    secrets = {p: secrets[p] for p in (*announced, SERVER) if p != io.name}
    return Session(
        io,
        keys.session_id,
        secrets,
        announced,
        authenticated=signed,
        verify_keys=dict(zip(invited, keys.verify_keys, strict=True)),
        signing=signing,
    )


async def ideal_key_exchange_client(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: Sequence[int],
    rng: Rng,
    identities: Identities | None = None,
    *,
    post_quantum: bool = True,
) -> Session:
    """See `key_exchange_client`; nothing is signed, because no key can be swapped."""
    if identities is not None:
        agreement = identities.bind(agreement, io.name, invited)
    values = np.array(numbers, dtype=np.uint32)
    signing = IdentityKey.generate(rng)
    await io.send(SERVER, IdealHello(agreement.encode(), signing.public.encode(), values))
    keys = await io.recv(IdealKeys, SERVER, invited=len(invited), numbers=len(values))
    if not keys.present[list(invited).index(io.name)]:
        raise Excluded(io.name, io.current_step)
    return _session(io, keys, invited, identities is not None, signing)


async def ideal_key_exchange_server(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: int,
    rng: Rng,
    at_least: int = MIN_CLIENTS,
    identities: Identities | None = None,
    *,
    post_quantum: bool = True,
) -> Session:
    """See `key_exchange_server`."""
    if identities is not None:
        agreement = identities.bind(agreement, io.name, invited)
    hellos = await io.gather(
        IdealHello, invited, at_least, agreement=agreement.size, numbers=numbers
    )
    for client, hello in hellos.items():
        agreement.require_same(hello.agreement, client)
    source = require_rng(rng)
    session_id, master = source.bytes(SEED_BYTES), source.bytes(SEED_BYTES)
    values = np.zeros((len(invited), numbers), dtype=np.uint32)
    for i, client in enumerate(invited):
        if client in hellos:
            values[i] = hellos[client].values
    present = np.array([c in hellos for c in invited])
    nothing = bytes(IDENTITY_BYTES)
    verify_keys = tuple(hellos[c].verify_key if c in hellos else nothing for c in invited)

    def keys_of(party: str) -> IdealKeys:
        pairs = (sorted((party, other)) for other in (*invited, SERVER))
        secrets = tuple(derive_key(master, domain_tag("ideal pair", *pair)) for pair in pairs)
        return IdealKeys(session_id, present, verify_keys, values, secrets)

    for client in invited:
        await io.send(client, keys_of(client))
    return _session(io, keys_of(SERVER), invited, identities is not None, signing=None)


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
