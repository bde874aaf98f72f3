"""Experiments: which rows are labelled and scored, what the methods are given, and the tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.graph import cosine_graph, neighbour_graph_from_bits
from xclp_lp.lsh import projection_seed
from xclp_lp.parameters import Arguments
from xclp_lp.propagation import pooled
from xclp_lp.session import hash_rows
from xclp_lp.study.data import Federation, load
from xclp_lp.study.experiments import run as run_module
from xclp_lp.study.experiments.config import Experiment, read_described
from xclp_lp.study.experiments.document import (
    markdown,
    read_result,
    section,
    sections,
    with_tables,
    write_tables,
)
from xclp_lp.study.experiments.features import agreed, by_client
from xclp_lp.study.experiments.fedavg import linear_embedding, train
from xclp_lp.study.experiments.forms import FORMS, Masks, Trial, TrialSource, rows_to_score
from xclp_lp.study.experiments.methods import (
    METHODS,
    arguments,
    run_per_client,
    run_pooled,
    run_xclp,
)
from xclp_lp.study.experiments.run import run_experiment, table_of
from xclp_lp.study.experiments.task import Task

ROOT = Path(__file__).parents[2]
FEW = arguments(n_bits=512, k=3)


def blobs(clients: int = 4, rows: int = 30, shift: float = 0.0) -> Federation:
    """Three directions, a little noise; the last third of each client's rows are for testing."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(3, size=rows) for _ in range(clients)]
    return Federation(
        names=tuple(f"c{j}" for j in range(clients)),
        features=tuple(
            np.eye(3, 6)[y] + 0.15 * rng.standard_normal((rows, 6)) + shift for y in labels
        ),
        labels=tuple(labels),
        classes=(0, 1, 2),
        source="made up",
        licence="none",
        test=tuple(np.arange(rows) >= rows - rows // 3 for _ in labels),
    )


def task(federation: Federation, labelled: Masks) -> Task:
    codes = tuple(
        np.where(m, y, -1).astype(np.int64)
        for y, m in zip(federation.labels, labelled, strict=True)
    )
    return Task(federation.features, codes, len(federation.classes))


def trials(
    form: str, federation: Federation, values: tuple[Any, ...], seed: int = 0
) -> list[Trial]:
    test = rows_to_score(federation, 0.3, seed)
    return list(FORMS[form].trials(TrialSource(federation, test, seed, 2), values))


# Forms


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("marked", [True, False])
def test_no_scored_row_is_labelled_and_all_take_part(form: str, marked: bool) -> None:
    federation = blobs()
    if not marked:
        federation = Federation(
            federation.names, federation.features, federation.labels, (0, 1, 2), "", ""
        )
    values = (1, 3) if form == "labels" else (0.25, 1.0)
    found = trials(form, federation, values)
    assert found
    for trial in found:
        for kept, labelled, scored in zip(trial.kept, trial.labelled, trial.scored, strict=True):
            assert not (labelled & scored).any()
            assert not ((labelled | scored) & ~kept).any()
        assert sum(s.sum() for s in trial.scored) > 0
        assert sorted(j for group in trial.groups for j in group) == [0, 1, 2, 3]
    again = trials(form, federation, values)
    other = trials(form, federation, values, seed=1)

    def chosen(them: list[Trial]) -> bytes:
        return b"".join(np.concatenate(t.labelled + t.scored).tobytes() for t in them)

    assert chosen(found) == chosen(again) != chosen(other)


def test_labels_form_gives_each_client_its_number() -> None:
    few, many = trials("labels", blobs(), (2, 5))
    assert [int(m.sum()) for m in few.labelled] == [2] * 4
    assert [int(m.sum()) for m in many.labelled] == [5] * 4
    assert all(k.all() for k in few.kept)


def test_size_form_leaves_the_other_rows_out() -> None:
    half, whole = trials("size", blobs(), (0.5, 1.0))
    assert [int(k.sum()) for k in half.kept] == [20] * 4  # 10 of 20 and 10 test rows
    assert half.setting == {"training rows": 0.5, "n": 40}
    assert all(k.all() for k in whole.kept)


def test_leave_one_out_hides_a_whole_client() -> None:
    federation = blobs()
    found = trials("leave-one-out", federation, (1.0,))
    assert [t.setting for t in found] == [{"left out": name} for name in federation.names]
    for j, trial in enumerate(found):
        assert trial.scored[j].all()
        assert not trial.labelled[j].any()
        for i in range(4):
            if i != j:
                assert trial.labelled[i].sum() == trial.kept[i].sum() == 20


def test_fraction_form_keeps_the_unlabelled_rows_or_not() -> None:
    without, with_them = trials("fraction", blobs(), (0.5,))
    assert all((a == b).all() for a, b in zip(without.labelled, with_them.labelled, strict=True))
    assert [int(k.sum()) for k in without.kept] == [20] * 4
    assert all(k.all() for k in with_them.kept)


def test_groups_form_divides_the_clients() -> None:
    (trial,) = trials("groups", blobs(7), (1.0,))
    assert sorted(map(len, trial.groups)) == [1, 2, 2, 2]
    source = TrialSource(blobs(), rows_to_score(blobs(), 0.3, 0), seed=0, group_size=0)
    with pytest.raises(ParameterError, match="group_size"):
        list(FORMS["groups"].trials(source, (1.0,)))


@pytest.mark.parametrize(("form", "value"), [("labels", 0.5), ("size", "x"), ("size", 1.5)])
def test_values_out_of_range(form: str, value: Any) -> None:
    with pytest.raises(ParameterError):
        trials(form, blobs(), (value,))


def test_a_share_of_test_rows_is_needed_without_marked_ones() -> None:
    with pytest.raises(ParameterError, match="test_share"):
        rows_to_score(load("digits"), 1.0, 0)


# Extractors


def test_agreed_standardisation_gives_the_labels_of_a_plain_one() -> None:
    federation = blobs(shift=40.0)
    (trial,) = trials("labels", federation, (3,))
    everything = np.concatenate(federation.features)
    mean, std = everything.mean(axis=0), everything.std(axis=0)
    codes = task(federation, trial.labelled).class_ids
    answers = []
    for features in (
        agreed(Task(federation.features, codes, 3)),
        tuple((x - mean) / std for x in federation.features),
        federation.features,
    ):
        answers.append(np.concatenate(run_xclp(Task(features, codes, 3), FEW).labels))
    assert (answers[0] == answers[1]).all()
    truth = np.concatenate(federation.labels)
    assert (answers[0] == truth).mean() > 0.9 > (answers[2] == truth).mean()


def test_standardising_by_client_needs_the_client_alone() -> None:
    x = np.random.default_rng(0).standard_normal((9, 3)) * [1, 5, 0] + [0, 3, 7]
    for others in (x[:0], x + 100):
        out = by_client(Task([x, others], [], 2))[0]
        np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(out.std(axis=0), [1, 1, 0], atol=1e-12)
    assert by_client(Task([x, x[:0]], [], 2))[1].shape == (0, 3)


def test_the_linear_embedding_learns_from_labels_only() -> None:
    federation = blobs(shift=1.0)
    (trial,) = trials("labels", federation, (8,))
    codes = task(federation, trial.labelled).class_ids
    first = linear_embedding(federation.features, codes, 3, seed=0)
    assert first.shape == (6, 128)
    other = [
        np.where(y[:, None] < 0, 9.0, x) for x, y in zip(federation.features, codes, strict=True)
    ]
    np.testing.assert_array_equal(linear_embedding(other, codes, 3, seed=0), first)
    assert (linear_embedding(federation.features, codes, 3, seed=1) != first).any()


# Methods


@pytest.mark.parametrize("method", METHODS)
def test_every_method_solves_what_is_easy(method: str) -> None:
    federation = blobs()
    (trial,) = trials("labels", federation, (6,))
    answer = METHODS[method](task(federation, trial.labelled), FEW)
    hits = [
        (p == y)[s] for p, y, s in zip(answer.labels, federation.labels, trial.scored, strict=True)
    ]
    assert np.concatenate(hits).mean() > 0.9
    assert (answer.record is not None) == (method == "xclp")


def test_xclp_equals_propagation_over_pooled_hashes() -> None:
    federation = blobs()
    (trial,) = trials("labels", federation, (2,))
    given = task(federation, trial.labelled)
    bits = [hash_rows(projection_seed(5) or b"", x, 512)[0] for x in given.features]
    onehot = [np.eye(4)[y][:, :3] for y in given.class_ids]
    expected = pooled(bits, onehot, k=3, alpha=0.99)
    for hamming in ("plain", "masked"):
        answer = run_xclp(given, arguments(5, n_bits=512, hamming=hamming))
        for own, other in zip(answer.labels, expected, strict=True):
            assert (own == other.class_ids).all()


def test_encrypted_distances_label_real_people_like_plain_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thirty = load("hapt").thinned(16)
    eight = {f: getattr(thirty, f)[:8] for f in ("names", "features", "labels", "test")}
    people = replace(thirty, **eight)
    monkeypatch.setattr(run_module, "load", lambda *args, **options: people)
    plain, encrypted = (
        run_experiment(
            Experiment(
                "labels",
                "hapt",
                values=(2,),
                methods=("xclp",),
                parameters={"n_bits": 1024, "hamming": hamming},
                seeds=(0,),
            )
        )["runs"]
        for hamming in ("plain", "rlwe")
    )
    assert plain[0]["labels_sha256"] == encrypted[0]["labels_sha256"]
    assert plain[0]["bytes"] < encrypted[0]["bytes"]
    assert plain[0]["accuracy"] > 0.3


def test_balanced_classes_reach_all_graph_methods() -> None:
    federation = blobs().imbalanced(10)
    (trial,) = trials("size", federation, (1.0,))
    given = task(federation, trial.labelled)
    balanced = arguments(n_bits=512, class_weight="balanced", k=8)
    for method in (run_xclp, run_pooled, run_per_client):
        plain, weighted = (
            np.bincount(np.concatenate(method(given, c).labels), minlength=3)
            for c in (arguments(n_bits=512, k=8), balanced)
        )
        assert weighted[2] >= plain[2]


def test_cosine_graph_is_the_limit_of_many_bits() -> None:
    rng = np.random.default_rng(0)
    x = np.repeat(rng.standard_normal((6, 8)), 4, axis=0) + 0.3 * rng.standard_normal((24, 8))
    exact = cosine_graph(x, 3).toarray()
    hashed = neighbour_graph_from_bits(hash_rows(bytes(32), x, 32768)[0], 3).toarray()
    np.testing.assert_allclose(hashed, exact, atol=0.03)
    assert (exact == exact.T).all()
    cubed = cosine_graph(x, 3, gamma=3.0).toarray()
    np.testing.assert_allclose(
        cubed,
        neighbour_graph_from_bits(hash_rows(bytes(32), x, 32768)[0], 3, gamma=3.0).toarray(),
        atol=0.05,
    )
    assert np.abs(cubed - exact).max() > 0.01
    x[3] = 0
    assert not cosine_graph(x, 3).toarray()[3].any()
    with pytest.raises(ParameterError, match="gamma"):
        cosine_graph(x, 3, gamma=0.0)
    with pytest.raises(ParameterError, match="k is 24"):
        cosine_graph(x, 24)


def test_fedavg_with_relu_learns_what_no_linear_network_can() -> None:
    rng = np.random.default_rng(2)
    xs = [rng.uniform(-1, 1, size=(300, 2)) for _ in range(3)]
    ys = [(x[:, 0] * x[:, 1] > 0).astype(np.int64) for x in xs]

    def share(rectified: bool) -> float:
        network = train(xs, ys, 2, rectified=rectified, seed=0)
        return float(np.mean([network.predict(x) == y for x, y in zip(xs, ys, strict=True)]))

    assert share(True) > 0.9
    assert share(False) < 0.7


# Configuration


def test_a_file_and_a_command_line_make_one_experiment(tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text(
        'form = "size"\ndataset = "digits"\nvalues = [0.1]\nseeds = [3]\nextractor = "agreed"\n'
        '[data]\nn_clients = 5\n[parameters]\nk = 4\nhamming = "masked"\n'
    )
    experiment = read_described(
        Experiment, file, {"form": "fraction", "parameters": {"hamming": "plain"}}
    )
    assert experiment == Experiment(
        form="fraction",
        dataset="digits",
        data={"n_clients": 5},
        values=(0.1,),
        extractor="agreed",
        parameters={"k": 4, "hamming": "plain"},
        seeds=(3,),
    )
    assert experiment.arguments(3) == arguments(3, k=4, hamming="plain")
    assert read_described(Experiment, None, {"form": "labels", "dataset": "hapt"}).values == (
        1,
        3,
        5,
        10,
        20,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("form = ", "Invalid value"),
        ('form = "size"', "dataset is missing"),
        ('form = "sise"\ndataset = "hapt"', "did you mean 'size'"),
        ('form = "size"\ndataset = "mnist"', "no dataset 'mnist'"),
        ("+bits = 3", "unknown field 'bits'; the fields are form, dataset"),
        ('+methods = ["lp"]', "no method 'lp'"),
        ("+methods = []", "at least one method"),
        ('+methods = "xclp"', "methods must be a list"),
        ('+extractor = "cnn"', "no extractor 'cnn'"),
        ('+metric = "f1"', "no metric 'f1'"),
        ("+seeds = [-1]", "seeds must be"),
        ("+seeds = [0, 1, 0]", "seeds names 0 twice"),
        ("+values = [0.1, 0.1]", "values names 0.1 twice"),
        ('+methods = ["xclp", "xclp"]', "names 'xclp' twice"),
        ('+test_share = "a"', "test_share must be a number, got 'a'"),
        ("+group_size = 2.5", "group_size must be an integer, got 2.5"),
        ('+extractor = ["linear"]', "extractor must be text"),
        ("+parameters = 3", "parameters must be a section, got 3"),
        ("+[metric]\nx = 1", "metric must be text, got"),
        ("+[parameters]\nseed = 1", r"\[parameters\]: unknown field 'seed'"),
    ],
)
def test_files_with_mistakes(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "e.toml"
    file.write_text(text.replace("+", 'form = "size"\ndataset = "hapt"\n'))
    with pytest.raises(ParameterError, match=f"^{file}: .*{message}"):
        read_described(Experiment, file, {})


# Running, results and tables


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Federation:
    federation = blobs()
    monkeypatch.setattr(run_module, "load", lambda name, **options: federation)
    return federation


def test_a_result_has_every_run_and_repeats(made: Federation) -> None:
    experiment = Experiment(
        form="fraction",
        dataset="hapt",
        values=(0.1, 1.0),
        methods=("per-client", "xclp"),
        parameters={"n_bits": 256},
        seeds=(0, 1),
    )
    seen: list[tuple[int, str]] = []
    result = run_experiment(experiment, lambda seed, setting, method: seen.append((seed, method)))
    assert len(result["runs"]) == len(seen) == 2 * 4 * 2
    again = run_experiment(experiment)
    for one, other in zip(result["runs"], again["runs"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert json.loads(json.dumps(result))["data"]["rows"] == 120
    (run, *_) = [r for r in result["runs"] if r["method"] == "xclp"]
    assert (run["rows"], run["labelled"], run["scored"]) == (4 * 12, 8, 40)
    assert run["bytes"] > 0
    entry = result["table"][0]
    values = [
        r["accuracy"]
        for r in result["runs"]
        if (r["setting"], r["method"]) == (entry["setting"], entry["method"])
    ]
    assert entry["accuracy"]["mean"] == pytest.approx(np.mean(values), abs=1e-6)
    assert entry["accuracy"]["std"] == pytest.approx(np.std(values, ddof=1), abs=1e-6)


def test_methods_get_no_label_of_a_scored_row_and_no_row_left_out(
    made: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Task] = []

    def spy(task: Task, chosen: Arguments) -> Any:
        given.append(task)
        return METHODS["pooled"](task, chosen)

    monkeypatch.setitem(run_module.METHODS, "xclp", spy)
    run_experiment(
        Experiment(form="size", dataset="hapt", values=(0.5,), methods=("xclp",), seeds=(0,))
    )
    assert made.test is not None
    for x, y, features, test in zip(
        given[0].features, given[0].class_ids, made.features, made.test, strict=True
    ):
        assert len(y) == 20
        scored = (x[:, None] == features[test][None]).all(axis=2).any(axis=1)
        assert scored.sum() == 10
        assert (y[scored] == -1).all()
        assert (y[~scored] >= 0).all()


def test_groups_do_not_meet_but_train_together(
    made: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, list[int]] = {"pooled": [], "fedavg-linear": []}

    def spied(name: str, original: Any) -> Any:
        def spy(task: Task, chosen: Arguments) -> Any:
            sizes[name].append(len(task.class_ids))
            return original(task, chosen)

        return spy

    for name in sizes:
        monkeypatch.setitem(run_module.METHODS, name, spied(name, METHODS[name]))
    run_experiment(Experiment("groups", "hapt", {}, (1.0,), tuple(sizes), group_size=2, seeds=(0,)))
    assert sizes == {"pooled": [2, 2], "fedavg-linear": [4]}


def test_balanced_accuracy_is_the_mean_over_classes() -> None:
    metrics = run_module.metrics_of(
        [np.array([0, 0, 0, 1, -1])],
        [np.array([0, 0, 0, 1, 1])],
        [np.array([True, True, False, True, True])],
    )
    assert metrics == {"accuracy": 0.75, "balanced_accuracy": 0.75}
    metrics = run_module.metrics_of(
        [np.array([0, 0, 0, 0])], [np.array([0, 0, 0, 1])], [np.ones(4, bool)]
    )
    assert metrics == {"accuracy": 0.75, "balanced_accuracy": 0.5}


def result_of(form: str = "labels", metric: str = "accuracy") -> dict[str, Any]:
    runs = [
        {
            "seed": seed,
            "setting": {"labels per client": m},
            "method": method,
            "accuracy": level + 0.01 * seed,
            "balanced_accuracy": level / 2,
        }
        for seed in (0, 1)
        for m in (1, 3)
        for method, level in (("per-client", 0.3), ("xclp", 0.6 + m / 100), ("pooled", 0.9))
    ]
    return {
        "experiment": {
            "form": form, "metric": metric, "parameters": {"k": 5}, "extractor": "identity",
            "seeds": [0, 1],
        },
        "data": {"clients": 4, "rows": 1000, "features": 6, "classes": [0, 1, 2]},
        "runs": runs,
        "table": table_of(runs),
    }  # fmt: skip


def test_tables_are_markdown_with_the_best_in_bold() -> None:
    assert markdown(result_of()).splitlines() == [
        "| labels per client | each client alone | XCLP | pooled data, exact cosines |",
        "|---|---|---|---|",
        "| 1 | 30.5 ± 0.7 | **61.5 ± 0.7** | 90.5 ± 0.7 |",
        "| 3 | 30.5 ± 0.7 | **63.5 ± 0.7** | 90.5 ± 0.7 |",
    ]
    assert "| 1 | 15.0 ± 0.0 | **30.5 ± 0.0** |" in markdown(result_of(metric="balanced_accuracy"))


def test_sections_come_from_result_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no result files"):
        sections(tmp_path)
    (tmp_path / "b.json").write_text(json.dumps(result_of("labels")))
    (tmp_path / "a.json").write_text(json.dumps(result_of("size")))
    text = sections(tmp_path)
    assert text.index("### a\n\nSize of the training set") < text.index(
        "### b\n\nLabels per client"
    )
    assert "4 clients, 1,000 rows, 6 features; 3 classes" in text
    assert "n_bits = 4096, k = 5, alpha = 0.99; seeds 0, 1" in text
    for content in ("[]", "{", "{}"):
        (tmp_path / "c.json").write_text(content)
        with pytest.raises(DataError, match=r"c\.json"):
            read_result(tmp_path / "c.json")


def test_one_seed_has_no_deviation() -> None:
    result = result_of("labels")
    one = result | {
        "experiment": result["experiment"] | {"seeds": [0]},
        "runs": [r for r in result["runs"] if r["seed"] == 0],
    }
    one["table"] = table_of(one["runs"])
    assert markdown(one).splitlines()[2] == "| 1 | 30.0 | **61.0** | 90.0 |"
    assert "±" not in section("one", one)
    assert "; seed 0." in section("one", one)
    assert "± standard deviation" in section("all", result)


def test_encrypted_distances_gave_all_people_the_labels_that_plain_ones_did() -> None:
    plain, encrypted = (
        {
            (json.dumps(r["setting"]), r["method"]): r
            for r in read_result(ROOT / "docs" / "results" / f"{name}.json")["runs"]
            if r["seed"] == 0
        }
        for name in ("hapt-labels", "hapt-labels-rlwe")
    )
    assert len(encrypted) == 15
    for key, run in encrypted.items():
        assert run["labels_sha256"] == plain[key]["labels_sha256"]
        if run["method"] == "xclp":
            assert run["bytes"] > 10 * plain[key]["bytes"]


def test_the_documented_tables_are_those_of_the_result_files() -> None:
    text = (ROOT / "docs" / "do" / "experiments.md").read_text(encoding="utf-8")
    assert with_tables(text, sections(ROOT / "docs" / "results")) == text
    assert "| " not in with_tables("a\n<!-- tables -->\n\n| 1 |\n", "b\n")
    with pytest.raises(DataError, match="<!-- tables -->"):
        with_tables("a", "b")


def test_a_document_keeps_its_line_ends_and_must_be_in_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "d.md"
    file.write_bytes("é\r\n<!-- tables -->\r\nold\r\n".encode())
    write_tables(file, "a\nb\n")
    assert file.read_bytes() == "é\r\n<!-- tables -->\r\n\r\na\r\nb\r\n".encode()
    file.write_bytes("é\n<!-- tables -->\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"d.md is not encoded in UTF-8; save it as UTF-8"):
        write_tables(file, "a\n")


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples" / "experiments").glob("*.toml")), ids=lambda f: f.stem
)
def test_the_experiments_shown_are_those_that_were_run(file: Path) -> None:
    result = read_result(ROOT / "docs" / "results" / f"{file.stem}.json")
    ran = result["experiment"]
    experiment = read_described(Experiment, file, {})
    assert (experiment.form, experiment.dataset) == (ran["form"], ran["dataset"])
    assert experiment.parameters == ran["parameters"]
    assert experiment.data == ran["data"]
    for name in ("values", "methods", "seeds"):
        assert list(getattr(experiment, name)) == ran[name]
    assert result["table"] == json.loads(json.dumps(table_of(result["runs"])))


# HAPT


def test_hapt_within_reach_of_its_numbers() -> None:
    """A seed of the table in docs/do/experiments.md, at one of its rows."""
    methods = ("per-client", "xclp", "pooled")
    result = run_experiment(Experiment("labels", "hapt", values=(3,), methods=methods, seeds=(0,)))
    found = {r["method"]: r["accuracy"] for r in result["runs"]}
    assert found["xclp"] >= max(0.84, found["per-client"] + 0.15)
    assert abs(found["xclp"] - found["pooled"]) <= 0.03


def test_what_cannot_be_run_is_refused_before_anything_is() -> None:
    with pytest.raises(ParameterError, match="a client alone has no label"):
        run_experiment(Experiment("leave-one-out", "digits", methods=("per-client",)))
    with pytest.raises(ParameterError, match="no client has 5000 training rows"):
        run_experiment(Experiment("labels", "digits", values=(5000,), methods=("xclp",)))
