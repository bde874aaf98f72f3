"""The forms of the paper's experiments: which rows take part, are labelled, and are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_lp.study.data import Federation, label_count_mask, label_mask

Masks = tuple[NDArray[np.bool_], ...]
Setting = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """One row of a table, for one seed.

    Attributes:
        setting: what the row says: names and values.
        kept: per client, shape (n_j,): rows that take part.
        labelled: rows among them whose label is known.
        scored: rows among them, without a label, on which accuracy is measured.
        groups: indices of the clients whose graphs are built together.
    """

    setting: Setting
    kept: Masks
    labelled: Masks
    scored: Masks
    groups: tuple[tuple[int, ...], ...]


def rows_to_score(federation: Federation, share: float, seed: int) -> Masks:
    """Return the test rows of the data, or a random share of each client's rows.

    Raises:
        ParameterError: the share is not in (0, 1).
    """
    if federation.test is not None:
        return federation.test
    require_share(share)
    # Another stream than that of the labels, which is drawn from the rest.
    return label_mask(federation.labels, share, seed + 1_000_000_007)


def require_share(share: Any) -> None:
    """Refuse a share of test rows that is none.

    Raises:
        ParameterError: it is no number strictly between 0 and 1.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ParameterError(f"test_share must be strictly between 0 and 1, got {share!r}")


def labels_form(
    federation: Federation, values: Sequence[Any], test: Masks, seed: int, group_size: int
) -> Iterator[Trial]:
    """Give each client so many labels; its other training rows take part without.

    Raises:
        ParameterError: a number is no count, or no client has so many training rows.
    """
    del group_size
    most = max(int((~own).sum()) for own in test)
    for count in values:
        if _count(count) > most:
            raise ParameterError(
                f"no client has {count} training rows to label; the largest has {most}"
            )
        labelled = label_count_mask(federation.labels, _count(count), seed, test)
        yield _trial({"labels per client": count}, _all(federation), labelled, test)


def size_form(
    federation: Federation, values: Sequence[Any], test: Masks, seed: int, group_size: int
) -> Iterator[Trial]:
    """Keep a share of each client's training rows, all labelled (Table 1)."""
    del group_size
    for share in values:
        labelled = label_mask(federation.labels, _share(share), seed, test)
        kept = tuple(a | b for a, b in zip(labelled, test, strict=True))
        rows = int(sum(m.sum() for m in labelled))
        yield _trial({"training rows": share, "n": rows}, kept, labelled, test)


def leave_one_out_form(
    federation: Federation, values: Sequence[Any], test: Masks, seed: int, group_size: int
) -> Iterator[Trial]:
    """Predict all rows of a client without labels from the others' training rows (Table 2)."""
    del group_size
    for share in values:
        chosen = label_mask(federation.labels, _share(share), seed, test)
        for j, name in enumerate(federation.names):
            everything = np.ones(len(federation.labels[j]), dtype=np.bool_)
            labelled = tuple(m & (i != j) for i, m in enumerate(chosen))
            kept = tuple(everything if i == j else m for i, m in enumerate(chosen))
            scored = tuple(everything if i == j else np.zeros_like(m) for i, m in enumerate(chosen))
            setting: Setting = {"left out": name}
            if len(values) > 1:
                setting["labelled"] = share
            yield _trial(setting, kept, labelled, scored)


def fraction_form(
    federation: Federation, values: Sequence[Any], test: Masks, seed: int, group_size: int
) -> Iterator[Trial]:
    """Label a share of the training rows; leave the others out, or keep them (Table 3)."""
    del group_size
    for share in values:
        labelled = label_mask(federation.labels, _share(share), seed, test)
        only = tuple(a | b for a, b in zip(labelled, test, strict=True))
        for words, kept in (("left out", only), ("kept", _all(federation))):
            yield _trial({"labelled": share, "unlabelled rows": words}, kept, labelled, test)


def groups_form(
    federation: Federation, values: Sequence[Any], test: Masks, seed: int, group_size: int
) -> Iterator[Trial]:
    """Label a share of the training rows, in random groups of clients (FEMNIST table).

    Raises:
        ParameterError: a share is not in (0, 1], or the size of a group is below 1.
    """
    if group_size < 1:
        raise ParameterError(f"group_size must be at least 1, got {group_size}")
    n = len(federation.names)
    order = np.random.Generator(np.random.PCG64([seed, n])).permutation(n)
    parts = np.array_split(order, max(1, round(n / group_size)))
    groups = tuple(tuple(sorted(part.tolist())) for part in parts)
    for share in values:
        labelled = label_mask(federation.labels, _share(share), seed, test)
        yield _trial({"labelled": share}, _all(federation), labelled, test, groups)


def _trial(
    setting: Setting,
    kept: Masks,
    labelled: Masks,
    scored: Masks,
    groups: tuple[tuple[int, ...], ...] | None = None,
) -> Trial:
    together = (tuple(range(len(kept))),)
    return Trial(setting, kept, labelled, scored, together if groups is None else groups)


def _all(federation: Federation) -> Masks:
    return tuple(np.ones(len(y), dtype=np.bool_) for y in federation.labels)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(f"values must be numbers of labels, got {value!r}")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParameterError(f"values must be shares of rows in (0, 1], got {value!r}")
    return float(value)


@dataclass(frozen=True)
class Form:
    """A form of experiment.

    Attributes:
        title: of its table.
        trials: yields a trial for each row of the table, given federation, values, test rows, seed
            and size of groups.
        values: what is varied, by default.
        alone: whether a client alone has labels to predict from.
    """

    title: str
    trials: Callable[[Federation, Sequence[Any], Masks, int, int], Iterator[Trial]]
    values: tuple[Any, ...]
    alone: bool = True


FORMS: dict[str, Form] = {
    "labels": Form("Labels per client", labels_form, (1, 3, 5, 10, 20)),
    "size": Form("Size of the training set", size_form, (0.05, 0.1, 0.2, 1.0)),
    "leave-one-out": Form("One client without labels", leave_one_out_form, (1.0,), alone=False),
    "fraction": Form("Share of labelled training rows", fraction_form, (0.05, 0.1, 0.2, 1.0)),
    "groups": Form("Groups of clients", groups_form, (0.1, 0.2, 0.5, 1.0)),
}
"""Every form by name."""
