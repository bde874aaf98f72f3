"""What a client can learn that does not follow SecureHamming; the back ends promise nothing then.

Each test runs the whole protocol between roles, key exchange and server included. One client
replaces a step of its own part; the others run the code as it is, and notice nothing.
"""

import gmpy2
import numpy as np
import pytest
from contracts.hamming import SHADE_IDEAL
from gmpy2 import mpz
from protocol_runs import assert_blames, hamming

from xclp_crypto.params import INSECURE_TEST_128
from xclp_crypto.primitives import rlwe
from xclp_crypto.primitives.paillier import PrivateKey, PublicKey
from xclp_crypto.protocols.hamming import BACKENDS, distances_between
from xclp_crypto.protocols.hamming import masked as masked_module
from xclp_crypto.protocols.hamming import paillier as paillier_module
from xclp_crypto.protocols.hamming import shade as shade_module
from xclp_crypto.protocols.hamming import shade_ext as shade_ext_module
from xclp_crypto.protocols.hamming.paillier import Paillier, PaillierAnswers
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.protocols.hamming.rlwe import RlweAnswers, RlweMasks
from xclp_crypto.protocols.hamming.shade_ext import ShadeExt
from xclp_crypto.protocols.ot import ideal_ot
from xclp_crypto.protocols.ot.bits import to_words
from xclp_crypto.protocols.ot.extension import OtCorrections
from xclp_crypto.protocols.ot.link import ReceiverEnd, transfer_words
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import run


def random_bits(rows, n_bits, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (rows, n_bits)).astype(np.uint8)


def right(outcome, bits):
    """Whether the server has the right distances, as if nothing had happened."""
    stacked = np.concatenate(list(bits.values()))
    return np.array_equal(outcome.results[SERVER].matrix, distances_between(stacked, stacked))


def seen_by(outcome, party, kind):
    return [m for _, m in outcome.views[party] if isinstance(m, kind)]


@pytest.mark.parametrize("shift", [None, 65], ids=["honest", "deviating"])
def test_limit_attack_3_an_owner_of_rlwe_that_adds_to_its_ciphertexts_reads_every_bit(
    monkeypatch, shift
):
    """It adds 2^65 to coefficient i of row i, which the evaluator multiplies by 1 − 2x_i = ±1.

    Flood and noise are below 2^66 and Δ = 2^67, so distances stay right, and the sign of what is
    left after decryption is the bit. Without the shift it is the sign of the flood.
    """
    n_bits = 64
    bits = {"a": random_bits(n_bits, n_bits, 1), "b": random_bits(n_bits, n_bits, 2)}
    honest, kept = rlwe.encrypt, []

    def encrypt(rng, ring, rows):
        secrets, limbs = honest(rng, ring, rows)
        kept.append(secrets)
        if shift is not None:
            p, i = ring.parameters, np.arange(n_bits)
            limbs[shift // p.limb_bits][i, i] += 1 << shift % p.limb_bits
            carry = limbs[0][i, i] >> p.limb_bits
            limbs[1][i, i] += carry
            for limb in limbs:
                limb[i, i] &= (1 << p.limb_bits) - 1
        return secrets, limbs

    monkeypatch.setattr(rlwe, "encrypt", encrypt)
    outcome = run(hamming("rlwe", bits), record=True).raise_errors()
    assert right(outcome, bits)
    (secrets,) = kept  # only the first client owns ciphertexts
    (c1,), (c2,) = (seen_by(outcome, "a", kind) for kind in (RlweMasks, RlweAnswers))
    p = rlwe.parameters_for(n_bits)
    step, modulus = 1 << p.switched_bits - p.plain_bits, 1 << p.switched_bits
    phase = c2.values.astype(np.int64) - secrets.astype(np.int64) @ c1.values.astype(np.int64).T
    left = (phase % modulus + step // 2) % step - step // 2
    read = (left < 0).T
    if shift is None:
        assert 0.4 < np.mean(read == bits["b"]) < 0.6
    else:
        assert np.array_equal(read, bits["b"])


def short_key():
    """Return a key that the evaluator takes, with an h of order 6 instead of half of (p−1)(q−1)."""
    half = INSECURE_TEST_128.modulus_bits // 2
    p = gmpy2.next_prime(mpz(3) << (half - 2))
    while p % 12 != 7:  # 3 modulo 4, and there are three cube roots of 1
        p = gmpy2.next_prime(p)
    q = gmpy2.next_prime(p)
    while q % 4 != 3 or gmpy2.gcd(p - 1, q - 1) != 2:
        q = gmpy2.next_prime(q)
    root = next(r for g in range(2, 99) if (r := gmpy2.powmod(g, (p - 1) // 3, p)) != 1)
    h = (-1 - (root - 1) * q * gmpy2.invert(q, p)) % (p * q)  # −root modulo p, −1 modulo q
    return PrivateKey(p, q, PublicKey(p * q, h, INSECURE_TEST_128))


@pytest.mark.parametrize("backend", [Paillier, PaillierPacked])
@pytest.mark.parametrize("key", [None, short_key()], ids=["honest key", "short key"])
def test_limit_an_owner_of_paillier_with_a_key_of_its_choice_reads_every_bit(
    monkeypatch, backend, key
):
    """It marks the ciphertext of bit l by G^(2^l), and re-randomising does not hide the marks.

    With its h the evaluator draws from six randomisers only, whose sixth power is 1.
    """
    n_bits = 10
    bits = {"a": random_bits(3, n_bits, 1), "b": random_bits(4, n_bits, 2)}
    keys, generate, encrypt_rows = [], paillier_module.generate, paillier_module.encrypt_rows

    def marker(n):
        return gmpy2.powmod(5, n, n * n)

    def own_key(rng, parameters):
        keys.append(key or generate(rng, parameters))
        return keys[-1]

    def marked(own, rows, base, rng, workers):
        square, mark = own.public.n_squared, marker(own.public.n)
        values = encrypt_rows(own, rows, base, rng, workers)
        return [v * gmpy2.powmod(mark, 1 << i, square) % square for i, v in enumerate(values)]

    monkeypatch.setattr(paillier_module, "generate", own_key)
    monkeypatch.setattr(paillier_module, "encrypt_rows", marked)
    outcome = run(hamming(backend(INSECURE_TEST_128), bits), record=True).raise_errors()
    assert right(outcome, bits)
    (own,) = keys  # only the first client owns ciphertexts
    n, square = own.public.n, own.public.n_squared
    marks = {  # by the exponent of G, Σ_{x_l=0} 2^l − Σ_{x_l=1} 2^l
        gmpy2.powmod(marker(n), 6 * ((1 << n_bits) - 1 - 2 * x), square): x
        for x in range(1 << n_bits)
    }
    for message in seen_by(outcome, "a", PaillierAnswers):
        plain = own.decrypt_residues(message.values)
        left = [v * (1 - m * n) % square for v, m in zip(message.values, plain, strict=True)]
        read = [marks.get(gmpy2.powmod(v, 6, square)) for v in left]
        if key is None:
            assert read == [None] * len(bits["b"])
        else:
            found = np.array(read)[:, None] >> np.arange(n_bits) & 1
            assert np.array_equal(found, bits["b"])


def test_attack_1_a_receiver_that_hides_different_choices_is_named_and_gets_nothing(
    monkeypatch,
):
    """It hides another choice in column j of the transfers of its row j, for 128 rows.

    Where s_j = 1 the sender would hash another row, so the receiver's own distances, and the
    server's, would tell s_j, and then all pads and bits. The check sees it before a correction
    leaves.
    """
    n_bits = 8
    bits = {"a": random_bits(130, n_bits), "b": np.zeros((128, n_bits), np.uint8)}
    honest = ReceiverEnd.extend

    def extend(self, choices, count, **options):
        batch = honest(self, choices, count, **options)
        words = transfer_words(count, checked=True)
        for j, own in enumerate(np.repeat(np.eye(128, dtype=bool), n_bits, axis=1)):
            batch.u[j, :words] ^= to_words(own, words)
        return batch

    monkeypatch.setattr(ReceiverEnd, "extend", extend)
    outcome = run(hamming(ShadeExt(ideal_ot), bits), record=True)
    assert_blames(outcome.errors["a"], ("b",), "OtColumns")
    assert not seen_by(outcome, "b", OtCorrections)
    assert SERVER not in outcome.results


# Weights of its own instead of the signs 1 − 2x of a row

L = 64
WEIGHTS = np.r_[L, np.zeros(L - 1, int)]
"""For a row of zeros: its distance to another row is then L times that one's first bit."""


class Weights:
    """Bits b of which `1 - 2 * b` are the signs of rows, but for the first one."""

    def __init__(self, bits):
        self.shape = bits.shape
        self.signs = 1 - 2 * bits.astype(np.int8)
        self.signs[0] = WEIGHTS

    def astype(self, dtype):
        return self

    def __rmul__(self, two):
        return self

    def __rsub__(self, one):
        return self.signs


def weighing(function, rows):
    """`function`, one of whose arguments are bits, with weights if they are so many rows."""

    def weighed(*args):
        mine = [isinstance(a, np.ndarray) and a.shape == (rows, L) for a in args]
        return function(*(Weights(a) if m else a for a, m in zip(args, mine, strict=True)))

    return weighed


def offering_weights(offers, rows):
    def offered(bits, masks, n_bits):
        messages = offers(bits, masks, n_bits)
        if len(bits) in (rows * len(other) * L for other in VICTIMS.values()):
            first = len(bits) // rows
            weights = np.tile(WEIGHTS, first // L).astype(np.uint16)
            chosen = (masks[:first] + weights) & np.uint16(127)
            messages[:first, 1] = chosen.astype("<u2").view(np.uint8).reshape(-1, 2)
        return messages

    return offered


def exponentiating(evaluate, rows):
    def evaluated(self, bits, values, square):
        results = evaluate(self, bits, values, square)
        if len(bits) == rows:
            results[0] = gmpy2.powmod(values[0], L, square)
        return results

    return evaluated


def uploading_weights(upload, rows):
    """In `masked` weights are odd, because 2·X is sent: here −39, and then ±1."""

    def uploaded(bits, sizes, me, *args):
        if len(bits) == rows:
            bits = bits.copy()
            bits[0, 0] = 20
        return upload(bits, sizes, me, *args)

    return uploaded


VICTIMS = {"b": random_bits(9, L, 5), "c": random_bits(8, L, 6)}


@pytest.mark.parametrize(
    ("backend", "place", "name", "replace", "rows", "what"),
    [
        (BACKENDS["rlwe"], rlwe, "prepare", weighing, 12, "parities"),
        (SHADE_IDEAL, shade_module, "offers", offering_weights, 12, "parities"),
        (ShadeExt(ideal_ot), shade_ext_module, "lane_offsets", weighing, 12, "parities"),
        (Paillier(INSECURE_TEST_128), Paillier, "evaluate", exponentiating, 12, "parities"),
        (
            PaillierPacked(INSECURE_TEST_128),
            PaillierPacked,
            "evaluate",
            exponentiating,
            5,
            "parities",
        ),
        (BACKENDS["masked"], masked_module, "client_upload", uploading_weights, 12, "Gram"),
    ],
    ids=["rlwe", "shade", "shade-ext", "paillier", "paillier-packed", "masked"],
)
def test_attack_2_a_client_that_uses_other_weights_than_the_signs_of_a_row_is_named(
    monkeypatch, backend, place, name, replace, rows, what
):
    """With weights (L, 0, …, 0) the server's columns of S would tell it a bit of every peer row."""
    bits = {"a": random_bits(rows, L, 4), **VICTIMS}
    bits["a"][0] = 0 if what == "parities" else np.arange(L) % 2
    monkeypatch.setattr(place, name, replace(getattr(place, name), rows))
    outcome = run(hamming(backend, bits))
    assert_blames(outcome.errors[SERVER], ("a",))
    assert what in str(outcome.errors[SERVER])
    assert "row 0 of 'a'" in str(outcome.errors[SERVER])
