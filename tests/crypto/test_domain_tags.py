"""Domain separation: tags are injective, typed and versioned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import ParameterError

items = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.integers(0, 2**70),
    st.binary(max_size=6),
)
arguments = st.tuples(st.text("abc", min_size=1, max_size=3), st.lists(items, max_size=4))


def parse(tag: bytes) -> list[str | int | bytes]:
    """Decode a label again, which shows that the encoding is injective."""
    assert tag[:6] == b"xclp/1"
    out, rest = [], tag[6:]
    while rest:
        tag, length = rest[:1], int.from_bytes(rest[1:9], "big")
        content, rest = rest[9 : 9 + length], rest[9 + length :]
        assert len(content) == length
        decode = {b"s": bytes.decode, b"b": bytes, b"i": lambda c: int.from_bytes(c, "big")}[tag]
        out.append(decode(content))
    return out


@given(arguments)
def test_a_label_can_be_parsed_back_so_it_is_injective(args):
    purpose, context = args
    parsed = parse(domain_tag(purpose, *context))
    assert parsed == [purpose, *context]
    assert [type(x) for x in parsed] == [str, *map(type, context)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("a", "b", "c"), ("a", "bc")),
        (("a", ""), ("a",)),
        (("a", "1"), ("a", 1)),
        (("a", b"1"), ("a", "1")),
        (("a", 0), ("a", b"")),
        (("a", 1), ("a", b"\x01")),
        (("a", 1, 2), ("a", 2, 1)),
        (("a", 256), ("a", 1, 0)),
    ],
)
def test_arguments_that_look_alike_give_different_labels(one, other):
    assert domain_tag(*one) != domain_tag(*other)


def test_the_layout_is_version_then_type_length_content():
    u64 = [n.to_bytes(8, "big") for n in range(4)]
    expected = b"xclp/1" + b"s" + u64[3] + b"key" + b"i" + u64[2] + b"\x01\x00" + b"b" + u64[0]
    assert domain_tag("key", 256, b"") == expected


@pytest.mark.parametrize(
    "bad", [True, False, 1.0, None, ("a",), bytearray(b"a"), memoryview(b"a"), -1, "\ud800"]
)
def test_other_types_negative_integers_and_broken_text_are_refused(bad):
    with pytest.raises(ParameterError):
        domain_tag("purpose", bad)


@pytest.mark.parametrize("bad", ["", b"", b"purpose", 3, None])
def test_the_purpose_is_text_and_not_empty(bad):
    with pytest.raises(ParameterError):
        domain_tag(bad)
