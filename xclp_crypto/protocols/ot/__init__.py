"""Oblivious transfer."""

from xclp_crypto.protocols.ot.ideal import ideal_ot
from xclp_crypto.protocols.ot.interface import Choices, ObliviousTransfer
from xclp_crypto.protocols.ot.naor_pinkas import naor_pinkas

__all__ = ["Choices", "ObliviousTransfer", "ideal_ot", "naor_pinkas"]
