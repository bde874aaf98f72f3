"""Sessions with fixed randomness and the plain computation beside them, for several test modules.

`every_schedule(random_session, …)` runs sessions of random sizes under random faults;
`check_outcome` says whether each ended as it may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import XclpError
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import Factory, run
from xclp_crypto.transport.driver import Role
from xclp_crypto.transport.simulate import Outcome
from xclp_lp.labels import UNLABELLED, class_weights, one_hot
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction, predict
from xclp_lp.propagation import pooled
from xclp_lp.scaling import Scaling, scaled_by_one
from xclp_lp.session import ClientData, client_role, server_role

SEED = bytes(range(32))
NOTHING = Scaling("none")
Data = dict[str, ClientData]
SMALL = Parameters(
    classes=(0, 1, 2),
    n_bits=64,
    k=2,
    alpha=0.9,
    gamma=1.0,
    hamming="masked",
    class_weight="none",
    scale="none",
    validation="none",
    post_quantum=False,  # so that all that is sent is a function of the seed
)


def watch_uploads(
    monkeypatch: Any, module: Any, each: Callable[[str, str, NDArray[Any], Any], None]
) -> None:
    """Show what clients are about to add to the row sums of a module, to be changed in place.

    `each` takes the client, the purpose of the sum, its values and everybody's rows.
    """
    honest = module.secure_row_sums_client

    async def watched(session, values, rows, codec, graph, rng, purpose="row sums", **others):  # type: ignore[no-untyped-def]
        values = (values() if callable(values) else values).copy()
        each(session.io.name, purpose, values, rows)
        return await honest(session, values, rows, codec, graph, rng, purpose, **others)

    monkeypatch.setattr(module, "secure_row_sums_client", watched)


def federation(
    data: Mapping[str, ClientData],
    params: Parameters | Mapping[str, Parameters],
    *,
    seed: int = 0,
    projection_seed: bytes | Mapping[str, bytes] | None = SEED,
    others: Mapping[str, Role] | None = None,
    identities: Mapping[str, Identities] | None = None,
) -> Callable[[], dict[str, Role]]:
    """A factory of one session's roles; `params` and `projection_seed` may differ by party.

    Two clients ask for it, with threshold = 2.
    """
    pins = identities or {}

    def make() -> dict[str, Role]:
        rng = SeededRng(seed)
        invited = tuple(data)

        def own(value: Any, party: str) -> Any:
            return value[party] if isinstance(value, Mapping) else value

        def agreed(party: str) -> Parameters:
            found: Parameters = copy(own(params, party))
            if len(data) == 2 and found.threshold is None:
                object.__setattr__(found, "threshold", 2)
            return found

        roles: dict[str, Role] = {
            name: partial(
                client_role,
                data=data[name],
                params=agreed(name),
                invited=invited,
                rng=rng.child(name),
                projection_seed=own(projection_seed, name),
                identities=pins.get(name),
            )
            for name in data
        }
        roles |= others or {}
        roles[SERVER] = partial(
            server_role,
            params=agreed(SERVER),
            invited=invited,
            rng=rng.child(SERVER),
            identities=pins.get(SERVER),
        )
        return roles

    return make


def predictions(make: Callable[[], dict[str, Role]]) -> dict[str, Prediction]:
    outcome = run(make).raise_errors()
    return {name: p for name, p in outcome.results.items() if name != SERVER}


def client(vectors: Any, codes: Any) -> ClientData:
    return ClientData(np.array(vectors, dtype=np.float64), np.array(codes, dtype=np.int64))


def in_graph(own: ClientData, scaling: Scaling = NOTHING) -> NDArray[np.bool_]:
    """Rows with a direction; with shared scaling all."""
    if scaling.shared:
        return np.ones(len(own.vectors), dtype=np.bool_)
    return scaled_by_one({"": own.vectors}, scaling, ())[""].any(axis=1)


def bits_of(own: ClientData, n_bits: int, seed: bytes = SEED) -> NDArray[np.uint8]:
    return hash_bits(own.vectors[in_graph(own)], projection(seed, n_bits, own.vectors.shape[1]))


def expected(
    data: Data,
    params: Parameters,
    present: Sequence[str],
    contributors: Sequence[str],
    seed: bytes = SEED,
    scaled_over: Sequence[str] = (),
) -> dict[str, Prediction]:
    """Plain propagation over the rows of `present` with the labels of `contributors`.

    Shared scaling is over the rows of `scaled_over`, or of all.
    """
    vectors = {c: own.vectors for c, own in data.items()}
    vectors = scaled_by_one(vectors, params.scaling, scaled_over or tuple(data))
    kept_rows = {c: in_graph(data[c], params.scaling) for c in present}
    codes = {c: data[c].class_ids[kept_rows[c]] for c in present}
    n_classes = len(params.classes)
    onehot = {
        c: one_hot(codes[c], n_classes)
        if c in contributors
        else np.zeros((len(codes[c]), n_classes))
        for c in present
    }
    totals = sum(y.sum(axis=0) for y in onehot.values()).astype(np.int64)
    weights = class_weights(totals, params.class_weight)
    onehot = {c: y * weights for c, y in onehot.items()}
    together = pooled(
        [
            hash_bits(vectors[c][kept], projection(seed, params.n_bits, vectors[c].shape[1]))
            for c, kept in kept_rows.items()
        ],
        list(onehot.values()),
        alpha=params.alpha,
        **params.neighbours | {"k": min(params.k, sum(map(len, codes.values())) - 1)},
    )
    result = {}
    for c, prediction in zip(present, together, strict=True):
        kept = kept_rows[c]
        if params.client_prior == "own":
            own = np.bincount(codes[c][codes[c] >= 0], minlength=n_classes) + 5 / n_classes
            reached = prediction.class_ids >= 0
            prediction = predict(prediction.distribution * own / own.sum() * reached[:, None])
        result[c] = Prediction.none(len(kept), n_classes)
        result[c].class_ids[kept] = prediction.class_ids
        result[c].confidence[kept] = prediction.confidence
        result[c].distribution[kept] = prediction.distribution
    return result


def expected_labels(
    data: Data, params: Parameters, present: Sequence[str], contributors: Sequence[str]
) -> dict[str, NDArray[np.int64]]:
    """The labels of `expected`."""
    return {c: p.class_ids for c, p in expected(data, params, present, contributors).items()}


def check_outcome(outcome: Outcome, data: Data, params: Parameters) -> None:
    """Everybody ended; whoever has labels has those of the graph and contributors reported.

    Where the server reports none, there must be some that explain the labels of all clients.
    """
    assert {*outcome.results, *outcome.errors, *outcome.dropouts} == {*data, SERVER}
    assert all(isinstance(error, XclpError) for error in outcome.errors.values())
    found = {c: r.class_ids.tolist() for c, r in outcome.results.items() if c != SERVER}
    graph = outcome.results.get(SERVER)
    if graph is not None:
        assert {*found} <= {*graph.sizes}
        assert {*graph.contributors} <= {*graph.sizes}
        assert {d.client: d.contributed for d in graph.dropouts} == {
            d.client: d.client in graph.contributors for d in graph.dropouts
        }
        assert {*data} - {*graph.contributors} <= {d.client for d in graph.dropouts}
        possible = [(tuple(graph.sizes), graph.contributors)]
    elif found:
        possible = [(p, a) for p in subsets(tuple(data)) for a in subsets(p) if {*found} <= {*p}]
    else:
        return
    for present, contributors in possible:
        labels = expected_labels(data, params, present, contributors)
        if found == {c: labels[c].tolist() for c in found}:
            return
    raise AssertionError(f"{graph}: nothing explains {found}")


def subsets(clients: Sequence[str]) -> list[tuple[str, ...]]:
    """All subsets of at least two clients, the largest first."""
    return [s for size in range(len(clients), 1, -1) for s in combinations(clients, size)]


def relabelled(data: Data) -> Data:
    """The same rows are labelled, all with class 0."""
    return {
        c: ClientData(own.vectors, np.where(own.class_ids == UNLABELLED, UNLABELLED, 0))
        for c, own in data.items()
    }


def no_mask(*args: Any) -> NDArray[np.uint64]:
    """Stand for what makes a mask of so many numbers."""
    return np.zeros(args[-1], dtype=np.uint64)


def random_case(seed: int) -> tuple[Data, Parameters]:
    """A small federation of 3 to 8 clients with random parameters."""
    rng = np.random.default_rng(seed)
    p = 3 + seed % 6
    data = blobs(
        {c: int(n) for c, n in zip("abcdefgh"[:p], rng.integers(1, 5, p), strict=True)},
        labelled=1,
        d=3,
        seed=seed,
    )
    params = Parameters(
        classes=(0, 1, 2),
        n_bits=int(rng.integers(16, 65)),
        k=int(rng.integers(1, 3)),
        alpha=float(rng.choice([0.5, 0.9])),
        hamming=str(rng.choice(["plain", "masked", "rlwe"], p=[0.45, 0.45, 0.1])),
        threshold=int(rng.integers(2, p)) if rng.random() < 0.5 else None,
        class_weight=str(rng.choice(["sqrt", "balanced", "none"])),
        scale=str(rng.choice(["none", "client"])),
    )
    if all(len(own.vectors) == 1 for own in data.values()):  # scaled alone, every row is zero
        params = replace(params, scale="none")
    return data, params


def random_session(seed: int) -> Factory:
    """The factory of the session of `random_case`; for `every_schedule`."""
    return federation(*random_case(seed), seed=seed)


def blobs(
    sizes: Mapping[str, int], labelled: int = 2, n_classes: int = 3, d: int = 5, seed: int = 0
) -> Data:
    """Points around one centre per class, the first few rows of each client labelled."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.standard_normal((n_classes, d))
    data = {}
    for name, n in sizes.items():
        y = rng.integers(0, n_classes, n)
        x = centres[y] + rng.standard_normal((n, d))
        data[name] = client(x, np.where(np.arange(n) < labelled, y, UNLABELLED))
    return data
