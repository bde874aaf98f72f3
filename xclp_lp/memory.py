"""Whether the memory of this machine is enough, asked before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.hamming import HammingBackend, estimate, get_backend
from xclp_lp.forecast import Shape, memory
from xclp_lp.lsh import require_features
from xclp_lp.parameters import Parameters
from xclp_lp.wording import count


def available_memory() -> float:
    """Return the bytes of memory of this machine; infinite where it does not say."""
    if not hasattr(os, "sysconf"):  # Windows does not say it this way
        return np.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def require_memory(sizes: Mapping[str, int], n_bits: int, hamming: str | HammingBackend) -> None:
    """Refuse distances for which this machine's memory is too small.

    Args:
        sizes: number of rows by client.
        n_bits: L.
        hamming: back end of the distances.

    Raises:
        ParameterError: all hashes and distances, or what the back end needs, do not fit.
    """
    available = available_memory()
    n = sum(sizes.values())
    least = 2 * n * n + n * n_bits

    def needed(backend: str | HammingBackend) -> int:
        if least > available:  # at once: to count the messages of so many rows would take long
            return least
        return max(least, estimate(get_backend(backend), sizes, n_bits).simulation_bytes)

    need = needed(hamming)
    if need > available:
        smaller = [b for b in ("rlwe", "masked") if needed(b) <= available]
        raise ParameterError(
            f"{count(n, 'row')} with {count(n_bits, 'bit')} by {get_backend(hamming).name} need "
            f"{need / 1e9:,.1f} GB and this machine has {available / 1e9:,.1f} GB; use "
            + "".join(f"hamming = {b!r}, " for b in smaller)
            + "fewer rows, or split the clients into groups"
        )


def require_room(params: Parameters, shape: Shape) -> None:
    """Refuse sizes with which no run could end well on this machine.

    Raises:
        ParameterError: too few clients or rows, or too little memory.
    """
    clients = len(shape.rows)
    if params.noise is not None and params.noise.min_clients > clients:
        raise ParameterError(
            f"privacy with noise_contributors = {params.noise.noise_contributors} needs "
            f"{count(params.noise.min_clients, 'client')}, these and the owner of a row, got "
            f"{clients}; lower noise_contributors to {clients - 1} or less"
        )
    if (params.threshold or 0) > clients:
        raise ParameterError(
            f"threshold needs {count(params.threshold or 0, 'client')} or more, got {clients}"
        )
    params.require_resolution(clients)
    params.require_rows(shape.n)
    require_features(shape.features, params.projection)
    require_memory(shape.rows, params.n_bits, params.hamming)
    needs, available = memory(params, shape), available_memory()
    step = max(needs, key=lambda name: needs[name])
    if needs[step] > available:
        raise ParameterError(
            f"{count(shape.n, 'row')} of {count(len(shape.rows), 'client')} need "
            f"{needs[step] / 1e9:,.1f} GB in the step {step!r} and this machine has "
            f"{available / 1e9:,.1f} GB; use fewer rows, or split the clients into groups"
        )
