"""The decoders of elements, keys, shares, ciphertexts and packed numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import phe
from decoders import Decoder, Finding, encodes_to_same
from gmpy2 import mpz

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.group import Point, Scalar, multiply_base
from xclp_crypto.algebra.ring import residue_dtype
from xclp_crypto.errors import EncodingOverflow
from xclp_crypto.fields import pack, unpack
from xclp_crypto.params import INSECURE_TEST_128, Agreement
from xclp_crypto.primitives import paillier
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.primitives.identity import Identity, IdentityKey
from xclp_crypto.primitives.key_agreement import ExchangeKey, KeyPair
from xclp_crypto.primitives.paillier import phe as exchange
from xclp_crypto.primitives.sealed_box import SealedBox
from xclp_crypto.primitives.shamir import SHARE_BYTES, Share, recover_secret, share_secret
from xclp_crypto.protocols.ot.bits import pack_planes, unpack_planes
from xclp_crypto.rng import Rng, SeededRng
from xclp_lp.kept import Hashed, Kept
from xclp_lp.scaling import Moments

LAB = domain_tag("fuzzing")


def _chosen(data: bytes, choices: int) -> tuple[int, bytes]:
    """Split off a first byte that chooses one of several."""
    return (data[0] % choices, data[1:]) if data else (0, b"")


def _group(rng: Rng) -> Iterator[Decoder]:
    points = tuple(
        multiply_base(Scalar.from_uniform_bytes(rng.bytes(64))).encode() for _ in range(4)
    )
    # RFC 9496, A.3: non-canonical fields, a negative element, a non-square, the identity.
    bad = [
        "00" * 32,
        "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    ]
    yield Decoder(
        "point",
        Point.decode,
        (*points, *map(bytes.fromhex, bad)),
        encodes_to_same(Point.encode),
        64,
    )


def _keys(rng: Rng) -> Iterator[Decoder]:
    own = IdentityKey(rng.bytes(32))
    identities = [IdentityKey(rng.bytes(32)).public for _ in range(4)]
    weak = [bytes(32), b"\1" + bytes(31), b"\xee" + b"\xff" * 30 + b"\x7f", b"\xff" * 32]
    yield Decoder(
        "identity",
        Identity,
        (*(i.encode() for i in identities), *weak),
        encodes_to_same(Identity.encode),
        64,
    )
    yield Decoder(
        "identity-text",
        lambda data: Identity.from_text(data.decode("utf-8", "surrogateescape")),
        (*(i.to_text().encode() for i in identities), identities[0].to_text().upper().encode()),
        encodes_to_same(lambda identity: identity.to_text().encode()),
        128,
    )
    message = b"what was signed"
    signature = own.sign(message)
    order = 2**252 + 27742317777372353535851937790883648493
    other_s = (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")

    def only(value: bytes) -> Any:
        def require(data: bytes, _: Any) -> None:
            if data != value:
                raise Finding("other bytes than the owner's are taken")

        return require

    yield Decoder(
        "signature",
        lambda data: own.public.verify(data, message, "peer"),
        (signature, signature[:32] + other_s, signature[:32] + bytes(32)),
        only(signature),
        96,
    )
    pair = KeyPair(rng.bytes(32))

    def agreed(data: bytes) -> ExchangeKey:
        key = ExchangeKey(data)
        if len(pair.shared_secret(key, "peer")) != 32:
            raise Finding("a shared secret has not 32 bytes")
        return key

    yield Decoder(
        "public-key",
        agreed,
        (*(KeyPair(rng.bytes(32)).public.encode() for _ in range(4)), *weak),
        encodes_to_same(ExchangeKey.encode),
        64,
    )
    key = rng.bytes(32)
    plaintexts = (b"", b"message", rng.bytes(40))
    yield Decoder(
        "sealed-box",
        lambda data: SealedBox(key, LAB).open(data),
        tuple(SealedBox(key, LAB).seal(p) for p in plaintexts),
        encodes_to_same(lambda plaintext: SealedBox(key, LAB).seal(plaintext)),
        128,
    )
    agreement = Agreement(n_bits=4096, k=3, classes=("cat", "dog"))
    yield Decoder(
        "agreement",
        lambda data: agreement.require_same(data, "peer"),
        (agreement.encode(), agreement.encode() + bytes(8), Agreement(n_bits=64, k=3).encode()),
        only(agreement.encode()),
        64,
    )


def _shares(rng: Rng) -> Iterator[Decoder]:
    secret = rng.bytes(32)
    shares = [s.encode() for s in share_secret(secret, 3, range(1, 6), rng)]
    yield Decoder(
        "share", Share.decode, tuple(shares), encodes_to_same(Share.encode), 2 * SHARE_BYTES
    )

    (alone,) = share_secret(secret, 1, [7], rng)

    def recovered(data: bytes) -> bytes:
        parts = range(0, len(data), SHARE_BYTES)
        return recover_secret([Share.decode(data[i : i + SHARE_BYTES]) for i in parts])

    def require(data: bytes, value: bytes) -> None:
        if len(value) != 32:
            raise Finding("a recovered secret has not 32 bytes")

    yield Decoder(
        "shares",
        recovered,
        (b"".join(shares), b"".join(shares[:3]), shares[0], alone.encode()),
        require,
        8 * SHARE_BYTES,
    )


def _paillier(rng: Rng) -> Iterator[Decoder]:
    parameters = INSECURE_TEST_128
    private = paillier.generate(rng, parameters)
    public = private.public
    plain = paillier.PublicKey(public.n, None, parameters)
    yield Decoder(
        "paillier-public-key",
        lambda data: paillier.PublicKey.decode(data, parameters),
        (public.encode(), plain.encode()),
        encodes_to_same(paillier.PublicKey.encode),
        64,
    )
    yield Decoder(
        "paillier-private-key",
        lambda data: paillier.PrivateKey.decode(data, parameters),
        (private.export_secret(), paillier.generate(rng, parameters).export_secret()),
        encodes_to_same(paillier.PrivateKey.export_secret),
        64,
    )

    def same(ciphertexts: paillier.Ciphertexts) -> bytes:
        ciphertexts._fresh = True  # or encoding re-randomises
        return ciphertexts.encode(SeededRng(0))

    arrays = ([], [[1, 2], [3, 4]], 5, [[[]], [[]]])
    empty = paillier.encrypt(public, [], rng).encode(rng)[:12]
    huge = empty + b"\x04" + bytes(4) + b"\xff" * 12
    yield Decoder(
        "paillier-ciphertexts",
        lambda data: paillier.Ciphertexts.decode(data, public),
        (*(paillier.encrypt(public, a, rng).encode(rng) for a in arrays), huge),
        encodes_to_same(same),
        512,
    )

    def same_of_numbers(numbers: paillier.EncryptedNumbers) -> bytes:
        numbers._ciphertexts._fresh = True
        return numbers.encode(SeededRng(0))

    slots = [paillier.Slots(8, 4, 4, 10, packed) for packed in (True, False)]
    some = [paillier.encrypt_numbers(public, [[1.5] * 9], s, rng) for s in slots]
    yield Decoder(
        "paillier-numbers",
        lambda data: paillier.EncryptedNumbers.decode(data, public),
        tuple(a.encode(rng) for x in some for a in (x, x * 0.5)),
        encodes_to_same(same_of_numbers),
        512,
    )

    # The exchange with phe takes objects of phe, here of any numbers.
    def key_from_phe(data: bytes) -> tuple[paillier.PublicKey, int]:
        n = int.from_bytes(data, "big")
        key = phe.PaillierPublicKey(n) if n else phe.PaillierPublicKey(1)
        return exchange.public_key_from_phe(key, parameters), key.n

    def same_key(data: bytes, value: tuple[paillier.PublicKey, int]) -> None:
        if exchange.public_key_to_phe(value[0]).n != value[1]:
            raise Finding("a key of phe comes back as another one")

    yield Decoder(
        "phe-public-key",
        key_from_phe,
        (int(public.n).to_bytes(16, "big"), (int(public.n) + 2).to_bytes(16, "big")),
        same_key,
        32,
    )

    def private_from_phe(data: bytes) -> tuple[paillier.PrivateKey, tuple[int, int]]:
        p, q = (int.from_bytes(half, "big") for half in (data[:8], data[8:16]))
        key = object.__new__(
            phe.PaillierPrivateKey
        )  # its constructor checks, and other code may not
        key.public_key, key.p, key.q = phe.PaillierPublicKey(max(p * q, 1)), p, q
        return exchange.private_key_from_phe(key, parameters), (p, q)

    def same_primes(data: bytes, value: tuple[paillier.PrivateKey, tuple[int, int]]) -> None:
        if value[0].export_primes() != value[1]:
            raise Finding("a private key of phe comes back as another one")

    primes = [int(p).to_bytes(8, "big") for p in private.export_primes()]
    yield Decoder(
        "phe-private-key",
        private_from_phe,
        (b"".join(primes), b"".join(reversed(primes)), primes[0] * 2),
        same_primes,
        16,
    )
    foreign = phe.PaillierPublicKey(int(public.n))

    def numbers_from_phe(data: bytes) -> tuple[paillier.Ciphertexts, list[int]]:
        parts = [data[i : i + 33] for i in range(0, len(data), 33)]
        values = [int.from_bytes(p[1:], "big") for p in parts]
        numbers = [
            phe.EncryptedNumber(foreign, v, int(p[0]) - 256 * (p[0] > 127))
            for v, p in zip(values, parts, strict=True)
        ]
        return exchange.ciphertexts_from_phe(numbers, public), values

    def same_numbers(data: bytes, value: tuple[paillier.Ciphertexts, list[int]]) -> None:
        # phe re-randomises what it gives out, so the plaintexts are compared.
        ciphertexts, given = value
        expected = private.decrypt_residues([mpz(v) % public.n_squared for v in given])
        if private.decrypt_residues(ciphertexts._values.tolist()) != expected:
            raise Finding("a ciphertext of phe comes back as that of another number")

    fresh = paillier.encrypt(public, [1, 2], rng)._values.tolist()
    sound = b"".join(b"\0" + mpz(c).to_bytes(32, "big") for c in fresh)
    yield Decoder(
        "phe-ciphertexts", numbers_from_phe, (sound, b"", b"\1" + sound[1:]), same_numbers, 132
    )


def _numbers(rng: Rng) -> Iterator[Decoder]:
    for name, write, read in (
        ("packed-residues", pack, unpack),
        ("packed-planes", lambda *packed: b"".join(pack_planes(*packed)), unpack_planes),
    ):

        def decode(data: bytes, read: Any = read) -> tuple[bytes, int, Any]:
            width, rest = _chosen(data, 16)
            extra, body = _chosen(rest, 64)
            # As many as the bytes have room for, or a few less, so that there is padding.
            count = max(8 * len(body) // (width + 1) - extra % 8, 0)
            return body, width + 1, read(body, count, width + 1)

        def require(data: bytes, value: tuple[bytes, int, Any], write: Any = write) -> None:
            body, width, residues = value
            if write(residues, width) != body:
                raise Finding("residues are packed in other bytes than they were read from")

        seeds = []
        for width in range(1, 17):
            residues = rng.residues(1 << width, 40).astype(np.uint16)
            seeds.append(bytes([width - 1, -(40 * width) % 8 // width]) + write(residues, width))
        yield Decoder(name, decode, tuple(seeds), require, 512)

    codecs = [
        FixedPoint(f, 1, m)
        for f, m in ((0, 3), (0, 256), (4, 1000), (8, 1 << 16), (16, 1 << 32), (20, 2**48 - 59))
    ]
    codecs += [FixedPoint(0, 1, 1 << 64), FixedPoint(0, 1, (1 << 64) - 59)]

    def fixed(data: bytes) -> tuple[FixedPoint, Any, Any]:
        which, body = _chosen(data, len(codecs))
        codec = codecs[which]
        dtype = residue_dtype(codec.modulus)
        residues = np.frombuffer(body[: len(body) // dtype.itemsize * dtype.itemsize], dtype)
        return codec, residues, codec.decode_numbers(residues)

    def same_residues(data: bytes, value: tuple[FixedPoint, Any, Any]) -> None:
        codec, residues, numbers = value
        try:
            again = codec.encode(numbers)
        except EncodingOverflow:  # −m/2 of an even m, which is never encoded
            if codec.modulus % 2 or not (residues == codec.modulus // 2).any():
                raise Finding("a number that was decoded cannot be encoded") from None
            return
        if not np.array_equal(again, residues):
            raise Finding("numbers are encoded as other residues than they were decoded from")

    seeds = [
        bytes([i]) + rng.residues(c.modulus, 5).astype(c.dtype).tobytes()
        for i, c in enumerate(codecs)
    ]
    yield Decoder("fixed-point", fixed, tuple(seeds), same_residues, 256)


def _kept(rng: Rng) -> Iterator[Decoder]:
    own = Hashed(
        rng.bytes(32),
        Moments(np.ones(3), np.array([1.0, np.inf, 2.0]), 3.0),
        3,
        np.frombuffer(rng.bytes(4), np.uint8).reshape(2, 2),
        class_ids=np.array([1, -1]),
        in_graph=np.array([True, False, True]),
    )
    kept = Kept(rng.bytes(32), own, np.ones((2, 2)), np.array([4, 5]))
    bare = replace(kept, own=replace(own, moments=None), totals=None)
    seeds = kept.encode(), bare.encode()
    yield Decoder("kept", Kept.decode, seeds, encodes_to_same(Kept.encode), 512)


def building_blocks() -> Iterator[Decoder]:
    """Yield the decoders of all that messages are made of."""
    rng = SeededRng(1)
    for make in (_group, _keys, _shares, _paillier, _numbers, _kept):
        yield from make(rng)
