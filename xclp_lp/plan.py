"""A plan is a run that is checked and not computed yet, a result what came of it.

Both are of whoever runs all parties in one process, and hold the data of all clients. In a
federation each party has what it learns itself: a client its `Prediction`, the server its
`Participation`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import (
    DataError,
    ParameterError,
    PrivacyWarning,
    ProtocolError,
    XclpError,
)
from xclp_crypto.front import client_names, warn_if_two
from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import Rng, rng_or_system
from xclp_crypto.secret import Secret
from xclp_crypto.transport.driver import Progress, Role
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Faults, Outcome, Simulation
from xclp_lp import labels
from xclp_lp.accuracy import Validation
from xclp_lp.dataframes import column_names, joined_indices
from xclp_lp.diagnostics import feature_cautions
from xclp_lp.dropouts import checked_drop
from xclp_lp.forecast import Forecast, forecast
from xclp_lp.input_data import input_data, require_lists
from xclp_lp.kept import KeptDistances
from xclp_lp.labelling import Participation
from xclp_lp.lsh import projection_seed
from xclp_lp.memory import require_room
from xclp_lp.parameters import Arguments, Parameters, Settings, Shape
from xclp_lp.predictions import Prediction
from xclp_lp.scaling import in_graph
from xclp_lp.session import ClientData, client_role, server_role
from xclp_lp.update import require_updates, update_client_role, update_server_role
from xclp_lp.wording import count, rows_called


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Secret):
    """A run whose data and parameters are checked, and of which nothing is computed yet.

    Attributes:
        params: what all parties have in common, the classes among it.
        data: each client's vectors and class indices.
        groups: clients by group, each a federation of its own; one group where none are asked for.
        grouped: whether groups were asked for.
        seed: of the projection, if it is fixed.
        settings: how each client shows its result.
        columns: names of the features, if they have some.
        indices: by client, the index of its data frame, or None.
    """

    params: Parameters
    data: Mapping[str, ClientData]
    groups: Mapping[str, tuple[str, ...]]
    grouped: bool = False
    seed: bytes | None = None
    settings: Settings = field(default_factory=Settings)
    columns: tuple[str, ...] | None = None
    indices: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        arguments: Arguments,
        Xs: Sequence[ArrayLike],
        ys: Sequence[ArrayLike | None],
        *,
        names: Sequence[str] | None = None,
        row_names: Sequence[Sequence[str] | None] | None = None,
    ) -> Plan:
        """Check the data of all clients, and compute nothing.

        `CrossClientLabelPropagation.plan` says more of what is taken, and what is refused.

        Args:
            arguments: of the run.
            Xs: one (n_j, d) array or frame per client.
            ys: one (n_j,) array or series of labels per client, or None.
            names: of the clients.
            row_names: per client, what errors and warnings call its rows, if not by their indices.

        Raises:
            DataError: the data cannot be used; names client, row and column.
            ParameterError: an argument does not fit them.
        """
        require_lists(Xs=Xs, ys=ys)
        clients = client_names(len(Xs), names)
        given = input_data(
            Xs,
            ys,
            clients,
            classes=arguments.classes,
            missing=arguments.missing == "mean",
            row_names=row_names,
        )
        plan = cls(
            arguments.parameters(given.classes),
            given.data,
            groups=checked_groups(arguments.groups, clients, arguments.random_state),
            grouped=arguments.groups is not None,
            seed=projection_seed(arguments.random_state),
            settings=arguments,
            columns=column_names(Xs),
            indices=given.indices,
        )
        require_usable(plan, given.row_names)
        return plan

    def followed_by(self, Xs: Sequence[ArrayLike], ys: Sequence[ArrayLike | None]) -> Plan:
        """Return a plan of these rows and, after those of each client, further ones.

        Args:
            Xs: one (m_j, d) array or frame of new rows per client; m_j may be 0.
            ys: one (m_j,) array or series of their labels per client, or None.

        Raises:
            DataError: the new rows or labels are not like the old ones; names client, row, column.
            ParameterError: so many rows need too much memory.
        """
        require_updates(self.params)
        more = input_data(
            Xs,
            ys,
            tuple(self.data),
            earlier=list(self.params.classes),
            missing=self.params.missing == "mean",
            columns=self.columns or (),
        )
        data = {c: own.followed_by(more.data[c]) for c, own in self.data.items()}
        indices = {
            c: joined_indices(own, more.indices[c], len(more.data[c].class_ids), c)
            for c, own in self.indices.items()
        }
        plan = replace(self, data=data, indices=indices)
        require_usable(plan, None, update=True)
        return plan

    @property
    def sizes(self) -> dict[str, int]:
        """Return how many rows of each client take part, see `in_graph`."""
        return {c: int(rows.sum()) for c, rows in self._rows()}

    @property
    def labelled(self) -> dict[str, int]:
        """Return how many of these rows are labelled."""
        labelled = {c: own.class_ids != labels.UNLABELLED for c, own in self.data.items()}
        return {c: int((rows & labelled[c]).sum()) for c, rows in self._rows()}

    def _rows(self) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        for client, own in self.data.items():
            yield client, in_graph(own.vectors, self.params.scaling)

    @property
    def features(self) -> int:
        """Return d."""
        return int(next(iter(self.data.values())).vectors.shape[1])

    def shapes(self) -> list[Shape]:
        """Return the public sizes of every group."""
        sizes, labelled = self.sizes, self.labelled
        return [
            Shape(
                {c: sizes[c] for c in own},
                {c: labelled[c] for c in own},
                self.params.scaling.width(self.features),
                equal_pairs([self.data[c].vectors for c in own]),
            )
            for own in self.groups.values()
        ]

    def cautions(self, columns: Sequence[str] | None = None) -> list[str]:
        """Return what looks wrong with the features, see `feature_cautions`.

        Args:
            columns: their names; by default those that the data have.
        """
        vectors = {client: own.vectors for client, own in self.data.items()}
        return list(feature_cautions(vectors, self.params.scale, columns or self.columns))

    def forecast(self) -> Forecast:
        """Predict what the run will cost."""
        return forecast(self.params, self.shapes())

    def run(
        self,
        *,
        progress: Callable[[Progress], None] | None = None,
        drop: Mapping[str, str] | None = None,
        rng: Rng | None = None,
        keep: bool = False,
        since: Result | None = None,
    ) -> Result:
        """Run the protocol, one group after the other.

        Args:
            progress: called before each computation.
            drop: clients that drop out: a mapping from names to the step before which they do, one
                of `xclp_lp.dropouts.STEPS`. It shows what a run is worth without them; they get no
                labels.
            rng: source of keys and masks; the operating system's unless a test passes
                `SeededRng`.
            keep: whether the servers keep the distances, so that further rows can follow.
            since: result of the plan that this one follows, whose servers kept them: only distances
                of the further rows are computed. See `xclp_lp.update`.

        Raises:
            EncodingOverflow: the fixed-point sums, with their noise, do not fit the ring.
            ParameterError: `drop` names no client or step.
            TooFewParties: so many clients drop out that fewer than the threshold are left.
            ProtocolError: clients drop out before the sums, and nobody left has a labelled row.

        With groups, an error has a note that names the group, and ends the run of all.
        """
        dropouts = checked_drop(drop, self.data)
        for shape in self.shapes() if keep or since is not None else ():
            require_room(self.params, shape, keep=True, update=since is not None)
        warn_if_two(min(map(len, self.groups.values())), stacklevel=4)  # whoever called fit
        source = rng_or_system(rng)
        outcomes = {}
        for group, members in self.groups.items():
            own = source.child("group", group) if self.grouped else source
            told = in_group(group, progress) if self.grouped and progress else progress
            try:
                outcome = Simulation(
                    faults=Faults(dropouts={c: s for c, s in dropouts.items() if c in members}),
                    progress=told,
                ).run(self._roles(group, own, keep, since))
                raise_cause(outcome)
            except XclpError as error:
                if self.grouped:
                    error.add_note(
                        f"in the group {group!r} of {', '.join(members)}; no group's results are "
                        "kept"
                    )
                raise
            self._warn_of_few(members, outcome.results[SERVER])
            outcomes[group] = outcome
        return self._result(outcomes)

    def _roles(self, group: str, rng: Rng, keep: bool, since: Result | None) -> dict[str, Role]:
        """Return the roles of one federation."""
        members = self.groups[group]
        if since is not None:
            return self._updating_roles(group, rng, since)
        roles: dict[str, Role] = {
            name: partial(
                client_role,
                data=self.data[name],
                params=self.params,
                invited=members,
                rng=rng.child(name),
                projection_seed=self.seed,
            )
            for name in members
        }
        roles[SERVER] = partial(
            server_role, params=self.params, invited=members, rng=rng.child(SERVER), keep=keep
        )
        return roles

    def _updating_roles(self, group: str, rng: Rng, since: Result) -> dict[str, Role]:
        """Return the roles of one federation whose first rows were those of another plan."""
        members = self.groups[group]
        shared: dict[str, Any] = {"params": self.params, "invited": members}
        roles: dict[str, Role] = {
            name: partial(
                update_client_role,
                data=self.data[name].after(len(since.plan.data[name].class_ids)),
                kept=since.predictions[name].kept,
                rng=rng.child(name),
                **shared,
            )
            for name in members
        }
        kept = since.distances[group]
        return roles | {
            SERVER: partial(update_server_role, kept=kept, rng=rng.child(SERVER), **shared)
        }

    def _warn_of_few(self, members: tuple[str, ...], found: Participation) -> None:
        """Warn where clients that dropped out leave two in the sums, or none with a label."""
        if len(members) > MIN_CLIENTS == len(found.contributors):
            warnings.warn(
                f"only {' and '.join(found.contributors)} are in the sums, so each learns the "
                "other's part of its scores (the sum minus its own part); a larger threshold "
                "prevents that",
                PrivacyWarning,
                stacklevel=4,  # whoever called fit
            )
        if not any(self.labelled[c] for c in found.contributors):
            warnings.warn(
                f"no client in the sums ({', '.join(found.contributors)}) has a labelled row, so "
                "no row gets a label: those with one dropped out before their upload in 'row sums'",
                UserWarning,
                stacklevel=4,  # whoever called fit
            )

    def _result(self, outcomes: Mapping[str, Outcome]) -> Result:
        """Put together what the groups have found."""
        found = {c: own for outcome in outcomes.values() for c, own in outcome.results.items()}
        of_groups = {group: outcome.results[SERVER] for group, outcome in outcomes.items()}
        parts: list[Participation] = list(of_groups.values())
        counted = {c for part in parts for c in part.contributors}
        return Result(
            self,
            {
                name: self.settings.shown(found[name], own.class_ids)
                if name in found
                else Prediction.none(len(own.class_ids), len(self.params.classes))
                for name, own in self.data.items()
            },
            Participation(
                {c: n for part in parts for c, n in part.sizes.items()},
                tuple(c for c in self.data if c in counted),
                tuple(dropout for part in parts for dropout in part.dropouts),
                tuple(c for part in parts for c in part.scaled_over),
                contradictions=tuple(own for part in parts for own in part.contradictions),
            ),
            Cost.total(outcome.cost for outcome in outcomes.values()),
            {group: part.kept for group, part in of_groups.items() if part.kept is not None},
        )


@dataclass(frozen=True, eq=False, repr=False)
class Result(Secret):
    """What came of a plan.

    Attributes:
        plan: what was run.
        predictions: by client, of all its rows and as it shows them; no labels for a client that
            dropped out.
        participation: whose labels are counted and who dropped out, over all groups.
        cost: measured bytes, rounds and seconds; of groups, their sums, and the most rounds.
        distances: by group, those that its server kept.
    """

    plan: Plan
    predictions: Mapping[str, Prediction]
    participation: Participation
    cost: Cost
    distances: Mapping[str, KeptDistances]

    @property
    def without_result(self) -> tuple[str, ...]:
        """Return the clients that dropped out, and so have no labels."""
        return tuple(dropout.client for dropout in self.participation.dropouts)

    @property
    def validations(self) -> dict[str, Validation]:
        """Return, for each group that measured it, how right its labels are, without own parts."""
        found = {}
        for group, clients in self.plan.groups.items():
            own = [v for c in clients if (v := self.predictions[c].validation) is not None]
            if own:
                found[group] = replace(own[0], own_labels=0, own_right=0)
        return found

    def labels(self, client: str) -> NDArray[Any]:
        """Return a client's labels, (n_j,): −1 (integers) or None where no label reaches a row."""
        return labels.decode(self.predictions[client].class_ids, self.plan.params.classes)


def equal_pairs(matrices: Sequence[NDArray[Any]]) -> int:
    """Return how many ordered pairs of rows are equal, over all matrices."""
    seen = Counter(row.tobytes() for x in matrices for row in x.astype(np.float64, copy=False))
    return sum(number * (number - 1) for number in seen.values())


def in_group(group: str, progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Return what names the group in the steps that it passes on."""
    return lambda report: progress(replace(report, step=f"{group}: {report.step}"))


def raise_cause(outcome: Outcome) -> None:
    """Raise the error that explains the others: bad input first, then what the server says."""
    errors = outcome.errors
    causes = [error for error in errors.values() if not isinstance(error, ProtocolError)]
    for error in (*causes, *(errors[p] for p in (SERVER, *errors) if p in errors)):
        raise error


def checked_groups(
    groups: int | Sequence[str] | None, names: Sequence[str], random_state: int | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the clients of each group, in their order; one group of all for None.

    Args:
        groups: a number of groups, of equal sizes up to one client, or the group of each client.
        names: of the clients.
        random_state: fixes random groups.

    Raises:
        ParameterError: names the group that has too few clients, or what is wrong.
    """
    if groups is None:
        return {"all": tuple(names)}
    if isinstance(groups, int | np.integer) and not isinstance(groups, bool):
        most = max(len(names) // MIN_CLIENTS, 1)
        if not 1 <= groups <= most:
            raise ParameterError(
                f"groups must be in 1 … {most}, so that each of {count(len(names), 'client')} has "
                f"company, got {groups}"
            )
        order = np.random.default_rng(random_state).permutation(len(names))
        of_client = [""] * len(names)
        for number, part in enumerate(np.array_split(order, int(groups))):
            for client in part:
                of_client[client] = f"group-{number}"
    elif isinstance(groups, str) or not isinstance(groups, Sequence | np.ndarray):
        raise ParameterError(f"groups must be a number, or a name for each client, got {groups!r}")
    else:
        of_client = []
        for group, name in zip(groups, names, strict=False):
            if isinstance(group, bool) or not isinstance(group, str | int | np.integer):
                raise ParameterError(f"the group of client {name!r} must be a name, got {group!r}")
            if not str(group).strip():
                raise ParameterError(f"the group of client {name!r} has no name")
            of_client.append(str(group).strip())
        if len(groups) != len(names):
            raise ParameterError(
                f"groups has {count(len(groups), 'name')} for {count(len(names), 'client')}"
            )
    found: dict[str, tuple[str, ...]] = {}
    for name, group in zip(names, of_client, strict=True):
        found[group] = (*found.get(group, ()), name)
    for group, own in found.items():
        if len(own) < MIN_CLIENTS:
            raise ParameterError(
                f"group {group!r} has only the client {own[0]!r}; each needs {MIN_CLIENTS} or more"
            )
    return found


def require_usable(
    plan: Plan, row_names: Sequence[Sequence[str] | None] | None, *, update: bool = False
) -> None:
    """Check over all clients of each group what the server would refuse, and warn of zero rows.

    Args:
        plan: whose data are checked.
        row_names: per client, what warnings call its rows, if not by their indices.
        update: see `require_room`.

    Raises:
        ParameterError: see `require_room`, or no dp-accounting.
        DataError: no label can spread; names the group.
    """
    for j, (name, own) in enumerate(plan.data.items()):
        zero = np.flatnonzero(~in_graph(own.vectors, plan.params.scaling)).tolist()
        if zero:
            called = rows_called(zero, None if row_names is None else row_names[j])
            scaled = ", once scaled," * (plan.params.scale == "client")
            what = f"is{scaled} all zero, so it has no direction; it is left out and gets"
            if len(zero) > 1:
                what = f"are{scaled} all zero, so they have no direction; they are left out and get"
            warnings.warn(
                f"client {name!r}: {called} {what} no label",
                UserWarning,
                stacklevel=4 if update else 5,  # whoever called update or fit
            )
    plan.params.require_accountant()
    for group, shape in zip(plan.groups, plan.shapes(), strict=True):
        try:
            require_room(plan.params, shape, update=update)
        except (ParameterError, DataError) as error:
            if len(plan.groups) == 1:
                raise
            raise type(error)(f"group {group!r}: {error}") from None
        if not any(shape.labelled.values()):
            if len(plan.groups) == 1:
                raise DataError("every labelled row is all zero, so no label can spread")
            raise DataError(f"group {group!r}: no client has a label, so no label can spread")
