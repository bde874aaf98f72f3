"""Servers and clients in threads of this process, over real sockets with TLS."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

from xclp_crypto.params import Agreement
from xclp_crypto.transport import network
from xclp_crypto.transport.log import NoLog
from xclp_crypto.transport.network import Limits
from xclp_crypto.transport.network.frames import HEAD, Beat, Codec, Hello, head_of
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.tls import make_authority, tls_context

AGREEMENT = Agreement(version=1)
SERVER = "server"


class Patient(Limits):
    """Longer than a busy machine takes for anything; a `Clock` ends waits."""

    beat = 0.1


LIMITS = Patient()
CODEC = Codec(("a", "b", SERVER))


def written(*frames):
    """The bytes of frames in a session of a, b and the server."""
    return b"".join(part for frame in frames for part in CODEC.encode(frame))


def hello(**changed):
    return Hello(
        **{"instance": bytes(16), "incarnation": bytes(16), "agreement": AGREEMENT.encode()}
        | changed
    )


class Clock:
    """The time in which programs run; `jump` lets all their limits pass."""

    def __init__(self):
        self.ahead = 0.0

    def __call__(self):
        return time.monotonic() + self.ahead

    def jump(self):
        self.ahead += LIMITS.join + LIMITS.grace + LIMITS.deadline


def authority(folder, clients, hosts=("localhost", "127.0.0.1")):
    make_authority(folder, clients, hosts)

    def context(name, server=None):
        files = [folder / f for f in ("authority.pem", f"{name}.pem", f"{name}.key")]
        return tls_context(*files, server=name == SERVER if server is None else server)

    return context


class Federation:
    """A server and its clients; each runs in a thread, and `results` waits for all."""

    def __init__(self, roles, tls, *, limits=LIMITS, agreement=AGREEMENT, log=lambda name: NoLog()):
        self.roles = roles
        self.clients = tuple(name for name in roles if name != SERVER)
        self.tls, self.limits, self.agreement, self.log = tls, limits, agreement, log
        self.pool = ThreadPoolExecutor(2 * len(roles))
        self.futures = {}
        self.port = 0
        self.durable = {}

    def role(self, name):
        peers = [peer for peer in (*self.clients, SERVER) if peer != name]
        self.durable[name] = DurableRole(name, self.roles[name], self.log(name), peers=peers)
        return self.durable[name]

    def serve(self, port=0):
        ready = threading.Event()

        def listening(found):
            self.port = found
            ready.set()

        self.futures[SERVER] = future = self.pool.submit(
            network.serve,
            self.role(SERVER),
            self.clients,
            self.agreement,
            ("localhost", port),
            self.tls(SERVER),
            limits=self.limits,
            listening=listening,
        )
        future.add_done_callback(lambda _: ready.set())
        ready.wait()
        return self

    def join(self, name, *, port=None, tls=None, role=None):
        self.futures[name] = self.pool.submit(
            network.join,
            role or self.role(name),
            self.clients,
            SERVER,
            self.agreement,
            ("localhost", port or self.port),
            tls or self.tls(name),
            limits=self.limits,
        )
        return self.futures[name]

    def results(self):
        """Results and errors by party."""
        wait(self.futures.values(), timeout=60)
        self.pool.shutdown()
        return {n: f.exception() or f.result() for n, f in self.futures.items()}


def run(roles, tls, **options):
    federation = Federation(roles, tls, **options).serve()
    for name in federation.clients:
        federation.join(name)
    return federation.results()


class Relay:
    """Hands connections on to a port; `copy` is what becomes of one direction of one."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("localhost", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = [self.listener]
        self.threads = []
        self.start(self.accept)

    def start(self, target, *args):
        self.threads.append(threading.Thread(target=target, args=args, daemon=True))
        self.threads[-1].start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("localhost", self.target))
            self.sockets += [near, far]
            shared = self.shared()
            self.start(self.copy, near, far, shared)
            self.start(self.copy, far, near, shared)

    def shared(self):
        """What both directions of a new connection know."""

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.threads[0].join()
        for sock in self.sockets:
            sock.close()
        for thread in self.threads:
            thread.join()


class Wire:
    """One end of a connection, in place of asyncio's writer; `sent` are the frames."""

    def __init__(self, name):
        self.subject = {"subject": ((("commonName", name),),)}
        self.reader = asyncio.StreamReader()
        self.transport = self
        self.data = bytearray()
        self.closed = self.aborted = False

    @property
    def sent(self):
        """All frames but signs of life."""
        frames, at = [], 0
        while at < len(self.data):
            length, kind = head_of(self.data[at : at + HEAD.size])
            at += HEAD.size + length
            frames.append(CODEC.decode(kind, bytes(self.data[at - length : at])))
        return [frame for frame in frames if not isinstance(frame, Beat)]

    def got(self, kind):
        return any(isinstance(frame, kind) for frame in self.sent)

    def get_extra_info(self, what):
        return self.subject

    def is_closing(self):
        return self.closed

    def write(self, data):
        self.data += data

    async def drain(self):
        await asyncio.sleep(0)

    def close(self):
        self.closed = True
        self.reader.feed_eof()

    async def wait_closed(self):
        pass

    def abort(self):
        self.aborted = True
