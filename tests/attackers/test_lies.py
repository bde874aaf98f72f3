"""A lie spoils no result but where that is listed, has nobody else blamed, and nothing hangs.

A few lies about every message of every protocol. `make lies` runs thousands of others.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import lies
from carriers import CARRIERS
from spoils import SPOILS
from subjects import SUBJECTS
from views import watching

from xclp_crypto.protocols.secure_sum.double_masks import ClientMasks

SECURITY = Path(__file__).parents[2] / "docs" / "understand" / "security.md"


SETUP = [("client", m) for m in ("Hello", "SeedShare", "Received", "Confirm")]
SETUP += [("server", m) for m in ("Directory", "Roster")]


def one_of_each_message(seed):
    """Cases of each protocol: for each message of each kind of party, the first in turn.

    Setup comes with all of them, and counts once.
    """
    for name in SUBJECTS:
        seen = {*SETUP} if "setup" not in name else set()
        for case in lies.in_turn(list(lies.cases_of(name)), seed):
            message = lies.role_of(case.attacker), case.message
            if message not in seen:
                seen.add(message)
                yield case


def test_a_lie_about_any_message_of_any_protocol_ends_as_it_may():
    endings = [ending for _, ending in lies.run_cases(list(one_of_each_message(3)))]
    assert {"right at all", "spoiled, as listed"} < set(endings)
    assert "the attacker named, stopped" in endings
    assert len(endings) > 80


def test_wrong_pads_of_a_client_that_vanishes_have_nobody_honest_blamed():
    """A sum is wrong then that it is not in, so those in the sum must not be named alone."""
    cases = lies.cases_of("session")
    found = [case for case in cases if case.what == "padded_keys: last bit, then silence"]
    endings = [ending for _, ending in lies.run_cases(found[:2])]
    assert all("the attacker or another named" in ending for ending in endings)


def test_false_headers_end_as_they_may():
    every = list(lies.header_cases())
    cases = lies.in_turn([case for case in every if case.carrier == "supersteps"], 4)[:50]
    some = ("Data: depth = 4294967295, server → a", "Refused: code 7, 3 bytes of names")
    some += ("Ack: count = 2, a → b",)  # in the name of b
    cases += [case for case in every if str(case).endswith(some) and case.attacker == "server"]
    endings = [ending for _, ending in lies.run_cases(cases)]
    assert {"right at all", "the attacker or another named, stopped"} <= set(endings)
    assert len(endings) == 53


def test_what_is_sent_without_a_mask_is_found_in_what_the_server_received(monkeypatch):
    monkeypatch.setattr(ClientMasks, "mask", lambda self, total, modulus: {})
    with watching() as views:
        CARRIERS["supersteps"](SUBJECTS["sum"].make()())
    assert views.leaks(("a", "b", "c"), SUBJECTS["sum"].inputs) == {("server", "SumUpload")}


def test_the_documentation_lists_what_lies_may_spoil():
    (table,) = re.findall(
        r"^\| message \| sent by a \| .*?\n\|[-|]+\n((?:\|.*\n)+)",
        SECURITY.read_text(),
        re.MULTILINE,
    )
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    listed = {
        (by, m): text for messages, by, text in rows for m in re.findall(r"`(\w+)`", messages)
    }
    assert listed == SPOILS


def test_each_attack_that_was_carried_out_has_a_test_and_a_row_with_its_number():
    """A test of what an attack still gets is one of a limit."""
    files = SECURITY.parents[2].glob("tests/*/test_*.py")
    numbered = re.compile(r"\btest_(?:limit_)?attacks?_(\d+)(?:_and_(\d+))?_\w+")
    for text in ("".join(f.read_text(encoding="utf-8") for f in files), SECURITY.read_text()):
        found = {int(n) for groups in numbered.findall(text) for n in groups if n}
        assert found == {*range(1, 19)}


def test_the_command_says_how_lies_ended_and_how_to_repeat_one(monkeypatch, capsys):
    monkeypatch.delitem(SPOILS, ("client", "SumUpload"))
    lies.main(["--only", "sum", "--count", "30", "--find", "SumShares"])
    assert "30 lies, seed 1: 0 ended as they may not" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="a wrong result") as caught:
        lies.main(["--only", "sum", "--find", "SumUpload"])
    what, repeat = caught.value.__notes__[0].split("\n")
    assert "SumUpload" in what
    with pytest.raises(AssertionError) as again:
        lies.main(shlex.split(repeat.removeprefix("to repeat: ")))
    assert again.value.__notes__ == caught.value.__notes__
