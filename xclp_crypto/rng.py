"""Randomness, which is an argument everywhere else: this module alone asks the operating system."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from itertools import count
from typing import TypeAlias

from xclp_crypto.algebra.domain_tags import Context, domain_tag
from xclp_crypto.algebra.prg import KEY_BYTES, derive_key, expand, stream
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import ParameterError, ReuseError
from xclp_crypto.secret import Secret

# Inside the classes `bytes` is the method.
_Bytes: TypeAlias = bytes


class Rng(Secret, ABC):
    """A source of secret randomness for one party or one task."""

    __slots__ = ()

    @abstractmethod
    def bytes(self, n: int) -> _Bytes:
        """Draw n uniform bytes, n ≥ 0.

        Raises:
            ParameterError: a negative n.
        """

    @abstractmethod
    def residues(self, modulus: int, shape: int | tuple[int, ...]) -> Residues:
        """Draw uniform residues modulo 1 ≤ m ≤ 2^64, with the dtype and shape of `prg.expand`.

        Raises:
            ParameterError: a modulus or shape out of range.
        """

    @abstractmethod
    def child(self, *context: Context) -> Rng:
        """Make an independent generator for the party or task that the context names.

        Raises:
            ParameterError: a context that is not made of str, int ≥ 0 and bytes.
            ReuseError: the same context a second time, from a generator that would repeat itself.
        """


class SystemRng(Rng):
    """Randomness of the operating system.

    It has no state, so processes forked from one another never share a draw.
    """

    __slots__ = ()

    def bytes(self, n: int) -> _Bytes:
        """Draw n bytes from `os.urandom`; see `Rng.bytes`."""
        if n < 0:
            raise ParameterError(f"the number of bytes must not be negative, got {n}")
        return os.urandom(n)

    def residues(self, modulus: int, shape: int | tuple[int, ...]) -> Residues:
        """Draw residues by `prg.expand` under a fresh key of 32 bytes."""
        return expand(os.urandom(KEY_BYTES), domain_tag("rng/residues"), modulus, shape)

    def child(self, *context: Context) -> SystemRng:
        """Make another one; the context is only checked."""
        domain_tag("rng/child", *context)
        return SystemRng()


class SeededRng(Rng):
    """The deterministic twin of `SystemRng`, for tests and for replay.

    Each draw has a domain tag of its own, made of the draw's number. A child depends on the seed
    and on the contexts that lead to it, not on how much was drawn before. Processes forked from one
    another do share this generator's draws: give each task a child.

    Args:
        seed: an integer ≥ 0 or bytes; as strong as its entropy, so anything short is for tests.

    Raises:
        ParameterError: a seed of another type, or a negative one.

    Examples:
        >>> from xclp_crypto.rng import SeededRng
        >>> SeededRng(1).bytes(4) == SeededRng(1).bytes(4)
        True
        >>> SeededRng(1).child("alice").residues(10, 3) < 10
        array([ True,  True,  True])
    """

    __slots__ = ("_children", "_draws", "_key")

    def __init__(self, seed: _Bytes | int) -> None:
        if isinstance(seed, str):
            raise ParameterError("a seed must be bytes or an integer, got str")
        self._start(hashlib.sha256(domain_tag("rng/seed", seed)).digest())

    def _start(self, key: _Bytes) -> None:
        self._key = key
        self._draws = count()
        self._children: set[_Bytes] = set()

    def bytes(self, n: int) -> _Bytes:
        """Draw the next n bytes."""
        return stream(self._key, domain_tag("rng/bytes", next(self._draws)), n).tobytes()

    def residues(self, modulus: int, shape: int | tuple[int, ...]) -> Residues:
        """Draw the next residues."""
        return expand(self._key, domain_tag("rng/residues", next(self._draws)), modulus, shape)

    def child(self, *context: Context) -> SeededRng:
        """Make the generator of this context, once; see `Rng.child`."""
        tag = domain_tag("rng/child", *context)
        if tag in self._children:
            # A second one would repeat the first one's masks and keys.
            raise ReuseError(f"this generator already has a child {context!r}; number the uses")
        self._children.add(tag)
        child = object.__new__(SeededRng)
        child._start(derive_key(self._key, tag))
        return child


def rng_or_system(rng: object) -> Rng:
    """Return this source of randomness, or the operating system's for None.

    Raises:
        ParameterError: as from `require_rng`.
    """
    return SystemRng() if rng is None else require_rng(rng)


def require_rng(rng: object) -> Rng:
    """Return this source of randomness; every function that draws from its argument asks first.

    Raises:
        ParameterError: it is not an `Rng`: NumPy's generators have a method `bytes` as well, and
            would make keys that anybody can guess.
    """
    if not isinstance(rng, Rng):
        raise ParameterError(
            f"rng must be a SystemRng, or a SeededRng in tests, got {rng!r}; secrets do not come "
            "from NumPy's generators"
        )
    return rng
