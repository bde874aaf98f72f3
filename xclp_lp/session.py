"""Cross-client label propagation between clients and a server (paper, Algorithm 1).

::

    client j                                         server
    setup: keys, sizes, common secret ◀────────────▶
    scaling: SecureRowSums ◀───────────────────────▶ (of moments; not with every `scale`)
    hashing: B = sign(V·Πᵀ), Π from the secret
             Prepared(digest of Π, labelled rows) ─▶ all digests equal?
    hamming: SecureHamming ◀───────────────────────▶ H
    propagation:                                     graph from H, columns of S = (I − α𝒲)⁻¹
             ◀─────── Participants, Geometry, Reach, Influence(columns of j's labelled rows)
             Z̄_j = S_L·Y_L
    row sums: SecureRowSums ◀──────────────────────▶
    labels:  argmax and entropy of the own rows of Z
             Labelled ─────────────────────────────▶ who has its result
    validation: SecureRowSums ◀────────────────────▶ (of counts; see `xclp_lp.leave_one_out`)

*Server learns* H, and so the geometry of all points up to rotation; which rows are labelled, but no
label and no score. *Client j learns* the scores of its own rows, and the columns of S for its
labelled rows, which tell how strongly each point of the federation is tied to them. Public to all:
numbers of rows and of labelled rows by client, d, L, C, the parameters, and two numbers that say
what the graph looks like as a whole.

*A client that drops out* before H is complete counts as never having been there. Later, its points
stay in the graph; its labels count if the row sums have its upload, and not otherwise, as if it had
none. It finds its own result whenever it comes back within the session. See `Dropout`.

With a `class_weight` or `validation` the clients, not the server, learn how many labels each class
has in all: every client's matrix in the row sums has one more row for each owner, its numbers of
labels by class. So the totals are over exactly those clients whose labels count.

With `privacy` each client randomises its labels, or each upload carries noise: see
`xclp_crypto.privacy`.

With a shared `scale` the clients learn each feature's mean and variance over all rows, the server
does not: see `xclp_lp.scaling`. It is part of the step ``hashing``.

Rows that are all zero have no angle to anything. Without shared scaling their client leaves them
out, so nobody learns that they exist, and they get no label.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import DataError, FaultyPeer, FaultyPeerOrServer
from xclp_crypto.params import Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import RandomizedResponse
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.protocols.hamming.between import Sizes
from xclp_crypto.protocols.hamming.interface import Distances
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    Rows,
    secure_row_sums_client,
    secure_row_sums_server,
)
from xclp_crypto.protocols.setup import (
    SERVER,
    Identities,
    Session,
    key_exchange_client,
    key_exchange_server,
    seed_agreement_client,
    seed_agreement_server,
)
from xclp_crypto.rng import Rng
from xclp_crypto.role import OnProgress, RoleIO, recorded
from xclp_crypto.secret import Secret
from xclp_lp.dropouts import Leavers
from xclp_lp.kept import Hashed
from xclp_lp.labelling import (
    Announced,
    Participation,
    label_client,
    label_server,
    require_labels,
)
from xclp_lp.labels import UNLABELLED
from xclp_lp.lsh import Projection, hash_bits, projection, projection_digest
from xclp_lp.memory import require_announced_room
from xclp_lp.messages import Prepared
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction
from xclp_lp.scaling import (
    Moments,
    clipped,
    encoded_moments,
    in_graph,
    moments_rows,
    moments_width,
)


@dataclass(frozen=True, eq=False, repr=False)
class ClientData(Secret):
    """One client's own data; never leaves its role.

    Attributes:
        vectors: (n_j, d) finite feature vectors.
        class_ids: (n_j,) class indices, −1 for unlabelled rows.
        columns: names of the features in their order, where all clients must have the same and
            have not agreed on them otherwise.
        randomised: whether the classes are randomised already, where clients randomise them.
    """

    vectors: NDArray[np.floating[Any]]
    class_ids: NDArray[np.int64]
    columns: tuple[str, ...] = ()
    randomised: bool = False

    def followed_by(self, more: ClientData) -> ClientData:
        """Return these rows, then others.

        Raises:
            DataError: the others have another number of features.
        """
        d, found = self.vectors.shape[1], more.vectors.shape[1]
        if d != found:
            raise DataError(f"the new rows have {found} features, the old ones {d}")
        return ClientData(
            np.concatenate([self.vectors, more.vectors]),
            np.concatenate([self.class_ids, more.class_ids]),
            self.columns,
        )

    def after(self, rows: int) -> ClientData:
        """Return all but the first rows."""
        return ClientData(self.vectors[rows:], self.class_ids[rows:], self.columns)


@recorded
def hash_rows(
    seed: bytes,
    vectors: NDArray[np.floating[Any]],
    n_bits: int,
    kind: Projection = "random",
    progress: OnProgress | None = None,
) -> tuple[NDArray[np.uint8], bytes]:
    """Return the bits (n_j, L) of the vectors and the digest of the projection."""
    pi = projection(seed, n_bits, vectors.shape[1], kind)
    return hash_bits(vectors, pi, progress), projection_digest(pi)


def of_columns(projection: bytes, columns: Sequence[str]) -> bytes:
    """Return what shows that clients have the same projection, and columns of the same names.

    Who does not know the projection learns nothing of the names.

    Args:
        projection: its digest.
        columns: see `ClientData`.
    """
    if not columns:
        return projection
    return hashlib.sha256(domain_tag("projection and columns", projection, *columns)).digest()


async def client_role(
    io: RoleIO,
    data: ClientData,
    params: Parameters,
    invited: Sequence[str],
    rng: Rng,
    projection_seed: bytes | None = None,
    identities: Identities | None = None,
) -> Prediction:
    """Run Algorithm 1 as a client.

    Args:
        io: this client, one of `invited`.
        data: its vectors and labels.
        params: the agreement.
        invited: names of all clients, in the order that all parties agree on.
        rng: source of keys and masks.
        projection_seed: 32 bytes that fix the projection instead of the secret that the clients
            agree on; the same for all clients.
        identities: own key and pinned identities; all parties use the same, or none.

    Returns:
        Class indices, confidences and distributions of this client's rows.

    Raises:
        ProtocolError: another party failed; the children say which.
        Excluded: the others went on without this client.
        FaultyPeer: the server's messages contradict each other or what was agreed.
        DataError, EncodingOverflow: this client's scores do not fit the fixed-point code, or the
            rows that all announce this machine's memory.
        ParameterError: dp-accounting is needed and not installed, or too few fraction bits.
    """
    params = params.for_session(len(invited))
    kept = in_graph(data.vectors, params.scaling)
    features = params.scaling.features(data.vectors)
    vectors, class_ids = features[kept], data.class_ids[kept]
    labelled, n_classes = class_ids != UNLABELLED, len(params.classes)
    if isinstance(params.privacy, RandomizedResponse) and not data.randomised:
        class_ids[labelled] = params.privacy.randomize(class_ids[labelled], n_classes, rng)
    with io.step("setup"):
        numbers = [len(class_ids), int(labelled.sum()), vectors.shape[1]]
        session = await open_client(
            io, invited, params, params.agreement(), numbers, rng, identities
        )
        require_announced_room(session, Sizes(session.sizes, session.sizes), params)
    io = session.io
    with io.step("hashing"):
        scale = params.scaling.moments_alone(features) if params.scale == "client" else None
        if params.shared_scale:
            scale = await _shared_moments(session, params, vectors, rng)
        if scale is not None:
            vectors = await io.compute(scale.scaled, vectors)
        else:
            vectors = clipped(vectors, params.winsorise)
        seed = projection_seed or derive_key(
            session.common_secret, domain_tag("projection seed", session.id)
        )
        bits, digest = await io.compute(
            hash_rows, seed, vectors, params.n_bits, params.projection, io.report
        )
        await io.send(SERVER, Prepared(of_columns(digest, data.columns), labelled))
    own = Hashed(
        seed, scale, numbers[2], np.packbits(bits, axis=1), class_ids=class_ids, in_graph=kept
    )
    with io.step("hamming"):
        await get_backend(params.hamming).client(session, bits, rng)
        del bits  # L bytes of each row
    return await label_client(session, params, invited, _announced(session), own, rng)


async def open_client(
    io: RoleIO,
    invited: Sequence[str],
    params: Parameters,
    agreement: Agreement,
    numbers: Sequence[int],
    rng: Rng,
    identities: Identities | None,
    *,
    common_secret: bool = True,
) -> Session:
    """Exchange keys and agree on a secret, as the parameters say, as a client.

    Arguments and errors are those of `key_exchange_client` and `seed_agreement_client`; there is no
    secret without `common_secret`.
    """
    session = await key_exchange_client(
        io, invited, agreement, numbers, rng, identities, post_quantum=params.post_quantum
    )
    if common_secret:
        await seed_agreement_client(session, rng)
    return session


def _announced(session: Session) -> Announced:
    """Return what the clients said of their rows in setup."""
    return Announced(session.sizes, {c: own[1] for c, own in session.numbers.items()})


def _sum_of_moments(session: Session, params: Parameters) -> tuple[Rows, FixedPoint, MaskGraph]:
    """Return how the moments are summed: each client has one row."""
    clients = session.clients
    return moments_rows(clients), FixedPoint(0, parties=len(clients)), params.moments_graph(clients)


async def _shared_moments(
    session: Session, params: Parameters, vectors: NDArray[Any], rng: Rng
) -> Moments:
    """Return the moments over the rows of all clients in the sum.

    Raises:
        DataError: a feature is too large.
        TooFewParties: too few are left; nothing was revealed.
        FaultyPeer: another party does not follow the protocol, or the sum is not of moments.
    """
    io = session.io
    rows, codec, graph = _sum_of_moments(session, params)
    own = np.tile(await io.compute(encoded_moments, vectors), (len(rows), 1))
    sums = await secure_row_sums_client(
        session, own.astype(np.float64), rows, codec, graph, rng, "moments"
    )
    totals = sums.values[0].astype(np.int64)
    mine = own[0] * (io.name in sums.contributors)
    rows_of_others = sum(session.sizes[c] for c in sums.contributors if c != io.name)
    if not params.scaling.are_moments(totals - mine, rows_of_others):
        raise FaultyPeerOrServer(
            session.peers, "the moments are not those of the rows that were announced", public=True
        )
    return params.scaling.moments_of_all(totals)


async def server_role(
    io: RoleIO,
    params: Parameters,
    invited: Sequence[str],
    rng: Rng,
    identities: Identities | None = None,
    *,
    keep: bool = False,
) -> Participation:
    """Run Algorithm 1 as the server.

    Args:
        io: the server.
        params: the agreement.
        invited: names of all clients, in the order that all parties agree on.
        rng: source of its keys.
        identities: own key and pinned identities; all parties use the same, or none.
        keep: whether to keep the distances, for `xclp_lp.update`.

    Raises:
        TooFewParties: fewer clients than the threshold are left.
        FaultyPeer: a client has other parameters, another projection or impossible sizes.
        ParameterError: k is not smaller than the number of rows; too few fraction bits;
            dp-accounting is needed and not installed.
        ProtocolError: no client that is left has a labelled row.
        DataError: no client has a labelled row, and none dropped out; or there are more rows than
            this machine has memory for.
        EncodingOverflow: the sums with their noise do not fit the ring.
    """
    params = params.for_session(len(invited))
    at_least = params.at_least
    fewest = max(at_least, params.fewest_in_moments)
    scaled_over: tuple[str, ...] = ()
    leavers = Leavers()

    with io.step("setup"):
        session = await key_exchange_server(
            io,
            invited,
            params.agreement(),
            3,
            rng,
            fewest,
            identities,
            post_quantum=params.post_quantum,
        )
        leavers.note("setup", invited, session.clients)
        sizes = _checked_sizes(session)
        require_labels(_announced(session).labelled.values(), leavers)
        params.require_rows(sum(sizes.values()))
        require_announced_room(session, Sizes(sizes, sizes), params)
        leavers.note("setup", session.clients, await seed_agreement_server(session, fewest))
    io = session.io
    with io.step("hashing"):
        if params.shared_scale:
            rows, codec, graph = _sum_of_moments(session, params)
            columns = moments_width(session.numbers[session.clients[0]][2])
            moments_record = await secure_row_sums_server(
                session, rows, columns, codec, graph, "moments"
            )
            scaled_over = moments_record.survivors
            leavers.note_apart("hashing", moments_record.apart)
        prepared = await io.gather(Prepared, session.clients, at_least, rows=sizes)
        leavers.note("hashing", session.clients, prepared)
        _require_same_projection(prepared)
        marks = checked_marks(prepared, _announced(session))
    distances = _distances(session, params, at_least)
    projection = next(iter(prepared.values())).digest if keep else None
    found = await label_server(
        session, params, await distances, marks, leavers, projection=projection
    )
    return replace(found, scaled_over=scaled_over)


async def _distances(session: Session, params: Parameters, at_least: int) -> Distances:
    with session.io.step("hamming"):
        return await get_backend(params.hamming).server(session, params.n_bits, at_least)


def _checked_sizes(session: Session) -> dict[str, int]:
    """Return rows by client; refuse clients whose public numbers do not fit together."""
    for client, (rows, labelled, _) in session.numbers.items():
        if labelled > rows:
            raise FaultyPeer(client, f"announces {labelled} labelled rows among {rows}")
    require_same_features(session)
    return session.sizes


def require_same_features(session: Session) -> None:
    """Refuse clients whose rows have other numbers of features, the third that they announce.

    Raises:
        DataError: names two of them.
    """
    first, *_ = session.clients
    expected = session.numbers[first][2]
    for client, (_, _, features, *_) in session.numbers.items():
        if features != expected:
            raise DataError(
                f"client {client!r} has {features} features, {first!r} has {expected}; all must "
                "have the same",
                public=True,
            )


def checked_marks(
    prepared: Mapping[str, Prepared], announced: Announced
) -> dict[str, NDArray[np.bool_]]:
    """Return by client which of its rows are labelled.

    Raises:
        FaultyPeer: they are not as many as the client announced.
    """
    for client, message in prepared.items():
        if int(message.labelled.sum()) != announced.labelled[client]:
            raise FaultyPeer(client, "marks another number of labelled rows than it announced")
    return {client: message.labelled for client, message in prepared.items()}


def _require_same_projection(prepared: dict[str, Prepared]) -> None:
    first, *others = prepared
    for client in others:
        if not hmac.compare_digest(prepared[client].digest, prepared[first].digest):
            raise FaultyPeer(
                (first, client),
                "their projections differ: other seeds, columns of other names or in another "
                "order, or software that computes other bits",
                public=True,
            )
