"""The ServerApp: runs the server's role, by `xclp_crypto.transport.flower.nodes`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from xclp_crypto.params import DEADLINES_IN_ALL
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.transport.flower.nodes import Nodes
from xclp_crypto.transport.log import NoLog
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.supersteps import Relay
from xclp_lp.dropouts import with_reasons
from xclp_lp.files.results import write_server_record
from xclp_lp.flower.settings import RunSettings
from xclp_lp.labelling import Participation
from xclp_lp.session import server_role
from xclp_lp.summary import dropout_lines, restart_line, two_left_line

_logger = logging.getLogger("flwr")  # whose lines Flower shows to whoever started the run


def server_app() -> ServerApp:
    """Return the ServerApp; its run's configuration is that of `RunSettings`."""
    app = ServerApp()
    app.main()(_main)
    return app


def _main(grid: Grid, context: Context) -> None:
    run(grid, RunSettings.of(context.run_config))


def run(
    grid: Grid,
    settings: RunSettings,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Participation:
    """Run a session with the nodes of a grid.

    Args:
        grid: of Flower.
        settings: of the run.
        clock: seconds of a clock that only goes forward.
        sleep: waits so many seconds of that clock.

    Raises:
        ParameterError: identities are missing or cannot be used, or what the server writes cannot
            be written.
        XclpError: the server's role failed.
    """
    pinned = settings.read_identities()
    output = settings.require_output()

    async def role(io: RoleIO, rng: Rng) -> Participation:
        return await server_role(io, settings.params, settings.clients, rng, pinned)

    warnings = partial(settings.warnings, settings.clients, identities=pinned is not None)
    for caution in warnings():
        _logger.warning("caution: %s", caution)
    durable = DurableRole(
        SERVER,
        role,
        NoLog(),
        peers=settings.clients,
        progress=lambda now: _logger.info("%s: %s", now.step, now.activity),
    )
    relay = Relay(
        durable,
        settings.clients,
        join=settings.join,
        deadline=settings.deadline,
        total=settings.total or DEADLINES_IN_ALL * settings.deadline,
        retry=settings.retry,
        max_message=settings.max_message,
        clock=clock,
    )
    nodes = Nodes(grid, relay, settings.retry, settings.max_message, clock, sleep)
    nodes.carry()
    failure = relay.failure
    nodes.end(relay.told, settings.retry)
    durable.close()
    if failure is not None:
        if line := restart_line(failure, settings.clients, "the run's configuration"):
            failure.add_note(line)
            _logger.error("%s", line)
        raise failure
    found: Participation = durable.result()
    found = replace(found, dropouts=with_reasons(found.dropouts, durable.reasons))
    if output is not None:
        record = found, durable.cost, warnings(found.contributors)
        for file in write_server_record(output, *record):
            _logger.info("%s is written", file)
    for line in (*dropout_lines(found.dropouts), *two_left_line(found.contributors)):
        _logger.warning("%s", line)
    for doubt in found.doubts:
        _logger.warning("%s", doubt)
    _logger.info(
        "%d bytes to the nodes, %d from them; the server's own messages have %d",
        nodes.pushed,
        nodes.pulled,
        durable.cost.sent_by(SERVER),
    )
    _logger.info("labels of %s were counted", ", ".join(found.contributors))
    return found
