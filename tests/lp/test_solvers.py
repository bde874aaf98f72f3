"""Every solver against a dense inverse in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.errors import ParameterError, XclpError
from xclp_lp import solvers
from xclp_lp.graph import neighbour_graph_from_bits
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.predictions import RESOLUTION
from xclp_lp.propagation import influence, propagate
from xclp_lp.solvers import Propagator, Solver

SOLVERS: tuple[Solver, ...] = ("cholesky", "sparse", "cg")
KINDS = ("scattered", "clusters", "copies", "opposites", "line")


def points(kind: str, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Vectors whose graphs have one component or many, ties, negative similarities, long paths."""
    v = rng.standard_normal((n, 6))
    if kind == "clusters":  # disconnected
        v = 0.05 * v + 5 * np.eye(6)[rng.integers(0, 6, n)]
    elif kind == "copies":
        v = v[rng.integers(0, max(n // 4, 1), n)]
    elif kind == "opposites":  # half of all similarities are negative; some points are isolated
        v = v[:, :1] * np.eye(6)[0] + 0.01 * v
        v[0] = np.eye(6)[1] * -100
    elif kind == "line":
        angle = np.linspace(0, 1.5, n)
        v = np.stack([np.cos(angle), np.sin(angle)] + [0 * angle] * 4, axis=1)
    return v


def graph_of(kind: str, n: int, n_bits: int, k: int, seed: int, **options: Any) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    bits = hash_bits(points(kind, n, rng), projection(bytes(32), n_bits, 6))
    return neighbour_graph_from_bits(bits, k, **options)


def dense_inverse(graph: sparse.csr_array, alpha: float) -> NDArray[np.float64]:
    return np.linalg.inv(np.eye(graph.shape[0]) - alpha * graph.toarray())


@pytest.fixture
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eliminate in small graphs as well, and take float32 for small cores."""
    monkeypatch.setattr(solvers, "_SMALL", 2)
    monkeypatch.setattr(solvers, "_FLOAT32_CORE", 1)
    monkeypatch.setattr(solvers, "_KEPT_SECONDS", 0)
    monkeypatch.setattr(solvers, "_MADE_SECONDS", 0)


@pytest.mark.usefixtures("_eager")
@settings(deadline=None, max_examples=70)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(2, 60),
    n_bits=st.sampled_from([8, 64, 500]),
    k=st.integers(1, 60),
    alpha=st.sampled_from([0.01, 0.5, 0.99, 0.999, 0.99999]),
    include_self=st.booleans(),
    lowest=st.booleans(),
    columns=st.integers(1, 9),
    solver=st.sampled_from(SOLVERS),
    seed=st.integers(0, 10**6),
)
def test_solutions_are_those_of_the_dense_inverse(
    kind: str,
    n: int,
    n_bits: int,
    k: int,
    alpha: float,
    include_self: bool,
    lowest: bool,
    columns: int,
    solver: Solver,
    seed: int,
) -> None:
    graph = graph_of(
        *(kind, n, n_bits, min(k, n - 1), seed),
        include_self=include_self,
        ties="lowest-index" if lowest else "all",
    )
    S = dense_inverse(graph, alpha)
    picked = np.random.default_rng(seed).integers(0, n, columns)
    Y = np.eye(3)[np.arange(n) % 3] * (np.arange(n) % 2)[:, None]
    bound = 1e-10 if alpha < 0.999 else 1e-13 / (1 - alpha) ** 2
    found = influence(graph, picked, alpha, solver=solver)
    np.testing.assert_allclose(found, S[:, picked], rtol=0, atol=bound)
    np.testing.assert_allclose(propagate(graph, Y, alpha, solver=solver), S @ Y, rtol=0, atol=bound)
    assert (found >= 0).all()
    apart = sparse.csgraph.connected_components(graph)[1]
    assert (found[apart[:, None] != apart[None, picked]] == 0).all()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_large_graphs_and_many_columns(kind: str, solver: Solver) -> None:
    """As the sizes come, with several levels of elimination, lanes and refinements."""
    graph = graph_of(kind, 900, 256, 3, 1)
    S = dense_inverse(graph, 0.99)
    picked = np.arange(0, 900, 7)
    found = influence(graph, picked, 0.99, solver=solver)
    assert np.abs(found - S[:, picked]).max() < RESOLUTION / 100
    assert np.abs(found.sum(axis=1) - S[:, picked].sum(axis=1)).max() < RESOLUTION / 10


def test_the_predicted_fastest_solver_is_used_and_said() -> None:
    scattered = graph_of("scattered", 1200, 256, 3, 0)
    assert Propagator(scattered[:50, :50], 0.99, 10).solver == "cholesky"
    few = Propagator(scattered, 0.99, 2)
    assert (few.solver, few.precision) == ("cg", "float64")
    many = Propagator(scattered, 0.99, 1200)
    assert (many.solver, many.precision) == ("sparse", "float64")
    assert many.core < 600
    full = graph_of("scattered", 1200, 256, 1199, 0)
    dense = Propagator(full, 0.99, 100)
    assert (dense.solver, dense.core) == ("cholesky", 1200)
    assert dense.residual == 0
    dense.scores(np.eye(1200)[:, :3])
    assert 0 < dense.residual < 1e-12


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_choice_can_be_overridden(solver: Solver) -> None:
    assert Propagator(graph_of("clusters", 300, 64, 3, 0), 0.9, 5, solver=solver).solver == solver


@pytest.mark.usefixtures("_eager")
def test_float32_factors_are_refined_to_the_same_tolerance() -> None:
    graph = graph_of("scattered", 250, 256, 40, 0)
    S = dense_inverse(graph, 0.99)
    propagator = Propagator(graph, 0.99, 5, solver="cholesky")
    assert propagator.precision == "float32"
    # Far outside of float32's range as well.
    for scale in (1.0, 1e-200, 1e200):
        X = propagator.solve(scale * np.eye(250)[:, :5])
        np.testing.assert_allclose(X / scale, S[:, :5], rtol=0, atol=1e-11)
    assert propagator.precision == "float32"
    assert Propagator(graph, 0.9999, 5, solver="cholesky").precision == "float64"


@pytest.mark.usefixtures("_eager")
@pytest.mark.parametrize("failure", ["factorisation", "refinement"])
def test_float64_takes_over_where_float32_is_not_enough(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of("scattered", 100, 256, 10, 0)
    factorise, solve = solvers.linalg.cho_factor, solvers.linalg.cho_solve

    def failing(matrix: Any, **options: Any) -> Any:
        if matrix.dtype == np.float32 and failure == "factorisation":
            raise solvers.linalg.LinAlgError
        return factorise(matrix, **options)

    def stagnating(factor: Any, b: Any, **options: Any) -> Any:
        X = solve(factor, b, **options)
        return -X if b.dtype == np.float32 and failure == "refinement" else X

    monkeypatch.setattr(solvers.linalg, "cho_factor", failing)
    monkeypatch.setattr(solvers.linalg, "cho_solve", stagnating)
    propagator = Propagator(graph, 0.99, 5, solver="cholesky")
    X = propagator.solve(np.eye(100)[:, :5])
    assert propagator.precision == "float64"
    np.testing.assert_allclose(X, dense_inverse(graph, 0.99)[:, :5], rtol=0, atol=1e-11)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_wrong_solution_is_refined_or_refused(
    solver: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of("scattered", 80, 64, 3, 0)
    real = Propagator._apply

    def inaccurate(self: Any, rhs: Any, limits: Any, pool: Any) -> Any:
        return real(self, rhs, limits, pool) * factor

    monkeypatch.setattr(Propagator, "_apply", inaccurate)
    factor = 1 + 1e-6
    X = influence(graph, [1, 2], 0.9, solver=solver)
    np.testing.assert_allclose(X, dense_inverse(graph, 0.9)[:, [1, 2]], rtol=0, atol=1e-11)
    factor = 0.1
    with pytest.raises(XclpError, match=r"did not converge: a column has residual"):
        influence(graph, [1, 2], 0.9, solver=solver)
    factor = np.nan
    with pytest.raises(XclpError, match=r"did not converge: a column has residual"):
        influence(graph, [1, 2], 0.9, solver=solver)


@pytest.mark.parametrize("solver", SOLVERS)
def test_singular_matrices_are_refused(solver: Solver) -> None:
    """With an alpha as close to 1 as can be, rounding makes them so."""
    graph = graph_of("clusters", 300, 64, 3, 0)
    with pytest.raises(XclpError, match="use a smaller alpha"):
        influence(2 * graph, [1], 0.5, solver=solver)


def test_matrices_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of("scattered", 300, 256, 30, 0)
    monkeypatch.setattr(solvers, "DENSE_BYTES", 4 * 100**2)
    for solver in ("cholesky", "sparse"):
        with pytest.raises(ParameterError, match=r"dense matrix of \d+ points; use solver = 'cg'"):
            Propagator(graph, 0.99, 300, solver=solver)
    assert Propagator(graph, 0.99, 10**6).solver == "cg"
    monkeypatch.setattr(solvers, "DENSE_BYTES", 4 * 300**2)
    assert Propagator(graph, 0.99, 300, solver="cholesky").precision == "float32"
    with pytest.raises(ParameterError, match="dense matrix of 300 points"):
        Propagator(graph, 0.9999, 300, solver="cholesky")


def test_unknown_solver() -> None:
    with pytest.raises(ParameterError, match="solver is 'lu'"):
        Propagator(graph_of("line", 9, 64, 2, 0), 0.9, 1, solver="lu")  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_long_step_reports(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "_COLUMN_BYTES", 1)
    reports: list[tuple[str, int, int]] = []
    graph = graph_of("line", 500, 256, 2, 0)
    propagator = Propagator(graph, 0.99, 50, solver=solver, progress=lambda *r: reports.append(r))
    assert len(list(propagator.influence(np.arange(50)))) == 2
    names = {name for name, _, _ in reports}
    assert (
        names
        == {
            "cholesky": {"dense factors", "influence"},
            "sparse": {"elimination", "dense factors", "influence"},
            "cg": {"elimination", "conjugate gradients", "influence"},
        }[solver]
    )
    assert [r for r in reports if r[0] == "influence"] == [
        ("influence", 32, 50),
        ("influence", 50, 50),
    ]
    assert all(0 <= done <= total for _, done, total in reports)


def test_elimination_is_a_factorisation() -> None:
    """L·D·Lᵀ, multiplied out by hand, is the matrix; independent sets are independent."""
    graph = graph_of("line", 400, 256, 3, 0)
    matrix = sparse.csr_array(sparse.eye_array(400, format="csr") - 0.99 * graph)
    e = solvers._eliminate(matrix, solvers._has_few_neighbours, lambda *_: None)
    assert len(e._levels) > 2
    n, first = 400, 400 - e.core.shape[0]
    D = np.zeros((n, n))
    D[:first, :first] = np.diag(e._diagonal[:, 0])
    D[first:, first:] = e.core.toarray()
    U = np.eye(n)
    for level, rows in zip(e._levels, e._upper, strict=True):
        U[level, level.stop :] = rows.toarray()
    A = matrix.toarray()[np.ix_(e.order, e.order)]
    np.testing.assert_allclose(U.T @ D @ U, A, rtol=0, atol=1e-14)
    for level in e._levels:
        assert (A[level, level] == np.diag(np.diag(A[level, level]))).all()
