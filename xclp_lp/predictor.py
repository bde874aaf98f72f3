"""Labels for rows that come after a run of all parties in one process: see `xclp_lp.later`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.front import warn_if_two
from xclp_crypto.protocols.hamming import between_backend
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import Rng, rng_or_system
from xclp_crypto.secret import Secret
from xclp_crypto.transport.driver import Progress, Role
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Simulation
from xclp_lp.diagnostics import moment_cautions
from xclp_lp.labels import UNLABELLED
from xclp_lp.later import predict_client_role, predict_server_role
from xclp_lp.parameters import Parameters, Settings
from xclp_lp.plan import Result, in_group, raise_cause
from xclp_lp.predictions import Prediction


@dataclass(frozen=True, eq=False, repr=False)
class Predictor(Secret):
    """What is left of a run when its clients have their labels.

    Attributes:
        params: what all parties have in common.
        groups: clients by group, each a federation of its own.
        grouped: whether groups were asked for.
        settings: how each client shows its result.
        results: by client, what the run gave it, with what it kept.
    """

    params: Parameters
    groups: Mapping[str, tuple[str, ...]]
    grouped: bool
    settings: Settings
    results: Mapping[str, Prediction]

    @classmethod
    def of(cls, result: Result) -> Self:
        """Return what is left of a run."""
        plan = result.plan
        return cls(plan.params, plan.groups, plan.grouped, plan.settings, result.predictions)

    def cautions(
        self, vectors: Mapping[str, NDArray[Any]], columns: Sequence[str] | None = None
    ) -> Iterator[str]:
        """Say which clients' new rows are unlike the rows of the run, see `moment_cautions`."""
        for members in self.groups.values():
            kept = {c: own for c in members if (own := self.results[c].kept) is not None}
            for client in members:
                own = kept.get(client)
                if own is None and self.params.shared_scale:
                    own = next(iter(kept.values()), None)
                if own is not None and own.own.moments is not None:
                    yield from moment_cautions(client, vectors[client], own.own.moments, columns)

    def run(
        self,
        vectors: Mapping[str, NDArray[Any]],
        *,
        progress: Callable[[Progress], None] | None = None,
        rng: Rng | None = None,
    ) -> tuple[dict[str, Prediction], Cost]:
        """Run the protocol, one group that has new rows after the other.

        Args:
            vectors: by client, (m_j, d) its new rows; m_j may be 0.
            progress: called before each computation.
            rng: source of keys and masks; the operating system's unless a test passes `SeededRng`.

        Returns:
            By client, what its new rows get; and what it cost.

        Raises:
            ParameterError: the back end does not know distances of new to old rows only.
            XclpError: as from `predict_client_role` and `predict_server_role`.
        """
        between_backend(self.params.hamming)
        warn_if_two(min(map(len, self.groups.values())), stacklevel=4)  # whoever called predict
        source = rng_or_system(rng)
        found = {c: Prediction.none(len(x), len(self.params.classes)) for c, x in vectors.items()}
        costs = []
        for group, members in self.groups.items():
            if not any(len(vectors[client]) for client in members):
                continue
            own = source.child("group", group) if self.grouped else source
            told = in_group(group, progress) if self.grouped and progress else progress
            roles = {client: self._client(client, vectors, members, own) for client in members}
            roles[SERVER] = partial(
                predict_server_role, params=self.params, invited=members, rng=own.child(SERVER)
            )
            outcome = Simulation(progress=told).run(roles)
            raise_cause(outcome)
            for client in members:
                unlabelled = np.full(len(vectors[client]), UNLABELLED)
                own_result = replace(
                    outcome.results[client], validation=self.results[client].validation
                )
                found[client] = self.settings.shown(own_result, unlabelled)
            costs.append(outcome.cost)
        return found, Cost.total(costs)

    def _client(
        self, client: str, vectors: Mapping[str, NDArray[Any]], members: tuple[str, ...], rng: Rng
    ) -> Role:
        return partial(
            predict_client_role,
            vectors=vectors[client],
            kept=self.results[client].kept,
            params=self.params,
            invited=members,
            rng=rng.child(client),
        )
