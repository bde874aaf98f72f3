"""Key derivation and expansion: published vectors, a second implementation, statistics."""

import copy
import importlib.util
import json
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF
from Crypto.Util import Counter
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from xclp_crypto.algebra import prg
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import KEY_BYTES, Keystream, accumulate, derive_key, expand, stream
from xclp_crypto.algebra.ring import residue_dtype
from xclp_crypto.errors import ParameterError

VECTORS = Path(__file__).parents[1] / "vectors"
KEY = bytes(range(32))
LAB = domain_tag("test")

moduli = st.one_of(
    st.integers(1, 300),
    st.integers(1, 2**64),
    st.builds(lambda b, d: min(max(2**b + d, 1), 2**64), st.integers(0, 64), st.integers(-2, 2)),
)


def load(name):
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


# A second implementation, by pycryptodome and Python integers, that shares no code with the first.


def ref_label(*items):
    def field(x):
        tag = {str: b"s", int: b"i", bytes: b"b"}[type(x)]
        if isinstance(x, int):
            x = b"" if x == 0 else bytes.fromhex(f"{x:0{2 * ((x.bit_length() + 7) // 8)}x}")
        x = x.encode() if isinstance(x, str) else x
        return tag + len(x).to_bytes(8, "big") + x

    return b"xclp/1" + b"".join(field(x) for x in items)


def ref_hkdf(secret, info, length, salt=b""):
    return HKDF(secret, length, salt, SHA256, context=info)


def ref_ctr(aes_key, n_bytes, counter=0):
    ctr = Counter.new(128, initial_value=counter)
    return AES.new(aes_key, AES.MODE_CTR, counter=ctr).encrypt(bytes(n_bytes))


def ref_stream(key, tag, n_bytes):
    return ref_ctr(ref_hkdf(key, ref_label("prg/stream", tag), 32), n_bytes)


def ref_expand(key, tag, m, n):
    size = next(s for s in (1, 2, 4, 8) if m <= 256**s)
    aes_key = ref_hkdf(key, ref_label("prg/expand", tag, m), 32)
    words = ref_ctr(aes_key, size * (4 * n + 64))
    values = (int.from_bytes(words[i : i + size], "little") for i in range(0, len(words), size))
    accepted = [x % m for x in values if x < 256**size // m * m][:n]
    assert len(accepted) == n
    return accepted


# Published vectors.


@pytest.mark.parametrize("case", load("rfc5869_hkdf_sha256.json")["cases"])
def test_rfc_5869_hkdf_sha256(case):
    ikm, salt, info, okm = (bytes.fromhex(case[k]) for k in ("ikm", "salt", "info", "okm"))
    assert ref_hkdf(ikm, info, len(okm), salt) == okm
    if not salt:
        assert derive_key(ikm, info, len(okm)) == okm


@given(st.binary(min_size=16, max_size=100), st.binary(max_size=100), st.integers(1, 8160))
@example(bytes(16), b"", 8160)
@settings(max_examples=50)
def test_derive_key_is_the_hkdf_that_the_rfc_vectors_checked(secret, info, length):
    assert derive_key(secret, info, length) == ref_hkdf(secret, info, length)


def test_fips_197_and_sp_800_38a_aes_256_and_our_stream_is_that_cipher_from_counter_0():
    v = load("aes256.json")
    block = {k: bytes.fromhex(x) for k, x in v["block"].items()}
    counter = int.from_bytes(block["plaintext"], "big")
    assert ref_ctr(block["key"], 16, counter) == block["ciphertext"]
    ctr = {k: bytes.fromhex(x) for k, x in v["ctr"].items()}
    keystream = ref_ctr(ctr["key"], 64, int.from_bytes(ctr["counter"], "big"))
    assert (
        bytes(a ^ b for a, b in zip(keystream, ctr["plaintext"], strict=True)) == ctr["ciphertext"]
    )
    for key in (block["key"], ctr["key"]):
        ours = np.full(1000, 7, np.uint8)
        keystream = Keystream(key)
        keystream.read_into(ours[:300])
        keystream.add_to(ours[300:])
        ours[300:] ^= 7
        assert ours.tobytes() == ref_ctr(key, 1000)


def test_gcm_specification_blocks_of_counter_0_1_2_under_the_zero_key():
    ours = np.empty(48, np.uint8)
    Keystream(bytes(32)).read_into(ours)
    assert ours.tobytes().hex() == "".join(load("aes256.json")["zero_key_keystream"]["blocks"])


# Our own format, frozen.


def test_own_vectors_have_not_changed():
    spec = importlib.util.spec_from_file_location("generate", VECTORS / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.vectors() == load("own.json"), (
        "the format changed; see tests/vectors/generate.py"
    )


def test_own_vectors_agree_with_a_second_implementation():
    own = load("own.json")
    key, tag = bytes.fromhex(own["key"]), bytes.fromhex(own["label"])
    untype = {"str": str, "int": int, "bytes": bytes.fromhex}
    for case in own["labels"]:
        context = [untype[t](x) for item in case["context"] for t, x in item.items()]
        assert ref_label(case["purpose"], *context).hex() == case["label"]
    for length, okm in own["derive_key"].items():
        assert ref_hkdf(key, tag, int(length)).hex() == okm
    million = ref_stream(key, tag, 10**6)
    assert million[:40].hex() == own["stream"]["first"]
    assert SHA256.new(million).hexdigest() == own["stream"]["sha256_of_first_million"]
    for case in own["expand"]:
        values = ref_expand(key, tag, case["modulus"], 1000)
        size = np.dtype(case["dtype"]).itemsize
        assert values[:6] == case["first"]
        words = b"".join(x.to_bytes(size, "little") for x in values)
        assert SHA256.new(words).hexdigest() == case["sha256_of_little_endian_words"]


@given(moduli, st.integers(0, 60), st.binary(min_size=32, max_size=32))
def test_expand_is_the_first_n_accepted_words_for_any_modulus(m, n, key):
    draws = expand(key, LAB, m, n)
    assert draws.tolist() == ref_expand(key, LAB, m, n)
    assert draws.dtype == residue_dtype(m)
    assert draws.dtype.isnative


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 2**17 - 1, 2**17, 2**17 + 1, 400_000])
def test_stream_lengths_around_the_block_sizes(n):
    got = stream(KEY, LAB, n)
    assert got.shape == (n,)
    assert got.dtype == np.uint8
    assert got.tobytes() == ref_stream(KEY, LAB, n)


# Masks added in place.


def accumulated(m, n, start=0, subtract=False):
    total = np.full(n, start, residue_dtype(m))
    accumulate(total, KEY, LAB, m, subtract=subtract)
    return total


@given(moduli, st.integers(0, 60), st.data())
def test_accumulate_adds_or_subtracts_what_expand_gives(m, n, data):
    start = data.draw(st.integers(0, m - 1))
    mask = expand(KEY, LAB, m, n).tolist()
    assert accumulated(m, n, start).tolist() == [(start + x) % m for x in mask]
    assert accumulated(m, n, start, True).tolist() == [(start - x) % m for x in mask]


@pytest.mark.parametrize("m", [2, 3, 200, 256, 2**13, 2**16, 65_537, 2**32, 2**63 + 1, 2**64])
def test_accumulate_over_many_blocks_and_back_again(m):
    shape = (3, 100_001)
    total = expand(bytes(32), LAB, m, shape)
    before = total.copy()
    accumulate(total, KEY, LAB, m)
    mask = expand(KEY, LAB, m, shape)
    wide = [(int(x) + int(y)) % m for x, y in zip(before.flat, mask.flat, strict=True)]
    assert total.ravel().tolist() == wide
    accumulate(total, KEY, LAB, m, subtract=True)
    np.testing.assert_array_equal(total, before)


@pytest.mark.parametrize("block", [8, 24, 1000 * 8, 1 << 20])
@pytest.mark.parametrize("m", [3, 4096, 4097, 2**63 + 1, 2**64])
def test_block_size_does_not_change_what_is_accumulated(monkeypatch, block, m):
    expected = expand(KEY, LAB, m, 3000)
    monkeypatch.setattr(prg, "_BLOCK_BYTES", block)
    np.testing.assert_array_equal(accumulated(m, 3000), expected)


@pytest.mark.parametrize("m", [2**64, 2**61 - 1])
def test_accumulate_allocates_nothing_of_the_size_of_its_total(m):
    total = np.zeros(10**6, np.uint64)
    tracemalloc.start()
    accumulate(total, KEY, LAB, m)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < total.nbytes / 8


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (2, 0, 3), (2, 3)])
def test_accumulate_takes_every_shape(shape):
    total = np.zeros(shape, np.uint8)
    accumulate(total, KEY, LAB, 200)
    np.testing.assert_array_equal(total, expand(KEY, LAB, 200, shape))


def test_accumulate_refuses_other_arrays_and_leaves_them_alone():
    locked = np.zeros(4, np.uint64)
    locked.flags.writeable = False
    for total, m in [
        (np.zeros((4, 4), np.uint64).T[1:], 2**64),
        (np.zeros(8, np.uint64)[::2], 2**64),
        (locked, 2**64),
        (np.zeros(4, np.uint64), 2**32),
        (np.zeros(4, np.int64), 2**64),
        (np.zeros(4), 2**64),
    ]:
        with pytest.raises(ParameterError, match="C-contiguous"):
            accumulate(total, KEY, LAB, m)
        assert not total.any()
    with pytest.raises(ParameterError, match="modulus"):
        accumulate(np.zeros(4, np.uint64), KEY, LAB, 2**64 + 1)
    with pytest.raises(ParameterError, match="32 bytes"):
        accumulate(np.zeros(4, np.uint64), b"", LAB, 2**64)


# Independence.


@pytest.mark.parametrize("block", [8, 16, 24, 40, 1000 * 8, 1 << 20])
@pytest.mark.parametrize("m", [3, 7, 200, 4096, 4097, 2**31 - 1, 2**63 + 1, 2**64])
def test_block_size_changes_nothing(monkeypatch, block, m):
    expected = expand(KEY, LAB, m, 3000)
    monkeypatch.setattr(prg, "_BLOCK_BYTES", block)
    np.testing.assert_array_equal(expand(KEY, LAB, m, 3000), expected)
    monkeypatch.setattr(prg, "_ZEROS", bytes(block + 3))
    np.testing.assert_array_equal(expand(KEY, LAB, m, 3000), expected)


@pytest.mark.parametrize("m", [3, 4096, 4097, 2**40 + 5])
def test_smaller_results_are_prefixes_and_the_shape_only_arranges(m):
    long = expand(KEY, LAB, m, 200_000)
    for n in (0, 1, 7, 65536, 199_999):
        np.testing.assert_array_equal(expand(KEY, LAB, m, n), long[:n])
    np.testing.assert_array_equal(expand(KEY, LAB, m, (3, 5, 7)), long[:105].reshape(3, 5, 7))


def test_keys_labels_moduli_and_uses_give_unrelated_streams():
    other_key = bytes([1]) + KEY[1:]
    streams = [
        stream(KEY, LAB, 64),
        stream(KEY, domain_tag("test", 0), 64),
        stream(KEY, domain_tag("test", "0"), 64),
        stream(other_key, LAB, 64),
        expand(KEY, LAB, 256, 64),
        expand(KEY, LAB, 255, 64),
        expand(KEY, domain_tag("test", 0), 256, 64),
        np.frombuffer(derive_key(KEY, LAB, 64), np.uint8),
        keystream_bytes(derive_key(KEY, LAB), 64),
    ]
    for i, a in enumerate(streams):
        for b in streams[:i]:
            assert np.count_nonzero(a == b) <= 6  # expected 1/4 of a byte in 64


def keystream_bytes(aes_key, n):
    out = np.empty(n, np.uint8)
    Keystream(aes_key).read_into(out)
    return out


def test_user_case_masks_are_uniform_chi_square_for_l_3_over_1e6_draws():
    counts = np.bincount(expand(KEY, LAB, 3, 10**6), minlength=3)
    assert stats.chisquare(counts).pvalue > 1e-3
    # The same test notices what leaving the rejection out would give: 86 of 256 bytes are 0 mod 3.
    biased = np.bincount(stream(KEY, LAB, 10**6) % 3, minlength=3)
    assert stats.chisquare(biased).pvalue < 1e-3


@pytest.mark.parametrize("m", [2, 5, 7, 10, 129, 200, 255, 256, 257, 1000, 4096, 4097])
def test_residues_are_uniform(m):
    counts = np.bincount(expand(KEY, LAB, m, 300_000), minlength=m)
    assert len(counts) == m
    assert 1e-3 < stats.chisquare(counts).pvalue < 1 - 1e-3


@pytest.mark.parametrize("m", [40_000, 65_537, 2**31 + 1, 2**40 + 5, 2**63 + 1, 2**64 - 59, 2**64])
def test_residues_of_large_moduli_fill_the_range_evenly(m):
    draws = expand(KEY, LAB, m, 100_000)
    assert int(draws.max()) < m
    buckets = np.array([int(x) * 50 // m for x in draws])
    assert 1e-3 < stats.chisquare(np.bincount(buckets, minlength=50)).pvalue < 1 - 1e-3


@pytest.mark.parametrize("m", [3, 4096, 65_537])
def test_neighbouring_residues_are_independent(m):
    x = expand(KEY, LAB, m, 200_000) * 8.0 // m
    table = np.bincount((8 * x[:-1] + x[1:]).astype(int), minlength=64).reshape(8, 8)
    rows, columns = table.any(1), table.any(0)
    assert stats.chi2_contingency(table[rows][:, columns]).pvalue > 1e-3


# Shapes, dtypes and refusals.


@pytest.mark.parametrize(
    ("m", "dtype"),
    [
        *((1, "u1"), (2, "u1"), (256, "u1"), (257, "u2"), (2**16, "u2"), (2**16 + 1, "u4")),
        *((2**32, "u4"), (2**32 + 1, "u8"), (2**64, "u8"), (np.int64(300), "u2")),
    ],
)
def test_residues_have_the_smallest_dtype(m, dtype):
    assert residue_dtype(m) == expand(KEY, LAB, m, 3).dtype == np.dtype(dtype)


@pytest.mark.parametrize("m", [1, 2, 3, 2**64])
@pytest.mark.parametrize("shape", [0, (0,), (0, 5), (5, 0), (2, 0, 3), (), 4, (2, 3), np.int64(2)])
def test_shapes_with_zeros_and_the_empty_shape_work(m, shape):
    draws = expand(KEY, LAB, m, shape)
    assert draws.shape == np.empty(shape).shape
    assert m > 1 or not draws.any()
    draws[...] = 0  # writable


@pytest.mark.parametrize("m", [0, -1, 2**64 + 1, 3.0, True, None, "3", float("nan")])
def test_moduli_out_of_range_are_refused(m):
    with pytest.raises(ParameterError, match="modulus"):
        expand(KEY, LAB, m, 3)
    with pytest.raises(ParameterError, match="modulus"):
        residue_dtype(m)


@pytest.mark.parametrize("shape", [-1, (2, -1), 1.5, (1.5,), None, "3", [2, 3]])
def test_bad_shapes_are_refused(shape):
    with pytest.raises(ParameterError, match="shape"):
        expand(KEY, LAB, 3, shape)


@pytest.mark.parametrize("n", [-1, 1.0, (3,), None])
def test_bad_numbers_of_bytes_are_refused(n):
    with pytest.raises(ParameterError, match="shape"):
        stream(KEY, LAB, n)


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(31), bytes(33)])
def test_keys_of_another_length_are_refused(key):
    for call in (
        lambda: expand(key, LAB, 1, 0),
        lambda: stream(key, LAB, 0),
        lambda: Keystream(key),
    ):
        with pytest.raises(ParameterError, match="32 bytes"):
            call()


@pytest.mark.parametrize(("secret", "length"), [(bytes(15), 32), (KEY, 0), (KEY, 8161), (KEY, -1)])
def test_weak_secrets_and_impossible_lengths_are_refused(secret, length):
    with pytest.raises(ParameterError):
        derive_key(secret, LAB, length)


def test_a_keystream_hides_its_key_and_is_neither_pickled_nor_copied():
    keystream = Keystream(KEY)
    assert KEY_BYTES == 32
    assert repr(keystream) == "<Keystream>"
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret"):
            duplicate(keystream)
