"""An encrypted log: records that are appended, and read again after the program was killed.

::

    header:  "XCLPLOG" ‖ version (1 byte) ‖ kind of key (1) ‖ log2 of scrypt's N (1) ‖ salt (16)
    piece:   length (4) ‖ CRC-32 of length and number (4) ‖ nonce (12) ‖ sealed (length)
    sealed:  AES-256-GCM of kind (1) ‖ more follows (1) ‖ data, bound to the header and the number

The kind is 0 for a key of 32 bytes, with N left 0, and 1 for a passphrase.

A record is one or more pieces. Everything in it is encrypted under a key that the user gives, so
the file is as secret as that key. Nonces are random: what was cut off and is written again does not
use one twice. A program that is killed leaves a last record that is not complete, which is cut off;
anything else that does not open is an error, because a role that goes back to an earlier point must
not send again. Who deletes whole records from the end is noticed by the peers, not here.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import LogError, LogInUseError, ParameterError, StorageError
from xclp_crypto.params import MAX_SCRYPT_COST, MIN_PASSPHRASE, SCRYPT_BLOCK, SCRYPT_COST
from xclp_crypto.rng import Rng, rng_or_system
from xclp_crypto.secret import Secret
from xclp_crypto.transport.epoch import Epoch

MAGIC: Final = b"XCLPLOG"
VERSION: Final = 2
SALT_BYTES: Final = 16
PIECE_BYTES: Final = 1 << 20  # data of a piece at most, which is in memory four times meanwhile

_HEADER = struct.Struct(f">7sBBB{SALT_BYTES}s")
HEADER_BYTES: Final = _HEADER.size
_PIECE = struct.Struct(">II12s")
_TAG_BYTES = 16
_KEY_BYTES = 32
_KINDS = {0: "a key of 32 bytes", 1: "a passphrase"}


class LogKey(Secret):
    """What a log is encrypted under: 32 uniform bytes, or `of_passphrase`.

    Args:
        key: the bytes.

    Attributes:
        kind: 0 of a key, 1 of a passphrase.
        cost: log2 of scrypt's N in new logs; 0 of a key.

    Raises:
        ParameterError: more or fewer.
    """

    __slots__ = ("_secret", "cost", "kind")

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ParameterError(f"the key of a log is {_KEY_BYTES} bytes, got {len(key)}")
        self._secret, self.kind, self.cost = key, 0, 0

    @classmethod
    def of_passphrase(cls, passphrase: str, *, cost: int = SCRYPT_COST) -> LogKey:
        """Make the key of a passphrase of 12 bytes or more, whatever they are, through scrypt.

        Args:
            passphrase: in UTF-8.
            cost: log2 of scrypt's N; a log with less than `SCRYPT_COST` is not opened again.

        Raises:
            ParameterError: too short.
        """
        secret = passphrase.encode()
        if len(secret) < MIN_PASSPHRASE:
            raise ParameterError(
                f"the key of a log is 64 hex digits or a passphrase of at least {MIN_PASSPHRASE} "
                f"bytes, got {len(secret)}"
            )
        made = cls.__new__(cls)
        made._secret, made.kind, made.cost = secret, 1, cost
        return made

    @classmethod
    def from_text(cls, text: str) -> LogKey:
        """Read 64 hexadecimal digits as 32 bytes, and anything else as a passphrase."""
        stripped = text.strip()
        if re.fullmatch(f"[0-9A-Fa-f]{{{2 * _KEY_BYTES}}}", stripped):
            return cls(bytes.fromhex(stripped))
        return cls.of_passphrase(stripped)

    def of_file(self, cost: int, salt: bytes) -> bytes:
        """Return the 32-byte key of the file with this cost and salt in its header."""
        secret = self._secret
        if self.kind == 1:
            scrypt = Scrypt(salt=salt, length=_KEY_BYTES, n=1 << cost, r=SCRYPT_BLOCK, p=1)
            secret = scrypt.derive(secret)
        return derive_key(secret, domain_tag("log file", salt))


class Log:
    """Records of one party; `replay` reads those that are there, and then more can be appended.

    Args:
        file: read and written in binary; empty, or what an earlier log wrote.
        key: what it is encrypted under.
        rng: source of salt and nonces; the operating system's by default.
        name: what errors call it.
        epoch: where it is noted how far it got; nowhere by default.

    Raises:
        LogError: no log, of another version, or under another kind of key.
    """

    def __init__(
        self,
        file: BinaryIO,
        key: LogKey,
        *,
        rng: Rng | None = None,
        name: str = "the log",
        epoch: Epoch | None = None,
    ) -> None:
        self._file = file
        self._epoch = epoch
        self._rng = rng_or_system(rng)
        self.name = name
        self._number = 0
        self._replayed = False
        self._dirty = False
        file.seek(0)
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size and MAGIC.startswith(header[: len(MAGIC)]):
            salt = self._rng.bytes(SALT_BYTES)
            header = _HEADER.pack(MAGIC, VERSION, key.kind, key.cost, salt)
            cost = key.cost
            self._write_at(0, header)
        else:
            cost, salt = self._checked(header, key)
        self._header, self._salt = header, salt
        self._cipher = AESGCM(key.of_file(cost, salt))

    def _checked(self, header: bytes, key: LogKey) -> tuple[int, bytes]:
        """Return cost and salt of a header; see the class for errors."""
        if len(header) < _HEADER.size or not header.startswith(MAGIC):
            raise LogError(f"{self.name} is not a log of xclp; name another file")
        _, version, kind, cost, salt = _HEADER.unpack(header)
        if version != VERSION:
            raise LogError(
                f"{self.name} has version {version} and this program writes version {VERSION}; go "
                "on with the program that began it"
            )
        if kind != key.kind:
            raise LogError(
                f"{self.name} is encrypted under {_KINDS.get(kind, 'a key of another kind')}, and "
                f"{_KINDS[key.kind]} was given"
            )
        if kind == 1 and not SCRYPT_COST <= cost <= MAX_SCRYPT_COST:
            raise LogError(
                f"{self.name} says that scrypt's N is 2^{cost}; it is 2^{SCRYPT_COST} … "
                f"2^{MAX_SCRYPT_COST} in a log: who has written it did not mean it to be safe"
            )
        return cost, salt

    @classmethod
    def open(
        cls, path: Path, key: LogKey, *, epoch: Path | None = None, rng: Rng | None = None
    ) -> Self:
        """Open or create a file that only its owner may read; nobody else may open it meanwhile.

        Args:
            path: of the file.
            key: what it is encrypted under.
            epoch: file in which it is noted how far the log got; see `epoch_of`.
            rng: see the class.

        Raises:
            LogError: as from `Log`.
            LogInUseError: another program uses the file.
            StorageError: the file cannot be opened or written.
        """
        import fcntl  # POSIX only; logs in memory work everywhere

        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            file = os.fdopen(descriptor, "r+b", buffering=0)
        except OSError as error:
            raise StorageError(f"the log {path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise LogInUseError(f"the log {path} is in use by another program") from None
        try:
            noted = Epoch(epoch_of(path, epoch))
            log = cls(file, key, rng=rng, name=f"the log {path}", epoch=noted)
            try:
                os.fchmod(descriptor, 0o600)  # and never of a file that is not a log
            except OSError as error:
                raise StorageError(f"the log {path} is not ours: {error.strerror}") from None
            if log._dirty:  # a new file, and so a new name in its folder
                log.sync()
                folder = os.open(path.parent, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
        except (LogError, StorageError):
            file.close()
            raise
        return log

    @classmethod
    def from_bytes(cls, data: bytes, key: LogKey, *, rng: Rng | None = None) -> Self:
        """Make a log in memory: an empty one, or one that `to_bytes` gave."""
        return cls(io.BytesIO(data), key, rng=rng)

    def to_bytes(self) -> bytes:
        """Return everything that was written."""
        at = self._file.tell()
        self._file.seek(0)
        data = self._file.read()
        self._file.seek(at)
        return data

    def replay(self) -> Iterator[tuple[int, bytes]]:
        """Read all records as ``(kind, data)``; to the end, before anything is appended.

        Raises:
            LogError: a record does not open: another key, or a damaged file.
            LogRolledBack: there were more.
            StorageError: the file cannot be written.
        """
        complete, number = _HEADER.size, 0
        kind, parts = 0, list[bytes]()
        for kind, more, data in self._pieces():
            parts.append(data)
            if not more:
                complete, number = self._file.tell(), self._number
                whole = parts[0] if len(parts) == 1 else b"".join(parts)
                parts = []
                yield kind, whole
                del whole
        if self._epoch is not None:
            self._epoch.require(self.name, self._salt, number)
            if not number:  # before anything is in the file
                self._epoch.note(self._salt, 0)
        self._number = number
        self._file.seek(complete)
        try:
            self._file.truncate()
        except OSError as error:
            raise StorageError(f"{self.name} cannot be written: {error.strerror}") from None
        self._replayed = True

    def _pieces(self) -> Iterator[tuple[int, bool, bytes]]:
        """Read pieces until the file, or its last piece that is not complete, ends."""
        end = self._file.seek(0, os.SEEK_END)
        at = self._file.seek(_HEADER.size)
        self._number = 0
        while end - at >= _PIECE.size:
            length, crc, nonce = _PIECE.unpack(self._file.read(_PIECE.size))
            if crc != self._crc(length):
                self._require_unwritten(at, end)
                return
            sealed = self._file.read(length)
            if len(sealed) < length:
                return
            at += _PIECE.size + length
            try:
                plain = self._cipher.decrypt(nonce, sealed, self._bound())
            except InvalidTag:
                if at == end and not any(sealed[-_TAG_BYTES:]):
                    return  # a file that grew before its last bytes were on the disk
                raise LogError(self._damage()) from None
            if len(plain) < 2:
                raise LogError(self._damage())
            self._number += 1
            yield plain[0], bool(plain[1]), plain[2:]

    def _require_unwritten(self, at: int, end: int) -> None:
        """Refuse a piece whose beginning is wrong, unless nothing was written from there on."""
        self._file.seek(at)
        while at < end:
            block = self._file.read(1 << 20)
            if any(block):
                raise LogError(self._damage())
            at += len(block)

    def _damage(self) -> str:
        if self._number == 0:
            return f"{self.name} does not open: another key was given, or it is damaged"
        return (
            f"{self.name} is damaged after {self._number} records; it cannot be used: restore the "
            "file, or begin a new session without it"
        )

    def append(self, kind: int, *parts: bytes | bytearray) -> None:
        """Append a record; it is safe only after `sync`.

        Args:
            kind: 0 … 255.
            parts: the data, in one or more parts so that large ones need not be joined.

        Raises:
            LogError: there are records that were not read.
            StorageError: it cannot be written.
        """
        if not self._replayed:
            raise LogError(f"{self.name} has records that were not read; replay it first")
        pieces = [
            memoryview(part)[at : at + PIECE_BYTES]
            for part in parts
            for at in range(0, len(part), PIECE_BYTES)
        ]
        if sum(map(len, pieces)) <= PIECE_BYTES:
            pieces = [memoryview(b"".join(pieces))]
        for i, piece in enumerate(pieces):
            self._append_piece(bytes((kind, i + 1 < len(pieces))) + piece)

    def _append_piece(self, plain: bytes) -> None:
        nonce = self._rng.bytes(12)
        sealed = self._cipher.encrypt(nonce, plain, self._bound())
        head = _PIECE.pack(len(sealed), self._crc(len(sealed)), nonce)
        self._write_at(self._file.tell(), head + sealed)
        self._number += 1

    def sync(self) -> None:
        """Make everything that was appended survive a failure of the machine.

        Raises:
            StorageError: it cannot be written.
        """
        if not self._dirty or isinstance(self._file, io.BytesIO):
            return
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"{self.name} cannot be written: {error.strerror}") from None
        if self._epoch is not None and self._number:
            self._epoch.note(self._salt, self._number)
        self._dirty = False

    def close(self) -> None:
        """Close the file; another program may open it then."""
        self._file.close()

    def _write_at(self, at: int, data: bytes) -> None:
        self._dirty = True
        view = memoryview(data)
        try:
            self._file.seek(at)
            while view:  # a raw file may write less
                view = view[self._file.write(view) :]
        except OSError as error:
            raise StorageError(f"{self.name} cannot be written: {error.strerror}") from None

    def _bound(self) -> bytes:
        return self._header + self._number.to_bytes(8, "big")

    def _crc(self, length: int) -> int:
        return zlib.crc32(struct.pack(">IQ", length, self._number))


def epoch_of(log: Path, epoch: Path | None = None) -> Path:
    """Return the file that says how far a log got: `epoch`, or one beside the log."""
    return epoch or log.with_name(f"{log.name}.epoch")


def remove_log(log: Path, epoch: Path | None = None) -> None:
    """Remove a log that is needed no more, and what says how far it got."""
    log.unlink(missing_ok=True)
    epoch_of(log, epoch).unlink(missing_ok=True)


class NoLog(Log):
    """Keeps nothing: a role without a log cannot be rebuilt, and needs no key and no memory."""

    def __init__(self) -> None:
        self.name = "no log"

    def replay(self) -> Iterator[tuple[int, bytes]]:
        """Return no records."""
        return iter(())

    def append(self, kind: int, *parts: bytes | bytearray) -> None:
        """See `Log.append`."""

    def sync(self) -> None:
        """See `Log.sync`."""

    def close(self) -> None:
        """See `Log.close`."""
