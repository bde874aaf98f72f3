"""What a cell of a table is as a number, and what columns hold that are not numbers.

A schema names every feature column, in the order that all clients take. Numbers stay what they are;
a boolean is 0 or 1; a value of an order is its place in it, from 0; and a column of categories
becomes one feature for each of them, which is 1 where the row is of it and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_lp.validation import Validated

BOOLEANS = {"false": 0.0, "true": 1.0}
"""What .csv files have for booleans, which .parquet files have as such."""


@dataclass(frozen=True)
class Column(Validated):
    """What a column holds."""

    kind: Annotated[
        Literal["number", "boolean", "ordered", "categories"],
        Meta(description="number, boolean, ordered or categories"),
    ]
    values: Annotated[
        tuple[str | int, ...] | None,
        Meta(title="a list of all values that a cell can have, an order's from the lowest on"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        listed = self.kind in ("ordered", "categories")
        if listed and (self.values is None or len(_places(self.values)) < 2):
            raise ParameterError(f"values must list what a column of kind {self.kind!r} can hold")
        if self.values is not None:
            if not listed:
                raise ParameterError(f"a column of kind {self.kind!r} takes no values")
            if len(_places(self.values)) < len(self.values):
                raise ParameterError(f"values must differ, got {list(self.values)!r}")

    @property
    def refusal(self) -> str:
        """Return what a cell is that cannot be read."""
        words = {"number": "not a number", "boolean": "neither true nor false"}
        return words.get(self.kind, "none of the declared values")

    def number(self, cell: Any, decimal: str) -> float | None:
        """Return what stands for a cell that is not empty; None where it cannot be read.

        Args:
            cell: text, or a value of a .parquet file.
            decimal: what numbers in text have between units and tenths.
        """
        if self.values is not None:
            place = _places(self.values).get(_text(cell))
            return None if place is None else float(place)
        number = _float(cell, decimal)
        return None if self.kind == "boolean" and number not in (0.0, 1.0) else number

    def features(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the (n, w) features of a column whose cells are these (n,) numbers."""
        if self.kind != "categories":
            return numbers[:, None]
        places = np.arange(len(self.values or ()), dtype=np.float64)
        return np.asarray(numbers[:, None] == places, dtype=np.float64)

    def called(self, name: str) -> list[str]:
        """Return what the w features of a column of this name are called."""
        if self.kind != "categories":
            return [name]
        return [f"{name} = {value}" for value in self.values or ()]


NUMBER = Column("number")
"""What a column holds of which nothing is said."""

Schema: TypeAlias = Mapping[str, Column]

NO_SCHEMA: Schema = MappingProxyType({})


def feature_names(columns: Sequence[str], schema: Schema) -> list[str]:
    """Return what the features are called that come of these columns."""
    return [called for name in columns for called in schema.get(name, NUMBER).called(name)]


def agreed_schema(schema: Schema) -> tuple[object, ...] | None:
    """Return a schema as parties compare it; None where there is none."""
    return tuple((name, held.kind, held.values) for name, held in schema.items()) or None


@cache
def _places(values: tuple[str | int, ...]) -> dict[str, int]:
    """Return the place of each value, as text."""
    return {_text(value): place for place, value in enumerate(values)}


def _text(cell: Any) -> str:
    """Return a value as it is compared: 2, 2.0 and " 2 " are the same."""
    whole = isinstance(cell, float) and cell.is_integer()
    return str(int(cell) if whole else cell).strip()


def _float(cell: Any, decimal: str) -> float | None:
    """Return a number; None for what is none, or has another decimal mark."""
    if isinstance(cell, str):
        if (word := cell.strip().casefold()) in BOOLEANS:
            return BOOLEANS[word]
        if "_" in cell or (decimal == "," and "." in cell):  # Python takes 1_000
            return None
        cell = cell.replace(decimal, ".")
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
