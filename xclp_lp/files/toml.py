"""Reading TOML: what cannot be read, sections and fields that are not known."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xclp_crypto.errors import ParameterError
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.tables import SUFFIXES

PARAMETERS = (
    "n_bits",
    "k",
    "alpha",
    "gamma",
    "projection",
    "hamming",
    "include_self",
    "ties",
    "classes",
    "fraction_bits",
    "threshold",
    "class_weight",
    "privacy",
    "reset_labelled",
    "relative_confidence",
    "groups",
    "random_state",
)
PRIVACY_FIELDS = ("epsilon", "delta", "noise_contributors")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ParameterError: it cannot be read, or is not TOML.
    """
    if path.suffix.lower() in SUFFIXES:
        raise ParameterError(
            f"{path} is not a federation file (TOML) but data, which such a file names: "
            f'features = "{path.name}"'
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ParameterError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"{path} is not encoded in UTF-8; save it as UTF-8") from None
    except IsADirectoryError:
        raise ParameterError(f"{path} is a folder; name a federation file in it") from None
    except OSError as error:
        raise ParameterError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no TOML, or thousands of digits or brackets
        quotes = '; text needs quotes, as in hamming = "plain"' * ("Invalid value" in str(error))
        raise ParameterError(f"{path}: {error}{quotes}") from None


def privacy_of(section: Any, path: Path) -> LabelPrivacy | RandomizedResponse:
    """Return the privacy that the section asks for: epsilon alone, or all of its fields.

    Raises:
        ParameterError: a field is missing, unknown or out of range.
    """
    where = f"{path}, [parameters.privacy]"
    if not isinstance(section, dict):
        raise ParameterError(f"{where} must be a section, got {section!r}")
    require_known(section, PRIVACY_FIELDS, where)
    alone = set(section) == {"epsilon"}
    for field in PRIVACY_FIELDS:
        if field not in section and not alone:
            raise ParameterError(f"{where}: {field} is missing")
    try:
        return RandomizedResponse(**section) if alone else LabelPrivacy(**section)
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None


def section_of(content: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """Return a section of a file, empty where it is not there.

    Raises:
        ParameterError: it is no section.
    """
    section = content.get(name, {})
    if not isinstance(section, dict):
        raise ParameterError(f"{where}: {name} must be a section, got {section!r}")
    return section


def require_known(section: dict[str, Any], known: Sequence[str], where: str) -> None:
    """Refuse fields that a section does not have; they may be mistyped.

    Raises:
        ParameterError: names the field and those that exist.
    """
    for field in section:
        if field not in known:
            raise ParameterError(
                f"{where}: unknown field {field!r}; the fields are {', '.join(known)}"
                f"{did_you_mean(field, known)}"
            )
