"""``xclp serve``, ``xclp join`` and ``xclp certs``: a federation of several machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import (
    ParameterError,
    XclpError,
)
from xclp_crypto.params import Agreement
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport import network
from xclp_crypto.transport.replay import DurableRole, SeededRole
from xclp_crypto.transport.tls import fingerprint_of, make_authority
from xclp_lp.cli.keeping import KeyFile, keep_files, kept_key, read_key
from xclp_lp.cli.party import (
    EpochOption,
    Listen,
    LogOption,
    PartyFiles,
    StateOption,
    attending,
    naming,
)
from xclp_lp.cli.terminal import complain, note, remind, say
from xclp_lp.cli.tune import show_own
from xclp_lp.diagnostics import feature_cautions, moment_cautions
from xclp_lp.dropouts import with_reasons
from xclp_lp.files.check import check_client
from xclp_lp.files.clients import LoadedClient, data_lines, rows_line
from xclp_lp.files.kept import sealed
from xclp_lp.files.later import load_client_new_rows, output_of
from xclp_lp.files.network import (
    ClientFile,
    NetworkFile,
    load_client_file,
    load_server_file,
)
from xclp_lp.files.parties import names_of, parse_address
from xclp_lp.files.remembered import randomised_once
from xclp_lp.files.results import write_server_record
from xclp_lp.files.toml import beside
from xclp_lp.labelling import Participation
from xclp_lp.later import predict_client_role, predict_server_role
from xclp_lp.predictions import Prediction
from xclp_lp.session import ClientData, client_role, server_role
from xclp_lp.summary import (
    client_lines,
    dropout_lines,
    retry_cautions,
    two_left_line,
)
from xclp_lp.wording import count, size

T = TypeVar("T")
ANSWER_SECONDS = 5.0
"""How long a client that cannot take part tries to tell the server."""

Predict = Annotated[
    bool,
    typer.Option(
        "--predict",
        help="Only label the rows that new_features names in clients' files, with what clients "
        "kept of an earlier session by --keep. All parties say so, or none.",
    ),
]


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
    nobody else NAME.key and NAME.identity. The authority's own key is not kept; a client that comes
    later gets another authority, see docs/do/deployment.md. By default the server is localhost.
    """
    folder = beside(Path("the argument"), str(folder))
    files = make_authority(
        folder, names_of(clients), names_of(host or ["localhost,127.0.0.1"]), days=days
    )
    say(f"{count(len(files), 'file')} written to {folder}")
    note("for those who pin certificates:", "[certificates]")
    for file in files:
        if file.suffix == ".pem" and file.stem != "authority":
            note(
                f"{json.dumps(file.stem, ensure_ascii=False)} = {json.dumps(fingerprint_of(file))}"
            )


@contextmanager
def _running(
    name: str,
    role: SeededRole,
    file: NetworkFile,
    binding: bytes,
    files: PartyFiles,
) -> Iterator[DurableRole]:
    """Give a party that tells what it does and keeps its log."""
    with attending(file, files) as (records, progress):
        durable = DurableRole(
            name,
            role,
            records,
            peers=[party for party in (*file.clients, SERVER) if party != name],
            binding=binding,
            progress=progress,
        )
        with closing(durable), naming(files.state, file.clients):
            yield durable


def serve(
    file: Annotated[Path, typer.Argument(help="The server's file; it names no data.")],
    state: StateOption = None,
    epoch: EpochOption = None,
    key_file: KeyFile = None,
    log: LogOption = None,
    listen: Listen = None,
    predict: Predict = False,
) -> None:
    """Coordinate a federation: wait for the clients of the file, and run one session with them.

    The server needs no data, and for --predict nothing of the session before. See
    docs/do/deployment.md.
    """
    files = PartyFiles(state, epoch, key_file, log)
    files.require_use()
    loaded = load_server_file(file)
    address = loaded.address if listen is None else parse_address(listen, "--listen")

    for caution in loaded.warnings():
        complain(f"caution: {caution}")

    def listening(port: int) -> None:
        say(f"listening on {address[0]}:{port} for {', '.join(loaded.clients)}")

    async def role(io: Any, rng: Any) -> Participation:
        own = predict_server_role if predict else server_role
        return await own(io, loaded.params, loaded.clients, rng, loaded.identities)

    agreement = loaded.agreement(predict=predict)
    binding = domain_tag("server binding", agreement.encode())
    with _running(SERVER, role, loaded, binding, files) as durable:
        found: Participation = network.serve(
            durable,
            loaded.clients,
            agreement,
            address,
            loaded.tls,
            limits=loaded.limits,
            listening=listening,
        )
        found = replace(found, dropouts=with_reasons(found.dropouts, durable.reasons))
        if loaded.output is not None:
            warnings = loaded.warnings(found.contributors)
            written = write_server_record(loaded.output, found, durable.cost, warnings)
            note(*(f"written to {file}" for file in written))
    helped = ", ".join(found.contributors)
    what = f"labels of {helped} were counted"
    if predict:
        new = count(sum(found.sizes.values()), "new row")
        what = f"{new} of {', '.join(found.sizes)} labelled with the help of {helped}"
    note(*dropout_lines(found.dropouts), *two_left_line(found.contributors))
    for doubt in found.doubts:
        complain(f"caution: {doubt}")
    say(f"{what}; {size(durable.cost.sent_by(SERVER))} sent")


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
    epoch: EpochOption = None,
    key_file: KeyFile = None,
    log: LogOption = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep in this folder what gives labels to rows that come later: NAME.kept, which "
            "is secret, and encrypted as a log is. With --predict: where it is.",
        ),
    ] = None,
    remember: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep in this file the labels that are randomised for privacy, encrypted as a log "
            "is: another session enters the same ones, and spends no epsilon again.",
        ),
    ] = None,
    predict: Predict = False,
) -> None:
    """Take part in a federation as a client, and write this client's labels.

    Writes NAME.csv (id, label, given label, confidence, share of every class in the scores, not
    calibrated) and NAME-cost.json. See docs/do/deployment.md.
    """
    files = PartyFiles(state, epoch, key_file, log)
    files.require_use(keep, remember)
    if predict:
        if remember is not None:
            raise ParameterError("--remember is of labels, and with --predict none are entered")
        _join_later(load_client_file(file), dry_run, files, keep)
        return
    if dry_run:
        _check(file)
    loaded = load_client_file(file)
    agreement = loaded.agreement()
    if dry_run:
        _ask(loaded, agreement)
        return
    key = kept_key(keep, [loaded.name], key_file, loaded.mounted)
    table, data = _read(loaded, agreement, lambda: _load(loaded))
    entered = _read(loaded, agreement, lambda: _randomised(loaded, table, data, remember, key_file))
    note(*data_lines(table, data, loaded.params.classes))
    own = {loaded.name: data.vectors}
    cautions = [
        *loaded.warnings(),
        *retry_cautions(loaded.params, entered),
        *feature_cautions(own, loaded.params.scale, table.columns),
    ]
    for caution in cautions:
        complain(f"caution: {caution}")

    async def role(io: Any, rng: Any) -> Any:
        return await client_role(
            io, entered, loaded.params, loaded.clients, rng, loaded.seed, loaded.identities
        )

    binding = loaded.binding(entered)
    with _running(loaded.name, role, loaded, binding, files) as durable:
        prediction = _joined(durable, loaded, agreement)
        written = loaded.write(table, data, prediction, durable.cost)
        if keep is not None and key is not None:
            content = sealed(loaded.name, loaded.params, table.columns, prediction, key)
            keep_files(keep, {loaded.name: content})
    say(f"{count(len(written), 'file')} written to {loaded.output}")
    note(*_lines_of(loaded, data, prediction, table.columns))
    remind(cautions)
    if loaded.params.validation == "tune" and prediction.validation is not None:
        show_own(loaded.name, prediction.validation, data, loaded.params)


def _join_later(
    loaded: ClientFile,
    dry_run: bool,
    files: PartyFiles,
    keep: Path | None,
) -> None:
    """Take part in a session that labels new rows; the parameters are the options of `join`."""
    folder, key = None, None
    if loaded.section.features is not None:
        if keep is None:
            raise ParameterError(
                "--predict needs --keep FOLDER, where this client keeps what it knows of the "
                "session; one that was not in it has new_features and no features in its file"
            )
        folder, key = keep, read_key(f"--keep {keep}", files.key_file, loaded.mounted)
    agreement = loaded.agreement(predict=True)
    if dry_run:
        load_client_new_rows(loaded, folder, key)
        _ask(loaded, agreement)
        return
    new = _read(loaded, agreement, lambda: load_client_new_rows(loaded, folder, key))
    data, kept = new.data, new.kept
    for caution in loaded.warnings():
        complain(f"caution: {caution}")
    for file in new.table.files[:1]:
        note(rows_line(file, data.vectors.shape, new.table.columns))
    if kept is None:
        note("was not in the session: another client will tell what is needed of it")
    else:
        note(f"{count(len(kept.kept.sums), 'row')} kept of the session")

    async def role(io: Any, rng: Any) -> Prediction:
        known = None if kept is None else kept.kept
        return await predict_client_role(
            io, data.vectors, known, loaded.params, loaded.clients, rng, loaded.identities
        )

    with _running(loaded.name, role, loaded, new.binding, files) as durable:
        prediction = _joined(durable, loaded, agreement)
        if kept is not None:
            prediction = replace(prediction, validation=kept.validation(loaded.params))
        written = new.write(prediction, durable.cost)
    say(f"{count(len(written), 'file')} written to {output_of(loaded)}")
    if kept is None:
        note(
            "was not in the session, so confidences are not calibrated as others' are: they are "
            "1 minus the entropy"
        )
    elif kept.kept.own.moments is not None:
        moments = kept.kept.own.moments
        note(*moment_cautions(loaded.name, data.vectors, moments, new.table.columns))
    note(*_lines_of(loaded, data, prediction, new.table.columns))


def _lines_of(
    loaded: ClientFile, data: ClientData, found: Prediction, columns: Sequence[str] | None
) -> Iterator[str]:
    """Say what a client should know of its labels, see `client_lines`."""
    params, settings = loaded.params, loaded.settings
    return client_lines(params, settings, data, found, loaded.clients, loaded.name, columns)


def _ask(loaded: ClientFile, agreement: Agreement) -> None:
    """Ask the server whether this client could join, and say so."""
    network.check(agreement, loaded.address, loaded.tls, limits=loaded.limits)
    say("the server accepts this certificate and these parameters")


def _joined(durable: DurableRole, loaded: ClientFile, agreement: Agreement) -> Prediction:
    """Run a client's role with the server of its file."""
    found: Prediction = network.join(
        durable,
        loaded.clients,
        SERVER,
        agreement,
        loaded.address,
        loaded.tls,
        limits=loaded.limits,
    )
    return replace(found, dropouts=with_reasons(found.dropouts, durable.reasons))


def _load(loaded: ClientFile) -> tuple[LoadedClient, ClientData]:
    loaded.require_writable()
    return loaded.load()


def _randomised(
    loaded: ClientFile,
    table: LoadedClient,
    data: ClientData,
    remember: Path | None,
    key_file: Path | None,
) -> ClientData:
    """Return the data to enter; where a file keeps randomised labels, with these."""
    if remember is None:
        return data
    key = read_key(f"--remember {remember}", key_file, loaded.mounted)
    entered, said = randomised_once(remember, key, table, data, loaded.params)
    note(said)
    return entered


def _read(loaded: ClientFile, agreement: Agreement, load: Callable[[], T]) -> T:
    """Read a client's data; where it cannot take part, tell the server before that is raised."""
    try:
        return load()
    except XclpError:
        limits = replace(loaded.limits, grace=min(loaded.limits.grace, ANSWER_SECONDS))
        with suppress(XclpError):  # nobody waits where there is no server
            network.decline(agreement, loaded.address, loaded.tls, limits=limits)
        raise
