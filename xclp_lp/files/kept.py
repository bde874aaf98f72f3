"""Files in which clients keep what gives labels to rows that come later.

``NAME.kept`` is a log (`xclp_crypto.transport.log`) of two records, which nobody appends to: what
belongs to the session as JSON, and `Kept.encode`. It is as secret as the data and the labels: who
opens it has the client's hashes, scores and labels, and the projection of all clients. So it is
encrypted under a key that the user gives, and only its owner may read it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta

from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    LogError,
    ParameterError,
    StorageError,
)
from xclp_crypto.params import Agreement
from xclp_crypto.secret import Secret
from xclp_crypto.transport.log import Log, LogKey
from xclp_crypto.whole_files import whole_files
from xclp_lp.accuracy import BINS, Validation
from xclp_lp.files.toml import read_section
from xclp_lp.kept import Kept
from xclp_lp.labels import given_classes
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction
from xclp_lp.validation import Validated

_ABOUT, _KEPT = 0x40, 0x41
"""Kinds of records; no kind of a role's log."""

FREE: Final = ("hamming", "threshold")
"""What may be another for rows that come later than it was in the session."""


Bins = Annotated[tuple[int, ...], Meta(min_length=BINS, max_length=BINS)]


@dataclass(frozen=True)
class _Counts(Validated):
    """A `Validation` of one setting."""

    labels: tuple[int, ...]
    right: tuple[int, ...]
    by_confidence: tuple[Bins, Bins]
    own: tuple[int, int]


@dataclass(frozen=True)
class _About(Validated):
    """What a file says beside `Kept`.

    Attributes:
        client: whose it is.
        classes: labels by class index.
        agreement: digests of the parameters but `FREE`, in hexadecimal.
        columns: names of the features, if they have some.
        counts: how right the labels probably were, if that was measured.
    """

    client: str
    classes: Any
    agreement: str
    columns: tuple[str, ...] | None = None
    counts: _Counts | None = None

    @property
    def shapes(self) -> tuple[int, ...]:
        """Return the numbers of classes that its counts have."""
        return () if self.counts is None else (len(self.counts.labels), len(self.counts.right))


@dataclass(frozen=True, eq=False, repr=False)
class KeptFile(Secret):
    """What a client kept of a session.

    Attributes:
        where: what errors call it.
        classes: labels by class index.
        columns: names of the features, if they have some.
        kept: what its role takes.
    """

    where: str
    classes: tuple[Any, ...]
    columns: tuple[str, ...] | None
    kept: Kept
    _agreement: bytes
    _counts: _Counts | None

    def require(self, params: Parameters) -> None:
        """Refuse it where it is of a session with other parameters.

        Raises:
            ParameterError: names them.
        """
        try:
            _agreement(params).require_same(self._agreement, f"the session of {self.where}")
        except FaultyPeer as error:
            raise ParameterError(
                f"{error.reason}; give the parameters of that session, or the file of another"
            ) from None

    def validation(self, params: Parameters) -> Validation | None:
        """Return how right the labels of the session probably were, if that was measured."""
        if self._counts is None:
            return None
        return Validation(
            np.array(self._counts.labels),
            {params.setting: np.array(self._counts.right)},
            np.array(self._counts.by_confidence),
            *self._counts.own,
        )


def _agreement(params: Parameters) -> Agreement:
    fields = params.agreement().fields
    return Agreement(**{name: value for name, value in fields.items() if name not in FREE})


def kept_name(client: str) -> str:
    """Return the name of a client's file."""
    return f"{client}.kept"


def sealed(
    client: str,
    params: Parameters,
    columns: Sequence[str] | None,
    found: Prediction,
    key: LogKey,
) -> bytes:
    """Return the content of a client's file.

    Args:
        client: its name.
        params: of the session.
        columns: names of its features, if they have some.
        found: what its role returned.
        key: what the file is encrypted under.

    Raises:
        ParameterError: the client kept nothing, since it dropped out.
    """
    if found.kept is None:
        raise ParameterError(f"{client!r} has nothing to keep: it dropped out")
    about: dict[str, Any] = {
        "client": client,
        "classes": params.classes,
        "agreement": _agreement(params).encode().hex(),
    }
    if columns is not None:
        about["columns"] = list(columns)
    if (own := found.validation) is not None:
        about["counts"] = {
            "labels": own.labels.tolist(),
            "right": own.right[own.used].tolist(),
            "by_confidence": own.by_confidence.tolist(),
            "own": [own.own_labels, own.own_right],
        }
    log = Log.from_bytes(b"", key)
    list(log.replay())
    log.append(_ABOUT, json.dumps(about).encode())
    log.append(_KEPT, found.kept.encode())
    return log.to_bytes()


def write_kept(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, by client, that only their owner may read; all or none of them.

    Raises:
        StorageError: they cannot be written, and all is as it was.
    """
    try:
        with whole_files(folder) as scratch:
            for client, content in files.items():
                file = scratch / kept_name(client)
                file.write_bytes(content)
                file.chmod(0o600)
    except OSError as error:
        raise StorageError(
            f"what gives labels to later rows cannot be kept in {folder}: {error.strerror or error}"
        ) from None


def read_kept(folder: Path, client: str, key: LogKey) -> KeptFile:
    """Read a client's file.

    Raises:
        ParameterError: there is none, or it is another client's.
        LogError: it does not open under this key, is damaged, or is not such a file.
    """
    path = folder / kept_name(client)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ParameterError(
            f"there is no file {path}: nothing was kept of {client!r}; name the folder that --keep "
            "had in the session. A client that was not in it has new_features and no features"
        ) from None
    except OSError as error:
        raise ParameterError(f"{path} cannot be read: {error.strerror}") from None
    where = f"the kept file {path}"
    log = Log(io.BytesIO(data), key, name=where)
    records = list(log.replay())
    if [kind for kind, _ in records] != [_ABOUT, _KEPT]:
        raise LogError(f"{where} is cut off, or not what a client kept; name another folder")
    try:
        about = read_section(_About, json.loads(records[0][1]), "")
        kept, classes = Kept.decode(records[1][1]), given_classes(about.classes)
        agreement, shape = bytes.fromhex(about.agreement), len(classes)
        if {kept.sums.shape[1], *about.shapes} != {shape}:
            raise ParameterError("its classes are not as many as its scores have")
    except (ValueError, ParameterError, DecodeError) as error:
        raise LogError(
            f"{where} cannot be used: {error}; use the program that wrote it, or run the session "
            "again"
        ) from None
    if about.client != client:
        raise ParameterError(f"{path} is what {about.client!r} kept, and not {client!r}")
    return KeptFile(where, classes, about.columns, kept, agreement, about.counts)
