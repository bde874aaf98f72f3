"""Pictures from files, made small: vectors of pixels for the image data sets."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError


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
