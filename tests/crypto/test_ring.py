"""Modular arithmetic on arrays, against Python integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclp_crypto.algebra.ring import add_into, residue_dtype, subtract_from, wire_bytes
from xclp_crypto.errors import ParameterError
from xclp_crypto.fields import Uints

moduli = st.one_of(
    st.integers(1, 300),
    st.integers(1, 2**64),
    st.builds(lambda b, d: min(max(2**b + d, 1), 2**64), st.integers(0, 64), st.integers(-60, 60)),
)
EXTREME = [2, 3, 255, 256, 257, 2**13, 2**16, 2**16 + 1, 2**31 + 1, 2**32 - 5, 2**32]
EXTREME += [2**32 + 1, 2**61 - 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 59, 2**64 - 1, 2**64]


def residues(values, m):
    return np.array(values, dtype=residue_dtype(m))


def edges(m):
    """Residues next to 0, m/2 and m."""
    near = {c + d for c in (0, m // 2, m) for d in range(-2, 3)}
    return sorted(x for x in near if 0 <= x < m)


@given(moduli, st.data())
def test_sums_and_differences_are_those_of_integers(m, data):
    pairs = st.tuples(st.integers(0, m - 1), st.integers(0, m - 1))
    a, b = zip(*data.draw(st.lists(pairs, min_size=1, max_size=20)), strict=True)
    other = residues(b, m)
    total = residues(a, m)
    add_into(total, other, m)
    assert total.tolist() == [(x + y) % m for x, y in zip(a, b, strict=True)]
    total = residues(a, m)
    subtract_from(total, other, m)
    assert total.tolist() == [(x - y) % m for x, y in zip(a, b, strict=True)]
    assert total.dtype == residue_dtype(m)
    assert other.tolist() == list(b)


@pytest.mark.parametrize("m", EXTREME)
def test_residues_at_the_edges_wrap_rightly_where_their_sum_exceeds_the_word_too(m):
    a, b = (x.ravel() for x in np.meshgrid(residues(edges(m), m), residues(edges(m), m)))
    total = a.copy()
    add_into(total, b, m)
    assert total.tolist() == [(int(x) + int(y)) % m for x, y in zip(a, b, strict=True)]
    subtract_from(total, b, m)
    np.testing.assert_array_equal(total, a)
    subtract_from(total, total, m)
    assert not total.any()


@pytest.mark.parametrize("m", [2**64, 2**13, 2**64 - 59])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3), (2, 0, 3)])
def test_every_shape_works_and_so_do_views(m, shape):
    total, other = (np.full(shape, m - 1, residue_dtype(m)) for _ in range(2))
    add_into(total, other, m)
    assert total.shape == shape
    assert (total == m - 2).all()
    subtract_from(total, other, m)
    subtract_from(total, other, m)
    assert (total == 0).all()
    wide = np.zeros((4, 6), residue_dtype(m))
    add_into(wide[::2, ::2].T, np.ones((3, 2), wide.dtype), m)
    assert wide.sum() == wide[::2, ::2].sum() == 6


@pytest.mark.parametrize("combine", [add_into, subtract_from])
def test_dtypes_shapes_and_moduli_that_do_not_fit_are_refused(combine):
    eight, sixteen = np.zeros(3, np.uint8), np.zeros(3, np.uint16)
    for total, other, m in [
        (sixteen, sixteen, 256),
        (eight, sixteen, 256),
        (eight, sixteen, 257),
        (sixteen, eight, 257),
        (np.zeros(3, np.int64), np.zeros(3, np.int64), 2**64),
        (np.zeros(3), np.zeros(3), 2**64),
        (np.zeros(3, ">u4"), np.zeros(3, ">u4"), 2**32),
    ]:
        with pytest.raises(ParameterError, match="dtype"):
            combine(total, other, m)
    with pytest.raises(ParameterError, match=r"\(3,\) and \(1,\)"):
        combine(eight, eight[:1], 256)
    for m in (0, -1, 2**64 + 1, 2.0, True, None):
        with pytest.raises(ParameterError, match="modulus"):
            combine(eight, eight, m)


@pytest.mark.parametrize("m", [256**k + d for k in (1, 2, 3, 4, 5, 8) for d in (-1, 0, 1)][:-1])
def test_wire_bytes_is_the_smallest_width_that_the_wire_has_for_the_largest_residue(m):
    n = wire_bytes(m)
    fits = [k for k in (1, 2, 3, 4, 5, 8) if m - 1 < 256**k]
    assert n == fits[0]
    values = residues([0, m // 2, m - 1], m)
    kind = Uints(3, n_bytes=n)
    data = b"".join(kind.encode(values, {}))
    assert len(data) == 3 * n == kind.size({})
    back = kind.read(memoryview(data), {})
    np.testing.assert_array_equal(back, values)
    assert back.dtype == residue_dtype(m)


@pytest.mark.parametrize("m", [0, 2**64 + 1, 3.0, True])
def test_wire_bytes_refuses_what_is_no_modulus(m):
    with pytest.raises(ParameterError, match="modulus"):
        wire_bytes(m)
