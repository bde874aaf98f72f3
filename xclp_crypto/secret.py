"""What every object that holds a secret has in common."""

from __future__ import annotations

from typing import NoReturn


class Secret:
    """Mixin for holders of secrets: its repr is its class name, and it is never pickled or copied.

    A copy of a key or of a generator is a second use of it, and a pickle is a secret on disk; where
    a secret has to leave an object, that object has an explicit export method.

    Raises:
        TypeError: on `pickle.dumps`, `copy.copy` and `copy.deepcopy`, as Python expects it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds a secret: it is neither pickled nor copied")
