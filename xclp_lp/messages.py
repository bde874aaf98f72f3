"""The messages of Algorithm 1 between its protocols: see the figure in `xclp_lp.session`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import MAX_PACKED_WIDTH, Bits, Floats, One, Packed, Raw
from xclp_crypto.wire import Message, sent

DIGEST_BYTES = 32

MAX_GROUPS = (1 << MAX_PACKED_WIDTH) - 1
"""Components that one client can tell apart; all further ones count as one."""


def group_width(labelled: int) -> int:
    """Return the bits that say which of the components with l_j labelled rows a row is in."""
    return min(labelled.bit_length(), MAX_PACKED_WIDTH)


class Prepared(Message):
    """Digest of the projection, and which rows are labelled. Size: 32 + ⌈n_j/8⌉ bytes."""

    TAG = 0x1001
    digest: bytes = sent(Raw(DIGEST_BYTES))
    labelled: NDArray[np.bool_] = sent(Bits("rows"))


class Participants(Message):
    """Whose points are in the graph. Size: ⌈p/8⌉ bytes."""

    TAG = 0x1002
    clients: NDArray[np.bool_] = sent(Bits("clients"))


class Reach(Message):
    """The component of every row: 0, or 1 … l_j. Size: ⌈n·w/8⌉ bytes, w those bits of l_j ≥ 1."""

    TAG = 0x1006
    groups: NDArray[np.uint16] = sent(Packed("rows", width=group_width))
    labelled: int

    def check(self) -> str | None:
        """See `Message.check`."""
        found, labelled = int(self.groups.max(initial=0)), self.labelled
        return f"{found} components with {labelled} labelled rows" if found > labelled else None


class Geometry(Message):
    """What the graph looks like as a whole; see `xclp_lp.diagnostics`. Size: 16 bytes.

    Attributes:
        neighbours: stored neighbours of a row, on average.
        mixing: edges between clients, over what chance gives; 1 where there can be none.
        rows: in the graph.
    """

    TAG = 0x1007
    neighbours: float = sent(One(Floats(1)))
    mixing: float = sent(One(Floats(1)))
    rows: int

    def check(self) -> str | None:
        """See `Message.check`."""
        fits = 0 <= self.neighbours <= self.rows and 0 <= self.mixing <= max(self.rows, 1)
        return None if fits else "no graph of so many rows has this geometry"


class Influence(Message):
    """Columns of S, one after the other, ≥ 0, without the rows outside. Size: 4·values bytes."""

    TAG = 0x1003
    values: NDArray[np.float32] = sent(Floats("values", n_bytes=4))

    def check(self) -> str | None:
        """See `Message.check`."""
        return "an influence is negative" if (self.values < 0).any() else None


class Labelled(Message):
    """A client says that it has its labels. Size: 0 bytes."""

    TAG = 0x1004


class Sensitivity(Message):
    """How far the label of one row can move the sums: see `label_sensitivity`. Size: 8 bytes."""

    TAG = 0x1005
    value: float = sent(One(Floats(1)))

    def check(self) -> str | None:
        """See `Message.check`."""
        return "a sensitivity is not positive" if self.value <= 0 else None
