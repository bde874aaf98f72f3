"""Cross-client label propagation: label data jointly without showing it."""

from xclp_lp.estimator import CrossClientLabelPropagation

__all__ = ["CrossClientLabelPropagation"]
