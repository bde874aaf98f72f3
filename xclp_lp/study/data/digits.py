"""Handwritten digits, dealt out to clients at random: every client sees the same distribution."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from xclp_lp.study.data.federation import Federation, Seed

_MID_GREY = 8.0


def load_digits(n_clients: Annotated[int, Meta(ge=1, le=1797)] = 10, seed: Seed = 0) -> Federation:
    """Load scikit-learn's 1797 digits of 8×8 pixels, split evenly at random.

    Pixels, 0..16, are centred on mid-grey, which gives opposite pixels opposite signs.

    Args:
        n_clients: as many as rows, at most.
        seed: of the split.

    Returns:
        d = 64 features; labels are int64 in 0..9.

    Errors are those of `xclp_lp.study.data.load`.
    """
    # Imported here because scikit-learn takes a second to load and only this data set needs it.
    from sklearn.datasets import load_digits as load

    pixels, digits = load(return_X_y=True)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(pixels))
    shares = np.array_split(order, n_clients)
    return Federation(
        names=tuple(f"client-{j:02d}" for j in range(1, n_clients + 1)),
        features=tuple(pixels[share] - _MID_GREY for share in shares),
        labels=tuple(digits[share].astype(np.int64) for share in shares),
        classes=tuple(range(10)),
        source="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine "
        "Learning Repository, 1998 (test part), as shipped with scikit-learn",
        licence="CC BY 4.0",
    )
