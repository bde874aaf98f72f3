"""Session keys, sealed channels and the seed that all clients share."""

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
