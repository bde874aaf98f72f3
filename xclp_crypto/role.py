"""How a party is written: an ``async def`` that awaits `RoleIO`'s operations and nothing else.

These are `send`, `recv`, `gather`, `gather_each` and `compute`. A role has no sockets, clocks,
threads, logging or global randomness. It runs under any driver that understands the operations;
`xclp_crypto.transport.simulate` is one. The same role may also run over another `RoleIO`, as
`xclp_crypto.protocols.setup.channel.SealedIO`, which seals what is sent and opens what is received.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

from xclp_crypto.wire import M, Message

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_RECORDED = "_xclp_recorded"

OnProgress = Callable[[str, int, int], None]
"""Called with an activity, how much of it is done, and how much there is."""

Dim = int | Mapping[str, int]
"""A public size that a decoder needs; a mapping where it differs by sender."""


class Signer(Protocol):
    """Signs for one party of a session, and verifies what others signed; a `Session` does."""

    clients: tuple[str, ...]

    def sign(self, purpose: str, *context: str | int | bytes) -> bytes:
        """Sign a statement, whose purpose is that of a domain tag."""

    def signed_by(
        self, client: str, signature: bytes, purpose: str, *context: str | int | bytes
    ) -> bool:
        """Return whether a client of the session made this signature by `sign`."""


class RoleIO(ABC):
    """What a role sees of the world: its own name and five things to await."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: list[str] = []

    @property
    def current_step(self) -> str:
        """Return the step that costs and errors are attributed to, for example ``hamming``."""
        return self._steps[0] if self._steps else "run"

    @property
    def steps(self) -> tuple[str, ...]:
        """Return the steps that are open, the outermost first."""
        return tuple(self._steps)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Attribute what happens inside to step `name`; the outermost step wins."""
        self._steps.append(name)
        try:
            yield
        finally:
            self._steps.pop()

    @abstractmethod
    async def send(self, to: str | Collection[str], message: Message) -> None:
        """Send `message` to one party, or the same message to several; never waits for them."""

    @abstractmethod
    async def recv(self, kind: type[M], frm: str, **dims: int) -> M:
        """Return the next message of party `frm`, which must be of type `kind`.

        Raises:
            FaultyPeer: the message is of another type or does not decode.
            Stalled: no message will come.
        """

    @abstractmethod
    async def gather(
        self, kind: type[M], parties: Collection[str], at_least: int | None = None, **dims: Dim
    ) -> dict[str, M]:
        """Return the next message of each party, by sender.

        With `at_least`, parties that do not answer before the deadline are left out as long as so
        many have answered; without it, all must.

        Raises:
            FaultyPeer: a message is of another type or does not decode.
            TooFewParties: fewer than `at_least` answered.
            Stalled: `at_least` was not given and a party did not answer.
        """

    @abstractmethod
    async def gather_each(
        self,
        kind: type[M],
        parties: Collection[str],
        each: Callable[[str, M], None],
        at_least: int | None = None,
        **dims: Dim,
    ) -> tuple[str, ...]:
        """Call ``each(party, message)`` as soon as a message arrives, in any order; keep none.

        For messages so large that they should not all be in memory at once. `each` has run for the
        messages that came first even when the wait then ends in an error.

        Returns:
            The parties that answered before the deadline, in the order of `parties`.

        Raises:
            FaultyPeer, TooFewParties, Stalled: as in `gather`, a faulty message when it arrives.
            XclpError: `each` raised it.
        """

    @abstractmethod
    async def compute(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return ``function(*args, **kwargs)``; marks a heavy step for the driver."""

    @abstractmethod
    def observe(self, frm: str, message: Message) -> None:
        """Record an opened message in this party's view, where a driver records views."""

    @abstractmethod
    def report(self, activity: str, done: int, total: int) -> None:
        """Tell whoever watches how far a computation is; a role passes it to what takes long."""

    @abstractmethod
    def introduce(self, signer: Signer) -> None:
        """Say who signs whom this party blames; called once its keys are certified."""


@dataclass(frozen=True, slots=True)
class Send:
    """Operation: hand a message to the driver."""

    to: tuple[str, ...]
    message: Message


@dataclass(frozen=True, slots=True)
class Receive:
    """Operation: wait for one message from each of `parties`; the answer has them by sender."""

    kind: type[Message]
    parties: tuple[str, ...]
    at_least: int | None
    dims: Mapping[str, Dim]


@dataclass(frozen=True, slots=True)
class ReceiveEach(Receive):
    """Operation: hand each message to `each` when it arrives; the answer has only the senders."""

    each: Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class Compute:
    """Operation: run a function."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


Operation = Send | Receive | Compute


class _Await:
    """Yields one operation to the driver and returns what the driver answers."""

    __slots__ = ("operation",)

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    def __await__(self) -> Generator[Operation, Any, Any]:
        return (yield self.operation)


class DriverIO(RoleIO):
    """The `RoleIO` that a driver gives to a role: each await yields one `Operation`."""

    def __init__(
        self, name: str, view: list[tuple[str, Message]] | None, report: OnProgress
    ) -> None:
        super().__init__(name)
        self._view = view
        self._report = report
        self.signer: Signer | None = None

    async def send(self, to: str | Collection[str], message: Message) -> None:
        """See `RoleIO.send`."""
        await _Await(Send((to,) if isinstance(to, str) else tuple(to), message))

    async def recv(self, kind: type[M], frm: str, **dims: int) -> M:
        """See `RoleIO.recv`."""
        got: dict[str, M] = await _Await(Receive(kind, (frm,), None, dims))
        self.observe(frm, got[frm])
        return got.pop(frm)  # the driver has `got` too, and the message may be large

    async def gather(
        self, kind: type[M], parties: Collection[str], at_least: int | None = None, **dims: Dim
    ) -> dict[str, M]:
        """See `RoleIO.gather`."""
        got: dict[str, M] = await _Await(
            Receive(kind, tuple(dict.fromkeys(parties)), at_least, dims)
        )
        for frm, message in got.items():
            self.observe(frm, message)
        return got

    async def gather_each(
        self,
        kind: type[M],
        parties: Collection[str],
        each: Callable[[str, M], None],
        at_least: int | None = None,
        **dims: Dim,
    ) -> tuple[str, ...]:
        """See `RoleIO.gather_each`."""

        def observed(frm: str, message: M) -> None:
            self.observe(frm, message)
            each(frm, message)

        observed.__name__ = name_of(each)
        wait = ReceiveEach(kind, tuple(dict.fromkeys(parties)), at_least, dims, observed)
        answered: tuple[str, ...] = await _Await(wait)
        return answered

    async def compute(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """See `RoleIO.compute`."""
        result: R = await _Await(Compute(function, args, kwargs))
        return result

    def observe(self, frm: str, message: Message) -> None:
        """See `RoleIO.observe`."""
        if self._view is not None:
            self._view.append((frm, message))

    def report(self, activity: str, done: int, total: int) -> None:
        """See `RoleIO.report`."""
        self._report(activity, done, total)

    def introduce(self, signer: Signer) -> None:
        """See `RoleIO.introduce`."""
        self.signer = signer


def recorded(function: F) -> F:
    """Mark a function for `RoleIO.compute` whose result a durable log keeps.

    It must depend on its arguments alone, change none of them, and return an array, bytes, or a
    tuple of these. Worth it for what takes long, and for floats that are sent: libraries may add
    them up in another order the next time. Needed for what a library draws by itself, which no
    other function may.
    """
    setattr(function, _RECORDED, True)
    return function


def is_recorded(function: Callable[..., Any]) -> bool:
    """Return whether a function is marked by `recorded`."""
    return hasattr(function, _RECORDED)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name under which the time of `function` is reported."""
    return getattr(function, "__name__", type(function).__name__)


def dims_for(party: str, dims: Mapping[str, Dim]) -> dict[str, int]:
    """Return the sizes that a message of `party` must have."""
    return {key: d[party] if isinstance(d, Mapping) else d for key, d in dims.items()}
