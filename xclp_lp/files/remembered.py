"""Labels that a client has randomised, in a file, so that another session enters the same.

Who sees what labels do in many sessions could average them if each session drew them anew: every
draw spends ε again. So the file has, for each row that ever had a label randomised, its class and
the class that was drawn, and each row gets what it got first. It is a log
(`xclp_crypto.transport.log`): whose it is as JSON, and then records of entries ``digest of the row
(32) ‖ class (4) ‖ drawn class (4)``. It is as secret as the labels, and encrypted under a key that
the user gives.

A row is known by its id, or by its features where the file has no ids. The first of some rows with
equal features stays the first of them, so that each has a draw of its own.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import LogError, LogRolledBack, ParameterError
from xclp_crypto.privacy import RandomizedResponse
from xclp_crypto.rng import Rng, rng_or_system
from xclp_crypto.transport.epoch import Epoch
from xclp_crypto.transport.log import HEADER_BYTES, Log, LogKey, epoch_of
from xclp_lp.files.clients import LoadedClient
from xclp_lp.labels import UNLABELLED
from xclp_lp.parameters import Parameters
from xclp_lp.session import ClientData
from xclp_lp.wording import count

_ABOUT, _ROWS = 0x42, 0x43
"""Kinds of records; no kind of a role's log."""

_ROW: Final = struct.Struct(">32sII")


def randomised_once(
    path: Path,
    key: LogKey,
    loaded: LoadedClient,
    data: ClientData,
    params: Parameters,
    rng: Rng | None = None,
) -> tuple[ClientData, str]:
    """Return a client's data with randomised labels, those of the file where it has them.

    Labels that it has not are drawn, and in the file before this returns.

    Args:
        path: of the file, which is made if it is missing.
        key: what it is encrypted under.
        loaded: the client, whose labels these are.
        data: its data, with the labels as they are.
        params: the agreement, with `RandomizedResponse`.
        rng: source of new draws; the operating system's by default.

    Returns:
        The data to enter, and what to say of them.

    Raises:
        ParameterError: labels are not randomised; or the file is another client's, of another ε or
            of other classes; or a row has another label than the one that was randomised.
        LogRolledBack: it is cut off, emptied, missing, or older than it was.
        LogError: it does not open under this key, is damaged, in use, or not such a file.
        StorageError: it cannot be written.
    """
    if not isinstance(params.privacy, RandomizedResponse):
        raise ParameterError(
            f"{path} is for labels that are randomised, and these are not: that needs epsilon, "
            "without delta, in [parameters.privacy]"
        )
    labelled = np.flatnonzero(data.class_ids != UNLABELLED)
    classes = data.class_ids[labelled]
    rows = [row for i, row in enumerate(_digests(loaded, data)) if data.class_ids[i] != UNLABELLED]
    noted = Epoch(epoch_of(path)).read()
    size = path.stat().st_size if path.exists() else 0
    if noted is not None and noted[1] and size < HEADER_BYTES:  # which would begin a new log
        raise LogRolledBack(
            f"{path} is empty or missing, and was not before; give it back, or name a new file, "
            "which spends epsilon again for every label"
        )
    with closing(Log.open(path, key)) as log:
        known = _read(log, loaded.name, params)
        changed = sum(
            row in known and known[row][0] != c for row, c in zip(rows, classes, strict=True)
        )
        if changed:
            raise ParameterError(
                f"{count(changed, 'row has', 'rows have')} another label than the one that "
                f"{path} has randomised: give it back, or name a new file, which spends epsilon "
                "again for every label"
            )
        new = np.array([row not in known for row in rows], dtype=bool)
        drawn = params.privacy.randomize(classes[new], len(params.classes), rng_or_system(rng))
        told = zip(np.flatnonzero(new), classes[new].tolist(), drawn.tolist(), strict=True)
        fresh = {rows[i]: (given, entered) for i, given, entered in told}
        if fresh:
            log.append(_ROWS, b"".join(_ROW.pack(row, *pair) for row, pair in fresh.items()))
        log.sync()
    known |= fresh
    entered = data.class_ids.copy()
    entered[labelled] = [known[row][1] for row in rows]
    said = f"{path}: {count(len(rows) - len(fresh), 'label')} randomised before, {len(fresh)} now"
    return replace(data, class_ids=entered, randomised=True), said


def _digests(loaded: LoadedClient, data: ClientData) -> Iterator[bytes]:
    """Return what each row is known by."""
    seen: Counter[str | bytes] = Counter()
    vectors = np.ascontiguousarray(data.vectors, dtype="<f8") + 0.0  # one zero
    for i, vector in enumerate(vectors):
        own = vector.tobytes() if loaded.id_column is None else str(loaded.ids[i]).strip()
        yield hashlib.sha256(domain_tag("row with a randomised label", own, seen[own])).digest()
        seen[own] += 1


def _read(log: Log, client: str, params: Parameters) -> dict[bytes, tuple[int, int]]:
    """Return class and drawn class by row, of a file that begins with whose it is, or is new."""
    privacy = params.privacy
    about = {
        "client": client,
        "epsilon": privacy.epsilon if isinstance(privacy, RandomizedResponse) else None,
        "classes": json.loads(json.dumps(params.classes)),
    }
    records = list(log.replay())
    if not records:
        log.append(_ABOUT, json.dumps(about).encode())
        return {}
    if [kind for kind, _ in records] != [_ABOUT] + [_ROWS] * (len(records) - 1):
        raise LogError(f"{log.name} is not what a client has randomised; name another file")
    known: dict[bytes, tuple[int, int]] = {}
    try:
        found = json.loads(records[0][1])
        for _, data in records[1:]:
            known |= {row: (given, drawn) for row, given, drawn in _ROW.iter_unpack(data)}
        others = [name for name, value in about.items() if found[name] != value]
    except (ValueError, TypeError, LookupError, struct.error) as error:
        raise LogError(f"{log.name} cannot be used: {error}; name another file") from None
    if others:
        raise ParameterError(
            f"{log.name} has randomised labels of "
            + ", ".join(f"{name} {found[name]!r}, not {about[name]!r}" for name in others)
            + "; give back what it had, or name a new file, which spends epsilon again for every "
            "label"
        )
    return known
