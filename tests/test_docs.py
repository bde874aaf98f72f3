"""The documentation names only tests that exist, and lists every dependency."""

import doctest
import json
import re
import runpy
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from xclp_crypto.privacy import LabelPrivacy
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_lp.files.clients import ClientSection
from xclp_lp.files.federation import Content, FederationArguments
from xclp_lp.files.toml import keys_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
NAMED = re.compile(r"(?:\b(test_\w+\.py)::)?\b(test_\w+)(…?)(?!\w|\.py|/)")
"""A test, after its file or alone; with an ellipsis, the beginning of the names of several."""
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def existing_tests():
    """By file name, the names of its tests."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {path.name: names_of_tests(path.read_text(encoding="utf-8")) for path in files}


def names_of_tests(text):
    return set(re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE))


def missing(text, existing):
    """Return what a text calls a test and is none, and test files that do not exist."""
    every = set().union(*existing.values())
    wrong = [f for f in re.findall(r"\btest_\w+\.py\b", text) if f not in existing]
    for file, name, several in NAMED.findall(text):
        names = existing.get(file, set()) if file else every
        found = any(n.startswith(name) for n in names) if several else name in names
        if not found:
            wrong.append(f"{file}::{name}" if file else name)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_test_that_the_documentation_names_exists(page):
    text = page.read_text(encoding="utf-8")
    assert missing(text, existing_tests() | {"of the page": names_of_tests(text)}) == []


def test_names_that_do_not_exist_are_found():
    existing = {"test_a.py": {"test_one", "test_every_x"}, "test_b.py": {"test_two"}}
    good = "`test_a.py::test_one`, `test_two` and `test_every_…` (`tests/test_b.py`)"
    assert missing(good, existing) == []
    assert missing("`test_a.py::test_two`", existing) == ["test_a.py::test_two"]
    assert missing("`test_three` `test_c.py` `test_none_…`", existing) == [
        "test_c.py",
        "test_three",
        "test_none_",
    ]


def unknown(text):
    """Return the files that a text names and that do not exist, and names that no module has."""
    wrong = [
        path
        for path in re.findall(r"\b(?:xclp_\w+|tests|bench|examples)/[\w/.-]*\.\w+", text)
        if not any(ROOT.glob(path.replace("NAME", "*")))
    ]
    for name in re.findall(r"\bxclp_(?:crypto|lp)(?:\.\w+)+", FENCE.sub("", text)):
        path, inside = ROOT, name.split(".")
        while inside and ((path / inside[0]).is_dir() or (path / f"{inside[0]}.py").exists()):
            path /= inside.pop(0)
        module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        source = module.read_text(encoding="utf-8")
        if any(not re.search(rf"\b{part}\b", source) for part in inside):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_file_and_module_that_the_documentation_names_exists(page):
    assert unknown(page.read_text(encoding="utf-8")) == []


def test_files_and_modules_that_do_not_exist_are_found():
    good = "xclp_lp/graph.py, `xclp_lp.dropouts.STEPS`, xclp_lp.study, bench/timing.py"
    assert unknown(good) == []
    bad = "xclp_lp/grape.py, `xclp_lp.session.STAIRS`, xclp_lp.studio, bench/time.py"
    assert unknown(bad) == [
        "xclp_lp/grape.py",
        "bench/time.py",
        "xclp_lp.session.STAIRS",
        "xclp_lp.studio",
    ]


EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(ROOT.glob("xclp_*/**/*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_examples_in_docstrings_run(module):
    failed, attempted = doctest.testmod(import_module(module))
    assert attempted > 0
    assert failed == 0


def test_there_are_examples_in_docstrings():
    """Where whoever imports a part looks first."""
    assert set(EXAMPLES) >= {
        "xclp_crypto.front",
        "xclp_crypto.primitives.fixed_point",
        "xclp_crypto.primitives.paillier.keys",
        "xclp_crypto.primitives.shamir",
        "xclp_crypto.protocols.ot.naor_pinkas",
        "xclp_lp.estimator",
    }


def test_the_threat_model_says_for_every_back_end_what_server_and_one_client_learn():
    """There is one full row for each back end, which agrees with the trust that the code states."""
    text = (DOCS / "understand" / "security.md").read_text(encoding="utf-8")
    table = text.split("### SecureHamming, by back end")[1].split("\n\n")[1].splitlines()
    rows = rows_of(table)
    by_name = {re.search(r"`([\w-]+)`", row[0])[1]: row for row in rows}
    assert len(rows) == len(by_name)
    changed = sorted(by_name.keys() ^ BACKENDS.keys())
    assert not changed, (
        "docs/understand/security.md, 'SecureHamming, by back end': one row for each back end; "
        f"see {changed}"
    )
    for name, row in by_name.items():
        assert len(row) == 6, row
        assert all(row), row
        trust = BACKENDS[name].trust
        assert ("every bit" in row[4]) == (trust != "2pc"), (
            f"docs/understand/security.md: {name} has trust {trust!r}; only where that is not "
            "'2pc' do the server and one client learn 'every bit'"
        )


def rows_of(table):
    """The cells of a Markdown table, without its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def received():
    """By protocol and party, the messages that it receives in runs; those of setup in setup only.

    Clients of a protocol may have different parts, so they are one party here.
    """
    file = ROOT / "tests" / "vectors" / "wire_baseline.json"
    found = {}
    for protocol, forms in json.loads(file.read_text(encoding="utf-8")).items():
        parties = found[protocol] = {}
        for key in forms["opened"]:
            message, sender, party = re.fullmatch(r"(\w+): (\w+) → (\w+)", key).groups()
            parties.setdefault(party, set()).add(message)
            parties.setdefault(sender, set())
    setup = found["setup"]
    return {
        (protocol, party): messages - (set() if "setup" in protocol else setup.get(party, set()))
        for protocol, parties in found.items()
        if not protocol.endswith((", ideal", ", ideal transfer", " ideal", "modulo 2^32"))
        for party, messages in parties.items()
    }


RECEIVES = "docs/understand/security.md, 'What each party receives',"


def test_the_costs_of_attacks_on_ring_lwe_are_those_that_the_script_computes():
    protocols, security = (
        (DOCS / "understand" / f).read_text() for f in ("protocols.md", "security.md")
    )
    for row in runpy.run_path(str(ROOT / "bench" / "lattice.py"))["table"]():
        assert row in protocols
        classical, quantum = (int(cell) for cell in row.split("|")[5:7])
        assert re.search(rf"\b{classical}\b[a-z ]*\({quantum}\b", security)


def test_the_table_of_views_has_every_message_that_a_party_receives():
    """A new message, back end or protocol needs a row that says what it could be made up from."""
    text = (DOCS / "understand" / "security.md").read_text(encoding="utf-8")
    section = text.split("\n## What each party receives\n")[1].split("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert len(tables) == 2
    listed = {}
    for protocol, party, messages, *others in rows_of(tables[0].splitlines()):
        kind = party.split(",")[0]
        listed.setdefault((protocol, kind), set()).update(re.findall(r"`(\w+)`", messages))
        assert len(others) == 4, (protocol, party)
        assert all(others), (protocol, party)
    found = received()
    wanted = [
        f"| {protocol} | {party} | {', '.join(f'`{m}`' for m in sorted(messages)) or 'nothing'} |"
        for (protocol, party), messages in found.items()
        if listed.get((protocol, party)) != messages
    ]
    assert not wanted, f"{RECEIVES} needs rows that begin so:\n" + "\n".join(wanted)
    assert listed.keys() == found.keys(), f"{RECEIVES} has rows of what is in no run"
    for table in tables:
        for row in rows_of(table.splitlines()):
            assert re.search(r"`test_\w+\.py::test_\w+`|argued, not tested", " ".join(row[3:])), (
                f"{RECEIVES}: name a test, or say 'argued, not tested': {row}"
            )


def test_every_key_of_a_federation_file_is_listed_with_its_default():
    page = (DOCS / "lookup" / "federation-file.md").read_text(encoding="utf-8")
    tables = re.findall(r"^## (.+)\n(?:[^|#\n].*\n|\n)*((?:\|.*\n)+)", page, re.MULTILINE)
    listed = {heading: rows_of(table.splitlines()) for heading, table in tables}
    known = {
        "At the top": Content,
        "`[parameters]`": FederationArguments,
        "`[parameters.privacy]`": LabelPrivacy,
        "`[clients.NAME]`": ClientSection,
    }
    for heading, kind in known.items():
        assert sorted(row[0] for row in listed[heading]) == sorted(f"`{k}`" for k in keys_of(kind))
        assert all(len(row) == 4 and all(row) for row in listed[heading])
    for key, _, default, _ in listed["`[parameters]`"]:
        expected = getattr(FederationArguments(), key.strip("`"))
        if expected is None:
            assert "`" not in default, key
        else:
            assert default == f"`{json.dumps(expected)}`", key


def test_the_page_on_stability_lists_every_package_that_says_what_is_public():
    page = (DOCS / "lookup" / "stability.md").read_text(encoding="utf-8")
    table = page.split("\n## What is public\n")[1].split("\n\n")[1].splitlines()
    listed = {name for row in rows_of(table) for name in re.findall(r"`([\w.]+)`", row[0])}
    assert listed == {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in ROOT.glob("xclp_*/**/__init__.py")
        if re.search(r"^__all__ = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_every_dependency_is_listed_with_its_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (DOCS / "lookup" / "dependencies.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| ([\w-]+) \| \S+ \| (.+) \|$", text, flags=re.MULTILINE))
    asked = [*project["dependencies"]]
    asked += [r for extra in project["optional-dependencies"].values() for r in extra]
    for requirement in asked:
        name = re.split(r"[\[<>=~]", requirement)[0].lower().replace("_", "-")
        assert name == "xclp" or name in listed, requirement
    assert "not stated" not in listed.values()
    # The one that is under the GPL alone is optional.
    assert "gpl" in listed["phe"].lower()
    assert not any(r.startswith("phe") for r in project["dependencies"])
