"""All decoders."""

from __future__ import annotations

from pathlib import Path

from building_blocks import building_blocks
from decoders import Decoder
from files import files
from messages import messages
from transports import transports


def decoders(folder: Path) -> dict[str, Decoder]:
    """Return all decoders by name.

    Args:
        folder: an empty one, for those that take files.
    """
    every = (*messages(), *building_blocks(), *transports(), *files(folder))
    return {decoder.name: decoder for decoder in every}
