from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.transport.failures import Code, Reason
from xclp_crypto.wording import did_you_mean
from xclp_lp.dropouts import Dropout
from xclp_lp.messages import Geometry
from xclp_lp.parameters import Parameters, Settings
from xclp_lp.plan import Plan
from xclp_lp.predictions import Prediction
from xclp_lp.session import ClientData
from xclp_lp.summary import (
    client_lines,
    dropout_lines,
    estimate_line,
    neglected_lines,
    outcome_lines,
    plan_lines,
    privacy_cautions,
    relabelled_lines,
)
from xclp_lp.wording import count, duration, listing, size


def plan(labelled: dict[str, int], classes: tuple[str | int, ...], rows: int = 4) -> Plan:
    data = {
        c: ClientData(np.ones((rows, 3)), np.where(np.arange(rows) < n, 0, -1))
        for c, n in labelled.items()
    }
    return Plan(
        Parameters(
            classes=classes,
            k=2,
            hamming="masked",
            class_weight="none",
            scale="none",
            validation="none",
        ),
        data,
        {"all": tuple(data)},
    )


def test_words() -> None:
    assert count(1, "row") == "1 row"
    assert count(0, "row") == "0 rows"
    assert count(12_345, "class", "classes") == "12,345 classes"
    assert listing(["a", 1]) == "'a', 1"
    assert listing(range(12), 3) == "0, 1, 2, … (12 in all)"
    assert listing({"line\nbreak": 1}) == r"'line\nbreak'"
    assert did_you_mean("labels_column", ["label_column", "labels"]).endswith("'label_column'?")
    assert did_you_mean("x", ["label_column"]) == ""
    assert did_you_mean("eest", ["north", "west", "east"]) == "; did you mean 'east' or 'west'?"
    assert did_you_mean("maskd", BACKENDS) == "; did you mean 'masked'?"


@pytest.mark.parametrize(
    ("got", "line"),
    [
        ([0, 1, 1, 1], []),
        ([0, 1, 0, 1], []),
        ([0, 0, 0, 1], ["of 3 labelled rows 1 got another label"]),
        ([-1, -1, 0, 1], ["of 3 labelled rows 2 got none"]),
        ([1, -1, 0, 1], ["of 3 labelled rows 1 got another label and 1 got none"]),
    ],
)
def test_labelled_rows_that_change_are_counted(got: list[int], line: list[str]) -> None:
    given = np.array([0, 1, -1, 1])
    assert list(relabelled_lines(given, np.array(got))) == line


@pytest.mark.parametrize(
    ("came", "line"),
    [
        ([30, 10], None),
        ([38, 2], "'wheat' has 3 of 11 labels and came out for 2 of 40 unlabelled rows"),
        ([37, 3], None),  # 40 · 3/11 / 4 is 2.7
        ([40, 0], "'wheat' has 3 of 11 labels and came out for 0 of 40 unlabelled rows"),
    ],
)
def test_classes_that_hardly_come_out_are_named(came: list[int], line: str | None) -> None:
    """The third class has no label here: a client that dropped out may have had its labels.

    Only the advice that helps is given, where it can be taken.
    """
    given = np.array([0] * 8 + [1] * 3 + [-1] * 41)
    got = np.array([0] * 8 + [1] * 3 + [*np.repeat([0, 1], came), -1])
    weighted = Parameters(classes=("oat", "wheat", "rye"))
    privacy = LabelPrivacy(2, 1e-6, 3)
    noise = replace(weighted, class_weight="none", privacy=privacy, validation="none")
    for params in (weighted, noise):
        assert list(neglected_lines(params, given, got)) == ([line] if line else [])
    (said,) = list(neglected_lines(replace(weighted, class_weight="none"), given, got)) or [None]
    assert said == (line and line + '; class_weight = "sqrt" helps')


def test_what_came_out_is_said_of_all_clients_or_by_one_client() -> None:
    params = Parameters(classes=("oat", "rye"), k=10)
    none, far = Prediction.none(3, 2), Prediction.none(2, 2)
    one = replace(none, geometry=Geometry(31.4, 0.2, 500), dropouts=(Dropout("x", "setup", False),))
    two = replace(far, class_ids=np.array([0, 1]), geometry=Geometry(12.0, 1.0, 500))
    given = {"a": np.array([-1, -1, 1]), "b": np.array([0, -1])}
    said = list(outcome_lines(params, given, {"a": one, "b": two}))
    assert said[0].startswith("among 'a': a row has 31.4 neighbours on average, with k = 10")
    assert said[1].startswith("among 'a': only 20% as many neighbours are of another client")
    assert said[2] == "of 2 labelled rows 1 got none"
    assert said[3] == "no label reaches 2 of 5 rows"
    assert said[4].startswith("'oat' has 1 of 2 labels")
    data = ClientData(np.ones((3, 2)), given["a"])
    alone = list(client_lines(params, Settings(reset_labelled=True), data, one, "axb", "a"))
    assert alone[0].startswith("x dropped out before the end of the step 'setup'")
    assert alone[1].startswith("only a and b are in the sums, so each learns the other's part")
    assert alone[2].startswith("a row has 31.4 neighbours")
    assert alone[4:] == ["no label reaches 2 of 3 rows"]
    few = replace(one, geometry=Geometry(31.4, 0.2, 50))
    assert not any("neighbours" in line for line in outcome_lines(params, given, {"a": few}))


@pytest.mark.parametrize(
    ("invited", "threshold", "random_state", "said"),
    [
        ("ab", None, None, ["with two clients, each learns the other's part"]),
        ("abc", None, None, []),
        ("ABC", None, None, ["identities = false: a server that swaps keys reads everything"]),
        ("abcde", 2, None, ["threshold = 2: where two clients are left, each learns"]),
        ("abcde", 3, 7, ["random_state fixes the projection: everybody who knows"]),
    ],
)
def test_what_parties_of_a_federation_are_warned_of(invited, threshold, random_state, said) -> None:
    params = Parameters(classes=(0, 1), threshold=threshold)
    found = list(privacy_cautions(params, invited, random_state, identities=invited.islower()))
    assert len(found) == len(said)
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "a second or less"),
        (1.2, "1 second"),
        (59.7, "1 minute"),
        (600, "10 minutes"),
        (3590, "1 hour"),
        (47 * 3600, "47 hours"),
        (48 * 3600, "2 days"),
        (999 * 86400, "999 days"),
        (3650 * 86400, "10 years"),
        (3.65e9 * 86400, "10,000,000 years"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_sizes() -> None:
    assert [size(n) for n in (999, 1000, 5e7, 3.6865e12)] == [
        *("999 B", "1.0 kB", "50.0 MB", "3,686.5 GB")
    ]


SIZES = {"a": 500, "b": 500}


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("shade", ["roughly 26 hours on one core", "rlwe and masked are much faster"]),
        ("paillier", ["roughly 4 hours on one core", "much faster"]),
        ("paillier-packed", ["roughly 27 seconds on one core"]),
        ("shade-ext", ["AES blocks; roughly 7 seconds on one core"]),
    ],
)
def test_slow_back_ends_say_how_long_they_take(backend: str, words: list[str]) -> None:
    line = estimate_line(backend, SIZES, 4096)
    assert all(word in line for word in words), line
    assert ("much faster" in line) == ("much faster" in words[-1])


@pytest.mark.parametrize("backend", ["rlwe", "masked", "plain"])
def test_fast_back_ends_do_not(backend: str) -> None:
    line = estimate_line(backend, SIZES, 4096)
    assert line.startswith(f"distances by {backend}: ")
    assert "roughly" not in line
    assert ("1 round," in line) == (backend != "rlwe")


def test_plans() -> None:
    lines = list(plan_lines(plan({"a": 1, "b": 0, "c": 2}, ("x ", "y"))))
    assert lines[:-1] == [
        "3 clients, 12 rows, 3 features",
        "2 classes: 'x ', 'y'",
        "3 of 12 rows labelled; clients without labels: 'b'",
    ]
    assert lines[-1] == estimate_line("masked", {"a": 4, "b": 4, "c": 4}, 4096)


def test_long_plans_are_cut() -> None:
    many = {f"c{i}": int(i == 0) for i in range(10)}
    columns = {c: [f"f{i}" for i in range(20)] for c in many}
    lines = list(plan_lines(plan(many, tuple(range(12))), columns))
    assert lines[1].startswith("features: 'f0', 'f1', ")
    assert lines[1].endswith("'f7', … (20 in all)")
    assert lines[2] == "12 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … (12 in all)"
    assert lines[3] == (
        "1 of 40 rows labelled; clients without labels: 'c1', 'c2', 'c3', 'c4', 'c5', … (9 in all)"
    )


def test_other_names_are_told_apart() -> None:
    columns = {"a": ["u", "v", "w"], "b": None, "c": ["x", "y", "z"], "d": ("u", "v", "w")}
    lines = list(plan_lines(plan(dict.fromkeys(columns, 1), ("k",)), columns))
    assert lines[1:4] == [
        "features of 'a', 'd': 'u', 'v', 'w'",
        "features of 'c': 'x', 'y', 'z'",
        "1 class: 'k'",
    ]


def test_one_is_not_many() -> None:
    tiny = Plan(
        Parameters(classes=(0,), k=1, hamming="masked", scale="none"),
        {"a": ClientData(np.ones((1, 1)), np.zeros(1, dtype=np.int64))},
        {"all": ("a",)},
    )
    assert list(plan_lines(tiny))[:3] == [
        "1 client, 1 row, 1 feature",
        "1 class: 0",
        "1 of 1 row labelled",
    ]


def test_what_changes_the_result_is_announced() -> None:
    shown = plan({"a": 2, "b": 1, "c": 1, "d": 0}, (0, 1))
    assert not any("private" in line or "weigh" in line for line in plan_lines(shown))
    balanced = replace(shown, params=replace(shown.params, class_weight="balanced", threshold=3))
    lines = list(plan_lines(balanced))
    assert "labels weigh 1/N with N labels of their class, which the server does not learn" in lines
    assert "goes on without clients that drop out, down to 3" in lines
    scaled = replace(shown, params=replace(shown.params, scale="client"))
    assert "features are scaled by each client for itself" in list(plan_lines(scaled))
    noise = replace(shown.params, privacy=LabelPrivacy(2, 1e-6, 3), validation="none")
    private = replace(shown, params=noise)
    assert (
        "labels are (2, 1e-06)-differentially private while the noise of 3 clients is unknown to "
        "whoever looks"
    ) in list(plan_lines(private))
    response = replace(shown.params, privacy=RandomizedResponse(3), validation="none")
    randomised = replace(shown, params=response)
    (line,) = [line for line in plan_lines(randomised) if "private" in line]
    assert line.startswith("every client randomises its labels, which are 3-differentially private")


def test_a_dropout_is_one_sentence_about_who_when_and_what_that_means() -> None:
    dropouts = [Dropout("north", "hamming", False), Dropout("east", "labels", True)]
    told = replace(dropouts[0], reason=Reason(Code.FAULTY, "sends nonsense"))
    one, two, three = dropout_lines([*dropouts, told])
    assert "'hamming' (the server found it at fault: sends nonsense): to the others" in three
    assert one == f"north dropped out before the end of the step 'hamming': {dropouts[0].effect}."
    assert two == f"east dropped out before the end of the step 'labels': {dropouts[1].effect}."
