"""Messages on the wire: packing, strict decoding, size formulas, and nothing shown or pickled."""

import copy
import importlib
import inspect
import math
import pickle
import pkgutil
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

import xclp_crypto
import xclp_lp
from xclp_crypto import wire
from xclp_crypto.algebra.group import Scalar, multiply_base
from xclp_crypto.algebra.ring import residue_dtype, wire_bytes
from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.fields import Floats, Modular, Packed, Raw, Uints, pack, packed_size, unpack
from xclp_crypto.params import INSECURE_TEST_128
from xclp_crypto.primitives import paillier
from xclp_crypto.primitives.rlwe import parameters_for
from xclp_crypto.protocols.boolean.gmw import GateOpenings, OutputShares
from xclp_crypto.protocols.boolean.triples import DealtCorrections, DealtSeed
from xclp_crypto.protocols.hamming.between import BlockShares
from xclp_crypto.protocols.hamming.interface import DistanceShares
from xclp_crypto.protocols.hamming.masked import MaskedRows, masked_width
from xclp_crypto.protocols.hamming.paillier import (
    PaillierAnswers,
    PaillierKey,
    PaillierRows,
    PaillierShares,
)
from xclp_crypto.protocols.hamming.plain import PlainBits
from xclp_crypto.protocols.hamming.products import SetSizes
from xclp_crypto.protocols.hamming.rlwe import RlweAnswers, RlweCiphertexts, RlweMasks
from xclp_crypto.protocols.ot.bits import lane_type
from xclp_crypto.protocols.ot.extension import OtChallenge, OtColumns, OtCorrections, OtProof
from xclp_crypto.protocols.ot.ideal import IdealMessages
from xclp_crypto.protocols.ot.naor_pinkas import OtChoices, OtOffers, OtSetup
from xclp_crypto.protocols.secure_sum.double_masks import (
    SumClients,
    SumReady,
    SumReveal,
    SumShares,
)
from xclp_crypto.protocols.secure_sum.ideal import IdealBlock, IdealSumUpload
from xclp_crypto.protocols.secure_sum.row_sums_restart import RowSumsRound
from xclp_crypto.protocols.secure_sum.rows import RowSumsBlock, RowSumsUpload
from xclp_crypto.protocols.secure_sum.secure_sum import SumUpload
from xclp_crypto.protocols.secure_sum.survivors import (
    SumMasked,
    SumSignatures,
    SumSigned,
    SumSurvivors,
)
from xclp_crypto.protocols.setup.channel import Sealed
from xclp_crypto.protocols.setup.ideal import IdealHello, IdealKeys, IdealSecret
from xclp_crypto.protocols.setup.messages import Directory, Hello, Opening, Openings
from xclp_crypto.protocols.setup.seed_agreement import Confirm, Received, Roster, SeedShare
from xclp_crypto.rng import SeededRng
from xclp_crypto.sum_plans import SumTotal
from xclp_crypto.two_party_similarity import ProductShares

COUNTS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 257]


def bits_of(values, width):
    """Independent oracle: the concatenated binary digits, least significant first."""
    digits = "".join(format(int(v), f"0{width}b")[::-1] for v in values)
    digits += "0" * (-len(digits) % 8)
    return bytes(int(digits[i : i + 8][::-1], 2) for i in range(0, len(digits), 8))


@pytest.mark.parametrize("width", range(1, 17))
def test_packing_is_dense_and_inverts(width):
    rng = np.random.default_rng(width)
    for count in COUNTS:
        top = np.full(count, (1 << width) - 1)
        for values in (rng.integers(0, 1 << width, count), top, np.zeros(count, int)):
            packed = pack(values, width)
            assert len(packed) == packed_size(count, width) == -(-count * width // 8)
            assert packed == bits_of(values, width)
            back = unpack(packed, count, width)
            assert back.dtype == np.uint16
            assert back.shape == (count,)
            assert np.array_equal(back, values)


@settings(deadline=None)
@given(st.integers(1, 16), st.data())
def test_packing_inverts_for_any_values_in_any_shape_and_dtype(width, data):
    values = data.draw(st.lists(st.integers(0, (1 << width) - 1), max_size=40))
    dtype = data.draw(st.sampled_from([np.uint16, np.int32, np.int64, np.uint64]))
    array = np.array(values, dtype=dtype)
    strided = np.repeat(array, 2)[::2].reshape(1, -1)
    assert pack(array, width) == pack(strided, width) == bits_of(values, width)


@pytest.mark.parametrize("width", range(1, 17))
def test_padding_that_is_not_zero_is_refused(width):
    refused = 0
    for count in COUNTS:
        spare = -count * width % 8
        packed = bytearray(pack(np.zeros(count, int), width))
        for bit in range(8 - spare, 8) if spare else ():
            packed[-1] = 1 << bit
            with pytest.raises(DecodeError, match="padding"):
                unpack(bytes(packed), count, width)
            refused += 1
        with pytest.raises(DecodeError, match="bytes where"):
            unpack(bytes(len(packed) + 1), count, width)
    assert refused or width in (8, 16)


def encoded(kind, values, **dims):
    return memoryview(b"".join(kind.encode(values, dims)))


def test_floats_that_are_not_finite_are_refused_in_both_directions():
    for n_bytes in (4, 8):
        kind = Floats("n", n_bytes=n_bytes)
        for value in (np.nan, np.inf, -np.inf):
            values = np.array([1.0, value], dtype=f"<f{n_bytes}")
            with pytest.raises(DecodeError, match="NaN or infinity"):
                kind.read(memoryview(values.tobytes()), {"n": 2})
            with pytest.raises(ParameterError, match="NaN or infinity"):
                encoded(kind, values)


def test_floats_and_integers_keep_their_exact_values():
    numbers = np.array([[-0.0, 1e-310], [np.pi, -1e308]])
    kind = Floats(2, "n")
    assert kind.read(encoded(kind, numbers), {"n": 2}).tobytes() == numbers.tobytes()
    for n_bytes in (1, 2, 3, 4, 5, 8):
        top = np.array([0, 1, 256**n_bytes - 1], dtype=np.uint64)
        kind = Uints("n", n_bytes=n_bytes)
        back = kind.read(encoded(kind, top), {"n": 3})
        assert back.tolist() == top.tolist()
        assert back.dtype == residue_dtype(256**n_bytes)


LIMITS = {
    "packed": (Packed, lambda n: {"width": n % 16 + 1}, lambda n: 2 ** (n % 16 + 1)),
    "uints": (
        Uints,
        lambda n: {"n_bytes": (1, 2, 3, 4, 5, 8)[n % 6]},
        lambda n: 256 ** (1, 2, 3, 4, 5, 8)[n % 6],
    ),
    "modular": (Modular, lambda n: {}, lambda n: n),
}


@pytest.mark.parametrize("name", LIMITS)
@settings(deadline=None)
@given(n=st.integers(1, 1 << 64), dtype=st.sampled_from("bhilqBHILQ?"), data=st.data())
def test_integers_are_written_if_and_only_if_they_are_read_as_the_same(name, n, dtype, data):
    make, options, limit = LIMITS[name]
    kind, bound = make("rows", **options(n)), limit(n)
    low, high = (0, 1) if dtype == "?" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    edges = st.sampled_from([v for v in (-1, 0, 1, bound - 1, bound) if low <= v <= high])
    numbers = data.draw(st.lists(edges | st.integers(low, min(high, bound)), max_size=9))
    values = np.array(numbers, dtype=dtype)
    dims = {"rows": len(values), "modulus": n}
    if all(0 <= v < bound for v in numbers):
        assert kind.read(encoded(kind, values, **dims), dims).tolist() == numbers
    else:
        with pytest.raises(ParameterError, match=f"not in 0 … {bound - 1}$"):
            encoded(kind, values, **dims)


def test_arrays_of_another_type_or_shape_are_not_written():
    for kind in (Packed("n", 3, width=2), Uints("n", 3, n_bytes=1), Floats("n", 3)):
        good = np.zeros((2, 3), np.float64 if isinstance(kind, Floats) else np.uint8)
        assert len(encoded(kind, good, n=2)) == kind.size({"n": 2})
        encoded(kind, good)  # where nothing says how many rows
        for bad, why in (
            (good.tolist(), "is list, not an array"),
            (good[0], "has 1 dimensions, not 2"),
            (good[:, :2], r"has shape \(2, 2\), not \(2, 3\)"),
            (good[:1], r"has shape \(1, 3\), not \(2, 3\)"),
            (good.astype(np.float32), "has dtype float32"),
            (good.astype(object), "has dtype object"),
        ):
            with pytest.raises(ParameterError, match=why):
                encoded(kind, bad, n=2)
    for width in (0, 17):
        with pytest.raises(ParameterError, match=f"residues of {width} bits"):
            encoded(Packed("n", width=width), np.zeros(3, np.uint16))


# Every message type: random sizes, and an instance of those sizes. A new type needs an entry.


def _rows(rng):
    return {"rows": int(rng.integers(0, 6)), "columns": int(rng.integers(0, 4))}


def _matrix(rng, rows, columns):
    return rng.integers(0, 1 << 64, (rows, columns), dtype=np.uint64)


def _bits(rng, n):
    return rng.integers(0, 2, n).astype(bool)


def _point(rng):
    return multiply_base(Scalar.from_uniform_bytes(rng.bytes(64)))


def _sealed(rng):
    dims = {"body": int(rng.integers(0, 50))}
    return dims, Sealed(rng.bytes(2), rng.bytes(dims["body"] + 16))


def _hello(rng):
    dims = {"agreement": 8 * int(rng.integers(0, 5)), "numbers": int(rng.integers(0, 4))}
    values = rng.integers(0, 1 << 32, dims["numbers"], dtype=np.uint32)
    dims |= {"signature": int(rng.choice([0, 64])), "kem": int(rng.choice([0, 1184]))}
    sizes = (32, dims["kem"], 32, 32, dims["agreement"])
    return dims, Hello(*map(rng.bytes, sizes), values, rng.bytes(dims["signature"]))


def _ideal_hello(rng):
    dims = {"agreement": 8 * int(rng.integers(0, 5)), "numbers": int(rng.integers(1, 4))}
    values = rng.integers(0, 1 << 32, dims["numbers"], dtype=np.uint32)
    return dims, IdealHello(rng.bytes(dims["agreement"]), rng.bytes(32), values)


def _ideal_keys(rng):
    p, n = int(rng.integers(2, 20)), int(rng.integers(0, 4))
    values = rng.integers(0, 1 << 32, (p, n), dtype=np.uint32)
    keys, secrets = (tuple(rng.bytes(32) for _ in range(count)) for count in (p, p + 1))
    dims = {"invited": p, "numbers": n}
    return dims, IdealKeys(rng.bytes(32), _bits(rng, p), keys, values, secrets)


def _directory(rng):
    p, n = int(rng.integers(2, 20)), int(rng.integers(0, 4))
    values = rng.integers(0, 1 << 32, (p, n), dtype=np.uint32)
    signature = int(rng.choice([0, 64]))
    kem = int(rng.choice([0, 1184]))
    keys, kem_keys, commitments, verify_keys, signatures = (
        tuple(rng.bytes(size) for _ in range(p)) for size in (32, kem, 32, 32, signature)
    )
    dims = {"invited": p, "numbers": n, "signature": signature, "kem": kem}
    entries = keys, kem_keys, commitments, verify_keys, values, signatures
    return dims, Directory(rng.bytes(32), _bits(rng, p), *entries, rng.bytes(signature))


def _opening(rng):
    count = int(rng.integers(0, 3))
    return {"count": count}, Opening(rng.bytes(32), tuple(rng.bytes(1088) for _ in range(count)))


def _openings(rng):
    p, count = int(rng.integers(2, 20)), int(rng.integers(0, 3))
    values, boxes = (tuple(rng.bytes(s) for _ in range(n)) for s, n in ((32, p), (1088, count)))
    return {"invited": p, "count": count}, Openings(_bits(rng, p), values, boxes)


def _distance_shares(rng):
    w = int(rng.integers(1, 17))
    p, n, others = (int(rng.integers(low, 8)) for low in (2, 0, 0))
    return {"clients": p, "rows": n, "others": others, "width": w}, DistanceShares(
        _bits(rng, p),
        rng.integers(0, 1 << w, n * (n - 1) // 2).astype(np.uint16),
        rng.integers(0, 1 << w, (n, others)).astype(np.uint16),
        w,
    )


def _block_shares(rng):
    w = int(rng.integers(1, 17))
    p, m, n, m_others, n_others = (int(rng.integers(low, 6)) for low in (2, 0, 0, 0, 0))
    dims = {"clients": p, "m": m, "n": n, "m_others": m_others, "n_others": n_others, "width": w}
    parts = (
        rng.integers(0, 1 << w, shape).astype(np.uint16)
        for shape in ((m, n), (m, n_others), (n, m_others))
    )
    return dims, BlockShares(_bits(rng, p), *parts, w)


def _masked_rows(rng):
    dims = {"rows": int(rng.integers(0, 5)), "n_bits": int(rng.integers(1, 80))}
    residues = rng.integers(0, 1 << masked_width(dims["n_bits"]), (dims["rows"], dims["n_bits"]))
    return dims, MaskedRows(residues.astype(np.uint16), dims["n_bits"])


def _plain_bits(rng):
    dims = {"rows": int(rng.integers(0, 5)), "n_bits": int(rng.integers(1, 80))}
    return dims, PlainBits(rng.integers(0, 2, (dims["rows"], dims["n_bits"])).astype(np.uint8))


def _pairs(kind, *digests):
    def make(rng):
        dims = {"count": int(rng.integers(0, 9)), "length": int(rng.integers(1, 20))}
        pairs = rng.integers(0, 256, (dims["count"], 2, dims["length"]), dtype=np.uint8)
        return dims, kind(*map(rng.bytes, digests), pairs)

    return make


def _choices(rng):
    dims = {"count": int(rng.integers(0, 4))}
    return dims, OtChoices(tuple(_point(rng) for _ in range(dims["count"])))


def _block(kind):
    def make(rng):
        dims = _rows(rng) | {"modulus": 1 << 64}
        return dims, kind(_matrix(rng, dims["rows"], dims["columns"]), dims["modulus"])

    return make


def _product_shares(rng):
    rows, others, width = int(rng.integers(0, 5)), int(rng.integers(0, 5)), int(rng.integers(1, 17))
    values = rng.integers(0, 1 << width, (rows, others)).astype(np.uint16)
    return {"rows": rows, "others": others, "width": width}, ProductShares(values, width)


def _sum_total(rng):
    count = int(rng.integers(0, 9))
    values = rng.integers(0, 1 << 32, count, dtype=np.uint64)
    return {"count": count, "modulus": 1 << 64}, SumTotal(values, 1 << 64)


def _roster(rng):
    p = int(rng.integers(2, 20))
    return {"clients": p}, Roster(_bits(rng, p), _bits(rng, p))


def _received(rng):
    p = int(rng.integers(2, 20))
    return {"clients": p}, Received(_bits(rng, p))


def _round(rng):
    p = int(rng.integers(2, 20))
    return {"clients": p}, RowSumsRound(bool(rng.integers(0, 2)), rng.bytes(72), _bits(rng, p))


def _ready(rng):
    k = int(rng.integers(1, 20))
    return {"neighbours": k}, SumReady(
        rng.bytes(32),
        rng.bytes(32),
        rng.bytes(72),
        _bits(rng, k),
        rng.integers(0, 256, (k, 32), np.uint8),
    )


def _client_set(kind):
    def make(rng):
        p = int(rng.integers(2, 20))
        return {"clients": p}, kind(_bits(rng, p))

    return make


def _signatures(rng):
    p, count, partners = (int(rng.integers(1, 20)) for _ in range(3))
    survived, masked = (tuple(rng.bytes(64) for _ in range(n)) for n in (count, partners))
    dims = {"clients": p, "signatures": count, "partners": partners}
    return dims, SumSignatures(_bits(rng, p), survived, masked)


def _reveal(rng):
    count = int(rng.integers(1, 6))
    return {"count": count}, SumReveal(tuple(rng.bytes(37) for _ in range(count)))


def _ideal_block(rng):
    dims, block = _block(RowSumsBlock)(rng)
    p = int(rng.integers(2, 20))
    return {"clients": p, **dims}, IdealBlock(_bits(rng, p), block.values, block.modulus)


def _rlwe_ciphertexts(rng):
    rows, n_bits = int(rng.integers(0, 3)), int(rng.choice([1, 4095, 4096, 4097, 9000]))
    p = parameters_for(n_bits)
    shape = (rows, n_bits + p.chunks(n_bits) * p.degree)
    limbs = tuple(rng.integers(0, 1 << p.limb_bits, shape) for _ in range(p.limbs))
    return {"rows": rows, "values": shape[1], "n_bits": n_bits}, RlweCiphertexts(limbs, n_bits)


def _rlwe_masks(rng):
    rows, n_bits = int(rng.integers(0, 3)), int(rng.choice([1, 4096, 4097, 9000]))
    p = parameters_for(n_bits)
    shape = (rows, p.chunks(n_bits) * p.degree)
    values = rng.integers(0, 1 << p.switched_bits, shape).astype(np.uint32)
    return {"rows": rows, "n_bits": n_bits}, RlweMasks(values, n_bits)


def _rlwe_answers(rng):
    rows, evaluated = (int(n) for n in rng.integers(0, 6, 2))
    n_bits = int(rng.choice([1, 4096, 4097]))
    bits = parameters_for(n_bits).switched_bits
    values = rng.integers(0, 1 << bits, (rows, evaluated)).astype(np.uint32)
    dims = {"rows": rows, "evaluated": evaluated, "n_bits": n_bits}
    return dims, RlweAnswers(values, n_bits)


def _ot_columns(rng):
    trees, words = 128 >> int(rng.integers(0, 4)), int(rng.integers(0, 5))
    columns = rng.integers(0, 1 << 64, (trees, words), np.uint64)
    return {"trees": trees, "words": words}, OtColumns(rng.bytes(8), columns)


def _ot_proof(rng):
    return {}, OtProof(rng.integers(0, 256, (129, 16)).astype(np.uint8))


def _ot_corrections(rng):
    count, lanes, width = int(rng.integers(0, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 65))
    residues = rng.integers(0, 1 << width, count * lanes, np.uint64).astype(lane_type(width))
    dims = {"count": count, "lanes": lanes, "width": width}
    return dims, OtCorrections(residues, width)


def _words(kind, *shape):
    """Make examples of a message of words of shared bits."""

    def example(rng):
        count = int(rng.integers(0, 9))
        words = rng.integers(0, 1 << 64, (*shape, count), dtype=np.uint64)
        return {"count": count}, kind(words)

    return example


PAILLIER = paillier.generate(SeededRng(0), INSECURE_TEST_128).public


def _paillier_key(rng):
    return {"bits": 128}, PaillierKey(PAILLIER)


def _paillier_ciphertexts(kind):
    def make(rng):
        count = int(rng.integers(0, 4))
        values = [pow(int(rng.integers(2, 1 << 60)), 3, PAILLIER.n**2) for _ in range(count)]
        return {"count": count, "n": int(PAILLIER.n)}, kind(
            [mpz(v) for v in values], int(PAILLIER.n)
        )

    return make


def _paillier_shares(rng):
    clients, rows, residues = (int(n) for n in rng.integers(1, 6, 3))
    owns, width = int(rng.integers(0, 2)), int(rng.integers(1, 17))
    message = PaillierShares(
        rng.integers(0, 2, clients).astype(bool),
        rng.integers(0, 1 << width, rows * (rows - 1) // 2).astype(np.uint16),
        [PAILLIER.n] if owns else [],
        [mpz(int(rng.integers(0, 1 << 60))) for _ in range(residues)],
        width,
        128,
    )
    dims = {"clients": clients, "rows": rows, "owns": owns, "residues": residues}
    return dims | {"width": width, "bits": 128}, message


EXAMPLES = {
    Sealed: _sealed,
    Hello: _hello,
    Directory: _directory,
    Opening: _opening,
    Openings: _openings,
    IdealHello: _ideal_hello,
    IdealKeys: _ideal_keys,
    IdealSecret: lambda rng: ({}, IdealSecret(rng.bytes(32))),
    SeedShare: lambda rng: ({}, SeedShare(rng.bytes(32))),
    Received: _received,
    Roster: _roster,
    Confirm: lambda rng: ({}, Confirm(rng.bytes(32))),
    DistanceShares: _distance_shares,
    BlockShares: _block_shares,
    PlainBits: _plain_bits,
    MaskedRows: _masked_rows,
    PaillierKey: _paillier_key,
    PaillierRows: _paillier_ciphertexts(PaillierRows),
    PaillierAnswers: _paillier_ciphertexts(PaillierAnswers),
    PaillierShares: _paillier_shares,
    OtColumns: _ot_columns,
    OtChallenge: lambda rng: ({}, OtChallenge(rng.bytes(16))),
    OtProof: _ot_proof,
    DealtSeed: lambda rng: ({}, DealtSeed(rng.bytes(8), rng.bytes(32))),
    DealtCorrections: _words(DealtCorrections),
    GateOpenings: _words(GateOpenings, 2),
    OutputShares: _words(OutputShares),
    OtCorrections: _ot_corrections,
    RlweCiphertexts: _rlwe_ciphertexts,
    RlweMasks: _rlwe_masks,
    RlweAnswers: _rlwe_answers,
    OtSetup: lambda rng: ({}, OtSetup(rng.bytes(8), _point(rng))),
    OtChoices: _choices,
    OtOffers: _pairs(OtOffers),
    IdealMessages: _pairs(IdealMessages, 8),
    RowSumsRound: _round,
    RowSumsUpload: _block(RowSumsUpload),
    RowSumsBlock: _block(RowSumsBlock),
    SumShares: lambda rng: ({}, SumShares(rng.bytes(37), rng.bytes(37))),
    SumReady: _ready,
    SumClients: _client_set(SumClients),
    SumUpload: _block(SumUpload),
    SumTotal: _sum_total,
    ProductShares: _product_shares,
    SetSizes: lambda rng: ({"rows": 5}, SetSizes(rng.integers(0, 1 << 16, 5).astype(np.uint16))),
    SumSurvivors: _client_set(SumSurvivors),
    SumMasked: lambda rng: ({}, SumMasked(rng.bytes(64))),
    SumSigned: lambda rng: ({}, SumSigned(rng.bytes(64))),
    SumSignatures: _signatures,
    SumReveal: _reveal,
    IdealSumUpload: _block(IdealSumUpload),
    IdealBlock: _ideal_block,
}
KINDS = pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)


def test_user_case_a_message_can_be_defined_again_but_no_other_one_takes_its_tag():
    def cell(name, length, tag=0xFFF0):
        body = {"TAG": tag, "__module__": "__main__", "__annotations__": {"data": bytes}}
        return type(name, (wire.Message,), {**body, "data": wire.sent(Raw(length))})

    try:
        assert wire.encode(cell("Greeting", 1)(b"x")) == b"\xff\xf0x"
        assert wire.encode(cell("Greeting", 2)(b"xy")) == b"\xff\xf0xy"
        for tag in (0xFFF0, OtSetup.TAG, 0x7000, -1, 1 << 16):
            with pytest.raises(ParameterError, match=r"is taken or reserved; .* 0x8000 … 0xffff"):
                cell("Other", 1, tag)
        with pytest.raises(ParameterError, match="TAG of Other must be an integer, got 'x'"):
            cell("Other", 1, "x")
    finally:
        del wire._registry[0xFFF0]


def test_every_message_type_has_an_example_here():
    for module in pkgutil.walk_packages(xclp_crypto.__path__, "xclp_crypto."):
        if ".flower" not in module.name:  # needs an extra
            importlib.import_module(module.name)
    ours = {k for k in wire._registry.values() if k.__module__.startswith("xclp_crypto.")}
    named = ", ".join(sorted(kind.__name__ for kind in ours ^ set(EXAMPLES)))
    assert ours == set(EXAMPLES), f"give each of these an example in EXAMPLES of this file: {named}"


def test_no_message_here_has_a_tag_that_is_reserved_for_others():
    packages = [Path(p.__file__).parent for p in (xclp_crypto, xclp_lp)]
    texts = [path.read_text("utf-8") for package in packages for path in package.rglob("*.py")]
    tags = [int(tag, 16) for text in texts for tag in re.findall(r"^    TAG = (\w+)", text, re.M)]
    assert len(tags) > len(EXAMPLES)
    assert not {*tags} & {*wire.OWN_TAGS}


def _same(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.shape == b.shape and np.array_equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def symbols(dims):
    """What the formulas in docstrings mean; written down independently of the package."""
    found = dict(dims)
    for symbol, names in {
        "p": ("clients", "invited"),
        "n_j": ("rows",),
        "n_others": ("others", "n_others"),
        "n_k": ("count",),
        "m": ("count", "m"),
        "n": ("n", "lanes"),
        "k": ("neighbours",),
        "c": ("columns",),
        "L": ("n_bits", "count"),
        "w": ("width",),
    }.items():
        found[symbol] = next((dims[name] for name in names if name in dims), None)
    if "n_bits" in dims:
        found["w"] = max(2, math.ceil(math.log2(dims["n_bits"] + 1)))
        q = parameters_for(dims["n_bits"])
        found |= {"log2q": q.limbs * q.limb_bits, "log2q_": 8 * q.switched_bytes}
        found["N_"] = 4096 * math.ceil(dims["n_bits"] / 4096)
    if "modulus" in dims:
        found["b"] = next(n for n in (1, 2, 3, 4, 5, 8) if dims["modulus"] <= 256**n)
    if "n" in dims:
        found["bits"] = dims["n"].bit_length()
    return found


def documented_size(kind, dims):
    """Evaluate the formula that the docstring of a message states."""
    formula = re.search(r"Size: (.*?) bytes", " ".join(inspect.getdoc(kind).split()))[1]
    for sign, python in (("⌈", "ceil("), ("⌉", ")"), ("·", "*"), ("−", "-"), ("n_j(", "n_j*(")):
        formula = formula.replace(sign, python)
    formula = formula.replace("log2 q", "log2q").replace("'", "_")
    return eval(formula, {"ceil": math.ceil}, symbols(dims))  # noqa: S307 - of our docstrings


@KINDS
def test_size_formula_is_the_length_and_decoding_inverts_encoding(kind):
    rng = np.random.default_rng(kind.TAG)
    for _ in range(25):
        dims, message = EXAMPLES[kind](rng)
        body = wire.body(message)
        payload = wire.encode(message)
        assert kind.size(**dims) == len(body) == documented_size(kind, dims)
        assert payload == kind.TAG.to_bytes(2, "big") + body
        back = wire.decode(kind, payload, **dims)
        assert type(back) is kind
        for field in fields(kind):
            assert _same(getattr(message, field.name), getattr(back, field.name)), field.name
        assert kind.__name__ in wire.type_name(payload)


def spoiled(value):
    """Yield values that no reader returns where it returns this one."""
    if isinstance(value, np.ndarray):
        yield value.tolist()
        yield value[None]
        if value.size:
            yield np.full(value.shape, -1)
            yield np.full(value.shape, np.nan)
            yield value.astype(object)
    elif isinstance(value, bytes):
        yield bytearray(value)
    elif isinstance(value, tuple):
        yield list(value)
        yield from ((bad, *value[1:]) for one in value[:1] for bad in spoiled(one))
    elif isinstance(value, list):
        if value:
            yield [mpz(-1), *value[1:]]
            yield [mpz(1) << 4096, *value[1:]]
    elif isinstance(value, int):
        yield -1
        yield 1 << 16
    else:
        yield "x" * 32
        yield None


@KINDS
def test_what_no_reader_could_receive_is_not_written_and_the_error_names_the_field(kind):
    rng = np.random.default_rng(kind.TAG)
    for _ in range(9):
        _, message = EXAMPLES[kind](rng)
        for name, _ in kind._sent:
            for bad in spoiled(getattr(message, name)):
                with pytest.raises(ParameterError, match=rf"^{kind.__name__}\.{name} "):
                    wire.encode(replace(message, **{name: bad}))


def _half(message, name):
    value = getattr(message, name)
    return replace(message, **{name: value[: len(value) // 2]})


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "value") for kind in (IdealSecret, SeedShare, Confirm)),
        *((kind, "signature") for kind in (SumMasked, SumSigned)),
        *((Hello, name) for name in ("key", "commitment", "verify_key")),
        *((Directory, n) for n in ("server_key", "keys", "kem_keys", "values", "signatures")),
        *((Directory, n) for n in ("commitments", "verify_keys")),
        (Opening, "value"),
        (Openings, "values"),
        *((IdealKeys, name) for name in ("session_id", "verify_keys", "values", "secrets")),
        *((SumShares, name) for name in ("key_share", "seed_share")),
        *((SumReady, name) for name in ("key_image", "seed_image", "terms")),
        *((Roster, "clients"), (OtChallenge, "seed"), (OtProof, "hashes")),
        *((RowSumsRound, "terms"), (RlweCiphertexts, "limbs")),
    ],
)
def test_fields_of_another_length_are_not_written(kind, name):
    for seed in range(99):
        _, message = EXAMPLES[kind](np.random.default_rng(seed))
        if len(getattr(message, name)):
            break
    with pytest.raises(ParameterError, match=rf"^{kind.__name__}\.\w+ has shape \("):
        wire.encode(_half(message, name))


def test_lengths_that_follow_from_each_other_are_checked():
    _, shares = next(
        example
        for example in map(_distance_shares, map(np.random.default_rng, range(99)))
        if example[0]["rows"] > 2
    )
    with pytest.raises(ParameterError, match=r"^DistanceShares\.local has shape"):
        wire.encode(_half(shares, "local"))
    masks = RlweMasks(np.zeros((2, 4096), np.uint32), 4097)
    with pytest.raises(ParameterError, match=r"^RlweMasks\.values has shape \(2, 4096\), not"):
        wire.encode(masks)
    reveal = SumReveal((bytes(37), bytes(36)))
    with pytest.raises(ParameterError, match=r"^SumReveal\.shares has shape \(36,\), not \(37,\)"):
        wire.encode(reveal)


def test_a_size_that_is_missing_is_named():
    with pytest.raises(ParameterError, match="Hello needs the size 'signature'"):
        Hello.size(agreement=0, numbers=0, kem=0)
    with pytest.raises(ParameterError, match="Sealed needs the size 'body'"):
        wire.decode_body(Sealed, b"", bodies=3)


@KINDS
def test_a_message_of_another_tag_or_length_is_refused(kind):
    rng = np.random.default_rng(kind.TAG)
    dims, message = EXAMPLES[kind](rng)
    payload = wire.encode(message)
    other = next(k for k in EXAMPLES if k is not kind)
    wrong = {
        "longer": payload + b"\0",
        "another tag": other.TAG.to_bytes(2, "big") + payload[2:],
        "unknown tag": b"\xff\xff" + payload[2:],
        "no body": payload[:1],
        "nothing": b"",
    }
    if len(payload) > 2:
        wrong["shorter"] = payload[:-1]
    for name, data in wrong.items():
        with pytest.raises(DecodeError):
            pytest.fail(f"{name} was taken: {wire.decode(kind, data, **dims)}")


@KINDS
def test_messages_show_nothing_and_are_not_pickled_or_copied(kind):
    _, message = EXAMPLES[kind](np.random.default_rng(0))
    assert repr(message) == str(message) == f"<{kind.__name__}>"
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=kind.__name__):
            action(message)
    with pytest.raises(AttributeError):
        setattr(message, fields(kind)[0].name, None)


@KINDS
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1 << 32), data=st.data())
def test_random_bytes_are_refused_or_are_the_encoding_of_what_they_decode_to(kind, seed, data):
    dims, message = EXAMPLES[kind](np.random.default_rng(seed))
    original = wire.encode(message)
    if data.draw(st.booleans(), label="arbitrary"):
        size = kind.size(**dims)
        payload = original[:2] + data.draw(st.binary(min_size=size, max_size=size))
    else:
        altered = bytearray(original)
        for _ in range(data.draw(st.integers(1, 3))):
            altered[data.draw(st.integers(0, len(altered) - 1))] = data.draw(st.integers(0, 255))
        payload = bytes(altered)
    try:
        back = wire.decode(kind, payload, **dims)
    except DecodeError:
        assert payload != original
        return
    assert wire.encode(back) == payload


class AnyModulus(wire.Message):
    TAG = 0xFE02
    values: np.ndarray = wire.sent(Modular("rows", "columns"))
    modulus: int


MODULI = [2, 3, 255, 256, 257, 2**13, 2**16, 2**16 + 1, 2**24, 2**24 + 1, 2**32 - 5, 2**32]
MODULI += [2**32 + 1, 2**40, 2**40 + 1, 2**61 - 1, 2**64 - 59, 2**64 - 1, 2**64]


@pytest.mark.parametrize("modulus", MODULI)
def test_residues_of_any_modulus_take_whole_bytes_and_keep_value_dtype_and_shape(modulus):
    dims = {"rows": 5, "columns": 3, "modulus": modulus}
    values = SeededRng(1).residues(modulus, (5, 3))
    values[0, 0], values[4, 2] = modulus - 1, 0
    payload = wire.encode(AnyModulus(values, modulus))
    per_value = next(n for n in (1, 2, 3, 4, 5, 8) if modulus <= 256**n)
    assert len(payload) - 2 == AnyModulus.size(**dims) == 15 * per_value
    back = wire.decode(AnyModulus, payload, **dims)
    np.testing.assert_array_equal(back.values, values)
    assert back.values.dtype == residue_dtype(modulus)
    assert back.modulus == modulus
    for shape in ((0, 3), (5, 0)):
        empty = AnyModulus(np.zeros(shape, residue_dtype(modulus)), modulus)
        rows, columns = shape
        back = wire.decode(
            AnyModulus, wire.encode(empty), rows=rows, columns=columns, modulus=modulus
        )
        assert back.values.shape == shape


@pytest.mark.parametrize(
    ("modulus", "value"),
    [
        (m, value)
        for m in MODULI
        for value in sorted({m, m + 1, 256 ** wire_bytes(m) - 1})
        if m <= value < 256 ** wire_bytes(m)
    ],
)
def test_residues_that_are_not_below_the_modulus_are_refused(modulus, value):
    wide = np.zeros((2, 3), np.uint64)
    wide[1, 1] = value
    payload = b"\xfe\x02" + encoded(Uints(2, 3, n_bytes=wire_bytes(modulus)), wide)
    with pytest.raises(DecodeError, match=f"not a residue modulo {modulus}$"):
        wire.decode(AnyModulus, payload, rows=2, columns=3, modulus=modulus)


def test_two_messages_cannot_have_one_tag():
    with pytest.raises(ParameterError, match="0x0101"):

        class Second(wire.Message):
            TAG = Hello.TAG

    assert wire._registry[Hello.TAG] is Hello
    assert not wire._registry.keys() & {-1, 0x7000, 1 << 16, "x"}


def test_names_for_reports_never_raise():
    assert wire.type_name(b"") == "unknown tag 0x0000"
    assert wire.type_name(b"\xff\xff...") == "unknown tag 0xffff"
    assert wire.type_name(wire.encode(Sealed(Hello.TAG.to_bytes(2, "big"), b""))) == "Sealed[Hello]"
    assert wire.type_name(wire.encode(Sealed(b"\xff\xff", b""))) == "Sealed[unknown tag 0xffff]"
