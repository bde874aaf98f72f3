"""Two programs compare sets and masked rows: inner products, Dice, Jaccard, masked distances.

All of these are inner products of binary vectors, and an inner product is a distance in shares::

    h(x, y) = |x| + |y| − 2·⟨x, y⟩        T − R = h modulo 2^w, of which each program has one

Each program subtracts its addend of h from the weight of its own row. Both results add up to
2·⟨x, y⟩ modulo 2^w, and the sender's is uniform to the receiver but for this sum, as its addend is.
So the receiver learns the inner product, and neither h nor the weight of a row. Rows get zero
columns where 2·⟨x, y⟩ might not be below 2^w otherwise.

*Masked distances*, where bits that are not valid at both ends do not count (iris codes)::

    Σ m·m'·(a ⊕ b) = ⟨[a∧m, ¬a∧m], [¬b∧m', b∧m']⟩        Σ m·m' = ⟨m, m'⟩

*Inner products of integers* are told by distances (`xclp_crypto.protocols.hamming.integers`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.fields import Packed
from xclp_crypto.params import MAX_HASH_BITS, residue_width
from xclp_crypto.protocols import boolean
from xclp_crypto.protocols.boolean import Gates, costs
from xclp_crypto.protocols.boolean.costs import CircuitCost
from xclp_crypto.protocols.boolean.words import Words, require_integer, words_for
from xclp_crypto.protocols.hamming import BitRows, HammingBackend
from xclp_crypto.protocols.hamming.integers import (
    columns_of,
    integer_rows,
    products_of,
    rows_of,
)
from xclp_crypto.protocols.hamming.interface import SharingBackend
from xclp_crypto.protocols.hamming.products import (
    MaskedDistances,
    Measure,
    SetSizes,
    check_measure,
    similarities,
    valid_bits,
    valid_halves,
)
from xclp_crypto.protocols.setup import Identities, Session
from xclp_crypto.rng import Rng
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.duplex import Connected
from xclp_crypto.transport.meter import Cost
from xclp_crypto.two_party import Judge, judged
from xclp_crypto.two_programs import (
    CLIENTS,
    Program,
    additive_shares,
    open_distances,
    private_backend,
    program_of,
    sharing_backend,
    solvable_rows,
    terms_of,
)
from xclp_crypto.wire import Message, sent

R = TypeVar("R")


class ProductShares(Message):
    """The sender's addends of twice the inner products, modulo 2^w.

    Size: ⌈rows·others·w/8⌉ bytes.
    """

    TAG = 0x0203
    values: NDArray[np.uint16] = sent(Packed("rows", "others", width="width"))
    width: int


def widened(rows: NDArray[np.uint8], largest: int) -> NDArray[np.uint8]:
    """Append zero columns until distances are taken modulo more than twice the largest product.

    Args:
        rows: (n, L) of 0 and 1.
        largest: what no inner product is above.

    Raises:
        ParameterError: rows would have to be longer than hashes may be.
    """
    columns = max(rows.shape[1], 1 << ((2 * largest).bit_length() - 1))
    if columns > MAX_HASH_BITS:
        raise ParameterError(
            f"inner products up to {largest} take rows of {columns} columns, more than the "
            f"{MAX_HASH_BITS} of the longest rows"
        )
    return np.pad(rows, ((0, 0), (0, columns - rows.shape[1])))


async def product_shares(
    session: Session, rows: NDArray[np.uint8], largest: int, method: SharingBackend, rng: Rng
) -> tuple[NDArray[np.uint16], int]:
    """Share the inner products of the receiver's rows with the sender's; see the module.

    Args:
        session: of the two.
        rows: (n, L) of 0 and 1, this program's.
        largest: what no inner product is above; the same for both.
        method: the back end.
        rng: source of this program's randomness.

    Returns:
        This program's addends of twice the products modulo 2^w, (sender's rows, receiver's rows);
        and w.

    Raises:
        ParameterError: see `widened`.
    """
    wide = widened(rows, largest)
    width = residue_width(wide.shape[1])
    addend = await additive_shares(session, wide, method, rng)
    weights = rows.sum(axis=1, dtype=np.uint16)
    own = weights[None, :] if session.io.name == CLIENTS[0] else weights[:, None]
    return own - addend & np.uint16((1 << width) - 1), width


async def inner_products(
    session: Session, rows: NDArray[np.uint8], largest: int, method: SharingBackend, rng: Rng
) -> NDArray[np.uint16] | None:
    """Tell the receiver the inner products of its rows with the sender's; see `product_shares`.

    Returns:
        (own rows, other's rows) to the receiver, None to the sender.
    """
    io = session.io
    own, width = await product_shares(session, rows, largest, method, rng)
    with io.step("products"):
        if io.name != CLIENTS[0]:
            await io.send(CLIENTS[0], ProductShares(own, width))
            return None
        shape = {"rows": own.shape[0], "others": own.shape[1], "width": width}
        got = await io.recv(ProductShares, CLIENTS[1], **shape)
    low = np.uint16((1 << width) - 1)
    products: NDArray[np.uint16] = (own + got.values & low) >> np.uint16(1)
    return products.T


def cross_inner_products(
    rows: BitRows,
    sock: Connected,
    *,
    receives: bool,
    magnitude: int | None = None,
    packed: int | None = None,
    backend: str | HammingBackend = "rlwe",
    rng: Rng | None = None,
    at_most_rows: int | None = None,
    identities: Identities | None = None,
    timeout: float = 60.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.int32] | None, Cost]:
    """Compute the inner products of the rows of two programs, and nothing else.

    Of bits that is how many ones they have in common. As with distances, a receiver with enough
    rows can solve for the sender's; see `xclp_crypto.cross_distances`.

    Args:
        rows: this program's rows, (n, L) of 0/1 or packed, such as sets or Bloom filters; or, with
            `magnitude`, integers.
        sock: see `xclp_crypto.cross_distances`.
        receives: whether this program gets the products; exactly one of the two must.
        magnitude: B, if rows are integers in −B … B; the same for both. B²·L is at most 8192. Costs
            are those of rows of 4·B²·L bits (`xclp_crypto.protocols.hamming.integers`).
        packed: see `xclp_crypto.cross_distances`.
        backend: ``rlwe``, ``shade-ext`` or ``shade``, the same for both; for integers any with
            trust ``2pc``.
        rng: randomness; the operating system's by default.
        at_most_rows: refuse to take part if the other program has more rows.
        identities: see `xclp_crypto.cross_distances`.
        timeout: see `xclp_crypto.cross_distances`.
        progress: called before each computation.

    Returns:
        The inner products, (own rows, other's rows) int32, or None for the program that does not
        receive; and the cost of this program's side.

    Raises:
        DataError: `rows` are not such rows.
        ParameterError: as for `xclp_crypto.cross_distances`, the back end leaves no shares, or rows
            are too long.
        FaultyPeer: as for `xclp_crypto.cross_distances`.
        ProtocolError: the other program failed or fell silent; the text says which.

    Examples:
        >>> import socket
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import numpy as np
        >>> from xclp_crypto import cross_inner_products
        >>> mine, theirs = np.tri(3, 64, dtype=int), np.eye(2, 64, dtype=int)
        >>> here, there = socket.socketpair()
        >>> with here, there, ThreadPoolExecutor() as other:  # the other program, by a thread
        ...     _ = other.submit(cross_inner_products, theirs, there, receives=False)
        ...     found, cost = cross_inner_products(mine, here, receives=True)
        >>> found.tolist()
        [[1, 0], [1, 1], [1, 1]]
    """
    options = (at_most_rows, identities, timeout, progress)
    if magnitude is not None:
        vectors = integer_rows(rows, CLIENTS[0] if receives else CLIENTS[1], magnitude, packed)
        bits = (rows_of if receives else columns_of)(vectors, magnitude)
        program = program_of(bits, sock, receives, None, rng, *options)
        return _integer_products(program, private_backend(backend), vectors.shape[1], magnitude)
    program = program_of(rows, sock, receives, packed, rng, *options)
    method, n_bits = sharing_backend(backend), program.bits.shape[1]

    async def client(session: Session, rng: Rng) -> NDArray[np.int32] | None:
        found = await inner_products(session, program.bits, n_bits, method, rng)
        return None if found is None else found.astype(np.int32)

    return _run(program, method, "cross_inner_products", "", client)


def _integer_products(
    program: Program, method: HammingBackend, length: int, magnitude: int
) -> tuple[NDArray[np.int32] | None, Cost]:
    """Tell the receiver the inner products of integers, of which the program has the bits.

    The sender is warned of as many rows as could tell one of its own: each product is one of
    2·B²·L + 1 numbers, and a row one of (2B + 1)^L.
    """
    terms = terms_of(
        program.bits.shape[1], method, "cross_inner_products", f"magnitude={magnitude}"
    )
    told = length * math.log(2 * magnitude + 1) / math.log(2 * magnitude**2 * length + 1)
    found, cost = open_distances(program, method, terms, math.ceil(told))
    return None if found is None else products_of(found, length, magnitude), cost


def cross_similarities(
    bits: BitRows,
    sock: Connected,
    *,
    receives: bool,
    measure: Measure = "dice",
    packed: int | None = None,
    backend: str | HammingBackend = "rlwe",
    rng: Rng | None = None,
    at_most_rows: int | None = None,
    identities: Identities | None = None,
    timeout: float = 60.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.float64] | None, Cost]:
    """Compute how similar the sets of two programs are, as record linkage does.

    The receiver learns the sizes of intersections and of the sender's sets, from which it computes
    Dice, 2·|x∩y| / (|x|+|y|), or Jaccard, |x∩y| / |x∪y|; of two empty sets both are 0.

    Args:
        bits: this program's rows, (n, L) of 0/1 or packed, such as Bloom filters.
        sock: see `xclp_crypto.cross_distances`.
        receives: whether this program gets the similarities; exactly one of the two must.
        measure: ``dice`` or ``jaccard``; the same for both.
        packed: see `xclp_crypto.cross_distances`.
        backend: ``rlwe``, ``shade-ext`` or ``shade``, the same for both.
        rng: randomness; the operating system's by default.
        at_most_rows: refuse to take part if the other program has more rows.
        identities: see `xclp_crypto.cross_distances`.
        timeout: see `xclp_crypto.cross_distances`.
        progress: called before each computation.

    Returns:
        Similarities in 0 … 1, (own rows, other's rows) float64, or None for the program that does
        not receive; and the cost of this program's side.

    Raises:
        DataError: `bits` are not rows of bits.
        ParameterError: as for `cross_inner_products`, or another measure.
        FaultyPeer: as for `xclp_crypto.cross_distances`.
        ProtocolError: the other program failed or fell silent; the text says which.

    Examples:
        >>> import socket
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import numpy as np
        >>> from xclp_crypto import cross_similarities
        >>> mine, theirs = np.tri(3, 64, dtype=int), np.eye(2, 64, dtype=int)
        >>> here, there = socket.socketpair()
        >>> with here, there, ThreadPoolExecutor() as other:  # the other program, by a thread
        ...     _ = other.submit(cross_similarities, theirs, there, receives=False)
        ...     found, cost = cross_similarities(mine, here, receives=True)
        >>> found.round(2).tolist()
        [[1.0, 0.0], [0.67, 0.67], [0.5, 0.5]]
    """
    check_measure(measure)
    program = program_of(
        bits, sock, receives, packed, rng, at_most_rows, identities, timeout, progress
    )
    method, n_bits = sharing_backend(backend), program.bits.shape[1]

    async def client(session: Session, rng: Rng) -> NDArray[np.float64] | None:
        io, sizes = session.io, program.bits.sum(axis=1, dtype=np.uint16)
        found = await inner_products(session, program.bits, n_bits, method, rng)
        with io.step("products"):
            if found is None:
                await io.send(CLIENTS[0], SetSizes(sizes))
                return None
            theirs = await io.recv(SetSizes, CLIENTS[1], rows=found.shape[1])
        return similarities(found, sizes, theirs.values, measure)

    return _run(program, method, "cross_similarities", measure, client)


def cross_masked_distances(
    bits: BitRows,
    masks: BitRows,
    sock: Connected,
    *,
    receives: bool,
    packed: int | None = None,
    backend: str | HammingBackend = "rlwe",
    rng: Rng | None = None,
    at_most_rows: int | None = None,
    identities: Identities | None = None,
    timeout: float = 60.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[MaskedDistances | None, Cost]:
    """Compute Hamming distances over the bits that are valid in both rows, as for iris codes.

    Args:
        bits: this program's rows, (n, L) of 0/1, or packed.
        masks: which of their bits are valid, in the same form.
        sock: see `xclp_crypto.cross_distances`.
        receives: whether this program gets the distances; exactly one of the two must.
        packed: see `xclp_crypto.cross_distances`.
        backend: ``rlwe``, ``shade-ext`` or ``shade``, the same for both.
        rng: randomness; the operating system's by default.
        at_most_rows: refuse to take part if the other program has more rows.
        identities: see `xclp_crypto.cross_distances`.
        timeout: see `xclp_crypto.cross_distances`.
        progress: called before each computation.

    Returns:
        How many valid bits differ, and how many there are; see `MaskedDistances`. None for the
        program that does not receive. And the cost of this program's side.

    Raises:
        DataError: `bits` or `masks` are not rows of bits, or their shapes differ.
        ParameterError: as for `cross_inner_products`.
        FaultyPeer: as for `xclp_crypto.cross_distances`.
        ProtocolError: the other program failed or fell silent; the text says which.

    Examples:
        >>> import socket
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import numpy as np
        >>> from xclp_crypto import cross_masked_distances
        >>> mine, theirs = np.eye(3, 64, dtype=int), np.eye(2, 64, dtype=int)
        >>> valid = np.tri(3, 64, 1, dtype=int)  # the first two bits, three, four
        >>> here, there = socket.socketpair()
        >>> with here, there, ThreadPoolExecutor() as other:  # the other program, by a thread
        ...     _ = other.submit(cross_masked_distances, theirs, valid[:2], there, receives=False)
        ...     found, cost = cross_masked_distances(mine, valid, here, receives=True)
        >>> found.differing.tolist(), found.valid.tolist()
        ([[0, 2], [2, 0], [1, 2]], [[2, 2], [2, 3], [2, 3]])
    """
    program = program_of(
        bits, sock, receives, packed, rng, at_most_rows, identities, timeout, progress
    )
    method, n_bits = sharing_backend(backend), program.bits.shape[1]
    differing, valid = _masked_factors(program, masks, packed)

    async def client(session: Session, rng: Rng) -> MaskedDistances | None:
        parts = session.part(" differing"), session.part(" valid")
        differ = await inner_products(parts[0], differing, n_bits, method, rng)
        both = await inner_products(parts[1], valid, n_bits, method, rng)
        return None if differ is None or both is None else MaskedDistances(differ, both)

    return _run(program, method, "cross_masked_distances", "", client)


def cross_masked_matches(
    bits: BitRows,
    masks: BitRows,
    sock: Connected,
    *,
    receives: bool,
    at_most: Fraction | float,
    least_valid: int = 1,
    packed: int | None = None,
    backend: str | HammingBackend = "rlwe",
    rng: Rng | None = None,
    at_most_rows: int | None = None,
    identities: Identities | None = None,
    timeout: float = 60.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.bool_] | None, Cost]:
    """Find which rows differ in few of the bits that are valid in both, and nothing else.

    As `cross_masked_distances`, but both numbers stay in shares, and boolean circuits compare them
    (see `xclp_crypto.cross_matches`): the receiver learns one bit for each pair.

    Args:
        bits: this program's rows, (n, L) of 0/1, or packed.
        masks: which of their bits are valid, in the same form.
        sock: see `xclp_crypto.cross_distances`.
        receives: whether this program gets the matches; exactly one of the two must.
        at_most: τ, the largest share of the valid bits that may differ in a match, 0 ≤ τ < 1; the
            same for both. Of a float what it is printed as, 0.32 being 8/25; the denominator is at
            most 10^6, and smaller ones cost less.
        least_valid: fewest valid bits of a match, 0 … L; the same for both.
        packed: see `xclp_crypto.cross_distances`.
        backend: ``rlwe``, ``shade-ext`` or ``shade``, the same for both.
        rng: randomness; the operating system's by default.
        at_most_rows: refuse to take part if the other program has more rows.
        identities: see `xclp_crypto.cross_distances`.
        timeout: see `xclp_crypto.cross_distances`.
        progress: called before each computation.

    Returns:
        [differing ≤ τ·valid and valid ≥ least_valid], (own rows, other's rows) bool, or None for
        the program that does not receive; and the cost of this program's side.

    Raises:
        DataError: `bits` or `masks` are not rows of bits, or their shapes differ.
        ParameterError: as for `cross_inner_products`, or τ or the fewest are out of range.
        FaultyPeer: as for `xclp_crypto.cross_distances`.
        ProtocolError: the other program failed or fell silent; the text says which.

    Examples:
        >>> import socket
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import numpy as np
        >>> from xclp_crypto import cross_masked_matches
        >>> mine, theirs = np.eye(3, 64, dtype=int), np.eye(2, 64, dtype=int)
        >>> valid = np.tri(3, 64, 1, dtype=int)  # the first two bits, three, four
        >>> here, there = socket.socketpair()
        >>> same = {"at_most": 0.5, "least_valid": 2}
        >>> with here, there, ThreadPoolExecutor() as other:  # the other program, by a thread
        ...     far = (theirs, valid[:2], there)
        ...     _ = other.submit(cross_masked_matches, *far, receives=False, **same)
        ...     found, cost = cross_masked_matches(mine, valid, here, receives=True, **same)
        >>> found.tolist()
        [[True, False], [False, True], [True, False]]
    """
    program = program_of(
        bits, sock, receives, packed, rng, at_most_rows, identities, timeout, progress
    )
    method, n_bits = sharing_backend(backend), program.bits.shape[1]
    largest, least = _share(at_most), require_integer("least_valid", least_valid, 0, n_bits)
    differing, valid = _masked_factors(program, masks, packed)

    async def share(session: Session, rng: Rng) -> NDArray[np.uint16]:
        parts = session.part(" differing"), session.part(" valid")
        differ, _ = await product_shares(parts[0], differing, n_bits, method, rng)
        both, _ = await product_shares(parts[1], valid, n_bits, method, rng)
        return np.stack([differ, both])

    # x = den·differing − num·valid + num·L is in 0 … den·L, and at most num·L in a match.
    num, den = largest.numerator, largest.denominator
    width, bound = (2 * n_bits).bit_length(), num * n_bits
    wide = (max(bound + 1, (den - num) * n_bits) - 1).bit_length() + 1

    def cost_of(rows: int, others: int) -> CircuitCost:
        words = words_for(rows * others)
        cost = costs.adding(width, 2 * words) + costs.adding(wide, 2 * words)
        cost += costs.comparing_with(least, width - 1, words) + costs.gate(words)
        return cost + costs.at_most(bound, den * n_bits, wide, words)

    async def judge(gates: Gates, addends: NDArray[np.uint16]) -> Words:
        flat = addends.reshape(2, -1)
        numbers = (await boolean.to_boolean(gates, flat, width))[1:]  # half of twice the products
        planes = np.zeros((wide, *numbers.shape[1:]), np.uint64)
        planes[: width - 1] = numbers
        source = program.rng.child("masked matches")
        differ, both = await boolean.to_additive(gates, planes, flat.shape[1], source)
        x = np.uint64(den) * differ - np.uint64(num) * both
        x += np.uint64(bound if gates.first else 0)
        few = await boolean.at_most(gates, x, wide, bound=bound, largest=den * n_bits)
        too_few = await boolean.less_than_public(gates, numbers[:, 1], least)
        return await gates.conjunction(few, gates.invert(too_few))

    asked = f"at_most={largest}, least_valid={least}"
    return judged(program, method, Judge("cross_masked_matches", asked, cost_of, judge, share))


def _share(at_most: Fraction | float) -> Fraction:
    """Return the largest share of bits that differ in a match; refuse what is out of range."""
    number = isinstance(at_most, Fraction | int | float) and not isinstance(at_most, bool)
    if number and 0 <= at_most < 1 and (found := Fraction(str(at_most))).denominator <= 10**6:
        return found
    raise ParameterError(
        "at_most must be a share of bits, at least 0 and below 1, with a denominator of at most "
        f"10^6, got {at_most!r}"
    )


def _masked_factors(
    program: Program, masks: BitRows, packed: int | None
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return this program's factors of how many valid bits differ, and of how many are valid."""
    valid = valid_bits(masks, program.bits, program.name, packed)
    ones, zeros = valid_halves(program.bits, valid)
    halves = (ones, zeros) if program.receives else (zeros, ones)
    return np.concatenate(halves, axis=1), valid


def _run(
    program: Program,
    method: SharingBackend,
    call: str,
    asked: str,
    client: Callable[[Session, Rng], Awaitable[R | None]],
) -> tuple[R | None, Cost]:
    """Run this program's part; return what it learns, and the cost."""
    n_bits = program.bits.shape[1]
    terms = terms_of(n_bits, method, call, asked)
    found, cost = program.run(terms, solvable_rows(n_bits), client)
    return found[program.name], cost
