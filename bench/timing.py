"""Whether the time of an operation tells two kinds of inputs apart, by Welch's t-test.

    python bench/timing.py                       all, some minutes
    python bench/timing.py --samples 100000 --only "multiply a point"

Each operation is timed on two kinds of inputs, in random order, as dudect does (Reparaz, Balasch
and Verbauwhede, 2017): one fixed value against random ones, or two places of the first difference.
Interruptions make a tail, so t is given over all times, and over those up to the 99th, 90th and
50th percentile of both kinds together. |t| above 4.5 is taken for a difference, above 10 for a
certain one. What claims constant time must stay below; what claims nothing shows that the method
sees a difference where there is one. A small t proves nothing but that a difference was not seen,
on this machine, with these inputs and so many samples.
"""

from __future__ import annotations

import argparse
import gc
import hmac
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.group import Point, Scalar, multiply, multiply_base
from xclp_crypto.algebra.prg import Keystream
from xclp_crypto.errors import DecodeError
from xclp_crypto.params import SHAMIR_PRIME
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.primitives.key_agreement import KeyPair
from xclp_crypto.primitives.sealed_box import SealedBox
from xclp_crypto.primitives.shamir import evaluate
from xclp_crypto.protocols.ot.naor_pinkas import choose
from xclp_crypto.rng import SeededRng

CROPS = (100, 99, 90, 50)
BLOCK = 100
"""Inputs that are made before they are timed: few enough for the caches. Each is used once, because
where an object lies in memory makes a difference, too."""
COMPARED_BYTES = 256
"""Enough to see a comparison that ends early, and few enough for the caches."""

RNG = SeededRng(0)
DRAW = np.random.default_rng(0)
LAB = domain_tag("timing")


@dataclass(frozen=True)
class Operation:
    """What is timed.

    Attributes:
        name: of the operation and its two kinds of inputs.
        claims: whether constant time is claimed.
        run: what is timed, on one input.
        kinds: make an input of either kind.
    """

    name: str
    claims: bool
    run: Callable[[Any], object]
    kinds: tuple[Callable[[], Any], ...]


def fixed_or_random(make: Callable[[bytes], Any], n_bytes: int) -> tuple[Callable[[], Any], ...]:
    """Return makers of inputs from the same bytes each time, and from random ones."""
    same = RNG.bytes(n_bytes)
    return (lambda: make(bytes(bytearray(same))), lambda: make(RNG.bytes(n_bytes)))


def differing(n_bytes: int, place: int) -> Callable[[], tuple[bytes, bytes]]:
    """Return a maker of two strings that differ in one byte only."""

    def make() -> tuple[bytes, bytes]:
        one = bytearray(RNG.bytes(n_bytes))
        other = bytearray(one)
        other[place] ^= 1
        return bytes(one), bytes(other)

    return make


def altered(place: int) -> Callable[[], tuple[SealedBox, bytes]]:
    """Return a maker of boxes with a sealed message of which one byte is altered."""

    def make() -> tuple[SealedBox, bytes]:
        key = RNG.bytes(32)
        sealed = bytearray(SealedBox(key, LAB).seal(bytes(1024)))
        sealed[place] ^= 1
        return SealedBox(key, LAB), bytes(sealed)

    return make


def opened(box_and_message: tuple[SealedBox, bytes]) -> bool:
    """Return whether a box opens a message."""
    box, message = box_and_message
    try:
        box.open(message)
    except DecodeError:
        return False
    return True


def keystream(key: bytes) -> NDArray[np.uint8]:
    """Return 4 KiB of the keystream of AES-256 in counter mode."""
    out = np.empty(4096, np.uint8)
    Keystream(key).read_into(out)
    return out


def operations() -> Iterator[Operation]:
    """Yield what is timed: first what claims constant time, then what claims nothing."""
    point = multiply_base(Scalar.from_uniform_bytes(RNG.bytes(64)))
    peer = KeyPair(RNG.bytes(32)).public
    yield Operation(
        "multiply a point: one scalar, random scalars",
        True,
        lambda scalar: multiply(scalar, point),
        fixed_or_random(Scalar.from_uniform_bytes, 64),
    )
    yield Operation(
        "multiply the generator: one scalar, random scalars",
        True,
        multiply_base,
        fixed_or_random(Scalar.from_uniform_bytes, 64),
    )
    yield Operation(
        "X25519: one private key, random keys",
        True,
        lambda pair: pair.shared_secret(peer, "peer"),
        fixed_or_random(KeyPair, 32),
    )
    yield Operation(
        "Ed25519 signature: one private key, random keys",
        True,
        lambda key: key.sign(b"message"),
        fixed_or_random(IdentityKey, 32),
    )
    yield Operation(
        "AES-256-CTR, 4 KiB: one key, random keys",
        True,
        keystream,
        fixed_or_random(bytes, 32),
    )
    yield Operation(
        "AES-GCM refuses: first byte of the tag, last byte",
        True,
        opened,
        (altered(-16), altered(-1)),
    )
    yield Operation(
        "hmac.compare_digest, 256 bytes: first byte, last byte",
        True,
        lambda pair: hmac.compare_digest(*pair),
        (differing(COMPARED_BYTES, 0), differing(COMPARED_BYTES, -1)),
    )
    yield Operation(
        "== of points: equal, unequal",
        True,
        lambda pair: pair[0] == pair[1],
        (
            lambda: (point, Point(bytes(bytearray(point.encode())))),
            lambda: (
                point,
                Point(multiply_base(Scalar.from_uniform_bytes(RNG.bytes(64))).encode()),
            ),
        ),
    )
    yield Operation(
        "== of bytes, 256 bytes: first byte, last byte",
        False,
        lambda pair: pair[0] == pair[1],
        (differing(COMPARED_BYTES, 0), differing(COMPARED_BYTES, -1)),
    )
    modulus = mpz(int.from_bytes(RNG.bytes(128), "big") | 1 | 1 << 1023)
    base = mpz(3) ** 600 % modulus
    yield Operation(
        "power modulo 1024 bits (GMP): exponent 2^1023, random ones",
        False,
        lambda exponent: gmpy2.powmod(base, exponent, modulus),
        (
            lambda: mpz(1 << 1023),
            lambda: mpz(int.from_bytes(RNG.bytes(128), "big") | 1 << 1023),
        ),
    )
    yield Operation(
        "Shamir's polynomial, 3 coefficients: of 8 bits, of 256 bits",
        False,
        lambda coefficients: evaluate(coefficients, (1, 2, 3), SHAMIR_PRIME),
        (
            lambda: [1 + b for b in RNG.bytes(3)],
            lambda: [int.from_bytes(RNG.bytes(32), "big") for _ in range(3)],
        ),
    )
    seed = RNG.bytes(32)
    yield Operation(
        "choice in oblivious transfer (Naor–Pinkas): 0, 1",
        False,
        lambda choices: choose(choices, point, SeededRng(seed)),
        (lambda: np.zeros(1, bool), lambda: np.ones(1, bool)),
    )
    codec = FixedPoint(40, 8)
    yield Operation(
        "fixed-point encoding of 1000 numbers: zeros, random",
        False,
        codec.encode,
        (lambda: np.zeros(1000), lambda: DRAW.normal(size=1000)),
    )


def measure(operation: Operation, samples: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Time an operation on both kinds of inputs in random order.

    Returns:
        Nanoseconds (2·samples,), and of which kind each was.
    """
    second = DRAW.permutation(np.arange(2 * samples) % 2 == 1)
    times = np.empty(2 * samples)
    run = operation.run
    gc.disable()
    for start in range(0, 2 * samples, BLOCK):
        inputs = [operation.kinds[kind]() for kind in second[start : start + BLOCK].astype(int)]
        run(inputs[0])
        for i, item in enumerate(inputs, start):
            before = perf_counter_ns()
            run(item)
            times[i] = perf_counter_ns() - before
    gc.enable()
    return times, second


def welch(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return Welch's t of two samples."""
    spread = a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)
    return float((a.mean() - b.mean()) / math.sqrt(spread)) if spread else 0.0


def statistics(times: NDArray[np.float64], second: NDArray[np.bool_]) -> list[float]:
    """Return t over the times up to each percentile of `CROPS`."""
    found = []
    for percent in CROPS:
        kept = times <= np.percentile(times, percent)
        found.append(welch(times[kept & ~second], times[kept & second]))
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Welch's t-test of times on two kinds of inputs.")
    parser.add_argument("--samples", type=int, default=20_000, help="of each kind of input")
    parser.add_argument("--only", default="", help="operations with this in their name")
    chosen = parser.parse_args()
    heads = "".join(f"{f't, {p} %':>11}" for p in CROPS)
    print(f"{'operation':60} {'claimed':8}{'median':>10}{heads}", flush=True)
    for operation in operations():
        if chosen.only in operation.name:
            times, second = measure(operation, chosen.samples)
            row = "".join(f"{t:11.1f}" for t in statistics(times, second))
            claim = "yes" if operation.claims else "no"
            median = f"{np.median(times) / 1000:.1f} µs"
            print(f"{operation.name:60} {claim:8}{median:>10}{row}", flush=True)


if __name__ == "__main__":
    main()
