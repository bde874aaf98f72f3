"""The kept corpus: for each decoder a text file with one input per line, in hexadecimal digits."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from decoders import Decoder

FOLDER = Path(__file__).parent / "corpus"
PACKAGES = (f"{Path('/xclp_crypto/')}", f"{Path('/xclp_lp/')}")


def read_corpus(name: str) -> list[bytes]:
    """Return the kept inputs of a decoder."""
    file = FOLDER / f"{name}.txt"
    if not file.exists():
        return []
    return [bytes.fromhex(line) for line in file.read_text(encoding="ascii").splitlines()]


def reached(decoder: Decoder, data: bytes) -> set[tuple[Any, ...]]:
    """Return which steps from line to line of the two packages an input causes."""
    steps: set[tuple[Any, ...]] = set()
    last: dict[int, int] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not any(package in file for package in PACKAGES):
            return None
        key = id(frame)
        steps.add((file, last.get(key, 0), frame.f_lineno, event))
        last[key] = frame.f_lineno
        return trace

    sys.settrace(trace)
    try:
        taken = decoder.check(data)
    finally:
        sys.settrace(None)
    return steps | {("taken", taken)}


def keep(decoder: Decoder, inputs: Iterable[bytes]) -> None:
    """Write those of the inputs that reach something that no shorter one and no seed does."""
    known: set[tuple[Any, ...]] = set()
    for seed in decoder.seeds:
        known |= reached(decoder, seed)
    chosen = []
    for data in sorted({*inputs, *read_corpus(decoder.name)}, key=lambda d: (len(d), d)):
        steps = reached(decoder, data)
        if not steps <= known:
            known |= steps
            chosen.append(data)
    FOLDER.mkdir(exist_ok=True)
    text = "".join(f"{data.hex()}\n" for data in chosen if data)
    file = FOLDER / f"{decoder.name}.txt"
    if text:
        file.write_text(text, encoding="ascii")
    else:
        file.unlink(missing_ok=True)
