"""Label propagation over old and new rows, where only distances of new rows are computed.

::

    client j                                         server
    setup: keys, numbers of old and new rows ◀─────▶
    hashing: Introduction, from a client that was in the session to each that was not
             B = sign(V·Πᵀ) of the new rows
             Prepared(digest, labelled rows) ──────▶ is it the session whose H it kept?
    hamming: distances of new to all rows ◀────────▶ h, (m, n + m); H and h make the H of all
    propagation, row sums, labels, validation: as in `xclp_lp.session`

The labels of all rows, old ones too, are those of a session over all of them with the same
projection and moments: features are scaled as they were before, and old labels enter as they
entered then, randomised if they were. So a new labelled row, or a new client, counts for everybody.

*Server learns* H of all rows, as in a session over all; it can tell the old rows from the new ones,
and must have kept H of the old ones, which is as secret as H. *Client j learns* what it would in
such a session, and has the scores of its old rows from before: how others' new rows and labels
changed them. See docs/understand/reveals.md.

*A client that is not there*, or that kept nothing, takes its old rows out of H. One that drops out
later counts as in a session. A client that was not in the session learns the projection, and the
moments if they are shared. There need not be new rows: old ones then get labels without those of
clients that left.

Sums with noise would spend their epsilon again, for labels that were paid for: refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import FaultyPeer, ParameterError
from xclp_crypto.params import Agreement
from xclp_crypto.privacy import RandomizedResponse
from xclp_crypto.protocols.hamming import between_backend
from xclp_crypto.protocols.hamming.between import Between, Sizes
from xclp_crypto.protocols.hamming.checks import require_bit_vectors
from xclp_crypto.protocols.hamming.interface import Distances, column_ranges
from xclp_crypto.protocols.setup import (
    SERVER,
    Identities,
    Session,
    key_exchange_server,
    seed_agreement_server,
)
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_lp.dropouts import Leavers
from xclp_lp.kept import Hashed, Kept, KeptDistances
from xclp_lp.labelling import (
    Announced,
    Participation,
    label_client,
    label_server,
    require_labels,
)
from xclp_lp.labels import UNLABELLED
from xclp_lp.later import check_kept, hashed_new, require_same_session, with_direction
from xclp_lp.memory import require_announced_room
from xclp_lp.messages import Prepared
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction
from xclp_lp.session import (
    ClientData,
    checked_marks,
    of_columns,
    open_client,
    require_same_features,
)


def _agreement(params: Parameters) -> Agreement:
    """Return what all must have in common; in no other session is it the same."""
    return Agreement(**params.agreement().fields | {"rows": "old and new ones"})


def require_updates(params: Parameters) -> None:
    """Refuse parameters of sessions that cannot be updated.

    Raises:
        ParameterError: the back end does not know distances of new to old rows only, or the sums
            have noise.
    """
    between_backend(params.hamming)
    if params.noise is not None:
        raise ParameterError(
            "with noise in the sums every update would spend epsilon again; label new rows with "
            "predict, which spends nothing, or run a session of all rows"
        )


def _digest(session: bytes, projection: bytes) -> bytes:
    """Return what shows that a party knows a session, and its projection."""
    return hashlib.sha256(domain_tag("update of a session", session, projection)).digest()


def _announced(session: Session) -> Announced:
    """Return rows of the graph and labelled ones, old and new, as announced."""
    return Announced(session.sizes, {c: own[1] for c, own in session.numbers.items()})


def _sizes(session: Session) -> Sizes:
    """Return the numbers of new rows, and of all, as announced."""
    return Sizes({c: own[3] for c, own in session.numbers.items()}, session.sizes)


async def update_client_role(
    io: RoleIO,
    data: ClientData,
    kept: Kept | None,
    params: Parameters,
    invited: Sequence[str],
    rng: Rng,
    identities: Identities | None = None,
) -> Prediction:
    """Get labels for old and new rows, as a client.

    Args:
        io: this client, one of `invited`.
        data: its new rows, of which there may be none, and their labels.
        kept: what it kept of the session, or None if it was not in it.
        params: the agreement of the session.
        invited: names of all clients, in the order that all parties agree on.
        rng: source of keys and masks.
        identities: own key and pinned identities; all parties use the same, or none.

    Returns:
        Class indices, confidences and distributions of its old rows, then of its new ones; and
        what to keep for later.

    Raises:
        ParameterError: see `require_updates`; or `kept` is of a session with other parameters.
        DataError: the new rows have another number of features, or all announce more rows than this
            machine has memory for.
        ProtocolError, Excluded, FaultyPeer: as from `client_role`.
    """
    require_updates(params)
    backend, n_classes = between_backend(params.hamming), len(params.classes)
    params = params.for_session(len(invited))
    if kept is not None:
        check_kept(kept, params, params.scaling.width(data.vectors.shape[1]))
    features = params.scaling.features(data.vectors)
    taken, vectors, moments = with_direction(features, kept, params)
    class_ids = data.class_ids[taken]
    labelled = class_ids != UNLABELLED
    if isinstance(params.privacy, RandomizedResponse):
        class_ids[labelled] = params.privacy.randomize(class_ids[labelled], n_classes, rng)
    d, new = vectors.shape[1], len(vectors)
    in_graph = taken
    if kept is not None:
        class_ids = np.concatenate([kept.own.class_ids, class_ids])
        in_graph = np.concatenate([kept.own.in_graph, taken])
    labelled = class_ids != UNLABELLED
    with io.step("setup"):
        numbers = [len(class_ids), int(labelled.sum()), d, new, int(kept is not None)]
        session = await open_client(
            io,
            invited,
            params,
            _agreement(params),
            numbers,
            rng,
            identities,
            common_secret=backend.needs_common_secret,
        )
        require_announced_room(session, _sizes(session), params)
    io = session.io
    with io.step("hashing"):
        was_there = [c for c, numbers in session.numbers.items() if numbers[4]]
        known, bits, projection = await hashed_new(session, params, kept, was_there, vectors)
        moments = moments or known.own.moments
        projection = of_columns(projection, data.columns)
        await io.send(SERVER, Prepared(_digest(known.session, projection), labelled))
        packed = np.concatenate([known.own.packed, np.packbits(bits, axis=1)])
        own = Hashed(known.own.seed, moments, d, packed, class_ids, in_graph)
    with io.step("hamming"):
        everything = np.unpackbits(packed, axis=1, count=params.n_bits)
        await backend.client_between(session, _sizes(session), bits, everything, rng)
        del bits, everything
    return await label_client(session, params, invited, _announced(session), own, rng)


async def update_server_role(
    io: RoleIO,
    kept: KeptDistances,
    params: Parameters,
    invited: Sequence[str],
    rng: Rng,
    identities: Identities | None = None,
) -> Participation:
    """Let the clients label old and new rows, as the server, and keep the distances of all.

    Args:
        io: the server.
        kept: what it kept of the session.
        params: the agreement of the session.
        invited: names of all clients, in the order that all parties agree on.
        rng: source of its keys.
        identities: own key and pinned identities; all parties use the same, or none.

    Raises:
        ParameterError: see `require_updates`.
        TooFewParties: fewer clients than the threshold are left.
        FaultyPeer: a client knows another session, has other parameters or impossible numbers, or
            no bit vectors have the distances of all rows.
        DataError: features differ in number, or this machine has no memory for so many rows.
        ProtocolError: no client that is left has a labelled row.
    """
    require_updates(params)
    backend = between_backend(params.hamming)
    params = params.for_session(len(invited))
    at_least = params.at_least
    leavers = Leavers()
    with io.step("setup"):
        session = await key_exchange_server(
            io,
            invited,
            _agreement(params),
            5,
            rng,
            at_least,
            identities,
            post_quantum=params.post_quantum,
        )
        leavers.note("setup", invited, session.clients)
        _check_numbers(session, kept.distances.sizes)
        params.require_rows(sum(session.sizes.values()))
        require_labels(_announced(session).labelled.values(), leavers)
        require_announced_room(session, _sizes(session), params)
        if backend.needs_common_secret:
            leavers.note("setup", session.clients, await seed_agreement_server(session, at_least))
    io = session.io
    with io.step("hashing"):
        prepared = await io.gather(Prepared, session.clients, at_least, rows=session.sizes)
        leavers.note("hashing", session.clients, prepared)
        require_same_session(session, prepared, _digest(kept.session, kept.projection))
        marks = checked_marks(prepared, _announced(session))
    with io.step("hamming"):
        found = await backend.server_between(session, _sizes(session), params.n_bits, at_least)
        distances = await io.compute(joined, kept.distances, found)
        del found
        places = column_ranges(distances.sizes)
        await io.compute(require_bit_vectors, distances.matrix, places, params.n_bits)
    return await label_server(
        session, params, distances, marks, leavers, projection=kept.projection
    )


def _check_numbers(session: Session, kept: Mapping[str, int]) -> None:
    """Refuse public numbers that do not fit together, or not what the server kept.

    Args:
        session: the server's session.
        kept: rows by client in the distances that the server kept.

    Raises:
        DataError: features differ in number.
        FaultyPeer: names the client whose numbers cannot be.
    """
    require_same_features(session)
    for client, (rows, labelled, _, new, was_there) in session.numbers.items():
        if labelled > rows or new > rows or was_there > 1:
            raise FaultyPeer(client, "announces more labelled or new rows than rows")
        if rows - new != (kept.get(client) if was_there else 0):
            raise FaultyPeer((client, SERVER), "they kept other numbers of old rows of this client")


def joined(old: Distances, found: Between) -> Distances:
    """Return the distances of old and new rows.

    Args:
        old: those of old rows. Of clients that `found` does not have, they are left out.
        found: those of new rows to all, in which the old rows of each client come first. A client
            whose columns are its new rows only has no old ones.

    Raises:
        FaultyPeer: two clients' distances of new rows contradict each other.
    """
    places = column_ranges(found.columns)
    fresh = np.concatenate(
        [np.arange(found.columns[c]) >= found.columns[c] - found.rows[c] for c in found.columns]
    )
    new = np.flatnonzero(fresh)
    among = found.matrix[:, new]
    odd = np.argwhere(among != among.T)
    if len(odd):
        names = np.repeat(list(found.rows), list(found.rows.values()))
        raise FaultyPeer(
            tuple(dict.fromkeys(names[odd[0]].tolist())),
            "what they say of the distances of their new rows to each other is contradictory",
        )
    n = len(fresh)
    matrix = np.empty((n, n), dtype=np.uint16)
    matrix[new] = found.matrix
    matrix[:, new] = found.matrix.T
    before = column_ranges(old.sizes)
    stays = [
        (slice(places[c].start, places[c].stop - found.rows[c]), before[c])
        for c in found.columns
        if found.columns[c] > found.rows[c]
    ]
    for rows, from_rows in stays:
        for columns, from_columns in stays:
            matrix[rows, columns] = old.matrix[from_rows, from_columns]
    return Distances(matrix, dict(found.columns), found.apart)
