"""What an experiment is: a form, a data set, methods, parameters and seeds; from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from xclp_crypto.errors import ParameterError
from xclp_crypto.wording import did_you_mean
from xclp_lp.study.data import LOADERS
from xclp_lp.study.experiments.features import EXTRACTORS
from xclp_lp.study.experiments.forms import FORMS, require_share
from xclp_lp.study.experiments.methods import METHODS, Choices

METRICS = ("accuracy", "balanced_accuracy")
"""Share of right labels, over rows; and the mean of it over the classes."""


@dataclass(frozen=True)
class Experiment:
    """All that fixes an experiment's numbers.

    Attributes:
        form: a key of `FORMS`.
        dataset: a key of `LOADERS`.
        data: options of its loader.
        values: what the form varies; its own by default.
        methods: keys of `METHODS`.
        extractor: a key of `EXTRACTORS`.
        parameters: those of `Choices` but the seed.
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
    methods: tuple[str, ...] = ("per-client", "xclp", "pooled")
    extractor: str = "identity"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "accuracy"
    test_share: float = 0.3
    group_size: int = 700
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        known_name("form", self.form, FORMS)
        known_name("dataset", self.dataset, LOADERS)
        known_name("extractor", self.extractor, EXTRACTORS)
        known_name("metric", self.metric, METRICS)
        for method in self.methods:
            known_name("method", method, METHODS)
        require_runs(self.methods, self.seeds)
        require_once("values", self.values)
        require_share(self.test_share)
        if isinstance(self.group_size, bool) or not isinstance(self.group_size, int):
            raise ParameterError(f"group_size must be a whole number, got {self.group_size!r}")
        allowed = [f.name for f in fields(Choices) if f.name != "seed"]
        for name in self.parameters:
            known_name("parameter", name, allowed)
        if not self.values:
            object.__setattr__(self, "values", FORMS[self.form].values)

    def choices(self, seed: int) -> Choices:
        """Return the parameters of label propagation for one seed."""
        return Choices(**self.parameters, seed=seed)


def require_runs(methods: Sequence[str], seeds: Sequence[Any]) -> None:
    """Refuse runs that are none, or that would count twice.

    Raises:
        ParameterError: names what is missing, no seed, or there twice.
    """
    if not methods or not seeds:
        raise ParameterError("at least one method and one seed are needed")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ParameterError(f"seeds must be integers >= 0, got {seed!r}")
    require_once("methods", methods)
    require_once("seeds", seeds)


def require_once(what: str, values: Sequence[Any]) -> None:
    """Refuse a list that names something twice: means and deviations would count it twice.

    Raises:
        ParameterError: names it.
    """
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ParameterError(f"{what} names {value!r} twice")


def read_experiment(path: Path | None, given: Mapping[str, Any]) -> Experiment:
    """Read an experiment from a TOML file, and from what a command line says besides.

    Args:
        path: with the fields of `Experiment` as keys, ``data`` and ``parameters`` as tables; None
            for none.
        given: fields; they come before those of the file, tables key by key.

    Raises:
        ParameterError: the file cannot be read, or something in it is wrong.
    """
    return Experiment(
        **read_table(
            path,
            given,
            Experiment,
            ("data", "parameters"),
            ("values", "methods", "seeds"),
            ("form", "dataset"),
        )
    )


def read_table(
    path: Path | None,
    given: Mapping[str, Any],
    kind: type[Any],
    tables: Collection[str],
    lists: Collection[str],
    needed: Collection[str],
) -> dict[str, Any]:
    """Read the fields of a dataclass from a TOML file, and from what a command line says besides.

    Args:
        path: the file; None for none.
        given: fields; they come before those of the file, tables key by key.
        kind: the dataclass.
        tables: fields that are tables, as no other is.
        lists: fields that are lists; they become tuples.
        needed: fields that must be there.

    Raises:
        ParameterError: the file cannot be read, a field is unknown, missing or of another kind.
    """
    content: dict[str, Any] = {}
    if path is not None:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ParameterError(f"{path} cannot be read: {error}") from None
    for name, value in given.items():
        table = isinstance(value, Mapping) and isinstance(content.get(name), Mapping)
        content[name] = {**content[name], **value} if table else value
    known = [f.name for f in fields(kind)]
    for name, value in content.items():
        known_name("field", name, known)
        if name in lists:
            if not isinstance(value, list | tuple):
                raise ParameterError(f"{name} must be a list, got {value!r}")
            content[name] = tuple(value)
        elif (name in tables) != isinstance(value, Mapping):
            wanted = "be a table" if name in tables else "not be a table"
            raise ParameterError(f"{name} must {wanted}, got {value!r}")
    for name in needed:
        if name not in content:
            raise ParameterError(f"the {kind.__name__.lower()} needs a {name}")
    return content


def known_name(what: str, name: Any, known: Collection[str]) -> None:
    """Refuse a name that is not known.

    Raises:
        ParameterError: lists those that are, and says which is meant perhaps.
    """
    if not isinstance(name, str) or name not in known:
        raise ParameterError(
            f"there is no {what} {name!r}; choose from {', '.join(known)}"
            f"{did_you_mean(str(name), known)}"
        )
