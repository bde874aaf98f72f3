"""The trees from which the columns of OT extension grow: all leaves of one, or all but one.

Puncturable pseudo-random functions of Goldreich, Goldwasser and Micali (J. ACM 1986), transferred
level by level as Roy does (SoftSpokenOT, CRYPTO 2022, section 5). A tree of depth k has 2^k leaves;
every node gives its two children by HKDF, but the first two are drawn::

    receiver: all nodes              base transfer of each level:         sender: its choices
    the sum of all left children,    ──────────────────────▶   the sum on the side of its choice
    and that of all right children                             and so, all nodes beside one path

At each level the sender knows all nodes but one, so that it has their children but two, and the
sum on the side of its choice gives it one of these two. In the end it lacks the leaf that lies on
the other side of every choice; the other sums say nothing about it, since they have another
unknown node of their level in them.

Leaves are numbered by the *distance* from what the sender lacks: leaf y of the receiver is leaf
y ⊕ Δ of the sender, where Δ has the choices as its bits, and the sender lacks leaf 0. Bit b of tree
j is base transfer, and column, b·n + j, of n = 128/k trees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import KEY_BYTES, derive_key

_TAG = domain_tag("ot-extension tree")


def _children(nodes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the children of all nodes, (n, c, 32), as (n, c, 2, 32)."""
    flat = nodes.reshape(-1, KEY_BYTES)
    grown = b"".join(derive_key(node.tobytes(), _TAG, 2 * KEY_BYTES) for node in flat)
    return np.frombuffer(bytearray(grown), np.uint8).reshape(*nodes.shape[:2], 2, KEY_BYTES)


def grow(first: NDArray[np.uint8], depth: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Grow the receiver's trees.

    Args:
        first: (n, 2, 32), the first two nodes of each tree, uniform.
        depth: k, levels of each.

    Returns:
        The leaves, (n, 2^k, 32), and the two messages of every base transfer, (k·n, 2, 32).
    """
    n = len(first)
    nodes, sums = first[:, None], []
    for level in range(depth):
        if level:
            nodes = _children(nodes.reshape(n, -1, KEY_BYTES))
        sums.append(np.bitwise_xor.reduce(nodes, axis=1))
    leaves = nodes.reshape(n, -1, KEY_BYTES)[:, ::-1]
    return leaves, np.concatenate(sums[::-1])


def puncture(sums: NDArray[np.uint8], choices: NDArray[np.bool_], depth: int) -> NDArray[np.uint8]:
    """Grow what the sender knows of them.

    Args:
        sums: (k·n, 32), the message that it got in each base transfer.
        choices: (k·n,), its choices.
        depth: k.

    Returns:
        The leaves, (n, 2^k, 32), of which those at 0 are zeros: it does not know them.
    """
    n = len(choices) // depth
    trees, path = np.arange(n), np.zeros(n, np.intp)
    sides = choices.reshape(depth, n).astype(np.intp)
    nodes = np.zeros((n, 1, 2, KEY_BYTES), np.uint8)
    for level in range(depth):
        if level:
            nodes = _children(nodes.reshape(n, -1, KEY_BYTES))
            nodes[trees, path] = 0  # what grew from the node that it does not know
        bit = depth - 1 - level
        side = sides[bit]
        known = np.bitwise_xor.reduce(nodes, axis=1)[trees, side]
        nodes[trees, path, side] = known ^ sums[bit * n : (bit + 1) * n]
        path = 2 * path + 1 - side
    order = np.arange(1 << depth) ^ path[:, None]
    return np.take_along_axis(nodes.reshape(n, -1, KEY_BYTES), order[:, :, None], axis=1)
