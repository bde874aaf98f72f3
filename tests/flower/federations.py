"""Whole federations over Flower: ``make flower``. Not of the test suite: each takes minutes."""

from __future__ import annotations

import json
import re

from processes import CLASSES, Federation

from xclp_lp.estimator import CrossClientLabelPropagation

SETTINGS = {"n_bits": 1024, "k": 10, "hamming": "rlwe", "random_state": 1}
DONE = r"labels of .* were counted"


def simulated(federation, clients, **settings):
    """Labels of the same federation in one process, by client, of those who take part."""
    keep = [i for i, name in enumerate(federation.clients) if name in clients]
    model = CrossClientLabelPropagation(classes=CLASSES, **settings)
    model.fit([federation.Xs[i] for i in keep], [federation.ys[i] for i in keep])
    return dict(zip(clients, (list(labels) for labels in model.transduction_), strict=True))


def labels_of(federation, name):
    lines = (federation.folder / "results" / f"{name}.csv").read_text().splitlines()[1:]
    return [line.split(",")[1] for line in lines]


def require_labels(federation, clients, **settings):
    """Assert that these clients have the labels of the simulation."""
    expected = simulated(federation, clients, **settings)
    assert {c: labels_of(federation, c) for c in clients} == expected


def check_bytes(federation):
    """What passes is what the roles' meters say; what clients send each other passes twice."""
    said = r"(\d+) bytes to the nodes, (\d+) from them; the server's own messages have (\d+)"
    down, up, own = map(int, re.search(said, federation.output("run")).groups())
    sent = {}
    for name in federation.clients:
        cost = json.loads((federation.folder / "results" / f"{name}-cost.json").read_text())
        sent |= cost["bytes_by_link"]
    between = sum(n for link, n in sent.items() if not link.endswith("server"))
    metered = sum(sent.values()) + own + between
    assert sum(sent.values()) <= up <= 1.15 * sum(sent.values())
    assert own + between <= down <= 1.15 * (own + between)
    wire = federation.forwarder.up + federation.forwarder.down
    assert metered <= wire <= 1.15 * metered, (metered, federation.forwarder.up, wire)
    return metered, wire


def test_labels_and_bytes_are_those_of_the_simulation(tmp_path):
    with Federation(tmp_path, clients=4, rows=200, features=16) as federation:
        federation.start_all()
        federation.run(**SETTINGS)
        federation.wait_for("run", DONE, 900)
        require_labels(federation, federation.clients, **SETTINGS)
        assert not list(federation.folder.glob("*-state/*"))
        print("metered bytes, bytes of TCP:", *check_bytes(federation))  # noqa: T201


def test_one_node_is_killed_in_the_hamming_step_and_one_restarted_in_the_row_sums(tmp_path):
    with Federation(tmp_path, clients=4, rows=200, features=16) as federation:
        federation.start_all()
        federation.run(**SETTINGS, deadline=200, retry=15)
        federation.wait_for("run", "step hamming", 600)
        federation.kill("hospital-3")
        federation.wait_for("run", "step row sums", 900)
        federation.kill("hospital-1")
        federation.restart_node("hospital-1")
        federation.wait_for("run", DONE, 900)
        rest = federation.clients[:3]
        require_labels(federation, rest, **SETTINGS)
        said = federation.output("run")
        assert "hospital-3 dropped out before the end of the step 'hamming'" in said


def test_logs_may_be_in_the_context(tmp_path):
    with Federation(tmp_path, clients=3, rows=10, keep_logs=False) as federation:
        federation.start_all()
        settings = {"n_bits": 64, "k": 2, "hamming": "masked", "random_state": 1}
        federation.run(**settings)
        federation.wait_for("run", DONE, 900)
        require_labels(federation, federation.clients, **settings)
