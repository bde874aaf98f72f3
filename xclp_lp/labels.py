"""Labels of any type to class indices and back; who is unlabelled is always explicit."""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.wording import did_you_mean
from xclp_lp.wording import listing, rows_called

ClassWeight: TypeAlias = Literal["sqrt", "balanced", "none"]
"""Whether a label weighs 1/√N, 1/N or 1 with N labels of its class over all clients."""

UNLABELLED = -1
"""Class index of a row without a label."""
INEXACT = 2**53
"""From here on a float stands for several integers."""
MISSING_MARKERS = (
    *("", "na", "n/a", "nan", "nat", "null", "none", "?", "-", "-1", "<na>", "unk", "tbd"),
    *("unknown", "not known", "unlabelled", "unlabeled", "missing", "undefined", "unspecified"),
    *("#n/a", "#ref!", "#value!", "#div/0!", "#name?", "#null!", "#num!"),
)
"""Texts that are classes like any other here, and mean a missing label elsewhere."""
MOST_LABELS = 8
"""Labels of which a warning says who has them."""
LONG_WORD = 5
"""Letters from which on words that differ by one are more likely a slip than two words."""


def marked_values(y: ArrayLike, client: str) -> tuple[list[Any], NDArray[np.bool_]]:
    """Return the labels of one client as Python values, and which rows have one.

    A row is unlabelled where its label is masked, None, NaN, NaT or pandas' NA, or the *number* −1.
    The string ``"-1"`` is a label like any other.

    Args:
        y: (n_j,) labels, in whatever holds one value for each row; a NumPy masked array hides its
            masked entries.
        client: name for errors.

    Returns:
        (n_j,) values, with None or −1 where there is no label; and (n_j,) where there is one.

    Raises:
        DataError: not one-dimensional.
    """
    unordered = isinstance(y, str | bytes | Mapping | Set) or sparse.issparse(y)
    if unordered or not (hasattr(y, "ndim") or hasattr(y, "__len__")):
        raise DataError(
            f"client {client!r}: labels must be a list or an array, got a value of type "
            f"{type(y).__name__}"
        )
    given: Any = y
    if getattr(given, "ndim", 1) != 1:
        raise DataError(
            f"client {client!r}: labels must be one-dimensional, got shape {tuple(given.shape)}"
        )
    # Through an array of one type, integers beside a missing one would become floats.
    ways = ("tolist", "to_list", "to_pylist", "__iter__")  # NumPy's, pandas', Arrow's, a list's
    values = [_plain(v) for v in getattr(given, next(w for w in ways if hasattr(given, w)))()]
    return values, np.array([not _is_marker(v) for v in values], dtype=bool)


def _plain(value: Any) -> Any:
    """Turn NumPy's numbers, booleans and strings into Python's; NaN, NaT and NA into None."""
    plain = value.item() if isinstance(value, np.number | np.bool_ | np.str_) else value
    if type(plain).__name__ in ("NAType", "NaTType"):
        return None
    return None if isinstance(plain, float) and plain != plain else plain


def _is_marker(value: Any) -> bool:
    """Return whether a plain value marks a row without a label."""
    return value is None or (_kind(value) == "number" and value == UNLABELLED)


def _kind(value: Any) -> str | None:
    """Return which labels can occur together: True and 1 are equal for Python, but not here."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "str"
        case _:
            return None


def given_classes(classes: Any) -> tuple[Any, ...]:
    """Return classes that a user gave, as Python's own values.

    Raises:
        ParameterError: no list, empty, repeats, several types, or a marker of unlabelled rows.
    """
    if isinstance(classes, str | bytes) or not hasattr(classes, "__iter__"):
        raise ParameterError(f"classes must be a list of labels, got {classes!r}")
    given = tuple(_plain(c) for c in classes)
    if any(_is_marker(c) for c in given):
        raise ParameterError(
            "classes must not contain a marker of unlabelled rows (-1, None, NaN), got "
            f"{tuple(classes)!r}"
        )
    kinds = {_kind(c) for c in given}
    if None in kinds or len(kinds) > 1:
        raise ParameterError(
            "classes must all be numbers, all strings or all booleans, got "
            + ", ".join(f"{c!r} ({type(c).__name__})" for c in given)
        )
    if not given or len(set(given)) != len(given):
        raise ParameterError(f"classes must be distinct and at least one, got {given!r}")
    try:
        return tuple(_of_one_type({(type(c), c): "classes" for c in given}))
    except DataError as error:
        raise ParameterError(str(error)) from None


def class_values(
    labels: Sequence[tuple[list[Any], NDArray[np.bool_]]],
    classes: Sequence[Any] | None,
    clients: Sequence[str],
    row_names: Sequence[Sequence[str] | None] | None = None,
) -> tuple[Any, ...]:
    """Return the sorted classes: those given, or those that occur.

    Numbers are integers where all of them can be, so 2 and 2.0 are one class, whoever comes first.

    Args:
        labels: per client, as from `marked_values`.
        classes: those given, if any.
        clients: names for errors.
        row_names: per client, what errors call its rows, if not by their indices.

    Raises:
        DataError: no client has a label, labels of several types, integers and floats that cannot
            be told apart, or a label that is none of `classes`; names client and row.
        ParameterError: `classes` is not a list, is empty, repeats a class, has classes of several
            types, or a marker of unlabelled rows.
    """
    given = None if classes is None else given_classes(classes)
    known = None if given is None else {(_kind(c), c) for c in given}
    places: dict[tuple[type, Any], str] = {}
    row_names = [None] * len(clients) if row_names is None else row_names
    for client, (values, labelled), names in zip(clients, labels, row_names, strict=True):
        for row in np.flatnonzero(labelled).tolist():
            value = values[row]
            kind = _kind(value)
            if kind is not None and (type(value), value) in places:
                continue
            place = f"client {client!r}, {rows_called([row], names)}"
            if kind is None:
                raise DataError(
                    f"{place}: a label of type {type(value).__name__}; labels are integers, "
                    "strings, booleans or floats"
                )
            if known is not None and (kind, value) not in known:
                meant = did_you_mean(value, map(str, given or ())) if kind == "str" else ""
                raise DataError(f"{place}: label {value!r} is none of the classes {given!r}{meant}")
            places[type(value), value] = place
    if not places:
        raise DataError(
            "no client has a label; mark unlabelled rows with -1 (integers), None or a mask, and "
            "leave at least one row labelled"
        )
    if given is None:
        return tuple(sorted(set(_of_one_type(places))))
    _of_one_type({(type(c), c): "classes" for c in given} | places)
    return given


def _of_one_type(places: Mapping[tuple[type, Any], str]) -> list[Any]:
    """Return labels as values of one type: integers beside floats as integers, if all can be.

    Args:
        places: where each label was first seen, by type and value; 1, True and 1.0 are equal.

    Raises:
        DataError: they are of several types, or some float could be several of the integers; names
            two places.
    """
    first: dict[str | None, str] = {}
    # Numbers of a .csv file are texts if any client has another text, so that one is named.
    named = sorted(places.items(), key=lambda own: own[0][0] is str and own[0][1].isdigit())
    for (kind, value), place in named:
        first.setdefault(_kind(value), f"{kind.__name__} ({place})")
    if len(first) > 1:
        raise DataError(f"labels are of several types: {', '.join(first.values())}")
    values = [value for _, value in places]
    floats = [v for v in values if isinstance(v, float)]
    integers = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    if not (floats and integers):
        return values
    whole = all(v.is_integer() for v in floats)
    changed, others = (floats, integers) if whole else (integers, floats)
    for value in changed:
        if abs(value) >= INEXACT:
            raise DataError(
                f"labels cannot be told apart: {value!r} ({places[type(value), value]}) and "
                f"{others[0]!r} ({places[type(others[0]), others[0]]}) are integer and float, and "
                "from 2**53 on a float stands for several integers; give integers everywhere (in "
                "pandas of dtype Int64: a missing one turns int64 into floats), or text"
            )
    return [int(v) if whole else float(v) for v in values]


def warn_of_odd_labels(
    classes: Sequence[Any],
    labels: Sequence[tuple[list[Any], NDArray[np.bool_]]],
    clients: Sequence[str],
) -> None:
    """Warn of labels that may not mean what they say; names all clients that have them.

    See `odd_texts`; and −1 beside other markers of rows without a label; a single class; floats
    that may have been integers.
    """

    def warn(message: str) -> None:
        warnings.warn(message, UserWarning, stacklevel=7)  # whoever called fit

    def whose(odd: Sequence[Any]) -> str:
        users = [[c for c, values in used.items() if label in values] for label in odd]
        if len(everybody := set().union(*users)) == 1:
            return f"client {everybody.pop()!r}"
        written = map(_written(odd), odd)
        told = [f"{label} of {listing(own)}" for label, own in zip(written, users, strict=True)]
        return "; ".join(told[:MOST_LABELS]) + "; …" * (len(told) > MOST_LABELS)

    used = {c: set(values) for c, (values, _) in zip(clients, labels, strict=True)}
    minus = {c: values for c, values in used.items() if -1 in values}
    renamed = "; -1 marks rows without a label: if it is a class, rename it"
    if both := [client for client, values in minus.items() if None in values]:
        warn(f"both -1 and None, NaN or NA are among the labels of {listing(both)}{renamed}")
    if len(classes) == 1:
        told = renamed * bool(minus)
        warn(f"all labels are of one class, {classes[0]!r}, so no row can get another{told}")
    if vague := [c for c in classes if isinstance(c, float) and INEXACT <= abs(c) < math.inf]:
        warn(
            f"{whose(vague)}: the labels {listing(vague)} are floats, and each stands for several "
            "integers; if they were integers, read them as such (in pandas: Int64) or as text"
        )
    for odd, why in odd_texts(classes):
        warn(f"{whose(odd)}: the labels {why}")


def odd_texts(classes: Sequence[Any]) -> Iterator[tuple[list[str], str]]:
    """Yield classes that may not mean what they say, and what is odd about them.

    They look like a missing label, or like each other.
    """
    texts = [c for c in classes if isinstance(c, str)]
    if markers := [c for c in texts if c.strip().casefold() in MISSING_MARKERS]:
        yield (
            markers,
            f"{listing(markers)} look like missing ones, but are classes like any other; leave the "
            "cell empty (in Python: None) where a label is missing",
        )
    for group in alike(classes):
        told = ", ".join(map(_written(group), group))
        yield (
            group,
            f"{told} differ only by case, surrounding space, '.0' or how Unicode writes them, but "
            "are different classes; write them alike if they are one",
        )
    for one, other in combinations(texts, 2):
        if _misspelt(_seen(one).casefold(), _seen(other).casefold()):
            yield (
                [one, other],
                f"{listing([one, other])} differ by one letter, and are different classes; correct "
                "one of them if that is a slip",
            )


def _written(labels: Sequence[Any]) -> Callable[[Any], str]:
    """Return how labels are written so that no two of them look the same."""
    return ascii if len({_seen(str(label)) for label in labels}) < len(labels) else repr


def _misspelt(one: str, other: str) -> bool:
    """Return whether two texts differ in one word, by a letter or by two that changed places."""
    if one[:1] != other[:1] or abs(len(one) - len(other)) > 1:
        return False
    words, others = (re.split(r"[\W_]+", text) for text in (one, other))
    odd = [pair for pair in zip(words, others, strict=False) if pair[0] != pair[1]]
    if len(words) != len(others) or len(odd) != 1:
        return False
    short, long = sorted(odd[0], key=len)
    if len(short) < LONG_WORD or not (short + long).isalpha():
        return False
    if len(short) < len(long):
        return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))
    places = [i for i in range(len(short)) if short[i] != long[i]]
    part = slice(places[0], places[-1] + 1)
    return len(places) == 1 or (len(short[part]) == 2 and short[part] == long[part][::-1])


def alike(classes: Sequence[Any]) -> list[list[str]]:
    """Return texts that differ only by case, surrounding space, '.0' or how Unicode writes them."""
    found: dict[str, list[str]] = {}
    for text in classes:
        if isinstance(text, str):
            key = re.sub(r"\.0+$", "", _seen(text).strip().casefold())
            found.setdefault(key, []).append(text)
    return [group for group in found.values() if len(group) > 1]


def _seen(text: str) -> str:
    """Return what a reader sees of a text: composed, and without characters of no width."""
    shown = unicodedata.normalize("NFKC", text)
    return "".join(c for c in shown if unicodedata.category(c) != "Cf")


def encode(
    values: list[Any], labelled: NDArray[np.bool_], classes: Sequence[Any]
) -> NDArray[np.int64]:
    """Return the class index of every row, `UNLABELLED` where there is no label."""
    index = {value: i for i, value in enumerate(classes)}
    return np.array(
        [index[v] if has else UNLABELLED for v, has in zip(values, labelled, strict=True)],
        dtype=np.int64,
    )


def class_array(classes: Sequence[Any]) -> NDArray[Any]:
    """Return classes as an array of their type; of objects where NumPy would change one."""
    array = np.array(classes)
    if [(type(c), c) for c in array.tolist()] == [(type(c), c) for c in classes]:
        return array
    if all(type(c) is int and 0 <= c < 2**64 for c in classes):
        return np.array(classes, dtype=np.uint64)
    return np.array(classes, dtype=object)


def decode(class_ids: NDArray[np.int64], classes: Sequence[Any]) -> NDArray[Any]:
    """Return labels in the type of the classes; rows without one are −1 (integers) or None.

    Class indices become an integer, string, boolean or float array where every row has a label;
    otherwise integers have −1, as objects where int64 does not hold them all, and other types
    become an object array.
    """
    known = class_array(classes)
    missing = class_ids == UNLABELLED
    if not missing.any():
        return known[class_ids]
    integers = all(type(c) is int for c in classes)
    dtype = np.int64 if known.dtype.kind == "i" else object
    marker = np.array([UNLABELLED if integers else None], dtype=dtype)
    return np.concatenate([known.astype(dtype), marker])[class_ids]  # index −1 is the last


def one_hot(class_ids: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Return the zero-or-one-hot matrix Y of the paper, (n_j, C)."""
    y = np.zeros((len(class_ids), n_classes))
    rows = np.flatnonzero(class_ids != UNLABELLED)
    y[rows, class_ids[rows]] = 1.0
    return y


def class_weights(counts: NDArray[np.int64], kind: ClassWeight) -> NDArray[np.float64]:
    """Return what a label of each class weighs; 0 where there is none.

    Args:
        counts: (…, C) N_c, labels of each class over all clients, N in all.
        kind: ``balanced`` for N/(C·N_c), as scikit-learn has it, ``sqrt`` for the square root of
            that, ``none`` for 1.
    """
    weights, all_labels = np.zeros(counts.shape), counts.sum(axis=-1, keepdims=True)
    np.divide(all_labels / counts.shape[-1], counts, out=weights, where=counts > 0)
    return weights ** {"balanced": 1.0, "sqrt": 0.5, "none": 0.0}[kind] * (counts > 0)


def weighted_one_hot(
    class_ids: Sequence[NDArray[np.int64]], n_classes: int, weight: ClassWeight
) -> list[NDArray[np.float64]]:
    """Return the matrices Y of several clients, with the weights of all their labels.

    Args:
        class_ids: per client, (n_j,) class indices; −1 for rows without a label.
        n_classes: C.
        weight: see `class_weights`.
    """
    matrices = [one_hot(own, n_classes) for own in class_ids]
    totals = np.rint(sum(y.sum(axis=0) for y in matrices)).astype(np.int64)
    return [y * class_weights(totals, weight) for y in matrices]
