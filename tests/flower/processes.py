"""SuperLink and SuperNodes as processes of their own on loopback, with TLS and node authentication.

Between the SuperNodes and the SuperLink is a forwarder that counts what passes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from xclp_crypto.transport.tls import make_authority

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "flower"
BIN = Path(sys.executable).parent
CLASSES = ["barn owl", "grey heron", "house wren"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Forwarder:
    """Hands connections on to a port, and counts the bytes in both directions."""

    def __init__(self, port):
        self.to = port
        self.up = self.down = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:  # whom it is for has not started, or has ended
                near.close()
                continue
            threading.Thread(target=self._serve, args=(near, far), daemon=True).start()

    def _serve(self, near, far):
        with near, far:
            back = threading.Thread(target=self._pump, args=(far, near, "down"), daemon=True)
            back.start()
            self._pump(near, far, "up")
            back.join()

    def _pump(self, source, sink, name):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
                with self._lock:
                    setattr(self, name, getattr(self, name) + len(data))
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()


class Federation:
    """A SuperLink and SuperNodes with data of their own, in a folder."""

    def __init__(
        self,
        folder,
        clients=4,
        rows=10,
        features=5,
        seed=0,
        keep_logs=True,
        names=None,
        app=APP,
        environment=None,
        configs=None,
    ):
        self.folder = folder
        self.keep_logs = keep_logs
        self.app = app
        self.configs = configs
        self.clients = names or [f"hospital-{i}" for i in range(clients)]
        self.processes = {}
        self.nodes = {}
        rng = np.random.default_rng(seed)
        centres = 2 * rng.standard_normal((3, features))
        self.Xs, self.ys = [], []
        for name in self.clients:
            y = rng.integers(0, 3, rows)
            self.Xs.append(centres[y] + rng.standard_normal((rows, features)))
            self.ys.append(
                [CLASSES[c] if i < max(2, rows // 10) else None for i, c in enumerate(y)]
            )
            np.save(folder / f"{name}.npy", self.Xs[-1])
            labels = "\n".join(["bird", *(label or "" for label in self.ys[-1])]) + "\n"
            (folder / f"{name}-labels.csv").write_text(labels)
        (folder / "log.key").write_text("ab" * 32)
        (folder / "log.key").chmod(0o600)
        make_authority(folder / "certs", self.clients, ["localhost", "127.0.0.1"])
        self.environment = (
            os.environ
            | {
                "FLWR_HOME": str(folder / "flwr"),
                "FLWR_TELEMETRY_ENABLED": "0",
                "FLWR_DISABLE_UPDATE_CHECK": "1",
                "PATH": f"{BIN}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                "COLUMNS": "200",
                "NO_COLOR": "1",
                "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # Flower's own is a second
            }
            | (environment or {})
        )
        (folder / "flwr").mkdir()
        self.port = free_port()
        self.forwarder = Forwarder(self.port)
        (folder / "flwr" / "config.toml").write_text(
            '[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{folder / "certs" / "authority.pem"}"\n'
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in list(self.processes):
            self.kill(name)
        self.forwarder.close()

    def start(self, name, *command):
        """Start a program in a group of its own, its output in NAME.out."""
        with (self.folder / f"{name}.out").open("a") as output:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - programs of this file
                [BIN / command[0], *command[1:]],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def kill(self, name):
        """Kill a program and all that it has started."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def output(self, name):
        return (self.folder / f"{name}.out").read_text()

    def wait_for(self, name, pattern, seconds=120):
        """Wait until a program says something; return it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = re.search(pattern, self.output(name))
            if found:
                return found[0]
            assert name not in self.processes or self.processes[name].poll() in (None, 0), (
                self.output(name)
            )
            time.sleep(0.1)
        raise AssertionError(f"{name} does not say {pattern!r}:\n{self.output(name)}")

    def flwr(self, *arguments):
        done = subprocess.run(  # noqa: S603 - programs of this file
            [BIN / "flwr", *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_superlink(self):
        certs = self.folder / "certs"
        self.start(
            "superlink",
            "flower-superlink",
            f"--ssl-certfile={certs / 'server.pem'}",
            f"--ssl-keyfile={certs / 'server.key'}",
            f"--ssl-ca-certfile={certs / 'authority.pem'}",
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            "--host=127.0.0.1",
            f"--port={self.port}",
        )
        self.wait_for("superlink", r"(?i)running on|startup complete")

    def register(self, name):
        key = ec.generate_private_key(ec.SECP384R1())
        (self.folder / f"{name}.node").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        )
        public = self.folder / f"{name}.node.pub"
        public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
        self.flwr("supernode", "register", str(public), "here")

    def identities(self, party):
        """Configuration of a party: whom it pins, and its own key."""
        files = {"identities": "identities.toml", "identity": f"{party}.identity"}
        return {key: str(self.folder / "certs" / file) for key, file in files.items()}

    def config_of(self, name):
        """Configuration of a node, for label propagation if nothing else was given."""
        if self.configs is not None:
            return self.configs[name]
        config = {
            "name": name,
            "features": str(self.folder / f"{name}.npy"),
            "labels": str(self.folder / f"{name}-labels.csv"),
            "label_column": "bird",
            "output": str(self.folder / "results"),
        }
        if self.keep_logs:
            config["state"] = str(self.folder / f"{name}-state")
            config["key_file"] = str(self.folder / "log.key")
        return config | self.identities(name)

    def start_node(self, name):
        config = self.config_of(name)
        self.start(
            name,
            "flower-supernode",
            f"--root-certificates={self.folder / 'certs' / 'authority.pem'}",
            f"--superlink=127.0.0.1:{self.forwarder.port}",
            f"--auth-supernode-private-key={self.folder / f'{name}.node'}",
            f"--port={free_port()}",
            "--node-config=" + " ".join(f"{k}={json.dumps(v)}" for k, v in config.items()),
        )

    def restart_node(self, name):
        """Start a node that was killed, again and again until Flower takes it.

        That is when its last sign of life is a minute old.
        """
        there = self.output(name).count("SuperNode ID")
        until = time.monotonic() + 150
        while self.output(name).count("SuperNode ID") == there:
            assert time.monotonic() < until, self.output(name)
            if name not in self.processes or self.processes[name].poll() is not None:
                self.start_node(name)
            time.sleep(1)

    def start_all(self):
        self.start_superlink()
        for name in self.clients:
            self.register(name)
            self.start_node(name)

    def run(self, **config):
        settings = {"clients": ",".join(self.clients), "classes": ",".join(CLASSES)}
        settings |= self.identities("server") | config
        # Flower overrides only what an app has, so this is an app with other settings.
        app = self.folder / "app"
        shutil.copytree(self.app, app, ignore=shutil.ignore_patterns("__pycache__"))
        project = app / "pyproject.toml"
        head = project.read_text().split("[tool.flwr.app.config]")[0]
        lines = [f"{k} = {json.dumps(v)}" for k, v in settings.items()]
        project.write_text("\n".join([head + "[tool.flwr.app.config]", *lines, ""]))
        self.start("run", "flwr", "run", str(app), "here", "--stream")
