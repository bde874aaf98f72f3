"""Key exchange through the server (paper, Algorithm 1, line 1; Bonawitz et al. 2017, round 0).

::

    client j                          server
    Hello(keys, commitment,
          agreement, numbers
          [, signature])           ─▶
                                   ◀─ Directory(key, present, keys, commitments, numbers
                                                [, signatures, signature])
    Opening(value, a ciphertext
            for each later client) ─▶
                                   ◀─ Openings(present, values, a ciphertext
                                               from the server and each earlier client)

Everybody then shares a secret with everybody: of X25519, and (`post_quantum`) of ML-KEM-768, for
which the earlier of two parties encapsulates a secret, the server being the first. The server
learns public keys and the announced numbers; clients learn the same of each other. All later keys
depend on a hash of the whole directory and of the openings, so parties that saw different ones
cannot talk to each other.

**Nobody chooses the session identifier**, on which the order of the clients in sparse mask graphs
depends. Each client commits in its Hello to a value, and opens it when the directory has fixed all
keys and commitments: the identifier is a hash of all of them, so it cannot be told before the last
honest value is opened, nor changed afterwards, but by leaving a client out. Then the others open
further values, of which the first are images (a hash chain), and begin again: whom to leave out is
chosen before the value that counts is known. There are `OPENINGS` such attempts, so a server that
colludes with clients chooses among so many identifiers, which costs it a client for each.

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
  session with the same agreement makes that client seem present, until it has to open a value. It
  cannot speak for it, unless that session's ephemeral keys leaked: every session key needs them. A
  replayed directory is noticed, because it does not contain the client's fresh key.
- *Not protected*: the server may still leave clients out, or stop.

**A signing key for the session**: each client draws one of Ed25519 and announces its public half
with its other keys, so that it is as authentic as they are, with and without identities. By it a
client tells the others something through the server that nobody can alter or deny
(`Session.sign`), such as which survivors of a sum it knows of. The server refuses what is not a
strictly encoded key of large order. Clients do not look: with a server that hands it on, a client
lets others sign in its name, as it can anyway by telling its private key.

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
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto import wire
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import (
    DecodeError,
    Excluded,
    FaultyPeer,
    FaultyPeerOrServer,
    ParameterError,
    TooFewParties,
)
from xclp_crypto.params import (
    MAX_ANNOUNCED,
    MIN_CLIENTS,
    SEED_BYTES,
    Agreement,
    require_announced,
)
from xclp_crypto.primitives.identity import (
    IDENTITY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    IdentityKey,
)
from xclp_crypto.primitives.key_agreement import (
    CIPHERTEXT_BYTES,
    KEM_KEY_BYTES,
    KEY_BYTES,
    ExchangeKey,
    KemPair,
    KeyPair,
    encapsulate,
    hybrid_secret,
)
from xclp_crypto.protocols.setup.channel import SERVER, Session
from xclp_crypto.protocols.setup.identities import Identities
from xclp_crypto.protocols.setup.messages import Directory, Hello, Opening, Openings
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.role import RoleIO, recorded
from xclp_crypto.secret import Secret

OPENINGS: Final = 8
"""Values that each client can open: in so many attempts nobody may be left out in one."""


class _Ephemeral(Secret):
    """What a client draws for one session: its keys, and the values that it can open, in turn."""

    def __init__(self, rng: Rng, post_quantum: bool) -> None:
        self.exchange = KeyPair.generate(rng)
        self.kem = KemPair.generate(rng) if post_quantum else None
        chain = [require_rng(rng).bytes(SEED_BYTES)]
        for _ in range(OPENINGS):
            chain.append(_committed(chain[-1]))
        self.commitment, *self.openings = reversed(chain)
        self.signing = IdentityKey.generate(rng)

    def hello(self, agreement: Agreement, values: NDArray[np.uint32]) -> Hello:
        """Return the first message, not signed."""
        kem_key = b"" if self.kem is None else self.kem.public
        public = self.exchange.public.encode()
        verify_key = self.signing.public.encode()
        return Hello(
            public, kem_key, self.commitment, verify_key, agreement.encode(), values, signature=b""
        )


def _committed(value: bytes) -> bytes:
    """Return the image of a value, by which it can be recognised, and which does not tell it."""
    return derive_key(value, domain_tag("opening"))


def _signed_hello(client: str, hello: Hello, invited: Sequence[str]) -> bytes:
    """Return what a client signs."""
    values = hello.values.astype("<u4").tobytes()
    return domain_tag(
        "signed hello",
        client,
        hello.key,
        hello.kem_key,
        hello.commitment,
        hello.verify_key,
        hello.agreement,
        values,
        *invited,
    )


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
        hello = Hello(
            directory.keys[i],
            directory.kem_keys[i],
            directory.commitments[i],
            directory.verify_keys[i],
            digests,
            directory.values[i],
            signature,
        )
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


def _classical_secrets(
    io: RoleIO, own: KeyPair, directory: Directory, invited: Sequence[str], signed: bool
) -> dict[str, bytes]:
    """Check the directory's entries; return the X25519 secrets with all parties of it."""
    present = [i for i, here in enumerate(directory.present) if here]
    for i in present:
        largest = int(directory.values[i].max(initial=0))
        if largest > MAX_ANNOUNCED:
            raise _blame(io, invited[i], signed)(
                invited[i], f"announces {largest}, and at most {MAX_ANNOUNCED} is allowed"
            )
    keys = {SERVER: directory.server_key} | {invited[i]: directory.keys[i] for i in present}
    _refuse_echoes(io.name, keys)
    _refuse_echoes(io.name, {invited[i]: directory.verify_keys[i] for i in present})
    if any(directory.kem_keys):
        _refuse_echoes(io.name, {invited[i]: directory.kem_keys[i] for i in present})
    secrets = {}
    for party, key in keys.items():
        if party != io.name:
            try:
                secrets[party] = own.shared_secret(ExchangeKey(key), party)
            except FaultyPeer as error:
                raise _blame(io, party, signed)(party, error.reason) from None
    return secrets


@recorded
def _encapsulate(keys: Mapping[str, bytes]) -> tuple[bytes, ...]:
    """Return a secret and a ciphertext for each key, one after the other."""
    return tuple(part for party, key in keys.items() for part in encapsulate(key, party))


async def _encapsulated(
    io: RoleIO, keys: Mapping[str, bytes], signed: bool
) -> dict[str, tuple[bytes, bytes]]:
    """Return by party a secret and the ciphertext for it, which the log keeps."""
    try:
        parts = await io.compute(_encapsulate, keys) if keys else ()
    except FaultyPeer as error:
        raise _blame(io, error.parties[0], signed)(error.parties, error.reason) from None
    return dict(zip(keys, zip(parts[::2], parts[1::2], strict=True), strict=True))


def _session_id(
    agreement: Agreement, directory: Directory, opened: Openings, invited: Sequence[str]
) -> bytes:
    """Return what all keys depend on: everything that all parties have sent and agreed on."""
    said = wire.body(directory), wire.body(replace(opened, ciphertexts=()))
    return hashlib.sha256(domain_tag("session", agreement.encode(), *said, *invited)).digest()


def _session(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    directory: Directory,
    opened: Openings,
    secrets: Mapping[str, bytes],
    signed: bool,
    signing: IdentityKey | None,
) -> Session:
    """Return the session of those that are left."""
    session_id = _session_id(agreement, directory, opened, invited)
    here = [i for i, present in enumerate(opened.present) if present]
    announced = {invited[i]: directory.values[i] for i in here}
    kept = {p: s for p, s in secrets.items() if p == SERVER or p in announced}
    verify_keys = {invited[i]: directory.verify_keys[i] for i in here}
    return Session(
        io,
        session_id,
        kept,
        announced,
        authenticated=signed,
        verify_keys=verify_keys,
        signing=signing,
    )


async def key_exchange_client(
    io: RoleIO,
    invited: Sequence[str],
    agreement: Agreement,
    numbers: Sequence[int],
    rng: Rng,
    identities: Identities | None = None,
    *,
    post_quantum: bool = True,
) -> Session:
    """Join a session.

    Args:
        io: this client.
        invited: names of all clients that may take part, in the order that all parties agree on.
        agreement: parameters that all parties must have in common.
        numbers: public numbers to announce, such as the number of rows; 0 … `MAX_ANNOUNCED`.
        rng: source of the ephemeral keys; what ML-KEM encapsulates is the operating system's.
        identities: own key and pinned identities; all parties use the same, or none.
        post_quantum: whether secrets are of X25519 and ML-KEM-768, or of X25519 alone; the same
            for all parties.

    Returns:
        The session: keys with every other party, and who takes part with which numbers.

    Raises:
        ParameterError: this client is not invited, a number is out of range, an identity is
            missing, or the own key is not the one that is pinned.
        Excluded: the others went on without this client.
        FaultyPeerOrServer: another client's entry has a weak key or an excessive number; with
            identities `FaultyPeer`, because that client has signed it.
        FaultyPeer: the server's directory does not list this client as it announced itself, has
            one key twice, or is not signed by the server; the server swapped a client's key, or
            shows another value than a client committed to.
    """
    if io.name not in invited:
        raise ParameterError(f"{io.name!r} is none of the invited clients {', '.join(invited)}")
    require_announced(numbers)
    if identities is not None:
        agreement = identities.bind(agreement, io.name, invited)
    own = await io.compute(_Ephemeral, rng, post_quantum)
    hello = own.hello(agreement, np.array(numbers, dtype=np.uint32))
    if identities is not None:
        signature = identities.own.sign(_signed_hello(io.name, hello, invited))
        hello = replace(hello, signature=signature)
    await io.send(SERVER, hello)
    directory = await io.recv(
        Directory,
        SERVER,
        invited=len(invited),
        numbers=len(hello.values),
        signature=len(hello.signature),
        kem=len(hello.kem_key),
    )
    me = list(invited).index(io.name)
    absent = directory.present.any() and not directory.present[me] and not any(directory.keys[me])
    if not absent and not _lists(directory, me, hello):
        raise FaultyPeer(SERVER, f"its directory does not list {io.name} as it announced itself")
    if identities is not None:
        await io.compute(_verify_directory, identities, directory, invited, agreement)
    if absent:
        raise Excluded(io.name, io.current_step)
    signed = identities is not None
    secrets = await io.compute(_classical_secrets, io, own.exchange, directory, invited, signed)
    opened, secrets = await _open_client(io, own, directory, invited, secrets, signed)
    return _session(io, invited, agreement, directory, opened, secrets, signed, own.signing)


def _lists(directory: Directory, me: int, hello: Hello) -> bool:
    """Return whether a directory has in its entry `me` what this client announced."""
    return (
        bool(directory.present[me])
        and directory.keys[me] == hello.key
        and directory.kem_keys[me] == hello.kem_key
        and directory.commitments[me] == hello.commitment
        and directory.verify_keys[me] == hello.verify_key
        and np.array_equal(directory.values[me], hello.values)
    )


async def _open_client(
    io: RoleIO,
    own: _Ephemeral,
    directory: Directory,
    invited: Sequence[str],
    secrets: Mapping[str, bytes],
    signed: bool,
) -> tuple[Openings, dict[str, bytes]]:
    """Open values until nobody is left out; return who is left, and the secrets with all."""
    here = [i for i, present in enumerate(directory.present) if present]
    me = list(invited).index(io.name)
    later = {invited[i]: directory.kem_keys[i] for i in here if i > me and own.kem is not None}
    earlier = () if own.kem is None else (SERVER, *(invited[i] for i in here if i < me))
    drawn = await _encapsulated(io, later, signed)
    known = dict(enumerate(directory.commitments))
    ciphertexts = tuple(ciphertext for _, ciphertext in drawn.values())
    mixed = dict(secrets)
    for attempt, value in enumerate(own.openings):
        await io.send(SERVER, Opening(value, ciphertexts))
        count = 0 if attempt else len(earlier)
        opened = await io.recv(Openings, SERVER, invited=len(invited), count=count)
        left = [i for i, present in enumerate(opened.present) if present]
        if left and me not in left and not any(opened.values[me]):
            raise Excluded(io.name, io.current_step)
        if opened.values[me] != value or me not in left:
            raise FaultyPeer(SERVER, f"does not count what {io.name} opened")
        for i in left:
            if i not in here or _committed(opened.values[i]) != known[i]:
                raise FaultyPeer(SERVER, f"shows another value than {invited[i]} has committed to")
        if own.kem is not None and not attempt:
            for party, (secret, box) in drawn.items():
                mixed[party] = hybrid_secret(secrets[party], secret, io.name, party, box)
            for party, box in zip(earlier, opened.ciphertexts, strict=True):
                secret = own.kem.decapsulate(box)
                mixed[party] = hybrid_secret(secrets[party], secret, party, io.name, box)
        if left == here:
            return opened, mixed
        here, known, ciphertexts = left, dict(enumerate(opened.values)), ()
    raise FaultyPeer(SERVER, f"leaves a client out in each of {OPENINGS} attempts")


async def key_exchange_server(
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
    """Open a session with those invited clients that answer, `at_least` so many.

    The other arguments are those of `key_exchange_client`, but for `numbers`: how many public
    numbers each client announces.

    Returns:
        The session: keys with every client that answered, and their numbers.

    Raises:
        ParameterError: names collide, an identity is missing, or the own key is not the one that
            is pinned.
        FaultyPeer: a client has other agreement parameters (which are named), a weak or malformed
            key or that of another, announces a number above `MAX_ANNOUNCED`, has not signed with
            the identity pinned for it, or opens another value than it committed to.
        TooFewParties: fewer than `at_least` answered, or clients left in each of `OPENINGS`
            attempts.
    """
    if len(set(invited)) != len(invited) or SERVER in invited:
        raise ParameterError("client names must differ from each other and from 'server'")
    if identities is not None:
        agreement = identities.bind(agreement, io.name, invited)
    signed, kem = identities is not None, KEM_KEY_BYTES if post_quantum else 0
    own = await io.compute(KeyPair.generate, rng)
    dims = {"numbers": numbers, "signature": SIGNATURE_BYTES if signed else 0, "kem": kem}
    try:
        hellos = await io.gather(Hello, invited, at_least, agreement=agreement.size, **dims)
    except FaultyPeer as error:
        how = f"{'with' if signed else 'without'} identities, {'with' if kem else 'without'} ML-KEM"
        raise FaultyPeer(
            error.parties,
            f"{error.reason}; this party runs {how} and {len(agreement.fields)} agreed parameters, "
            "and all parties must do the same",
        ) from None
    for client, hello in hellos.items():
        agreement.require_same(hello.agreement, client)
        _require_verify_key(hello.verify_key, client)
    if identities is not None:
        await io.compute(_verify_hellos, identities, hellos, invited)
    directory = _directory(own.public.encode(), hellos, invited, **dims)
    if identities is not None:
        signature = identities.own.sign(_signed_directory(directory, invited, agreement))
        directory = replace(directory, signature=signature)
    secrets = await io.compute(_classical_secrets, io, own, directory, invited, signed)
    keys = {client: hello.kem_key for client, hello in hellos.items() if post_quantum}
    drawn = await _encapsulated(io, keys, signed)
    await io.send(tuple(invited), directory)  # those who come later see that they are not in it
    opened = await _open_server(io, directory, invited, drawn, at_least)
    for client, (secret, box) in drawn.items():
        secrets[client] = hybrid_secret(secrets[client], secret, SERVER, client, box)
    return _session(io, invited, agreement, directory, opened, secrets, signed, signing=None)


def _require_verify_key(data: bytes, client: str) -> None:
    """Require a key under which nobody but its owner can sign."""
    try:
        Identity(data)
    except DecodeError as error:
        raise FaultyPeer(client, f"its signing key: {error}") from None


def _directory(
    server_key: bytes,
    hellos: Mapping[str, Hello],
    invited: Sequence[str],
    *,
    numbers: int,
    signature: int,
    kem: int,
) -> Directory:
    """Return the directory of those that came, not signed."""
    zeros = np.zeros(numbers, dtype=np.uint32)
    no_key, no_value = bytes(KEY_BYTES), bytes(SEED_BYTES)
    absent = Hello(
        no_key, bytes(kem), no_value, bytes(IDENTITY_BYTES), b"", zeros, bytes(signature)
    )
    entries = [hellos.get(client, absent) for client in invited]
    return Directory(
        server_key=server_key,
        present=np.array([c in hellos for c in invited]),
        keys=tuple(entry.key for entry in entries),
        kem_keys=tuple(entry.kem_key for entry in entries),
        commitments=tuple(entry.commitment for entry in entries),
        verify_keys=tuple(entry.verify_key for entry in entries),
        values=np.array([entry.values for entry in entries]).reshape(len(invited), numbers),
        signatures=tuple(entry.signature for entry in entries),
        signature=bytes(signature),
    )


async def _open_server(
    io: RoleIO,
    directory: Directory,
    invited: Sequence[str],
    drawn: Mapping[str, tuple[bytes, bytes]],
    at_least: int,
) -> Openings:
    """Gather what clients open until nobody is left out; hand out ciphertexts the first time."""
    here = tuple(c for c, present in zip(invited, directory.present, strict=True) if present)
    known = dict(zip(invited, directory.commitments, strict=True))
    waiting = {client: [ciphertext] for client, (_, ciphertext) in drawn.items()}
    for attempt in range(OPENINGS):
        first = waiting and not attempt
        counts = {c: len(here) - 1 - i if first else 0 for i, c in enumerate(here)}
        got = await io.gather(Opening, here, at_least, count=counts)
        for client, message in got.items():
            if _committed(message.value) != known[client]:
                raise FaultyPeer(client, "opens another value than it committed to")
            known[client] = message.value
        absent = bytes(SEED_BYTES)
        opened = Openings(
            present=np.array([c in got for c in invited]),
            values=tuple(known[c] if c in got else absent for c in invited),
            ciphertexts=(),
        )
        if first:
            nothing = (bytes(CIPHERTEXT_BYTES),) * len(here)
            for i, client in enumerate(here):
                boxes = got[client].ciphertexts if client in got else nothing
                for later, ciphertext in zip(here[i + 1 :], boxes, strict=False):
                    waiting[later].append(ciphertext)
            for client in here:
                await io.send(client, replace(opened, ciphertexts=tuple(waiting.pop(client))))
        else:
            await io.send(here, opened)
        if len(got) == len(here):
            return opened
        here = tuple(c for c in here if c in got)
    reason, left = "clients left in every attempt", tuple(c for c in counts if c not in got)
    raise TooFewParties(io.current_step, len(got), len(counts), reason, left)
