"""What docstrings say is what the code does: parameters, results, errors, examples.

That there is a docstring at all, and that an `Args` section has every parameter, is for ruff.
"""

import ast
import inspect
import re
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from page_programs import program

ROOT = Path(__file__).parents[1]
FILES = sorted(ROOT.glob("xclp_*/**/*.py"))
COMMANDS = {
    ROOT / "xclp_lp" / "cli" / f"{name}.py"
    for name in ("bench", "demo", "main", "network", "predict", "run", "study")
}
"""Their docstrings are what `--help` shows."""
ELSEWHERE = re.compile(r"\b(?:[Ss]ee|those of) `\w")
"""Of a docstring that leaves the description to another one."""
MISUSE = {"TypeError"}
"""What a class raises that somebody wrote and did not finish."""
GIVING = (
    *("Give", "Make", "Read", "Draw", "Decode", "Encode", "Load", "Generate", "Build"),
    *("Encrypt", "Decrypt"),
)
"""Verbs whose object is what comes back."""
FEW = 2
"""Parameters that the sentence itself may describe, without a section."""


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def public_functions(body, prefix=""):
    """Yield the name and the node of every public function and method."""
    for node in body:
        if getattr(node, "name", "_").startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from public_functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node


def raised(node):
    """Yield the names of the errors that a function raises itself, not those of what it calls."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(inner, ast.Raise) and inner.exc is not None:
            error = inner.exc.func if isinstance(inner.exc, ast.Call) else inner.exc
            name = error.attr if isinstance(error, ast.Attribute) else getattr(error, "id", "")
            if name[:1].isupper():
                yield name
        yield from raised(inner)


def unnamed_errors(source):
    """Return public functions that raise an error which their docstring does not name."""
    return [
        f"{name}: {error}"
        for name, node in public_functions(ast.parse(source).body)
        for error in dict.fromkeys(raised(node))
        if error not in (ast.get_docstring(node) or "")
        and error not in MISUSE
        and not ELSEWHERE.search(ast.get_docstring(node) or "")
    ]


@pytest.mark.parametrize(
    "path", [p for p in FILES if p not in COMMANDS], ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_error_that_a_public_function_raises_itself_is_in_its_docstring(path):
    assert unnamed_errors(path.read_text(encoding="utf-8")) == []


def test_errors_that_are_not_named_are_found():
    source = '''
class A:
    def named(self):
        """Do. Raises `DataError`."""
        raise DataError("x")
    def again(self):
        """Do."""
        if self:
            raise errors.DataError("x") from None
        raise self.error
    def _private(self):
        raise DataError("x")
async def outer():
    """Do."""
    def inner():
        raise DataError("x")
    raise ParameterError
'''
    assert unnamed_errors(source) == ["A.again: DataError", "outer: ParameterError"]


def packages():
    """Yield the packages that list what they export; those for Flower need it installed."""
    for path in FILES:
        if path.name == "__init__.py" and path.parent.name != "flower":
            package = import_module(module_name(path))
            if hasattr(package, "__all__"):
                yield package


@cache
def exported():
    """Return the functions and methods that packages list in ``__all__``, by their whole names."""
    found = {}
    for package in packages():
        for name in package.__all__:
            thing = getattr(package, name)
            if not getattr(thing, "__module__", "").startswith("xclp_"):
                continue
            whole = f"{thing.__module__}.{name}"
            if inspect.isfunction(thing):
                found[whole] = thing
            elif inspect.isclass(thing):
                for attribute, member in vars(thing).items():
                    function = getattr(member, "__func__", member)
                    if inspect.isfunction(function) and not attribute.startswith("_"):
                        found[f"{whole}.{attribute}"] = function
    return found


def unsaid(function):
    """Return what a docstring leaves out: parameters, or the result."""
    text = inspect.getdoc(function) or ""
    if ELSEWHERE.search(text):
        return []
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters if p not in ("self", "cls")]
    left_out = []
    if len(parameters) > FEW and "\nArgs:\n" not in text:
        left_out.append("what it takes")
    gives = signature.return_annotation not in (inspect.Signature.empty, None, "None", "NoReturn")
    if gives and not text.startswith(GIVING) and "return" not in text.lower():
        left_out.append("what it returns")
    return left_out


@pytest.mark.parametrize("name", exported())
def test_what_packages_export_says_what_it_takes_and_returns(name):
    assert unsaid(exported()[name]) == []


def test_what_is_left_out_is_found():
    def good(one, two, three) -> int:
        """Add.

        Args:
            one: a number.
            two: a number.
            three: a number.

        Returns:
            The sum.
        """

    def short(one, two) -> bytes:
        """Encode both."""

    def elsewhere(one, two, three) -> int:
        """Add; see `good`."""

    def bad(one, two, three) -> int:
        """Add one, two and three."""

    assert unsaid(good) == unsaid(short) == unsaid(elsewhere) == []
    assert unsaid(bad) == ["what it takes", "what it returns"]
    assert "xclp_crypto.front.secure_sum" in exported()
    assert "xclp_lp.estimator.CrossClientLabelPropagation.fit" in exported()


RESULTS = {"SealedIO", "Session"}
"""Classes that nobody calls: what a key exchange returns."""
PAGE = re.compile(r"docs/learn/crypto/([\w-]+)\.md")
OTHER = re.compile(r"Examples:\n +That of `(\w+)`")


@cache
def computing():
    """Return what packages of `xclp_crypto` export and call: functions, and classes but records."""
    found = {}
    for package in packages():
        for name in package.__all__:
            thing = getattr(package, name)
            record = is_dataclass(thing) or hasattr(thing, "_fields")
            abstract = inspect.isabstract(thing) or getattr(thing, "_is_protocol", False)
            ours = getattr(thing, "__module__", "").startswith("xclp_crypto.")
            if ours and not record and not abstract and name not in RESULTS:
                found[f"{package.__name__}.{name}"] = thing
    return found


@cache
def examples_in(package):
    """Return the code of all examples in the docstrings of a package."""
    files = Path(package.__file__).parent.rglob("*.py")
    return "\n".join(code_of(path.read_text(encoding="utf-8")) for path in files)


def code_of(text):
    return "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)", text, re.MULTILINE))


def has_example(package, name, thing):
    """Whether an example in its package, or on a page that it names, calls it.

    A front door has it in its own docstring, or names the one that has.
    """
    text = inspect.getdoc(thing) or ""
    code = code_of(text) + "".join(program(page) for page in PAGE.findall(text))
    for other in OTHER.findall(text):
        code += code_of(inspect.getdoc(getattr(package, other)))
    if package.__name__ != "xclp_crypto":
        code += examples_in(package)
    return re.search(rf"\b{name}[(.]", code) is not None


@pytest.mark.parametrize("whole", computing())
def test_what_packages_export_and_computes_has_an_example(whole):
    package, _, name = whole.rpartition(".")
    assert has_example(import_module(package), name, computing()[whole])


def test_what_has_no_example_is_found():
    def undocumented():
        """Compute, as `secure_sum` does.

        Examples:
            >>> other()
        """

    assert len(computing()) > 60
    assert not has_example(import_module("xclp_crypto"), "undocumented", undocumented)
