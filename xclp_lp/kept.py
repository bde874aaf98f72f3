"""What is kept of a session, so that later rows get labels.

Of clients, for `xclp_lp.later` and `xclp_lp.update`; of the server, if it is asked to, for the
latter.

`Kept.encode` gives, little-endian and one after the other:

    version, d, d or 0 without moments, C or 0 without totals, n_j, ⌈L/8⌉, C, m_j (8 bytes each) ‖
    winsorise (8; 0 for none) ‖ `Introduction` ‖ packed ‖ sums ‖ class_ids + 1 ‖ in_graph

All of it is secret; `xclp_lp.files.kept` encrypts it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from xclp_crypto import wire
from xclp_crypto.errors import DecodeError
from xclp_crypto.fields import Bits, Buffer, Floats, Kind, Uints
from xclp_crypto.params import MAX_ANNOUNCED
from xclp_crypto.protocols.hamming.interface import Distances
from xclp_crypto.secret import Secret
from xclp_lp.labels import UNLABELLED
from xclp_lp.messages import Introduction
from xclp_lp.scaling import Moments

VERSION: Final = 1
_HEAD = struct.Struct("<8Qd")
_LENGTHS = ("features", "classes", "rows", "row_bytes", "of_classes", "given")
_ARRAYS: Mapping[str, Kind[Any]] = {
    "packed": Uints("rows", "row_bytes", n_bytes=1),
    "sums": Floats("rows", "of_classes"),
    "class_ids": Uints("rows", n_bytes=8, dtype=np.int64),
    "in_graph": Bits("given"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Hashed(Secret):
    """What a client has of its own rows when it has hashed them.

    Attributes:
        seed: 32 bytes that fix the projection; the same for all clients, unknown to the server.
        moments: how its vectors were scaled, if they were.
        features: d.
        packed: (n_j, ⌈L/8⌉) uint8, the hashes of its rows in the graph, eight bits to a byte.
        class_ids: (n_j,) int64 classes of these, −1 without a label, as they enter the sums.
        in_graph: (m_j,) which of all its rows these are.
    """

    seed: bytes
    moments: Moments | None
    features: int
    packed: NDArray[np.uint8]
    class_ids: NDArray[np.int64]
    in_graph: NDArray[np.bool_]

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Return which rows of the graph have a label, (n_j,)."""
        return np.asarray(self.class_ids != UNLABELLED)


@dataclass(frozen=True, eq=False, repr=False)
class Kept(Secret):
    """What a client knows of one session beyond its labels.

    Attributes:
        session: 32 bytes that name the session.
        own: its rows.
        sums: (n_j, C) float64, its rows of the sums, neither weighed by class nor cut at zero.
        totals: (C,) int64, labels by class of all clients that contributed, if they were summed.
    """

    session: bytes
    own: Hashed
    sums: NDArray[np.float64]
    totals: NDArray[np.int64] | None

    @property
    def labels(self) -> NDArray[np.int64]:
        """Return the client's own labels by class, (C,)."""
        return np.bincount(self.own.class_ids[self.own.labelled], minlength=self.sums.shape[1])

    @classmethod
    def told(
        cls, told: Introduction, features: int, n_bits: int, classes: int, winsorise: float | None
    ) -> Self:
        """Return what a client knows that was not in the session.

        Args:
            told: what one that was there says.
            features: d.
            n_bits: L.
            classes: C.
            winsorise: see `Moments`.
        """
        moments = None
        if len(told.mean):
            deviation = np.where(told.deviation > 0, told.deviation, np.inf)
            moments = Moments(told.mean, deviation, winsorise)
        own = Hashed(
            told.seed,
            moments,
            features,
            np.zeros((0, -(-n_bits // 8)), dtype=np.uint8),
            class_ids=np.zeros(0, dtype=np.int64),
            in_graph=np.zeros(0, dtype=np.bool_),
        )
        totals = told.totals.astype(np.int64) if len(told.totals) else None
        return cls(told.session, own, np.zeros((0, classes)), totals)

    def introduction(self, moments: Moments | None) -> Introduction:
        """Return what `told` takes, with these moments."""
        mean = deviation = np.zeros(0)
        if moments is not None:
            mean = moments.mean
            deviation = np.where(np.isfinite(moments.deviation), moments.deviation, 0.0)
        totals = np.zeros(0) if self.totals is None else self.totals
        return Introduction(self.session, self.own.seed, mean, deviation, totals.astype(np.uint64))

    def encode(self) -> bytes:
        """Return all of it as bytes, which are as secret."""
        own = self.own
        told = self.introduction(own.moments)
        lengths = (
            *(len(told.mean), len(told.totals)),
            *(*own.packed.shape, self.sums.shape[1], len(own.in_graph)),
        )
        dims = dict(zip(_LENGTHS, lengths, strict=True))
        winsorise = 0.0 if own.moments is None else own.moments.winsorise or 0.0
        head = _HEAD.pack(VERSION, own.features, *lengths, winsorise)
        values = (own.packed, self.sums, own.class_ids + 1, own.in_graph)
        parts: list[Buffer] = [head, wire.body(told)]
        for kind, value in zip(_ARRAYS.values(), values, strict=True):
            parts += kind.encode(value, dims)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what `encode` encoded.

        Raises:
            DecodeError: these are no such bytes, or of another version.
        """
        if len(data) < _HEAD.size:
            raise DecodeError("it is cut off")
        version, features, *lengths, winsorise = _HEAD.unpack_from(data)
        if version != VERSION:
            raise DecodeError(f"it has version {version}, and this program reads {VERSION}")
        dims = dict(zip(_LENGTHS, lengths, strict=True))
        fits = dims["features"] in (0, features) and dims["classes"] in (0, dims["of_classes"])
        if not fits or max(features, *lengths) > MAX_ANNOUNCED:
            raise DecodeError("its sizes do not fit together")
        parts = [Introduction.size(**dims), *(kind.size(dims) for kind in _ARRAYS.values())]
        ends = list(accumulate(parts, initial=_HEAD.size))
        if len(data) != ends[-1]:
            raise DecodeError(f"it has {len(data)} bytes; its sizes require {ends[-1]}")
        first, *others = (memoryview(data)[a:b] for a, b in pairwise(ends))
        told = wire.decode_body(Introduction, first, **dims)
        values = {
            name: kind.read(part, dims)
            for (name, kind), part in zip(_ARRAYS.items(), others, strict=True)
        }
        sums, class_ids = values.pop("sums"), values.pop("class_ids")
        if (class_ids < 0).any() or (class_ids > dims["of_classes"]).any():
            raise DecodeError("a row is of no class")
        if values["in_graph"].sum() != dims["rows"]:
            raise DecodeError("its rows are not as many as they are said to be")
        n_bits = 8 * dims["row_bytes"]
        known = cls.told(told, features, n_bits, dims["of_classes"], winsorise or None)
        own = replace(known.own, class_ids=class_ids - 1, **values)
        found = replace(known, own=own, sums=sums)
        if found.encode() != data:
            raise DecodeError("it is not as this program writes it")
        return found


@dataclass(frozen=True, eq=False, repr=False)
class KeptDistances(Secret):
    """What the server keeps of a session whose rows will be joined by others.

    Attributes:
        session: 32 bytes that name the session.
        projection: digest of the projection, as the clients sent it.
        distances: of all rows in the graph; they say as much as H always does.
    """

    session: bytes
    projection: bytes
    distances: Distances
