"""Cryptographic protocols for computing on data that stays where it is."""

from xclp_crypto.front import secure_hamming, secure_row_sums, secure_sum
from xclp_crypto.primitives.identity import Identity, IdentityKey
from xclp_crypto.protocols.setup import Identities
from xclp_crypto.two_party import cross_distances

__version__ = "0.1.0"

__all__ = [
    "Identities",
    "Identity",
    "IdentityKey",
    "__version__",
    "cross_distances",
    "secure_hamming",
    "secure_row_sums",
    "secure_sum",
]
