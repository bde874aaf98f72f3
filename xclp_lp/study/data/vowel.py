"""Vowels of English spoken by fifteen people, each of them one client."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.files.damaged import DAMAGED
from xclp_lp.study.data.archives import installed_file
from xclp_lp.study.data.federation import Federation, Place

DEBIAN = Path("/usr/lib/R/site-library/mlbench/data/Vowel.rda")
"""Where Debian's package r-cran-mlbench puts the data."""


def load_vowel(path: Place | None = None) -> Federation:
    """Load 11 vowels, 6 frames of each by each speaker, one client per speaker.

    The six frames are pieces of one utterance, so a labelled frame tells much about the other five.
    Only leaving out a speaker's labels says how well utterances are recognised.

    Args:
        path: Vowel.rda of R's package mlbench, or a folder with it at any depth; by default where
            Debian's package r-cran-mlbench puts it.

    Returns:
        15 clients of 66 rows, d = 9: log area ratios as published, neither centred nor scaled;
        labels are the vowels' words.

    Errors are those of `xclp_lp.study.data.load`.

    Source: Deterding 1989; as in mlbench.
    """
    file = installed_file(DEBIAN if path is None else Path(path), "Vowel.rda", "r-cran-mlbench")
    try:
        import rdata
    except ImportError:
        raise ParameterError(
            "the data set 'vowel' needs the package rdata; install it with: "
            "pip install 'xclp[data]'"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # R 2 did not say which encoding its text has
            tables: Any = rdata.conversion.convert(rdata.parser.parse_file(file))
    except DAMAGED as error:
        raise DataError(f"{file} is not a file of R data: {error!r}") from None
    try:
        speakers, vowels, features = _columns(tables["Vowel"])
    except DAMAGED as error:
        raise DataError(
            f"{file} has no data frame Vowel with columns V1 to V10 and Class: {error!r}"
        ) from None
    people = sorted(set(speakers.tolist()))
    return Federation(
        names=tuple(f"speaker-{s + 1:02d}" for s in people),
        features=tuple(features[speakers == s] for s in people),
        labels=tuple(vowels[speakers == s] for s in people),
        classes=tuple(dict.fromkeys(vowels.tolist())),
        source="D. Deterding, Connectionist Bench (Vowel Recognition), UCI Machine Learning "
        "Repository, as in R's package mlbench",
        licence="CC BY 4.0 (UCI); GPL-2 (mlbench)",
    )


def _columns(frame: Any) -> tuple[NDArray[np.int64], NDArray[np.str_], NDArray[np.float64]]:
    """Return speakers (n,), vowels (n,) and features (n, 9) of the data frame."""
    names = [f"V{i}" for i in range(2, 11)]
    if [*map(str, frame.columns)] != ["V1", *names, "Class"]:
        raise DataError(f"columns {[*map(str, frame.columns)]}")
    speakers = np.array([int(s) for s in frame["V1"]])
    vowels = np.array([str(v) for v in frame["Class"]])
    return speakers, vowels, frame[names].to_numpy(dtype=np.float64)
