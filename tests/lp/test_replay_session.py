"""The session of Algorithm 1 with parties that are killed and rebuilt from their logs."""

from dataclasses import replace

import numpy as np
import pytest
import session_runs as sessions
from durable_runs import Engine

from xclp_crypto.protocols.setup import SERVER
from xclp_lp.parameters import Parameters
from xclp_lp.session import client_role, server_role

DATA = sessions.blobs({"a": 4, "b": 3, "c": 3})


def roles(params):
    invited = tuple(DATA)
    found = {
        name: lambda io, rng, name=name: client_role(
            io, DATA[name], params, invited, rng, sessions.SEED
        )
        for name in DATA
    }
    return found | {SERVER: lambda io, rng: server_role(io, params, invited, rng)}


@pytest.mark.parametrize(
    ("hamming", "post_quantum"), [("masked", False), ("rlwe", False), ("masked", True)]
)
@pytest.mark.parametrize("seed", range(2))
def test_a_session_whose_parties_are_killed_again_and_again(hamming, post_quantum, seed):
    sizes = {"classes": (0, 1, 2), "n_bits": 64, "k": 2, "alpha": 0.9}
    params = Parameters(**sizes, hamming=hamming, post_quantum=post_quantum)
    reference = Engine(roles(params), seed).run()
    chance = np.random.default_rng(seed)
    kills = []

    def kill(engine, name):
        if chance.random() < 0.1:
            kills.append(name)
            engine.rebuild(str(chance.choice(list(engine.parties))))

    engine = Engine(roles(params), seed).run(kill)
    assert len(kills) > 5
    if not post_quantum:  # what ML-KEM encapsulates comes from the log, not from the seed
        assert engine.sent == reference.sent
    expected = sessions.expected_labels(DATA, params, tuple(DATA), tuple(DATA))
    for name, labels in expected.items():
        assert engine.results()[name].class_ids.tolist() == labels.tolist()
    assert engine.results()[SERVER] == reference.results()[SERVER]


def test_who_is_given_up_during_the_row_sums_finds_its_labels_when_it_is_rebuilt():
    params = replace(sessions.SMALL, threshold=2)
    engine = Engine(roles(params))
    left_out = []

    def stop(engine, name):
        if not left_out and engine.parties["c"].step == "row sums":
            left_out.append(engine.parties["c"]._log.to_bytes())
            engine.parties["c"].close()
            engine.parties["c"] = Absent()

    engine.run(stop)
    graph = engine.results()[SERVER]
    assert [d.client for d in graph.dropouts] == ["c"]
    engine.start("c", left_out[0])
    engine.run()
    expected = sessions.expected_labels(DATA, params, tuple(DATA), graph.contributors)
    for name, labels in expected.items():
        assert engine.results()[name].class_ids.tolist() == labels.tolist()


class Absent:
    """Stands for a party that was killed."""

    ready, waiting, ended, step = False, None, False, ""

    def result(self):
        return None
