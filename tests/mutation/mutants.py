"""Small changes to a source file, each of which some test ought to notice.

Only bodies of functions are changed. Left alone, because no test should depend on them: docstrings,
annotations, ``__repr__``, the texts of errors and warnings (who an error names is changed),
``strict=True`` of ``zip``, which checks what always holds, and -1 as a length for ``reshape``, for
which NumPy takes every negative number.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xclp_crypto import errors

Function = ast.FunctionDef | ast.AsyncFunctionDef

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Sub,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}

ERRORS = {name for name in vars(errors) if not name.startswith("_")} | {"TypeError"}


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        function: name with those of the classes and functions around it, as in ``__qualname__``.
        outermost: the outermost function that holds the change.
        outermost_name: its name in the same form.
        lines: of the statement, or of its head if it has a body, in the original.
    """

    path: Path
    tree: ast.Module
    function: str
    outermost: Function
    outermost_name: str
    lines: range
    old: ast.expr | ast.stmt
    new: ast.AST

    def __str__(self) -> str:
        place = f"{self.old.lineno}:{self.old.col_offset + 1}"
        return f"{self.path}:{place} {self.function}: {self.change}"

    @property
    def change(self) -> str:
        """What was, and what is instead."""
        return f"{_text(self.old)} → {_text(self.new)}"

    @property
    def first_line(self) -> int:
        """Of the outermost function, where its code object begins."""
        return min(node.lineno for node in (self.outermost, *self.outermost.decorator_list))

    def changed(self) -> ast.Module:
        """Return a copy of the file with the change."""
        new = copy.deepcopy(self.new)
        new = ast.fix_missing_locations(ast.copy_location(new, self.old))
        return copy.deepcopy(self.tree, {id(self.old): new})


def mutants(path: Path, source: str) -> list[Mutant]:
    """Return every change to a file, in the order of its lines."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    for names, outermost in _functions(tree, ()):
        function = outermost[-1]
        for statement in _statements(function.body[_has_docstring(function) :]):
            lines = range(statement.lineno, _last_line(statement) + 1)
            found += [
                Mutant(path, tree, ".".join(names), outermost[0], _outermost(names), lines, *change)
                for change in _changes(statement)
            ]
    return found


def _functions(
    node: ast.AST, names: tuple[str, ...], around: tuple[Function, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[Function, ...]]]:
    """Every function with its names and with the functions around it, outermost first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            if child.name != "__repr__":
                yield (*names, child.name), (*around, child)
                yield from _functions(child, (*names, child.name, "<locals>"), (*around, child))
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, (*names, child.name), around)
        else:
            yield from _functions(child, names, around)


def _outermost(names: tuple[str, ...]) -> str:
    return ".".join(names[: names.index("<locals>")] if "<locals>" in names else names)


def _has_docstring(function: Function) -> bool:
    return ast.get_docstring(function, clean=False) is not None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of a function's body, without those of functions and classes in it."""
    for statement in body:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []))
        for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from _statements(part.body)


def _last_line(statement: ast.stmt) -> int:
    body = getattr(statement, "body", None)
    if body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno


def _changes(statement: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    nothing = ast.Pass()
    match statement:
        case ast.Raise():
            yield statement, nothing
            if isinstance(statement.exc, ast.Call):
                yield from _in_expression(statement.exc)
            return  # a change to `from` is one to the text of the error
        case ast.If(test=test, body=[ast.Raise()], orelse=[]):
            yield test, ast.Constant(True)  # with False, its error is not raised: see above
        case ast.If(test=test):
            yield test, ast.Constant(True)
            yield test, ast.Constant(False)
        case ast.While(test=test):
            yield test, ast.Constant(False)
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield value, ast.Constant(None)
        case ast.Expr(value=value) if not isinstance(value, ast.Yield | ast.YieldFrom):
            yield statement, nothing
        case ast.AugAssign():
            yield statement, nothing
            if type(statement.op) in OPERATORS:
                yield statement, _with(statement, op=OPERATORS[type(statement.op)]())
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield statement, nothing
        case ast.Break():
            yield statement, ast.Continue()
        case ast.Continue():
            yield statement, ast.Break()
    for field, value in ast.iter_fields(statement):
        if field in ("body", "orelse", "finalbody", "handlers", "cases", "annotation"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield from _in_expression(node)


def _in_expression(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                changed = [*ops[:i], COMPARISONS[type(op)](), *ops[i + 1 :]]
                yield node, _with(node, ops=changed)
        case ast.BinOp(op=op) if not (_is_text(node.left) or _is_text(node.right)):
            yield node, _with(node, op=OPERATORS[type(op)]())
        case ast.BoolOp(op=op):
            yield node, _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(operand=ast.Constant()):
            pass  # the constant changes
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield node, operand
        case ast.IfExp(test=test):
            yield test, ast.Constant(True)
            yield test, ast.Constant(False)
        case ast.comprehension(ifs=[test]):
            yield test, ast.Constant(True)
        case ast.Constant(value=bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield node, ast.Constant(value + 1)
            yield node, ast.Constant(value - 1)
        case ast.Constant(value=("big" | "little") as value):
            yield node, ast.Constant("little" if value == "big" else "big")
        case ast.Constant(value=str() as value):
            yield node, ast.Constant(value + "x")
        case ast.Constant(value=bytes() as value):
            yield node, ast.Constant(value + b"x")
        case ast.Call(args=args, keywords=keywords):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            if called == "cast":
                yield from _in_expression(args[1])
                return
            if called in ERRORS or ast.unparse(node.func) == "warnings.warn":
                for argument in args:
                    if not _is_text(argument):
                        yield from _in_expression(argument)
                return
            if len(args) > 1 and called != "isinstance" and not _is_default(args[-1]):
                yield node, _with(node, args=args[:-1])
            for i, keyword in enumerate(keywords):
                if keyword.arg != "strict":
                    yield node, _with(node, keywords=keywords[:i] + keywords[i + 1 :])
        case ast.keyword(arg="strict"):
            return
    reshapes = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".reshape")
    for child in ast.iter_child_nodes(node):
        if not (reshapes and ast.unparse(child) == "-1"):
            yield from _in_expression(child)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """A shallow copy of a node with other fields."""
    changed = copy.copy(node)
    for field, value in fields.items():
        setattr(changed, field, value)
    return changed


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_default(node: ast.expr) -> bool:
    """Whether an argument is the order of bytes that `int.to_bytes` takes by itself."""
    return isinstance(node, ast.Constant) and node.value == "big"


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_text(left) or _is_text(right)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_text(body) or _is_text(orelse)
    return False


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else f"{text[:60]} … {text[-36:]}"
