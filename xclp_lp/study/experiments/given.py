"""What feature extractors are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrices = tuple[NDArray[np.float64], ...]


@dataclass(frozen=True, eq=False)
class Given:
    """What an extractor may use.

    Attributes:
        features: per client, shape (n_j, d).
        class_ids: per client, shape (n_j,), class indices; −1 for rows without a label.
        n_classes: C.
        seed: of all that is random.
        dataset: its name, which says whether features are pixels; see
            `xclp_lp.study.data.pictures`.
    """

    features: Sequence[NDArray[np.float64]]
    class_ids: Sequence[NDArray[np.int64]]
    n_classes: int
    seed: int
    dataset: str = ""
