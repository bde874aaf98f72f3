"""The ClientApp; where nodes are simulated, each has a share of scikit-learn's digits."""

from zlib import crc32

import numpy as np

from xclp_lp.flower.client import client_app

ROWS = 100
LABELLED = 10
MID_GREY = 8  # pixels are 0 … 16; around 0, a dark pixel and a bright one have opposite signs


def share(name):
    """Return pixels (100, 64) of a client, and digits of which ten are known and -1 the others."""
    from sklearn.datasets import load_digits  # here, as real nodes need none of it

    pixels, digits = load_digits(return_X_y=True)
    rows = np.random.default_rng(crc32(name.encode())).permutation(len(pixels))[:ROWS]
    known = np.where(np.arange(ROWS) < LABELLED, digits[rows], -1)
    return pixels[rows] - MID_GREY, known


app = client_app(simulated=share)
