"""Running a study: data, checkpoints, metrics, the best network on the validation rows, results."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.whole_files import write_whole
from xclp_lp.labels import UNLABELLED
from xclp_lp.study.data import load
from xclp_lp.study.data.pictures import PICTURES
from xclp_lp.study.experiments.config import METRICS
from xclp_lp.study.experiments.forms import rows_to_score
from xclp_lp.study.experiments.rounds import History, Holdings
from xclp_lp.study.experiments.run import metrics_of, software, table_of
from xclp_lp.study.training.augment import PICTURES_ONLY
from xclp_lp.study.training.client import ClientRows
from xclp_lp.study.training.config import Study
from xclp_lp.study.training.neural_networks import network
from xclp_lp.study.training.seeds import derived
from xclp_lp.study.training.split import Split, split_rows
from xclp_lp.study.training.trainer import FederatedTrainer, predicted_classes

OnRound = Callable[[int, str, int, int], None]
"""Takes the seed, the method, how many rounds are done, and how many there are."""


@dataclass(frozen=True, eq=False)
class AllRows:
    """All rows of a data set.

    Attributes:
        train: (n, …) inputs of the training rows.
        class_ids: (n,) their classes.
        owners: (n,) the data set's own client of each.
        test: (n_test, …) inputs of the test rows.
        test_class_ids: (n_test,) their classes.
        about: source, licence and sizes, for the result.
    """

    train: Tensor
    class_ids: NDArray[np.int64]
    owners: NDArray[np.intp]
    test: Tensor
    test_class_ids: NDArray[np.int64]
    about: dict[str, Any]


def read_rows(study: Study, device: torch.device, seed: int) -> AllRows:
    """Load a study's data set.

    Raises:
        ParameterError, DataError: see `xclp_lp.study.data.load`.
    """
    federation = load(study.dataset, **study.data)
    test = np.concatenate(rows_to_score(federation, study.test_share, seed))
    features = np.concatenate(federation.features).astype(np.float32)
    class_ids = np.concatenate(federation.class_ids)
    owners = np.repeat(np.arange(len(federation.names)), [len(y) for y in federation.labels])
    if study.dataset in PICTURES:
        inputs = torch.from_numpy(PICTURES[study.dataset].pixels(features))
    elif study.augmentation in PICTURES_ONLY:
        raise ParameterError(
            f"the augmentation {study.augmentation!r} is for pictures, and {study.dataset!r} has "
            "none; use 'noise' or 'none'"
        )
    else:
        inputs = torch.from_numpy(features)
    train = np.flatnonzero(~test)
    return AllRows(
        inputs[torch.from_numpy(train)].to(device),
        class_ids[train],
        owners[train],
        inputs[torch.from_numpy(np.flatnonzero(test))].to(device),
        class_ids[test],
        {
            "source": federation.source,
            "licence": federation.licence,
            "training_rows": len(train),
            "test_rows": int(test.sum()),
            "shape": list(inputs.shape[1:]),
            "classes": [*federation.classes],
        },
    )


def run_study(
    study: Study, folder: Path, *, resume: bool = False, report: OnRound | None = None
) -> dict[str, Any]:
    """Run every method with every seed.

    For each seed the folder gets ``split-SEED.json``, and for each run ``METHOD-SEED.csv`` (metrics
    of each round), ``METHOD-SEED.pt`` (the checkpoint) and ``METHOD-SEED.json`` (its result).

    Args:
        study: what to run.
        folder: for these files; it must be there.
        resume: whether to go on with what is in the folder. A run that was stopped goes on from its
            last checkpoint and ends, on a CPU, as if it had not been.
        report: called before each round.

    Returns:
        ``experiment`` (all fields of the study), ``data``, ``runs``, ``table`` and ``software``, as
        from `xclp_lp.study.experiments.run.run_experiment`.

    Raises:
        ParameterError: the folder has runs and `resume` is false, or runs of another study.
        XclpError: a run diverges.
    """
    fixed = folder / "study.json"
    described = json.dumps(study.to_dict(), indent=2) + "\n"
    if fixed.exists():
        if not resume:
            raise ParameterError(
                f"{folder} has runs already; resume them, or choose another folder or name"
            )
        if fixed.read_bytes() != described.encode():
            raise ParameterError(
                f"{folder} has runs of another study, see {fixed}; choose another folder or name"
            )
    write_whole(fixed, described.encode())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    runs: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    for seed in study.seeds:
        rows = read_rows(study, device, seed)
        split = _split(study, rows, folder / f"split-{seed}.json", seed)
        about = rows.about | {
            "clients": len(split.labelled),
            "labels": sum(map(len, split.labelled)),
            "clients_with_labels": sum(len(s) > 0 for s in split.labelled),
            "client_rows": sum(map(len, (*split.labelled, *split.unlabelled))),
            "validation_rows": len(split.validation),
        }
        for method in study.methods:
            runs.append(_run(study, rows, split, method, seed, folder, report))
    return {
        "experiment": {"form": "federated-ssl"} | study.to_dict(),
        "data": about,
        "runs": runs,
        "table": table_of(runs),
        "software": software()
        | {"torch": torch.__version__, "device": device.type, "threads": torch.get_num_threads()},
    }


def read_rounds(study: Study, folder: Path) -> tuple[list[History], list[Holdings]]:
    """Read from the folder of a study that has run what its report shows besides the result.

    Returns:
        The metrics of all rounds of each run, and what the clients have with each seed.

    Raises:
        DataError: a file of the study is not there or is something else.
    """
    histories = [
        History.read(folder / f"{method}-{seed}.csv", method, seed)
        for seed in study.seeds
        for method in study.methods
    ]
    holdings = []
    for seed in study.seeds:
        split = Split.read(folder / f"split-{seed}.json")
        labelled, unlabelled = (
            np.array([len(rows) for rows in own], dtype=np.int64)
            for own in (split.labelled, split.unlabelled)
        )
        holdings.append(Holdings(seed, labelled, unlabelled))
    return histories, holdings


def _split(study: Study, rows: AllRows, file: Path, seed: int) -> Split:
    """Read the split of a seed where it was written, or make and write it."""
    if file.exists():
        return Split.read(file)
    split = split_rows(
        rows.class_ids, rows.owners, len(rows.about["classes"]), study.split_parameters(), seed
    )
    split.write(file)
    return split


def _run(
    study: Study,
    rows: AllRows,
    split: Split,
    method: str,
    seed: int,
    folder: Path,
    report: OnRound | None,
) -> dict[str, Any]:
    """Do one run, or the rest of it, or read its result."""
    result_file, checkpoint, table = (
        folder / f"{method}-{seed}.{suffix}" for suffix in ("json", "pt", "csv")
    )
    if result_file.exists():
        return _finished(result_file)
    trainer = trainer_of(study, rows, split, method, seed)
    best: dict[str, Any] = {"accuracy": -1.0, "turn": -1, "model": {}}
    lines: list[dict[str, Any]] = []
    seconds = 0.0
    if checkpoint.exists():
        # Tensors, numbers and dictionaries only: nothing in the file is run.
        if not is_zipfile(checkpoint):  # it was cut short
            raise DataError(f"{checkpoint} cannot be read; remove it to train anew")
        try:
            saved = torch.load(checkpoint, weights_only=True, map_location=rows.train.device)
            trainer.load_state(saved["trainer"])
            best, lines, seconds = saved["best"], saved["lines"], saved["seconds"]
        except (RuntimeError, KeyError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise DataError(
                f"{checkpoint} cannot be read ({reason}); remove it to train anew"
            ) from None
    validation = torch.from_numpy(split.validation)
    while trainer.turn < trainer.total_rounds:
        if report is not None:
            report(seed, method, trainer.turn, trainer.total_rounds)
        start = time.perf_counter()
        metrics = trainer.round()
        accuracy = math.nan
        last = trainer.turn == trainer.total_rounds
        if trainer.turn % study.evaluate_every == 0 or last:
            found = predicted_classes(trainer.model, rows.train[validation])
            accuracy = float((found == rows.class_ids[split.validation]).mean())
            if accuracy > best["accuracy"]:
                model = trainer.state()["model"]
                best = {"accuracy": accuracy, "turn": metrics.turn, "model": model}
        seconds += time.perf_counter() - start
        lines.append(asdict(metrics) | {"validation_accuracy": accuracy})
        if not math.isnan(accuracy):
            state = {"trainer": trainer.state(), "best": best, "lines": lines, "seconds": seconds}
            buffer = io.BytesIO()
            torch.save(state, buffer)
            write_whole(checkpoint, buffer.getvalue())
            write_whole(table, _csv(lines).encode())
    final = predicted_classes(trainer.model, rows.test)
    trainer.model.load_state_dict(best["model"])
    found = predicted_classes(trainer.model, rows.test)
    labelled = [line for line in lines if not math.isnan(line["pseudo_accuracy"])]
    result = {
        "seed": seed,
        "setting": {"partition": study.split_parameters().kind},
        "method": method,
        **metrics_of([found], [rows.test_class_ids], [np.ones(len(found), dtype=np.bool_)]),
        "validation_accuracy": best["accuracy"],
        "best_round": best["turn"],
        "last_accuracy": round(float((final == rows.test_class_ids).mean()), 6),
        "pseudo_accuracy": round(labelled[-1]["pseudo_accuracy"], 6) if labelled else None,
        "rounds": trainer.turn,
        "seconds": round(seconds, 1),
        "labels_sha256": hashlib.sha256(found.astype("<i8").tobytes()).hexdigest(),
    }
    write_whole(result_file, (json.dumps(result, indent=2) + "\n").encode())
    return result


def _finished(file: Path) -> dict[str, Any]:
    """Read the result of a run that is over.

    Raises:
        DataError: the file is something else, or cut short.
    """
    try:
        result: dict[str, Any] = json.loads(file.read_bytes())
        if {"seed", "setting", "method", "seconds", *METRICS} <= result.keys():
            return result
    except (ValueError, RecursionError, AttributeError):
        pass
    raise DataError(f"{file} is not the result of a run; remove it to run that anew")


def trainer_of(
    study: Study, rows: AllRows, split: Split, method: str, seed: int
) -> FederatedTrainer:
    """Return a trainer at the start of a run.

    Raises:
        DataError: the split names rows that the data set does not have.
    """
    if max(int(r.max(initial=-1)) for r in (*split.labelled, *split.unlabelled)) >= len(
        rows.class_ids
    ):
        raise DataError("the split is that of a data set with more training rows")
    clients, truth = [], []
    for have, lack in zip(split.labelled, split.unlabelled, strict=True):
        own = np.sort(np.concatenate([have, lack]))
        class_ids = np.where(np.isin(own, have), rows.class_ids[own], UNLABELLED)
        clients.append(ClientRows(rows.train[torch.from_numpy(own)], class_ids))
        truth.append(rows.class_ids[own])
    n_classes = len(rows.about["classes"])
    shape = tuple(rows.about["shape"])
    model = network(study.network, shape, n_classes, derived(seed, "weights"))
    return FederatedTrainer(
        model.to(rows.train.device),
        clients,
        study.strategy(method, len(clients)),
        study.labeller(method, n_classes, seed),
        study.hyper_parameters(method),
        seed=seed,
        truth=truth,
    )


def _csv(lines: list[dict[str, Any]]) -> str:
    """Return the metrics of all rounds as CSV; floats in full, what was not measured empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        unknown = {k: "" for k, v in line.items() if isinstance(v, float) and math.isnan(v)}
        writer.writerow(line | unknown)
    return text.getvalue()
