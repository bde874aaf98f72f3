"""What a client has, and the batches and the loss of `ClientUpdate` (paper, appendix)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from xclp_crypto.errors import DataError
from xclp_lp.labels import UNLABELLED
from xclp_lp.validation import FINITE, Validated


@dataclass(frozen=True, eq=False)
class ClientRows:
    """A client's rows.

    Attributes:
        inputs: (n, …) float32, on the device of the training.
        class_ids: (n,) class indices, −1 for rows without a label.

    Raises:
        DataError: the numbers of rows differ.
    """

    inputs: Tensor
    class_ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.class_ids):
            raise DataError(
                f"a client has {len(self.inputs)} inputs and {len(self.class_ids)} labels; "
                "there must be as many of each"
            )

    @property
    def labelled(self) -> NDArray[np.intp]:
        """Row numbers with a label."""
        return np.flatnonzero(self.class_ids != UNLABELLED)

    @property
    def unlabelled(self) -> NDArray[np.intp]:
        """Row numbers without a label."""
        return np.flatnonzero(self.class_ids == UNLABELLED)


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """What a pseudo-labeller says of a client's rows.

    Attributes:
        labels: (n,) class indices ŷ, −1 for none; those of rows with a label are not used.
        weights: (n,) confidences ω in [0, 1].
    """

    labels: NDArray[np.int64]
    weights: NDArray[np.float64]

    @classmethod
    def none(cls, n: int) -> PseudoLabels:
        """Return those that give no row a label."""
        return cls(np.full(n, UNLABELLED, dtype=np.int64), np.zeros(n))


Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0, le=FINITE)]
NotNegative = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True)
class Training(Validated):
    """Hyper-parameters; the defaults are those of the paper's appendix for CIFAR-10.

    Attributes:
        rounds: T.
        initial_rounds: supervised rounds of FedAvg on the labelled rows before them.
        sampled: τ, fraction of the clients that take part in a round.
        epochs: E, passes over a client's pseudo-labelled rows, or over its labelled ones where
            these are all.
        steps: so many steps of SGD per client and round instead of E epochs; None for epochs.
        batch: |B_L| is this, or the number of the client's labels where that is smaller.
        rate: of SGD for smaller |B_L|.
        full_rate: of SGD for |B_L| = `batch`; `rate` where None.
        weight_decay: of SGD.
        horizon: the round in which the cosine schedule would end at 0; 4/3 of `rounds` where None.

    Raises:
        ParameterError: a value is out of range.
    """

    rounds: Count = 1500
    initial_rounds: Annotated[int, Meta(ge=0)] = 0
    sampled: Annotated[float, Meta(gt=0, le=1, title="a fraction in (0, 1]")] = 0.05
    epochs: Count = 5
    steps: Count | None = None
    batch: Count = 50
    rate: Positive = 0.1
    full_rate: Positive | None = 0.3
    weight_decay: NotNegative = 2e-4
    horizon: Count | None = None

    def rate_at(self, turn: int, labels: int) -> float:
        """Return the learning rate of round `turn`, counted from 0, for a client's |B_L|."""
        horizon = self.rounds * 4 / 3 if self.horizon is None else self.horizon
        full = labels == self.batch and self.full_rate is not None
        top = self.full_rate if full and self.full_rate is not None else self.rate
        return top * (1 + math.cos(math.pi * min(turn / horizon, 1))) / 2


@dataclass(frozen=True, eq=False)
class Batch:
    """B = B_L ∪ B_U before augmentation.

    Attributes:
        x_labelled: (|B_L|, …) inputs.
        y_labelled: (|B_L|,) their classes.
        x_unlabelled: (|B_U|, …) inputs.
        y_unlabelled: (|B_U|,) pseudo-labels ŷ; −1 where a strategy makes its own.
        weights: (|B_U|,) confidences ω.
    """

    x_labelled: Tensor
    y_labelled: Tensor
    x_unlabelled: Tensor
    y_unlabelled: Tensor
    weights: Tensor


def labels_per_batch(client: ClientRows, training: Training) -> int:
    """Return |B_L| = min(batch, number of labels)."""
    return min(training.batch, len(client.labelled))


def batches(
    client: ClientRows,
    pseudo: PseudoLabels,
    training: Training,
    rng: np.random.Generator,
    *,
    all_unlabelled: bool = False,
) -> Iterator[Batch]:
    """Yield the batches of a ClientUpdate, B_L and B_U each shuffled anew when it is used up.

    |B_U| = |B_L|, or `training.batch` for a client without labels, which the paper leaves open; and
    no more than there are rows.

    Args:
        client: its rows.
        pseudo: labels of its unlabelled rows; those without one are left out.
        training: sizes and numbers.
        rng: of the order.
        all_unlabelled: whether unlabelled rows without a pseudo-label are in B_U as well.
    """
    labelled = client.labelled
    pool = client.unlabelled
    if not all_unlabelled:
        pool = pool[pseudo.labels[pool] != UNLABELLED]
    size = labels_per_batch(client, training)
    unlabelled_size = min(size or training.batch, len(pool))
    primary, primary_size = (pool, unlabelled_size) if len(pool) else (labelled, size)
    if not len(primary):
        return
    steps = training.steps
    if steps is None:
        steps = training.epochs * (len(primary) // primary_size)
    device = client.inputs.device
    for own, other in zip(
        _chunks(labelled, size, steps, rng), _chunks(pool, unlabelled_size, steps, rng), strict=True
    ):
        yield Batch(
            client.inputs[torch.from_numpy(own).to(device)],
            torch.from_numpy(client.class_ids[own]).to(device),
            client.inputs[torch.from_numpy(other).to(device)],
            torch.from_numpy(pseudo.labels[other]).to(device),
            torch.from_numpy(pseudo.weights[other]).to(device, torch.float32),
        )


def _chunks(
    rows: NDArray[np.intp], size: int, steps: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return shuffled rows, (steps, size): one permutation of all of them after the other."""
    if not size:
        return np.zeros((steps, 0), dtype=np.intp)
    turns = math.ceil(steps * size / len(rows))
    order = np.concatenate([rng.permutation(rows) for _ in range(turns)])
    return order[: steps * size].reshape(steps, size)


def weighted_cross_entropy(logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Return (1/n) Σ_i ω_i · (−log softmax(logits_i)[y_i]), the loss of the paper's appendix.

    Args:
        logits: (n, C).
        y: (n,) classes.
        weights: (n,) ω.
    """
    return (weights * F.cross_entropy(logits, y, reduction="none")).mean()
