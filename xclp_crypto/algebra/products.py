"""Matrix products of integers by floating-point BLAS."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]


def exact_product(a: Floats, b: Floats) -> Floats:
    """Multiply matrices of integers whose sums of products all are exact in this dtype.

    Callers bound the entries: below 2^24 for all partial sums in float32, below 2^53 in float64. So
    no operation can be invalid. Yet the processor's flag for it is sometimes set, by kernels that
    also compute, and throw away, lanes of memory beyond the edge of a small matrix; NumPy would
    report that as a warning about the result.

    Args:
        a: (m, k), finite.
        b: (k, n), finite.

    Returns:
        (m, n).
    """
    with np.errstate(invalid="ignore"):
        product: Floats = a @ b
    return product
