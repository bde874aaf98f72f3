"""Who takes part in a sum and who survives, signed: no client reveals on the server's word alone.

See `double_masks` for the messages in their order. Clients sign by their keys of the session, so
this is as good without pinned identities as the server that hands out those keys.

*What is signed.* A client signs the participants P, as the server told it, before it uploads; and P
with the survivors S when it hears of them, once for each sum. It reveals its shares only when it
has seen that T clients, `MaskGraph.signatures`, have signed the same P and S, and that each of its
neighbours in S has masked for the same P. The server verifies every signature first, so a client
that is shown a wrong one names the server.

*Why that is enough.* Let c of the p clients collude with the server, 2·T > p + c, and fewer than t
of the holders of any client's shares.

1. An honest client signs one (P, S), the colluding ones as many as they like. If two had T
   signatures each, 2·T ≤ (p − c) + 2·c. So all honest clients that reveal do so for one (P, S).
2. Of each client they then reveal one secret only, and the colluding ones hold too few shares of
   the other: the server never gets both b_u and k_u of one client, however small t is.
3. If they reveal b_u, then u is in S and has signed P, so it added masks with all its neighbours in
   P; those with neighbours in S stay, because no k of these is revealed. Were P signed by
   those T alone, a server could tell u of other participants, so that it masks with few neighbours,
   say to all others that these dropped out, and read its upload: in a sparse graph u is not missed.

A complete graph has T = t = `threshold`, by default a majority: then c may be 0, for even p 1. With
`threshold` ≤ p/2 there is no such c. In a sparse graph T does not depend on t; see `mask_graph`.

*Dropouts.* Whoever drops out before it uploads, or before it signs S, is not missed as long as T
survivors sign and t holders of each client's shares reveal. With fewer signatures the sum stops,
and nothing is revealed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import FaultyPeer
from xclp_crypto.fields import Bits, Many, Raw
from xclp_crypto.primitives.identity import SIGNATURE_BYTES
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.wire import Message, sent

_MASKED: Final = "signed participants of a sum"
_SURVIVED: Final = "signed survivors of a sum"


class SumMasked(Message):
    """The sender's signature of who takes part, with whom it masks its upload. Size: 64 bytes."""

    TAG = 0x042A
    signature: bytes = sent(Raw(SIGNATURE_BYTES))


class SumSurvivors(Message):
    """Whose values the sum has. Size: ⌈p/8⌉ bytes."""

    TAG = 0x0424
    clients: NDArray[np.bool_] = sent(Bits("clients"))


class SumSigned(Message):
    """The sender's signature of who takes part and who survives. Size: 64 bytes."""

    TAG = 0x0425
    signature: bytes = sent(Raw(SIGNATURE_BYTES))


class SumSignatures(Message):
    """T clients' signatures of survivors, and those of participants by the receiver's neighbours.

    Size: ⌈p/8⌉ + 64·signatures + 64·partners bytes.
    """

    TAG = 0x042B
    signers: NDArray[np.bool_] = sent(Bits("clients"))
    survived: tuple[bytes, ...] = sent(Many(Raw(SIGNATURE_BYTES), "signatures"))
    masked: tuple[bytes, ...] = sent(Many(Raw(SIGNATURE_BYTES), "partners"))


def members(graph: MaskGraph, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return the clients of a set on the wire."""
    return tuple(c for c, here in zip(graph.clients, chosen, strict=True) if here)


def client_set(graph: MaskGraph, chosen: Collection[str]) -> NDArray[np.bool_]:
    """Return a set of clients as it goes on the wire."""
    here = set(chosen)
    return np.array([c in here for c in graph.clients])


@dataclass(frozen=True)
class Participants:
    """Who takes part in a sum, as one party knows it, and what is signed of that.

    Attributes:
        graph: who shares masks with whom, and how many signatures it takes.
        tag: domain tag of the sum.
        clients: who takes part.
    """

    graph: MaskGraph
    tag: bytes
    clients: tuple[str, ...]

    def _statement(self, survivors: Collection[str] | None = None) -> tuple[str, bytes]:
        """Return purpose and digest of what is signed; names and order are in the sum's tag."""
        sets = (self.clients,) if survivors is None else (self.clients, survivors)
        packed = (np.packbits(client_set(self.graph, chosen)).tobytes() for chosen in sets)
        digest = hashlib.sha256(domain_tag("sets of a sum", self.tag, *packed)).digest()
        return _MASKED if survivors is None else _SURVIVED, digest

    async def _require(
        self,
        session: Session,
        signatures: Mapping[str, bytes],
        survivors: Collection[str] | None = None,
        shown_by: str | None = None,
    ) -> None:
        """Verify signatures by client; who shows a wrong one is at fault, by default its maker."""
        purpose, digest = self._statement(survivors)
        wrong = await session.io.compute(_wrong, session, signatures, purpose, digest)
        if wrong is not None:
            whose = "" if shown_by is None else f" of {wrong}"
            raise FaultyPeer(shown_by or wrong, f"shows a wrong signature{whose}: {purpose}")

    async def sign(self, session: Session) -> None:
        """As a client: tell the server for whom the upload, which follows, is masked."""
        await session.io.send(SERVER, SumMasked(session.sign(*self._statement())))

    async def gather_signed(self, session: Session) -> dict[str, bytes]:
        """As the server: return the signatures of those that mask for these participants.

        Raises:
            FaultyPeer: a client signed anything else.
            TooFewParties: fewer than the threshold signed.
        """
        got = await session.io.gather(SumMasked, self.clients, self.graph.threshold)
        signatures = {client: message.signature for client, message in got.items()}
        await self._require(session, signatures)
        return signatures

    async def agree_on(
        self, session: Session, survivors: Collection[str], partners: Sequence[str]
    ) -> None:
        """As a client: sign the survivors, once, and wait until it is seen that enough others have.

        Args:
            session: of this client.
            survivors: of the participants, as the server named them.
            partners: this client's neighbours among them.

        Raises:
            FaultyPeer: the server shows too few signatures, or a wrong one.
            ReuseError: this client has signed survivors of this sum before.
        """
        graph, io = self.graph, session.io
        session.once(_SURVIVED, self.tag)
        await io.send(SERVER, SumSigned(session.sign(*self._statement(survivors))))
        dims = {"clients": len(graph.clients), "signatures": graph.signatures}
        shown = await io.recv(SumSignatures, SERVER, partners=len(partners), **dims)
        signers = members(graph, shown.signers)
        if len(signers) != graph.signatures or not set(signers) <= set(survivors):
            raise FaultyPeer(
                SERVER, f"shows {graph.signatures} signatures by {len(signers)} signers"
            )
        await self._require(
            session, dict(zip(signers, shown.survived, strict=True)), survivors, SERVER
        )
        await self._require(
            session, dict(zip(partners, shown.masked, strict=True)), shown_by=SERVER
        )

    async def gather_agreed(self, session: Session, survivors: Collection[str]) -> dict[str, bytes]:
        """As the server: return the signatures of those that agree on these survivors.

        Raises:
            FaultyPeer: a client signed anything else.
            TooFewParties: too few signed.
        """
        got = await session.io.gather(SumSigned, survivors, self.graph.signatures)
        signatures = {client: message.signature for client, message in got.items()}
        await self._require(session, signatures, survivors)
        return signatures

    async def hand_out(
        self,
        session: Session,
        agreed: Mapping[str, bytes],
        masked: Mapping[str, bytes],
        partners: Mapping[str, Sequence[str]],
    ) -> None:
        """As the server: show all survivors what others have signed.

        Args:
            session: of the server.
            agreed: from `gather_agreed`; as many as it takes are shown.
            masked: from `gather_signed`.
            partners: by survivor, its neighbours among the survivors.
        """
        signers = [c for c in self.graph.clients if c in agreed][: self.graph.signatures]
        chosen, survived = client_set(self.graph, signers), tuple(agreed[c] for c in signers)
        for client, near in partners.items():
            shown = tuple(masked[c] for c in near)
            await session.io.send(client, SumSignatures(chosen, survived, shown))


def _wrong(
    session: Session, signatures: Mapping[str, bytes], purpose: str, digest: bytes
) -> str | None:
    """Return a client whose signature does not verify, None where all do."""
    wrong = (c for c, s in signatures.items() if not session.signed_by(c, s, purpose, digest))
    return next(wrong, None)


async def receive_survivors(
    session: Session, graph: MaskGraph, clients: Collection[str]
) -> tuple[str, ...]:
    """Return who uploaded, as the server says, of `clients` that may have, as this one knows.

    Raises:
        FaultyPeer: the server names too few, or one that did not take part.
    """
    message = await session.io.recv(SumSurvivors, SERVER, clients=len(graph.clients))
    survivors = members(graph, message.clients)
    if len(survivors) < graph.threshold:
        raise FaultyPeer(
            SERVER, f"sums over {len(survivors)} clients, below the threshold of {graph.threshold}"
        )
    if not set(survivors) <= set(clients):
        raise FaultyPeer(SERVER, "names survivors that did not take part")
    return survivors
