"""Clients that drop out or are cut off, in every operation of a session (paper, Robustness)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest
from protocol_runs import assert_blames
from session_runs import (
    SMALL,
    blobs,
    check_outcome,
    expected,
    expected_labels,
    federation,
    random_case,
)

from xclp_crypto.errors import Excluded, ParameterError, ProtocolError, Stalled, TooFewParties
from xclp_crypto.protocols.hamming.interface import DistanceShares
from xclp_crypto.protocols.secure_sum.double_masks import SumReady
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.protocols.setup.channel import SealedIO
from xclp_crypto.testing import run
from xclp_crypto.transport.driver import Role
from xclp_crypto.transport.simulate import Delivery, Faults, Outcome
from xclp_lp.dropouts import STEPS, Contradiction, Dropout
from xclp_lp.files.results import write_server_record
from xclp_lp.labelling import Participation
from xclp_lp.labels import UNLABELLED
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction

CLIENTS = ("a", "b", "c", "d")
DATA = blobs({"a": 4, "b": 5, "c": 3, "d": 4}, labelled=2, seed=1047)
TWO = replace(SMALL, threshold=2)  # else three clients must all stay
THREE = blobs({"a": 4, "b": 5, "c": 3}, labelled=2, seed=302)
UPLOADS = {  # by back end, what a client sends last for H
    "plain": "Sealed[PlainBits]",
    "masked": "Sealed[DistanceShares]",
}
VARIANTS = {
    "plain": replace(SMALL, hamming="plain"),
    "masked": SMALL,
    "balanced": replace(SMALL, hamming="plain", class_weight="balanced"),
}


def everywhere_with(**who: str) -> pytest.MarkDecorator:
    """Cases of a test that goes through all operations of one client: who, by variant."""
    cases = [pytest.param(VARIANTS[name], c, id=f"{c}-{name}") for name, c in who.items()]
    return pytest.mark.parametrize(("params", "who"), cases)


Sent = dict[str, set[str]]
"""By party, the types of the messages that it sent to the server."""


def run_and_watch(
    make: Callable[[], dict[str, Role]],
    dropouts: Mapping[str, int | str] | None = None,
    away: Mapping[str, int | str] | None = None,
) -> tuple[Outcome, Sent]:
    sent: Sent = {}

    def watch(delivery: Delivery) -> bytes:
        if delivery.receiver == SERVER:
            sent.setdefault(delivery.sender, set()).add(delivery.message)
        return delivery.payload

    return run(make, Faults(dropouts or {}, away or {}, watch)), sent


def dropout(client: str, sent: Sent, params: Parameters) -> Dropout | None:
    """What the server has to say of a client that dropped out after these messages."""
    messages = sent.get(client, set())
    steps = {
        "setup": ["Hello", "Sealed[Received]", "Sealed[Confirm]"],
        "hashing": ["Sealed[Prepared]"],
        "hamming": [UPLOADS[str(params.hamming)]],
        "row sums": ["Sealed[SumReady]", "Sealed[RowSumsUpload]", "Sealed[SumReveal]"],
        "labels": ["Sealed[Labelled]"],
    }
    for step, needed in steps.items():
        if not messages.issuperset(needed):
            return Dropout(client, step, "Sealed[RowSumsUpload]" in messages)
    return None


def assert_same(found: Prediction, plain: Prediction) -> None:
    assert found.class_ids.tolist() == plain.class_ids.tolist()
    assert found.distribution == pytest.approx(plain.distribution, abs=1e-7)
    assert found.confidence == pytest.approx(plain.confidence, abs=1e-6)


def everywhere(make: Callable[[], dict[str, Role]], client: str) -> Iterator[int]:
    """All operations of a client."""
    yield from range(run(make).raise_errors().operations[client])


def test_dropping_out_matters_in_the_data_of_these_tests() -> None:
    """The three outcomes differ, so that the tests below can tell them apart."""
    for data in (DATA, THREE):
        everybody = tuple(data)
        for who in everybody:
            others = tuple(c for c in everybody if c != who)
            full = expected_labels(data, SMALL, everybody, everybody)
            silent = expected_labels(data, SMALL, everybody, others)
            absent = expected_labels(data, SMALL, others, others)
            as_lists = [[x[c].tolist() for c in others] for x in (full, silent, absent)]
            assert as_lists[0] != as_lists[1] != as_lists[2] != as_lists[0], who
            # Its own labels tell as well whether they were counted.
            assert full[who].tolist() != silent[who].tolist(), who


EVENTS = {
    *(("setup", False), ("hashing", False), ("hamming", False)),
    *(("row sums", False), ("row sums", True), ("labels", True)),
}
"""In which steps a client drops out, and whether its labels are counted."""


@everywhere_with(masked="d", plain="b", balanced="c")
def test_a_dropout_changes_what_the_paper_says(params: Parameters, who: str) -> None:
    """Absent before H; only unlabelled after it; no effect once the sums have its upload."""
    make = federation(DATA, params)
    others = tuple(c for c in CLIENTS if c != who)
    seen = set()
    for after in everywhere(make, who):
        outcome, sent = run_and_watch(make, dropouts={who: after})
        assert outcome.dropouts == (who,)
        assert not outcome.errors, (after, outcome.errors)
        found = dropout(who, sent, params)
        graph: Participation = outcome.results[SERVER]
        assert graph.dropouts == (() if found is None else (found,))
        in_time = UPLOADS[str(params.hamming)] in sent.get(who, set())
        assert tuple(graph.sizes) == (CLIENTS if in_time else others)
        counted = found is None or found.contributed
        assert graph.contributors == (CLIENTS if counted else others)
        plain = expected(DATA, params, tuple(graph.sizes), graph.contributors)
        missing = {d.client: d.in_graph for d in graph.dropouts if not d.contributed}
        for client in others:
            assert_same(outcome.results[client], plain[client])
            told = outcome.results[client].dropouts
            assert {d.client: d.in_graph for d in told if not d.contributed} == missing
            assert len(told) == len(missing)
        seen.add((found.step, counted) if found else None)
    assert seen == EVENTS


@everywhere_with(masked="a", plain="c")
def test_a_client_that_comes_back_finds_its_labels(params: Parameters, who: str) -> None:
    make = federation(DATA, params)
    others = tuple(c for c in CLIENTS if c != who)
    seen = set()
    for after in everywhere(make, who):
        outcome, _ = run_and_watch(make, away={who: after})
        assert outcome.returned == (who,), after
        assert {*outcome.errors} <= {who}
        graph: Participation = outcome.results[SERVER]
        plain = expected(DATA, params, tuple(graph.sizes), graph.contributors)
        for client in others:
            assert_same(outcome.results[client], plain[client])
        found = next((d for d in graph.dropouts if d.client == who), None)
        if who in graph.sizes:
            assert_same(outcome.results[who], plain[who])
            seen.add((found.step if found else "", who in graph.contributors))
        else:
            assert tuple(graph.sizes) == others
            assert found is not None
            error = outcome.errors[who]
            assert isinstance(error, Excluded), (after, error)
            seen.add((found.step, False))
    assert seen == EVENTS


def test_a_server_that_is_away_holds_everybody_up() -> None:
    """All wait for it, except who heard something first: no other client answers it in time."""
    make = federation(THREE, TWO)
    whole = []
    for after in everywhere(make, SERVER):
        outcome, _ = run_and_watch(make, away={SERVER: after})
        check_outcome(outcome, THREE, TWO)
        assert outcome.returned == (SERVER,)
        assert SERVER in outcome.results
        whole.append(not outcome.errors and not outcome.results[SERVER].dropouts)
    # It had sent their columns to one or two of the three.
    assert whole.count(False) == 2


@pytest.mark.parametrize("hamming", ["plain", "masked"])
def test_without_the_server_clients_stall_or_have_the_right_labels(hamming: str) -> None:
    params = replace(TWO, hamming=hamming)
    make = federation(THREE, params)
    finished = []
    for after in everywhere(make, SERVER):
        outcome, _ = run_and_watch(make, dropouts={SERVER: after})
        check_outcome(outcome, THREE, params)
        finished.append(len(outcome.results))
        for error in outcome.errors.values():
            assert isinstance(error, Stalled)
            assert error.waiting_for == (SERVER,)
    # Before the second and the third block, and before it hears that they arrived.
    assert finished == [0] * (after - 2) + [1, 2, 3]


# Several at different times


def test_two_that_drop_out_in_different_steps() -> None:
    """With a threshold of two, every pair of steps has the effect that the paper states."""
    params = replace(SMALL, hamming="plain", threshold=2)
    make = federation(DATA, params)
    for first in STEPS[:-1]:  # `SMALL` measures nothing
        for second in STEPS[:-1]:
            earlier = STEPS.index(first) < STEPS.index(second)
            pair = ("a", "c") if earlier else ("d", "b")
            drop = dict(zip(pair, (first, second), strict=True))
            outcome, sent = run_and_watch(make, dropouts=drop)
            assert not outcome.errors, (drop, outcome.errors)
            graph: Participation = outcome.results[SERVER]
            found = [dropout(c, sent, params) for c in pair]
            assert set(graph.dropouts) == set(found)
            assert [d.step for d in graph.dropouts] == sorted(
                (d.step for d in graph.dropouts), key=STEPS.index
            )
            early = STEPS[:3]  # before all distances are known
            assert tuple(graph.sizes) == tuple(c for c in CLIENTS if drop.get(c) not in early)
            assert graph.contributors == tuple(
                c for c in CLIENTS if drop.get(c, "labels") == "labels"
            )
            plain = expected(DATA, params, tuple(graph.sizes), graph.contributors)
            for client in {*CLIENTS} - {*pair}:
                assert_same(outcome.results[client], plain[client])


@pytest.mark.parametrize("pair", [("a", "c"), ("b", "a")])
def test_too_few_clients_stop_the_session(pair: tuple[str, str]) -> None:
    make = federation(THREE, TWO)
    operations = run(make).raise_errors().operations
    (left,) = {*THREE} - {*pair}
    stopped = 0
    for after in range(operations[pair[0]]):
        drop = {pair[0]: after, pair[1]: min(after, operations[pair[1]] - 1)}
        outcome, sent = run_and_watch(make, dropouts=drop)
        check_outcome(outcome, THREE, TWO)
        if all("Sealed[SumReveal]" in sent.get(c, set()) for c in pair):
            assert left in outcome.results
        else:
            assert isinstance(outcome.errors[SERVER], TooFewParties)
            assert left not in outcome.results
            stopped += 1
    assert stopped > 10


@pytest.mark.parametrize("threshold", [3, 4])
def test_below_the_threshold_nothing_is_revealed(threshold: int) -> None:
    """No client hands out a share, so the server holds masked uploads and no client has labels."""
    params = replace(SMALL, threshold=threshold)
    make = federation(DATA, params)
    who = CLIENTS[threshold - 1 :]
    for step in ("setup", "hashing", "hamming", "row sums", "share", "upload"):
        outcome, sent = run_and_watch(make, dropouts=dict.fromkeys(who, step))
        error = outcome.errors[SERVER]
        assert isinstance(error, TooFewParties)
        assert (error.present, error.needed) == (threshold - 1, threshold)
        assert "nothing was revealed" in str(error)
        assert not outcome.results
        assert not any("Sealed[SumReveal]" in messages for messages in sent.values())


@pytest.mark.parametrize("threshold", [2, 3, None])
def test_the_threshold_is_that_of_the_parameters(threshold: int | None) -> None:
    """By default a majority of those invited, and at least three, at every step."""
    params = replace(SMALL, hamming="plain", threshold=threshold)
    make = federation(DATA, params)
    late = run(make, Faults(dropouts={"a": "upload", "b": "upload"}))
    early = run(make, Faults(dropouts={"a": "hamming", "b": "hamming"}))
    assert (SERVER in late.results) is (threshold == 2)
    assert (SERVER in early.results) is (threshold == 2)


def test_a_server_that_goes_on_below_the_threshold_is_named() -> None:
    loose = replace(TWO)
    object.__setattr__(loose, "agreement", replace(SMALL, threshold=3).agreement)
    strict = replace(SMALL, threshold=3)
    params = dict.fromkeys(THREE, strict) | {SERVER: loose}
    outcome = run(federation(THREE, params), Faults(dropouts={"a": "hamming"}))
    for client in ("b", "c"):
        words = "goes on with 2 clients, below the threshold"
        assert_blames(outcome.errors[client], (SERVER,), words)


def test_without_the_only_client_with_labels_nothing_can_spread() -> None:
    data = blobs({"a": 4, "b": 5, "c": 3}, labelled=0)
    data["a"].class_ids[:2] = [0, 1]
    make = federation(data, TWO)
    messages = set()
    for after in everywhere(make, "a"):
        outcome, sent = run_and_watch(make, dropouts={"a": after})
        check_outcome(outcome, data, TWO)
        if SERVER in outcome.errors:
            assert isinstance(outcome.errors[SERVER], ProtocolError)
            messages.add(str(outcome.errors[SERVER]))
            assert UPLOADS["masked"] not in sent.get("a", set())
        elif "Sealed[RowSumsUpload]" not in sent.get("a", set()):
            for name in ("b", "c"):
                assert (outcome.results[name].class_ids == UNLABELLED).all()
                assert (outcome.results[name].confidence == 0).all()
    assert messages == {
        f"no client that is left has a labelled row, so nothing can spread; dropped "
        f"out: a in {step!r}"
        for step in ("setup", "hashing", "hamming")
    }


def test_k_shrinks_when_dropouts_leave_fewer_rows() -> None:
    data = blobs({"a": 4, "b": 2, "c": 1}, labelled=1)
    params = replace(TWO, k=5)
    make = federation(data, params)
    sizes = set()
    for after in everywhere(make, "a"):
        outcome, _ = run_and_watch(make, dropouts={"a": after})
        check_outcome(outcome, data, params)
        if SERVER in outcome.results:
            graph: Participation = outcome.results[SERVER]
            sizes.add(tuple(graph.sizes))
            plain = expected(data, params, tuple(graph.sizes), graph.contributors)
            for name in ("b", "c"):
                assert_same(outcome.results[name], plain[name])
        else:  # it dropped out so early that k was still compared with the rows announced
            assert isinstance(outcome.errors[SERVER], ParameterError)
            assert "k = 5, rows = 3" in str(outcome.errors[SERVER])
    assert sizes == {("b", "c"), ("a", "b", "c")}


# What is said


@pytest.mark.parametrize(
    ("step", "contributed", "words"),
    [
        ("setup", False, ["as if it had never taken part", "not in the graph", "no labels"]),
        ("hashing", False, ["as if it had never taken part"]),
        ("hamming", False, ["as if it had never taken part"]),
        ("row sums", False, ["points are in the graph", "labels are not counted", "comes back"]),
        ("row sums", True, ["labels are counted", "nothing changes for the others", "comes back"]),
        ("labels", True, ["labels are counted", "nothing changes for the others", "comes back"]),
    ],
)
def test_a_dropout_says_what_it_means(step: str, contributed: bool, words: list[str]) -> None:
    effect = Dropout("a", step, contributed).effect
    assert all(word in effect for word in words)


def test_random_cases_differ() -> None:
    cases = [random_case(seed) for seed in range(40)]
    assert {len(data) for data, _ in cases} == {3, 4, 5, 6, 7, 8}
    assert {params.hamming for _, params in cases} == {"plain", "masked", "rlwe"}
    assert {params.class_weight for _, params in cases} == {"sqrt", "balanced", "none"}
    assert {params.threshold for _, params in cases} >= {None, 2, 3}


@pytest.mark.parametrize(
    ("step", "message", "field", "at"),
    [
        ("hashing", SumReady, "have", 2),  # of its neighbours a, b and c
        ("hamming", DistanceShares, "complete", 2),
        ("row sums", SumReady, "have", 2),
    ],
)
def test_who_says_that_nothing_came_from_another_is_named_with_it(
    monkeypatch, tmp_path, step, message, field, at
):
    honest = SealedIO.send

    async def send(io, to, sent):
        if io.name == "d" and io.current_step.startswith(step) and isinstance(sent, message):
            said = getattr(sent, field).copy()
            said[at] = False  # about c
            sent = replace(sent, **{field: said})
        await honest(io, to, sent)

    monkeypatch.setattr(SealedIO, "send", send)
    params = replace(SMALL, scale="shared") if step == "hashing" else SMALL
    outcome = run(federation(DATA, params))
    found = outcome.results[SERVER]
    assert found.contradictions == (Contradiction(step, "d", "c"),)
    write_server_record(tmp_path, found, outcome.cost, ["other"])
    written = json.loads((tmp_path / "server-cost.json").read_text())
    assert written["contradictions"] == [{"step": step, "client": "d", "other": "c"}]
    assert "d says that nothing came from c" in written["warnings"][1]
    assert found.doubts == (written["warnings"][1],)
