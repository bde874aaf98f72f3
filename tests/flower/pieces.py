"""Messages in Flower's records: in pieces, and in memory about twice."""

import tracemalloc

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from xclp_crypto.errors import DecodeError
from xclp_crypto.transport.flower.records import (
    HEADER,
    PAYLOADS,
    PIECE_BYTES,
    bytes_of,
    pack,
    unpack_answer,
    unpack_ask,
)
from xclp_crypto.transport.questions import Answer, Ask, Item, Parts

MAX = 1 << 30
EMPTY = Array(dtype="uint8", shape=(0,), stype="bytes", data=b"")


def random_bytes(size):
    """Bytes of which no two pieces are equal; Flower moves equal ones once."""
    return np.random.default_rng(size).bytes(size)


def over_flower(content):
    """The same content after Flower took it apart and put it together."""
    contents = {key: obj.deflate() for key, obj in get_all_nested_objects(content).items()}
    return inflate_object_from_contents(content.object_id, contents)


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [1, 0, 2], [PIECE_BYTES], [PIECE_BYTES - 1, 2, 3 * PIECE_BYTES + 5], [7] * 50],
)
def test_what_is_packed_is_unpacked(sizes):
    items = tuple(
        Item("a", "b", i, i + 1, (bytes(range(256)) * (size // 256 + 1))[:size])
        for i, size in enumerate(sizes)
    )
    ask = Ask(items, {"b": 3}, {"c": None}, end=True)
    assert unpack_ask(over_flower(pack(ask)), MAX) == ask
    answer = Answer("a", b"i" * 16, items, {"b": 1}, {"b": 0}, ("b",), more=True, ended=False)
    content = over_flower(pack(answer))
    assert sum(sizes) < bytes_of(content) < sum(sizes) + 300 + 40 * len(sizes)
    assert max(len(piece.data) for piece in [*content[PAYLOADS].values(), EMPTY]) <= PIECE_BYTES
    assert unpack_answer(content, MAX, "b") == answer


@pytest.mark.parametrize(
    "sizes", [[], [0], [3, 2 * PIECE_BYTES + 1, 4], [PIECE_BYTES], [PIECE_BYTES - 1] * 3]
)
def test_what_is_handed_on_is_what_came(sizes):
    items = tuple(
        Item("a", "b" if i % 2 == 0 else "server", i, 1, random_bytes(size))
        for i, size in enumerate(sizes)
    )
    got = unpack_answer(over_flower(pack(Answer("a", items=items))), MAX, "server")
    assert [i.whole for i in got.items] == [i.payload for i in items]
    assert [len(i.payload) for i in got.items] == sizes
    assert [isinstance(i.payload, Parts) for i in got.items] == [
        i % 2 == 0 for i in range(len(sizes))
    ]
    ask = unpack_ask(over_flower(pack(Ask(got.items))), MAX)
    assert [i.payload for i in ask.items] == [i.payload for i in items]


def test_a_message_of_200_megabytes_is_in_memory_twice():
    size = 200_000_000
    tracemalloc.start()
    content = pack(Ask((Item("a", "b", 0, 1, bytes(size)),)))
    packed = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    ask = unpack_ask(content, MAX)
    unpacked = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(packed, unpacked) < 2.1 * size
    assert len(ask.items[0].payload) == size


def test_handing_a_message_on_takes_no_memory():
    size = 50_000_000
    content = pack(Answer("a", items=(Item("a", "b", 0, 1, bytes(size)),)))
    tracemalloc.start()
    answer = unpack_answer(content, MAX, "server")
    content = pack(Ask(answer.items))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < PIECE_BYTES + 1_000_000 + size % PIECE_BYTES
    assert unpack_ask(content, MAX).items[0].payload == bytes(size)


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({HEADER: ConfigRecord({"header": "{}"})}),
        RecordDict({HEADER: ConfigRecord({"other": 1}), PAYLOADS: ArrayRecord()}),
        RecordDict({HEADER: ConfigRecord({"header": "{}"}), PAYLOADS: ArrayRecord()}),
    ],
)
def test_what_is_no_message_of_the_app_is_refused(content):
    with pytest.raises(DecodeError):
        unpack_ask(content, MAX)


def test_pieces_that_are_missing_are_noticed():
    content = pack(Ask((Item("a", "b", 0, 1, bytes(PIECE_BYTES + 1)),)))
    del content.array_records[PAYLOADS]["1"]
    with pytest.raises(DecodeError, match="announces 4194305 bytes and has 4194304"):
        unpack_ask(content, MAX)


def test_messages_that_are_too_long_are_refused():
    with pytest.raises(DecodeError, match="at most 9"):
        unpack_ask(pack(Ask((Item("a", "b", 0, 1, bytes(10)),))), 9)
