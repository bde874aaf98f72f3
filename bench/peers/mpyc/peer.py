"""MPyC: three parties with Shamir's sharing, no two of which may collude.

Party 0 has x and learns h, party 1 has y. One secure matrix product over the smallest field that
holds a distance: h = (1 − 2x | |x|)·(y | 1). Each party is a process, they talk over local sockets;
the bytes are those of MPyC's own counters. The three start together; the clock starts when all are
connected.
"""

from __future__ import annotations

import socket
import sys

import numpy as np
from measure import Clock, arguments, distances, load, write


def free_ports(count: int) -> int:
    """Return the first of some consecutive local ports that nobody uses."""
    for first in range(20000, 60000, 97):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("localhost", port))
        except OSError:
            continue
        return first
    raise SystemExit("no free ports")


if "-M3" not in sys.argv:  # MPyC reads the command line when it is imported
    sys.argv += ["-M3", "--base-port", str(free_ports(3)), "--no-log"]

from mpyc.runtime import mpc  # noqa: E402


async def main() -> None:
    args = arguments_
    x, y = load(args.data)
    number = mpc.SecFld(min_order=x.shape[1] + 1)
    field = number.field
    left, right = (len(x), x.shape[1] + 1), (len(y), x.shape[1] + 1)
    await mpc.start()
    await mpc.barrier("all connected")
    before = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    with Clock() as clock:
        mine = [None, None]
        if mpc.pid == 0:
            signs = 1 - 2 * x.astype(np.int64)
            mine[0] = np.concatenate([signs, x.sum(1, dtype=np.int64)[:, None]], axis=1)
        elif mpc.pid == 1:
            mine[1] = np.concatenate([y.astype(np.int64), np.ones((len(y), 1), np.int64)], axis=1)
        shared = []
        for sender, shape in enumerate((left, right)):
            values = mine[sender]
            array = (
                number.array(None, shape)
                if values is None
                else number.array(field.array(values % field.modulus))
            )
            shared.append(mpc.input(array, senders=sender))
        h = await mpc.output(shared[0] @ shared[1].T, receivers=[0])
        await mpc.barrier("done")
    sent = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid) - before
    totals = await mpc.transfer((clock.cpu, sent))
    await mpc.shutdown()
    if mpc.pid == 0:
        clock.cpu = sum(cpu for cpu, _ in totals)
        result = np.array(h.value, dtype=np.int64)
        exact = np.array_equal(result, distances(x, y))
        write(args, clock, sent=sum(sent for _, sent in totals), exact=exact)


if __name__ == "__main__":
    arguments_ = arguments()
    mpc.run(main())
