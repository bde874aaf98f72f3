"""What arrays of ciphertexts and of encrypted numbers have in common: operators and refusals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError, XclpError

_OPERATORS: Final = {
    np.add: ("__add__", "__radd__"),
    np.subtract: ("__sub__", "__rsub__"),
    np.multiply: ("__mul__", "__rmul__"),
    np.matmul: ("__matmul__", "__rmatmul__"),
    np.negative: ("__neg__", "__neg__"),
}
"""What NumPy's functions are of encrypted arrays on the left, and on the right."""


class EncryptedArray(ABC):
    """An array that nobody here can read: NumPy's arithmetic where there is one, else an error."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # nor are they compared

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        if not self.ndim:
            raise ParameterError("a single ciphertext has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    @abstractmethod
    def __getitem__(self, where: Any) -> Self: ...

    @abstractmethod
    def __add__(self, other: Any) -> Self: ...

    @abstractmethod
    def __mul__(self, other: Any) -> Self: ...

    @abstractmethod
    def __matmul__(self, other: Any) -> Self: ...

    @abstractmethod
    def __rmatmul__(self, other: Any) -> Self: ...

    @abstractmethod
    def __sub__(self, other: Any) -> Self: ...

    def __neg__(self) -> Self:
        return self.__mul__(-1)

    def __radd__(self, other: Any) -> Self:
        return self.__add__(other)

    def __rmul__(self, other: Any) -> Self:
        return self.__mul__(other)

    def __rsub__(self, other: Any) -> Self:
        return (-self).__add__(other)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ParameterError(
            "Paillier ciphertexts can be added, and multiplied with plain numbers, as arrays; "
            "decrypt them for anything else"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refuse
    __truediv__ = __floordiv__ = __mod__ = __pow__ = _refuse

    def __array__(self, *_: object, **__: object) -> NDArray[np.void]:
        # Void for type checkers, which else take `W @ numbers` for NumPy's: an array of floats.
        self._refuse()

    def __array_ufunc__(
        self, ufunc: Callable[..., Any], method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if method != "__call__" or kwargs or ufunc not in _OPERATORS:
            self._refuse()
        direct, reflected = _OPERATORS[ufunc]
        first, *others = inputs
        if isinstance(first, EncryptedArray):
            return getattr(first, direct)(*others)
        return getattr(self, reflected)(first)

    def __reduce__(self) -> NoReturn:
        raise ParameterError("ciphertexts travel as bytes (encode, decode), not as pickles")


@contextmanager
def numpy_errors(what: str, *shapes: tuple[int, ...]) -> Iterator[None]:
    """Turn what NumPy says of arguments, or of two shapes, into a `ParameterError`."""
    try:
        yield
    except XclpError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        of_shapes = len(shapes) == 2 and not isinstance(error, TypeError)
        said = f"shapes {shapes[0]} and {shapes[1]} do not fit" if of_shapes else error
        raise ParameterError(f"{what} of ciphertexts: {said}") from None


def object_array(values: list[Any], shape: tuple[int, ...]) -> NDArray[np.object_]:
    """Return an array of these objects; NumPy must not look into them."""
    flat = np.empty(len(values), dtype=object)
    flat[:] = values
    return flat.reshape(shape)
