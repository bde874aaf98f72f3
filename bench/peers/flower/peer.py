"""Flower's SecAgg+: masks, unmasking and shares, as its client and its server do them."""

from __future__ import annotations

import os

import numpy as np
from flwr.common import ndarray_to_bytes
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    get_parameters_shape,
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)
from measure import SUM_CLIENTS, SUM_THRESHOLD, Clock, arguments, write

RANGE = 1 << 32


class Client:
    """The state of one client when masks are agreed on."""

    def __init__(self) -> None:
        secret, public = generate_key_pairs()
        self.secret, self.public = private_key_to_bytes(secret), public_key_to_bytes(public)
        self.seed = os.urandom(32)


def masked(me: int, clients: list[Client], values: list[np.ndarray]) -> list[np.ndarray]:
    """Mask as `_collect_masked_vectors` does after quantising."""
    shapes = [a.shape for a in values]
    values = parameters_addition(values, pseudo_rand_gen(clients[me].seed, RANGE, shapes))
    for peer, other in enumerate(clients):
        if peer != me:
            shared = generate_shared_key(
                bytes_to_private_key(clients[me].secret), bytes_to_public_key(other.public)
            )
            mask = pseudo_rand_gen(shared, RANGE, shapes)
            values = (parameters_addition if me > peer else parameters_subtraction)(values, mask)
    return parameters_mod(values, RANGE)


def unmasked(
    total: list[np.ndarray], clients: list[Client], shares: list[list[bytes]], gone: int
) -> list[np.ndarray]:
    """Unmask as the stage `unmask` of the server does before dequantising."""
    for me, held in enumerate(shares):
        secret = combine_shares(held)
        if me != gone:
            mask = pseudo_rand_gen(secret, RANGE, get_parameters_shape(total))
            total = parameters_subtraction(total, mask)
            continue
        for peer, other in enumerate(clients):
            if peer != gone:
                shared = generate_shared_key(
                    bytes_to_private_key(secret), bytes_to_public_key(other.public)
                )
                mask = pseudo_rand_gen(shared, RANGE, get_parameters_shape(total))
                total = (parameters_addition if gone > peer else parameters_subtraction)(
                    total, mask
                )
    return parameters_mod(total, RANGE)


def weaknesses() -> dict[str, float]:
    """Return what can be seen of the masks: two seeds with one mask, and how often the top comes.

    A seed of 32 bytes is folded into 32 bits, and the range is drawn from without its last value.
    """
    seed = os.urandom(32)
    other = seed[4:8] + seed[:4] + seed[8:]
    shape = [(100_000,)]
    same = all(map(np.array_equal, *(pseudo_rand_gen(s, RANGE, shape) for s in (seed, other))))
    (small,) = pseudo_rand_gen(seed, 4, shape)
    return {
        "other_seeds_with_equal_masks": float(seed != other and same),
        "share_of_top_value_in_range_of_4": float((small == 3).mean()),
    }


def mask(args, values: np.ndarray) -> None:
    clients = [Client() for _ in range(SUM_CLIENTS)]
    with Clock() as clock:
        for _ in range(args.count):
            (upload,) = masked(0, clients, [values])
    clear = parameters_subtraction(
        [upload], pseudo_rand_gen(clients[0].seed, RANGE, [values.shape])
    )
    for other in clients[1:]:
        shared = generate_shared_key(
            bytes_to_private_key(other.secret), bytes_to_public_key(clients[0].public)
        )
        clear = parameters_addition(clear, pseudo_rand_gen(shared, RANGE, [values.shape]))
    exact = np.array_equal(parameters_mod(clear, RANGE)[0], values)
    sent = args.count * len(ndarray_to_bytes(upload))
    write(args, clock, sent=sent, exact=exact, **weaknesses())


def unmask(args, values: np.ndarray) -> None:
    clients = [Client() for _ in range(SUM_CLIENTS)]
    gone = 0
    total = [np.zeros(values.shape, np.int64)]
    for me in range(1, SUM_CLIENTS):
        total = parameters_addition(total, masked(me, clients, [values]))
    secrets = [c.secret if me == gone else c.seed for me, c in enumerate(clients)]
    shares = [create_shares(s, SUM_THRESHOLD, SUM_CLIENTS)[1:] for s in secrets]
    with Clock() as clock:
        for _ in range(args.count):
            (found,) = unmasked(total, clients, shares, gone)
    exact = np.array_equal(found, (SUM_CLIENTS - 1) * values % RANGE)
    sent = args.count * sum(len(share) for held in shares for share in held)
    write(args, clock, sent=sent, exact=exact)


def share(args, values: np.ndarray) -> None:
    secret = os.urandom(32)
    with Clock() as clock:
        for _ in range(args.count):
            shares = create_shares(secret, SUM_THRESHOLD, SUM_CLIENTS)
    exact = combine_shares(shares[:SUM_THRESHOLD]) == secret
    write(args, clock, sent=args.count * sum(map(len, shares)), exact=exact)


def recover(args, values: np.ndarray) -> None:
    secret = os.urandom(32)
    shares = create_shares(secret, SUM_THRESHOLD, SUM_CLIENTS)[:SUM_THRESHOLD]
    with Clock() as clock:
        for _ in range(args.count):
            found = combine_shares(shares)
    write(args, clock, sent=args.count * sum(map(len, shares)), exact=found == secret)


def main() -> None:
    args = arguments()
    work = {"mask": mask, "unmask": unmask, "share": share, "recover": recover}[args.variant]
    work(args, np.load(args.data / "sum.npy"))


if __name__ == "__main__":
    main()
