"""Files with secrets: keys of certificates, identities and logs; only their owner may read them."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from xclp_crypto.errors import ParameterError
from xclp_crypto.transport.log import LogKey


def require_private(file: Path, mounted: Collection[Path] | None = None) -> None:
    """Refuse a file with a secret that others may read or write, on systems that can tell.

    Args:
        file: a file that is missing is left to whoever reads it.
        mounted: files that others may read because it was said so by name: some systems mount
            secrets in this way. None: where nothing can say so.

    Raises:
        ParameterError: others may.
    """
    if os.name == "posix" and file.exists() and file.stat().st_mode & 0o077:
        if file.resolve() in {allowed.resolve() for allowed in mounted or ()}:
            return
        named = (
            "; or, if the system mounts it so, say before any [section] of this party's file "
            f'mounted_secrets = ["{file.absolute()}"], in a configuration of Flower without []'
        )
        raise ParameterError(
            f"{file} holds a secret, and others may read or write it: chmod 600 {file}"
            + named * (mounted is not None)
        )


def read_log_key(file: Path, mounted: Collection[Path] | None = None) -> LogKey:
    """Read the key of a log; see `require_private`.

    Raises:
        ParameterError: it cannot be read, is no key, or others may read it.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ParameterError(f"{file} cannot be read: {error}") from None
    require_private(file, mounted)
    try:
        return LogKey.from_text(text)
    except ParameterError as error:
        raise ParameterError(f"{file}: {error}") from None
