"""Cross-client label propagation between clients and a server (paper, Algorithm 1).

::

    client j                                         server
    setup: keys, sizes, common secret ◀────────────▶
    hashing: B = sign(V·Πᵀ), Π from the secret
             Prepared(digest of Π, labelled rows) ─▶ all digests equal?
    hamming: SecureHamming ◀───────────────────────▶ H
    propagation:                                     graph from H, columns of S = (I − α𝒲)⁻¹
             ◀───────────────── Participants, Influence(columns of j's labelled rows)
             Z̄_j = S_L·Y_L
    row sums: SecureRowSums ◀──────────────────────▶
    labels:  argmax and entropy of the own rows of Z

*Server learns* H, and so the geometry of all points up to rotation; which rows are labelled, but no
label and no score. *Client j learns* the scores of its own rows, and the columns of S for its
labelled rows, which tell how strongly each point of the federation is tied to them. Public to all:
numbers of rows and of labelled rows by client, d, L, C and the parameters.

Rows that are all zero have no angle to anything. Their client leaves them out, so nobody learns
that they exist, and they get no label.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.algebra.labels import label
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import (
    DataError,
    DecodeError,
    Excluded,
    FaultyPeer,
    ParameterError,
    ProtocolError,
)
from xclp_crypto.params import FRACTION_BITS, MIN_CLIENTS, Agreement, residue_width
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.hamming import HammingBackend, get_backend
from xclp_crypto.protocols.hamming.interface import column_ranges
from xclp_crypto.protocols.secure_sum import secure_row_sums_client, secure_row_sums_server
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
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, Reader, Writer
from xclp_lp.graph import Ties, neighbour_graph
from xclp_lp.labels import UNLABELLED, one_hot
from xclp_lp.lsh import hash_bits, projection, projection_digest, zero_rows
from xclp_lp.propagation import Prediction, influence, predict

DIGEST_BYTES = 32
PROTOCOL_VERSION = 1


@dataclass(frozen=True)
class Parameters:
    """What all parties of one session must have in common.

    Attributes:
        classes: labels by class index, in the order that all parties agree on.
        n_bits: L, bits of a hash.
        k: neighbours per point.
        alpha: α in (0, 1), how far labels travel.
        gamma: exponent γ > 0 of the similarity.
        hamming: name of the SecureHamming back end, or a back end.
        include_self: whether a point may be its own neighbour.
        ties: rule for neighbours at the same distance, see `neighbour_graph`.
        fraction_bits: f of the fixed-point scores.

    Raises:
        ParameterError: a value is out of range; the message gives value and limit.
    """

    classes: tuple[Any, ...]
    n_bits: int = 4096
    k: int = 10
    alpha: float = 0.99
    gamma: float = 1.0
    hamming: str | HammingBackend = "rlwe"
    include_self: bool = False
    ties: Ties = "all"
    fraction_bits: int = FRACTION_BITS
    version: int = field(default=PROTOCOL_VERSION, init=False)

    def __post_init__(self) -> None:
        # As Python's own numbers: digests compare the repr, which NumPy's numbers change.
        for name, convert in (
            ("n_bits", _integer),
            ("k", _integer),
            ("fraction_bits", _integer),
            ("alpha", _real),
            ("gamma", _real),
            ("include_self", _boolean),
        ):
            object.__setattr__(self, name, convert(name, getattr(self, name)))
        residue_width(self.n_bits)
        if self.k < 1:
            raise ParameterError(f"k must be at least 1, got {self.k}")
        if not 0 < self.alpha < 1:
            raise ParameterError(f"alpha must be strictly between 0 and 1, got {self.alpha}")
        if not 0 < self.gamma < np.inf:
            raise ParameterError(f"gamma must be positive and finite, got {self.gamma}")
        if self.ties not in ("all", "lowest-index"):
            raise ParameterError(f"ties must be 'all' or 'lowest-index', got {self.ties!r}")
        if not self.classes:
            raise ParameterError("classes must name at least one class")
        if not isinstance(self.hamming, str | HammingBackend):
            raise ParameterError(f"hamming must be the name of a back end, got {self.hamming!r}")
        get_backend(self.hamming)
        FixedPoint(self.fraction_bits)

    def agreement(self) -> Agreement:
        """Return the digests that the first message of every client carries."""
        agreed = {f.name: getattr(self, f.name) for f in fields(self)}
        return Agreement(**agreed | {"hamming": get_backend(self.hamming).name})

    def require_rows(self, n: int) -> None:
        """Refuse a k for which n rows in all are too few.

        Raises:
            ParameterError: k ≥ n.
        """
        if self.k >= n:
            raise ParameterError(
                f"k must be smaller than the number of rows of all clients together: k = {self.k}, "
                f"rows = {n}"
            )


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ParameterError(f"{name} must be an integer, got {value!r}")
    return int(value)


def _real(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ParameterError(f"{name} must be a number, got {value!r}")
    return float(value)


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name} must be true or false, got {value!r}")
    return bool(value)


@dataclass(frozen=True, repr=False)
class Prepared(Message):
    """Digest of the projection, and which rows are labelled. Size: 32 + ⌈n_j/8⌉ bytes."""

    TAG = 0x1001
    digest: bytes
    labelled: NDArray[np.bool_]

    @staticmethod
    def size(*, rows: int) -> int:
        """Return 32 + ⌈n_j/8⌉."""
        return DIGEST_BYTES + (rows + 7) // 8

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.raw(self.digest)
        out.bits(self.labelled)

    @classmethod
    def read(cls, data: Reader, *, rows: int) -> Prepared:
        """See `Message.read`."""
        return cls(data.raw(DIGEST_BYTES), data.bits(rows))


@dataclass(frozen=True, repr=False)
class Participants(Message):
    """Whose points are in the graph. Size: ⌈p/8⌉ bytes."""

    TAG = 0x1002
    clients: NDArray[np.bool_]

    @staticmethod
    def size(*, clients: int) -> int:
        """Return ⌈p/8⌉."""
        return (clients + 7) // 8

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.bits(self.clients)

    @classmethod
    def read(cls, data: Reader, *, clients: int) -> Participants:
        """See `Message.read`."""
        return cls(data.bits(clients))


@dataclass(frozen=True, repr=False)
class Influence(Message):
    """Columns of S for one client's labelled rows, (n, l_j), ≥ 0. Size: 8·n·l_j bytes."""

    TAG = 0x1003
    columns: NDArray[np.float64]

    @staticmethod
    def size(*, rows: int, labelled: int) -> int:
        """Return 8·n·l_j."""
        return 8 * rows * labelled

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.floats(self.columns)

    @classmethod
    def read(cls, data: Reader, *, rows: int, labelled: int) -> Influence:
        """See `Message.read`."""
        columns = data.floats((rows, labelled))
        if (columns < 0).any():
            raise DecodeError("an influence is negative")
        return cls(columns)


@dataclass(frozen=True, repr=False)
class ClientData:
    """One client's own data; never leaves its role.

    Attributes:
        vectors: (n_j, d) finite feature vectors.
        codes: (n_j,) class indices, −1 for unlabelled rows.
    """

    vectors: NDArray[np.floating[Any]]
    codes: NDArray[np.int64]


@dataclass(frozen=True)
class Graph:
    """What the server keeps of a session.

    Attributes:
        sizes: rows by client in the graph.
        contributors: clients whose labels entered the sums.
    """

    sizes: dict[str, int]
    contributors: tuple[str, ...]


def _row_ranges(sizes: dict[str, int]) -> dict[str, NDArray[np.intp]]:
    return {c: np.arange(s.start, s.stop) for c, s in column_ranges(sizes).items()}


def _spread(prediction: Prediction, kept: NDArray[np.bool_], n_classes: int) -> Prediction:
    """Put predictions of the kept rows back among the rows that were left out."""
    labels = np.full(len(kept), UNLABELLED, dtype=np.int64)
    confidence = np.zeros(len(kept))
    distribution = np.full((len(kept), n_classes), 1 / n_classes)
    labels[kept] = prediction.labels
    confidence[kept] = prediction.confidence
    distribution[kept] = prediction.distribution
    return Prediction(labels, confidence, distribution)


def hash_rows(
    seed: bytes, vectors: NDArray[np.floating[Any]], n_bits: int
) -> tuple[NDArray[np.uint8], bytes]:
    """Return the bits (n_j, L) of the vectors and the digest of the projection."""
    pi = projection(seed, n_bits, vectors.shape[1])
    return hash_bits(vectors, pi), projection_digest(pi)


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
    """
    kept = ~zero_rows(data.vectors)
    vectors, codes = data.vectors[kept], data.codes[kept]
    labelled = codes != UNLABELLED
    n_classes = len(params.classes)
    with io.step("setup"):
        session = await key_exchange_client(
            io,
            invited,
            params.agreement(),
            [len(codes), int(labelled.sum()), vectors.shape[1]],
            rng,
            identities,
        )
        secret = await seed_agreement_client(session, rng)
    io = session.io
    sizes = session.sizes
    with io.step("hashing"):
        seed = projection_seed or derive_key(secret, label("projection seed", session.id))
        bits, digest = await io.compute(hash_rows, seed, vectors, params.n_bits)
        await io.send(SERVER, Prepared(digest, labelled))
    with io.step("hamming"):
        await get_backend(params.hamming).client(session, bits, sizes, secret, rng)
    with io.step("propagation"):
        present = await io.recv(Participants, SERVER, clients=len(session.clients))
        sizes = {
            c: sizes[c] for c, here in zip(session.clients, present.clients, strict=True) if here
        }
        if io.name not in sizes:
            raise Excluded(io.name, "hamming")
        columns = await io.recv(
            Influence, SERVER, rows=sum(sizes.values()), labelled=int(labelled.sum())
        )
        contribution = await io.compute(
            np.matmul, columns.columns, one_hot(codes[labelled], n_classes)
        )
    with io.step("row sums"):
        scores = await secure_row_sums_client(
            session,
            contribution,
            _row_ranges(sizes),
            FixedPoint(params.fraction_bits, parties=len(sizes)),
        )
    with io.step("labels"):
        return _spread(await io.compute(predict, scores), kept, n_classes)


async def server_role(
    io: RoleIO,
    params: Parameters,
    invited: Sequence[str],
    rng: Rng,
    at_least: int = MIN_CLIENTS,
    identities: Identities | None = None,
) -> Graph:
    """Run Algorithm 1 as the server.

    Args:
        io: the server.
        params: the agreement.
        invited: names of all clients, in the order that all parties agree on.
        rng: source of its keys.
        at_least: fewest clients to go on with at every step.
        identities: own key and pinned identities; all parties use the same, or none.

    Raises:
        TooFewParties: fewer than `at_least` clients are left.
        FaultyPeer: a client has other parameters, another projection or impossible sizes.
        ParameterError: k is not smaller than the number of rows.
        DataError: no row is labelled.
    """
    with io.step("setup"):
        session = await key_exchange_server(
            io, invited, params.agreement(), 3, rng, at_least, identities
        )
        sizes = _checked_sizes(session)
        params.require_rows(sum(sizes.values()))
        await seed_agreement_server(session, at_least)
    io = session.io
    with io.step("hashing"):
        prepared = await io.gather(Prepared, session.clients, at_least, rows=sizes)
        _require_same_projection(prepared)
        for client, message in prepared.items():
            if int(message.labelled.sum()) != session.numbers[client][1]:
                raise FaultyPeer(client, "marks another number of labelled rows than it announced")
    with io.step("hamming"):
        distances = await get_backend(params.hamming).server(
            session, params.n_bits, sizes, at_least
        )
    with io.step("propagation"):
        present = distances.sizes
        await io.send(session.clients, Participants(np.array([c in present for c in sizes])))
        labelled = np.concatenate([prepared[c].labelled for c in present])
        if not labelled.any():
            raise ProtocolError("no client that is left has a labelled row, so nothing can spread")
        graph = await io.compute(build_graph, distances.matrix, params)
        columns = await io.compute(influence, graph, np.flatnonzero(labelled), params.alpha)
        ends = np.cumsum([prepared[c].labelled.sum() for c in present])
        for client, part in zip(present, np.split(columns, ends[:-1], axis=1), strict=True):
            await io.send(client, Influence(part))
    with io.step("row sums"):
        contributors = await secure_row_sums_server(
            session, _row_ranges(present), len(params.classes), tuple(present), at_least
        )
    return Graph(present, contributors)


def build_graph(distances: NDArray[np.uint16], params: Parameters) -> sparse.csr_array:
    """Return 𝒲; k is reduced where dropouts left fewer rows."""
    return neighbour_graph(
        distances,
        params.n_bits,
        min(params.k, len(distances) - 1),
        gamma=params.gamma,
        include_self=params.include_self,
        ties=params.ties,
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
    if not any(labelled for _, labelled, _ in session.numbers.values()):
        raise DataError("no client has a label, so nothing can spread")
    return session.sizes


def _require_same_projection(prepared: dict[str, Prepared]) -> None:
    first, *others = prepared
    for client in others:
        if not hmac.compare_digest(prepared[client].digest, prepared[first].digest):
            raise FaultyPeer(
                (first, client),
                "their projections differ: other seeds, or software that computes other bits",
            )
