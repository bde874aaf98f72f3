"""What the configuration of a Flower run says, and that of a node.

The run's, in the app's ``pyproject.toml`` and by ``flwr run --run-config``; the same for all::

    clients = "north,south,east"        # names of all clients
    classes = "cat,dog"                 # needed; whole numbers where all are
    n_bits = 1024                       # and the other parameters of a federation file
    privacy.epsilon = 2.0               # as its section [parameters.privacy]
    deadline = 600                      # and join, retry (seconds), max_message (bytes)
    simulation_output = "/tmp/labels"   # where simulated nodes write results; nowhere without it

A node's, by ``flower-supernode --node-config``, which only this node has::

    name="north"                        # which client it is
    features="/data/north.csv"          # and what else a section [clients.NAME] takes
    output="/data/results"              # folder for its results
    state="/var/lib/xclp"               # folder for its log; without it, Flower keeps the log
    key_file="/etc/xclp/log.key"        # the key of the log; needed with state
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xclp_crypto.errors import ParameterError
from xclp_crypto.front import client_names
from xclp_crypto.params import Agreement
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.clients import DATA_FIELDS, require_file_names
from xclp_lp.files.network import (
    NETWORK_PARAMETERS,
    OWN_PARAMETERS,
    names_of,
    parameters_of,
)
from xclp_lp.files.tables import integers_if_all
from xclp_lp.files.toml import require_known
from xclp_lp.parameters import Parameters

RUN: Final = Path("the run's configuration")
NODE: Final = Path("the node's configuration")

LIMITS: Final[Mapping[str, float]] = {
    "join": 600,
    "deadline": 600,
    "retry": 120,
    "max_message": 1 << 30,
}
"""Seconds in which clients must come, in which one must answer, and after which it is asked again;
bytes of a message at most."""

OWN_FIELDS: Final = ("name", "output", "state", "key_file")
SIMULATED_FIELDS: Final = ("partition-id", "num-partitions")


@dataclass(frozen=True)
class RunSettings:
    """What all parties of a run have in common.

    Attributes:
        clients: names of all clients.
        params: parameters of the session.
        seed: of the projection, if it is fixed.
        own: what a client does with its own result.
        join: see `LIMITS`.
        deadline: see `LIMITS`.
        retry: see `LIMITS`.
        max_message: see `LIMITS`.
        simulation_output: folder for the results of simulated nodes.
    """

    clients: tuple[str, ...]
    params: Parameters
    seed: bytes | None
    own: Mapping[str, bool]
    join: float
    deadline: float
    retry: float
    max_message: int
    simulation_output: Path | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> RunSettings:
        """Read the configuration of a run.

        Raises:
            ParameterError: a field is unknown, missing, of a wrong type or out of range.
        """
        given = dict(config)
        names = given.pop("clients", None)
        if not isinstance(names, str) or not names.strip():
            raise ParameterError(
                f"{RUN}: clients must be the names of all clients with commas between, got "
                f"{names!r}"
            )
        listed = names_of([names])
        clients = client_names(len(listed), listed)
        require_file_names(clients, RUN)
        output = given.pop("simulation_output", "")
        if not isinstance(output, str):
            raise ParameterError(f"{RUN}: simulation_output must be text, got {output!r}")
        limits = {name: given.pop(name, default) for name, default in LIMITS.items()}
        for name, value in limits.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ParameterError(f"{RUN}: {name} must be a positive number, got {value!r}")
        privacy = {k: given.pop(k) for k in list(given) if k.startswith("privacy.")}
        require_known(
            given,
            tuple(p for p in NETWORK_PARAMETERS if p != "privacy"),
            f"{RUN}",
        )
        if privacy:
            given["privacy"] = {k.removeprefix("privacy."): v for k, v in privacy.items()}
        if isinstance(given.get("classes"), str):
            (given["classes"],) = integers_if_all([names_of([given["classes"]])])
        params, seed = parameters_of(given, RUN)
        params.require_accountant()
        params.require_resolution(len(clients))
        return cls(
            clients=tuple(clients),
            params=params,
            seed=seed,
            own={k: bool(given.get(k)) for k in OWN_PARAMETERS},
            join=float(limits["join"]),
            deadline=float(limits["deadline"]),
            retry=float(limits["retry"]),
            max_message=int(limits["max_message"]),
            simulation_output=Path(output) if output else None,
        )

    def agreement(self) -> Agreement:
        """Return what a log is bound to beside the data."""
        seed = None if self.seed is None else hashlib.sha256(self.seed).digest()
        return Agreement(**self.params.agreement().fields, clients=self.clients, random_state=seed)


@dataclass(frozen=True)
class NodeSettings:
    """What a node says of itself.

    Attributes:
        name: of the client that it is.
        section: what it says of its data; None where it is simulated and has none.
        output: folder for its results.
        state: folder for its log, if the log is a file.
        key_file: file with the log's key.
    """

    name: str
    section: Mapping[str, Any] | None
    output: Path | None
    state: Path | None
    key_file: Path | None

    @classmethod
    def of(cls, config: Mapping[str, Any], run: RunSettings) -> NodeSettings:
        """Read the configuration of a node.

        Raises:
            ParameterError: a field is unknown, missing or of a wrong type; or the node has a name
                that is none of the clients'.
        """
        require_known(dict(config), (*OWN_FIELDS, *DATA_FIELDS, *SIMULATED_FIELDS), f"{NODE}")
        for field in (*OWN_FIELDS, *DATA_FIELDS):
            if not isinstance(config.get(field, ""), str):
                raise ParameterError(f"{NODE}: {field} must be text, got {config[field]!r}")
        partition = config.get("partition-id")
        if "features" not in config and isinstance(partition, int):
            if not 0 <= partition < len(run.clients):
                raise ParameterError(
                    f"there are {len(run.clients)} clients, and a simulated node has partition-id "
                    f"{partition}; simulate as many nodes as there are clients"
                )
            return cls(run.clients[partition], None, run.simulation_output, None, None)
        for field in ("name", "features", "output"):
            if not config.get(field):
                raise ParameterError(f"{NODE}: {field} is missing")
        name = str(config["name"])
        if name not in run.clients:
            raise ParameterError(
                f"{NODE}: name {name!r} is none of the clients {', '.join(run.clients)}"
                f"{did_you_mean(name, run.clients)}"
            )
        state, key_file = config.get("state"), config.get("key_file")
        if (state is None) != (key_file is None):
            raise ParameterError(
                f"{NODE}: state and key_file belong together: the log in the folder state is "
                "encrypted under the key in key_file (openssl rand -hex 32 makes one)"
            )
        section: dict[str, Any] = {k: config[k] for k in DATA_FIELDS if k in config}
        if "feature_columns" in section:
            section["feature_columns"] = names_of([section["feature_columns"]])
        return cls(
            name=name,
            section=section,
            output=Path(str(config["output"])),
            state=None if state is None else Path(str(state)),
            key_file=None if key_file is None else Path(str(key_file)),
        )
