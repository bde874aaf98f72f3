"""What the server checks of the distances that it got: whether bit vectors could have them.

Distances of bit vectors x_i, with weights |x_i| and signs u_i = 1 − 2·x_i, have two properties:

- *Parities*: H_ij = |x_i| + |x_j| − 2⟨x_i, x_j⟩, so H_ij mod 2 = p_i + p_j for some bits p.
- *Gram*: L − 2·H_ij = ⟨u_i, u_j⟩, so L·11ᵀ − 2H is positive semidefinite.

A client that evaluates with other weights w_l than the signs 1 − 2·x_l of a row gets ⟨w, u_j⟩ where
⟨u_i, u_j⟩ should be, from which it reads bits of others in its columns of S. With both checks it is
noticed unless its w are odd and some w' with the same products has ‖w'‖² ≤ L. With n other rows in
general position the shortest such w' has about ‖w‖²·n/L: one large weight passes up to
√(L·(L − n)/n), and none from n = L on. The triangle inequality does not follow from them, and
is not checked. That a check failed is itself one bit about others' rows, at the price of the
session.

*Rounding.* G = L·11ᵀ − 2H + ½·1 is factorised by Cholesky in float64, m rows at a time. Its entries
are exact. With u = 2^-53 and γ = (m+1)·u/(1 − (m+1)·u), factorisation succeeds if the smallest
eigenvalue of G/(L + ½) is above m·γ/(1 − γ) (Higham, Accuracy and Stability of Numerical
Algorithms, theorem 10.7), which is below 2^-28 for m ≤ 4096 and always so for distances of bit
vectors, where it is at least ½/(L + ½) ≥ 2^-17. So no honest client is ever refused. Where it
succeeds, no eigenvalue of L·11ᵀ − 2H is below −½ − m·γ·(L + ½)/(1 − γ) > −0.51 (theorem 10.3).

*Cost.* n² operations for parities; n·m²/3 for Gram: a second for 4,096 rows, five for 23,000. More
than `GRAM_ROWS` rows are dealt out at random, by a hash of all distances, which no client knows,
and each share is checked by itself: then n above is `GRAM_ROWS`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import expand
from xclp_crypto.errors import FaultyPeer

GRAM_ROWS: Final = 4096
"""Most rows whose Gram matrix is factorised at once: 134 MB."""

_ROWS = 1024  # whose parities are compared at a time

Indices = NDArray[np.int64]
Places = Mapping[str, slice]
"""Where each client's rows, or columns, are in the matrix."""


def require_bit_vectors(matrix: NDArray[np.uint16], places: Places, n_bits: int) -> None:
    """Refuse distances between all rows that no bit vectors have.

    Args:
        matrix: (n, n), symmetric, 0 on the diagonal, at most L.
        places: where the rows of each client are.
        n_bits: L.

    Raises:
        FaultyPeer: names rows, and clients of which at least one did not follow the protocol: one
            if all that is wrong is between it and others, else two, else all. Two clients that
            deviate together can so make a third look guilty.
    """
    require_parities(matrix, places, places)
    for rows in _hands(matrix):
        if _is_gram(matrix, rows, n_bits):
            continue
        owned = {c: rows[(rows >= p.start) & (rows < p.stop)] for c, p in places.items()}
        present = [c for c, own in owned.items() if len(own)]

        def fits(some: Sequence[str], owned: Mapping[str, Indices] = owned) -> bool:
            return _is_gram(matrix, np.concatenate([owned[c] for c in some]), n_bits)

        raise FaultyPeer(
            culprits(present, fits) or tuple(present),
            f"no vectors of {n_bits} bits have these distances: their Gram matrix is not positive "
            f"semidefinite, most of all for {_name(places, _worst(matrix, rows, n_bits))}",
        )


def require_parities(matrix: NDArray[np.uint16], rows: Places, columns: Places) -> None:
    """Refuse distances between rows and columns whose parities no bit vectors have.

    Args:
        matrix: (m, n) distances.
        rows: where the rows of each client are.
        columns: where the columns of the same clients are.

    Raises:
        FaultyPeer: see `require_bit_vectors`.
    """

    def odd(some: Sequence[str], rows: Places = rows) -> tuple[int, ...] | None:
        return _odd(matrix, *(_indices(places[c] for c in some) for places in (rows, columns)))

    clients = list(rows)
    found = odd(clients)
    if found is None:
        return
    guilty = culprits(clients, lambda some: odd(some) is None)
    if not guilty:  # any two clients fit together: then one row of each tells the rest
        first = {c: slice(p.start, min(p.start + 1, p.stop)) for c, p in rows.items()}
        guilty = tuple(c for c in clients if odd([d for d in clients if d != c], first) is None)
    one, other, here, there = odd(guilty) or found
    raise FaultyPeer(
        guilty or tuple(clients),
        f"no bit vectors have distances of such parities as those of {_name(rows, one)} and "
        f"{_name(rows, other)} to {_name(columns, here)} and {_name(columns, there)}",
    )


def culprits(clients: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """Return who is at fault, see `require_bit_vectors`; nobody if any two fit together.

    Args:
        clients: all.
        fits: whether what some of them sent fits together.
    """
    for client in clients:
        if not fits([client]):
            return (client,)
    pairs = [pair for pair in combinations(clients, 2) if not fits(pair)]
    common = set(clients).intersection(*pairs)
    return tuple(c for c in clients if c in common) or pairs[0] if pairs else ()


def _odd(
    matrix: NDArray[np.uint16], rows: Indices, columns: Indices
) -> tuple[int, int, int, int] | None:
    """Return two rows and two columns whose four distances have an odd sum, if there are any."""
    if not len(rows) or not len(columns):
        return None
    reference = matrix[rows[0], columns] & 1
    for start in range(0, len(rows), _ROWS):
        part = matrix[rows[start : start + _ROWS]][:, columns] & 1
        part ^= reference
        part ^= part[:, :1].copy()
        if part.any():
            row, column = np.argwhere(part)[0]
            return int(rows[0]), int(rows[start + row]), int(columns[0]), int(columns[column])
    return None


def _gram(matrix: NDArray[np.uint16], rows: Indices, n_bits: int) -> NDArray[np.float64]:
    """Return L − 2H of some rows."""
    gram = np.asfortranarray(matrix[np.ix_(rows, rows)], dtype=np.float64)
    gram *= -2.0
    gram += n_bits
    return gram


def _is_gram(matrix: NDArray[np.uint16], rows: Indices, n_bits: int) -> bool:
    """Whether L − 2H of some rows is positive semidefinite, but for rounding; see the module."""
    from scipy.linalg.lapack import dpotrf  # see rlwe.Ring.from_tag

    if not len(rows):
        return True
    gram = _gram(matrix, rows, n_bits)
    gram[np.diag_indices_from(gram)] += 0.5
    _, failed = dpotrf(gram, lower=1, clean=0, overwrite_a=1)
    return not failed


def _worst(matrix: NDArray[np.uint16], rows: Indices, n_bits: int) -> int:
    """Return the row with most weight in the eigenvector of the smallest eigenvalue."""
    from scipy.linalg import eigh  # see rlwe.Ring.from_tag

    _, vectors = eigh(_gram(matrix, rows, n_bits), subset_by_index=(0, 0))
    return int(rows[np.argmax(np.abs(vectors[:, 0]))])


def _hands(matrix: NDArray[np.uint16]) -> list[Indices]:
    """Deal the rows out at random into parts of at most `GRAM_ROWS`, all in one if they fit."""
    n = len(matrix)
    if n <= GRAM_ROWS:
        return [np.arange(n)]
    key = hashlib.sha256(np.ascontiguousarray(matrix).data).digest()
    order = np.argsort(expand(key, domain_tag("gram rows"), 1 << 64, n), kind="stable")
    return [np.sort(part) for part in np.array_split(order, -(-n // GRAM_ROWS))]


def _indices(places: Iterable[slice]) -> Indices:
    return np.concatenate([np.arange(p.start, p.stop) for p in places])


def _name(places: Places, index: int) -> str:
    """Return whose row it is, and which one."""
    client, place = next((c, p) for c, p in places.items() if p.start <= index < p.stop)
    return f"row {index - place.start} of {client!r}"
