"""Groups of clients: each a federation of its own, results in the order of the clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError, PrivacyWarning, TooFewParties
from xclp_crypto.rng import SeededRng
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.files.federation import load_federation
from xclp_lp.parameters import Arguments
from xclp_lp.plan import checked_groups
from xclp_lp.summary import plan_lines

SETTINGS = {
    "preset": "paper",
    "n_bits": 64,
    "k": 2,
    "alpha": 0.9,
    "hamming": "masked",
    "random_state": 0,
}
NAMES = tuple("abcdefg")


def example(clients: int = 7) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    rng = np.random.default_rng(1)
    centres = 3 * rng.standard_normal((3, 4))
    Xs, ys = [], []
    for n in rng.integers(4, 9, clients):
        of = rng.integers(0, 3, n)
        Xs.append(centres[of] + rng.standard_normal((n, 4)))
        ys.append(np.where(np.arange(n) < 2, of, -1))
    return Xs, ys


def fit(
    groups: Any, *, threshold: int | None = None, **options: Any
) -> CrossClientLabelPropagation:
    Xs, ys = example()
    estimator = CrossClientLabelPropagation(
        **SETTINGS, classes=[0, 1, 2], client_names=NAMES, groups=groups, threshold=threshold
    )
    return estimator.fit(Xs, ys, **options)


def test_each_group_is_a_federation_of_its_own_and_results_are_in_order() -> None:
    groups = ["x", "y", "x", "y", "x", "y", "y"]
    whole = fit(groups)
    Xs, ys = example()
    total_bytes, total_rounds = 0, []
    assert whole.groups_ == {"x": ("a", "c", "e"), "y": ("b", "d", "f", "g")}
    for own in whole.groups_.values():
        at = [NAMES.index(c) for c in own]
        alone = CrossClientLabelPropagation(**SETTINGS, classes=[0, 1, 2], client_names=own)
        alone.fit([Xs[i] for i in at], [ys[i] for i in at])
        for i, labels, omega in zip(at, alone.transduction_, alone.confidence_, strict=True):
            assert whole.transduction_[i].tolist() == labels.tolist()
            assert whole.confidence_[i].tolist() == omega.tolist()
        total_bytes += alone.cost_.total_bytes
        total_rounds.append(alone.cost_.rounds)
    assert whole.cost_.total_bytes == total_bytes
    assert whole.cost_.rounds == max(total_rounds)
    assert whole.contributors_ == NAMES
    assert not any("a → b" in link or "b → a" in link for link in whole.cost_.bytes_by_link())
    assert fit(None).groups_ == {}


def test_one_group_is_the_whole_federation() -> None:
    one, none = fit(1), fit(None)
    for a, b in zip(one.transduction_, none.transduction_, strict=True):
        assert a.tolist() == b.tolist()


def test_dropped_clients_are_those_of_their_group() -> None:
    groups = ["x", "y", "x", "y", "x", "y", "y"]
    with pytest.warns(PrivacyWarning, match="only a and e are in the sums"):
        found = fit(groups, threshold=2, drop={"c": "row sums", "b": "hamming"})
    assert {(d.client, d.contributed, d.in_graph) for d in found.dropouts_} == {
        ("c", False, True),
        ("b", False, False),
    }
    assert found.contributors_ == ("a", "d", "e", "f", "g")
    assert (found.transduction_[1] == -1).all()
    assert (found.transduction_[3] != -1).any()


def test_groups_share_no_randomness() -> None:
    fit(2, rng=SeededRng(0))  # a SeededRng refuses to give one child twice
    assert fit(2, rng=SeededRng(0)).groups_ == fit(2, rng=SeededRng(1)).groups_


def test_random_groups_are_of_equal_sizes_and_fixed_by_the_random_state() -> None:
    names = [f"c{i}" for i in range(23)]
    found = checked_groups(4, names, 5)
    assert sorted(len(own) for own in found.values()) == [5, 6, 6, 6]
    assert sorted(found) == [f"group-{i}" for i in range(4)]
    assert sorted(c for own in found.values() for c in own) == sorted(names)
    assert all(list(own) == sorted(own, key=names.index) for own in found.values())
    assert checked_groups(4, names, 5) == found
    assert checked_groups(4, names, 6) != found
    assert checked_groups(np.int64(1), names) == {"group-0": tuple(names)}
    assert checked_groups(np.array(["x"] * 23), names) == {"x": tuple(names)}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (0, r"groups must be in 1 … 3, so that each of 7 clients has company, got 0"),
        (4, r"groups must be in 1 … 3"),
        (True, "groups must be a number, or a name for each client, got True"),
        ("xyxyxyx", "groups must be a number"),
        (2.0, "groups must be a number"),
        (["x"] * 6 + [None], "the group of client 'g' must be a name, got None"),
        (["x"] * 6 + [" "], "the group of client 'g' has no name"),
        (["x"] * 6, "groups has 6 names for 7 clients"),
        (["x"] * 6 + ["y"], "group 'y' has only the client 'g'; each needs 2 or more"),
    ],
)
def test_impossible_groups_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        fit(groups)


def test_what_a_group_lacks_is_said_with_its_name() -> None:
    Xs, ys = example()
    groups = ["x", "y", "x", "y", "x", "y", "y"]

    def refused(kind: type[Exception], **changes: Any) -> str:
        estimator = CrossClientLabelPropagation(
            **SETTINGS | changes, classes=[0, 1, 2], groups=groups
        )
        with pytest.raises(kind) as caught:
            estimator.fit(Xs, ys)
        return str(caught.value)

    few = sum(len(x) for x in Xs[::2][:3])
    assert "group 'x': k must be smaller" in refused(ParameterError, k=few)
    assert "group 'x': threshold needs 4 clients" in refused(ParameterError, threshold=4)
    for i in (1, 3, 5, 6):
        ys[i][:] = -1
    assert refused(DataError) == "group 'y': no client has a label, so no label can spread"


def write(folder: Path, fields: str = "", groups: str = "") -> Path:
    Xs, ys = example(4)
    text = "[parameters]\npreset = 'paper'\nn_bits = 64\nk = 2\nhamming = 'plain'\n"
    text += f"random_state = 1\nthreshold = 2\n{groups}\n"
    for i, name in enumerate("abcd"):
        np.save(folder / f"{name}.npy", Xs[i])
        np.save(folder / f"{name}_y.npy", ys[i])
        text += f"[clients.{name}]\nfeatures = '{name}.npy'\nlabels = '{name}_y.npy'\n"
        text += fields.split(";")[i] + "\n" if fields else ""
    path = folder / "federation.toml"
    path.write_text(text)
    return path


def test_a_federation_file_names_groups_or_their_number(tmp_path: Path) -> None:
    named = load_federation(write(tmp_path, "group='x';group='y';group='x';group='y'"))
    assert named.plan().groups == {"x": ("a", "c"), "y": ("b", "d")}
    assert len(load_federation(write(tmp_path, groups="groups = 2")).plan().groups) == 2


@pytest.mark.parametrize(
    ("fields", "groups", "message"),
    [
        ("group='x';group='y';;group='y'", "", r"\[clients.c\]: group is missing; others have one"),
        ("", "groups = ['x', 'y', 'x', 'y']", "groups must be a number"),
        ("group='x';group='y';group='x';group='y'", "groups = 2", "leave out groups"),
        ("group=1;group=1;group=1;group=1", "", "group must be text"),
    ],
)
def test_groups_of_a_file_that_do_not_fit(
    tmp_path: Path, fields: str, groups: str, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        load_federation(write(tmp_path, fields, groups))


def test_an_error_says_in_which_group_it_was() -> None:
    pairs = ["x", "x", "y", "y", "y", "y", "y"]
    with pytest.warns(PrivacyWarning), pytest.raises(TooFewParties) as caught:
        fit(pairs, drop={"b": "hamming"}, threshold=2)
    assert caught.value.__notes__ == ["in the group 'x' of a, b; no group's results are kept"]


def test_progress_names_the_group() -> None:
    reports: list[Any] = []
    fit(["x", "y", "x", "y", "x", "y", "y"], progress=reports.append)
    assert {r.step for r in reports if r.activity == "hashes"} == {"x: hashing", "y: hashing"}
    assert {r.party for r in reports if r.step == "y: hashing"} == {"b", "d", "f", "g"}


def test_only_random_groups_without_a_state_differ_from_run_to_run() -> None:
    def draws(groups: Any, random_state: int | None) -> bool:
        return Arguments(groups=groups, random_state=random_state).draws_groups

    assert draws(2, None)
    assert draws(np.int64(2), None)
    assert not any([draws(2, 0), draws(1, None), draws(None, None), draws(["x", "y"], None)])


def test_who_is_in_which_group_is_shown() -> None:
    Xs, ys = example()
    lines = list(
        plan_lines(CrossClientLabelPropagation(k=2, groups=2, random_state=0).plan(Xs, ys))
    )
    of = checked_groups(2, [f"client-{i}" for i in range(7)], 0)
    assert f"group-1: {', '.join(map(repr, of['group-1']))}" in lines
