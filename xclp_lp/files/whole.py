"""Files that are either complete or not there."""

from __future__ import annotations

import tempfile
from pathlib import Path


def write_whole(file: Path, content: bytes) -> Path:
    """Write a file beside its place and move it there; return it.

    Raises:
        OSError: that cannot be done.
    """
    with tempfile.TemporaryDirectory(prefix=".xclp-", dir=file.parent) as scratch:
        complete = Path(scratch) / "complete"
        complete.write_bytes(content)
        return complete.replace(file)
