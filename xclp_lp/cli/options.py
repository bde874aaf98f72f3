"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from xclp_crypto.params import MAX_HASH_BITS
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_lp.session import STEPS
from xclp_lp.study.data import LOADERS

Bits = Annotated[int, typer.Option(min=1, max=MAX_HASH_BITS, help="Bits of each hash.")]
Neighbours = Annotated[int, typer.Option("-k", "--k", help="Neighbours per point.")]
Alpha = Annotated[float, typer.Option(help="How far labels travel, between 0 and 1.")]
Hamming = Annotated[str, typer.Option(help=f"How distances are computed: {', '.join(BACKENDS)}.")]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CLIENT:STEP",
        help=f"Let this client vanish before a step ({', '.join(STEPS)}). May be repeated.",
    ),
]
Repeat = Annotated[int, typer.Option(min=1, help="Runs; medians are shown.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Run the seeds 0, 1, … so many.")]
DataPath = Annotated[
    str | None, typer.Option(help="Where the data set's files are, if not where it looks.")
]
DataSet = Annotated[
    str | None, typer.Option(help=f"Data set: {', '.join(LOADERS)}; or in --config.")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write the result to this file.")
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="Also write a report with pictures to this file, which needs no network to be read.",
    ),
]
PngFolder = Annotated[
    Path | None,
    typer.Option(
        "--png", metavar="FOLDER", help="Also write the pictures of the report to this folder."
    ),
]
