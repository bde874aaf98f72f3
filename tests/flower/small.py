"""Small federations of real processes, quick enough for every change; see federations.py."""

from __future__ import annotations

import re

import numpy as np
import pytest
from federations import DONE, require_labels
from processes import ROOT, Federation

SETTINGS = {"n_bits": 256, "k": 3, "hamming": "rlwe", "random_state": 1}


def test_three_nodes_have_the_labels_of_the_simulation(tmp_path):
    """With TLS and node authentication."""
    with Federation(tmp_path, clients=3, rows=20) as federation:
        federation.start_all()
        federation.run(**SETTINGS)
        federation.wait_for("run", DONE, 600)
        require_labels(federation, federation.clients, **SETTINGS)
        assert not list(federation.folder.glob("*-state/*"))


MEANS = ROOT / "examples" / "flower-mean"


def test_three_nodes_train_the_model_that_they_would_without_secrecy(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(MEANS)
    from xclp_mean_app import model

    names = ["a", "b", "c"]
    configs = {n: {"partition-id": i, "num-partitions": 3} for i, n in enumerate(names)}
    with Federation(tmp_path, names=names, app=MEANS, configs=configs) as federation:
        federation.start_all()
        federation.run(rounds=1, nodes=3)
        said = federation.wait_for("run", r"Aggregated MetricRecord: .*'accuracy': [\d.]+", 600)
        assert "secure mean of 3 nodes, weights 1437 in all" in federation.output("run")
    shares = [model.share(i, 3) for i in range(3)]
    rows, tests = [[len(part[k][1]) for part in shares] for k in (0, 1)]
    trained = [model.train(model.zeros(), *part[0])[0] for part in shares]
    mean = {k: np.average([t[k] for t in trained], axis=0, weights=rows) for k in trained[0]}
    found = [model.accuracy(mean, *part[1]) for part in shares]
    expected = np.average(found, weights=tests)
    assert float(re.findall(r"[\d.]+", said)[-1]) == pytest.approx(expected, abs=1e-9)
