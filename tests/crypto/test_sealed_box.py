"""X25519 and sealing: published vectors, a second implementation, everything that must not open."""

import copy
import json
import pickle
from pathlib import Path

import pytest
from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import DecodeError, FaultyPeer, ParameterError, ReuseError
from xclp_crypto.primitives import sealed_box
from xclp_crypto.primitives.key_agreement import (
    CIPHERTEXT_BYTES,
    ExchangeKey,
    KemPair,
    KeyPair,
    hybrid_secret,
)
from xclp_crypto.primitives.sealed_box import OVERHEAD, SealedBox, channel_pair
from xclp_crypto.rng import SeededRng, SystemRng

VECTORS = Path(__file__).parents[1] / "vectors"
X25519 = json.loads((VECTORS / "rfc7748_x25519.json").read_text(encoding="utf-8"))
GCM = json.loads((VECTORS / "aes256.json").read_text(encoding="utf-8"))["gcm"]
OWN = json.loads((VECTORS / "own.json").read_text(encoding="utf-8"))
SHARED = bytes(range(32))


def x25519(private: bytes, u: bytes) -> bytes:
    return KeyPair(private).shared_secret(ExchangeKey(u), "peer")


def link():
    """Both directions at both ends of one link."""
    return channel_pair(SHARED, "alice", "bob", b"s"), channel_pair(SHARED, "bob", "alice", b"s")


# X25519.


@pytest.mark.parametrize("vector", X25519["values"])
def test_rfc_7748_function_values(vector):
    scalar, u, output = (bytes.fromhex(vector[k]) for k in ("scalar", "u", "output"))
    assert x25519(scalar, u) == output


def test_rfc_7748_one_and_1000_iterations():
    after = {int(n): x for n, x in X25519["iterations"]["after"].items()}
    k = u = bytes.fromhex(X25519["iterations"]["start"])
    for n in range(1, 1001):
        k, u = x25519(k, u), k
        assert n not in after or k.hex() == after[n]
    assert sorted(after) == [1, 1000]


def test_rfc_7748_diffie_hellman():
    v = {k: bytes.fromhex(x) for k, x in X25519["diffie_hellman"].items()}
    alice, bob = KeyPair(v["alice_private"]), KeyPair(v["bob_private"])
    assert alice.public == ExchangeKey(v["alice_public"])
    assert bob.public.encode() == v["bob_public"]
    assert alice.shared_secret(bob.public, "bob") == v["shared"]
    assert bob.shared_secret(alice.public, "alice") == v["shared"]


@pytest.mark.parametrize("u", X25519["small_order"])
def test_a_public_key_of_small_order_names_the_party_that_sent_it(u):
    pair = KeyPair.generate(SystemRng())
    with pytest.raises(FaultyPeer, match=r"mallory.*small order") as error:
        pair.shared_secret(ExchangeKey(bytes.fromhex(u)), "mallory")
    assert error.value.parties == ("mallory",)


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(33), "x" * 32, bytearray(32), None])
def test_public_keys_of_another_length_or_type_are_refused(data):
    with pytest.raises(DecodeError, match="32 bytes"):
        ExchangeKey(data)


@pytest.mark.parametrize("n", [0, 31, 33])
def test_private_keys_of_another_length_are_refused(n):
    with pytest.raises(ParameterError, match="32 bytes"):
        KeyPair(bytes(n))


def test_a_key_pair_comes_from_the_generator():
    pair = KeyPair.generate(SeededRng(1))
    assert pair.public == KeyPair(SeededRng(1).bytes(32)).public
    assert KeyPair.generate(SeededRng(2)).public != pair.public


# ML-KEM, and both together.


def test_the_key_of_rfc_9935_comes_from_its_seed():
    """Appendix C: the seed 00 01 … 3f, and of its key of ML-KEM-768 the digest."""
    public = KemPair(bytes(range(64))).public
    assert public.startswith(bytes.fromhex("298aa10d423c8dda069d02bc59e6cdf0"))
    digest = "0b7934c83125c788995e2ba6bd761e33046b3e40571be53e023309a29f398cc9"
    assert SHA256.new(public).hexdigest() == digest


def test_the_secret_of_both_is_that_of_hkdf_written_out():
    """The secret of ML-KEM first; names, in order, and ciphertext in the info."""
    classical, kem, sent = bytes(range(32)), bytes(range(32, 64)), bytes(CIPHERTEXT_BYTES)
    info = b"xclp/1" + b"".join(
        kind + len(text).to_bytes(8, "big") + text
        for kind, text in [(b"s", b"hybrid secret"), (b"s", b"a"), (b"s", b"b"), (b"b", sent)]
    )
    expected = HKDF(kem + classical, 32, b"", SHA256, context=info)
    assert expected.hex() == "0e9d243b7be32db8967079d7b27044074d21b86dee5be4868f563602a066a37f"
    assert hybrid_secret(classical, kem, "a", "b", sent) == expected


# Sealing.


@pytest.mark.parametrize("vector", GCM)
def test_aes_gcm_specification_in_both_libraries(vector):
    v = {k: bytes.fromhex(x) for k, x in vector.items()}
    sealed = AESGCM(v["key"]).encrypt(v["nonce"], v["plaintext"], v["associated"])
    assert sealed == v["ciphertext"] + v["tag"]
    cipher = AES.new(v["key"], AES.MODE_GCM, nonce=v["nonce"]).update(v["associated"])
    assert cipher.encrypt_and_digest(v["plaintext"]) == (v["ciphertext"], v["tag"])


def test_a_sealed_message_is_aes_gcm_by_a_second_implementation():
    (seal, _), _ = link()
    info = domain_tag("sealed-box", domain_tag("channel", "alice", "bob", b"s"))
    key = HKDF(SHARED, 32, b"", SHA256, context=info)
    for number, (message, associated) in enumerate(
        [(b"", b""), (b"one", b""), (b"two" * 99, b"x")]
    ):
        cipher = AES.new(key, AES.MODE_GCM, nonce=number.to_bytes(12, "big")).update(associated)
        assert seal.seal(message, associated) == b"".join(cipher.encrypt_and_digest(message))


def test_own_vectors_have_not_changed():
    seal, _ = channel_pair(bytes.fromhex(OWN["key"]), "alice", "bob", b"session")
    assert [seal.seal(b"message").hex(), seal.seal(b"message", b"associated").hex()] == OWN[
        "sealed"
    ]


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=50), st.binary(max_size=5))))
def test_messages_sealed_in_order_open_in_order_in_both_directions(messages):
    (a_send, a_receive), (b_send, b_receive) = link()
    for from_alice, message, associated in messages:
        send, receive = (a_send, b_receive) if from_alice else (b_send, a_receive)
        sealed = send.seal(message, associated)
        assert len(sealed) == len(message) + OVERHEAD
        assert receive.open(sealed, associated) == message


def test_every_altered_bit_and_every_truncation_is_detected_and_the_right_message_still_opens():
    (send, _), (_, receive) = link()
    good = send.seal(b"secret", b"header")
    bad = [good[:n] for n in range(len(good))] + [good + b"\0"]
    bad += [
        good[:i] + bytes([good[i] ^ 1 << bit]) + good[i + 1 :]
        for i in range(len(good))
        for bit in range(8)
    ]
    for message in bad:
        with pytest.raises(DecodeError, match="does not open"):
            receive.open(message, b"header")
    with pytest.raises(DecodeError):
        receive.open(good, b"other header")
    assert receive.open(good, b"header") == b"secret"


def test_replayed_reordered_and_missing_messages_are_detected():
    (send, _), (_, receive) = link()
    one, two, three = (send.seal(b"same") for _ in range(3))
    assert len({one, two, three}) == 3
    with pytest.raises(DecodeError):
        receive.open(two)  # reordered
    receive.open(one)
    with pytest.raises(DecodeError):
        receive.open(one)  # replayed
    with pytest.raises(DecodeError):
        receive.open(three)  # two is missing
    assert receive.open(two) == receive.open(three) == b"same"


def test_a_message_opens_on_its_own_link_direction_session_and_key_only():
    message = channel_pair(SHARED, "alice", "bob", b"s")[0].seal(b"m")
    others = [
        channel_pair(SHARED, "alice", "bob", b"s")[1],  # reflected
        channel_pair(SHARED, "bob", "alice", b"t")[1],
        channel_pair(SHARED, "carol", "alice", b"s")[1],
        channel_pair(SHARED, "bob", "carol", b"s")[1],
        channel_pair(bytes(32), "bob", "alice", b"s")[1],
        channel_pair(SHARED, "boba", "lice", b"s")[1],
    ]
    for box in others:
        with pytest.raises(DecodeError):
            box.open(message)
    assert channel_pair(SHARED, "bob", "alice", b"s")[1].open(message) == b"m"


def test_one_box_serves_one_direction():
    (send, receive), (peer_send, _) = link()
    message = peer_send.seal(b"m")
    send.seal(b"m")
    with pytest.raises(ReuseError, match="seal"):
        send.open(message)
    assert receive.open(message) == b"m"
    with pytest.raises(ReuseError, match="open"):
        receive.seal(b"m")


def test_a_message_that_is_too_long_is_refused_and_uses_no_number(monkeypatch):
    monkeypatch.setattr(sealed_box, "MAX_PLAINTEXT", 10)
    (send, _), (_, receive) = link()
    with pytest.raises(ParameterError, match="11 bytes"):
        send.seal(bytes(11))
    assert receive.open(send.seal(bytes(10))) == bytes(10)


def test_a_sealed_message_that_is_too_long_is_refused_before_it_is_opened(monkeypatch):
    (send, _), (_, receive) = link()
    message = send.seal(bytes(11))
    monkeypatch.setattr(sealed_box, "MAX_PLAINTEXT", 10)
    with pytest.raises(DecodeError, match="27 bytes is too long: at most 26"):
        receive.open(message)


def test_a_party_has_no_link_with_itself():
    with pytest.raises(ParameterError, match="alice"):
        channel_pair(SHARED, "alice", "alice", b"s")


def test_a_weak_key_is_refused():
    with pytest.raises(ParameterError):
        SealedBox(bytes(15), domain_tag("test"))


@pytest.mark.parametrize(
    "holder", [KeyPair.generate(SeededRng(1)), SealedBox(SHARED, domain_tag("test"))]
)
def test_holders_of_keys_are_hidden_and_neither_pickled_nor_copied(holder):
    assert repr(holder) == str(holder) == f"<{type(holder).__name__}>"
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret"):
            duplicate(holder)
    assert not hasattr(holder, "__dict__")
