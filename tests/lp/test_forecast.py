"""What a run will cost: bytes and rounds as metered, memory and seconds within reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from session_runs import SMALL, Data, blobs, federation

from xclp_crypto.privacy import LabelPrivacy
from xclp_crypto.protocols.hamming import BACKENDS, estimate
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import run
from xclp_crypto.transport.meter import Cost
from xclp_lp import influence as columns
from xclp_lp.dropouts import STEPS
from xclp_lp.forecast import OVERLAPPING, SECONDS, forecast, message_bytes, rounds, seconds
from xclp_lp.labels import UNLABELLED
from xclp_lp.memory import memory
from xclp_lp.parameters import Parameters, Shape

POINTS = Path(__file__).parents[2] / "bench" / "cost_points.json"


def shape_of(data: Data) -> Shape:
    return Shape(
        {c: len(own.class_ids) for c, own in data.items()},
        {c: int((own.class_ids != UNLABELLED).sum()) for c, own in data.items()},
        next(iter(data.values())).vectors.shape[1],
    )


def connected(sizes: dict[str, int], **changes: Any) -> tuple[Data, Parameters, Cost]:
    """A session whose points all are within reach of each other, and what it cost."""
    data = blobs(sizes, labelled=3, seed=1)
    for own in data.values():
        own.vectors[:] = np.abs(own.vectors)  # no angle above 90°
    params = replace(SMALL, k=sum(sizes.values()) - 1, **changes)
    return data, params, run(federation(data, params)).raise_errors().cost


@pytest.mark.parametrize("values", [7, 1 << 23])
@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"hamming": "plain"}, {"a": 5, "b": 0, "c": 2}),
        ({"hamming": "masked"}, {"a": 5, "b": 4, "c": 3, "d": 1}),
        ({"hamming": "masked", "class_weight": "balanced"}, {"a": 5, "b": 4}),
        ({"hamming": "rlwe", "threshold": 3}, {"a": 3, "b": 4, "c": 2}),
        ({"hamming": "plain", "scale": "shared", "class_weight": "sqrt"}, {"a": 5, "b": 0, "c": 2}),
        ({"hamming": "masked", "scale": "shared-by-two"}, {"a": 3, "b": 4}),
        ({"hamming": "shade", "n_bits": 16}, {"a": 2, "b": 1, "c": 1}),
        ({"hamming": "shade-ext"}, {"a": 2, "b": 1, "c": 1}),
        (
            {"hamming": "masked", "privacy": LabelPrivacy(8, 1e-5, 2), "fraction_bits": 20},
            {"a": 5, "b": 4, "c": 3},
        ),
    ],
)
def test_bytes_and_rounds_are_those_metered(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], sizes: dict[str, int], values: int
) -> None:
    monkeypatch.setattr(columns, "BLOCK_VALUES", values)
    data, params, cost = connected(sizes, **changes)
    shape = shape_of(data)
    metered: dict[str, dict[tuple[str, str], int]] = {step: {} for step in STEPS}
    for traffic, size in cost.bytes_sent.items():
        link = traffic.sender, traffic.receiver
        metered[traffic.step][link] = metered[traffic.step].get(link, 0) + size
    assert metered == message_bytes(params, shape)
    expected = rounds(params, shape)
    assert sum(expected.values()) - OVERLAPPING == cost.rounds
    for step in ("setup", "hashing", "hamming", "propagation", "row sums", "labels"):
        assert cost.rounds_in(step) == expected[step], step


def test_in_a_graph_of_several_components_less_travels() -> None:
    data = blobs({"a": 9, "b": 7, "c": 8}, labelled=2, seed=5)
    params = replace(SMALL, k=1)
    cost = run(federation(data, params)).raise_errors().cost
    most = message_bytes(params, shape_of(data))
    for c in data:
        assert 0 < cost.received_by(c, "propagation") < most["propagation"][SERVER, c]
        assert cost.received_by(c, "row sums") == sum(
            size for (_, to), size in most["row sums"].items() if to == c
        )


def test_memory_grows_with_what_it_is_for() -> None:
    shape = Shape(dict.fromkeys("abc", 5000), dict.fromkeys("abc", 500), 64)
    params = replace(SMALL, n_bits=1024)
    base = memory(params, shape)
    assert set(base) == set(STEPS)
    assert base["propagation"] >= 2 * 15_000**2 + 8 * 15_000**2
    many = replace(params, classes=tuple(range(500)))
    assert memory(many, shape)["row sums"] >= base["row sums"] + 8 * 15_000 * 490
    noisy = replace(params, privacy=LabelPrivacy(1, 1e-5, 2))
    assert memory(noisy, shape)["row sums"] > base["row sums"]
    tied = replace(shape, equal=10**8)
    assert memory(params, tied)["propagation"] == base["propagation"] + 24 * 10**8
    lowest = replace(params, ties="lowest-index")
    assert memory(lowest, tied) == base
    crowd = Shape({f"c{i}": 1 for i in range(700)}, {f"c{i}": 1 for i in range(700)}, 8)
    assert memory(params, crowd)["setup"] > 5e8


@pytest.mark.parametrize("hamming", BACKENDS)
def test_seconds_are_of_every_party_and_grow_with_the_sizes(hamming: str) -> None:
    params = replace(SMALL, hamming=hamming)
    small = Shape({"a": 100, "b": 50, "c": 0}, {"a": 10, "b": 0, "c": 0}, 8)
    large = Shape({"a": 400, "b": 200, "c": 0}, {"a": 40, "b": 0, "c": 0}, 8)
    one, two = (seconds(params, own, message_bytes(params, own)) for own in (small, large))
    for step in STEPS:
        assert set(one[step]) == {*small.rows, SERVER}
        assert all(0 <= one[step][party] <= two[step][party] for party in one[step])
    assert sum(two["hamming"].values()) > 2 * sum(one["hamming"].values())
    assert one["propagation"][SERVER] > one["propagation"]["b"]


def test_forecasts_of_groups_add_up() -> None:
    one = Shape({"a": 30, "b": 20}, {"a": 3, "b": 0}, 8)
    two = Shape({"c": 10, "d": 10}, {"c": 1, "d": 1}, 8)
    both = forecast(SMALL, [one, two])
    apart = [forecast(SMALL, [shape]) for shape in (one, two)]
    assert both.bytes == sum(f.bytes for f in apart)
    assert both.seconds == pytest.approx(sum(f.seconds for f in apart))
    assert both.memory == max(f.memory for f in apart)
    assert both.rounds == max(f.rounds for f in apart) == 19
    assert both.steps["hamming"].bytes_sent.keys() == {"a", "b", "c", "d"}
    found = json.loads(json.dumps(both.to_dict()))
    assert set(found["back_ends"]) == set(BACKENDS)
    assert found["back_ends"]["masked"]["bytes"] == sum(both.steps["hamming"].bytes_sent.values())
    assert found["steps"]["labels"]["bytes_sent"] == dict.fromkeys("abcd", 20)


MEASURED = [
    q for q in json.loads(POINTS.read_text("utf-8")) if q["sweep"] in ("rows", "bits", "clients")
]


@pytest.mark.parametrize("hamming", BACKENDS)
def test_seconds_are_of_the_order_of_those_measured(hamming: str) -> None:
    """Distances with their setup, where they took longer than a tenth of a second once."""
    compared = 0
    for point in (q for q in MEASURED if q["way"] == hamming):
        measured = point["p"] * point["client_seconds"] + point["server_seconds"]
        rows = {f"client-{i}": point["n"] for i in range(point["p"])}
        shape = Shape(rows, dict.fromkeys(rows, 1), 1)
        params = replace(SMALL, hamming=hamming, n_bits=point["bits"])
        steps = forecast(params, [shape]).steps
        found = sum(sum(steps[step].seconds.values()) for step in ("setup", "hamming"))
        if max(found, measured) > 0.1:
            assert 1 / 4 < found / measured < 4, point
            compared += 1
    assert compared


def test_all_operations_of_back_ends_have_seconds() -> None:
    for backend in BACKENDS.values():
        assert set(estimate(backend, {"a": 5, "b": 5}, 64).operations) <= set(SECONDS)
