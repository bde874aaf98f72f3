"""SecureHamming by Paillier, literal and packed: exactness, cost, faults, and what parties see."""

import numpy as np
import pytest
from contracts.hamming import (
    BITS,
    QUICK,
    costs_what_was_foretold,
    every_corruption_is_blamed_on_an_end_of_its_link,
    every_dropout_costs_only_the_rows_of_its_client,
    exact,
    random_bits,
    result,
)
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st
from protocol_runs import hamming

from xclp_crypto import wire
from xclp_crypto.errors import (
    DecodeError,
    FaultyPeer,
    FaultyPeerOrServer,
    ParameterError,
    ProtocolError,
)
from xclp_crypto.params import (
    INSECURE_TEST_128,
    INSECURE_TEST_512,
    PAILLIER_2048_112_BIT,
    PAILLIER_3072,
)
from xclp_crypto.primitives.paillier import generate
from xclp_crypto.protocols.hamming import estimate
from xclp_crypto.protocols.hamming import paillier as module
from xclp_crypto.protocols.hamming.paillier import (
    Packing,
    Paillier,
    PaillierRows,
    PaillierShares,
    _Ciphertexts,
    combine,
    pack,
    unpack,
)
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import blamed, run, views
from xclp_crypto.transport.simulate import Faults

LITERAL, PACKED = QUICK["paillier"], QUICK["paillier-packed"]
BOTH = pytest.mark.parametrize("backend", [LITERAL, PACKED], ids=lambda b: b.name)


# Exactness


@pytest.mark.parametrize("n_bits", [1, 3, 8, 100])
@pytest.mark.parametrize("rows", [17, 18, 19, 38, 39, 80, 128])
def test_more_rows_than_slots(n_bits, rows):
    bits = random_bits([rows, 2, 40], n_bits)
    exact(PACKED, bits)


@BOTH
def test_whole_groups_of_equal_and_opposite_vectors(backend):
    """Every slot at 0, every slot at L: nothing borrows, nothing overflows."""
    for n_bits in (1, 7, 8, 15, 16):
        bits = {"a": np.ones((45, n_bits)), "b": np.zeros((2, n_bits)), "c": np.ones((2, n_bits))}
        exact(backend, bits)


@pytest.mark.parametrize(
    "backend",
    [PaillierPacked(), Paillier(PAILLIER_2048_112_BIT)],
    ids=["packed 3072", "literal 2048"],
)
def test_full_size_keys(backend):
    bits = random_bits([3, 2], 20)
    exact(backend, bits)


def test_user_case_keys_are_3072_bits_unless_a_set_that_says_insecure_is_named():
    for backend in (Paillier(), PaillierPacked()):
        assert backend.parameters is PAILLIER_3072
    for bits in (512, 1024, 2047):
        with pytest.raises(ParameterError, match=f"got {bits}"):
            PaillierPacked(bits)


def test_several_processes_give_the_same_answers_as_one():
    rows = np.random.default_rng(0).integers(0, 2, (40, 8)).astype(bool)
    values = KEY.encrypt_residues([mpz(i) for i in range(8)], SeededRng(1))
    alone, two = (
        PaillierPacked(INSECURE_TEST_128, workers=w).answer(
            rows, values, KEY.public, mpz(1), SeededRng(2)
        )
        for w in (1, 2)
    )
    assert alone == two


# Packing


@given(
    st.integers(1, 1 << 15),
    st.integers(0, 3000),
    st.sampled_from([INSECURE_TEST_128, INSECURE_TEST_512, PAILLIER_3072]),
)
def test_digits_fit_the_plaintext_and_groups_are_few_and_even(n_bits, rows, parameters):
    packing = PaillierPacked(parameters).packing(rows, n_bits)
    assert packing.base > n_bits
    assert packing.base**packing.slots <= 1 << (parameters.modulus_bits - 1)
    assert [i for s in packing.slices() for i in range(s.start, s.stop)] == list(range(rows))
    assert (packing.slots - 1) * packing.groups < max(rows, 1)
    if packing.groups > 1:
        most = rows // (packing.groups - 1) + (rows % (packing.groups - 1) > 0)
        assert (n_bits + 1) ** most > 1 << (parameters.modulus_bits - 1)


def test_five_hundred_rows_of_4096_bits_are_two_groups():
    packing = PaillierPacked().packing(500, 4096)
    assert (packing.groups, packing.slots) == (2, 250)
    # random shares would pass for distances with probability 4097^250/n
    assert 4097**250 << 70 < 1 << 3071


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 100))
def test_packing_is_undone(n_bits, rows, seed):
    bits = np.random.default_rng(seed).integers(0, 2, (rows, n_bits)).astype(np.uint8)
    base = mpz(n_bits + 1)
    for value, column in zip(pack(bits, base), bits.T, strict=True):
        assert unpack(value, base, rows, n_bits) == column.tolist()
        assert unpack(value + base**rows, base, rows, n_bits) is None


# Cost


@pytest.mark.parametrize(
    ("backend", "sizes"), [(LITERAL, [9, 3, 2]), (PACKED, [50, 3, 2])], ids=["literal", "packed"]
)
@pytest.mark.parametrize("n_bits", [1, 7, 8, 9])
def test_metered_bytes_and_rounds_are_the_formula(backend, sizes, n_bits):
    assert costs_what_was_foretold(backend, random_bits(sizes, n_bits)).rounds == 3


def small_window(monkeypatch, groups, sizes, n_bits):
    """Let an owner send so many groups before it waits for answers."""
    longest = max(n_bits, *sizes) * INSECURE_TEST_128.modulus_bits // 4
    monkeypatch.setattr(module, "WINDOW_BYTES", groups * longest * (len(sizes) - 1))


@BOTH
@pytest.mark.parametrize("sizes", [[5, 9], [9, 1], [7, 3, 2], [3, 8, 8], [4, 0, 9, 2, 7]])
@pytest.mark.parametrize("window", [1, 2, 100])
def test_owners_that_wait_for_answers_get_them_in_the_rounds_of_the_estimate(
    monkeypatch, backend, sizes, window
):
    if backend is PACKED:
        sizes = [35 * n for n in sizes]
    small_window(monkeypatch, window, sizes, 9)
    bits = random_bits(sizes, 9)
    foretold = costs_what_was_foretold(backend, bits)
    sizes = {c: len(b) for c, b in bits.items()}
    assert backend.window(sizes, 9) == window
    groups = max(backend.packing(sizes[owner], 9).groups for owner, _ in backend.pairs(sizes, 9))
    assert (foretold.rounds == 3) == (groups <= window)


@BOTH
@pytest.mark.parametrize("window", [1, 3])
def test_no_more_than_a_window_of_groups_waits_on_a_link(monkeypatch, backend, window):
    sizes = [5, 7, 2] if backend is LITERAL else [120, 150, 90]
    small_window(monkeypatch, window, sizes, 6)
    under_way, most = {}, 0

    def watch(delivery):
        nonlocal most
        link = delivery.sender, delivery.receiver
        if delivery.message == "Sealed[PaillierRows]":
            under_way[link] = under_way.get(link, 0) + 1
            most = max(most, under_way[link])
        elif delivery.message == "Sealed[PaillierAnswers]":
            under_way[link[::-1]] -= 1
        return delivery.payload

    run(hamming(backend, random_bits(sizes, 6)), Faults(on_message=watch)).raise_errors()
    # The driver hands messages over at once, so the window is not always filled.
    assert min(window, 2) <= most <= window
    assert not any(under_way.values())


def test_operations_are_those_performed(monkeypatch):
    counts = {"encryptions": 0, "answers": 0}
    encrypt_rows, answer = module.encrypt_rows, Paillier.answer

    def count_encryptions(*args):
        values = encrypt_rows(*args)
        counts["encryptions"] += len(values)
        return values

    def count_answers(*args):
        answers, shares = answer(*args)
        counts["answers"] += len(answers)
        return answers, shares

    monkeypatch.setattr(module, "encrypt_rows", count_encryptions)
    monkeypatch.setattr(Paillier, "answer", count_answers)
    bits = random_bits([50, 3, 0, 7], 9)
    result(PACKED, bits)
    operations = estimate(PACKED, {c: len(b) for c, b in bits.items()}, 9).operations
    assert operations["encryptions"] == counts["encryptions"]
    assert operations["re-randomised and decrypted answers"] == counts["answers"]


@BOTH
def test_memory_is_that_of_shares_groups_tables_and_own_rows(backend):
    sizes, n_bits = {"a": 3, "b": 2, "c": 4}, 100
    links = estimate(backend, sizes, n_bits).bytes_per_link
    shares = sum(size for (_, to), size in links.items() if to == SERVER)
    between = sum(links.values()) - shares
    group = n_bits * 32  # ciphertexts modulo a square of 256 bits
    assert between > 3 * group  # each of three parties has one at work
    tables, own, distances = 2**13 * 32, 9 * 4 * n_bits + 8 * 4**2, 16 * 9**2
    expected = 4 * (shares + 3 * group) + between + tables + own + distances
    assert estimate(backend, sizes, n_bits).memory_bytes == expected


def test_operations_of_three_clients_by_hand():
    """Of the literal form, in which the fewer rows are encrypted: b for a and c, a for c."""
    assert estimate(Paillier(INSECURE_TEST_128), {"a": 3, "b": 2, "c": 4}, 100).operations == {
        "key pairs": 2,
        "encryptions": 100 * (3 + 2),
        "multiplications of ciphertexts": 100 * (2 * 3 + 3 * 4 + 2 * 4),
        "re-randomised and decrypted answers": 2 * 3 + 3 * 4 + 2 * 4,
    }


def test_user_case_sizes_are_known_before_the_run_starts():
    """n = 2000, L = 4096: nothing is computed, and the literal form's gigabytes are seen."""
    sizes = {"a": 2000, "b": 2000}
    literal, packed = (estimate(b, sizes, 4096) for b in (Paillier(), PaillierPacked()))
    assert literal.total_bytes > 2000 * 4096 * 768
    assert 25e6 < packed.total_bytes < 60e6
    assert packed.memory_bytes < 600e6
    assert literal.operations["encryptions"] == 2000 * 4096
    assert packed.operations["encryptions"] == 8 * 4096
    # what docs/lookup/costs.md promises
    assert estimate(PaillierPacked(), {"a": 500, "b": 500}, 4096).total_bytes < 14e6
    assert estimate(PaillierPacked(), {"a": 500, "b": 500}, 4096).memory_bytes < 1.5 * 2**30


def test_the_owner_is_whoever_makes_it_cheaper():
    def owner(backend, n_bits, **sizes):
        ((owner, _),) = backend.pairs(sizes, n_bits)
        return owner

    assert owner(PaillierPacked(), 4096, a=500, b=500) == "a"
    assert owner(PaillierPacked(), 64, a=2, b=250) == "b"
    assert owner(Paillier(), 4096, a=50, b=5) == "b"
    assert PACKED.pairs({"a": 0, "b": 3, "c": 0}, 5) == {}


# Misuse and faults


@BOTH
def test_a_client_with_other_key_sizes_is_named(backend):
    class Mixed(type(backend)):
        async def client(self, session, bits, rng):
            small = type(backend)(
                INSECURE_TEST_512 if session.io.name == "c0" else INSECURE_TEST_128
            )
            await small.client(session, bits, rng)

    errors = run(hamming(Mixed(INSECURE_TEST_128), random_bits([1, 1], 4))).errors
    assert all(isinstance(e, ProtocolError) for e in errors.values())
    assert blamed(errors["c1"]) >= {"c0"}


@pytest.mark.parametrize("backend", [LITERAL, PACKED], ids=["literal", "packed"])
def test_every_dropout_costs_only_its_rows_if_owners_wait_for_answers(monkeypatch, backend):
    small_window(monkeypatch, 1, [len(b) for b in BITS.values()], 5)
    every_dropout_costs_only_the_rows_of_its_client(backend)


@pytest.mark.parametrize("window", [1, 100])
def test_every_dropout_costs_only_its_rows_with_several_groups(monkeypatch, window):
    bits = random_bits([50, 1, 2], 5)
    small_window(monkeypatch, window, [len(b) for b in bits.values()], 5)
    every_dropout_costs_only_the_rows_of_its_client(PACKED, bits)


@pytest.mark.parametrize(
    ("backend", "bits", "window"),
    [
        (LITERAL, random_bits([1, 2, 1], 4), 1),
        (PACKED, BITS, 100),
        (PACKED, random_bits([50, 1], 5), 1),
    ],
    ids=["literal", "packed", "several groups"],
)
def test_every_corruption_gives_the_right_distances_or_names_whom_to_blame(
    monkeypatch, backend, bits, window
):
    n_bits = next(iter(bits.values())).shape[1]
    small_window(monkeypatch, window, [len(b) for b in bits.values()], n_bits)
    every_corruption_is_blamed_on_an_end_of_its_link(backend, bits, fewest=48)


def reseal(kind, change):
    """A sealing channel of client c0 that alters messages of one kind before they are sealed."""

    class Altered(PaillierPacked):
        async def client(self, session, bits, rng):
            send = session.io.send

            async def altered(to, message):
                if isinstance(message, kind) and session.io.name == "c0":
                    message = change(message)
                await send(to, message)

            session.io.send = altered
            await super().client(session, bits, rng)

    return Altered(INSECURE_TEST_128)


def with_values(message, values):
    return type(message)(values, message.n)


def with_residues(message, residues):
    return PaillierShares(
        message.complete, message.local, message.moduli, residues, message.width, message.bits
    )


BAD_MESSAGES = {
    "zero instead of a ciphertext": (
        PaillierRows,
        lambda m: with_values(m, [mpz(0), *m.values[1:]]),
    ),
    "a ciphertext not below n²": (PaillierRows, lambda m: with_values(m, [m.n**2, *m.values[1:]])),
    "a multiple of n": (PaillierRows, lambda m: with_values(m, [m.n, *m.values[1:]])),
    "a residue not below n": (
        PaillierShares,
        lambda m: with_residues(m, [*m.moduli, *m.residues[1:]]),
    ),
    "another residue": (
        PaillierShares,
        lambda m: with_residues(m, [m.residues[0] // 3, *m.residues[1:]]),
    ),
    "other rows": (PaillierRows, lambda m: with_values(m, [v**5 % m.n**2 for v in m.values])),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_a_client_that_deviates_is_named(name, monkeypatch):
    def anything(kind, dims):  # of what is written; the reader asks by itself
        return 0, 1 << 2 * dims["n"].bit_length()

    monkeypatch.setattr(_Ciphertexts, "bounds", anything)
    bits = {c: np.ones((2, 6), np.uint8) * (c == "c0") for c in ("c0", "c1")}
    errors = run(hamming(reseal(*BAD_MESSAGES[name]), bits)).errors
    assert any("c0" in blamed(e) for e in errors.values()), errors
    for error in errors.values():
        assert isinstance(error, ProtocolError)
        assert not isinstance(error, FaultyPeerOrServer)


KEY = generate(SeededRng(0), INSECURE_TEST_128)
MODULUS = int(KEY.public.n)


def test_shares_that_give_no_distance_name_both_clients_and_too_large_ones_their_sender():
    packing = Packing(2, 2, mpz(1000))

    def distances(t, r):
        return combine([mpz(t)], [mpz(r)], KEY.public.n, packing, 5, "j", "k")

    assert distances(4 * 1000 + 5, 0).tolist() == [[5, 4]]
    assert distances(3, MODULUS - 1000).tolist() == [[3, 1]]  # T wrapped around n
    for t, r in ((6, 0), (6000, 0), (10**6, 0), (0, 1), (1, 3)):
        with pytest.raises(FaultyPeer, match="above L = 5") as raised:
            distances(t, r)
        assert raised.value.parties == ("j", "k")
    for t, r, who in ((MODULUS, 0, "j"), (0, MODULUS, "k")):
        with pytest.raises(FaultyPeer, match="not below the modulus") as raised:
            distances(t, r)
        assert raised.value.parties == (who,)


@pytest.mark.parametrize("modulus", [0, 1 << 127, (1 << 127) - 1])
def test_a_modulus_that_the_server_cannot_use_is_refused(modulus):
    body = bytes([0]) + mpz(modulus).to_bytes(16, "big")
    with pytest.raises(DecodeError, match="odd and has 128 bits"):
        wire.decode_body(
            PaillierShares, body, clients=2, rows=1, owns=1, residues=0, width=3, bits=128
        )


# What the parties see


def test_evaluators_see_ciphertexts_only_and_the_server_no_ciphertexts():
    seen = views(hamming(PACKED, BITS))
    kinds = {
        c: {type(m).__name__ for _, m in seen[c] if "Paillier" in type(m).__name__} for c in seen
    }
    assert kinds[SERVER] == {"PaillierShares"}
    for client in BITS:
        assert kinds[client] <= {"PaillierKey", "PaillierRows", "PaillierAnswers"}


def test_a_client_encrypts_its_rows_once_for_all_its_peers():
    seen = views(hamming(PACKED, BITS))
    got = [
        m.values
        for c in ("c1", "c2")
        for f, m in seen[c]
        if isinstance(m, PaillierRows) and f == "c0"
    ]
    assert len(got) == 2
    assert got[0] == got[1]
