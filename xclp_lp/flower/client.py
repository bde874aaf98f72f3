"""The ClientApp: answers one question, with a role that is rebuilt from its log each time.

Flower starts a process for each message, and keeps a *context* for the node between them, in the
memory of the SuperNode; it is never sent to the SuperLink. The log of the role is

- a file on the node, if its configuration has ``state`` and ``key_file``: then the node may be
  killed and started again at any time, and an older copy of the file is refused; or
- in the context, encrypted under a key that is in the context, too; then it is lost with the
  SuperNode's program. Flower takes the context over only after it has taken the answer, so nothing
  leaves until the next question; see `xclp_crypto.transport.supersteps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import LogInUseError, ParameterError, StorageError, XclpError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.transport.failures import Failure
from xclp_crypto.transport.flower.context import InContext, Unsaid
from xclp_crypto.transport.flower.records import pack, unpack_ask
from xclp_crypto.transport.log import Log, epoch_of, remove_log
from xclp_crypto.transport.questions import Answer, Ask
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.supersteps import answer
from xclp_lp import labels
from xclp_lp.diagnostics import feature_cautions
from xclp_lp.dropouts import with_reasons
from xclp_lp.files.clients import LoadedClient
from xclp_lp.files.network import client_binding, load_data
from xclp_lp.files.private import read_log_key
from xclp_lp.files.remembered import randomised_once
from xclp_lp.files.results import write_result
from xclp_lp.files.toml import beside
from xclp_lp.flower.settings import NODE, NodeSettings, RunSettings
from xclp_lp.lsh import checked_vectors
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction
from xclp_lp.session import ClientData, client_role
from xclp_lp.summary import client_lines, present_in, retry_cautions

Simulated = Callable[[str], tuple[Any, Any]]
"""Takes a client's name and returns its features (n_j, d) and labels (n_j,)."""

_logger = logging.getLogger("flwr")


def client_app(simulated: Simulated | None = None) -> ClientApp:
    """Return the ClientApp; its configurations are those of `RunSettings` and `NodeSettings`.

    Args:
        simulated: data of a node that Flower's simulation engine makes, and that so has none.
    """
    app = ClientApp()

    def query(message: Message, context: Context) -> Message:
        with Unsaid():
            return Message(pack(_answer(message, context, simulated)), reply_to=message)

    app.query()(query)
    return app


def _answer(message: Message, context: Context, simulated: Simulated | None) -> Answer:
    """Answer a question; what goes wrong here is an answer as well, no error of Flower's.

    Raises:
        LogInUseError: the process of an earlier question still runs, of which Flower thinks that
            it crashed, as it does of one that takes half a minute to start. Flower answers with an
            error then, and the server asks again.
    """
    name = str(context.node_config.get("name", ""))
    try:
        run = RunSettings.of(context.run_config)
        node = NodeSettings.of(context.node_config, run)
        name = node.name
        ask = unpack_ask(message.content, run.max_message)
        place = _place(context, node)
        if ask.end:
            if ask.failure is not None:
                _logger.error("%s: %s", name, _heard(run, node, place, simulated, ask.failure))
            place.forget()
            return Answer(name, ended=True)
        return _taken_further(run, node, place, simulated, ask)
    except LogInUseError:
        raise
    except XclpError as error:
        _logger.error("%s: %s", name, error)
        return Answer(name, failure=Failure.of(error))


def _heard(
    run: RunSettings,
    node: NodeSettings,
    place: _Place,
    simulated: Simulated | None,
    failure: Failure,
) -> XclpError:
    """Return what the session failed with; rebuild the role if clients have signed something."""
    signer = None
    try:
        if failure.accusations:
            loaded, data = _load(run.params, node, simulated)
            entered = _randomised(run.params, node, loaded, data)
            with _rebuilt(run, node, place, entered) as (durable, _):
                signer = durable.signer
    except XclpError as error:  # then what they signed counts as the server's word
        _logger.error("%s: %s", node.name, error)
    return failure.heard("the server", (*run.clients, SERVER), signer)


def _taken_further(
    run: RunSettings, node: NodeSettings, place: _Place, simulated: Simulated | None, ask: Ask
) -> Answer:
    """Rebuild the client's role, give it what came, and keep its log, or write its result."""
    loaded, data = _load(run.params, node, simulated)
    entered = _randomised(run.params, node, loaded, data)
    with _rebuilt(run, node, place, entered) as (durable, log):
        got = answer(durable, ask, deferred=place.deferred)
        if durable.ended and durable.failure is None:
            for caution in retry_cautions(run.params, entered):
                _logger.warning("%s: %s", node.name, caution)
            _write(durable, run, node, loaded, data)
        place.keep(log)
    return got


@contextmanager
def _rebuilt(
    run: RunSettings, node: NodeSettings, place: _Place, entered: ClientData
) -> Iterator[tuple[DurableRole, Log]]:
    """Rebuild the client's role from its log; close both in the end."""
    pinned = node.read_identities(run.clients)

    async def role(io: RoleIO, rng: Rng) -> Prediction:
        return await client_role(io, entered, run.params, run.clients, rng, run.seed, pinned)

    agreement = run.agreement(pinned)

    with closing(place.open()) as log:
        durable = DurableRole(
            node.name,
            role,
            log,
            peers=[p for p in (*run.clients, SERVER) if p != node.name],
            binding=domain_tag("flower run", place.session, client_binding(agreement, entered)),
        )
        with closing(durable):
            yield durable, log


def _write(
    durable: DurableRole,
    run: RunSettings,
    node: NodeSettings,
    loaded: LoadedClient,
    data: ClientData,
) -> None:
    found: Prediction = durable.result()
    prediction = replace(found, dropouts=with_reasons(found.dropouts, durable.reasons))
    odd = feature_cautions({node.name: data.vectors}, run.params.scale, loaded.columns)
    trusting = node.section is not None and node.section.identities is False
    cautions = run.warnings(run.clients, identities=not trusting)
    lines = client_lines(run.params, run, data, prediction, run.clients, node.name, loaded.columns)
    for line in (*cautions, *odd, *lines):
        _logger.warning("%s: %s", node.name, line)
    if node.output is None:
        _logger.info("%s has %d labels", node.name, len(prediction.class_ids))
        return
    in_sums = present_in(run.clients, prediction)
    for file in write_result(
        node.output,
        loaded,
        data,
        prediction,
        durable.cost,
        run.params.classes,
        run,
        run.warnings(run.clients, in_sums, identities=not trusting),
    ):
        _logger.info("%s: %s is written", node.name, file)


def _load(
    params: Parameters, node: NodeSettings, simulated: Simulated | None
) -> tuple[LoadedClient, ClientData]:
    """Read the client's data.

    Raises:
        ParameterError: the node is simulated, and the app has no data for such nodes.
        DataError: the data cannot be used.
    """
    if node.section is not None:
        return load_data(node.name, node.section, NODE, params)
    if simulated is None:
        raise ParameterError(
            f"{node.name} is a simulated node, and this app has no data for such: give "
            "client_app(simulated) a function that returns them"
        )
    features, given = simulated(node.name)
    values, labelled = labels.marked_values(given, node.name)
    if labelled.any():
        labels.class_values([(values, labelled)], params.classes, [node.name])
    vectors = checked_vectors(features, missing=params.missing != "refuse")
    loaded = LoadedClient(node.name, vectors, given, list(range(len(vectors))))
    return loaded, ClientData(vectors, labels.encode(values, labelled, params.classes))


def _randomised(
    params: Parameters, node: NodeSettings, loaded: LoadedClient, data: ClientData
) -> ClientData:
    """Return the data to enter; where a file keeps randomised labels, with these."""
    section = node.section
    if section is None or section.remember is None or section.key_file is None:
        return data
    key = read_log_key(beside(NODE, section.key_file), node.mounted)
    entered, said = randomised_once(beside(NODE, section.remember), key, loaded, data, params)
    _logger.info("%s: %s", node.name, said)
    return entered


class _InFile:
    """The log of a run in a file of the node; methods are those of `InContext`."""

    deferred = False

    def __init__(
        self,
        run: int,
        folder: Path,
        epochs: Path | None,
        key_file: Path,
        mounted: Collection[Path],
        name: str,
    ) -> None:
        self.session = str(run)
        self._key_file, self._mounted = key_file, mounted
        self._path = folder / f"{name}-{run:016x}.log"
        self._epoch = epoch_of(self._path, epochs and epochs / f"{self._path.name}.epoch")

    def open(self) -> Log:
        try:
            for file in (self._path, self._epoch):
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{NODE}: state or epoch cannot be used: {error}") from None
        key = read_log_key(self._key_file, self._mounted)
        return Log.open(self._path, key, epoch=self._epoch)

    def keep(self, log: Log) -> None:
        log.sync()

    def forget(self) -> None:
        remove_log(self._path, self._epoch)


_Place = InContext | _InFile


def _place(context: Context, node: NodeSettings) -> _Place:
    section = node.section
    if section is None or section.state is None or section.key_file is None:
        return InContext(context.state, str(context.run_id))
    state, key_file = beside(NODE, section.state), beside(NODE, section.key_file)
    epochs = beside(NODE, section.epoch) if section.epoch is not None else None
    return _InFile(context.run_id, state, epochs, key_file, node.mounted, node.name)
