"""Files that are either complete or as they were: written beside their place, and moved there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


def write_whole(file: Path, content: bytes) -> Path:
    """Write one file; return it.

    Raises:
        OSError: that cannot be done, and the file is as it was.
    """
    with whole_files(file.parent) as scratch:
        (scratch / file.name).write_bytes(content)
    return file


@contextmanager
def whole_files(folder: Path) -> Iterator[Path]:
    """Give the block a scratch folder, whose files go to `folder` when the block has ended well.

    They replace files of the same names, all or none of them, and keep their modes. Only the user
    may look into the scratch folder. `folder` is made if it is missing. A machine that fails while
    files are moved may leave some of them old and some new, but none of them half.

    Raises:
        OSError: that cannot be done, and all is as it was.
    """
    place = next(place for place in (folder, *folder.parents) if place.exists())
    with tempfile.TemporaryDirectory(prefix=".xclp-", dir=place) as scratch:
        new, old = Path(scratch, "new"), Path(scratch, "old")
        new.mkdir()
        yield new
        files = sorted(new.iterdir())
        for file in files:  # what they hold survives a failure of the machine
            with file.open("rb+") as opened:
                os.fsync(opened)
        folder.mkdir(parents=True, exist_ok=True)
        old.mkdir()
        _move(files, folder, old)


def _move(files: list[Path], folder: Path, old: Path) -> None:
    """Move files to a folder; undo all of it if one cannot be moved."""
    with ExitStack() as undo:
        for i, file in enumerate(files):
            place = folder / file.name
            if i + 1 < len(files):  # moving the last one is never undone
                if place.exists():
                    saved = Path(shutil.copy2(place, old, follow_symlinks=False))
                    undo.callback(saved.replace, place)
                else:
                    undo.callback(place.unlink, missing_ok=True)
            file.replace(place)
        undo.pop_all()


def why_not_writable(folder: Path, names: Iterable[str] = ()) -> str | None:
    """Return why `whole_files` could not write files of these names; found by trying.

    A dummy is put under every name that is free, and removed. What is there already is moved away
    and back. A folder that is missing is not made.
    """
    place = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
    if not place.is_dir():
        return f"{place} is a {'link to nothing' if place.is_symlink() else 'file'}"
    tried = place
    try:
        with tempfile.TemporaryDirectory(prefix=".xclp-", dir=place) as scratch:
            inner = scratch / folder.relative_to(place)
            inner.mkdir(parents=True, exist_ok=True)
            for name in names:
                tried = folder / name
                if tried.is_dir():
                    return f"{tried} is a folder"
                (inner / name).write_bytes(b"\0")
                if place == folder:
                    _replace_and_undo(tried, inner / name, Path(f"{scratch}-old"))
    except OSError as error:
        return f"{tried} cannot be written: {error.strerror}"
    return None


def _replace_and_undo(file: Path, dummy: Path, aside: Path) -> None:
    """Move a file away and back, since only then may it be replaced; or put a dummy there."""
    if os.path.lexists(file):
        file.rename(aside)  # not to the scratch folder, with which it would go if this is stopped
        aside.rename(file)
    else:
        dummy.replace(file)
        file.unlink()
