"""Secure sums."""

from xclp_crypto.protocols.secure_sum.ideal import ideal_row_sums_client, ideal_row_sums_server
from xclp_crypto.protocols.secure_sum.row_sums import (
    Rows,
    check_rows,
    secure_row_sums_client,
    secure_row_sums_server,
)

__all__ = [
    "Rows",
    "check_rows",
    "ideal_row_sums_client",
    "ideal_row_sums_server",
    "secure_row_sums_client",
    "secure_row_sums_server",
]
