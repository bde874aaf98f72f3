"""Pseudo-labels for the unlabelled rows of the clients of a round, behind one interface.

XCLP is line 7 of Algorithm 2; per-client LP, the network and none are the paper's baselines, and a
network that labels once is FedSem+.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xclp_crypto.errors import ParameterError
from xclp_lp.parameters import Arguments
from xclp_lp.predictions import predict
from xclp_lp.study.experiments.methods import METHODS
from xclp_lp.study.experiments.task import Task
from xclp_lp.study.training.client import ClientRows, PseudoLabels
from xclp_lp.study.training.neural_networks import Network
from xclp_lp.study.training.seeds import derived
from xclp_lp.study.training.strategies import State, snapshot

CHUNK = 500
"""Rows that go through a network at once when nothing is trained."""


@torch.no_grad()
def embedded(model: Network, inputs: Tensor) -> NDArray[np.float64]:
    """Return the features f_φ of all rows, (n, d), without augmentation or dropout."""
    model.eval()
    return torch.cat([model.extractor(x) for x in inputs.split(CHUNK)]).cpu().double().numpy()


@torch.no_grad()
def class_probabilities(model: Network, inputs: Tensor) -> NDArray[np.float64]:
    """Return the network's distribution over the classes for all rows, (n, C): the softmax."""
    model.eval()
    return torch.cat([model(x).double().softmax(dim=1) for x in inputs.split(CHUNK)]).cpu().numpy()


@dataclass(eq=False)
class PseudoLabeller(ABC):
    """Labels rows of the clients of a round.

    Attributes:
        memory: what it remembers from round to round, for checkpoints.
        labels_only: whether a client without labels gets none, so that it has nothing to do.
    """

    labels_only = False
    memory: dict[str, State] = field(default_factory=dict, init=False)

    @abstractmethod
    def __call__(
        self, model: Network, clients: Mapping[int, ClientRows], turn: int
    ) -> dict[int, PseudoLabels]:
        """Return ŷ and ω of every client in P.

        Args:
            model: θ, of which the labeller may use extractor and head.
            clients: P, by number.
            turn: number of the round, from 0.
        """


class NoLabels(PseudoLabeller):
    """Gives no labels: training on the labelled rows only."""

    labels_only = True

    def __call__(
        self, model: Network, clients: Mapping[int, ClientRows], turn: int
    ) -> dict[int, PseudoLabels]:
        """Return no labels for all rows."""
        return {j: PseudoLabels.none(len(client.class_ids)) for j, client in clients.items()}


@dataclass(eq=False)
class NetworkLabels(PseudoLabeller):
    """The classes that the network predicts: ŷ = argmax_c p_c, ω = 1 + (1/log C) Σ_c p_c log p_c.

    p is the softmax of the network's outputs for a row, and ω one minus its normalised entropy.

    Args:
        once: whether the network of the first call labels in all rounds: FedSem+. Its two phases
            (train on the labelled rows; label the others once, train on all) are those of FedSem;
            there pseudo-labels weigh as much as labels, and ω was added by the paper, Section 5.2.

    Source: FedSem is that of Albaseer et al. 2020, arXiv:2001.04030; ω is that of the paper's
    Algorithm 1 with p instead of a propagated distribution.
    """

    once: bool = False

    def __call__(
        self, model: Network, clients: Mapping[int, ClientRows], turn: int
    ) -> dict[int, PseudoLabels]:
        """Return the network's labels and confidences."""
        current = snapshot(model)
        if self.once:
            model.load_state_dict(self.memory.setdefault("network", current))
        found = {}
        for j, client in clients.items():
            prediction = predict(class_probabilities(model, client.inputs))
            found[j] = PseudoLabels(prediction.class_ids, prediction.confidence)
        model.load_state_dict(current)
        return found


@dataclass(eq=False)
class PropagatedLabels(PseudoLabeller):
    """Label propagation on the features f_φ of all rows of the clients in P.

    Args:
        method: ``xclp`` runs Algorithm 1 with every message, ``per-client`` propagates within each
            client alone, ``pooled`` over pooled vectors; see `xclp_lp.study.experiments.methods`.
        n_classes: C.
        arguments: L, k, α, back end of the distances and so on; from `random_state` comes each
            round's own projection.
    """

    method: str
    n_classes: int
    arguments: Arguments

    def __post_init__(self) -> None:
        self.labels_only = self.method == "per-client"

    def __call__(
        self, model: Network, clients: Mapping[int, ClientRows], turn: int
    ) -> dict[int, PseudoLabels]:
        """Embed the rows (line 6 of Algorithm 2) and propagate the labels (line 7).

        Raises:
            ParameterError, DataError: see `xclp_lp.CrossClientLabelPropagation`; a method without
                confidences cannot weigh rows.
        """
        task = Task(
            [embedded(model, c.inputs) for c in clients.values()],
            [c.class_ids for c in clients.values()],
            self.n_classes,
        )
        seed = derived(self.arguments.random_state or 0, "projection", turn)
        answer = METHODS[self.method](task, replace(self.arguments, random_state=seed))
        if answer.confidence is None:
            raise ParameterError(f"the method {self.method!r} gives no confidences")
        return {
            j: PseudoLabels(labels, weights)
            for j, labels, weights in zip(clients, answer.labels, answer.confidence, strict=True)
        }
