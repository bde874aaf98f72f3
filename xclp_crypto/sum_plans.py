"""Sums and means as all parties see them, whoever carries their roles: what they agree on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import ParameterError
from xclp_crypto.fields import Modular
from xclp_crypto.front import RING, client_names
from xclp_crypto.mean import MEAN_FRACTION_BITS, sum_fraction_bits
from xclp_crypto.params import FRACTION_BITS, MIN_CLIENTS, Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.boolean.words import require_integer
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    SecureSum,
    secure_sum_client,
    secure_sum_server,
)
from xclp_crypto.protocols.secure_sum.costs import sum_bytes
from xclp_crypto.protocols.secure_sum.mask_graph import MAX_COMPLETE
from xclp_crypto.protocols.secure_sum.secure_sum import check_shape
from xclp_crypto.protocols.secure_sum.terms import graph_and_codec
from xclp_crypto.protocols.setup import (
    SERVER,
    Identities,
    key_exchange_client,
    key_exchange_server,
)
from xclp_crypto.protocols.setup.channel import sealed_size
from xclp_crypto.protocols.setup.costs import key_exchange_bytes
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.transport.replay import SeededRole
from xclp_crypto.updates import Leaf
from xclp_crypto.wire import Message, sent

SHOWN: Final = 6
"""Leaves of an update that are named where parties have others."""


class SumTotal(Message):
    """The sum, as the server tells it to the clients. Size: b·count bytes, b those of a residue."""

    TAG = 0x0428
    values: NDArray[Any] = sent(Modular("count"))
    modulus: int


@dataclass(frozen=True)
class SumOptions:
    """What all parties of a sum must have in common, beside its clients and shape.

    Attributes:
        threshold: fewest clients whose values the sum may have, by default a majority and at least
            three; two clients sum only with ``threshold=2``.
        sparse: see `xclp_crypto.secure_sum`.
        fraction_bits: f; None for 40 in sums, 30 in means, 0 in sums of updates of integers.
        modulus: of the ring in which the sum is computed.
        tell: whether the clients are told the sum, or the server alone has it.

    Raises:
        ParameterError: a value of another type, or out of range whoever the clients are.
    """

    threshold: int | None = None
    sparse: bool | None = None
    fraction_bits: int | None = None
    modulus: int = RING
    tell: bool = True

    def __post_init__(self) -> None:
        if self.threshold is not None:
            require_integer("threshold", self.threshold, MIN_CLIENTS)
        if not isinstance(self.sparse, bool | np.bool_ | None):
            raise ParameterError(f"sparse must be True, False or None, got {self.sparse!r}")
        if not isinstance(self.tell, bool | np.bool_):
            raise ParameterError(f"tell must be True or False, got {self.tell!r}")
        FixedPoint(0 if self.fraction_bits is None else self.fraction_bits, modulus=self.modulus)

    @classmethod
    def of(cls, given: SumOptions | None, **changed: Any) -> SumOptions:
        """Return the options that a caller gave, or the defaults, with these changed.

        Raises:
            ParameterError: they are something else.
        """
        if given is not None and not isinstance(given, SumOptions):
            raise ParameterError(f"options must be SumOptions, got {type(given).__name__}")
        return replace(given or cls(), **changed)


class SumPlan:
    """One sum as all parties see it, and their roles in it.

    Args:
        clients: their names, in the order that all parties give.
        shape: of every client's values.
        options: the same for all parties.
        content: what the values are.

    Raises:
        ParameterError: a parameter is out of range.
    """

    def __init__(
        self,
        clients: Sequence[str],
        shape: tuple[int, ...],
        options: SumOptions | None,
        content: str,
    ) -> None:
        options = SumOptions.of(options)
        self.clients, self.shape = client_names(len(clients), clients), check_shape(shape)
        self.tell = options.tell
        if len(clients) == MIN_CLIENTS and options.threshold != MIN_CLIENTS:
            raise ParameterError(
                "two clients sum only with threshold=2 (xclp sum: --threshold 2): each knows the "
                "other's values from the sum"
            )
        threshold = options.threshold
        if threshold is None and options.sparse is not True and len(clients) <= MAX_COMPLETE:
            threshold = max(3, len(clients) // 2 + 1)
        self.graph = MaskGraph.choose(self.clients, threshold, sparse=options.sparse)
        bits = FRACTION_BITS if options.fraction_bits is None else options.fraction_bits
        self.codec = FixedPoint(bits, parties=len(clients), modulus=options.modulus)
        self.agreement = Agreement(
            **graph_and_codec(self.graph, self.codec),
            clients=", ".join(self.clients),
            shape=self.shape,
            tell=options.tell,
            content=content,
        )

    def link_bytes(self) -> dict[tuple[str, str], int]:
        """Return the bytes of all messages if nobody drops out, without identities, by (from, to).

        Identities add less than 1 kB to a link.
        """
        count, modulus = math.prod(self.shape), self.codec.modulus
        links = sum_bytes(self.graph, count, modulus)
        for link, size in key_exchange_bytes(self.clients, self.agreement.size, 0).items():
            links[link] += size
        told = SumTotal.size(count=count, modulus=modulus)
        for client in self.clients:
            links[SERVER, client] += self.tell * sealed_size(told)
        return links

    def server_role(self, identities: Identities | None) -> SeededRole:
        """Return the server's role, which returns a `SecureSum`."""

        async def role(io: RoleIO, rng: Rng) -> SecureSum:
            with io.step("setup"):
                session = await key_exchange_server(
                    io,
                    self.clients,
                    self.agreement,
                    0,
                    rng,
                    self.graph.threshold,
                    identities=identities,
                )
            found = await secure_sum_server(
                session, self.shape, self.codec, self.graph, clients=session.clients
            )
            if self.tell:
                with io.step("result"):
                    message = SumTotal(found.residues, self.codec.modulus)
                    await session.io.send(session.clients, message)
            return found

        return role

    def client_role(self, values: NDArray[Any], identities: Identities | None) -> SeededRole:
        """Return the role of a client, which returns the sum, None if not told, and survivors."""

        async def role(io: RoleIO, rng: Rng) -> Any:
            with io.step("setup"):
                session = await key_exchange_client(
                    io, self.clients, self.agreement, [], rng, identities
                )
            survivors = await secure_sum_client(session, values, self.codec, self.graph, rng)
            if not self.tell:
                return None, survivors
            with io.step("result"):
                sizes = {"count": math.prod(self.shape), "modulus": self.codec.modulus}
                got = await session.io.recv(SumTotal, SERVER, **sizes)
            return self.codec.decode_numbers(got.values).reshape(self.shape), survivors

        return role

    def check(self, me: str, values: NDArray[Any]) -> None:
        """Refuse values that cannot be summed.

        Args:
            me: the client whose they are.
            values: of the shape of all.

        Raises:
            DataError: a value cannot be encoded.
            ParameterError: the client is none of the plan's.
        """
        if me not in self.clients:
            raise ParameterError(f"{me!r} is none of the clients {', '.join(self.clients)}")
        self.codec.check(values, client=me)


def mean_terms(
    leaves: tuple[Leaf, ...], options: SumOptions | None
) -> tuple[tuple[int, ...], SumOptions, str]:
    """Return what the plan of a mean of updates of this layout takes beside its clients.

    Args:
        leaves: of the updates.
        options: those of the mean.

    Returns:
        Shape, options and content of the sum of weighted updates and of their weights.
    """
    given = SumOptions.of(options)
    if given.fraction_bits is None:
        given = replace(given, fraction_bits=MEAN_FRACTION_BITS)
    return (sum(leaf.size for leaf in leaves) + 1,), given, f"the mean of {_told(leaves)}"


def sum_terms(
    leaves: tuple[Leaf, ...], options: SumOptions | None
) -> tuple[tuple[int, ...], SumOptions, str]:
    """Return the same as `mean_terms` of a sum of updates."""
    given = SumOptions.of(options)
    given = replace(given, fraction_bits=sum_fraction_bits(leaves, given.fraction_bits))
    return (sum(leaf.size for leaf in leaves),), given, f"the sum of {_told(leaves)}"


def _told(leaves: tuple[Leaf, ...]) -> str:
    """Return a layout as parties compare it: its first leaves, and a digest of all."""
    lines = [str(leaf) for leaf in leaves]
    digest = hashlib.sha256(domain_tag("update layout", *lines)).hexdigest()
    return f"{'; '.join(lines[:SHOWN])}{', …' * (len(lines) > SHOWN)}, in all {digest[:32]}"
