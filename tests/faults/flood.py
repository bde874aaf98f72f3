"""5,000 silent connections, and 100 clients that announce 2 GiB: what they cost the server.

Run by ``make flood``. Two honest clients finish meanwhile, and the server's memory rises by at most
100 MB.
"""

import multiprocessing
import resource
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from durable_runs import Blob
from network_runs import AGREEMENT, SERVER, authority

from xclp_crypto.transport import network
from xclp_crypto.transport.log import NoLog
from xclp_crypto.transport.network.frames import Codec, Data, Hello, Resume
from xclp_crypto.transport.replay import DurableRole

SILENT, DEVIATING, MOST_BYTES = 5000, 100, 100 << 20
HONEST = ("a", "b")
CLIENTS = (*HONEST, *(f"m{i}" for i in range(DEVIATING)))
CODEC = Codec((*CLIENTS, SERVER))


async def honest(io, rng):
    await io.send(SERVER, Blob(bytes(1 << 20)))
    return (await io.recv(Blob, SERVER, n=4)).data


async def server(io, rng):
    await io.gather(Blob, HONEST, n=1 << 20)
    await io.send(HONEST, Blob(b"done"))
    await io.gather(Blob, CLIENTS, n=1)


def durable(name, role):
    return DurableRole(name, role, NoLog(), peers=[p for p in (*CLIENTS, SERVER) if p != name])


def serve(folder, pipe):
    tls = authority(folder, CLIENTS)
    role = durable(SERVER, server)
    network.serve(role, CLIENTS, AGREEMENT, ("127.0.0.1", 0), tls(SERVER), listening=pipe.send)


def memory(process, kind="VmRSS"):
    """Resident bytes of a process."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) << 10
    raise ValueError(kind)


def deviate(name, port, tls):
    """A client that announces 2 GiB to the server and to an honest client, and sends little."""
    plain = socket.create_connection(("127.0.0.1", port), source_address=("127.0.2.1", 0))
    sock = tls.wrap_socket(plain, server_hostname="127.0.0.1")
    frames = [Hello(instance=bytes(16), incarnation=bytes(16), agreement=AGREEMENT.encode())]
    for to in (SERVER, "a"):
        frames += [Resume(to, name, 0), Data(name, to, 0, 1, 1 << 31, 0, b"")]
        frames += [Data(name, to, 0, 1, 1 << 31, 0, bytes(1000))]
    sock.sendall(b"".join(part for frame in frames for part in CODEC.encode(frame)))
    return sock


def main():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with tempfile.TemporaryDirectory() as folder:
        near, far = multiprocessing.Pipe()
        certificates = Path(folder, "certificates")
        process = multiprocessing.get_context("spawn").Process(
            target=serve, args=(certificates, far), daemon=True
        )
        process.start()
        port = near.recv()

        def tls(name):
            from xclp_crypto.transport.tls import tls_context

            files = [certificates / f for f in ("authority.pem", f"{name}.pem", f"{name}.key")]
            return tls_context(*files, server=False)

        time.sleep(1)
        before, began = memory(process), time.monotonic()
        silent = []
        for i in range(SILENT):
            with suppress(OSError):
                source = (f"127.0.1.{1 + i % 250}", 0)
                silent.append(socket.create_connection(("127.0.0.1", port), 10, source))
        opened = memory(process)
        deviating = [deviate(name, port, tls(name)) for name in CLIENTS[len(HONEST) :]]
        with ThreadPoolExecutor(len(HONEST)) as pool:
            found = [
                pool.submit(
                    network.join,
                    durable(name, honest),
                    CLIENTS,
                    SERVER,
                    AGREEMENT,
                    ("127.0.0.1", port),
                    tls(name),
                )
                for name in HONEST
            ]
            results = [future.result(120) for future in found]
        peak, seconds = memory(process, "VmHWM"), time.monotonic() - began
        process.kill()
        for sock in (*silent, *deviating):
            sock.close()
    print(
        f"{len(silent)} silent connections, {len(deviating)} clients that announce 2 GiB: the "
        f"server's memory rose by {(opened - before) / 1e6:.0f} MB with the first and by "
        f"{(peak - before) / 1e6:.0f} MB at most; {len(results)} honest clients finished within "
        f"{seconds:.1f} s"
    )
    assert results == [b"done"] * len(HONEST)
    assert peak - before <= MOST_BYTES


if __name__ == "__main__":
    main()
