"""Identity keys: published vectors, keys that are refused, and what a swapped key leads to."""

import copy
import hashlib
import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from forged import forge
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import agreed_secret, assert_blames, hamming, identities, on, setup, with_session

from xclp_crypto import wire
from xclp_crypto.errors import DecodeError, FaultyPeer, FaultyPeerOrServer, ParameterError
from xclp_crypto.params import MAX_ANNOUNCED, Agreement
from xclp_crypto.primitives.identity import Identity, IdentityKey
from xclp_crypto.primitives.key_agreement import ExchangeKey, KeyPair
from xclp_crypto.primitives.sealed_box import channel_pair
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.protocols.setup.channel import Sealed
from xclp_crypto.protocols.setup.costs import key_exchange_bytes
from xclp_crypto.protocols.setup.key_exchange import _session_id, _signed_directory, _signed_hello
from xclp_crypto.protocols.setup.messages import Directory, Hello, Opening, Openings
from xclp_crypto.protocols.setup.seed_agreement import SeedShare
from xclp_crypto.rng import SeededRng, SystemRng
from xclp_crypto.testing import blamed, deliveries, every_corruption, run
from xclp_crypto.transport.simulate import Faults

VECTORS = Path(__file__).parents[1] / "vectors"
ED25519 = json.loads((VECTORS / "rfc8032_ed25519.json").read_text(encoding="utf-8"))
OWN = json.loads((VECTORS / "own.json").read_text(encoding="utf-8"))
REFUSED = [(why, key) for why, keys in ED25519["refused"].items() for key in keys]
KEY = IdentityKey(bytes(range(32)))

CLIENTS = ("a", "b", "c")
PARTIES = (*CLIENTS, SERVER)
NUMBERS = {"a": [1], "b": [2], "c": [3]}
PINS = identities(PARTIES)


# Signatures.


@pytest.mark.parametrize("vector", ED25519["signatures"], ids=lambda v: v["name"])
def test_rfc_8032_signatures(vector):
    v = {k: bytes.fromhex(x) for k, x in vector.items() if k != "name"}
    key = IdentityKey(v["secret"])
    assert key.public == Identity(v["public"])
    assert key.sign(v["message"]) == v["signature"]
    key.public.verify(v["signature"], v["message"], "anna")


def test_rfc_8032_has_five_vectors():
    assert [v["name"] for v in ED25519["signatures"]] == ["1", "2", "3", "1024", "SHA(abc)"]


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
@settings(max_examples=30, deadline=None)
def test_signatures_are_those_of_a_second_implementation(seed, message):
    key = IdentityKey(seed)
    other = ECC.construct(curve="ed25519", seed=seed)
    assert other.public_key().export_key(format="raw") == key.public.encode()
    assert eddsa.new(other, "rfc8032").sign(message) == key.sign(message)


def test_own_vectors():
    key, tag = IdentityKey(bytes.fromhex(OWN["key"])), bytes.fromhex(OWN["label"])
    assert key.public.to_text() == OWN["identity"]["text"]
    other = ECC.construct(curve="ed25519", seed=bytes.fromhex(OWN["key"]))
    signature = bytes.fromhex(OWN["identity"]["signature_of_label"])
    eddsa.new(other.public_key(), "rfc8032").verify(tag, signature)
    key.public.verify(signature, tag, "anna")


ORDER = 2**252 + 27742317777372353535851937790883648493


def plus_order(signature):
    s = int.from_bytes(signature[32:], "little") + ORDER
    return signature[:32] + s.to_bytes(32, "little")


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s[:-1],
        lambda s: s + b"\0",
        lambda s: b"",
        lambda s: bytes(64),
        lambda s: bytes([s[0] ^ 1]) + s[1:],
        lambda s: s[:63] + bytes([s[63] ^ 1]),
        plus_order,
    ],
    ids=["short", "long", "empty", "zero", "R", "S", "S + order"],
)
def test_any_other_signature_names_the_party(change):
    signature = KEY.sign(b"message")
    KEY.public.verify(signature, b"message", "anna")
    with pytest.raises(FaultyPeer, match="does not verify under its pinned identity") as error:
        KEY.public.verify(change(signature), b"message", "anna")
    assert_blames(error.value, ("anna",))


def test_another_message_or_another_key_names_the_party():
    signature = KEY.sign(b"message")
    for identity, message in [
        (KEY.public, b"massage"),
        (IdentityKey(bytes(32)).public, b"message"),
    ]:
        with pytest.raises(FaultyPeer, match="anna"):
            identity.verify(signature, message, "anna")


# Identities that are refused, and their text.


@pytest.mark.parametrize(("why", "key"), REFUSED)
def test_keys_of_small_order_or_with_a_second_encoding_are_refused(why, key):
    words = "small order|canonical" if why.startswith("small order") else "canonical"
    with pytest.raises(DecodeError, match=words):
        Identity(bytes.fromhex(key))


def test_the_library_alone_would_take_a_key_under_which_anybody_can_sign():
    """Why `Identity` checks: with A = 0 the signature (R, S) = (B, 1) fits every message."""
    neutral = bytes([1]) + bytes(31)
    base_point = bytes.fromhex("58" + "66" * 31)
    forged = base_point + (1).to_bytes(32, "little")
    for message in (b"one", b"two"):
        Ed25519PublicKey.from_public_bytes(neutral).verify(forged, message)
    with pytest.raises(DecodeError, match="anybody can sign"):
        Identity(neutral)


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def ref_point(data):
    """RFC 8032, section 5.1.3: the point of 32 bytes, or None."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - x2) % P or (x == 0 and sign):
        return None
    return (x if x & 1 == sign else P - x, y)


def ref_double(point):
    x, y = point
    k = D * x * x * y * y
    return 2 * x * y * pow(1 + k, -1, P) % P, (y * y + x * x) * pow(1 - k, -1, P) % P


def ref_accepted(data):
    point = ref_point(data)
    if point is None:
        return False
    for _ in range(3):
        point = ref_double(point)
    return point != (0, 1)


def accepted(data):
    try:
        Identity(data)
    except DecodeError:
        return False
    return True


def test_what_is_taken_is_what_the_rfc_decodes_and_is_not_of_small_order():
    assert not any(ref_accepted(bytes.fromhex(key)) for _, key in REFUSED)
    rng = SeededRng(5)
    drawn = [rng.bytes(32) for _ in range(100)]
    taken = [accepted(data) for data in drawn]
    assert taken == [ref_accepted(data) for data in drawn]
    assert 20 < sum(taken) < 80  # half of all y have a point


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(33), "x" * 32, bytearray(32), None])
def test_identities_of_another_length_or_type_are_refused(data):
    with pytest.raises(DecodeError, match="32 bytes"):
        Identity(data)


def test_the_text_of_an_identity_is_read_back():
    text = KEY.public.to_text()
    assert text == "xclp-ed25519:" + KEY.public.encode().hex()
    assert Identity.from_text(text) == KEY.public
    assert {Identity.from_text(text): 1}[KEY.public] == 1
    assert text in repr(KEY.public)


TEXT = KEY.public.to_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT.removeprefix("xclp-ed25519:"),
        TEXT[:-1],
        TEXT + "0",
        TEXT + "\n",
        " " + TEXT,
        TEXT.upper(),
        TEXT[:13] + TEXT[13:].upper(),
        TEXT[:15] + " " + TEXT[15:],
        TEXT.replace("ed25519", "ed448"),
        TEXT[:-1] + "g",
        None,
        TEXT.encode(),
    ],
)
def test_any_other_text_is_refused_and_not_repeated(text):
    with pytest.raises(DecodeError, match="64 lower-case hexadecimal digits") as error:
        Identity.from_text(text)
    assert not text or str(text) not in str(error.value)


def test_text_of_a_refused_key_is_refused():
    with pytest.raises(DecodeError, match="small order"):
        Identity.from_text("xclp-ed25519:" + "00" * 32)


# Keys.


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33), "x" * 32, bytearray(32), None])
def test_identity_keys_of_another_length_or_type_are_refused(seed):
    with pytest.raises(ParameterError, match="32 bytes"):
        IdentityKey(seed)


def test_an_identity_key_comes_from_the_generator_and_can_be_exported_on_purpose():
    key = IdentityKey.generate(SeededRng(1))
    assert key.export_private() == SeededRng(1).bytes(32)
    assert IdentityKey(key.export_private()).public == key.public
    assert len({IdentityKey.generate(SystemRng()).public for _ in range(5)}) == 5


@pytest.mark.parametrize("secret", [KEY, PINS["a"]], ids=["key", "identities"])
def test_keys_show_nothing_and_are_not_pickled_or_copied(secret):
    assert repr(secret) == str(secret) == f"<{type(secret).__name__}>"
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds a secret"):
            action(secret)


def test_what_is_pinned_is_checked_and_does_not_change_later():
    pinned = {"a": KEY.public}
    held = Identities(KEY, pinned)
    pinned["a"] = IdentityKey(bytes(32)).public
    assert held.of("a") == KEY.public
    with pytest.raises(TypeError):
        held.pinned["a"] = pinned["a"]
    with pytest.raises(ParameterError, match=r"'a' must be an Identity .*from_text.*, got str"):
        Identities(KEY, {"a": TEXT})
    with pytest.raises(ParameterError, match="own must be an IdentityKey, got bytes"):
        Identities(bytes(32), {})


# Runs with identities.


async def give_session(session, rng):
    return session


def signed(**options):
    return setup(numbers=NUMBERS, **{"identities": PINS, **options})


BITS = {c: np.eye(4, 9, k, dtype=np.uint8)[: k + 1] for k, c in enumerate(CLIENTS)}


@pytest.mark.parametrize("backend", ["masked", "rlwe"])
def test_with_identities_everything_on_top_is_as_without(backend):
    with_pins = run(hamming(backend, BITS, identities=PINS)).raise_errors()
    without = run(hamming(backend, BITS)).raise_errors()
    assert (with_pins.results[SERVER].matrix == without.results[SERVER].matrix).all()
    assert not with_pins.unread
    assert with_pins.cost.messages == without.cost.messages


def test_a_session_knows_whether_it_is_authenticated():
    for pins in (PINS, None):
        outcome = run(with_session(CLIENTS, give_session, give_session, identities=pins))
        sessions = outcome.raise_errors().results
        assert {p: s.authenticated for p, s in sessions.items()} == dict.fromkeys(
            PARTIES, pins is not None
        )
        assert len({s.id for s in sessions.values()}) == 1


@pytest.mark.parametrize("p", [2, 3, 9])
def test_bytes_are_those_of_the_formulas(p):
    clients = tuple(f"c{i}" for i in range(p))
    numbers = {c: [4, 7] for c in clients}
    pins = identities((*clients, SERVER))
    for held, fields, signature, kem in ((None, 1, 0, 1184), (None, 1, 0, 0), (pins, 2 + p, 64, 0)):
        make = setup(clients, numbers=numbers, identities=held, post_quantum=bool(kem))
        sent = deliveries(make)
        sizes = {d.message: len(d.payload) - wire.TAG_BYTES for d in sent}
        # 96 + kem + agreement + 4·numbers + signature
        assert sizes["Hello"] == 96 + kem + 8 * fields + 8 + signature
        # 32 + ⌈p/8⌉ + p·(96 + kem + 4·numbers + signature) + signature
        assert sizes["Directory"] == 32 - (-p // 8) + p * (96 + kem + 8 + signature) + signature
        dims = {"numbers": 2, "signature": signature, "kem": kem}
        assert sizes["Hello"] == Hello.size(agreement=8 * fields, **dims)
        assert sizes["Directory"] == Directory.size(invited=p, **dims)
        if held is None:
            exchanged = Counter()
            for d in sent:
                if not d.message.startswith("Sealed"):
                    exchanged[d.sender, d.receiver] += len(d.payload)
            assert key_exchange_bytes(clients, 8, 2, post_quantum=bool(kem)) == exchanged


def test_an_absent_client_is_left_out_of_a_signed_session():
    make = with_session(CLIENTS, give_session, give_session, identities=PINS)
    outcome = run(make, Faults(dropouts={"b": 0})).raise_errors()
    assert {outcome.results[p].clients for p in ("a", "c", SERVER)} == {("a", "c")}


def test_an_address_book_may_hold_others_too():
    stranger = IdentityKey(bytes(32)).public
    pins = {p: Identities(h.own, {**h.pinned, f"known to {p}": stranger}) for p, h in PINS.items()}
    run(signed(identities=pins)).raise_errors()


# Pins that do not fit.


def other_pin(held, party, key=None):
    """`held`, with another identity pinned for `party`."""
    return Identities(key or held.own, {**held.pinned, party: IdentityKey(bytes(32)).public})


@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("missing", PARTIES)
def test_a_missing_pin_is_named_before_anything_is_sent(party, missing):
    held = PINS[party]
    fewer = Identities(held.own, {p: i for p, i in held.pinned.items() if p != missing})
    outcome = run(signed(identities={**PINS, party: fewer}))
    assert isinstance(outcome.errors[party], ParameterError)
    assert f"no identity is pinned for '{missing}'" in str(outcome.errors[party])
    assert outcome.operations[party] == 0


@pytest.mark.parametrize("party", PARTIES)
def test_an_own_key_that_is_not_the_pinned_one_is_refused_before_anything_is_sent(party):
    wrong = Identities(IdentityKey(bytes(32)), PINS[party].pinned)
    outcome = run(signed(identities={**PINS, party: wrong}))
    error = outcome.errors[party]
    assert isinstance(error, ParameterError)
    assert IdentityKey(bytes(32)).public.to_text() in str(error)
    assert PINS[party].of(party).to_text() in str(error)
    assert outcome.operations[party] == 0


@pytest.mark.parametrize("of", PARTIES)
def test_a_client_with_another_pin_is_named_by_the_agreement(of):
    key = IdentityKey(bytes(32)) if of == "b" else None  # a key that the others do not know
    outcome = run(signed(identities={**PINS, "b": other_pin(PINS["b"], of, key)}))
    error = outcome.errors[SERVER]
    assert_blames(
        error, ("b",), f"must agree on identity of {of} (here '{PINS[SERVER].of(of).to_text()}')"
    )
    assert str(error).count("identity of") == 1
    assert set(outcome.errors) == set(PARTIES)


def test_a_client_with_or_without_identities_among_others_is_named():
    without = {p: h for p, h in PINS.items() if p != "b"}
    for pins in (without, {"b": PINS["b"]}):
        outcome = run(signed(identities=pins))
        error = outcome.errors[SERVER]
        assert_blames(error, ("b",))
        how = "with" if pins is without else "without"
        assert f"this party runs {how} identities, " in str(error)
        assert not outcome.results


# Messages altered on the way.

DIMS = {"numbers": 1, "signature": 64, "kem": 0}
AGREED = 8 * (1 + len(PARTIES))  # the version, and who pins whom


def edit(payload, **changes):
    """Change fields of a Directory or Hello by functions of their values."""
    if payload.startswith(Hello.TAG.to_bytes(2, "big")):
        return forge(payload, Hello, changes, agreement=AGREED, **DIMS)
    return forge(payload, Directory, changes, invited=3, **DIMS)


def hello_of(client):
    return lambda d: d.message == "Hello" and d.sender == client


def directory_to(*clients):
    return lambda d: d.message == "Directory" and d.receiver in clients


FRESH = KeyPair(bytes([7]) * 32).public.encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"key": lambda k: FRESH},
        {"values": lambda v: v + 1},
        {"signature": lambda s: bytes(64)},
        {"signature": lambda s: PINS["a"].own.sign(b"another message")},
        {"signature": lambda s: s[:-1]},
        {"signature": lambda s: b""},
    ],
    ids=["key", "numbers", "zero", "other message", "short", "stripped"],
)
def test_an_altered_hello_is_refused_by_the_server_and_names_the_client(changes):
    outcome = run(signed(), on(hello_of("b"), lambda d: edit(d.payload, **changes)))
    assert_blames(outcome.errors[SERVER], ("b",))
    assert not outcome.results
    assert {t.message for t in outcome.cost.messages} == {"Hello"}


def at(position, value):
    return lambda items: tuple(value if i == position else x for i, x in enumerate(items))


def row(position):
    def change(values):
        changed = values.copy()
        changed[position] += 1
        return changed

    return change


SWAPS = {
    "key of b": {"keys": at(1, FRESH)},
    "numbers of b": {"values": row(1)},
    "commitment of b": {"commitments": at(1, bytes(32))},
    "signing key of b": {"verify_keys": at(1, FRESH)},
    "signature of b": {"signatures": at(1, bytes(64))},
    "signature of b is that of c": {"signatures": lambda s: (s[0], s[2], s[2])},
    "b has key and signature of c": {
        "keys": lambda k: (k[0], k[2], k[2]),
        "signatures": lambda s: (s[0], s[2], s[2]),
    },
}
"""What a server, or a relay, may do to the entry of client b."""


@pytest.mark.parametrize("victims", [("a",), ("a", "c")], ids=["one", "all"])
@pytest.mark.parametrize("signs", [True, False], ids=["the server", "a relay"])
@pytest.mark.parametrize("swap", SWAPS)
def test_a_swapped_entry_names_the_server_and_whose_key_it_swapped(swap, signs, victims):
    agreement = PINS[SERVER].bind(Agreement(version=1), SERVER, CLIENTS)

    def change(delivery):
        changed = edit(delivery.payload, **SWAPS[swap])
        if not signs:
            return changed
        directory = wire.decode(Directory, changed, invited=3, **DIMS)
        statement = _signed_directory(directory, CLIENTS, agreement)
        return wire.encode(replace(directory, signature=PINS[SERVER].own.sign(statement)))

    outcome = run(signed(), on(directory_to(*victims), change))
    for victim in victims:
        assert_blames(outcome.errors[victim], (SERVER,), "swapped the key of b")


@pytest.mark.parametrize(
    "changes",
    [
        {"server_key": lambda k: FRESH},
        {"commitments": lambda c: (c[0], bytes(32), c[2])},
        {"present": lambda p: np.array([True, False, True])},
        {"signature": lambda s: bytes(64)},
        {"signature": lambda s: s[:-1]},
        {"signature": lambda s: b""},
        {"signature": lambda s: PINS["c"].own.sign(b"")},
        {"signatures": lambda s: (b"",) * 3},
        {"signatures": lambda s: (b"",) * 3, "signature": lambda s: b""},
        {"signatures": lambda s: (s[1], s[1], s[2])},
    ],
    ids=[
        *(
            "server key",
            "commitment of b",
            "b absent",
            "zero",
            "short",
            "stripped",
            "other",
            "clients'",
        ),
        *("all stripped", "own"),
    ],
)
def test_what_a_relay_does_to_the_directory_blames_the_server(changes):
    outcome = run(signed(), on(directory_to("a"), lambda d: edit(d.payload, **changes)))
    assert_blames(outcome.errors["a"], (SERVER,))


def test_a_signature_from_a_session_with_other_numbers_does_not_serve():
    """The same key and the same identities; only what was announced differs."""
    earlier = next(
        d.payload for d in deliveries(signed()) if d.message == "Hello" and d.sender == "b"
    )
    make = setup(numbers={**NUMBERS, "b": [9]}, identities=PINS)
    later = next(d.payload for d in deliveries(make) if d.message == "Hello" and d.sender == "b")
    assert earlier[:50] == later[:50]  # tag, key, agreement
    outcome = run(make, on(hello_of("b"), lambda d: d.payload[:-64] + earlier[-64:]))
    assert outcome.errors[SERVER].parties == ("b",)
    swapped = on(directory_to("a"), lambda d: edit(d.payload, signatures=at(1, earlier[-64:])))
    assert "swapped the key of b" in str(run(make, swapped).errors["a"])


def test_a_signature_serves_for_one_name_one_list_and_one_agreement():
    values = np.array([1, 2], dtype=np.uint32)
    hello = Hello(FRESH, b"", bytes(32), PINS["a"].own.public.encode(), bytes(16), values, b"")
    statements = {
        _signed_hello("a", hello, ("a", "b")),
        _signed_hello("b", hello, ("a", "b")),
        _signed_hello("a", hello, ("b", "a")),
        _signed_hello("a", hello, ("a", "b", "c")),
        _signed_hello("a", replace(hello, agreement=bytes(24)), ("a", "b")),
        _signed_hello("a", replace(hello, key=bytes(32)), ("a", "b")),
        _signed_hello("a", replace(hello, kem_key=bytes(1184)), ("a", "b")),
        _signed_hello("a", replace(hello, commitment=bytes(31) + b"1"), ("a", "b")),
        _signed_hello("a", replace(hello, verify_key=bytes(32)), ("a", "b")),
        _signed_hello("a", replace(hello, values=hello.values[:1]), ("a", "b")),
    }
    assert len(statements) == 10


def test_a_replayed_directory_is_noticed_because_it_lacks_the_fresh_key():
    earlier = {d.receiver: d.payload for d in deliveries(signed(seed=1)) if "Dir" in d.message}
    replay = on(lambda d: d.message == "Directory", lambda d: earlier[d.receiver])
    errors = run(signed(seed=2), replay).errors
    for client in CLIENTS:
        assert errors[client].parties == (SERVER,)
        assert "as it announced itself" in str(errors[client])


def test_a_replayed_hello_makes_a_client_seem_present_only_until_it_has_to_open_a_value():
    """The first message cannot be fresh; but nobody can speak for the client that it shows."""
    earlier = next(
        d.payload for d in deliveries(signed(seed=1)) if d.message == "Hello" and d.sender == "b"
    )
    sessions = {}

    async def client(session, rng):
        sessions[session.io.name] = session.clients
        return await agreed_secret(session, rng)

    async def server(session, rng):
        from xclp_crypto.protocols.setup import seed_agreement_server

        return await seed_agreement_server(session)

    make = with_session(CLIENTS, client, server, seed=2, numbers=NUMBERS, identities=PINS)
    outcome = run(make, on(hello_of("b"), lambda p: earlier))
    assert set(outcome.errors) == {"b"}  # where b is there itself, it notices
    assert outcome.errors["b"].parties == (SERVER,)
    assert sessions == {"a": ("a", "c"), "c": ("a", "c")}
    assert outcome.results[SERVER] == ("a", "c")
    assert outcome.results["a"] == outcome.results["c"]


def test_every_corruption_of_signed_messages_names_the_server_or_the_client():
    cases = 0
    for case in every_corruption(signed(), which=lambda d: d.message in ("Hello", "Directory")):
        if case.tamper == "lost":
            continue
        cases += 1
        sender, receiver = case.delivery.sender, case.delivery.receiver
        error = case.outcome.errors[receiver]
        assert (type(error), error.parties) == (FaultyPeer, (sender,)), case
        assert receiver not in case.outcome.results, case
    assert cases > 60


# A server that cheats.


def cheating(entries_for, pins=None, forge=None):
    """A server that checks nothing and shows `entries_for(victim, hellos)` to each client.

    `forge(victim, key, session_id)` learns what it sent.
    """
    numbers = 0

    async def role(io):
        agreement = Agreement(version=1)
        if pins is not None:
            agreement = pins.bind(agreement, SERVER, CLIENTS)
        signature = 0 if pins is None else 64
        dims = {"numbers": numbers, "signature": signature, "kem": 0}
        hellos = await io.gather(Hello, CLIENTS, agreement=agreement.size, **dims)
        shown = {}
        for victim in CLIENTS:
            keys, signatures = entries_for(victim, hellos)
            directory = Directory(
                KeyPair(bytes(32)).public.encode(),
                np.ones(3, bool),
                keys,
                (b"",) * 3,
                tuple(hellos[c].commitment for c in CLIENTS),
                tuple(hellos[c].verify_key for c in CLIENTS),
                np.zeros((3, numbers), np.uint32),
                signatures,
                bytes(signature),
            )
            if pins is not None:
                statement = _signed_directory(directory, CLIENTS, agreement)
                directory = replace(directory, signature=pins.own.sign(statement))
            shown[victim] = directory
            await io.send(victim, directory)
        got = await io.gather(Opening, CLIENTS, 0, count=0)
        values = tuple(got[c].value if c in got else bytes(32) for c in CLIENTS)
        opened = Openings(np.ones(3, bool), values, ())
        for victim, directory in shown.items():
            if forge is not None:
                session_id = _session_id(agreement, directory, opened, CLIENTS)
                forge(victim, ExchangeKey(hellos[victim].key), session_id)
            await io.send(victim, opened)

    return role


SECRETS = {c: hashlib.sha256(c.encode()).digest() for c in CLIENTS}


def eavesdropped(pins):
    """Clients tell each other their secrets; the server puts its keys in place of theirs.

    Returns the outcome and what the server read, by sender and receiver.
    """
    mine = {c: KeyPair(c.encode() * 32) for c in CLIENTS}  # one for each whose place it takes
    links, read = {}, {}

    def own_keys(victim, hellos):
        keys = tuple(hellos[c].key if c == victim else mine[c].public.encode() for c in CLIENTS)
        return keys, tuple(hellos[c].signature for c in CLIENTS)

    def forge(victim, key, session_id):
        for other in CLIENTS:  # plays each other client to the victim
            if other != victim:
                secret = mine[other].shared_secret(key, victim)
                links[victim, other] = channel_pair(secret, other, victim, session_id)

    def relay(delivery):
        pair = delivery.sender, delivery.receiver
        if not delivery.message.startswith("Sealed") or SERVER in pair:
            return delivery.payload
        sealed = wire.decode(Sealed, delivery.payload, body=32)
        tag = sealed.inner_tag
        read[pair] = links[pair][1].open(sealed.box, tag)
        return wire.encode(Sealed(tag, links[pair[::-1]][0].seal(read[pair], tag)))

    async def client(session, rng):
        await session.io.send(session.peers, SeedShare(SECRETS[session.io.name]))
        got = await session.io.gather(SeedShare, session.peers)
        return {c: m.value for c, m in got.items()}

    make = with_session(CLIENTS, client, give_session, identities=pins)
    roles = {**make(), SERVER: cheating(own_keys, pins and pins[SERVER], forge)}
    return run(lambda: roles, Faults(on_message=relay)), read


def test_limit_without_identities_a_server_that_swaps_keys_reads_everything_unnoticed():
    outcome, read = eavesdropped(None)
    assert not outcome.errors
    for client in CLIENTS:
        assert outcome.results[client] == {c: SECRETS[c] for c in CLIENTS if c != client}
    assert read == {(c, d): SECRETS[c] for c in CLIENTS for d in CLIENTS if c != d}


def test_with_identities_every_client_names_the_server_that_swaps_keys():
    outcome, read = eavesdropped(PINS)
    assert not read
    assert set(outcome.errors) == set(CLIENTS)
    for client, error in outcome.errors.items():
        assert_blames(error, (SERVER,))
        other = next(c for c in CLIENTS if c != client)
        assert f"swapped the key of {other}" in str(error)


def test_a_server_that_shows_the_clients_their_own_entries_is_not_noticed():
    """The cheating server of these tests is one that works, as long as it does not cheat."""

    def honest(victim, hellos):
        return tuple(hellos[c].key for c in CLIENTS), tuple(hellos[c].signature for c in CLIENTS)

    make = with_session(CLIENTS, give_session, give_session, identities=PINS)
    roles = {**make(), SERVER: cheating(honest, PINS[SERVER])}
    sessions = run(lambda: roles).raise_errors().results
    assert sessions["a"].id == sessions["b"].id


def announcing(key, pins):
    """A client b that announces this public key, signed if there are pins, and does no more."""

    async def b(io):
        agreement = Agreement(version=1)
        no_values = np.zeros(0, np.uint32)
        signing = IdentityKey(bytes([9]) * 32).public.encode()
        hello = Hello(key, b"", bytes(32), signing, agreement.encode(), no_values, b"")
        if pins is not None:
            agreed = pins["b"].bind(agreement, "b", CLIENTS).encode()
            hello = replace(hello, agreement=agreed)
            statement = _signed_hello("b", hello, CLIENTS)
            hello = replace(hello, signature=pins["b"].own.sign(statement))
        await io.send(SERVER, hello)

    return b


def as_announced(victim, hellos):
    return tuple(hellos[c].key for c in CLIENTS), tuple(hellos[c].signature for c in CLIENTS)


@pytest.mark.parametrize("pins", [PINS, None], ids=["signed", "unsigned"])
def test_a_weak_key_that_a_client_signed_is_certainly_its_own_fault(pins):
    """The server does not refuse it; with identities it cannot have made it up either."""
    make = with_session(CLIENTS, give_session, give_session, identities=pins)
    cheat = cheating(as_announced, pins and pins[SERVER])
    error = run(lambda: {**make(), "b": announcing(bytes(32), pins), SERVER: cheat}).errors["a"]
    assert type(error) is (FaultyPeer if pins else FaultyPeerOrServer)
    assert blamed(error) == ({"b"} if pins else {"b", SERVER})
    assert "small order" in str(error)


@pytest.mark.parametrize("pins", [PINS, None], ids=["signed", "unsigned"])
@pytest.mark.parametrize("echoed", ["a", SERVER])
def test_attack_6_an_echoed_key_is_refused_by_all_even_if_the_server_passes_it_on(echoed, pins):
    servers = KeyPair(bytes(32)).public.encode()  # which the cheating server uses
    a = KeyPair.generate(SeededRng(0).child("a")).public.encode()
    make = with_session(CLIENTS, give_session, give_session, identities=pins)
    b = announcing({"a": a, SERVER: servers}[echoed], pins)
    cheat = cheating(as_announced, pins and pins[SERVER])
    errors = run(lambda: {**make(), "b": b, SERVER: cheat}).errors
    assert_blames(errors["c"], ("a", "b", SERVER) if echoed == "a" else (SERVER, "b"), "echoes")
    assert set(errors["a"].parties) == {"b", SERVER}  # nobody blames itself
    if echoed == "a":
        assert_blames(run(lambda: {**make(), "b": b}).errors[SERVER], ("a", "b"), "echoes")


def test_one_identity_pinned_for_two_parties_is_refused_naming_them():
    held = Identities(PINS["a"].own, {**PINS["a"].pinned, "c": PINS["a"].pinned["b"]})
    with pytest.raises(ParameterError, match="pinned for 'b' and for 'c'"):
        held.bind(Agreement(), "a", CLIENTS)
    held.bind(Agreement(), "a", ("a", "b"))  # an address book may have it under an older name


def test_an_excessive_number_that_a_client_signed_names_it_at_the_server():
    def too_many(delivery):
        hello = wire.decode(Hello, delivery.payload, agreement=AGREED, **DIMS)
        hello = replace(hello, values=np.array([MAX_ANNOUNCED + 1], np.uint32))
        statement = _signed_hello("b", hello, CLIENTS)
        return wire.encode(replace(hello, signature=PINS["b"].own.sign(statement)))

    error = run(signed(), on(hello_of("b"), too_many)).errors[SERVER]
    assert_blames(error, ("b",), str(MAX_ANNOUNCED))
