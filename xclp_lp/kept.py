"""What a client keeps of a session, so that later rows get labels: see `xclp_lp.later`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.secret import Secret
from xclp_lp.scaling import Moments


@dataclass(frozen=True, eq=False, repr=False)
class Kept(Secret):
    """What a client knows of one session beyond its labels; the server keeps nothing.

    Attributes:
        session: 32 bytes that name the session.
        seed: 32 bytes that fix the projection; the same for all clients, unknown to the server.
        moments: how its vectors were scaled, if they were.
        features: d.
        packed: (n_j, ⌈L/8⌉) uint8, the hashes of its rows in the graph, eight bits to a byte.
        sums: (n_j, C) float64, its rows of the sums, neither weighed by class nor cut at zero.
        totals: (C,) int64, labels by class of all clients that contributed, if they were summed.
        labels: (C,) int64, those of the client.
    """

    session: bytes
    seed: bytes
    moments: Moments | None
    features: int
    packed: NDArray[np.uint8]
    sums: NDArray[np.float64]
    totals: NDArray[np.int64] | None
    labels: NDArray[np.int64]
