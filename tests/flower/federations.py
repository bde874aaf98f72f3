"""Whole federations over Flower: ``make flower``. Not of the test suite: each takes minutes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from processes import CLASSES, Federation

from xclp_lp.estimator import CrossClientLabelPropagation

SETTINGS = {"n_bits": 1024, "k": 10, "hamming": "rlwe", "random_state": 1}
DONE = r"were counted.*"


def simulated(federation, clients, **settings):
    """Labels of the same federation in one process, by client, of those who take part."""
    keep = [i for i, name in enumerate(federation.clients) if name in clients]
    model = CrossClientLabelPropagation(classes=CLASSES, **settings)
    model.fit([federation.Xs[i] for i in keep], [federation.ys[i] for i in keep])
    return dict(zip(clients, (list(labels) for labels in model.labels_), strict=True))


def labels_of(federation, name):
    lines = (federation.folder / "results" / f"{name}.csv").read_text().splitlines()[1:]
    return [line.split(",")[1] for line in lines]


def metered(federation):
    """Bytes that the roles say they sent; those between clients pass the SuperLink twice."""
    total = relayed = 0
    for name in federation.clients:
        cost = json.loads((federation.folder / "results" / f"{name}-cost.json").read_text())
        for sent in cost["messages"]:
            total += sent["bytes"]
            relayed += sent["bytes"] if sent["receiver"] != "server" else 0
    return total, relayed


def leaves_no_secrets(federation):
    assert not list(federation.folder.glob("*-state/*"))


def test_labels_and_bytes_are_those_of_the_simulation(tmp_path):
    with Federation(tmp_path, clients=4, rows=200, features=16) as federation:
        federation.start_all()
        federation.run(**SETTINGS)
        said = federation.wait_for("run", DONE, 900)
        up, down = federation.forwarder.up, federation.forwarder.down
        expected = simulated(federation, federation.clients, **SETTINGS)
        assert {c: labels_of(federation, c) for c in federation.clients} == expected
        print(said, f"TCP: {up} up, {down} down")
        print((federation.folder / "results" / "hospital-0-cost.json").read_text()[:1500])
        leaves_no_secrets(federation)
        Path("/work/scratch-flower/last.txt").write_text(
            "\n".join([said, f"{up} {down}", *((tmp_path / "results" / f"{c}-cost.json").read_text() for c in federation.clients)])
        )
