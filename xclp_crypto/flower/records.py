"""What lies in the messages of a secure mean beside questions and answers.

::

    question:  "xclp.round"    which round it is, of which clients, and on what they must agree
               "app.…"         the records of the app's instruction, until the node has answered
    answer:    "xclp.places"   where the reply had what is averaged, with the first answer
               "app.…"         the records of the app's reply, without that
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, DecodeError

ROUND: Final = "xclp.round"
PLACES: Final = "xclp.places"
APP: Final = "app."
"""Begins the names of the app's own records."""


def under(prefix: str, records: Mapping[str, Any]) -> RecordDict:
    """Return these records by names that begin so."""
    return RecordDict({f"{prefix}{name}": record for name, record in records.items()})


def found_under(prefix: str, records: Mapping[str, Any]) -> RecordDict:
    """Return those records whose names begin so, by their names without that."""
    return RecordDict(
        {n.removeprefix(prefix): record for n, record in records.items() if n.startswith(prefix)}
    )


def arrays_of(records: RecordDict) -> dict[str, NDArray[Any]]:
    """Return the arrays of an instruction or a reply, by name.

    Raises:
        DataError: it has none, or more than one record of arrays.
    """
    return {name: array.numpy() for name, array in records[_arrays_name(records)].items()}


def _arrays_name(records: RecordDict) -> str:
    names = list(records.array_records)
    if len(names) != 1:
        raise DataError(f"a secure mean is of one record of arrays; there are {len(names)}")
    return str(names[0])


@dataclass(frozen=True)
class Round:
    """One mean.

    Attributes:
        session: a name of its own.
        clients: whose updates it is of.
        agreement: digests of what all must have in common, as the server has it.
    """

    session: str
    clients: tuple[str, ...]
    agreement: bytes

    def record(self) -> ConfigRecord:
        """Return it as a record."""
        return ConfigRecord(
            {
                "session": self.session,
                "clients": list(self.clients),
                "agreement": self.agreement,
            }
        )

    @classmethod
    def of(cls, content: RecordDict) -> Round:
        """Read it from a message.

        Raises:
            DecodeError: it is not there.
        """
        record = content.config_records.get(ROUND, {})
        session, clients = record.get("session"), record.get("clients")
        agreement = record.get("agreement")
        named = isinstance(session, str) and _are_names(clients)
        if not named or not isinstance(agreement, bytes):
            raise DecodeError(
                "the clients have SecureMeanMod, and the server neither SecureMeanGrid nor "
                "SecureMeanWorkflow; without that, updates would not be secret"
            )
        return cls(session, tuple(clients), agreement)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


@dataclass(frozen=True)
class Places:
    """Where a reply has what is averaged.

    Attributes:
        arrays: the name of the record of arrays.
        metrics: that of the record with the weight.
        weight: the weight's name in it.
    """

    arrays: str
    metrics: str
    weight: str

    @classmethod
    def in_reply(cls, reply: RecordDict, weights: Sequence[str]) -> Places:
        """Find them in the reply of an app.

        Args:
            reply: its records.
            weights: names that a weight may have.

        Raises:
            DataError: there is not one record of arrays, and one weight.
        """
        found = [
            (name, key)
            for name, record in reply.metric_records.items()
            for key in weights
            if key in record
        ]
        if len(found) != 1:
            raise DataError(
                f"the reply must say its weight once, as {' or '.join(weights)} in a record of "
                f"metrics; it does so {len(found)} times"
            )
        return cls(_arrays_name(reply), *found[0])

    def weight_in(self, reply: RecordDict) -> Any:
        """Return the weight of a reply."""
        return reply[self.metrics][self.weight]

    def without(self, reply: RecordDict) -> RecordDict:
        """Return what the server may see of a reply, as it lies in an answer."""
        shown = {k: v for k, v in reply[self.metrics].items() if k != self.weight}
        rest = {**reply, self.arrays: ArrayRecord(), self.metrics: MetricRecord(shown)}
        return RecordDict({**under(APP, rest), PLACES: ConfigRecord(asdict(self))})

    @classmethod
    def of(cls, content: RecordDict) -> tuple[Places, RecordDict]:
        """Read them and the rest of a reply from an answer.

        Raises:
            DecodeError: they are not there, or the rest has something in these places.
        """
        record, rest = content.config_records.get(PLACES, {}), found_under(APP, content)
        names = [record.get(key) for key in ("arrays", "metrics", "weight")]
        if not _are_names(names):
            raise DecodeError("an answer does not say what it is of; is SecureMeanMod the first?")
        places = cls(*names)
        arrays, metrics = rest.get(places.arrays), rest.get(places.metrics)
        empty = isinstance(arrays, ArrayRecord) and not arrays
        if not empty or not isinstance(metrics, MetricRecord) or places.weight in metrics:
            raise DecodeError("an answer has no place for the mean, or shows what it is of")
        return places, rest

    def filled(
        self, rest: RecordDict, mean: Mapping[str, NDArray[Any]], weight: float
    ) -> RecordDict:
        """Return a reply with the mean in place of what it is of.

        Args:
            rest: of the reply.
            mean: by name.
            weight: to show for it.
        """
        arrays = ArrayRecord({name: Array(np.asarray(value)) for name, value in mean.items()})
        metrics = MetricRecord({**rest[self.metrics], self.weight: weight})
        return RecordDict({**rest, self.arrays: arrays, self.metrics: metrics})
