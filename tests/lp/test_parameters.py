"""The parameters of label propagation are declared once, and every one works through every door."""

import inspect
import re
from dataclasses import fields

import numpy as np
import pytest
import typer

from xclp_crypto.errors import ParameterError
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.cli.demo import demo
from xclp_lp.cli.options import with_settings
from xclp_lp.cli.run import plan
from xclp_lp.files.federation import load_federation
from xclp_lp.files.network import NetworkSettings
from xclp_lp.files.toml import keys_of, read_section
from xclp_lp.flower.settings import RunSettings
from xclp_lp.parameters import Agreed, Arguments, Parameters, Settings
from xclp_lp.study.experiments.config import Experiment
from xclp_lp.study.training.config import Study
from xclp_lp.validation import meaning

OTHER = {
    "n_bits": 512,
    "k": 2,
    "alpha": 0.5,
    "gamma": 2.0,
    "scale": "client",
    "missing": "mean",
    "winsorise": 3.0,
    "projection": "tight-frame",
    "hamming": "masked",
    "include_self": True,
    "ties": "lowest-index",
    "fraction_bits": 41,
    "threshold": 3,
    "post_quantum": False,
    "class_weight": "balanced",
    "client_prior": "own",
    "validation": "tune",
    "privacy": RandomizedResponse(3.0),
    "preset": "paper",
    "reset_labelled": True,
    "relative_confidence": True,
    "min_confidence": 0.5,
}
"""Of every parameter a value that is not its default."""

WRONG = {
    "n_bits": 0,
    "k": "3",
    "alpha": 1.0,
    "gamma": -1,
    "scale": "rank",
    "missing": "median",
    "winsorise": 0,
    "projection": "tight",
    "hamming": "rlw",
    "include_self": 1,
    "ties": "any",
    "fraction_bits": 99,
    "threshold": 1,
    "post_quantum": "no",
    "class_weight": "even",
    "client_prior": "others",
    "validation": True,
    "privacy": {"epsilon": 0},
    "preset": "papers",
    "reset_labelled": "yes",
    "relative_confidence": 0,
    "min_confidence": 1.1,
}
"""Of every parameter a value that is refused."""


def in_file(value):
    """A value as TOML has it."""
    return {"epsilon": value.epsilon} if isinstance(value, RandomizedResponse) else value


def toml(value):
    """A value in TOML."""
    value = in_file(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {v}" for k, v in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def with_means(given):
    """Parameters where the preset computes none, without which nothing can be filled in."""
    return given | {"scale": "client"} if "missing" in given else given


def by_estimator(tmp_path, name, value):
    if isinstance(value, dict):
        value = RandomizedResponse(**value)
    estimator = CrossClientLabelPropagation(**{"k": 1, "hamming": "plain"} | {name: value})
    xs = np.array([[1.0, 0.2], [0.9, 0.1], [0.1, 1.0]])
    plan = estimator.plan([xs, xs + 0.01, xs - 0.01], [[0, 1, -1]] * 3)
    return Arguments(**{f.name: getattr(estimator, f.name) for f in fields(Arguments)}), plan.params


def by_federation_file(tmp_path, name, value):
    path = tmp_path / "federation.toml"
    for client in ("a", "b"):
        (tmp_path / f"{client}.csv").write_text("x,y\n1,cat\n2,\n")
    sections = (f'[clients.{c}]\nfeatures = "{c}.csv"\nlabel_column = "y"\n' for c in ("a", "b"))
    path.write_text(f"[parameters]\n{name} = {toml(value)}\n" + "".join(sections))
    return load_federation(path).arguments, None


def by_network_file(tmp_path, name, value):
    section = {"classes": ["cat", "dog"], name: in_file(value)}
    settings = read_section(NetworkSettings, section, "server.toml", "parameters")
    return settings, settings.params


def by_flower(tmp_path, name, value):
    value = in_file(value)
    given = {f"privacy.{k}": v for k, v in value.items()} if name == "privacy" else {name: value}
    run = RunSettings.of({"clients": "a,b,c", "classes": "cat,dog"} | given)
    return run, run.params


def by_experiment(tmp_path, name, value):
    given = with_means({name: in_file(value)})
    return Experiment("labels", "digits", parameters=given).arguments(7), None


def by_study(tmp_path, name, value):
    given = with_means({name: in_file(value)})
    return Study("digits", parameters=given).arguments(7), None


def by_options(tmp_path, name, value):
    taken = []

    @with_settings(k=3)
    def command(*, settings):
        taken.append(settings)

    app = typer.Typer()
    app.command()(command)
    value = in_file(value)
    if name == "privacy":
        name, value = "epsilon", value["epsilon"]
    option = f"--{name.replace('_', '-')}"
    switch = {True: option, False: option.replace("--", "--no-", 1)}
    words = [switch[value]] if isinstance(value, bool) else [option, str(value)]
    app(words, standalone_mode=False)
    return taken[0], taken[0].parameters(range(3))


DOORS = [by_estimator, by_federation_file, by_network_file, by_flower, by_experiment, by_study]


@pytest.mark.parametrize("door", [*DOORS, by_options])
@pytest.mark.parametrize("name", OTHER)
def test_every_parameter_works_through_every_door(tmp_path, door, name):
    taken, params = door(tmp_path, name, OTHER[name])
    assert getattr(taken, name) == OTHER[name]
    if params is not None and name in keys_of(Agreed):
        assert getattr(params, name) == OTHER[name]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", WRONG)
def test_every_parameter_is_checked_at_every_door(tmp_path, door, name):
    with pytest.raises(ParameterError, match=f"{name if name != 'privacy' else 'epsilon'} ") as e:
        door(tmp_path, name, WRONG[name])
    assert re.search(r"got|'rlw'", str(e.value))


def test_the_list_is_complete():
    assert list(OTHER) == list(WRONG) == keys_of(Settings)
    assert all(getattr(Settings(), name) != value for name, value in OTHER.items())
    assert set(keys_of(Parameters)) == {*keys_of(Agreed), "classes"}


def test_the_estimator_takes_the_arguments_that_are_declared():
    signature = inspect.signature(CrossClientLabelPropagation).parameters
    assert set(signature) == {*keys_of(Arguments), "client_names"}
    for field in fields(Arguments):
        assert signature[field.name].default == field.default, field.name


def test_presets_fill_what_is_not_given():
    def chosen(**given):
        found = Settings(**given)
        return found.alpha, found.gamma, found.class_weight, found.scale, found.validation

    noise = LabelPrivacy(1.0, 1e-6, noise_contributors=2)
    assert chosen() == (0.9, 3.0, "sqrt", "shared", "leave-one-out")
    assert chosen(preset="paper") == (0.99, 1.0, "none", "none", "none")
    assert chosen(privacy=noise) == (0.8, 3.0, "none", "shared", "none")
    assert chosen(preset="paper", privacy=noise) == (0.99, 1.0, "none", "none", "none")
    assert chosen(preset="paper", alpha=0.5, gamma="auto") == (0.5, 1.0, "none", "none", "none")
    assert Settings(preset="paper").parameters("ab") == Parameters(
        classes=("a", "b"),
        alpha=0.99,
        gamma=1.0,
        class_weight="none",
        scale="none",
        validation="none",
    )
    assert chosen(client_prior="own")[2] == "balanced"
    assert chosen(privacy=RandomizedResponse(3.0))[2:] == ("sqrt", "shared", "none")


@pytest.mark.parametrize("command", [demo, plan])
def test_commands_have_an_option_for_every_parameter(command):
    assert {*keys_of(Settings), "epsilon"} - {"privacy"} <= set(
        inspect.signature(command).parameters
    )


def test_every_argument_says_what_it_is_for():
    assert all(meaning(Arguments, name) for name in keys_of(Arguments))
    shown = " ".join(CrossClientLabelPropagation.__doc__.split())
    for name in keys_of(Arguments):
        assert f"{name}: {meaning(Arguments, name)}." in shown


@pytest.mark.parametrize(
    ("invited", "least"), [(2, 2), (3, 3), (4, 3), (5, 3), (6, 4), (7, 4), (100, 51), (150, 76)]
)
def test_every_step_needs_a_majority_and_at_least_three_clients_or_all(invited, least):
    for threshold, expected in ((None, least), (2, 2)):
        params = Parameters(classes=(0, 1), scale="client", threshold=threshold).among(invited)
        assert params.at_least == expected
        sums = params.mask_graph([f"c{i}" for i in range(least)])
        assert sums.threshold >= expected
    assert params.agreement().fields == params.among(0).agreement().fields
