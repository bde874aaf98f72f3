"""Randomised labels in a session: what they change, and for whom."""

import numpy as np
import pytest

from xclp_crypto.errors import ParameterError
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.rng import SeededRng
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.parameters import Parameters


def clusters(clients=4, rows=30, labelled=15):
    """Three well separated clusters, whose labels are their numbers."""
    rng = np.random.default_rng(0)
    truth = [rng.integers(0, 3, rows) for _ in range(clients)]
    xs = [4 * np.eye(6)[y] + rng.normal(scale=0.3, size=(rows, 6)) for y in truth]
    ys = [np.where(np.arange(rows) < labelled, y, -1) for y in truth]
    return xs, ys, truth


def fitted(privacy, seed=0, **options):
    xs, ys, _ = clusters()
    estimator = CrossClientLabelPropagation(
        256, 5, hamming="plain", random_state=0, privacy=privacy, **options
    )
    return estimator.fit(xs, ys, rng=SeededRng(seed))


def test_large_epsilon_changes_nothing():
    plain, private = fitted(None), fitted(RandomizedResponse(100))
    for a, b in zip(plain.label_distributions_, private.label_distributions_, strict=True):
        assert np.array_equal(a, b)


def test_labels_stay_useful_at_epsilon_2_and_are_random_at_epsilon_near_0():
    _, _, truth = clusters()

    def accuracy(epsilon):
        runs = [fitted(RandomizedResponse(epsilon), seed) for seed in range(5)]
        found = [np.concatenate(r.transduction_) for r in runs]
        return np.mean([np.mean(f == np.concatenate(truth)) for f in found])

    assert accuracy(2.0) > 0.95
    assert accuracy(1e-6) < 0.7


def test_the_randomised_labels_are_those_that_count():
    """The totals of a class, which class balance shows to clients, are of randomised labels."""
    runs = [fitted(RandomizedResponse(0.1), seed, class_weight="balanced") for seed in range(2)]
    first, second = (np.concatenate(r.label_distributions_) for r in runs)
    assert not np.allclose(first, second)


def test_all_parties_must_agree_on_it():
    digests = {
        Parameters(classes=(0, 1), privacy=privacy).agreement().encode()
        for privacy in (None, RandomizedResponse(1), RandomizedResponse(2), LabelPrivacy(1, 0.1, 1))
    }
    assert len(digests) == 4


def test_it_needs_no_more_clients_than_without():
    assert Parameters(classes=(0, 1), privacy=RandomizedResponse(1)).fewest_clients == 2
    with pytest.raises(ParameterError, match="must be a RandomizedResponse or a LabelPrivacy"):
        Parameters(classes=(0, 1), privacy=1.0)
