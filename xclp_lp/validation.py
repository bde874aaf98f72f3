"""Fields that say themselves what they are: type, range, meaning and default stand in one place.

A field is declared as ``k: Annotated[int, Meta(ge=1, description="neighbours per point")] = 10``.
msgspec compares values with that; what is allowed is said here in words.
"""

from __future__ import annotations

import sys
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta

from xclp_crypto.errors import ParameterError

Text = Annotated[str, Meta(min_length=1)]
FINITE = sys.float_info.max
UNIONS = (Union, UnionType)
SAID = ("gt", "ge", "lt", "le", "title", "description")
"""What a field says of itself by `msgspec.Meta`."""
LONGEST = 200
"""Characters of a value in a message, at most."""
WORDS: Mapping[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple: "a list",
    abc.Mapping: "a section",
}


@dataclass(frozen=True)
class Validated:
    """A dataclass whose fields are checked when it is made; lists become tuples.

    Raises:
        ParameterError: a value is of another type or out of range; names field, value and what is
            allowed.
    """

    def __post_init__(self) -> None:
        hints = field_types(type(self))
        for field in fields(self):
            value = checked(field.name, getattr(self, field.name), hints[field.name])
            object.__setattr__(self, field.name, value)


field_types: Callable[[Any], Mapping[str, Any]] = cache(
    lambda kind: get_type_hints(kind, include_extras=True)
)
"""Returns the types of a dataclass's fields, or of a function's arguments, and what they say."""


def meaning(kind: type, name: str) -> str:
    """Return what a field is for, as it says itself."""
    return str(stripped(field_types(kind)[name])[1].get("description", ""))


def checked(name: str, value: Any, hint: Any) -> Any:
    """Return a value as Python's own, if it is what the type of its field allows.

    Args:
        name: of the field.
        value: which may be NumPy's.
        hint: type of the field.

    Raises:
        ParameterError: it is something else; names field, value and what is allowed.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None and NoneType in get_args(hint):
        return None
    kind, _ = stripped(hint)
    try:
        if get_origin(kind) not in UNIONS and not is_dataclass(kind):
            return msgspec.convert(plain, hint)
        if isinstance(plain, kind):
            return plain
    except msgspec.ValidationError:
        pass
    raise ParameterError(f"{name} must be {allowed(hint, plain)}, got {_shown(value)}")


def allowed(hint: Any, value: Any = None) -> str:
    """Say what a field allows: to a number its range, to anything else the type.

    That it may be None, and then is as if it were left out, is said of choices only.
    """
    kind, meta = stripped(hint)
    if "title" in meta:
        return str(meta["title"])
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and isinstance(value, int) and abs(value) > FINITE:
        return "a number that fits float64"
    if (kind is float and number) or (kind is int and number and isinstance(value, int)):
        return _range(meta)
    if kind is str and isinstance(value, str):
        return "text that is not empty"
    return WORDS.get(get_origin(kind) or kind, "something else")


def _range(meta: Mapping[str, Any]) -> str:
    match meta:
        case {"gt": 0, "le": le} if le == FINITE:
            return "positive and finite"
        case {"gt": low, "lt": high}:
            return f"strictly between {low} and {high}"
        case {"ge": low, "le": high}:
            return f"between {low} and {high}"
        case {"gt": 0}:
            return "positive"
        case {"ge": low}:
            return f"at least {low}"
    return "another number"


def stripped(hint: Any) -> tuple[Any, dict[str, Any]]:
    """Return a type without None and what is said of it, and that: ranges and words."""
    said: dict[str, Any] = {}
    while True:
        kinds = [k for k in get_args(hint) if k is not NoneType]
        if get_origin(hint) is Annotated:
            hint, *metas = kinds
            pairs = ((k, getattr(m, k)) for m in metas for k in SAID)
            said |= {k: v for k, v in pairs if v is not None}
        elif get_origin(hint) in UNIONS and len(kinds) == 1:
            (hint,) = kinds
        else:
            return hint, said


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "one of too many digits"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
