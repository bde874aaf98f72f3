"""``xclp serve``, ``xclp join`` and ``xclp certs``: a federation of several machines."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import (
    LogError,
    ParameterError,
    ProtocolError,
    StorageError,
    XclpError,
)
from xclp_crypto.params import Agreement
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport import network
from xclp_crypto.transport.log import Log, NoLog
from xclp_crypto.transport.replay import DurableRole, SeededRole
from xclp_crypto.transport.tls import make_authority
from xclp_lp.cli.keeping import KEY_VARIABLE, KeyFile, read_key
from xclp_lp.cli.terminal import StepReporter, complain, note, remind, say
from xclp_lp.cli.tune import show_own
from xclp_lp.diagnostics import feature_cautions
from xclp_lp.files.check import check_client
from xclp_lp.files.clients import LoadedClient, data_lines
from xclp_lp.files.network import (
    ClientFile,
    NetworkFile,
    load_client_file,
    load_server_file,
    names_of,
    parse_address,
)
from xclp_lp.files.toml import beside
from xclp_lp.labelling import Participation
from xclp_lp.session import ClientData, client_role, server_role
from xclp_lp.summary import client_lines, dropout_lines
from xclp_lp.wording import count, listing, size

ANSWER_SECONDS = 5.0
"""How long a client that cannot take part tries to tell the server."""

StateOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keep a log in this file, to go on from when this program was killed. It is encrypted "
        f"under --key-file, or under the key or passphrase in the environment's {KEY_VARIABLE}.",
    ),
]
LogOption = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Append what happens to this file, as JSON lines."),
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


def _open_log(state: Path | None, key_file: Path | None, mounted: Collection[Path]) -> Log:
    """Open the log that the options name, or none.

    Raises:
        ParameterError: a key without a log or the other way round, or a key that cannot be used.
    """
    if state is None:
        if key_file is not None:
            raise ParameterError("--key-file is the key of a log; name the log by --state")
        return NoLog()
    return Log.open(state, read_key(f"--state {state}", key_file, mounted))


def certs(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    clients: Annotated[list[str], typer.Option(help="Names of the clients, with commas.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address under which clients reach the server; may be repeated."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long the certificates are valid.")] = 365,
) -> None:
    """Make a test authority: certificates and identity keys for a server and its clients.

    Give each client authority.pem, identities.toml, NAME.pem, NAME.key and NAME.identity, and
    nobody else NAME.key and NAME.identity. The authority's own key is not kept, so a further client
    needs a new set. By default the server is localhost.
    """
    folder = beside(Path("the argument"), str(folder))
    files = make_authority(
        folder, names_of(clients), names_of(host or ["localhost,127.0.0.1"]), days=days
    )
    say(f"{count(len(files), 'file')} written to {folder}")


@contextmanager
def _naming(state: Path | None) -> Iterator[None]:
    """Say of an error after which the log of a party is of no more use where that is."""
    try:
        yield
    except (LogError, ProtocolError) as error:
        if state is not None:
            error.add_note(f"to begin a new session, delete the log {state}")
        raise


@contextmanager
def _running(
    name: str,
    role: SeededRole,
    file: NetworkFile,
    binding: bytes,
    state: Path | None,
    key_file: Path | None,
    log: Path | None,
) -> Iterator[DurableRole]:
    """Give a party that tells what it does and keeps its log, which goes when all is done.

    The log holds what was secret.
    """
    try:
        with _logging(log), StepReporter().showing() as progress:
            durable = DurableRole(
                name,
                role,
                _open_log(state, key_file, file.mounted),
                peers=[party for party in (*file.clients, SERVER) if party != name],
                binding=binding,
                progress=progress,
            )
            with closing(durable), _naming(state):
                yield durable
    except KeyboardInterrupt:
        then = "; the others go on without it" if state is None else f"; --state {state} goes on"
        complain(f"interrupted{then}")
        raise
    if state is not None:
        state.unlink()


def serve(
    file: Annotated[Path, typer.Argument(help="The server's file; it names no data.")],
    state: StateOption = None,
    key_file: KeyFile = None,
    log: LogOption = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen here instead of the file's.")
    ] = None,
) -> None:
    """Coordinate a federation: wait for the clients of the file, and run one session with them.

    The server needs no data. See docs/do/deployment.md.
    """
    loaded = load_server_file(file)
    address = loaded.address if listen is None else parse_address(listen, "--listen")

    def listening(port: int) -> None:
        say(f"listening on {address[0]}:{port} for {', '.join(loaded.clients)}")

    async def role(io: Any, rng: Any) -> Participation:
        return await server_role(io, loaded.params, loaded.clients, rng, loaded.identities)

    agreement = loaded.agreement()
    binding = domain_tag("server binding", agreement.encode())
    with _running(SERVER, role, loaded, binding, state, key_file, log) as durable:
        found: Participation = network.serve(
            durable,
            loaded.clients,
            agreement,
            address,
            loaded.tls,
            limits=loaded.limits,
            listening=listening,
        )
    note(*dropout_lines(found.dropouts))
    say(
        f"labels of {', '.join(found.contributors)} were counted; "
        f"{size(durable.cost.sent_by(SERVER))} sent"
    )


def check(
    file: Annotated[Path, typer.Argument(help="This client's file, which xclp join would take.")],
) -> None:
    """Read a client's file, certificates and data, and list everything that is wrong at once.

    Nothing is sent and nothing is written. Afterwards xclp join --dry-run asks the server.
    """
    _check(file)
    say(f"nothing wrong in {file}")


def _check(file: Path) -> None:
    """Say what is in a client's file and data; exit with 2 where something is wrong with them."""
    found = check_client(file)
    note(*found.facts)
    for caution in found.cautions:
        complain(f"caution: {caution}")
    for problem in found.problems:
        complain(problem)
    if found.problems:
        say(f"{count(len(found.problems), 'problem')} in {file}")
        raise typer.Exit(2)


def join(
    file: Annotated[Path, typer.Argument(help="This client's file.")],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Do what xclp check does, and ask the server whether certificates and parameters "
            "fit; no data are sent.",
        ),
    ] = False,
    state: StateOption = None,
    key_file: KeyFile = None,
    log: LogOption = None,
) -> None:
    """Take part in a federation as a client, and write this client's labels.

    Writes NAME.csv (id, label, given label, confidence, probability of every class) and
    NAME-cost.json. See docs/do/deployment.md.
    """
    if dry_run:
        _check(file)
    loaded = load_client_file(file)
    agreement = loaded.agreement()
    if dry_run:
        network.check(agreement, loaded.address, loaded.tls, limits=loaded.limits)
        say("the server accepts this certificate and these parameters")
        return
    table, data = _read(loaded, agreement)
    note(*data_lines(table, data, loaded.params.classes))
    own = {loaded.name: data.vectors}
    cautions = list(feature_cautions(own, loaded.params.scale, table.columns))
    for caution in cautions:
        complain(f"caution: {caution}")

    async def role(io: Any, rng: Any) -> Any:
        return await client_role(
            io, data, loaded.params, loaded.clients, rng, loaded.seed, loaded.identities
        )

    binding = loaded.binding(data)
    with _running(loaded.name, role, loaded, binding, state, key_file, log) as durable:
        prediction = network.join(
            durable,
            loaded.clients,
            SERVER,
            agreement,
            loaded.address,
            loaded.tls,
            limits=loaded.limits,
        )
        written = loaded.write(table, data, prediction, durable.cost)
    say(f"{count(len(written), 'file')} written to {loaded.output}")
    note(*client_lines(loaded.params, loaded.settings, data, prediction))
    remind(cautions)
    if loaded.params.validation == "tune" and prediction.validation is not None:
        show_own(loaded.name, prediction.validation, data, loaded.params)


def _read(loaded: ClientFile, agreement: Agreement) -> tuple[LoadedClient, ClientData]:
    """Read a client's data; where it cannot take part, tell the server before that is raised."""
    try:
        loaded.require_writable()
        return loaded.load()
    except XclpError:
        limits = replace(loaded.limits, grace=min(loaded.limits.grace, ANSWER_SECONDS))
        with suppress(XclpError):  # nobody waits where there is no server
            network.decline(agreement, loaded.address, loaded.tls, limits=limits)
        raise
