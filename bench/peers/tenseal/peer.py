"""TenSEAL: two parties, BFV, rows packed into slots.

The key owner has x, the evaluator y. A ciphertext holds 1 − 2x of all rows at N / rows columns,
column by column. The evaluator multiplies it with the bits of one row of y, each repeated for all
rows of x, and adds up: one answer per row of y, whose slots are partial sums of h − |x|. Masks that
cancel in the sum hide the partial sums. No rotations are needed. (BFV noise is not drowned, which
TenSEAL has no function for; that favours it.)

Variants: ``vector`` uses `tenseal.bfv_vector`; ``sealapi`` uses SEAL through `tenseal.sealapi`,
with plaintexts and ciphertexts kept in NTT form and answers switched to the smaller modulus.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import tenseal as ts
from measure import Clock, arguments, distances, load, write
from tenseal import sealapi

DEGREE, MODULUS = 4096, 1032193  # 20 bits; 109 bits of q: 128-bit security


def layout(x: np.ndarray) -> tuple[list[list[int]], int, int]:
    """Return the slots of every ciphertext, rows and columns in a ciphertext."""
    rows = max(1 << (len(x) - 1).bit_length(), 1)
    columns = DEGREE // rows
    if not columns or x.shape[1] % columns:
        raise SystemExit(f"at most {DEGREE} rows, and a multiple of {columns} bits")
    signed = np.zeros((rows, x.shape[1]), dtype=np.int64)
    signed[: len(x)] = 1 - 2 * x.astype(np.int64)
    starts = range(0, x.shape[1], columns)
    return [signed[:, s : s + columns].T.ravel().tolist() for s in starts], rows, columns


def zero_sum_mask(rows: int, columns: int) -> list[int]:
    """Return one uniform mask per slot such that those of each row cancel modulo t."""
    drawn = np.frombuffer(os.urandom(8 * rows * columns), dtype=np.uint64)
    mask = (drawn % MODULUS).astype(np.int64).reshape(columns, rows)
    mask[-1] = -mask[:-1].sum(0) % MODULUS
    return mask.ravel().tolist()


def opened(slots: list[int], weights: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the distances of one answer."""
    sums = np.array(slots, dtype=np.int64).reshape(columns, rows).sum(0)[: len(weights)]
    return (sums + weights) % MODULUS


def vector(x: np.ndarray, y: np.ndarray) -> tuple[Clock, Clock, int, np.ndarray]:
    with Clock() as keys:
        symmetric = ts.ENCRYPTION_TYPE.SYMMETRIC  # fresh ciphertexts take half the bytes
        context = ts.context(ts.SCHEME_TYPE.BFV, DEGREE, MODULUS, encryption_type=symmetric)
        public = context.serialize(
            save_public_key=False,
            save_secret_key=False,
            save_galois_keys=False,
            save_relin_keys=False,
        )
        theirs = ts.context_from(public)
    with Clock() as clock:
        slots, rows, columns = layout(x)
        messages = [ts.bfv_vector(context, s).serialize() for s in slots]
        sent = len(public) + sum(map(len, messages))
        received = [ts.bfv_vector_from(theirs, message) for message in messages]
        answers = []
        for row in y:
            bits = np.repeat(row.astype(np.int64), rows).reshape(-1, DEGREE)
            total = None
            for ciphertext, factor in zip(received, bits, strict=True):
                if factor.any():  # SEAL refuses a product with zero
                    term = ciphertext * factor.tolist()
                    total = term if total is None else total + term
            if total is None:
                raise SystemExit("a row of zeros")
            answers.append((total + zero_sum_mask(rows, columns)).serialize())
        sent += sum(map(len, answers))
        weights = x.sum(1, dtype=np.int64)
        columns_of_h = [
            opened(ts.bfv_vector_from(context, a).decrypt(), weights, rows, columns)
            for a in answers
        ]
    return keys, clock, sent, np.stack(columns_of_h, axis=1)


def by_sealapi(x: np.ndarray, y: np.ndarray) -> tuple[Clock, Clock, int, np.ndarray]:
    parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.BFV)
    parameters.set_poly_modulus_degree(DEGREE)
    security = sealapi.SEC_LEVEL_TYPE.TC128
    parameters.set_coeff_modulus(sealapi.CoeffModulus.BFVDefault(DEGREE, security))
    parameters.set_plain_modulus(MODULUS)
    with Clock() as keys:
        context = sealapi.SEALContext(parameters, True, security)
        secret = sealapi.KeyGenerator(context).secret_key()
    encoder, evaluator = sealapi.BatchEncoder(context), sealapi.Evaluator(context)
    encryptor, decryptor = (
        sealapi.Encryptor(context, secret),
        sealapi.Decryptor(context, secret),
    )
    level = context.first_parms_id()
    with tempfile.TemporaryDirectory() as folder, Clock() as clock:
        path = Path(folder) / "message"  # this interface serialises to files only
        sent = 0

        def message(ciphertext: sealapi.Ciphertext) -> sealapi.Ciphertext:
            nonlocal sent
            ciphertext.save(str(path))
            sent += path.stat().st_size
            received = sealapi.Ciphertext(context)
            received.load(context, str(path))
            return received

        def encoded(slots: list[int]) -> sealapi.Plaintext:
            plaintext = sealapi.Plaintext()
            encoder.encode(slots, plaintext)
            return plaintext

        slots, rows, columns = layout(x)
        ciphertexts = []
        for values in slots:
            ciphertext = message(
                encryptor.encrypt_symmetric(encoded([v % MODULUS for v in values]))
            )
            evaluator.transform_to_ntt_inplace(ciphertext)
            ciphertexts.append(ciphertext)
        term = sealapi.Ciphertext(context)
        weights = x.sum(1, dtype=np.int64)
        columns_of_h = []
        for row in y:
            bits = np.repeat(row.astype(np.int64), rows).reshape(-1, DEGREE)
            total = None
            for ciphertext, factor in zip(ciphertexts, bits, strict=True):
                if factor.any():
                    plaintext = encoded(factor.tolist())
                    evaluator.transform_to_ntt_inplace(plaintext, level)
                    if total is None:
                        total = sealapi.Ciphertext(context)
                        evaluator.multiply_plain(ciphertext, plaintext, total)
                    else:
                        evaluator.multiply_plain(ciphertext, plaintext, term)
                        evaluator.add_inplace(total, term)
            if total is None:
                raise SystemExit("a row of zeros")
            evaluator.transform_from_ntt_inplace(total)
            evaluator.mod_switch_to_next_inplace(total)
            evaluator.add_plain_inplace(total, encoded(zero_sum_mask(rows, columns)))
            plaintext = sealapi.Plaintext()
            decryptor.decrypt(message(total), plaintext)
            columns_of_h.append(opened(encoder.decode_uint64(plaintext), weights, rows, columns))
    return keys, clock, sent, np.stack(columns_of_h, axis=1)


def main() -> None:
    args = arguments()
    x, y = load(args.data)
    run = by_sealapi if args.variant == "sealapi" else vector
    keys, clock, sent, h = run(x, y)
    exact = np.array_equal(h, distances(x, y))
    write(args, clock, sent=sent, exact=exact, keys_seconds=keys.seconds)


if __name__ == "__main__":
    main()
