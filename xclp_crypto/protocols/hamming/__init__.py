"""SecureHamming: back ends by name."""

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.hamming.between import Between, BetweenBackend
from xclp_crypto.protocols.hamming.costs import Estimate, estimate
from xclp_crypto.protocols.hamming.distance import distances_between
from xclp_crypto.protocols.hamming.interface import Distances, HammingBackend
from xclp_crypto.protocols.hamming.masked import Masked
from xclp_crypto.protocols.hamming.paillier import Paillier
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.protocols.hamming.plain import Plain
from xclp_crypto.protocols.hamming.rlwe import Rlwe
from xclp_crypto.protocols.hamming.rows import BitRows, bit_rows
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.protocols.hamming.shade_ext import ShadeExt
from xclp_crypto.wording import did_you_mean

BACKENDS: dict[str, HammingBackend] = {
    b.name: b
    for b in (Plain(), Shade(), ShadeExt(), Paillier(), PaillierPacked(), Rlwe(), Masked())
}
"""All back ends; adding one is one file, one entry here and one function in `costs`."""


def get_backend(name: str | HammingBackend) -> HammingBackend:
    """Return the back end of this name; a back end itself is returned unchanged.

    Raises:
        ParameterError: no such back end; lists those that exist.

    Examples:
        >>> from xclp_crypto.protocols.hamming import get_backend
        >>> get_backend("rlwe").trust
        '2pc'
    """
    if isinstance(name, HammingBackend):
        return name
    if name not in BACKENDS:
        raise ParameterError(
            f"hamming back end {name!r} is none of {', '.join(sorted(BACKENDS))}"
            f"{did_you_mean(name, BACKENDS)}"
        )
    return BACKENDS[name]


def between_backend(name: str | HammingBackend) -> BetweenBackend:
    """Return the back end of this name, which must know distances between rows and columns.

    Raises:
        ParameterError: it does not, or does not exist; lists those that do.

    Examples:
        >>> from xclp_crypto.protocols.hamming import between_backend
        >>> between_backend("rlwe").name
        'rlwe'
    """
    found = get_backend(name)
    if not isinstance(found, BetweenBackend):
        able = sorted(b.name for b in BACKENDS.values() if isinstance(b, BetweenBackend))
        raise ParameterError(
            f"back end {found.name!r} cannot compute distances of some rows to others only; "
            f"{', '.join(able)} can"
        )
    return found


__all__ = ["BACKENDS", "Distances", "Estimate", "HammingBackend"]
__all__ += ["Between", "BetweenBackend", "between_backend"]
__all__ += ["BitRows", "bit_rows", "distances_between", "estimate", "get_backend"]


def __dir__() -> list[str]:
    return sorted(__all__)
