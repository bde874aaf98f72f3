"""What both modes of SecureRowSums share: who owns which rows, and the messages that carry them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra import ring
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.ring import Residues, residue_dtype
from xclp_crypto.errors import ParameterError
from xclp_crypto.fields import Modular
from xclp_crypto.params import Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.role import Dim
from xclp_crypto.wire import Message, sent

Rows = Mapping[str, NDArray[np.intp]]
"""By client, the indices of its rows, disjoint."""


@dataclass(frozen=True)
class RowSums:
    """What a client holds after SecureRowSums.

    Attributes:
        values: (n_j, c), its rows of the sum over all contributors; int64 and exact if the codec
            has no fraction bits, else float64.
        contributors: clients whose contributions the sum has.
    """

    values: NDArray[Any]
    contributors: tuple[str, ...]


class RowSumsUpload(Message):
    """Masked values for the rows of all others. Size: b·rows·c bytes, b those of a residue."""

    TAG = 0x0402
    values: Residues = sent(Modular("rows", "columns"))
    modulus: int


class RowSumsBlock(Message):
    """The masked sum over the others for the receiver's rows. Size: b·rows·c bytes."""

    TAG = 0x0403
    values: Residues = sent(Modular("rows", "columns"))
    modulus: int


@dataclass(frozen=True, repr=False)
class RowSumsRun:
    """What all parties of one run of SecureRowSums know.

    Attributes:
        rows: by client of the graph, its rows.
        codec: the fixed-point code.
        graph: who shares masks with whom, and the threshold.
        tag: the domain tag that its masks are bound to, given out once.
        terms: what all parties must have in common.
    """

    rows: Rows
    codec: FixedPoint
    graph: MaskGraph
    tag: bytes
    terms: Agreement

    async def gather(
        self, session: Session, clients: Sequence[str], owners: Sequence[str], columns: int
    ) -> tuple[Residues, tuple[str, ...]]:
        """As the server: return the sum of the uploads by row, and the clients that sent one.

        Of each of `clients`, the upload has the rows of all `owners` but itself.
        """
        modulus = self.codec.modulus
        others = {c: rows_of_others(self.rows, owners, c) for c in clients}
        total = np.zeros((sum(map(len, self.rows.values())), columns), residue_dtype(modulus))

        def add_upload(client: str, message: RowSumsUpload) -> None:
            add_rows(total, others[client], message.values, modulus)

        threshold, rows = self.graph.threshold, {c: len(own) for c, own in others.items()}
        dims: dict[str, Dim] = {"rows": rows, "columns": columns, "modulus": modulus}
        got = await session.io.gather_each(RowSumsUpload, clients, add_upload, threshold, **dims)
        return total, got

    async def hand_out(self, session: Session, total: Residues, owners: Sequence[str]) -> None:
        """As the server: send each of these clients its rows of the sum."""
        for client in owners:
            block = total[self.rows[client]]
            await session.io.send(client, RowSumsBlock(block, self.codec.modulus))

    async def block(self, session: Session, columns: int) -> Residues:
        """As a client: receive the own rows of the sum over the others."""
        own, modulus = len(self.rows[session.io.name]), self.codec.modulus
        message = await session.io.recv(
            RowSumsBlock, SERVER, rows=own, columns=columns, modulus=modulus
        )
        return message.values


def rows_of_others(rows: Rows, clients: Sequence[str], me: str) -> NDArray[np.intp]:
    """Return the sorted rows of all `clients` but `me`: what `me` uploads."""
    others = [rows[c] for c in clients if c != me]
    return np.sort(np.concatenate(others)) if others else np.zeros(0, dtype=np.intp)


def add_rows(total: Residues, indices: NDArray[np.intp], values: Residues, modulus: int) -> None:
    """Add residues to these rows, each named once, in place."""
    added = total[indices]
    ring.add_into(added, values, modulus)
    total[indices] = added


def rows_digest(rows: Rows) -> str:
    """Return a digest of who owns which rows, in the order of the clients."""
    digest = hashlib.sha256()
    for client, own in rows.items():
        digest.update(domain_tag("rows", client, own.astype("<i8").tobytes()))
    return digest.hexdigest()


def check_rows(rows: Rows, n: int | None = None) -> int:
    """Return n; refuse rows that are not a partition of 0 … n−1.

    Args:
        rows: by client, its rows.
        n: how many rows there are, by default as many as the clients own together.

    Raises:
        ParameterError: a row belongs to two clients or to none; names row and clients.

    Examples:
        >>> from xclp_crypto.protocols.secure_sum import check_rows
        >>> check_rows({"a": np.array([0, 2]), "b": np.array([1])})
        3
    """
    sizes = [len(own) for own in rows.values()]
    if n is None:
        n = sum(sizes)
    stacked = np.concatenate([np.zeros(0, dtype=np.intp), *rows.values()])
    owner = np.repeat(np.arange(len(sizes)), sizes)
    clients = tuple(rows)
    outside = np.flatnonzero((stacked < 0) | (stacked >= n))
    if len(outside):
        row, client = int(stacked[outside[0]]), clients[owner[outside[0]]]
        raise ParameterError(
            f"client {client!r} owns row {row}, but the clients' rows must be a partition of "
            f"0 … {n - 1}"
        )
    counts = np.bincount(stacked, minlength=n)
    if (counts > 1).any():
        row = int(np.argmax(counts > 1))
        owners = tuple(dict.fromkeys(clients[i] for i in owner[stacked == row]))
        if len(owners) == 1:
            raise ParameterError(f"client {owners[0]!r} has row {row} more than once")
        raise ParameterError(
            f"row {row} belongs to more than one client: {owners[0]!r} and {owners[1]!r}"
        )
    if (counts == 0).any():
        raise ParameterError(
            f"row {int(np.argmin(counts))} of 0 … {n - 1} belongs to none of the clients"
        )
    return n
