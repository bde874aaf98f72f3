"""Algorithm 2: federated training that labels the unlabelled rows anew in every round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xclp_crypto.errors import DataError, ParameterError, XclpError
from xclp_lp.labels import UNLABELLED
from xclp_lp.study.training.client import ClientRows, PseudoLabels, Training
from xclp_lp.study.training.labellers import NoLabels, PseudoLabeller, class_probabilities
from xclp_lp.study.training.neural_networks import Network
from xclp_lp.study.training.seeds import derived, generator
from xclp_lp.study.training.strategies import Assignment, FedAvg, State, Update, snapshot


@dataclass(frozen=True)
class RoundMetrics:
    """What can be said of a round.

    Attributes:
        turn: its number, from 0, initial rounds included.
        initial: whether it is one of the supervised rounds before Algorithm 2.
        clients: how many took part.
        loss: mean of the clients' losses.
        pseudo_rows: share of their unlabelled rows that got a label; NaN without any.
        pseudo_accuracy: share of these labels that are right, NaN without any or without a truth.
        pseudo_weighted: the same, weighted by confidence.
    """

    turn: int
    initial: bool
    clients: int
    loss: float
    pseudo_rows: float
    pseudo_accuracy: float
    pseudo_weighted: float


@dataclass(eq=False, repr=False)
class FederatedTrainer:
    """Trains a network on the rows of many clients, of which few have labels.

    Args:
        model: θ with its first weights; it is changed in place.
        clients: the clients' rows, labelled or not.
        strategy: the ClientUpdate and ServerUpdate.
        labeller: gives pseudo-labels.
        training: hyper-parameters.
        seed: of sampling, batches, augmentation and dropout.
        truth: per client, the classes of all rows, for metrics only; no method sees them.

    Attributes:
        turn: how many rounds were done, initial ones included.

    Raises:
        DataError: no client has a labelled row.
    """

    model: Network
    clients: Sequence[ClientRows]
    strategy: FedAvg
    labeller: PseudoLabeller
    training: Training
    _: KW_ONLY
    seed: int
    truth: Sequence[NDArray[np.int64]] | None = None
    turn: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._have_labels = [j for j, c in enumerate(self.clients) if len(c.labelled)]
        self._lack_labels = [j for j, c in enumerate(self.clients) if not len(c.labelled)]
        if not self._have_labels:
            raise DataError("no client has a labelled row, so nothing can be learnt")

    @property
    def total_rounds(self) -> int:
        """Initial rounds and T."""
        return self.training.initial_rounds + self.training.rounds

    def round(self) -> RoundMetrics:
        """Do one round: lines 3 to 10 of Algorithm 2.

        Returns:
            What the round measured.

        Raises:
            XclpError: the loss is not finite any more.
            ParameterError, DataError: from the labeller or a secure average.
        """
        initial = self.turn < self.training.initial_rounds
        turn = self.turn if initial else self.turn - self.training.initial_rounds
        strategy = self.strategy
        labeller = self.labeller
        if initial:  # federated training on the labelled rows alone
            strategy = FedAvg(self.training, self.strategy.augment, self.strategy.secure)
            labeller = NoLabels()

        P = self.sample(labels_only=labeller.labels_only and not strategy.own_labels)
        theta = snapshot(self.model)
        pseudo = labeller(self.model, {j: self.clients[j] for j in P}, turn)
        updates = {}
        for j in P:
            self.model.load_state_dict(theta)  # the server's broadcast
            seed = derived(self.seed, "client", self.turn, j)
            work = Assignment(j, self.clients[j], pseudo[j], turn, seed)
            updates[j] = strategy.client_update(self.model, work)
            if not math.isfinite(updates[j].loss):
                raise XclpError(
                    f"the loss of client {j} is {updates[j].loss} in round {self.turn}; lower rate"
                )
        self.model.load_state_dict(strategy.server_update(theta, updates))

        metrics = self._measured(initial, pseudo, updates)
        self.turn += 1
        return metrics

    def sample(self, *, labels_only: bool) -> list[int]:
        """Return P for this round, ascending.

        τ·m_L clients with labels and τ·(m − m_L) without, rounded, and at least one with labels; or
        τ·m clients with labels, as far as there are so many, where nothing is done without labels.
        """
        rng = generator(self.seed, "sample", self.turn)
        tau = self.training.sampled
        have, lack = len(self._have_labels), len(self._lack_labels)
        if labels_only:
            have_count, lack_count = min(have, max(1, round(tau * len(self.clients)))), 0
        else:
            have_count, lack_count = max(1, round(tau * have)), round(tau * lack)
        chosen = [
            *rng.permutation(self._have_labels)[:have_count].tolist(),
            *rng.permutation(self._lack_labels)[:lack_count].tolist(),
        ]
        return sorted(map(int, chosen))

    def _measured(
        self, initial: bool, pseudo: Mapping[int, PseudoLabels], updates: Mapping[int, Update]
    ) -> RoundMetrics:
        """Return the metrics of the round."""
        rows, given, right, mass, right_mass = 0, 0, 0, 0.0, 0.0
        for j in updates:
            lacking = self.clients[j].unlabelled
            labels, weights = pseudo[j].labels[lacking], pseudo[j].weights[lacking]
            hit = np.zeros(len(lacking), dtype=np.bool_)
            if self.truth is not None:
                hit = labels == self.truth[j][lacking]
            rows, given = rows + len(lacking), given + int((labels != UNLABELLED).sum())
            right, mass = right + int(hit.sum()), mass + float(weights.sum())
            right_mass += float(weights[hit].sum())
        known = self.truth is not None
        return RoundMetrics(
            turn=self.turn,
            initial=initial,
            clients=len(updates),
            loss=float(np.mean([u.loss for u in updates.values()])),
            pseudo_rows=given / rows if rows else math.nan,
            pseudo_accuracy=right / given if known and given else math.nan,
            pseudo_weighted=right_mass / mass if known and mass else math.nan,
        )

    def state(self) -> dict[str, Any]:
        """Return all that the coming rounds depend on, as tensors, numbers and dictionaries."""
        return {
            "turn": self.turn,
            "model": snapshot(self.model),
            "strategy": dict(self.strategy.memory),
            "labeller": dict(self.labeller.memory),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ParameterError: it is that of another network.
        """
        own: State = self.model.state_dict()
        given: State = state["model"]
        if {k: v.shape for k, v in own.items()} != {k: v.shape for k, v in given.items()}:
            raise ParameterError("the checkpoint is that of another network")
        self.model.load_state_dict(given)
        self.strategy.memory = dict(state["strategy"])
        self.labeller.memory = dict(state["labeller"])
        self.turn = state["turn"]


def predicted_classes(model: Network, inputs: Tensor) -> NDArray[np.int64]:
    """Return the network's class for each row, (n,)."""
    best: NDArray[np.int64] = class_probabilities(model, inputs).argmax(axis=1).astype(np.int64)
    return best
