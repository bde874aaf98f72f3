"""Secure means in Flower apps, in this process; the double of the grid is that of in_process.py."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common.recorddict_compat import (
    arrayrecord_to_parameters,
    parameters_to_arrayrecord,
)
from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp.strategy import FedAvg
from in_process import Node, Nodes, _identity, at_once, never  # noqa: F401

from xclp_crypto import Identities, IdentityKey
from xclp_crypto.errors import ParameterError, XclpError
from xclp_crypto.flower import server
from xclp_crypto.flower.client import SecureMeanMod
from xclp_crypto.flower.records import APP, ROUND, Places, Round
from xclp_crypto.flower.server import RoundLimits, SecureMeanGrid, SecureMeanWorkflow
from xclp_crypto.mean import MEAN_FRACTION_BITS
from xclp_crypto.rng import SystemRng
from xclp_crypto.sum_plans import SumOptions, SumPlan, mean_terms
from xclp_crypto.transport.flower.records import HEADER, pack, unpack_answer
from xclp_crypto.transport.questions import Answer, Ask
from xclp_crypto.updates import layout

ROWS = {1: 117_041, 2: 215_003, 3: 318_027, 4: 97_065, 5: 402_081}
"""Weights of five nodes, large enough that no other number in a message is one by chance."""
NETWORK = {"hidden.weight": (3, 4), "hidden.bias": (3,), "out.weight": (2, 3), "scale": ()}
LIMITS = RoundLimits(join=100, deadline=200, retry=60)


def network(seed):
    """A small network; one of its arrays has another dtype."""
    rng = np.random.default_rng(seed)
    kinds = {"out.weight": np.float64}
    return {k: rng.uniform(-1, 1, s).astype(kinds.get(k, "f4")) for k, s in NETWORK.items()}


def record_of(arrays):
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})


def reply_of(node, **changed):
    metrics = MetricRecord({"num-examples": ROWS[node], "loss": node / 8})
    return RecordDict({"arrays": record_of(network(node) | changed), "metrics": metrics})


def app_of(node, reply=reply_of, mod=None):
    app = ClientApp(mods=[mod or SecureMeanMod()])

    @app.train()
    def train(message, context):
        assert set(message.content) == {"arrays", "config"}
        return Message(reply(node), reply_to=message)

    return app


class Program(Node):
    """A node whose app may raise something, of which Flower makes an error."""

    def answer(self, question):
        try:
            return super().answer(question)
        except XclpError as error:
            return Message(Error(2, f"{error}"), reply_to=question), 0


class Trainers(Nodes):
    """Nodes that are only trained; `seen` is all that they answer."""

    def __init__(self, ways=None, apps=None):
        of = {n: (apps or {}).get(n) or app_of(n) for n in ROWS}
        super().__init__({n: Program(of[n], n, {}, {}, (ways or {}).get(n, at_once)) for n in ROWS})
        self.seen = []

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        self.seen += [bytes_of(r.content) for r in replies if r.has_content()]
        return replies

    def send_and_receive(self, messages, *, timeout=None):
        assert not list(messages)
        return []

    def secure(self, options=None, **more):
        times = {"limits": LIMITS, "clock": self.clock, "sleep": self.sleep}
        return SecureMeanGrid(self, options, **(times | more))

    def train(self, options=None, **more):
        """Run a round with all nodes; return the replies by node."""
        content = RecordDict({"arrays": record_of(network(0)), "config": ConfigRecord()})
        asked = [Message(content, dst_node_id=n, message_type=MessageType.TRAIN) for n in ROWS]
        replies = self.secure(options, **more).send_and_receive(asked)
        return {r.metadata.src_node_id: r for r in replies}


def bytes_of(content):
    """All that is in a message."""
    arrays = [a.data for r in content.array_records.values() for a in r.values()]
    rest = {k: dict(r) for k, r in content.items() if k not in content.array_records}
    return repr(rest).encode() + b"".join(map(bytes, arrays))


def leaks(seen, node):
    """Return what of a node's weight and update can be read."""
    forms = {"text": str(ROWS[node]).encode()}
    forms |= {kind: np.array(ROWS[node], kind).tobytes() for kind in ("<i8", "<f8")}
    forms["fixed point"] = np.array(ROWS[node] << MEAN_FRACTION_BITS, "<u8").tobytes()
    forms |= {k: a.tobytes() for k, a in network(node).items() if a.size > 1}
    return {what for what, form in forms.items() if form in b"".join(seen)}


def require_mean(found, nodes):
    """Assert that arrays are the plain mean, in the input's dtypes."""
    assert list(found) == list(NETWORK)
    for name, array in found.items():
        expected = np.average(
            [network(n)[name].astype(np.float64) for n in nodes],
            axis=0,
            weights=[ROWS[n] for n in nodes],
        )
        assert (array.dtype, array.shape) == (network(0)[name].dtype, NETWORK[name])
        assert np.abs(array - expected).max() <= 2**-20


def require_survivors(replies, nodes):
    """Assert that these nodes have the mean, the others errors; return what these say."""
    for node in nodes:
        content = replies[node].content
        require_mean({k: a.numpy() for k, a in content["arrays"].items()}, nodes)
        total = sum(ROWS[n] for n in nodes)
        shown = {"num-examples": total / len(nodes), "loss": node / 8}
        assert dict(content["metrics"]) == shown
    return {n: r.error.reason for n, r in replies.items() if n not in nodes}


@pytest.mark.parametrize(
    ("last", "step"), [(0, "setup"), (4, "share"), (8, "upload"), (10, "reveal"), (99, "")]
)
def test_the_mean_with_a_dropout_and_what_the_server_sees(last, step):
    grid = Trainers({3: lambda number: 0 if number < last else None})
    replies = grid.train()
    left = [n for n in ROWS if n != 3 or step in ("reveal", "")]
    errors = require_survivors(replies, left)
    assert errors == dict.fromkeys(errors, f"dropped out before the end of {step!r}")
    for node in ROWS:
        assert not leaks(grid.seen, node)
        assert len(leaks([bytes_of(reply_of(node))], node)) >= 4
        assert node == 3 or not grid.nodes[node].context.state


def test_a_strategy_of_messages_goes_on_from_round_to_round():
    grid = Trainers()
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=5)
    result = strategy.start(grid.secure(), record_of(network(0)), num_rounds=2)
    require_mean({k: a.numpy() for k, a in result.arrays.items()}, ROWS)
    assert [*result.train_metrics_clientapp] == [1, 2]
    assert result.train_metrics_clientapp[2]["loss"] == pytest.approx(np.mean([*ROWS]) / 8)


class Trainer(NumPyClient):
    def __init__(self, node):
        self.node = node

    def fit(self, parameters, config):
        return [*network(self.node).values()], ROWS[self.node], {"loss": self.node / 8}


def test_the_workflow_takes_the_place_of_that_of_secagg(monkeypatch):
    """In an app with a client_fn, a strategy of fit results and a dropout."""
    app = ClientApp(
        client_fn=lambda context: Trainer(context.node_id).to_client(), mods=[SecureMeanMod()]
    )
    grid = Trainers({2: never}, dict.fromkeys(ROWS, app))
    timed = partial(SecureMeanGrid, clock=grid.clock, sleep=grid.sleep)
    monkeypatch.setattr(server, "SecureMeanGrid", timed)
    seen = []
    strategy = LegacyFedAvg(
        min_available_clients=5,
        min_fit_clients=5,
        fit_metrics_aggregation_fn=lambda metrics: seen.extend(metrics) or {},
    )
    manager = SimpleClientManager()
    for node in ROWS:
        manager.register(GridClientProxy(node, grid, 7))
    node = grid.nodes[1].context
    context = LegacyContext(node, ServerConfig(1), strategy, manager)
    context.state[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    start = ndarrays_to_parameters([*network(0).values()])
    context.state[MAIN_PARAMS_RECORD] = parameters_to_arrayrecord(start, keep_input=True)
    SecureMeanWorkflow(limits=LIMITS)(grid, context)
    found = arrayrecord_to_parameters(context.state[MAIN_PARAMS_RECORD], keep_input=True)
    left = [1, 3, 4, 5]
    require_mean(dict(zip(NETWORK, parameters_to_ndarrays(found), strict=True)), left)
    total = sum(ROWS[n] for n in left)
    assert sorted(m["loss"] for _, m in seen) == [n / 8 for n in left]
    assert {rows for rows, _ in seen} == {total / 4}


def raises(node):
    raise ZeroDivisionError("what only this node may know")


def without_weight(node):
    return RecordDict({"arrays": record_of(network(node)), "metrics": MetricRecord({"loss": 0.1})})


CANNOT = {
    "NaN": (partial(reply_of, scale=np.float32("nan")), "scale[] is nan", "DataError"),
    "dtype": (partial(reply_of, scale=np.float64(1)), "scale of shape () and dtype", "DataError"),
    "large": (
        partial(reply_of, scale=np.float32(1e9)),
        "scale, times the weight, is too large",
        "EncodingOverflow",
    ),
    "weight": (without_weight, "must say its weight once", "DataError"),
    "training": (raises, "what only this node may know", "ZeroDivisionError"),
}


@pytest.mark.parametrize("what", CANNOT)
def test_a_node_that_cannot_be_averaged_is_left_out_at_once(what, caplog):
    reply, said, kind = CANNOT[what]
    grid = Trainers(apps={3: app_of(3, reply)})
    errors = require_survivors(grid.train(), [1, 2, 4, 5])
    assert kind in errors[3]
    assert "only this node" not in errors[3]
    assert said in caplog.text
    assert len(grid.nodes[3].times) == 1
    assert grid.now < 10


def test_a_node_that_flower_cannot_reach_is_left_out_at_once():
    grid = Trainers({3: lambda number: Error(5, "unavailable")})
    errors = require_survivors(grid.train(), [1, 2, 4, 5])
    assert "unavailable" in errors[3]
    assert grid.now < 10


def answers(name="3", **records):
    return RecordDict({**pack(Answer(name, b"d" * 16)), **records})


REST = dict(Places("arrays", "metrics", "num-examples").without(reply_of(3)))


@pytest.mark.parametrize(
    "content",
    [
        reply_of(3),
        answers(),
        answers("4"),
        answers(**REST | {f"{APP}metrics": MetricRecord({"num-examples": 1})}),
    ],
    ids=["the update", "no rest", "another's name", "weight"],
)
def test_a_node_with_another_mod_is_refused(content):
    grid = Trainers({3: lambda number: content})
    errors = require_survivors(grid.train(), [1, 2, 4, 5])
    assert errors[3].startswith("dropped out before the end of 'setup'")
    assert ("has no SecureMeanMod" in errors[3]) == (HEADER not in content)
    assert len(grid.nodes[3].times) == 1


def test_nothing_leaves_a_node_for_a_server_without_the_other_half(caplog):
    """The attack of a server that just leaves it out."""
    trained = []
    node = Node(app_of(1, trained.append), 1, {}, {})
    content = RecordDict({"arrays": record_of(network(0)), "config": ConfigRecord()})
    question = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
    with pytest.raises(XclpError, match=r"^DecodeError$"):
        node.app(question, node.context)
    assert not trained
    assert "updates would not be secret" in caplog.text


def test_what_comes_late_from_an_earlier_round_changes_nothing():
    node = Node(app_of(1), 1, {}, {})

    def ask(session, ask, **instruction):
        records = {ROUND: Round(session, tuple(map(str, ROWS)), agreed).record(), **instruction}
        content = RecordDict({**pack(ask), **records})
        question = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
        return unpack_answer(node.app(question, node.context).content, 1 << 20, "server")

    plan = SumPlan([*map(str, ROWS)], *mean_terms(layout(network(0), ""), SumOptions(tell=False)))
    agreed = plan.agreement.encode()
    given = {f"{APP}arrays": record_of(network(0)), f"{APP}config": ConfigRecord()}
    first = ask("new", Ask(), **given)
    assert ask("old", Ask(end=True)).ended
    assert ask("old", Ask()).failure is not None
    again = ask("new", Ask())
    assert (again.failure, again.fed) == (None, first.fed)
    assert [i.receiver for i in again.items] == ["server"]


@pytest.mark.parametrize(
    ("options", "ways", "said"),
    [
        (None, dict.fromkeys((1, 2, 3), never), "2 of the parties"),
        (SumOptions(threshold=2), {}, "threshold"),
    ],
)
def test_a_round_that_fails_gives_nothing_and_its_nodes_are_told(options, ways, said, caplog):
    """Too few are left; or the server would do with fewer than the clients."""
    grid = Trainers(ways)
    replies = grid.train(options)
    assert {r.error.reason for r in replies.values()} == {"there is no secure mean"}
    assert said in caplog.text
    for node in grid.nodes.values():
        assert not node.context.state
        assert node.way is never or "the secure mean failed" in caplog.text


def test_a_node_with_other_options_is_left_out_alone_before_it_trains():
    trained = []
    other = app_of(3, trained.append, SecureMeanMod(SumOptions(threshold=2)))
    errors = require_survivors(Trainers(apps={3: other}).train(), [1, 2, 4, 5])
    assert "must agree on" in errors[3]
    assert "threshold (here 2); server has another value" in errors[3]
    assert not trained


@pytest.mark.parametrize(
    "make",
    [
        lambda: SecureMeanMod(3),
        lambda: SecureMeanMod(clip_norm=-1),
        lambda: SecureMeanMod(clip_value="x"),
        lambda: SecureMeanMod(weighted_by=3),
        lambda: SecureMeanMod(identities="x"),
        lambda: SecureMeanMod(max_message=0),
        lambda: SecureMeanGrid(None),
        lambda: SecureMeanGrid(Trainers(), 3),
        lambda: SecureMeanGrid(Trainers(), identities=lambda context: None),
        lambda: SecureMeanGrid(Trainers(), limits=600),
        lambda: SecureMeanWorkflow(3),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make):
    with pytest.raises(ParameterError):
        make()


def test_a_round_of_too_few_nodes_is_refused_before_anybody_trains():
    grid = Trainers()
    (one, two, *_) = [
        Message(reply_of(n), dst_node_id=n, message_type=MessageType.TRAIN) for n in ROWS
    ]
    for asked in ([one], [one, two], [one, two, one]):
        with pytest.raises(ParameterError):
            grid.secure().send_and_receive(asked)
    assert not any(node.asked for node in grid.nodes.values())


def test_clipping_is_said_on_the_node_and_identities_can_be_pinned(caplog):
    keys = {party: IdentityKey.generate(SystemRng()) for party in ("server", *map(str, ROWS))}
    pinned = {party: key.public for party, key in keys.items()}

    def own(context):
        return Identities(keys[str(context.node_id)], pinned)

    mods = {n: SecureMeanMod(identities=own, clip_value=2.0) for n in ROWS}
    apps = {n: app_of(n, mod=mod) for n, mod in mods.items()}
    apps[4] = app_of(4, partial(reply_of, scale=np.float32(7)), mods[4])
    replies = Trainers(apps=apps).train(identities=Identities(keys["server"], pinned))
    scales = [2.0 if n == 4 else network(n)["scale"] for n in ROWS]
    expected = np.average(scales, weights=[*ROWS.values()])
    found = replies[1].content["arrays"]["scale"].numpy()
    assert abs(found - expected) < 2**-20
    assert [m for m in caplog.messages if "was clipped" in m] == [
        "the update was clipped: 1 values, and all of it by the factor 1"
    ]
