"""Runs whose reports are tested: with hostile names, and of the largest federations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from xclp_crypto.transport.meter import Cost, Traffic, Work
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.dropouts import STEPS
from xclp_lp.parameters import Parameters
from xclp_lp.plan import Result
from xclp_lp.study.data import Federation, load
from xclp_lp.study.demo import Comparison, compare, plan_demo
from xclp_lp.study.experiments import run as run_module
from xclp_lp.study.experiments.config import Experiment
from xclp_lp.study.experiments.document import LABELLER_NAMES, STRATEGY_NAMES
from xclp_lp.study.experiments.rounds import SHOWN, History, Holdings
from xclp_lp.study.experiments.run import Details, run_experiment, table_of
from xclp_lp.study.report import (
    Report,
    demo_report,
    experiment_report,
    run_report,
    training_report,
)
from xclp_lp.study.scores import Scores
from xclp_lp.study.views import RunRecord

HOSTILE = (
    "<script>document.title='gone'</script>",
    '"><img src=https://example.invalid/x onerror=alert(1)>',
    r"$\frac{1}{$ & '",
    "fill: #24292f</style><b>",
    "日本語 العربية 🦊",
    "new\nline\x00\x1b[31m\u202etxt",
    "long " * 60,
)
"""Names of clients and classes that someone else chose."""


def federation(names: tuple[str, ...] = HOSTILE, rows: int = 20, seed: int = 0) -> Federation:
    """Clients with names and classes that are hostile; the classes are three directions."""
    rng = np.random.default_rng(seed)
    classes = HOSTILE[:3]
    codes = [rng.integers(3, size=rows) for _ in names]
    return Federation(
        names=names,
        features=tuple(np.eye(3, 5)[y] + 0.4 * rng.standard_normal((rows, 5)) for y in codes),
        labels=tuple(np.array(classes)[y] for y in codes),
        classes=classes,
        source=HOSTILE[0],
        licence=HOSTILE[1],
    )


@cache
def comparison(names: tuple[str, ...] = HOSTILE, drops: str = "", **settings: Any) -> Comparison:
    """Compare methods; the client that `drops` does so in the step 'hamming'."""
    drop = {drops: "hamming"} if drops else None
    defaults: dict[str, Any] = {
        "preset": "paper",
        "labelled": 0.2, "seed": 0, "n_bits": 64, "k": 3, "alpha": 0.9, "hamming": "masked",
    }  # fmt: skip
    data = federation(names)
    return compare(data, plan_demo(data, **defaults | settings, drop=drop), drop=drop)


def demonstration(names: tuple[str, ...] = HOSTILE, **settings: Any) -> Report:
    found = comparison(names, **settings)
    return demo_report(
        found.scores, found.record, source=HOSTILE[0], parameters={"dataset": HOSTILE[1]}
    )


@cache
def ran() -> tuple[Result, list[Any]]:
    """What came of a fifth of the labels, and all labels."""
    data = federation()
    shown = [[y if i % 5 == 0 else None for i, y in enumerate(own.tolist())] for own in data.labels]
    options = {
        "preset": "paper",
        "n_bits": 64,
        "k": 3,
        "hamming": "masked",
        "random_state": 987654321,
    }
    xclp = CrossClientLabelPropagation(**options, classes=data.classes, client_names=data.names)
    return xclp.plan(data.features, shown).run(), [own.tolist() for own in data.labels]


def run() -> Report:
    return run_report(ran()[0])


@cache
def experimented(
    form: str = "labels",
    values: tuple[Any, ...] = (1, 3),
    *,
    clients: int = 3,
    group_size: int = 700,
) -> tuple[dict[str, Any], list[Details]]:
    """A form of experiment on few digits of some clients, with two seeds."""
    small = load("digits", n_clients=clients).thinned(60)
    found: list[Details] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "load", lambda name: small)
        result = run_experiment(
            Experiment(
                form=form,
                dataset="digits",
                values=values,
                methods=("per-client", "xclp", "pooled"),
                parameters={"n_bits": 64},
                group_size=group_size,
                seeds=(0, 1),
            ),
            keep=found.append,
        )
    return result, found


def experiment(*form: Any, **size: int) -> Report:
    return experiment_report(*experimented(*form, **size))


METHODS = ("fedavg", "fedavg+per-client", "fedavg+xclp", "fedmatch")
METHODS_OF_TRAINING = (
    *STRATEGY_NAMES,
    *(f"{s}+{labeller}" for s in ("fedavg", "fedprox", "scaffold") for labeller in LABELLER_NAMES),
)


def trained(
    methods: tuple[str, ...] = METHODS,
    seeds: tuple[int, ...] = (3, 5),
    *,
    rounds: int = 12,
    clients: int = 6,
    pseudo: bool = True,
) -> tuple[dict[str, Any], list[History], list[Holdings]]:
    """What a study of federated training leaves, made up.

    Every second round is measured on validation rows, and what makes no pseudo-labels has no
    accuracy of them, nor has the first seed in the first two rounds.
    """
    rng = np.random.default_rng(0)
    histories, runs = [], []
    for seed in seeds:
        for method in methods:
            metrics = {name: rng.random(rounds) for name in SHOWN}
            metrics["validation_accuracy"][::2] = np.nan
            metrics["pseudo_accuracy"][: 2 if seed == seeds[0] else 0] = np.nan
            if not pseudo or method in ("fedavg", "fedmatch", "fedsiam"):
                metrics["pseudo_accuracy"][:] = np.nan
            histories.append(History(method, seed, metrics))
            last = metrics["pseudo_accuracy"][-1]
            runs.append(
                {
                    "seed": seed,
                    "setting": {"partition": "iid"},
                    "method": method,
                    "accuracy": float(rng.random()),
                    "balanced_accuracy": float(rng.random()),
                    "validation_accuracy": float(np.nanmax(metrics["validation_accuracy"])),
                    "best_round": int(np.nanargmax(metrics["validation_accuracy"])),
                    "last_accuracy": float(rng.random()),
                    "pseudo_accuracy": None if np.isnan(last) else float(last),
                    "rounds": rounds,
                    "seconds": float(100 * rng.random()),
                }
            )
    holdings = [
        Holdings(seed, np.arange(clients) % 3, rng.integers(40, 60, size=clients)) for seed in seeds
    ]
    result = {
        "experiment": {
            "form": "federated-ssl",
            "dataset": HOSTILE[1],
            "data": {"n_rows": 400},
            "network": "small-cnn",
            "augmentation": "none",
            "methods": [*methods],
            "partition": {"kind": "iid", "clients": clients, "labelled_clients": None},
            "training": {"rounds": rounds, "sampled": 0.5},
            "parameters": {"k": 4},
            "options": {"fedavg": {"steps": 7}},
            "secure": False,
            "evaluate_every": 2,
            "metric": "accuracy",
            "seeds": [*seeds],
        },
        "data": {
            "source": HOSTILE[0],
            "licence": HOSTILE[1],
            "classes": [*HOSTILE[:3]],
            "clients": clients,
            "clients_with_labels": int((holdings[0].labelled > 0).sum()),
            "labels": int(holdings[0].labelled.sum()),
            "client_rows": int((holdings[0].labelled + holdings[0].unlabelled).sum()),
            "test_rows": 1000,
            "validation_rows": 30,
        },
        "runs": runs,
        "table": table_of(runs),
        "software": {"torch": "2.0"},
    }
    return result, histories, holdings


def training() -> Report:
    return training_report(*trained())


def long_training() -> Report:
    """As many methods, rounds, seeds and clients as the paper has, and more."""
    return training_report(
        *trained(METHODS_OF_TRAINING, tuple(range(7)), rounds=2000, clients=1200)
    )


def largest() -> Report:
    """700 clients that all talk to 20 others, and 62 classes, with long names."""
    rng = np.random.default_rng(0)
    names = tuple(f"{i:04d} " + "a long name " * 8 for i in range(700))
    classes = tuple(f"class {i:02d} " + "with a long name " * 5 for i in range(62))
    n = 7000
    truth = rng.integers(62, size=n)
    given = np.where(rng.random(n) < 0.6, truth, rng.integers(-1, 62, size=n))
    confidence = rng.random(n)
    scores = Scores(
        names,
        classes,
        np.arange(n) % 700,
        truth,
        {"per-client": rng.permutation(given), "xclp": given, "pooled": given},
        confidence,
    )
    cost = Cost()
    for step in STEPS:
        for i, name in enumerate(names):
            for link in ((name, "server"), ("server", name)):
                cost.bytes_sent[Traffic(step, "Message", *link)] = int(rng.integers(1, 10**7))
                cost.messages[Traffic(step, "Message", *link)] = 1
            for j in range(1, 21):
                traffic = Traffic(step, "Shares", name, names[(i + j) % 700])
                cost.bytes_sent[traffic], cost.messages[traffic] = 100, 1
            cost.seconds[Work(step, "role", name)] = float(rng.random())
        cost.depths[step].add(1)
    record = RunRecord(
        params=Parameters(classes=classes, k=3, hamming="rlwe"),
        rows=dict.fromkeys(names, 10),
        labelled=dict.fromkeys(names, 2),
        groups={"all": names},
        fixed_projection=False,
        contributors=names,
        dropouts=(),
        cost=cost,
    )
    report = demo_report(scores, record, source="made up", parameters={"dataset": "made up"})
    return replace(report, title="The largest")


REPORTS: dict[str, Callable[[], Report]] = {
    "demo": demonstration,
    "run": run,
    "experiment": experiment,
    "largest": largest,
    "training": training,
    "long training": long_training,
}


@cache
def report(kind: str) -> Report:
    """One of `REPORTS`, made once."""
    return REPORTS[kind]()


@cache
def html(kind: str) -> str:
    """Its page, written once."""
    return report(kind).html()
