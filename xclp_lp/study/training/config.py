"""What a study of federated semi-supervised learning is, from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta

from xclp_lp.files.toml import keys_of, read_section
from xclp_lp.parameters import Arguments
from xclp_lp.study.data import LOADERS
from xclp_lp.study.data.federation import known_name
from xclp_lp.study.experiments.config import (
    METRICS,
    Names,
    Seeds,
    Share,
    arguments_of,
    require_once,
)
from xclp_lp.study.training.augment import AUGMENTATIONS
from xclp_lp.study.training.client import Training
from xclp_lp.study.training.comparators import FedMatch, FedSiam
from xclp_lp.study.training.labellers import (
    NetworkLabels,
    NoLabels,
    PropagatedLabels,
    PseudoLabeller,
)
from xclp_lp.study.training.neural_networks import NETWORKS
from xclp_lp.study.training.split import Partition
from xclp_lp.study.training.strategies import FedAvg, FedProx, Scaffold
from xclp_lp.validation import Validated, checked, field_types

STRATEGIES: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fedmatch": FedMatch,
    "fedsiam": FedSiam,
}
"""Every strategy by name."""

LABELLERS = ("none", "per-client", "network", "network-once", "xclp", "pooled")
"""Every pseudo-labeller by name."""

METHODS: dict[str, tuple[str, str]] = {
    **{
        name if labeller == "none" else f"{name}+{labeller}": (name, labeller)
        for name, strategy in STRATEGIES.items()
        for labeller in (("none",) if strategy.own_labels else LABELLERS)
    },
    "fedsem+": ("fedavg", "network-once"),
}
"""Strategy and pseudo-labeller of every method, such as ``fedprox+xclp``; ``fedavg`` is labelled
only."""


@dataclass(frozen=True)
class Study(Validated):
    """All that fixes a study's numbers.

    Attributes:
        dataset: a key of `LOADERS`.
        data: options of its loader.
        network: a key of `NETWORKS`.
        augmentation: a key of `AUGMENTATIONS`.
        methods: keys of `METHODS`.
        partition: fields of `Partition`.
        training: fields of `Training`.
        parameters: of label propagation, those of `Settings`; k is 10 by default, as in
            the paper's appendix.
        options: by method, fields of `Training` that it has otherwise, and those of its strategy.
        secure: whether models are averaged by SecureSum.
        evaluate_every: rounds between measurements on the validation rows; the network with the
            best is tested.
        test_share: share of test rows where the data set has none marked.
        metric: which of `METRICS` the table shows.
        seeds: one run of each method per seed; it fixes split, weights and training.

    Raises:
        ParameterError: a name is unknown or a value is out of range.
    """

    dataset: str
    data: Mapping[str, Any] = field(default_factory=dict)
    network: str = "small-cnn"
    augmentation: str = "none"
    methods: Names = ("fedavg", "fedavg+per-client", "fedavg+xclp")
    partition: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    secure: bool = False
    evaluate_every: Annotated[int, Meta(ge=1)] = 10
    test_share: Share = 0.2
    metric: str = "accuracy"
    seeds: Seeds = (0, 1, 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        known_name("dataset", self.dataset, LOADERS)
        known_name("network", self.network, NETWORKS)
        known_name("augmentation", self.augmentation, AUGMENTATIONS)
        known_name("metric", self.metric, METRICS)
        require_once(methods=self.methods, seeds=self.seeds)
        for method in (*self.methods, *self.options):
            known_name("method", method, METHODS)
        self.split_parameters()
        self.arguments(0)
        for method in self.methods:
            self.strategy(method, clients=1)

    def split_parameters(self) -> Partition:
        """Return the federated setup."""
        return read_section(Partition, self.partition, "", "partition")

    def arguments(self, seed: int) -> Arguments:
        """Return the arguments of label propagation for one seed."""
        return arguments_of(self.parameters, seed, k=10)

    def hyper_parameters(self, method: str) -> Training:
        """Return those of a method."""
        names = keys_of(Training)
        own = {k: v for k, v in self.options.get(method, {}).items() if k in names}
        return replace(read_section(Training, self.training, "", "training"), **own)

    def strategy(self, method: str, clients: int) -> FedAvg:
        """Return a new strategy for a run of a method with m clients.

        Raises:
            ParameterError: an option of the method is unknown or out of range.
        """
        kind = STRATEGIES[METHODS[method][0]]
        own = [name for name in keys_of(kind) if name not in keys_of(FedAvg)]
        extra: dict[str, Any] = {}
        for name, value in self.options.get(method, {}).items():
            known_name(f"option of {method}", name, [*own, *keys_of(Training)])
            if name in own:
                extra[name] = checked(f"{name} of {method}", value, field_types(kind)[name])
        return kind(
            self.hyper_parameters(method),
            AUGMENTATIONS[self.augmentation],
            self.secure,
            clients,
            **extra,
        )

    def labeller(self, method: str, n_classes: int, seed: int) -> PseudoLabeller:
        """Return a new pseudo-labeller for a run of a method."""
        name = METHODS[method][1]
        if name == "none":
            return NoLabels()
        if name in ("network", "network-once"):
            return NetworkLabels(once=name == "network-once")
        return PropagatedLabels(name, n_classes, self.arguments(seed))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but where the data are, as in JSON."""
        content = asdict(self)
        content["data"] = {k: v for k, v in self.data.items() if k != "path"}
        return content
