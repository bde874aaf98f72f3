"""Federated training of the large networks and on the paper's data sets: one round of each.

What they reach needs a GPU, hours and the real data. Here are few pictures and steps.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from published_files import cache, cifar_10, cifar_100

from xclp_lp.study.experiments.methods import arguments
from xclp_lp.study.training import ClientRows, FederatedTrainer, Training, network
from xclp_lp.study.training.augment import AUGMENTATIONS
from xclp_lp.study.training.config import Study
from xclp_lp.study.training.labellers import PropagatedLabels, embedded
from xclp_lp.study.training.run import run_study
from xclp_lp.study.training.seeds import derived
from xclp_lp.study.training.strategies import FedAvg, snapshot

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("name", "d"), [("cnn-13", 128), ("resnet-18", 512)])
def test_a_large_network_learns_in_two_rounds(name: str, d: int) -> None:
    """Two clients, each with two labelled pictures of two colours, and two without labels."""
    y = np.array([0, 1, 0, 1])
    noise = torch.Generator().manual_seed(0)
    colours = torch.tensor([-0.5, 0.5])[torch.from_numpy(y)][:, None, None, None]
    clients = [
        ClientRows(
            colours + 0.1 * torch.randn(4, 3, 32, 32, generator=noise), np.array([0, 1, -1, -1])
        )
        for _ in range(2)
    ]
    training = Training(rounds=2, sampled=1.0, steps=2, rate=0.05, weight_decay=0.0)
    model = network(name, (3, 32, 32), 2, seed=0)
    before = snapshot(model)
    trainer = FederatedTrainer(
        model,
        clients,
        FedAvg(training, AUGMENTATIONS["translate-flip"]),
        PropagatedLabels("per-client", 2, arguments(n_bits=64, k=2)),
        training,
        seed=0,
        truth=[y, y],
    )
    first, second = trainer.round(), trainer.round()
    assert first.clients == second.clients == 2
    assert first.pseudo_rows == 1.0
    assert second.loss < first.loss
    after = snapshot(model)
    # All weights, and the moments of batch normalisation.
    assert [k for k in before if torch.equal(before[k], after[k])] == []
    assert all(bool(v.isfinite().all()) for v in after.values())
    assert embedded(model, clients[0].inputs).shape == (4, d)


def pickled_mini_imagenet(folder: Path, _: str) -> Path:
    cache(folder / "mini-imagenet-cache-train.pkl", {"n02": 12, "n01": 12}, 0)
    cache(folder / "mini-imagenet-cache-test.pkl", {"n03": 12}, 24)
    return folder


@pytest.mark.parametrize(
    ("dataset", "write", "kind", "network_name", "shape", "rows", "test_rows"),
    [
        ("cifar-10", cifar_10, "py", "small-cnn", [3, 32, 32], 120, 20),
        ("cifar-10", cifar_10, "bin", "small-cnn", [3, 32, 32], 120, 20),
        ("cifar-100", cifar_100, "py", "small-cnn", [3, 32, 32], 120, 20),
        ("cifar-100", cifar_100, "bin", "small-cnn", [3, 32, 32], 120, 20),
        ("mini-imagenet", pickled_mini_imagenet, "", "resnet-18", [3, 84, 84], 36, 6),
    ],
)
def test_a_round_on_published_files(
    tmp_path: Path,
    dataset: str,
    write: Callable[[Path, str], Path],
    kind: str,
    network_name: str,
    shape: list[int],
    rows: int,
    test_rows: int,
) -> None:
    study = Study(
        dataset=dataset,
        data={"path": write(tmp_path, kind), "n_clients": 3, "n_rows": rows},
        network=network_name,
        augmentation="rotate-flip" if dataset == "mini-imagenet" else "translate-flip",
        methods=("fedavg+xclp",),
        partition={"kind": "natural", "labels": 9},
        training={"rounds": 1, "sampled": 1.0, "steps": 2},
        parameters={"n_bits": 64, "k": 3},
        seeds=(0,),
    )
    folder = tmp_path / "runs"
    folder.mkdir()
    result: dict[str, Any] = run_study(study, folder)
    data = result["data"]
    assert data["shape"] == shape
    assert (data["training_rows"], data["test_rows"]) == (rows - test_rows, test_rows)
    assert (data["clients"], data["labels"]) == (3, 9)
    assert len(data["classes"]) == {"cifar-10": 10, "cifar-100": 100}.get(dataset, 3)
    assert str(tmp_path) not in str(result)  # where the data are is nobody's business
    (run,) = result["runs"]
    assert run["rounds"] == 1
    (line,) = csv.DictReader((folder / "fedavg+xclp-0.csv").read_text().splitlines())
    assert 0 < float(line["loss"]) < 20
    assert line["pseudo_accuracy"] != ""
    saved = torch.load(folder / "fedavg+xclp-0.pt", weights_only=True)["trainer"]["model"]
    start = snapshot(
        network(network_name, tuple(shape), len(data["classes"]), derived(0, "weights"))
    )
    assert saved.keys() == start.keys()
    assert not torch.equal(saved["head.weight"], start["head.weight"])
