"""Pictures: how rows of data sets are such, and small ones from files."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError


@dataclass(frozen=True)
class Pictures:
    """How a data set's features are the pixels of square pictures.

    Attributes:
        channels: 1 for grey, 3 for colours.
        channels_last: pixel by pixel instead of channel by channel.
        low: of a pixel.
        high: of a pixel.
    """

    channels: int
    channels_last: bool = False
    low: float = 0.0
    high: float = 1.0

    def pixels(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return the pictures, (n, channels, side, side), pixels in [−1, 1].

        Args:
            features: (n, channels·side²).
        """
        side = math.isqrt(features.shape[1] // self.channels)
        x = features.astype(np.float32)
        if self.channels_last:
            x = x.reshape(-1, side, side, self.channels).transpose(0, 3, 1, 2)
        x = x.reshape(-1, self.channels, side, side)
        return np.ascontiguousarray(2 * (x - self.low) / (self.high - self.low) - 1)


PICTURES = {
    "cifar-10": Pictures(3),
    "cifar-100": Pictures(3),
    "digits": Pictures(1, low=-8.0, high=8.0),
    "fashion": Pictures(1),
    "femnist": Pictures(1),
    "mini-imagenet": Pictures(3, channels_last=True),
}
"""Data sets of pictures by name; the features of others are measurements."""


def small_picture(content: bytes, side: int, name: str) -> NDArray[np.uint8]:
    """Decode a picture, cut its middle square out and reduce it.

    Args:
        content: of a JPEG or PNG file.
        side: pixels of the result's sides.
        name: for errors.

    Returns:
        Shape (side, side, 3), uint8.

    Raises:
        ParameterError: Pillow is not installed.
        DataError: it is not a picture.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ParameterError(
            "pictures need the package pillow; install it with: pip install 'xclp[data]'"
        ) from None
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as picture:
            whole = picture.convert("RGB")
    except (
        OSError,
        SyntaxError,
        ValueError,
        UnidentifiedImageError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise DataError(f"{name} is not a picture: {error}") from None
    edge = min(whole.size)
    left, top = ((length - edge) // 2 for length in whole.size)
    square = whole.resize((side, side), Image.Resampling.BOX, (left, top, left + edge, top + edge))
    return np.asarray(square, dtype=np.uint8)
