"""How much memory a run needs, and whether this machine has it: asked before anything is computed.

What a run needs is the sum of the arrays that exist at once, in one process with all parties.
"""

from __future__ import annotations

from collections.abc import Mapping

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.params import require_announced
from xclp_crypto.protocols.hamming import Estimate, HammingBackend, estimate, get_backend
from xclp_crypto.protocols.hamming.between import Sizes
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_lp.graph import ENTRY_BYTES
from xclp_lp.influence import block_columns
from xclp_lp.leave_one_out import alphas
from xclp_lp.lsh import require_features
from xclp_lp.machine import available_memory, require_available
from xclp_lp.parameters import Parameters, Shape
from xclp_lp.solvers import DENSE_BYTES
from xclp_lp.wording import count

BASE_BYTES = 200_000_000
"""Memory of the interpreter and its libraries."""
PAIR_BYTES = 2_000
"""Memory of the keys and counters that a simulation holds for each ordered pair of clients."""
FEWER_ROWS = "fewer rows, or split the clients into groups"
"""What helps where rows do not fit."""
LOWEST_INDEX = "ties = 'lowest-index' for the rows that are equal, "
"""What helps where equal rows are neighbours of one another."""


def hamming_estimate(params: Parameters, shape: Shape) -> Estimate:
    """Return what the distances cost."""
    return estimate(get_backend(params.hamming), shape.rows, params.n_bits)


def memory(params: Parameters, shape: Shape, *, keep: bool = False) -> dict[str, int]:
    """Return the bytes that all parties in one process need in each step at its peak, roughly.

    Args:
        params: of the run.
        shape: its public sizes.
        keep: whether the server keeps the distances.
    """
    n, p, classes = shape.n, len(shape.rows), len(params.classes)
    kept = _kept_bytes(shape)
    after = kept + 2 * n**2 * keep
    hashes = n * params.n_bits
    word = 8 * n
    own = sum(word * min(classes, labelled) for labelled in shape.labelled.values())
    columns = min(block_columns(n), sum(shape.labelled.values()))
    solver = min(8 * n**2, DENSE_BYTES) + 64 * 3 * params.k * n + 6 * word * columns
    if params.ties == "all":
        solver += ENTRY_BYTES * shape.equal
    noise = p * word * classes if params.noise is not None else 0
    sums = own + noise + 6 * word * classes
    return {
        "setup": kept,
        "hashing": kept + hashes,
        "hamming": hamming_memory(params, shape, hamming_estimate(params, shape)),
        "propagation": kept + 2 * n**2 + max(own + solver, own + noise),
        "row sums": after + sums,
        "labels": after + 4 * word * classes,
        "validation": after + (solver if alphas(params) else 0),
    }


def hamming_memory(params: Parameters, shape: Shape, distances: Estimate) -> int:
    """Return the bytes that all parties in one process need while distances are computed."""
    hashes = shape.n * params.n_bits
    return _kept_bytes(shape) + hashes + max(2 * shape.n**2, distances.simulation_bytes)


def _kept_bytes(shape: Shape) -> int:
    return BASE_BYTES + PAIR_BYTES * len(shape.rows) ** 2 + 8 * shape.n * shape.features


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
    smaller = [b for b in ("rlwe", "masked") if need > available and needed(b) <= available]
    require_available(
        need,
        f"{count(n, 'row')} with {count(n_bits, 'bit')} by {get_backend(hamming).name}",
        f"use {''.join(f'hamming = {b!r}, ' for b in smaller)}{FEWER_ROWS}",
    )


def require_announced_room(session: Session, sizes: Sizes, params: Parameters) -> None:
    """Refuse rows that clients announce and this party has no memory for, before it allocates any.

    What is counted is the least that distances take, shares and what is put together from them, so
    that no party is refused that could go on.

    Args:
        session: of this party.
        sizes: numbers of rows and columns, as announced.
        params: the agreement.

    Raises:
        DataError: names the clients that announce most.
    """
    me, (rows, columns) = session.io.name, sizes
    plain, masked = (get_backend(params.hamming).name == name for name in ("plain", "masked"))
    need = (2 if plain else 4) * sum(rows.values()) * sum(columns.values())
    if me != SERVER:
        need = 0
        for own, theirs in ((rows[me], columns), (columns[me], rows)):
            others = [n for client, n in theirs.items() if client != me]
            products = (16 * own + 6 * params.n_bits) * max(others) * masked
            need = max(need, 0 if plain else 4 * own * sum(others) + products)
    available = available_memory()
    if need > available:
        most = sorted(rows, key=lambda c: -max(rows[c], columns[c]))[:3]
        announced = ", ".join(f"{c!r} {max(rows[c], columns[c]):,}" for c in most)
        raise DataError(
            f"the rows that clients announce, most of them {announced}, need {need / 1e9:,.1f} GB "
            f"at {me}, which has {available / 1e9:,.1f} GB; use {FEWER_ROWS}",
            public=True,
        )


def require_room(
    params: Parameters, shape: Shape, *, keep: bool = False, update: bool = False
) -> None:
    """Refuse sizes with which no run could end well on this machine.

    Args:
        params: of the run.
        shape: its public sizes.
        keep: whether the server keeps the distances.
        update: whether a session before had some of the rows, whose distances are known.

    Raises:
        ParameterError: too few clients or rows, too little memory, or so many rows that the session
            would refuse them.
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
    params.for_session(clients)
    params.require_rows(shape.n)
    require_features(shape.features, params.projection)
    require_memory(shape.rows, params.n_bits, params.hamming)
    needs = memory(params, shape, keep=keep)
    step = max(needs, key=lambda name: needs[name])
    require_available(
        needs[step],
        f"{count(shape.n, 'row')} of {count(clients, 'client')}, in the step {step!r},",
        f"use {LOWEST_INDEX * bool(shape.equal and params.ties == 'all')}{FEWER_ROWS}",
    )
    require_announced(shape.rows.values())
    if not update:
        get_backend(params.hamming).require(shape.rows, params.n_bits)
