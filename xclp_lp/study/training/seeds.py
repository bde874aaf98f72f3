"""Randomness of training: every draw depends on a seed and on what it is for, and on nothing else.

So a run that continues from a checkpoint draws what it would have drawn without the break, and no
state of a generator need be saved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from xclp_crypto.algebra.domain_tags import domain_tag


def derived(seed: int, *purpose: str | int) -> int:
    """Return a seed in [0, 2^63) for a purpose, such as ``("batches", round, client)``."""
    digest = hashlib.sha256(domain_tag("ssl/seed", seed, *purpose)).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return NumPy's generator for a purpose."""
    return np.random.Generator(np.random.PCG64(derived(seed, *purpose)))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let PyTorch draw from this seed inside the block, and as before after it.

    PyTorch's dropout and first weights take no generator, so its own is borrowed.
    """
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
