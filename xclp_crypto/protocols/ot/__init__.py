"""Oblivious transfer."""

from xclp_crypto.protocols.ot.base import BaseTransfers, base_transfers
from xclp_crypto.protocols.ot.extension import Extension, FixedOffset, extended_ot
from xclp_crypto.protocols.ot.ideal import ideal_ot
from xclp_crypto.protocols.ot.interface import Choices, ObliviousTransfer
from xclp_crypto.protocols.ot.naor_pinkas import naor_pinkas
from xclp_crypto.protocols.ot.triples import Triples, bit_triples, ring_triples

__all__ = ["BaseTransfers", "Choices", "Extension", "FixedOffset", "ObliviousTransfer", "Triples"]
__all__ += ["base_transfers", "bit_triples", "extended_ot", "ideal_ot", "naor_pinkas"]
__all__ += ["ring_triples"]


def __dir__() -> list[str]:
    return sorted(__all__)
