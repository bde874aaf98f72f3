"""Which pieces leave, what has arrived and what is acknowledged, without sockets."""

import tracemalloc
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclp_crypto.errors import FaultyPeer
from xclp_crypto.transport.network import mailboxes
from xclp_crypto.transport.network.frames import PIECE_BYTES, Ack, Data, Resume
from xclp_crypto.transport.network.mailboxes import Inbox, Mailboxes, Outbox
from xclp_crypto.transport.replay import Outgoing


def outgoing(number, payload, to="b"):
    return Outgoing(to, number, payload, number + 1, False)


def outbox(payloads, window=100, piece_bytes=4):
    box = Outbox("a", "b", window, piece_bytes)
    for number, payload in enumerate(payloads):
        box.put(outgoing(number, payload))
    return box


def leaving(box):
    """All pieces that may leave, as (number, offset, bytes)."""
    return [(d.number, d.offset, bytes(d.piece)) for d in iter(box.piece, None)]


@given(st.data())
def test_every_message_arrives_once_and_in_order_whatever_breaks(data):
    """Pieces that are lost with the connection, doubled or late do no harm."""
    payloads = data.draw(st.lists(st.binary(max_size=9), max_size=5))
    window = data.draw(st.integers(1, 20))
    box, inbox = outbox(payloads, window), Inbox(0, window)
    wire, got, fed = deque(), [], 0
    box.resume(0)
    for step in range(1000):
        actions = ["send", "carry", "double", "take", "lose", "break"]
        what = data.draw(st.sampled_from(actions)) if step < 60 else "break" if step == 60 else ""
        if what == "lose" and wire:  # a relay whose receiver is away
            wire.popleft()
        if what == "break":  # some of what is on the way arrives after all
            for _ in range(data.draw(st.integers(0, len(wire)))):
                inbox.add(wire.popleft())
            wire.clear()
            box.resume(fed)
        if what in ("send", "") and (piece := box.piece()) is not None:
            wire.append(piece)
        if what in ("carry", "double", "") and wire:
            inbox.add(wire[0])
            if what != "double":
                wire.popleft()
        if what in ("take", "") and inbox.complete:
            got.append(inbox.take()[0])
            fed += 1
            box.acknowledge(fed)
        flying = [len(d.piece) for d in wire]
        assert sum(flying) <= max(window, *map(len, payloads), 0) + max(flying, default=0)
        if len(got) == len(payloads):
            break
    assert got == payloads
    assert box.bytes == 0


def test_a_message_leaves_in_pieces_and_an_empty_one_in_one():
    box = outbox([b"123456789", b"", b"1234"])
    box.resume(0)
    assert box.piece() == Data("a", "b", 0, 1, 9, 0, b"1234")
    assert leaving(box) == [(0, 4, b"5678"), (0, 8, b"9"), (1, 0, b""), (2, 0, b"1234")]
    assert box.piece() is None
    assert box.bytes == 13


def test_pieces_are_as_long_as_a_frame_holds():
    box = Outbox("a", "b", 1)
    box.put(outgoing(0, bytes(PIECE_BYTES + 1)))
    box.resume(0)
    assert [len(piece) for _, _, piece in leaving(box)] == [PIECE_BYTES, 1]


def test_nothing_leaves_before_the_receiver_says_what_it_has():
    box = outbox([b"1"])
    assert box.piece() is None
    box.resume(0)
    assert leaving(box) == [(0, 0, b"1")]
    box.open = False
    box.put(outgoing(1, b"2"))
    assert box.piece() is None


def test_the_window_lets_one_message_or_so_many_bytes_leave():
    box = outbox([b"12345678", b"1", b"23", b"4"], window=3)
    box.resume(0)
    assert [number for number, _, _ in leaving(box)] == [0, 0]
    box.acknowledge(1)
    assert [number for number, _, _ in leaving(box)] == [1, 2]
    box.acknowledge(2)
    assert [number for number, _, _ in leaving(box)] == [3]


def test_after_a_break_what_was_not_acknowledged_leaves_again():
    box = outbox([b"one", b"two+", b"three"])
    box.resume(0)
    box.piece(), box.piece(), box.piece()  # the last one is part of three
    box.resume(1)
    assert leaving(box) == [(1, 0, b"two+"), (2, 0, b"thre"), (2, 4, b"e")]
    box.resume(0)  # an older count, that came late, changes nothing that is acknowledged
    assert leaving(box)[0] == (1, 0, b"two+")
    box.resume(3)
    assert (leaving(box), box.bytes) == ([], 0)


def test_a_message_that_is_acknowledged_while_it_is_sent_again_is_left():
    box = outbox([b"12345678", b"next"])
    box.resume(0)
    box.piece()
    box.acknowledge(1)
    assert leaving(box) == [(1, 0, b"next")]


def test_acknowledging_again_or_less_changes_nothing():
    box = outbox([b"1", b"2"])
    box.resume(0)
    leaving(box)
    for count in (1, 1, 0):
        box.acknowledge(count)
        assert box.bytes == 1


@pytest.mark.parametrize("count", [3, (1 << 64) - 1])
def test_what_a_receiver_has_that_was_never_sent_is_noticed(count):
    for box in (outbox([b"1", b"2"]), outbox([])):
        for hear in (box.resume, box.acknowledge):
            with pytest.raises(FaultyPeer, match=f"that it has {count} messages of a, "):
                hear(count)
        assert not box.open


def add(inbox, number, size, offset, piece=b"four", depth=1):
    inbox.add(Data("a", "b", number, depth, size, offset, piece))


def test_a_piece_after_a_gap_is_left_out():
    inbox = Inbox(2)
    add(inbox, 2, 12, 0)
    for number, size, offset in ((2, 12, 8), (3, 4, 0), (1, 4, 0), (2, 12, 10), (2, 16, 4)):
        add(inbox, number, size, offset)
        assert not inbox.complete
    add(inbox, 2, 12, 4)
    add(inbox, 2, 12, 8, depth=7)
    assert list(inbox.complete) == [(bytearray(b"fourfourfour"), 7)]
    assert inbox.received == 3


@pytest.mark.parametrize(("size", "offset"), [(3, 0), (0, 0), (8, 1 << 63), (0, (1 << 64) - 1)])
def test_a_piece_that_does_not_fit_its_message_is_left_out(size, offset):
    inbox = Inbox(0)
    add(inbox, 0, size, offset)
    assert not inbox.complete
    add(inbox, 0, 4, 0)  # and a message that begins again is whole
    assert list(inbox.complete) == [(bytearray(b"four"), 1)]


def test_attack_7_what_is_announced_takes_no_memory_until_it_comes():
    inbox = Inbox(0)
    tracemalloc.start()
    try:
        for _ in range(100):
            add(inbox, 0, 1 << 31, 0, b"")
            add(inbox, 0, 1 << 31, 0, bytes(1000))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert inbox.bytes == 1000


def test_attack_7_a_receiver_holds_one_message_or_a_window_of_them(monkeypatch):
    inbox = Inbox(0, window=10)
    add(inbox, 0, 12, 0, bytes(12))
    with pytest.raises(FaultyPeer, match=r"a did not follow .* more than the window lets it"):
        add(inbox, 1, 1, 0, b"")
    inbox.take()
    add(inbox, 1, 4, 0)
    add(inbox, 2, 6, 0, bytes(6))
    with pytest.raises(FaultyPeer):
        add(inbox, 3, 1, 0, b"1")
    assert inbox.bytes == 10
    inbox.take()
    monkeypatch.setattr(mailboxes, "MESSAGES", 3)
    for number in (3, 4):
        add(inbox, number, 0, 0, b"")
    with pytest.raises(FaultyPeer):
        add(inbox, 5, 0, 0, b"")
    box = outbox([b""] * 5)
    box.resume(0)
    assert len(leaving(box)) == 3


def test_all_together_hold_so_much_and_who_has_less_than_its_share_is_let(mail):
    """Of 4000 bytes at most; there are two."""
    for sender in ("b", "server"):
        number = 3 if sender == "server" else 0
        mail.take(Data(sender, "a", number, 1, 1000, 0, bytes(1000)))
    mail.take(Data("server", "a", 4, 1, 90, 0, b""))  # half of it, and nobody has more
    with pytest.raises(FaultyPeer, match=r"^server .* 1090 bytes wait here") as caught:
        mail.take(Data("server", "a", 4, 1, 90, 0, bytes(90)))
    assert caught.value.parties == ("server",)
    mail.inboxes["b"].take()
    mail.take(Data("b", "a", 1, 1, 4, 0, b"four"))


def test_an_inbox_that_is_cleared_begins_with_the_first_message():
    inbox = Inbox(0)
    add(inbox, 0, 4, 0)
    add(inbox, 1, 8, 0)
    inbox.clear()
    assert (list(inbox.complete), inbox.received) == ([], 0)
    add(inbox, 0, 8, 4)  # the end of what was begun before
    assert not inbox.complete


@pytest.fixture
def mail():
    return Mailboxes("a", {"b": 0, "server": 3}, window=1000, max_message=1000, memory=4000)


def test_frames_reach_the_mailboxes_of_whom_they_name(mail):
    for to, number in (("b", 0), ("server", 0), ("server", 1)):
        mail.outboxes[to].put(outgoing(number, b"12", to))
    assert mail.waiting == 0  # nobody is there
    mail.take(Resume("a", "server", 1))
    assert mail.waiting == 2
    assert mail.outboxes["server"].piece() == Data("a", "server", 1, 2, 2, 0, b"12")
    mail.take(Ack("a", "server", 2))
    assert (mail.waiting, mail.outboxes["b"].bytes) == (0, 2)
    mail.take(Data("server", "a", 3, 5, 4, 0, b"four"))
    assert list(mail.inboxes["server"].complete) == [(bytearray(b"four"), 5)]
    assert not mail.inboxes["b"].complete
    with pytest.raises(FaultyPeer, match="that it has 3 messages of a, which has sent 2"):
        mail.take(Ack("a", "server", 3))


def test_what_the_role_took_is_acknowledged_once_and_said_on_every_new_connection(mail):
    assert [mail.resume(peer) for peer in ("b", "server")] == [
        Resume("b", "a", 0),
        Resume("server", "a", 3),
    ]
    assert mail.acknowledge({"b": 0, "server": 3}) == []
    assert mail.acknowledge({"b": 2, "server": 3}) == [Ack("b", "a", 2)]
    assert mail.acknowledge({"b": 2, "server": 3}) == []
    assert mail.resume("b") == Resume("b", "a", 2)


def test_what_comes_for_a_role_that_has_ended_is_acknowledged(mail):
    mail.take(Data("b", "a", 0, 1, 4, 0, b"four"))
    mail.take(Data("server", "a", 3, 1, 8, 0, b"half"))
    assert mail.acknowledge_rest() == [Ack("b", "a", 1)]
    assert mail.acknowledge_rest() == []


@pytest.mark.parametrize("size", [1001, (1 << 64) - 1])
def test_a_message_that_is_too_long_is_refused_before_it_is_read(mail, size):
    with pytest.raises(FaultyPeer, match=f"{size} bytes, and at most 1000 are taken") as caught:
        mail.take(Data("b", "a", 0, 1, size, 0, b"four"))
    assert caught.value.parties == ("b",)
    mail.take(Data("b", "a", 0, 1, 1000, 0, bytes(1000)))
    assert len(mail.inboxes["b"].complete) == 1
