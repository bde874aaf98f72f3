"""Setup and its ideal twin have one interface: what is built on top does not see the difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from protocol_runs import assert_blames, identities

from xclp_crypto.errors import Excluded
from xclp_crypto.params import Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.protocols import setup
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    secure_row_sums_client,
    secure_row_sums_server,
)
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.driver import Role
from xclp_crypto.transport.simulate import Faults, Outcome, Simulation

CLIENTS = ("anna", "ben", "cleo")
BITS = {c: np.eye(4, 9, k, dtype=np.uint8)[: k + 1] for k, c in enumerate(CLIENTS)}
SIZES = {c: len(b) for c, b in BITS.items()}
ROWS = {c: np.flatnonzero(np.repeat(np.arange(3), [1, 2, 3]) == j) for j, c in enumerate(CLIENTS)}
GRAPH = MaskGraph.complete(CLIENTS)
CODEC = FixedPoint(40, parties=3)
VALUES = {c: np.full((6, 2), j + 0.25) for j, c in enumerate(CLIENTS)}


@dataclass(frozen=True)
class Setup:
    """One construction of the setup."""

    exchange_client: Callable[..., Any]
    exchange_server: Callable[..., Any]
    seed_client: Callable[..., Any]
    seed_server: Callable[..., Any]


REAL = Setup(
    setup.key_exchange_client,
    setup.key_exchange_server,
    setup.seed_agreement_client,
    setup.seed_agreement_server,
)
IDEAL = Setup(
    setup.ideal_key_exchange_client,
    setup.ideal_key_exchange_server,
    setup.ideal_seed_agreement_client,
    setup.ideal_seed_agreement_server,
)


def run(
    kind: Setup,
    agreements: dict[str, Agreement] | None = None,
    pins: dict[str, Identities] | None = None,
    **faults: Any,
) -> Outcome:
    """Set up, compute distances and sums; clients return (secret, numbers, block)."""
    agreed, held = agreements or {}, pins or {}
    default = Agreement(n_bits=9)
    rng = SeededRng(7)
    method = get_backend("masked")

    async def client(io):
        own = rng.child(io.name)
        session = await kind.exchange_client(
            io, CLIENTS, agreed.get(io.name, default), [SIZES[io.name]], own, held.get(io.name)
        )
        await kind.seed_client(session, own)
        await method.client(session, BITS[io.name], own)
        block = await secure_row_sums_client(session, VALUES[io.name], ROWS, CODEC, GRAPH, own)
        return session.common_secret, session.numbers, block.values, session.authenticated

    async def server(io):
        session = await kind.exchange_server(
            io, CLIENTS, default, 1, rng.child(SERVER), identities=held.get(SERVER)
        )
        members = await kind.seed_server(session)
        distances = await method.server(session, 9)
        await secure_row_sums_server(session, ROWS, 2, CODEC, GRAPH, clients=session.clients)
        return members, session.numbers, distances.matrix

    roles: dict[str, Role] = dict.fromkeys(CLIENTS, client)
    roles[SERVER] = server
    return Simulation(faults=Faults(**faults)).run(roles)


@pytest.mark.parametrize("kind", [REAL, IDEAL], ids=["real", "ideal"])
def test_everything_on_top_works_over_either_setup(kind):
    outcome = run(kind).raise_errors()
    members, numbers, matrix = outcome.results[SERVER]
    stacked = np.concatenate(list(BITS.values()))
    assert members == CLIENTS
    assert numbers == {c: (n,) for c, n in SIZES.items()}
    assert (matrix == (stacked[:, None] != stacked[None]).sum(axis=2)).all()
    secrets = {outcome.results[c][0] for c in CLIENTS}
    assert len(secrets) == 1
    assert len(secrets.pop()) == 32
    for client in CLIENTS:
        assert outcome.results[client][1] == numbers
        assert (outcome.results[client][2] == 3.75).all()
    assert not outcome.unread


@pytest.mark.parametrize("kind", [REAL, IDEAL], ids=["real", "ideal"])
def test_a_client_with_other_parameters_is_named_by_either_setup(kind):
    outcome = run(kind, {"ben": Agreement(n_bits=10)})
    assert_blames(outcome.errors[SERVER], ("ben",), "n_bits")


@pytest.mark.parametrize("kind", [REAL, IDEAL], ids=["real", "ideal"])
def test_a_client_that_never_shows_up_is_left_out_by_either_setup(kind):
    outcome = run(kind, dropouts={"cleo": 0}).raise_errors()
    assert outcome.dropouts == ("cleo",)
    for client in ("anna", "ben"):
        assert outcome.results[client][1] == {"anna": (1,), "ben": (2,)}
        assert (outcome.results[client][2] == 1.5).all()


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kind", [REAL, IDEAL], ids=["real", "ideal"])
def test_a_client_that_comes_late_is_told_that_it_is_excluded_by_either_setup(kind, signed):
    pins = identities((*CLIENTS, SERVER)) if signed else None
    outcome = run(kind, pins=pins, away={"cleo": 0})
    assert outcome.returned == ("cleo",)
    assert set(outcome.results) == {"anna", "ben", SERVER}
    error = outcome.errors["cleo"]
    assert isinstance(error, Excluded)
    assert error.party == "cleo"


@pytest.mark.parametrize("kind", [REAL, IDEAL], ids=["real", "ideal"])
def test_either_setup_takes_identities_and_names_who_pins_others(kind):
    pins = identities((*CLIENTS, SERVER))
    outcome = run(kind, pins=pins).raise_errors()
    plain = run(kind).raise_errors()
    assert (outcome.results[SERVER][2] == plain.results[SERVER][2]).all()
    for client in CLIENTS:
        assert (outcome.results[client][2] == 3.75).all()
        assert outcome.results[client][3]
        assert not plain.results[client][3]
    others = Identities(
        pins["ben"].own, {**pins["ben"].pinned, "anna": IdentityKey(bytes(32)).public}
    )
    error = run(kind, pins={**pins, "ben": others}).errors[SERVER]
    assert_blames(error, ("ben",), "must agree on identity of anna (here")
