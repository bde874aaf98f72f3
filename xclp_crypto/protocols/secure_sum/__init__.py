"""Secure sums: of vectors for the server, and of rows for their owners."""

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
