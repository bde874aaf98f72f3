"""ServerApp and ClientApp in this process, between them a double of Flower's grid; no sockets.

The clock is that of the double: a turn of the server takes as long as it says that it sleeps.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections import defaultdict, deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from canaries import (
    CANARY,
    RANDOM_STATE,
    forms_of,
    keep_logs,
    leaks,
    opened,
    spoilt_inputs,
    watch,
    write_table,
)
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from pieces import over_flower

from xclp_crypto.errors import FaultyPeer, TooFewParties, XclpError
from xclp_crypto.params import SEED_BYTES
from xclp_crypto.primitives.sealed_box import SealedBox
from xclp_crypto.transport.flower.context import CONTEXT
from xclp_crypto.transport.flower.nodes import PAUSE_SECONDS
from xclp_crypto.transport.flower.records import HEADER, PAYLOADS, pack, unpack_answer
from xclp_crypto.transport.log import Log, LogKey
from xclp_crypto.transport.network.frames import Codec
from xclp_crypto.transport.questions import Answer, Ask, Item
from xclp_crypto.transport.tls import make_authority
from xclp_lp.estimator import CrossClientLabelPropagation
from xclp_lp.flower import server
from xclp_lp.flower.client import client_app
from xclp_lp.flower.settings import RunSettings

CLIENTS = ("a", "b", "c", "d")
CLASSES = ["barn owl", "grey heron"]
SETTINGS = {"n_bits": 64, "k": 2, "hamming": "masked", "random_state": 1}
JOIN, DEADLINE, RETRY = 100, 600, 60
RUN = {"clients": ",".join(CLIENTS), "classes": ",".join(CLASSES), "join": JOIN}
RUN |= {"deadline": DEADLINE, "retry": RETRY, "identities": False} | SETTINGS
KEY = "ab" * 32


def data_of(name):
    """Features (7, 4) and labels of a client; two rows have one."""
    rng = np.random.default_rng(ord(name))
    y = rng.permutation([0, 1, 0, 1, 0, 1, 0])
    X = 3 * np.eye(2, 4)[y] + rng.standard_normal((7, 4))
    return X, [CLASSES[c] if i < 2 else None for i, c in enumerate(y)]


def expected(*clients, without_labels=()):
    """Labels of the same federation without Flower, of those who take part."""
    Xs, ys = zip(*map(data_of, clients), strict=True)
    ys = [[None] * 7 if c in without_labels else y for c, y in zip(clients, ys, strict=True)]
    model = CrossClientLabelPropagation(classes=CLASSES, **SETTINGS).fit(list(Xs), list(ys))
    return {
        name: [label or "" for label in labels]  # a row far from all others has none
        for name, labels in zip(clients, model.transduction_, strict=True)
    }


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """What Flower's programs set before they start an app, and messages take."""
    for field in ("run_id", "node_id", "task_id"):
        monkeypatch.setattr(TaskIdentity, f"_{field}", 7)


def at_once(number):
    return 0


def never(number):
    return None


def once(at, what):
    """A way that differs at one question."""
    return lambda number: what if number == at else 0


class Node:
    """A SuperNode: answers one question after the other, as its `way` says.

    `asked` and `times` are when questions came and when they were taken up.

    A way takes the number of a question, and returns how many seconds the answer takes; or None:
    there is none; or an `Error` or a `RecordDict`, which is the answer in place of the app's.
    """

    def __init__(self, app, node_id, config, run, way=at_once):
        self.app, self.way = app, way
        state = RecordDict()
        self.context = Context(7, node_id, config, state, run)
        self.questions = deque()
        self.asked = []
        self.times = []

    def answer(self, question):
        """Return an answer and how many seconds it takes."""
        way = self.way(len(self.times) - 1)
        if isinstance(way, Error | RecordDict):
            return Message(way, reply_to=question), 0
        if way is None:
            return None, 0
        reply = self.app(question, self.context)
        self.context.state = over_flower(self.context.state)
        return Message(over_flower(reply.content), reply_to=question), way


class Nodes(Grid):
    """The double: SuperLink and SuperNodes; `now` is the time."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.now = 0.0
        self.ids = itertools.count(1)
        self.busy = defaultdict(float)
        self.replies = {}

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        for node_id, node in self.nodes.items():
            if node.questions and self.now >= self.busy[node_id]:
                question = node.questions.popleft()
                node.times.append(self.now)
                reply, seconds = node.answer(question)
                self.busy[node_id] = self.now + seconds
                if reply is not None:
                    self.replies[question.metadata.message_id] = (self.now + seconds, reply)

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            copy = Message(
                over_flower(message.content),
                dst_node_id=message.metadata.dst_node_id,
                message_type=message.metadata.message_type,
            )
            ids.append(str(next(self.ids)))
            copy.metadata.__dict__["_message_id"] = ids[-1]
            node = self.nodes[message.metadata.dst_node_id]
            node.questions.append(copy)
            node.asked.append(self.now)
        return ids

    def pull_messages(self, message_ids):
        ready = [i for i in message_ids if i in self.replies and self.replies[i][0] <= self.now]
        return [self.replies.pop(i)[1] for i in ready]

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError


def real_node(folder, name, keep_logs=True):
    """Configuration of a node with files of its own."""
    X, y = data_of(name)
    np.save(folder / f"{name}.npy", X)
    labels = "\n".join(["bird", *(label or "" for label in y)]) + "\n"
    (folder / f"{name}-labels.csv").write_text(labels)
    config = {
        "name": name,
        "features": str(folder / f"{name}.npy"),
        "labels": str(folder / f"{name}-labels.csv"),
        "label_column": "bird",
        "output": str(folder / "results"),
        "identities": False,
    }
    if keep_logs:
        (folder / "log.key").write_text(KEY)
        (folder / "log.key").chmod(0o600)
        config |= {"state": str(folder / "state"), "key_file": str(folder / "log.key")}
    return config


def federation(folder, ways=None, keep_logs=True, **settings):
    """Return the double, and the configuration of the run."""
    run = RUN | settings
    app = client_app()
    nodes = {
        i: Node(app, i, real_node(folder, name, keep_logs), run, (ways or {}).get(name, at_once))
        for i, name in enumerate(CLIENTS, 1)
    }
    return Nodes(nodes), run


def serve(grid, run):
    return server.run(grid, RunSettings.of(run), clock=grid.clock, sleep=grid.sleep)


def labels_in(folder):
    """Return what the clients have written."""
    found = {}
    for file in sorted((folder / "results").glob("?.csv")):
        found[file.stem] = [line.split(",")[1] for line in file.read_text().splitlines()[1:]]
    return found


def identities(folder, party):
    """Configuration of a party: whom it pins, and its own key."""
    files = {"identities": "identities.toml", "identity": f"{party}.identity"}
    return {key: str(folder / "certs" / file) for key, file in files.items()}


def pin(folder, grid, run):
    """Let all parties of a federation pin each other's identities."""
    make_authority(folder / "certs", CLIENTS, ["localhost"])
    run |= identities(folder, "server")
    for node in grid.nodes.values():
        config = node.context.node_config
        config |= identities(folder, config["name"])


@pytest.mark.parametrize(
    ("keep_logs", "pinned", "questions"), [(True, False, 22), (False, False, 42), (True, True, 22)]
)
def test_labels_are_those_of_the_simulation(tmp_path, keep_logs, pinned, questions):
    grid, run = federation(tmp_path, keep_logs=keep_logs)
    if pinned:
        pin(tmp_path, grid, run)
    graph = serve(grid, run)
    assert graph.contributors == CLIENTS
    assert labels_in(tmp_path) == expected(*CLIENTS)
    assert max(len(node.times) for node in grid.nodes.values()) <= questions
    assert not list(tmp_path.glob("state/*"))
    assert not any(CONTEXT in node.context.state for node in grid.nodes.values())


def test_simulated_nodes_take_the_data_of_the_app(tmp_path):
    app = client_app(data_of)
    run = RUN | {"simulation_output": str(tmp_path / "results")}
    nodes = {
        10 + i: Node(app, 10 + i, {"partition-id": i, "num-partitions": 4}, run) for i in range(4)
    }
    serve(Nodes(nodes), run)
    assert labels_in(tmp_path) == expected(*CLIENTS)


def test_bytes_that_are_said_are_those_that_pass(tmp_path, caplog, monkeypatch):
    passed = {"down": 0, "up": 0}

    def counted(content):
        (text,) = content.config_records[HEADER].values()
        return len(text) + sum(len(a.data) for a in content.array_records[PAYLOADS].values())

    grid, run = federation(tmp_path)
    push, pull = grid.push_messages, grid.pull_messages

    def push_messages(messages):
        passed["down"] += sum(counted(m.content) for m in messages)
        return push(messages)

    def pull_messages(ids):
        found = pull(ids)
        passed["up"] += sum(counted(m.content) for m in found)
        return found

    monkeypatch.setattr(grid, "push_messages", push_messages)
    monkeypatch.setattr(grid, "pull_messages", pull_messages)
    caplog.set_level(logging.INFO, "flwr")
    serve(grid, run)
    (said,) = [m for m in caplog.messages if "bytes to the nodes" in m]
    sent = {}
    for name in CLIENTS:
        cost = json.loads((tmp_path / "results" / f"{name}-cost.json").read_text())
        sent[name] = cost["bytes_by_link"]
    metered = sum(sum(links.values()) for links in sent.values())
    ended = passed["up"] - sum(counted(pack(Answer(name, ended=True))) for name in CLIENTS)
    down = passed["down"]
    assert said.startswith(f"{down} bytes to the nodes, {ended} from them")
    answers = sum(len(node.times) for node in grid.nodes.values())
    assert metered <= ended <= metered + 400 * answers


def test_a_node_that_never_answers_is_missed_in_the_setup(tmp_path):
    grid, run = federation(tmp_path, {"d": never})
    graph = serve(grid, run)
    assert [(d.client, d.step) for d in graph.dropouts] == [("d", "setup")]
    assert labels_in(tmp_path) == expected("a", "b", "c")
    assert JOIN <= grid.now < JOIN + RETRY + 10


@pytest.mark.parametrize(("last", "step"), [(0, "setup"), (9, "row sums"), (10, "row sums")])
def test_a_node_that_answers_no_more_is_a_dropout(tmp_path, last, step):
    grid, run = federation(tmp_path, {"d": lambda number: 0 if number <= last else None})
    graph = serve(grid, run)
    assert [(d.client, d.step) for d in graph.dropouts] == [("d", step)]
    assert tuple(graph.sizes) == (("a", "b", "c") if step == "setup" else CLIENTS)
    lost = set(graph.sizes) - set(graph.contributors)
    found = expected(*graph.sizes, without_labels=lost)
    assert labels_in(tmp_path) == {name: found[name] for name in "abc"}
    assert DEADLINE <= grid.now < 2 * DEADLINE + RETRY + 30


def test_no_node_ever_answers(tmp_path):
    grid, run = federation(tmp_path, dict.fromkeys(CLIENTS, never))
    with pytest.raises(TooFewParties):
        serve(grid, run)


def test_a_node_without_identities_is_not_in_a_run_that_has_them(tmp_path):
    make_authority(tmp_path / "certs", CLIENTS, ["localhost"])
    grid, run = federation(tmp_path, **identities(tmp_path, "server"))
    with pytest.raises(XclpError, match="this party runs with identities"):
        serve(grid, run)


@pytest.mark.parametrize("number", range(1, 6))
def test_a_node_that_answers_late_is_asked_again_and_takes_part(tmp_path, number):
    late = RETRY * 3.5
    grid, run = federation(tmp_path, {"d": once(number, late)})
    graph = serve(grid, run)
    assert graph.dropouts == ()
    assert labels_in(tmp_path) == expected(*CLIENTS)
    node = grid.nodes[4]
    asked = np.array(node.asked) - node.times[number]
    assert ((asked > RETRY - 1) & (asked < late)).sum() == 2  # after RETRY, and after twice that


def test_an_answer_after_the_deadline_is_of_a_dropout(tmp_path):
    grid, run = federation(tmp_path, {"d": once(2, DEADLINE + 20)})
    graph = serve(grid, run)
    assert [d.client for d in graph.dropouts] == ["d"]
    found, others = labels_in(tmp_path), expected("a", "b", "c")
    assert {name: found[name] for name in others} == others


def test_a_node_whose_app_crashes_is_asked_again_after_longer_and_longer_pauses(tmp_path):
    crash = Error(1, "crashed")
    grid, run = federation(tmp_path, {"d": lambda n: crash if 1 <= n <= 4 else 0})
    graph = serve(grid, run)
    assert graph.dropouts == ()
    assert labels_in(tmp_path) == expected(*CLIENTS)
    pauses = np.diff(grid.nodes[4].times[1:6])
    assert (np.round(pauses / PAUSE_SECONDS) == [1, 2, 4, 8]).all()


@pytest.mark.parametrize("first", [0, 1])
def test_a_node_whose_app_always_crashes_is_a_dropout_and_not_asked_all_the_time(tmp_path, first):
    grid, run = federation(tmp_path, {"d": lambda n: Error(1, "crashed") if n >= first else 0})
    graph = serve(grid, run)
    assert [(d.client, d.step) for d in graph.dropouts] == [("d", "setup")]
    assert labels_in(tmp_path) == expected("a", "b", "c")
    assert len(grid.nodes[4].times) < 20


def answer_with(**fields):
    return pack(Answer(**({"name": "d", "instance": b"d" * 16} | fields)))


def with_header(text):
    return RecordDict({HEADER: ConfigRecord({"header": text}), PAYLOADS: ArrayRecord()})


GARBAGE = {
    "nothing": RecordDict(),
    "no payloads": RecordDict({HEADER: ConfigRecord({"header": "{}"})}),
    "no header": RecordDict({PAYLOADS: ArrayRecord()}),
    "a header that is a number": RecordDict(
        {HEADER: ConfigRecord({"header": 1}), PAYLOADS: ArrayRecord()}
    ),
    "a header of other kind": RecordDict({HEADER: ArrayRecord(), PAYLOADS: ArrayRecord()}),
    "bytes": with_header("\x00\xff\x17"),
    "another version": with_header('{"version": 0, "items": []}'),
    "payloads that are not there": with_header(
        '{"version": 1, "items": [["d", "server", 0, 1, 9]]}'
    ),
    "a name of nobody": answer_with(name="e"),
    "another client": answer_with(name="a"),
    "a message of another": answer_with(items=(Item("a", "server", 0, 1, b"x"),)),
    "a message to nobody": answer_with(items=(Item("d", "e", 0, 1, b"x"),)),
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("what", GARBAGE)
def test_a_node_that_answers_garbage_is_refused_and_the_others_go_on(tmp_path, what, number):
    garbage = GARBAGE[what]
    grid, run = federation(tmp_path, {"d": lambda n: garbage if n >= number else 0})
    graph = serve(grid, run)
    assert [(d.client, d.step) for d in graph.dropouts] == [("d", "setup")]
    assert graph.dropouts[0].reason.code == "faulty" or not number  # nobody has named itself yet
    assert labels_in(tmp_path) == expected("a", "b", "c")
    assert len(grid.nodes[4].times) < 5


def test_a_client_that_breaks_the_protocol_is_named(tmp_path):
    garbage = answer_with(items=(Item("d", "server", 0, 1, bytes(99)),))
    grid, run = federation(tmp_path, {"d": lambda number: garbage})
    with pytest.raises(FaultyPeer, match=r"^d did not follow the protocol: Hello") as caught:
        serve(grid, run)
    assert "without d take 'd' out of clients" in caught.value.__notes__[0]


@pytest.mark.parametrize("keep_logs", [True, False])
def test_nodes_are_told_whom_another_blames_with_its_signature(tmp_path, keep_logs, caplog):
    grid, run = federation(tmp_path, keep_logs=keep_logs)
    pin(tmp_path, grid, run)
    honest = grid.nodes[4].app

    def garbles(question, context):
        got = unpack_answer(honest(question, context).content, 1 << 20, "server")
        items = [
            replace(i, payload=bytes(len(i.payload))) if i.receiver == "a" else i for i in got.items
        ]
        return Message(pack(replace(got, items=tuple(items))), reply_to=question)

    grid.nodes[4].app = garbles
    with pytest.raises(FaultyPeer) as caught:
        serve(grid, run)
    assert caught.value.parties == ("d", "a")
    said = "d or a (or the server that relays its messages) did not follow the protocol: a has "
    said += "signed that it blames d in step 'setup'; the server: "
    for client in "bcd":
        assert [m for m in caplog.messages if m.startswith(f"{client}: {said}")]
    assert not list(tmp_path.glob("state/*"))
    assert not any(CONTEXT in node.context.state for node in grid.nodes.values())


def test_a_second_node_of_the_same_name_is_refused(tmp_path):
    grid, run = federation(tmp_path)
    config = real_node(tmp_path, "d") | {"state": str(tmp_path / "other")}
    grid.nodes[5] = Node(client_app(), 5, config, run, lambda number: 1)
    serve(grid, run)
    assert labels_in(tmp_path) == expected(*CLIENTS)
    assert len(grid.nodes[5].times) == 1


def asked(config, run, ask=None, state=None, simulated=None):
    """Ask the app of one node; return its answer."""
    node = Node(client_app(simulated), 1, config, run)
    node.context.state = state or RecordDict()
    question = Message(pack(ask or Ask()), dst_node_id=1, message_type="query")
    question.metadata.__dict__["_message_id"] = "1"
    return unpack_answer(node.app(question, node.context).content, 1 << 20, "server")


@pytest.mark.parametrize(
    ("config", "run", "message"),
    [
        ({"name": "e"}, {}, "'e' is none of the clients"),
        ({"features": "/nowhere.npy"}, {}, "/nowhere.npy"),
        ({"featurs": "x"}, {}, "featurs"),
        ({"state": "/proc/xclp"}, {}, "state or epoch cannot be used"),
        ({"epoch": "/proc/xclp"}, {}, "state or epoch cannot be used"),
        ({"key_file": "/nowhere"}, {}, "/nowhere cannot be read"),
        ({}, {"n_bits": 0}, "n_bits"),
    ],
)
def test_what_is_wrong_on_a_node_is_said_there_and_that_it_is_in_its_answer(
    tmp_path, config, run, message, caplog
):
    got = asked(real_node(tmp_path, "a") | config, RUN | run)
    assert message in caplog.messages[-1]
    assert got.failure.text in ("ParameterError", "DataError", "StorageError")
    assert got.items == ()


def test_no_other_node_and_no_log_of_the_server_gets_what_is_in_the_inputs_of_one(
    tmp_path, caplog, monkeypatch
):
    """Four nodes finish; the inputs of each further one cannot be used, in another way."""
    secret, key = tmp_path / f"{CANARY}.secret", "5eed0123" * 8
    secret.write_text(CANARY)
    secret.chmod(0o600)
    data = {"features": str(tmp_path / "a.npy")}
    faults = [(what, section, "DataError") for what, section in spoilt_inputs(tmp_path)]
    faults += [(f, data | {f: str(secret)}, "ParameterError") for f in ("key_file", "identity")]
    spoilt = dict(zip("efghijklmn", faults, strict=True))
    clients = [*CLIENTS, *spoilt]
    make_authority(tmp_path / "certs", clients, ["localhost"])
    settings = {"clients": ",".join(clients), "threshold": 3, "random_state": RANDOM_STATE}
    settings["server_output"] = str(tmp_path / "results")
    grid, run = federation(tmp_path, **settings, **identities(tmp_path, "server"))
    (tmp_path / "log.key").write_text(key)
    for node, name in zip(grid.nodes.values(), CLIENTS, strict=True):
        table = tmp_path / f"{CANARY}-table-{name}.csv"
        write_table(table, name, *data_of(name))
        config = node.context.node_config
        del config["labels"]
        config |= {"features": str(table), "id_column": f"{CANARY} id"}
        config |= {"label_column": f"{CANARY} label"} | identities(tmp_path, name)
    logs = {k: config[k] for k in ("state", "key_file")}
    for name, (_, section, _) in spoilt.items():
        config = {"name": name, "output": str(tmp_path / CANARY)} | identities(tmp_path, name)
        grid.nodes[len(grid.nodes) + 1] = Node(
            client_app(), len(grid.nodes) + 1, config | logs | section, run
        )
    passed = bytearray()
    push, pull = grid.push_messages, grid.pull_messages

    def recorded(messages):
        for message in messages:
            for array in message.content.array_records[PAYLOADS].values():
                passed.extend(array.data)
            passed.extend(str(message.content.config_records[HEADER]).encode())
        return messages

    monkeypatch.setattr(grid, "push_messages", lambda messages: push(recorded(messages)))
    monkeypatch.setattr(grid, "pull_messages", lambda ids: recorded(pull(ids)))
    for holder, method in ((SealedBox, "seal"), (Codec, "encode"), (Path, "unlink")):
        monkeypatch.setattr(holder, method, getattr(holder, method))  # back again after the test
    watch(tmp_path / "sent")
    keep_logs()
    caplog.set_level(logging.INFO, "flwr")
    serve(grid, run)
    assert labels_in(tmp_path).keys() == {*CLIENTS}
    for name, (what, _, kind) in spoilt.items():
        assert f"{name} takes no further part (left): {kind}" in caplog.messages, what
        assert any(m.startswith(f"{name}: ") and CANARY in m for m in caplog.messages), what
    for party in (*CLIENTS, "server"):
        record = json.loads((tmp_path / "results" / f"{party}-cost.json").read_text())
        reasons = {own["client"]: (own["reason"], own["text"]) for own in record["dropouts"]}
        assert reasons == {name: ("left", kind) for name, (_, _, kind) in spoilt.items()}
        assert len(record["warnings"]) == 1  # of the random_state
    own = tuple(f"{name}: " for name in clients)
    of_server = "\n".join(m for m in caplog.messages if not m.startswith(own)).encode()
    results = tmp_path / "results"
    for name in CLIENTS:
        (log,) = (tmp_path / "state").glob(f"{name}-*.state")
        certs = tmp_path / "certs"
        forms = forms_of(
            name,
            data_of(name)[0],
            CLASSES,
            opened(log, key)[0][-SEED_BYTES:],
            key_file=key,
            identity=(certs / f"{name}.identity").read_text(),
        )
        read = {file: file.read_bytes() for file in (log, tmp_path / "sent")}
        read |= {file: file.read_bytes() for file in results.glob("*-cost.json")}
        for where, content in (read | {"Flower": bytes(passed), "server": of_server}).items():
            assert not leaks(content, forms), where
        inputs = [tmp_path / f"{CANARY}-table-{name}.csv", certs / f"{name}.identity"]
        found = leaks(b"".join(file.read_bytes() for file in inputs), forms)
        assert found == {"cells", "labels", "ids", "columns", "identity"}


def test_flower_does_not_send_what_an_app_fails_with(tmp_path, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr("xclp_lp.flower.client.load_data", fails)
    with pytest.raises(XclpError, match=r"^ZeroDivisionError$"):
        asked(real_node(tmp_path, "a"), RUN)


def test_a_key_file_that_is_too_short_is_named(tmp_path, caplog):
    config = real_node(tmp_path, "a")
    (tmp_path / "log.key").write_text("short")
    assert asked(config, RUN).failure.text == "ParameterError"
    assert "log.key: the key of a log is 64 hex digits or" in caplog.text


def test_simulated_nodes_need_data(caplog):
    assert asked({"partition-id": 1, "num-partitions": 4}, RUN).failure.text == "ParameterError"
    assert "b is a simulated node, and this app has no data for such" in caplog.text


def test_a_log_of_other_data_is_not_taken(tmp_path, caplog):
    config = real_node(tmp_path, "a")
    assert asked(config, RUN).failure is None
    np.save(tmp_path / "a.npy", data_of("b")[0])
    assert asked(config, RUN).failure.text == "LogError"
    assert "other parameters or other data" in caplog.messages[-1]
    np.save(tmp_path / "a.npy", data_of("a")[0])
    assert asked(config, RUN).failure is None  # the log was closed


def test_a_node_draws_its_randomised_labels_once(tmp_path, caplog):
    config = real_node(tmp_path, "a") | {"remember": str(tmp_path / "labels")}
    with caplog.at_level("INFO", "flwr"):
        for _ in range(2):
            assert asked(config, RUN | {"privacy.epsilon": 1.0}).failure is None
    first, again = (line for line in caplog.messages if "randomised before" in line)
    assert ": 0 labels randomised before, " in first
    assert again.endswith(" randomised before, 0 now")


@pytest.mark.parametrize("with_epoch", [False, True])
def test_attack_10_a_node_whose_log_was_restored_is_given_up_at_once(tmp_path, caplog, with_epoch):
    """By itself, or, if what says how far the log got is older as well, by the server."""
    kept = {}

    def way(number):
        if number == 2:
            kept.update({file: file.read_bytes() for file in (tmp_path / "state").glob("d-*")})
        for file, data in kept.items() if number == 4 else ():
            if with_epoch or file.suffix == ".log":
                file.write_bytes(data)
        return 0

    grid, run = federation(tmp_path, {"d": way}, deadline=10_000)
    serve(grid, run)
    said = "its log was rolled back" if with_epoch else "LogRolledBack"
    assert any(f"d takes no further part (left): {said}" in line for line in caplog.messages)
    assert len(grid.nodes[4].times) <= 6
    assert grid.now < 100
    assert labels_in(tmp_path).keys() == {"a", "b", "c"}


def test_a_question_while_another_process_has_the_log_is_an_error_of_flowers(tmp_path):
    """So that the client is asked again, and not given up."""
    config = real_node(tmp_path, "a")
    assert asked(config, RUN).failure is None
    (file,) = (tmp_path / "state").glob("*.log")
    log = Log.open(file, LogKey.from_text(KEY))
    with pytest.raises(XclpError, match="LogInUseError"):
        asked(config, RUN)
    log.close()
    assert asked(config, RUN).failure is None
