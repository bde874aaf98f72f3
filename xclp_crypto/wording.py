"""How messages suggest what may have been meant."""

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'that'?`` if something known is like `name`, or nothing.

    What is equally like it is listed: of ``eest``, both ``east`` and ``west`` are one letter away.
    """
    from difflib import SequenceMatcher, get_close_matches  # for errors only

    similar = get_close_matches(name, list(known), n=3)
    likeness = [SequenceMatcher(None, other, name).ratio() for other in similar]
    best = [s for s, like in zip(similar, likeness, strict=True) if like == likeness[0]]
    return f"; did you mean {' or '.join(map(repr, sorted(best)))}?" if best else ""
