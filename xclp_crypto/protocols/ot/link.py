"""One link of an OT extension: what its two ends compute between the messages.

`extension` says what the letters mean, and why. `SenderEnd` and `ReceiverEnd` turn columns into
rows and rows into pads; functions below them turn pads into the messages of chosen and correlated
transfers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import Keystream, derive_key
from xclp_crypto.params import KAPPA
from xclp_crypto.protocols.ot.bits import (
    BLOCK_BYTES,
    WORD,
    WORD_BITS,
    ColumnHash,
    HashPoints,
    RobustHash,
    lane_groups,
    lane_type,
    transpose,
)
from xclp_crypto.protocols.ot.interface import Choices, pick, sid_digest
from xclp_crypto.secret import Secret

CHUNK_WORDS: Final = 1024
"""Words of every column that are worked on at once, for the caches; no result depends on it."""
CHECK_WORDS: Final = KAPPA // WORD_BITS
"""Words of one block of the check's hash."""

FIXED: Final = "fixed"
"""The kind of a batch whose rows are taken as they are."""


class Use(NamedTuple):
    """What the pads of a batch are for; both ends must mean the same.

    Attributes:
        kind: of transfers.
        sending: by receiver, bytes or residues of a message.
        receiving: by sender, the same.
    """

    kind: str = "pads"
    sending: Mapping[str, int] = MappingProxyType({})
    receiving: Mapping[str, int] = MappingProxyType({})

    @property
    def hashed(self) -> bool:
        """Return whether pads are for hashing; otherwise only their `rows` are of use."""
        return self.kind != FIXED


PADS: Final = Use()
"""Whatever the caller makes of them."""


def batch_words(count: int, checked: bool) -> int:
    """Return how many words of each column a batch of `count` transfers takes.

    A check takes whole blocks of the hash, and one more for the random rows.
    """
    return CHECK_WORDS * (-(-count // KAPPA) + 1) if checked else -(-count // WORD_BITS)


def transfer_words(count: int, checked: bool) -> int:
    """Return how many of them are for transfers."""
    return batch_words(count, checked) - (CHECK_WORDS if checked else 0)


def _hash(sid: bytes, sender: str, receiver: str) -> RobustHash:
    public = hashlib.sha256(domain_tag("ot-extension hash", sid, sender, receiver)).digest()
    return RobustHash(public[:BLOCK_BYTES])


class _Columns(Secret):
    """The streams of the leaves of all trees, from where the last batch left them.

    Args:
        leaves: (n, 2^k, 32), see `trees`.
        tag: of their keys.
        punctured: whether leaf 0 is not known.
    """

    __slots__ = ("_streams",)

    def __init__(self, leaves: NDArray[np.uint8], tag: bytes, punctured: bool) -> None:
        gray = (number ^ number >> 1 for number in range(leaves.shape[1]))
        self._streams = [
            []
            if punctured and leaf == 0
            else [Keystream(derive_key(own.tobytes(), tag)) for own in leaves[:, leaf]]
            for leaf in gray
        ]

    def read(self, columns: NDArray[np.uint64], sums: NDArray[np.uint64]) -> None:
        """Fill the next words of all columns, and of the sums of all leaves of each tree.

        Column b of a tree is the sum of those leaves whose number has bit b. Leaves are added up in
        the order of the Gray code, in which one bit changes from each number to the next, and the
        sum so far is added to the column of that bit, the last one to that of the highest. So a
        column gets the sums before and after each run of its leaves, whose difference is the run's.

        Args:
            columns: (k, n, words).
            sums: (n, words).
        """
        columns[:] = 0
        sums[:] = 0
        rows = [*sums.view(np.uint8)]
        for number, streams in enumerate(self._streams, 1):
            for row, stream in zip(rows, streams, strict=False):
                stream.add_to(row)
            bit = min((number & -number).bit_length(), len(columns)) - 1
            columns[bit] ^= sums


@dataclass(frozen=True, repr=False)
class SenderPads:
    """Both pads of every transfer of a batch, to be hashed to any length; secret."""

    zero: HashPoints
    one: HashPoints

    def part(self, first: int, stop: int) -> SenderPads:
        """Return those of transfers first … stop−1."""
        return SenderPads(self.zero.part(first, stop), self.one.part(first, stop))


@dataclass(frozen=True, repr=False)
class Taken:
    """A sender's batch: its pads; and, for the check, q_i (128, words) and the seed."""

    pads: SenderPads
    q: NDArray[np.uint64]
    seed: bytes


class _End(Secret):
    """What both ends of one link have: columns, the hash, and the number of rows so far."""

    __slots__ = ("_checked", "_columns", "_depth", "_hash", "_link", "_rows")

    def __init__(
        self,
        leaves: NDArray[np.uint8],
        sid: bytes,
        names: tuple[str, str],
        checked: bool,
        punctured: bool,
    ) -> None:
        self._depth = KAPPA // len(leaves)
        self._columns = _Columns(leaves, domain_tag("ot-extension column", sid, *names), punctured)
        self._hash = _hash(sid, *names)
        self._link = sid, *names
        self._checked = checked
        self._rows = 0

    def digest(self, count: int, kind: str, size: int) -> bytes:
        """Return what the receiver says of the next batch: so many transfers, see `Use`."""
        return sid_digest(
            *self._link, self._rows, count, kind, size, self._depth, int(self._checked)
        )

    def _by_tree(self, columns: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """View columns, (128, …), as (k, n, …)."""
        return columns.reshape(self._depth, -1, *columns.shape[1:])

    def _to_points(self, rows: NDArray[np.uint64], hashed: bool) -> None:
        """Turn rows into what `HashPoints` take; see `RobustHash` for why it depends."""
        if self._checked and hashed:
            rows[:] = self._hash.permute(np.ascontiguousarray(rows))

    def _spare(self, columns: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return columns that may be overwritten: a check needs them again."""
        return columns.copy() if self._checked else columns

    def _pads(self, points: NDArray[np.uint64], start: int, count: int) -> HashPoints:
        return HashPoints(self._hash, points.reshape(-1, 2)[:count], start)

    def _advance(self, count: int) -> int:
        """Return the index of a batch's first transfer."""
        start, self._rows = self._rows, self._rows + count
        return start


class SenderEnd(_End):
    """The sender's end of one link: s, and all leaves but one of each tree.

    Args:
        choices: s, (128,).
        leaves: (n, 2^k, 32), see `trees.puncture`.
        sid: of the extension.
        me: the sender.
        peer: the receiver.
        checked: whether the receiver is checked.
    """

    __slots__ = ("_choices", "_s", "_select")

    def __init__(
        self,
        choices: NDArray[np.bool_],
        leaves: NDArray[np.uint8],
        sid: bytes,
        me: str,
        peer: str,
        checked: bool,
    ) -> None:
        super().__init__(leaves, sid, (me, peer), checked, punctured=True)
        self._choices = choices
        self._s = np.packbits(choices, bitorder="little").view(WORD)
        self._select = self._by_tree(-choices.astype(WORD)[:, None])  # all ones where s_i = 1

    @property
    def offset(self) -> NDArray[np.uint64]:
        """Return s as a row, (2,)."""
        return self._s

    def extend(
        self, sent: NDArray[np.uint64], count: int, *, hashed: bool = True
    ) -> tuple[SenderPads, NDArray[np.uint64]]:
        """Return the pads of `count` transfers, and q_i of every column, (128, words).

        The rows of pads that are not to be `hashed` are left as they are.
        """
        words = transfer_words(count, self._checked)
        q = np.empty((KAPPA, sent.shape[1]), WORD)
        zero, one = np.empty((2, WORD_BITS, words, 2), WORD)
        s = np.tile(self._s, min(words, CHUNK_WORDS))
        sums = np.empty((len(sent), min(sent.shape[1], CHUNK_WORDS)), WORD)
        for at in range(0, sent.shape[1], CHUNK_WORDS):
            part = slice(at, at + CHUNK_WORDS)
            columns = self._by_tree(q[:, part])
            self._columns.read(columns, sums[:, : columns.shape[2]])
            columns ^= sent[:, part] & self._select
            done = slice(at, min(at + CHUNK_WORDS, words))
            transpose(self._spare(q[:, done]), zero[:, done])
            rows = zero[:, done].reshape(WORD_BITS, -1)  # so that NumPy's inner loops are long
            np.bitwise_xor(rows, s[: rows.shape[1]], out=one[:, done].reshape(rows.shape))
            self._to_points(zero[:, done], hashed)
            self._to_points(one[:, done], hashed)
        start = self._advance(count)
        return SenderPads(self._pads(zero, start, count), self._pads(one, start, count)), q

    def verify(self, q: NDArray[np.uint64], seed: bytes, proof: NDArray[np.uint8]) -> bool:
        """Return whether the receiver's columns hide one vector of choices; see `extension`."""
        columns = q.view(np.uint8)
        hashes = ColumnHash(seed, columns.shape[1])(columns)
        expected = proof[1:] ^ (self._choices[:, None] * proof[0])
        # Not in constant time: what it reveals, the outcome reveals as well.
        return bool(np.array_equal(hashes, expected))


@dataclass(frozen=True, repr=False)
class Asked:
    """A receiver's batch: pads, choices (words,), t_i (128, words), and u_j ⊕ r, (n, words)."""

    pads: HashPoints
    choices: NDArray[np.uint64]
    t: NDArray[np.uint64]
    u: NDArray[np.uint64]


class ReceiverEnd(_End):
    """The receiver's end of one link: all leaves of each tree.

    Args:
        leaves: (n, 2^k, 32), see `trees.grow`.
        sid: of the extension.
        peer: the sender.
        me: the receiver.
        checked: whether the receiver is checked.
    """

    __slots__ = ()

    def __init__(
        self, leaves: NDArray[np.uint8], sid: bytes, peer: str, me: str, checked: bool
    ) -> None:
        super().__init__(leaves, sid, (peer, me), checked, punctured=False)

    def extend(self, choices: NDArray[np.uint64], count: int, *, hashed: bool = True) -> Asked:
        """Return a batch with the columns' choices (words,), of which `count` are transfers.

        The rows of pads that are not to be `hashed` are left as they are.
        """
        words = transfer_words(count, self._checked)
        t = np.empty((KAPPA, len(choices)), WORD)
        u = np.empty((KAPPA // self._depth, len(choices)), WORD)
        points = np.empty((WORD_BITS, words, 2), WORD)
        for at in range(0, len(choices), CHUNK_WORDS):
            part = slice(at, at + CHUNK_WORDS)
            self._columns.read(self._by_tree(t[:, part]), u[:, part])
            u[:, part] ^= choices[part]
            done = slice(at, min(at + CHUNK_WORDS, words))
            transpose(self._spare(t[:, done]), points[:, done])
            self._to_points(points[:, done], hashed)
        return Asked(self._pads(points, self._advance(count), count), choices, t, u)


def prove(seed: bytes, choices: NDArray[np.uint64], t: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return the hashes (129, 16) of the choices (words,) and the columns (128, words)."""
    columns = np.concatenate([choices[None], t]).view(np.uint8)
    return ColumnHash(seed, columns.shape[1])(columns)


def _by_group(matrix: NDArray[Any], first: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """View the columns of (m, n) that belong to a lane group as (blocks, m, lanes)."""
    blocks, count, lanes = shape
    start = first * (BLOCK_BYTES // matrix.itemsize)
    part = matrix[:, start : start + blocks * lanes].reshape(count, blocks, lanes)
    return part.transpose(1, 0, 2)


def _reduce(values: NDArray[Any], width: int) -> NDArray[Any]:
    values &= np.array((1 << width) - 1, values.dtype)
    return values


def correlate(
    pads: SenderPads, offsets: NDArray[Any], width: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return m_0 (m, n) modulo 2^w, and the corrections (m·n,), not reduced, in sending order."""
    count, lanes = offsets.shape
    dtype = lane_type(width)
    base = np.empty(offsets.shape, dtype)
    corrections = np.empty(offsets.size, dtype)
    for first, stop, part in lane_groups(corrections, count, lanes):
        zero = pads.zero.lanes(first, stop, dtype)[:, :, : part.shape[2]]
        one = pads.one.lanes(first, stop, dtype)[:, :, : part.shape[2]]
        np.subtract(zero, one, out=part)
        part += _by_group(offsets, first, part.shape)
        _by_group(base, first, part.shape)[:] = zero
    return _reduce(base, width), corrections


def correct(
    pads: HashPoints, corrections: NDArray[Any], request: Choices, width: int
) -> NDArray[Any]:
    """Return m_0 + choice·Δ modulo 2^w, (m, n), from the corrections in sending order."""
    dtype = lane_type(width)
    got = np.empty((len(request.bits), request.length), dtype)
    chosen = -request.bits.astype(dtype)[:, None]  # all ones where the choice is 1
    for first, stop, part in lane_groups(corrections, *got.shape):
        value = pads.lanes(first, stop, dtype)[:, :, : part.shape[2]]
        value += part & chosen
        _by_group(got, first, part.shape)[:] = value
    return _reduce(got, width)


def both_pads(pads: SenderPads, length: int) -> NDArray[np.uint8]:
    """Return both pads of every transfer, (m, 2, length)."""
    out = np.empty((len(pads.zero), 2, length), np.uint8)
    pads.zero.write_bytes(out[:, 0])
    pads.one.write_bytes(out[:, 1])
    return out


def chosen_pads(pads: HashPoints, length: int) -> NDArray[np.uint8]:
    """Return the pad of the choice of every transfer, (m, length)."""
    out = np.empty((len(pads), length), np.uint8)
    pads.write_bytes(out)
    return out


def both_bits(pads: SenderPads) -> NDArray[np.uint64]:
    """Return one bit of both pads of every transfer, (2, words)."""
    return np.stack([pads.zero.bits(), pads.one.bits()])


def offer(pads: SenderPads, messages: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return both messages of every transfer under their pads, (m, 2, length)."""
    offers = both_pads(pads, messages.shape[2])
    offers ^= messages
    return offers


def open_chosen(pads: HashPoints, offers: NDArray[np.uint8], request: Choices) -> NDArray[np.uint8]:
    """Return the chosen message of every transfer, (m, length)."""
    chosen = pick(offers, request.bits)
    chosen ^= chosen_pads(pads, request.length)
    return chosen
