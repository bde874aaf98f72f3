"""Questions and answers of `supersteps`, and the headers in which they travel beside payloads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from xclp_crypto.errors import DecodeError
from xclp_crypto.transport.failures import (
    ACCUSATIONS_BYTES,
    Accusation,
    Code,
    Failure,
    Reason,
    printable,
)

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Parts:
    """A payload that is only handed on, in the parts in which it came, so that none is copied.

    Attributes:
        parts: one after the other.
    """

    parts: tuple[bytes, ...] = field(repr=False)

    def __len__(self) -> int:
        return sum(map(len, self.parts))


@dataclass(frozen=True, slots=True)
class Item:
    """A message of one party to another.

    Attributes:
        sender: who sends it.
        receiver: whom it is for.
        number: of the messages of `sender` to `receiver`, from 0.
        depth: see `Outgoing.depth`.
        payload: the encoded message.
    """

    sender: str
    receiver: str
    number: int
    depth: int
    payload: bytes | bytearray | Parts = field(repr=False)

    @property
    def whole(self) -> bytes | bytearray:
        """Return the payload for whom it is for."""
        return b"".join(self.payload.parts) if isinstance(self.payload, Parts) else self.payload


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a client.

    Attributes:
        items: messages for it, of each sender in their order.
        taken: by receiver, how many of its messages have arrived at the relay.
        gone: parties of which no more will come, and why; None for one that has ended well.
        kept: by sender, how many messages the log of the client keeps, as it has said.
        end: whether the session is over, so that the client may forget everything.
        failure: why it is, if it failed.
    """

    items: tuple[Item, ...] = ()
    taken: Mapping[str, int] = field(default_factory=dict)
    gone: Mapping[str, Reason | None] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    end: bool = False
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client answers.

    Attributes:
        name: of the client.
        instance: see `DurableRole.instance`; empty if its log is not kept yet, so that its role may
            start again.
        items: messages of it.
        fed: by sender, how many messages its role was given.
        kept: the same, as far as its log is kept for good.
        missing: of whom it waits for a message.
        more: whether it has more to send, or to keep, and should be asked again.
        ended: whether its role has ended.
        failure: what others are told of what it failed with, if it did.
    """

    name: str
    instance: bytes = b""
    items: tuple[Item, ...] = ()
    fed: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    more: bool = False
    ended: bool = False
    failure: Failure | None = None


def header_of(message: Ask | Answer) -> str:
    """Return everything but the payloads as text."""
    fields: dict[str, Any] = {"version": VERSION}
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "failure" and value is not None:
            signed = Accusation.encode_all(value.accusations).hex()
            value = [value.code, value.parties, value.text, signed]
        if name == "gone":
            value = {party: why and [why.code, why.text] for party, why in value.items()}
        if name == "items":
            value = [[i.sender, i.receiver, i.number, i.depth, len(i.payload)] for i in value]
        fields[name] = value.hex() if isinstance(value, bytes) else value
    return json.dumps(fields)


def sizes_of(header: str, max_message: int) -> list[int]:
    """Return the sizes of the payloads that a header announces.

    Raises:
        DecodeError: it is not a header of this version, or announces too much.
    """
    sizes = [size for *_, size in _checked(header)["items"]]
    for size in sizes:
        if size > max_message:
            raise DecodeError(f"a message has {size} bytes, and at most {max_message} are taken")
    return sizes


def receivers_of(header: str) -> list[str]:
    """Return whom the payloads that a header announces are for; raises as `sizes_of` does."""
    return [receiver for _, receiver, *_ in _checked(header)["items"]]


def ask_from(header: str, payloads: Iterable[bytes | bytearray]) -> Ask:
    """Decode a question; raises `DecodeError`."""
    f = _checked(header)
    return Ask(
        items=_items(f, payloads),
        taken=_counts(f, "taken"),
        gone=_gone(f),
        kept=_counts(f, "kept"),
        end=_flag(f, "end"),
        failure=_failure(f),
    )


def answer_from(header: str, payloads: Iterable[bytes | bytearray | Parts]) -> Answer:
    """Decode an answer; raises `DecodeError`."""
    f = _checked(header)
    name, instance = f.get("name"), f.get("instance")
    if not (isinstance(name, str) and isinstance(instance, str)):
        raise DecodeError("an answer has no name")
    return Answer(
        name=name,
        instance=_bytes(instance, "names no start of its role"),
        items=_items(f, payloads),
        fed=_counts(f, "fed"),
        kept=_counts(f, "kept"),
        missing=_names(f, "missing"),
        more=_flag(f, "more"),
        ended=_flag(f, "ended"),
        failure=_failure(f),
    )


def _checked(header: str) -> dict[str, Any]:
    """Decode a header as far as both kinds have it in common."""
    try:
        fields = json.loads(header)
    except (ValueError, RecursionError):
        raise DecodeError("a header is no JSON") from None
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        raise DecodeError(
            "the other side speaks another version; install the same version of xclp everywhere",
            public=True,
        )
    items = fields.get("items")
    for item in items if isinstance(items, list) else [None]:
        if (
            not isinstance(item, list)
            or len(item) != 5
            or not all(isinstance(v, str) for v in item[:2])
            or not all(_is_count(v) for v in item[2:])
        ):
            raise DecodeError("a header lists no messages")
    return fields


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _items(
    fields: Mapping[str, Any], payloads: Iterable[bytes | bytearray | Parts]
) -> tuple[Item, ...]:
    return tuple(
        Item(sender, receiver, number, depth, payload)
        for (sender, receiver, number, depth, _), payload in zip(
            fields["items"], payloads, strict=True
        )
    )


def _counts(fields: Mapping[str, Any], key: str) -> dict[str, int]:
    counts = fields.get(key)
    if not isinstance(counts, dict) or not all(map(_is_count, counts.values())):
        raise DecodeError(f"a header has no counts in {key}")
    return counts


def _names(fields: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = fields.get(key)
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise DecodeError(f"a header has no names in {key}")
    return tuple(names)


def _gone(fields: Mapping[str, Any]) -> dict[str, Reason | None]:
    gone = fields.get("gone")
    if not isinstance(gone, dict):
        raise DecodeError("a header does not say who is gone")
    return {party: None if why is None else _reason(why) for party, why in gone.items()}


def _reason(told: object) -> Reason:
    if not isinstance(told, list) or len(told) != 2 or not all(isinstance(v, str) for v in told):
        raise DecodeError("a header does not say why somebody is gone")
    code, text = told
    return Reason(Code(code) if code in [*Code] else Code.LEFT, printable(text))


def _failure(fields: Mapping[str, Any]) -> Failure | None:
    told = fields.get("failure", ())
    if told is None:
        return None
    if not isinstance(told, list) or len(told) != 4:
        raise DecodeError("a header does not say why somebody failed")
    code, _, text, signed = told
    parties = _names({"failure": told[1]}, "failure")
    if not (_is_count(code) and isinstance(text, str) and isinstance(signed, str)):
        raise DecodeError("a header does not say why somebody failed")
    if len(signed) > 2 * ACCUSATIONS_BYTES:
        raise DecodeError(f"accusations of more than {ACCUSATIONS_BYTES} bytes")
    accusations = Accusation.decode_all(_bytes(signed, "does not say who signed why"))
    return Failure(code, parties, printable(text), accusations)


def _bytes(text: str, problem: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise DecodeError(f"a header {problem}") from None


def _flag(fields: Mapping[str, Any], key: str) -> bool:
    flag = fields.get(key)
    if not isinstance(flag, bool):
        raise DecodeError(f"a header does not say {key}")
    return flag
