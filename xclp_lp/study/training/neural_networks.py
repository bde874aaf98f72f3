"""Networks in two parts: an extractor f_φ, whose features XCLP compares, and a linear head f_ψ.

Sources: the 13-layer CNN is that of Laine and Aila 2017, arXiv:1610.02242, table 5, as used by
Tarvainen and Valpola 2017, arXiv:1703.01780, without weight normalisation, which batch
normalisation makes redundant; ResNet-18 is that of He et al. 2016, arXiv:1512.03385, table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.study.data.federation import known_name
from xclp_lp.study.training.seeds import seeded

InputShape = tuple[int, ...]
"""Of one input: (channels, height, width), or (features,)."""


class Network(nn.Module):
    """A classifier θ = (φ, ψ).

    Args:
        extractor: f_φ, from inputs (n, …) to features (n, d).
        d: number of features.
        n_classes: C.
    """

    def __init__(self, extractor: nn.Module, d: int, n_classes: int) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = nn.Linear(d, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (n, C); their softmax is the distribution over the classes.

        Raises:
            DataError: there is one row, and it is normalised over the batch.
        """
        try:
            logits: Tensor = self.head(self.extractor(x))
        except ValueError as error:
            if len(x) > 1:
                raise
            raise DataError(
                f"a batch of one row cannot be normalised ({error}); use the network 'small-cnn' "
                "or 'mlp', or give every client two labels or more"
            ) from None
        return logits


def network(name: str, shape: InputShape, n_classes: int, seed: int) -> Network:
    """Build a network with random weights.

    Args:
        name: a key of `NETWORKS`.
        shape: of one input.
        n_classes: C.
        seed: of the weights, ≥ 0.

    Raises:
        ParameterError: there is no such network, or it does not take inputs of this shape.
    """
    known_name("network", name, NETWORKS)
    if name != "mlp" and len(shape) != 3:
        raise ParameterError(
            f"the network {name!r} takes pictures and the inputs have shape {shape}; use 'mlp'"
        )
    with seeded(seed):
        return NETWORKS[name](shape, n_classes)


def mlp(shape: InputShape, n_classes: int) -> Network:
    """Two hidden layers of 128 ReLUs, for inputs that are not pictures; 128 features."""
    layers = nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(shape), 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
    )
    return Network(layers, 128, n_classes)


def small_cnn(shape: InputShape, n_classes: int) -> Network:
    """Two convolutions and average pooling to 7×7, for runs without a GPU; 1,568 features.

    Layers are normalised within each picture, since batches can be as small as one label. Features
    come from convolutions alone, as in the larger networks, and keep where in the picture something
    is: a hidden linear layer, or pooling to a few places, learns the few labels by heart, and
    propagation over its features is worse.
    """
    extractor = nn.Sequential(
        nn.Conv2d(shape[0], 16, 5, stride=2, padding=2),
        nn.GroupNorm(1, 16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(1, 32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
    )
    return Network(extractor, 32 * 7 * 7, n_classes)


def cnn13(shape: InputShape, n_classes: int) -> Network:
    """The 13-layer CNN of the paper's CIFAR experiments; 128 features."""

    def block(inputs: int, outputs: int, kernel: int = 3, padding: int = 1) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.1),
        ]

    extractor = nn.Sequential(
        *block(shape[0], 128),
        *block(128, 128),
        *block(128, 128),
        nn.MaxPool2d(2),
        nn.Dropout(0.5),
        *block(128, 256),
        *block(256, 256),
        *block(256, 256),
        nn.MaxPool2d(2),
        nn.Dropout(0.5),
        *block(256, 512, padding=0),
        *block(512, 256, kernel=1, padding=0),
        *block(256, 128, kernel=1, padding=0),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return Network(extractor, 128, n_classes)


class _Residual(nn.Module):
    """The basic block of a residual network: two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.body(x) + self.shortcut(x)
        return total.relu()


def resnet18(shape: InputShape, n_classes: int) -> Network:
    """ResNet-18, as in the paper's Mini-ImageNet experiments; 512 features."""
    widths = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    extractor = nn.Sequential(
        nn.Conv2d(shape[0], 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        *(
            layer
            for inputs, outputs, stride in widths
            for layer in (_Residual(inputs, outputs, stride), _Residual(outputs, outputs, 1))
        ),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return Network(extractor, 512, n_classes)


NETWORKS: dict[str, Callable[[InputShape, int], Network]] = {
    "mlp": mlp,
    "small-cnn": small_cnn,
    "cnn-13": cnn13,
    "resnet-18": resnet18,
}
"""Every network by name: takes the shape of an input and C."""
