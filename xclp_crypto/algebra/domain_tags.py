"""Domain separation: one domain tag for every use of a hash, a key derivation or a generator."""

from __future__ import annotations

from typing import TypeAlias

from xclp_crypto.errors import ParameterError

Context: TypeAlias = str | int | bytes
"""What a tag can be bound to: a name, a non-negative index, or bytes such as a digest."""

VERSION = b"xclp/1"


def domain_tag(purpose: str, *context: Context) -> bytes:
    """Encode a purpose and its context (session, role, index, …) injectively.

    The encoding is `"xclp/1"` and then, for the purpose and for every item of the context, one type
    byte (`s` UTF-8 text, `i` unsigned big-endian integer without leading zeros, `b` bytes), the
    length as 8 bytes big-endian, and the content. Different arguments never give the same tag,
    nor do arguments of different types such as `1`, `"1"` and `b"1"`.

    Args:
        purpose: what the tag is for, not empty; say it once in the whole package.
        context: text, integers ≥ 0 of any size, or bytes.

    Returns:
        6 + Σ (9 + content bytes) bytes.

    Raises:
        ParameterError: an empty purpose, a negative integer, text that is not Unicode, or any other
            type; `bool` too, because `True` would be the same as 1.

    Examples:
        >>> from xclp_crypto.algebra.domain_tags import domain_tag
        >>> domain_tag("mask", "ab", 1) == domain_tag("mask", "a", "b1")
        False
    """
    if not isinstance(purpose, str) or not purpose:
        raise ParameterError(f"the purpose of a tag is text that is not empty, got {purpose!r}")
    return VERSION + b"".join(map(_field, (purpose, *context)))


def _field(item: Context) -> bytes:
    if isinstance(item, str):
        tag = b"s"
        try:
            content = item.encode()
        except UnicodeEncodeError as error:
            raise ParameterError(f"a tag's text must be valid Unicode: {error}") from None
    elif isinstance(item, bytes):
        tag, content = b"b", item
    elif isinstance(item, int) and not isinstance(item, bool):
        if item < 0:
            raise ParameterError(f"a tag's integers must not be negative, got {item}")
        tag, content = b"i", item.to_bytes((item.bit_length() + 7) // 8, "big")
    else:
        raise ParameterError(f"a tag is made of str, int and bytes, got {type(item).__name__}")
    return tag + len(content).to_bytes(8, "big") + content
