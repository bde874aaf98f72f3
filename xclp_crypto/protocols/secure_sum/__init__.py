"""Secure sums: of vectors for the server, and of rows for their owners.

Examples:
    >>> import numpy as np
    >>> from xclp_crypto.params import Agreement
    >>> from xclp_crypto.primitives.fixed_point import FixedPoint
    >>> from xclp_crypto.protocols.secure_sum import MaskGraph, secure_sum_client, secure_sum_server
    >>> from xclp_crypto.protocols.secure_sum import secure_row_sums_client, secure_row_sums_server
    >>> from xclp_crypto.protocols.setup import key_exchange_client, key_exchange_server
    >>> from xclp_crypto.rng import SystemRng
    >>> from xclp_crypto.transport.simulate import Simulation
    >>> rows = {"a": np.array([0]), "b": np.array([1]), "c": np.array([2])}
    >>> clients = tuple(rows)
    >>> codec, graph = FixedPoint(0, parties=3), MaskGraph.complete(clients)
    >>> async def client(io):
    ...     rng = SystemRng()
    ...     session = await key_exchange_client(io, clients, Agreement(), [], rng)
    ...     await secure_sum_client(session, np.array([1, 2]), codec, graph, rng)
    ...     values = np.eye(3, dtype=int)
    ...     return await secure_row_sums_client(session, values, rows, codec, graph, rng)
    >>> async def server(io):
    ...     session = await key_exchange_server(io, clients, Agreement(), 0, SystemRng())
    ...     found = await secure_sum_server(session, (2,), codec, graph)
    ...     await secure_row_sums_server(session, rows, 3, codec, graph)
    ...     return found.total.tolist()
    >>> roles = dict.fromkeys(clients, client) | {"server": server}
    >>> results = Simulation().run(roles).raise_errors().results
    >>> results["server"], results["b"].values.tolist()
    ([3, 6], [[0, 3, 0]])
"""

from xclp_crypto.protocols.secure_sum.double_masks import SumRecord
from xclp_crypto.protocols.secure_sum.ideal import (
    ideal_row_sums_client,
    ideal_row_sums_server,
    ideal_sum_client,
    ideal_sum_server,
)
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.secure_sum.row_sums import (
    MODES,
    Mode,
    check_mode,
    secure_row_sums_client,
    secure_row_sums_server,
)
from xclp_crypto.protocols.secure_sum.rows import Rows, RowSums, check_rows
from xclp_crypto.protocols.secure_sum.secure_sum import (
    SecureSum,
    secure_sum_client,
    secure_sum_server,
)

__all__ = ["MODES", "MaskGraph", "Mode", "RowSums", "Rows", "SecureSum", "SumRecord"]
__all__ += ["check_mode", "check_rows"]
__all__ += ["secure_sum_client", "secure_sum_server"]
__all__ += ["secure_row_sums_client", "secure_row_sums_server"]
__all__ += ["ideal_sum_client", "ideal_sum_server"]
__all__ += ["ideal_row_sums_client", "ideal_row_sums_server"]


def __dir__() -> list[str]:
    return sorted(__all__)
