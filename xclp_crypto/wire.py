"""Typed messages: what travels, how long it is, and what is refused.

A message on the wire is ``tag (2 bytes, big-endian) || body``. The body has no lengths inside:
every length follows from public sizes that both ends know, so decoding checks the exact length
first, then every field, and nothing may be left over. Transports add their own framing.

A message class declares its fields once, and size, writing and reading follow:

    class Prepared(Message):
        TAG = 0x9001
        digest: bytes = sent(Raw(32))
        labelled: NDArray[np.bool_] = sent(Bits("rows"))

A length is a number, the name of a public size, or a function of public sizes, whose parameters
name them; see `fields`. The docstring of every class states its size as a formula, and a test
equates the two. Tags of `OWN_TAGS` are for messages of your own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform

from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.fields import Buffer, Dims, Kind, T

TAG_BYTES = 2
OWN_TAGS = range(0x8000, 0x10000)
"""Tags for messages of your own; this project has none of them and will have none."""

_TAGS = range(OWN_TAGS[0])
_PROJECT = ("xclp_crypto", "xclp_lp")
_KIND = "kind"
_registry: dict[int, type[Message]] = {}


def sent(kind: Kind[T]) -> T:
    """Declare a field that travels, in the class body of a message."""
    declared: T = field(metadata={_KIND: kind})
    return declared


@dataclass_transform(frozen_default=True, field_specifiers=(sent,))
class Message:
    """Base of all messages: frozen dataclasses with a unique `TAG` and fields declared by `sent`.

    A field without `sent` is a public size under its name, which does not travel: the writer has
    it in the message, the reader among the `dims`. Fields of a message are values already
    validated; bytes become a message only through `decode`. Printing shows the type and never the
    content, and messages cannot be pickled.

    Attributes:
        AGREED: what both ends must have alike, told where a message has another size.
    """

    TAG: ClassVar[int]
    AGREED: ClassVar[str] = ""
    _sent: ClassVar[tuple[tuple[str, Kind[Any]], ...]]
    _public: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        """Register the tag, which must be unique over all messages, and yours of `OWN_TAGS`.

        A class that is defined again, as when the cell of a notebook runs twice, takes its place.
        """
        tag = getattr(cls, "TAG", None)
        if not isinstance(tag, int):
            raise ParameterError(f"TAG of {cls.__name__} must be an integer, got {tag!r}")
        known = _registry.get(tag)
        again = known is not None and (known.__module__, known.__qualname__) == (
            cls.__module__,
            cls.__qualname__,
        )
        project = cls.__module__.partition(".")[0] in _PROJECT
        if tag not in (_TAGS if project else OWN_TAGS) or not (known is None or again):
            raise ParameterError(
                f"message tag {tag:#06x} of {cls.__name__} is taken or reserved; those of your own "
                f"are {OWN_TAGS[0]:#06x} … {OWN_TAGS[-1]:#06x}"
            )
        _registry[tag] = cls
        dataclass(frozen=True, repr=False)(cls)
        declared = fields(cls)  # type: ignore[arg-type]  # a data class since the line above
        cls._sent = tuple((f.name, f.metadata[_KIND]) for f in declared if f.metadata)
        cls._public = tuple(f.name for f in declared if not f.metadata)

    @classmethod
    def size(cls, **dims: int) -> int:
        """Return the length of the body in bytes; raises `ParameterError` if a size is missing."""
        return sum(_sizes(cls, dims))

    def check(self) -> str | None:
        """Return what is wrong with the fields beyond what they declare, if anything is."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be pickled; use wire.encode")


M = TypeVar("M", bound=Message)


def _sizes(kind: type[Message], dims: Dims) -> list[int]:
    """Return the size of every field."""
    try:
        return [declared.size(dims) for _, declared in kind._sent]
    except KeyError as error:
        raise ParameterError(f"{kind.__name__} needs the size {error}") from None


def _encoded(message: Message) -> list[Buffer]:
    """Return the fields of `message` one after the other."""
    if isinstance(message, type) or not hasattr(message, "_sent"):
        raise ParameterError(f"a message is needed, got {type(message).__name__}; see wire.Message")
    name, parts = "", []
    dims = {public: getattr(message, public) for public in message._public}
    try:
        for name, kind in message._sent:
            if kind.named:
                kind.bind(getattr(message, name), dims)
        for name, kind in message._sent:
            parts += kind.encode(getattr(message, name), dims)
    except ParameterError as error:
        raise ParameterError(f"{type(message).__name__}.{name} {error}") from None
    wrong = message.check()
    if wrong is not None:
        raise ParameterError(f"{type(message).__name__}: {wrong}")
    return parts


def body(message: Message) -> bytes:
    """Encode the fields of `message`, without its tag.

    Raises:
        ParameterError: a value that no reader would get; names the field.
    """
    return b"".join(_encoded(message))


def encode(message: Message) -> bytes:
    """Encode `message` with its tag; raises as `body` does."""
    # One copy, of what may be many megabytes.
    parts = _encoded(message)
    return b"".join([message.TAG.to_bytes(TAG_BYTES, "big"), *parts])


def decode_body(kind: type[M], data: bytes | memoryview, **dims: Any) -> M:
    """Decode the body of a message of a known type; raises `DecodeError`."""
    sizes = _sizes(kind, dims)
    if len(data) != sum(sizes):
        agreed = f"; {kind.AGREED}" if kind.AGREED else ""
        raise DecodeError(
            f"{kind.__name__} has {len(data)} bytes; its sizes require {sum(sizes)}{agreed}"
        )
    view, at = memoryview(data), 0
    values = {public: dims[public] for public in kind._public}
    for (name, declared), n_bytes in zip(kind._sent, sizes, strict=True):
        values[name] = declared.read(view[at : at + n_bytes], dims)
        at += n_bytes
    message = kind(**values)
    wrong = message.check()
    if wrong is not None:
        raise DecodeError(wrong)
    return message


def decode(kind: type[M], payload: bytes | bytearray, **dims: Any) -> M:
    """Decode a message that must be of type `kind`; raises `DecodeError`.

    Examples:
        >>> import numpy as np
        >>> from xclp_crypto.protocols.ot.naor_pinkas import OtOffers
        >>> from xclp_crypto.wire import decode, encode
        >>> payload = encode(OtOffers(np.zeros((5, 2, 16), np.uint8)))
        >>> len(payload), decode(OtOffers, payload, count=5, length=16).offers.shape
        (162, (5, 2, 16))
        >>> decode(OtOffers, payload, count=6, length=16)
        Traceback (most recent call last):
        xclp_crypto.errors.DecodeError: OtOffers has 160 bytes; its sizes require 192
    """
    if len(payload) < TAG_BYTES:
        raise DecodeError("a message shorter than its tag")
    if payload[:TAG_BYTES] != kind.TAG.to_bytes(TAG_BYTES, "big"):
        raise DecodeError(f"got {type_name(payload)} where {kind.__name__} is expected")
    return decode_body(kind, memoryview(payload)[TAG_BYTES:], **dims)


def tag_name(tag: int) -> str:
    """Return the name of the message type with this tag, for reports."""
    return _registry[tag].__name__ if tag in _registry else f"unknown tag {tag:#06x}"


def type_name(payload: bytes | bytearray) -> str:
    """Return the name of an encoded message's type, for reports; never raises."""
    name = tag_name(int.from_bytes(payload[:TAG_BYTES], "big"))
    if name == "Sealed":
        return f"Sealed[{tag_name(int.from_bytes(payload[TAG_BYTES : 2 * TAG_BYTES], 'big'))}]"
    return name
