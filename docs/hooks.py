"""What the documentation site takes from elsewhere in the repository, when MkDocs builds it.

Comments in the pages are replaced, so that what is stated in one place is not written twice:

- ``<!-- README: Heading -->``: that section of the README, with its subsections;
- ``<!-- figure: module -->``: the message figure in the docstring of a module;
- ``<!-- messages -->``: all messages with tag and size, from their classes;
- ``<!-- parameters -->``: the security numbers with value and source, from `xclp_crypto.params`.

A line ``*In the repository …*``, which tells readers of a bare page where to find that, is dropped.
Links to files outside of `docs` become their names. A page that would load anything from another
host fails the build.
"""

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)*((?:examples|bench|tests|results)\b[^)]*)\)")
UNBUILT = re.compile(r"^\*In the repository .*\*\n\n?", re.MULTILINE)
FOREIGN = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace comments, then links that leave the folder, and drop what is for unbuilt pages."""
    markdown = UNBUILT.sub("", markdown)
    for name, make in DIRECTIVES.items():
        comment = re.compile(rf"^<!-- {name}(?:: (.+))? -->$", re.MULTILINE)
        markdown = comment.sub(lambda found, make=make: make(found[1]), markdown)
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace("](docs/", f"]({up}")  # in the README
    return OUTSIDE.sub(lambda link: named(link[1], link[2]), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Drop the colons by which docstrings announce a figure."""
    return html.replace("<p>::</p>\n", "").replace("::</p>", ":</p>")


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse what a browser would fetch from another host."""
    foreign = FOREIGN.search(output)
    if foreign and 'rel="canonical"' not in foreign[0]:
        raise PluginError(f"{page.file.src_uri} loads something from another host: {foreign[0]}")
    return output


def named(text: str, path: str) -> str:
    """Name a file of the repository that is not part of the site."""
    return f"`{path}`" if text.strip("`").rstrip("/") in path else f"{text} (`{path}`)"


def readme_section(heading: str) -> str:
    """Return the text under a heading of the README; under the title, up to the first section."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blank = FENCE.sub(lambda code: " " * len(code[0]), text)  # a # in code is not a heading
    start = re.search(rf"^(#+) {re.escape(heading)}$", blank, re.MULTILINE)
    if start is None:
        raise PluginError(f"the README has no section {heading!r}")
    end = re.compile(r"^##? ", re.MULTILINE).search(blank, start.end())
    return text[start.end() : end.start() if end else None].strip()


def module_doc(module: str) -> str:
    """Return the docstring of a module, which is not imported."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def figure(module: str) -> str:
    """Return the first indented block of a module's docstring."""
    block = re.search(r"::\n\n((?:    .*\n|\n)+)", module_doc(module) + "\n")
    if block is None:
        raise PluginError(f"the docstring of {module} has no figure")
    lines = [line.removeprefix("    ") for line in block[1].strip("\n").splitlines()]
    return "\n".join(["```text", *lines, "```"])


def messages(_: str | None) -> str:
    """Return a table for each module with messages."""
    tables = []
    for path in sorted(p for p in ROOT.glob("xclp_*/**/*.py") if p.name != "ideal.py"):
        rows = [
            f"| {ast.literal_eval(tag):#06x} | `{node.name}` | {what} | {size} |"
            for node, tag in tagged_classes(path)
            for what, size in [what_and_size(ast.get_docstring(node) or "")]
        ]
        if rows:
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            head = "| tag | message | what | bytes |\n|---|---|---|---|\n"
            short = module.removeprefix("xclp_crypto.protocols.")
            tables.append(f"### `{short}`\n\n{head}" + "\n".join(rows))
    return "\n\n".join(tables)


def tagged_classes(path: Path) -> list[tuple[ast.ClassDef, ast.expr]]:
    """Return the classes of a file that have a `TAG`, and its value."""
    return [
        (node, line.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", None) == "TAG"
    ]


def what_and_size(doc: str) -> tuple[str, str]:
    """Split the docstring of a message into what it is and its size in bytes."""
    found = re.fullmatch(r"(.*?)\s*Size:\s*(.*?) bytes\b(.*)", doc, re.DOTALL)
    if found is None:
        raise PluginError(f"the docstring of a message states no size: {doc}")
    what, size, rest = (cell(part) for part in found.groups())
    return what, size + rest.rstrip(".")


def parameters(_: str | None) -> str:
    """Return a table of the constants of `xclp_crypto.params`."""
    body = ast.parse((ROOT / "xclp_crypto" / "params.py").read_text(encoding="utf-8")).body
    rows = ["| name | value | what, and where it is from |", "|---|---|---|"]
    for line, after in pairwise(body):
        if isinstance(line, ast.AnnAssign) and line.value is not None:
            doc = getattr(getattr(after, "value", None), "value", "")
            value = ast.unparse(line.value) if not isinstance(line.value, ast.Dict) else "see below"
            rows.append(f"| `{ast.unparse(line.target)}` | `{value}` | {cell(str(doc))} |")
    return "\n".join(rows)


def cell(text: str) -> str:
    """Return text on one line that may stand in a table."""
    return " ".join(text.split()).replace("|", r"\|")


DIRECTIVES = {
    "README": readme_section,
    "figure": figure,
    "messages": messages,
    "parameters": parameters,
}
