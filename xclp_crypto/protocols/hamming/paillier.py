"""``paillier``: the paper's protocol on homomorphic encryption, literally (§4.2), one bit each.

::

    owner j (rows y)                              evaluator k (rows x)
    PaillierKey(n, h) ──────────────────────────▶
    PaillierRows(Enc(y_l) for every bit l) ─────▶ r uniform in Z_n, for every pair of rows
                                                  V = r + Σ_{x_l=0} y_l − Σ_{x_l=1} y_l
                            ◀──────────────────── PaillierAnswers(Enc(V)), re-randomised
    PaillierShares(T = V) ─▶ server: T − R mod n ◀─ PaillierShares(R = r − |x|)

All of it modulo n, of the owner. One ciphertext per bit, one per pair of rows: the reference to
compare with, not meant to be fast. ``paillier-packed`` is this protocol with many rows of j in one
plaintext, and what is written here about several rows holds for it.

Corrected from the paper: its identity counts agreements, while
h = |x| + Σ_{x_l=0} y_l − Σ_{x_l=1} y_l counts differences. Its masks are uniform modulo L, where
h = L equals h = 0. And it is k, which knows r, that sends R.

*Packing.* A plaintext holds s rows of j as the digits of Σ_i y_i·B^i, where B^s ≤ 2^(|n|−1) < n and
B > L. Everything above is linear, so V − R = Σ_i h(x, y_i)·B^i modulo n, an integer whose digits
lie in [0, L]: none borrows from or overflows into the next one, and the sum stays below
B^s < n, so that it *is* T − R mod n. Digits on the way there need not be in range.

*Server learns* H only: T is uniform in Z_n, because r is, and R = T − Σ_i h_i·B^i mod n follows
from T and H. This is perfect, without any statistical slack, and it is why both shares travel
modulo n: reduced modulo a small t they would be wrong where V wraps around n, and a mask that
avoids this would not be uniform. *Owner learns* nothing: V is uniform in Z_n, and re-randomising
hides x in the ciphertext itself, up to 2^-128 for each, since it has at most L ≤ 2^15 factors (see
`xclp_crypto.primitives.paillier`). *Evaluator learns* nothing: it sees ciphertexts. The server may
collude with any clients that follow the protocol; an owner that makes its key or its ciphertexts in
another way can read the evaluator's bits, because nothing proves that they are well formed.
Assumptions: those of the encryption, for n of 3072 bits by default; not post-quantum.

A client encrypts its rows once for all its evaluators. In each pair the side owns for which a fixed
formula predicts less work, see `Paillier.pairs`. Each vector or group of vectors travels and is
computed on by itself, and an owner waits for answers before it sends more than a window of groups,
see `Paillier.window`, so memory stays bounded: what grows are the shares, one residue modulo n for
every pair of rows or, packed, for every group and row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, compress
from typing import Final, TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from xclp_crypto.errors import FaultyPeer, ParameterError
from xclp_crypto.fields import Bits, Buffer, Dims, Encoded, Kind, Packed, length_of
from xclp_crypto.params import (
    MIN_CLIENTS,
    PAILLIER_3072,
    PAILLIER_PARAMETERS,
    PaillierParameters,
    residue_width,
)
from xclp_crypto.primitives.paillier import PrivateKey, PublicKey, arithmetic, generate
from xclp_crypto.primitives.paillier.arithmetic import Mpz
from xclp_crypto.primitives.paillier.keys import check_parameters
from xclp_crypto.protocols.hamming.interface import (
    Distances,
    HammingBackend,
    assemble,
    by_dimension,
    own_distances,
    own_pairs,
)
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, sent

ENCRYPTION_WORK = 140
"""Cost of one encryption by the owner, in multiplications modulo n²; measured at 3072 bits."""
ANSWER_WORK = 1200
"""Cost of re-randomising and decrypting one answer, likewise."""

WINDOW_BYTES: Final = 1 << 26
"""Most bytes of groups, and of answers, that wait for one client, unless a single one from each of
the others is more. All parties derive from it who waits for whom, so it is part of the protocol."""

_BY_BITS = {s.modulus_bits: s for s in PAILLIER_PARAMETERS.values()}


class _Integers(Kind[list[Mpz]]):
    """Big-endian integers of as many bits as the public size ``bits`` says."""

    def measure(self, value: list[Mpz]) -> tuple[int, ...]:
        return (len(value),)

    def bounds(self, dims: Dims) -> tuple[int, int]:
        """Return what each is at least, and what it is below."""
        return 0, 1 << dims["bits"]

    def n_bytes(self, dims: Dims) -> int:
        """Return the bytes of each, whole ones for the largest."""
        return ((self.bounds(dims)[1] - 1).bit_length() + 7) // 8

    def size(self, dims: Dims) -> int:
        return length_of(self.lengths[0], dims) * self.n_bytes(dims)

    def write(self, value: list[Mpz], dims: Dims) -> list[Buffer]:
        low, high = self.bounds(dims)
        if value and not low <= min(value) <= max(value) < high:
            raise ParameterError("has an integer that is out of range")
        return [arithmetic.to_bytes(value, self.n_bytes(dims))]

    def read(self, data: memoryview, dims: Dims) -> list[Mpz]:
        return arithmetic.from_bytes(bytes(data), self.n_bytes(dims))


class _Ciphertexts(_Integers):
    """Reduced units modulo n², n a public size; that what is written are units is not checked."""

    def bounds(self, dims: Dims) -> tuple[int, int]:
        return 1, int(dims["n"]) ** 2

    def read(self, data: memoryview, dims: Dims) -> list[Mpz]:
        values = super().read(data, dims)
        arithmetic.require_ciphertexts(values, mpz(dims["n"]))
        return values


def _decoded_key(data: bytes, dims: Dims) -> PublicKey:
    return PublicKey.decode(data, _BY_BITS[dims["bits"]])


class PaillierKey(Message):
    """The owner's public key, see `PublicKey.encode`. Size: 6 + 2·bits/8 bytes."""

    TAG = 0x0250
    key: PublicKey = sent(Encoded(PublicKey, PublicKey.size, _decoded_key))


class PaillierRows(Message):
    """A group of the owner's rows, one ciphertext per bit. Size: L·2·bits/8 bytes."""

    TAG = 0x0251
    values: list[Mpz] = sent(_Ciphertexts("count"))
    n: int


class PaillierAnswers(Message):
    """Masked distances of a group, one ciphertext per row of k. Size: n_k·2·bits/8 bytes."""

    TAG = 0x0252
    values: list[Mpz] = sent(_Ciphertexts("count"))
    n: int


class PaillierShares(Message):
    """A client's own distances, and its residues modulo n for the pairs with all other clients.

    `complete` and `local` are as in `DistanceShares`. `moduli` has the client's own n, if it
    owns pairs. `residues` holds, for each other client in order, T (where this client owns the
    pair) or R: row by row of the evaluator, one for every group of the owner.

    Size: ⌈p/8⌉ + ⌈n_j(n_j−1)/2·w/8⌉ + bits/8·(residues + owns) bytes, owns is 1 if it owns
    pairs, else 0.
    """

    TAG = 0x0253
    complete: NDArray[np.bool_] = sent(Bits("clients"))
    local: NDArray[np.uint16] = sent(Packed(own_pairs, width="width"))
    moduli: list[Mpz] = sent(_Integers("owns"))
    residues: list[Mpz] = sent(_Integers("residues"))
    width: int
    bits: int

    def check(self) -> str | None:
        """See `Message.check`."""
        if all(n.bit_length() == self.bits and n % 2 for n in self.moduli):
            return None
        return f"a modulus is odd and has {self.bits} bits"


GroupShares: TypeAlias = dict[str, list[list[Mpz]]]
"""Shares modulo n, by peer and by group of the owner: one for every row of the evaluator."""


@dataclass(frozen=True)
class Packing:
    """How the rows of an owner lie in plaintexts.

    Attributes:
        rows: all rows.
        slots: rows per group; the last group may have fewer.
        base: B, the base of their digits.
    """

    rows: int
    slots: int
    base: Mpz

    @property
    def groups(self) -> int:
        """Return the number of groups."""
        return -(-self.rows // self.slots)

    def group(self, index: int) -> slice:
        """Return where the rows of a group are."""
        start = index * self.slots
        return slice(start, min(start + self.slots, self.rows))

    def slices(self) -> Iterator[slice]:
        """Yield where each group's rows are."""
        return map(self.group, range(self.groups))


def pack(rows: NDArray[np.uint8], base: Mpz) -> list[Mpz]:
    """Return Σ_i y_{i,l}·B^i for every bit l of the rows y_i."""
    powers = [base**i for i in range(len(rows))]
    return [sum(compress(powers, bits), start=mpz(0)) for bits in rows.T.tolist()]


def unpack(value: Mpz, base: Mpz, slots: int, n_bits: int) -> list[int] | None:
    """Return the digits of a number, or None where they are not `slots` distances of at most L."""
    digits = []
    for _ in range(slots):
        value, digit = gmpy2.f_divmod(value, base)
        digits.append(digit)
    return None if value or max(digits) > n_bits else [int(d) for d in digits]


def encrypt_rows(
    key: PrivateKey, rows: NDArray[np.uint8], base: Mpz, rng: Rng, workers: int
) -> list[Mpz]:
    """Return the L ciphertexts of a group of rows."""
    return key.encrypt_residues(pack(rows, base), rng, workers)


def random_masks(n: Mpz, count: int, rng: Rng) -> list[Mpz]:
    """Return r for every answer, uniform in Z_n."""
    return arithmetic.draw_below(n, count, rng)


class Paillier(HammingBackend):
    """The paper's protocol on Paillier encryption. See the module.

    Args:
        parameters: key size; all parties must use the same.
        workers: processes that a client uses; a script that asks for more than one must guard its
            start by ``if __name__ == "__main__":``.
    """

    name = "paillier"
    trust = "2pc"

    def __init__(self, parameters: PaillierParameters = PAILLIER_3072, workers: int = 1) -> None:
        self.parameters = check_parameters(parameters)
        self.workers = workers

    # What the packed form does in another way

    def packing(self, rows: int, n_bits: int) -> Packing:
        """Return how `rows` rows are packed: one by one."""
        return Packing(rows, 1, mpz(1) << (self.parameters.modulus_bits - 1))

    def evaluate(self, rows: NDArray[np.bool_], values: list[Mpz], square: Mpz) -> list[Mpz]:
        """Return Π_{x_l=0} c_l · Π_{x_l=1} c_l^-1 for every row x."""
        results = []
        for row in rows:
            zeros = arithmetic.product(list(compress(values, ~row)), square)
            ones = arithmetic.product(list(compress(values, row)), square)
            results.append(zeros * gmpy2.invert(ones, square) % square)
        return results

    def evaluation_work(self, rows: int, n_bits: int) -> int:
        """Return how many multiplications `evaluate` needs."""
        return rows * n_bits

    # What both forms share

    def answer(
        self, rows: NDArray[np.bool_], values: list[Mpz], key: PublicKey, ones: Mpz, rng: Rng
    ) -> tuple[list[Mpz], list[Mpz]]:
        """Return Enc(V), re-randomised, and R for every row x.

        Args:
            rows: (n_k, L).
            values: the owner's L ciphertexts.
            key: the owner's key.
            ones: Σ_i B^i, a plaintext whose digits are 1.
            rng: source of masks and randomisers.
        """
        n, square = key.n, key.n_squared
        products = self.evaluate(rows, values, square)
        masks = random_masks(n, len(rows), rng)
        noise = key.randomisers(len(rows), rng, self.workers, self.parameters.history_bits)
        answers = [
            v * (1 + r * n) % square * u % square
            for v, r, u in zip(products, masks, noise, strict=True)
        ]
        weights = rows.sum(axis=1).tolist()
        return answers, [(r - w * ones) % n for r, w in zip(masks, weights, strict=True)]

    def pairs(self, sizes: Mapping[str, int], n_bits: int) -> dict[tuple[str, str], int]:
        """Return, for each (owner, evaluator), how many residues their shares have.

        Of two clients that one owns for which less work is expected, in multiplications modulo n²:
        g·(140·L + 1200·n + evaluation) for g groups of the owner and n rows of the evaluator; of
        equals, the earlier one. Clients without rows are in no pair.

        Raises:
            ParameterError: L is out of range.
        """
        residue_width(n_bits)
        groups = {c: self.packing(n, n_bits).groups for c, n in sizes.items() if n}
        per_group = {
            c: ENCRYPTION_WORK * n_bits
            + ANSWER_WORK * sizes[c]
            + self.evaluation_work(sizes[c], n_bits)
            for c in groups
        }
        pairs = {}
        for low, high in combinations(groups, 2):
            first = groups[low] * per_group[high] <= groups[high] * per_group[low]
            owner, evaluator = (low, high) if first else (high, low)
            pairs[owner, evaluator] = groups[owner] * sizes[evaluator]
        return pairs

    def window(self, sizes: Mapping[str, int], n_bits: int) -> int:
        """Return how many groups of an owner may be under way, sent and not yet answered."""
        at_once = self.longest(sizes, n_bits) * max(1, len(sizes) - 1)
        return max(1, WINDOW_BYTES // at_once)

    def longest(self, sizes: Mapping[str, int], n_bits: int) -> int:
        """Return the bytes of a group, or of the answers to it if there may be more of them."""
        return max(n_bits, *sizes.values()) * self.parameters.modulus_bits // 4

    def _places(
        self, me: str, sizes: Mapping[str, int], pairs: Mapping[tuple[str, str], int]
    ) -> dict[str, slice]:
        """Return where the residues with each peer lie in the upload of `me`."""
        places, start = {}, 0
        for peer in sizes:
            if peer != me:
                count = pairs.get((me, peer), 0) or pairs.get((peer, me), 0)
                places[peer] = slice(start, start + count)
                start += count
        return places

    async def client(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> None:
        """See `HammingBackend.client`."""
        io, sizes, n_bits, rows = session.io, session.sizes, bits.shape[1], bits.astype(bool)
        session.once(self.name)
        pairs = self.pairs(sizes, n_bits)
        packings = {c: self.packing(n, n_bits) for c, n in sizes.items()}
        window = self.window(sizes, n_bits)
        # T of the pairs that this client owns and R of the others, by peer and by group.
        opened: GroupShares = {evaluator: [] for owner, evaluator in pairs if owner == io.name}
        masks: GroupShares = {owner: [] for owner, evaluator in pairs if evaluator == io.name}

        own, groups, key = packings[io.name], 0, None
        if opened:
            groups, key = own.groups, await io.compute(generate, rng, self.parameters)
            await io.send(list(opened), PaillierKey(key.public))
            for index in range(min(window, groups)):
                await self._send_rows(io, key, bits[own.group(index)], own.base, opened, rng)
        sent = await io.gather(PaillierKey, list(masks), 0, bits=self.parameters.modulus_bits)
        keys = {owner: message.key for owner, message in sent.items()}
        masks = {owner: [] for owner in keys}
        for index in range(max((packings[owner].groups for owner, _ in pairs), default=0)):
            await self._answer(io, index, rows, keys, packings, masks, rng)
            if key is not None and index + window < groups:
                await self._open(io, key, sizes, opened)
                group = bits[own.group(index + window)]
                await self._send_rows(io, key, group, own.base, opened, rng)
        if key is not None:
            for _ in range(min(window, groups)):
                await self._open(io, key, sizes, opened)
        residues = {  # row by row of the evaluator
            peer: [value for row in zip(*by_group, strict=True) for value in row]
            for peer, by_group in (opened | masks).items()
        }

        absent = [mpz(0)]
        places = self._places(io.name, sizes, pairs)
        stacked: list[Mpz] = []
        for peer, place in places.items():
            stacked += residues.get(peer, absent * (place.stop - place.start))
        without = {p for p, place in places.items() if place.start == place.stop}
        complete = np.array([c == io.name or c in residues or c in without for c in sizes])
        local, moduli = await own_distances(session, bits), [] if key is None else [key.public.n]
        width, modulus_bits = residue_width(n_bits), self.parameters.modulus_bits
        shares = PaillierShares(complete, local, moduli, stacked, width, modulus_bits)
        await io.send(SERVER, shares)

    async def _send_rows(
        self,
        io: RoleIO,
        key: PrivateKey,
        rows: NDArray[np.uint8],
        base: Mpz,
        opened: GroupShares,
        rng: Rng,
    ) -> None:
        """As an owner: send a group of encrypted rows to all evaluators that stayed."""
        if opened:
            values = await io.compute(encrypt_rows, key, rows, base, rng, self.workers)
            await io.send(list(opened), PaillierRows(values, key.public.n))

    async def _answer(
        self,
        io: RoleIO,
        index: int,
        rows: NDArray[np.bool_],
        keys: Mapping[str, PublicKey],
        packings: Mapping[str, Packing],
        masks: GroupShares,
        rng: Rng,
    ) -> None:
        """As an evaluator: answer a group of every owner; add R, and drop owners that left."""
        asking = [owner for owner in masks if index < packings[owner].groups]
        moduli = {owner: int(keys[owner].n) for owner in asking}
        got = await io.gather(PaillierRows, asking, 0, count=rows.shape[1], n=moduli)
        for owner in asking:
            if owner not in got:
                del masks[owner]
                continue
            key, packing = keys[owner], packings[owner]
            group = packing.group(index)
            ones = sum(packing.base**i for i in range(group.stop - group.start))
            answers, share = await io.compute(self.answer, rows, got[owner].values, key, ones, rng)
            await io.send(owner, PaillierAnswers(answers, key.n))
            masks[owner].append(share)

    async def _open(
        self, io: RoleIO, key: PrivateKey, sizes: Mapping[str, int], opened: GroupShares
    ) -> None:
        """As an owner: decrypt the answers to a group; add T, and drop evaluators that left."""
        counts = {evaluator: sizes[evaluator] for evaluator in opened}
        got = await io.gather(PaillierAnswers, list(opened), 0, count=counts, n=int(key.public.n))
        for evaluator in counts:
            if evaluator in got:
                values = got[evaluator].values
                residues = await io.compute(key.decrypt_residues, values, self.workers)
                opened[evaluator].append(residues)
            else:
                del opened[evaluator]

    async def server(self, session: Session, n_bits: int, at_least: int = MIN_CLIENTS) -> Distances:
        """See `HammingBackend.server`."""
        sizes = session.sizes
        clients, dims = session.clients, by_dimension(self.share_sizes(sizes, n_bits))
        uploads = await session.io.gather(PaillierShares, clients, at_least, **dims)
        pairs = self.pairs(sizes, n_bits)

        def block(low: str, high: str) -> NDArray[np.uint16]:
            if not sizes[low] or not sizes[high]:
                return np.zeros((sizes[low], sizes[high]), dtype=np.uint16)
            owner, evaluator = (low, high) if (low, high) in pairs else (high, low)
            opened, masks = (
                uploads[a].residues[self._places(a, sizes, pairs)[b]]
                for a, b in ((owner, evaluator), (evaluator, owner))
            )
            (modulus,) = uploads[owner].moduli
            packing = self.packing(sizes[owner], n_bits)
            distances = combine(opened, masks, modulus, packing, n_bits, owner, evaluator)
            return distances if evaluator == low else distances.T

        return await assemble(session, n_bits, at_least, uploads, block)

    def share_sizes(self, sizes: Mapping[str, int], n_bits: int) -> dict[str, dict[str, int]]:
        """Return the sizes of every client's `PaillierShares`."""
        pairs = self.pairs(sizes, n_bits)
        return {
            client: {
                "clients": len(sizes),
                "rows": rows,
                "owns": int(any(owner == client for owner, _ in pairs)),
                "residues": sum(count for pair, count in pairs.items() if client in pair),
                "width": residue_width(n_bits),
                "bits": self.parameters.modulus_bits,
            }
            for client, rows in sizes.items()
        }


def combine(
    opened: list[Mpz],
    masks: list[Mpz],
    modulus: Mpz,
    packing: Packing,
    n_bits: int,
    owner: str,
    evaluator: str,
) -> NDArray[np.uint16]:
    """Return the (n_k, n_j) distances in T − R mod n, both row by row of the evaluator.

    Raises:
        FaultyPeer: a residue is not below n, or a digit is not a distance.
    """
    for party, values in ((owner, opened), (evaluator, masks)):
        if any(value >= modulus for value in values):
            raise FaultyPeer(party, "PaillierShares: a residue is not below the modulus")
    places = list(packing.slices())
    rows = []
    for start in range(0, len(opened), len(places)):
        row: list[int] = []
        for i, place in enumerate(places, start):
            slots = place.stop - place.start
            digits = unpack((opened[i] - masks[i]) % modulus, packing.base, slots, n_bits)
            if digits is None:
                raise FaultyPeer(
                    (owner, evaluator), f"a distance above L = {n_bits} comes out of the shares"
                )
            row += digits
        rows.append(row)
    return np.array(rows, dtype=np.uint16)
