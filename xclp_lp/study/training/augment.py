"""Augmentations of batches of pictures: the paper's appendix, network training parameters.

All draw from PyTorch's generator; training calls them inside `xclp_lp.study.training.seeds.seeded`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

TRANSLATION = 4
"""Pixels by which pictures are moved at most."""
ROTATION = 10.0
"""Degrees by which pictures are turned at most."""


def unchanged(x: Tensor) -> Tensor:
    """Return the batch as it is."""
    return x


def translated(x: Tensor) -> Tensor:
    """Move each picture by −4 … 4 pixels each way; what comes in is reflected at the border.

    Args:
        x: (n, channels, height, width), sides above 4.
    """
    n, _, height, width = x.shape
    padded = F.pad(x, (TRANSLATION,) * 4, mode="reflect")
    start = torch.randint(2 * TRANSLATION + 1, (2, n, 1), device=x.device)
    rows = start[0] + torch.arange(height, device=x.device)
    columns = start[1] + torch.arange(width, device=x.device)
    picture = torch.arange(n, device=x.device)[:, None, None]
    # Indices beside the slice put the channels last.
    return padded[picture, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def flipped(x: Tensor) -> Tensor:
    """Mirror each picture left to right with probability 1/2."""
    heads = torch.randint(2, (len(x), 1, 1, 1), device=x.device).bool()
    return torch.where(heads, x.flip(-1), x)


def rotated(x: Tensor) -> Tensor:
    """Turn each picture by −10 … 10 degrees about its centre; what comes in is 0."""
    angle = (2 * torch.rand(len(x), device=x.device) - 1) * math.radians(ROTATION)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack(
        [torch.stack([cos, -sin, zero], dim=1), torch.stack([sin, cos, zero], dim=1)], dim=1
    )
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


def noisy(x: Tensor) -> Tensor:
    """Add Gaussian noise of standard deviation 0.1, for inputs that are not pictures."""
    return x + 0.1 * torch.randn_like(x)


Augmentation = Callable[[Tensor], Tensor]

AUGMENTATIONS: dict[str, Augmentation] = {
    "none": unchanged,
    "flip": flipped,
    "translate-flip": lambda x: flipped(translated(x)),
    "rotate-flip": lambda x: flipped(rotated(x)),
    "noise": noisy,
}
"""By name; the paper's are ``translate-flip`` for CIFAR and ``rotate-flip`` for Mini-ImageNet."""

PICTURES_ONLY = ("flip", "translate-flip", "rotate-flip")
"""Augmentations that need inputs with height and width."""
