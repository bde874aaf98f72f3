"""CPU and bytes of the key exchange per client, with ML-KEM-768 and without.

    python bench/setup.py [CLIENTS]

All parties run in this process, so a client's share of the server's work is in its seconds.
"""

import sys
from statistics import median
from time import process_time

from xclp_crypto.params import Agreement
from xclp_crypto.protocols.setup import SERVER, key_exchange_client, key_exchange_server
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.simulate import Simulation


def main(count: int) -> None:
    """Run it with and without, three times each."""
    clients = tuple(f"client-{i}" for i in range(count))
    for post_quantum in (False, True):
        seconds = []
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

            start = process_time()
            roles = dict.fromkeys(clients, client) | {SERVER: server}
            cost = Simulation().run(roles).raise_errors().cost
            seconds.append(process_time() - start)
        print(
            f"{count} clients {'with' if post_quantum else 'without'} ML-KEM: "
            f"{1e3 * median(seconds) / count:.1f} ms of CPU and "
            f"{cost.total_bytes / 1e3 / count:.0f} kB for each, sent and received"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
