"""Reading TOML into the dataclasses that say what may be in a file."""

from __future__ import annotations

import tomllib
from collections import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from xclp_crypto.errors import ParameterError
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.tables import SUFFIXES
from xclp_lp.validation import Validated, checked, field_types, meaning, stripped

T = TypeVar("T")


class Mistakes(ParameterError):
    """What is wrong in a section of a file and in the sections in it, all at once.

    Attributes:
        each: one or more of them.
        read: what of the section can be used, by key.
    """

    def __init__(self, each: Sequence[str], read: Mapping[str, Any]) -> None:
        super().__init__("; ".join(each))
        self.each, self.read = tuple(each), read


def read_toml(path: Path, what: str = "federation file") -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: the file.
        what: it ought to be.

    Raises:
        ParameterError: it cannot be read, or is not TOML.
    """
    if path.suffix.lower() in SUFFIXES:
        raise ParameterError(
            f"{path} is not a {what} (TOML) but data, which such a file names: "
            f'features = "{path.name}"'
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ParameterError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"{path} is not encoded in UTF-8; save it as UTF-8") from None
    except IsADirectoryError:
        raise ParameterError(f"{path} is a folder; name a {what} in it") from None
    except OSError as error:
        raise ParameterError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no TOML, or thousands of digits or brackets
        quotes = '; text needs quotes, as in hamming = "plain"' * ("Invalid value" in str(error))
        raise ParameterError(f"{path}: {error}{quotes}") from None


def beside(path: Path, name: str) -> Path:
    """Return the place that a file names: relative to it, absolute, or below the home folder (~).

    Raises:
        ParameterError: there is no such home folder.
    """
    try:
        return path.parent / Path(name).expanduser()
    except RuntimeError:
        raise ParameterError(f"{path} names {name}, and there is no such home folder") from None


def read_section(kind: type[T], content: Any, file: object, section: str = "") -> T:
    """Make a dataclass of a section of a file, and others of the sections in it.

    Args:
        kind: its fields are the keys that the section may have.
        content: the section.
        file: what errors call the file; empty where whoever catches them names it.
        section: its name; empty at the top of the file.

    Raises:
        Mistakes: it is not a section; or keys are unknown, missing, of another type or out of
            range. Names file, section, key, value and what is allowed.
    """
    where = ", ".join(filter(None, (f"{file}", section and f"[{section}]")))
    if not isinstance(content, Mapping):
        raise Mistakes([f"{where} must be a section, got {content!r}"], {})
    mistakes = [f"{where}: {what}" for what in _unknown(content, kind, section)]
    read: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]  # T is a dataclass
        name, hint = field.name, field_types(kind)[field.name]
        needed = field.init and field.default is MISSING and field.default_factory is MISSING
        try:
            if name in content or (needed and is_dataclass(hint)):
                inner = f"{section}.{name}".lstrip(".")
                value = _value(hint, content.get(name, {}), file, inner)
                read[name] = checked(name, value, hint) if issubclass(kind, Validated) else value
            elif needed:
                why = meaning(kind, name)
                mistakes.append(f"{where}: {name} is missing{f'; {why}' if why else ''}")
        except Mistakes as error:
            mistakes += error.each
        except ParameterError as error:
            mistakes.append(f"{where}: {error}")
    try:
        if not mistakes:
            return kind(**read)
    except ParameterError as error:
        mistakes.append(f"{where}: {error}")
    raise Mistakes(mistakes, read)


def require_known(content: Mapping[str, Any], kind: type[Any], where: str) -> None:
    """Refuse keys that a section does not have; they may be mistyped.

    Raises:
        ParameterError: names the key and those that there are.
    """
    for what in _unknown(content, kind):
        raise ParameterError(f"{where}: {what}")


def _unknown(content: Mapping[str, Any], kind: type[Any], section: str = "") -> Iterator[str]:
    """Say which keys a section does not have, and where they belong."""
    known = keys_of(kind)
    for name in content:
        if name in known:
            continue
        if homes := list(_homes(name, kind, section)):
            places = " or ".join(f"[{home}]" for home in homes)
            yield f"unknown field {name!r}; it belongs under {places}"
        else:
            yield (
                f"unknown field {name!r}; the fields are {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )


def _homes(name: str, kind: type[Any], section: str) -> Iterator[str]:
    """Return the sections in a section that have a key."""
    for own, hint in field_types(kind).items():
        several = get_origin(stripped(hint)[0]) is abc.Mapping
        inner = f"{section}.{own}{'.NAME' * several}".lstrip(".")
        kinds = _kinds_of_section(hint)
        if any(name in keys_of(held) for held in kinds):
            yield inner
        for held in kinds:
            yield from _homes(name, held, inner)


def _kinds_of_section(hint: Any) -> list[Any]:
    """Return the dataclasses that a section of this type can be."""
    kind, _ = stripped(hint)
    return [k for k in get_args(kind) or [kind] if is_dataclass(k)]


def _value(hint: Any, value: Any, file: object, section: str) -> Any:
    """Return what a key stands for: sections become dataclasses.

    Of several kinds of section it is the one with the fewest keys that has all that are given.
    """
    kind, _ = stripped(hint)
    kinds = _kinds_of_section(hint)
    if not kinds:
        return value
    if get_origin(kind) is abc.Mapping:
        if not isinstance(value, Mapping):
            return value  # which the dataclass refuses
        read: dict[str, Any] = {}
        mistakes: list[str] = []
        for key, inner in value.items():
            try:
                read[key] = read_section(kinds[0], inner, file, f"{section}.{shown_key(key)}")
            except Mistakes as error:
                mistakes += error.each
        if mistakes:
            raise Mistakes(mistakes, read)
        return read
    kinds.sort(key=lambda k: len(keys_of(k)))
    given = set(value) if isinstance(value, Mapping) else set()
    chosen = next((k for k in kinds if given <= set(keys_of(k))), kinds[-1])
    return read_section(chosen, value, file, section)


def shown_key(name: str) -> str:
    """Return a key as a message shows it: in quotes if it would break the line."""
    return name if name.isprintable() else repr(name)


def keys_of(kind: type[Any]) -> list[str]:
    """Return the keys of a section."""
    return [f.name for f in fields(kind) if f.init]
