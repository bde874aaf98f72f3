"""Federations whose parties are processes of their own, which may be killed at any time.

The processes come from a fork server that has imported everything, so that they start at once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import session_runs as sessions

from xclp_crypto.transport.network import Limits
from xclp_crypto.transport.network.party import Clock
from xclp_crypto.transport.network.server import ServerParty
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.tls import make_authority
from xclp_lp.cli import main as cli
from xclp_lp.estimator import CrossClientLabelPropagation
from xclp_lp.lsh import projection_seed
from xclp_lp.parameters import Settings
from xclp_lp.session import ClientData

SERVER = "server"
CLASSES = ["barn owl", "grey heron", "house wren"]
LIMITS = {"join": 600.0, "grace": 60.0, "deadline": 600.0}
"""Longer than a busy machine takes to start a process again; `Federation.hurry` ends waits."""

BEAT = 0.5
"""Seconds between signs of life, so that what happens is noticed at once whatever the grace."""

HANGS = 300.0
"""Seconds after which a process that has not ended never will."""

KEY = "ab" * 32

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["xclp_lp.cli.main", "xclp_crypto.testing"])


@dataclass
class Death:
    """When a process kills itself: after so many turns of its role, counted from a step on.

    Attributes:
        turns: how many.
        step: the step from which on they count; from the start if empty.
    """

    turns: int
    step: str = ""

    def watch(self) -> None:
        """Make this process die."""
        advance = DurableRole.advance
        left = [self.turns]

        def dying(role: DurableRole) -> None:
            advance(role)
            if not self.step or role.step == self.step or left[0] < self.turns:
                left[0] -= 1
                if left[0] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        DurableRole.advance = dying  # type: ignore[method-assign]


def stop_in_a_wait() -> None:
    """Let the server of this process stop when it first waits for a message after the setup."""
    woken = ServerParty.woken

    async def stopping(server: ServerParty) -> None:
        waiting = server.role.waiting
        if waiting is not None and waiting.step not in ("", "setup"):
            ServerParty.woken = woken  # type: ignore[method-assign]
            os.kill(os.getpid(), signal.SIGSTOP)
        await woken(server)

    ServerParty.woken = stopping  # type: ignore[method-assign, assignment]


def _main(
    arguments: list[str], output: str, inside: Sequence[Callable[[], object]], ahead: Any
) -> None:
    with open(output, "a", encoding="utf-8") as file:  # noqa: PTH123
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a job in the background
    sys.argv = ["xclp", *arguments]
    Limits.beat = BEAT  # type: ignore[assignment, method-assign]
    ran = Clock.__call__
    Clock.__call__ = lambda clock: ran(clock) + ahead.value  # type: ignore[method-assign]
    for prepare in inside:
        prepare()
    cli.main()


class Federation:
    """Files of a federation in a folder, and its processes."""

    def __init__(
        self,
        folder: Path,
        *,
        clients: int = 4,
        rows: int = 8,
        features: int = 5,
        limits: Mapping[str, float] = LIMITS,
        seed: int = 0,
        certificates: Path | None = None,
        identities: bool = False,
        **parameters: Any,
    ) -> None:
        self.folder = folder
        self.clients = [f"hospital-{i}" for i in range(clients)]
        self.parameters = {
            "preset": "paper",
            "n_bits": 64,
            "k": 2,
            "hamming": "masked",
            **({"threshold": 2} if clients == 2 else {}),
        } | parameters
        self.certificates = certificates or folder / "certs"
        self.identities = identities
        self.processes: dict[str, Any] = {}
        self.ahead = _context.Value("d", 0.0)
        self.port = 0
        if certificates is None:
            make_authority(self.certificates, self.clients, ["localhost"])
        rng = np.random.default_rng(seed)
        centres = 2 * rng.standard_normal((3, features))
        self.Xs, self.ys = [], []
        for name in self.clients:
            y = rng.integers(0, 3, rows)
            self.Xs.append(centres[y] + rng.standard_normal((rows, features)))
            self.ys.append([CLASSES[c] if i < 2 else None for i, c in enumerate(y)])
            np.save(folder / f"{name}.npy", self.Xs[-1])
            labels = "\n".join(["bird", *(label or "" for label in self.ys[-1])]) + "\n"
            (folder / f"{name}-labels.csv").write_text(labels)
            self.write(
                name,
                "[client]",
                f'name = "{name}"',
                f'server = "localhost:{self.port}"',
                f'features = "{name}.npy"',
                f'labels = "{name}-labels.csv"',
                'label_column = "bird"',
            )
        self.write(SERVER, "[server]", 'listen = "localhost:0"')
        self.limits(limits)
        self.key_file = folder / "log.key"
        self.key_file.write_text(KEY)
        self.key_file.chmod(0o600)

    def write(self, party: str, *section: str) -> None:
        parameters = {"classes": CLASSES, "random_state": 0} | self.parameters
        lines = [f"clients = {json.dumps(self.clients)}"]
        if not self.identities:
            lines += ["identities = false"]
        else:
            lines += [f'identities = "{self.certificates}/identities.toml"']
            lines += [f'identity = "{self.certificates}/{party}.identity"']
        lines += ["[parameters]"]
        lines += [f"{k} = {json.dumps(v)}" for k, v in parameters.items()]
        lines += ["[tls]", f'authority = "{self.certificates}/authority.pem"']
        lines += [f'{f} = "{self.certificates}/{party}.{s}"' for f, s in TLS.items()]
        self.file(party).write_text("\n".join([*lines, *section, ""]))

    def limits(self, limits: Mapping[str, float]) -> None:
        for party in (*self.clients, SERVER):
            with self.file(party).open("a") as file:
                file.write("[limits]\n" + "".join(f"{k} = {v}\n" for k, v in limits.items()))

    def file(self, party: str) -> Path:
        return self.folder / f"{party}.toml"

    def edit(self, party: str, old: str, new: str) -> None:
        text = self.file(party).read_text()
        assert old in text
        self.file(party).write_text(text.replace(old, new))

    def labels_of(
        self, present: Sequence[str], contributors: Sequence[str]
    ) -> dict[str, list[str]]:
        """Labels of the pooled computation over the points of `present`."""
        data = {
            name: ClientData(x, np.array([CLASSES.index(y) if y else -1 for y in ys]))
            for name, x, ys in zip(self.clients, self.Xs, self.ys, strict=True)
        }
        params = Settings(**self.parameters).parameters(CLASSES)
        seed = projection_seed(0)
        assert seed is not None
        found = sessions.expected(data, params, present, contributors, seed)
        return {c: [CLASSES[i] if i >= 0 else "" for i in p.class_ids] for c, p in found.items()}

    def simulated(self) -> dict[str, list[Any]]:
        """Labels of the simulation."""
        xclp = CrossClientLabelPropagation(
            classes=CLASSES, random_state=0, client_names=self.clients, **self.parameters
        ).fit(self.Xs, self.ys)
        return {c: list(ls) for c, ls in zip(self.clients, xclp.transduction_, strict=True)}

    def explain(self, found: Mapping[str, list[str]]) -> int:
        """Require that some clients in the graph and in the sums explain labels; count these."""
        for present in sessions.subsets(self.clients):
            for contributors in sessions.subsets(present):
                if {*found} <= {*present}:
                    expected = self.labels_of(present, contributors)
                    if all(expected[c] == labels for c, labels in found.items()):
                        return len(found)
        raise AssertionError(f"nothing explains {found}")

    def start(
        self,
        party: str,
        *options: str,
        death: Death | None = None,
        inside: Sequence[Callable[[], object]] = (),
        values: Path | None = None,
    ) -> Any:
        """Start a party as `xclp serve` or `xclp join` does, with a log; first call `inside`.

        With `values` as `xclp sum` does.
        """
        command = "serve" if party == SERVER else "join"
        what = [command] if values is None else ["sum", str(values), f"--{command}"]
        arguments = [*what, str(self.file(party)), "--log", str(self.events_file(party))]
        arguments += ["--state", str(self.state(party))]
        arguments += ["--key-file", str(self.key_file), *options]
        inside = [*inside, *([] if death is None else [death.watch])]
        process = _context.Process(
            target=_main, args=(arguments, str(self.folder / f"{party}.out"), inside, self.ahead)
        )
        process.start()
        self.processes[party] = process
        return process

    def serve(
        self,
        *options: str,
        death: Death | None = None,
        inside: Sequence[Callable[[], object]] = (),
        values: Path | None = None,
    ) -> None:
        """Start the server, and tell its port to the clients' files."""
        self.start(SERVER, *options, death=death, inside=inside, values=values)
        if not self.port:
            self.port = self.wait_for(SERVER, "listening")["port"]
            self.edit(SERVER, "localhost:0", f"localhost:{self.port}")
            for name in self.clients:
                self.edit(name, "localhost:0", f"localhost:{self.port}")

    def state(self, party: str) -> Path:
        return self.folder / f"{party}.log"

    def events_file(self, party: str) -> Path:
        return self.folder / f"{party}.jsonl"

    def events(self, party: str) -> list[dict[str, Any]]:
        file = self.events_file(party)
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for(self, party: str, event: str, **values: Any) -> dict[str, Any]:
        wanted = {"event": event, **values}
        while True:
            alive = self.processes[party].is_alive()
            for found in self.events(party):
                if wanted.items() <= found.items():
                    return found
            assert alive, self.output(party)
            time.sleep(0.01)

    def wait_until_stopped(self, party: str) -> int:
        """Wait until a process is stopped by a signal, and return its id."""
        process = self.processes[party]
        while True:
            status = Path(f"/proc/{process.pid}/status").read_text()
            if "\nState:\tT" in status:
                return int(process.pid)
            assert process.is_alive(), self.output(party)
            time.sleep(0.01)

    def hurry(self, seconds: float) -> None:
        """Let everybody's clock jump: who is away now has been away for longer."""
        self.ahead.value += seconds

    def output(self, party: str) -> str:
        return (self.folder / f"{party}.out").read_text()

    def exit_code(self, party: str, timeout: float = HANGS) -> int:
        process = self.processes[party]
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError(f"{party} does not end:\n{self.output(party)}")
        return int(process.exitcode)

    def finish(self, timeout: float = HANGS) -> dict[str, int]:
        """Wait for all processes and return their exit codes."""
        return {party: self.exit_code(party, timeout) for party in self.processes}

    def record(self, party: str) -> dict[str, Any]:
        """What a party says of the session beside its labels."""
        file = self.folder / "results" / f"{party}-cost.json"
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def labels(self, party: str) -> list[str] | None:
        """What is in a client's file of results."""
        file = self.folder / "results" / f"{party}.csv"
        if not file.exists():
            return None
        return [line.split(",")[1] for line in file.read_text().splitlines()[1:]]


TLS = {"certificate": "pem", "key": "key"}


def random_kills(folder: Path, certificates: Path, seed: int, grace: float = 60.0) -> str:
    """Run one federation under a random schedule of kills and restarts; say how it ended.

    Any party may be killed, up to twice, and is started again at once with its log; one client may
    stay dead, and `grace` seconds pass then. Whoever has labels must have those of the simulation.
    Whoever has none was given up, or too few were left; and only who was killed is given up.
    """
    chance = random.Random(seed)
    limits = LIMITS | {"grace": grace}
    federation = Federation(
        folder,
        clients=3,
        rows=4,
        certificates=certificates,
        seed=seed,
        limits=limits,
        threshold=2,  # so that one may stay away
    )
    parties = [SERVER, *federation.clients]
    deaths = {party: chance.choice([0, 0, 1, 1, 2]) for party in parties}
    stays_dead = chance.choice(federation.clients) if chance.random() < 0.3 else None

    def death(party: str) -> Death | None:
        return Death(chance.randint(1, 25)) if deaths[party] else None

    federation.serve(death=None)
    if deaths[SERVER]:
        deaths[SERVER] -= 1
        federation.processes[SERVER].kill()
        federation.processes[SERVER].join()
        federation.serve(death=death(SERVER))
    for party in federation.clients:
        federation.start(party, death=death(party))
    killed: set[str] = set()
    running = set(parties)
    end = time.monotonic() + HANGS
    while running:
        assert time.monotonic() < end, f"seed {seed}: {running} do not end"
        time.sleep(0.01)
        for party in list(running):
            code = federation.processes[party].exitcode
            if code == -signal.SIGKILL:
                killed.add(party)
            if code == -signal.SIGKILL and party != stays_dead:
                deaths[party] = max(deaths[party] - 1, 0)
                again = federation.serve if party == SERVER else partial(federation.start, party)
                again(death=death(party))
            elif code is not None:
                running.discard(party)
    for party in parties:
        said = federation.output(party)
        assert "Traceback" not in said, said
        assert federation.processes[party].exitcode in (0, 1, 3, -signal.SIGKILL), said
    labels = {c: federation.labels(c) for c in federation.clients}
    found = {c: ls for c, ls in labels.items() if ls is not None}
    federation.explain(found)
    dropouts = {e["client"] for e in federation.events(SERVER) if e["event"] == "dropout"}
    assert dropouts <= killed, f"{dropouts - killed} were given up and never killed"
    dropouts |= {stays_dead} & killed  # the session may end before the server says so
    if federation.processes[SERVER].exitcode == 0:
        assert set(labels) <= set(found) | dropouts, f"{set(labels) - set(found)} have no labels"
    else:
        assert len(labels) - len(dropouts) < 2, federation.output(SERVER)
    return (
        f"{len(found)} of {len(labels)} have labels, {len(dropouts)} given up, "
        f"{'somebody' if killed else 'nobody'} killed"
    )
