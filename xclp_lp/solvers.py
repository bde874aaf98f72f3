"""Solvers of (I − α𝒲)·X = E for many columns at once.

The matrix is symmetric and positive definite, with eigenvalues in [1 − α, 1 + α]. All three
solvers are one block factorisation with different numbers of eliminated points:

``cholesky``  none: the whole matrix is factorised as a dense one.
``sparse``    points with few neighbours, in independent sets, as long as this is cheaper than
              leaving them to the dense factorisation of what remains (the *core*).
``cg``        points with very few neighbours; the core is solved by conjugate gradients with its
              diagonal as preconditioner. The elimination is part of the preconditioning.

Eliminating a set F of points, none of which is a neighbour of another, leaves the Schur complement
A_CC − A_CF·A_FF⁻¹·A_FC of the others, where A_FF is diagonal. Neighbour graphs of clustered points
leave small cores, and points of different components never meet.

Sources: Saad, Iterative Methods for Sparse Linear Systems, 2nd edition, 2003, §6.7 (conjugate
gradients), §6.11.3 (bound of the iterations), §3.3.3 and §13.4 (independent sets); Higham,
Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, ch. 12 (refinement).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from xclp_crypto.errors import ParameterError, XclpError
from xclp_crypto.role import OnProgress
from xclp_lp.graph import WORKERS

Solver = Literal["auto", "cholesky", "sparse", "cg"]

TOLERANCE = 1e-12
"""Largest Euclidean norm of a column's residual, in units of the norm of its right-hand side.

For α close to 1 it is 32·2^-52/(1 − α), because no solver gets below the rounding of α𝒲X, and X may
be 1/(1 − α) times as large as the right-hand side.
"""

DENSE_BYTES = 1 << 32
"""Largest dense matrix that is factorised: 23,170 points in float64, 32,768 in float32."""

# Measured on two cores of a server of 2023; they only have to be right to a factor of two or so.
_DENSE_RATE = 5e10 * WORKERS  # floating-point operations per second of a dense float64 Cholesky
_FILL_SECONDS = 1e-8  # of a dense matrix, for each entry
_SPARSE_RATE = 2e9 * WORKERS  # the same of products of sparse matrices and columns
_MADE_SECONDS = 1e-8  # of eliminating, for each entry that a point adds to its neighbours' rows
_KEPT_SECONDS = 3e-8  # of one level, for each entry of the matrix

_TRIAL_SECONDS = 3e-5  # of an elimination that may turn out not to pay, for each point

_REFINEMENTS = 5
_SMALL = 200  # points that a dense factorisation takes less time for than any search
_CG_DEGREE = 16  # most neighbours of a point that is eliminated before conjugate gradients
_CG_MARGIN = 64  # how far below the tolerance: their errors, unlike rounding, have one direction
_FLOAT32_CONDITION = 4096  # condition number up to which float32 factors make refinement converge
_FLOAT32_CORE = 2000  # points from which the time of the factorisation is worth saving
_LANE_COLUMNS = 32  # columns that one thread takes at a time: a few MB
_COLUMN_BYTES = 1 << 26  # of a block of columns
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)


class Propagator:
    """Solves (I − α𝒲)·X = E for the columns of E, and checks every residual.

    Args:
        graph: 𝒲, shape (n, n), from `neighbour_graph`.
        alpha: α, in (0, 1).
        columns: how many columns will be solved for, in all calls together: decides the solver.
        solver: "auto" takes the one that is predicted to be fastest.
        progress: called as the work goes on, with what is being done.

    Attributes:
        solver: "cholesky", "sparse" or "cg": the one that is used.
        core: how many points are not eliminated.
        precision: "float32" or "float64": of the dense factors; "float64" for "cg".
        residual: largest entry of |E − (I − α𝒲)·X| so far, in units of the column's largest of E.

    Raises:
        ParameterError: α is out of range, the solver unknown, or its dense matrix too large.
        XclpError: the matrix is too close to singular for float64.
    """

    def __init__(
        self,
        graph: sparse.csr_array,
        alpha: float,
        columns: int,
        *,
        solver: Solver = "auto",
        progress: OnProgress | None = None,
    ) -> None:
        if not 0 < alpha < 1:
            raise ParameterError(f"alpha is {alpha}; it must be in (0, 1)")
        if solver not in get_args(Solver):
            raise ParameterError(f"solver is {solver!r}; it must be one of {get_args(Solver)}")
        self.residual = 0.0
        self._graph, self._alpha, self._columns = graph, alpha, columns
        self._report = progress or (lambda *_: None)
        self._limit = max(TOLERANCE, 32 * np.finfo(np.float64).eps / (1 - alpha))
        n = graph.shape[0]
        scaled = sparse.csr_array((alpha * graph.data, graph.indices, graph.indptr), shape=(n, n))
        matrix = sparse.csr_array(sparse.eye_array(n, format="csr") - scaled)
        del scaled  # as large as the graph
        self._choose(matrix, solver)

    def _choose(self, matrix: sparse.csr_array, solver: Solver) -> None:
        """Decide by predicted seconds, eliminate, and factorise the core."""
        n, columns = matrix.shape[0], self._columns
        dense = _dense_seconds(n, columns) if self._precision(n) else np.inf
        iterative = 0.6 * _iterations(self._alpha)  # of the bound, in practice
        iterative *= columns * (2 * matrix.nnz + 12 * n) / _SPARSE_RATE
        elimination: _Elimination | None = None
        if solver == "auto":
            solver = "cholesky" if 0 < n <= _SMALL or dense < iterative else "cg"
            if n > _SMALL and min(dense, iterative) > n * _TRIAL_SECONDS:
                elimination = _eliminate(matrix, self._pays, self._report)
                core = elimination.core.shape[0]
                seconds = _dense_seconds(core, columns)
                seconds += 4 * elimination.entries * columns / _SPARSE_RATE
                if self._precision(core) and seconds < min(dense, iterative):
                    solver = "sparse"
        if solver == "cholesky":
            elimination = _eliminate(matrix, None, self._report)
        elif solver == "cg":
            elimination = _eliminate(matrix, _has_few_neighbours, self._report)
        elif elimination is None:
            elimination = _eliminate(matrix, self._pays, self._report)
        self.solver: Solver = solver
        self._elimination = elimination
        self.core = elimination.core.shape[0]
        self.precision: Literal["float32", "float64"] = "float64"
        self._solve_core: _CoreSolver
        if solver == "cg":
            self._solve_core = self._conjugate_gradients
        else:
            precision = self._precision(self.core)
            if precision is None:
                raise ParameterError(
                    f"solver {solver!r} would need a dense matrix of {self.core:,} points; use "
                    "solver = 'cg'"
                )
            self._factorise_core(precision)

    def _precision(self, core: int) -> Literal["float32", "float64"] | None:
        """Choose the number format of dense factors; None if they would be too large."""
        accurate = 8 * core**2 <= DENSE_BYTES
        # Refinement solves three times instead of once: it has to be cheap beside the factors.
        fast = core >= _FLOAT32_CORE and core > 6 * self._columns
        well_conditioned = (1 + self._alpha) / (1 - self._alpha) <= _FLOAT32_CONDITION
        if well_conditioned and (fast or not accurate) and 4 * core**2 <= DENSE_BYTES:
            return "float32"
        return "float64" if accurate else None

    def _pays(
        self, left: int, degree: NDArray[np.intp], entries: int
    ) -> tuple[NDArray[np.float64], float]:
        """Predict the seconds that eliminating each of the points that are left saves."""
        saved = (left**2 + 4.0 * left * self._columns) / _DENSE_RATE
        spent = degree**2 * _MADE_SECONDS + degree * (4 * self._columns / _SPARSE_RATE)
        return saved - spent, entries * _KEPT_SECONDS

    def forecast(self, n: int, columns: int) -> float:
        """Predict the seconds for a graph like this one with n points, by the model that chooses.

        Args:
            n: points; core and entries are assumed to grow with them.
            columns: how many columns are solved for.
        """
        growth = n / max(self._graph.shape[0], 1)
        entries = growth * (self._graph.nnz + n)
        iterative = 0.6 * _iterations(self._alpha) * columns * (2 * entries + 12 * n) / _SPARSE_RATE
        best = iterative
        for core, kept in ((n, 0.0), (growth * self.core, growth * self._elimination.entries)):
            if 4 * core**2 <= DENSE_BYTES:
                direct = _dense_seconds(int(core), columns) + 4 * kept * columns / _SPARSE_RATE
                best = min(best, direct)
        return float(best + 2 * (entries + n) * columns / _SPARSE_RATE)

    def influence(
        self, columns: NDArray[np.integer]
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Solve for columns of S = (I − α𝒲)⁻¹, in blocks of at most 64 MiB.

        Args:
            columns: shape (m,), integers in 0..n-1.

        Yields:
            Which of `columns`, and those columns of S: shape (n, number of them), ≥ 0.

        Raises:
            XclpError: the residual is above the tolerance.
        """
        for block in _blocks(self._graph.shape[0], columns.size):
            yield block, self.columns(columns[block])
            self._report("influence", block.stop, columns.size)

    def columns(self, picked: NDArray[np.integer]) -> NDArray[np.float64]:
        """Solve for some columns of S, shape (n, m), ≥ 0; see `solve`."""
        rhs = np.zeros((self._graph.shape[0], picked.size))
        rhs[picked, np.arange(picked.size)] = 1.0
        return self.solve(rhs)

    def scores(self, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solve for Z = S·Y, shape (n, C), block by block; see `solve`."""
        Z = np.empty(Y.shape)
        for block in _blocks(*Y.shape):
            Z[:, block] = self.solve(Y[:, block])
            self._report("scores", block.stop, Y.shape[1])
        return Z

    def solve(self, rhs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solve for some columns.

        Args:
            rhs: E, shape (n, m), float64, finite and ≥ 0; m of a few hundred keeps memory small.

        Returns:
            Shape (n, m), float64, ≥ 0: rounding noise below 0 is clipped.

        Raises:
            XclpError: the residual is above the tolerance, and no other way is left.
        """
        # Columns are scaled so that no square and no float32 leaves its range.
        scale = rhs.max(axis=0, initial=0.0)
        scale[scale == 0] = 1.0
        E = rhs / scale
        limits = np.linalg.norm(E, axis=0) * self._limit
        with ThreadPoolExecutor(WORKERS) as pool:
            X = self._refined(E, limits, pool)
        X *= scale
        return np.maximum(X, 0.0, out=X)

    def _refined(
        self, E: NDArray[np.float64], limits: NDArray[np.float64], pool: ThreadPoolExecutor
    ) -> NDArray[np.float64]:
        """Solve, and solve for what is left until every residual is small enough."""
        X = self._apply(E, limits, pool)
        sizes = np.full(len(limits), np.inf)
        for remaining in range(_REFINEMENTS, -1, -1):
            R = self._residual(E, X, pool)
            before, sizes = sizes, np.linalg.norm(R, axis=0)
            missed = ~(sizes <= limits)  # NaN misses
            if not missed.any():
                self.residual = max(self.residual, float(np.abs(R).max(initial=0.0)))
                return X
            if not remaining or not (sizes[missed] <= before[missed] / 2).all():
                break
            X[:, missed] += self._apply(R[:, missed], limits[missed], pool)
        if self.precision == "float32" and 8 * self.core**2 <= DENSE_BYTES:
            self._factorise_core("float64")
            return self._refined(E, limits, pool)
        worst = int(np.argmax(np.where(missed, sizes, 0)))
        raise XclpError(
            f"label propagation did not converge: a column has residual {sizes[worst]:.1e} and "
            f"{limits[worst]:.1e} is needed; use a smaller alpha than {self._alpha}"
        )

    def _apply(
        self, rhs: NDArray[np.float64], limits: NDArray[np.float64], pool: ThreadPoolExecutor
    ) -> NDArray[np.float64]:
        """Solve once, without looking at the residual."""
        elimination, lanes = self._elimination, _lanes(rhs.shape[1])
        lowered = list(pool.map(lambda lane: elimination.forward(rhs[:, lane]), lanes))
        first = len(rhs) - self.core
        cores = np.concatenate([part[first:] for part in lowered], axis=1)
        cores = self._solve_core(cores, limits, pool)
        X = np.empty(rhs.shape)

        def raise_lane(part: NDArray[np.float64], lane: slice) -> None:
            part[first:] = cores[:, lane]
            elimination.backward(part)
            X[elimination.order, lane] = part

        list(pool.map(raise_lane, lowered, lanes))
        return X

    def _residual(
        self, rhs: NDArray[np.float64], X: NDArray[np.float64], pool: ThreadPoolExecutor
    ) -> NDArray[np.float64]:
        R = np.empty(rhs.shape)

        def lane_residual(lane: slice) -> None:
            own = np.ascontiguousarray(X[:, lane])
            R[:, lane] = rhs[:, lane] - own + self._alpha * (self._graph @ own)

        list(pool.map(lane_residual, _lanes(rhs.shape[1])))
        return R

    def _factorise_core(self, precision: Literal["float32", "float64"]) -> None:
        self.precision = precision
        self._report("dense factors", 0, self.core)
        # The core is symmetric: the transposed view is what LAPACK can overwrite without a copy.
        core = self._elimination.core
        values = core.data.astype(precision, copy=False)
        core = sparse.csr_array((values, core.indices, core.indptr), shape=core.shape).toarray().T
        try:
            factor = linalg.cho_factor(core, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError as error:
            if precision == "float32" and 8 * self.core**2 <= DENSE_BYTES:
                self._factorise_core("float64")
                return
            raise XclpError(
                f"with alpha = {self._alpha} the matrix is singular to working precision; use a "
                "smaller alpha"
            ) from error

        def solve_core(
            rhs: NDArray[np.float64], limits: NDArray[np.float64], pool: ThreadPoolExecutor
        ) -> NDArray[np.float64]:
            b = np.asfortranarray(rhs, dtype=precision)
            X = linalg.cho_solve(factor, b, overwrite_b=True, check_finite=False)
            return np.ascontiguousarray(X, dtype=np.float64)

        self._solve_core = solve_core

    def _conjugate_gradients(
        self, rhs: NDArray[np.float64], limits: NDArray[np.float64], pool: ThreadPoolExecutor
    ) -> NDArray[np.float64]:
        """Run all lanes in step, each column with its own step lengths."""
        core = self._elimination.core
        root = 1 / np.sqrt(core.diagonal())
        scaled = sparse.csr_array(core)
        scaled.data = core.data * np.repeat(root, np.diff(core.indptr)) * root[core.indices]
        # The diagonal is at most 1, so the scaled residual is at least as large as the real one.
        lanes = [
            _Gradients(scaled, rhs[:, lane] * root[:, None], limits[lane] / _CG_MARGIN)
            for lane in _lanes(rhs.shape[1])
        ]
        bound = _iterations(self._alpha)
        active = lanes
        for iteration in range(bound):
            active = [
                x
                for x, goes_on in zip(active, pool.map(_Gradients.step, active), strict=True)
                if goes_on
            ]
            if not active:
                break
            self._report("conjugate gradients", iteration, bound)
        X: NDArray[np.float64] = np.concatenate([lane.X for lane in lanes], axis=1)
        X *= root[:, None]
        return X


_CoreSolver = Callable[
    [NDArray[np.float64], NDArray[np.float64], ThreadPoolExecutor], NDArray[np.float64]
]


class _Gradients:
    """Conjugate gradients for some columns of a matrix with unit diagonal."""

    def __init__(
        self, matrix: sparse.csr_array, rhs: NDArray[np.float64], limits: NDArray[np.float64]
    ) -> None:
        self._matrix, self._limits = matrix, limits
        self.X = np.zeros(rhs.shape)
        self._R, self._P = rhs, rhs.copy()
        self._rho = np.einsum("ij,ij->j", rhs, rhs)

    def step(self) -> bool:
        """Take a step; return whether a column is still above its limit."""
        active = np.sqrt(self._rho) > self._limits
        if not active.any():
            return False
        P, rho = self._P, self._rho
        Q = self._matrix @ P
        curvature = np.einsum("ij,ij->j", P, Q)
        step = np.divide(rho, curvature, out=np.zeros_like(rho), where=active)
        self.X += step * P
        Q *= step
        self._R -= Q
        new = np.einsum("ij,ij->j", self._R, self._R)
        P *= np.divide(new, rho, out=np.zeros_like(rho), where=active)
        P += self._R
        self._rho = new
        return True


class _Elimination:
    """I − α𝒲 = Pᵀ·L·diag(D, core)·Lᵀ·P, where L is the identity in the columns of the core.

    Attributes:
        order: shape (n,): the points in the order of elimination, the core last.
        core: the Schur complement, symmetric.
        entries: stored entries of L below its diagonal.
    """

    def __init__(
        self,
        order: NDArray[np.intp],
        diagonal: NDArray[np.float64],
        upper: list[sparse.csr_array],
        core: sparse.csr_array,
    ) -> None:
        n = len(order)
        self.order, self.core, self._diagonal = order, core, diagonal[:, None]
        self.entries = sum(rows.nnz for rows in upper)
        ends = np.cumsum([rows.shape[0] for rows in upper], dtype=np.intp)
        self._levels = [
            slice(end - rows.shape[0], end) for end, rows in zip(ends, upper, strict=True)
        ]
        # Both directions add up rows, so each writes into one place only and in parallel.
        self._upper = [
            sparse.csr_array(
                (rows.data, rows.indices - level.stop, rows.indptr),
                shape=(rows.shape[0], n - level.stop),
            )
            for rows, level in zip(upper, self._levels, strict=True)
        ]
        self._lower: list[tuple[slice, sparse.csr_array]] = []
        if upper:
            lower = sparse.csr_array(sparse.vstack(upper, format="csr").T)
            for level in [*self._levels[1:], slice(self._levels[-1].stop, n)]:
                a, b = lower.indptr[level.start], lower.indptr[level.stop]
                parts = (
                    lower.data[a:b],
                    lower.indices[a:b],
                    lower.indptr[level.start : level.stop + 1] - a,
                )
                self._lower.append(
                    (level, sparse.csr_array(parts, shape=(level.stop - level.start, level.start)))
                )

    def forward(self, rhs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return L⁻¹·P·rhs."""
        Y = np.ascontiguousarray(rhs[self.order])
        for level, rows in self._lower:
            Y[level] -= rows @ Y[: level.start]
        return Y

    def backward(self, Y: NDArray[np.float64]) -> None:
        """Replace Y by L⁻ᵀ·D⁻¹·Y; its rows of the core already are those of the solution."""
        Y[: len(self._diagonal)] /= self._diagonal
        for level, rows in zip(reversed(self._levels), reversed(self._upper), strict=True):
            Y[level] -= rows @ Y[level.stop :]


_Worth = Callable[[int, NDArray[np.intp], int], tuple[NDArray[np.float64], float]]


def _has_few_neighbours(
    left: int, degree: NDArray[np.intp], entries: int
) -> tuple[NDArray[np.float64], float]:
    """Let points with few neighbours be eliminated as long as there are many."""
    return np.where(degree <= _CG_DEGREE, 1.0, -1.0), 0.03 * left


def _eliminate(matrix: sparse.csr_array, worth: _Worth | None, report: OnProgress) -> _Elimination:
    """Eliminate independent sets of points while it is worth it.

    Args:
        matrix: I − α𝒲.
        worth: takes the number of points that are left, their degrees and the number of entries;
            returns how much eliminating each of them is worth, and what one more level costs.
            None eliminates nothing.
        report: called after each level.
    """
    n = matrix.shape[0]
    left = np.arange(n, dtype=np.int32)
    order: list[NDArray[np.intp]] = []
    diagonal = [np.empty(0)]
    upper: list[sparse.csr_array] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        while worth is not None and len(left) > _SMALL:
            degree = np.diff(matrix.indptr) - 1
            value, price = worth(len(left), degree, matrix.nnz)
            if np.maximum(value, 0).sum() <= price:  # said without arrays as large as the matrix
                break
            chosen = _independent(matrix, degree, value > 0)
            if value[chosen].sum() <= price:
                break
            f, c = np.flatnonzero(chosen), np.flatnonzero(~chosen)
            rows = matrix[f]
            diagonal.append(rows.data[rows.indices == np.repeat(f, np.diff(rows.indptr))])
            place = np.cumsum(~chosen, dtype=np.int32) - np.int32(1)
            # No two points of F are neighbours, so leaving out F's columns leaves out the diagonal.
            A_FC = _without(rows, chosen, place)
            scaled = A_FC.copy()
            scaled.data /= np.repeat(diagonal[-1], np.diff(scaled.indptr))
            matrix = _complement(_without(matrix[c], chosen, place), A_FC, scaled, pool)
            order.append(left[f])
            left = left[c]
            scaled = sparse.csr_array(
                (scaled.data, left[scaled.indices], scaled.indptr), shape=(len(f), n)
            )
            upper.append(scaled)
            report("elimination", n - len(left), n)
    order.append(left)
    sequence = np.concatenate(order)
    final = np.empty(n, dtype=np.int32)
    final[sequence] = np.arange(n)
    for rows in upper:
        rows.indices = final[rows.indices]
        rows.sort_indices()
    return _Elimination(sequence, np.concatenate(diagonal), upper, matrix)


def _without(
    rows: sparse.csr_array, left_out: NDArray[np.bool_], place: NDArray[np.int32]
) -> sparse.csr_array:
    """Leave out columns and number the others anew; several times faster than by an index."""
    if not rows.shape[0]:
        return sparse.csr_array((0, int(place[-1]) + 1))
    keep = ~left_out[rows.indices]
    counts = np.add.reduceat(keep, rows.indptr[:-1], dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    parts = rows.data[keep], place[rows.indices[keep]], indptr
    return sparse.csr_array(parts, shape=(rows.shape[0], int(place[-1]) + 1))


def _complement(
    A_CC: sparse.csr_array,
    A_FC: sparse.csr_array,
    scaled: sparse.csr_array,
    pool: ThreadPoolExecutor,
) -> sparse.csr_array:
    """Return A_CC − A_FCᵀ·(A_FF⁻¹·A_FC), by blocks of rows."""
    A_CF = sparse.csr_array(A_FC.T)
    cuts = np.linspace(0, A_CC.shape[0], 4 * WORKERS + 1, dtype=np.intp)

    def rows(start: int, stop: int) -> sparse.csr_array:
        return A_CC[start:stop] - A_CF[start:stop] @ scaled

    blocks = list(pool.map(rows, cuts[:-1], cuts[1:]))
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))


def _independent(
    matrix: sparse.csr_array, degree: NDArray[np.intp], eligible: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Mark the eligible points that come before all their neighbours, by degree and then by a hash.

    Without the hash, long runs of equal degrees would give sets of one point each.
    """
    n = len(degree)
    tie = np.arange(n, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(1 << 32)
    rank = (degree.astype(np.uint64) << np.uint64(32)) | tie
    rank[~eligible] = _LAST
    others = rank[matrix.indices]
    others[matrix.indices == np.repeat(np.arange(n), degree + 1)] = _LAST
    first: NDArray[np.bool_] = rank < np.minimum.reduceat(others, matrix.indptr[:-1])
    return first


def _lanes(columns: int) -> list[slice]:
    """Cut columns into lanes for the threads."""
    width = max(1, min(_LANE_COLUMNS, -(-columns // WORKERS)))
    return [slice(start, min(start + width, columns)) for start in range(0, columns, width)]


def _blocks(n: int, columns: int) -> list[slice]:
    """Cut columns of n rows into blocks of about 64 MiB, and of at least one lane's width."""
    width = max(_LANE_COLUMNS, _COLUMN_BYTES // (8 * max(n, 1)))
    return [slice(start, min(start + width, columns)) for start in range(0, columns, width)]


def _dense_seconds(n: int, columns: int) -> float:
    """Predict a dense float64 matrix, its Cholesky factorisation and the solutions with it."""
    return (n**3 / 3 + 2.0 * n**2 * columns) / _DENSE_RATE + _FILL_SECONDS * n**2


def _iterations(alpha: float) -> int:
    """Bound the steps of conjugate gradients to float64's precision; eigenvalues in 1 ∓ α."""
    condition = (1 + alpha) / (1 - alpha)
    return int(0.5 * np.sqrt(condition) * np.log(2 / np.finfo(np.float64).eps)) + 10
