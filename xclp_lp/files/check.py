"""Reading a client's file and data as ``xclp check`` does: everything that is wrong, at once.

Nothing is sent and nothing is written. What a program that takes part would refuse one after the
other is listed here; whoever mends all of it can take part, as far as this machine can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import XclpError
from xclp_crypto.transport.tls import tls_context
from xclp_lp import labels
from xclp_lp.diagnostics import feature_cautions
from xclp_lp.files.clients import read_labels, special_columns
from xclp_lp.files.network import (
    ClientContent,
    client_content,
    parse_address,
    read_identities,
    require_output,
)
from xclp_lp.files.tables import Source, integers_if_all, read_file
from xclp_lp.files.toml import beside
from xclp_lp.lsh import checked_vectors
from xclp_lp.wording import count, listing, rows_called

MOST_ROWS = 5
"""Rows that a line names."""


@dataclass
class Findings:
    """What was found in a client's file and data.

    Attributes:
        facts: what was read, a line each.
        problems: what keeps the client from taking part.
        cautions: what it can take part with, but should look at.
    """

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)

    def attempt(self, work: Callable[[], Any]) -> Any:
        """Return what some work returns; None where it is refused, which becomes a problem."""
        try:
            return work()
        except XclpError as error:
            self.problems.append(" ".join(str(error).splitlines()))
            return None


def check_client(path: Path) -> Findings:
    """Read a client's file, certificates and data, and list what is wrong.

    Args:
        path: the file that ``xclp join`` would take.
    """
    found = Findings()
    content = found.attempt(lambda: client_content(path))
    if content is None:
        return found
    own, tls = content.client, content.tls
    files = [beside(path, file) for file in (tls.authority, tls.certificate, tls.key)]
    found.attempt(lambda: tls_context(*files, server=False))
    found.attempt(
        lambda: read_identities(
            content.identities, content.identity, path, own.name, content.clients
        )
    )
    found.attempt(lambda: parse_address(own.server, f"{path}: server"))
    output = beside(path, own.output)
    found.attempt(lambda: require_output(own.name, own, path, output))
    if not found.problems:
        found.facts.append(f"certificates can be used; results go to {output}")
    source = found.attempt(lambda: read_file(beside(path, own.features), own.name, own.csv))
    if source is not None:
        _check_data(found, content, path, source)
    return found


def _check_data(found: Findings, content: ClientContent, path: Path, source: Source) -> None:
    """Check features and labels; cells of a table all, before any of them is refused."""
    own, name = content.client, content.client.name
    columns, ids = None, None
    if source.table is not None:
        like = None if content.columns is None else ("the agreement", content.columns)
        special = found.attempt(lambda: special_columns(source, own, like))
        if special is None:
            return
        columns, ids, _ = special
        cells = [f"client {name!r}: {source.path}, {what}" for what in _cells(source, columns)]
        if cells:
            found.problems += cells
            features = np.zeros((len(source.table), 0))  # for the number of rows
        else:
            features = source.features(columns=columns)
        width = len(columns)
    else:
        features = found.attempt(lambda: checked_vectors(source.features(array=own.features_array)))
        if features is None:
            return
        width = features.shape[1]
    called = f": {listing(columns)}" if columns else ""
    found.facts.append(
        f"{source.path}: {count(len(features), 'row')}, {count(width, 'feature')}{called}"
    )
    if columns is not None and content.columns is None:
        found.cautions.append(
            "no columns are agreed on, so they are taken in the order of each client's file"
        )
    if content.columns is not None and width != len(content.columns):
        found.problems.append(
            f"client {name!r} has {width} features, and {len(content.columns)} columns are agreed "
            "on"
        )
    found.cautions += feature_cautions({name: features}, content.parameters.scale, columns)
    labels_given = found.attempt(lambda: read_labels(name, own, path, source, ids, features)[1])
    if labels_given is not None:
        _check_labels(found, content, labels_given)


def _cells(source: Source, columns: list[str]) -> Iterator[str]:
    """Say by column how many cells are not usable numbers, and in which rows the first are."""
    for column in columns:
        kinds: dict[str, list[int]] = {}
        for row, cell in enumerate(source.column(column)):
            kind = source.fault(cell)
            if kind:
                kinds.setdefault(kind, []).append(row)
        for kind, rows in kinds.items():
            where = rows_called(rows, [str(i + 1) for i in range(rows[-1] + 1)], MOST_ROWS)
            yield f"column {column!r}: {count(len(rows), 'cell')} {kind} ({where})"


def _check_labels(found: Findings, content: ClientContent, given: list[Any] | NDArray[Any]) -> None:
    """Say how many labels there are of each class, and which are of none."""
    name, classes = content.client.name, content.parameters.params.classes
    if any(isinstance(c, int) for c in classes):
        (given,) = integers_if_all([given])
    marked = found.attempt(lambda: labels.marked_values(given, name))
    if marked is None:
        return
    values, labelled = marked
    where: dict[Any, list[int]] = {}
    for row in np.flatnonzero(labelled).tolist():
        where.setdefault(values[row], []).append(row)
    each = ", ".join(f"{c!r} {len(rows):,}" for c, rows in where.items() if c in classes)
    line = f"{int(labelled.sum()):,} of {count(len(values), 'row')} labelled"
    found.facts.append(line + f": {each}" * bool(each))
    for value, rows in where.items():
        if value not in classes:
            called = rows_called(rows, [str(i + 1) for i in range(len(values))], MOST_ROWS)
            found.problems.append(
                f"client {name!r}: the label {value!r} ({called}) is none of the classes "
                f"{listing(classes)}"
            )
