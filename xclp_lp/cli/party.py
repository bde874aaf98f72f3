"""What commands of a party have in common: its log, events, progress, and what errors say."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from xclp_crypto.errors import LogError, ParameterError, ProtocolError, StorageError
from xclp_crypto.transport.log import Log, NoLog, remove_log
from xclp_lp.cli.keeping import KEY_VARIABLE, read_key
from xclp_lp.cli.terminal import StepReporter, complain, note
from xclp_lp.files.parties import PartyFile
from xclp_lp.summary import restart_line
from xclp_lp.wording import count, listing

StateOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keep a log in this file, to go on from when this program was killed. It is encrypted "
        f"under --key-file, or under the key or passphrase in the environment's {KEY_VARIABLE}.",
    ),
]
EpochOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Note in this file how far the log of --state got, so that an older copy of it is "
        "refused; best where no backup takes it. By default beside the log, with .epoch.",
    ),
]
LogOption = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Append what happens to this file, as JSON lines."),
]
Listen = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Listen here instead of the file's.")
]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, event, and what belongs to the event."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        extra = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        return json.dumps(line | extra, default=str)


class _EventFile(logging.FileHandler):
    """Appends events as JSON lines; when that fails, says so once, and the session goes on."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8")
        self.setFormatter(JsonFormatter())
        self._file = file

    def handleError(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.handleError`."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self.setLevel(logging.CRITICAL + 1)  # nothing after a line that is cut off
        with suppress(OSError):  # closing tries once more to write the rest of it
            self.close()
        note(f"  --log {self._file} cannot be written any more: {error.strerror}; going on without")


class _Lines(logging.Handler):
    """Says on the terminal who comes and goes."""

    EVENTS = (
        *("connected", "is here", "does not take part", "dropout"),
        *("refused", "TLS handshake failed", "connection refused", "dry run", "no connection"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        event = record.getMessage()
        if event not in self.EVENTS:
            return
        who, why = getattr(record, "client", ""), getattr(record, "reason", "")
        line = f"  {f'{who}: ' if who else ''}{event}{f' ({why})' if why else ''}"
        if awaited := getattr(record, "awaited", []):
            line += f"; waiting for {listing(awaited)}"
        if line != self._last:  # a client that tries again and again says it once
            left = getattr(record, "seconds_left", 0)
            more = f"; trying again for up to {count(left, 'second')}" if left else ""
            note(line + more)
        self._last = line


@contextmanager
def _logging(file: Path | None) -> Iterator[None]:
    """Send events of the transport to the terminal, and to a file if there is one."""
    logger = logging.getLogger("xclp_crypto.transport")
    handlers: list[logging.Handler] = [_Lines()]
    if file is not None:
        try:
            handlers.append(_EventFile(file))
        except OSError as error:
            raise StorageError(f"--log {file} cannot be written: {error.strerror}") from None
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagate


@dataclass(frozen=True)
class PartyFiles:
    """What the options name: the log, what says how far it got, its key, and where events go."""

    state: Path | None
    epoch: Path | None
    key_file: Path | None
    log: Path | None

    def require_use(self, *others: Path | None) -> None:
        """Refuse a key or an epoch of nothing.

        Args:
            others: what else is encrypted under the key.

        Raises:
            ParameterError: there is one, and no place of what it is for.
        """
        if self.key_file is not None and {self.state, *others} == {None}:
            raise ParameterError(
                "--key-file is the key of what --state, --keep or --remember names; name it"
            )
        if self.epoch is not None and self.state is None:
            raise ParameterError("--epoch is of the log that --state names; name it")

    def open(self, mounted: Collection[Path]) -> Log:
        """Open the log, or none; raises `ParameterError` if there is no key that can be used."""
        if self.state is None:
            return NoLog()
        key = read_key(f"--state {self.state}", self.key_file, mounted)
        return Log.open(self.state, key, epoch=self.epoch)


@contextmanager
def naming(state: Path | None, clients: Sequence[str]) -> Iterator[None]:
    """Say what to do after an error that ends a session: without whom, and without which log."""
    try:
        yield
    except (LogError, ProtocolError) as error:
        if line := restart_line(error, clients, "all parties' files"):
            error.add_note(line)
        if state is not None:
            error.add_note(f"to begin a new session, delete the log {state}")
        raise


@contextmanager
def attending(file: PartyFile, files: PartyFiles) -> Iterator[tuple[Log, StepReporter]]:
    """Give the log of a party, which goes when all is done, and what shows its progress.

    The log holds what was secret.
    """
    state = files.state
    try:
        with (
            _logging(files.log),
            closing(files.open(file.mounted)) as records,
            StepReporter().showing() as progress,
        ):
            yield records, progress
    except KeyboardInterrupt:
        then = "; the others go on without it" if state is None else f"; --state {state} goes on"
        complain(f"interrupted{then}")
        raise
    if state is not None:
        remove_log(state, files.epoch)
