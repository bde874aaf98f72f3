"""What all commands share: the two consoles, and the places of results and reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from xclp_crypto.errors import ParameterError
from xclp_crypto.whole_files import why_not_writable, write_whole

if TYPE_CHECKING:
    from xclp_lp.study.report import Report

console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


def say(*lines: str, style: str | None = None) -> None:
    """Print lines as they are: names of files and clients may look like markup."""
    for line in lines:
        console.print(line, style=style, highlight=False, markup=False, emoji=False, soft_wrap=True)


def note(*lines: str) -> None:
    """Print lines that are beside the result."""
    say(*lines, style="dim")


def complain(message: object) -> None:
    """Print one line of errors, whatever the libraries underneath put into their messages."""
    line = " ".join(str(message).splitlines())
    errors.print("xclp:", "".join(c if c.isprintable() else "\ufffd" for c in line))


def parsed_drop(options: Sequence[str] | None) -> dict[str, str]:
    """Return client and step of each option ``--drop``.

    Raises:
        ParameterError: an option has no colon, or a client occurs twice.
    """
    parsed = {}
    for option in options or ():
        client, colon, step = option.partition(":")
        if not colon:
            raise ParameterError(f"--drop must be CLIENT:STEP, got {option!r}")
        if client in parsed:
            raise ParameterError(f"--drop {option}: {client!r} drops out only once")
        parsed[client] = step
    return parsed


def require_writable(file: Path | None, option: str = "--json") -> None:
    """Refuse a file that cannot be written; None stands for no file.

    Raises:
        ParameterError: it is a folder, in a folder that is not there or not writable, or, as
            ``--json``, might be an input.
    """
    if file is None:
        return
    if file.is_dir():
        raise ParameterError(f"{option} must be the name of a file; {file} is a folder")
    if not file.parent.is_dir():
        raise ParameterError(f"{option} {file}: there is no folder {file.parent}")
    if reason := why_not_writable(file.parent):
        raise ParameterError(f"{option} {file}: {reason}")
    if option == "--json" and file.suffix.lower() != ".json":  # so that no input is overwritten
        raise ParameterError(f"{option} must end in .json, got {file}")


def write_json(file: Path | None, content: dict[str, Any]) -> None:
    """Write a file that is either complete or not there, and say so; None stands for no file."""
    if file is not None:
        write_whole(file, (json.dumps(content, indent=2) + "\n").encode())
        say(f"written to {file}")


def require_report(file: Path | None, folder: Path | None) -> None:
    """Refuse places of a report that cannot be written, and reports that cannot be made.

    Raises:
        ParameterError: what is wrong with ``--report`` or ``--png``, or what is not installed.
    """
    if file is None and folder is None:
        return
    require_writable(file, "--report")
    if file is not None and file.suffix.lower() not in (".html", ".htm"):
        # The name says what is in it, and no input of a run has such a name.
        raise ParameterError(f"--report {file}: the name of a report ends in .html")
    if folder is not None:
        existing = folder if folder.exists() else folder.parent
        if folder.exists() and not folder.is_dir():
            raise ParameterError(f"--png must be the name of a folder; {folder} is a file")
        if not existing.is_dir():
            raise ParameterError(f"--png {folder}: there is no folder {existing}")
        if reason := why_not_writable(existing):
            raise ParameterError(f"--png {folder}: {reason}")
    import xclp_lp.study.report  # noqa: F401  # says what to install, if anything


def write_report(make: Callable[[], Report], file: Path | None, folder: Path | None) -> None:
    """Make a report, write it and say so, where one was asked for."""
    places = [place for place in (file, folder) if place is not None]
    if places:
        with console.status("drawing"):
            make().write(file, folder)
        say(*(f"written to {place}" for place in places))
