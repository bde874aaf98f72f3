"""otc (Python over libsodium): oblivious transfers of 16-byte messages, one after the other.

One key of the sender serves all transfers, as in our batch; the receiver needs a key per transfer.
"""

from __future__ import annotations

import numpy as np
import oblivious
import otc
from measure import Clock, arguments, write


def main() -> None:
    args = arguments()
    if oblivious.ristretto.rbcl is None:
        raise SystemExit("otc does not find libsodium")
    messages = np.load(args.data / "messages.npy")[: args.count]
    choices = np.load(args.data / "choices.npy")[: args.count].tolist()
    pairs = [(a.tobytes(), b.tobytes()) for a, b in messages]
    chosen, sent = [], 0
    with Clock() as clock:
        sender = otc.send()
        sent += len(sender.public)
        for pair, choice in zip(pairs, choices, strict=True):
            receiver = otc.receive()
            query = receiver.query(sender.public, choice)
            replies = sender.reply(query, *pair)
            sent += len(query) + sum(map(len, replies))
            chosen.append(receiver.elect(sender.public, choice, *replies))
    exact = chosen == [pair[choice] for pair, choice in zip(pairs, choices, strict=True)]
    write(args, clock, sent=sent, exact=exact)


if __name__ == "__main__":
    main()
