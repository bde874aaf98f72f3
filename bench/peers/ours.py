"""Our side of every comparison, in the project's own environment.

Everything that a session does is counted: key exchange, keys, encryption, sealing, encoding,
decoding, and the distances within each client, which no peer computes.
"""

from __future__ import annotations

import numpy as np
from measure import (
    MEAN_DROPOUT,
    SUM_CLIENTS,
    SUM_THRESHOLD,
    Clock,
    arguments,
    distances,
    load,
    mean_error,
    updates,
    write,
)


def paillier_parameters(bits: int):
    """Return the parameter set of this key size."""
    from xclp_crypto.params import PAILLIER_PARAMETERS

    sizes = {p.modulus_bits: p for p in PAILLIER_PARAMETERS.values()}
    if bits not in sizes:
        raise SystemExit(f"no Paillier parameter set of {bits} bits: {sorted(sizes)}")
    return sizes[bits]


def back_end(name: str, key_bits: int):
    """Return a hamming back end; Paillier ones with keys of this size."""
    from xclp_crypto.protocols.hamming import get_backend

    if name != "paillier-packed":
        return get_backend(name)
    from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked

    return PaillierPacked(paillier_parameters(key_bits))


def hamming(args) -> None:
    from xclp_crypto import secure_hamming

    x, y = load(args.data)
    chosen = back_end(args.variant, args.key_bits)
    with Clock() as clock:
        h, cost = secure_hamming([x, y], chosen)
    exact = np.array_equal(h[: len(x), len(x) :], distances(x, y))
    steps = {f"step {name}": sum(cost.seconds_by_party(name).values()) for name in cost.steps}
    write(args, clock, sent=cost.total_bytes, exact=exact, **steps)


def encryption(args) -> None:
    """Encrypt a batch as the owner of the key."""
    from xclp_crypto.primitives.paillier import decrypt, encrypt, generate
    from xclp_crypto.rng import SystemRng

    rng = SystemRng()
    with Clock() as keys:
        key = generate(rng, paillier_parameters(args.key_bits))
    values = np.load(args.data / "values.npy")[: args.count]
    with Clock() as clock:
        ciphertexts = encrypt(key, values, rng)
    exact = np.array_equal(decrypt(key, ciphertexts[:20]), values[:20])
    sent = len(values) * args.key_bits // 4
    write(args, clock, sent=sent, exact=exact, keys_seconds=keys.seconds)


def encryption_single(args) -> None:
    """Encrypt with the public key, one integer in each call."""
    from xclp_crypto.primitives.paillier import decrypt, encrypt, generate
    from xclp_crypto.rng import SystemRng

    rng = SystemRng()
    with Clock() as keys:
        key = generate(rng, paillier_parameters(args.key_bits))
    values = np.load(args.data / "values.npy")[: args.count].tolist()
    with Clock() as clock:
        ciphertexts = [encrypt(key.public, value, rng) for value in values]
    exact = [decrypt(key, c).item() for c in ciphertexts[:20]] == values[:20]
    sent = len(values) * args.key_bits // 4
    write(args, clock, sent=sent, exact=exact, keys_seconds=keys.seconds)


def transfers(args) -> None:
    """Run one batch of Naor–Pinkas transfers between two parties."""
    from xclp_crypto.protocols.ot import Choices, naor_pinkas
    from xclp_crypto.rng import SystemRng
    from xclp_crypto.transport.simulate import Simulation

    messages = np.load(args.data / "messages.npy")[: args.count]
    choices = np.load(args.data / "choices.npy")[: args.count].astype(bool)
    sid, rng = bytes(32), SystemRng()

    async def sender(io):
        await naor_pinkas(io, {"receiver": messages}, {}, sid, rng)

    async def receiver(io):
        request = Choices(choices, messages.shape[2])
        return (await naor_pinkas(io, {}, {"sender": request}, sid, rng))["sender"]

    with Clock() as clock:
        outcome = Simulation().run({"sender": sender, "receiver": receiver})
        outcome.raise_errors()
    expected = messages[np.arange(len(choices)), choices.astype(int)]
    exact = np.array_equal(outcome.results["receiver"], expected)
    write(args, clock, sent=outcome.cost.total_bytes, exact=exact)


def mean(args) -> None:
    """Run rounds of a secure mean, key exchange and all messages included."""
    from xclp_crypto import secure_mean

    values, weights = updates()
    drop = {f"client-{MEAN_DROPOUT}": "upload"}
    with Clock() as clock:
        for _ in range(args.count):
            found = secure_mean(values, weights, threshold=SUM_THRESHOLD, drop=drop)
    error = mean_error(found.mean)
    exact = error <= 2**-20 and len(found.survivors) == SUM_CLIENTS - 1
    write(args, clock, sent=args.count * found.cost.total_bytes, exact=exact, error=error)


def sum_masking(args) -> None:
    """Derive the masks with 9 peers and add them, and the own one, to 32-bit values."""
    graph, sessions, pad_keys, seeds, tag = _sum_state()
    values = np.load(args.data / "sum.npy").astype(np.uint32).reshape(-1, 1)
    me, *peers = graph.clients

    def masked(me: str) -> np.ndarray:
        total = values.copy()
        _client_masks(sessions[me], graph, seeds[me], tag).mask(total, 1 << 32)
        return total

    with Clock() as clock:
        for _ in range(args.count):
            upload = masked(me)
    sent = args.count * upload.nbytes
    total = sum(map(masked, peers), upload)
    shares = _sum_shares(graph, pad_keys, seeds, ())
    found = _strip(total, graph, _sum_ready(graph, sessions, pad_keys, seeds, tag), tag, shares)
    exact = np.array_equal(found, SUM_CLIENTS * values)
    write(args, clock, sent=sent, exact=exact)


def sum_unmasking(args) -> None:
    """Take the masks off a sum of 32-bit values that one of 10 clients did not add to."""
    graph, sessions, pad_keys, seeds, tag = _sum_state()
    values = np.load(args.data / "sum.npy").astype(np.uint32).reshape(-1, 1)
    dropout, *left = graph.clients
    total = np.zeros_like(values)
    for me in left:
        upload = values.copy()
        _client_masks(sessions[me], graph, seeds[me], tag).mask(upload, 1 << 32)
        total += upload
    ready = _sum_ready(graph, sessions, pad_keys, seeds, tag)
    shares = _sum_shares(graph, pad_keys, seeds, (dropout,))
    with Clock() as clock:
        for _ in range(args.count):
            found = _strip(total.copy(), graph, ready, tag, shares, (dropout,))
    sent = args.count * sum(len(s.encode()) for held in shares.values() for s in held)
    write(args, clock, sent=sent, exact=np.array_equal(found, len(left) * values))


def sum_sharing(args) -> None:
    """Share a secret of 32 bytes among 10."""
    from xclp_crypto.primitives.shamir import recover_secret, share_secret
    from xclp_crypto.rng import SystemRng

    rng = SystemRng()
    secret = rng.bytes(32)
    with Clock() as clock:
        for _ in range(args.count):
            shares = share_secret(secret, SUM_THRESHOLD, range(1, SUM_CLIENTS + 1), rng)
            encoded = [share.encode() for share in shares]
    exact = recover_secret(shares[:SUM_THRESHOLD]) == secret
    write(args, clock, sent=args.count * sum(map(len, encoded)), exact=exact)


def sum_recovering(args) -> None:
    """Recover a secret of 32 bytes from 7 of 10 shares."""
    from xclp_crypto.primitives.shamir import Share, recover_secret, share_secret
    from xclp_crypto.rng import SystemRng

    rng = SystemRng()
    secret = rng.bytes(32)
    shares = share_secret(secret, SUM_THRESHOLD, range(1, SUM_CLIENTS + 1), rng)
    encoded = [share.encode() for share in shares[:SUM_THRESHOLD]]
    with Clock() as clock:
        for _ in range(args.count):
            found = recover_secret([Share.decode(data) for data in encoded])
    write(args, clock, sent=args.count * sum(map(len, encoded)), exact=found == secret)


def _sum_state():
    """Return the graph, a session of each client, their pad keys and seeds, and the sum's tag."""
    from xclp_crypto.algebra.domain_tags import domain_tag
    from xclp_crypto.protocols.secure_sum import MaskGraph
    from xclp_crypto.protocols.setup import Session
    from xclp_crypto.rng import SystemRng
    from xclp_crypto.transport.driver import DriverIO

    rng = SystemRng()
    graph = MaskGraph.complete([f"client-{i}" for i in range(SUM_CLIENTS)], SUM_THRESHOLD)
    pairs = {frozenset((a, b)): rng.bytes(32) for a in graph.clients for b in graph.clients}
    sessions = {
        me: Session(
            DriverIO(me, None, print),
            b"session of a benchmark",
            {c: pairs[frozenset((me, c))] for c in graph.clients if c != me},
            dict.fromkeys(graph.clients, ()),
            authenticated=False,
            verify_keys={},
            signing=None,
        )
        for me in graph.clients
    }
    pad_keys, seeds = ({c: rng.bytes(32) for c in graph.clients} for _ in range(2))
    return graph, sessions, pad_keys, seeds, domain_tag("sum of a benchmark")


def _client_masks(session, graph, seed, tag):
    """Return the masks of one client."""
    from xclp_crypto.protocols.secure_sum.double_masks import ClientMasks
    from xclp_crypto.protocols.secure_sum.keyed_masks import pair_keys

    keys = pair_keys(session, session.peers, tag)
    pairs = {c: key.tobytes() for c, key in zip(session.peers, keys, strict=True)}
    return ClientMasks(session.io.name, tag, graph.clients, seed, pairs, {})


def _sum_ready(graph, sessions, pad_keys, seeds, tag):
    """Return, by client, what it sends the server before its upload."""
    from xclp_crypto.protocols.secure_sum.double_masks import SumReady
    from xclp_crypto.protocols.secure_sum.keyed_masks import pair_keys, secret_image, under_pads

    ready = {}
    for me, session in sessions.items():
        images = (secret_image(secret, tag, me) for secret in (pad_keys[me], seeds[me]))
        padded = under_pads(pair_keys(session, session.peers, tag), pad_keys[me], tag, me)
        ready[me] = SumReady(*images, b"", np.ones(len(padded), bool), padded)
    return ready


def _sum_shares(graph, pad_keys, seeds, dropouts):
    """Return what the survivors reveal: by client, their shares of its seed or of its pad key."""
    from xclp_crypto.primitives.shamir import share_secret
    from xclp_crypto.rng import SystemRng

    rng, indices = SystemRng(), [graph.indices[c] for c in graph.clients if c not in dropouts]
    return {
        c: share_secret(pad_keys[c] if c in dropouts else seeds[c], SUM_THRESHOLD, indices, rng)
        for c in graph.clients
    }


def _strip(total, graph, ready, tag, shares, dropouts=()):
    """Recover the secrets and take all masks that did not cancel from the sum, in place."""
    from xclp_crypto.protocols.secure_sum import double_masks

    masks = double_masks.ServerMasks(graph, tag, ready)
    left = {c for c in graph.clients if c not in dropouts}
    for client, held in shares.items():
        double_masks.strip_masks(masks, client, held, left, total, 1 << 32, {})
    return total


def main() -> None:
    args = arguments()
    work = {
        "encryption": encryption,
        "encryption-single": encryption_single,
        "mean": mean,
        "naor-pinkas": transfers,
        "sum-masking": sum_masking,
        "sum-unmasking": sum_unmasking,
        "sum-sharing": sum_sharing,
        "sum-recovering": sum_recovering,
    }
    work.get(args.variant, hamming)(args)


if __name__ == "__main__":
    main()
