"""What the configuration of a Flower run says, and that of a node.

The run's, in the app's ``pyproject.toml`` and by ``flwr run --run-config``; the same for all::

    clients = "north,south,east"        # names of all clients
    classes = "cat,dog"                 # needed; whole numbers where all are
    n_bits = 1024                       # and the other parameters of a federation file
    privacy.epsilon = 2.0               # as its section [parameters.privacy]
    deadline = 600                      # and join, total, retry (seconds), max_message (bytes)
    simulation_output = "/data/labels"  # where simulated nodes write results; nowhere without it
    server_output = "/data/records"     # where the ServerApp writes server-cost.json; the same
    identities = "/x/identities.toml"   # where the ServerApp runs: everybody's public identities;
    identity = "/x/server.identity"     # and the server's own key. Or identities = false
    mounted_secrets = "/x/server.identity"  # optional: files that others may read, with commas

A node's, by ``flower-supernode --node-config``, which only this node has::

    name="north"                        # which client it is
    features="/data/north.csv"          # and what else a section [clients.NAME] takes
    output="/data/results"              # folder for its results
    state="/var/lib/xclp"               # folder for its log; without it, Flower keeps the log
    epoch="/var/lib/xclp-epochs"        # optional: folder of what says how far the log got
    remember="/var/lib/xclp/labels"     # optional: file that keeps randomised labels
    key_file="/etc/xclp/log.key"        # the key of both; needed with state and remember
    identities="/etc/xclp/identities.toml"  # everybody's public identities
    identity="/etc/xclp/north.identity"     # and this client's own key. Or identities=false
    mounted_secrets="/etc/xclp/log.key" # optional: files that others may read, with commas
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from xclp_crypto.errors import ParameterError
from xclp_crypto.front import client_names
from xclp_crypto.params import Agreement
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.clients import DataSection, require_file_names
from xclp_lp.files.credentials import FileOrFalse, pinned_texts, read_identities
from xclp_lp.files.network import NetworkSettings
from xclp_lp.files.parties import names_of
from xclp_lp.files.results import SERVER_RECORD, require_place
from xclp_lp.files.tables import values_of_texts
from xclp_lp.files.toml import beside, read_section, require_known
from xclp_lp.validation import Text

Files = Annotated[tuple[str, ...], Meta(title="a list of files")]
Positive = Annotated[float, Meta(gt=0, title="a positive number")]
RUN: Final = Path("the run's configuration")
NODE: Final = Path("the node's configuration")

SIMULATED_FIELDS: Final = ("partition-id", "num-partitions")


@dataclass(frozen=True)
class RunSettings(NetworkSettings):
    """What all parties of a run have in common, and how results are shown."""

    clients: Annotated[
        tuple[str, ...], Meta(min_length=1, title="the names of all clients with commas between")
    ] = field(kw_only=True)
    join: Positive = 600.0
    """Seconds in which clients must come."""
    deadline: Positive = 600.0
    """Seconds in which one must answer."""
    total: Positive | None = None
    """Seconds that its answers may take in all; by default 10 deadlines."""
    retry: Positive = 120.0
    """Seconds after which it is asked again."""
    max_message: Annotated[int, Meta(gt=0, title="a positive number")] = 1 << 30
    """Bytes of a message at most."""
    simulation_output: str = ""
    """Folder for the results of simulated nodes; empty for none."""
    server_output: str = ""
    """Folder for server-cost.json where the ServerApp runs; empty for none."""
    identities: FileOrFalse = None
    """File of the public identities where the ServerApp runs, or false."""
    identity: Text | None = None
    """File of the server's own key there."""
    mounted_secrets: Files = ()
    """Files there that others may read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        client_names(len(self.clients), self.clients)
        self.require_clients(len(self.clients))

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> RunSettings:
        """Read the configuration of a run.

        Raises:
            ParameterError: a field is unknown, missing, of a wrong type or out of range.
        """
        given: dict[str, Any] = {k: v for k, v in config.items() if not k.startswith("privacy.")}
        if len(given) < len(config):
            given["privacy"] = {
                k.removeprefix("privacy."): v for k, v in config.items() if k not in given
            }
        for key in ("clients", "mounted_secrets"):
            if isinstance(given.get(key), str):
                given[key] = names_of([given[key]])
        if isinstance(given.get("classes"), str):
            (given["classes"],) = values_of_texts([names_of([given["classes"]])])
        run = read_section(cls, given, RUN)
        require_file_names(run.clients, RUN)
        return run

    def agreement(self, pinned: Identities | None) -> Agreement:
        """Return what a log is bound to beside the data; a node has pinned these identities."""
        return self.agreement_with(
            clients=self.clients, identities=pinned_texts(pinned, self.clients)
        )

    def require_output(self) -> Path | None:
        """Return the folder of the server's record, if there is one; raises as `require_place`."""
        if not self.server_output:
            return None
        folder = beside(RUN, self.server_output)
        require_place(folder, [SERVER_RECORD], ())
        return folder

    def read_identities(self) -> Identities | None:
        """Read the server's key and those that it pins; raises as the function of this name."""
        mounted = [beside(RUN, file) for file in self.mounted_secrets]
        return read_identities(self.identities, self.identity, RUN, SERVER, self.clients, mounted)


@dataclass(frozen=True)
class NodeSection(DataSection):
    """The configuration of a node."""

    name: Text = field(kw_only=True)
    output: Text = field(kw_only=True)
    state: Text | None = None
    epoch: Text | None = None
    remember: Text | None = None
    key_file: Text | None = None
    identities: FileOrFalse = None
    identity: Text | None = None
    mounted_secrets: Files = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.new_features is not None:
            raise ParameterError("new_features is for xclp run and xclp join, not for Flower")
        if (self.state is None and self.remember is None) != (self.key_file is None):
            raise ParameterError(
                "state or remember and key_file belong together: the log in the folder state and "
                "the file remember are encrypted under the key in key_file (openssl rand -hex 32 "
                "makes one)"
            )
        if self.epoch is not None and self.state is None:
            raise ParameterError("epoch is of the log in the folder state; name that")


@dataclass(frozen=True)
class NodeSettings:
    """What a node says of itself.

    Attributes:
        name: of the client that it is.
        output: folder for its results.
        section: what it says of its data and its log; None where it is simulated and has none.
    """

    name: str
    output: Path | None
    section: NodeSection | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any], run: RunSettings) -> NodeSettings:
        """Read the configuration of a node.

        Raises:
            ParameterError: a field is unknown, missing or of a wrong type; the node has a name that
                is none of the clients'; or it is simulated, and the run has identities.
        """
        given: dict[str, Any] = {k: v for k, v in config.items() if k not in SIMULATED_FIELDS}
        require_known(given, NodeSection, f"{NODE}")
        partition = config.get("partition-id")
        if "features" not in config and isinstance(partition, int):
            if not 0 <= partition < len(run.clients):
                raise ParameterError(
                    f"there are {len(run.clients)} clients, and a simulated node has partition-id "
                    f"{partition}; simulate as many nodes as there are clients"
                )
            if run.identities is not False:
                raise ParameterError(
                    f"{RUN}: write identities = false to simulate nodes; they have no identities"
                )
            folder = run.simulation_output
            return cls(run.clients[partition], Path(folder) if folder else None)
        for key in ("feature_columns", "mounted_secrets"):
            if isinstance(given.get(key), str):
                given[key] = names_of([given[key]])
        section = read_section(NodeSection, given, NODE)
        if section.name not in run.clients:
            raise ParameterError(
                f"{NODE}: name {section.name!r} is none of the clients {', '.join(run.clients)}"
                f"{did_you_mean(section.name, run.clients)}"
            )
        return cls(section.name, beside(NODE, section.output), section)

    @property
    def mounted(self) -> list[Path]:
        """Return the files of the node that others may read."""
        section = self.section
        return [beside(NODE, f) for f in section.mounted_secrets] if section is not None else []

    def read_identities(self, clients: Sequence[str]) -> Identities | None:
        """Read the client's key and those that it pins; raises as the function of this name."""
        section = self.section
        if section is None:
            return None
        return read_identities(
            section.identities, section.identity, NODE, self.name, clients, self.mounted
        )
