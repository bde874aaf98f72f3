"""The messages of Algorithm 1 between its protocols: see the figure in `xclp_lp.session`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import MAX_PACKED_WIDTH, Bits, Floats, One, Packed, Raw, Uints
from xclp_crypto.params import SEED_BYTES
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


class Recalled(Message):
    """Digest of what a client knows of an earlier session. Size: 32 bytes."""

    TAG = 0x1010
    digest: bytes = sent(Raw(DIGEST_BYTES))


class Introduction(Message):
    """What a client that was not in a session has to know of it: see `Kept`.

    The moments are there if they are shared, deviations of constant columns as 0; the totals if
    labels weigh by class.

    Size: 64 + 16·features + 8·classes bytes.
    """

    TAG = 0x1011
    session: bytes = sent(Raw(SEED_BYTES))
    seed: bytes = sent(Raw(SEED_BYTES))
    mean: NDArray[np.float64] = sent(Floats("features"))
    deviation: NDArray[np.float64] = sent(Floats("features"))
    totals: NDArray[np.uint64] = sent(Uints("classes", n_bytes=8))

    def check(self) -> str | None:
        """See `Message.check`."""
        return "a deviation is negative" if (self.deviation < 0).any() else None


class Neighbours(Message):
    """Which old rows of the receiver count for which new row. Size: ⌈rows·columns/8⌉ bytes."""

    TAG = 0x1012
    near: NDArray[np.bool_] = sent(Packed("rows", "columns", width=1, dtype=np.bool_))


class Weights(Message):
    """How much they count, new row by new row, 0 < w ≤ 1. Size: 4·values bytes."""

    TAG = 0x1013
    values: NDArray[np.float32] = sent(Floats("values", n_bytes=4))

    def check(self) -> str | None:
        """See `Message.check`."""
        fits = ((self.values > 0) & (self.values <= 1)).all()
        return None if fits else "a weight is not above 0 and at most 1"


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
