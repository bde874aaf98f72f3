"""Shoulder exercises recorded by a smartwatch: ten people, each of them one client."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_lp.study.data.federation import Federation
from xclp_lp.study.data.windows import client_features, cut_windows

EXERCISES = (
    *("pendulum", "abduction", "forward elevation"),
    *("internal rotation", "external rotation", "trapezius", "row"),
)
"""The seven classes, in seglearn's order (PEN, ABD, FEL, IR, ER, TRAP, ROW)."""

_LEFT = 0
# A reflection of x negates that acceleration; rotation is an axial vector, so y and z turn round.
_MIRROR = np.array([-1.0, 1.0, 1.0, 1.0, -1.0, -1.0])


def load_watch(mirror: bool = False) -> Federation:
    """Load seglearn's 140 recordings as features of windows of 2.56 s, one client per person.

    Each person did every exercise once with the watch on the left and once on the right wrist.
    Windows do not overlap and do not cross recordings. See `xclp_lp.study.data.windows` for
    features.

    Args:
        mirror: turn recordings of the left wrist into those of a right wrist, which a watch can
            do that knows where it is worn. Labels then carry over between a person's wrists, so
            label propagation gets better both within and across clients.

    Returns:
        10 clients, 1833 windows, d = 183; labels are the names in `EXERCISES`.

    Errors are those of `xclp_lp.study.data.load`.

    Source: Burns et al. 2018, arXiv:1802.01489; features ours.
    """
    data = _seglearn_data()
    windows: dict[int, list[NDArray[np.float64]]] = {}
    labels: dict[int, list[NDArray[np.str_]]] = {}
    for recording, person, side, exercise in zip(
        data["X"], data["subject"], data["side"], data["y"], strict=True
    ):
        signal = recording * _MIRROR if mirror and side == _LEFT else recording
        cut = cut_windows(signal)
        windows.setdefault(int(person), []).append(cut)
        labels.setdefault(int(person), []).append(np.full(len(cut), EXERCISES[exercise]))
    people = sorted(windows)
    return Federation(
        names=tuple(f"person-{person:02d}" for person in people),
        features=tuple(client_features(np.concatenate(windows[person])) for person in people),
        labels=tuple(np.concatenate(labels[person]) for person in people),
        classes=EXERCISES,
        source="D. Burns et al., Shoulder Physiotherapy Exercise Recognition, 2018, "
        "arXiv:1802.01489; ten of its people, as shipped with seglearn",
        licence="BSD 3-Clause (seglearn)",
    )


def _seglearn_data() -> dict[str, Any]:
    try:
        from seglearn.datasets import load_watch as load
    except ImportError:
        raise ParameterError(
            "the data set 'watch' comes with the package seglearn; "
            "install it with: pip install 'xclp[demo]'"
        ) from None
    data: dict[str, Any] = load()
    return data
