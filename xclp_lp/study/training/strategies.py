"""`ClientUpdate` and `ServerUpdate` of Algorithm 2: FedAvg, FedProx and SCAFFOLD.

A strategy is created once per run. What it remembers from round to round is in `memory`, so that
a checkpoint can hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from xclp_crypto.front import secure_sum
from xclp_lp.study.training.augment import Augmentation
from xclp_lp.study.training.client import (
    Batch,
    ClientRows,
    NotNegative,
    PseudoLabels,
    Training,
    batches,
    labels_per_batch,
    weighted_cross_entropy,
)
from xclp_lp.study.training.neural_networks import Network
from xclp_lp.study.training.seeds import generator, seeded

State = dict[str, Tensor]
"""Parameters, and buffers such as the moments of batch normalisation, by name."""


def snapshot(model: nn.Module) -> State:
    """Return a copy of a model's state."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def average(states: Sequence[State], *, secure: bool = False) -> State:
    """Return the mean of states; entries that are integers, such as counters, are the first's.

    Args:
        states: one per client, the same names and shapes.
        secure: whether SecureSum adds them up: nobody sees a client's own then, and each entry is
            off by at most 2^-41, the rounding to fixed point.

    Raises:
        ParameterError: a secure sum of fewer than two clients.
        EncodingOverflow: an entry is too large for the secure sum, as after a divergence.
    """
    first = states[0]
    names = [name for name, value in first.items() if value.is_floating_point()]
    if not secure:
        mean = {name: torch.stack([s[name] for s in states]).mean(dim=0) for name in names}
        return {**first, **mean}
    flat = [torch.cat([s[name].flatten() for name in names]).cpu().double().numpy() for s in states]
    total = secure_sum(flat).total / len(states)
    parts = np.split(total, np.cumsum([first[name].numel() for name in names])[:-1])
    return {
        **first,
        **{
            name: torch.from_numpy(part).reshape(first[name].shape).to(first[name])
            for name, part in zip(names, parts, strict=True)
        },
    }


@dataclass(frozen=True, eq=False)
class Assignment:
    """What a client is given in a round.

    Attributes:
        number: which client.
        data: its rows.
        pseudo: labels and confidences of its unlabelled rows.
        turn: number of the round, from 0.
        seed: of order, augmentation and dropout in this round.
    """

    number: int
    data: ClientRows
    pseudo: PseudoLabels
    turn: int
    seed: int


@dataclass(frozen=True, eq=False)
class Update:
    """What a client sends: θ^(j), and for some strategies more.

    Attributes:
        state: θ^(j).
        losses: of the batches, for the metrics.
        more: what else the strategy's server takes, by name.
    """

    state: State
    losses: Sequence[float]
    more: Mapping[str, State] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Mean over the batches; 0 without any."""
        return float(np.mean(self.losses)) if self.losses else 0.0


@dataclass(eq=False)
class FedAvg:
    """FederatedAveraging with confidence-weighted cross-entropy (McMahan et al. 2017).

    Args:
        training: hyper-parameters.
        augment: applied to every batch.
        secure: whether models are averaged by SecureSum.
        clients: m.
        memory: see the module.
    """

    training: Training
    augment: Augmentation
    secure: bool = False
    clients: int = 1
    memory: dict[str, State] = field(default_factory=dict)

    own_labels = False
    """Whether the strategy itself uses unlabelled rows that have no pseudo-label."""

    def client_update(self, model: Network, work: Assignment) -> Update:
        """Train the model, which is θ, on a client's data: ClientUpdate of Algorithm 2.

        The model is changed in place.
        """
        theta = [p.detach().clone() for p in model.parameters()]
        rate = self.training.rate_at(work.turn, labels_per_batch(work.data, self.training))
        sgd = torch.optim.SGD(model.parameters(), lr=rate, weight_decay=self.training.weight_decay)
        self.begin(model, work)
        losses = self.descend(model, work, sgd, lambda batch: self.loss(model, batch, theta))
        more = self.finish(model, work.number, theta, rate * len(losses))
        return Update(snapshot(model), losses, more)

    def descend(
        self,
        model: Network,
        work: Assignment,
        sgd: torch.optim.SGD,
        loss_of: Callable[[Batch], Tensor],
    ) -> list[float]:
        """Take a step for each batch of a round, and return the losses.

        Args:
            model: θ^(j), changed in place.
            work: the client's rows, and the seed of their order.
            sgd: has the parameters.
            loss_of: takes a batch.
        """
        model.train()
        losses = []
        rng = generator(work.seed, "batches")
        with seeded(work.seed):
            for batch in batches(
                work.data, work.pseudo, self.training, rng, all_unlabelled=self.own_labels
            ):
                sgd.zero_grad()
                loss = loss_of(batch)
                loss.backward()
                self.correct(model, work.number)
                sgd.step()
                self.after_step(model)
                losses.append(float(loss.detach()))
        return losses

    def server_update(self, theta: State, updates: Mapping[int, Update]) -> State:
        """Return the next θ, the mean of the clients' models: ServerUpdate of Algorithm 2."""
        return average([u.state for u in updates.values()], secure=self.secure)

    def loss(self, model: Network, batch: Batch, theta: Sequence[Tensor]) -> Tensor:
        """Return the loss of a batch; θ is what the client received."""
        logits = model(self.augment(torch.cat([batch.x_labelled, batch.x_unlabelled])))
        y = torch.cat([batch.y_labelled, batch.y_unlabelled])
        weights = torch.cat([torch.ones_like(batch.y_labelled, dtype=torch.float32), batch.weights])
        return weighted_cross_entropy(logits, y, weights)

    def begin(self, model: Network, work: Assignment) -> None:
        """Prepare a client's round."""

    def correct(self, model: Network, number: int) -> None:
        """Change the gradients before a step."""

    def after_step(self, model: Network) -> None:
        """Do what follows a step."""

    def finish(
        self, model: Network, number: int, theta: Sequence[Tensor], way: float
    ) -> Mapping[str, State]:
        """Return what the client sends besides its model; `way` is steps × rate."""
        return {}


@dataclass(eq=False)
class FedProx(FedAvg):
    """FedAvg with a proximal term: the loss and μ/2·‖θ^(j) − θ‖².

    Args:
        mu: μ ≥ 0.

    Source: Li et al. 2020, arXiv:1812.06127, the local objective h_k of Algorithm 2.
    """

    mu: NotNegative = 0.01

    def loss(self, model: Network, batch: Batch, theta: Sequence[Tensor]) -> Tensor:
        """Return the loss with its proximal term."""
        distance = sum(
            ((p - old) ** 2).sum() for p, old in zip(model.parameters(), theta, strict=True)
        )
        return super().loss(model, batch, theta) + self.mu / 2 * distance


@dataclass(eq=False)
class Scaffold(FedAvg):
    """SCAFFOLD: steps along g − c_j + c, with control variates c_j of clients and c of the server.

    After K steps of rate η client j has c_j⁺ = c_j − c + (θ − θ^(j))/(Kη), option II; the server
    averages the models (rate 1) and adds Σ_P (c_j⁺ − c_j)/m to c. All start at 0.

    Source: Karimireddy et al. 2020, arXiv:1910.06378, Algorithm 1.
    """

    def correct(self, model: Network, number: int) -> None:
        """Replace each gradient g by g − c_j + c."""
        own, common = self._control(f"client {number}", model), self._control("server", model)
        for name, p in model.named_parameters():
            if p.grad is not None:
                p.grad += common[name] - own[name]

    def finish(
        self, model: Network, number: int, theta: Sequence[Tensor], way: float
    ) -> Mapping[str, State]:
        """Renew c_j and return its change; a client that took no step keeps it."""
        if not way:
            return {}
        own, common = self._control(f"client {number}", model), self._control("server", model)
        renewed = {
            name: own[name] - common[name] + (old - p.detach()) / way
            for (name, p), old in zip(model.named_parameters(), theta, strict=True)
        }
        self.memory[f"client {number}"] = renewed
        return {"control": {name: renewed[name] - own[name] for name in renewed}}

    def server_update(self, theta: State, updates: Mapping[int, Update]) -> State:
        """Average the models, and move c by the changes of the clients' variates."""
        changes = [u.more["control"] for u in updates.values() if u.more]
        if changes:
            mean, share = average(changes, secure=self.secure), len(changes) / self.clients
            old = self.memory.get("server", {})
            self.memory["server"] = {
                name: old.get(name, torch.zeros_like(change)) + share * change
                for name, change in mean.items()
            }
        return super().server_update(theta, updates)

    def _control(self, whose: str, model: Network) -> State:
        """Return a control variate; 0 to begin with."""
        if whose not in self.memory:
            return {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        return self.memory[whose]
