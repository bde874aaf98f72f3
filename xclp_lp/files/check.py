"""Reading a client's file and data as ``xclp check`` does: everything that is wrong, at once.

Nothing is sent and nothing is written. What a program that takes part would refuse one after the
other is listed here; whoever mends all of it can take part, as far as this machine can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError, XclpError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.tls import fingerprint_of, is_trusted
from xclp_crypto.wording import did_you_mean
from xclp_lp.diagnostics import feature_cautions
from xclp_lp.files.clients import (
    labels_line,
    load_new,
    read_labels,
    row_names,
    rows_line,
    special_columns,
)
from xclp_lp.files.credentials import TlsSection, checked_pins, read_identities, tls_of
from xclp_lp.files.network import (
    ClientSection,
    client_content,
    labels_of_classes,
    own_vectors,
    require_output,
)
from xclp_lp.files.parties import parse_address
from xclp_lp.files.schema import NUMBER, Schema, feature_names
from xclp_lp.files.tables import Source, agreed_on, read_file
from xclp_lp.files.toml import Mistakes, beside
from xclp_lp.labels import odd_texts
from xclp_lp.summary import NO_IDENTITIES
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
    try:
        read = vars(client_content(path))
    except Mistakes as error:
        found.problems += error.each
        read = dict(error.read)
    except ParameterError as error:
        found.problems.append(str(error))
        return found
    own: ClientSection | None = read.get("client")
    if own is None:
        return found
    mounted = [beside(path, file) for file in read.get("mounted_secrets", ())]
    shown = ""
    if "tls" in read:
        tls: TlsSection = read["tls"]
        given, names = read.get("certificates", {}), read.get("clients", ())
        pins = found.attempt(lambda: checked_pins(given, names, path)) if names else None
        context = found.attempt(lambda: tls_of(tls, path, own.name, mounted, pins))
        if context is not None:
            shown = f"; {tls.certificate} is {fingerprint_of(beside(path, tls.certificate))}"
            if pins and SERVER in pins:
                shown += f"; the server's must be {pins[SERVER]}"
        if context is not None and not is_trusted(beside(path, tls.certificate), context):
            found.cautions.append(
                f"{tls.certificate} is of no authority in {tls.authority}, so a server that trusts "
                "only these refuses it"
            )
    if "clients" in read:
        names = read.get("identities"), read.get("identity")
        found.attempt(lambda: read_identities(*names, path, own.name, read["clients"], mounted))
    found.attempt(lambda: parse_address(own.server, f"{path}: server"))
    output = found.attempt(lambda: beside(path, own.output))
    if output is not None:
        found.attempt(lambda: require_output(own.name, own, path, output))
    if not found.problems:
        found.facts.append(f"certificates can be used; results go to {output}{shown}")
    if read.get("identities") is False:
        found.cautions.append(NO_IDENTITIES)
    if own.new_features is not None:
        _check_new(found, own, path, read)
    if own.features is None:
        return found
    source = found.attempt(lambda: read_file(beside(path, own.rows), own.name, own.csv))
    if source is not None:
        _check_data(found, own, path, source, read)
    return found


def _check_new(found: Findings, own: ClientSection, path: Path, read: Mapping[str, Any]) -> None:
    """Read rows that come later; arguments as `_check_data`."""
    settings, like = read.get("parameters"), agreed_on(read.get("columns"), read.get("schema", {}))
    missing = settings is not None and settings.missing != "refuse"
    new = found.attempt(lambda: load_new(own.name, own, path, like, "client", missing=missing))
    if new is not None:
        found.facts.append(f"new rows: {rows_line(new.files[0], new.features.shape, new.columns)}")


def _check_data(
    found: Findings, own: ClientSection, path: Path, source: Source, read: Mapping[str, Any]
) -> None:
    """Check features and labels; cells of a table all, before any of them is refused.

    Args:
        found: where that is put.
        own: what the client's file says of its data.
        path: the client's file.
        source: the file of its features.
        read: what can be used of the client's file, by key.
    """
    agreed, settings, schema = read.get("columns"), read.get("parameters"), read.get("schema", {})
    missing = settings is not None and settings.missing != "refuse"
    columns, ids, names = None, None, None
    if source.table is not None:
        special = found.attempt(lambda: special_columns(source, own, agreed_on(agreed, schema)))
        if special is None:
            return
        columns, ids, _ = special
        names = row_names(ids, len(source.table))
        told = _cells(source, columns, schema, missing, names)
        cells = [f"client {own.name!r}: {source.path}, {what}" for what in told]
        found.problems += cells
        if cells:
            features = np.zeros((len(source.table), len(columns)))  # for the number of rows
        else:
            features = source.features(columns=columns, schema=schema, missing=missing)
            columns = feature_names(columns, schema)
    else:
        array = found.attempt(lambda: source.features(array=own.features_array, schema=schema))
        features = found.attempt(lambda: own_vectors(array, own.name, agreed, missing=missing))
        if features is None:
            return
    found.facts.append(rows_line(source.path, features.shape, columns))
    if columns is not None and agreed is None and not schema:
        found.cautions.append(
            "no columns are agreed on, so a client with columns of other names stops the session"
        )
    if settings is not None:
        found.cautions += feature_cautions({own.name: features}, settings.scale, columns)
    given = found.attempt(lambda: read_labels(own.name, own, path, source, ids, features)[1])
    if given is not None and own.labels is not None and ids is None:
        found.facts.append(
            f"labels are those of {own.labels} by position, which nothing can check without an "
            f"id_column in both: are they in the order of {own.rows}?"
        )
    if given is not None and settings is not None:
        _check_labels(found, own.name, settings.params.classes, given, names)


def _cells(
    source: Source, columns: list[str], schema: Schema, missing: bool, names: Sequence[str]
) -> Iterator[str]:
    """Say by column how many cells are not what it holds, and in which rows the first are."""
    for column in columns:
        kinds: dict[str, list[int]] = {}
        for row, cell in enumerate(source.column(column)):
            kind = source.fault(cell, schema.get(column, NUMBER))
            if kind and not (missing and kind == "empty"):
                kinds.setdefault(kind, []).append(row)
        for kind, rows in kinds.items():
            where = rows_called(rows, names, MOST_ROWS)
            yield f"column {column!r}: {count(len(rows), 'cell')} {kind} ({where})"


def _check_labels(
    found: Findings,
    name: str,
    classes: Sequence[Any],
    given: list[Any] | NDArray[Any],
    names: Sequence[str] | None,
) -> None:
    """Say how many labels there are of each class, and which are of none."""
    found.cautions += [f"the classes {why}" for _, why in odd_texts(classes)]
    marked = found.attempt(lambda: labels_of_classes(given, name, classes))
    if marked is None:
        return
    values, labelled = marked
    where: dict[Any, list[int]] = {}
    for row in np.flatnonzero(labelled).tolist():
        where.setdefault(values[row], []).append(row)
    found.facts.append(
        labels_line({c: len(rows) for c, rows in where.items() if c in classes}, len(values))
    )
    for value, rows in where.items():
        if value not in classes:
            meant = did_you_mean(value, map(str, classes)) if isinstance(value, str) else ""
            found.problems.append(
                f"client {name!r}: the label {value!r} ({rows_called(rows, names, MOST_ROWS)}) is "
                f"none of the classes {listing(classes)}{meant}"
            )
