"""What looks wrong with features, in words that name the column and the client.

Each caution is of a fault that costs labels on data whose labels are known: columns that drown the
others, or that point all rows the same way, and sites that measure differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.protocols.hamming.interface import column_ranges
from xclp_lp.messages import Geometry
from xclp_lp.scaling import Moments, Scale, own_moments
from xclp_lp.wording import listing

DOMINANT, OFFSET = 0.9, 0.9
"""Share of the squared length of all rows that one column has; that their mean has."""
DIRECTION, ALIKE = 0.5, 0.99
"""Share of the squared length that one direction has; median cosine between rows."""
TIED, APART = 2.0, 0.3
"""Stored neighbours of a row, in k; edges between clients, over what chance gives."""
FAR, TIMES = 5.0, 10.0
"""Deviations between a mean and the median of the means, and ratio of a deviation to theirs."""
MOST_CONSTANT, MOST_COLUMNS, UNLIKELY = 3, 5, 1e-3
"""Columns: more constant ones are the borders of pictures; named at most; and how rarely a client's
rows have one value by chance where others have several."""
FEWEST_ROWS, MANY_ROWS = 10, 100
"""In all, and of a client that is compared; of directions and graphs, which are chance in fewer."""
FEWEST_COLUMNS, SAMPLE = 3, 500
"""Columns and rows that directions are measured on, at least and at most."""


class CautionWarning(UserWarning):
    """Something that often costs labels looks wrong, or the labels that came out do."""


def feature_cautions(
    data: Mapping[str, NDArray[Any]], scale: Scale, columns: Sequence[str] | None = None
) -> Iterator[str]:
    """Say what looks wrong, a line each; for whoever has the data of all clients.

    Args:
        data: by client, (n_j, d); what is missing counts as the client's mean.
        scale: how features will be scaled.
        columns: their names; by default their numbers, counted from 0.
    """
    blank = {c: np.isnan(x).all(axis=0) & (len(x) > 0) for c, x in data.items()}
    data = {c: _filled(x) for c, x in data.items()}
    rows = np.concatenate([x.astype(np.float64) for x in data.values()])
    if len(rows) < FEWEST_ROWS:
        return
    names = [f"column {i}" for i in range(rows.shape[1])] if columns is None else list(columns)
    constant = np.isinf(own_moments(rows).deviation)
    if 1 <= constant.sum() <= MOST_CONSTANT:
        found = listing([names[i] for i in np.flatnonzero(constant).tolist()])
        whose = f" of client {next(iter(data))!r}" * (len(data) == 1)
        yield f"constant over all rows{whose}, so they tell nothing: {found}"
    for client, nowhere in blank.items():
        if 1 <= nowhere.sum() <= MOST_CONSTANT and len(data) > 1:
            without = listing([names[i] for i in np.flatnonzero(nowhere).tolist()])
            yield f"client {client!r} has no value in {without}: all its rows count as the mean"
    yield from _constant_at_one(data, names, constant, blank)
    odd = [*_unscaled_cautions(rows, names)] if scale == "none" else []
    odd += _site_cautions(data, names, blank) if scale != "client" else []
    step = -(-len(rows) // SAMPLE)
    if scale == "none":
        yield from odd or _direction_cautions(rows[::step], names, "")
    else:
        parts = data.values() if scale == "client" else [rows]
        sample = np.concatenate([own_moments(x).scaled(x[::step]) for x in parts])
        yield from odd or _direction_cautions(sample, names, " once scaled")


def _filled(x: NDArray[Any]) -> NDArray[Any]:
    """Return a client's rows with its means where values are missing."""
    missing = np.isnan(x)
    return np.where(missing, own_moments(x).mean, x) if missing.any() else x


def _unscaled_cautions(rows: NDArray[np.float64], names: Sequence[str]) -> Iterator[str]:
    squares = (rows**2).sum(axis=0)
    largest = int(squares.argmax())
    if len(names) > 1 and squares[largest] > DOMINANT * squares.sum():
        yield (
            f"{names[largest]!r} has {squares[largest] / squares.sum():.0%} of the squared length "
            "of all rows, so the angles between them hardly depend on the other columns; "
            "scale = 'shared' gives all the same weight"
        )
    elif len(rows) * (rows.mean(axis=0) ** 2).sum() > OFFSET * squares.sum():
        yield (
            "all rows point nearly the same way, since the columns are far from zero; "
            "scale = 'shared' centres them"
        )


def _direction_cautions(
    sample: NDArray[np.float64], names: Sequence[str], when: str
) -> Iterator[str]:
    """Look at a sample of rows for one direction that most of their length is in."""
    lengths = np.linalg.norm(sample, axis=1)
    sample, lengths = sample[lengths > 0], lengths[lengths > 0]
    if len(names) < FEWEST_COLUMNS or len(sample) < MANY_ROWS:
        return
    products = sample @ sample.T
    cosines = (products / lengths[:, None] / lengths)[np.triu_indices(len(sample), 1)]
    if np.median(cosines) > ALIKE:
        yield (
            f"half of all pairs of rows have a cosine above {ALIKE}{when}, so hashes hardly tell "
            "them apart; a few rows far from all others can do that, or columns far from zero"
        )
        return
    values, vectors = np.linalg.eigh(products)
    share = values[-1] / values.sum()
    if share > DIRECTION:
        weights = np.abs(sample.T @ vectors[:, -1])
        most = [names[i] for i in np.argsort(-weights)[:MOST_CONSTANT].tolist()]
        yield (
            f"one direction has {share:.0%} of the squared length of all rows{when}, mostly in "
            f"{listing(most)}: columns that say the same, or that are far from zero. Every other "
            "good data set has such a direction, so look at the columns before you change anything"
        )


def _constant_at_one(
    data: Mapping[str, NDArray[Any]],
    names: Sequence[str],
    constant: NDArray[np.bool_],
    blank: Mapping[str, NDArray[np.bool_]],
) -> Iterator[str]:
    """Say which columns are constant at one client, where chance hardly explains that."""
    for client, own in data.items():
        if len(data) == 1 or len(own) < FEWEST_ROWS:
            continue
        here = np.isinf(own_moments(own).deviation) & ~constant & ~blank[client]
        others = np.concatenate([x[:, here] for c, x in data.items() if c != client])
        by_chance = np.mean(others == own[0, here], axis=0) ** len(own)
        odd = [names[i] for i in np.flatnonzero(here)[by_chance < UNLIKELY].tolist()]
        if 1 <= len(odd) <= MOST_CONSTANT:
            yield (
                f"client {client!r} has one value only in {listing(odd)}, and others have several: "
                "look whether it measures that at all"
            )


def _site_cautions(
    data: Mapping[str, NDArray[Any]],
    names: Sequence[str],
    blank: Mapping[str, NDArray[np.bool_]],
) -> Iterator[str]:
    """Compare each client's means and deviations with the medians of all clients'."""
    known = {c: own_moments(x) for c, x in data.items() if len(x) >= FEWEST_ROWS}
    if len(known) < 2:
        return
    deviations = np.array([own.deviation for own in known.values()])
    deviations[np.isinf(deviations)] = 0.0
    means = np.array([own.mean for own in known.values()])
    usual = np.median(deviations, axis=0)
    far = np.abs(means - np.median(means, axis=0)) > FAR * np.maximum(usual, deviations)
    spread = (deviations > TIMES * usual) | ((deviations < usual / TIMES) & (deviations > 0))
    filled = ~np.array([blank[c] for c in known])
    for j, odd in enumerate((far | spread) & (usual > 0) & filled):
        mean, deviation = (
            np.median(np.delete(own, j, axis=0), axis=0) for own in (means, deviations)
        )
        own = Moments(means[j], deviations[j])
        yield from _differing([*known][j], names, odd, own, Moments(mean, deviation))


def moment_cautions(
    client: str,
    vectors: NDArray[Any],
    moments: Moments,
    columns: Sequence[str] | None = None,
    *,
    rows: int | None = None,
) -> Iterator[str]:
    """Compare a client's rows with the moments of all, which is what a client of a federation has.

    Args:
        client: its name.
        vectors: (m, d) its rows; what is missing counts as the mean of the others.
        moments: of all rows, the first d of them those of the columns.
        columns: their names; by default their numbers, counted from 0.
        rows: how many rows the moments are of, if these are among them; by default they are not,
            and few rows are compared as well.
    """
    m, d = vectors.shape
    others, fewest = m if rows is None else rows - m, 1 if rows is None else FEWEST_ROWS
    if min(m, others) < fewest:
        return
    mean, deviation = moments.mean[:d], moments.deviation[:d]
    deviation = np.where(np.isinf(deviation), 0.0, deviation)
    own = own_moments(np.where(np.isnan(vectors), mean, vectors))
    spread = np.where(np.isinf(own.deviation), 0.0, own.deviation)
    usual = deviation
    if rows is not None:  # take these rows out again
        squares = (rows * (deviation**2 + mean**2) - m * (spread**2 + own.mean**2)) / others
        mean = (rows * mean - m * own.mean) / others
        deviation = np.sqrt(np.maximum(squares - mean**2, 0.0))
        usual = np.maximum(deviation, spread)
    odd = np.abs(own.mean - mean) > FAR * usual
    if m >= FEWEST_ROWS:
        odd |= spread > TIMES * deviation
        odd |= (spread < deviation / TIMES) & (spread > 0)
    found = Moments(own.mean, spread), Moments(mean, deviation)
    names = [f"column {i}" for i in range(d)] if columns is None else columns
    yield from _differing(client, names, odd, *found)


def _differing(
    client: str, names: Sequence[str], odd: NDArray[np.bool_], own: Moments, others: Moments
) -> Iterator[str]:
    """Say in which columns a client is far from others, if in any where these vary."""
    told = [
        f"{names[i]!r} (mean {own.mean[i]:.3g}, others {others.mean[i]:.3g}"
        + f"; spread {own.deviation[i] / others.deviation[i]:.2g} times theirs)"
        for i in np.flatnonzero(odd & (others.deviation > 0)).tolist()
    ]
    if told:
        more = f", … ({len(told):,} in all)" * (len(told) > MOST_COLUMNS)
        yield (
            f"client {client!r} measures differently: the mean or spread of "
            f"{', '.join(told[:MOST_COLUMNS])}{more} is far from the other clients'; check its "
            "units, and whether it scaled them already"
        )


def geometry_cautions(geometry: Geometry, k: int) -> Iterator[str]:
    """Say what looks wrong with the graph of all rows, a line each.

    Args:
        geometry: as the server tells it.
        k: neighbours of each row that were asked for.
    """
    if geometry.rows < MANY_ROWS:
        return
    if geometry.neighbours > TIED * k:
        yield (
            f"a row has {geometry.neighbours:,.1f} neighbours on average, with k = {k}: many rows "
            "are equally near, as where rows repeat, or point the same way"
        )
    if geometry.mixing < APART:
        yield (
            f"only {geometry.mixing:.0%} as many neighbours are of another client as by chance: "
            "clients measure differently, in other units or with other instruments, or share no "
            "class"
        )


def geometry_of(graph: sparse.csr_array, sizes: Mapping[str, int]) -> Geometry:
    """Return what a graph looks like as a whole.

    Args:
        graph: (n, n), 𝒲, the rows of each client after those of the one before.
        sizes: rows by client.
    """
    n, inside = graph.shape[0], 0
    for own in column_ranges(sizes).values():
        near = graph.indices[graph.indptr[own.start] : graph.indptr[own.stop]]
        inside += int(((near >= own.start) & (near < own.stop)).sum())
    edges = graph.nnz - np.count_nonzero(graph.diagonal())
    pairs, pairs_between = n * (n - 1), n * n - sum(m * m for m in sizes.values())
    mixing = 1.0
    if edges and pairs_between:
        mixing = (graph.nnz - inside) / edges * pairs / pairs_between
    return Geometry(graph.nnz / max(n, 1), mixing, n)
