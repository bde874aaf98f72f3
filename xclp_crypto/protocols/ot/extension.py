"""OT extension: any number of transfers from 128, by symmetric cryptography.

SoftSpokenOT (Roy, CRYPTO 2022, ePrint 2022/192) over fields of 2^k elements, k = 1, 2, 4 or 8; for
k = 1 it is the extension of Ishai, Kilian, Nissim and Petrank (CRYPTO 2003) with the improvements
of Asharov, Lindell, Schneider and Zohner (CCS 2013)::

    sender: s in {0,1}^128                            receiver: choices r in {0,1}^m
    128 base transfers, roles reversed: all but one    ◀──── 128/k trees of 2^k leaves
    leaf of every tree                                 L_y = G(leaf y): t_b = ⊕ of L_y, bit b of y
                        ◀──────────────    OtColumns(sid, u_j = ⊕ of all L_y of tree j, ⊕ r)
    q_b = ⊕ of L_y, bit b of y ⊕ Δ, and s_b·u_j: so row l is q_l = t_l ⊕ r_l·s
    pads H(q_l, l) for 0 and H(q_l ⊕ s, l) for 1      pad of its choice: H(t_l, l)

Here t and q have one column for each of the k bits of each tree, Δ of a tree are the bits of s for
its columns, and the leaf that the sender lacks is y = Δ, which it does not need (`trees`). Leaves
y = 0 … 2^k − 1 take 2^k/k blocks of AES for each transfer instead of 2, and columns 16/k bytes
instead of 16: k = 2 costs nothing, k = 4 a fifth of the speed, k = 8 three quarters of it.

G is AES-256-CTR under a key derived from the leaf and the session identifier of the extension; H is
`bits.RobustHash` with a key of its own for every sender, receiver and session, and l counts all
transfers of the session. So neither another batch nor another extension over the same base
transfers repeats a pad. On the pads stand *random* transfers (16/k bytes each on the wire),
*chosen* ones (OtOffers more), and *correlated* ones: m_1 = m_0 + Δ in Z_t^n where m_0 is the
sender's hash output, so that one OtCorrections vector per transfer is enough.

*Receiver learns* one pad of each pair. *Sender learns* nothing: each u_j is masked by the leaf that
it lacks. Against semi-honest parties this rests on the base transfers, HKDF, AES-CTR, and H being
correlation robust.

**Malicious receiver** (``check_receiver=True``). A receiver that puts different choices into
different columns can learn s, and then all pads. The check is that of Roy (figure 8, which replaces
the one of Keller, Orsini and Scholl, CRYPTO 2015, whose proof failed, and which their paper adopted
for k = 1: ePrint 2015/546 in its revision of 2022, figure 10)::

    OtChallenge(seed of R) ──────────────▶    R: columns → 128 bits, universal, linear over GF(2)
    require R(q_i) = ṫ_i ⊕ s_i·ẋ for all i ◀── OtProof(ẋ = R(r), ṫ_i = R(t_i))

The last 128 bits of r are random and serve no transfer, so the proof is uniform whatever the others
are. What it gives, with *ideal* base transfers: whatever the receiver sent, in them as well (so
that trees need no check of their own), the columns of tree j are some function q^Δ of Δ, among 2^k,
that was fixed before R. Say that Δ and Δ' both pass in tree j, with bits that differ in column i:
then R(q_i^Δ ⊕ q_i^Δ') = ẋ; where the bits agree it is 0. R takes different differences to different
hashes but for probability 2^(11+4k)·(m/128 + 3)/2^128, as there are below 2^(6+2k) of them
(`bits.ColumnHash`). So all differences that pass are 0 where bits agree and one and the same r
where they do not: the receiver is bound to one r and one t, and passes if s is among those that
pass, a product of one set for each tree. With a share of 2^-g of all s it is caught but for
probability 2^-g. *Selective failure*: passing teaches it these g bits of s; the remaining
128 − g still hide the other pads, because H takes rows of the adversary's choice. A sender that
caught a receiver must not go on: the base transfers with it are burnt. The check says nothing about
a malicious sender, and nothing about what the parties compute from the transfers. `naor_pinkas` as
base transfer hides s unconditionally, but has no simulation proof; with it the claim is argued.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import FaultyPeer, ParameterError, ReuseError
from xclp_crypto.fields import Buffer, Dims, Packed, Raw, Uints, length_of, packed_size
from xclp_crypto.params import CHALLENGE_BYTES, DIGEST_BYTES, KAPPA
from xclp_crypto.protocols.ot import link
from xclp_crypto.protocols.ot.base import BaseTransfers, base_transfers
from xclp_crypto.protocols.ot.bits import (
    BLOCK_BYTES,
    LANE,
    LANE_BITS,
    WORD_BITS,
    HashPoints,
    lane_type,
    pack_planes,
    to_words,
    unpack_planes,
)
from xclp_crypto.protocols.ot.interface import (
    SAME,
    Choices,
    Chosen,
    ObliviousTransfer,
    Pairs,
    Requests,
    check_choices,
    check_offsets,
    check_transfers,
    check_whole,
    require_same_sid,
    require_sid,
    sizes,
)
from xclp_crypto.protocols.ot.link import PADS, SenderPads, Use
from xclp_crypto.protocols.ot.naor_pinkas import OtOffers, naor_pinkas
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.role import Dim, RoleIO
from xclp_crypto.secret import Secret
from xclp_crypto.wire import M, Message, sent


class OtColumns(Message):
    """A digest of the batch, and u_j ⊕ r of every tree, (128/k, words).

    Size: 8 + 8·trees·words bytes.
    """

    TAG = 0x0304
    AGREED = SAME
    digest: bytes = sent(Raw(DIGEST_BYTES))
    columns: NDArray[np.uint64] = sent(Uints("trees", "words", n_bytes=8))


class OtChallenge(Message):
    """Seed of the universal hash. Size: 16 bytes."""

    TAG = 0x0305
    seed: bytes = sent(Raw(CHALLENGE_BYTES))


class OtProof(Message):
    """Hashes of the choices and of the 128 columns, (129, 16). Size: 2064 bytes."""

    TAG = 0x0306
    hashes: NDArray[np.uint8] = sent(Uints(1 + KAPPA, BLOCK_BYTES, n_bytes=1))


class _Planes(Packed):
    """Residues modulo 2^width, width ≤ 64, reduced while they are packed: 16 bits at a time.

    First the lowest 16 bits of all residues, then the next; each in the order of
    `bits.pack_planes`.
    """

    def write(self, value: NDArray[Any], dims: Dims) -> list[Buffer]:
        width = length_of(self.width, dims)
        if value.dtype != lane_type(width):
            raise ParameterError(f"has dtype {value.dtype}, not {lane_type(width)}")
        if value.dtype == LANE:  # no copy of what is as it is packed
            return [*pack_planes(value, width)]
        return [
            piece
            for low in range(0, width, LANE_BITS)
            for piece in pack_planes((value >> low).astype(LANE), min(width - low, LANE_BITS))
        ]

    def read(self, data: memoryview, dims: Dims) -> NDArray[Any]:
        (count,), width = self.shape(dims), length_of(self.width, dims)
        if lane_type(width) == LANE:
            return unpack_planes(data, count, width)
        out, at = np.zeros(count, lane_type(width)), 0
        for low in range(0, width, LANE_BITS):
            bits = min(width - low, LANE_BITS)
            stop = at + packed_size(count, bits)
            out |= unpack_planes(data[at:stop], count, bits).astype(out.dtype) << low
            at = stop
        return out


class OtCorrections(Message):
    """m_0 + Δ − H(q ⊕ s) of every transfer, modulo 2^w, in the order of `bits.lane_groups`.

    Size: ⌈m·n·w/8⌉ bytes.
    """

    TAG = 0x0307
    residues: NDArray[Any] = sent(_Planes(lambda count, lanes: count * lanes, width="width"))
    width: int


class FixedOffset(NamedTuple):
    """What the sender has of transfers with a fixed offset: m_0, (m, 2), and Δ, (2,), uint64."""

    zero: NDArray[np.uint64]
    offset: NDArray[np.uint64]


class Extension(Secret):
    """Transfers over base transfers, batch by batch, with several peers at once.

    All parties must ask for the same batches in the same order. Peers that drop out, now or in the
    base transfers, are missing from the results, as long as `at_least` of a batch's senders, and of
    its receivers, answer. An object belongs to one party and one session.

    Args:
        base: the base transfers; they may serve several extensions.
        sid: identifier of this extension, the same for all parties and never used again.
        rng: source of this party's randomness.
        check_receiver: whether receivers have to prove that they are consistent, two messages more
            for every batch; security against a malicious receiver as the module states it.
        at_least: how many senders, and how many receivers, of a batch must answer, or all of fewer;
            0 where a protocol goes on without them.

    Raises:
        ReuseError: `base` has served an extension with this `sid`, or a peer failed a check.

    Examples:
        >>> from xclp_crypto.protocols.ot import Choices, Extension, base_transfers
        >>> from xclp_crypto.rng import SystemRng
        >>> from xclp_crypto.transport.simulate import Simulation
        >>> bits, offsets = np.arange(100) % 3 == 0, np.arange(100, dtype=np.uint64)[:, None]
        >>> async def sender(io):
        ...     base = await base_transfers(io, ["bob"], [], b"base", SystemRng())
        ...     extension = Extension(base, b"batches", SystemRng())
        ...     return (await extension.correlated(io, {"bob": offsets}, {}, 64))[0]["bob"]
        >>> async def receiver(io):
        ...     base = await base_transfers(io, [], ["alice"], b"base", SystemRng())
        ...     extension = Extension(base, b"batches", SystemRng())
        ...     asked = {"alice": Choices(bits, length=1)}
        ...     return (await extension.correlated(io, {}, asked, 64))[1]["alice"]
        >>> outcome = Simulation().run({"alice": sender, "bob": receiver}).raise_errors()
        >>> zeros, chosen = outcome.results["alice"], outcome.results["bob"]
        >>> bool((chosen == zeros + bits[:, None] * offsets).all())
        True
    """

    __slots__ = ("_at_least", "_base", "_check", "_receivers", "_rng", "_senders")

    def __init__(
        self,
        base: BaseTransfers,
        sid: bytes,
        rng: Rng,
        *,
        check_receiver: bool = False,
        at_least: int = 1,
    ) -> None:
        self._rng = require_rng(rng)
        require_sid(sid)
        if sid in base._used:
            raise ReuseError("these base transfers already served this sid; pads must not repeat")
        if base._burnt:
            raise ReuseError(
                f"{', '.join(sorted(base._burnt))} failed a check, which may have told it some of "
                "this party's secret choices; run new base transfers, without it"
            )
        base._used.add(sid)
        me = base._name
        self._base = base
        self._check = check_receiver
        self._at_least = at_least
        self._senders = {
            peer: link.SenderEnd(choices, leaves, sid, me, peer, check_receiver)
            for peer, (choices, leaves) in base._chosen.items()
        }
        self._receivers = {
            peer: link.ReceiverEnd(leaves, sid, peer, me, check_receiver)
            for peer, leaves in base._leaves.items()
        }

    async def ask(
        self, io: RoleIO, receiving: Mapping[str, NDArray[np.bool_]], *, use: Use = PADS
    ) -> dict[str, link.Asked]:
        """Send the columns of the next batch, without waiting, and return what it hides.

        `extend` is `ask`, `take`, `prove` and `verify`. Whoever calls them by themselves may `ask`
        for the next batch before it calls `prove` for one, if its peers `take` them in this order.

        Args:
            io: this party.
            receiving: by sender, the choices (m,) bool.
            use: what the pads are for.

        Raises:
            ParameterError: choices of another type, or of a peer without base transfers.
        """
        for bits in receiving.values():
            check_choices(Choices(bits, 1))
        counts = {peer: len(bits) for peer, bits in receiving.items()}
        words = {p: link.transfer_words(count, self._check) for p, count in counts.items()}
        choices = {peer: to_words(bits, words[peer]) for peer, bits in receiving.items()}
        return await self._ask(io, choices, counts, use)

    async def _ask(
        self,
        io: RoleIO,
        choices: Mapping[str, NDArray[np.uint64]],
        counts: Mapping[str, int],
        use: Use,
    ) -> dict[str, link.Asked]:
        for peer in choices:
            if peer not in self._receivers:
                raise ParameterError(f"{io.name} has no base transfers to receive from {peer!r}")
        asked = {}
        for peer, words in choices.items():
            column = self._with_sacrifice(words) if self._check else words
            end, count = self._receivers[peer], counts[peer]
            digest = end.digest(count, use.kind, use.receiving.get(peer, 0))
            batch = await io.compute(end.extend, column, count, hashed=use.hashed)
            await io.send(peer, OtColumns(digest, batch.u))
            asked[peer] = batch
        return asked

    async def take(
        self, io: RoleIO, sending: Mapping[str, int], *, use: Use = PADS
    ) -> dict[str, link.Taken]:
        """Receive the columns of the next batch, challenge checked receivers, and return both.

        The pads may be used when `verify` has returned them.

        Args:
            io: this party.
            sending: by receiver, the number of transfers.
            use: what the pads are for.

        Raises:
            ParameterError: a number that is not whole.
            FaultyPeer: a peer has another `sid`, asks for batches in another order, or means
                another batch.
        """
        for count in sending.values():
            check_whole("the number of transfers", count, 0)
        present = {peer: count for peer, count in sending.items() if peer in self._senders}
        words = {peer: link.batch_words(count, self._check) for peer, count in present.items()}
        got = await self._gather(io, OtColumns, present, trees=self._base._trees, words=words)
        taken = {}
        for peer, message in got.items():
            end = self._senders[peer]
            count = sending[peer]
            expected = end.digest(count, use.kind, use.sending.get(peer, 0))
            require_same_sid(message.digest, expected, peer)
            pads, q = await io.compute(end.extend, message.columns, count, hashed=use.hashed)
            seed = self._rng.bytes(CHALLENGE_BYTES) if self._check else b""
            taken[peer] = link.Taken(pads, q, seed)
        if self._check:
            for peer, batch in taken.items():
                await io.send(peer, OtChallenge(batch.seed))
        return taken

    async def prove(self, io: RoleIO, asked: Mapping[str, link.Asked]) -> dict[str, HashPoints]:
        """Prove to the senders of a batch that its columns are consistent; return its pads."""
        challenges = await self._gather(io, OtChallenge, asked) if self._check else {}
        for peer, challenge in challenges.items():
            batch = asked[peer]
            proof = await io.compute(link.prove, challenge.seed, batch.choices, batch.t)
            await io.send(peer, OtProof(proof))
        return {p: asked[p].pads for p in (challenges if self._check else asked)}

    async def verify(self, io: RoleIO, taken: Mapping[str, link.Taken]) -> dict[str, SenderPads]:
        """Return both pads of every transfer of a batch, if the columns are consistent.

        Raises:
            FaultyPeer: they are not; see `extend`.
        """
        proofs = await self._gather(io, OtProof, taken) if self._check else {}
        for peer, message in proofs.items():
            batch, verify = taken[peer], self._senders[peer].verify
            if not await io.compute(verify, batch.q, batch.seed, message.hashes):
                self._base._burnt.add(peer)
                del self._senders[peer]
                raise FaultyPeer(peer, "OtColumns: the columns hide different choices")
        return {p: taken[p].pads for p in (proofs if self._check else taken)}

    async def extend(
        self,
        io: RoleIO,
        sending: Mapping[str, int],
        receiving: Mapping[str, NDArray[np.bool_]],
        *,
        use: Use = PADS,
    ) -> tuple[dict[str, SenderPads], dict[str, HashPoints]]:
        """Make one batch of pads with each peer.

        Args:
            io: this party.
            sending: by receiver, the number of transfers m.
            receiving: by sender, the choices (m,) bool.
            use: what the pads are for.

        Returns:
            By receiver, both pads of every transfer; by sender, the pads of the choices.

        Raises:
            ParameterError: choices of another type.
            FaultyPeer: columns of another batch; or, with `check_receiver`, inconsistent ones, and
                the base transfers with that peer are then burnt.
            TooFewParties: fewer than `at_least` senders, or receivers, answer.
        """
        asked = await self.ask(io, receiving, use=use)
        taken = await self.take(io, sending, use=use)
        received = await self.prove(io, asked)
        return await self.verify(io, taken), received

    async def random(
        self, io: RoleIO, sending: Mapping[str, int], receiving: Requests, length: int = BLOCK_BYTES
    ) -> tuple[dict[str, NDArray[np.uint8]], Chosen]:
        """Run random transfers: the sender gets two random messages, the receiver one of them.

        Args:
            io: this party.
            sending: by receiver, the number of transfers.
            receiving: by sender, the choices, of messages of `length` bytes.
            length: bytes of the messages that this party sends.

        Returns:
            By receiver, (m, 2, length) uint8; by sender, (m, length) uint8.

        Raises:
            ParameterError: choices of another type, or a length below 1.
            FaultyPeer: see `extend`.
        """
        check_whole("the length of messages", length, 1)
        sent, received = await self._extend(
            io, sending, receiving, "random", dict.fromkeys(sending, length)
        )
        return (
            {peer: await io.compute(link.both_pads, pads, length) for peer, pads in sent.items()},
            {
                peer: await io.compute(link.chosen_pads, pads, receiving[peer].length)
                for peer, pads in received.items()
            },
        )

    async def random_bits(
        self,
        io: RoleIO,
        sending: Mapping[str, int],
        receiving: Mapping[str, NDArray[np.uint64]],
    ) -> tuple[dict[str, NDArray[np.uint64]], dict[str, NDArray[np.uint64]]]:
        """Run random transfers of single bits, 64 of them in each word, bit 0 first.

        Args:
            io: this party.
            sending: by receiver, the number of words of transfers.
            receiving: by sender, the choices, (words,) uint64.

        Returns:
            By receiver, the first and the second message of every transfer, (2, words) uint64; by
            sender, the messages that were chosen, (words,) uint64.

        Raises:
            ParameterError: choices of another type.
            FaultyPeer: see `extend`.
        """
        for peer, words in receiving.items():
            found = np.asarray(words)
            if words is not found or words.ndim != 1 or words.dtype != np.uint64:
                raise ParameterError(
                    f"choices of bits must be a vector of uint64, got {found.dtype} {found.shape} "
                    f"for {peer}"
                )
        use = Use("random bits", sending, {peer: len(words) for peer, words in receiving.items()})
        # An even number of words, so that those of transfers are those of the columns.
        even = {
            peer: check_whole("the number of words", words, 0) + words % 2
            for peer, words in sending.items()
        }
        choices = {
            peer: np.append(w, np.zeros(len(w) % 2, w.dtype)) for peer, w in receiving.items()
        }
        counts = {peer: WORD_BITS * len(words) for peer, words in choices.items()}
        asked = await self._ask(io, choices, counts, use)
        owed = {peer: WORD_BITS * words for peer, words in even.items()}
        taken = await self.take(io, owed, use=use)
        received = await self.prove(io, asked)
        sent = await self.verify(io, taken)
        return (
            {
                peer: (await io.compute(link.both_bits, pads))[:, : sending[peer]]
                for peer, pads in sent.items()
            },
            {
                peer: (await io.compute(pads.bits))[: len(receiving[peer])]
                for peer, pads in received.items()
            },
        )

    async def fixed(
        self, io: RoleIO, sending: Mapping[str, int], receiving: Mapping[str, NDArray[np.bool_]]
    ) -> tuple[dict[str, FixedOffset], dict[str, NDArray[np.uint64]]]:
        """Run correlated transfers of one offset Δ, which the sender cannot choose, under XOR.

        Δ is s, one for each receiver and base transfers, and these are the rows of the extension
        before they are hashed, so only columns are sent. Whoever opens Δ gives away all pads over
        these base transfers. Where 64 bits are enough, take the first words of rows and Δ.

        Args:
            io: this party.
            sending: by receiver, the number of transfers m.
            receiving: by sender, the choices (m,) bool.

        Returns:
            By receiver, m_0, (m, 2) uint64, and Δ, (2,) uint64; by sender, m_0 ⊕ choice·Δ, (m, 2).

        Raises:
            ParameterError: choices of another type.
            FaultyPeer: see `extend`.
        """
        sent, received = await self.extend(io, sending, receiving, use=Use(link.FIXED))
        return (
            {
                peer: FixedOffset(pads.zero.rows, self._senders[peer].offset)
                for peer, pads in sent.items()
            },
            {peer: pads.rows for peer, pads in received.items()},
        )

    async def chosen(self, io: RoleIO, sending: Pairs, receiving: Requests) -> Chosen:
        """Run transfers of chosen messages; see `ObliviousTransfer`."""
        check_transfers(sending, receiving)
        counts = {peer: len(messages) for peer, messages in sending.items()}
        lengths = {peer: messages.shape[2] for peer, messages in sending.items()}
        sent, received = await self._extend(io, counts, receiving, "chosen", lengths)
        for peer, pads in sent.items():
            await io.send(peer, OtOffers(await io.compute(link.offer, pads, sending[peer])))
        got = await self._gather(io, OtOffers, received, **sizes(receiving))
        return {
            peer: await io.compute(
                link.open_chosen, received[peer], message.offers, receiving[peer]
            )
            for peer, message in got.items()
        }

    async def correlated(
        self, io: RoleIO, sending: Mapping[str, NDArray[Any]], receiving: Requests, width: int
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """Run correlated transfers over Z_t^n, t = 2^w.

        Args:
            io: this party.
            sending: by receiver, the offsets Δ, (m, n); uint16 for w up to 16, uint32 for w up to
                32, uint64 above.
            receiving: by sender, the choices; their `length` is n.
            width: w, 1 … 64.

        Returns:
            By receiver, m_0, (m, n) uniform modulo t, of the same type; by sender,
            m_0 + choice·Δ modulo t.

        Raises:
            ParameterError: offsets or choices of another type or shape, or w out of range.
            FaultyPeer, TooFewParties: see `extend`.
        """
        for offsets in sending.values():
            check_offsets(offsets, width)
        counts = {peer: len(offsets) for peer, offsets in sending.items()}
        lanes = {peer: offsets.shape[1] for peer, offsets in sending.items()}
        kind = f"correlated modulo 2^{width}"
        sent, received = await self._extend(io, counts, receiving, kind, lanes)
        bases = {}
        for peer, pads in sent.items():
            bases[peer], corrections = await io.compute(link.correlate, pads, sending[peer], width)
            await io.send(peer, OtCorrections(corrections, width))
        asked = sizes(receiving)
        dims: dict[str, Dim] = {"count": asked["count"], "lanes": asked["length"], "width": width}
        got = await self._gather(io, OtCorrections, received, **dims)
        return bases, {
            peer: await io.compute(
                link.correct, received[peer], message.residues, receiving[peer], width
            )
            for peer, message in got.items()
        }

    async def _extend(
        self,
        io: RoleIO,
        sending: Mapping[str, int],
        receiving: Requests,
        kind: str,
        lengths: Mapping[str, int],
    ) -> tuple[dict[str, SenderPads], dict[str, HashPoints]]:
        """Make the pads of messages of these `lengths`, by receiver."""
        for request in receiving.values():
            check_choices(request)
        use = Use(kind, lengths, {p: request.length for p, request in receiving.items()})
        bits = {p: request.bits for p, request in receiving.items()}
        return await self.extend(io, sending, bits, use=use)

    async def _gather(
        self, io: RoleIO, kind: type[M], parties: Collection[str], **dims: Dim
    ) -> dict[str, M]:
        return await io.gather(kind, parties, min(self._at_least, len(parties)), **dims)

    def _with_sacrifice(self, choices: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return np.append(choices, self._rng.residues(1 << WORD_BITS, link.CHECK_WORDS))


async def extended_ot(
    io: RoleIO,
    sending: Pairs,
    receiving: Requests,
    sid: bytes,
    rng: Rng,
    *,
    base: ObliviousTransfer = naor_pinkas,
    check_receiver: bool = False,
    field_bits: int = 1,
    at_least: int = 1,
) -> Chosen:
    """Run base transfers and one batch of chosen messages over them. See `ObliviousTransfer`.

    The base transfers are those of `base`; for `check_receiver` see `Extension`, for `field_bits`
    `base_transfers`.

    Examples:
        >>> from xclp_crypto.protocols.ot import Choices, extended_ot
        >>> from xclp_crypto.rng import SystemRng
        >>> from xclp_crypto.transport.simulate import Simulation
        >>> pairs, bits = np.arange(200, dtype=np.uint8).reshape(100, 2, 1), np.arange(100) % 3 == 0
        >>> def sender(io):
        ...     return extended_ot(io, {"bob": pairs}, {}, b"first", SystemRng())
        >>> def receiver(io):
        ...     return extended_ot(io, {}, {"alice": Choices(bits, 1)}, b"first", SystemRng())
        >>> outcome = Simulation().run({"alice": sender, "bob": receiver}).raise_errors()
        >>> outcome.results["bob"]["alice"][:4].ravel().tolist()
        [1, 2, 4, 7]
    """
    check_transfers(sending, receiving)
    transfers = await base_transfers(
        io,
        tuple(sending),
        tuple(receiving),
        sid,
        rng,
        base,
        field_bits=field_bits,
        at_least=at_least,
    )
    extension = Extension(transfers, sid, rng, check_receiver=check_receiver, at_least=at_least)
    return await extension.chosen(io, sending, receiving)
