"""Run many lies: ``python -m tests.attackers.lies --count 4000 --seed 1``.

A case is one statement of one party of a protocol, or the same statement to all its receivers, and
one lie about it, after which the party may be silent, over one way to carry messages. All cases of
all protocols are put in an order that the seed decides, in which every message has had every kind
of lie before the next cases of them come. Each must end in the right result, or in typed errors of
which each names the attacker, or it and others of whom one is at fault; a wrong result is allowed
where `SPOILS` has the message. The first that does not ends the run and says how to repeat it.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import numpy as np
from carriers import CARRIERS, Ending
from deviate import Lie, Statement, deviating, lies_about, lying
from headers import HeaderCase, header_cases
from spoils import SPOILS
from subjects import SUBJECTS
from views import watching

from xclp_crypto.errors import DecodeError, Excluded, FaultyPeer, NetworkError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import blamed

TOLD = ("SeedShare", "OtChallenge", "DealtSeed")
"""Messages in which clients tell each other what they drew."""


@dataclass(frozen=True)
class Case:
    """One lie.

    Attributes:
        protocol: in `SUBJECTS`.
        carrier: in `CARRIERS`.
        attacker: the party that lies.
        statement: the first about which it does.
        numbers: of all about which it does.
        what: describes the lie.
        lie: the lie.
        silent: whether the attacker says nothing afterwards.
    """

    protocol: str
    carrier: str
    attacker: str
    statement: Statement
    numbers: tuple[int, ...]
    what: str
    lie: Lie
    silent: bool = False

    @property
    def message(self) -> str:
        """Return the message about which it lies."""
        return self.statement.message

    def ending(self) -> Ending:
        """Run it."""
        roles = dict(SUBJECTS[self.protocol].make()())
        roles[self.attacker] = lying(
            roles[self.attacker], self.numbers, self.lie, silent=self.silent
        )
        with deviating():
            return CARRIERS[self.carrier](roles)

    @property
    def kind(self) -> tuple[str, ...]:
        """Return what it has in common with cases that differ in receivers and places only."""
        return (
            self.protocol,
            self.carrier,
            role_of(self.attacker),
            self.message,
            self.what,
        )

    def __str__(self) -> str:
        to = self.statement.to if len(self.numbers) == 1 else "all"
        return (
            f"{self.protocol}, by {self.carrier}: {self.attacker} → {to}, "
            f"{self.message} ({self.statement.number}): {self.what}"
        )


def role_of(party: str) -> str:
    """Return what kind of party this is."""
    return SERVER if party == SERVER else "client"


def cases_of(protocol: str) -> Iterator[Case]:
    """Yield all cases of a protocol."""
    make = SUBJECTS[protocol].make()
    statements: dict[str, list[Statement]] = {party: [] for party in make()}
    with deviating():
        ending = CARRIERS["simulation"](
            {p: lying(role, (), lambda now, _: None, statements[p]) for p, role in make().items()}
        )
    if ending.errors:
        raise next(iter(ending.errors.values()))
    for attacker, made in statements.items():
        for now in made:
            act = tuple(s.number for s in made if s.act == now.act)
            for numbers in {(now.number,), act} if now.number == act[0] else {(now.number,)}:
                for what, lie in lies_about(now).items():
                    if lie(now, made[: now.number]) is None:
                        continue
                    for name, carrier in CARRIERS.items():
                        if SERVER in statements or not carrier.through_server:
                            case = Case(protocol, name, attacker, now, numbers, what, lie)
                            yield case
                            if what.endswith(": last bit"):  # what counts if its sender vanishes
                                yield replace(case, what=f"{what}, then silence", silent=True)


def in_turn(cases: Sequence[Case | HeaderCase], seed: int) -> list[Case | HeaderCase]:
    """Put cases in a random order in which each kind has come k times before one comes k + 1."""
    rng = np.random.default_rng(seed)
    before: Counter[tuple[str, ...]] = Counter()
    order = []
    for case in (cases[i] for i in rng.permutation(len(cases))):
        order.append((before[case.kind], len(order), case))
        before[case.kind] += 1
    return [case for *_, case in sorted(order, key=lambda entry: entry[:2])]


def named(party: str, ending: Ending, relayed: bool) -> set[str]:
    """Return those of whom a party's error says that one is at fault, or was missing.

    A client gets all that it gets from the server, where that relays messages. Where it does not,
    nobody tells those that wait for a party that failed; so also whom that one names. Of a client
    that the server left out, the server's record may say whom it is apart from.
    """
    error, after = ending.errors[party], ending.without(party)
    if isinstance(error, FaultyPeer):
        return {*blamed(error)}
    said = re.findall(r"(?:without|from) ([\w-]+(?:, [\w-]+)*)|([\w-]+) says", str(error))
    names = {name for groups in said for group in groups for name in group.split(", ")}
    if isinstance(error, Excluded):
        record = getattr(after.results.get(SERVER), "record", after.results.get(SERVER))
        names.update(*(pair for pair in getattr(record, "apart", ()) if party in pair))
    from_server = isinstance(error, Excluded | NetworkError | DecodeError)
    if from_server or str(error).startswith("the server") or (relayed and party != SERVER):
        names.add(SERVER)
    return names.union(*(named(p, after, relayed) for p in names if p in after.errors))


def judged(case: Case | HeaderCase) -> str:
    """Run a case and say how it ended.

    Raises:
        AssertionError: not as it may.
    """
    with watching() as views:
        honest = case.ending().without(case.attacker)
    subject, parties = SUBJECTS[case.protocol], honest.results.keys() | honest.errors.keys()
    told = views.leaks(parties, subject.inputs)
    leaks = [(party, m) for party, m in told if party == SERVER or m not in TOLD]
    assert not leaks, f"got what an honest party keeps for itself: {leaks}"
    for party, error in honest.errors.items():
        names = named(party, honest, case.carrier != "simulation")
        assert case.attacker in names, f"{party} has {type(error).__name__}: {error}"
    wrong = [party for party in honest.results if not subject.right(party, honest)]
    if wrong:
        message = role_of(case.attacker), case.message
        assert message in SPOILS, f"{', '.join(wrong)}: a wrong result"
        return "spoiled, as listed"
    if not honest.errors:
        return "right at all"
    if not any(isinstance(error, FaultyPeer) for error in honest.errors.values()):
        how = "left out or missed"
    elif any(len(blamed(error)) > 1 for error in honest.errors.values()):
        how = "the attacker or another named"
    else:
        how = "the attacker named"
    return f"{how}, {'the others right' if honest.results else 'stopped'}"


def run_cases(cases: Sequence[Case | HeaderCase]) -> Iterator[tuple[Case | HeaderCase, str]]:
    """Run cases in turn and say how each ended; a failure says which it was."""
    for case in cases:
        try:
            yield case, judged(case)
        except Exception as error:
            error.add_note(f"{case}\nto repeat: --only {case.protocol!r} --find {str(case)!r}")
            raise


def main(arguments: Sequence[str] | None = None) -> None:
    """Run lies and print how many ended in which way."""
    parser = argparse.ArgumentParser(description="Let parties lie.")
    parser.add_argument("--count", type=int, default=4000, help="how many; all if there are fewer")
    parser.add_argument("--seed", type=int, default=1, help="decides which")
    parser.add_argument("--only", choices=SUBJECTS, help="one protocol instead of all")
    parser.add_argument("--find", default="", help="only cases whose description has this text")
    parser.add_argument("--go-on", action="store_true", help="list all failures, end at none")
    chosen = parser.parse_args(arguments)
    names = [chosen.only] if chosen.only else list(SUBJECTS)
    every = [*header_cases(), *(case for name in names for case in cases_of(name))]
    found = [case for case in every if chosen.find in str(case)]
    cases = in_turn(found, chosen.seed)[: chosen.count]
    print(f"{len(cases)} of {len(found)} lies, seed {chosen.seed}", flush=True)
    endings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    failures = 0
    spoiled: set[tuple[str, str]] = set()
    for number, case in enumerate(cases, 1):
        try:
            ((_, ending),) = run_cases([case])
        except Exception as error:
            if not chosen.go_on:
                raise
            failures += 1
            print(f"{type(error).__name__}: {error} — {case}", flush=True)
            continue
        endings[case.carrier][ending] += 1
        if ending.startswith("spoiled"):
            spoiled.add((role_of(case.attacker), case.message))
        if number % 500 == 0:
            print(f"  {number} of {len(cases)}", flush=True)
    for carrier, ended in endings.items():
        for ending, count in ended.most_common():
            print(f"  {count:6}  by {carrier}: {ending}", flush=True)
    if not chosen.only and len(cases) == len(found) and spoiled != {*SPOILS}:
        print(f"listed, and spoil nothing: {sorted({*SPOILS} - spoiled)}", flush=True)
    print(f"{len(cases)} lies, seed {chosen.seed}: {failures} ended as they may not", flush=True)


if __name__ == "__main__":
    logging.getLogger("xclp_crypto").setLevel(logging.CRITICAL)
    main()
