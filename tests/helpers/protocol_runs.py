"""Factories of protocol runs with fixed randomness, and whom an error blames."""

import numpy as np

from xclp_crypto.errors import FaultyPeer
from xclp_crypto.params import Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.protocols.boolean import (
    Gates,
    StoredTriples,
    deal_triples,
    dealt_triples,
    ideal_triples,
    smallest,
    to_boolean,
)
from xclp_crypto.protocols.hamming import between_backend, get_backend
from xclp_crypto.protocols.hamming.between import Sizes
from xclp_crypto.protocols.ot import (
    Extension,
    base_transfers,
    bit_triples,
    ideal_ot,
    naor_pinkas,
)
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    secure_row_sums_client,
    secure_row_sums_server,
    secure_sum_client,
    secure_sum_server,
)
from xclp_crypto.protocols.setup import (
    SERVER,
    Identities,
    key_exchange_client,
    key_exchange_server,
    seed_agreement_client,
    seed_agreement_server,
)
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import deliveries
from xclp_crypto.transport.simulate import Faults


def assert_blames(error, parties, words=""):
    """A party found that these, not maybe the server, broke the protocol, and says in what."""
    assert type(error) is FaultyPeer
    assert error.parties == parties
    assert words in str(error)


def on(which, change):
    """Faults that put `change(delivery)` in the place of the messages that `which` chooses."""
    return Faults(on_message=lambda d: change(d) if which(d) else d.payload)


def losing(message, *links):
    """Faults that lose the messages of one type on these links, each a sender and a receiver."""
    return on(lambda d: d.message == message and (d.sender, d.receiver) in links, lambda d: None)


def on_the_last_link(make):
    """Choose, for `every_corruption`, the messages of each type on the last link that has it.

    The other links have had their messages of that type by then, so one can be put in its place.
    """
    links = {d.message: (d.sender, d.receiver) for d in deliveries(make)}
    return lambda d: links[d.message] == (d.sender, d.receiver)


def identities(parties, seed=0):
    """Return `Identities` by party, in which everybody pins everybody."""
    keys = {p: IdentityKey.generate(SeededRng(seed).child("identity", p)) for p in parties}
    pinned = {p: key.public for p, key in keys.items()}
    return {p: Identities(key, pinned) for p, key in keys.items()}


def with_session(
    clients,
    client,
    server,
    *,
    seed=0,
    numbers=None,
    agreement=None,
    identities=None,
    post_quantum=False,
):
    """Return a factory of roles that exchange keys and go on as `client` and `server`.

    `client(session, rng)` and `server(session, rng)` are coroutine functions; `agreement` and
    `identities` are by party. The randomness of a role can be given as its second argument, as a
    `DurableRole` does. Without `post_quantum` all that is sent is a function of the seed: what
    ML-KEM encapsulates is drawn by the library.
    """
    clients = tuple(clients)
    numbers = numbers or {c: [] for c in clients}
    count = len(numbers[clients[0]])
    agreement = agreement or {}
    pins = identities or {}

    def make():
        rng = SeededRng(seed)

        async def client_role(io, own=None):
            own = own or rng.child(io.name)
            agreed = Agreement(**{"version": 1, **agreement.get(io.name, {})})
            with io.step("setup"):
                session = await key_exchange_client(
                    io,
                    clients,
                    agreed,
                    numbers[io.name],
                    own,
                    pins.get(io.name),
                    post_quantum=post_quantum,
                )
            return await client(session, own)

        async def server_role(io, own=None):
            own = own or rng.child(SERVER)
            agreed = Agreement(**{"version": 1, **agreement.get(SERVER, {})})
            with io.step("setup"):
                session = await key_exchange_server(
                    io,
                    clients,
                    agreed,
                    count,
                    own,
                    identities=pins.get(SERVER),
                    post_quantum=post_quantum,
                )
            return await server(session, own)

        return {**dict.fromkeys(clients, client_role), SERVER: server_role}

    return make


def setup(clients=("a", "b", "c"), seed=0, **options):
    """Key exchange and seed agreement; clients return the secret, the server who holds it."""

    async def server(session, rng):
        return await seed_agreement_server(session)

    return with_session(clients, agreed_secret, server, seed=seed, **options)


async def agreed_secret(session, rng):
    """Agree on the common secret, as a client, and return it."""
    await seed_agreement_client(session, rng)
    return session.common_secret


def hamming(backend, bits, seed=0, **options):
    """SecureHamming over `bits`, an array by client; the server returns `Distances`."""
    method = get_backend(backend)
    arrays = {c: np.asarray(b, dtype=np.uint8) for c, b in bits.items()}
    n_bits = next(iter(arrays.values())).shape[1]

    async def client(session, rng):
        if method.needs_common_secret:
            with session.io.step("setup"):
                await seed_agreement_client(session, rng)
        with session.io.step("hamming"):
            await method.client(session, arrays[session.io.name], rng)

    async def server(session, rng):
        if method.needs_common_secret:
            with session.io.step("setup"):
                await seed_agreement_server(session)
        with session.io.step("hamming"):
            return await method.server(session, n_bits)

    return with_session(
        bits, client, server, seed=seed, numbers={c: [len(b)] for c, b in arrays.items()}, **options
    )


def between(backend, rows, columns, seed=0, **options):
    """Distances of `rows` to `columns`, arrays by client; the server returns `Between`."""
    method = between_backend(backend)
    n_bits = next(iter(rows.values())).shape[1]

    def sizes(session):
        here = session.clients
        return Sizes({c: len(rows[c]) for c in here}, {c: len(columns[c]) for c in here})

    async def client(session, rng):
        session.common_secret = SeededRng(seed).bytes(32)
        with session.io.step("hamming"):
            me = session.io.name
            await method.client_between(session, sizes(session), rows[me], columns[me], rng)

    async def server(session, rng):
        with session.io.step("hamming"):
            return await method.server_between(session, sizes(session), n_bits)

    numbers = {c: [len(rows[c]), len(columns[c])] for c in rows}
    return with_session(rows, client, server, seed=seed, numbers=numbers, **options)


def secure_sum(
    values,
    *,
    graph=None,
    fraction_bits=20,
    modulus=1 << 64,
    seed=0,
    client=secure_sum_client,
    server=secure_sum_server,
):
    """SecureSum over `values`, an array by client; the server returns `SecureSum`."""
    graph = graph or MaskGraph.complete(tuple(values))
    codec = FixedPoint(fraction_bits, len(values), modulus)
    shape = np.shape(next(iter(values.values())))

    async def client_part(session, rng):
        with session.io.step("sum"):
            return await client(session, values[session.io.name], codec, graph, rng)

    async def server_part(session, rng):
        with session.io.step("sum"):
            return await server(session, shape, codec, graph, clients=session.clients)

    return with_session(tuple(values), client_part, server_part, seed=seed)


def row_sums(
    values,
    rows,
    *,
    graph=None,
    mode="recover",
    fraction_bits=20,
    modulus=1 << 64,
    seed=0,
    client=secure_row_sums_client,
    server=secure_row_sums_server,
):
    """SecureRowSums over `values` and `rows`, both by client; clients return `RowSums`."""
    graph = graph or MaskGraph.complete(tuple(rows))
    codec = FixedPoint(fraction_bits, len(rows), modulus)
    owned = {c: np.asarray(r, dtype=np.intp) for c, r in rows.items()}
    columns = next(iter(values.values())).shape[1]

    async def client_part(session, rng):
        with session.io.step("row sums"):
            own = values[session.io.name]
            return await client(session, own, owned, codec, graph, rng, mode=mode)

    async def server_part(session, rng):
        with session.io.step("row sums"):
            return await server(
                session, owned, columns, codec, graph, clients=session.clients, mode=mode
            )

    return with_session(tuple(rows), client_part, server_part, seed=seed)


def oblivious_transfer(construction, sending, receiving, seed=0):
    """Transfers between the parties: `sending[a][b]` messages, `receiving[b][a]` choices."""
    parties = dict.fromkeys([*sending, *receiving])

    def make():
        rng = SeededRng(seed)

        async def role(io):
            own = rng.child(io.name)
            return await construction(
                io, sending.get(io.name, {}), receiving.get(io.name, {}), b"batch", own
            )

        return dict.fromkeys(parties, role)

    return make


def triples(make_triples, count, *, base=naor_pinkas, check=False, seed=0):
    """Triples of client-a and client-b; each returns its shares."""

    def make():
        rng = SeededRng(seed)

        async def role(io):
            (peer,) = {"client-a", "client-b"} - {io.name}
            own = rng.child(io.name)
            transfers = await base_transfers(io, (peer,), (peer,), b"base", own, base)
            extension = Extension(transfers, b"triples", own, check_receiver=check)
            with io.step("triples"):
                return await make_triples(io, peer, count, extension, own)

        return {"client-a": role, "client-b": role}

    return make


async def triples_of(source, io, peer, words, seed):
    """Return a party's triples from one of the sources that `boolean` names."""
    if source == "ideal":
        return ideal_triples(io.name, peer, b"sid", words)
    if source == "dealer":
        return await dealt_triples(io, "dealer", peer, b"sid", words)
    rng = SeededRng(seed).child(io.name)
    with io.step("triples"):
        base = await base_transfers(io, (peer,), (peer,), b"base", rng, ideal_ot)
        extension = Extension(base, b"triples", rng)
        return StoredTriples(await bit_triples(io, peer, words, extension, rng))


def boolean(circuit, values, width, *, source="dealer", seed=0, budget=1 << 12, known_to=None):
    """Return a factory of p and q, which run a circuit on numbers that they share, and a dealer.

    Args:
        circuit: a coroutine function of the gates and the planes of each number.
        values: the numbers, (…, n) each, of an unsigned dtype; shared additively modulo 2^width.
        width: bits of a number.
        source: of triples, ``dealer``, ``transfers`` (with ideal base transfers) or ``ideal``.
        seed: of all randomness.
        budget: words of triples.
        known_to: who has the numbers as they are, by default nobody.

    Each party's result is the opened planes that the circuit gives, and its gates.
    """

    def make():
        draw = SeededRng(seed).child("addends")
        masks = [draw.residues(1 << width, value.shape).astype(value.dtype) for value in values]
        low = np.uint64((1 << width) - 1)
        addends = {"p": [(v - m) & low for v, m in zip(values, masks, strict=True)], "q": masks}
        if known_to is not None:
            addends = {c: values if c == known_to else [v - v for v in values] for c in "pq"}

        def party(me, peer):
            async def role(io):
                gates = Gates(io, peer, await triples_of(source, io, peer, budget, seed))
                planes = [await to_boolean(gates, own, width) for own in addends[me]]
                return await gates.open(await circuit(gates, *planes)), gates

            return role

        async def dealer(io):
            await deal_triples(io, ("p", "q"), b"sid", budget, SeededRng(seed).child("dealer"))

        roles = {"p": party("p", "q"), "q": party("q", "p")}
        return roles | ({"dealer": dealer} if source == "dealer" else {})

    return make


async def two_smallest(gates, numbers):
    """Return which two numbers of each lane are the smallest, a circuit for `boolean`."""
    return (await smallest(gates, numbers, 2))[None]
