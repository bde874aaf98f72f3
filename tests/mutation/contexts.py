"""A pytest plugin that notes which test runs which line, and how long each test takes.

Under ``coverage run``, every test is a context of its own. Seconds of processor time by test, with
its set-up, go into the JSON file that ``--test-seconds`` names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

_seconds: dict[str, float] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--test-seconds", type=Path, default=None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
    before = time.process_time()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] = time.process_time() - before
        if current is not None:
            current.switch_context("")


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--test-seconds")
    if path is not None:
        path.write_text(json.dumps(_seconds))
