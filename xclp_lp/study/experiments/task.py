"""What feature extractors and methods are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrices = tuple[NDArray[np.float64], ...]


@dataclass(frozen=True, eq=False)
class Task:
    """Vectors and labels of several clients.

    Attributes:
        features: per client, shape (n_j, d).
        class_ids: per client, shape (n_j,), class indices; −1 for rows without a label.
        n_classes: C.
        names: one per client; ``client-0`` and so on by default.
        seed: of all that is random in an extractor.
        dataset: its name, which says whether features are pixels; see
            `xclp_lp.study.data.pictures`.
    """

    features: Sequence[NDArray[np.float64]]
    class_ids: Sequence[NDArray[np.int64]]
    n_classes: int
    names: tuple[str, ...] | None = None
    seed: int = 0
    dataset: str = ""
