"""A small federation of real processes, quick enough for every change; see federations.py."""

from __future__ import annotations

from federations import DONE, require_labels
from processes import Federation

SETTINGS = {"n_bits": 256, "k": 3, "hamming": "rlwe", "random_state": 1}


def test_three_nodes_have_the_labels_of_the_simulation(tmp_path):
    """With TLS and node authentication."""
    with Federation(tmp_path, clients=3, rows=20) as federation:
        federation.start_all()
        federation.run(**SETTINGS)
        federation.wait_for("run", DONE, 600)
        require_labels(federation, federation.clients, **SETTINGS)
        assert not list(federation.folder.glob("*-state/*"))
