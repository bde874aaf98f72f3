"""Sums and weighted means of model updates, of which nobody sees a single one, nor a weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import (
    AccuracyWarning,
    DataError,
    EncodingOverflow,
    FaultyPeer,
    ParameterError,
)
from xclp_crypto.front import Drop, SumResult, client_names, secure_sum
from xclp_crypto.params import FRACTION_BITS
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import Rng
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Faults
from xclp_crypto.updates import (
    Leaf,
    Update,
    floats_of,
    from_vector,
    layout,
    place_of,
    require_same_layout,
    to_integers,
    to_vector,
    widened,
)

MEAN_FRACTION_BITS: Final = 30
"""f of a mean: weights times values up to 2^33/p fit."""

COARSE: Final = 2.0**-10
"""Share of a weight, or of a mean, by which it may be off: see `weighted` and `mean_of`."""


@dataclass(frozen=True)
class Clipped:
    """What clipping did to one client's update.

    Attributes:
        values: how many values were beyond `clip_value`.
        factor: what all were multiplied with to bring the norm to `clip_norm`; 1 where it was not
            larger.
    """

    values: int
    factor: float


@dataclass(frozen=True, repr=False)
class MeanResult:
    """What `secure_mean` returns.

    Attributes:
        mean: the weighted mean over the survivors, in the structure and dtypes of the updates.
        total_weight: the sum of their weights.
        error: bound on how far any value of the mean is off, before it was cast to the updates'
            dtypes; see `error_bound`.
        survivors: clients whose updates are in it.
        dropouts: the other clients, and survivors that dropped out afterwards, with the stage.
        clipped: by client whose update was clipped, how; each client would know its own alone.
        cost: measured bytes, rounds and seconds.
    """

    mean: Update
    total_weight: float
    error: float
    survivors: tuple[str, ...]
    dropouts: Mapping[str, str]
    clipped: Mapping[str, Clipped]
    cost: Cost

    def __repr__(self) -> str:
        return (
            f"MeanResult(of {len(self.survivors)} clients, total_weight={self.total_weight:g}, "
            f"dropouts={self.dropouts}, clipped={sorted(self.clipped)})"
        )


def clip(
    vector: NDArray[np.float64],
    value: float | None,
    norm: float | None,
    floats: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.float64], Clipped | None]:
    """Bring a client's values, and then their Euclidean norm, down to bounds.

    Args:
        vector: (n,).
        value: bound on every |x|, or None.
        norm: bound on the norm, or None.
        floats: (n,), the values that count; others, such as counters of batches, stay as they are.
            By default all.

    Returns:
        The clipped vector, and what was done to it, None if nothing.

    Raises:
        ParameterError: a bound is not positive.
    """
    require_bounds(value, norm)
    if value is None and norm is None:
        return vector, None
    counted = slice(None) if floats is None else floats
    values, beyond, factor = vector[counted], 0, 1.0
    if value is not None:
        beyond = int(np.count_nonzero(np.abs(values) > value))
        values = np.clip(values, -value, value)
    length = float(np.linalg.norm(values)) if norm is not None else 0.0
    if norm is not None and length > norm:
        factor = norm / length
        values = values * factor
    if not beyond and factor == 1:
        return vector, None
    clipped = vector.copy()
    clipped[counted] = values
    return clipped, Clipped(beyond, factor)


def require_bounds(value: float | None, norm: float | None) -> None:
    """Refuse, by a `ParameterError`, bounds of `clip` that are not positive numbers, or None."""
    for name, bound in (("clip_value", value), ("clip_norm", norm)):
        if bound is not None and not (_is_number(bound) and bound > 0):
            raise ParameterError(f"{name} must be a positive number, got {bound!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def weighted(
    vector: NDArray[np.float64],
    weight: float,
    client: str,
    leaves: tuple[Leaf, ...],
    codec: FixedPoint,
) -> NDArray[np.float64]:
    """Return what a client puts into the sum: its values times its weight, then the weight.

    Args:
        vector: (n,).
        weight: a number, at least 0.
        client: whose it is, for errors.
        leaves: the layout of its update.
        codec: of the sum.

    Returns:
        (n + 1,).

    Raises:
        DataError: the weight is not a number, is negative or not finite, or is so small that the
            sum would round it by more than `COARSE` of it.
        EncodingOverflow: see `_fitting`.
    """
    scalar = getattr(weight, "item", None)  # of NumPy's numbers, and of tensors of one number
    number = scalar() if scalar is not None and getattr(weight, "shape", ()) == () else weight
    if not (_is_number(number) and np.isfinite(number) and number >= 0):
        raise DataError(f"client {client!r}: its weight must be a number ≥ 0, got {weight!r}")
    scaled = float(number) * 2.0**codec.fraction_bits
    if 0 < scaled < 1 / COARSE and abs(round(scaled) - scaled) > COARSE * scaled:
        raise DataError(
            f"client {client!r}: its weight {weight!r} is too small: in multiples of "
            f"2^-{codec.fraction_bits} it would be off by more than one part in {1 / COARSE:.0f}. "
            "Multiply the weights of all clients by one number, or use more fraction bits "
            "(fraction_bits, xclp sum: --fraction-bits)"
        )
    values = np.empty(len(vector) + 1)
    with np.errstate(over="ignore"):
        np.multiply(vector, float(number), out=values[:-1])
    values[-1] = number
    return _fitting(values, client, leaves, codec)


def _fitting(
    values: NDArray[Any], client: str, leaves: tuple[Leaf, ...], codec: FixedPoint
) -> NDArray[Any]:
    """Return what a client puts into a sum or a mean, if it can be encoded.

    Args:
        values: (n,), or (n + 1,) with a weight.
        client: whose they are, for errors.
        leaves: its layout, of n values.
        codec: of the sum.

    Raises:
        EncodingOverflow: it cannot; names the path of the largest value, and not the value.
    """
    try:
        codec.check(values, client=client)
    except DataError:  # of values that were finite before they were weighted
        count = sum(leaf.size for leaf in leaves)
        at, mean = int(np.argmax(np.abs(values.astype(np.float64)))), len(values) > count
        place = "its weight" if at == count else place_of(leaves, at)
        remedies = ["Scale the values down"]
        remedies += ["multiply the weights of all clients by a smaller number"] if mean else []
        if codec.fraction_bits:
            remedies.append("use fewer fraction bits (fraction_bits, xclp sum: --fraction-bits)")
        raise EncodingOverflow(
            f"client {client!r}: {place}{', times the weight,' * (mean and at < count)} is too "
            f"large: with {codec.parties} clients and {codec.fraction_bits} fraction bits at most "
            f"{codec.max_abs:.6g} fits. {', or '.join(remedies)}"
        ) from None
    return values


def weighted_addend(
    update: Update,
    weight: float,
    client: str,
    leaves: tuple[Leaf, ...],
    codec: FixedPoint,
    clip_value: float | None,
    clip_norm: float | None,
) -> tuple[NDArray[np.float64], Clipped | None]:
    """Return what a client puts into the sum of a mean, and what clipping did to its update.

    Args:
        update: the client's.
        weight: at least 0.
        client: whose it is, for errors.
        leaves: its layout.
        codec: of the sum.
        clip_value: see `secure_mean`.
        clip_norm: see `secure_mean`.

    Raises:
        DataError: a value or the weight cannot be used.
        ParameterError: a bound is not positive.
    """
    vector, clipped = clip(to_vector(update, client), clip_value, clip_norm, floats_of(leaves))
    return weighted(vector, weight, client, leaves, codec), clipped


def error_bound(total: NDArray[Any], codec: FixedPoint) -> float:
    """Return how far a mean may be off, from the sum of what `weighted` gives.

    Let N and W be the sums of weighted values and of weights, and δ = p·2^-(f+1), by which rounding
    takes each of them off. Then N'/W' is off by at most δ·(1 + |N/W|)/W', and |N/W| is at most
    |N'/W'| plus that; float64 adds 2^-52 of the value.

    Args:
        total: (n + 1,).
        codec: of the sum, for p and f.
    """
    delta, weight = codec.error_bound, float(total[-1])
    largest = float(np.abs(total[:-1]).max(initial=0)) / weight
    if weight <= delta:
        return float("inf")
    return delta * (1 + largest) / (weight - delta) + largest * 2.0**-51


def mean_of(
    total: NDArray[Any],
    template: Update,
    codec: FixedPoint,
    faulty: Callable[[str], FaultyPeer],
    least: float = 0.0,
) -> tuple[Update, float, float]:
    """Return the mean, the sum of weights and `error_bound` of a sum of what `weighted` gives.

    Args:
        total: (n + 1,).
        template: says what to make of the mean.
        codec: of the sum.
        faulty: returns the error that names who can have spoilt the sum.
        least: below which the weights cannot be in all.

    Raises:
        FaultyPeer: they are.
        DataError: all weights are 0.

    Warns:
        AccuracyWarning: the bound is more than `COARSE` of the largest value: of floats, if there
            are any; integers count as at least 1.
    """
    weight = float(total[-1])
    if weight < least:
        raise faulty(f"the weights sum to {weight:g}, which is less than one of them")
    if not weight > 0:
        raise DataError("the weights of all clients in the sum are 0")
    values, error = total[:-1].astype(np.float64) / weight, error_bound(total, codec)
    floats = floats_of(layout(template, SERVER))
    counted, least_size = (values[floats], 0.0) if floats.any() else (values, 1.0)
    largest = float(np.abs(counted).max(initial=least_size))
    if counted.size and error > COARSE * largest:
        warnings.warn(
            f"values of the mean are off by up to {error:.2g}, and the largest is {largest:.2g}: "
            f"weights add up to {weight:.3g} and are stored, as values times weights are, in "
            f"multiples of 2^-{codec.fraction_bits}; multiply the weights of all clients by one "
            "number, or use more fraction bits (fraction_bits, xclp sum: --fraction-bits)",
            AccuracyWarning,
            stacklevel=3,
        )
    return from_vector(values, template), weight, error


def secure_mean(
    updates: Sequence[Update],
    weights: Sequence[float] | None = None,
    *,
    threshold: int | None = None,
    drop: Drop = (),
    sparse: bool | None = None,
    clip_value: float | None = None,
    clip_norm: float | None = None,
    fraction_bits: int = MEAN_FRACTION_BITS,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> MeanResult:
    """Average the updates of several clients; the server learns the mean and the sum of weights.

    Args:
        updates: one for each client, of the same structure: arrays, tensors of PyTorch, numbers,
            and lists, tuples and mappings of these, such as a state dict.
        weights: one for each client, at least 0, such as numbers of rows; by default 1 each.
        threshold: see `secure_sum`.
        drop: see `secure_sum`.
        sparse: see `secure_sum`.
        clip_value: bound on every |value|; larger ones are cut, and reported.
        clip_norm: bound on the Euclidean norm of an update; longer ones are scaled, and reported.
            Values are clipped first. Integers, such as counters of batches, are never clipped, and
            do not count for the norm.
        fraction_bits: f. Rounding takes a value of the mean off by about p·2^-(f+1)·(1 + |value|)
            over the sum of weights, before it is cast to the updates' dtypes: see
            `MeanResult.error`.
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        faults: what else goes wrong, for tests.
        progress: called before each computation.

    Returns:
        The mean, in the structure, shapes and dtypes of the first client's update, and who is in
        it; see `MeanResult`. Means of integers are rounded to integers, halves to the even one.

    Raises:
        DataError: updates of different structure, shapes or dtypes, NaN, infinity, a weight that
            is negative or too small to be stored, names the client and the path; or all weights in
            the sum are 0.
        EncodingOverflow: a weight, or a value times it, is too large; names the client and path.
        TooFewParties: see `secure_sum`.
        ParameterError: see `secure_sum`; or another number of weights.

    Warns:
        AccuracyWarning: the mean's `error` is more than 2^-10 of its largest value: the weights, or
            the values, are too small.
        PrivacyWarning: two clients take part: the server and one of them know the other's update.

    Examples:
        >>> import numpy as np
        >>> from xclp_crypto import secure_mean
        >>> ours = {"weight": np.float32([[1, 2]]), "bias": [np.float32(0.5)]}
        >>> theirs = {"weight": np.float32([[3, 6]]), "bias": [np.float32(1.5)]}
        >>> result = secure_mean([ours, ours, theirs], weights=[1, 1, 2])
        >>> result.mean["weight"].tolist(), result.mean["bias"], result.total_weight
        ([[2.0, 4.0]], [np.float32(1.0)], 4.0)
    """
    clients, first = _common_layout(updates, names)
    weights = [1.0] * len(clients) if weights is None else list(weights)
    if len(weights) != len(clients):
        raise ParameterError(f"{len(weights)} weights for {len(clients)} clients")
    codec = FixedPoint(fraction_bits, parties=len(clients))
    vectors, clipped = [], {}
    for client, update, weight in zip(clients, updates, weights, strict=True):
        vector, done = weighted_addend(update, weight, client, first, codec, clip_value, clip_norm)
        if done is not None:
            clipped[client] = done
        vectors.append(vector)
    found = secure_sum(
        vectors,
        threshold=threshold,
        drop=drop,
        sparse=sparse,
        fraction_bits=fraction_bits,
        names=clients,
        rng=rng,
        faults=faults,
        progress=progress,
    )
    faulty = partial(FaultyPeer, clients)
    mean, total, error = mean_of(found.total, updates[0], codec, faulty)
    return MeanResult(mean, total, error, found.survivors, found.dropouts, clipped, found.cost)


def _common_layout(
    updates: Sequence[Update], names: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[Leaf, ...]]:
    """Return the clients' names and the layout of their updates.

    Raises:
        DataError: one has another layout than the first.
        ParameterError: they are not in a list, or the names cannot be used.
    """
    if not isinstance(updates, list | tuple):
        raise ParameterError(
            f"updates must be a list with one for each client, got {type(updates).__name__}"
        )
    clients = client_names(len(updates), names)
    first = layout(updates[0], clients[0])
    for client, update in zip(clients[1:], updates[1:], strict=True):
        require_same_layout(layout(update, client), first, client, clients[0])
    return clients, first


def sum_fraction_bits(leaves: Sequence[Leaf], given: int | None) -> int:
    """Return f of a sum of updates: what is given, else 0 where all are integers, else 40."""
    if given is not None:
        return given
    return FRACTION_BITS if floats_of(tuple(leaves)).any() else 0


def addend(
    update: Update, client: str, leaves: tuple[Leaf, ...], codec: FixedPoint
) -> NDArray[Any]:
    """Return what a client puts into a sum: integers exactly, if there is nothing else.

    Args:
        update: the client's.
        client: whose it is, for errors.
        leaves: its layout.
        codec: of the sum.

    Raises:
        DataError: a value cannot be used, at the path that is named.
        EncodingOverflow: see `_fitting`.
    """
    values = (to_vector if floats_of(leaves).any() else to_integers)(update, client)
    return _fitting(values, client, leaves, codec)


def total_of(total: NDArray[Any], template: Update) -> Update:
    """Return a sum of what `addend` gives, as an update of float64 and int64.

    Args:
        total: (n,).
        template: says what to make of it.
    """
    return from_vector(total, widened(template))


def secure_update_sum(
    updates: Sequence[Update],
    *,
    threshold: int | None = None,
    drop: Drop = (),
    sparse: bool | None = None,
    fraction_bits: int | None = None,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> SumResult:
    """Add up the updates of several clients; the server learns the sum and nothing else.

    Args:
        updates: one for each client, of the same structure, as `secure_mean` takes them.
        threshold: see `secure_sum`.
        drop: see `secure_sum`.
        sparse: see `secure_sum`.
        fraction_bits: see `secure_sum`; by default 0 where all are integers, whose sums are exact.
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        progress: called before each computation.

    Returns:
        As `secure_sum`; the total has the structure of the updates, in float64 and int64.

    Raises:
        DataError: updates of different structure, shapes or dtypes, NaN, infinity; names the client
            and the path.
        XclpError: see `secure_sum`.

    Warns:
        PrivacyWarning: two clients take part: the server and one of them know the other's update.

    Examples:
        >>> from xclp_crypto.mean import secure_update_sum
        >>> secure_update_sum([{"cases": 2**60 + 1}, {"cases": 4}, {"cases": 1}]).total
        {'cases': np.int64(1152921504606846982)}
    """
    clients, leaves = _common_layout(updates, names)
    codec = FixedPoint(sum_fraction_bits(leaves, fraction_bits), parties=len(clients))
    found = secure_sum(
        [addend(u, client, leaves, codec) for client, u in zip(clients, updates, strict=True)],
        threshold=threshold,
        drop=drop,
        sparse=sparse,
        fraction_bits=codec.fraction_bits,
        names=clients,
        rng=rng,
        progress=progress,
    )
    return found._replace(total=total_of(found.total, updates[0]))
