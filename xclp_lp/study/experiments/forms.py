"""The forms of the paper's experiments: which rows take part, are labelled, and are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_lp.study.data import Federation, label_count_mask, label_mask
from xclp_lp.validation import checked

Masks = tuple[NDArray[np.bool_], ...]
Groups = tuple[tuple[int, ...], ...]
Setting = dict[str, Any]
Share = Annotated[float, Meta(gt=0, le=1, title="shares of rows in (0, 1]")]
Labels = Annotated[int, Meta(ge=1, title="numbers of labels")]


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
    groups: Groups


def rows_to_score(federation: Federation, share: float, seed: int) -> Masks:
    """Return the test rows of the data, or a random share of each client's rows.

    Raises:
        ParameterError: the share is not in (0, 1).
    """
    if federation.test is not None:
        return federation.test
    if not 0 < share < 1:
        raise ParameterError(f"test_share must be strictly between 0 and 1, got {share!r}")
    # Another stream than that of the labels, which is drawn from the rest.
    return label_mask(federation.labels, share, seed + 1_000_000_007)


@dataclass(frozen=True, eq=False)
class TrialSource:
    """What a form draws its trials from.

    Attributes:
        federation: the data.
        test: rows to score, per client; see `rows_to_score`.
        seed: of labels and groups.
        group_size: clients whose graphs are built together, for the form that has groups.
    """

    federation: Federation
    test: Masks
    seed: int
    group_size: int

    def labelled(self, share: Any) -> Masks:
        """Choose a share of each client's training rows.

        Raises:
            ParameterError: it is not a number in (0, 1].
        """
        fraction = checked("values", share, Share)
        return label_mask(self.federation.labels, fraction, self.seed, self.test)

    def trial(
        self,
        setting: Setting,
        labelled: Masks,
        *,
        kept: Masks | None = None,
        scored: Masks | None = None,
        groups: Groups | None = None,
    ) -> Trial:
        """Return a trial: of all rows, with the test rows scored and one group, if not told."""
        everything = tuple(np.ones(len(y), dtype=np.bool_) for y in self.federation.labels)
        together = (tuple(range(len(labelled))),)
        return Trial(setting, kept or everything, labelled, scored or self.test, groups or together)


def labels_form(source: TrialSource, values: Sequence[Any]) -> Iterator[Trial]:
    """Give each client so many labels; its other training rows take part without.

    Raises:
        ParameterError: a number is not a count, or no client has so many training rows.
    """
    labels, test = source.federation.labels, source.test
    most = max(int((~own).sum()) for own in test)
    for count in values:
        if checked("values", count, Labels) > most:
            raise ParameterError(
                f"no client has {count} training rows to label; the largest has {most}"
            )
        labelled = label_count_mask(labels, count, source.seed, test)
        yield source.trial({"labels per client": count}, labelled)


def size_form(source: TrialSource, values: Sequence[Any]) -> Iterator[Trial]:
    """Keep a share of each client's training rows, all labelled (Table 1)."""
    for share in values:
        labelled = source.labelled(share)
        setting = {"training rows": share, "n": sum(int(m.sum()) for m in labelled)}
        yield source.trial(setting, labelled, kept=_either(labelled, source.test))


def leave_one_out_form(source: TrialSource, values: Sequence[Any]) -> Iterator[Trial]:
    """Predict all rows of a client without labels from the others' training rows (Table 2)."""
    for share in values:
        chosen = source.labelled(share)
        for j, name in enumerate(source.federation.names):
            out = tuple(np.full(len(m), i == j) for i, m in enumerate(chosen))
            labelled = tuple(m & ~own for m, own in zip(chosen, out, strict=True))
            setting = {"left out": name} | ({"labelled": share} if len(values) > 1 else {})
            yield source.trial(setting, labelled, kept=_either(labelled, out), scored=out)


def fraction_form(source: TrialSource, values: Sequence[Any]) -> Iterator[Trial]:
    """Label a share of the training rows; leave the others out, or keep them (Table 3)."""
    for share in values:
        labelled = source.labelled(share)
        only = _either(labelled, source.test)
        for words, kept in (("left out", only), ("kept", None)):
            yield source.trial({"labelled": share, "unlabelled rows": words}, labelled, kept=kept)


def groups_form(source: TrialSource, values: Sequence[Any]) -> Iterator[Trial]:
    """Label a share of the training rows, in random groups of clients (FEMNIST table).

    Raises:
        ParameterError: a share is not in (0, 1], or the size of a group is below 1.
    """
    if source.group_size < 1:
        raise ParameterError(f"group_size must be at least 1, got {source.group_size}")
    n = len(source.federation.names)
    order = np.random.Generator(np.random.PCG64([source.seed, n])).permutation(n)
    parts = np.array_split(order, max(1, round(n / source.group_size)))
    groups = tuple(tuple(sorted(part.tolist())) for part in parts)
    for share in values:
        yield source.trial({"labelled": share}, source.labelled(share), groups=groups)


def _either(some: Masks, others: Masks) -> Masks:
    return tuple(a | b for a, b in zip(some, others, strict=True))


@dataclass(frozen=True)
class Form:
    """A form of experiment.

    Attributes:
        title: of its table.
        trials: yields a trial for each row of the table, given the data and the values.
        values: what is varied, by default.
        alone: whether a client alone has labels to predict from.
    """

    title: str
    trials: Callable[[TrialSource, Sequence[Any]], Iterator[Trial]]
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
