"""What outlives a command and is secret, logs and what clients keep, and the key of both."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from xclp_crypto.errors import ParameterError
from xclp_crypto.transport.log import LogKey
from xclp_crypto.whole_files import why_not_writable
from xclp_lp.cli.terminal import note
from xclp_lp.files.kept import kept_name, write_kept
from xclp_lp.files.private import read_log_key
from xclp_lp.wording import listing

KEY_VARIABLE = "XCLP_LOG_KEY"
KeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the key of what --state, --keep or --remember names: 64 hex digits, or a "
        f"passphrase. By default it is in the environment's {KEY_VARIABLE}.",
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep in this folder what gives labels to rows that come later: NAME.kept, which is "
        f"secret, and encrypted under --key-file or the environment's {KEY_VARIABLE}.",
    ),
]


def read_key(option: str, key_file: Path | None, mounted: Collection[Path] | None = None) -> LogKey:
    """Return the key that a log or kept files are encrypted under.

    Args:
        option: what needs it, for errors.
        key_file: of the options, if it is there.
        mounted: see `require_private`.

    Raises:
        ParameterError: there is none, it cannot be used, or others may read its file.
    """
    if key_file is not None:
        return read_log_key(key_file, mounted)
    text = os.environ.get(KEY_VARIABLE)
    if not text:
        raise ParameterError(
            f"{option} needs a key that it is encrypted under: --key-file FILE, or the "
            f"environment's {KEY_VARIABLE}; openssl rand -hex 32 makes one"
        )
    try:
        return LogKey.from_text(text)
    except ParameterError as error:
        raise ParameterError(f"{KEY_VARIABLE}: {error}") from None


def kept_key(
    folder: Path | None,
    clients: Sequence[str],
    key_file: Path | None,
    mounted: Collection[Path] | None = None,
) -> LogKey | None:
    """Return the key of what these clients will keep, before anything is computed; None for none.

    Raises:
        ParameterError: there is no such key, or the folder cannot take their files.
    """
    if folder is None:
        return None
    key = read_key(f"--keep {folder}", key_file, mounted)
    if reason := why_not_writable(folder, map(kept_name, clients)):
        raise ParameterError(f"--keep {folder}: {reason}")
    return key


def keep_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write what clients keep, and say so; raises as `write_kept` does."""
    write_kept(folder, files)
    note(f"kept in {folder} for rows that come later: {listing(list(map(kept_name, files)))}")
