"""Writing results, and finding out before a run whether their place can take them."""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError, StorageError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.meter import Cost
from xclp_crypto.whole_files import whole_files, why_not_writable
from xclp_lp.accuracy import Unvalidated
from xclp_lp.files.cells import masked
from xclp_lp.files.clients import LoadedClient
from xclp_lp.labelling import Participation
from xclp_lp.parameters import Settings
from xclp_lp.plan import Result
from xclp_lp.predictions import Prediction
from xclp_lp.session import ClientData
from xclp_lp.summary import result_warnings
from xclp_lp.wording import listing

if TYPE_CHECKING:
    from xclp_lp.files.federation import FederationFile

SERVER_RECORD = f"{SERVER}-cost.json"
"""What the server of a federation writes."""


def require_writable(federation: FederationFile, option: str = "") -> None:
    """Refuse a place for the results that cannot take them, before anything is computed.

    Args:
        federation: with the place.
        option: what errors begin with: where the place comes from, if not from the file.

    Raises:
        ParameterError: see `require_place`.
    """
    names = (*(f"{c.name}.csv" for c in federation.clients), "cost.json")
    require_place(federation.output, names, _inputs(federation), option)


def _inputs(federation: FederationFile) -> set[Path]:
    """Return the files that were read, which results must not replace."""
    inputs = {file for client in federation.clients for file in client.files}
    return inputs if federation.path is None else {*inputs, federation.path}


def require_place(
    folder: Path, names: Iterable[str], inputs: Iterable[Path], option: str = ""
) -> None:
    """Refuse a folder that cannot take files of these names; found by writing dummies.

    Args:
        folder: it need not exist yet.
        names: of the files that will be written into it.
        inputs: files that must not be replaced.
        option: what errors begin with.

    Raises:
        ParameterError: the folder, or one that it lies in, is not one or may not be written; or a
            result cannot replace what is there, or is an input.
    """
    names = list(names)
    reason = why_not_writable(folder, names)
    for result in (folder / name for name in names):
        if result.exists() and any(f.exists() and result.samefile(f) for f in inputs):
            reason = f"{result} is one of the files that were read; choose another folder"
    if reason is not None:
        raise ParameterError(f"{option}results cannot be written to {folder}: {reason}")


def write_results(federation: FederationFile, result: Result) -> list[Path]:
    """Write one ``NAME.csv`` per client that stayed and ``cost.json``; all or nothing.

    For the columns see `write_table`.
    ``cost.json`` also says whose labels were counted, who dropped out, when and why, who has no
    result, and what was warned of.

    Returns:
        The files written.

    Raises:
        StorageError: they cannot be written there; names the folder where they are instead.
    """
    plan, without = result.plan, result.without_result
    groups = {name: list(own) for name, own in plan.groups.items()}
    content = {
        **({"groups": groups} if plan.grouped else {}),
        **result.participation.to_dict(),
        "without_result": list(without),
        "warnings": result_warnings(result),
        "validation": {g: found.to_dict() for g, found in result.validations.items()},
        **result.cost.to_dict(),
    }
    tables = {
        client: (own.class_ids, result.predictions[client])
        for client, own in plan.data.items()
        if client not in without
    }
    return write_tables(federation, plan.params.classes, tables, content)


def write_tables(
    federation: FederationFile,
    classes: Sequence[Any],
    tables: Mapping[str, tuple[NDArray[np.int64], Prediction]],
    content: dict[str, Any],
) -> list[Path]:
    """Write one ``NAME.csv`` for each of some clients, and ``cost.json``; all or nothing.

    Args:
        federation: the clients, and the folder.
        classes: labels by class index.
        tables: by client, the given class indices of its rows, and what came out.
        content: of ``cost.json``.

    Returns:
        The files written.

    Raises:
        StorageError: they cannot be written there; names the folder where they are instead.
    """
    clients = [client for client in federation.clients if client.name in tables]

    def fill(folder: Path) -> None:
        for client in clients:
            file = folder / f"{client.name}.csv"
            write_table(file, client, classes, *tables[client.name])
        write_json_file(folder / "cost.json", content)

    names = [*(f"{client.name}.csv" for client in clients), "cost.json"]
    return _write_safely(federation.output, names, _inputs(federation), fill)


def write_json_file(file: Path, content: dict[str, Any]) -> None:
    """Write an object of JSON; raises `OSError` where that fails."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _write_safely(
    folder: Path, names: Sequence[str], inputs: Iterable[Path], fill: Callable[[Path], None]
) -> list[Path]:
    """Write results as `write_or_keep` does, of these names, and without replacing inputs.

    Returns:
        The files written.

    Raises:
        StorageError: see `write_or_keep`.
    """
    try:
        require_place(folder, names, inputs)
    except ParameterError as error:
        raise _kept_elsewhere(f"{error}", fill) from None
    write_or_keep(folder, fill)
    return [folder / name for name in names]


def write_or_keep(folder: Path, fill: Callable[[Path], None]) -> None:
    """Write what took long whole or not at all; if it cannot be written there, elsewhere.

    Args:
        folder: for the files; it is made if it is missing.
        fill: writes them into the folder that it is given.

    Raises:
        StorageError: names the folder where they are instead, a new one below the current folder
            or that of temporary files.
    """
    try:
        with whole_files(folder) as scratch:
            fill(scratch)
    except OSError as error:
        reason = f"results cannot be written to {folder}: {error.strerror or error}"
        raise _kept_elsewhere(reason, fill) from None


def _kept_elsewhere(reason: str, fill: Callable[[Path], None]) -> StorageError:
    """Write results into a new folder, and return the error that says why and where."""
    for parent in (".", None):
        with suppress(OSError):
            new = Path(tempfile.mkdtemp(prefix="xclp-results-", dir=parent)).absolute()
            try:
                fill(new)
                return StorageError(f"{reason}; they are in {new} instead")
            except OSError:
                shutil.rmtree(new, ignore_errors=True)
    return StorageError(f"{reason}; nor elsewhere")


def file_lines(federation: FederationFile, result: Result) -> Iterator[str]:
    """Say which clients have no file of this run, and which tables are of an earlier one."""
    without = result.without_result
    if without:
        yield f"no file written for {listing(without)}, without a result"
    read = {file.resolve() for client in federation.clients for file in client.files}
    written = {f"{c.name}.csv" for c in federation.clients if c.name not in without}
    tables = sorted(federation.output.glob("*.csv"))
    old = [t.name for t in tables if t.name not in written and t.resolve() not in read]
    if old:
        yield f"already in {federation.output}, and not of this run: {listing(old)}"


def write_table(
    file: Path,
    client: LoadedClient,
    classes: Sequence[Any],
    given: NDArray[np.int64],
    found: Prediction,
) -> None:
    """Write one client's predictions.

    Texts are `masked`. Columns: id, under the name of the column that it was in if no other has
    that name; label and given label, empty where there is none; confidence; the probability of
    every class.
    """
    texts = [*map(_cell, classes), ""]  # UNLABELLED is the last one
    columns = ["label", "given", "confidence", *(f"p({c})" for c in classes)]
    own = client.id_column
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["id" if own is None or own in columns else masked(own), *columns])
        for row_id, label, before, sure, row in zip(
            client.ids, found.class_ids, given, found.confidence, found.distribution, strict=True
        ):
            numbers = (f"{p:.6f}" for p in (sure, *row))
            writer.writerow([_cell(row_id), texts[label], texts[before], *numbers])


def _cell(value: Any) -> Any:
    return masked(value) if isinstance(value, str) else value


def write_result(
    output: Path,
    loaded: LoadedClient,
    data: ClientData,
    prediction: Prediction,
    cost: Cost,
    classes: tuple[Any, ...],
    settings: Settings,
    warnings: Sequence[str],
) -> list[Path]:
    """Write ``NAME.csv`` and ``NAME-cost.json``; all or nothing.

    ``NAME-cost.json`` also says who is missing, when and why, what was warned of, and why labels
    were not validated, where that failed.

    Args:
        output: folder for them; it is made if it is missing.
        loaded: the client's data, as in its files.
        data: the same, as its role takes it.
        prediction: what its role returned.
        cost: what it cost.
        classes: labels by class index.
        settings: how the client shows its result.
        warnings: of what the session reveals, see `NetworkSettings.warnings`.

    Raises:
        StorageError: they cannot be written there; names the folder where they are instead.
    """
    content = {
        "dropouts": [own.to_dict() for own in prediction.dropouts],
        **_warned(warnings, prediction.unvalidated),
        **cost.to_dict(),
    }
    shown = settings.shown(prediction, data.class_ids)
    table, costs = f"{loaded.name}.csv", f"{loaded.name}-cost.json"

    def fill(folder: Path) -> None:
        write_table(folder / table, loaded, classes, data.class_ids, shown)
        write_json_file(folder / costs, content)

    return _write_safely(output, [table, costs], loaded.files, fill)


def _warned(warnings: Sequence[str], unvalidated: Unvalidated | None) -> dict[str, Any]:
    if unvalidated is None:
        return {"warnings": list(warnings)}
    return {"warnings": [*warnings, str(unvalidated)], "unvalidated": unvalidated.to_dict()}


def write_server_record(
    output: Path, found: Participation, cost: Cost, warnings: Sequence[str]
) -> list[Path]:
    """Write ``server-cost.json``: what `write_result` says there, and whose labels were counted.

    Raises:
        StorageError: it cannot be written there; names the folder where it is instead.
    """
    told = _warned([*warnings, *map(str, found.contradictions)], found.unvalidated)
    content = {**found.to_dict(), **told, **cost.to_dict()}

    def fill(folder: Path) -> None:
        write_json_file(folder / SERVER_RECORD, content)

    return _write_safely(output, [SERVER_RECORD], (), fill)
