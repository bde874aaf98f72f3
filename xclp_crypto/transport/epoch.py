"""How far a log got, in a file apart from it, so that an older copy of the log is noticed.

::

    "XCLPEPO" ‖ version (1 byte) ‖ salt of the log's header (16) ‖ its pieces (8) ‖ CRC-32 (4)

It is written over again each time the log is made to last, and holds no secret. Whoever restores a
log and this file together from one backup is not noticed here, only by the peers: so the file is
best where no backup takes it.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final

from xclp_crypto.errors import LogError, LogRolledBack, StorageError

MAGIC: Final = b"XCLPEPO"
VERSION: Final = 1

_LAYOUT = struct.Struct(">7sB16sQ")
_CRC = struct.Struct(">I")


class Epoch:
    """The file of one log; made when it is first noted.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[bytes, int] | None:
        """Return salt and number of pieces of the log that was noted last; None before any was.

        Raises:
            LogError: the file is damaged, or not of a log.
            StorageError: it cannot be read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self.path} cannot be read: {error.strerror}") from None
        if not data:
            return None
        fixed, crc = data[: _LAYOUT.size], data[_LAYOUT.size :]
        if len(data) != _LAYOUT.size + _CRC.size or not data.startswith(MAGIC):
            raise LogError(f"{self.path} does not say how far a log got; name another file")
        _, version, salt, pieces = _LAYOUT.unpack(fixed)
        if version != VERSION or _CRC.pack(zlib.crc32(fixed)) != crc:
            raise LogError(
                f"{self.path} is damaged; begin a new session without it and without its log"
            )
        return salt, pieces

    def require(self, name: str, salt: bytes, pieces: int) -> None:
        """Refuse a log that is older than it was; one without pieces is new, and sent nothing.

        Args:
            name: what errors call the log.
            salt: of its header.
            pieces: that it has.

        Raises:
            LogRolledBack: it had more, is another one, or the file is missing.
            LogError, StorageError: as from `read`.
        """
        noted = self.read()
        then = "give back the newest log, or begin a new session without it"
        if noted is None:
            if pieces:
                raise LogRolledBack(
                    f"{name} may be an older copy: {self.path}, which says how far it got, is "
                    f"missing; give it back, or begin a new session without the log"
                )
            return
        known, got = noted
        if pieces < got and known == salt:
            raise LogRolledBack(
                f"{name} was rolled back: it has {pieces} of the {got} records that {self.path} "
                f"tells of; randomness would be used again, so {then}"
            )
        if pieces and known != salt:
            raise LogRolledBack(f"{name} is not the log that {self.path} tells of; {then}")

    def note(self, salt: bytes, pieces: int) -> None:
        """Write how far the log got, once it is on the disk.

        Raises:
            StorageError: that cannot be done.
        """
        data = _LAYOUT.pack(MAGIC, VERSION, salt, pieces)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
            with open(os.open(self.path, flags, 0o600), "wb", buffering=0) as file:  # noqa: PTH123
                file.write(data + _CRC.pack(zlib.crc32(data)))
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written: {error.strerror}") from None
