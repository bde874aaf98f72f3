"""The statistical helpers of `xclp_crypto.testing`."""

import numpy as np
import pytest

from xclp_crypto.errors import (
    FaultyPeer,
    FaultyPeerOrServer,
    ParameterError,
    Stalled,
)
from xclp_crypto.testing import blamed, same_distribution, uniformity


def test_uniformity_tells_fair_counts_from_unfair_ones():
    assert uniformity([100, 100, 100]) == 1
    assert uniformity(np.random.default_rng(0).multinomial(1000, [0.25] * 4)) > 1e-3
    assert uniformity([100, 300]) < 1e-9
    assert uniformity([1000, 0]) < 1e-9


def test_same_distribution_compares_two_samples_of_any_size():
    assert same_distribution([10, 90], [100, 900]) > 0.9
    assert same_distribution([10, 90, 0], [900, 100, 0]) < 1e-9
    assert same_distribution([0, 90], [0, 10]) == 1
    assert same_distribution([0, 90], [90, 0]) < 1e-9


@pytest.mark.parametrize("counts", [[10], [1, 1], [[9, 9], [9, 9]], []])
def test_a_sample_too_small_for_the_test_is_refused(counts):
    with pytest.raises(ParameterError, match="chi-square"):
        uniformity(counts)


@pytest.mark.parametrize("counts", [[0, 0], [1, 3], []])
def test_two_samples_too_small_for_the_test_are_refused(counts):
    with pytest.raises(ParameterError, match="chi-square"):
        same_distribution(counts, counts)


def test_blame_includes_the_server_where_it_relays():
    assert blamed(FaultyPeer("a", "why")) == {"a"}
    assert blamed(FaultyPeer(("a", "b"), "why")) == {"a", "b"}
    assert blamed(FaultyPeerOrServer("a", "why")) == {"a", "server"}
    assert blamed(Stalled("a", "step", ("b",), "Note")) == frozenset()
