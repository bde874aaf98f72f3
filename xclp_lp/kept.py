"""What is kept of a session, so that later rows get labels.

Of clients, for `xclp_lp.later` and `xclp_lp.update`; of the server, if it is asked to, for the
latter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.protocols.hamming.interface import Distances
from xclp_crypto.secret import Secret
from xclp_lp.labels import UNLABELLED
from xclp_lp.scaling import Moments


@dataclass(frozen=True, eq=False, repr=False)
class Hashed(Secret):
    """What a client has of its own rows when it has hashed them.

    Attributes:
        seed: 32 bytes that fix the projection; the same for all clients, unknown to the server.
        moments: how its vectors were scaled, if they were.
        features: d.
        packed: (n_j, ⌈L/8⌉) uint8, the hashes of its rows in the graph, eight bits to a byte.
        class_ids: (n_j,) int64 classes of these, −1 without a label, as they enter the sums.
        in_graph: (m_j,) which of all its rows these are.
    """

    seed: bytes
    moments: Moments | None
    features: int
    packed: NDArray[np.uint8]
    class_ids: NDArray[np.int64]
    in_graph: NDArray[np.bool_]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Return which rows of the graph have a label, (n_j,)."""
        return np.asarray(self.class_ids != UNLABELLED)


@dataclass(frozen=True, eq=False, repr=False)
class Kept(Secret):
    """What a client knows of one session beyond its labels.

    Attributes:
        session: 32 bytes that name the session.
        own: its rows.
        sums: (n_j, C) float64, its rows of the sums, neither weighed by class nor cut at zero.
        totals: (C,) int64, labels by class of all clients that contributed, if they were summed.
    """

    session: bytes
    own: Hashed
    sums: NDArray[np.float64]
    totals: NDArray[np.int64] | None

    @property
    def labels(self) -> NDArray[np.int64]:
        """Return the client's own labels by class, (C,)."""
        return np.bincount(self.own.class_ids[self.own.labelled], minlength=self.sums.shape[1])


@dataclass(frozen=True, eq=False, repr=False)
class KeptDistances(Secret):
    """What the server keeps of a session whose rows will be joined by others.

    Attributes:
        session: 32 bytes that name the session.
        projection: digest of the projection, as the clients sent it.
        distances: of all rows in the graph; they say as much as H always does.
    """

    session: bytes
    projection: bytes
    distances: Distances
