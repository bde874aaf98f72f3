"""Random faults end in the exact answer of the survivors or in a typed error; none hangs.

A fixed number of schedules of each protocol. `make faults` runs 10,000 others.
"""

import shlex

import pytest
import run
from schedules import PER_SEED, SUBJECTS, Subject, endings, tally

from xclp_crypto.testing import every_schedule

COUNT = 24


@pytest.mark.parametrize("name", SUBJECTS)
def test_random_faults_end_in_the_exact_answer_or_in_a_typed_error(name):
    found = tally(name, COUNT)
    assert sum(found.values()) == COUNT
    # Something of everything happens, so that the checks are exercised.
    assert any(how.startswith("exact, all") for how in found)
    assert any(how.startswith("exact, survivors") for how in found)
    assert any(how.startswith("stopped") for how in found)


@pytest.mark.parametrize("name", SUBJECTS)
def test_sizes_differ_by_seed_from_3_to_8_clients(name):
    sizes = {len(SUBJECTS[name].make(seed)()) - 1 for seed in range(12)}
    assert sizes == {3, 4, 5, 6, 7, 8}


def test_schedules_have_numbers_that_do_not_depend_on_where_one_begins():
    whole = list(endings("setup", 12))
    assert list(endings("setup", 5, 3)) == whole[3:8]
    cases = list(every_schedule(SUBJECTS["setup"].make, range(3), per_seed=PER_SEED))
    assert [SUBJECTS["setup"].check(case) for case in cases] == whole


def test_the_command_counts_how_they_ended_and_says_what_went_wrong(monkeypatch, capsys):
    run.main(["--schedules", "20", "--first", "4"])
    out = capsys.readouterr().out
    assert all(name in out for name in SUBJECTS)
    assert "20 schedules: every one ended in the exact answer or in a typed error" in out

    def wrong(case):
        assert not case.schedule.dropouts
        return "fine"

    monkeypatch.setitem(SUBJECTS, "setup", Subject(SUBJECTS["setup"].make, wrong))
    with pytest.raises(AssertionError) as caught:
        run.main(["--schedules", "100", "--only", "setup"])
    described, repeat = caught.value.__notes__[0].split("\n")
    assert "drops out after" in described
    arguments = shlex.split(repeat.removeprefix("to repeat: "))
    with pytest.raises(AssertionError) as again:
        run.main(arguments)
    assert again.value.__notes__ == caught.value.__notes__
