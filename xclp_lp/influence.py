"""How columns of S travel to the clients: as float32, in bounded blocks, without their zeros.

::

    server                                                                       client j
    Reach(by row, which of j's labels reach it) ────────────────────────────────▶
    Influence(values of at most 32 MiB / 4n columns of j's labelled rows) × many ▶ Z̄_j += S·Y

A column of S is zero outside the connected component of its row in the graph. `Reach` numbers the
components that have a labelled row of client j, and merges all others into 0. So both ends know
which rows each column has, and how long each message is; *the client learns* from it nothing that
the zeros of its columns would not tell. Blocks have the same number of columns whatever the graph
looks like, so how many there are is public; their lengths are seen by whoever watches the link.

*Accuracy.* Entries are ≥ 0 and rounded to 24 bits, so a client's scores, and all sums of them, are
off by at most a fraction of 2^-24 (and 2^-150 for each label). See `xclp_lp.predictions.predict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from xclp_crypto.errors import EncodingOverflow, FaultyPeer
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import encode_label_sums, label_sensitivity
from xclp_crypto.protocols.setup import SERVER
from xclp_lp.messages import MAX_GROUPS

BLOCK_VALUES = 1 << 23
"""Most values of one message, 32 MiB, unless one column has more; part of the wire format."""


def block_columns(rows: int) -> int:
    """Return how many columns of n rows travel in one message."""
    return max(1, BLOCK_VALUES // max(rows, 1))


class Layout:
    """Which columns and rows each message to one client has.

    Args:
        groups: (n,) what `Reach` says.
        own: (l_j,) the client's labelled rows, of n.

    Raises:
        FaultyPeer: a labelled row is in no component, or a component has no labelled row.
    """

    def __init__(self, groups: NDArray[np.uint16], own: NDArray[np.intp]) -> None:
        of_column = groups[own]
        here = np.union1d(of_column, [0])
        if not of_column.all() or not np.isin(groups, here).all():
            raise FaultyPeer(SERVER, "says that labelled rows reach what they cannot reach")
        self.rows, self.own = len(groups), own
        self.order = np.argsort(of_column, kind="stable")
        self._groups = of_column[self.order]
        self._by_group = np.argsort(groups, kind="stable")
        self._starts = np.searchsorted(groups[self._by_group], np.arange(int(here[-1]) + 2))

    @property
    def blocks(self) -> int:
        """Return the number of messages."""
        return -(-len(self.order) // block_columns(self.rows))

    def columns(self, block: int) -> NDArray[np.intp]:
        """Return which of the client's labelled rows the columns of a block are."""
        return self.order[self._slice(block)]

    def size(self, block: int) -> int:
        """Return the number of values of a block."""
        groups = self._groups[self._slice(block)]
        return int((self._starts[groups + 1] - self._starts[groups]).sum())

    def runs(self, block: int) -> Iterator[tuple[slice, NDArray[np.intp]]]:
        """Yield the runs of columns of a block that have the same rows, and these rows."""
        groups = self._groups[self._slice(block)]
        cuts = np.flatnonzero(np.diff(groups)) + 1
        for start, stop in zip([0, *cuts], [*cuts, len(groups)], strict=True):
            first = int(groups[start])
            yield (
                slice(int(start), int(stop)),
                self._by_group[self._starts[first] : self._starts[first + 1]],
            )

    def _slice(self, block: int) -> slice:
        width = block_columns(self.rows)
        return slice(block * width, (block + 1) * width)


def reaches(
    graph: sparse.csr_array, owned: Mapping[str, NDArray[np.intp]]
) -> dict[str, NDArray[np.uint16]]:
    """Return what `Reach` tells each client: by row, its component if it has a label of the client.

    Args:
        graph: 𝒲, (n, n).
        owned: by client, its labelled rows, of n.
    """
    count, components = csgraph.connected_components(graph, directed=False)
    found = {}
    for client, own in owned.items():
        names = np.unique(components[own])
        numbers = np.zeros(count, dtype=np.uint16)
        numbers[names] = np.minimum(np.arange(1, len(names) + 1), MAX_GROUPS)
        found[client] = numbers[components]
    return found


def batches(layouts: Mapping[str, Layout]) -> Iterator[list[tuple[str, int]]]:
    """Put blocks together that are solved for at once, with as many columns as one may have."""
    batch: list[tuple[str, int]] = []
    columns = 0
    for client, layout in layouts.items():
        for block in range(layout.blocks):
            more = len(layout.columns(block))
            if batch and columns + more > block_columns(layout.rows):
                yield batch
                batch, columns = [], 0
            batch.append((client, block))
            columns += more
    if batch:
        yield batch


def cut_block(layout: Layout, block: int, columns: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the values of a block that travel.

    Args:
        layout: of the client.
        block: its number.
        columns: (columns of the block, n), the transposed columns of S.
    """
    return np.concatenate([columns[run][:, rows].reshape(-1) for run, rows in layout.runs(block)])


class PartialScores:
    """What a client's labels add to the scores, S_L·Y_L, built up block by block.

    Args:
        layout: of the client.
        class_ids: (l_j,) classes of its labelled rows, in 0 … C − 1.
        n_classes: C.
        codec: with it, sums are those of columns rounded before they are added up, exact and
            independent of the labels in every rounding; see `encode_label_sums`.

    Attributes:
        sensitivity: of the columns so far, see `label_sensitivity`; 0 without a codec.
        diagonal: (l_j,) S_ii of the labelled rows whose columns are added, without a codec.
    """

    def __init__(
        self,
        layout: Layout,
        class_ids: NDArray[np.int64],
        n_classes: int,
        codec: FixedPoint | None = None,
    ) -> None:
        self.sensitivity = 0.0
        self.diagonal = np.zeros(len(class_ids))
        self._layout, self._n_classes, self._codec = layout, n_classes, codec
        # Only of the classes that this client has: with hundreds of classes, few labels and all
        # clients in one process the others would be most of the memory.
        self._classes, self._class_ids = np.unique(class_ids, return_inverse=True)
        shape = layout.rows, len(self._classes)
        self._sums = np.zeros(shape, np.float64 if codec is None else codec.dtype)
        self._largest = np.zeros(layout.rows)

    def add_block(self, block: int, values: NDArray[np.float32]) -> None:
        """Add the columns of a block.

        Raises:
            DataError, EncodingOverflow: a value does not fit the codec, whatever the labels.
        """
        labelled = self._layout.columns(block)
        class_ids = self._class_ids[labelled]
        at = 0
        for run, rows in self._layout.runs(block):
            shape = run.stop - run.start, len(rows)
            size = shape[0] * shape[1]
            columns = values[at : at + size].reshape(shape).T.astype(np.float64)
            at += size
            if self._codec is None:
                self._sums[rows] += columns @ np.eye(len(self._classes))[class_ids[run]]
                places = np.searchsorted(rows, self._layout.own[labelled[run]])
                self.diagonal[labelled[run]] = columns[places, np.arange(shape[0])]
                continue
            self.sensitivity = max(self.sensitivity, label_sensitivity(columns, self._codec))
            self._largest[rows] += columns.sum(axis=1)
            self._sums[rows] += encode_label_sums(
                columns, class_ids[run], len(self._classes), self._codec
            )

    def check(self, codec: FixedPoint, client: str) -> None:
        """Refuse scores that do not fit the codec of the sums, before anything is sent.

        Raises:
            DataError, EncodingOverflow: as from `FixedPoint.encode`.
        """
        codec.check(self.scores(), client=client)

    def scores(self) -> NDArray[np.float64]:
        """Return S_L·Y_L, (n, C), when all blocks are added.

        Raises:
            EncodingOverflow: with a codec, what a class may get at most does not fit it, or the sum
                does not fit float64.
        """
        sums = self._sums
        if self._codec is not None:
            self._codec.encode(self._largest)
            sums = self._codec.decode(self._sums)
            if not np.array_equal(self._codec.encode(sums), self._sums):
                raise EncodingOverflow(
                    f"scores with {self._codec.fraction_bits} fraction bits are too fine for "
                    "float64; use fewer fraction bits"
                )
        full = np.zeros((len(sums), self._n_classes))
        full[:, self._classes] = sums
        return full
