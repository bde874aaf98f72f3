"""The programs on the pages of `docs/learn/crypto`; as a script, writes them to files for mypy."""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "learn" / "crypto"
PORT = "9473"
"""Of programs that run two at a time, the one that listens first."""


def python_blocks(text: str) -> list[str]:
    """Return the blocks of Python in a page, in order."""
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def _blocks(page: str) -> list[str]:
    return python_blocks((PAGES / f"{page}.md").read_text(encoding="utf-8"))


def program(page: str) -> str:
    """Return a page's blocks that go on from each other, as one program; may be empty."""
    return "\n".join(block for block in _blocks(page) if PORT not in block)


def pair(page: str) -> tuple[str, str]:
    """Return a page's two programs that talk to each other."""
    listening, calling = (block for block in _blocks(page) if PORT in block)
    return listening, calling


def main(folder: Path) -> None:
    """Write every program to a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in (path.stem for path in PAGES.glob("*.md")):
        alone = [block for block in _blocks(page) if PORT in block]
        for number, text in enumerate(filter(None, [program(page), *alone])):
            name = f"{page.replace('-', '_')}_{number}.py"
            (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
