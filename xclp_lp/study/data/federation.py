"""A data set that is spread over clients, and the choice of which points are labelled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.wording import did_you_mean
from xclp_lp.labels import encode

Place = Annotated[str | Path, Meta(title="the path of a file or folder")]
Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0)]


def require_between(name: str, value: float, low: float, high: float = np.inf) -> None:
    """Refuse a number outside its range.

    Raises:
        ParameterError: names it, and the range.
    """
    if not low <= value <= high:
        allowed = f"at least {low}" if high == np.inf else f"in {low}..{high}"
        raise ParameterError(f"{name} is {value}; it must be {allowed}")


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


@dataclass(frozen=True, eq=False)
class Federation:
    """Data of several clients, with the true class of every point.

    Attributes:
        names: one per client, all different.
        features: per client, shape (n_j, d), float64, finite.
        labels: per client, shape (n_j,): integers or text, each one of `classes`.
        classes: the C classes in order.
        source: where the data come from.
        licence: of the data.
        test: per client, shape (n_j,), true for rows that are there to be predicted, so that no
            label may come from them: later recordings, a published test set. None where the data
            have no such division.

    Raises:
        DataError: the parts contradict each other (names the client).
    """

    names: tuple[str, ...]
    features: tuple[NDArray[np.float64], ...]
    labels: tuple[NDArray[Any], ...]
    classes: tuple[int | str, ...]
    source: str
    licence: str
    test: tuple[NDArray[np.bool_], ...] | None = None

    @property
    def class_ids(self) -> list[NDArray[np.int64]]:
        """Return per client, shape (n_j,), the index of each point's class."""
        return [encode(y.tolist(), np.ones(len(y), dtype=bool), self.classes) for y in self.labels]

    def thinned(self, rows: int) -> Federation:
        """Return the same clients with at most `rows` rows each, spread evenly over their rows.

        Raises:
            ParameterError: `rows` is below 1.
        """
        if rows < 1:
            raise ParameterError(f"rows must be at least 1, got {rows}")
        picks = [
            np.unique(np.linspace(0, len(y) - 1, min(rows, len(y))).round().astype(np.intp))
            for y in self.labels
        ]
        return self._only(picks)

    def imbalanced(self, ratio: float) -> Federation:
        """Return the same clients with ever fewer rows of each class in turn.

        Of the first class each client keeps all rows, of the last one in `ratio`, and of those
        between so many that each class has the same multiple of the next; at least one of every
        class that it has. They are spread evenly over its rows of the class.

        Raises:
            ParameterError: the ratio is below 1 or not finite.
        """
        if not 1 <= ratio < np.inf:
            raise ParameterError(f"imbalance must be at least 1 and finite, got {ratio}")
        steps = max(1, len(self.classes) - 1)
        picks = []
        for y in self.labels:
            kept = []
            for c, name in enumerate(self.classes):
                rows = np.flatnonzero(y == name)
                count = min(len(rows), max(1, round(len(rows) / ratio ** (c / steps))))
                kept.append(rows[np.linspace(0, len(rows) - 1, count).round().astype(np.intp)])
            picks.append(np.sort(np.concatenate(kept)))
        return self._only(picks)

    def _only(self, picks: Sequence[NDArray[np.intp]]) -> Federation:
        return replace(
            self,
            features=tuple(v[p] for v, p in zip(self.features, picks, strict=True)),
            labels=tuple(y[p] for y, p in zip(self.labels, picks, strict=True)),
            test=None
            if self.test is None
            else tuple(t[p] for t, p in zip(self.test, picks, strict=True)),
        )

    def __post_init__(self) -> None:
        if not self.names or not len(self.names) == len(self.features) == len(self.labels):
            raise DataError(
                f"{len(self.names)} names, {len(self.features)} feature matrices and "
                f"{len(self.labels)} label arrays; there must be as many of each, and at least one"
            )
        if len(set(self.names)) < len(self.names):
            raise DataError(f"the clients' names are not all different: {', '.join(self.names)}")
        if self.test is not None and [t.shape for t in self.test] != [y.shape for y in self.labels]:
            raise DataError("the marks of test rows differ in number from the rows")
        known = np.asarray(self.classes)
        for name, v, y in zip(self.names, self.features, self.labels, strict=True):
            if v.ndim != 2 or v.shape[1] != self.features[0].shape[1] or y.shape != v.shape[:1]:
                raise DataError(
                    f"{name} has features of shape {v.shape} and labels of shape {y.shape}; "
                    f"(n, {self.features[0].shape[-1]}) and (n,) are needed"
                )
            if not np.isfinite(v).all():
                row = int(np.argmin(np.isfinite(v).all(axis=1)))
                raise DataError(f"{name} has a feature that is not finite in row {row}")
            strange = ~np.isin(y, known)
            if strange.any():
                row = int(np.argmax(strange))
                raise DataError(f"{name}'s label {y[row]!r} in row {row} is not a class of {known}")


def label_mask(
    labels: Sequence[NDArray[Any]],
    fraction: float,
    seed: int,
    test: Sequence[NDArray[np.bool_]] | None = None,
) -> tuple[NDArray[np.bool_], ...]:
    """Choose the labelled points of each client: a plain random sample of its points.

    Not stratified, as nobody could know the classes beforehand: at small fractions a client may
    lack examples of some classes. A client's choice does not depend on the other clients' sizes.

    Args:
        labels: per client, shape (n_j,); only the lengths matter.
        fraction: of each client's points, in (0, 1].
        seed: ≥ 0.
        test: per client, shape (n_j,): points that are never chosen and do not count.

    Returns:
        Per client, shape (n_j,), true for max(1, round(fraction·n_j)) points; empty for n_j = 0.

    Raises:
        ParameterError: the fraction or the seed is out of range.
    """
    if not 0 < fraction <= 1:
        raise ParameterError(f"the labelled fraction must be in (0, 1], got {fraction}")
    return _drawn(labels, lambda n: max(1, round(fraction * n)), seed, test)


def label_count_mask(
    labels: Sequence[NDArray[Any]],
    count: int,
    seed: int,
    test: Sequence[NDArray[np.bool_]] | None = None,
) -> tuple[NDArray[np.bool_], ...]:
    """Choose so many labelled points of each client, or all where it has fewer.

    Arguments other than `count`, which is ≥ 1, and the result are those of `label_mask`. A larger
    count adds to the points of a smaller one.

    Raises:
        ParameterError: the count or the seed is out of range.
    """
    if count < 1:
        raise ParameterError(f"the number of labels per client must be at least 1, got {count}")
    return _drawn(labels, lambda n: min(count, n), seed, test)


def _drawn(
    labels: Sequence[NDArray[Any]],
    size: Callable[[int], int],
    seed: int,
    test: Sequence[NDArray[np.bool_]] | None,
) -> tuple[NDArray[np.bool_], ...]:
    """Draw so many points of each client as `size` says for the number that may be drawn."""
    require_between("seed", seed, 0)
    masks = []
    for client, y in enumerate(labels):
        mask = np.zeros(len(y), dtype=np.bool_)
        allowed = np.arange(len(y)) if test is None else np.flatnonzero(~test[client])
        if len(allowed):
            rng = np.random.Generator(np.random.PCG64([seed, client]))
            mask[allowed[rng.permutation(len(allowed))[: size(len(allowed))]]] = True
        masks.append(mask)
    return tuple(masks)
