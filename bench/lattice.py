"""What attacks on ring-LWE cost by published models: the numbers of docs/understand/protocols.md.

    python bench/lattice.py

The attack is the primal one on the unique shortest vector. In the lattice of m samples, which has
dimension d = m + N + 1, BKZ with blocks of b finds (e, ξ·s, 1) if

    σ·√b ≤ δ^(2b − d − 1) · (q^m · ξ^N)^(1/d),    δ = ((πb)^(1/b) · b/(2πe))^(1/(2(b−1))),

the estimate of Alkim, Ducas, Pöppelmann and Schwabe (New Hope, USENIX Security 2016, section 6.3),
where secrets are scaled by ξ = σ/σ_s to the size of errors (Bai and Galbraith, ACISP 2014). Its
cost is that of core-SVP, as in New Hope and Kyber: one call of a sieve, 2^(0.292·b), or 2^(0.265·b)
with a quantum computer. Memory is free, and so are all other calls and what is not exponential in
b; other models count them, and so more bits for the same attack.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from xclp_crypto.params import RLWE_SETS, RlweParameters

SAMPLES = 3  # polynomials under one secret that an evaluator sees, at most
STEP = 32  # of m


def _succeeds(parameters: RlweParameters, block: int, samples: int) -> bool:
    """Whether BKZ with such blocks finds the secret from so many samples, by the estimate above."""
    n, log_q = parameters.degree, parameters.modulus_bits
    d = samples + n + 1
    error, secret = math.sqrt(parameters.error_bits / 2), math.sqrt(2 / 3)
    root = (math.log2(math.pi * block) / block + math.log2(block / (2 * math.pi * math.e))) / (
        2 * (block - 1)
    )
    volume = (samples * log_q + n * math.log2(error / secret)) / d
    return math.log2(error) + math.log2(block) / 2 <= (2 * block - d - 1) * root + volume


def primal(parameters: RlweParameters) -> tuple[int, int]:
    """Return the least block with which the attack succeeds, and the dimension d of its lattice."""
    best, counts = 2 * parameters.degree, range(STEP, SAMPLES * parameters.degree + 1, STEP)
    dimension = 0
    for samples in counts:  # a block that suffices for some m is improved until it does not
        while best > 60 and _succeeds(parameters, best - 1, samples):
            best, dimension = best - 1, samples + parameters.degree + 1
    return best, dimension


def table() -> Iterator[str]:
    """Yield the rows of the table: set, log2 q, b, d, classical and quantum bits."""
    for parameters in RLWE_SETS:
        block, d = primal(parameters)
        classical, quantum = math.floor(0.292 * block), math.floor(0.265 * block)
        yield (
            f"| `{parameters.name}` | {parameters.modulus_bits} | {block} | {d} "
            f"| {classical} | {quantum} |"
        )


if __name__ == "__main__":
    print(*table(), sep="\n")
