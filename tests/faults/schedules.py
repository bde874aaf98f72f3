"""Protocols under random faults: what is run, and what a run may end in.

A `Subject` has a function that takes a seed and returns the factory of a run, of a size that the
seed decides, and a check that takes the run and says how it ended. To put another protocol under
random faults, add one entry to `SUBJECTS`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from xclp_crypto.protocols.secure_sum import MaskGraph
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import Disturbed, Factory, every_schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import protocol_runs as runs
import session_runs as sessions
import sum_checks as checks

PER_SEED = 4
"""Schedules that share one run without faults."""


@dataclass(frozen=True)
class Subject:
    """A protocol under random faults.

    Attributes:
        make: takes a seed and returns the factory of a run.
        check: raises AssertionError unless a run ended rightly; returns how it ended.
    """

    make: Callable[[int], Factory]
    check: Callable[[Disturbed], str]


def clients_for(seed: int) -> tuple[str, ...]:
    """Return 3 to 8 clients, each number equally often."""
    return checks.names(3 + seed % 6)


def _ending(case: Disturbed, parties: int | None) -> str:
    """Say how a run ended in which `parties` clients are in the server's result."""
    if parties is None:
        if SERVER in case.outcome.dropouts:
            return "the server dropped out"
        return f"stopped: {type(case.outcome.errors[SERVER]).__name__}"
    everybody = parties == len(case.outcome.operations) - 1
    told = "some told of an error" if case.outcome.errors else "no error"
    return f"exact, {'all' if everybody else 'survivors'}, {told}"


@dataclass(frozen=True)
class _SumProblem:
    """A sum of random size, graph and modulus."""

    graph: MaskGraph
    rows: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]
    modulus: int
    fraction_bits: int

    @classmethod
    def of(cls, seed: int) -> _SumProblem:
        clients, rng = clients_for(seed), np.random.default_rng(seed)
        modulus, fraction_bits = [(1 << 64, 20), (1 << 32, 8), (10007, 0)][seed % 3]
        rows = checks.a_partition(clients, 7, rng)
        values = {c: rng.uniform(-100, 100, (7, 2)) for c in clients}
        return cls(checks.a_graph(clients, rng), rows, values, modulus, fraction_bits)

    @property
    def how(self) -> dict[str, object]:
        return {"graph": self.graph, "modulus": self.modulus, "fraction_bits": self.fraction_bits}

    @property
    def codec(self) -> object:
        return checks.codec_for(self.values, self.fraction_bits, self.modulus)


def _sum(seed: int) -> Factory:
    problem = _SumProblem.of(seed)
    return runs.secure_sum(problem.values, seed=seed, **problem.how)


def _check_sum(case: Disturbed) -> str:
    p = _SumProblem.of(case.seed)
    survivors = checks.right_sum(case.outcome, p.values, p.codec, p.graph, case)
    return _ending(case, survivors and len(survivors))


def _row_sums(mode: str, seed: int) -> Factory:
    p = _SumProblem.of(seed)
    return runs.row_sums(p.values, p.rows, seed=seed, mode=mode, **p.how)


def _check_row_sums(case: Disturbed) -> str:
    p = _SumProblem.of(case.seed)
    survivors = checks.right_row_sums(case.outcome, p.values, p.rows, p.codec, p.graph, case)
    return _ending(case, survivors and len(survivors))


def _setup(seed: int) -> Factory:
    """Key exchange and seed agreement; every second time with identity keys."""
    clients = clients_for(seed)
    pins = runs.identities((*clients, SERVER), seed) if seed % 2 else None
    return runs.setup(clients, seed, identities=pins)


def _check_setup(case: Disturbed) -> str:
    """All that hold a secret hold the same one, and the server names whom it knows to hold it."""
    outcome = case.outcome
    checks.all_ended(outcome, case)
    secrets = {outcome.results[c] for c in clients_for(case.seed) if c in outcome.results}
    assert len(secrets) <= 1, case
    assert all(len(secret) == 32 for secret in secrets), case
    if SERVER not in outcome.results:
        return _ending(case, None)
    members = outcome.results[SERVER]
    assert len(members) >= 2, case
    return _ending(case, len(members))


def _check_session(case: Disturbed) -> str:
    data, params = sessions.random_case(case.seed)
    sessions.check_outcome(case.outcome, data, params)
    graph = case.outcome.results.get(SERVER)
    return _ending(case, None if graph is None else len(graph.contributors))


SUBJECTS: dict[str, Subject] = {
    "setup": Subject(_setup, _check_setup),
    "sum": Subject(_sum, _check_sum),
    "row sums, recover": Subject(partial(_row_sums, "recover"), _check_row_sums),
    "row sums, restart": Subject(partial(_row_sums, "restart"), _check_row_sums),
    "session": Subject(sessions.random_session, _check_session),
}


def endings(name: str, count: int, first: int = 0) -> Iterator[str]:
    """Run `count` schedules of a subject, from number `first`, and say how each ended.

    Raises:
        AssertionError: one did not end rightly; says how to repeat it.
    """
    subject = SUBJECTS[name]
    seeds = range(first // PER_SEED, -(-(first + count) // PER_SEED))
    cases = every_schedule(subject.make, seeds, per_seed=PER_SEED)
    for number, case in enumerate(cases, seeds.start * PER_SEED):
        if not first <= number < first + count:
            continue
        try:
            ending = subject.check(case)
        except AssertionError as error:
            error.add_note(f"{case}\nto repeat: --only {name!r} --first {number} --schedules 1")
            raise
        yield ending


def tally(name: str, count: int, first: int = 0) -> Counter[str]:
    """Count how schedules end; see `endings`."""
    return Counter(endings(name, count, first))
