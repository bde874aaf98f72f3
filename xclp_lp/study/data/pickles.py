"""Published pickles of arrays and data frames, read without running anything that is in them.

A pickle is a program that names functions and calls them. Here a name is never looked up: it stands
for one of the few stand-ins below, which keep what they are given, and any other name is refused.
So nothing of NumPy or pandas is called with values from the file either. A short file must not take
much memory: what stand-ins copy is counted against what was read, and so is each step.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any, BinaryIO, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError
from xclp_lp.files.damaged import DAMAGED

_NUMBERS = re.compile(r"(f[48]|[iu][1248]|b1)")
_OBJECTS = re.compile(r"O[48]?")
_ORDERS = ("<", ">", "=", "|")

_FREE_BYTES = 1 << 20
_TIMES = 4
_PART_BYTES = 1 << 20
_MOST_STEPS = 4_000_000
"""A step takes some 100 bytes at most beside those of the file."""


def read_pickle(source: bytes | BinaryIO) -> Any:
    """Read a pickle of dicts, lists, tuples, text, numbers, NumPy arrays and pandas data frames.

    Args:
        source: the pickle, of any protocol; text of Python 2 is taken for Latin-1.

    Returns:
        The object; a data frame as a dict of its columns, shape (n,) each, and an array of Python
        objects as a list.

    Raises:
        DataError: the file is not a pickle, or has anything else in it.
    """
    file = _Counted(io.BytesIO(source) if isinstance(source, bytes) else source)
    try:
        content = _Unpickler(file, encoding="latin1").load()
        return _finished(content, {})
    except DataError:  # it is a ValueError as well
        raise
    except (pickle.UnpicklingError, *DAMAGED) as error:
        raise DataError(f"this is not a pickle of arrays: {error}") from None


def flat_array(value: Any, what: str) -> NDArray[Any]:
    """Return numbers from a pickle as an array of one dimension.

    A list in a list is not left to NumPy, which would expand what is mentioned often.

    Args:
        value: a list of numbers or an array.
        what: names it in errors.

    Raises:
        DataError: it is something else.
    """
    if isinstance(value, list) and all(isinstance(v, int | float) for v in value):
        value = np.array(value)
    if not isinstance(value, np.ndarray) or value.ndim != 1:
        raise DataError(f"{what} is not a list of numbers")
    return value


class _Counted:
    """A file, and how much memory may go to what is made of it: some times what was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._room = _FREE_BYTES
        self._steps = 0

    def read(self, size: int = -1) -> bytes:
        """Read in parts: a reader of files would make room for as much as is announced."""
        parts: list[bytes] = []
        while size and (part := self._file.read(min(size, _PART_BYTES) if size > 0 else size)):
            parts.append(part)
            size -= len(part) if size > 0 else 0
        data = b"".join(parts)
        self._room += _TIMES * len(data)
        return data

    def readline(self) -> bytes:
        data = self._file.readline()
        self._room += _TIMES * len(data)
        return data

    def spend(self, size: int) -> None:
        """Note that so many bytes are copied; raises `DataError` if they are too many."""
        self._room -= size
        if self._room < 0:
            raise DataError("this pickle is short, and would take much memory; it is not read")

    def step(self) -> None:
        """Note that a step is done; raises `DataError` if there are too many."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise DataError(f"this pickle has more than {_MOST_STEPS} steps; it is not read")


class _Array:
    __slots__ = ("_file", "value")

    def __init__(self, file: _Counted) -> None:
        self._file = file

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if isinstance(content, list):
            if not dtype.objects:
                raise DataError("this pickle has a list where an array's bytes belong")
            self.value: Any = content
            return
        if not isinstance(content, str | bytes):  # bytes(n) are n of them
            raise DataError("this pickle has an array without bytes")
        self._file.spend(len(content))
        raw = content.encode("latin1") if isinstance(content, str) else content
        flat = np.frombuffer(raw, dtype.numbers())
        self.value = flat.reshape([int(n) for n in shape], order="F" if fortran else "C")


class _Dtype:
    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        if not _NUMBERS.fullmatch(code) and not _OBJECTS.fullmatch(code):
            raise DataError(f"this pickle has an array of {code!r}; numbers are needed")
        self.code = code
        self.order = "="

    @property
    def objects(self) -> bool:
        return self.code.startswith("O")

    def numbers(self) -> np.dtype[Any]:
        if self.objects:
            raise DataError("this pickle has bytes where an array's objects belong")
        return np.dtype(self.order + self.code)

    def __setstate__(self, state: Any) -> None:
        if state[1] not in _ORDERS or any(part is not None for part in state[2:5]):
            raise DataError("this pickle has an array of records; numbers are needed")
        self.order = state[1]


class _Pandas:
    """A data frame, the manager of its columns, or an index."""

    __slots__ = ("arguments", "kind", "state")

    def __init__(self, kind: str, arguments: Any = None) -> None:
        self.kind = kind
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return a data frame's columns: a manager has blocks of rows, and the names of each."""
        manager = self.state.get("_data", self.state.get("_mgr"))
        _, blocks, names, *_ = manager.state
        columns = {}
        for block, index in zip(blocks, names, strict=True):
            for name, values in zip(index.arguments["data"].value, block.value, strict=True):
                columns[str(name)] = values
        return columns


class _Name:
    """A name in a pickle: a stand-in that can be called, and nothing else.

    Made anew for each mention and without attributes that could be set, so that a file cannot
    change how the next one is read.
    """

    __slots__ = ("_file", "_module", "_name")
    _file: _Counted
    _module: str
    _name: str

    def __init__(self, module: str, name: str, file: _Counted) -> None:
        object.__setattr__(self, "_file", file)
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_name", name)

    def __call__(self, *arguments: Any) -> Any:
        match self._module, self._name, arguments:
            case ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct", _):
                return _Array(self._file)
            case ("numpy", "dtype", (str(code), *_)):
                return _Dtype(code)
            case ("_codecs", "encode", (str(text), "latin1")):
                self._file.spend(len(text))
                return text.encode("latin1")
            case ("__builtin__" | "builtins", "bytes", ()):
                return b""
            case ("copy_reg" | "copyreg", "_reconstructor", (_Name() as kind, _, None)):
                return _Pandas(kind._name)
            case ("pandas.core.indexes.base", "_new_Index", (_Name() as kind, dict(parts))):
                return _Pandas(kind._name, parts)
            case ("__builtin__" | "builtins", "slice", (_, _, _)):
                return _Pandas("slice")  # with a real one, an item is set to a list in itself
        raise DataError(f"this pickle calls {self._module}.{self._name} in an unknown way")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise DataError(f"this pickle sets {name!r} of {self._module}.{self._name}")

    def __setstate__(self, state: Any) -> NoReturn:
        raise DataError(f"this pickle changes {self._module}.{self._name}")


_KNOWN = {
    "numpy": ("ndarray", "dtype"),
    "numpy.core.multiarray": ("_reconstruct",),
    "numpy._core.multiarray": ("_reconstruct",),
    "_codecs": ("encode",),
    "copy_reg": ("_reconstructor",),
    "copyreg": ("_reconstructor",),
    "__builtin__": ("object", "bytes", "slice"),
    "builtins": ("object", "bytes", "slice"),
    "pandas.core.frame": ("DataFrame",),
    "pandas.core.internals.managers": ("BlockManager",),
    "pandas.core.indexes.base": ("_new_Index", "Index"),
    "pandas.core.indexes.range": ("RangeIndex",),
}
"""Names that a pickle may mention, by module."""


def _counted(load: Callable[[Any], None]) -> Callable[[Any], None]:
    def counted(reader: _Unpickler) -> None:
        reader.file.step()
        load(reader)

    return counted


class _Unpickler(pickle._Unpickler):
    """The reader in Python: the one in C allocates as many gigabytes as an index in a file says.

    So would this one for a bytearray, which no pickle of arrays or data frames needs, nor a set.
    """

    dispatch: ClassVar = {
        code: _counted(load)
        for code, load in pickle._Unpickler.dispatch.items()
        if code not in (pickle.BYTEARRAY8[0], pickle.EMPTY_SET[0], pickle.FROZENSET[0])
    }

    def __init__(self, file: _Counted, **options: Any) -> None:
        super().__init__(file, **options)
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        if name not in _KNOWN.get(module, ()):
            raise DataError(
                f"this pickle names {module}.{name}, which has no part in arrays and data frames; "
                "it is not read"
            )
        return _Name(module, name, self.file)

    def persistent_load(self, pid: Any) -> NoReturn:
        raise DataError(f"this pickle refers to {pid!r} outside of it; it is not read")


def _finished(value: Any, done: dict[int, Any]) -> Any:
    """Replace the stand-ins by what they stand for.

    Args:
        value: from the pickle, which keeps all of its objects alive.
        done: results by `id`. What is mentioned often is worked on once, or else a few lines of
            lists of the same lists would never end.
    """
    if id(value) not in done:
        done[id(value)] = _replaced(value, done)
    return done[id(value)]


def _replaced(value: Any, done: dict[int, Any]) -> Any:
    match value:
        case _Array():
            content = value.value
            return content if isinstance(content, np.ndarray) else _finished(content, done)
        case _Pandas(kind="DataFrame"):
            return value.columns()
        case dict():
            return {_finished(k, done): _finished(v, done) for k, v in value.items()}
        case list():
            return [_finished(v, done) for v in value]
        case tuple():
            return tuple(_finished(v, done) for v in value)
        case str() | bytes() | int() | float() | None:
            return value
    raise DataError(f"this pickle has an object of {type(value).__name__.strip('_')} in it")
