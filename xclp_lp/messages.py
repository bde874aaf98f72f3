"""The messages of Algorithm 1 between its protocols: see the figure in `xclp_lp.session`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import (
    DecodeError,
)
from xclp_crypto.wire import MAX_PACKED_WIDTH, ClientSetFields, Message, Reader, Writer, packed_size

DIGEST_BYTES = 32

MAX_GROUPS = (1 << MAX_PACKED_WIDTH) - 1
"""Components that one client can tell apart; all further ones count as one."""


def group_width(labelled: int) -> int:
    """Return the bits that say which of the components with l_j labelled rows a row is in."""
    return min(labelled.bit_length(), MAX_PACKED_WIDTH)


@dataclass(frozen=True, repr=False)
class Prepared(Message):
    """Digest of the projection, and which rows are labelled. Size: 32 + ⌈n_j/8⌉ bytes."""

    TAG = 0x1001
    digest: bytes
    labelled: NDArray[np.bool_]

    @staticmethod
    def size(*, rows: int) -> int:
        """Return 32 + ⌈n_j/8⌉."""
        return DIGEST_BYTES + (rows + 7) // 8

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.raw(self.digest)
        out.bits(self.labelled)

    @classmethod
    def read(cls, data: Reader, *, rows: int) -> Prepared:
        """See `Message.read`."""
        return cls(data.raw(DIGEST_BYTES), data.bits(rows))


@dataclass(frozen=True, repr=False)
class Participants(ClientSetFields, Message):
    """Whose points are in the graph. Size: ⌈p/8⌉ bytes."""

    TAG = 0x1002
    clients: NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Reach(Message):
    """The component of every row: 0, or 1 … l_j. Size: ⌈n·w/8⌉ bytes, w those bits of l_j ≥ 1."""

    TAG = 0x1006
    groups: NDArray[np.uint16]
    labelled: int

    @staticmethod
    def size(*, rows: int, labelled: int) -> int:
        """Return ⌈n·w/8⌉, w = `group_width`."""
        return packed_size(rows, group_width(labelled))

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.residues(self.groups, group_width(self.labelled))

    @classmethod
    def read(cls, data: Reader, *, rows: int, labelled: int) -> Reach:
        """See `Message.read`."""
        groups = data.residues((rows,), group_width(labelled))
        if rows and int(groups.max()) > labelled:
            raise DecodeError(f"{int(groups.max())} components with {labelled} labelled rows")
        return cls(groups, labelled)


@dataclass(frozen=True, repr=False)
class Influence(Message):
    """Columns of S, one after the other, ≥ 0, without the rows outside. Size: 4·values bytes."""

    TAG = 0x1003
    values: NDArray[np.float32]

    @staticmethod
    def size(*, values: int) -> int:
        """Return 4·values."""
        return 4 * values

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.floats(self.values, 4)

    @classmethod
    def read(cls, data: Reader, *, values: int) -> Influence:
        """See `Message.read`."""
        found = data.floats((values,), 4)
        if (found < 0).any():
            raise DecodeError("an influence is negative")
        return cls(found)


@dataclass(frozen=True, repr=False)
class Labelled(Message):
    """A client says that it has its labels. Size: 0 bytes."""

    TAG = 0x1004

    @staticmethod
    def size() -> int:
        """Return 0."""
        return 0

    def write(self, out: Writer) -> None:
        """See `Message.write`."""

    @classmethod
    def read(cls, data: Reader) -> Labelled:
        """See `Message.read`."""
        return cls()


@dataclass(frozen=True, repr=False)
class Sensitivity(Message):
    """How far the label of one row can move the sums: see `label_sensitivity`. Size: 8 bytes."""

    TAG = 0x1005
    value: float

    @staticmethod
    def size() -> int:
        """Return 8."""
        return 8

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.floats(np.array([self.value]))

    @classmethod
    def read(cls, data: Reader) -> Sensitivity:
        """See `Message.read`."""
        value = float(data.floats((1,))[0])
        if value <= 0:
            raise DecodeError("a sensitivity is not positive")
        return cls(value)
