"""Cross-client label propagation: label data jointly without showing it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xclp_lp.estimator import CrossClientLabelPropagation

__all__ = ["CrossClientLabelPropagation"]


def __getattr__(name: str) -> Any:
    """Load the estimator when it is asked for: scikit-learn takes a second, and roles need none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from xclp_lp.estimator import CrossClientLabelPropagation

    return CrossClientLabelPropagation


def __dir__() -> list[str]:
    return sorted(__all__)
