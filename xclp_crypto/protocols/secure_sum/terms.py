"""What all parties of one secure sum must have in common, compared before anything is uploaded."""

from __future__ import annotations

from typing import Final

from xclp_crypto.errors import ParameterError
from xclp_crypto.params import DIGEST_BYTES, Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.setup import SERVER

TERMS_BYTES: Final = 9 * DIGEST_BYTES
"""Bytes of the digests of all terms: eight that every sum has, and the shape or the rows."""


def graph_and_codec(graph: MaskGraph, codec: FixedPoint) -> dict[str, int]:
    """Return the terms that every sum has, but for its purpose and the names of the clients."""
    return {
        "threshold": graph.threshold,
        "degree": graph.degree,
        "share_threshold": graph.share_threshold,
        "colluding": graph.colluding,
        "fraction_bits": codec.fraction_bits,
        "modulus": codec.modulus,
    }


def sum_terms(
    me: str, graph: MaskGraph, codec: FixedPoint, purpose: str, **values: str | tuple[int, ...]
) -> Agreement:
    """Return the terms of a sum; a sum whose parties have other ones would be silently wrong.

    Args:
        me: the party that asks.
        graph: who shares masks with whom.
        codec: the fixed-point code.
        purpose: tells several sums of one session apart.
        values: the ``shape`` of the values, or a digest of the ``rows``.

    Raises:
        ParameterError: the codec is for fewer parties than the graph has clients, so that their sum
            might wrap; or this client is not in the graph.
    """
    if codec.parties < len(graph.clients):
        raise ParameterError(
            f"the codec is for sums of {codec.parties} values and the mask graph has "
            f"{len(graph.clients)} clients: their sum might not fit; use "
            f"FixedPoint(…, parties={len(graph.clients)})"
        )
    if me not in (SERVER, *graph.clients):
        raise ParameterError(
            f"{me!r} is none of the clients of the mask graph: {', '.join(graph.clients)}"
        )
    return Agreement(
        clients=graph.clients,
        purpose=purpose,
        **graph_and_codec(graph, codec),
        **values,
    )
