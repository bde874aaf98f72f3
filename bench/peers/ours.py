"""Our side of every comparison, in the project's own environment.

Everything that a session does is counted: key exchange, keys, encryption, sealing, encoding,
decoding, and the distances within each client, which no peer computes.
"""

from __future__ import annotations

import numpy as np
from measure import Clock, arguments, distances, load, write


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


def main() -> None:
    args = arguments()
    {"encryption": encryption, "naor-pinkas": transfers}.get(args.variant, hamming)(args)


if __name__ == "__main__":
    main()
