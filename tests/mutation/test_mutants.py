"""The changes that mutation testing makes, and that it puts them where they are to be."""

import ast
from pathlib import Path
from textwrap import dedent

import pytest
from mutants import mutants
from mutate import functions, install, wilson

PATH = Path("xclp_crypto/algebra/ring.py")


def changes(source):
    return [mutant.change for mutant in mutants(PATH, dedent(source))]


def test_every_kind_of_change_is_made():
    source = """
        LIMIT = 3  # not in a function

        def f(a: int, b: int = 2) -> int:
            "Not a docstring's text."
            if a < b:
                raise ParameterError(f"a is {a}")
            total = a + 1
            total -= b
            a.b = g(a, c=True)
            while not total:
                break
            return total if a and b else None
    """
    assert changes(source) == [
        "a < b → True",
        "a < b → a <= b",
        "raise ParameterError(f'a is {a}') → pass",
        "a + 1 → a - 1",
        "1 → 2",
        "1 → 0",
        "total -= b → pass",
        "total -= b → total += b",
        "a.b = g(a, c=True) → pass",
        "g(a, c=True) → g(a)",
        "True → False",
        "not total → False",
        "not total → total",
        "break → continue",
        "total if a and b else None → None",
        "a and b → True",
        "a and b → False",
        "a and b → a or b",
    ]


def test_texts_of_errors_representations_and_annotations_stay():
    source = """
        class A:
            def __repr__(self) -> str:
                return f"A({1 + 1})"

            def f(self, name: "str") -> None:
                found: list["int"]
                raise FaultyPeer((self.server, "c2"), "it sent " + "nothing")
    """
    assert changes(source) == [
        "raise FaultyPeer((self.server, 'c2'), 'it sent ' + 'nothing') → pass",
        "'c2' → 'c2x'",
    ]


def test_the_length_that_numpy_finds_by_itself_stays():
    source = """
        def f(x):
            return x.reshape(-1, 2) + x.sum(-1)
    """
    assert changes(source) == [
        "x.reshape(-1, 2) + x.sum(-1) → None",
        "x.reshape(-1, 2) + x.sum(-1) → x.reshape(-1, 2) - x.sum(-1)",
        "x.reshape(-1, 2) → x.reshape(-1)",
        "2 → 3",
        "2 → 1",
        "1 → 2",
        "1 → 0",
    ]


def test_a_mutant_names_its_function_its_lines_and_the_function_that_holds_it():
    source = """
        class A:
            @property
            def f(self):
                def inner(x):
                    return (x
                            * x)
                return inner
    """
    first, *_ = mutants(PATH, dedent(source))
    inner = next(m for m in mutants(PATH, dedent(source)) if m.change == "x * x → x + x")
    assert (first.function, first.outermost_name, first.first_line) == ("A.f", "A.f", 3)
    assert (inner.function, inner.outermost_name) == ("A.f.<locals>.inner", "A.f")
    assert (inner.first_line, inner.lines) == (3, range(6, 8))
    before = ast.dump(inner.tree)
    assert "x + x" in ast.unparse(inner.changed())
    assert ast.dump(inner.tree) == before


def test_the_changed_code_is_what_those_run_who_hold_the_function():
    from xclp_crypto.algebra.ring import wire_bytes

    root = Path(__file__).parents[2]
    every = mutants(PATH, (root / PATH).read_text(encoding="utf-8"))
    mutant = next(m for m in every if m.function == "wire_bytes" and m.change.endswith("→ None"))
    original = wire_bytes.__code__
    assert wire_bytes(256) == 1
    try:
        assert install(mutant, functions(Path("xclp_crypto")))
        assert wire_bytes(256) is None
    finally:
        wire_bytes.__code__ = original
    assert not install(mutant, {})


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_wilsons(successes, n, low, high):
    """Newcombe, Two-sided confidence intervals for the single proportion, 1998, method 3."""
    assert wilson(successes, n) == pytest.approx((low, high), abs=5e-5)
