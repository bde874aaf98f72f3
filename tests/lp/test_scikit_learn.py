"""What a user of scikit-learn expects of the estimator, as far as lists of clients allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import estimator_checks

from xclp_crypto.errors import DataError
from xclp_lp import CrossClientLabelPropagation

XCLP = CrossClientLabelPropagation(128, 3, hamming="plain", scale="client", random_state=0)
NAME = type(XCLP).__name__

CHECKS = [
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_mixin_order,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_set_params,
    estimator_checks.check_valid_tag_types,
]
"""All that fit nothing; the others fit one array."""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_checks_of_scikit_learn_that_fit_nothing(check: Callable[..., None]) -> None:
    check(NAME, clone(XCLP))


def patients() -> tuple[list[pd.DataFrame], list[NDArray[Any]]]:
    """Three clients' rows of two kinds, and what kind each is of."""
    rng = np.random.default_rng(0)
    kinds = [rng.permutation(np.arange(16) % 2) for _ in range(3)]
    Xs = [
        pd.DataFrame(
            {
                "age": 40 + 30 * kind + rng.normal(size=16),
                "site": np.where(kind == 1, "hip", "knee"),
                "bp": 120 + 20 * kind + rng.normal(size=16),
            },
            index=[f"{name}{i}" for i in range(16)],
        )
        for name, kind in zip("abc", kinds, strict=True)
    ]
    return Xs, kinds


def shown(kinds: list[NDArray[Any]]) -> list[NDArray[Any]]:
    return [np.where(np.arange(16) < 4, kind, -1) for kind in kinds]


def encoder(sparse: bool) -> Any:
    return ColumnTransformer(
        [
            ("site", OneHotEncoder(categories=[["hip", "knee"]], sparse_output=sparse), ["site"]),
            ("numbers", StandardScaler(), ["age", "bp"]),
        ],
        sparse_threshold=float(sparse),
    )


def test_a_pipeline_of_each_client_gives_its_features() -> None:
    Xs, kinds = patients()
    frames = [make_pipeline(encoder(False)).set_output(transform="pandas") for _ in Xs]
    named = [own.fit_transform(x) for own, x in zip(frames, Xs, strict=True)]
    sparse = [encoder(True).fit_transform(x) for x in Xs]
    assert sparse[0].format == "csr"
    xclp = clone(XCLP).fit(named, shown(kinds))
    assert xclp.feature_names_in_.tolist() == named[0].columns.tolist()
    for found, x, kind in zip(xclp.transduction_, Xs, kinds, strict=True):
        assert found.index.equals(x.index)
        assert found.tolist() == kind.tolist()
    again = xclp.fit_predict(sparse, shown(kinds))
    assert [own.tolist() for own in again] == [kind.tolist() for kind in kinds]
    assert not hasattr(xclp, "feature_names_in_")
    with pytest.raises(DataError, match=r"'client-1' has other columns .* extra 'numbers__w'"):
        xclp.fit([named[0], named[1].assign(numbers__w=1), named[2]], shown(kinds))


def test_score_is_the_share_of_rows_without_a_label_that_came_out_right() -> None:
    Xs, kinds = patients()
    Xs = [x[["age", "bp"]] for x in Xs]
    with pytest.raises(NotFittedError):
        clone(XCLP).score(Xs, kinds)
    xclp = clone(XCLP).fit(Xs, shown(kinds))
    assert xclp.labelled_[0].tolist() == [True] * 4 + [False] * 12
    assert xclp.score(Xs, kinds) == 1
    wrong = [kind.astype(float) for kind in kinds]
    wrong[0][:5] = 1 - wrong[0][:5]  # four of them had a label
    wrong[1][4:] = np.nan
    assert xclp.score(Xs, wrong) == pytest.approx(23 / 24)
    series = pd.Series([kinds[2][5], 7], index=["c5", "c4"])  # 7 is a class that nobody knew
    assert xclp.score(Xs, [None, None, series]) == 0.5
    for ys, message in (
        (kinds[:2], "fit had 3 clients"),
        ([*kinds[:2], kinds[2][:9]], "'client-2': 9 labels, fit had 16 rows; score is of the rows"),
        (shown(kinds), "ys says nothing of any row that had no label"),
        ([kind.astype(str) for kind in kinds], "several types: int .*, str .client 'client-0'"),
    ):
        with pytest.raises(DataError, match=message):
            xclp.score(Xs, ys)
