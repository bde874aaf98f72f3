"""What a party that checks identities brings to the key exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from xclp_crypto.errors import ParameterError
from xclp_crypto.params import Agreement
from xclp_crypto.primitives.identity import Identity, IdentityKey
from xclp_crypto.protocols.setup.channel import SERVER
from xclp_crypto.secret import Secret


@dataclass(frozen=True, repr=False, eq=False)
class Identities(Secret):
    """A party's own identity key, and the identities that it pins for everybody.

    Attributes:
        own: the key to sign with.
        pinned: by party, the identity that this party must have: of all invited clients, of the
            server, and of the party itself. Identities of others are ignored, so one address book
            serves many sessions.

    Raises:
        ParameterError: `own` or a pinned identity is of another type.

    Examples:
        >>> from xclp_crypto import Identities, IdentityKey
        >>> from xclp_crypto.rng import SystemRng
        >>> keys = {name: IdentityKey.generate(SystemRng()) for name in ("receiver", "sender")}
        >>> pinned = {name: key.public for name, key in keys.items()}  # what both write down
        >>> mine = Identities(keys["sender"], pinned)
        >>> mine.of("receiver") == pinned["receiver"]
        True
    """

    own: IdentityKey
    pinned: Mapping[str, Identity]

    def __post_init__(self) -> None:
        if not isinstance(self.own, IdentityKey):
            raise ParameterError(f"own must be an IdentityKey, got {type(self.own).__name__}")
        for party, identity in self.pinned.items():
            if not isinstance(identity, Identity):
                raise ParameterError(
                    f"the identity pinned for {party!r} must be an Identity (text becomes one by "
                    f"Identity.from_text), got {type(identity).__name__}"
                )
        object.__setattr__(self, "pinned", MappingProxyType(dict(self.pinned)))

    def of(self, party: str) -> Identity:
        """Return the identity that is pinned for `party`; raises `ParameterError` if none is."""
        if party not in self.pinned:
            raise ParameterError(
                f"no identity is pinned for {party!r}; pin those of all invited clients and of "
                "the server, or use none at all"
            )
        return self.pinned[party]

    def bind(self, agreement: Agreement, me: str, invited: Sequence[str]) -> Agreement:
        """Return the agreement with a field more for each party, the identity pinned for it.

        Args:
            agreement: what the parties agree on beside their identities.
            me: the party whose own key this is.
            invited: names of all clients that may take part, in the agreed order.

        Raises:
            ParameterError: an identity is missing, or pinned for two clients, so that one could
                speak for the other; or that of `me` is not that of the own key.
        """
        owner: dict[Identity, str] = {}
        for party in invited:  # a program may be the server as well, as in `two_party`
            other = owner.setdefault(self.of(party), party)
            if other != party:
                raise ParameterError(
                    f"one identity is pinned for {other!r} and for {party!r}; each has its own"
                )
        pinned = {f"identity of {p}": self.of(p).to_text() for p in (*invited, SERVER)}
        if self.own.public != self.of(me):
            raise ParameterError(
                f"the own key of {me} is {self.own.public.to_text()}, but "
                f"{self.of(me).to_text()} is pinned for it"
            )
        return Agreement(**agreement.fields, **pinned)
