"""Words, numbers and keys of one party that nobody else may see, and inputs that have them.

`forms_of` says how each may look in bytes, `leaks` searches for all of them; `watch` lets a process
write down what it hands to others, and `keep_logs` lets it leave its log behind.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from numpy.typing import NDArray

from xclp_crypto.primitives.sealed_box import SealedBox
from xclp_crypto.transport.log import Log, LogKey
from xclp_crypto.transport.network.frames import Codec, Frame
from xclp_lp.lsh import projection_seed

CANARY = "zeisig"
"""In cells, labels, ids, names of columns and paths, and in passphrases."""

RANDOM_STATE = 987654321

TABLE = "id,bird,x,y\n" + "".join(f"{CANARY}-{i},,{i}.5,{3 * i % 7}\n" for i in range(7))
LABELS = f"id,bird\n{CANARY}-0,barn owl\n"

Forms: TypeAlias = Mapping[str, list[bytes]]
"""By kind of canary, how it may look."""


def spoilt_inputs(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what each fault is called, and the fields of a section [client] that has it.

    Each has files of its own in `folder`, so that all can be used at once.
    """
    sound = {"features": "table.csv", "id_column": "id", "label_column": "bird"}
    labels = {"features": "features.csv", "labels": "labels.csv"}
    faults = {
        "a cell": (sound, TABLE.replace("3.5", f"{CANARY}3.5"), LABELS),
        "a label": (sound, TABLE.replace(",,4.5", f",{CANARY} owl,4.5"), LABELS),
        "an id twice": (sound, TABLE.replace(f"{CANARY}-3", f"{CANARY}-4"), LABELS),
        "an id of no row": (sound | labels, TABLE, LABELS.replace(f"{CANARY}-0", f"{CANARY}-8")),
        "a column": (sound | {"id_column": f"{CANARY}-id"}, TABLE, LABELS),
        "a file that is not there": (sound | {"features": f"{CANARY}.csv"}, TABLE, LABELS),
        "an array": ({"features": "x.npz", "features_array": f"{CANARY}-key"}, TABLE, LABELS),
        "a line": (sound, TABLE + f'"{CANARY}\n', LABELS),
    }
    for what, (section, table, of_rows) in faults.items():
        place = folder / f"{CANARY}-{what}"
        place.mkdir()
        (place / "table.csv").write_text(table)
        (place / "features.csv").write_text(table.replace("bird", "z"))
        (place / "labels.csv").write_text(of_rows)
        np.savez(place / "x.npz", other=np.ones((7, 2)))
        files = {k: str(place / v) for k, v in section.items() if k in ("features", "labels")}
        yield what, section | files


def write_table(file: Path, client: str, x: NDArray[np.float64], y: list[str | None]) -> None:
    """Write features and labels of a client, with canaries as ids and names of columns."""
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow([f"{CANARY} {what}" for what in ("id", "label", *map(str, range(x.shape[1])))])
    for i, (row, label) in enumerate(zip(x.tolist(), y, strict=True)):
        lines.writerow([f"{CANARY}-{client}-{i}", label or "", *map(repr, row)])
    file.write_text(text.getvalue())


def forms_of(
    client: str, x: NDArray[np.float64], classes: list[str], seed: bytes, **secrets: str | bytes
) -> Forms:
    """Return the canaries of a client whose table is that of `write_table`, or of a server.

    Args:
        client: its name.
        x: its features; of a server no rows.
        classes: its labels.
        seed: that the log of its role begins with; empty for none.
        secrets: further ones, by kind: text of a file.
    """
    fixed = projection_seed(RANDOM_STATE)
    assert fixed is not None
    found: dict[str, list[bytes]] = {
        "cells": [form for row in x for form in _forms_of_row(row)],
        "labels": [label.encode() for label in classes],
        "ids": [f"{CANARY}-{client}-".encode()] * len(x),
        "columns": [f"{CANARY} {what}".encode() for what in ("id", "label", "0")],
        "paths": [f"{CANARY}-{what}".encode() for what in ("table", "place", "data")],
        "random_state": [*_forms_of_key(fixed), str(RANDOM_STATE).encode()],
        "seed": _forms_of_key(seed) if seed else [],
    }
    found["random_state"] += [RANDOM_STATE.to_bytes(8, order) for order in ("little", "big")]
    for kind, secret in secrets.items():
        text = secret.encode() if isinstance(secret, str) else secret
        found[kind] = [text.strip()]
        if kind == "certificate":
            numbers: Any = load_pem_private_key(text, None)
            value = numbers.private_numbers().private_value.to_bytes(32, "big")
            found[kind] = [*text.splitlines()[1:3], *_forms_of_key(value)]
        elif len(text.strip()) == 64:
            found[kind] = _forms_of_key(bytes.fromhex(text.decode()))
    return found


def _forms_of_row(row: NDArray[np.float64]) -> list[bytes]:
    texts = [repr(value).encode() for value in row.tolist()]
    return [*texts, row[:1].tobytes(), row.tobytes(), row.astype(np.float32).tobytes()]


def _forms_of_key(key: bytes) -> list[bytes]:
    return [key, key[:16], key[-16:], key.hex().encode(), str(int.from_bytes(key)).encode()]


def leaks(content: bytes, forms: Forms) -> set[str]:
    """Return the kinds of canaries that are in bytes, whatever the case of their letters."""
    low = content.lower()
    return {kind for kind, own in forms.items() if any(form.lower() in low for form in own)}


def watch(file: Path) -> None:
    """Let this process write down all that it hands to others: before TLS, and before sealing."""
    seal, encode = SealedBox.seal, Codec.encode

    def write(*parts: bytes | memoryview) -> None:
        with file.open("ab") as out:
            out.write(b"".join(parts) + b"\n")

    def sealing(box: SealedBox, plaintext: bytes, associated: bytes = b"") -> bytes:
        write(b"inside ", bytes(plaintext))
        return seal(box, plaintext, associated)

    def encoding(codec: Codec, frame: Frame) -> tuple[bytes, bytes | memoryview]:
        parts = encode(codec, frame)
        write(b"frame ", *parts)
        return parts

    SealedBox.seal = sealing  # type: ignore[method-assign]
    Codec.encode = encoding  # type: ignore[method-assign]


def keep_logs() -> None:
    """Let this process rename its log, where it would delete it, to one for `opened`."""
    unlink = Path.unlink

    def renaming(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".log" and path.exists():
            path.rename(path.with_suffix(".state"))
        else:
            unlink(path, missing_ok)

    Path.unlink = renaming  # type: ignore[method-assign]


@cache
def opened(log: Path, key: str) -> list[bytes]:
    """Return the records of a log, or of what a client kept."""
    return [data for _, data in Log.from_bytes(log.read_bytes(), LogKey.from_text(key)).replay()]
