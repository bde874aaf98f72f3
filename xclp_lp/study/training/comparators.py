"""Strategies with losses of their own on unlabelled rows: FedMatch and FedSiam (Table 4).

FedSem+ is FedAvg with the labels of `xclp_lp.study.training.labellers.NetworkLabels` (once).
Equations are cited by the section that has them, and written out; the notes of what the published
code does otherwise are from reading github.com/wyjeong/FedMatch and
github.com/zewei-long/fedsiam-pytorch.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from xclp_crypto.errors import ParameterError
from xclp_lp.study.training.client import Batch, NotNegative, labels_per_batch
from xclp_lp.study.training.neural_networks import Network
from xclp_lp.study.training.seeds import generator
from xclp_lp.study.training.strategies import Assignment, FedAvg, State, Update, average, snapshot

Share = Annotated[float, Meta(ge=0, le=1)]
PROBES = 32
"""Inputs of Gaussian noise on which FedMatch compares the clients' models."""


def agreed_labels(own: Tensor, helpers: Sequence[Tensor]) -> Tensor:
    """Return ŷ = Max(1(p_θ(y|u)) + Σ_j 1(p_{h_j}(y|u))): the class with most votes.

    1(p) is one-hot at the largest entry of p. Of a tie the lowest class wins.

    Args:
        own: the client's class probabilities, (n, C).
        helpers: those of each helper.

    Source: Jeong et al. 2021, arXiv:2006.12097, section 3.1, the equation of ŷ.
    """
    votes = sum(F.one_hot(p.argmax(dim=1), p.shape[1]) for p in (own, *helpers))
    return torch.as_tensor(votes).argmax(dim=1)


def inter_client_consistency(
    logits: Tensor, augmented: Tensor, helpers: Sequence[Tensor], threshold: float
) -> Tensor:
    """Return Φ = CE(ŷ, p_θ(y|π(u))) + (1/H) Σ_j KL[p_{h_j}(y|u) ‖ p_θ(y|u)].

    Both are means over the rows u whose largest p_θ(y|u) is at least the threshold; 0 if there are
    none. Without helpers the second term is absent.

    Args:
        logits: the client's for u, (n, C).
        augmented: the client's for π(u), (n, C).
        helpers: class probabilities of each helper for u, (n, C); constants.
        threshold: in [0, 1].

    Source: Jeong et al. 2021, arXiv:2006.12097, section 3.1, the equation of Φ. The means and the
    threshold are those of the published code.
    """
    own = logits.softmax(dim=1)
    sure = own.max(dim=1).values >= threshold
    if not sure.any():
        return logits.new_zeros(())
    labels = agreed_labels(own.detach(), helpers)
    phi = F.cross_entropy(augmented[sure], labels[sure])
    for p in helpers:
        kl = F.kl_div(logits[sure].log_softmax(dim=1), p[sure], reduction="batchmean")
        phi = phi + kl / len(helpers)
    return phi


@dataclass(eq=False)
class FedMatch(FedAvg):
    """FedMatch with labels at the clients: inter-client consistency and disjoint parameters.

    θ = σ + ψ, where σ learns from labelled and ψ from unlabelled rows (a star marks constants):

        L_s(σ) = λ_s CE(y, p_{σ+ψ*}(y|π(x)))
        L_u(ψ) = λ_ICC Φ_{σ*+ψ} + λ_L2 ‖σ* − ψ‖² + λ_L1 ‖ψ‖₁

    π is the run's augmentation. ψ starts at 0. Helpers of a client are the H others whose last
    models give the most similar classes for common noise inputs; a client that was never sampled
    has none. λ_L2 pulls ψ towards σ; it is 0 by default, since at rates that suit SGD the published
    weight makes steps overshoot.

    Args:
        helpers: H.
        threshold: of confidence.
        lambda_s: λ_s.
        lambda_icc: λ_ICC.
        lambda_l1: λ_L1.
        lambda_l2: λ_L2.

    Raises:
        ParameterError: with secure averages, whose server cannot compare models.

    Source: Jeong et al. 2021, arXiv:2006.12097; L_s and L_u as in section 3.2, labels at clients,
    but that labelled rows are augmented as with all methods here. The published code has λ_s = 10,
    0.01 for both terms of Φ, λ_L1 = 1e-4 and λ_L2 = 10 at a rate of 0.001, and makes a helper of
    the client's own σ and the helper's ψ.
    """

    helpers: Annotated[int, Meta(ge=0)] = 2
    threshold: Share = 0.75
    lambda_s: NotNegative = 1.0
    lambda_icc: NotNegative = 0.1
    lambda_l1: NotNegative = 1e-6
    lambda_l2: NotNegative = 0.0

    own_labels = True

    def __post_init__(self) -> None:
        if self.secure:
            raise ParameterError(
                "fedmatch needs to see the clients' models, which secure averages hide; set "
                "secure = false"
            )

    def client_update(self, model: Network, work: Assignment) -> Update:
        """Train σ on labelled and ψ on unlabelled rows, and send θ and ψ."""
        common = self.memory.get("psi", {})
        psi = {
            name: common.get(name, torch.zeros_like(p)).clone().requires_grad_()
            for name, p in model.named_parameters()
        }
        sigma = {
            name: (p.detach() - psi[name].detach()).requires_grad_()
            for name, p in model.named_parameters()
        }
        rate = self.training.rate_at(work.turn, labels_per_batch(work.data, self.training))
        parts: list[dict[str, Any]] = [
            {"params": list(sigma.values()), "weight_decay": self.training.weight_decay},
            {"params": list(psi.values())},
        ]
        sgd = torch.optim.SGD(parts, lr=rate)
        frozen = copy.deepcopy(model).eval()
        friends = self.nearest(work.number)

        def loss_of(batch: Batch) -> Tensor:
            loss = self.labelled_loss(model, batch, sigma, psi)
            if not len(batch.x_unlabelled):
                return loss
            with torch.no_grad():
                views = [
                    functional_call(frozen, state, (batch.x_unlabelled,)).softmax(dim=1)
                    for state in friends
                ]
            return loss + self.unlabelled_loss(model, batch, sigma, psi, views)

        losses = self.descend(model, work, sgd, loss_of)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(sigma[name] + psi[name])
        more = {
            "psi": {name: p.detach() for name, p in psi.items()},
            "answers": {"noise": self._answers(model, work.data.inputs)},
        }
        return Update(snapshot(model), losses, more)

    def labelled_loss(self, model: Network, batch: Batch, sigma: State, psi: State) -> Tensor:
        """Return L_s(σ) of a batch; 0 without labels."""
        if not len(batch.x_labelled):
            return torch.zeros((), device=batch.x_unlabelled.device)
        theta = {name: sigma[name] + psi[name].detach() for name in sigma}
        logits = functional_call(model, theta, (self.augment(batch.x_labelled),))
        return self.lambda_s * F.cross_entropy(logits, batch.y_labelled)

    def unlabelled_loss(
        self, model: Network, batch: Batch, sigma: State, psi: State, helpers: Sequence[Tensor]
    ) -> Tensor:
        """Return L_u(ψ) of a batch, given the helpers' class probabilities."""
        theta = {name: sigma[name].detach() + psi[name] for name in sigma}
        phi = inter_client_consistency(
            functional_call(model, theta, (batch.x_unlabelled,)),
            functional_call(model, theta, (self.augment(batch.x_unlabelled),)),
            helpers,
            self.threshold,
        )
        loss = self.lambda_icc * phi
        for name in sigma:
            loss = loss + self.lambda_l2 * ((sigma[name].detach() - psi[name]) ** 2).sum()
            loss = loss + self.lambda_l1 * psi[name].abs().sum()
        return loss

    def server_update(self, theta: State, updates: Mapping[int, Update]) -> State:
        """Average θ and ψ, and with them σ; remember the clients' models for helpers."""
        self.memory["psi"] = average([u.more["psi"] for u in updates.values()])
        for j, update in updates.items():
            self.memory[f"model {j}"] = update.state
            self.memory[f"answers {j}"] = dict(update.more["answers"])
        return super().server_update(theta, updates)

    def nearest(self, number: int) -> list[State]:
        """Return the last models of the H clients most similar to this one."""
        own = self.memory.get(f"answers {number}")
        if own is None:
            return []
        distances = {
            int(name.split()[1]): float((answers["noise"] - own["noise"]).square().sum())
            for name, answers in self.memory.items()
            if name.startswith("answers ") and name != f"answers {number}"
        }
        nearest = sorted(distances, key=lambda j: (distances[j], j))
        return [self.memory[f"model {j}"] for j in nearest[: self.helpers]]

    @torch.no_grad()
    def _answers(self, model: Network, inputs: Tensor) -> Tensor:
        """Return the model's classes for the common noise inputs, (PROBES, C)."""
        noise = generator(0, "probes").standard_normal((PROBES, *inputs.shape[1:]))
        model.eval()
        answers: Tensor = model(torch.from_numpy(noise).to(inputs)).softmax(dim=1)
        return answers


def teacher_consistency(student: Tensor, teacher: Tensor) -> Tensor:
    """Return (1/nC) Σ_i ‖softmax(student_i) − softmax(teacher_i)‖²; the teacher is constant.

    Args:
        student: logits, (n, C).
        teacher: logits of another view of the same rows, (n, C).

    Source: Tarvainen and Valpola 2017, arXiv:1703.01780, section 2, the consistency cost J(θ) =
    E‖f(x; θ′, η′) − f(x; θ, η)‖². The published code of FedSiam has this mean too, and on CIFAR
    a Kullback-Leibler divergence instead.
    """
    return F.mse_loss(student.softmax(dim=1), teacher.detach().softmax(dim=1))


@dataclass(eq=False)
class FedSiam(FedAvg):
    """FedSiam: a teacher at each client, whose view of the rows the student is to share.

    With augmentations η, η′ drawn anew for each view, student θ and teacher ξ:

        L(θ) = CE(y, p(x; θ, η)) + β · (1/nC) Σ_x ‖p(x; θ, η) − p(x; ξ, η′)‖²
        ξ ← a·ξ + (1 − a)·θ after each step

    The cross-entropy is the mean over B_L, and x are the n rows of B_L ∪ B_U.
    The teacher starts each round as the model that the client received. Models are averaged as in
    FedAvg: the paper's further proposal, to send fewer layers, is not here.

    Args:
        beta: β.
        decay: a.

    Source: Long et al. 2020, arXiv:2012.03292, local training with a momentum teacher; consistency
    and moving average ξ are those of Tarvainen and Valpola 2017, arXiv:1703.01780, section 2. The
    published code divides the cross-entropy by all rows of the batch, raises β from 0 to 1 in the
    first ten epochs, has a = 0.999 but for the first steps, and averages the teachers as well.
    """

    beta: NotNegative = 10.0
    decay: Share = 0.95
    teacher: Network | None = field(default=None, init=False)

    own_labels = True

    def begin(self, model: Network, work: Assignment) -> None:
        """Let the teacher be the received model."""
        self.teacher = copy.deepcopy(model).train()

    def loss(self, model: Network, batch: Batch, theta: Sequence[Tensor]) -> Tensor:
        """Return L(θ) of a batch."""
        x = torch.cat([batch.x_labelled, batch.x_unlabelled])
        logits = model(self.augment(x))
        n = len(batch.x_labelled)
        loss = logits.new_zeros(()) if not n else F.cross_entropy(logits[:n], batch.y_labelled)
        with torch.no_grad():
            other = (self.teacher or model)(self.augment(x))
        return loss + self.beta * teacher_consistency(logits, other)

    def after_step(self, model: Network) -> None:
        """Move the teacher's parameters towards the student's."""
        if self.teacher is not None:
            with torch.no_grad():
                for slow, fast in zip(self.teacher.parameters(), model.parameters(), strict=True):
                    slow.mul_(self.decay).add_(fast, alpha=1 - self.decay)

    def finish(
        self, model: Network, number: int, theta: Sequence[Tensor], way: float
    ) -> Mapping[str, State]:
        """Forget the teacher; a checkpoint between rounds needs none."""
        self.teacher = None
        return {}
