"""What an experiment is: a form, a data set, methods, parameters and seeds; from a TOML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from xclp_crypto.errors import ParameterError
from xclp_lp.files.toml import read_section, read_toml
from xclp_lp.parameters import Arguments, Settings
from xclp_lp.study.data import LOADERS
from xclp_lp.study.data.federation import known_name
from xclp_lp.study.experiments.features import EXTRACTORS
from xclp_lp.study.experiments.forms import FORMS
from xclp_lp.study.experiments.methods import METHODS, arguments
from xclp_lp.validation import Validated

T = TypeVar("T")
METRICS = ("accuracy", "balanced_accuracy")
"""Share of right labels, over rows; and the mean of it over the classes."""


Names = Annotated[tuple[str, ...], Meta(title="a list of names")]
Seeds = Annotated[
    tuple[Annotated[int, Meta(ge=0)], ...], Meta(title="a list of integers of at least 0")
]
Share = Annotated[float, Meta(gt=0, lt=1)]


@dataclass(frozen=True)
class Experiment(Validated):
    """All that fixes an experiment's numbers.

    Attributes:
        form: a key of `FORMS`.
        dataset: a key of `LOADERS`.
        data: options of its loader.
        values: what the form varies; its own by default.
        methods: keys of `METHODS`.
        extractor: a key of `EXTRACTORS`.
        parameters: of label propagation, those of `Settings`.
        metric: which of `METRICS` the table shows; both are measured.
        test_share: share of test rows, drawn for each seed, where the data have none.
        group_size: clients per group, for the form ``groups``.
        seeds: one run each.

    Raises:
        ParameterError: a name is unknown or a value is out of range.
    """

    form: str
    dataset: str
    data: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[Any, ...] = ()
    methods: Names = ("per-client", "xclp", "pooled")
    extractor: str = "identity"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "accuracy"
    test_share: Share = 0.3
    group_size: int = 700
    seeds: Seeds = (0, 1, 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        known_name("form", self.form, FORMS)
        known_name("dataset", self.dataset, LOADERS)
        known_name("extractor", self.extractor, EXTRACTORS)
        known_name("metric", self.metric, METRICS)
        for method in self.methods:
            known_name("method", method, METHODS)
        require_once(methods=self.methods, seeds=self.seeds, values=self.values)
        if not self.values:
            object.__setattr__(self, "values", FORMS[self.form].values)
        self.arguments(0)

    def arguments(self, seed: int) -> Arguments:
        """Return the arguments of label propagation for one seed."""
        return arguments_of(self.parameters, seed)


def arguments_of(section: Mapping[str, Any], seed: int, **defaults: Any) -> Arguments:
    """Return the arguments of label propagation that a section [parameters] asks for.

    Args:
        section: fields of `Settings`.
        seed: of the projection and of training.
        defaults: other ones than `arguments` has.

    Raises:
        ParameterError: a field is unknown, or out of range.
    """
    settings = read_section(Settings, section, "", "parameters")
    given = {name: getattr(settings, name) for name in section}
    return arguments(seed, **defaults | given)


def require_once(**lists: Sequence[Any]) -> None:
    """Refuse lists that name something twice: means and deviations would count it twice.

    Raises:
        ParameterError: names it, or says that there is no method or seed at all.
    """
    for what, values in lists.items():
        if what in ("methods", "seeds") and not values:
            raise ParameterError("at least one method and one seed are needed")
        for i, value in enumerate(values):
            if value in values[:i]:
                raise ParameterError(f"{what} names {value!r} twice")


def read_described(kind: type[T], path: Path | None, given: Mapping[str, Any]) -> T:
    """Make a dataclass of a TOML file, and of what a command line says besides.

    Args:
        kind: the dataclass.
        path: the file; None for none.
        given: fields; they come before those of the file, tables key by key.

    Raises:
        ParameterError: the file cannot be read, a field is unknown, missing or of another kind.
    """
    content = {} if path is None else read_toml(path)
    for name, value in given.items():
        table = isinstance(value, Mapping) and isinstance(content.get(name), Mapping)
        content[name] = {**content[name], **value} if table else value
    return read_section(kind, content, path or f"the {kind.__name__.lower()}")
