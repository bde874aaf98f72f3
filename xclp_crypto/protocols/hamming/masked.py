"""``masked``: one message per client, information-theoretic but for the PRG, non-colluding.

::

    client j (all clients share a key that the server does not have)          server
    MaskedRows(Y_j = X_j + R_j mod t/2) ─────────────────────────────────────▶
    DistanceShares(C_jk for k > j, D_kj for k < j) ──────────────────────────▶ C + D − 2·Y_j·Y_kᵀ

With R_j and T_jk from the common key, t = 2^w and |x| the number of ones of a row,

    C_jk = 2·X_j·R_kᵀ + |x_j|·1ᵀ + T_jk,    D_jk = 2·R_j·Y_kᵀ + 1·|x_k|ᵀ − T_jk    (mod t)

so that C + D − 2·Y_j·Y_kᵀ = |x_j| + |x_k| − 2·X_j·X_kᵀ = h mod t: the products with R_j cancel
because 2·Y_j·Y_kᵀ = 2·X_j·X_kᵀ + 2·X_j·R_kᵀ + 2·R_j·Y_kᵀ. Products carry a factor 2, so Y and R
matter modulo t/2 only and a masked bit takes w − 1 bits on the wire.

*Server learns*: H only. Y_j is a one-time pad; C_jk is uniform because of T_jk, which occurs
nowhere else, and D_jk follows from it and H. Weights |x| are never sent.
*Clients learn*: nothing, they receive nothing. **A client that gives the common key to the server
reveals every client's bits**, and any client that can read another's upload learns its
bits, which is why uploads are sealed to the server. The key is bound to the session; using it twice
would be a two-time pad and raises `ReuseError`.

Exactness: R is taken in the centred range |R| ≤ t/4. X·Rᵀ has sums below L·t/4 ≤ 2^24 for L ≤ 4096
(t = 2^13) and is exact in float32; otherwise, and for R·Yᵀ and Y·Yᵀ (at most L·t²/8 ≤ 2^44 for
every L ≤ 2^15), float64 is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.labels import label
from xclp_crypto.algebra.prg import expand
from xclp_crypto.algebra.products import exact_product
from xclp_crypto.errors import ParameterError
from xclp_crypto.params import MIN_CLIENTS, residue_width
from xclp_crypto.protocols.hamming.interface import (
    Distances,
    DistanceShares,
    HammingBackend,
    cross_pairs,
    local_distances,
    receive_shares,
    send_shares,
    share_sizes,
)
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.protocols.setup.channel import sealed_size
from xclp_crypto.rng import Rng
from xclp_crypto.wire import Message, Reader, Writer, packed_size

Float = NDArray[np.float32] | NDArray[np.float64]


def masked_width(n_bits: int) -> int:
    """Return the bits of one masked bit on the wire: w − 1, at least 1."""
    return max(residue_width(n_bits) - 1, 1)


@dataclass(frozen=True, repr=False)
class MaskedRows(Message):
    """Y_j = X_j + R_j modulo t/2. Size: ⌈n_j·L·(w−1)/8⌉ bytes."""

    TAG = 0x0220
    rows: NDArray[np.uint16]
    n_bits: int

    @staticmethod
    def size(*, rows: int, n_bits: int) -> int:
        """Return ⌈n_j·L·(w−1)/8⌉."""
        return packed_size(rows * n_bits, masked_width(n_bits))

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.residues(self.rows, masked_width(self.n_bits))

    @classmethod
    def read(cls, data: Reader, *, rows: int, n_bits: int) -> MaskedRows:
        """See `Message.read`."""
        return cls(data.residues((rows, n_bits), masked_width(n_bits)), n_bits)


def _residues(values: NDArray[np.int64], width: int) -> NDArray[np.uint16]:
    """Reduce integers modulo 2^width."""
    return (values & ((1 << width) - 1)).astype(np.uint16)


def row_mask(key: bytes, lab: bytes, client: str, rows: int, n_bits: int) -> NDArray[np.uint16]:
    """Return R_j, (n_j, L) uniform modulo t/2."""
    purpose = label("row mask", lab, client)
    return expand(key, purpose, 1 << masked_width(n_bits), (rows, n_bits)).astype(
        np.uint16, copy=False
    )


def pair_mask(
    key: bytes, lab: bytes, low: str, high: str, shape: tuple[int, int], n_bits: int
) -> NDArray[np.uint16]:
    """Return T_jk, (n_j, n_k) uniform modulo t, for clients j before k."""
    purpose = label("pair mask", lab, low, high)
    return expand(key, purpose, 1 << residue_width(n_bits), shape).astype(np.uint16, copy=False)


def mask_rows(bits: NDArray[np.uint8], mask: NDArray[np.uint16], n_bits: int) -> NDArray[np.uint16]:
    """Return Y_j = X_j + R_j modulo t/2."""
    return (bits + mask) & np.uint16((1 << masked_width(n_bits)) - 1)


def _centred(mask: NDArray[np.uint16], n_bits: int, dtype: type[np.floating]) -> Float:
    """Return residues modulo t/2 as floats in [−t/4, t/4)."""
    half = np.uint16(1 << (masked_width(n_bits) - 1))
    centred: Float = ((mask ^ half).view(np.int16) - half.view(np.int16)).astype(dtype)
    return centred


def share_with(
    mine: NDArray[np.uint8] | NDArray[np.uint16],
    mask: NDArray[np.uint16],
    weights: NDArray[np.int64],
    pair: NDArray[np.uint16],
    n_bits: int,
) -> NDArray[np.uint16]:
    """Return one client's share with one peer, (n_own, n_peer) modulo t.

    Args:
        mine: own rows X (peer later in the order) or masked rows Y (peer earlier).
        mask: the peer's row mask R.
        weights: |x| of the own rows.
        pair: +T, or −T transposed, modulo t.
        n_bits: L.
    """
    small = mine.dtype == np.uint8 and n_bits << (masked_width(n_bits) - 1) <= 1 << 24
    dtype = np.float32 if small else np.float64
    product: Float = exact_product(mine.astype(dtype), _centred(mask, n_bits, dtype).T)
    share = 2 * product.astype(np.int64) + weights[:, None] + pair
    return _residues(share, residue_width(n_bits))


def client_upload(
    bits: NDArray[np.uint8], sizes: Mapping[str, int], me: str, key: bytes, lab: bytes
) -> tuple[NDArray[np.uint16], NDArray[np.uint16], dict[str, NDArray[np.uint16]]]:
    """Return what client `me` sends: masked rows, own distances, shares by peer."""
    n_bits = bits.shape[1]
    order = list(sizes)
    own = row_mask(key, lab, me, sizes[me], n_bits)
    masked = mask_rows(bits, own, n_bits)
    weights = bits.sum(axis=1, dtype=np.int64)
    shares = {}
    for peer in order:
        if peer == me:
            continue
        first = order.index(me) < order.index(peer)
        low, high = (me, peer) if first else (peer, me)
        pair = pair_mask(key, lab, low, high, (sizes[low], sizes[high]), n_bits)
        shares[peer] = share_with(
            bits if first else masked,
            row_mask(key, lab, peer, sizes[peer], n_bits),
            weights,
            pair if first else (0 - pair).T,
            n_bits,
        )
    return masked, local_distances(bits), shares


def centre_rows(uploads: Mapping[str, MaskedRows], n_bits: int) -> dict[str, Float]:
    """Return every client's masked rows as float64 in [−t/4, t/4)."""
    return {client: _centred(m.rows, n_bits, np.float64) for client, m in uploads.items()}


class Masked(HammingBackend):
    """Masked Gram matrices. See the module."""

    name = "masked"
    trust = "non-colluding"
    needs_common_secret = True
    rounds = 1

    async def client(
        self,
        session: Session,
        bits: NDArray[np.uint8],
        sizes: Mapping[str, int],
        common_secret: bytes | None,
        rng: Rng,
    ) -> None:
        """See `HammingBackend.client`."""
        if common_secret is None:
            raise ParameterError("the masked back end needs the secret that all clients share")
        io, n_bits = session.io, bits.shape[1]
        lab = session.once("masked hamming")
        masked, local, shares = await io.compute(
            client_upload, bits, sizes, io.name, common_secret, lab
        )
        await io.send(SERVER, MaskedRows(masked, n_bits))
        await send_shares(io, sizes, n_bits, local, shares)

    async def server(
        self, session: Session, n_bits: int, sizes: Mapping[str, int], at_least: int = MIN_CLIENTS
    ) -> Distances:
        """See `HammingBackend.server`."""
        masked = await session.io.gather(
            MaskedRows, session.clients, at_least, rows=sizes, n_bits=n_bits
        )
        width = residue_width(n_bits)
        rows = await session.io.compute(centre_rows, masked, n_bits)

        def combine(
            low: str, high: str, c: NDArray[np.uint16], d: NDArray[np.uint16]
        ) -> NDArray[np.uint16]:
            product = exact_product(rows[low], rows[high].T)
            return _residues(c.astype(np.int64) + d - 2 * product.astype(np.int64), width)

        return await receive_shares(
            session, n_bits, sizes, at_least, combine, uploaders=tuple(masked)
        )

    def bytes_per_link(self, sizes: Mapping[str, int], n_bits: int) -> dict[tuple[str, str], int]:
        """See `HammingBackend.bytes_per_link`."""
        dims = share_sizes(sizes, residue_width(n_bits))
        return {
            (c, SERVER): sealed_size(MaskedRows.size(rows=n, n_bits=n_bits))
            + sealed_size(DistanceShares.size(**dims[c]))
            for c, n in sizes.items()
        }

    def operations(self, sizes: Mapping[str, int], n_bits: int) -> dict[str, int]:
        """See `HammingBackend.operations`: two products at the clients, one at the server."""
        return {
            "multiply-adds": 3 * cross_pairs(sizes) * n_bits,
            "mask residues": len(sizes) * sum(sizes.values()) * n_bits,
        }

    def memory_bytes(self, sizes: Mapping[str, int], n_bits: int) -> int:
        """See `HammingBackend.memory_bytes`: masked rows in float64, shares and distances."""
        n = sum(sizes.values())
        return 10 * n * n_bits + 4 * n * n
