"""phe (python-paillier) with gmpy2: encryption of integers one by one, which is all it offers."""

from __future__ import annotations

import numpy as np
import phe
from measure import Clock, arguments, write
from phe.util import HAVE_GMP


def main() -> None:
    args = arguments()
    if not HAVE_GMP:
        raise SystemExit("phe does not find gmpy2")
    with Clock() as keys:
        public, secret = phe.generate_paillier_keypair(n_length=args.key_bits)
    values = np.load(args.data / "values.npy")[: args.count].tolist()
    with Clock() as clock:
        ciphertexts = [public.raw_encrypt(value) for value in values]
    sample = slice(0, 20)
    exact = [secret.raw_decrypt(c) for c in ciphertexts[sample]] == values[sample]
    sent = len(values) * args.key_bits // 4
    write(args, clock, sent=sent, exact=exact, keys_seconds=keys.seconds)


if __name__ == "__main__":
    main()
