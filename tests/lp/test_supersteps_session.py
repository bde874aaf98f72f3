"""Algorithm 1 with clients that only answer, whose questions and answers get lost."""

import pytest
import session_runs as sessions
import superstep_runs

from xclp_crypto.protocols.setup import SERVER
from xclp_lp.session import client_role, server_role

DATA = sessions.blobs({"a": 4, "b": 3, "c": 3, "d": 3})


class Engine(superstep_runs.Engine):
    def __init__(self, seed=0, deferred=False, lossy=False):
        async def client(io, rng):
            data, params, seed = DATA[io.name], sessions.SMALL, sessions.SEED
            return await client_role(io, data, params, tuple(DATA), rng, seed)

        async def server(io, rng):
            return await server_role(io, sessions.SMALL, tuple(DATA), rng)

        roles = {**dict.fromkeys(DATA, client), SERVER: server}
        super().__init__(roles, seed, deferred, lossy)

    def labels(self):
        return {name: result.class_ids.tolist() for name, result in self.results().items()}


def labels(present, contributors):
    found = sessions.expected_labels(DATA, sessions.SMALL, tuple(present), tuple(contributors))
    return {name: own.tolist() for name, own in found.items()}


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_questions_and_answers_may_be_lost_repeated_and_find_an_older_log(deferred, seed):
    engine = Engine(seed, deferred, lossy=True).run()
    assert engine.labels() == labels(DATA, DATA)
    graph = engine.relay.role.result()
    assert graph.contributors == tuple(DATA)


@pytest.mark.parametrize("deferred", [False, True])
def test_without_losses_a_client_is_asked_a_few_times(deferred):
    engine = Engine(deferred=deferred).run()
    assert engine.labels() == labels(DATA, DATA)
    assert max(engine.asked.count(name) for name in DATA) <= (22 if deferred else 10)


@pytest.mark.parametrize(
    ("asked", "step"),
    [(0, "setup"), (2, "setup"), (3, "row sums"), (5, "row sums"), (7, "row sums")],
)
def test_a_client_that_does_not_answer_in_time_is_a_dropout(asked, step):
    def drop_out(engine):
        if engine.asked.count("d") > asked:
            engine.absent.add("d")

    engine = Engine().run(each=drop_out)
    graph = engine.relay.role.result()
    assert [(d.client, d.step) for d in graph.dropouts] == [("d", step)]
    rest = [name for name in DATA if name != "d"]
    assert list(graph.sizes) == (rest if step == "setup" else list(DATA))
    assert ("d" in graph.contributors) == (asked > 5)
    expected = labels(graph.sizes, graph.contributors)
    assert engine.labels() == {name: expected[name] for name in rest}


def test_a_client_that_is_killed_and_comes_back_gets_its_labels():
    killed = []

    def restart(engine):
        if engine.relay.role.step == "row sums" and not killed:
            killed.append(engine.now)
            engine.absent.add("d")
        if killed and engine.now > killed[0] + 20:
            engine.absent.discard("d")

    engine = Engine().run(each=restart)
    assert killed
    assert engine.labels() == labels(DATA, DATA)
    assert engine.relay.role.result().dropouts == ()


def test_a_client_that_never_comes_is_a_dropout_of_the_setup():
    engine = Engine()
    engine.absent.add("b")
    engine.run()
    assert [(d.client, d.step) for d in engine.relay.role.result().dropouts] == [("b", "setup")]
    rest = [name for name in DATA if name != "b"]
    assert engine.labels() == labels(rest, rest)
