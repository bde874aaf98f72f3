"""What secure sums cost without dropouts, from the sizes alone: bytes of every link, sealed.

Examples:
    >>> from xclp_crypto.protocols.secure_sum import MaskGraph
    >>> from xclp_crypto.protocols.secure_sum.costs import sum_bytes
    >>> sum_bytes(MaskGraph.complete(["a", "b", "c"]), count=1000, modulus=1 << 32)["a", "server"]
    4540
"""

from __future__ import annotations

from xclp_crypto.protocols.secure_sum.double_masks import (
    SumClients,
    SumReady,
    SumReveal,
    SumShares,
)
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.secure_sum.row_sums import Mode
from xclp_crypto.protocols.secure_sum.row_sums_restart import RowSumsRound
from xclp_crypto.protocols.secure_sum.rows import Rows, RowSumsBlock, RowSumsUpload
from xclp_crypto.protocols.secure_sum.secure_sum import SumUpload
from xclp_crypto.protocols.secure_sum.survivors import (
    SumMasked,
    SumSignatures,
    SumSigned,
    SumSurvivors,
)
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.protocols.setup.channel import sealed_size

ROUNDS = 8
"""Messages that must wait for each other in `double_masks`, from `SumShares` to `SumReveal`."""


def sum_bytes(graph: MaskGraph, count: int, modulus: int) -> dict[tuple[str, str], int]:
    """Return the bytes by (from, to) of a sum of `count` values of each client."""
    links = _mask_bytes(graph)
    for client in graph.clients:
        links[client, SERVER] += sealed_size(SumUpload.size(rows=count, columns=1, modulus=modulus))
    return links


def row_sums_bytes(
    rows: Rows, columns: int, graph: MaskGraph, modulus: int = 1 << 64, mode: Mode = "recover"
) -> dict[tuple[str, str], int]:
    """Return the bytes by (from, to) of row sums of so many columns."""
    n, dims = sum(map(len, rows.values())), {"columns": columns, "modulus": modulus}
    if mode == "restart":
        status = sealed_size(RowSumsRound.size(clients=len(rows)))
        links = {(c, SERVER): 0 for c in rows} | {(SERVER, c): 2 * status for c in rows}
    else:
        links = _mask_bytes(graph)
    for client, own in rows.items():
        links[client, SERVER] += sealed_size(RowSumsUpload.size(rows=n - len(own), **dims))
        links[SERVER, client] += sealed_size(RowSumsBlock.size(rows=len(own), **dims))
    return links


def _mask_bytes(graph: MaskGraph) -> dict[tuple[str, str], int]:
    """Return the bytes of `double_masks`; of a sparse graph, one with the same degree is taken."""
    links: dict[tuple[str, str], int] = {}
    p, signed = len(graph.clients), (SumMasked.size(), SumSigned.size())
    told = (SumClients.size(clients=p), SumSurvivors.size(clients=p))
    for client, near in graph.neighbours(bytes(32)).items():
        k = len(near)
        sent = (SumReady.size(neighbours=k), *signed, SumReveal.size(count=k + 1))
        shown = SumSignatures.size(clients=p, signatures=graph.signatures, partners=k)
        links[client, SERVER] = sum(map(sealed_size, sent))
        links[SERVER, client] = sum(map(sealed_size, (*told, shown)))
        for peer in near:
            links[client, peer] = sealed_size(SumShares.size())
    return links
