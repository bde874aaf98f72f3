"""Cryptographic protocols for computing on data that stays where it is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xclp_crypto.front import secure_hamming, secure_row_sums, secure_sum
    from xclp_crypto.mean import secure_mean
    from xclp_crypto.primitives.identity import Identity, IdentityKey
    from xclp_crypto.progress import ProgressLine
    from xclp_crypto.protocols.setup import Identities
    from xclp_crypto.served_sums import join_mean, join_sum, serve_mean, serve_sum
    from xclp_crypto.similarity import (
        secure_inner_products,
        secure_masked_distances,
        secure_similarities,
    )
    from xclp_crypto.two_party import cross_distances, cross_matches, cross_nearest
    from xclp_crypto.two_party_similarity import (
        cross_inner_products,
        cross_masked_distances,
        cross_masked_matches,
        cross_similarities,
    )

__version__ = "0.1.0"

__all__ = ["Identities", "Identity", "IdentityKey", "ProgressLine", "__version__"]
__all__ += ["cross_distances", "cross_matches", "cross_nearest"]
__all__ += ["cross_inner_products", "cross_masked_distances", "cross_masked_matches"]
__all__ += ["cross_similarities"]
__all__ += ["join_mean", "join_sum", "serve_mean", "serve_sum"]
__all__ += ["secure_inner_products", "secure_masked_distances", "secure_similarities"]
__all__ += ["secure_hamming", "secure_mean", "secure_row_sums", "secure_sum"]

_HOMES = {
    "Identities": "protocols.setup",
    "Identity": "primitives.identity",
    "IdentityKey": "primitives.identity",
    "ProgressLine": "progress",
    "cross_distances": "two_party",
    "cross_inner_products": "two_party_similarity",
    "cross_masked_distances": "two_party_similarity",
    "cross_masked_matches": "two_party_similarity",
    "cross_matches": "two_party",
    "cross_nearest": "two_party",
    "cross_similarities": "two_party_similarity",
    "join_mean": "served_sums",
    "join_sum": "served_sums",
    "serve_mean": "served_sums",
    "serve_sum": "served_sums",
    "secure_hamming": "front",
    "secure_inner_products": "similarity",
    "secure_masked_distances": "similarity",
    "secure_mean": "mean",
    "secure_row_sums": "front",
    "secure_similarities": "similarity",
    "secure_sum": "front",
}


def __getattr__(name: str) -> Any:
    """Load a front door when it is asked for, so that who wants one part loads no other."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
