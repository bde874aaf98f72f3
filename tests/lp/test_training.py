"""Federated training: networks, partitions, batches, strategies, pseudo-labels and Algorithm 2.

All on a few small rows; what the methods reach is measured by the studies in examples/ssl.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from xclp_crypto.errors import DataError, EncodingOverflow, ParameterError, XclpError
from xclp_crypto.params import FRACTION_BITS
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.labels import one_hot
from xclp_lp.lsh import projection_seed
from xclp_lp.predictions import predict
from xclp_lp.propagation import per_client, pooled
from xclp_lp.session import hash_rows
from xclp_lp.study.experiments.methods import arguments
from xclp_lp.study.training import ClientRows, FederatedTrainer, Network, Training, network
from xclp_lp.study.training.augment import AUGMENTATIONS, flipped, rotated, translated, unchanged
from xclp_lp.study.training.client import Batch, PseudoLabels, batches, weighted_cross_entropy
from xclp_lp.study.training.comparators import (
    FedMatch,
    FedSiam,
    agreed_labels,
    inter_client_consistency,
    teacher_consistency,
)
from xclp_lp.study.training.labellers import (
    NetworkLabels,
    NoLabels,
    PropagatedLabels,
    PseudoLabeller,
    class_probabilities,
    embedded,
)
from xclp_lp.study.training.seeds import derived, seeded
from xclp_lp.study.training.split import Partition, Split, split_rows
from xclp_lp.study.training.strategies import (
    Assignment,
    FedAvg,
    FedProx,
    Scaffold,
    average,
    snapshot,
)

FEW = Training(rounds=4, sampled=1.0, epochs=1, rate=0.2, full_rate=None)


pytestmark = pytest.mark.usefixtures("one_thread")


def blobs(
    clients: int = 4, rows: int = 24, labelled: int = 3, with_labels: int | None = None
) -> tuple[list[ClientRows], list[NDArray[np.int64]]]:
    """Three directions in six dimensions, and the classes of all rows."""
    rng = np.random.default_rng(0)
    data, truth = [], []
    for j in range(clients):
        y = np.arange(rows) % 3
        x = np.eye(3, 6)[y] + 0.2 * rng.standard_normal((rows, 6))
        known = labelled if with_labels is None or j < with_labels else 0
        class_ids = np.where(np.arange(rows) < known, y, -1)
        data.append(ClientRows(torch.from_numpy(x).float(), class_ids))
        truth.append(y)
    return data, truth


def trainer(
    strategy: FedAvg,
    labeller: PseudoLabeller,
    training: Training = FEW,
    seed: int = 1,
    **sizes: Any,
) -> FederatedTrainer:
    data, truth = blobs(**sizes)
    model = small(seed)
    return FederatedTrainer(model, data, strategy, labeller, training, seed=seed, truth=truth)


def all_rounds(run: FederatedTrainer) -> None:
    while run.turn < run.total_rounds:
        run.round()


def work(client: ClientRows, pseudo: PseudoLabels | None = None, turn: int = 0) -> Assignment:
    return Assignment(0, client, pseudo or PseudoLabels.none(len(client.class_ids)), turn, seed=5)


def small(seed: int = 0) -> Network:
    return network("mlp", (6,), 3, seed)


def zeros(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(p) for name, p in model.named_parameters()}


def all_rows_of(client: ClientRows) -> Batch:
    """The first batch of a client's labelled and unlabelled rows."""
    rng = np.random.default_rng(0)
    return next(batches(client, PseudoLabels.none(24), FEW, rng, all_unlabelled=True))


def close(one: Mapping[str, Any], other: Mapping[str, Any], atol: float = 1e-6) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=atol, err_msg=name)


# Networks, seeds, augmentations


@pytest.mark.parametrize(
    ("name", "shape", "d"),
    [
        ("mlp", (6,), 128),
        ("small-cnn", (1, 28, 28), 1568),
        ("cnn-13", (3, 32, 32), 128),
        ("resnet-18", (3, 40, 40), 512),
    ],
)
def test_networks_are_an_extractor_and_a_head(name: str, shape: tuple[int, ...], d: int) -> None:
    model = network(name, shape, 7, seed=3).eval()
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = model.extractor(x)
        assert features.shape == (2, d)
        torch.testing.assert_close(model(x), model.head(features))
    assert model(x).shape == (2, 7)
    np.testing.assert_allclose(embedded(model, x), features, atol=1e-6)


def test_a_batch_of_one_row_that_cannot_be_normalised_is_refused_with_advice() -> None:
    model = network("resnet-18", (1, 28, 28), 3, seed=0).train()
    with pytest.raises(DataError, match=r"a batch of one row cannot be normalised .* 'small-cnn'"):
        model(torch.zeros(1, 1, 28, 28))


def test_tensors_of_any_kind_are_features_and_labels() -> None:
    x, y = torch.eye(3, requires_grad=True), torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    xclp = CrossClientLabelPropagation(64, 2, hamming="plain", scale="none")
    xclp.fit([x, x.bfloat16(), x.tolist()], [y, y.bfloat16(), y.long()])
    assert [found.tolist() for found in xclp.transduction_] == [[0, 1, 2]] * 3
    with pytest.raises(DataError, match="'client-0': the features do not form an array: "):
        xclp.fit([list(x.bfloat16())] * 3, [y] * 3)


def test_the_deep_networks_have_as_many_layers_as_they_say() -> None:
    def layers(model: Network) -> int:
        return sum(isinstance(m, nn.Conv2d | nn.Linear) for m in model.modules())

    assert layers(network("cnn-13", (3, 32, 32), 10, 0)) == 9 + 1  # and 3 of pooling
    shortcuts = 3
    assert layers(network("resnet-18", (3, 84, 84), 10, 0)) - shortcuts == 18


def test_weights_come_from_the_seed_and_leave_the_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, other, third = (small(seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    close(snapshot(one), snapshot(other), atol=0)
    assert not torch.equal(one.head.weight, third.head.weight)


def test_networks_refuse_other_inputs_and_names() -> None:
    with pytest.raises(ParameterError, match="use 'mlp'"):
        network("cnn-13", (6,), 3, 0)
    with pytest.raises(ParameterError, match="no network 'vgg'"):
        network("vgg", (6,), 3, 0)


def test_a_translation_is_a_window_of_the_reflected_picture() -> None:
    x = torch.arange(2 * 3 * 9 * 9, dtype=torch.float32).reshape(2, 3, 9, 9)
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
    seen = set()
    for seed in range(60):
        with seeded(seed):
            moved = translated(x).numpy()
        for picture, window in zip(padded, moved, strict=True):
            places = [
                (i, j)
                for i in range(9)
                for j in range(9)
                if np.array_equal(picture[:, i : i + 9, j : j + 9], window)
            ]
            assert len(places) == 1
            seen.update(places)
    assert len(seen) > 50
    assert {i for i, _ in seen} == {j for _, j in seen} == set(range(9))


def test_a_flip_mirrors_half_of_the_pictures() -> None:
    x = torch.arange(200 * 4, dtype=torch.float32).reshape(200, 1, 2, 2)
    with seeded(0):
        out = flipped(x)
    mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(out, x, strict=True)]
    same = [torch.equal(a, b) for a, b in zip(out, x, strict=True)]
    assert all(m != s for m, s in zip(mirrored, same, strict=True))
    assert 70 < sum(mirrored) < 130


def test_a_rotation_is_by_ten_degrees_at_most() -> None:
    side, radius = 41, 15
    x = torch.zeros(100, 1, side, side)
    x[:, :, side // 2, side // 2 + radius] = 1  # a dot to the right of the centre
    with seeded(0):
        out = rotated(x)[:, 0]
    where = torch.arange(side, dtype=torch.float32) - side // 2
    mass = out.sum(dim=(1, 2))
    dy = ((out * where[:, None]).sum(dim=(1, 2)) / mass).numpy()
    dx = ((out * where[None, :]).sum(dim=(1, 2)) / mass).numpy()
    angles = np.degrees(np.arctan2(dy, dx))
    assert 8 < angles.max() < 10.5
    assert -10.5 < angles.min() < -8
    np.testing.assert_allclose(np.hypot(dx, dy), radius, atol=0.6)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations_keep_shape_and_repeat(name: str) -> None:
    x = torch.rand(5, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    found = []
    for seed in (0, 0, 1):
        with seeded(seed):
            found.append(AUGMENTATIONS[name](x))
    assert found[0].shape == x.shape
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2]) == (name == "none")


# Partitions


def ids_of(rows: int, classes: int) -> NDArray[np.int64]:
    return np.random.default_rng(4).permutation(np.arange(rows) % classes)


def split_of(class_ids: NDArray[np.int64], partition: Partition, seed: int = 0) -> Split:
    """Deal out rows that all have one owner."""
    owners = np.zeros(len(class_ids), dtype=np.intp)
    return split_rows(class_ids, owners, int(class_ids.max()) + 1, partition, seed)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["iid", "classes", "natural"]),
    clients=st.integers(1, 12),
    classes=st.integers(2, 5),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_splits_give_every_row_to_one_party(
    kind: str, clients: int, classes: int, seed: int, data: st.DataObject
) -> None:
    each = data.draw(st.integers(1, classes))
    if kind == "classes" and clients < classes:
        each = classes  # with fewer, a class can be without a client
    have = data.draw(st.integers(1, clients))
    labels = data.draw(st.integers(have, 3 * have))
    class_ids = ids_of(600, classes)
    owners = np.arange(600) % clients
    partition = Partition(
        kind=kind,
        clients=clients,
        labelled_clients=have,
        labels=labels,
        classes_per_client=each,
        rows=550,
    )
    split = split_rows(class_ids, owners, classes, partition, seed)
    rows = np.concatenate([*split.labelled, *split.unlabelled, split.validation])
    assert len(np.unique(rows)) == len(rows) == 550
    assert len(split.validation) == 55
    counts = [len(s) for s in split.labelled]
    assert sum(counts) == labels
    assert all(c in (labels // have, -(-labels // have)) for c in counts[:have])
    assert not any(counts[have:])
    for j, (known, other) in enumerate(zip(split.labelled, split.unlabelled, strict=True)):
        own = np.concatenate([known, other])
        if kind == "classes":
            assert len(np.unique(class_ids[own])) <= each
        if kind == "natural":
            assert (owners[own] == j).all()
    again = split_rows(class_ids, owners, classes, partition, seed)
    assert np.array_equal(np.concatenate(again.labelled), np.concatenate(split.labelled))
    assert np.array_equal(again.validation, split.validation)


def test_iid_clients_have_all_classes_and_labels_alike() -> None:
    class_ids = ids_of(3000, 10)
    partition = Partition(clients=20, labels=100)
    split = split_of(class_ids, partition)
    for known, other in zip(split.labelled, split.unlabelled, strict=True):
        assert np.bincount(class_ids[known], minlength=10).max() <= 1  # 5 labels, 5 classes
        counts = np.bincount(class_ids[np.concatenate([known, other])], minlength=10)
        assert counts.max() - counts.min() <= 3
    total = np.bincount(class_ids[np.concatenate(split.labelled)], minlength=10)
    assert total.tolist() == [10] * 10
    half = Partition(clients=20, labelled_clients=10, labels=100)
    split = split_of(class_ids, half)
    for known in split.labelled[:10]:
        assert np.bincount(class_ids[known], minlength=10).tolist() == [1] * 10


def test_clients_by_classes_have_equally_many_rows_and_all_classes_clients() -> None:
    class_ids = ids_of(6000, 10)
    partition = Partition(kind="classes", clients=20, labels=100, classes_per_client=4)
    split = split_of(class_ids, partition, 1)
    have = np.zeros((20, 10), dtype=bool)
    for j, (known, other) in enumerate(zip(split.labelled, split.unlabelled, strict=True)):
        have[j, class_ids[np.concatenate([known, other])]] = True
        assert abs(len(known) + len(other) - 270) < 30
    assert (have.sum(axis=1) == 4).all()
    assert (have.sum(axis=0) == 8).all()
    assert np.bincount(class_ids[np.concatenate(split.labelled)]).min() >= 8
    labels_only = Partition(
        kind="classes", clients=20, labels=100, classes_per_client=4, unlabelled_iid=True
    )
    split = split_of(class_ids, labels_only, 1)
    for known, other in zip(split.labelled, split.unlabelled, strict=True):
        assert len(np.unique(class_ids[known])) <= 4
        assert len(np.unique(class_ids[other])) == 10


def test_splits_differ_by_seed_and_survive_a_file(tmp_path: Path) -> None:
    one, other = (split_of(ids_of(200, 4), Partition(clients=5, labels=20), s) for s in (0, 1))
    assert not np.array_equal(one.validation, other.validation)
    one.write(tmp_path / "split.json")
    read = Split.read(tmp_path / "split.json")
    for a, b in zip(one.labelled + one.unlabelled, read.labelled + read.unlabelled, strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(one.validation, read.validation)
    twice = '{"clients": [{"labelled": [1], "unlabelled": [1]}], "validation": []}'
    for content, words in (
        ("{", "not a split"),
        ('{"clients": 3}', "not a split"),
        (twice, "two clients"),
    ):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(DataError, match=words):
            Split.read(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "noniid"}, "kind must be 'iid' or 'classes' or 'natural', got 'noniid'"),
        ({"clients": 0}, "clients must be"),
        ({"validation": 1.0}, "validation"),
        ({"clients": 5, "labels": 4}, "labels is 4, for 5 clients"),
        ({"clients": 5, "labelled_clients": 6}, "labelled_clients is 6"),
        ({"clients": 5, "rows": 500}, "rows is 500"),
        ({"clients": 5, "labels": 190}, r"client \d needs \d+ labels of class"),
        ({"kind": "classes", "classes_per_client": 5}, "classes_per_client is 5"),
        (
            {"kind": "classes", "clients": 3, "classes_per_client": 1, "labels": 9},
            "leave a class without",
        ),
    ],
)
def test_partitions_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        split_of(ids_of(200, 4), Partition(**{"clients": 4, "labels": 20} | fields))


# Batches, loss and schedule


def batches_of(client: ClientRows, pseudo: PseudoLabels, **fields: Any) -> list[Batch]:
    training = Training(**{"epochs": 2} | fields)
    return list(batches(client, pseudo, training, np.random.default_rng(0)))


def numbered(rows: int, labelled: int) -> ClientRows:
    class_ids = np.where(np.arange(rows) < labelled, np.arange(rows) % 3, -1)
    return ClientRows(torch.arange(rows, dtype=torch.float32)[:, None], class_ids)


def test_batches_have_as_many_labelled_as_pseudo_labelled_rows() -> None:
    client = numbered(40, 7)
    labels = np.where(np.arange(40) < 35, np.arange(40) % 3, -1)  # five rows get no label
    found = batches_of(client, PseudoLabels(labels, np.arange(40) / 40))
    assert len(found) == 2 * (28 // 7)
    for batch in found:
        rows, other = batch.x_labelled[:, 0].long(), batch.x_unlabelled[:, 0].long()
        assert len(rows) == len(other) == 7
        assert rows.sort().values.tolist() == list(range(7))
        assert batch.y_labelled.tolist() == client.class_ids[rows].tolist()
        assert batch.y_unlabelled.tolist() == labels[other].tolist()
        torch.testing.assert_close(batch.weights, other / 40)
    for epoch in (found[:4], found[4:]):
        seen = torch.cat([b.x_unlabelled for b in epoch])[:, 0].long().tolist()
        assert sorted(seen) == list(range(7, 35))


def test_batches_are_bounded_and_counted() -> None:
    client, nothing = numbered(200, 80), PseudoLabels.none(200)
    assert [len(b.x_labelled) for b in batches_of(client, nothing)] == [50, 50]
    assert all(not len(b.x_unlabelled) for b in batches_of(client, nothing))
    assert len(batches_of(client, nothing, steps=7, batch=30)) == 7
    everything = PseudoLabels(np.zeros(200, dtype=np.int64), np.ones(200))
    without = batches_of(numbered(200, 0), everything, epochs=1)
    assert [len(b.x_unlabelled) for b in without] == [50] * 4
    assert batches_of(numbered(200, 0), nothing) == []
    few = batches_of(numbered(9, 6), PseudoLabels(np.zeros(9, np.int64), np.ones(9)), epochs=1)
    assert [(len(b.x_labelled), len(b.x_unlabelled)) for b in few] == [(6, 3)]


def test_the_loss_is_weighted_by_confidence() -> None:
    rng = np.random.default_rng(1)
    logits, y, w = rng.standard_normal((5, 3)), rng.integers(3, size=5), rng.random(5)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = np.mean(-w * np.log(p[np.arange(5), y]))
    found = weighted_cross_entropy(*map(torch.from_numpy, (logits, y, w)))
    assert float(found) == pytest.approx(expected)


def test_fedavg_weighs_labels_by_one_and_pseudo_labels_by_confidence() -> None:
    model = small()
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    y, w = torch.tensor([0, 1, 2, 0]), torch.tensor([0.5, 0.0])
    batch = Batch(x[:2], y[:2], x[2:], y[2:], w)
    loss = FedAvg(FEW, unchanged).loss(model, batch, [])
    expected = weighted_cross_entropy(model(x), y, torch.tensor([1.0, 1.0, 0.5, 0.0]))
    torch.testing.assert_close(loss, expected)


def test_the_rate_follows_the_batch_and_a_cosine() -> None:
    training = Training(horizon=2000)
    assert training.rate_at(0, 10) == pytest.approx(0.1)
    assert training.rate_at(0, 50) == pytest.approx(0.3)
    assert training.rate_at(1000, 50) == pytest.approx(0.15)
    assert training.rate_at(2000, 50) == pytest.approx(0.0)
    assert Training().rate_at(1500, 50) == training.rate_at(1500, 50) > 0
    assert Training(full_rate=None).rate_at(0, 50) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sampled": 1.5}, "sampled"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"rounds": 1.5}, "rounds must be an integer"),
        ({"rate": -1}, "rate must be positive and finite"),
        ({"steps": 0}, "steps"),
        ({"weight_decay": -1e-9}, "weight_decay must be at least 0"),
        ({"batch": True}, "batch"),
    ],
)
def test_hyper_parameters_out_of_range(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Training(**fields)


def test_a_client_needs_a_label_or_minus_one_for_every_row() -> None:
    with pytest.raises(DataError, match="2 inputs and 3 labels"):
        ClientRows(torch.zeros(2, 3), np.zeros(3, dtype=np.int64))


# Strategies


def states(count: int, seed: int = 0, scale: float = 1.0) -> list[dict[str, torch.Tensor]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "a": torch.from_numpy(scale * rng.standard_normal((3, 2))).float(),
            "n": torch.tensor(7),
            "b": torch.from_numpy(rng.standard_normal(4)).float(),
        }
        for _ in range(count)
    ]


def test_averages_are_means_secure_or_not() -> None:
    several = states(5)
    plain = average(several)
    np.testing.assert_allclose(plain["a"], np.mean([s["a"].numpy() for s in several], axis=0), 1e-6)
    secure = average(several, secure=True)
    # Half a unit of fixed point per client, and float32.
    close(secure, plain, atol=2.0 ** -(FRACTION_BITS + 1) + 2.0**-23)
    assert secure["a"].dtype == torch.float32
    assert (plain["n"], secure["n"]) == (7, 7)
    with pytest.raises(ParameterError, match="at least 2 clients"):
        average(several[:1], secure=True)
    with pytest.raises(EncodingOverflow):
        average(states(3, scale=1e12), secure=True)


def by_hand(
    model: Network, client: ClientRows, steps: int, rate: float, shift: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Full-batch gradient steps on the labels; `shift` is added to every gradient."""
    model = copy.deepcopy(model)
    rows = client.labelled
    for _ in range(steps):
        loss = nn.functional.cross_entropy(
            model(client.inputs[rows]), torch.from_numpy(client.class_ids[rows])
        )
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for name, p in model.named_parameters():
                assert p.grad is not None
                p -= rate * (p.grad + shift.get(name, 0.0))
    return snapshot(model)


def test_client_update_is_sgd_on_the_labels_and_weight_decay() -> None:
    (client, *_), _ = blobs()
    training = Training(epochs=3, rate=0.2, weight_decay=0.0)
    model = small()
    expected = by_hand(model, client, 3, 0.2, {})
    update = FedAvg(training, unchanged).client_update(copy.deepcopy(model), work(client))
    close(update.state, expected)
    decay = Training(epochs=1, rate=0.2, weight_decay=0.5)
    shift = {name: 0.5 * p.detach() for name, p in model.named_parameters()}
    update = FedAvg(decay, unchanged).client_update(copy.deepcopy(model), work(client))
    close(update.state, by_hand(model, client, 1, 0.2, shift))


def test_a_client_update_repeats_and_depends_on_its_seed() -> None:
    (client, *_), truth = blobs()
    pseudo = PseudoLabels(truth[0], np.full(24, 0.5))
    strategy = FedAvg(FEW, AUGMENTATIONS["noise"])
    found = []
    for seed in (5, 5, 6):
        model = small()
        found.append(strategy.client_update(model, Assignment(0, client, pseudo, 0, seed)).state)
    close(found[0], found[1], atol=0)
    assert not torch.equal(found[0]["head.weight"], found[2]["head.weight"])


def test_fedprox_adds_half_mu_times_the_squared_distance() -> None:
    (client, *_), truth = blobs()
    model = small()
    theta = [p.detach() + 0.1 for p in model.parameters()]
    batch = batches_of(client, PseudoLabels(truth[0], np.ones(24)))[0]
    with torch.no_grad():
        plain = FedAvg(FEW, unchanged).loss(model, batch, theta)
        proximal = FedProx(FEW, unchanged, mu=3.0).loss(model, batch, theta)
    n = sum(p.numel() for p in model.parameters())
    assert float(proximal - plain) == pytest.approx(1.5 * n * 0.01, rel=1e-4)


def test_scaffold_follows_its_algorithm() -> None:
    data, _ = blobs(clients=2)
    training = Training(rounds=10**9, epochs=2, rate=0.1, weight_decay=0.0)
    strategy = Scaffold(training, unchanged, clients=4)
    model = small()
    names = [name for name, _ in model.named_parameters()]
    own = [zeros(model) for _ in data]
    common = zeros(model)
    theta = snapshot(model)
    for turn in range(3):
        updates, expected, new = {}, [], []
        for j, client in enumerate(data):
            model.load_state_dict(theta)
            shift = {n: common[n] - own[j][n] for n in names}
            expected.append(by_hand(model, client, 2, 0.1, shift))
            new.append({n: -shift[n] + (theta[n] - expected[j][n]) / (2 * 0.1) for n in names})
            nothing = PseudoLabels.none(24)
            updates[j] = strategy.client_update(model, Assignment(j, client, nothing, turn, 5))
            close(updates[j].state, expected[j], atol=1e-5)
        theta = strategy.server_update(theta, updates)
        close(theta, average(expected), atol=1e-5)
        for n in names:
            common[n] = common[n] + sum(new[j][n] - own[j][n] for j in range(2)) / 4
        own = new
        close(strategy.memory["server"], common, atol=1e-4)
    assert any(float(c.abs().max()) > 1e-3 for c in common.values())


def test_scaffold_without_a_step_keeps_its_variate() -> None:
    strategy = Scaffold(FEW, unchanged)
    update = strategy.client_update(small(), work(numbered(6, 0)))
    assert not update.more
    assert not strategy.memory


# Comparators: the losses are their equations


def probabilities(seed: int, n: int = 6, classes: int = 3) -> NDArray[np.float64]:
    logits = 2 * np.random.default_rng(seed).standard_normal((n, classes))
    found: NDArray[np.float64] = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return found


def tensors(*arrays: NDArray[Any]) -> list[torch.Tensor]:
    return [torch.from_numpy(a) for a in arrays]


def test_fedmatch_labels_by_a_vote() -> None:
    own = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    one = np.array([[0.1, 0.8, 0.1], [0.1, 0.8, 0.1], [0.2, 0.7, 0.1]])
    two = np.array([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.8, 0.1, 0.1]])
    labels = agreed_labels(*tensors(own), tensors(one, two))
    assert labels.tolist() == [1, 0, 0]  # a majority, a majority, and the lowest of a tie


@pytest.mark.parametrize("helpers", [0, 1, 2])
def test_inter_client_consistency_is_its_equation(helpers: int) -> None:
    own, augmented = probabilities(0), probabilities(1)
    others = [probabilities(2 + h) for h in range(helpers)]
    sure = own.max(axis=1) >= 0.7
    assert 0 < sure.sum() < len(own)
    votes = np.eye(3)[own.argmax(axis=1)] + sum(np.eye(3)[p.argmax(axis=1)] for p in others)
    labels = votes.argmax(axis=1)
    expected = -np.log(augmented[np.arange(6), labels])[sure].mean()
    for p in others:
        expected += (p * np.log(p / own)).sum(axis=1)[sure].mean() / helpers
    found = inter_client_consistency(
        *tensors(np.log(own), np.log(augmented)), tensors(*others), 0.7
    )
    assert float(found) == pytest.approx(expected)
    nobody = inter_client_consistency(*tensors(np.log(own), np.log(own)), tensors(*others), 1.0)
    assert float(nobody) == 0


def halved(x: torch.Tensor) -> torch.Tensor:
    """An augmentation whose result is known."""
    return x / 2


def test_fedmatch_learns_sigma_from_labels_and_psi_from_the_rest() -> None:
    (client, *_), _ = blobs()
    strategy = FedMatch(
        FEW, halved, threshold=0.0, lambda_s=2.0, lambda_icc=0.3, lambda_l1=0.05, lambda_l2=0.07
    )
    model = small().eval()
    rng = torch.Generator().manual_seed(0)
    psi = {
        n: (0.01 * torch.randn(p.shape, generator=rng)).requires_grad_()
        for n, p in model.named_parameters()
    }
    sigma = {
        n: (p.detach() - psi[n].detach()).requires_grad_() for n, p in model.named_parameters()
    }
    batch = all_rows_of(client)
    helper = torch.from_numpy(probabilities(7, len(batch.x_unlabelled))).float()
    plain, augmented = model(batch.x_unlabelled), model(halved(batch.x_unlabelled))
    assert not torch.allclose(plain, augmented, atol=1e-2)  # it matters which of them is where

    labelled = strategy.labelled_loss(model, batch, sigma, psi)
    cross_entropy = nn.functional.cross_entropy(model(halved(batch.x_labelled)), batch.y_labelled)
    torch.testing.assert_close(labelled, 2 * cross_entropy)
    labelled.backward()
    assert all(v.grad is not None for v in sigma.values())
    assert all(v.grad is None for v in psi.values())

    for v in sigma.values():
        v.grad = None
    unlabelled = strategy.unlabelled_loss(model, batch, sigma, psi, [helper])
    phi = inter_client_consistency(plain, augmented, [helper], 0.0)
    distance = sum(((sigma[n] - psi[n]) ** 2).sum() for n in psi)
    length = sum(v.abs().sum() for v in psi.values())
    torch.testing.assert_close(unlabelled, 0.3 * phi + 0.07 * distance + 0.05 * length)
    unlabelled.backward()
    assert all(v.grad is None for v in sigma.values())
    assert all(v.grad is not None for v in psi.values())


def test_a_step_of_fedmatch_moves_sigma_and_psi_by_their_own_losses() -> None:
    """From ψ ≠ 0, with a helper; weight decay is on σ alone."""
    (client, *_), _ = blobs(labelled=12)
    training = Training(rounds=10**9, steps=1, batch=12, rate=0.2, full_rate=None, weight_decay=0.1)
    strategy = FedMatch(training, unchanged, threshold=0.0, lambda_icc=0.5, lambda_l2=0.01)
    model, friend = (small(seed) for seed in (0, 1))
    rng = torch.Generator().manual_seed(0)
    theta = snapshot(model)
    psi = {n: 0.01 * torch.randn(v.shape, generator=rng) for n, v in theta.items()}
    strategy.memory = {
        "psi": dict(psi),
        "answers 0": {"noise": torch.zeros(2, 3)},
        "answers 1": {"noise": torch.ones(2, 3)},
        "model 1": snapshot(friend),
    }
    update = strategy.client_update(copy.deepcopy(model), work(client))
    sigma = {n: (theta[n] - psi[n]).requires_grad_() for n in theta}
    psi = {n: v.requires_grad_() for n, v in psi.items()}
    # One batch has all rows.
    x, y = client.inputs[client.labelled], torch.from_numpy(client.class_ids[client.labelled])
    batch = Batch(x, y, client.inputs[client.unlabelled], y, y)
    views = [torch.from_numpy(class_probabilities(friend, batch.x_unlabelled)).float()]
    strategy.labelled_loss(model, batch, sigma, psi).backward()
    strategy.unlabelled_loss(model, batch, sigma, psi, views).backward()
    for n in theta:
        s, p = sigma[n], psi[n]
        assert s.grad is not None
        assert p.grad is not None
        moved = s.detach() - 0.2 * (s.grad + 0.1 * s.detach())
        torch.testing.assert_close(update.more["psi"][n], p.detach() - 0.2 * p.grad)
        torch.testing.assert_close(update.state[n], moved + update.more["psi"][n])


def test_fedmatch_averages_both_parts_and_finds_helpers() -> None:
    run = trainer(FedMatch(FEW, unchanged, threshold=0.0, helpers=2), NoLabels())
    strategy = run.strategy
    assert isinstance(strategy, FedMatch)
    assert strategy.nearest(0) == []
    run.round()
    first = snapshot(run.model)
    models = [strategy.memory[f"model {j}"] for j in range(4)]
    close(first, average(models), atol=1e-7)
    assert any(float(v.abs().max()) > 0 for v in strategy.memory["psi"].values())
    answers = [strategy.memory[f"answers {j}"]["noise"] for j in range(4)]
    others = sorted((1, 2, 3), key=lambda j: float(((answers[j] - answers[0]) ** 2).sum()))
    assert [next(j for j in range(4) if m is models[j]) for m in strategy.nearest(0)] == others[:2]
    run.round()
    assert not torch.equal(first["head.weight"], run.model.head.weight)
    with pytest.raises(ParameterError, match="secure = false"):
        FedMatch(FEW, unchanged, secure=True)


def test_fedsiam_is_cross_entropy_and_consistency_with_a_slow_teacher() -> None:
    (client, *_), _ = blobs()
    views = iter([0.5, 2.0])  # of the student, and of the teacher
    strategy = FedSiam(FEW, lambda x: next(views) * x, beta=4.0, decay=0.9)
    model = small()
    strategy.begin(model, work(client))
    start = snapshot(model)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.02)
    batch = all_rows_of(client)
    x = torch.cat([batch.x_labelled, batch.x_unlabelled])
    teacher = small()
    p, q = class_probabilities(model, x / 2), class_probabilities(teacher, 2 * x)
    expected = nn.functional.cross_entropy(model(batch.x_labelled / 2), batch.y_labelled)
    loss = strategy.loss(model, batch, [])
    consistency = 4 * ((p - q) ** 2).mean()
    assert consistency > 1e-5
    assert float(loss.detach() - expected.detach()) == pytest.approx(consistency, rel=1e-3)
    strategy.after_step(model)
    assert strategy.teacher is not None
    for name, slow in strategy.teacher.named_parameters():
        torch.testing.assert_close(slow, 0.9 * start[name] + 0.1 * model.state_dict()[name])
    loss.backward()
    assert all(v.grad is None for v in strategy.teacher.parameters())


def test_the_teacher_is_a_constant() -> None:
    student, teacher = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    teacher_consistency(student, teacher).backward()
    assert student.grad is not None
    assert teacher.grad is None


# Devices


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations_stay_on_the_device_of_the_rows(name: str) -> None:
    """PyTorch's device without data refuses tensors of the CPU, as a GPU does."""
    assert AUGMENTATIONS[name](torch.empty(3, 1, 9, 9, device="meta")).device.type == "meta"


@pytest.mark.parametrize("kind", [FedAvg, FedProx, Scaffold, FedMatch, FedSiam])
def test_steps_of_training_stay_on_the_device_of_the_rows(kind: type[FedAvg]) -> None:
    client = ClientRows(torch.empty(20, 6, device="meta"), numbered(20, 5).class_ids)
    pseudo = PseudoLabels(np.zeros(20, dtype=np.int64), np.ones(20))
    strategy, model = kind(FEW, AUGMENTATIONS["noise"]), small().to("meta")
    theta = [p.detach().clone() for p in model.parameters()]
    strategy.begin(model, work(client, pseudo))
    batch = batches_of(client, pseudo)[0]
    if isinstance(strategy, FedMatch):
        psi = {name: torch.zeros_like(p).requires_grad_() for name, p in model.named_parameters()}
        loss = strategy.labelled_loss(model, batch, dict(model.named_parameters()), psi)
    else:
        loss = strategy.loss(model, batch, theta)
    loss.backward()
    strategy.correct(model, 0)
    strategy.after_step(model)
    more = strategy.finish(model, 0, theta, 0.1)
    grads = [p.grad for p in model.parameters()]
    found = [loss, *grads, *(v for state in more.values() for v in state.values())]
    found += average([snapshot(model), snapshot(model)]).values()
    assert {v.device.type for v in found if v is not None} == {"meta"}
    assert None not in grads


# Pseudo-labels


def test_xclp_labels_are_those_of_propagation_over_all_features() -> None:
    data, _ = blobs()
    model = small()
    choices = arguments(9, n_bits=256, k=3, hamming="masked")
    clients = {2: data[0], 5: data[1], 7: data[2]}
    seed = projection_seed(derived(9, "projection", 4)) or b""
    bits = [hash_rows(seed, embedded(model, c.inputs), 256)[0] for c in clients.values()]
    onehot = [one_hot(c.class_ids, 3) for c in clients.values()]
    for method, expected in (
        ("xclp", pooled(bits, onehot, k=3, alpha=0.99)),
        ("per-client", per_client(bits, onehot, k=3, alpha=0.99)),
    ):
        found = PropagatedLabels(method, 3, choices)(model, clients, 4)
        assert [*found] == [2, 5, 7]
        for one, other in zip(found.values(), expected, strict=True):
            assert (one.labels == other.class_ids).all()
            np.testing.assert_allclose(one.weights, other.confidence, atol=1e-6)
    with pytest.raises(ParameterError, match="no confidences"):
        PropagatedLabels("label-spreading", 3, choices)(model, clients, 0)


def test_the_network_labels_by_its_softmax() -> None:
    data, _ = blobs()
    model = small()
    before = snapshot(model)
    found = NetworkLabels()(model, {0: data[0]}, 0)[0]
    with torch.no_grad():
        p = torch.softmax(model(data[0].inputs).double(), dim=1).numpy()
    np.testing.assert_allclose(class_probabilities(model, data[0].inputs), p)
    assert (found.labels == p.argmax(axis=1)).all()
    np.testing.assert_allclose(found.weights, 1 + (p * np.log(p)).sum(axis=1) / np.log(3))
    assert (found.weights == predict(p).confidence).all()
    close(snapshot(model), before, atol=0)


def test_fedsem_labels_with_the_network_of_its_first_round() -> None:
    data, _ = blobs()
    labeller = NetworkLabels(once=True)
    first = small()
    labels = labeller(first, {0: data[0]}, 0)[0]
    later = small(1)
    before = snapshot(later)
    again = labeller(later, {0: data[0]}, 1)[0]
    assert (again.weights == labels.weights).all()
    assert (NetworkLabels()(later, {0: data[0]}, 1)[0].weights != labels.weights).any()
    close(snapshot(later), before, atol=0)


# Algorithm 2


def test_a_round_averages_the_client_updates_of_the_sampled_clients() -> None:
    choices = arguments(1, n_bits=256, k=3)
    training = Training(rounds=2, sampled=0.5, epochs=1, rate=0.2)
    strategy = FedAvg(training, AUGMENTATIONS["noise"])
    run = trainer(strategy, PropagatedLabels("xclp", 3, choices), training, clients=6)
    theta = snapshot(run.model)
    P = run.sample(labels_only=False)
    assert len(P) == 3
    pseudo = PropagatedLabels("xclp", 3, choices)(small(1), {j: run.clients[j] for j in P}, 0)
    expected = []
    for j in P:
        model = small(1)
        close(snapshot(model), theta, atol=0)
        seed = derived(1, "client", 0, j)
        given = Assignment(j, run.clients[j], pseudo[j], 0, seed)
        expected.append(strategy.client_update(model, given).state)
    metrics = run.round()
    close(snapshot(run.model), average(expected), atol=0)
    assert (metrics.turn, metrics.initial, metrics.clients) == (0, False, 3)
    assert metrics.pseudo_rows == 1.0
    assert metrics.pseudo_accuracy > 0.8


def test_the_server_samples_its_quota() -> None:
    training = Training(rounds=3, sampled=0.4, initial_rounds=1, epochs=1)
    run = trainer(FedAvg(training, unchanged), NetworkLabels(), training, clients=15, with_labels=5)
    seen = set()
    for run.turn in range(30):
        P = run.sample(labels_only=False)
        assert sum(j < 5 for j in P) == 2
        assert sum(j >= 5 for j in P) == 4
        assert run.sample(labels_only=False) == P
        seen |= set(P)
        only = run.sample(labels_only=True)
        assert only == [0, 1, 2, 3, 4]  # 0.4 · 15 are more than there are
    assert seen == set(range(15))
    run.turn = 0
    first = run.round()
    assert first.initial
    assert first.clients == 5
    assert first.pseudo_rows == 0
    assert run.round().clients == 6
    few = trainer(FedAvg(training, unchanged), NetworkLabels(), training, clients=9, with_labels=1)
    assert few.sample(labels_only=False)[0] == 0
    with pytest.raises(DataError, match="no client has a labelled row"):
        trainer(FedAvg(training, unchanged), NetworkLabels(), training, with_labels=0)


METHODS = {
    "none": lambda: (FedAvg(FEW, unchanged), NoLabels()),
    "prox": lambda: (FedProx(FEW, unchanged), NetworkLabels()),
    "scaffold": lambda: (
        Scaffold(FEW, unchanged, clients=4),
        PropagatedLabels("xclp", 3, arguments(n_bits=128, k=3)),
    ),
    "sem": lambda: (FedAvg(FEW, unchanged), NetworkLabels(once=True)),
    "match": lambda: (FedMatch(FEW, AUGMENTATIONS["noise"], threshold=0.4), NoLabels()),
    "siam": lambda: (FedSiam(FEW, AUGMENTATIONS["noise"]), NoLabels()),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_what_is_easy_and_sees_no_hidden_label(method: str) -> None:
    training = Training(rounds=4, initial_rounds=2, sampled=1.0, steps=5, rate=0.3)
    finals = []
    for lie in (False, True):
        strategy, labeller = METHODS[method]()
        strategy.training = training
        run = trainer(strategy, labeller, training, clients=3)
        if lie:
            assert run.truth is not None
            run.truth = [(y + 1) % 3 for y in run.truth]
        all_rounds(run)
        finals.append(snapshot(run.model))
        x, y = run.clients[0].inputs, np.arange(24) % 3
        found = class_probabilities(run.model, x).argmax(axis=1)
        assert (found == y).mean() > 0.9
    close(finals[0], finals[1], atol=0)


def test_secure_averages_give_nearly_the_same_network() -> None:
    found = []
    for secure in (False, True):
        run = trainer(Scaffold(FEW, unchanged, secure, clients=4), NetworkLabels())
        for _ in range(2):
            run.round()
        found.append(snapshot(run.model))
    close(found[0], found[1], atol=1e-5)


def test_a_diverging_run_stops() -> None:
    training = Training(rounds=3, sampled=1.0, steps=30, rate=1e9)
    run = trainer(FedAvg(training, unchanged), NoLabels(), training)
    with pytest.raises(XclpError, match="lower rate"):
        all_rounds(run)


@pytest.mark.parametrize("method", METHODS)
def test_a_trainer_goes_on_from_its_state(method: str, tmp_path: Path) -> None:
    straight = trainer(*METHODS[method]())
    lines = [straight.round() for _ in range(4)]
    broken = trainer(*METHODS[method]())
    for _ in range(2):
        broken.round()
    torch.save(broken.state(), tmp_path / "state.pt")
    fresh = trainer(*METHODS[method](), seed=1)
    fresh.load_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert [str(m) for m in lines[2:]] == [str(fresh.round()) for _ in range(2)]
    close(snapshot(straight.model), snapshot(fresh.model), atol=0)
    other = FederatedTrainer(
        network("mlp", (6,), 4, 0), fresh.clients, *METHODS["none"](), FEW, seed=0
    )
    with pytest.raises(ParameterError, match="another network"):
        other.load_state(straight.state())
