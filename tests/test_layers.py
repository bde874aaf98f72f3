"""The architecture, enforced: who imports whom, and what code of a layer may use."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = [
    ["errors", "secret", "whole_files", "wording"],
    ["algebra.domain_tags", "algebra.ring", "algebra.products"],
    ["algebra.prg", "params"],
    ["rng", "apart"],
    ["algebra.group"],
    ["primitives"],
    ["privacy"],
    ["fields"],
    ["wire"],
    ["role"],
    ["protocols.setup", "protocols.ot"],
    ["protocols.boolean"],
    ["protocols.hamming", "protocols.secure_sum"],
    ["transport.meter", "transport.epoch", "transport.tls", "transport.failures"],
    ["transport.log", "transport.questions"],
    ["transport.network.frames"],
    ["transport.driver", "transport.duplex"],
    ["transport.streams"],
    ["transport.simulate", "transport.replay"],
    ["transport.network.mailboxes"],
    ["transport.stream", "transport.network", "transport.supersteps"],
    ["transport.flower"],
    ["updates", "progress"],
    ["front", "testing", "two_programs"],
    ["similarity", "two_party"],
    ["two_party_similarity"],
    ["aio"],
    ["mean"],
    ["sum_plans"],
    ["served_sums"],
    ["flower"],
    [""],  # xclp_crypto itself, which shows the front door
]
"""Low to high. A file imports only from lower layers, and within its own entry here."""

IO_MODULES = {
    "asyncio",
    "logging",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "socket",
    "ssl",
    "subprocess",
    "sys",
    "threading",
    "time",
    "uuid",
}


ALLOWED_IO = {
    "xclp_crypto.rng": {"os"},
    "xclp_crypto.whole_files": {"os"},
    "xclp_crypto.primitives.rlwe": {"os"},  # the number of cores
    "xclp_crypto.aio": {"asyncio"},
    "xclp_crypto.progress": {"sys", "time"},
    "xclp_crypto.served_sums": {"ssl"},  # the type of an argument
    "xclp_crypto.flower.client": {"logging"},
    "xclp_crypto.flower.server": {"logging", "time"},
}


LP_LAYERS = [
    *(
        "wording",
        "validation",
        "labels",
        "dataframes",
        "machine",
        "accuracy",
        "graph",
        "lsh",
        "scaling",
        "messages",
        "diagnostics",
        "solvers",
    ),
    *("influence", "dropouts", "kept", "predictions"),
    *(
        "propagation",
        "parameters",
        "noise",
        "column_transfer",
        "leave_one_out",
        "memory",
        "labelling",
        "session",
        "later",
        "update",
        "forecast",
        "input_data",
        "plan",
        "alone",
        "predictor",
        "summary",
    ),
    *("estimator", ""),  # xclp_lp itself, which shows the estimator
    "files",
    ("study", "flower"),
    "cli",
    "__main__",
]
"""The same of xclp_lp; what is in one entry knows nothing of the rest of that entry."""


def sources(package):
    return sorted((ROOT / package).rglob("*.py"))


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path):
    """Absolute names of all modules that a file imports, at any depth of nesting."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
            # `from package import module` imports the module.
            names |= {
                f"{node.module}.{alias.name}"
                for alias in node.names
                if (ROOT / node.module.replace(".", "/") / f"{alias.name}.py").exists()
            }
    return names


def layer(module):
    """Number of the layer, and the entry, of a module of xclp_crypto."""
    inside = module.removeprefix("xclp_crypto").removeprefix(".")
    for number, entries in enumerate(LAYERS):
        for entry in entries:
            if inside == entry or (entry and inside.startswith(entry + ".")):
                return number, entry
    raise AssertionError(f"{module} is in no layer; give it one")


NAMESPACES = {"xclp_crypto.algebra", "xclp_crypto.protocols", "xclp_crypto.transport"}
"""Packages whose parts are in different layers; they must be empty."""

CRYPTO = [p for p in sources("xclp_crypto") if module_name(p) not in NAMESPACES]


def ids(paths):
    return [str(p.relative_to(ROOT)) for p in paths]


def test_there_is_something_to_check():
    assert len(CRYPTO) > 25
    assert "xclp_crypto.wire" in imports(ROOT / "xclp_crypto" / "role.py")
    assert "xclp_crypto.wire" in imports(ROOT / "xclp_crypto" / "transport" / "driver.py")


def test_packages_that_span_layers_import_nothing():
    for name in NAMESPACES:
        assert imports(ROOT / name.replace(".", "/") / "__init__.py") == set()


@pytest.mark.parametrize("path", CRYPTO, ids=ids(CRYPTO))
def test_a_file_imports_from_its_own_layer_or_lower_ones(path):
    own, entry = layer(module_name(path))
    for name in imports(path):
        if name.split(".")[0] != "xclp_crypto" or name in ("xclp_crypto", *NAMESPACES):
            continue  # `from xclp_crypto import wire` is checked as xclp_crypto.wire
        number, other = layer(name)
        assert number < own or other == entry, f"{path.name} imports {name} from a higher layer"


def test_every_entry_of_the_layers_exists():
    present = {layer(module_name(p)) for p in CRYPTO}
    listed = {(n, entry) for n, entries in enumerate(LAYERS) for entry in entries}
    assert present == listed


def lp_layer(module):
    """Number of the layer, and the entry, of a module of xclp_lp."""
    entry = module.removeprefix("xclp_lp").removeprefix(".").split(".")[0]
    for number, entries in enumerate(LP_LAYERS):
        if entry in ((entries,) if isinstance(entries, str) else entries):
            return number, entry
    raise AssertionError(f"{module} is in no layer; give it one")


MODULES = {module_name(p): p for package in ("xclp_crypto", "xclp_lp") for p in sources(package)}


def imported_modules(path):
    """Modules of ours that a file names in imports, at any depth; not the packages around them."""
    found = imports(path) & set(MODULES)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            if parts <= set(MODULES):
                found.discard(node.module)
    return found - {module_name(path)}


@pytest.mark.parametrize("path", sources("xclp_lp"), ids=ids(sources("xclp_lp")))
def test_a_file_of_the_layer_above_imports_from_its_own_room_or_lower_ones(path):
    own, entry = lp_layer(module_name(path))
    for name in imported_modules(path):
        if name.split(".")[0] == "xclp_lp":
            number, other = lp_layer(name)
            assert number < own or other == entry, f"{path.name} imports {name} from a higher layer"


def test_no_file_imports_itself_by_way_of_others():
    """Neither in functions nor for the types alone."""
    left = {module: imported_modules(path) for module, path in MODULES.items()}
    while free := {module for module, needs in left.items() if not needs & set(left)}:
        left = {module: needs for module, needs in left.items() if module not in free}
    assert not left, f"circles among {', '.join(sorted(left))}"


@pytest.mark.parametrize("path", sources("xclp_crypto"), ids=ids(sources("xclp_crypto")))
def test_the_cryptography_does_not_know_the_application(path):
    assert not {n for n in imports(path) if n.split(".")[0] in ("xclp_lp", "sklearn", "typer")}


FRAMES = ("transport.network.frames", "transport.network.mailboxes")  # bytes and events only
PURE = [
    p
    for p in CRYPTO
    if module_name(p).split(".")[1:2] != ["transport"] or module_name(p).endswith(FRAMES)
]


@pytest.mark.parametrize("path", PURE, ids=ids(PURE))
def test_roles_and_what_they_use_have_no_io_clock_thread_or_global_randomness(path):
    allowed = ALLOWED_IO.get(module_name(path), set())
    used = {n.split(".")[0] for n in imports(path)} & IO_MODULES
    assert used <= allowed, f"{path.name} may not import {', '.join(sorted(used - allowed))}"


@pytest.mark.parametrize("path", sources("xclp_crypto"), ids=ids(sources("xclp_crypto")))
def test_randomness_comes_from_one_module(path):
    text = path.read_text(encoding="utf-8")
    if path.name == "rng.py":
        assert "os.urandom" in text
        return
    names = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert not names & {"os.urandom", "np.random", "numpy.random", "os.getrandom"}


def drawn_unasked(source):
    """Uses of an argument `rng: Rng` other than as an argument, of `require_rng` in the end."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        names = {a.arg for a in every if a.annotation and ast.unparse(a.annotation) == "Rng"}
        inside = [node for part in function.body for node in ast.walk(part)]
        passed = {id(value) for call in inside if isinstance(call, ast.Call) for value in call.args}
        passed |= {
            id(value) for node in inside if isinstance(node, ast.keyword) for value in [node.value]
        }
        found += [
            f"line {node.lineno}: {node.id}"
            for node in inside
            if isinstance(node, ast.Name) and node.id in names and id(node) not in passed
        ]
    return found


@pytest.mark.parametrize("path", sources("xclp_crypto"), ids=ids(sources("xclp_crypto")))
def test_who_draws_from_an_argument_asks_first_whether_it_is_an_rng(path):
    assert drawn_unasked(path.read_text(encoding="utf-8")) == []


def test_the_same_test_finds_who_does_not_ask():
    draws = "def key(rng: Rng):\n    return rng.bytes(32)"
    keeps = "def __init__(self, rng: Rng):\n    self._rng = rng"
    assert drawn_unasked(draws) == drawn_unasked(keeps) == ["line 2: rng"]
    assert drawn_unasked("async def key(rng: Rng):\n    f(require_rng(rng).bytes(1), r=rng)") == []


BOTH = sources("xclp_crypto") + sources("xclp_lp")


BARE = ("ValueError", "TypeError", "RuntimeError", "Exception", "AssertionError")
CONVERTS = {
    "tables.py",  # read errors, its own included, become DataError in one place
    "secret.py",  # TypeError is what Python expects of objects that cannot be pickled
    "wire.py",
    "channel.py",
}


@pytest.mark.parametrize("path", BOTH, ids=ids(BOTH))
def test_errors_are_typed_and_nothing_is_asserted(path):
    """No `assert`, no bare ValueError or Exception, no except that takes everything."""
    for node in ast.walk(tree(path)):
        where = f"{path.name}:{getattr(node, 'lineno', '?')}"
        assert not isinstance(node, ast.Assert), where
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = getattr(raised, "id", None)
            if path.name not in CONVERTS:
                assert name not in BARE, where
        if isinstance(node, ast.ExceptHandler):
            caught = getattr(node.type, "id", None)
            assert node.type is not None, where
            assert caught not in ("Exception", "BaseException"), where


@pytest.mark.parametrize("path", BOTH, ids=ids(BOTH))
def test_no_pickle_eval_or_mutable_module_state(path):
    unsafe = {n.split(".")[0] for n in imports(path)} & {"pickle", "marshal", "shelve", "dill"}
    # The one reader of published pickles looks up no name that is in them (tested).
    assert not unsafe or path == ROOT / "xclp_lp" / "study" / "data" / "pickles.py"
    calls = {
        node.func.id
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"eval", "exec"}
    assert not any(isinstance(node, ast.Global) for node in ast.walk(tree(path)))


@pytest.mark.parametrize("path", BOTH, ids=ids(BOTH))
def test_only_the_command_line_prints(path):
    if path.parent == ROOT / "xclp_lp" / "cli":
        return
    calls = {getattr(n.func, "id", "") for n in ast.walk(tree(path)) if isinstance(n, ast.Call)}
    assert "print" not in calls
    assert not {n.split(".")[0] for n in imports(path)} & {"rich", "typer"}


ROLE_METHODS = {"send", "recv", "gather", "gather_each", "compute"}


def is_gate(path, call):
    """Return whether this is a gate that calls another one."""
    return path.stem == "gmw" and getattr(call.func.value, "id", None) == "self"


@pytest.mark.parametrize(
    "path",
    [p for p in CRYPTO if ".protocols." in module_name(p) + "."],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_roles_await_only_the_five_operations_and_other_roles(path):
    """Every await is io.send, io.recv, io.gather(_each), io.compute, or a role that gets io.

    Gates of boolean circuits hold the io, so they stand for it, and so do parts of a session.
    """
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.AsyncFor | ast.AsyncWith), path
        if isinstance(node, ast.Await):
            call = node.value
            where = f"{path.name}:{node.lineno} awaits neither an operation of io nor another role"
            assert isinstance(call, ast.Call), where
            if isinstance(call.func, ast.Attribute) and call.func.attr in ROLE_METHODS:
                continue
            parts = [a.func.value for a in call.args if ast.unparse(a).startswith("session.part(")]
            given = [*call.args, *parts, getattr(call.func, "value", None)]
            names = {getattr(a, "id", getattr(a, "attr", None)) for a in given}
            assert names & {"io", "session", "gates"} or is_gate(path, call), where


IMPORTED = {
    "the cryptography": "xclp_crypto.front, xclp_crypto.two_party",
    "what a node runs": "xclp_lp, xclp_lp.files.network, xclp_lp.flower.settings",
    "commands": "xclp_lp, xclp_lp.cli.main, xclp_lp.study.demo",
}
"""What one process imports, one after the other."""


@cache
def loaded_after():
    """By entry of `IMPORTED`, the names of all modules that a new process then has."""
    script = "import sys" + "".join(f"; import {m}; print(*sys.modules)" for m in IMPORTED.values())
    lines = subprocess.run(  # noqa: S603 - a constant script
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.splitlines()
    return {what: set(line.split()) for what, line in zip(IMPORTED, lines, strict=True)}


def test_importing_the_cryptography_loads_no_application_and_no_heavy_library():
    loaded = loaded_after()["the cryptography"]
    assert "xclp_crypto.protocols.hamming" in loaded
    heavy = {"xclp_lp", "sklearn", "typer", "rich", "asyncio", "pytest", "matplotlib"}
    heavy |= {"dp_accounting", "phe", "scipy.stats", "scipy.fft"}
    assert not heavy & loaded


def test_importing_what_a_node_runs_loads_no_scikit_learn():
    """A node of Flower's starts a process for each message."""
    loaded = loaded_after()["what a node runs"]
    assert "xclp_lp.session" in loaded
    assert not {"sklearn", "pandas", "scipy.stats", "scipy.fft", "typer"} & loaded


def test_commands_load_what_draws_and_trains_only_when_they_draw_and_train():
    loaded = loaded_after()["commands"]
    assert "typer" in loaded
    heavy = {"matplotlib", "jinja2", "torch", "sklearn", "pandas", "pyarrow", "scipy.stats"}
    assert not heavy & loaded


def test_the_estimator_is_loaded_when_it_is_asked_for():
    import xclp_lp
    from xclp_lp.estimator import CrossClientLabelPropagation

    assert xclp_lp.CrossClientLabelPropagation is CrossClientLabelPropagation
    with pytest.raises(AttributeError, match="no attribute 'Estimator'"):
        xclp_lp.Estimator  # noqa: B018 - asking is the test
