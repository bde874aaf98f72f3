"""Configurations of Flower runs and nodes."""

import tomllib
from pathlib import Path

import pytest

from xclp_crypto.errors import ParameterError
from xclp_crypto.transport.tls import make_authority
from xclp_lp.flower.settings import NodeSettings, RunSettings

RUN = {"clients": "north, south,east", "classes": "cat,dog"}
NODE = {"name": "north", "features": "north.csv", "output": "results"}


def test_the_least_that_a_run_says():
    run = RunSettings.of(RUN)
    assert run.clients == ("north", "south", "east")
    assert run.params.classes == ("cat", "dog")
    assert (run.join, run.deadline, run.retry, run.max_message) == (600, 600, 120, 1 << 30)
    assert run.seed is None
    assert run.simulation_output == ""


def test_parameters_are_those_of_a_federation_file():
    run = RunSettings.of(
        RUN
        | {"classes": "0,1,2", "n_bits": 64, "k": 3, "alpha": 0.5, "random_state": 1}
        | {"privacy.epsilon": 2.0, "reset_labelled": True, "deadline": 5}
    )
    assert run.params.classes == (0, 1, 2)
    assert (run.params.n_bits, run.params.k, run.params.alpha) == (64, 3, 0.5)
    assert run.params.privacy.epsilon == 2.0
    assert (run.reset_labelled, run.relative_confidence) == (True, False)
    assert run.deadline == 5.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clients": ""}, "clients must be the names"),
        ({"clients": 3}, "clients must be the names"),
        ({"clients": "north,north"}, "north"),
        ({"clients": "north,so/uth,east"}, "so/uth"),
        ({"classes": ""}, "classes"),
        ({"n_bit": 64}, "n_bit.*n_bits"),
        ({"alpha": 2.0}, "alpha must be strictly"),
        ({"deadline": 0}, "deadline must be a positive number"),
        ({"join": True}, "join must be a positive number"),
        ({"retry": "soon"}, "retry must be a positive number"),
        ({"clients": "north,south", "scale": "client"}, "choose threshold = 2 if each may"),
        ({"privacy.epsilons": 1.0}, "epsilons"),
        ({"simulation_output": 1}, "simulation_output must be text"),
    ],
)
def test_runs_that_are_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        RunSettings.of(RUN | given)


def test_classes_are_needed():
    with pytest.raises(ParameterError, match="classes is missing"):
        RunSettings.of({"clients": "a,b"})


def test_a_node_says_where_its_data_are():
    node = NodeSettings.of(
        NODE
        | {"feature_columns": "x, y", "label_column": "animal", "partition-id": 2}
        | {"state": "logs", "key_file": "log.key"},
        RunSettings.of(RUN),
    )
    assert node.name == "north"
    assert node.section is not None
    assert node.section.features == "north.csv"
    assert node.section.feature_columns == ("x", "y")
    assert node.section.label_column == "animal"
    assert not any((node.section.labels, node.section.id_column, node.section.features_array))
    assert node.output == Path("results")
    assert (node.section.state, node.section.key_file) == ("logs", "log.key")


def test_a_simulated_node_has_no_data():
    node = NodeSettings.of(
        {"partition-id": 2, "num-partitions": 3},
        RunSettings.of(RUN | {"simulation_output": "found", "identities": False}),
    )
    assert (node.name, node.section, node.output) == ("east", None, Path("found"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "nort"}, "'nort' is none of the clients.*north"),
        ({"name": ""}, "name must be text that is not empty"),
        ({"output": ""}, "output must be text that is not empty"),
        ({"features": 3}, "features must be text"),
        ({"feature": "x"}, "feature"),
        ({"state": "logs"}, "state or remember and key_file belong together"),
        ({"remember": "labels"}, "state or remember and key_file belong together"),
        ({"key_file": "log.key"}, "state or remember and key_file belong together"),
        ({"epoch": "epochs"}, "epoch is of the log in the folder state"),
    ],
)
def test_nodes_that_are_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        NodeSettings.of(NODE | given, RunSettings.of(RUN))


def test_more_simulated_nodes_than_clients_are_refused():
    run = RunSettings.of(RUN | {"identities": False})
    with pytest.raises(ParameterError, match="there are 3 clients"):
        NodeSettings.of({"partition-id": 3, "num-partitions": 4}, run)


def test_identities_are_required_unless_the_configuration_says_false(tmp_path):
    make_authority(tmp_path / "certs", ["north", "south", "east"], ["localhost"])

    def files(party):
        names = {"identities": "identities.toml", "identity": f"{party}.identity"}
        return {key: str(tmp_path / "certs" / name) for key, name in names.items()}

    def of_node(given):
        run = RunSettings.of(RUN)
        return NodeSettings.of(NODE | given, run).read_identities(run.clients)

    def of_run(given):
        return RunSettings.of(RUN | given).read_identities()

    for party, read in (("north", of_node), ("server", of_run)):
        with pytest.raises(ParameterError, match=r"identities is missing\. .* = false"):
            read({})
        assert read({"identities": False}) is None
        assert read(files(party)).pinned.keys() == {"north", "south", "east", "server"}
        (tmp_path / "certs" / f"{party}.identity").chmod(0o644)
        with pytest.raises(ParameterError, match="others"):
            read(files(party))
        assert read(files(party) | {"mounted_secrets": files(party)["identity"]})
    simulated = {"partition-id": 0, "num-partitions": 3}
    with pytest.raises(ParameterError, match="write identities = false to simulate nodes"):
        NodeSettings.of(simulated, RunSettings.of(RUN))


def test_the_app_asks_no_index_for_what_none_has() -> None:
    app = Path(__file__).parents[2] / "examples" / "flower" / "pyproject.toml"
    assert tomllib.loads(app.read_text())["project"]["dependencies"] == []
