"""Write own.json, the frozen outputs of xclp's own formats: `python tests/vectors/generate.py`.

A change of that file is a change of format: parties of different versions could no longer work
together. tests/crypto/test_prg.py recomputes the file with a second, independent implementation.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from xclp_crypto.algebra.domain_tags import Context, domain_tag
from xclp_crypto.algebra.group import hash_to_point
from xclp_crypto.algebra.prg import derive_key, expand, stream
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.primitives.sealed_box import channel_pair
from xclp_crypto.rng import SeededRng

FILE = Path(__file__).with_name("own.json")

LABELS: list[tuple[str, tuple[Context, ...]]] = [
    ("purpose", ()),
    ("purpose", ("",)),
    ("purpose", (b"",)),
    ("purpose", (0,)),
    ("purpose", (1,)),
    ("purpose", ("1",)),
    ("purpose", (b"1",)),
    ("purpose", (255, 256, 2**64)),
    ("purpose", ("client é", 7, b"\x00\xff")),
    ("ot/pad", (b"session", "alice", "bob", 12, 1)),
]
MODULI = [
    *(1, 2, 3, 5, 128, 129, 255, 256, 257, 4096, 4097, 65521, 65536, 65537),
    *(2**31 - 1, 2**32, 2**32 + 1, 2**61 - 1, 2**63, 2**63 + 1, 2**64 - 59, 2**64),
]
COUNT = 1000


def typed(item: Context) -> dict[str, Any]:
    """Show the type of a context item in JSON."""
    return {type(item).__name__: item.hex() if isinstance(item, bytes) else item}


def expanded(m: int, draws: Residues) -> dict[str, Any]:
    """Describe residues modulo m."""
    words = draws.astype(draws.dtype.newbyteorder("<")).tobytes()
    return {
        "modulus": m,
        "first": draws[:6].tolist(),
        "dtype": str(draws.dtype),
        "sha256_of_little_endian_words": hashlib.sha256(words).hexdigest(),
    }


def vectors() -> dict[str, Any]:
    """Compute everything that own.json holds."""
    key = bytes(range(32))
    tag = domain_tag("vectors", 1)
    rng = SeededRng(2**64 + 1)
    child = rng.child("alice", 3)
    seal, _ = channel_pair(key, "alice", "bob", b"session")
    return {
        "source": "tests/vectors/generate.py",
        "key": key.hex(),
        "label": tag.hex(),
        "labels": [
            {
                "purpose": purpose,
                "context": [typed(c) for c in context],
                "label": domain_tag(purpose, *context).hex(),
            }
            for purpose, context in LABELS
        ],
        "derive_key": {str(n): derive_key(key, tag, n).hex() for n in (1, 16, 32, 33, 100)},
        "stream": {
            "first": stream(key, tag, 40).tobytes().hex(),
            "sha256_of_first_million": hashlib.sha256(stream(key, tag, 10**6)).hexdigest(),
        },
        "expand": [expanded(m, expand(key, tag, m, COUNT)) for m in MODULI],
        "seeded_rng": {
            "seed": 2**64 + 1,
            "bytes": rng.bytes(16).hex(),
            "residues_mod_1000": rng.residues(1000, 5).tolist(),
            "child_alice_3": child.bytes(16).hex(),
        },
        "hash_to_point": hash_to_point(tag, b"data").encode().hex(),
        "identity": {
            "text": IdentityKey(key).public.to_text(),
            "signature_of_label": IdentityKey(key).sign(tag).hex(),
        },
        "sealed": [seal.seal(b"message").hex(), seal.seal(b"message", b"associated").hex()],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
