"""``xclp sum``: the sum or the weighted mean of numbers in files, here or over several machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xclp_crypto.errors import OtherParameters, ParameterError
from xclp_crypto.front import STAGES, secure_sum_bytes
from xclp_crypto.mean import (
    Clipped,
    addend,
    secure_mean,
    secure_update_sum,
    weighted_addend,
)
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.served_sums import (
    Connection,
    join_mean,
    join_update_sum,
    serve_mean,
    serve_update_sum,
)
from xclp_crypto.sum_plans import SumOptions, SumPlan, mean_terms, sum_terms
from xclp_crypto.transport import network
from xclp_crypto.transport.meter import Cost
from xclp_crypto.updates import Update, layout
from xclp_lp.cli import terminal
from xclp_lp.cli.keeping import KeyFile
from xclp_lp.cli.party import (
    EpochOption,
    Listen,
    LogOption,
    PartyFiles,
    StateOption,
    attending,
    naming,
)
from xclp_lp.cli.terminal import note, say
from xclp_lp.files.parties import parse_address
from xclp_lp.files.results import write_or_keep
from xclp_lp.files.sums import load_sum_client, load_sum_server
from xclp_lp.files.updates import KINDS, kind_of, read_update, write_update
from xclp_lp.wording import count, size

SAME: Final = "--mean, --threshold, --fraction-bits, --columns, --id-column and --server-only"
"""Options that all parties give alike."""

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help=f"Numbers to sum ({', '.join(KINDS)}): one file of each client; with --join that "
        "of this client; with --serve one of the same structure, whose numbers do not count.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result to this file, of the same kind."),
]
Mean = Annotated[bool, typer.Option("--mean", help="The weighted mean and not the sum.")]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Of --mean: a number for each file, with commas, such as 120,80,45; by default 1 "
        "each. With --join this client's, which nobody sees.",
    ),
]
Serve = Annotated[
    Path | None,
    typer.Option(metavar="SERVER.toml", help="Run the server of a sum over several machines."),
]
Join = Annotated[
    Path | None, typer.Option(metavar="CLIENT.toml", help="Take part in it as this client.")
]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns of a table to sum, or arrays of an .npz file; by default all."),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of a table that tells its rows apart; they may be in another order at "
        "other clients, which must have the same ones."
    ),
]
Threshold = Annotated[
    int | None,
    typer.Option(
        help="Fewest clients that a result may have; by default a majority, and at least 3, of "
        "more than 100 nine in ten. Two clients need --threshold 2."
    ),
]
FractionBits = Annotated[
    int | None,
    typer.Option(
        help="Numbers are rounded to multiples of 2^-this. By default 40, 30 with --mean, and "
        "0 where all are integers, whose sum is exact."
    ),
]
ClipValue = Annotated[float | None, typer.Option(help="Of --mean: bound on every number's size.")]
ClipNorm = Annotated[
    float | None, typer.Option(help="Of --mean: bound on the Euclidean norm of a file.")
]
ServerOnly = Annotated[
    bool,
    typer.Option("--server-only", help="Over several machines: the server tells no client."),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE:STAGE",
        help=f"In this process: let a client drop out before {', '.join(STAGES[:-1])}.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Read everything and say what would be sent; with --join also ask the server "
        "whether certificate, options and structure fit.",
    ),
]


def _names(given: str | None) -> list[str] | None:
    return None if given is None else [name.strip() for name in given.split(",")]


def _numbers(given: str | None) -> list[float] | None:
    try:
        return None if given is None else [float(number) for number in given.split(",")]
    except ValueError:
        raise ParameterError(f"--weights must be numbers with commas, got {given!r}") from None


def _refuse(why: str, refused: bool, **options: object) -> None:
    """Refuse options that do not go together with others."""
    for name, value in options.items():
        if refused and value is not None:
            raise ParameterError(f"--{name.replace('_', '-')} {why}")


@dataclass(frozen=True)
class _Wanted:
    """What is computed, as the options say it."""

    files: list[Path]
    out: Path | None
    mean: bool
    weights: list[float] | None
    clip: dict[str, Any]
    columns: list[str] | None
    id_column: str | None
    options: SumOptions

    @property
    def what(self) -> str:
        return "mean" if self.mean else "sum"

    def read(self, file: Path, client: str) -> Update:
        with terminal.console.status(f"reading {file}"):
            return read_update(file, client, columns=self.columns, id_column=self.id_column)

    def weight(self) -> float:
        """Return the weight of a client that joins."""
        if self.weights is None:
            return 1.0
        if len(self.weights) != 1:
            raise ParameterError(f"--weights takes one number with --join, got {self.weights}")
        return self.weights[0]

    def file(self) -> Path:
        """Return the only file."""
        if len(self.files) != 1:
            raise ParameterError(
                "with --join name one file, of this client's numbers, and with --serve one of the "
                f"same structure; {len(self.files)} are named"
            )
        return self.files[0]

    def require_out(self, *, needed: bool) -> None:
        """Refuse a place for the result that cannot take it, or is not of the files' kind."""
        kind, out = kind_of(self.files[0]), self.out
        if out is None:
            if needed:
                raise ParameterError("--out is missing: a file for the result")
            return
        if kind_of(out) != kind:
            raise ParameterError(f"--out {out} is not for {kind}, which {self.files[0]} holds")
        if any(out.exists() and file.exists() and out.samefile(file) for file in self.files):
            raise ParameterError(f"--out {out} is one of the files that are read")
        terminal.require_writable(out, "--out")

    def plan(self, update: Update, name: str, clients: Sequence[str]) -> SumPlan:
        terms = mean_terms if self.mean else sum_terms
        return SumPlan(clients, *terms(layout(update, name), self.options))

    def done(
        self,
        found: Update,
        survivors: Sequence[str] | None,
        dropouts: Mapping[str, str],
        cost: Cost,
        total_weight: float | None = None,
        error: float | None = None,
    ) -> None:
        """Write the result, where there is one, and say what it is."""
        out = self.out
        terminal.console.print(terminal.cost_table(cost))
        note(*(f"{client} dropped out in {stage}" for client, stage in dropouts.items()))
        if survivors is None or out is None:
            say(f"the server alone has the {self.what}")
            return
        write_or_keep(
            out.parent, lambda folder: write_update(folder / out.name, found, self.id_column)
        )
        weight = "" if total_weight is None else f", whose weights add up to {total_weight:.12g}"
        say(f"{self.what} of {', '.join(survivors)}{weight}; written to {out}")
        if error is not None:
            note(f"before they were stored, no value is off by more than {error:.2g}")


def _clipped(client: str, done: Clipped) -> str:
    """Say what clipping did to a client's numbers."""
    values = f"{count(done.values, 'value')} beyond --clip-value" if done.values else ""
    norm = f"all multiplied by {done.factor:.6g} for --clip-norm" if done.factor != 1 else ""
    return f"{client}: {' and '.join(filter(None, (values, norm)))}"


def _say_cost(links: Mapping[tuple[str, str], int], clients: Sequence[str], values: int) -> None:
    """Say what will be sent, before anything is."""
    sent = max(sum(n for (a, _), n in links.items() if a == client) for client in clients)
    got = sum(n for (_, b), n in links.items() if b == SERVER)
    note(
        f"{count(len(clients), 'client')}, {count(values, 'value')} each; a client sends about "
        f"{size(sent)}, the server receives about {size(got)}"
    )


def _together(wanted: _Wanted, drop: Sequence[str] | None, dry_run: bool) -> None:
    """Compute over several files in this process, with the plan of parties on machines."""
    clients, dropouts = [str(file) for file in wanted.files], terminal.parsed_drop(drop)
    places = [file.resolve() for file in wanted.files]
    if twice := [name for i, name in enumerate(clients) if places[i] in places[:i]]:
        raise ParameterError(f"{twice[0]} is given twice; each client has a file of its own")
    updates = [wanted.read(file, name) for file, name in zip(wanted.files, clients, strict=True)]
    plan = wanted.plan(updates[0], clients[0], clients)
    _say_cost(secure_sum_bytes(plan.graph, plan.shape, plan.codec), clients, plan.shape[0])
    if dry_run:
        return
    common: dict[str, Any] = {"threshold": plan.graph.threshold, "drop": dropouts}
    common |= {"fraction_bits": plan.codec.fraction_bits, "names": clients}
    with terminal.StepReporter().showing() as progress:
        if not wanted.mean:
            total = secure_update_sum(updates, **common, progress=progress)
            wanted.done(*total)
            return
        mean = secure_mean(updates, wanted.weights, **wanted.clip, **common, progress=progress)
    note(*(_clipped(client, done) for client, done in mean.clipped.items()))
    wanted.done(mean.mean, mean.survivors, mean.dropouts, mean.cost, mean.total_weight, mean.error)


def _serve(
    wanted: _Wanted, path: Path, listen: str | None, files: PartyFiles, dry_run: bool
) -> None:
    """Run the server."""
    party = load_sum_server(path)
    address = party.address if listen is None else parse_address(listen, "--listen")
    template = wanted.read(wanted.file(), SERVER)
    plan = wanted.plan(template, SERVER, party.clients)
    note(f"{wanted.files[0]} says what clients have; its numbers are not in the {wanted.what}")
    _say_cost(plan.link_bytes(), plan.clients, plan.shape[0])
    if dry_run:
        return

    def listening(port: int) -> None:
        say(f"listening on {address[0]}:{port} for {', '.join(party.clients)}")

    with attending(party, files) as (records, progress), naming(files.state, party.clients):
        connection = Connection(
            address, party.tls, party.identities, party.limits, records, progress=progress
        )
        given = template, party.clients, connection, wanted.options
        if wanted.mean:
            mean = serve_mean(*given, listening=listening)
            wanted.done(
                mean.mean, mean.survivors, mean.dropouts, mean.cost, mean.total_weight, mean.error
            )
        else:
            wanted.done(*serve_update_sum(*given, listening=listening))


def _join(wanted: _Wanted, path: Path, files: PartyFiles, dry_run: bool) -> None:
    """Take part as a client."""
    party = load_sum_client(path)
    update, weight = wanted.read(wanted.file(), party.name), wanted.weight()
    plan = wanted.plan(update, party.name, party.clients)
    _say_cost(plan.link_bytes(), plan.clients, plan.shape[0])
    if dry_run:
        leaves, name = layout(update, party.name), party.name
        if not wanted.mean:
            values = addend(update, name, leaves, plan.codec)
        else:
            values, _ = weighted_addend(update, weight, name, leaves, plan.codec, **wanted.clip)
        plan.check(name, values)
        network.check(plan.agreement, party.address, party.tls, limits=party.limits)
        say("the server accepts this certificate and what this client would sum")
        return
    with attending(party, files) as (records, progress), naming(files.state, party.clients):
        connection = Connection(
            party.address, party.tls, party.identities, party.limits, records, progress=progress
        )
        given = party.name, party.clients, connection, wanted.options
        if not wanted.mean:
            total = join_update_sum(update, *given)
            wanted.done(total.total, total.survivors, {}, total.cost)
            return
        mean = join_mean(update, weight, *given, **wanted.clip)
        if mean.clipped is not None:
            note(_clipped(party.name, mean.clipped))
        wanted.done(mean.mean, mean.survivors, {}, mean.cost, mean.total_weight, mean.error)


def sum_(
    files: Files,
    out: Out = None,
    mean: Mean = False,
    weights: Weights = None,
    serve: Serve = None,
    join: Join = None,
    columns: Columns = None,
    id_column: IdColumn = None,
    threshold: Threshold = None,
    fraction_bits: FractionBits = None,
    clip_value: ClipValue = None,
    clip_norm: ClipNorm = None,
    server_only: ServerOnly = False,
    drop: DropOption = None,
    dry_run: DryRun = False,
    listen: Listen = None,
    state: StateOption = None,
    epoch: EpochOption = None,
    key_file: KeyFile = None,
    log: LogOption = None,
) -> None:
    """Add up, or average, numbers in files of several clients, of which nobody sees a single one.

    Without --serve and --join all parties run in this process, with real encrypted messages: it
    shows what comes out and what it costs, for files that this machine may hold. Over several
    machines each party has a file as xclp serve and xclp join take it (docs/do/deployment.md), of
    which clients, identities, certificates, limits and addresses are read; all say the same --mean,
    --threshold, --fraction-bits, --columns, --id-column and --server-only.

    A result has the structure of the files. Sums are float64, and int64 where all are integers;
    means have the files' own types, and numbers in tables are float64.
    """
    here, served = serve is None and join is None, serve is not None
    _refuse("and --serve are of two parties; each runs its own xclp sum", served, join=join)
    _refuse("needs --serve", not served, listen=listen)
    _refuse("needs --serve or --join", here, state=state, epoch=epoch, key_file=key_file, log=log)
    _refuse("needs --serve or --join", here, server_only=server_only or None)
    _refuse("is for files in this process", not here, drop=drop)
    given = {"weights": weights, "clip_value": clip_value, "clip_norm": clip_norm}
    _refuse("needs --mean", not mean, **given)
    _refuse("is each client's own", served, **given)
    wanted = _Wanted(
        files,
        out,
        mean,
        _numbers(weights),
        {"clip_value": clip_value, "clip_norm": clip_norm},
        _names(columns),
        id_column,
        SumOptions(threshold, fraction_bits=fraction_bits, tell=not server_only),
    )
    wanted.require_out(needed=not dry_run and not (join is not None and server_only))
    party = PartyFiles(state, epoch, key_file, log)
    party.require_use()
    if serve is not None:
        _serve(wanted, serve, listen, party, dry_run)
    elif join is not None:
        try:
            _join(wanted, join, party, dry_run)
        except OtherParameters as error:
            error.add_note(f"all parties say the same {SAME}, of the same clients and structure")
            raise
    else:
        _together(wanted, drop, dry_run)
