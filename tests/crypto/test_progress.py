"""Progress on one line: in a terminal, in a notebook, and elsewhere a line for each step."""

import io
import sys

import pytest

from xclp_crypto import ProgressLine, progress
from xclp_crypto.transport.driver import Progress

REPORTS = [
    Progress("a", "setup", "make keys"),
    Progress("a", "setup", "not shown"),  # too soon after the first
    Progress("b", "sum", "add", 1, 4),
]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def written(file, monkeypatch, given=True):
    """Report at 0, 0.05 and 0.2 s, to a file that is given or is standard error."""
    monkeypatch.setattr(progress, "monotonic", iter([1.0, 1.0, 1.05, 1.2, 1.2]).__next__)
    if not given:
        monkeypatch.setattr(sys, "stderr", file)
    with ProgressLine(file if given else None) as line:
        for report in REPORTS:
            line(report)
        before = file.getvalue()
    return before, file.getvalue()[len(before) :]


@pytest.mark.parametrize("where", ["terminal", "notebook"])
def test_one_line_changes_in_a_terminal_and_in_a_notebook_and_is_cleared(where, monkeypatch):
    if where == "notebook":  # whose standard error is no terminal
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    file = Terminal() if where == "terminal" else io.StringIO()
    shown, end = written(file, monkeypatch, given=where == "terminal")
    assert shown == "\rsetup: a, make keys\rsum: b, add, 25%   "
    assert end == "\r                \r"


def test_a_narrow_terminal_gets_no_second_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    assert written(Terminal(), monkeypatch)[0] == "\rsetup: a,\rsum: b, a"


def test_a_file_gets_a_line_for_each_step(monkeypatch):
    assert written(io.StringIO(), monkeypatch) == ("setup …\nsum …\n", "")
