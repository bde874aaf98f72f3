"""Labels for rows that come after a session, from what its clients kept; nothing is solved again.

::

    client j                                         server
    setup: keys, numbers of new and old rows ◀─────▶
    hashing: Introduction, from a client that was in the session to each that was not
             B = sign(V·Πᵀ) of the new rows
             Recalled(digest of what it knows) ────▶ all digests equal?
    hamming: distances of new to old rows ◀────────▶ h, (m, n)
    propagation:                                     the k nearest old rows of each new one
             ◀────── Participants, Neighbours, Weights(of j's old rows, for all new rows)
             P_j = W_j·Z_j
    row sums: SecureRowSums ◀──────────────────────▶
    labels:  argmax and entropy of the own new rows of Σ_j P_j
             Labelled ─────────────────────────────▶

Row i of the old ones has the scores Z_i of the session. A new row gets their mean over its k
nearest old rows, each with the weight cos(πh/L)^γ; then scores weigh by class as they did. New rows
do not count for each other, and old rows keep their labels.

*Server learns* the distances of new to old rows: all angles between them, and so where the new rows
lie on the map that it may have kept. *Client j learns* scores of its new rows, and which new rows
lean on which of its old ones, how much in proportion to others'. A client that was not in the
session learns the projection and, if they are shared, moments and labels by class. Public: the
numbers of new and old rows by client. See docs/understand/reveals.md.

*A client that drops out* before the distances are complete takes its old rows with it, as if the
session had been without them. Later, its old rows do not count: new rows get the mean over what
others have. With noise in the sums of the session nothing more is spent: its scores are not exact,
and what follows from them is no less private.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import DataError, FaultyPeer, ParameterError
from xclp_crypto.params import Agreement
from xclp_crypto.protocols.hamming import between_backend
from xclp_crypto.protocols.hamming.between import Sizes
from xclp_crypto.protocols.hamming.interface import column_ranges
from xclp_crypto.protocols.secure_sum import secure_row_sums_client, secure_row_sums_server
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
from xclp_lp.graph import nearest_weights
from xclp_lp.kept import Kept
from xclp_lp.labelling import (
    Participation,
    missing_from,
    own_scores,
    receive_participants,
    spread,
)
from xclp_lp.lsh import zero_rows
from xclp_lp.memory import require_announced_room
from xclp_lp.messages import (
    Introduction,
    Labelled,
    Neighbours,
    Participants,
    Prepared,
    Recalled,
    Weights,
)
from xclp_lp.parameters import Parameters, label_codec
from xclp_lp.predictions import Prediction, predict
from xclp_lp.scaling import LARGEST, SMALLEST, Moments, clipped
from xclp_lp.session import hash_rows, open_client, require_same_features


def _agreement(params: Parameters) -> Agreement:
    """Return what all must have in common; in no other session is it the same."""
    return Agreement(**params.agreement().fields | {"rows": "later ones"})


def check_kept(kept: Kept, params: Parameters, features: int) -> None:
    """Refuse what was kept of a session of other parameters.

    Raises:
        ParameterError: number of bits or classes differ, or whether labels weigh by class.
        DataError: the new rows have another number of features.
    """
    if features != kept.own.features:
        raise DataError(f"the new rows have {features} features, the old ones {kept.own.features}")
    shapes = kept.own.packed.shape[1], kept.sums.shape[1], kept.totals is not None
    if shapes != (-(-params.n_bits // 8), len(params.classes), params.class_totals):
        raise ParameterError(
            "what was kept is of a session with another n_bits, other classes or another "
            "class_weight; give the parameters of that session"
        )


async def predict_client_role(
    io: RoleIO,
    vectors: NDArray[np.floating[Any]],
    kept: Kept | None,
    params: Parameters,
    invited: Sequence[str],
    rng: Rng,
    identities: Identities | None = None,
) -> Prediction:
    """Get labels for new rows, and help others to get theirs, as a client.

    Args:
        io: this client, one of `invited`.
        vectors: (m_j, d) its new rows; there may be none.
        kept: what it kept of the session, or None if it was not in it.
        params: the agreement of the session.
        invited: names of all clients, in the order that all parties agree on.
        rng: source of keys and masks.
        identities: own key and pinned identities; all parties use the same, or none.

    Returns:
        Class indices, confidences and distributions of its new rows.

    Raises:
        ParameterError: the back end does not know distances of new to old rows only, or `kept` is
            of a session with other parameters.
        DataError: the new rows have another number of features, or all announce more rows than this
            machine has memory for.
        ProtocolError, Excluded, FaultyPeer: as from `client_role`.
    """
    backend, n_classes = between_backend(params.hamming), len(params.classes)
    params = params.for_session(len(invited))
    if kept is not None:
        check_kept(kept, params, params.scaling.width(vectors.shape[1]))
    vectors = params.scaling.features(vectors)
    taken, own, _ = with_direction(vectors, kept, params)
    old_rows = 0 if kept is None else len(kept.own.packed)
    with io.step("setup"):
        numbers = [len(own), old_rows, vectors.shape[1], int(kept is not None)]
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
        was_there = [c for c, numbers in session.numbers.items() if numbers[3]]
        known, bits, digest = await hashed_new(session, params, kept, was_there, own)
        await io.send(SERVER, Recalled(_digest(known, digest, params)))
    with io.step("hamming"):
        old_bits = np.unpackbits(known.own.packed, axis=1, count=params.n_bits)
        await backend.client_between(session, _sizes(session), bits, old_bits, rng)
        del bits, old_bits
    with io.step("propagation"):
        sizes = await receive_participants(session, _sizes(session).rows, params)
        part = await _receive_part(session, sum(sizes.values()), known.sums)
    with io.step("row sums"):
        sums = await secure_row_sums_client(
            session,
            part,
            _rows(sizes),
            label_codec(params, len(sizes)),
            params.mask_graph(tuple(sizes)),
            rng,
        )
    with io.step("labels"):
        weighed = await io.compute(own_scores, params, sums.values, known.totals, known.labels)
        prediction = spread(await io.compute(predict, weighed), taken, n_classes)
        await io.send(SERVER, Labelled())
        there = session.clients, sizes, sums.contributors
        return replace(prediction, dropouts=missing_from(invited, *there, later=True))


def with_direction(
    vectors: NDArray[Any], kept: Kept | None, params: Parameters
) -> tuple[NDArray[np.bool_], NDArray[Any], Moments | None]:
    """Return which new rows take part, those rows, and what scaled them.

    Where moments are shared, rows are not scaled yet, and all take part.

    Args:
        vectors: (m_j, d) new rows of a client.
        kept: what it kept of the session, or None if it was not in it.
        params: the agreement.
    """
    if params.shared_scale:
        return np.ones(len(vectors), dtype=np.bool_), vectors, None
    moments = None
    if params.scale == "client":
        moments = None if kept is None else kept.own.moments
        moments = moments or params.scaling.moments_alone(vectors)
        vectors = moments.scaled(vectors)
    else:
        vectors = clipped(vectors, params.winsorise)
    taken = ~zero_rows(vectors)
    return taken, vectors[taken], moments


async def hashed_new(
    session: Session,
    params: Parameters,
    kept: Kept | None,
    was_there: Sequence[str],
    vectors: NDArray[Any],
) -> tuple[Kept, NDArray[np.uint8], bytes]:
    """Return what a client knows of the earlier session, and its new rows hashed as there.

    Args:
        session: the client's session.
        params: the agreement.
        kept: what it kept of the earlier session, or None if it was not in that.
        was_there: the clients that were in it.
        vectors: (m_j, d) from `with_direction`.

    Returns:
        What it knows, the bits (m_j, L), and the digest of the projection.

    Raises:
        FaultyPeer: nobody was in it.
    """
    io = session.io
    known = await _introduced(session, params, kept, was_there, vectors.shape[1])
    if params.shared_scale and known.own.moments is not None:
        vectors = await io.compute(known.own.moments.scaled, vectors)
    bits, digest = await io.compute(
        hash_rows, known.own.seed, vectors, params.n_bits, params.projection, io.report
    )
    return known, bits, digest


async def _introduced(
    session: Session, params: Parameters, kept: Kept | None, was_there: Sequence[str], d: int
) -> Kept:
    """Return what this client knows of the earlier session, and tell those who were not in it.

    Args:
        session: the client's session.
        params: the agreement.
        kept: what it kept of the earlier session, or None if it was not in that.
        was_there: the clients that were in it.
        d: number of features.

    Raises:
        FaultyPeer: nobody was in it, or what one tells cannot be.
    """
    io = session.io
    if not was_there:
        raise FaultyPeer(SERVER, "goes on with no client that was in the session before")
    if kept is None:
        told = await io.recv(
            Introduction,
            was_there[0],
            features=d if params.shared_scale else 0,
            classes=len(params.classes) if params.class_totals else 0,
        )
        tiny = (told.deviation > 0) & (told.deviation < SMALLEST)
        if tiny.any() or (np.abs(told.mean) > LARGEST).any():  # with which own rows would overflow
            raise FaultyPeer(was_there[0], "tells of moments that no rows have")
        return Kept.told(told, d, params.n_bits, len(params.classes), params.winsorise)
    if io.name == was_there[0]:
        new = [c for c in session.clients if c not in was_there]
        await io.send(new, kept.introduction(kept.own.moments if params.shared_scale else None))
    return kept


def _digest(known: Kept, projection: bytes, params: Parameters) -> bytes:
    """Return a digest of what all clients must know alike."""
    shared = known.own.moments if params.shared_scale else None
    arrays = [known.totals] if shared is None else [shared.mean, shared.deviation, known.totals]
    content = (b"" if a is None else a.astype("<f8").tobytes() for a in arrays)
    tag = domain_tag("kept of a session", known.session, projection, *content)
    return hashlib.sha256(tag).digest()


async def _receive_part(
    session: Session, rows: int, sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Receive how much this client's old rows count, and return its part of all new scores.

    Args:
        session: the client's session.
        rows: m, new rows of all clients.
        sums: (n_j, C) of its old rows.

    Returns:
        (m, C) float64.
    """
    io = session.io
    near = (await io.recv(Neighbours, SERVER, rows=rows, columns=len(sums))).near
    values = (await io.recv(Weights, SERVER, values=int(near.sum()))).values
    return await io.compute(weighed_sums, near, values, sums)


def weighed_sums(
    near: NDArray[np.bool_], values: NDArray[np.float32], sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return W·Z, (m, C).

    Args:
        near: (m, n_j), where W is not zero.
        values: what it is there, row by row.
        sums: Z, (n_j, C).
    """
    ends = np.concatenate([[0], np.cumsum(near.sum(axis=1))])
    weights = sparse.csr_array((values.astype(np.float64), near.nonzero()[1], ends), near.shape)
    return np.asarray(weights @ sums)


def _rows(sizes: Mapping[str, int]) -> dict[str, NDArray[np.intp]]:
    """Return each client's new rows among those of all."""
    return {c: np.arange(place.start, place.stop) for c, place in column_ranges(sizes).items()}


async def predict_server_role(
    io: RoleIO,
    params: Parameters,
    invited: Sequence[str],
    rng: Rng,
    identities: Identities | None = None,
) -> Participation:
    """Get labels for new rows as the server, which needs nothing of the session before.

    Args:
        io: the server.
        params: the agreement of the session.
        invited: names of all clients, in the order that all parties agree on.
        rng: source of its keys.
        identities: own key and pinned identities; all parties use the same, or none.

    Returns:
        New rows by client that was there when the distances were complete, and clients whose old
        rows count.

    Raises:
        ParameterError: the back end does not know distances of new to old rows only.
        TooFewParties: fewer clients than the threshold are left.
        FaultyPeer: a client knows another session, or has other parameters.
        DataError: there is no new row, no old row, or more than this machine has memory for; or
            features differ in number.
    """
    backend = between_backend(params.hamming)
    params = params.for_session(len(invited))
    at_least = params.at_least
    leavers = Leavers()

    with io.step("setup"):
        session = await key_exchange_server(
            io,
            invited,
            _agreement(params),
            4,
            rng,
            at_least,
            identities,
            post_quantum=params.post_quantum,
        )
        leavers.note("setup", invited, session.clients)
        _check_numbers(session)
        require_announced_room(session, _sizes(session), params)
        if backend.needs_common_secret:
            leavers.note("setup", session.clients, await seed_agreement_server(session, at_least))
    io = session.io
    with io.step("hashing"):
        known = await io.gather(Recalled, session.clients, at_least)
        leavers.note("hashing", session.clients, known)
        require_same_session(session, known)
    with io.step("hamming"):
        found = await backend.server_between(session, _sizes(session), params.n_bits, at_least)
        sizes = found.rows
        leavers.note("hamming", session.clients, sizes)
        leavers.note_apart("hamming", found.apart)
    with io.step("propagation"):
        await io.send(session.clients, Participants(np.array([c in sizes for c in session.sizes])))
        weights = await io.compute(
            nearest_weights,
            found.matrix,
            params.n_bits,
            params.k,
            gamma=params.gamma,
            ties=params.ties,
        )
        for client, place in column_ranges(found.columns).items():
            own = weights[:, place].toarray().astype(np.float32)
            await io.send(client, Neighbours(own > 0))
            await io.send(client, Weights(own[own > 0]))
    with io.step("row sums"):
        record = await secure_row_sums_server(
            session,
            _rows(sizes),
            len(params.classes),
            label_codec(params, len(sizes)),
            params.mask_graph(tuple(sizes)),
        )
        leavers.note("row sums", record.dropouts, ())
        leavers.note_apart("row sums", record.apart)
    with io.step("labels"):
        leavers.note("labels", sizes, await io.gather(Labelled, tuple(sizes), 0))
    dropouts = leavers.dropouts(record.survivors, later=True)
    contradictions = leavers.contradictions
    return Participation(sizes, record.survivors, dropouts, contradictions=contradictions)


def _sizes(session: Session) -> Sizes:
    """Return the numbers of new and of old rows, as announced."""
    new, old = ({c: own[i] for c, own in session.numbers.items()} for i in (0, 1))
    return Sizes(new, old)


def _check_numbers(session: Session) -> None:
    """Refuse public numbers that do not fit together.

    Raises:
        DataError: features differ in number, or there is no new or no old row.
        FaultyPeer: a client announces old rows of a session in which it was not.
    """
    require_same_features(session)
    for client, (_, old, _, was_there) in session.numbers.items():
        if was_there > 1 or (old and not was_there):
            raise FaultyPeer(client, "announces old rows of a session in which it was not")
    for number, what in ((0, "new rows: there is nothing to label"), (1, "rows of a session")):
        if not any(numbers[number] for numbers in session.numbers.values()):
            raise DataError(f"no client has any {what}", public=True)


def require_same_session(
    session: Session, known: Mapping[str, Recalled | Prepared], kept: bytes | None = None
) -> None:
    """Refuse clients that do not know the same of the same session.

    Newcomers know what the first that was there told them: it is named with them.

    Args:
        session: the server's; the last number of a client says whether it was there.
        known: what clients sent.
        kept: the digest of what the server kept, if it did.

    Raises:
        FaultyPeer: names two of them, or one and the server; and who told what they know.
    """
    was_there = [c for c, numbers in session.numbers.items() if numbers[-1]]

    def require(digest: bytes, parties: tuple[str, str], reason: str) -> None:
        if not hmac.compare_digest(known[parties[0]].digest, digest):
            tellers = [] if {*parties} <= {*was_there, SERVER} else was_there[:1]
            raise FaultyPeer(tuple(dict.fromkeys([*tellers, *parties])), reason, public=True)

    first, *others = sorted(known, key=lambda client: client not in was_there)
    for client in others:
        reason = "they know different sessions; use what each kept of the same one"
        require(known[client].digest, (first, client), reason)
    if kept is not None:
        require(kept, (first, SERVER), "the server kept the distances of another session")
