"""Data sets spread over clients, for demonstrations and tests."""

from __future__ import annotations

from collections.abc import Callable

from xclp_crypto.errors import ParameterError
from xclp_lp.data.digits import load_digits
from xclp_lp.data.federation import Federation, label_mask
from xclp_lp.data.watch import load_watch

LOADERS: dict[str, Callable[..., Federation]] = {"digits": load_digits, "watch": load_watch}
"""Every data set by name."""

__all__ = ["LOADERS", "Federation", "label_mask", "load", "load_digits", "load_watch"]


def load(name: str, **options: int | bool) -> Federation:
    """Load a data set by name.

    Args:
        name: a key of `LOADERS`.
        options: keyword arguments of that loader.

    Returns:
        The data set.

    Raises:
        ParameterError: the name is unknown, or a package that it needs is not installed.
    """
    if name not in LOADERS:
        raise ParameterError(f"there is no data set {name!r}; choose from {', '.join(LOADERS)}")
    return LOADERS[name](**options)
