"""CPU and bytes of the key exchange per client, with ML-KEM-768 and without.

    python bench/setup.py [CLIENTS]

All parties run in this process, one after the other, so that a party's seconds are those of its own
computations. Prints the median over the clients, and the server.
"""

import sys
from statistics import median

from xclp_crypto.params import Agreement
from xclp_crypto.protocols.setup import SERVER, key_exchange_client, key_exchange_server
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.simulate import Simulation


def main(count: int) -> None:
    """Run it with and without, three times each."""
    clients = tuple(f"client-{i}" for i in range(count))
    print(f"{count} clients: ms of a client and of the server, kB sent and received by a client")
    for post_quantum in (False, True):
        runs = []
        for seed in range(3):
            rng = SeededRng(seed)

            async def client(io, rng=rng, post_quantum=post_quantum):
                own = rng.child(io.name)
                await key_exchange_client(
                    io, clients, Agreement(), [1], own, post_quantum=post_quantum
                )

            async def server(io, rng=rng, post_quantum=post_quantum):
                await key_exchange_server(
                    io, clients, Agreement(), 1, rng.child(SERVER), post_quantum=post_quantum
                )

            roles = dict.fromkeys(clients, client) | {SERVER: server}
            runs.append(Simulation().run(roles).raise_errors().cost)
        seconds = [cost.seconds_by_party() for cost in runs]
        mine = median(s[c] for s in seconds for c in clients)
        theirs = median(s[SERVER] for s in seconds)
        sent = sum(runs[0].bytes_by_link().values()) / count
        print(
            f"{'with' if post_quantum else 'without'} ML-KEM: {1e3 * mine:.1f} {1e3 * theirs:.1f} "
            f"{sent / 1e3:.0f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
