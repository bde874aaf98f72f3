"""What a study of federated semi-supervised learning is, from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from xclp_crypto.errors import ParameterError
from xclp_lp.study.data import LOADERS
from xclp_lp.study.experiments.config import METRICS, known_name, read_table, require_runs
from xclp_lp.study.experiments.forms import require_share
from xclp_lp.study.experiments.methods import Choices
from xclp_lp.study.ssl.augment import AUGMENTATIONS
from xclp_lp.study.ssl.client import Training
from xclp_lp.study.ssl.comparators import FedMatch, FedSiam
from xclp_lp.study.ssl.labellers import NetworkLabels, NoLabels, PropagatedLabels, PseudoLabeller
from xclp_lp.study.ssl.networks import NETWORKS
from xclp_lp.study.ssl.partition import Partition
from xclp_lp.study.ssl.strategies import FedAvg, FedProx, Scaffold

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

TABLES = ("data", "partition", "training", "parameters", "options")


@dataclass(frozen=True)
class Study:
    """All that fixes a study's numbers.

    Attributes:
        dataset: a key of `LOADERS`.
        data: options of its loader.
        network: a key of `NETWORKS`.
        augmentation: a key of `AUGMENTATIONS`.
        methods: keys of `METHODS`.
        partition: fields of `Partition`.
        training: fields of `Training`.
        parameters: of label propagation, those of `Choices` but the seed; k is 10 by default, as in
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
    methods: tuple[str, ...] = ("fedavg", "fedavg+per-client", "fedavg+xclp")
    partition: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    secure: bool = False
    evaluate_every: int = 10
    test_share: float = 0.2
    metric: str = "accuracy"
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        known_name("dataset", self.dataset, LOADERS)
        known_name("network", self.network, NETWORKS)
        known_name("augmentation", self.augmentation, AUGMENTATIONS)
        known_name("metric", self.metric, METRICS)
        require_runs(self.methods, self.seeds)
        require_share(self.test_share)
        if not isinstance(self.evaluate_every, int) or self.evaluate_every < 1:
            raise ParameterError(f"evaluate_every must be at least 1, got {self.evaluate_every!r}")
        if not isinstance(self.secure, bool):
            raise ParameterError(f"secure must be true or false, got {self.secure!r}")
        for method in (*self.methods, *self.options):
            known_name("method", method, METHODS)
        self.split_parameters()
        self.choices(0)
        for method in self.methods:
            self.strategy(method, clients=1)

    def split_parameters(self) -> Partition:
        """Return the federated setup."""
        for name in self.partition:
            known_name("field of partition", name, [f.name for f in fields(Partition)])
        return Partition(**self.partition)

    def choices(self, seed: int) -> Choices:
        """Return the parameters of label propagation for one seed."""
        for name in self.parameters:
            known_name("parameter", name, [f.name for f in fields(Choices) if f.name != "seed"])
        return Choices(**{"k": 10} | dict(self.parameters), seed=seed)

    def hyper_parameters(self, method: str) -> Training:
        """Return those of a method."""
        names = [f.name for f in fields(Training)]
        for name in self.training:
            known_name("field of training", name, names)
        own = {k: v for k, v in self.options.get(method, {}).items() if k in names}
        return replace(Training(**self.training), **own)

    def strategy(self, method: str, clients: int) -> FedAvg:
        """Return a new strategy for a run of a method with m clients.

        Raises:
            ParameterError: an option of the method is unknown or out of range.
        """
        kind = STRATEGIES[METHODS[method][0]]
        common = {f.name for f in fields(FedAvg)}
        own = [f.name for f in fields(kind) if f.init and f.name not in common]
        trained = [f.name for f in fields(Training)]
        extra: dict[str, Any] = {}
        for name, value in self.options.get(method, {}).items():
            known_name(f"option of {method}", name, [*own, *trained])
            if name in own:
                if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                    raise ParameterError(f"{name} of {method} must be >= 0, got {value!r}")
                extra[name] = value
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
        return PropagatedLabels(name, n_classes, self.choices(seed))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but where the data are, as in JSON."""
        content = asdict(self)
        content["data"] = {k: v for k, v in self.data.items() if k != "path"}
        return content


def read_study(path: Path, given: Mapping[str, Any]) -> Study:
    """Read a study from a TOML file, and from what a command line says besides.

    Args:
        path: with the fields of `Study` as keys.
        given: fields; they come before those of the file, tables key by key.

    Raises:
        ParameterError: the file cannot be read, or something in it is wrong.
    """
    return Study(**read_table(path, given, Study, TABLES, ("methods", "seeds"), ("dataset",)))
