"""The command line ``xclp``: its commands, and what becomes of errors.

Exit codes: see `EXIT_CODES` and `NETWORK_EXIT_CODES`; bad input is said in one line.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from xclp_crypto import __version__, errors
from xclp_lp.cli import bench, network, study
from xclp_lp.cli.demo import demo
from xclp_lp.cli.predict import predict
from xclp_lp.cli.run import plan, run
from xclp_lp.cli.sums import sum_
from xclp_lp.cli.terminal import complain, console
from xclp_lp.cli.tune import tune

EXIT_CODES = (
    "Exit codes: 0 done; 1 a party failed or too few were left, a result differs from that of the "
    "plain computation, or the output broke off; 2 an option, the input or a place for results "
    "cannot be used; 130 interrupted."
)
NETWORK_EXIT_CODES = (
    "Exit codes: 0 done; 1 a party failed, too few were left, or the others went on without this "
    "one; 2 an option, a file, a certificate's file, the log or the disk cannot be used, or the "
    "parameters differ; 3 no connection: nobody answers, the port is taken, or certificate, server "
    "or version are wrong."
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # it would take [clients.NAME] for markup
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure this machine.")
app.command(epilog=EXIT_CODES)(demo)
app.command(epilog=EXIT_CODES)(run)
app.command(epilog=EXIT_CODES)(predict)
app.command()(plan)
app.command(epilog=EXIT_CODES)(tune)
app.command(epilog=NETWORK_EXIT_CODES)(network.serve)
app.command(epilog=NETWORK_EXIT_CODES)(network.join)
app.command("sum", epilog=NETWORK_EXIT_CODES)(sum_)
app.command()(network.check)
app.command()(network.certs)
app.command()(study.experiment)
app.command()(study.ssl)
app.command()(study.tables)
app.add_typer(bench_app, name="bench")
bench_app.command()(bench.hamming)
bench_app.command()(bench.propagation)
bench_app.command("sum")(bench.sum_)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"xclp {__version__}", highlight=False)
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Label data jointly without showing it."""


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    complain(f"warning: {message}")


def _with_notes(error: Exception) -> str:
    """Return what an error says, and what was noted where it passed through."""
    return "; ".join([str(error), *getattr(error, "__notes__", [])])


def _nothing_more(code: int) -> NoReturn:
    """Exit; nothing is written any more, since Python flushes once more on its way out."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def main() -> None:
    """Run the command line; typed errors become one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except (errors.ParameterError, errors.DataError, errors.LogError, errors.StorageError) as error:
        complain(_with_notes(error))
        sys.exit(2)
    except errors.NetworkError as error:
        complain(error)
        sys.exit(3)
    except errors.XclpError as error:
        complain(_with_notes(error))
        sys.exit(1)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _nothing_more(1)
    except OSError as error:
        with suppress(OSError):
            complain(f"reading or writing failed: {error}")
        _nothing_more(1)
