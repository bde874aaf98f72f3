"""Options that several commands have."""

from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

import typer

from xclp_crypto.privacy import RandomizedResponse
from xclp_lp.dropouts import STEPS
from xclp_lp.parameters import AUTO, Settings
from xclp_lp.study.data import LOADERS
from xclp_lp.validation import field_types, stripped

Command: TypeAlias = Callable[..., None]
NAMES = {"n_bits": ("--bits", "--n-bits"), "k": ("-k", "--k")}
"""Of options that are not called as their parameter."""


def setting(name: str, prefix: str = "") -> Any:
    """Return the option for a parameter of label propagation, with what the parameter says.

    Args:
        name: of a field of `Settings`.
        prefix: put before what it is for.
    """
    kind, said = stripped(field_types(Settings)[name])
    text = f"{prefix}{said['description']}."
    first = text.split()[0].rstrip(",")
    if first.isascii() and first not in get_args(kind):  # neither a symbol nor what may be given
        text = text[0].upper() + text[1:]
    limits = {"min": said["ge"], "max": said["le"]} if {"ge", "le"} <= said.keys() else {}
    return typer.Option(*NAMES.get(name, ()), help=text, **limits)


Bits = Annotated[int, setting("n_bits")]
Neighbours = Annotated[int, setting("k")]
Alpha = Annotated[float, setting("alpha")]
Epsilon = Annotated[
    float | None,
    typer.Option(help="Randomise the labels of the secure run, for this privacy of each."),
]


def with_settings(prefix: str = "", **defaults: Any) -> Callable[[Command], Command]:
    """Give a command an option for every parameter of label propagation.

    The command takes them all as `settings`.

    Args:
        prefix: put before what each option is for.
        defaults: where they are not those of `Settings`.
    """
    usual = Settings(**defaults)

    def option(field: Field[Any]) -> Parameter:
        kind, _ = stripped(field_types(Settings)[field.name])
        kind = kind if kind in (int, float, bool) else str
        default = getattr(usual, field.name)
        if field.default == AUTO:
            default = None  # which `Settings` fills
        hint: Any = kind if default is not None else kind | None
        if field.name == "privacy":
            return Parameter("epsilon", Parameter.KEYWORD_ONLY, default=None, annotation=Epsilon)
        return Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[hint, setting(field.name, prefix)],
        )

    options = [option(field) for field in fields(Settings)]

    def decorated(command: Command) -> Command:
        @wraps(command)
        def with_options(**given: Any) -> None:
            chosen = {o.name: given.pop(o.name) for o in options}
            chosen = {name: value for name, value in chosen.items() if value is not None}
            if "epsilon" in chosen:
                chosen["privacy"] = RandomizedResponse(chosen.pop("epsilon"))
            command(**given, settings=Settings(**chosen))

        own = signature(command, eval_str=True).parameters.values()
        all_options = [*(o for o in own if o.name != "settings"), *options]
        with_options.__annotations__ = {o.name: o.annotation for o in all_options}
        with_options.__signature__ = Signature(  # type: ignore[attr-defined]
            [o.replace(kind=Parameter.KEYWORD_ONLY) for o in all_options]
        )
        return with_options

    return decorated


Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CLIENT:STEP",
        help=f"Let this client drop out before a step ({', '.join(STEPS)}). May be repeated.",
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
