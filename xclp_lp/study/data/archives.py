"""Finding files of data sets: a folder, an archive, or a place where packages put them."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.files.damaged import DAMAGED


def archive_files(path: Path, wanted: tuple[str, ...]) -> Mapping[str, bytes]:
    """Read files from a folder or from a .zip, .tar or .tar.gz archive.

    Args:
        path: of the folder or archive.
        wanted: patterns such as ``RawData/*.txt`` for the ends of their paths.

    Returns:
        Content by path within the folder or archive.

    Raises:
        DataError: there is no such folder or archive, or none of the files is in it.
    """
    if path.is_dir():
        found = {
            str(PurePosixPath(*file.relative_to(path).parts)): file.read_bytes()
            for pattern in wanted
            for file in sorted(path.rglob(pattern))
            if file.is_file()
        }
    elif path.is_file():
        try:
            found = _unpacked(path, wanted)
        except DataError:  # it is a ValueError as well
            raise
        except DAMAGED as error:
            raise DataError(f"{path} cannot be unpacked: {error}") from None
    else:
        raise DataError(f"{path} is neither a folder nor a zip or tar archive")
    if not found:
        raise DataError(f"{path} has no {' or '.join(wanted)}")
    return found


def _unpacked(path: Path, wanted: tuple[str, ...]) -> dict[str, bytes]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return {n: archive.read(n) for n in archive.namelist() if _is_one_of(n, wanted)}
    if not tarfile.is_tarfile(path):
        raise DataError(f"{path} is neither a folder nor a zip or tar archive")
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and _is_one_of(member.name, wanted):
                content = archive.extractfile(member)
                if content is not None:
                    found[member.name] = content.read()
    return found


def _is_one_of(name: str, wanted: tuple[str, ...]) -> bool:
    return any(PurePosixPath(name).match(pattern) for pattern in wanted)


def installed_file(path: Path, name: str, package: str) -> Path:
    """Return a file itself, or one of this name, gzipped or not, at any depth of a folder.

    Raises:
        ParameterError: there is none; says which of Debian's packages has it.
    """
    found = [path] if path.is_file() else sorted(path.rglob(f"{name}*"))
    found = [f for f in found if f == path or f.name in (name, f"{name}.gz")]
    if not found:
        raise ParameterError(
            f"there is no {name} at {path}; install Debian's {package}, run `make data`, or give "
            "the path of it"
        )
    return found[0]


def unzipped(path: Path) -> bytes:
    """Read a file, unpacked if it is gzipped.

    Raises:
        DataError: it does not exist or is damaged.
    """
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except DAMAGED as error:
        raise DataError(f"{path} cannot be read: {error}") from None
