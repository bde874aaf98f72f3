"""Double masks: the rounds that every secure sum with recovery has (Bonawitz et al. 2017).

::

    client u                                                       server
    SumShares(shares of k_u and of b_u) ────────────────────────────────────────▶ every neighbour v
    SumReady(images of k_u and b_u, terms of the sum,
             whose shares arrived, s_uv ⊕ pad of k_u for every v) ▶
                      ◀──────────────────────────────────────────── SumClients(who takes part)
    SumMasked(signature of who takes part) ───────────────────────▶
    upload of x_u + PRG(b_u) + Σ_v ±PRG(s_uv) ────────────────────▶
                      ◀──────────────────────────────────────────── SumSurvivors(who uploaded)
    SumSigned(signature of both sets) ────────────────────────────▶
                      ◀──────────────────────────────────────────── SumSignatures(of T clients, and
                                                        of neighbours what they sent as SumMasked)
    SumReveal(of each v: share of b_v if it uploaded, of k_v if not) ─▶
                                                     recovers these, strips all masks from the sum

s_uv is a *pair key*: it comes from the secret that u and v have shared since setup, and is bound to
both names and to this sum (`Session.pair_key`). The seed b_u and the *pad key* k_u are random, 32
bytes each, drawn for this sum alone, and shared among u and its neighbours (see `mask_graph`) so
that t of them recover one. The masks of two survivors cancel in the sum.

*Why pads.* A dropout's pair keys must follow from what it has shared out. From a private key of
Diffie–Hellman they do; but no key of one party gives the secrets that it encapsulated for others
by ML-KEM. So u leaves its pair keys with the server under pads that k_u gives; whoever recovers
k_u takes them off. Pair keys are outputs of a key derivation: of other sums, of channels and of
the secrets of setup they tell nothing. Masks withstand a quantum computer if these secrets do.

*Server learns* nothing of an upload: it gets b_u of a survivor, whose pair keys with others that
survive stay under pads at both ends, or k_u of a dropout, whose b_u stays unknown. So a dropout's
upload that arrives late is still masked. A neighbour that colludes knows its own pair keys, and by
them the pads over these; other pads are independent, and so are the images, which are one-way.
*Clients learn* nothing but who takes part: shares fewer than t are independent of what is shared.

*Wrong shares* do not fit the image, and who dealt or revealed them is named. *Wrong pads* of a
dropout make the sum wrong, as any upload can, and nobody is named: the server cannot tell.

A client reveals once, for one set of survivors, and only if T clients signed the same set; so it
never reveals both secrets of one peer, whatever the server asks. Why a server that shows different
sets to different clients does not get both either is in `survivors`.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra import ring
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.apart import Apart, told, without_pairs
from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    ReuseError,
    TooFewParties,
)
from xclp_crypto.fields import Bits, Many, Raw, Uints
from xclp_crypto.params import SEED_BYTES, Agreement
from xclp_crypto.primitives.shamir import SHARE_BYTES, Share, recover_secret, share_secret
from xclp_crypto.protocols.secure_sum.keyed_masks import (
    add_pair_mask,
    add_self_mask,
    pair_keys,
    secret_image,
    under_pads,
)
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.secure_sum.survivors import (
    Participants,
    SumSurvivors,
    client_set,
    members,
)
from xclp_crypto.protocols.secure_sum.terms import TERMS_BYTES
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.secret import Secret
from xclp_crypto.wire import Message, sent

NO_ROWS: NDArray[np.intp] = np.zeros(0, dtype=np.intp)


class SumShares(Message):
    """One neighbour's shares of a client's secrets. Size: 2·37 bytes."""

    TAG = 0x0421
    key_share: bytes = sent(Raw(SHARE_BYTES))
    seed_share: bytes = sent(Raw(SHARE_BYTES))


class SumReady(Message):
    """Images of a client's secrets, the terms of its sum, whose shares it holds, its pair keys.

    The keys are under pads; where a neighbour is not in the session, there is no key but the pad.
    Size: 2·32 + 72 + ⌈k/8⌉ + 32·k bytes.
    """

    TAG = 0x0422
    key_image: bytes = sent(Raw(SEED_BYTES))
    seed_image: bytes = sent(Raw(SEED_BYTES))
    terms: bytes = sent(Raw(TERMS_BYTES))
    have: NDArray[np.bool_] = sent(Bits("neighbours"))
    padded_keys: NDArray[np.uint8] = sent(Uints("neighbours", SEED_BYTES, n_bytes=1))


class SumClients(Message):
    """Who takes part: all hold each other's shares. Size: ⌈p/8⌉ bytes."""

    TAG = 0x0423
    clients: NDArray[np.bool_] = sent(Bits("clients"))


class SumReveal(Message):
    """One share of each client in the neighbourhood that takes part. Size: 37·count bytes."""

    TAG = 0x0426
    shares: tuple[bytes, ...] = sent(Many(Raw(SHARE_BYTES), "count"))


@dataclass(frozen=True)
class SumRecord:
    """What the server knows of who took part in a sum.

    Attributes:
        survivors: clients whose values the sum has.
        dropouts: the others and the stage in which each was missing: ``setup`` if it is not in the
            session, ``share`` before its masks were agreed on, ``upload`` afterwards. A survivor
            that was missing in ``reveal`` is listed as well: the sum has its values, but it may not
            have heard the result.
        apart: pairs of which one was left out when masks were agreed on; see `xclp_crypto.apart`.
    """

    survivors: tuple[str, ...]
    dropouts: Mapping[str, str]
    apart: Apart = ()


def holders(neighbours: Mapping[str, tuple[str, ...]], client: str) -> tuple[str, ...]:
    """Return who holds shares of a client's secrets: its neighbours, and itself as the last."""
    return (*neighbours[client], client)


class ClientMasks(Secret):
    """One client's masks in one sum, and what it holds to recover its neighbours'.

    Attributes:
        clients: who takes part.
        partners: the neighbours that take part.
    """

    def __init__(
        self,
        me: str,
        tag: bytes,
        clients: tuple[str, ...],
        seed: bytes,
        pair_keys: Mapping[str, bytes],
        shares: Mapping[str, tuple[bytes, bytes]],
    ) -> None:
        self.clients = clients
        self.partners = tuple(pair_keys)
        self._me, self._tag = me, tag
        self._seed: bytes | None = seed
        self._pair_keys = dict(pair_keys)
        self._shares = dict(shares)

    def mask(
        self, total: Residues, modulus: int, own: NDArray[np.intp] = NO_ROWS
    ) -> dict[str, Residues]:
        """Add all masks to `total`, in place, once.

        Args:
            total: the encoded values, modulo `modulus`, C-contiguous.
            modulus: of the sum.
            own: indices along the first axis of which to return the masks, by default none.

        Returns:
            By partner, its mask at `own`, signed as it was added.

        Raises:
            ReuseError: the masks were used already.
        """
        if self._seed is None:
            raise ReuseError(f"the masks of {self._me} in this sum were used already")
        seed, self._seed = self._seed, None
        at_own = {}
        for peer in self.partners:
            before = total[own]
            key = self._pair_keys[peer]
            add_pair_mask(total, modulus, key, self._tag, self._me, peer, negative=False)
            at_own[peer] = total[own]
            ring.subtract_from(at_own[peer], before, modulus)
        add_self_mask(total, modulus, seed, self._tag, self._me, negative=False)
        return at_own

    def reveal(self, survivors: Collection[str]) -> tuple[bytes, ...]:
        """Return one share of each client of the neighbourhood, by the order of `holders`, once.

        That of a survivor's seed, of a dropout's pad key, and never the other.

        Raises:
            ReuseError: shares were revealed already, perhaps for other survivors.
        """
        if not self._shares:
            raise ReuseError(f"{self._me} revealed its shares of this sum already")
        shares, self._shares = self._shares, {}
        return tuple(seed if client in survivors else key for client, (key, seed) in shares.items())


async def agree_on_masks(
    session: Session, graph: MaskGraph, tag: bytes, terms: Agreement, rng: Rng
) -> ClientMasks | None:
    """Share this client's secrets and learn who takes part; None if it comes too late.

    Args:
        session: the session.
        graph: who shares with whom.
        tag: domain tag of this sum, given out once.
        terms: what all parties of this sum must have in common.
        rng: source of the pad key, the seed and the shares.

    Raises:
        FaultyPeer: a neighbour's shares are not what it has to send, or the server counts a client
            whose shares did not arrive here.
    """
    io, me = session.io, session.io.name
    near = graph.neighbours(tag)[me]
    peers = tuple(c for c in near if c in session.numbers)
    pad_key, seed = (require_rng(rng).bytes(SEED_BYTES) for _ in range(2))
    dealt = await io.compute(_deal, graph, (*near, me), pad_key, seed, rng)
    for peer in peers:
        await io.send(peer, SumShares(*dealt[peer]))
    keys = await io.compute(pair_keys, session, near, tag)
    got = await io.gather(SumShares, peers, 0)
    have = np.array([c in got for c in near], dtype=np.bool_)
    images = secret_image(pad_key, tag, me), secret_image(seed, tag, me)
    padded = under_pads(keys, pad_key, tag, me)
    await io.send(SERVER, SumReady(*images, terms.encode(), have, padded))
    chosen = await io.recv(SumClients, SERVER, clients=len(graph.clients))
    # Not before: of parties with other terms, only the server knows which one is alone with them.
    for peer, message in got.items():
        for data in (message.key_share, message.seed_share):
            _checked_share(graph, data, graph.indices[me], peer)
    clients = members(graph, chosen.clients)
    if me not in clients:
        return None
    here = set(clients)
    if len(clients) < graph.threshold or not here <= session.numbers.keys():
        raise FaultyPeer(SERVER, f"starts a sum of {len(clients)} clients")
    partners = tuple(c for c in near if c in here)
    missing = [c for c in partners if c not in got]
    if missing:
        raise FaultyPeer(SERVER, f"counts {missing[0]}, whose shares did not arrive at {me}")
    if len(partners) + 1 < graph.share_threshold:  # few masks, and none that could be recovered
        raise FaultyPeer(SERVER, f"starts a sum with {len(partners)} neighbours of {me}")
    shares = {c: (got[c].key_share, got[c].seed_share) for c in partners} | {me: dealt[me]}
    pairs = {c: key.tobytes() for c, key in zip(near, keys, strict=True) if c in here}
    return ClientMasks(me, tag, clients, seed, pairs, shares)


def _deal(
    graph: MaskGraph, to: tuple[str, ...], pad_key: bytes, seed: bytes, rng: Rng
) -> dict[str, tuple[bytes, bytes]]:
    """Return, by holder, its shares of the pad key and of the seed."""
    indices = [graph.indices[c] for c in to]
    t = graph.share_threshold
    keys, seeds = (share_secret(secret, t, indices, rng) for secret in (pad_key, seed))
    return {c: (x.encode(), y.encode()) for c, x, y in zip(to, keys, seeds, strict=True)}


def _checked_share(graph: MaskGraph, data: bytes, index: int, party: str) -> Share:
    """Decode a share that `party` sent.

    Raises:
        FaultyPeer: it is not a share, or that of another holder, or one with another threshold.
    """
    try:
        share = Share.decode(data)
    except DecodeError as error:
        raise FaultyPeer(party, f"sent no share: {error}") from None
    if share.index != index or share.threshold != graph.share_threshold:
        raise FaultyPeer(
            party,
            f"sent share {share.index} of threshold {share.threshold} where share {index} of "
            f"threshold {graph.share_threshold} belongs",
        )
    return share


async def reveal_shares(
    session: Session, participants: Participants, masks: ClientMasks, survivors: tuple[str, ...]
) -> None:
    """Send the server its shares once enough clients have signed these survivors.

    Raises:
        FaultyPeer: the server shows too few signatures, or a wrong one; nothing is revealed.
    """
    here = set(survivors)
    await participants.agree_on(session, survivors, tuple(c for c in masks.partners if c in here))
    await session.io.send(SERVER, SumReveal(masks.reveal(survivors)))


class ServerMasks:
    """What the server knows of the masks of one sum.

    Args:
        graph: who shares with whom.
        tag: of `agree_on_masks`.
        ready: by client that takes part, what it sent.
        apart: see `SumRecord`.

    Attributes:
        neighbours: those that take part.
    """

    def __init__(
        self,
        graph: MaskGraph,
        tag: bytes,
        ready: Mapping[str, SumReady],
        apart: Apart = (),
    ) -> None:
        self.graph, self.tag, self.ready, self.apart = graph, tag, dict(ready), apart
        self.neighbours = {
            c: tuple(n for n in near if n in self.ready)
            for c, near in graph.neighbours(tag).items()
            if c in self.ready
        }

    @property
    def clients(self) -> tuple[str, ...]:
        """Return who takes part."""
        return tuple(self.ready)

    @property
    def participants(self) -> Participants:
        """Return who takes part, as what clients sign."""
        return Participants(self.graph, self.tag, self.clients)

    def require_recoverable(self, survivors: Collection[str], step: str) -> None:
        """Refuse survivors that cannot recover the masks of all that take part.

        Raises:
            TooFewParties: a client has too few surviving holders of its shares.
        """
        here = set(survivors)
        for client in self.clients:
            left = sum(c in here for c in holders(self.neighbours, client))
            if left < self.graph.share_threshold:
                out = tuple(c for c in holders(self.neighbours, client) if c not in here)
                raise TooFewParties(step, left, self.graph.share_threshold, missing=out)


async def open_masks(
    session: Session, graph: MaskGraph, tag: bytes, terms: Agreement, clients: Collection[str]
) -> ServerMasks:
    """Learn which of `clients` hold each other's shares, and tell them who takes part.

    The other arguments are those of `agree_on_masks`.

    Raises:
        FaultyPeer: a client has other terms, which are named.
        TooFewParties: fewer than the threshold take part, or too few neighbours of one of them.
    """
    io = session.io
    near = {c: n for c, n in graph.neighbours(tag).items() if c in session.numbers}
    wanted = set(clients)
    asked = tuple(c for c in near if c in wanted)
    ready = await io.gather(
        SumReady, asked, graph.threshold, neighbours={c: len(near[c]) for c in asked}
    )
    for client, message in ready.items():
        terms.require_same(message.terms, client)
    held = {
        c: {n for n, here in zip(near[c], message.have, strict=True) if here}
        for c, message in ready.items()
    }
    apart = tuple((c, n) for c in held for n in near[c] if n in held and n not in held[c])
    present = without_pairs(held, apart)
    if len(present) < graph.threshold:
        out = tuple(c for c in near if c not in ready)
        raise TooFewParties(io.current_step, len(present), graph.threshold, told(apart), out)
    masks = ServerMasks(graph, tag, {c: ready[c] for c in present}, apart)
    masks.require_recoverable(present, io.current_step)
    await io.send(tuple(near), SumClients(client_set(graph, present)))
    return masks


async def close_masks(
    session: Session,
    masks: ServerMasks,
    survivors: tuple[str, ...],
    signed: Mapping[str, bytes],
    total: Residues,
    modulus: int,
    informed: Collection[str],
    own: Mapping[str, NDArray[np.intp]] | None = None,
) -> tuple[str, ...]:
    """Name the survivors, recover what their upload lacks to cancel, and strip it from `total`.

    Args:
        session: the server's session.
        masks: from `open_masks`.
        survivors: whose uploads `total` sums.
        signed: by survivor at least, its signature of who takes part.
        total: modified in place, modulo `modulus`.
        modulus: of the sum.
        informed: whom to tell the survivors.
        own: by client, the rows that its upload did not have; by default none.

    Returns:
        The survivors that revealed their shares.

    Raises:
        TooFewParties: fewer survivors, signatures or shares than needed.
        FaultyPeer: a client signed other survivors, or sent a share that is none; or the shares of
            one do not give its secret: then it dealt wrong ones, or one of their holders revealed a
            wrong one.
    """
    io, graph = session.io, masks.graph
    masks.require_recoverable(survivors, io.current_step)
    await io.send(tuple(informed), SumSurvivors(client_set(graph, survivors)))
    agreed = await masks.participants.gather_agreed(session, survivors)
    masks.require_recoverable(agreed, io.current_step)
    left = set(survivors)
    partners = {c: tuple(n for n in masks.neighbours[c] if n in left) for c in survivors}
    await masks.participants.hand_out(session, agreed, signed, partners)
    reveals = await io.gather(
        SumReveal,
        tuple(agreed),
        min(graph.threshold, graph.share_threshold),
        count={c: len(masks.neighbours[c]) + 1 for c in agreed},
    )
    shares: dict[str, list[Share]] = {c: [] for c in masks.clients}
    for holder, message in reveals.items():
        index = graph.indices[holder]
        for client, data in zip(holders(masks.neighbours, holder), message.shares, strict=True):
            shares[client].append(_checked_share(graph, data, index, holder))
    for held in shares.values():
        if len(held) < graph.share_threshold:
            out = tuple(c for c in survivors if c not in reveals)
            raise TooFewParties(io.current_step, len(held), graph.share_threshold, missing=out)
    for done, (client, held) in enumerate(shares.items(), 1):
        await io.compute(strip_masks, masks, client, held, left, total, modulus, own or {})
        io.report("masks stripped", done, len(shares))
    return tuple(reveals)


def _recovered(masks: ServerMasks, client: str, shares: list[Share], survived: bool) -> bytes:
    """Return the seed of a survivor, or the pad key of a dropout, from all revealed shares.

    Raises:
        FaultyPeer: they do not give one secret, or not that of which the client sent an image.
    """
    try:
        secret = recover_secret(shares)
    except DecodeError as error:
        raise _wrong_shares(masks, client, shares, f"do not belong together: {error}") from None
    ready = masks.ready[client]
    image = ready.seed_image if survived else ready.key_image
    if not hmac.compare_digest(secret_image(secret, masks.tag, client), image):
        raise _wrong_shares(masks, client, shares, "give another secret than its image is of")
    return secret


def _wrong_shares(masks: ServerMasks, client: str, shares: list[Share], reason: str) -> FaultyPeer:
    """Blame the client that dealt the shares, or one of those that revealed them."""
    revealed = (masks.graph.clients[share.index - 1] for share in shares)
    return FaultyPeer(tuple(dict.fromkeys((client, *revealed))), f"{client}'s shares {reason}")


@contextmanager
def _sparing(total: Residues, rows: NDArray[np.intp]) -> Iterator[None]:
    """Leave these rows as they are, whatever happens to all of `total` inside."""
    before = total[rows]
    yield
    total[rows] = before


def strip_masks(
    masks: ServerMasks,
    client: str,
    shares: list[Share],
    survivors: Collection[str],
    total: Residues,
    modulus: int,
    own: Mapping[str, NDArray[np.intp]],
) -> None:
    """Take a survivor's self mask, or a dropout's masks with survivors, from the sum, in place."""
    secret = _recovered(masks, client, shares, client in survivors)
    if client in survivors:
        with _sparing(total, own.get(client, NO_ROWS)):
            add_self_mask(total, modulus, secret, masks.tag, client, negative=True)
        return
    keys = under_pads(masks.ready[client].padded_keys, secret, masks.tag, client)
    near = masks.graph.neighbours(masks.tag)[client]
    for peer, key in zip(near, keys, strict=True):
        if peer in survivors:
            with _sparing(total, own.get(peer, NO_ROWS)):
                add_pair_mask(total, modulus, key.tobytes(), masks.tag, peer, client, negative=True)


def short_record(
    session: Session, clients: Collection[str], survivors: tuple[str, ...]
) -> SumRecord:
    """Return the record of a sum without shares, in which dropouts never uploaded."""
    joined = session.numbers
    dropouts = {c: "upload" if c in joined else "setup" for c in clients if c not in survivors}
    return SumRecord(survivors, dropouts)


def record(
    session: Session, masks: ServerMasks, survivors: Collection[str], revealed: Collection[str]
) -> SumRecord:
    """Return who survived, and in which stage each of the others dropped out."""
    left, clients, joined = set(survivors), masks.graph.clients, session.numbers
    shared, last = masks.ready, set(revealed)
    stages = (("setup", joined), ("share", shared), ("upload", left), ("reveal", last))
    dropouts = {}
    for client in clients:
        stage = next((name for name, present in stages if client not in present), None)
        if stage is not None:
            dropouts[client] = stage
    return SumRecord(tuple(c for c in clients if c in left), dropouts, masks.apart)
