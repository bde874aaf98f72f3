"""What the owner of ring-LWE ciphertexts can see of the flood, for several test modules."""

import numpy as np
from scipy.interpolate import BSpline

IN_WORDS = BSpline.basis_element(np.arange(-2, 3)).antiderivative()
"""Distribution function of the flood in words: of a centred sum of four uniform numbers."""


def noise_of(secrets, c1, c2, parameters):
    """Return the noise next to the masked distances in c2, in units of 2^drop: int64, signed."""
    step = 1 << (parameters.switched_bits - parameters.plain_bits)
    phase = c2.astype(np.int64) - secrets.astype(np.int64) @ c1.astype(np.int64).T
    return (phase + step // 2) % step - step // 2


def flood_quantiles(noise, parameters):
    """Return what is uniform in [0, 1) if this noise is the flood.

    It also has the rounding of c1, which adds a hundredth to the variance.
    """
    drop = parameters.modulus_bits - parameters.switched_bits
    words = noise / 2.0 ** (parameters.flood_bits - drop)
    return np.clip(IN_WORDS(np.clip(words, -2, 2)), 0, np.nextafter(1, 0))
