"""One link of an OT extension: what its two ends compute between the messages.

`extension` says what the letters mean, and why. `SenderEnd` and `ReceiverEnd` turn columns into
rows and rows into pads; functions below them turn pads into the messages of chosen and correlated
transfers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import Keystream, derive_key
from xclp_crypto.params import KAPPA
from xclp_crypto.protocols.ot.bits import (
    BLOCK_BYTES,
    BLOCK_LANES,
    LANE,
    WORD,
    ColumnHash,
    HashPoints,
    RobustHash,
    lane_groups,
    transpose,
)
from xclp_crypto.protocols.ot.interface import Choices, pick, sid_digest
from xclp_crypto.secret import Secret

WORD_BITS: Final = 64
CHUNK_WORDS: Final = 512
"""Words of every column that are worked on at once, for the caches; no result depends on it."""


def batch_rows(count: int, checked: bool) -> int:
    """Return how many rows a batch of `count` transfers takes, with the check's 128 random ones."""
    return KAPPA * (-(-count // KAPPA) + 1) if checked else count


def _column_keys(
    keys: NDArray[np.uint8], sid: bytes, sender: str, receiver: str
) -> list[Keystream]:
    tag = domain_tag("ot-extension column", sid, sender, receiver)
    return [Keystream(derive_key(key.tobytes(), tag)) for key in keys]


def _hash(sid: bytes, sender: str, receiver: str) -> RobustHash:
    public = hashlib.sha256(domain_tag("ot-extension hash", sid, sender, receiver)).digest()
    return RobustHash(public[:BLOCK_BYTES])


def _fill(keystreams: list[Keystream], columns: NDArray[np.uint64]) -> None:
    """Fill each of the 128 rows of words with the next words of its keystream."""
    for keystream, column in zip(keystreams, columns, strict=True):
        keystream.read_into(column.view(np.uint8))


def _whole_words(packed: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return a copy of (c, n) bytes as (c, ⌈n/8⌉) words, padded with zeros."""
    columns, n_bytes = packed.shape
    words = np.zeros((columns, -(-n_bytes // WORD.itemsize)), WORD)
    words.view(np.uint8)[:, :n_bytes] = packed
    return words


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
    """A sender's batch: its pads, q_i of every column (128, words), and the seed of the check."""

    pads: SenderPads
    q: NDArray[np.uint64]
    seed: bytes


class SenderEnd(Secret):
    """The sender's end of one link: s, one key per column, and the number of rows so far."""

    __slots__ = ("_choices", "_hash", "_keystreams", "_link", "_rows", "_s", "_select")

    def __init__(
        self, choices: NDArray[np.bool_], keys: NDArray[np.uint8], sid: bytes, me: str, peer: str
    ) -> None:
        self._choices = choices
        self._s = np.packbits(choices, bitorder="little").view(WORD)
        self._select = -choices.astype(WORD)[:, None]  # all ones where s_i = 1
        self._keystreams = _column_keys(keys, sid, me, peer)
        self._hash = _hash(sid, me, peer)
        self._link = sid, me, peer
        self._rows = 0

    @property
    def digest(self) -> bytes:
        """Return what the receiver says of the next batch."""
        return sid_digest(*self._link, self._rows)

    def extend(self, sent: NDArray[np.uint8], count: int) -> tuple[SenderPads, NDArray[np.uint64]]:
        """Return the pads of `count` transfers, and q_i of every column, (128, words)."""
        q = _whole_words(sent)
        words = q.shape[1]
        zero, one = np.empty((2, words * WORD_BITS, 2), WORD)
        for at in range(0, words, CHUNK_WORDS):
            part = q[:, at : at + CHUNK_WORDS]
            columns = np.empty(part.shape, WORD)
            _fill(self._keystreams, columns)
            part &= self._select
            columns ^= part
            part[:] = columns
            rows, done = transpose(columns), slice(at * WORD_BITS, (at + CHUNK_WORDS) * WORD_BITS)
            zero[done] = self._hash.permute(rows)
            rows ^= self._s
            one[done] = self._hash.permute(rows)
        start, self._rows = self._rows, self._rows + len(zero)
        pads = (HashPoints(self._hash, points[:count], start) for points in (zero, one))
        return SenderPads(*pads), q

    def verify(self, q: NDArray[np.uint64], seed: bytes, proof: NDArray[np.uint8]) -> bool:
        """Return whether the receiver's columns hide one vector of choices; see `extension`."""
        columns = q.view(np.uint8)
        hashes = ColumnHash(seed, columns.shape[1])(columns)
        expected = proof[1:] ^ (self._choices[:, None] * proof[0])
        # Not in constant time: what it reveals, the outcome reveals as well.
        return bool(np.array_equal(hashes, expected))


@dataclass(frozen=True, repr=False)
class Asked:
    """A receiver's batch: `sid_digest`, pads, choices (1, words), and t_i and u_i (128, words)."""

    digest: bytes
    pads: HashPoints
    choices: NDArray[np.uint64]
    t: NDArray[np.uint64]
    u: NDArray[np.uint64]


class ReceiverEnd(Secret):
    """The receiver's end of one link: two keys per column, and the number of rows so far."""

    __slots__ = ("_hash", "_keystreams", "_link", "_rows")

    def __init__(self, pairs: NDArray[np.uint8], sid: bytes, peer: str, me: str) -> None:
        self._keystreams = tuple(_column_keys(pairs[:, b], sid, peer, me) for b in (0, 1))
        self._hash = _hash(sid, peer, me)
        self._link = sid, peer, me
        self._rows = 0

    def extend(self, choices: NDArray[np.bool_], count: int) -> Asked:
        """Return a batch of rows with these choices, of which the first `count` are transfers."""
        x = _whole_words(np.packbits(choices, bitorder="little")[None])
        words = x.shape[1]
        t, u = np.empty((2, KAPPA, words), WORD)
        points = np.empty((words * WORD_BITS, 2), WORD)
        for at in range(0, words, CHUNK_WORDS):
            part = slice(at, at + CHUNK_WORDS)
            columns, other = np.empty((2, *t[:, part].shape), WORD)
            for keystreams, filled in zip(self._keystreams, (columns, other), strict=True):
                _fill(keystreams, filled)
            other ^= columns
            np.bitwise_xor(other, x[:, part], out=u[:, part])
            t[:, part] = columns
            done = slice(at * WORD_BITS, (at + CHUNK_WORDS) * WORD_BITS)
            points[done] = self._hash.permute(transpose(columns))
        start, self._rows = self._rows, self._rows + len(points)
        pads = HashPoints(self._hash, points[:count], start)
        return Asked(sid_digest(*self._link, start), pads, x, t, u)


def prove(seed: bytes, choices: NDArray[np.uint64], t: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return the hashes (129, 16) of the choices (1, words) and the columns (128, words)."""
    columns = np.concatenate([choices, t]).view(np.uint8)
    return ColumnHash(seed, columns.shape[1])(columns)


def _by_group(matrix: NDArray[np.uint16], first: int, shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """View the columns of (m, n) that belong to a lane group as (blocks, m, lanes)."""
    blocks, count, lanes = shape
    start = first * BLOCK_LANES
    part = matrix[:, start : start + blocks * lanes].reshape(count, blocks, lanes)
    return part.transpose(1, 0, 2)


def correlate(
    pads: SenderPads, offsets: NDArray[np.uint16], width: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return m_0 (m, n) modulo 2^w, and the corrections (m·n,), not reduced, in sending order."""
    count, lanes = offsets.shape
    base = np.empty(offsets.shape, LANE)
    corrections = np.empty(offsets.size, LANE)
    for first, stop, part in lane_groups(corrections, count, lanes):
        zero = pads.zero.lanes(first, stop)[:, :, : part.shape[2]]
        np.subtract(zero, pads.one.lanes(first, stop)[:, :, : part.shape[2]], out=part)
        part += _by_group(offsets, first, part.shape)
        _by_group(base, first, part.shape)[:] = zero
    base &= np.array((1 << width) - 1, LANE)
    return base, corrections


def correct(
    pads: HashPoints, corrections: NDArray[np.uint16], request: Choices, width: int
) -> NDArray[np.uint16]:
    """Return m_0 + choice·Δ modulo 2^w, (m, n), from the corrections in sending order."""
    got = np.empty((len(request.bits), request.length), LANE)
    chosen = -request.bits.astype(LANE)[:, None]  # all ones where the choice is 1
    for first, stop, part in lane_groups(corrections, *got.shape):
        value = pads.lanes(first, stop)[:, :, : part.shape[2]]
        value += part & chosen
        _by_group(got, first, part.shape)[:] = value
    got &= np.array((1 << width) - 1, LANE)
    return got


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
