"""Noise in the row sums, by which they hide single labels: what each party computes of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import FaultyPeer
from xclp_crypto.privacy import add_noise, label_sensitivity, require_room
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import Rng
from xclp_lp.parameters import Parameters, label_codec

ROUNDING = 1 + 2.0**-30
"""What two parties' float64 computations of one sensitivity differ by at most."""


def noise_of_client(
    params: Parameters,
    own: float,
    sensitivity: float,
    rows: int,
    clients: int,
    rng: Rng,
) -> Residues:
    """Return the noise that a client adds to its upload, (n, C) residues.

    Args:
        params: the agreement, with `noise`.
        own: sensitivity of this client's columns.
        sensitivity: of all clients' columns, as the server says.
        rows: n.
        clients: number of clients in the graph.
        rng: source of the noise.

    Raises:
        FaultyPeer: the server names a sensitivity below that of this client's own columns, or one
            that no columns have.
    """
    # No eigenvalue of S is above 1/(1 − α), and rounding moves no entry by more than 1/2; with
    # room for what the solver and float32 leave.
    grid = np.ldexp(1.0, params.fraction_bits)
    largest = 1.01 * np.sqrt(2) * (grid / (1 - params.alpha) + np.sqrt(rows) / 2)
    if sensitivity > largest:
        raise FaultyPeer(
            SERVER, f"names a sensitivity of {sensitivity:g}, and {largest:g} is the most possible"
        )
    # Another machine adds up in another order; `client_variance` has room for that.
    if params.noise is None or own > sensitivity * ROUNDING:
        raise FaultyPeer(SERVER, "names a sensitivity below that of the columns that it sent")
    nothing = np.zeros((rows, len(params.classes)), label_codec(params, clients).dtype)
    return add_noise(nothing, params.noise.client_variance(sensitivity, rows), rng)


class SensitivityOfAll:
    """How far the label of any row can move the sums, found block by block.

    Args:
        params: the agreement, with `noise`.
        rows: n.
        clients: number of clients in the graph.
    """

    def __init__(self, params: Parameters, rows: int, clients: int) -> None:
        self._params = params
        self._codec = label_codec(params, clients)
        self._largest = 0.0
        self._scores = np.zeros(rows)

    def add_columns(self, columns: NDArray[np.float32]) -> None:
        """Take transposed columns of S, (m, n)."""
        wide = columns.T.astype(np.float64)
        self._largest = max(self._largest, label_sensitivity(wide, self._codec))
        self._scores += wide.sum(axis=1)

    def checked(self) -> float:
        """Return the sensitivity, after checking that the noise fits.

        Raises:
            EncodingOverflow: sums with noise could wrap.
        """
        if self._params.noise is not None:
            n = len(self._scores)
            variance = self._params.noise.client_variance(self._largest, n)
            entries = n * len(self._params.classes)
            require_room(self._codec, float(self._scores.max()), variance, entries)
        return self._largest
