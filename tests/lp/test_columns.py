"""Columns of S in blocks: what travels, how long it is, and that nothing is lost on the way."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from session_runs import SMALL, blobs, client, expected_labels, federation

from xclp_crypto import wire
from xclp_crypto.errors import DecodeError, EncodingOverflow, FaultyPeer, ParameterError
from xclp_crypto.fields import pack
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import encode_label_sums, label_sensitivity
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import deliveries, run, views
from xclp_crypto.transport.simulate import Faults, Simulation
from xclp_lp import influence as columns
from xclp_lp.influence import Layout, PartialScores, batches, block_columns, cut_block, reaches
from xclp_lp.labels import UNLABELLED, one_hot
from xclp_lp.messages import Geometry, Influence, Reach, Sensitivity, group_width
from xclp_lp.session import ClientData


def random_case(seed: int) -> tuple[NDArray[np.float32], sparse.csr_array, dict[str, Any]]:
    """Columns with the zeros of a graph of some components, that graph, and labelled rows."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    component = rng.integers(0, rng.integers(1, 8), n)
    together = component[:, None] == component
    S = (together * rng.random((n, n)) * 10.0 ** rng.integers(-12, 3, (n, n))).astype(np.float32)
    owner = rng.integers(0, 3, n)
    labelled = rng.random(n) < rng.choice([0.2, 0.7])
    owned = {c: np.flatnonzero(labelled & (owner == j)) for j, c in enumerate("abc")}
    return S, sparse.csr_array(together.astype(float)), {c: r for c, r in owned.items() if len(r)}


def layouts_of(graph: sparse.csr_array, owned: dict[str, NDArray[np.intp]]) -> dict[str, Layout]:
    return {c: Layout(groups, owned[c]) for c, groups in reaches(graph, owned).items()}


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 10**9), values=st.sampled_from([1, 30, 100, 1 << 23]))
def test_blocks_have_all_that_is_not_zero_and_the_sizes_that_both_ends_derive(
    seed: int, values: int
) -> None:
    S, graph, owned = random_case(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BLOCK_VALUES", values)
        n = len(S)
        width = block_columns(n)
        assert width == max(1, values // n)
        for c, layout in layouts_of(graph, owned).items():
            own = owned[c]
            assert layout.blocks == -(-len(own) // width)
            codes = np.random.default_rng(seed).integers(0, 4, len(own))
            codec = FixedPoint(40, 3)
            plain = PartialScores(layout, codes, 5)
            exact = PartialScores(layout, codes, 5, codec)
            seen = np.zeros(0, np.intp)
            for block in range(layout.blocks):
                picked = layout.columns(block)
                seen = np.concatenate([seen, picked])
                cut = cut_block(layout, block, S.T[own[picked]])
                assert len(cut) == layout.size(block) <= max(values, n)
                assert len(cut) == sum(
                    int((graph[:, [own[i]]].toarray() > 0).sum()) for i in picked
                )
                plain.add_block(block, cut)
                exact.add_block(block, cut)
            assert sorted(seen) == list(range(len(own)))
            wide = S[:, own].astype(np.float64)
            np.testing.assert_allclose(plain.scores(), wide @ one_hot(codes, 5), rtol=1e-14)
            encoded = encode_label_sums(wide, codes, 5, codec)
            assert (exact.scores() == codec.decode(encoded)).all()
            assert exact.sensitivity == pytest.approx(label_sensitivity(wide, codec), rel=1e-12)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**9), values=st.sampled_from([1, 60, 1 << 23]))
def test_batches_have_every_block_once_in_order_and_few_columns(seed: int, values: int) -> None:
    S, graph, owned = random_case(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BLOCK_VALUES", values)
        layouts = layouts_of(graph, owned)
        found = list(batches(layouts))
        assert [one for batch in found for one in batch] == [
            (c, block) for c, layout in layouts.items() for block in range(layout.blocks)
        ]
        sizes = [sum(len(layouts[c].columns(b)) for c, b in batch) for batch in found]
        assert all(0 < size <= block_columns(len(S)) for size in sizes)
        assert all(a + b > block_columns(len(S)) / 2 for a, b in pairwise(sizes))


def test_many_components_share_the_last_number() -> None:
    graph = sparse.csr_array(np.eye(9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MAX_GROUPS", 3)
        groups = reaches(graph, {"a": np.array([1, 2, 4, 5, 8])})["a"]
    assert groups.tolist() == [0, 1, 2, 0, 3, 3, 0, 0, 3]
    layout = Layout(groups, np.array([1, 2, 4, 5, 8]))
    assert [rows.tolist() for _, rows in layout.runs(0)] == [[1], [2], [4, 5, 8]]
    assert layout.size(0) == 1 + 1 + 9
    assert group_width(0) == 0
    assert [group_width(n) for n in (1, 2, 65535, 1 << 20)] == [1, 2, 16, 16]


@pytest.mark.parametrize("groups", [[0, 1, 1], [1, 2, 1], [0, 0, 0]])
def test_components_that_cannot_be_are_the_servers_fault(groups: list[int]) -> None:
    with pytest.raises(FaultyPeer, match="cannot reach") as caught:
        Layout(np.array(groups, np.uint16), np.array([0]))
    assert caught.value.parties == (SERVER,)


def test_sizes_and_strict_decoding() -> None:
    groups = np.array([0, 3, 1, 2, 3], np.uint16)
    for message, dims, size in (
        (Reach(groups, 3), {"rows": 5, "labelled": 3}, 2),
        (Reach(groups, 5), {"rows": 5, "labelled": 5}, 2),
        (Influence(np.arange(7, dtype=np.float32)), {"values": 7}, 28),
        (Influence(np.zeros(0, np.float32)), {"values": 0}, 0),
        (Geometry(1.5, 0.25, 4), {"rows": 4}, 16),
    ):
        body = wire.body(message)
        assert len(body) == type(message).size(**dims) == size
        back = wire.decode_body(type(message), body, **dims)
        for field in ("groups", "values"):
            if hasattr(message, field):
                assert (getattr(back, field) == getattr(message, field)).all()
                assert getattr(back, field).dtype == getattr(message, field).dtype
        for wrong in (body + b"\0", body[:-1]):
            with pytest.raises(DecodeError):
                wire.decode_body(type(message), wrong + b"\0" * (not body), **dims)
    seven = np.full(5, 7, np.uint16)
    with pytest.raises(DecodeError, match="7 components with 5 labelled rows"):
        wire.decode_body(Reach, pack(seven, 3), rows=5, labelled=5)
    beyond = (Geometry(4.5, 1.0, 4), Geometry(1.0, 4.5, 4), Geometry(-0.1, 1.0, 4))
    negative = Influence(-np.ones(1, np.float32))
    for impossible in (Reach(seven, 5), negative, Sensitivity(0.0), *beyond):
        with pytest.raises(ParameterError, match=f"^{type(impossible).__name__}: "):
            wire.encode(impossible)


def test_labels_do_not_change_what_fits() -> None:
    layout = Layout(np.ones(2, np.uint16), np.arange(2))
    codec = FixedPoint(40, 2)
    half = 0.6 * codec.max_abs
    for codes in ([0, 0], [0, 1]):
        scores = PartialScores(layout, np.array(codes), 2, codec)
        with pytest.raises(EncodingOverflow):
            scores.add_block(0, np.full(4, half, np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BLOCK_VALUES", 2)
        for codes in ([0, 0], [0, 1]):
            scores = PartialScores(layout, np.array(codes), 2, codec)
            for block in range(2):
                scores.add_block(block, np.full(2, half, np.float32))
            with pytest.raises(EncodingOverflow):
                scores.check(codec, "a")


@pytest.mark.parametrize("hamming", ["plain", "masked"])
@pytest.mark.parametrize("values", [1, 40, 1 << 23])
def test_sessions_in_any_blocks_have_the_labels_of_pooled_data(
    monkeypatch: pytest.MonkeyPatch, values: int, hamming: str
) -> None:
    monkeypatch.setattr(columns, "BLOCK_VALUES", values)
    data = blobs({"a": 9, "b": 7, "c": 4}, labelled=4, seed=5)
    params = replace(SMALL, k=1, hamming=hamming)
    outcome = run(federation(data, params)).raise_errors()
    for c, labels in expected_labels(data, params, tuple(data), tuple(data)).items():
        assert outcome.results[c].class_ids.tolist() == labels.tolist()
    sent = {t.receiver: n for t, n in outcome.cost.messages.items() if "Influence" in t.message}
    assert sent == {c: -(-4 // block_columns(20)) for c in data}


def test_clients_learn_no_more_than_their_columns_tell() -> None:
    """All but the geometry that a client receives is the same if its columns and sums are.

    Byte for byte, with the same randomness, so they are the same in distribution. The rows of b and
    c far away from all rows of a are others, as many of them labelled. They are in no component
    with a label of a, so they change neither its columns nor its rows of the sum.
    """
    data = {"a": rows_of(4, 0, 0), "b": rows_of(2, 4, 1), "c": rows_of(0, 5, 2)}
    far = data | {"b": rows_of(2, 4, 1, far_seed=3), "c": rows_of(0, 5, 2, far_seed=3)}
    near = data | {"b": rows_of(2, 4, 1, near_seed=3)}

    def received(inputs: dict[str, ClientData]) -> dict[str, list[tuple[str, bytes]]]:
        sent = deliveries(federation(inputs, replace(SMALL, k=1)))
        return {
            p: [
                (d.sender, d.payload)
                for d in sent
                if d.receiver == p and d.message != "Sealed[Geometry]"
            ]
            for p in (*data, SERVER)
        }

    one, two, three = (received(inputs) for inputs in (data, far, near))
    assert one["a"] == two["a"]
    for party in ("b", "c", SERVER):  # who may know something of the rows far away
        assert one[party] != two[party]
    assert one["a"] != three["a"]  # a row that its labels reach has moved


def rows_of(
    near: int, far: int, client_seed: int, near_seed: int = 0, far_seed: int = 0
) -> ClientData:
    """Rows around two opposite points, the first of each labelled."""
    x = [
        np.random.default_rng([client_seed, *seed]).normal(centre, 0.2, (n, 5))
        for n, seed, centre in ((near, (0, near_seed), 1), (far, (1, far_seed), -1))
    ]
    codes = [np.where(np.arange(n) < 1, code, UNLABELLED) for n, code in ((near, 0), (far, 1))]
    return client(np.concatenate(x), np.concatenate(codes))


def test_reach_has_a_row_if_and_only_if_some_column_of_the_client_is_not_zero_there() -> None:
    data = blobs({"a": 9, "b": 7, "c": 8}, labelled=2, seed=5)
    params = replace(SMALL, k=1)
    seen = views(federation(data, params))
    some = False
    for c in data:
        reach = next(m for _, m in seen[c] if isinstance(m, Reach))
        values = [m.values for _, m in seen[c] if isinstance(m, Influence)]
        assert (np.concatenate(values) > 0).all()
        some |= not reach.groups.all()
    assert some


def test_blocks_are_read_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """At no time does more than one block wait for a client."""
    monkeypatch.setattr(columns, "BLOCK_VALUES", 1)
    data = blobs({"a": 30, "b": 30}, labelled=20)
    waiting, most = dict.fromkeys(data, 0), 0
    added = PartialScores.add_block

    def sent(delivery: Any) -> bytes:
        nonlocal most
        if "Influence" in delivery.message:
            waiting[delivery.receiver] += 1
            most = max(most, waiting[delivery.receiver])
        return delivery.payload

    def read(self: PartialScores, block: int, values: Any) -> None:
        added(self, block, values)
        waiting["a" if waiting["a"] else "b"] -= 1

    monkeypatch.setattr(PartialScores, "add_block", read)
    run(federation(data, SMALL), Faults(on_message=sent)).raise_errors()
    assert most == 1
    assert waiting == {"a": 0, "b": 0}


def test_progress_says_how_far_the_columns_are() -> None:
    data = blobs({"a": 9, "b": 7, "c": 4}, labelled=4)
    reports: list[Any] = []
    Simulation(progress=reports.append).run(federation(data, SMALL)()).raise_errors()
    assert [
        (r.party, r.step, r.done, r.total) for r in reports if r.activity == "columns of S"
    ] == [(SERVER, "propagation", 12, 12)]
    assert {r.activity for r in reports if r.total} >= {"columns of S", "neighbours"}
    assert all(0 <= r.done <= r.total for r in reports)


@pytest.mark.parametrize(
    ("hamming", "activities"),
    [
        ("plain", {"hashes", "masks stripped", "own masks stripped"}),
        ("masked", {"hashes", "own distances"}),
        ("rlwe", {"hashes", "evaluated rows", "decrypted rows"}),
    ],
)
def test_whatever_can_take_long_says_how_far_it_is(hamming: str, activities: set[str]) -> None:
    data = blobs({"a": 9, "b": 7, "c": 4}, labelled=4)
    reports: list[Any] = []
    params = replace(SMALL, hamming=hamming)
    Simulation(progress=reports.append).run(federation(data, params)()).raise_errors()
    for activity in activities:
        by_party: dict[str, list[Any]] = defaultdict(list)
        for r in reports:
            if r.activity == activity:
                by_party[r.party].append(r)
        assert by_party, activity
        for own in by_party.values():
            assert [r.done for r in own] == sorted(r.done for r in own)
            assert own[-1].done == own[-1].total > 0
