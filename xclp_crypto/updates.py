"""Model updates as one vector, and back: arrays, tensors, and lists and mappings of these.

A *leaf* is an array or a tensor of floats or integers, or a number; its *path* says where it lies
in what contains it, such as ``layers[0].weight``. Leaves stand one after the other in the vector,
by position in lists and by name in mappings, so the order in which a mapping was filled does not
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError

Update: TypeAlias = Any
"""An array, a tensor of PyTorch, a number, or a list, tuple or mapping of updates."""

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Leaf:
    """One array of an update: where it lies, and of which shape and dtype it is."""

    path: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.path or 'the update'} of shape {self.shape} and dtype {self.dtype}"

    @property
    def size(self) -> int:
        """Return the number of values."""
        return int(np.prod(self.shape, dtype=np.int64))


def layout(update: Update, client: str) -> tuple[Leaf, ...]:
    """Return the leaves of an update in their order in the vector.

    Args:
        update: see `Update`.
        client: whose it is, for errors.

    Raises:
        DataError: something in it is not a number, an array, a tensor, a list or a mapping.
    """
    return tuple(
        Leaf(path, tuple(leaf.shape), _dtype(leaf)) for path, leaf in _leaves(update, client, "")
    )


def floats_of(leaves: tuple[Leaf, ...]) -> NDArray[np.bool_]:
    """Return which values of the vector are floats, (n,), and not integers."""
    sizes = [leaf.size for leaf in leaves]
    return np.repeat([leaf.dtype in _FLOATS for leaf in leaves], sizes).astype(np.bool_)


def require_same_layout(
    own: tuple[Leaf, ...], expected: tuple[Leaf, ...], client: str, other: str
) -> None:
    """Refuse, by a `DataError` that names what differs first, an update of another layout."""
    found, wanted = ({leaf.path: leaf for leaf in leaves} for leaves in (own, expected))
    for path in (*wanted, *found):
        if path not in found or path not in wanted:
            alone, leaf = (other, wanted[path]) if path in wanted else (client, found[path])
            raise DataError(f"client {alone!r} has {leaf}, and {_other(alone, client, other)} not")
        if found[path] != wanted[path]:
            raise DataError(
                f"client {client!r} has {found[path]}, where {other!r} has {wanted[path]}"
            )


def _other(one: str, client: str, other: str) -> str:
    return repr(other if one == client else client)


def to_vector(update: Update, client: str) -> NDArray[np.float64]:
    """Return all values of an update, (n,) float64.

    Raises:
        DataError: see `layout`; or a value is NaN or infinite, at the path that is named.
    """
    leaves = [(path, _numbers(leaf, client, path)) for path, leaf in _leaves(update, client, "")]
    vector, done = np.empty(sum(values.size for _, values in leaves)), 0
    for path, values in leaves:
        own = vector[done : done + values.size].reshape(values.shape)
        own[...] = values
        done += values.size
        if not np.isfinite(own).all():
            where, value = _at(own, int(np.argmin(np.isfinite(own))))
            raise DataError(f"client {client!r}: {path or 'the update'}{where} is {value}")
    return vector


def to_integers(update: Update, client: str) -> NDArray[np.int64]:
    """Return all values of an update that has no floats, (n,) int64, exactly.

    Raises:
        DataError: see `layout`; or a value does not fit, at the path that is named.
    """
    parts = [np.zeros(0, np.int64)]
    for path, leaf in _leaves(update, client, ""):
        values = _numbers(leaf, client, path)
        if values.size and int(values.max()) > _INT64_MAX:
            where, value = _at(values, int(np.argmax(values)))
            raise DataError(
                f"client {client!r}: {path or 'the update'}{where} is {value}, above 2^63 - 1"
            )
        parts.append(values.astype(np.int64, copy=False).reshape(-1))
    return np.concatenate(parts)


def place_of(leaves: tuple[Leaf, ...], position: int) -> str:
    """Return the path, and in an array the index, of a position in the vector."""
    ends = np.cumsum([leaf.size for leaf in leaves])
    at = int(np.searchsorted(ends, position, side="right"))
    leaf = leaves[at]
    index = [int(i) for i in np.unravel_index(position - ends[at] + leaf.size, leaf.shape)]
    return f"{leaf.path or 'the update'}{index or ''}"


def _at(values: NDArray[Any], flat: int) -> tuple[list[int], Any]:
    """Return where in an array the value of a flat index stands, and the value."""
    return [int(i) for i in np.unravel_index(flat, values.shape)], values.flat[flat]


def _numbers(leaf: Any, client: str, path: str) -> NDArray[Any]:
    """Return a leaf as an array of NumPy; raises `DataError` for a tensor that has no values."""
    if not _is_tensor(leaf):
        return np.asarray(leaf)
    try:
        tensor = leaf.detach().cpu()
        values: NDArray[Any] = (tensor if "int" in _dtype(leaf) else tensor.double()).numpy()
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise DataError(
            f"client {client!r}: {path or 'the update'} has no values to read: {error}"
        ) from None
    return values


def from_vector(vector: NDArray[np.float64 | np.int64], template: Update) -> Update:
    """Return an update of the structure, shapes and dtypes of `template` with these values.

    Values of integer leaves are rounded to the nearest integer.

    Args:
        vector: (n,), as from `to_vector` or `to_integers`.
        template: says what to make of it; stays as it is.

    Raises:
        DataError: another number of values.
    """
    sizes = [leaf.size for leaf in layout(template, "template")]
    if sum(sizes) != len(vector):
        raise DataError(f"{len(vector)} values for an update of {sum(sizes)}")
    parts = iter(np.split(vector, np.cumsum(sizes, dtype=np.int64)))
    return _mapped(template, lambda leaf: _leaf(next(parts), leaf))


def widened(update: Update) -> Update:
    """Return an update of the same structure whose floats are float64 and whose integers int64."""

    def wide(leaf: Any) -> Any:
        whole = "int" in _dtype(leaf if _is_tensor(leaf) else np.asarray(leaf))
        if _is_tensor(leaf):
            return leaf.long() if whole else leaf.double()
        return np.asarray(leaf).astype(np.int64 if whole else np.float64)[()]

    return _mapped(update, wide)


def _leaves(update: Update, client: str, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its path: arrays of NumPy, and tensors."""
    if isinstance(update, Mapping | list | tuple):
        for step, inner in _children(update):
            yield from _leaves(inner, client, (path + step).removeprefix("."))
        return
    leaf = update if _is_tensor(update) else _array(update)
    if leaf is None or (_dtype(leaf) not in _FLOATS and "int" not in _dtype(leaf)):
        what = type(update).__name__ if leaf is None else f"of dtype {_dtype(leaf)}"
        raise DataError(
            f"client {client!r}: {path or 'the update'} is {what}; updates are floats or integers, "
            "arrays, tensors, and lists and mappings of these"
        )
    yield path, leaf


def _children(update: Update) -> list[tuple[str, Update]]:
    """Return what an update contains, by step of the path, in the order of the vector."""
    if isinstance(update, Mapping):
        return sorted(((_step(name), inner) for name, inner in update.items()), key=lambda p: p[0])
    if isinstance(update, list | tuple):
        return [(f"[{i}]", inner) for i, inner in enumerate(update)]
    return []


def _step(name: object) -> str:
    """Return a name as a step of a path, so that different names give different steps."""
    plain = isinstance(name, str) and name and not set(name) & set(".[]{}'\"")
    return f".{name}" if plain else f"{{{name!r}}}"


def _is_tensor(value: object) -> bool:
    """Return whether this is a tensor of PyTorch, which is not imported for it."""
    kind: Any = type(value)  # which mypy does not take for hashable
    return _is_of_tensors(kind)


@cache
def _is_of_tensors(kind: type) -> bool:
    return any(t.__module__ == "torch" and t.__name__ == "Tensor" for t in kind.__mro__)


def _array(value: object) -> NDArray[Any] | None:
    if isinstance(value, np.ma.MaskedArray):
        return None
    plain = isinstance(value, np.ndarray | np.generic | int | float)
    return np.asarray(value) if plain and not isinstance(value, bool) else None


def _dtype(leaf: Any) -> str:
    return _called(leaf.dtype)


@cache
def _called(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _mapped(update: Update, change: Callable[[Any], Any]) -> Update:
    """Return an update of the same structure with changed leaves, in the order of the vector."""
    if isinstance(update, Mapping):
        children = {step: _mapped(inner, change) for step, inner in _children(update)}
        kind: Any = type(update) if isinstance(update, dict) else dict
        return kind([(name, children[_step(name)]) for name in update])
    if isinstance(update, list | tuple):
        kind = type(update)
        fields = [_mapped(inner, change) for inner in update]
        return kind(*fields) if hasattr(update, "_fields") else kind(fields)
    return change(update)


def _leaf(values: NDArray[Any], template: Any) -> Any:
    """Return a leaf like this one with these values, (n,)."""
    tensor = _is_tensor(template)
    like: Any = template if tensor else np.asarray(template)
    values = values.reshape(tuple(like.shape))
    if "int" in _dtype(like) and values.dtype.kind == "f":
        values = np.rint(values)
    if tensor:
        return like.detach().new_tensor(values.tolist() if not values.size else values)
    typed = values.astype(like.dtype)
    return typed if isinstance(template, np.ndarray) else typed[()]
