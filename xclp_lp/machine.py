"""What this machine has."""

from __future__ import annotations

import os

import numpy as np

from xclp_crypto.errors import ParameterError


def available_memory() -> float:
    """Return the bytes of memory that this process may have; infinite where nothing says so."""
    if not hasattr(os, "sysconf"):  # Windows does not say it this way
        return np.inf
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)


def require_available(needed: float, what: str, instead: str) -> None:
    """Refuse what needs more memory than this machine has.

    Args:
        needed: bytes.
        what: needs them; plural.
        instead: what to do about it.

    Raises:
        ParameterError: there is less.
    """
    available = available_memory()
    if needed > available:
        raise ParameterError(
            f"{what} need {needed / 1e9:,.1f} GB and this machine has {available / 1e9:,.1f} GB; "
            f"{instead}"
        )
