"""Session keys, sealed channels and the seed that all clients share.

Examples:
    >>> from xclp_crypto.params import Agreement
    >>> from xclp_crypto.protocols.setup import key_exchange_client, key_exchange_server
    >>> from xclp_crypto.protocols.setup import seed_agreement_client
    >>> from xclp_crypto.protocols.setup import seed_agreement_server
    >>> from xclp_crypto.rng import SystemRng
    >>> from xclp_crypto.transport.simulate import Simulation
    >>> clients, agreement = ("alice", "bob"), Agreement(version=1)
    >>> async def client(io):
    ...     rows = [{"alice": 5, "bob": 7}[io.name]]
    ...     session = await key_exchange_client(io, clients, agreement, rows, SystemRng())
    ...     await seed_agreement_client(session, SystemRng())
    ...     return session.sizes
    >>> async def server(io):
    ...     session = await key_exchange_server(io, clients, agreement, 1, SystemRng())
    ...     return await seed_agreement_server(session)
    >>> roles = dict.fromkeys(clients, client) | {"server": server}
    >>> results = Simulation().run(roles).raise_errors().results
    >>> results["alice"], results["server"]
    ({'alice': 5, 'bob': 7}, ('alice', 'bob'))
"""

from xclp_crypto.protocols.setup.channel import SERVER, SealedIO, Session
from xclp_crypto.protocols.setup.ideal import (
    ideal_key_exchange_client,
    ideal_key_exchange_server,
    ideal_seed_agreement_client,
    ideal_seed_agreement_server,
)
from xclp_crypto.protocols.setup.identities import Identities
from xclp_crypto.protocols.setup.key_exchange import key_exchange_client, key_exchange_server
from xclp_crypto.protocols.setup.seed_agreement import seed_agreement_client, seed_agreement_server

__all__ = ["SERVER", "Identities", "SealedIO", "Session"]
__all__ += ["key_exchange_client", "key_exchange_server"]
__all__ += ["seed_agreement_client", "seed_agreement_server"]
__all__ += ["ideal_key_exchange_client", "ideal_key_exchange_server"]
__all__ += ["ideal_seed_agreement_client", "ideal_seed_agreement_server"]


def __dir__() -> list[str]:
    return sorted(__all__)
