"""The demonstration: label a real data set across clients and compare with the alternatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.hamming import HammingBackend
from xclp_crypto.rng import Rng
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Progress
from xclp_lp.data import Federation, label_mask
from xclp_lp.estimator import CrossClientLabelPropagation, Plan, projection_seed
from xclp_lp.labels import UNLABELLED, decode, encode, one_hot
from xclp_lp.propagation import per_client, pooled
from xclp_lp.session import hash_rows


@dataclass(frozen=True)
class Comparison:
    """Accuracy on the unlabelled rows, and what the secure run cost.

    Attributes:
        per_client: accuracy of label propagation within each client alone.
        xclp: accuracy of the secure run.
        plain: accuracy of label propagation over the pooled data, nothing encrypted.
        identical: whether the secure and the plain labels agree in every row.
        rows: number of rows.
        labelled: number of labelled rows.
        cost: cost of the secure run.
    """

    per_client: float
    xclp: float
    plain: float
    identical: bool
    rows: int
    labelled: int
    cost: Cost


def compare(
    federation: Federation,
    *,
    labelled: float,
    seed: int,
    n_bits: int,
    k: int,
    alpha: float,
    hamming: str | HammingBackend,
    rng: Rng | None = None,
    progress: Callable[[Progress], None] | None = None,
    announce: Callable[[Plan], None] | None = None,
) -> Comparison:
    """Hide most labels, recover them in three ways, and compare.

    Args:
        federation: the data with all true labels.
        labelled: fraction of each client's rows whose label is kept, in (0, 1].
        seed: ≥ 0, chooses the labelled rows and the projection, for all three ways alike.
        n_bits: L.
        k: neighbours per point.
        alpha: α in (0, 1).
        hamming: SecureHamming back end.
        rng: source of keys and masks, the operating system's by default.
        progress: called before each computation of the secure run.
        announce: called when all is checked, before the secure run.
    """
    classes = federation.classes
    shown = label_mask(federation.labels, labelled, seed)
    hidden = ~np.concatenate(shown)
    if not hidden.any():
        raise ParameterError(
            f"labelled must leave some row to predict, got {labelled} of {len(hidden)} rows"
        )
    truth = [encode(y.tolist(), np.ones(len(y), dtype=bool), classes) for y in federation.labels]
    codes = [np.where(mask, y, UNLABELLED) for mask, y in zip(shown, truth, strict=True)]

    estimator = CrossClientLabelPropagation(
        n_bits,
        k,
        alpha,
        hamming=hamming,
        classes=classes,
        random_state=seed,
        client_names=federation.names,
    )
    estimator.fit(
        federation.features,
        [decode(c, classes) for c in codes],
        rng=rng,
        progress=progress,
        announce=announce,
    )
    secure = [
        encode(y.tolist(), np.array([v is not None and v != -1 for v in y.tolist()]), classes)
        for y in estimator.transduction_
    ]

    plain_seed = projection_seed(seed) or b""
    bits = [hash_rows(plain_seed, v, n_bits)[0] for v in federation.features]
    onehot = [one_hot(c, len(classes)) for c in codes]
    together = [p.labels for p in pooled(bits, onehot, k=k, alpha=alpha)]
    alone = [p.labels for p in per_client(bits, onehot, k=k, alpha=alpha)]

    expected = np.concatenate(truth)[hidden]

    def accuracy(predicted: list[NDArray[np.int64]]) -> float:
        return float(np.mean(np.concatenate(predicted)[hidden] == expected))

    return Comparison(
        per_client=accuracy(alone),
        xclp=accuracy(secure),
        plain=accuracy(together),
        identical=all(np.array_equal(s, t) for s, t in zip(secure, together, strict=True)),
        rows=len(hidden),
        labelled=int((~hidden).sum()),
        cost=estimator.cost_,
    )


def summary(runs: list[Comparison]) -> dict[str, Any]:
    """Return mean accuracies, whether all labels are identical, and the cost of the first run."""
    return {
        "accuracy": {
            "per_client": float(np.mean([r.per_client for r in runs])),
            "xclp": float(np.mean([r.xclp for r in runs])),
            "plain": float(np.mean([r.plain for r in runs])),
        },
        "identical_labels": all(r.identical for r in runs),
        "cost": runs[0].cost.to_dict(),
    }
