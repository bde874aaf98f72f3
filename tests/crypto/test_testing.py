"""The statistical helpers of `xclp_crypto.testing`, and its random faults."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from xclp_crypto.errors import Endless, FaultyPeer, FaultyPeerOrServer, ParameterError, Stalled
from xclp_crypto.protocols.setup.seed_agreement import Confirm, SeedShare
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import (
    ENDLESS,
    FAULT_KINDS,
    MAX_FAULTS,
    MESSAGE_FAULTS,
    TAMPERS,
    MessageFault,
    Schedule,
    blamed,
    deliveries,
    every_dropout,
    every_schedule,
    random_schedule,
    run,
    same_distribution,
    uniformity,
)


def test_uniformity_tells_fair_counts_from_unfair_ones():
    assert uniformity([100, 100, 100]) == 1
    assert uniformity(np.random.default_rng(0).multinomial(1000, [0.25] * 4)) > 1e-3
    assert uniformity([100, 300]) < 1e-9
    assert uniformity([1000, 0]) < 1e-9


def test_same_distribution_compares_two_samples_of_any_size():
    assert same_distribution([10, 90], [100, 900]) > 0.9
    assert same_distribution([10, 90, 0], [900, 100, 0]) < 1e-9
    assert same_distribution([0, 90], [0, 10]) == 1
    assert same_distribution([0, 90], [90, 0]) < 1e-9


@pytest.mark.parametrize("counts", [[10], [1, 1], [[9, 9], [9, 9]], []])
def test_a_sample_too_small_for_the_test_is_refused(counts):
    with pytest.raises(ParameterError, match="chi-square"):
        uniformity(counts)


@pytest.mark.parametrize("counts", [[0, 0], [1, 3], []])
def test_two_samples_too_small_for_the_test_are_refused(counts):
    with pytest.raises(ParameterError, match="chi-square"):
        same_distribution(counts, counts)


def test_blame_includes_the_server_where_it_relays():
    assert blamed(FaultyPeer("a", "why")) == {"a"}
    assert blamed(FaultyPeer(("a", "b"), "why")) == {"a", "b"}
    assert blamed(FaultyPeerOrServer("a", "why")) == {"a", "server"}
    assert blamed(Stalled("a", "step", ("b",), "Note")) == frozenset()


# Random faults


def share(number):
    return SeedShare(bytes([number]) * 32)


def counting(count=5, clients="ab"):
    """Each client sends the server 1, 2, …; the server reads until a link is at its end."""

    async def client(io):
        for number in range(1, count + 1):
            await io.send("server", share(number))

    async def server(io):
        got = {c: [] for c in clients}
        while answered := await io.gather(SeedShare, clients, 0):
            for c, message in answered.items():
                got[c].append(message.value[0])
        return {c: tuple(numbers) for c, numbers in got.items()}

    return lambda: {**dict.fromkeys(clients, client), "server": server}


@pytest.mark.parametrize(
    ("fault", "arrived"),
    [
        (("a", 1, "lose", ""), (1, 3, 4, 5)),
        (("a", 1, "duplicate", ""), (1, 2, 2, 3, 4, 5)),
        (("a", 1, "delay", "", 1), (1, 3, 2, 4, 5)),
        (("a", 1, "delay", "", 3), (1, 3, 4, 5, 2)),
        (("a", 1, "delay", "", 8), (1, 3, 4, 5, 2)),  # counted over both links
        (("a", 1, "delay", "", 9), (1, 3, 4, 5)),  # only 8 come
        (("a", 1, "replay", "", 1), (1, 2, 3, 2, 4, 5)),
        (("a", 1, "replay", "", 9), (1, 2, 3, 4, 5)),
        (("a", 1, "corrupt", "zeroed"), (1, 0, 3, 4, 5)),
        (("a", 1, "corrupt", "replaced by the one before on this link"), (1, 1, 3, 4, 5)),
        (("a", 9, "lose", ""), (1, 2, 3, 4, 5)),  # there is no such message
    ],
)
def test_each_fault_of_a_message_does_what_it_says(fault, arrived):
    sender, number, kind, tamper, *later = fault
    fault = MessageFault(sender, "server", number, "SeedShare", kind, tamper, *later)
    results = run(counting(), Schedule({}, {}, [fault]).faults()).raise_errors().results
    assert results["server"] == {"a": arrived, "b": (1, 2, 3, 4, 5)}


def test_a_schedule_says_what_it_does_and_does_it():
    faults = [
        MessageFault("a", "server", 0, "SeedShare", "delay", later=7),
        MessageFault("b", "server", 1, "SeedShare", "corrupt", "truncated"),
    ]
    schedule = Schedule({"a": 3}, {"b": 2}, faults)
    assert str(schedule) == (
        "a drops out after 3 operations; b is away after 2 operations; "
        "message 0, SeedShare a → server: delayed by 7 messages; "
        "message 1, SeedShare b → server: truncated"
    )
    for _ in range(2):  # faults that count are made anew for each run
        outcome = run(counting(), schedule.faults())
        assert outcome.dropouts == ("a",)
        assert isinstance(outcome.errors["server"], FaultyPeer)
        assert outcome.returned == ("b",)
    texts = {str(MessageFault("a", "b", 0, "X", kind, "zeroed", 2)) for kind in MESSAGE_FAULTS}
    assert texts == {
        f"message 0, X a → b: {what}"
        for what in (
            "lost",
            "delayed by 2 messages",
            "duplicated",
            "zeroed",
            "replayed after 2 messages",
        )
    }


def test_random_schedules_have_one_to_three_faults_of_every_kind_party_and_message():
    make = counting()
    operations, sent = run(make).operations, deliveries(make)
    sizes, kinds, tampers, points, messages = Counter(), Counter(), set(), set(), set()
    for seed in range(2000):
        schedule = random_schedule(SeededRng(seed), operations, sent)
        kinds.update({"drop": len(schedule.dropouts), "away": len(schedule.away)})
        kinds.update(fault.kind for fault in schedule.messages)
        tampers |= {f.tamper for f in schedule.messages if f.kind == "corrupt"}
        points |= {*schedule.dropouts.items(), *schedule.away.items()}
        messages |= {(f.sender, f.receiver, f.number) for f in schedule.messages}
        sizes[len(schedule.dropouts) + len(schedule.away) + len(schedule.messages)] += 1
        assert all(1 <= f.later <= 2 * len(sent) for f in schedule.messages if "lay" in f.kind)
    assert set(sizes) == set(range(1, MAX_FAULTS + 1))
    # Faults at the same place are one, so the counts are only nearly equal.
    assert set(kinds) == set(FAULT_KINDS)
    assert min(kinds.values()) > 0.8 * max(kinds.values())
    assert tampers == set(TAMPERS) - {"lost"}
    assert points == {(p, k) for p, count in operations.items() for k in range(count)}
    assert messages == {(c, "server", k) for c in "ab" for k in range(5)}


def test_a_seed_fixes_the_whole_run():
    def cases(seeds, per_seed):
        return [
            (str(case), case.outcome.results, [str(e) for e in case.outcome.errors.values()])
            for case in every_schedule(
                lambda seed: counting(2 + seed % 3), seeds, per_seed=per_seed
            )
        ]

    first = cases(range(40), 3)
    assert first == cases(range(40), 3)
    assert len({text for text, *_ in first}) == len(first) == 120
    assert cases([17], 2) == first[17 * 3 : 17 * 3 + 2]
    assert first[17 * 3 + 1][0].startswith("seed 17, schedule 1: ")


def test_random_schedules_find_a_protocol_that_is_wrong_under_a_fault():
    """The server does not notice that a number is missing, comes twice or comes early."""

    def wrong(kinds):
        return [
            case
            for case in every_schedule(lambda seed: counting(), range(60), kinds=kinds)
            if case.outcome.results.get("server", {}).get("a", ()) != (1, 2, 3, 4, 5)
            and not case.outcome.errors
        ]

    for kind in FAULT_KINDS:
        if kind != "away":  # whoever is only away does come back
            assert wrong([kind]), kind


def test_kinds_may_be_chosen():
    for kind in FAULT_KINDS:
        for case in islice(every_schedule(lambda seed: counting(), range(9), kinds=[kind]), 9):
            s = case.schedule
            assert {f.kind for f in s.messages} <= {kind}
            assert bool(s.dropouts) == (kind == "drop")
            assert bool(s.away) == (kind == "away")
    with pytest.raises(ParameterError, match="the kinds of faults are drop"):
        next(every_schedule(lambda seed: counting(), [0], kinds=["lie"]))
    for kinds in ([], ["lose"]):
        with pytest.raises(ParameterError, match="no faults of the kinds"):
            next(every_schedule(lambda seed: counting(0), [0], kinds=kinds))


def stubborn():
    """A server that asks until everybody has answered, at whatever cost."""

    async def client(io):
        await io.recv(Confirm, "server")
        await io.send("server", share(1))

    async def server(io):
        got = {}
        await io.send(["a", "b"], Confirm(bytes(32)))
        while len(got) < 2:
            got |= await io.gather(SeedShare, [c for c in "ab" if c not in got], 0)

    return {"a": client, "b": client, "server": server}


def test_a_run_that_does_not_end_raises_an_error_that_says_how_to_repeat_it():
    limit = ENDLESS * sum(run(stubborn).operations.values())
    with pytest.raises(Endless, match=f"exceeds {limit} operations") as caught:
        list(every_schedule(lambda seed: stubborn, range(50), kinds=["drop"]))
    (note,) = caught.value.__notes__
    assert "drops out after" in note
    seed = int(note.split(",")[0].removeprefix("seed "))
    with pytest.raises(Endless):
        next(every_schedule(lambda seed: stubborn, [seed], kinds=["drop"]))
    with pytest.raises(Endless):
        list(every_dropout(lambda: stubborn()))


def test_a_bug_that_a_schedule_finds_says_how_to_repeat_it():
    def fragile():
        async def client(io):
            await io.send("server", share(1))

        async def server(io):
            return (await io.gather(SeedShare, "a", 0))["a"]

        return {"a": client, "server": server}

    with pytest.raises(KeyError) as caught:
        list(every_schedule(lambda seed: fragile, range(50), kinds=["lose"]))
    assert caught.value.__notes__[0].endswith("SeedShare a → server: lost")

    async def fails(io):
        raise ParameterError("always")

    with pytest.raises(ParameterError) as caught:
        next(every_schedule(lambda seed: lambda: {"a": fails}, [5]))
    assert caught.value.__notes__ == ["seed 5, without faults"]
