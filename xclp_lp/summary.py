"""What a plan and a result are, in words: lines for a terminal, a report or a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import FaultyPeer, XclpError
from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.privacy import RandomizedResponse
from xclp_crypto.protocols.hamming import HammingBackend, costs, get_backend
from xclp_lp.accuracy import FEWEST, Validation
from xclp_lp.diagnostics import geometry_cautions, moment_cautions
from xclp_lp.dropouts import Dropout
from xclp_lp.forecast import FAST, computing_seconds
from xclp_lp.labels import UNLABELLED, alike
from xclp_lp.messages import Geometry
from xclp_lp.parameters import Parameters, Settings
from xclp_lp.plan import Plan, Result
from xclp_lp.predictions import Prediction
from xclp_lp.session import ClientData
from xclp_lp.wording import count, duration, listing, size

NO_IDENTITIES = "identities = false: a server that swaps keys reads everything, and nobody notices"
EACH_LEARNS = "each learns the other's part of every sum it receives (the sum minus its own part)"

SHORT, LONG = 1.0, 600.0
"""Seconds from which the time is told, and from which another back end is suggested."""


def estimate_line(hamming: str | HammingBackend, sizes: Mapping[str, int], n_bits: int) -> str:
    """Say what the distances will cost, before anything is computed."""
    backend = get_backend(hamming)
    estimate = costs.estimate(backend, sizes, n_bits)
    operations = ", ".join(f"{number:.2g} {kind}" for kind, number in estimate.operations.items())
    seconds = computing_seconds(estimate.operations)
    line = (
        f"distances by {backend.name}: {size(estimate.total_bytes)} in "
        f"{count(estimate.rounds, 'round')}, about {size(estimate.simulation_bytes)} of memory, "
        f"{operations}"
    )
    if seconds >= SHORT:
        line += f"; roughly {duration(seconds)} on one core"
    if seconds > LONG and backend.name not in FAST:
        line += "; rlwe and masked are much faster"
    return line


def plan_lines(
    plan: Plan, columns: Mapping[str, Sequence[str] | None] | None = None
) -> Iterator[str]:
    """Say what was understood and what it will cost, before anything is computed.

    Args:
        plan: data and parameters.
        columns: names of the features by client, None where they have none.
    """
    data, classes = plan.data, plan.params.classes
    shapes = [own.vectors.shape for own in data.values()]
    rows = sum(n for n, _ in shapes)
    yield f"{count(len(data), 'client')}, {count(rows, 'row')}, {count(shapes[0][1], 'feature')}"
    clients: dict[tuple[str, ...], list[str]] = {}
    for client, names in (columns or {}).items():
        if names is not None:
            clients.setdefault(tuple(names), []).append(client)
    for names, owners in clients.items():
        whose = "" if len(owners) == len(data) else f" of {listing(owners)}"
        yield f"features{whose}: {listing(names)}"
    yield f"{count(len(classes), 'class', 'classes')}: {listing(classes, 10)}"
    labelled = {c: int((own.class_ids != UNLABELLED).sum()) for c, own in data.items()}
    without = [client for client, number in labelled.items() if not number]
    line = f"{sum(labelled.values()):,} of {count(rows, 'row')} labelled"
    yield line + f"; clients without labels: {listing(without, 5)}" * bool(without)
    params = plan.params
    if params.scale == "client":
        yield "features are scaled by each client for itself"
    if params.shared_scale:
        yield (
            "features are scaled over the rows of all clients, who learn each feature's mean and "
            "variance; the server does not"
        )
    if params.missing != "refuse":
        missing = sum(int(np.isnan(own.vectors).sum()) for own in data.values())
        learnt = "; clients learn how many each column has" * params.shared_scale
        yield f"{count(missing, 'missing value becomes', 'missing values become')} means{learnt}"
    if params.weighted:
        weight = {"sqrt": "1/√N", "balanced": "1/N"}[params.class_weight]
        yield f"labels weigh {weight} with N labels of their class, which the server does not learn"
    if params.validated:
        yield (
            "each label is left out in turn to see how many come back; the clients learn these "
            "numbers by class and confidence, the server does not"
        )
    if isinstance(params.privacy, RandomizedResponse):
        yield (
            f"every client randomises its labels, which are {params.privacy.epsilon:g}-"
            "differentially private whoever looks"
        )
    if params.noise is not None:
        asked = params.noise
        yield (
            f"labels are ({asked.epsilon:g}, {asked.delta:g})-differentially private while the "
            f"noise of {count(asked.noise_contributors, 'client')} is unknown to whoever looks"
        )
    if params.threshold is not None:
        yield f"goes on without clients that drop out, down to {params.threshold:,}"
    groups = plan.shapes()
    if len(groups) > 1:
        sizes = [len(own) for own in plan.groups.values()]
        yield (
            f"{len(groups)} groups of {min(sizes)} to {count(max(sizes), 'client')}, each a "
            f"federation of its own: {listing(tuple(plan.groups), 10)}"
        )
        if len(groups) <= 10:
            for name, own in plan.groups.items():
                yield f"{name}: {listing(own, 10)}"
        yield "the largest:"
    largest = max(groups, key=lambda own: own.n)
    yield estimate_line(plan.params.hamming, largest.rows, plan.params.n_bits)


def validation_lines(validation: Validation | None, *, advise: bool = True) -> Iterator[str]:
    """Say how right the labels of all clients probably are, and what might be better.

    Args:
        validation: None where it was not measured.
        advise: whether to name a better setting; not where the graph looks wrong, since no setting
            mends that.
    """
    if validation is None:
        return
    unknown = list(unknown_lines(validation))
    if unknown or validation.error is None:
        yield from unknown
        return
    labels = count(validation.n_labels, "label")
    yield (
        f"estimated accuracy: {validation.accuracy():.0%} ± {100 * validation.error:.3g} points, "
        f"and {validation.balanced_accuracy():.0%} as the mean over classes; found by leaving out "
        f"each of the {labels} of all clients, as far as other rows are like labelled ones"
    )
    if validation.own_labels:
        yield f"of {count(validation.own_labels, 'own label')} {validation.own_right:,} came back"
    if advise and (advised := validation.advised) is not None:
        line = (
            f"{advised} would be right for {validation.accuracy(advised):.0%} of them instead of "
            f"{validation.accuracy():.0%}"
        )
        prior = advised.client_prior != "none"
        yield line + ", if each client's labels are a random sample of its rows" * prior


def unknown_lines(validation: Validation) -> Iterator[str]:
    """Say why it cannot be said how right labels probably are, where it cannot."""
    labels, unknown = count(validation.n_labels, "label"), "how good the labels are cannot be said"
    if validation.error is None:
        yield f"{unknown}: {labels} are too few, {FEWEST} are needed"
    elif np.count_nonzero(validation.labels) < 2:
        yield f"{unknown}: all labels are of one class"


def came_back_lines(result: Result, group: str, most: int = 8) -> Iterator[str]:
    """Say how many labels of each client of a group came back, the worst first.

    For whoever runs all parties in one process; a client of a federation knows its own only.

    Args:
        result: of the run.
        group: one of `Result.validations`.
        most: clients that are named.
    """
    if result.validations[group].error is None:
        return
    own = ((c, result.predictions[c].validation) for c in result.plan.groups[group])
    found = [(v.own_right, v.own_labels, c) for c, v in own if v is not None and v.own_labels]
    found.sort(key=lambda own: own[0] / own[1])
    told = ", ".join(f"{c!r} {right:,} of {n:,}" for right, n, c in found[:most])
    yield f"labels that came back: {told}" + ", …" * (len(found) > most)


def dropout_lines(dropouts: Sequence[Dropout]) -> Iterator[str]:
    """Say who dropped out, when, why, and what that means."""
    for own in dropouts:
        when = f"before the end of the step {own.step!r}{f' ({own.why})' * bool(own.why)}"
        yield f"{own.client} dropped out {when}: {own.effect}."


def outcome_lines(
    params: Parameters,
    given: Mapping[str, NDArray[np.int64]],
    found: Mapping[str, Prediction],
) -> Iterator[str]:
    """Say what whoever gets labels should know before trusting them, a line each.

    Args:
        params: the agreement.
        given: by client, (n_j,) class indices, −1 for rows that had no label.
        found: what came of the same rows.
    """
    among: dict[Geometry, list[str]] = {}
    for client, own in found.items():
        if own.geometry is not None:
            among.setdefault(own.geometry, []).append(client)
    for geometry, clients in among.items():
        where = f"among {listing(clients, 5)}: " * (len(among) > 1)
        for line in geometry_cautions(geometry, params.k):
            yield where + line
    before = np.concatenate([given[client] for client in found])
    after = np.concatenate([own.class_ids for own in found.values()])
    yield from relabelled_lines(before, after)
    if params.privacy is None:  # with it, labels change on purpose
        yield from lost_lines(params.classes, before, after)
    confidence = np.concatenate([own.confidence for own in found.values()])
    without = (before == UNLABELLED) & (after == UNLABELLED)
    if unreached := int((without & (confidence == 0)).sum()):
        yield f"no label reaches {unreached:,} of {count(len(before), 'row')}"
    if unsure := int((without & (confidence > 0)).sum()):
        yield f"below the least confidence, so without a label: {count(unsure, 'row')}"
    else:
        yield from neglected_lines(params, before, after)


def result_lines(result: Result) -> Iterator[str]:
    """Say so of a run of all parties in one process; see `outcome_lines`."""
    plan, away = result.plan, result.without_result
    found = {c: own for c, own in result.predictions.items() if c not in away}
    return outcome_lines(plan.params, {c: plan.data[c].class_ids for c in found}, found)


def privacy_cautions(
    params: Parameters, invited: Sequence[str], random_state: int | None, *, identities: bool
) -> Iterator[str]:
    """Say what all parties of a federation should know before it begins, and in its results.

    Args:
        params: the agreement.
        invited: names of all clients.
        random_state: the number that fixes the projection, if one does.
        identities: whether the parties check each other's identities.
    """
    if not identities:
        yield NO_IDENTITIES
    if params.among(len(invited)).at_least == MIN_CLIENTS:
        left = "" if len(invited) == MIN_CLIENTS else "threshold = 2: where two clients are left, "
        yield f"{left or 'with two clients, '}{EACH_LEARNS}"
    if random_state is not None:
        yield (
            "random_state fixes the projection: everybody who knows this number knows it, and can "
            "compare guesses of a row with the hashes of a client that tells them"
        )


def retry_cautions(params: Parameters, entered: ClientData) -> Iterator[str]:
    """Say that each session spends ε again, where no file keeps the labels that were randomised."""
    if isinstance(params.privacy, RandomizedResponse) and not entered.randomised:
        yield (
            "labels are randomised anew in every session, and each spends epsilon = "
            f"{params.privacy.epsilon:g}; --remember FILE, of a Flower node remember, keeps them"
        )


def restart_line(error: XclpError, clients: Sequence[str], place: str) -> str:
    """Say how to start again without clients that an error blames; nothing if it blames none.

    Args:
        error: what a session ended in.
        clients: names of all clients.
        place: where they are listed.
    """
    blamed = [c for c in clients if isinstance(error, FaultyPeer) and c in error.parties]
    if not blamed:
        return ""
    if len(blamed) == 1:
        who, what = f"without {blamed[0]}", repr(blamed[0])
    else:
        who = f"without the one of {', '.join(blamed)} that is at fault, once you know which,"
        what = "its name"
    return f"to start again {who} take {what} out of clients = … in {place}"


def present_in(invited: Sequence[str], found: Prediction) -> list[str]:
    """Return the clients whose part is in a client's scores, as far as it can tell."""
    missing = {dropout.client for dropout in found.dropouts}
    return [client for client in invited if client not in missing]


def two_left_line(contributors: Sequence[str]) -> Iterator[str]:
    """Say that two clients only are in the sums, where that is so."""
    if len(contributors) == MIN_CLIENTS:
        yield f"only {' and '.join(contributors)} are in the sums, so {EACH_LEARNS}"


def result_warnings(result: Result) -> list[str]:
    """Return what two clients learn of each other in a run of all parties in one process.

    Args:
        result: of the run; its groups are named where there are several.
    """
    plan, counted, found = result.plan, result.participation.contributors, []
    for group, members in plan.groups.items():
        own = [*privacy_cautions(plan.params, members, None, identities=True)]
        if len(members) > MIN_CLIENTS:
            own += two_left_line([c for c in members if c in counted])
        found += [f"group {group!r}: " * plan.grouped + line for line in own]
    return found


def client_lines(
    params: Parameters,
    settings: Settings,
    data: ClientData,
    found: Prediction,
    invited: Sequence[str],
    client: str,
    columns: Sequence[str] | None = None,
) -> Iterator[str]:
    """Say so of what a client sees of a federation, and who is missing; see `outcome_lines`.

    Args:
        params: the agreement.
        settings: how the client shows its result.
        data: of the client.
        found: what its role returned.
        invited: names of all clients.
        client: its own.
        columns: names of its features, if they have some.
    """
    yield from dropout_lines(found.dropouts)
    kept, geometry = found.kept, found.geometry
    if params.shared_scale and kept is not None and geometry is not None:
        moments = kept.own.moments
        if moments is not None:
            rows = geometry.rows
            yield from moment_cautions(client, data.vectors, moments, columns, rows=rows)
    yield from two_left_line(present_in(invited, found))
    shown = settings.shown(found, data.class_ids)
    yield from outcome_lines(params, {"": data.class_ids}, {"": shown})
    yield from validation_lines(found.validation, advise=is_sound(params, [found]))
    if found.unvalidated is not None:
        yield str(found.unvalidated)


def is_sound(params: Parameters, found: Iterable[Prediction]) -> bool:
    """Return whether nothing looks wrong with classes, or the graphs that predictions are from."""
    if alike(params.classes):
        return False
    graphs = {own.geometry for own in found if own.geometry is not None}
    return not any(line for graph in graphs for line in geometry_cautions(graph, params.k))


def relabelled_lines(given: NDArray[np.int64], got: NDArray[np.int64]) -> Iterator[str]:
    """Say how many labelled rows got another label than their own, or none.

    Args:
        given: (n,) class indices, −1 for rows that had no label.
        got: the same after the run.
    """
    labelled = given != UNLABELLED
    given, got = given[labelled], got[labelled]
    none = int((got == UNLABELLED).sum())
    changed = int((got != given).sum()) - none
    what = [f"{changed:,} got another label"] * bool(changed) + [f"{none:,} got none"] * bool(none)
    if what:
        yield f"of {count(len(given), 'labelled row')} {' and '.join(what)}"


def neglected_lines(
    params: Parameters, given: NDArray[np.int64], got: NDArray[np.int64]
) -> Iterator[str]:
    """Say which classes got less than a quarter of the unlabelled rows that their labels suggest.

    A class can lose nearly all its rows to one that has three times as many labels, if labels do
    not weigh by class.

    Args:
        params: the agreement.
        given: (n,) class indices, −1 for rows that had no label.
        got: the same after the run.
    """
    labels = given[given != UNLABELLED]
    found = got[(given == UNLABELLED) & (got != UNLABELLED)]
    advice = "" if params.weighted or params.noise else '; class_weight = "sqrt" helps'
    for index, name in enumerate(params.classes):
        mine, came = int((labels == index).sum()), int((found == index).sum())
        if mine and 4 * came * len(labels) < mine * len(found):
            yield (
                f"{name!r} has {mine:,} of {count(len(labels), 'label')} and came out for {came:,} "
                f"of {count(len(found), 'unlabelled row')}{advice}"
            )


def lost_lines(
    classes: Sequence[Any], given: NDArray[np.int64], got: NDArray[np.int64]
) -> Iterator[str]:
    """Say of which classes every labelled row got another; arguments as `relabelled_lines`."""
    for index, name in enumerate(classes):
        found = got[given == index]
        if len(found) and not np.isin(found, (index, UNLABELLED)).any():
            others = listing([classes[i] for i in np.unique(found)])
            rows = f"every row labelled {name!r} ({len(found):,})"
            yield f"{rows} came out as another class: {others}"
