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

import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import DataError, Excluded, FaultyPeer, ProtocolError
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import RandomizedResponse
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.protocols.hamming.interface import column_ranges
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
from xclp_lp.column_transfer import receive_scores, send_columns
from xclp_lp.diagnostics import geometry_of
from xclp_lp.dropouts import Dropout
from xclp_lp.graph import neighbour_graph
from xclp_lp.influence import PartialScores
from xclp_lp.kept import Kept
from xclp_lp.labels import UNLABELLED
from xclp_lp.leave_one_out import OwnLabels, validate_client, validate_server
from xclp_lp.lsh import Projection, hash_bits, projection, projection_digest
from xclp_lp.messages import Geometry, Labelled, Participants, Prepared, Sensitivity
from xclp_lp.noise import noise_of_client
from xclp_lp.parameters import Parameters, label_codec
from xclp_lp.predictions import Prediction, predict, weighed
from xclp_lp.scaling import (
    Moments,
    clipped,
    encoded_moments,
    in_graph,
    moments_rows,
    moments_width,
    require_company,
)


@dataclass(frozen=True, eq=False, repr=False)
class ClientData(Secret):
    """One client's own data; never leaves its role.

    Attributes:
        vectors: (n_j, d) finite feature vectors.
        class_ids: (n_j,) class indices, −1 for unlabelled rows.
    """

    vectors: NDArray[np.floating[Any]]
    class_ids: NDArray[np.int64]


@dataclass(frozen=True)
class Participation:
    """Who took part in a session, and how far: all that the server keeps of it.

    Attributes:
        sizes: rows by client in the graph.
        contributors: clients whose labels entered the sums.
        dropouts: clients that did not stay to the end, in the order in which they dropped out.
        scaled_over: clients whose rows are in shared means and variances.
        geometry: what the graph looks like; None over several groups.
        validated: clients whose labelled rows were counted to estimate the accuracy.
    """

    sizes: dict[str, int]
    contributors: tuple[str, ...]
    dropouts: tuple[Dropout, ...]
    scaled_over: tuple[str, ...] = ()
    geometry: Geometry | None = None
    validated: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return for a file whose labels were counted, who dropped out, when, with what effect."""
        return {
            "contributors": list(self.contributors),
            "dropouts": [asdict(own) | {"effect": own.effect} for own in self.dropouts],
        }


def rows_of_sums(params: Parameters, sizes: Mapping[str, int]) -> dict[str, NDArray[np.intp]]:
    """Return each client's rows in the row sums: its points, and one for the class totals."""
    rows = {c: np.arange(s.start, s.stop) for c, s in column_ranges(sizes).items()}
    if not params.class_totals:
        return rows
    n = sum(sizes.values())
    return {c: np.append(own, n + i) for i, (c, own) in enumerate(rows.items())}


def contribution(
    params: Parameters, scores: PartialScores, class_ids: NDArray[np.int64], clients: int
) -> NDArray[np.float64]:
    """Return what a client adds to the row sums: S_L·Y_L, and its numbers of labels if needed.

    Args:
        params: the agreement.
        scores: S_L·Y_L.
        class_ids: (l_j,) classes of the labelled rows.
        clients: number of clients in the graph.
    """
    own = scores.scores()
    if not params.class_totals:
        return own
    totals = np.bincount(class_ids, minlength=len(params.classes)).astype(np.float64)
    return np.concatenate([own, np.tile(totals, (clients, 1))])


def own_sums(
    params: Parameters, sums: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Return a client's rows of the sums, and the labels by class if they were summed too."""
    if params.class_totals:
        return sums[:-1], np.rint(sums[-1]).astype(np.int64)
    return sums, None


def own_scores(
    params: Parameters,
    sums: NDArray[np.float64],
    totals: NDArray[np.int64] | None,
    labels: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return scores from what `own_sums` returns: weighed, noise cut at zero.

    Args:
        params: the agreement.
        sums: (n_j, C).
        totals: (C,) labels by class of all clients, if they were summed.
        labels: (C,) those of the client.
    """
    scores = sums if params.noise is None else np.maximum(sums, 0.0)
    return weighed(scores, totals, params.setting, labels)


def spread(prediction: Prediction, kept: NDArray[np.bool_], n_classes: int) -> Prediction:
    """Put predictions of the kept rows back among the rows that were left out."""
    spread = Prediction.none(len(kept), n_classes)
    spread.class_ids[kept] = prediction.class_ids
    spread.confidence[kept] = prediction.confidence
    spread.distribution[kept] = prediction.distribution
    return spread


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
        DataError, EncodingOverflow: this client's scores do not fit the fixed-point code.
        ParameterError: dp-accounting is needed and not installed, or too few fraction bits.
    """
    params.require_accountant()
    params.require_resolution(len(invited))
    require_company(params.scale, len(invited))
    kept = in_graph(data.vectors, params.scaling)
    features = params.scaling.features(data.vectors)
    vectors, class_ids = features[kept], data.class_ids[kept]
    labelled, n_classes = class_ids != UNLABELLED, len(params.classes)
    if isinstance(params.privacy, RandomizedResponse):
        class_ids[labelled] = params.privacy.randomize(class_ids[labelled], n_classes, rng)
    with io.step("setup"):
        numbers = [len(class_ids), int(labelled.sum()), vectors.shape[1]]
        session = await key_exchange_client(
            io, invited, params.agreement(), numbers, rng, identities
        )
        await seed_agreement_client(session, rng)
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
        await io.send(SERVER, Prepared(digest, labelled))
    with io.step("hamming"):
        await get_backend(params.hamming).client(session, bits, rng)
        packed = np.packbits(bits, axis=1)
        del bits  # L bytes of each row
    with io.step("propagation"):
        sizes = await receive_participants(session, params)
        geometry = await io.recv(Geometry, SERVER, rows=sum(sizes.values()))
        own, codec = np.flatnonzero(labelled), label_codec(params, len(sizes))
        places = column_ranges(sizes)[io.name].start + own
        scores = await receive_scores(
            session, params, sum(sizes.values()), places, class_ids[own], codec
        )
        diagonal = scores.diagonal
        noise = await _draw_noise(session, params, sizes, scores, rng)
        row_sums = secure_row_sums_client(
            session,
            partial(contribution, params, scores, class_ids[own], len(sizes)),
            rows_of_sums(params, sizes),
            codec,
            params.mask_graph(tuple(sizes)),
            rng,
            noise=noise,
        )
        del scores, noise  # so that these large arrays go as soon as they are used
    with io.step("row sums"):
        sums = await row_sums
    with io.step("labels"):
        mine, totals = own_sums(params, sums.values)
        by_class = np.bincount(class_ids[own], minlength=n_classes)
        weighed_sums = await io.compute(own_scores, params, mine, totals, by_class)
        prediction = replace(
            spread(await io.compute(predict, weighed_sums), kept, n_classes),
            geometry=geometry,
            kept=Kept(session.id, seed, scale, numbers[2], packed, mine, totals, by_class),
        )
        await io.send(SERVER, Labelled())
    missing = _missing(invited, session.clients, sizes, sums.contributors)
    prediction = replace(prediction, dropouts=missing)
    if totals is None or not params.validated or io.name not in sums.contributors:
        return prediction
    with io.step("validation"):
        labels = OwnLabels(class_ids[own], mine[own], diagonal)
        found = await validate_client(session, params, sizes, totals, labels, rng)
        return replace(prediction, validation=found)


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
        FaultyPeer: another party does not follow the protocol.
    """
    io = session.io
    rows, codec, graph = _sum_of_moments(session, params)
    own = np.tile(await io.compute(encoded_moments, vectors), (len(rows), 1))
    sums = await secure_row_sums_client(
        session, own.astype(np.float64), rows, codec, graph, rng, "moments"
    )
    return params.scaling.moments_of_all(sums.values[0].astype(np.int64))


async def receive_participants(session: Session, params: Parameters) -> dict[str, int]:
    """Return how many rows each client in the graph has; this client is one of them.

    Raises:
        Excluded: the others went on without this client.
        FaultyPeer: too few clients are left.
    """
    io = session.io
    present = await io.recv(Participants, SERVER, clients=len(session.clients))
    announced = zip(session.sizes.items(), present.clients, strict=True)
    sizes = {client: rows for (client, rows), here in announced if here}
    if io.name not in sizes:
        raise Excluded(io.name, "hamming")
    if len(sizes) < max(params.threshold or 0, params.fewest_clients):
        raise FaultyPeer(SERVER, f"goes on with {len(sizes)} clients, below the threshold")
    return sizes


def _missing(
    invited: Iterable[str],
    came: Collection[str],
    in_graph: Collection[str],
    in_sums: Collection[str],
) -> tuple[Dropout, ...]:
    """Return whose points or labels are missing from a client's scores, as far as it can tell."""
    steps = (("setup", came), ("hamming", in_graph), ("row sums", in_sums))
    left = {c: step for step, there in reversed(steps) for c in invited if c not in there}
    return tuple(Dropout(client, step, contributed=False) for client, step in left.items())


async def _draw_noise(
    session: Session, params: Parameters, sizes: Mapping[str, int], scores: PartialScores, rng: Rng
) -> Residues | None:
    """Return the noise of a client's upload, for the sensitivity that the server names, if any.

    Raises:
        FaultyPeer: the server names a sensitivity that cannot be.
    """
    if params.noise is None:
        return None
    io, n = session.io, sum(sizes.values())
    told = (await io.recv(Sensitivity, SERVER)).value
    own = scores.sensitivity
    return await io.compute(noise_of_client, params, own, told, n, len(sizes), rng)


async def server_role(
    io: RoleIO,
    params: Parameters,
    invited: Sequence[str],
    rng: Rng,
    identities: Identities | None = None,
) -> Participation:
    """Run Algorithm 1 as the server.

    Args:
        io: the server.
        params: the agreement.
        invited: names of all clients, in the order that all parties agree on.
        rng: source of its keys.
        identities: own key and pinned identities; all parties use the same, or none.

    Raises:
        TooFewParties: fewer clients than the threshold are left.
        FaultyPeer: a client has other parameters, another projection or impossible sizes.
        ParameterError: k is not smaller than the number of rows; too few fraction bits;
            dp-accounting is needed and not installed.
        ProtocolError: no client that is left has a labelled row.
        DataError: no client has a labelled row, and none dropped out.
        EncodingOverflow: the sums with their noise do not fit the ring.
    """
    params.require_accountant()
    params.require_resolution(len(invited))
    require_company(params.scale, len(invited))
    at_least = params.threshold or params.fewest_clients
    fewest = max(at_least, params.fewest_in_moments)
    scaled_over: tuple[str, ...] = ()
    dropped: dict[str, str] = {}

    def note(step: str, expected: Iterable[str], present: Collection[str]) -> None:
        dropped.update({c: step for c in expected if c not in present and c not in dropped})

    with io.step("setup"):
        session = await key_exchange_server(
            io, invited, params.agreement(), 3, rng, fewest, identities
        )
        note("setup", invited, session.clients)
        sizes = _checked_sizes(session)
        _require_labels([labelled for _, labelled, _ in session.numbers.values()], dropped)
        params.require_rows(sum(sizes.values()))
        note("setup", session.clients, await seed_agreement_server(session, fewest))
    io = session.io
    with io.step("hashing"):
        if params.shared_scale:
            rows, codec, graph = _sum_of_moments(session, params)
            columns = moments_width(session.numbers[session.clients[0]][2])
            moments_record = await secure_row_sums_server(
                session, rows, columns, codec, graph, "moments"
            )
            scaled_over = moments_record.survivors
        prepared = await io.gather(Prepared, session.clients, at_least, rows=sizes)
        note("hashing", session.clients, prepared)
        _require_same_projection(prepared)
        for client, message in prepared.items():
            if int(message.labelled.sum()) != session.numbers[client][1]:
                raise FaultyPeer(client, "marks another number of labelled rows than it announced")
    with io.step("hamming"):
        distances = await get_backend(params.hamming).server(session, params.n_bits, at_least)
        note("hamming", session.clients, distances.sizes)
    with io.step("propagation"):
        present = distances.sizes
        await io.send(session.clients, Participants(np.array([c in present for c in sizes])))
        labelled = np.concatenate([prepared[c].labelled for c in present])
        _require_labels(labelled, dropped)
        weights = await io.compute(build_graph, distances.matrix, params, io.report)
        del distances  # n² of them
        geometry = await io.compute(geometry_of, weights, present)
        await io.send(tuple(present), geometry)
        marks = {c: prepared[c].labelled for c in present}
        await send_columns(session, weights, params, params.alpha, marks)
    with io.step("row sums"):
        record = await secure_row_sums_server(
            session,
            rows_of_sums(params, present),
            len(params.classes),
            FixedPoint(params.fraction_bits, parties=len(present)),
            params.mask_graph(tuple(present)),
        )
        note("row sums", record.dropouts, ())
    with io.step("labels"):
        note("labels", present, await io.gather(Labelled, tuple(present), 0))
    validated: tuple[str, ...] = ()
    if params.validated:
        with io.step("validation"):
            validated = await validate_server(session, params, weights, marks)
        note("validation", present if validated else (), validated)
    dropouts = tuple(Dropout(c, s, c in record.survivors) for c, s in dropped.items())
    return Participation(present, record.survivors, dropouts, scaled_over, geometry, validated)


def build_graph(
    distances: NDArray[np.uint16], params: Parameters, progress: OnProgress | None = None
) -> sparse.csr_array:
    """Return 𝒲; k is reduced where dropouts left fewer rows."""
    return neighbour_graph(
        distances,
        params.n_bits,
        **params.neighbours | {"k": min(params.k, len(distances) - 1)},
        progress=progress,
    )


def _checked_sizes(session: Session) -> dict[str, int]:
    """Return rows by client; refuse clients whose public numbers do not fit together."""
    first, *_ = session.clients
    for client, (rows, labelled, features) in session.numbers.items():
        if labelled > rows:
            raise FaultyPeer(client, f"announces {labelled} labelled rows among {rows}")
        if features != session.numbers[first][2]:
            raise DataError(
                f"client {client!r} has {features} features, {first!r} has "
                f"{session.numbers[first][2]}; all must have the same"
            )
    return session.sizes


def _require_labels(labelled: Iterable[int | np.bool_], dropped: Mapping[str, str]) -> None:
    """Refuse to go on without any label.

    Raises:
        DataError: all clients are there, and none has one.
        ProtocolError: clients dropped out; names them and the step.
    """
    if any(labelled):
        return
    if not dropped:
        raise DataError("no client has a label, so nothing can spread")
    who = ", ".join(f"{client} in {step!r}" for client, step in dropped.items())
    raise ProtocolError(
        f"no client that is left has a labelled row, so nothing can spread; dropped out: {who}"
    )


def _require_same_projection(prepared: dict[str, Prepared]) -> None:
    first, *others = prepared
    for client in others:
        if not hmac.compare_digest(prepared[client].digest, prepared[first].digest):
            raise FaultyPeer(
                (first, client),
                "their projections differ: other seeds, or software that computes other bits",
            )
