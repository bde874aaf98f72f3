"""Old and new rows, of which the server computes the new distances only: as a session of all."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from protocol_runs import assert_blames
from session_runs import SMALL, Data, blobs, expected, federation
from sklearn.exceptions import NotFittedError
from test_later import expected as expected_later
from test_later import fitted, later

from xclp_crypto.errors import DataError, ParameterError, ProtocolError
from xclp_crypto.privacy import LabelPrivacy
from xclp_crypto.protocols.hamming import masked
from xclp_crypto.protocols.hamming.between import Between
from xclp_crypto.protocols.hamming.interface import Distances
from xclp_crypto.protocols.hamming.masked import Masked
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import every_dropout, run
from xclp_crypto.transport.driver import Role
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.kept import Kept, KeptDistances
from xclp_lp.later import require_same_session
from xclp_lp.messages import Introduction, Recalled
from xclp_lp.parameters import Parameters
from xclp_lp.scaling import Moments
from xclp_lp.session import ClientData
from xclp_lp.update import joined, update_client_role, update_server_role

ROWS = blobs({"a": 12, "b": 2, "c": 12, "d": 12}, labelled=3, seed=4)
SHOWN = {"a": 9, "b": 0, "c": 12, "d": 8}
"""How many rows of each come first."""


def cut(data: Data, sizes: Mapping[str, int], *, first: bool) -> Data:
    halves = {c: slice(None, sizes[c]) if first else slice(sizes[c], None) for c in data}
    return {
        c: ClientData(own.vectors[halves[c]], own.class_ids[halves[c]]) for c, own in data.items()
    }


OLD, NEW = cut(ROWS, SHOWN, first=True), cut(ROWS, SHOWN, first=False)


def began(params: Parameters, old: Data = OLD) -> tuple[dict[str, Kept], KeptDistances]:
    """What the parties keep of a session."""

    def make() -> dict[str, Role]:
        roles = federation(old, params)()
        return roles | {SERVER: partial(roles[SERVER], keep=True)}

    results = run(make).raise_errors().results
    return {c: results[c].kept for c in old}, results[SERVER].kept


def update(
    params: Parameters, kept: Mapping[str, Kept], distances: KeptDistances, new: Data = NEW
) -> Callable[[], dict[str, Role]]:
    """A factory of the roles that label old and new rows."""

    def make() -> dict[str, Role]:
        rng = SeededRng(1)
        shared: dict[str, Any] = {"params": params, "invited": tuple(new)}
        roles: dict[str, Role] = {
            c: partial(update_client_role, data=own, kept=kept.get(c), rng=rng.child(c), **shared)
            for c, own in new.items()
        }
        roles[SERVER] = partial(update_server_role, kept=distances, rng=rng.child(SERVER), **shared)
        return roles

    return make


def scaled(params: Parameters, kept: Mapping[str, Kept], data: Data) -> Data:
    """The rows as the session scaled them."""
    moments = next(iter(kept.values())).own.moments
    if moments is None:
        return data
    return {c: ClientData(moments.scaled(own.vectors), own.class_ids) for c, own in data.items()}


def assert_same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for c, own in wanted.items():
        assert found[c].class_ids.tolist() == own.class_ids.tolist(), c
        assert np.allclose(found[c].distribution, own.distribution, atol=1e-6), c


@pytest.mark.parametrize(
    "options",
    [
        {"hamming": "rlwe", "class_weight": "sqrt", "validation": "leave-one-out"},
        {"hamming": "masked", "scale": "shared", "gamma": 3.0},
        {"hamming": "plain", "ties": "lowest-index", "client_prior": "own"},
    ],
)
def test_labels_are_those_of_a_session_of_all_rows(options: dict[str, Any]) -> None:
    params = replace(SMALL, **options)
    kept, distances = began(params)
    outcome = run(update(params, kept, distances)).raise_errors()
    data, plain = scaled(params, kept, ROWS), replace(params, scale="none")
    whole = run(federation(data, plain)).raise_errors()
    clients = tuple(ROWS)
    assert outcome.results[SERVER] == whole.results[SERVER]
    for c in clients:
        assert outcome.results[c].class_ids.tolist() == whole.results[c].class_ids.tolist()
        assert np.array_equal(outcome.results[c].distribution, whole.results[c].distribution)
        assert np.array_equal(outcome.results[c].confidence, whole.results[c].confidence)
        found, wanted = outcome.results[c].validation, whole.results[c].validation
        assert (found is None) == (wanted is None) == (not params.validated)
        assert found is None or np.array_equal(found.by_confidence, wanted.by_confidence)
        assert np.array_equal(outcome.results[c].kept.sums, whole.results[c].kept.sums)
    assert_same(outcome.results, expected(data, plain, clients, clients))


def test_updates_follow_each_other_while_clients_come_and_go() -> None:
    params = replace(SMALL, scale="shared", hamming="plain")
    start = {c: OLD[c] for c in "abd"}
    kept, distances = began(params, start)
    first = {"a": NEW["a"], "c": OLD["c"], "d": NEW["d"]}  # b is away, c is new
    results = run(update(params, kept, distances, first)).raise_errors().results
    assert list(results[SERVER].sizes) == ["a", "c", "d"]
    then = {c: results[c].kept for c in "acd"}
    last = blobs({"a": 2, "c": 0, "d": 3, "e": 4}, labelled=1, seed=7)
    outcome = run(update(params, then, results[SERVER].kept, last)).raise_errors()
    together = {
        c: ClientData(
            np.vstack([x.vectors for x in parts]), np.concatenate([x.class_ids for x in parts])
        )
        for c, parts in {
            "a": (ROWS["a"], last["a"]),
            "c": (ROWS["c"], last["c"]),
            "d": (ROWS["d"], last["d"]),
            "e": (last["e"],),
        }.items()
    }
    data = scaled(params, kept, together)
    assert_same(outcome.results, expected(data, replace(params, scale="none"), "acde", "acde"))
    kept = {c: outcome.results[c].kept for c in "acde"}
    vectors = {c: own.vectors for c, own in NEW.items() if c in "acd"} | {"e": np.ones((1, 5))}
    labelled = run(later(params, kept, vectors)).raise_errors().results
    assert_same(labelled, expected_later(params, kept, list("acde"), list("acde"), vectors))


@pytest.mark.parametrize("hamming", ["plain", "masked", "rlwe"])
def test_without_new_rows_old_ones_get_labels_without_those_of_clients_that_left(
    hamming: str,
) -> None:
    params = replace(SMALL, hamming=hamming)
    kept, distances = began(params)
    nothing = cut(NEW, dict.fromkeys(NEW, 0), first=True)
    outcome = run(update(params, kept, distances, {c: nothing[c] for c in "acd"}))
    assert_same(outcome.raise_errors().results, expected(OLD, params, "acd", "acd"))


def test_keys_are_agreed_on_as_the_parameters_say() -> None:
    sent = {}
    for post_quantum in (True, False):
        params = replace(SMALL, post_quantum=post_quantum)
        outcome = run(update(params, *began(params))).raise_errors()
        steps = outcome.cost.bytes_sent.items()
        sent[post_quantum] = sum(count for traffic, count in steps if traffic.step == "setup")
    assert sent[True] > 10_000 > sent[False]  # a key of ML-KEM has 1,184 bytes


def test_a_dropout_takes_its_rows_or_its_labels_as_in_a_session() -> None:
    params = replace(SMALL, hamming="plain")
    kept, distances = began(params)
    steps = set()
    for case in every_dropout(update(params, kept, distances), ["d"]):
        server = case.outcome.results[SERVER]
        wanted = expected(ROWS, params, tuple(server.sizes), server.contributors)
        assert_same(case.outcome.results, {c: wanted[c] for c in "abc"})
        steps |= {(d.step, d.in_graph, d.contributed) for d in server.dropouts}
    assert {("hamming", False, False), ("row sums", True, False), ("labels", True, True)} <= steps


def test_what_both_sides_kept_must_be_of_the_same_session() -> None:
    kept, distances = began(SMALL)
    errors = run(update(SMALL, kept, replace(distances, session=bytes(32)))).errors
    assert_blames(errors[SERVER], ("a", SERVER), "the server kept the distances of another session")
    fewer = Distances(distances.distances.matrix[1:, 1:], distances.distances.sizes | {"a": 8})
    errors = run(update(SMALL, kept, replace(distances, distances=fewer))).errors
    assert_blames(errors[SERVER], ("a", SERVER), "other numbers of old rows of this client")
    older = fitted(SMALL, {c: own for c, own in OLD.items() if c != "b"})
    errors = run(update(SMALL, kept | {"c": older["c"]}, distances)).errors
    assert_blames(errors[SERVER], ("a", "c"), "they know different sessions")

    def mixed() -> dict[str, Role]:
        labelled = later(SMALL, kept, {c: own.vectors for c, own in NEW.items()})()
        return update(SMALL, kept, distances)() | {"a": labelled["a"]}

    assert isinstance(run(mixed).errors[SERVER], ProtocolError)
    noisy = replace(SMALL, privacy=LabelPrivacy(epsilon=2.0, delta=1e-5, noise_contributors=2))
    error = run(update(noisy, kept, distances)).errors["a"]
    assert isinstance(error, ParameterError)
    assert "would spend epsilon again" in str(error)


class Liar(Kept):
    """What a client kept that tells newcomers something else."""

    told: Introduction

    def introduction(self, moments: Moments | None) -> Introduction:
        return self.told


def lying(kept: Kept, told: Introduction) -> Kept:
    liar = Liar(**{f.name: getattr(kept, f.name) for f in fields(Kept)})
    object.__setattr__(liar, "told", told)
    return liar


@pytest.mark.parametrize("recalls_it_too", [False, True])
@pytest.mark.parametrize("what", ["predict", "update"])
def test_a_client_that_tells_a_newcomer_of_another_session_is_named(
    what: str, recalls_it_too: bool
) -> None:
    """The newcomer a is the first in the order, and b tells it."""
    kept, distances = began(SMALL, {c: own for c, own in OLD.items() if c != "a"})
    other = replace(kept["b"], session=bytes(32))
    kept["b"] = other if recalls_it_too else lying(kept["b"], other.introduction(None))
    vectors = {c: own.vectors for c, own in NEW.items()}
    make = later(SMALL, kept, vectors) if what == "predict" else update(SMALL, kept, distances)
    named = ("b", "c") if recalls_it_too else ("b", "a")
    assert_blames(run(make).errors[SERVER], named, "they know different sessions")


@pytest.mark.parametrize(("mean", "deviation"), [(1e308, 1.0), (0.0, 1e-308)])
def test_who_tells_of_moments_with_which_rows_overflow_is_named(
    mean: float, deviation: float
) -> None:
    params = replace(SMALL, scale="shared")
    kept = fitted(params, {c: own for c, own in OLD.items() if c != "a"})
    truth = kept["b"].introduction(kept["b"].own.moments)
    told = replace(truth, mean=truth.mean * 0 + mean, deviation=truth.mean * 0 + deviation)
    kept["b"] = lying(kept["b"], told)
    error = run(later(params, kept, {c: own.vectors for c, own in NEW.items()})).errors["a"]
    assert_blames(error, ("b",), "moments that no rows have")


def test_who_told_newcomers_is_named_even_if_it_is_silent_afterwards() -> None:
    session: Any = SimpleNamespace(numbers={"a": (0,), "b": (1,), "c": (1,), "d": (0,)})
    one, other = Recalled(bytes(32)), Recalled(bytes([1]) * 32)
    cases: tuple[tuple[dict[str, Recalled], bytes | None, tuple[str, ...]], ...] = (
        ({"a": other, "c": one}, None, ("b", "c", "a")),
        ({"a": other, "d": one}, None, ("b", "a", "d")),
        ({"a": other, "d": other}, one.digest, ("b", "a", SERVER)),
    )
    for known, by_server, named in cases:
        with pytest.raises(ProtocolError) as refused:
            require_same_session(session, known, by_server)
        assert_blames(refused.value, named)


@pytest.mark.parametrize("what", ["session", "predict", "update"])
def test_who_announces_more_rows_than_there_is_memory_for_is_named(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, distances = began(SMALL)
    make = {
        "session": federation(ROWS, SMALL),
        "predict": later(SMALL, kept, {c: own.vectors for c, own in NEW.items()}),
        "update": update(SMALL, kept, distances),
    }[what]
    enough = {"session": 5_800, "predict": 4_000, "update": 4_000}[what]  # for the server
    for party, memory in ((SERVER, 1_000), ("a", enough)):  # masks of 12 rows alone take 4,608
        pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": memory}
        monkeypatch.setattr(os, "sysconf", pages.__getitem__)
        error = run(make).errors[party]
        assert type(error) is DataError
        assert "rows that clients announce, most of them " in str(error)
        assert "'c' 12" in str(error)
        assert f"at {party}, which has 0.0 GB; use fewer rows" in str(error)


def test_distances_of_new_rows_that_contradict_each_other_are_refused() -> None:
    old = Distances(np.zeros((1, 1), dtype=np.uint16), {"a": 1})
    matrix = np.array([[3, 0, 5], [4, 6, 0]], dtype=np.uint16)
    found = Between(matrix, {"a": 1, "b": 1}, {"a": 2, "b": 1})
    with pytest.raises(ProtocolError) as refused:
        joined(old, found)
    assert_blames(refused.value, ("a", "b"), "contradictory")
    matrix[1, 1] = 5
    assert joined(old, found).matrix.tolist() == [[0, 3, 4], [3, 0, 5], [4, 5, 0]]


def test_a_client_whose_new_rows_have_other_weights_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parities are right, so only the Gram matrix of old and new rows together shows it."""
    rng = np.random.default_rng(2)
    data = {c: ClientData(rng.normal(size=(12, 40)), np.arange(12) % 4 - 1) for c in "acd"}
    kept, distances = began(SMALL, data)
    between, send = Masked.client_between, masked.send_block_shares

    async def weighing(self: Masked, session: Session, sizes: Any, rows: Any, *rest: Any) -> None:
        if session.io.name == "a":
            rows = rows.copy()
            rows[0, np.argmin(rows[0])] = 20
        await between(self, session, sizes, rows, *rest)

    async def sending(session: Session, sizes: Any, rows: Any, *rest: Any) -> None:
        await send(session, sizes, rows % 20, *rest)

    monkeypatch.setattr(Masked, "client_between", weighing)
    monkeypatch.setattr(masked, "send_block_shares", sending)
    new = cut(data, {"a": 1, "c": 0, "d": 0}, first=True)
    errors = run(update(SMALL, kept, distances, new)).errors
    assert_blames(errors[SERVER], ("a",), "not positive semidefinite, most of all for row 12")


def test_the_estimator_updates_groups_in_its_users_own_types() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    place = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])

    def rows(n: int, first: int) -> tuple[Any, Any]:
        true = rng.integers(0, 3, n)
        index = pd.RangeIndex(first, first + n)
        named = np.array(["one", "three", "two"], dtype=object)[true]
        x = pd.DataFrame(place[true] + rng.normal(size=(n, 2)), index, ["u", "v"])
        return x, pd.Series(named, index, name="kind")

    old, new = [rows(20, 0) for _ in range(6)], [rows(n, 100) for n in (8, 0, 5, 4, 2, 0)]
    xclp = CrossClientLabelPropagation(
        512, 5, hamming="plain", scale="none", groups=["x", "x", "x", "y", "y", "y"], random_state=0
    )
    xclp.fit([x for x, _ in old], [y.iloc[:6] for _, y in old], keep_distances=True)
    xclp.update([x[["v", "u"]] for x, _ in new], [None, *(y.iloc[:3] for _, y in new[1:])])
    together = [pd.concat([x, more]) for (x, _), (more, _) in zip(old, new, strict=True)]
    labels = [pd.concat([y[:6], z[:3]]) for (_, y), (_, z) in zip(old, new, strict=True)]
    labels[0] = labels[0][:6]
    whole = CrossClientLabelPropagation(**xclp.get_params()).fit(together, labels)
    for own, all_at_once in zip(xclp.transduction_, whole.transduction_, strict=True):
        assert own.index.equals(all_at_once.index)
        assert (own.name, own.tolist()) == ("kind", all_at_once.tolist())
    for own, given in zip(xclp.labelled_, labels, strict=True):
        assert own.sum() == len(given)
    assert xclp.predict([x for x, _ in new])[0].tolist() == new[0][1].tolist()
    with pytest.raises(DataError, match=r"'client-0': rows 100, .*, … of the index are in the res"):
        xclp.update([new[0][0], *[[]] * 5])
    other = new[0][0].add(1.0).reset_index(drop=True)
    with pytest.warns(UserWarning, match=r"'client-5': row 20 .* is all zero") as caught:
        xclp.update([other, *[[]] * 4, pd.DataFrame(0.0, [200], ["u", "v"])])
    assert caught[0].filename == __file__
    assert [len(own) for own in xclp.confidence_] == [36, 20, 25, 24, 22, 21]
    assert xclp.transduction_[4].index.equals(together[4].index)
    with pytest.raises(DataError, match="'four'"):
        xclp.update([new[0][0], *[[]] * 5], [["four"] * 8, *[None] * 5])
    with pytest.raises(DataError, match="3 features, the old ones 2"):
        xclp.update([np.ones((1, 3)), *[[]] * 5])
    with pytest.raises(ParameterError, match="keep_distances=True"):
        whole.update([new[0][0], *[[]] * 5])
    with pytest.warns(UserWarning, match="nor update"):
        stored = pickle.loads(pickle.dumps(xclp))  # noqa: S301 - our own
    with pytest.raises(NotFittedError, match="is secret"):
        stored.update([new[0][0], *[[]] * 5])
