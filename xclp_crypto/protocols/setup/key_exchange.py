"""Key exchange through the server (paper, Algorithm 1, line 1; Bonawitz et al. 2017, round 0).

::

    client j                          server
    Hello(key, agreement, numbers
          [, signature])           ─▶
                                   ◀─ Directory(nonce, key, present, keys, numbers
                                                [, signatures, signature])

Everybody then shares an X25519 secret with everybody. The server learns public keys and the
announced numbers; clients learn the same of each other. All later keys depend on a hash of the
whole directory, so parties that saw different directories cannot talk to each other.

**Without identities** the ephemeral keys are not authenticated: a server, or whoever sits between,
that replaces keys reads what clients send to each other.

**With identities** (`Identities`: every party pins the identity of every other) each client signs
its key, its numbers, its name, the agreement and the list of those invited. The server verifies
that before it forwards it, and signs the whole directory. So an entry that does not verify at a
client is the server's doing, and `FaultyPeer` names the server.

- *Protected*: nobody without a party's identity key can stand in for it, not even the server.
- *Forward secrecy*: identity keys only sign. Who obtains one can stand in for its owner in later
  sessions, but cannot read earlier ones. There is no revocation: pin another identity.
- *Replay*: the first message cannot be fresh. A server that replays a client's Hello of an earlier
  session with the same agreement makes that client seem present and silent, like a dropout. It
  cannot speak for it, unless that session's ephemeral key leaked: every session key needs it. A
  replayed directory is noticed, because it does not contain the client's fresh key.
- *Not protected*: the server may still leave clients out, or stop.

**An echoed key**, another party's public key that a client announces as its own, would give a third
party the same secret with both, although the echoing client knows neither. The server refuses it,
naming both, and clients refuse a directory in which a key occurs twice, naming the server too. Even
where that was left out, no two keys would be equal: channels, masks of pairs and owner masks come
from HKDF with both names and the direction or role in its info.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xclp_crypto import wire
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import Excluded, FaultyPeer, FaultyPeerOrServer, ParameterError
from xclp_crypto.fields import Bits, Many, Raw, Uints
from xclp_crypto.params import MAX_ANNOUNCED, MIN_CLIENTS, NONCE_BYTES, Agreement
from xclp_crypto.primitives.identity import SIGNATURE_BYTES
from xclp_crypto.primitives.key_agreement import KEY_BYTES, ExchangeKey, KeyPair
from xclp_crypto.protocols.setup.channel import SERVER, Session
from xclp_crypto.protocols.setup.identities import Identities
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, sent


class Hello(Message):
    """A client's ephemeral key, digests of what must be agreed, and its public numbers.

    Size: 32 + agreement + 4·numbers + signature bytes; a signature has 64 bytes, or 0 without
    identities.
    """

    TAG = 0x0101
    key: bytes = sent(Raw(KEY_BYTES))
    agreement: bytes = sent(Raw("agreement"))
    values: NDArray[np.uint32] = sent(Uints("numbers", n_bytes=4))
    signature: bytes = sent(Raw("signature"))


class Directory(Message):
    """The server's nonce and key, and who takes part with which key and numbers.

    Absent clients have zero entries. Size: 16 + 32 + ⌈p/8⌉ + p·(32 + 4·numbers) + (p + 1)·signature
    bytes for p invited clients; a signature has 64 bytes, or 0 without identities.
    """

    TAG = 0x0102
    nonce: bytes = sent(Raw(NONCE_BYTES))
    server_key: bytes = sent(Raw(KEY_BYTES))
    present: NDArray[np.bool_] = sent(Bits("invited"))
    keys: tuple[bytes, ...] = sent(Many(Raw(KEY_BYTES), "invited"))
    values: NDArray[np.uint32] = sent(Uints("invited", "numbers", n_bytes=4))
    signatures: tuple[bytes, ...] = sent(Many(Raw("signature"), "invited"))
    signature: bytes = sent(Raw("signature"))


def _signed_hello(client: str, hello: Hello, invited: Sequence[str]) -> bytes:
    """Return what a client signs."""
    values = hello.values.astype("<u4").tobytes()
    return domain_tag("signed hello", client, hello.key, hello.agreement, values, *invited)


def _signed_directory(directory: Directory, invited: Sequence[str], agreement: Agreement) -> bytes:
    """Return what the server signs: everything but its signature."""
    unsigned = wire.body(directory)[:-SIGNATURE_BYTES]
    return domain_tag(
        "signed directory", unsigned, agreement.encode(), directory.values.shape[1], *invited
    )


def _verify_hellos(
    identities: Identities, hellos: Mapping[str, Hello], invited: Sequence[str]
) -> None:
    """Verify what the clients signed."""
    for client, hello in hellos.items():
        statement = _signed_hello(client, hello, invited)
        identities.of(client).verify(hello.signature, statement, client)


def _verify_directory(
    identities: Identities, directory: Directory, invited: Sequence[str], agreement: Agreement
) -> None:
    """Verify all signatures; whatever is wrong is the server's fault, which verifies first."""
    digests = agreement.encode()
    for i in [i for i, here in enumerate(directory.present) if here]:
        client, signature = invited[i], directory.signatures[i]
        hello = Hello(directory.keys[i], digests, directory.values[i], signature)
        try:
            identities.of(client).verify(signature, _signed_hello(client, hello, invited), client)
        except FaultyPeer:
            raise FaultyPeer(
                SERVER,
                f"it swapped the key of {client}, or its numbers: what the directory lists is not "
                f"signed by the identity that is pinned for {client}",
            ) from None
    identities.of(SERVER).verify(
        directory.signature, _signed_directory(directory, invited, agreement), SERVER
    )


def _blame(io: RoleIO, party: str, signed: bool) -> type[FaultyPeer]:
    """Return the error for a bad entry: clients hear of each other from the server only."""
    return FaultyPeer if signed or SERVER in (io.name, party) else FaultyPeerOrServer


def _refuse_echoes(me: str, keys: Mapping[str, bytes]) -> None:
    """Refuse a key that two parties have; an honest server refuses it, so it is named as well.

    Raises:
        FaultyPeer: at the server the two, at a client the server and those that are others.
    """
    owner: dict[bytes, str] = {}
    for party, key in keys.items():
        other = owner.setdefault(key, party)
        if other != party:
            named = dict.fromkeys(p for p in (other, party, SERVER) if p != me)
            raise FaultyPeer(
                tuple(named), f"{other} and {party} have the same key, so one echoes the other's"
            )


def _open_session(
    io: RoleIO,
    own: KeyPair,
    directory: Directory,
    invited: Sequence[str],
    agreement: Agreement,
    signed: bool,
) -> Session:
    """Derive all keys of one party from its key pair and the directory."""
    session_id = hashlib.sha256(
        domain_tag("session", agreement.encode(), wire.body(directory), *invited)
    ).digest()
    present = [i for i, here in enumerate(directory.present) if here]
    for i in present:
        largest = int(directory.values[i].max(initial=0))
        if largest > MAX_ANNOUNCED:
            raise _blame(io, invited[i], signed)(
                invited[i], f"announces {largest}, and at most {MAX_ANNOUNCED} is allowed"
            )
    keys = {SERVER: directory.server_key} | {invited[i]: directory.keys[i] for i in present}
    _refuse_echoes(io.name, keys)
    secrets = {}
    for party, key in keys.items():
        if party != io.name:
            try:
                secrets[party] = own.shared_secret(ExchangeKey(key), party)
            except FaultyPeer as error:
                raise _blame(io, party, signed)(party, error.reason) from None
    announced = {invited[i]: directory.values[i] for i in present}
    return Session(io, session_id, secrets, announced, authenticated=signed)


async def key_exchange_client(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: Sequence[int],
    rng: Rng,
    identities: Identities | None = None,
) -> Session:
    """Join a session.

    Args:
        io: this client.
        invited: names of all clients that may take part, in the order that all parties agree on.
        agreement: parameters that all parties must have in common.
        numbers: public numbers to announce, such as the number of rows; 0 … `MAX_ANNOUNCED`.
        rng: source of the ephemeral key.
        identities: own key and pinned identities; all parties use the same, or none.

    Returns:
        The session: keys with every other party, and who takes part with which numbers.

    Raises:
        ParameterError: this client is not invited, a number is out of range, an identity is
            missing, or the own key is not the one that is pinned.
        Excluded: the others went on without this client.
        FaultyPeerOrServer: another client's entry has a weak key or an excessive number; with
            identities `FaultyPeer`, because that client has signed it.
        FaultyPeer: the server's directory does not list this client as it announced itself, has
            one key twice, or is not signed by the server; or the server swapped a client's key.
    """
    if io.name not in invited:
        raise ParameterError(f"{io.name!r} is none of the invited clients {', '.join(invited)}")
    for number in numbers:
        if not 0 <= number <= MAX_ANNOUNCED:
            raise ParameterError(f"announced numbers are 0 … {MAX_ANNOUNCED}, got {number}")
    if identities is not None:
        agreement = identities.bind(agreement, io.name, invited)
    own = await io.compute(KeyPair.generate, rng)
    values = np.array(numbers, dtype=np.uint32)
    hello = Hello(own.public.encode(), agreement.encode(), values, b"")
    if identities is not None:
        signature = identities.own.sign(_signed_hello(io.name, hello, invited))
        hello = replace(hello, signature=signature)
    await io.send(SERVER, hello)
    directory = await io.recv(
        Directory, SERVER, invited=len(invited), numbers=len(values), signature=len(hello.signature)
    )
    me = list(invited).index(io.name)
    if directory.present.any() and not directory.present[me] and not any(directory.keys[me]):
        if identities is not None:
            await io.compute(_verify_directory, identities, directory, invited, agreement)
        raise Excluded(io.name, io.current_step)
    if (
        not directory.present[me]
        or directory.keys[me] != hello.key
        or not np.array_equal(directory.values[me], values)
    ):
        raise FaultyPeer(SERVER, f"its directory does not list {io.name} as it announced itself")
    if identities is not None:
        await io.compute(_verify_directory, identities, directory, invited, agreement)
    return await io.compute(
        _open_session, io, own, directory, invited, agreement, identities is not None
    )


async def key_exchange_server(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: int,
    rng: Rng,
    at_least: int = MIN_CLIENTS,
    identities: Identities | None = None,
) -> Session:
    """Open a session with those invited clients that answer, `at_least` so many.

    The other arguments are those of `key_exchange_client`, but for `numbers`: how many public
    numbers each client announces.

    Returns:
        The session: keys with every client that answered, and their numbers.

    Raises:
        ParameterError: names collide, an identity is missing, or the own key is not the one that
            is pinned.
        FaultyPeer: a client has other agreement parameters (which are named), a weak key or that of
            another, announces a number above `MAX_ANNOUNCED`, or has not signed with the identity
            pinned for it.
        TooFewParties: fewer than `at_least` answered.
    """
    if len(set(invited)) != len(invited) or SERVER in invited:
        raise ParameterError("client names must differ from each other and from 'server'")
    if identities is not None:
        agreement = identities.bind(agreement, io.name, invited)
    signature_bytes = 0 if identities is None else SIGNATURE_BYTES
    own = await io.compute(KeyPair.generate, rng)
    dims = {"agreement": agreement.size, "numbers": numbers, "signature": signature_bytes}
    try:
        hellos = await io.gather(Hello, invited, at_least, **dims)
    except FaultyPeer as error:
        how = "without identities" if identities is None else "with identities"
        raise FaultyPeer(
            error.parties,
            f"{error.reason}; this party runs {how} and {len(agreement.fields)} agreed parameters, "
            "and all parties must do the same",
        ) from None
    for client, hello in hellos.items():
        agreement.require_same(hello.agreement, client)
    if identities is not None:
        await io.compute(_verify_hellos, identities, hellos, invited)
    absent = Hello(
        bytes(KEY_BYTES), b"", np.zeros(numbers, dtype=np.uint32), bytes(signature_bytes)
    )
    entries = [hellos.get(client, absent) for client in invited]
    directory = Directory(
        nonce=rng.bytes(NONCE_BYTES),
        server_key=own.public.encode(),
        present=np.array([c in hellos for c in invited]),
        keys=tuple(entry.key for entry in entries),
        values=np.array([entry.values for entry in entries]).reshape(len(invited), numbers),
        signatures=tuple(entry.signature for entry in entries),
        signature=bytes(signature_bytes),
    )
    if identities is not None:
        signature = identities.own.sign(_signed_directory(directory, invited, agreement))
        directory = replace(directory, signature=signature)
    session = await io.compute(
        _open_session, io, own, directory, invited, agreement, identities is not None
    )
    await io.send(tuple(invited), directory)  # those who come later see that they are not in it
    return session
