"""What a client reaches alone, on rows that its methods have not seen; and ``xclp tune``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.helpers.session_runs import SMALL
from xclp_lp.alone import accuracies_alone
from xclp_lp.cli.tune import scale_lines
from xclp_lp.leave_one_out import OTHER_ALPHAS, WEIGHTS_AND_PRIORS
from xclp_lp.session import ClientData

EXAMPLE = Path(__file__).parents[2] / "examples" / "quickstart" / "federation.toml"
PARAMS = replace(SMALL, k=3)


def two_clouds(n: int, labelled: int, noise: float = 0.0) -> ClientData:
    """Rows of two classes far apart, of which labels are wrong at random."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = rng.standard_normal((n, 4)) + 6 * y[:, None] * [1, -1, 0, 0]
    given = np.where(rng.random(n) < noise, 1 - y, y)
    return ClientData(x, np.where(np.arange(n) < labelled, given, -1))


def test_what_is_easy_is_right_and_no_row_sees_its_own_label() -> None:
    easy = accuracies_alone(two_clouds(100, 9), PARAMS)
    assert set(easy) == {"nearest neighbour", "logistic regression", "propagation"}
    assert all(share > 0.95 for share in easy.values())
    # A method that saw the labels, half of which are drawn at random, would give them back.
    drawn = accuracies_alone(two_clouds(100, 60, noise=0.5), PARAMS)
    assert all(share < 0.8 for share in drawn.values())


def test_one_label_says_nothing_and_one_class_is_always_right() -> None:
    assert all(np.isnan(share) for share in accuracies_alone(two_clouds(10, 1), PARAMS).values())
    one = ClientData(np.eye(6), np.array([1, 1, 1, -1, -1, -1]))
    assert accuracies_alone(one, PARAMS)["logistic regression"] == 1


def test_another_scale_is_advised_where_it_is_clearly_better() -> None:
    def said(before: int, after: int, labels: int = 40) -> str:
        (line,) = scale_lines({"shared": (labels, before), "client": (labels, after)})
        return line

    assert said(30, 32).endswith("'client' 32: set scale = 'client'")
    assert said(30, 31).endswith("keep it")
    assert said(10, 20, 25).endswith("too few labels to tell which is better")
    assert not list(scale_lines({}))


def test_settings_are_compared_and_every_client_with_itself_alone(xclp, tmp_path: Path) -> None:
    code, out, err = xclp("tune", EXAMPLE, "--scales", "--json", tmp_path / "t.json")
    assert (code, err) == (0, "")
    assert "labels, 'client'" in out
    assert "too few labels to tell which is better" in out
    assert "Share of 24 labels that come back" in out
    assert "of this run" in out
    found = json.loads((tmp_path / "t.json").read_text())
    settings = found["validation"]["all"]["settings"]
    assert len(settings) == len(OTHER_ALPHAS) * len(WEIGHTS_AND_PRIORS)
    assert set(found["alone"]) == {"north", "south", "harbour"}
    assert sum(found["labels"].values()) == sum(found["validation"]["all"]["labels"]) == 24
    assert not [p for p in EXAMPLE.parent.iterdir() if p.name == "results"]
