"""The bytes of frames, without sockets."""

import struct
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xclp_crypto.errors import (
    CertificateRefused,
    DataError,
    FaultyPeer,
    FaultyPeerOrServer,
    LogError,
    ParameterError,
    ProtocolError,
    ReplayError,
    StorageError,
    TooFewParties,
    VersionMismatch,
)
from xclp_crypto.transport.failures import (
    ACCUSATIONS_BYTES,
    Accusation,
    Code,
    Failure,
    Reason,
    verdict,
    waits_to_end,
)
from xclp_crypto.transport.network.frames import (
    HEAD,
    PIECE_BYTES,
    Ack,
    Beat,
    Bye,
    Codec,
    Data,
    DroppedOut,
    End,
    Hello,
    Ready,
    Refused,
    Resume,
    Welcome,
    head_of,
    heard,
    told,
)

PARTIES = ("a", "b", "server")
CODEC = Codec(PARTIES)
U16, U32, U64 = (
    st.sampled_from([0, 1, (1 << n) - 1]) | st.integers(0, (1 << n) - 1) for n in (16, 32, 64)
)
ENDS = st.permutations(PARTIES).map(lambda order: order[:2])
SIXTEEN = st.binary(min_size=16, max_size=16)
FRAMES = st.one_of(
    st.just(Ready()),
    st.builds(
        Hello,
        dry=st.booleans(),
        instance=SIXTEEN,
        incarnation=SIXTEEN,
        agreement=st.binary(max_size=40),
    ),
    st.builds(Welcome, SIXTEEN),
    st.builds(Refused, st.binary(min_size=1, max_size=40)),
    st.builds(lambda ends, count: Resume(*ends, count), ENDS, U64),
    st.builds(lambda ends, count: Ack(*ends, count), ENDS, U64),
    st.builds(lambda ends, *n: Data(*ends, *n, b"piece"), ENDS, U64, U32, U64, U64),
    st.builds(Beat, st.booleans(), U64, st.binary(max_size=2)),
    st.builds(DroppedOut, st.sampled_from(PARTIES), st.binary(max_size=40)),
    st.builds(lambda why: Bye(not why, why), st.binary(max_size=40)),
    st.just(End(False)),
    st.builds(lambda why: End(True, why), st.binary(min_size=1, max_size=40)),
)  # fmt: skip
EXAMPLES = [
    Ready(),
    Hello(instance=bytes(16), incarnation=bytes(range(16)), agreement=b"agreed"),
    Welcome(bytes(16)),
    Refused(b"\0why"),
    Resume("a", "server", 7),
    Ack("a", "b", 1 << 63),
    Data("server", "b", 3, 1, 10, 4, b"piece"),
    Beat(True, 5, b"\3"),
    DroppedOut("b", b"\3late"),
    Bye(True),
    End(True, b"\1why"),
]


def written(frame):
    return b"".join(CODEC.encode(frame))


def read(data):
    length, kind = head_of(data[: HEAD.size])
    assert length == len(data) - HEAD.size
    return CODEC.decode(kind, data[HEAD.size :])


@given(FRAMES)
def test_what_is_written_is_read(frame):
    assert read(written(frame)) == frame


@given(st.integers(1, 11), st.binary(max_size=48))
def test_what_is_read_is_what_was_written(kind, body):
    """Every frame has one form."""
    try:
        frame = CODEC.decode(kind, body)
    except VersionMismatch:
        return
    if not isinstance(frame, DroppedOut) or frame.party:
        assert written(frame) == HEAD.pack(len(body), kind) + body


def test_the_bytes_of_every_kind():
    bodies = [
        b"XCLP-NET\0\1",
        b"XCLP-NET\0\1\0" + bytes(16) + bytes(range(16)) + b"agreed",
        bytes(16),
        b"\0why",
        bytes([0, 0, 0, 2, *bytes(7), 7]),
        bytes([0, 0, 0, 1, 128, *bytes(7)]),
        struct.pack(">HHQIQQ", 2, 1, 3, 1, 10, 4) + b"piece",
        b"\1" + bytes(7) + b"\5\3",
        b"\0\1\3late",
        b"\1",
        b"\1\1why",
    ]
    for kind, (frame, body) in enumerate(zip(EXAMPLES, bodies, strict=True), 1):
        assert written(frame) == struct.pack(">IB", len(body), kind) + body


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda f: type(f).__name__)
def test_a_body_that_is_cut_off_or_too_long_is_refused(frame):
    kind, body, fixed = frame.KIND, written(frame)[HEAD.size :], frame.LAYOUT.size
    least = fixed + (type(frame) in (Refused, End))
    for cut in (*range(least), *(() if frame.REST else (fixed + 1,))):
        altered = (body + b"\0")[:cut]
        with pytest.raises(VersionMismatch, match=f"a frame of kind {kind} has {cut} bytes"):
            CODEC.decode(kind, altered)


@pytest.mark.parametrize(("frame", "at"), [(EXAMPLES[i], 10 * (i == 1)) for i in (1, 7, 9, 10)])
def test_a_flag_is_0_or_1(frame, at):
    body = bytearray(written(frame)[HEAD.size :])
    body[at] = 2
    with pytest.raises(VersionMismatch, match="has a flag that is neither 0 nor 1"):
        CODEC.decode(frame.KIND, bytes(body))


def test_a_session_that_ended_well_has_no_reason():
    with pytest.raises(VersionMismatch, match="a frame of kind 11 has 2 bytes"):
        CODEC.decode(11, b"\0\0")


@pytest.mark.parametrize("kind", [Resume, Ack, Data])
@pytest.mark.parametrize("ends", [(0, 3), (3, 0), (0, 0), (65535, 65535)])
def test_both_ends_are_different_parties(kind, ends):
    body = struct.pack(">HH", *ends) + bytes(kind.LAYOUT.size - 4)
    with pytest.raises(VersionMismatch, match="a frame names no parties of this session"):
        CODEC.decode(kind.KIND, body)


@pytest.mark.parametrize("number", [3, 65535])
def test_who_is_given_up_may_be_nobody_here(number):
    assert CODEC.decode(DroppedOut.KIND, struct.pack(">H", number)) == DroppedOut("")


def test_a_bit_says_of_each_party_whether_it_is_among_them():
    for names in ((), "a", PARTIES):
        assert CODEC.marked(CODEC.bits(names)) == {*names}
    assert CODEC.bits("ab") == b"\3"
    with pytest.raises(VersionMismatch, match="a frame names no parties of this session"):
        CODEC.marked(b"\x08")


@pytest.mark.parametrize(
    ("waits", "ends"),
    [
        ({}, {}),
        ({"a": "e", "b": "e"}, {"a": "e", "b": "e"}),
        ({"a": "be", "b": "e"}, {"b": "e"}),  # a may yet get something of b
        ({"a": "be", "b": "e", "e": "a"}, {"a": "e", "b": "e"}),  # e lies, or two do
        ({"a": "b", "b": "ae"}, {"a": "b", "b": "a"}),
    ],
)
def test_who_goes_on_without_whom_where_nobody_can_go_on(waits, ends):
    found = waits_to_end({name: {*lacks} for name, lacks in waits.items()})
    assert {n: "".join(sorted(lacks)) for n, lacks in found.items() if lacks} == ends


@pytest.mark.parametrize("head", [
    (12, 0), (12, 12), (12, 255), (PIECE_BYTES + Data.LAYOUT.size + 1, 7), ((1 << 32) - 1, 1)
])  # fmt: skip
def test_no_frame_is_of_another_kind_or_longer(head):
    with pytest.raises(VersionMismatch, match="sends no frames of this protocol; check address"):
        head_of(HEAD.pack(*head))
    assert head_of(HEAD.pack(PIECE_BYTES + Data.LAYOUT.size, 7)) == (PIECE_BYTES + 32, 7)


def test_versions_are_compared_before_anything_else_of_a_greeting():
    ready = struct.pack(">8sH", b"XCLP-NET", 9)
    with pytest.raises(VersionMismatch, match="server speaks version 9 and this program version 1"):
        CODEC.decode(Ready.KIND, ready)
    with pytest.raises(VersionMismatch, match="speaks version 1 and the client version 9; install"):
        CODEC.decode(Hello.KIND, ready + b"\7" + bytes(32))
    for kind, rest in ((Ready, b""), (Hello, bytes(33))):
        with pytest.raises(VersionMismatch, match="does not speak this protocol"):
            CODEC.decode(kind.KIND, b"GET / HT\0\1" + rest)


def test_a_piece_is_not_copied():
    piece = memoryview(bytearray(b"piece"))
    assert CODEC.encode(Data("a", "b", 0, 1, 5, 0, piece))[1] is piece
    body = written(Data("a", "b", 0, 1, 5, 0, piece))[HEAD.size :]
    assert CODEC.decode(Data.KIND, body).piece.obj is body


@pytest.mark.parametrize("frame", EXAMPLES[4:9], ids=lambda f: type(f).__name__)
def test_numbers_that_do_not_fit_are_not_written(frame):
    for field in fields(frame):
        if field.type == "int":
            values = {f.name: getattr(frame, f.name) for f in fields(frame)}
            for number in (-1, 1 << 64):
                with pytest.raises(struct.error):
                    CODEC.encode(type(frame)(**values | {field.name: number}))


@pytest.mark.parametrize("error", [
    ProtocolError("x"), DataError("x"), ParameterError("x"), CertificateRefused("x"),
    VersionMismatch("x"), LogError("x"), FaultyPeer("a", "x"), ReplayError("x"), StorageError("x"),
])  # fmt: skip
def test_errors_keep_their_type_on_the_way(error):
    got = heard(told(Failure.of(error, "sum"))).heard("the server", ("a", "b"))
    told_types = (DataError, ParameterError, CertificateRefused, VersionMismatch, LogError)
    kept = [kind for kind in told_types if isinstance(error, kind)]
    if isinstance(error, FaultyPeer):  # the server says so
        assert (type(got), got.parties) == (FaultyPeerOrServer, error.parties)
        assert got.reason == f"the server: {error.public('sum')}"
    else:
        assert type(got) is (kept[0] if kept else ProtocolError)
        assert str(got) == f"the server: {error.public('sum')}"


def test_what_is_heard_is_one_line_of_any_bytes_and_what_is_told_fits_a_frame():
    got = heard(b"\0\0\1\0\0aone\ntwo\x1b[2J\xff").heard("b", ("b",))  # nobody here is a
    assert str(got) == "b: one two [2J\ufffd"
    for why in (b"", b"\xc8", b"\7\xff\xff", b"\7\0\5\0\0a\0b\xff\0x"):
        assert type(heard(why).heard("b", ())) is ProtocolError
    assert heard(b"\7\0\3\0\0a\0b").heard("c", ("a", "b")).parties == ("a", "b")
    error = FaultyPeer(("é" * 99,) * 999, "é" * PIECE_BYTES, public=True)
    assert len(told(Failure.of(error))) == PIECE_BYTES


def test_accusations_are_told_as_far_as_they_fit_and_nothing_is_made_of_others():
    one = Accusation("a", ("b", "ç"), 7, "sum", b"s" * 64)
    long = Accusation("c", ("d" * ACCUSATIONS_BYTES,), 7, "sum", b"s" * 64)
    failure = Failure(7, ("b",), "why", (one, long, one))
    why = told(failure)
    assert heard(why) == replace(failure, accusations=(one, one))
    at = len(told(replace(failure, accusations=()))) - len("why")
    for wrong in (b"\0", b"\xff\xff", b"\0\1"):  # of the bytes of its names
        place = at + 65
        got = heard(why[:place] + wrong.ljust(2, b"\0") + why[place + 2 :])
        assert got == replace(failure, accusations=())


def test_why_somebody_is_missing_is_a_code_and_one_line():
    for code in Code:
        reason = Reason(code, "row 3")
        assert Reason.decode(reason.encode()) == reason
    assert Reason.decode(b"\xffone\ntwo\xff") == Reason(Code.LEFT, "one two\ufffd")
    assert len(Reason(Code.LEFT, "é" * 999).encode()) == 1001


def test_others_are_told_type_step_and_parties_and_no_text_that_is_not_marked():
    text = "row 3: 'swan' is no class"
    known = {
        DataError(text): "DataError in step 'sum'",
        FaultyPeerOrServer(("a", "b"), text): (
            "a or b (or the server that relays its messages) did not follow the protocol in step "
            "'sum'"
        ),
        DataError("no labels", public=True): "no labels",
        FaultyPeer("a", "is late", public=True): "a did not follow the protocol: is late",
        TooFewParties("sum", 1, 2): str(TooFewParties("sum", 1, 2)),
    }
    for error, public in known.items():
        assert Failure.of(error, "sum", "; without b").text == f"{public}; without b"
    assert DataError(text).public() == "DataError"


@pytest.mark.parametrize(
    ("accusations", "parties"),
    [
        ({"a": "d"}, "da"),
        ({"a": "d", "d": "a"}, "da"),
        ({"a": "d", "b": "d"}, "dab"),  # half of them may lie
        ({"a": "d", "b": "d", "c": "d"}, "d"),
        ({"b": "acd", "c": "abd", "d": "abc"}, "acdb"),  # each of three others, or one of them
        ({"a": ""}, "a"),  # it blames the server, which knows that it is not it
    ],
)
def test_whom_most_blame_alone_is_at_fault_and_else_one_of_accused_and_accusers(
    accusations, parties
):
    assert set(verdict(accusations, "abcd")) == set(parties)
