"""HEU: two parties, additively homomorphic encryption, packed by hand.

The key owner has x, the evaluator y. A ciphertext holds 1 − 2x of many rows at one column, in slots
just wide enough for a distance. The evaluator adds up the ciphertexts where its row has ones,
re-randomises with an encryption of zero, and the owner adds |x| to every slot: h, and nothing else.

Variants: the schema, ``OU`` (Okamoto–Uchiyama) or ``ZPaillier``; with ``-tables`` appended, the
evaluator first computes the sums of all subsets of every five columns, which halves its additions.
"""

from __future__ import annotations

import numpy as np
from heu import numpy as hnp
from heu import phe
from measure import Clock, arguments, distances, load, write

TABLE_COLUMNS = 5


def slots_of(schema: str, key_bits: int, width: int) -> int:
    """Return how many slots fit: plaintexts are a third of the key (OU), or all of it."""
    usable = key_bits // 3 - 12 if schema == "OU" else key_bits - 8
    return usable // width


def packed(columns: np.ndarray, width: int) -> list[int]:
    """Return Σ_i columns[i, l]·2^(width·i) for every l; entries may be negative."""
    positive = (columns > 0).astype(np.uint8)
    plus, minus = _binary(positive, width), _binary(1 - positive, width)
    return [p - q for p, q in zip(plus, minus, strict=True)]


def _binary(bits: np.ndarray, width: int) -> list[int]:
    spread = np.zeros((bits.shape[1], len(bits) * width), dtype=np.uint8)
    spread[:, ::width] = bits.T
    rows = np.packbits(spread, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def subset_tables(length: int) -> list[list[int]]:
    """Return the columns of every non-empty subset of every group of five, group by group."""
    return [
        [start + i for i in range(TABLE_COLUMNS) if pattern >> i & 1 and start + i < length]
        or [start]  # a subset outside the last group; never looked up
        for start in range(0, length, TABLE_COLUMNS)
        for pattern in range(1, 1 << TABLE_COLUMNS)
    ]


def lookups(row: np.ndarray) -> list[int]:
    """Return the entries of `subset_tables` whose sum is that of the ones of a row."""
    bits = np.zeros(-(-len(row) // TABLE_COLUMNS) * TABLE_COLUMNS, dtype=np.int64)
    bits[: len(row)] = row
    patterns = bits.reshape(-1, TABLE_COLUMNS) @ (1 << np.arange(TABLE_COLUMNS))
    groups = np.flatnonzero(patterns)
    return (groups * ((1 << TABLE_COLUMNS) - 1) + patterns[groups] - 1).tolist()


def main() -> None:
    args = arguments()
    x, y = load(args.data)
    schema, _, tables = args.variant.partition("-")
    with Clock() as keys:
        owner = hnp.setup(getattr(phe.SchemaType, schema), args.key_bits)
    evaluator = hnp.setup(owner.public_key())
    encoder = phe.BigintEncoderParams()
    width = x.shape[1].bit_length()
    slots = slots_of(schema, args.key_bits, width)
    sent = 0
    blocks = []

    def message(array: hnp.CiphertextArray) -> hnp.CiphertextArray:
        nonlocal sent
        data = array.serialize()
        sent += len(data)
        return hnp.CiphertextArray.load_from(data)

    with Clock() as clock:
        signed = 1 - 2 * x.astype(np.int8)
        if tables:
            subsets, chosen = subset_tables(x.shape[1]), [lookups(row) for row in y]
        else:
            chosen = [np.flatnonzero(row).tolist() for row in y]
        zeros = evaluator.array(np.zeros(len(y), dtype=object), encoder)
        for start in range(0, len(x), slots):
            rows = slice(start, start + slots)
            numbers = np.array(packed(signed[rows], width), dtype=object)
            block = message(owner.encryptor().encrypt(owner.array(numbers, encoder)))

            work = evaluator.evaluator()
            if tables:
                block = work.batch_select_sum(block, subsets)
            sums = work.batch_select_sum(block, chosen)
            answers = message(work.add(sums, evaluator.encryptor().encrypt(zeros)))

            plain = owner.decryptor().decrypt(answers).to_numpy(owner.bigint_encoder())
            count = len(x[rows])
            weights = sum(
                int(w) << (width * i) for i, w in enumerate(x[rows].sum(1, dtype=np.int64))
            )
            mask = (1 << width) - 1
            blocks.append(
                [[(int(v) + weights) >> (width * i) & mask for v in plain] for i in range(count)]
            )
        h = np.concatenate([np.array(block) for block in blocks])
    exact = np.array_equal(h, distances(x, y))
    write(args, clock, sent=sent, exact=exact, keys_seconds=keys.seconds, slots=slots)


if __name__ == "__main__":
    main()
