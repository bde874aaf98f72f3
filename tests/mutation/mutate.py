"""Change the code a little, and see whether a test fails: ``python -m tests.mutation.mutate``.

It needs what ``make coverage`` leaves: which test runs which line, and how long each test takes.
The tests are imported once. Then every mutant has a process of its own, forked from there, which
puts the changed code into the functions that exist and runs the tests of the changed line, quickest
first, until one fails. A mutant survives if all pass, or those that fit into its seconds.

Everything is counted in processor time, so that a busy machine changes no result: a test that takes
many times what it takes on the original, and a process that sleeps for good, are failures.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import math
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, TypeAlias

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutants import Mutant, mutants

if TYPE_CHECKING:
    from coverage import CoverageData

ROOT = Path(__file__).parents[2]
PACKAGES = ("algebra", "primitives", "protocols")
REAL_TIME = {"tests/crypto/test_network.py", "tests/crypto/test_stream.py"}
"""Their tests look at a clock, and test no package of these."""

KILLED, SURVIVED, OUT_OF_SECONDS, UNCHANGED = range(10, 14)
"""How the process of a mutant ends; the last if no function with its code is there to change."""

MEMORY = 8 << 30
HANGS = 60
"""Seconds that a process may sleep without a stop."""


Live: TypeAlias = Mapping[tuple[Path, str, int], Sequence[FunctionType]]
"""Functions by file, qualified name and first line."""


@dataclass(frozen=True)
class Result:
    """What became of a mutant.

    Attributes:
        outcome: "killed"; "timeout"; "survived"; "unfinished", survived as many tests as its
            seconds allowed; "no test"; or what says nothing, "at import" and "not changed".
        test: that failed.
        seconds: of processor time.
    """

    mutant: Mutant
    outcome: str
    test: str = ""
    seconds: float = 0.0


class Tests:
    """Which tests run a line, quickest first."""

    def __init__(self, data: CoverageData, seconds: Mapping[str, float]) -> None:
        self.data, self.seconds = data, seconds

    @functools.cache  # noqa: B019 - there is one for the whole run
    def of_file(self, path: Path) -> Mapping[int, Sequence[str]]:
        return self.data.contexts_by_lineno(str(ROOT / path))

    def of(self, mutant: Mutant) -> list[str]:
        """Names of tests; an empty one stands for an import."""
        by_line = self.of_file(mutant.path)
        found = {test for line in mutant.lines for test in by_line.get(line, ())}
        return sorted(found, key=lambda test: (self.seconds.get(test, 0), test))


class Runner:
    """The plugin that runs mutants in place of the tests that pytest collected."""

    def __init__(self, chosen: Sequence[Mutant], tests: Tests, seconds: float) -> None:
        self.chosen, self.tests, self.seconds = chosen, tests, seconds
        self.results: list[Result] = []
        self.failed: str | None = None

    def pytest_configure(self) -> None:
        """The same examples for every mutant, and no verdict about speed."""
        from hypothesis import HealthCheck, settings  # not before pytest, which rewrites its plugin

        settings.register_profile(
            "mutation",
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        live = functions(Path("xclp_crypto"))
        for number, mutant in enumerate(self.chosen, 1):
            names = self.tests.of(mutant)
            if tests := [items[name] for name in names if name in items]:
                result = self.judge(mutant, tests, live)
            else:
                result = Result(mutant, "at import" if "" in names else "no test")
            self.results.append(result)
            say(f"{number}/{len(self.chosen)} {result.outcome:11} {result.seconds:5.1f} s {mutant}")
        return True

    def judge(self, mutant: Mutant, tests: Sequence[pytest.Item], live: Live) -> Result:
        """Run a mutant in a process of its own."""
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.setsid()
            os.close(reading)
            ended = self.child(mutant, tests, live)
            os.write(writing, (self.failed or "").encode())
            os._exit(ended)
        os.close(writing)
        status, used = wait(process)
        with os.fdopen(reading, encoding="utf-8") as pipe:
            test = pipe.read()
        outcome = "timeout"  # or out of memory in a way that Python does not survive
        if os.WIFEXITED(status):
            outcome = {
                KILLED: "killed",
                SURVIVED: "survived",
                OUT_OF_SECONDS: "unfinished",
                UNCHANGED: "not changed",
            }[os.WEXITSTATUS(status)]
        return Result(mutant, outcome, test, used)

    def child(self, mutant: Mutant, tests: Sequence[pytest.Item], live: Live) -> int:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        if not install(mutant, live):
            return UNCHANGED
        before = time.process_time()
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            expected = self.tests.seconds[item.nodeid]
            ends = math.ceil(time.process_time() + 10 + 10 * expected)
            resource.setrlimit(resource.RLIMIT_CPU, (ends, resource.RLIM_INFINITY))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed is not None:
                return KILLED
            if time.process_time() - before > self.seconds:
                return OUT_OF_SECONDS
        return SURVIVED


def functions(package: Path) -> Live:
    """Every function of a package that is alive, by file, qualified name and first line."""
    found: defaultdict[tuple[Path, str, int], list[FunctionType]] = defaultdict(list)
    inside = f"{ROOT / package}{os.sep}"
    for thing in gc.get_objects():
        if type(thing) is FunctionType:  # isinstance asks proxies, which may warn
            code = thing.__code__
            if code.co_filename.startswith(inside):
                path = Path(code.co_filename).relative_to(ROOT)
                found[path, code.co_qualname, code.co_firstlineno].append(thing)
    return found


def install(mutant: Mutant, live: Live) -> bool:
    """Put the changed code into every function that has the original; return whether one has."""
    where = mutant.path, mutant.outermost_name, mutant.first_line
    file = str(ROOT / mutant.path)
    changed = compile(mutant.changed(), file, "exec", dont_inherit=True)
    code = next(c for c in codes(changed) if (c.co_qualname, c.co_firstlineno) == where[1:])
    for function in live.get(where, ()):
        if len(function.__code__.co_freevars) != len(code.co_freevars):
            return False
        function.__code__ = code
    for thing in gc.get_objects():  # what the original returned while tests were imported
        if type(thing) is functools._lru_cache_wrapper:
            thing.cache_clear()
    return where in live


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a file or function, and of every function in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def wait(process: int) -> tuple[int, float]:
    """Wait for a process, or end it and its children when it sleeps for good.

    Returns:
        Its status, and the seconds of processor time that it took.
    """
    awake = time.monotonic()
    before = ""
    while True:
        ended, status, usage = os.wait4(process, os.WNOHANG)
        if ended:
            break
        # State, and clock ticks in user and system mode, after the name in brackets; proc(5).
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        now = f"{fields[10]} {fields[11]}"
        if state != "S" or now != before:
            awake, before = time.monotonic(), now
        elif time.monotonic() - awake > HANGS:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # where it left no child
        os.killpg(process, signal.SIGKILL)
    return status, usage.ru_utime + usage.ru_stime


def say(line: str) -> None:
    print(line, flush=True)


def every_mutant(package: str) -> list[Mutant]:
    """All mutants of a package."""
    return [
        mutant
        for path in sorted((ROOT / "xclp_crypto" / package).rglob("*.py"))
        for mutant in mutants(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95% confidence interval of a share, after Wilson (1927)."""
    z = 1.959964
    share, z2 = successes / n, z * z / n
    half = z * math.sqrt(share * (1 - share) / n + z2 / (4 * n))
    return (share + z2 / 2 - half) / (1 + z2), (share + z2 / 2 + half) / (1 + z2)


def summary(package: str, n_mutants: int, results: Sequence[Result]) -> str:
    """One row of a table: mutants, sample, outcomes and score."""
    counts = Counter(result.outcome for result in results)
    caught = counts["killed"] + counts["timeout"]
    judged = len(results) - counts["at import"] - counts["not changed"]
    low, high = wilson(caught, judged)
    return (
        f"| `{package}` | {n_mutants} | {judged} | {counts['killed']} | {counts['timeout']} | "
        f"{counts['survived']} | {counts['unfinished']} | {counts['no test']} | "
        f"{caught / judged:.1%} | {low:.1%} … {high:.1%} |"
    )


COLUMNS = (
    "package",
    "mutants",
    "judged",
    "a test failed",
    "timeout",
    "survived",
    "unfinished",
    "no test",
    "score",
    "95% interval",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the mutants, and print what became of each and a table."""
    parser = argparse.ArgumentParser(description="Run mutants of xclp_crypto.")
    parser.add_argument("--sample", type=int, help="random mutants of each package; all without")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for one mutant")
    parser.add_argument("--only", default="", help="mutants whose line of output contains this")
    parser.add_argument("--coverage", type=Path, default=ROOT / ".coverage")
    parser.add_argument("--test-seconds", type=Path, default=ROOT / ".coverage-seconds.json")
    chosen = parser.parse_args(arguments)

    from coverage import CoverageData  # of the extra dev, and the tests of this file do without

    data = CoverageData(str(chosen.coverage))
    data.read()
    tests = Tests(data, json.loads(chosen.test_seconds.read_text(encoding="utf-8")))
    population = {package: every_mutant(package) for package in PACKAGES}
    # Shuffled, so that a larger sample contains a smaller one of the same seed.
    sample = {
        package: random.Random(f"{chosen.seed} {package}").sample(found, len(found))
        for package, found in population.items()
    }
    selected = [
        m for found in sample.values() for m in found[: chosen.sample] if chosen.only in str(m)
    ]
    runner = Runner(selected, tests, chosen.seconds)
    files = sorted({test.split("::")[0] for test in tests.seconds} - REAL_TIME)
    os.chdir(ROOT)
    ended = pytest.main(["-q", "-s", "-p", "no:cacheprovider", *files], plugins=[runner])
    if ended or len(runner.results) < len(selected):
        sys.exit(f"pytest ended with {ended!r}")
    say(f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for package, found in population.items():
        judged = [r for r in runner.results if r.mutant.path.parts[1] == package]
        if judged:
            say(summary(package, len(found), judged))


if __name__ == "__main__":
    main()
