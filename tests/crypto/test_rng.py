"""Sources of randomness: the system's, and its seeded twin."""

import copy
import multiprocessing
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from xclp_crypto.algebra.group import Scalar
from xclp_crypto.errors import ParameterError, ReuseError
from xclp_crypto.params import INSECURE_TEST_128, RLWE_SETS, Agreement
from xclp_crypto.primitives import paillier, rlwe
from xclp_crypto.primitives.discrete_gaussian import sample
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.primitives.key_agreement import KemPair, KeyPair
from xclp_crypto.primitives.paillier.phe import ciphertexts_to_phe, numbers_to_phe
from xclp_crypto.primitives.shamir import share_element, share_secret
from xclp_crypto.privacy import RandomizedResponse, add_noise
from xclp_crypto.protocols.ot import (
    Choices,
    Extension,
    base_transfers,
    extended_ot,
    naor_pinkas,
)
from xclp_crypto.protocols.setup import key_exchange_client
from xclp_crypto.rng import Rng, SeededRng, SystemRng
from xclp_crypto.role import Compute, DriverIO
from xclp_crypto.transport.simulate import Simulation

RNGS = [SystemRng, lambda: SeededRng(1)]

# Inherited by forked workers, as a generator in a module is.
SYSTEM = SystemRng()
SEEDED = SeededRng(1)
BARRIER = None


@pytest.mark.parametrize("make", RNGS)
def test_draws_have_the_right_size_type_and_range(make):
    rng = make()
    assert isinstance(rng, Rng)
    for n in (0, 1, 33):
        draw = rng.bytes(n)
        assert type(draw) is bytes
        assert len(draw) == n
    residues = rng.residues(4097, (3, 0, 2))
    assert (residues.shape, residues.dtype) == ((3, 0, 2), np.uint16)
    assert int(rng.residues(5, 1000).max()) == 4


@pytest.mark.parametrize("make", RNGS)
def test_draws_never_repeat(make):
    rng = make()
    draws = [rng.bytes(16) for _ in range(50)]
    draws += [rng.residues(2**64, 2).tobytes() for _ in range(50)]
    draws += [rng.child(i).bytes(16) for i in range(50)]
    draws += [rng.child(str(i)).residues(2**64, 2).tobytes() for i in range(50)]
    assert len(set(draws)) == 200


@pytest.mark.parametrize("make", RNGS)
def test_draws_are_uniform(make):
    rng = make()
    for counts in (
        np.bincount(np.frombuffer(rng.bytes(200_000), np.uint8), minlength=256),
        np.bincount(rng.residues(3, 200_000), minlength=3),
    ):
        assert stats.chisquare(counts).pvalue > 1e-9  # one of them is random in each run


def test_a_seeded_generator_repeats_for_the_same_seed_only():
    def first(seed):
        rng = SeededRng(seed)
        return rng.bytes(16), rng.residues(2**64, 2).tobytes(), rng.child("a").bytes(16)

    seeds = [0, 1, 256, b"", b"\x00", b"\x01", b"\x01\x00", 2**200]
    assert all(first(s) == first(s) for s in seeds)
    assert len({x for s in seeds for x in first(s)}) == 3 * len(seeds)


def test_a_child_does_not_depend_on_what_the_parent_drew():
    fresh, used = SeededRng(1), SeededRng(1)
    used.bytes(100)
    used.residues(3, 100)
    used.child("b").bytes(5)
    assert fresh.child("a", 2).bytes(32) == used.child("a", 2).bytes(32)


def test_children_of_different_contexts_and_levels_are_unrelated():
    contexts = [("a",), ("b",), (b"a",), ("a", 0), ("a", "0"), (0,), ()]
    root = SeededRng(1)
    draws = {root.child(*c).bytes(16) for c in contexts}
    draws |= {SeededRng(1).child("a").child(*c).bytes(16) for c in contexts}
    draws.add(SeededRng(1).bytes(16))
    assert len(draws) == 2 * len(contexts) + 1


def test_the_same_child_twice_is_refused_because_it_would_repeat_its_draws():
    rng = SeededRng(1)
    rng.child("alice", 1)
    rng.child("alice", 2)
    with pytest.raises(ReuseError, match="alice"):
        rng.child("alice", 1)
    system = SystemRng()
    assert system.child("alice").bytes(16) != system.child("alice").bytes(16)


def _start(barrier):
    global BARRIER
    BARRIER = barrier


def _draw(task):
    BARRIER.wait(60)  # so that each of the three workers takes one task
    return (
        SYSTEM.bytes(16),
        SYSTEM.residues(2**64, 2).tobytes(),
        SYSTEM.child(0).bytes(16),
        SEEDED.child(task).bytes(16),
        SEEDED.bytes(16),
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on Windows")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_user_case_a_pool_of_3_under_fork_draws_different_randomness():
    context = multiprocessing.get_context("fork")
    with context.Pool(3, _start, (context.Barrier(3),)) as pool:
        *safe, shared = zip(*pool.map(_draw, range(3), chunksize=1), strict=True)
    assert all(len(set(draws)) == 3 for draws in safe)
    # What the test would show of a generator with inherited state:
    assert len(set(shared)) == 1


@pytest.mark.parametrize("make", RNGS)
def test_bad_requests_are_refused(make):
    rng = make()
    for call in (
        lambda: rng.bytes(-1),
        lambda: rng.residues(0, 3),
        lambda: rng.residues(3, -1),
        lambda: rng.child(-1),
        lambda: rng.child(1.5),
    ):
        with pytest.raises(ParameterError):
            call()


@pytest.mark.parametrize("seed", [-1, 1.5, None, "1", True, np.int64(1)])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(ParameterError):
        SeededRng(seed)


@pytest.mark.parametrize("make", RNGS)
def test_generators_hide_their_state_and_are_neither_pickled_nor_copied(make):
    rng = make()
    assert repr(rng) == str(rng) == f"<{type(rng).__name__}>"
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret"):
            duplicate(rng)
    assert not hasattr(rng, "__dict__")


def test_an_rng_without_its_methods_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        Rng()


def test_the_seeded_generator_does_not_depend_on_the_hash_seed_of_the_process():
    code = "from xclp_crypto.rng import SeededRng; print(SeededRng(3).child('a').bytes(8).hex())"
    runs = {
        subprocess.run(  # noqa: S603
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": s}, capture_output=True, check=True
        ).stdout
        for s in ("1", "2")
    }
    assert runs == {f"{SeededRng(3).child('a').bytes(8).hex()}\n".encode()}


BITS = np.zeros((2, 128), np.uint8)
RING = rlwe.Ring.from_tag(bytes(32), b"", RLWE_SETS[0])
PAILLIER = paillier.generate(SeededRng(1), INSECURE_TEST_128)
IMPORTED = paillier.PublicKey(PAILLIER.public.n, None, INSECURE_TEST_128)
SUMS = paillier.encrypt(PAILLIER, [1], SeededRng(2)) + 1
SLOTS = paillier.Slots(1, room_bits=8, packed=False)
NUMBERS = paillier.encrypt_numbers(PAILLIER, [1], SLOTS, SeededRng(2)) + 1
PAIR = np.zeros((1, 2, 1), np.uint8)
WANTED = Choices(np.array([True]), 1)
OF_BASE = (
    Simulation()
    .run({"alice": lambda io: base_transfers(io, [], [], b"", SystemRng())})
    .raise_errors()
    .results["alice"]
)
IO = DriverIO("alice", None, None)


def role(coroutine):
    """Run a role that may compute, and must end before it sends anything or waits."""
    answer = None
    while isinstance(operation := coroutine.send(answer), Compute):
        answer = operation.function(*operation.args)
    raise AssertionError(operation)


DRAWS = {
    "IdentityKey": IdentityKey.generate,
    "KeyPair": KeyPair.generate,
    "KemPair": KemPair.generate,
    "Scalar": Scalar.random,
    "share_secret": lambda r: share_secret(bytes(32), 2, [1, 2], r),
    "share_element": lambda r: share_element(1, 2, [1, 2], 7, r),
    "paillier.generate": lambda r: paillier.generate(r, INSECURE_TEST_128),
    "paillier.encrypt": lambda r: paillier.encrypt(PAILLIER.public, 1, r),
    "paillier.encrypt, the owner": lambda r: paillier.encrypt(PAILLIER, 1, r),
    "paillier.encrypt without h": lambda r: paillier.encrypt(IMPORTED, 1, r),
    "Ciphertexts.rerandomise": SUMS.rerandomise,
    "Ciphertexts.encode": SUMS.encode,
    "ciphertexts_to_phe": lambda r: ciphertexts_to_phe(SUMS, r),
    "encrypt_numbers": lambda r: paillier.encrypt_numbers(PAILLIER, [1], SLOTS, r),
    "EncryptedNumbers.encode": NUMBERS.encode,
    "numbers_to_phe": lambda r: numbers_to_phe(NUMBERS, r),
    "rlwe.encrypt": lambda r: rlwe.encrypt(r, RING, BITS),
    "rlwe.prepare": lambda r: rlwe.prepare(r, RING, BITS),
    "discrete_gaussian.sample": lambda r: sample(r, 1.0, 3),
    "add_noise": lambda r: add_noise(np.zeros(3, np.uint64), 1.0, r),
    "RandomizedResponse": lambda r: RandomizedResponse(1.0).randomize(np.zeros(1, int), 2, r),
    "naor_pinkas": lambda r: role(naor_pinkas(IO, {}, {"bob": WANTED}, b"", r)),
    "base_transfers": lambda r: role(base_transfers(IO, ["bob"], [], b"", r)),
    "Extension": lambda r: Extension(OF_BASE, b"", r),
    "extended_ot": lambda r: role(extended_ot(IO, {"bob": PAIR}, {}, b"", r)),
    "key_exchange_client": lambda r: role(
        key_exchange_client(IO, ["alice", "bob"], Agreement(), [], r)
    ),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("rng", [np.random.default_rng(0), random.Random(0), None, 0], ids=type)
def test_user_case_no_primitive_takes_a_generator_that_repeats_itself(draw, rng):
    """That none is left out here is for tests/test_layers.py."""
    with pytest.raises(ParameterError, match="rng must be a SystemRng"):
        draw(rng)
