"""pypaillier (Rust, GMP): encryption of a batch of integers in one call, or of one in each.

It chooses safe primes, so making the key takes long; that is not counted. There is no faster path
for the owner of the key.
"""

from __future__ import annotations

import numpy as np
import paillier
from measure import Clock, arguments, write


def main() -> None:
    args = arguments()
    with Clock() as keys:
        public, secret = paillier.generate_keypair(args.key_bits)
    values = np.load(args.data / "values.npy")[: args.count].tolist()
    with Clock() as clock:
        if args.variant == "single":
            ciphertexts = [paillier.encrypt_integers(public, [value])[0] for value in values]
        else:
            ciphertexts = paillier.encrypt_integers(public, values)
    sample = slice(0, 20)
    opened = [int(v) for v in paillier.decrypt_many(secret, ciphertexts[sample])]
    sent = sum(map(len, ciphertexts))
    write(args, clock, sent=sent, exact=opened == values[sample], keys_seconds=keys.seconds)


if __name__ == "__main__":
    main()
