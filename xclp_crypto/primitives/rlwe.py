"""Ring-LWE ciphertexts that are evaluated by matrix products.

The ring is R_q = Z_q[x]/(x^N + 1). One party, the *owner*, encrypts bit vectors y_i, each under a
ternary secret of its own,

    b_i = a·s_i + e_i + Δ·y_i(x)        p_i = a'·s_i + e'_i        (a, a' public)

and another, the *evaluator*, holds a bit vector x. With u(x) = Σ_l (1 − 2x_l)·x^(N−1−l) the
coefficient N−1 of u·y_i is Σ_l (1 − 2x_l)·y_il = h(x, y_i) − |x|. The evaluator draws a ternary ρ
and an error e1 and returns, once for all i, c1 = u·a + ρ·a' + e1, and for every i one coefficient

    c2_i = [u·b_i + ρ·p_i]_(N−1) + flood_i + Δ·r_i,

from which the owner decrypts T_i = [c2_i − c1·s_i]_(N−1)/Δ = h − |x| + r_i mod t. No multiplication
of polynomials happens in c2: coefficient N−1 is an inner product, so all c2 together are two real
matrix products, one per limb of b and p, exact in float64.

*Why it hides.* The evaluator sees RLWE samples with ternary secrets and centred binomial errors.
The owner sees c1, which is pseudo-random by RLWE with secret ρ (the encryption of zero p_i takes
the effect of ρ out of c2 again), and in c2, next to the uniform Δ·r_i, the noise
u·e_i + ρ·e'_i − e1·s_i, which depends on x and is drowned in the flood.

Both hold for parties that follow the protocol. An owner that adds a number of its own to a
coefficient of b_i, above the flood and below Δ/2, finds it in what is left after decryption with
the sign 1 − 2x_l, and the distances stay right. No larger flood prevents that: as long as T can be
decrypted there is room for such a number. It would take a proof that the noise is small.

*Flood.* The sum of four uniform words of f bits (64, or 72 for long vectors), centred: smooth at
scale 1, exact in integers, and never beyond 2^(f+1). For a shift by δ its Hellinger distance obeys
H² ≤ δ²·I/8 with the Fisher information I = 3.1158/2^2f of four uniform terms.

*Coalitions.* What owners that collude, in any number, against any number of honest evaluators see
of noise is Q coefficients, each with a flood of its own. Given all secrets, errors and rows, the
floods are independent, so H² adds up, and the total variation is at most √2·H ≤ √(Σδ²·I)/2. Its
mean over secrets and errors is at most √(Q·E[δ²]·I)/2 (Jensen), although coefficients share
them: E[δ²] = L·σ² + ⅔·2N'·σ² for each (N' = N times the number of chunks), and means add up. Q is
at most the number of all distances between clients in the session, whoever colludes with whom.
`RlweParameters.require` refuses sizes for which the bound for all of them exceeds 2^-40.

*Correctness.* c1 and c2 are sent modulo q' = 2^(8·bytes), without their low d bits. Decryption is
right while flood (≤ 2^(f+1)) + noise + rounding stays below Δ/2. The rounding of c1 enters as
Σ_m z_m·s_m with |z_m| ≤ 2^(d−1) and independent ternary s: by Hoeffding it exceeds τ with
probability at most 2·exp(−τ²/(2·N'·2^(2d−2))), and `require` refuses sizes for which Q such events
exceed 2^-40.

Vectors longer than N are split into chunks with ciphertexts of their own; the evaluator adds the
coefficients of all chunks before it masks them once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import expand
from xclp_crypto.algebra.products import exact_product
from xclp_crypto.errors import ParameterError, XclpError
from xclp_crypto.params import RLWE_SETS, SEED_BYTES, RlweParameters
from xclp_crypto.rng import Rng, SeededRng, require_rng

ROWS_PER_BLOCK = 32  # polynomials transformed at a time, so that their digits stay in the caches
WORKERS = os.cpu_count() or 1  # threads over blocks of rows; NumPy and the FFT release the lock

Digits = list[NDArray[np.int64]]
"""A number modulo q as little-endian digits of some width each, in arrays of one shape."""


def carried(limbs: Digits, limb_bits: int) -> Digits:
    """Bring signed limbs into 0 … 2^limb_bits − 1, modulo q."""
    mask = (1 << limb_bits) - 1
    carry: NDArray[np.int64] | int = 0
    result = []
    for limb in limbs:
        value = limb + carry
        result.append(value & mask)
        carry = value >> limb_bits
    return result


@dataclass(frozen=True)
class Ring:
    """Negacyclic products by two public polynomials, exact through a float64 FFT.

    A real polynomial of N coefficients is folded into N/2 complex ones and twisted, so that the
    cyclic transform multiplies modulo x^N + 1. The public factor is split into digits of half a
    limb, at most 20 bits, and the other factor is ternary. The error of a product is at most
    ε·142·‖a‖₂·‖s‖₂ (Brent, Percival and Zimmermann 2007, theorem 2, for 11 levels and ε = 2^-53):
    below 2^-12 for the sum of three products. It is also checked, in the first row of every block.

    Attributes:
        parameters: the parameter set.
        digits: the transformed digits of a and a', (2, digits, N/2) complex128, or of more.
    """

    parameters: RlweParameters
    digits: NDArray[np.complex128]

    @classmethod
    def from_tag(
        cls, public: bytes, tag: bytes, parameters: RlweParameters, count: int = 2
    ) -> Ring:
        """Expand a and a', or more, from 32 public bytes that are the same for all parties.

        Args:
            public: such as a session identifier; fresh for every session.
            tag: domain tag of the use.
            parameters: the parameter set.
            count: how many polynomials.
        """
        from scipy import fft  # a third of the time that importing the package took

        n, width = parameters.degree, parameters.limb_bits // 2
        shape = (count, 2 * parameters.limbs, n)
        # centred digits: the number is uniform modulo q all the same
        draws = expand(public, domain_tag("rlwe public", tag), 1 << width, shape).astype(np.int64)
        return cls(parameters, fft.fft(_fold(draws - (1 << (width - 1)), n), axis=-1))

    def products(self, factors: NDArray[np.int8]) -> list[Digits]:
        """Return a·f, a'·f and so on for every row f of (rows, N) ternary, as signed limbs."""
        spectrum = self._transform(factors)
        return [self._combine([(i, spectrum)]) for i in range(len(self.digits))]

    def sum_of_products(self, *factors: NDArray[np.int8]) -> Digits:
        """Return a·u + a'·ρ + … for every row of (rows, N) ternary arrays u, ρ …, as limbs."""
        return self._combine([(i, self._transform(f)) for i, f in enumerate(factors)])

    def _transform(self, factors: NDArray[np.int8]) -> NDArray[np.complex128]:
        from scipy import fft  # see from_tag

        return np.asarray(
            fft.fft(_fold(factors, self.parameters.degree), axis=-1, overwrite_x=True)
        )

    def _combine(self, terms: list[tuple[int, NDArray[np.complex128]]]) -> Digits:
        from scipy import fft  # see from_tag

        p = self.parameters
        digits = []
        for k in range(self.digits.shape[1]):
            (i, spectrum), *others = terms
            product = spectrum * self.digits[i, k]
            for i, spectrum in others:
                product += spectrum * self.digits[i, k]
            values = _unfold(fft.ifft(product, axis=-1, overwrite_x=True), p.degree)
            rounded = np.rint(values)
            if np.abs(values[:1] - rounded[:1]).max(initial=0.0) > p.fft_margin:
                raise XclpError("a product of polynomials is not exact on this machine's FFT")
            digits.append(rounded.astype(np.int64))
        # |digit product| ≤ N·2^(width−1) ≤ 2^31, so two digits make a signed limb without overflow
        width = p.limb_bits // 2
        return [digits[2 * i] + (digits[2 * i + 1] << width) for i in range(p.limbs)]


@cache
def _twist(n: int) -> NDArray[np.complex128]:
    return np.asarray(np.exp(1j * np.pi / n * np.arange(n // 2)))


def _fold(rows: NDArray[np.int8] | NDArray[np.int64], n: int) -> NDArray[np.complex128]:
    """Fold (…, N) real coefficients into (…, N/2) complex ones, twisted."""
    folded = np.empty((*rows.shape[:-1], n // 2), dtype=np.complex128)
    folded.real = rows[..., : n // 2]
    folded.imag = rows[..., n // 2 :]
    folded *= _twist(n)
    return folded


def _unfold(folded: NDArray[np.complex128], n: int) -> NDArray[np.float64]:
    """Invert `_fold`."""
    folded *= _twist(n).conj()
    return np.concatenate([folded.real, folded.imag], axis=-1)


def ternary(rng: Rng, shape: tuple[int, ...]) -> NDArray[np.int8]:
    """Draw uniform entries of {−1, 0, 1}."""
    return require_rng(rng).residues(3, shape).astype(np.int8) - np.int8(1)


def binomial_error(rng: Rng, shape: tuple[int, ...], eta: int) -> NDArray[np.int64]:
    """Draw centred binomial errors: a sum of `eta` ≤ 32 bits minus another, variance eta/2."""
    words = require_rng(rng).residues(1 << (2 * eta), shape).astype(np.uint64)
    ones = np.bitwise_count(words & np.uint64((1 << eta) - 1)).astype(np.int64)
    return np.asarray(ones - np.bitwise_count(words >> np.uint64(eta)), dtype=np.int64)


def flood(rng: Rng, shape: tuple[int, ...], parameters: RlweParameters) -> Digits:
    """Draw the flood as signed limbs: four uniform words of f bits minus 2^(f+1)."""
    source, bits = require_rng(rng), parameters.limb_bits
    total = [np.zeros(shape, dtype=np.int64) for _ in range(parameters.limbs)]
    for _ in range(4):
        word = source.residues(1 << 64, shape).astype(np.uint64)
        total[0] += (word & np.uint64((1 << bits) - 1)).astype(np.int64)
        total[1] += (word >> np.uint64(bits)).astype(np.int64)
        if parameters.flood_bits > 64:
            above = source.residues(1 << (parameters.flood_bits - 64), shape).astype(np.int64)
            total[64 // bits] += above << (64 % bits)
    place = parameters.flood_bits + 1
    total[place // bits] -= 1 << (place % bits)
    return total


def chunked(rows: NDArray[np.int8], parameters: RlweParameters) -> NDArray[np.int8]:
    """Return (rows, L) as (rows, chunks, N), padded with zeros."""
    n = parameters.degree
    chunks = parameters.chunks(rows.shape[1])
    padded = np.zeros((len(rows), chunks * n), dtype=np.int8)
    padded[:, : rows.shape[1]] = rows
    return padded.reshape(len(rows), chunks, n)


def encrypt(rng: Rng, ring: Ring, bits: NDArray[np.uint8]) -> tuple[NDArray[np.int8], Digits]:
    """Encrypt bit vectors.

    Args:
        rng: source of secrets and errors.
        ring: the public polynomials.
        bits: (rows, L) of 0 and 1.

    Returns:
        The secrets, (rows, N') ternary, reversed within chunks as `decrypt` needs them; and the
        ciphertexts as limbs of shape (rows, L + N'): the coefficients of b that carry bits, then p.
    """
    p = ring.parameters
    rows, n_bits = bits.shape
    chunks, n = p.chunks(n_bits), p.degree
    secrets = np.empty((rows, chunks * n), dtype=np.int8)
    limbs = [np.empty((rows, n_bits + chunks * n), dtype=np.int64) for _ in range(p.limbs)]

    def encrypt_block(block: slice, own: Rng) -> None:
        count = len(bits[block])
        s = ternary(own, (count, chunks, n))
        b, zero = ring.products(s)
        b[0] += binomial_error(own, s.shape, p.error_bits)
        zero[0] += binomial_error(own, s.shape, p.error_bits)
        message = chunked(bits[block].astype(np.int8), p).astype(np.int64)
        b[p.delta_bits // p.limb_bits] += message << (p.delta_bits % p.limb_bits)
        for out, low, high in zip(
            limbs, carried(b, p.limb_bits), carried(zero, p.limb_bits), strict=True
        ):
            out[block, :n_bits] = low.reshape(count, -1)[:, :n_bits]
            out[block, n_bits:] = high.reshape(count, -1)
        secrets[block] = s[:, :, ::-1].reshape(count, -1)

    for_blocks(encrypt_block, rows, max(1, ROWS_PER_BLOCK // chunks), rng)
    return secrets, limbs


def prepare(
    rng: Rng, ring: Ring, bits: NDArray[np.uint8]
) -> tuple[NDArray[np.int8], NDArray[np.uint32]]:
    """Draw the evaluator's ρ and e1 and return what it needs for all owners.

    Args:
        rng: source of ρ and e1.
        ring: the public polynomials.
        bits: (rows, L) of 0 and 1.

    Returns:
        The evaluation matrix, (rows, L + N') ternary: signs 1 − 2x, then ρ reversed within chunks;
        and c1 modulo q', (rows, N').
    """
    p = ring.parameters
    rows, n_bits = bits.shape
    chunks, n = p.chunks(n_bits), p.degree
    signs = (1 - 2 * bits.astype(np.int8)).astype(np.int8)
    matrix = np.empty((rows, n_bits + chunks * n), dtype=np.int8)
    matrix[:, :n_bits] = signs
    c1 = np.empty((rows, chunks * n), dtype=np.uint32)

    def prepare_block(block: slice, own: Rng) -> None:
        u = chunked(signs[block], p)[:, :, ::-1]
        rho = ternary(own, u.shape)
        limbs = ring.sum_of_products(u, rho)
        limbs[0] += binomial_error(own, u.shape, p.error_bits)
        c1[block] = switched(limbs, p).reshape(len(u), -1)
        matrix[block, n_bits:] = rho[:, :, ::-1].reshape(len(u), -1)

    for_blocks(prepare_block, rows, max(1, ROWS_PER_BLOCK // chunks), rng)
    return matrix, c1


def for_blocks(work: Callable[[slice, Rng], None], rows: int, step: int, rng: Rng) -> None:
    """Call `work` for every block of rows, on all cores.

    Every block has a generator of its own, expanded from 32 bytes of `rng`, so that the result does
    not depend on how threads take turns.
    """
    key = require_rng(rng).bytes(SEED_BYTES)
    starts = range(0, rows, step)
    with ThreadPoolExecutor(WORKERS) as pool:
        tasks = [
            pool.submit(work, slice(i, i + step), SeededRng(key + i.to_bytes(8, "big")))
            for i in starts
        ]
        for task in tasks:
            task.result()


def switched(limbs: Digits, parameters: RlweParameters) -> NDArray[np.uint32]:
    """Round numbers modulo q to their top bits: a number modulo q' as uint32."""
    p = parameters
    low, high = p.limb_bits * (p.limbs - 1), p.modulus_bits
    drop = high - p.switched_bits  # the bits to leave out, all of them below the top limb or in it
    rounded = list(limbs)
    half = drop - 1
    rounded[half // p.limb_bits] = rounded[half // p.limb_bits] + (1 << (half % p.limb_bits))
    clean = carried(rounded, p.limb_bits)
    top = clean[-1] >> max(drop - low, 0)
    if drop < low:
        top = (top << (low - drop)) | (clean[-2] >> (p.limb_bits - (low - drop)))
    return (top & ((1 << p.switched_bits) - 1)).astype(np.uint32)


def evaluate(
    rng: Rng,
    matrix: NDArray[np.int8],
    limbs: Digits,
    masks: NDArray[np.uint16],
    parameters: RlweParameters,
) -> NDArray[np.uint32]:
    """Return c2 modulo q' for all owner's rows and evaluator's rows.

    Args:
        rng: source of the floods.
        matrix: (rows_k, L + N') from `prepare`.
        limbs: (rows_j, L + N') each, in 0 … 2^limb_bits − 1.
        masks: r, (rows_j, rows_k) uniform modulo t.
        parameters: the parameter set.
    """
    p = parameters
    v = matrix.astype(np.float64).T
    total = flood(rng, masks.shape, p)
    exact = 1 << (53 - p.limb_bits)  # so many limbs times −1, 0, 1 stay below 2^53
    for i, limb in enumerate(limbs):
        for part in (slice(at, at + exact) for at in range(0, len(v), exact)):
            product = exact_product(limb[:, part].astype(np.float64), v[part])
            total[i] += product.astype(np.int64)
    place = p.delta_bits
    total[place // p.limb_bits] += masks.astype(np.int64) << (place % p.limb_bits)
    return switched(total, p)


def decrypt(
    secrets: NDArray[np.int8],
    c1: NDArray[np.uint32],
    c2: NDArray[np.uint32],
    parameters: RlweParameters,
) -> NDArray[np.uint16]:
    """Return T modulo t, (rows_j, rows_k).

    Args:
        secrets: (rows_j, N') from `encrypt`.
        c1: (rows_k, N') modulo q'.
        c2: (rows_j, rows_k) modulo q'.
        parameters: the parameter set.
    """
    # c1 < 2^32 times at most 2^15 ternary entries: exact in float64
    product = exact_product(secrets.astype(np.float64), c1.astype(np.float64).T).astype(np.int64)
    return opened(c2, product, parameters)


def opened(
    c2: NDArray[np.uint32], product: NDArray[np.int64], parameters: RlweParameters
) -> NDArray[np.uint16]:
    """Return T modulo t from c2 and the coefficients of c1·s, of one shape."""
    p, modulus = parameters, 1 << parameters.switched_bits
    step = p.switched_bits - p.plain_bits  # Δ modulo q' is 2^step
    phase = (c2.astype(np.int64) - product + (1 << (step - 1))) & (modulus - 1)
    return (phase >> step).astype(np.uint16)


def drawn_masks(rng: Rng, shape: tuple[int, int], parameters: RlweParameters) -> NDArray[np.uint16]:
    """Draw r uniform modulo t."""
    return require_rng(rng).residues(1 << parameters.plain_bits, shape).astype(np.uint16)


def parameters_for(n_bits: int) -> RlweParameters:
    """Return the smallest parameter set for vectors of L bits.

    Raises:
        ParameterError: no set is large enough.
    """
    for candidate in RLWE_SETS:
        if n_bits <= candidate.max_bits:
            return candidate
    raise ParameterError(
        f"n_bits must be at most {RLWE_SETS[-1].max_bits} for ring-LWE, got {n_bits}"
    )
