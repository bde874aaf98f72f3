"""A secret that all clients share and the server does not have (paper, Algorithm 1, line 1).

::

    client j                       server                     every other client
    SeedShare (sealed) ──────────────────────────────────────▶
    Received(bitmap)   ──────────▶
                       ◀────────── Roster(contributors, clients)
    Confirm(hash)      ──────────▶

The secret is a hash of one contribution of every client, so it is uniform unless all are known to
one party. The server sees only which contributions arrived, and a one-way image of the secret by
which it finds a client that has another one. Clients that stop here are left out; contributions
count only if every remaining client holds them.
"""

from __future__ import annotations

import hmac

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import Excluded, FaultyPeer, TooFewParties
from xclp_crypto.fields import Bits, Raw
from xclp_crypto.params import MIN_CLIENTS, SEED_BYTES
from xclp_crypto.protocols.setup.channel import SERVER, Session
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.wire import Message, sent


class SeedShare(Message):
    """One client's contribution to the common secret. Size: 32 bytes."""

    TAG = 0x0111
    value: bytes = sent(Raw(SEED_BYTES))


class Received(Message):
    """Whose contributions a client holds, its own included. Size: ⌈p/8⌉ bytes."""

    TAG = 0x0112
    have: NDArray[np.bool_] = sent(Bits("clients"))


class Roster(Message):
    """Whose contributions count, and who goes on. Size: 2·⌈p/8⌉ bytes."""

    TAG = 0x0113
    contributors: NDArray[np.bool_] = sent(Bits("clients"))
    clients: NDArray[np.bool_] = sent(Bits("clients"))


class Confirm(Message):
    """A one-way image of the secret that a client arrived at. Size: 32 bytes."""

    TAG = 0x0114
    value: bytes = sent(Raw(SEED_BYTES))


async def seed_agreement_client(session: Session, rng: Rng) -> None:
    """Give the session the 32-byte secret that all its remaining clients share.

    Raises:
        Excluded: the others went on without this client.
        FaultyPeer: the server counts a contribution that this client did not receive.
    """
    io = session.io
    tag = session.once("seed agreement")
    own = require_rng(rng).bytes(SEED_BYTES)
    await io.send(session.peers, SeedShare(own))
    shares = {c: m.value for c, m in (await io.gather(SeedShare, session.peers, 0)).items()}
    shares[io.name] = own
    have = np.array([c in shares for c in session.clients])
    await io.send(SERVER, Received(have))
    roster = await io.recv(Roster, SERVER, clients=len(have))
    if not roster.clients[session.clients.index(io.name)]:
        raise Excluded(io.name, io.current_step, io.late)
    if (roster.contributors & ~have).any() or not roster.contributors.any():
        raise FaultyPeer(SERVER, "its roster counts a seed share that did not arrive")
    counted = [c for c, counts in zip(session.clients, roster.contributors, strict=True) if counts]
    secret = derive_key(b"".join(shares[c] for c in counted), domain_tag("common", tag, *counted))
    await io.send(SERVER, Confirm(derive_key(secret, domain_tag("confirm", tag))))
    session.common_secret = secret


async def seed_agreement_server(session: Session, at_least: int = MIN_CLIENTS) -> tuple[str, ...]:
    """Return the clients that hold the common secret.

    Raises:
        FaultyPeer: a client lacks its own contribution; or clients arrived at different secrets,
            and one of them is at fault, or one of those whose contributions count.
        TooFewParties: fewer than `at_least` are left, or no contribution reached all of them.
    """
    io = session.io
    p = len(session.clients)
    received = await io.gather(Received, session.clients, at_least, clients=p)
    for client, message in received.items():
        if not message.have[session.clients.index(client)]:
            raise FaultyPeer(client, "says that it lacks its own contribution", public=True)
    common = np.logical_and.reduce([m.have for m in received.values()])
    if not common.any():
        lacks = [
            f"{client} says that nothing came from {other}"
            for client, message in received.items()
            for other, here in zip(session.clients, message.have, strict=True)
            if not here
        ]
        raise TooFewParties(io.current_step, 0, 1, "; ".join(lacks))
    here = np.array([c in received for c in session.clients])
    await io.send(session.clients, Roster(common, here))
    confirmed = await io.gather(Confirm, tuple(received), at_least)
    first, *others = confirmed
    for client in others:
        if not hmac.compare_digest(confirmed[client].value, confirmed[first].value):
            gave = [c for c, counts in zip(session.clients, common, strict=True) if counts]
            raise FaultyPeer(
                tuple(dict.fromkeys((first, client, *gave))),
                f"{first} and {client} derived different common secrets; one of them did it "
                "wrongly, or another client sent them different contributions",
            )
    return tuple(confirmed)
