"""Who has which training rows and labels: the federated setup of the paper's appendix."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.whole_files import write_whole
from xclp_lp.study.data.dealing import deal
from xclp_lp.study.training.client import Count
from xclp_lp.study.training.seeds import derived, generator
from xclp_lp.validation import Validated


@dataclass(frozen=True)
class Partition(Validated):
    """The federated setup.

    Attributes:
        kind: how rows are dealt out. ``iid``: all clients have all classes alike. ``classes``: each
            client has some classes only, all of them alike. ``natural``: the data set's own
            clients.
        clients: m; ignored where they are natural.
        labelled_clients: m_L, so many clients have labels; all by default.
        labels: n_L, labels in all, n_L/m_L for each of these clients.
        classes_per_client: for ``classes``.
        unlabelled_iid: with ``classes``, whether only labels are dealt out by classes and the
            other rows alike, as the paper's published code does.
        rows: training rows, drawn at random from all that there are; all by default.
        validation: share of the training rows held out to choose rounds and hyper-parameters.

    Raises:
        ParameterError: a value is out of range.
    """

    kind: Literal["iid", "classes", "natural"] = "iid"
    clients: Count = 100
    labelled_clients: Count | None = None
    labels: Count = 1000
    classes_per_client: Count = 2
    unlabelled_iid: bool = False
    rows: Count | None = None
    validation: Annotated[float, Meta(gt=0, lt=1)] = 0.1


@dataclass(frozen=True, eq=False)
class Split:
    """What a partition comes to for one data set and seed; rows are numbers of training rows.

    Attributes:
        labelled: per client, ascending row numbers with a label.
        unlabelled: per client, the others.
        validation: rows that no client has.
    """

    labelled: tuple[NDArray[np.intp], ...]
    unlabelled: tuple[NDArray[np.intp], ...]
    validation: NDArray[np.intp]

    def write(self, file: Path) -> None:
        """Write the split as JSON."""
        content = {
            "clients": [
                {"labelled": have.tolist(), "unlabelled": lack.tolist()}
                for have, lack in zip(self.labelled, self.unlabelled, strict=True)
            ],
            "validation": self.validation.tolist(),
        }
        write_whole(file, f"{json.dumps(content)}\n".encode())

    @classmethod
    def read(cls, file: Path) -> Split:
        """Read what `write` wrote.

        Raises:
            DataError: the file is something else, or a row is there twice.
        """
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            split = cls(
                tuple(_rows(c["labelled"]) for c in content["clients"]),
                tuple(_rows(c["unlabelled"]) for c in content["clients"]),
                _rows(content["validation"]),
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{file} is not a split of a data set: {error!r}") from None
        rows = np.concatenate([*split.labelled, *split.unlabelled, split.validation])
        if len(np.unique(rows)) < len(rows):
            raise DataError(f"{file} gives a row to two clients, or to one twice")
        return split


def _rows(numbers: Any) -> NDArray[np.intp]:
    """Return rows that JSON has as a list; floats, which NumPy would round, are refused."""
    if not isinstance(numbers, list) or not all(
        type(n) is int and 0 <= n <= np.iinfo(np.intp).max for n in numbers
    ):
        raise DataError("rows are a list of integers ≥ 0")
    return np.array(numbers, dtype=np.intp)


def split_rows(
    class_ids: NDArray[np.int64],
    owners: NDArray[np.intp],
    n_classes: int,
    partition: Partition,
    seed: int,
) -> Split:
    """Hold out the validation rows, deal out the rest, and choose whose labels are known.

    Args:
        class_ids: classes of all training rows, shape (n,), in 0..C-1.
        owners: the data set's own client of each row, shape (n,).
        n_classes: C.
        partition: what is wanted.
        seed: ≥ 0; the same split for the same seed.

    Raises:
        ParameterError: more rows, clients or labels are wanted than there are.
    """
    rng = generator(seed, "split")
    natural = partition.kind == "natural"
    m = int(owners.max(initial=-1)) + 1 if natural else partition.clients
    wanted = len(class_ids) if partition.rows is None else partition.rows
    if not m <= wanted <= len(class_ids):
        raise ParameterError(
            f"rows is {wanted} for {m} clients; the data set has {len(class_ids)} training rows"
        )
    drawn = rng.permutation(len(class_ids))[:wanted]
    held_out = max(1, round(partition.validation * wanted))
    rows = np.sort(drawn[held_out:])
    own_classes = class_distributions(n_classes, m, partition, rng)
    if natural:
        parts = [np.flatnonzero(owners[rows] == j) for j in range(m)]
        own_classes = np.stack(
            [np.bincount(class_ids[rows[p]], minlength=n_classes) / max(len(p), 1) for p in parts]
        )
    else:
        alike = np.full_like(own_classes, 1 / n_classes)
        shares = (alike if partition.unlabelled_iid else own_classes).T
        if not shares.any(axis=1).all():
            raise ParameterError(
                f"{m} clients with {partition.classes_per_client} classes each leave a class "
                "without a client; raise classes_per_client"
            )
        shares = shares / shares.sum(axis=1, keepdims=True)
        parts = deal(class_ids[rows], shares, derived(seed, "deal"))
    clients = [rows[p] for p in parts]
    labelled = _labelled(clients, class_ids, own_classes, partition, rng)
    return Split(
        tuple(labelled),
        tuple(np.setdiff1d(c, have) for c, have in zip(clients, labelled, strict=True)),
        np.sort(drawn[:held_out]),
    )


def class_distributions(
    n_classes: int, m: int, partition: Partition, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return each client's distribution over the classes, shape (m, C), rows sum to 1.

    With ``classes``, every C clients draw one set of classes and shift it by one from client to
    client, so that all classes have equally many clients, as in the paper's published code.

    Raises:
        ParameterError: more classes per client are wanted than there are.
    """
    if partition.kind != "classes":
        return np.full((m, n_classes), 1 / n_classes)
    each = partition.classes_per_client
    if each > n_classes:
        raise ParameterError(f"classes_per_client is {each}; there are {n_classes} classes")
    found = np.zeros((m, n_classes))
    for first in range(0, m, n_classes):
        chosen = rng.permutation(n_classes)[:each]
        for j in range(first, min(first + n_classes, m)):
            found[j, (chosen + j) % n_classes] = 1 / each
    return found


def _labelled(
    clients: Sequence[NDArray[np.intp]],
    class_ids: NDArray[np.int64],
    own_classes: NDArray[np.float64],
    partition: Partition,
    rng: np.random.Generator,
) -> list[NDArray[np.intp]]:
    """Choose n_L/m_L labelled rows of each of the first m_L clients, by its own distribution.

    What rounding leaves over goes to the classes with the fewest labels so far, so that all classes
    have equally many labels where that is possible.
    """
    m = len(clients)
    m_labelled = m if partition.labelled_clients is None else partition.labelled_clients
    if not m_labelled <= m:
        raise ParameterError(f"labelled_clients is {m_labelled}; there are {m} clients")
    if partition.labels < m_labelled:
        raise ParameterError(f"labels is {partition.labels}, for {m_labelled} clients with labels")
    given = np.zeros(own_classes.shape[1], dtype=np.int64)
    labelled = []
    for j, rows in enumerate(clients):
        count = partition.labels // m_labelled + (j < partition.labels % m_labelled)
        if j >= m_labelled:
            labelled.append(rows[:0])
            continue
        exact = count * own_classes[j]
        counts = np.floor(exact + 1e-9).astype(np.int64)
        # Classes that rounding has cut first, then those with the fewest labels, then at random.
        cut = exact - counts > 1e-9
        order = np.lexsort((rng.permutation(len(given)), given + counts, ~cut))
        counts[order[: count - counts.sum()]] += 1
        given += counts
        chosen = []
        for c, number in enumerate(counts):
            of_class = rng.permutation(rows[class_ids[rows] == c])
            if number > len(of_class):
                raise ParameterError(
                    f"client {j} needs {number} labels of class {c} and has {len(of_class)} rows "
                    "of it; lower labels, or raise rows"
                )
            chosen.append(of_class[:number])
        labelled.append(np.sort(np.concatenate(chosen)))
    return labelled
