"""Flower's SecAgg+: masks, unmasking and shares, as its client and its server do them; a round."""

from __future__ import annotations

import os

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    Status,
    ndarray_to_bytes,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    get_parameters_shape,
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.compat.common.recorddict_compat import fitres_to_recorddict, parameters_to_arrayrecord
from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)
from flwr.supercore.task_identity import TaskIdentity
from measure import (
    MEAN_DROPOUT,
    SUM_CLIENTS,
    SUM_THRESHOLD,
    Clock,
    arguments,
    mean_error,
    updates,
    write,
)

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


class Proxy:
    """A node that a strategy has sampled."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class Strategy(FedAvg):
    """Samples all nodes, and takes the mean as SecAgg+ has it."""

    def configure_fit(self, server_round, parameters, client_manager):
        return [(Proxy(node), FitIns(parameters, {})) for node in range(1, SUM_CLIENTS + 1)]

    def aggregate_fit(self, server_round, results, failures):
        self.left, self.mean = len(results), results[0][1].parameters
        return None, {}


class Nodes:
    """A grid that hands messages to the mod of each node in this process, taken apart as on a wire.

    One node drops out when it is asked for its masked update.
    """

    def __init__(self) -> None:
        self.contexts = {
            node: Context(1, node, {}, RecordDict(), {}) for node in range(1, SUM_CLIENTS + 1)
        }
        values, weights = updates()
        self.replies = [
            FitRes(Status(Code.OK, ""), ndarrays_to_parameters([v]), w, {})
            for v, w in zip(values, weights, strict=True)
        ]
        self.sent = 0

    def send_and_receive(self, messages, *, timeout=None):
        return [self._reply(message) for message in messages]

    def _reply(self, message):
        node = message.metadata.dst_node_id
        if message.content.array_records and node == MEAN_DROPOUT + 1:
            return Message(Error(0, "gone"), reply_to=message)
        question = Message(
            self._over_flower(message.content),
            dst_node_id=node,
            message_type=message.metadata.message_type,
        )
        reply = secaggplus_mod(question, self.contexts[node], self._train)
        reply.content = self._over_flower(reply.content)
        return reply

    def _over_flower(self, content: RecordDict) -> RecordDict:
        """Return what arrives of a message's content."""
        parts = {key: part.deflate() for key, part in get_all_nested_objects(content).items()}
        self.sent += sum(map(len, parts.values()))
        return inflate_object_from_contents(content.object_id, parts)

    def _train(self, message, context):
        content = fitres_to_recorddict(self.replies[context.node_id - 1], keep_input=True)
        return Message(content, reply_to=message)


def mean(args, values: np.ndarray) -> None:
    """Run rounds of the workflow with the mods, each from the first key to the mean.

    All ten hold shares of each other, and seven recover a secret, as on our side; range of values,
    steps of rounding and modulus are its defaults, with which it is off by up to 10^-5. Messages
    are taken apart and put together as Flower does for a wire; ours are, too, and are sealed.
    """
    for name in ("run_id", "node_id", "task_id"):
        setattr(TaskIdentity, f"_{name}", 1)
    strategy, nodes = Strategy(), Nodes()
    context = LegacyContext(
        Context(1, 0, {}, RecordDict(), {}), ServerConfig(1), strategy, SimpleClientManager()
    )
    context.state[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state[MAIN_PARAMS_RECORD] = parameters_to_arrayrecord(
        ndarrays_to_parameters([np.zeros(1, np.float32)]), keep_input=True
    )
    workflow = SecAggPlusWorkflow(SUM_CLIENTS, SUM_THRESHOLD)
    with Clock() as clock:
        for _ in range(args.count):
            workflow(nodes, context)
    (found,) = parameters_to_ndarrays(strategy.mean)
    error = mean_error(found)
    exact = error <= 2**-14 and strategy.left == SUM_CLIENTS - 1
    write(args, clock, sent=nodes.sent, exact=exact, error=error)


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
    work = {"mask": mask, "unmask": unmask, "mean": mean, "share": share, "recover": recover}
    work[args.variant](args, np.load(args.data / "sum.npy"))


if __name__ == "__main__":
    main()
