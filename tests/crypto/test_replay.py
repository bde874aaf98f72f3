import copy
import errno
import io
import os
import stat
import struct
import tracemalloc

import numpy as np
import protocol_runs as runs
import pytest
from durable_runs import KEY, Engine, durable, seedless, started
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xclp_crypto import wire
from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    LogError,
    LogInUseError,
    LogRolledBack,
    ParameterError,
    ReplayError,
    Stalled,
    StorageError,
)
from xclp_crypto.fields import Uints
from xclp_crypto.protocols.setup import SealedIO
from xclp_crypto.rng import SeededRng
from xclp_crypto.role import recorded
from xclp_crypto.testing import run
from xclp_crypto.transport import log as logs
from xclp_crypto.transport.failures import Code, Reason
from xclp_crypto.transport.log import Log, LogKey
from xclp_crypto.transport.replay import DurableRole
from xclp_lp.messages import Labelled, Sensitivity

RNG = np.random.default_rng(0)
SUM = runs.secure_sum({c: RNG.integers(0, 9, 5) for c in "abc"}, fraction_bits=0)
BITS = {c: RNG.integers(0, 2, (2, 16), dtype=np.uint8) for c in "abc"}
PROTOCOLS = {
    "sum": SUM,
    "row sums": runs.row_sums(
        {c: RNG.normal(size=(6, 2)) for c in "abc"},
        {c: [2 * i, 2 * i + 1] for i, c in enumerate("abc")},
    ),
    "masked": runs.hamming("masked", BITS),
    "rlwe": runs.hamming("rlwe", {c: BITS[c] for c in "ab"}),
    "shade": runs.hamming("shade", {c: BITS[c][:1, :4] for c in "ab"}),
}


def plain(result):
    """What can be compared of a result."""
    if isinstance(result, np.ndarray):
        return result.tolist()
    if hasattr(result, "__dataclass_fields__"):
        return {k: plain(getattr(result, k)) for k in result.__dataclass_fields__}
    if hasattr(result, "matrix"):
        return result.matrix.tolist(), result.sizes
    return repr(result)


def log_of(*records):
    """A log in memory that has these records."""
    log = Log.from_bytes(b"", KEY)
    assert list(log.replay()) == []
    for kind, *parts in records:
        log.append(kind, *parts)
    return log


def pieces(data):
    """Where the pieces of a log end, from the header on."""
    at = 26
    ends = [at]
    while at < len(data):
        at += 20 + struct.unpack_from(">I", data, at)[0]
        ends.append(at)
    return ends


@pytest.fixture(scope="module", params=PROTOCOLS)
def finished(request):
    make = PROTOCOLS[request.param]
    return make, Engine(seedless(make)).run()


def test_durable_roles_give_what_the_simulation_gives(finished):
    make, engine = finished
    outcome = run(make)
    assert {n: plain(r) for n, r in engine.results().items()} == {
        n: plain(r) for n, r in outcome.results.items()
    }
    costs = [party.cost for party in engine.parties.values()]
    assert sum(c.total_bytes for c in costs) == outcome.cost.total_bytes
    assert max(c.rounds for c in costs) == outcome.cost.rounds


def test_a_role_stopped_after_any_record_goes_on_with_the_same_bytes(finished):
    """Every beginning of every log: rebuilt from it, the role does the rest as it did before."""
    _, engine = finished
    for name in engine.roles:
        peers = [peer for peer in engine.roles if peer != name]
        whole = engine.parties[name]._log.to_bytes()
        expected = plain(engine.parties[name].result())
        inputs = [data for kind, data in Log.from_bytes(whole, KEY).replay() if kind == 3]
        ends = pieces(whole)
        for end in ends[1 :: max(1, len(ends) // 12)]:
            party = started(name, engine.roles[name], peers, whole[: end + 5 * (end % 2)])
            for data in inputs[sum(party.fed.values()) :]:
                length, depth = struct.unpack_from(">HI", data)
                party.feed(data[6 : 6 + length].decode(), data[6 + length :], depth)
                party.run()
            for out in party.outgoing():
                assert engine.sent[name, out.to][out.number] == out.payload
            assert plain(party.result()) == expected
            assert party.cost.messages == engine.parties[name].cost.messages


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_parties_killed_at_random_end_with_the_same_bytes_and_results(protocol, seed):
    make = PROTOCOLS[protocol]
    chance = np.random.default_rng(seed)
    reference = Engine(seedless(make)).run()

    def kill(engine, name):
        if chance.random() < 0.15:
            engine.rebuild(str(chance.choice(list(engine.parties))))

    engine = Engine(seedless(make)).run(kill)
    assert engine.sent == reference.sent
    assert {n: plain(r) for n, r in engine.results().items()} == {
        n: plain(r) for n, r in reference.results().items()
    }


def test_the_seed_of_a_role_is_in_its_log():
    async def role(io, rng):
        return rng.bytes(8)

    def start(data, seed):
        log = Log.from_bytes(data, KEY)
        party = DurableRole("a", role, log, peers=["b"], rng=SeededRng(seed))
        party.run()
        return party, log.to_bytes()

    first, data = start(b"", 1)
    again, _ = start(data, 2)
    other, _ = start(b"", 2)
    assert first.result() == again.result() != other.result()
    assert first.instance == again.instance != other.instance
    assert b"" not in (first.instance, first.result())


async def _late(io, rng):
    got = await io.gather(Labelled, ("a", "b"), 1)
    return sorted(got)


def test_a_wait_that_ended_ends_the_same_way_again():
    message = wire.encode(Labelled())
    party = started("server", _late, ["a", "b"])
    assert party.waiting.missing == ("a", "b")
    assert not party.waiting.patient
    party.feed("b", message)
    party.run()
    party.give_up()
    party.run()
    assert party.result() == ["b"]
    again = durable("server", _late, ["a", "b"], party._log.to_bytes())
    assert again.result() == ["b"]


def test_without_anybody_the_wait_ends_in_an_error_again():
    async def role(io, rng):
        return await io.recv(Labelled, "b")

    party = started("a", role, ["b"])
    party.give_up()
    party.run()
    again = durable("a", role, ["b"], party._log.to_bytes())
    for rebuilt in (party, again):
        with pytest.raises(Stalled, match="no Labelled from b"):
            rebuilt.result()


def test_a_message_that_does_not_decode_is_the_same_fault_again():
    party = started("server", _late, ["a", "b"])
    for sender, payload in (("b", b"\x10\x04"), ("a", b"xyz")):
        party.feed(sender, payload)
    party.run()
    again = durable("server", _late, ["a", "b"], party._log.to_bytes())
    for rebuilt in (party, again):
        with pytest.raises(FaultyPeer, match=r"^a did not"):
            rebuilt.result()


def test_messages_fed_early_are_kept():
    async def role(io, rng):
        for frm in "ab":
            await io.recv(Labelled, frm)
        return "both"

    message = wire.encode(Labelled())
    party = started("c", role, ["a", "b"])
    party.feed("b", message)
    again = durable("c", role, ["a", "b"], party._log.to_bytes())
    again.feed("a", message)
    with pytest.raises(ParameterError, match=r"call run\(\) first"):
        again.feed("a", message)
    with pytest.raises(ParameterError, match=r"call run\(\) first"):
        again.give_up()
    with pytest.raises(ParameterError, match="has not ended"):
        again.result()
    again.run()
    assert again.result() == "both"
    assert again.fed == {"a": 1, "b": 1}
    with pytest.raises(ParameterError, match="does not wait"):
        again.give_up()


# What a replay refuses


def sending(payload):
    async def role(io, rng):
        await io.send("b", Sensitivity(payload))
        await io.recv(Labelled, "b")

    return role


def test_a_replay_that_would_send_other_bytes_is_refused():
    party = started("a", sending(1.0), ["b"])
    data = party._log.to_bytes()
    assert durable("a", sending(1.0), ["b"], data).outgoing()[0].before
    with pytest.raises(ReplayError, match="would send other bytes to b than before"):
        durable("a", sending(2.0), ["b"], data)


def test_a_replay_that_does_other_things_is_refused():
    async def ends(io, rng):
        return None

    async def waits(io, rng):
        await io.recv(Labelled, "b")

    party = started("a", sending(1.0), ["b"])
    for role, words in ((ends, "has ended where"), (waits, "waits where")):
        with pytest.raises(ReplayError, match=f"a {words} the log has a message that it sends"):
            durable("a", role, ["b"], party._log.to_bytes())


def test_a_log_of_another_party_or_binding_is_refused():
    party = durable("a", sending(1.0), ["b"])
    data = party._log.to_bytes()
    party.close()
    with pytest.raises(LogError, match="of another party"):
        durable("c", sending(1.0), ["b"], data)
    with pytest.raises(LogError, match="other parameters or other data"):
        DurableRole("a", sending(1.0), Log.from_bytes(data, KEY), peers=["b"], binding=b"other")


def test_a_log_that_comes_to_another_record_than_the_role_is_refused():
    """It sends where the log has that a message arrived."""

    async def sends(io, rng):
        await io.send("b", Sensitivity(1.0))

    async def receives(io, rng):
        await io.recv(Labelled, "b")

    party = started("a", receives, ["b"])
    party.feed("b", wire.encode(Labelled()))
    words = "a comes to a message that it sends where the log has a message that arrives"
    with pytest.raises(ReplayError, match=words):
        durable("a", sends, ["b"], party._log.to_bytes())


@pytest.mark.parametrize(("kind", "record", "words"), [
    *((3, record, "has a message of nobody") for record in (b"\0\1\0\0\0\1z", b"\0\0\0")),
    *((7, record, "why nobody") for record in (b"", b"\0\1", b"\0\1b", b"\0\1z\0")),
])  # fmt: skip
def test_a_log_with_a_record_of_nobody_is_refused(kind, record, words):
    async def receives(io, rng):
        await io.recv(Labelled, "b")

    party = started("a", receives, ["b"])
    party._log.append(kind, record)
    with pytest.raises(LogError, match=words):
        durable("a", receives, ["b"], party._log.to_bytes())


def test_a_role_that_has_ended_takes_nothing_and_keeps_nothing():
    async def ends(io, rng):
        return "early"

    party = started("a", ends, ["b"])
    data = party._log.to_bytes()
    party.feed("b", b"late")
    party.advance()
    assert party.result() == "early"
    assert party.fed == {"b": 0}
    assert party._log.to_bytes() == data


def test_the_last_note_and_the_first_reason_or_fault_are_kept_wherever_they_are_in_the_log():
    party = durable("a", sending(1.0), ["b"])
    assert party.note == b""
    party.keep(b"before")
    party.run()
    party.keep(b"between")
    party.keep(b"after")
    for reason in (Reason(), Reason(Code.LEFT, "not first"), fault := Reason(Code.FAULTY, "lies")):
        party.note_reason("b", reason)
    again = durable("a", sending(1.0), ["b"], party._log.to_bytes())
    assert party.note == again.note == b"after"
    assert party.reasons == again.reasons == {"b": fault}
    again.run()
    assert [out.before for out in again.outgoing()] == [True]


def _item(kind, data):
    return kind + len(data).to_bytes(8, "big") + data


def _archive():
    buffer = io.BytesIO()
    np.savez(buffer, np.arange(3))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (b"\1", "a recorded result does not"),
        (b"\1" + _item(b"c", b"xyz"), "a recorded result does not"),
        (b"\0" + _item(b"b", b"xyz")[:-1], "a recorded result does not"),
        (b"\1" + _item(b"a", b"no array"), "a recorded array does not"),
        (b"\1" + _item(b"a", b""), "a recorded array does not"),
        (b"\1" + _item(b"a", _archive()), "a recorded array does not"),
    ],
)
def test_recorded_results_that_do_not_decode_are_refused(result, words):
    """As another program with the key of the log would write them."""

    async def role(io, rng):
        return await io.compute(recorded(lambda: b"bytes"))

    party = durable("a", role, ["b"])
    party._log.append(5, result)
    data = party._log.to_bytes()
    party.close()
    with pytest.raises(DecodeError, match=words):
        durable("a", role, ["b"], data)


def test_recorded_results_are_taken_from_the_log_and_others_are_computed_again():
    calls = []

    @recorded
    def kept(n):
        calls.append("kept")
        return np.arange(n, dtype=np.float32), b"bytes"

    def again(n):
        calls.append("again")
        return n

    async def role(io, rng):
        array, data = await io.compute(kept, 3)
        return array.tolist(), str(array.dtype), data, await io.compute(again, 4)

    party = started("a", role, ["b"])
    assert calls == ["kept", "again"]
    rebuilt = durable("a", role, ["b"], party._log.to_bytes())
    assert calls == ["kept", "again", "again"]
    assert rebuilt.result() == party.result() == ([0.0, 1.0, 2.0], "float32", b"bytes", 4)


def test_a_recorded_error_is_raised_again():
    @recorded
    def fails():
        raise FaultyPeer("b", "on purpose")

    async def role(io, rng):
        await io.compute(fails)

    party = started("a", role, ["b"])
    for rebuilt in (party, durable("a", role, ["b"], party._log.to_bytes())):
        with pytest.raises(FaultyPeer, match="on purpose"):
            rebuilt.result()


def test_what_a_log_cannot_keep_must_not_be_marked():
    async def role(io, rng):
        await io.compute(recorded(lambda: {1}))

    party = durable("a", role, ["b"])
    with pytest.raises(ParameterError, match="returns set; a log keeps arrays"):
        party.run()


# The file


def write(path, records, key=KEY, begun=(), **places):
    """Write records that last, and then some of which that is not sure."""
    log = Log.open(path, key, **places)
    assert list(log.replay()) == []
    for record in records:
        log.append(*record)
    log.sync()
    for record in begun:
        log.append(*record)
    log.close()


RECORDS = [(1, b"secret " * 10), (2, b""), (3, bytes(range(256)))]


def test_a_log_file_is_private_encrypted_and_read_back(tmp_path):
    path = tmp_path / "a.log"
    old = os.umask(0)
    try:
        write(path, RECORDS)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"secret" not in path.read_bytes()
    path.chmod(0o644)
    log = Log.open(path, KEY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(log.replay()) == RECORDS
    log.append(4, b"more")
    log.close()
    log = Log.open(path, KEY)
    assert [kind for kind, _ in log.replay()] == [1, 2, 3, 4]
    log.close()


class Numbers(wire.Message):
    """Any number of integers."""

    TAG = 0xFF55
    values: NDArray[np.uint64] = wire.sent(Uints("n", n_bytes=8))


@pytest.mark.parametrize("sealed", [False, True])
def test_a_large_message_is_in_memory_twice_at_most(tmp_path, sealed):
    """At its sender and at its receiver, from the array to the array."""
    n = 1 << 21
    limit = 2 * 8 * n + 5 * logs.PIECE_BYTES

    def channel(io, peer):
        return SealedIO(io, {peer: bytes(32)}, b"session") if sealed else io

    async def sender(io, rng):
        await channel(io, "b").send("b", Numbers(np.arange(n, dtype=np.uint64)))

    async def receiver(io, rng):
        return (await channel(io, "a").recv(Numbers, "a", n=n)).values

    def peak(function):
        tracemalloc.reset_peak()
        result = function()
        return result, tracemalloc.get_traced_memory()[1]

    a = DurableRole("a", sender, Log.open(tmp_path / "a", KEY), peers="b")
    b = DurableRole("b", receiver, Log.open(tmp_path / "b", KEY), peers="a")
    b.run()
    tracemalloc.start()
    try:
        _, sending = peak(a.run)
        arrived = [bytearray(a.outgoing().pop().payload)]

        def receive():
            b.feed("a", arrived.pop())
            b.run()
            return b.result()

        values, receiving = peak(receive)
    finally:
        tracemalloc.stop()
    a.close()
    b.close()
    assert values[5] == 5
    assert 8 * n < sending < limit
    assert 8 * n < receiving < limit


def test_large_records_are_cut_into_pieces(monkeypatch):
    monkeypatch.setattr(logs, "PIECE_BYTES", 7)
    records = [(1, b""), (2, bytes(7)), (3, bytes(range(50)))]
    data = log_of(*records[:2], (3, bytes(range(3)), bytes(range(3, 50)))).to_bytes()
    assert list(Log.from_bytes(data, KEY).replay()) == records
    for cut in range(len(data)):
        assert list(Log.from_bytes(data[:cut], KEY).replay()) == [
            record for record, end in zip(records, _ends(data), strict=True) if end <= cut
        ]


def _ends(data):
    ends = pieces(data)
    return [ends[1], ends[2], ends[-1]]


def test_a_torn_end_is_cut_off_and_written_again(tmp_path):
    path = tmp_path / "a.log"
    write(path, RECORDS[:2], begun=RECORDS[2:])
    whole = path.read_bytes()
    ends = pieces(whole)
    tails = [whole[ends[2] : ends[3] - 1], whole[ends[2] : ends[2] + 3], bytes(50)]
    tails.append(whole[ends[2] : ends[2] + 30] + bytes(ends[3] - ends[2] - 30))
    for tail in tails:
        path.write_bytes(whole[: ends[2]] + tail)
        log = Log.open(path, KEY)
        assert list(log.replay()) == RECORDS[:2]
        log.append(*RECORDS[2])
        log.close()
        log = Log.open(path, KEY)
        assert list(log.replay()) == RECORDS
        log.close()


def read(path, **places):
    log = Log.open(path, KEY, **places)
    try:
        return list(log.replay())
    finally:
        log.close()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_attack_10_an_older_log_is_refused_by_the_file_that_says_how_far_it_got(
    tmp_path, elsewhere
):
    path, other = tmp_path / "a.log", tmp_path / "b.log"
    epoch = tmp_path / "epochs" if elsewhere else tmp_path / "a.log.epoch"
    places = {"epoch": epoch} if elsewhere else {}
    party = DurableRole("a", sending(1.0), Log.open(path, KEY, **places), peers=["b"])
    party.run()
    party.outgoing()
    party.close()
    whole, noted = path.read_bytes(), epoch.read_bytes()
    assert stat.S_IMODE(epoch.stat().st_mode) == 0o600
    path.write_bytes(whole[: pieces(whole)[1]])
    with pytest.raises(LogRolledBack, match="was rolled back: it has 1 of the 2 records that"):
        read(path, **places)
    write(other, RECORDS)
    path.write_bytes(other.read_bytes())
    with pytest.raises(LogRolledBack, match=r"not the log that .* tells of"):
        read(path, **places)
    path.write_bytes(whole)
    assert len(read(path, **places)) == 2
    epoch.unlink()
    with pytest.raises(LogRolledBack, match=r"may be an older copy: .*, which says how far"):
        read(path, **places)
    for data, words in ((noted[:-1] + b"?", "is damaged"), (b"of another program", "does not say")):
        epoch.write_bytes(data)
        with pytest.raises(LogError, match=words):
            read(path, **places)
        assert epoch.read_bytes() == data
    epoch.write_bytes(noted)
    path.unlink()
    write(path, [], begun=RECORDS, **places)  # a new log is of nothing that was sent
    assert read(path, **places) == RECORDS  # and it was killed before it was sure of anything


def test_any_altered_byte_of_a_log_is_refused():
    whole = log_of(*RECORDS).to_bytes()
    for at in range(len(whole)):
        altered = bytearray(whole)
        altered[at] ^= 1
        with pytest.raises(LogError):
            list(Log.from_bytes(bytes(altered), KEY).replay())


def test_records_that_change_places_are_refused():
    whole = log_of((1, b"one"), (1, b"two")).to_bytes()
    first, middle, _ = pieces(whole)
    swapped = whole[:first] + whole[middle:] + whole[first:middle]
    with pytest.raises(LogError, match="does not open"):
        list(Log.from_bytes(swapped, KEY).replay())


def test_attack_11_a_passphrase_of_32_bytes_is_not_a_raw_key(tmp_path):
    path = tmp_path / "a.log"
    words = LogKey.from_text("correct horse battery staple! 32\n")  # a passphrase of 32 bytes
    write(path, RECORDS, words)
    assert path.read_bytes()[7:10] == bytes([2, 1, 17])
    log = Log.open(path, words)
    assert list(log.replay()) == RECORDS
    log.close()
    with pytest.raises(LogError, match="under a passphrase, and a key of 32 bytes was given"):
        Log.open(path, LogKey(b"correct horse battery staple! 32"))
    assert LogKey.from_text("00" * 32 + "\n").kind == 0
    assert LogKey.from_text("00 " * 32).kind == LogKey.from_text("٠" * 64).kind == 1
    with pytest.raises(ParameterError, match="at least 12 bytes, got 5"):
        LogKey.from_text("short")
    with pytest.raises(ParameterError, match="is 32 bytes, got 31"):
        LogKey(bytes(31))
    assert repr(words) == "<LogKey>"
    with pytest.raises(TypeError, match="neither pickled nor copied"):
        copy.copy(words)


@pytest.mark.parametrize("cost", [10, 16, 21, 255])
def test_attack_11_who_makes_passphrases_cheap_or_opening_dear_is_refused(cost):
    """Whoever can write the file; nothing is computed before."""
    cheap = Log.from_bytes(b"", LogKey.of_passphrase("correct horse", cost=10)).to_bytes()
    altered = cheap[:9] + bytes([cost]) + cheap[10:]
    with pytest.raises(LogError, match=rf"scrypt's N is 2\^{cost}; it is 2\^17"):
        Log.from_bytes(altered, LogKey.from_text("correct horse"))


def test_other_files_and_versions_are_refused_and_left_as_they_are(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"something else, longer than a header of a log")
    path.chmod(0o644)
    with pytest.raises(LogError, match="is not a log of xclp"):
        Log.open(path, KEY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_bytes().startswith(b"something else")
    data = bytearray(Log.from_bytes(b"", KEY).to_bytes())
    data[7] = 9
    with pytest.raises(LogError, match="has version 9 and this program writes version 2"):
        Log.from_bytes(bytes(data), KEY)


def test_one_program_uses_a_log_at_a_time(tmp_path):
    first = Log.open(tmp_path / "a.log", KEY)
    with pytest.raises(LogInUseError, match="in use by another program"):
        Log.open(tmp_path / "a.log", KEY)
    first.close()
    Log.open(tmp_path / "a.log", KEY).close()


def test_appending_before_reading_is_refused():
    log = Log.from_bytes(b"", KEY)
    with pytest.raises(LogError, match="not read"):
        log.append(1, b"")


def test_a_piece_under_the_right_key_that_is_too_short_is_refused():
    log = log_of()
    log._append_piece(b"k")
    with pytest.raises(LogError, match="another key was given, or it is damaged"):
        list(Log.from_bytes(log.to_bytes(), KEY).replay())


def _no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_log_that_cannot_be_synced_is_said_and_nothing_leaves(tmp_path, monkeypatch):
    party = DurableRole("a", sending(1.0), Log.open(tmp_path / "a.log", KEY), peers=["b"])
    party.run()
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _no_space)
        for _ in range(2):  # it is not forgotten
            with pytest.raises(StorageError, match=r"a\.log cannot be written: No space left"):
                party.outgoing()
    assert [out.number for out in party.outgoing()] == [0]
    party.close()


def test_a_new_log_whose_folder_cannot_be_synced_is_free_again(tmp_path, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _no_space)
        with pytest.raises(StorageError, match="cannot be written: No space left"):
            Log.open(tmp_path / "a.log", KEY)
    Log.open(tmp_path / "a.log", KEY).close()


def test_a_log_that_cannot_be_cut_is_said():
    class Fixed(io.BytesIO):
        truncate = _no_space

    with pytest.raises(StorageError, match="a torn log cannot be written: No space left"):
        list(Log(Fixed(), KEY, name="a torn log").replay())


class Full(io.BytesIO):
    """A file on a disk that is full after some bytes."""

    room = 150

    def write(self, data):
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_full_disk_is_said_and_nothing_leaves(tmp_path):
    log = Log(Full(), KEY, name="the log a.log")
    party = DurableRole("a", sending(1.0), log, peers=["b"])
    with pytest.raises(StorageError, match=r"the log a.log cannot be written: No space left"):
        party.run()
    assert party.outgoing() == []
    party.close()
    with pytest.raises(StorageError, match="cannot be opened: No such file"):
        Log.open(tmp_path / "nowhere" / "a.log", KEY)
