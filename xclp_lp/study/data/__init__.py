"""Data sets spread over clients, for demonstrations, experiments and tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Unpack, get_args, get_origin

from xclp_crypto.errors import ParameterError
from xclp_crypto.wording import did_you_mean
from xclp_lp.study.data.cifar import load_cifar10, load_cifar100
from xclp_lp.study.data.digits import load_digits
from xclp_lp.study.data.fashion import load_fashion
from xclp_lp.study.data.federation import Federation, known_name, label_count_mask, label_mask
from xclp_lp.study.data.femnist import load_femnist
from xclp_lp.study.data.hapt import load_hapt
from xclp_lp.study.data.isic import load_isic
from xclp_lp.study.data.mini_imagenet import load_mini_imagenet
from xclp_lp.study.data.vowel import load_vowel
from xclp_lp.study.data.watch import load_watch
from xclp_lp.validation import checked, field_types

LOADERS: dict[str, Callable[..., Federation]] = {
    "cifar-10": load_cifar10,
    "cifar-100": load_cifar100,
    "digits": load_digits,
    "fashion": load_fashion,
    "fed-isic2019": load_isic,
    "femnist": load_femnist,
    "hapt": load_hapt,
    "mini-imagenet": load_mini_imagenet,
    "vowel": load_vowel,
    "watch": load_watch,
}
"""Every data set by name."""

__all__ = ["LOADERS", "Federation", "label_count_mask", "label_mask", "load"]


def load(name: str, **options: Any) -> Federation:
    """Load a data set by name.

    Args:
        name: a key of `LOADERS`.
        options: keyword arguments of that loader.

    Returns:
        The data set.

    Raises:
        ParameterError: the name or an option is unknown, an option is out of range, or a file or
            package that it needs is not there.
        DataError: a file is not in the format of this data set; names file, and writer or line.
    """
    known_name("data set", name, LOADERS)
    loader = LOADERS[name]
    known: dict[str, Any] = {}
    for option, hint in field_types(loader).items():
        known |= field_types(*get_args(hint)) if get_origin(hint) is Unpack else {option: hint}
    del known["return"]
    for option in options:
        if option not in known:
            raise ParameterError(
                f"the data set {name!r} has no option {option!r}; it has {', '.join(known)}"
                f"{did_you_mean(option, known)}"
            )
    path = inspect.signature(loader).parameters.get("path")
    if path is not None and path.default is path.empty and "path" not in options:
        raise ParameterError(
            f"the data set {name!r} cannot be installed as a package; give the path of its files"
        )
    return loader(**{o: checked(o, value, known[o]) for o, value in options.items()})
