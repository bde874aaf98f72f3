"""Reports: right numbers, no way to ask a host for anything, escaped names, bounded size.

What a browser makes of them is tested in tests/browser (`make browser`).
"""

from __future__ import annotations

import base64
import io
import json
import re
import textwrap
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import report_runs
from PIL import Image
from report_runs import HOSTILE, REPORTS, html, report

from xclp_crypto.errors import DataError
from xclp_lp.study import views as views_module
from xclp_lp.study.experiments.paper import PAPER
from xclp_lp.study.experiments.rounds import Course, History, courses, some_rounds
from xclp_lp.study.report import experiment_report, run_report, training_report
from xclp_lp.study.report.pictures import LOOKS
from xclp_lp.study.scores import Scores, calibration
from xclp_lp.study.views import MAY_COLLUDE, remarks, views
from xclp_lp.summary import result_lines
from xclp_lp.wording import shown, size

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """Every tag with its attributes, the text, and the cells of every table."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._open: list[str] = []
        self._title = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img"):
            self._open.append(tag)
        if tag == "h2":
            self._title = ""
        if tag == "tr":
            self.tables.setdefault(self._title, []).append([])
        if tag in ("td", "th"):
            self.tables[self._title][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self._open and self._open[-1] == "h2":
            self._title += data
        if self._open and self._open[-1] in ("td", "th"):
            self.tables[self._title][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def svgs(self) -> list[str]:
        start = "data:image/svg+xml;base64,"
        sources = [str(img["src"]) for img in self.all("img")]
        assert all(src.startswith(start) for src in sources)
        return [base64.b64decode(src.removeprefix(start)).decode() for src in sources]


@pytest.fixture(params=REPORTS, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def page(kind: str) -> Page:
    return Page(html(kind))


# One file that asks for nothing


def test_nothing_in_a_page_can_ask_a_host_for_anything(page: Page, kind: str) -> None:
    allowed = {
        *("html", "head", "meta", "link", "title", "style", "body", "header", "h1", "h2", "p"),
        *("dl", "div", "dt", "dd", "nav", "ul", "li", "a", "main", "section", "figure", "img"),
        *("details", "summary", "table", "thead", "tbody", "tr", "th", "td", "footer"),
    }
    assert {tag for tag, _ in page.tags} <= allowed
    for tag, attrs in page.tags:
        assert not [name for name in attrs if name.startswith("on") or name in ("style", "srcset")]
        for name in ("src", "href"):
            if name in attrs:
                assert str(attrs[name]).startswith(("data:", "#section-")), (tag, attrs)
    (policy,) = [m for m in page.all("meta") if "http-equiv" in m]
    assert policy["http-equiv"] == "Content-Security-Policy"
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy["content"]).split(";"))
    assert rules == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    before = [tag for tag, _ in page.tags[: page.tags.index(("meta", policy))]]
    assert before == ["html", "head", "meta"]
    assert not re.search(r"@import|url\(", html(kind))


def test_nothing_in_a_picture_can_either(page: Page) -> None:
    for svg in page.svgs:
        assert "<!" not in svg.replace("<!--", "")
        for element in ET.fromstring(svg).iter():  # noqa: S314  # our own drawing
            tag = element.tag.rpartition("}")[2]
            assert tag in {
                *("svg", "defs", "style", "g", "path", "text", "tspan", "use", "clipPath", "rect"),
                "image",
            }
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:image/png")), value
                assert not name.startswith("on")
                assert not re.search(r"url\((?!#)", value)
            assert tag != "style" or not re.search(r"@import|url", str(element.text))


def test_a_page_has_at_most_two_megabytes(kind: str) -> None:
    assert len(html(kind).encode()) <= 2_000_000


# For everybody


def test_a_page_can_be_read_without_seeing_it(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all(
        "meta"
    )
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("title")) == 1
    assert len(page.all("h2")) == len(page.all("section")) >= 4
    targets = {f"#{h['id']}" for h in page.all("h2")}
    assert {a["href"] for a in page.all("a")} == targets
    assert all(len(str(img["alt"])) > 30 for img in page.all("img"))
    regions = [d for d in page.all("div") if "table" in str(d.get("class"))]
    assert len({d["aria-label"] for d in regions}) == len(regions) == len(page.all("table"))
    assert all(th.get("scope") in ("col", "row") for th in page.all("th"))
    assert all("tabindex" in d for d in regions)


def test_every_picture_has_a_table_beside_it(kind: str) -> None:
    with_pictures = [s for s in report(kind).sections if s.picture]
    assert len(with_pictures) >= 4
    assert all(section.rows for section in with_pictures)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def turned(colour: str) -> str:
    """What the page makes of a colour of a picture in the dark: invert(.9) hue-rotate(180deg)."""
    inverted = 0.9 - 0.8 * np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    grey = np.dot((0.213, 0.715, 0.072), inverted)  # as in the standard on filter effects
    return "#" + "".join(f"{round(255 * c):02x}" for c in np.clip(2 * grey - inverted, 0, 1))


def test_methods_look_different() -> None:
    looks = {tuple(look.items()) for look in LOOKS}
    assert len(looks) == len(LOOKS) >= len(report_runs.METHODS_OF_TRAINING) > 20


def test_colours_can_be_told_from_the_ground() -> None:
    """WCAG 2.2: 4.5 for text, 3 for marks; in the light and in the dark."""
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    rule = "img { filter: invert(.9) hue-rotate(180deg); }"
    assert re.search(r"prefers-color-scheme: dark\) {[^@]*" + re.escape(rule), html("demo"))
    for ground, seen in (("#fefefe", str), ("#161b22", turned)):
        assert f"--paper: {ground}" in html("demo")
        assert contrast(seen("#000000"), ground) > 7
        for colour in LOOKS.by_key()["color"]:
            assert contrast(seen(colour), ground) > 3


def test_pictures_have_the_colours_whose_contrast_is_tested(page: Page) -> None:
    known = {*LOOKS.by_key()["color"], "#000000", "#ffffff", "#808080", "#b0b0b0"}
    for svg in page.svgs:
        for element in ET.fromstring(svg).iter():  # noqa: S314  # our own drawing
            style = element.attrib.get("style", "")
            assert set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", style)) <= known


# Names are text


def test_names_are_text_whatever_is_in_them() -> None:
    for kind in ("demo", "run"):
        page = Page(html(kind))
        text = "".join(page.text)
        for name in HOSTILE:
            assert shown(name) in text
        for svg in page.svgs:
            assert "$" not in svg or r"$\frac" in svg  # not read as mathematics
    drawn = Page(html("demo")).svgs[0]
    texts = {e.text for e in ET.fromstring(drawn).iter() if e.tag.endswith("text")}  # noqa: S314
    for name in HOSTILE:
        assert set(textwrap.wrap(shown(name), 18, max_lines=2, placeholder="…")) <= texts


def test_what_is_shown_of_a_name() -> None:
    assert shown("a b") == "a b"
    assert shown(3) == "3"
    assert shown("a\nb\x00\u202e\ud800") == "a\ufffdb\ufffd\ufffd\ufffd"
    assert shown("x" * 9, 8) == "x" * 7 + "…"


# Right numbers


def test_the_numbers_of_a_demonstration() -> None:
    found = report_runs.comparison()
    page = Page(html("demo"))
    scores = found.scores
    head, *rows = page.tables["Accuracy by client"]
    assert head == ["client", "rows", "each client alone", "XCLP, masked", "pooled data, plain"]
    right = dict.fromkeys(scores.predicted, 0.0)
    for j, row in enumerate(rows):
        assert row[:2] == [shown(HOSTILE[j]), "16"]
        for cell, method in zip(row[2:], ("per-client", "xclp", "pooled"), strict=True):
            own = scores.owner == j
            share = (scores.predicted[method] == scores.truth)[own].mean()
            assert cell == f"{share:.1%}"
            right[method] += share / len(rows)
    assert right["per-client"] == pytest.approx(found.accuracy["per_client"].overall)
    assert right["xclp"] == pytest.approx(found.accuracy["xclp"].overall)
    matrix = np.array(
        [[int(v) for v in row[1:]] for row in page.tables["Which classes are confused"][1:]]
    )
    assert matrix[:, 0].tolist() == matrix[:, 1:].sum(axis=1).tolist()
    assert matrix[:, 0].sum() == len(scores.truth)
    right = np.trace(matrix[:, 1:])
    assert right / len(scores.truth) == pytest.approx(found.accuracy["xclp"].overall)
    bins = page.tables["Confidence of the new labels"][1:]
    assert sum(int(row[1]) for row in bins) == len(scores.truth)
    assert sum(int(row[2]) for row in bins) == right
    steps = page.tables["Bytes and seconds by step"][1:]
    assert [row[0] for row in steps] == list(found.cost.steps)
    for step, row in zip(found.cost.steps, steps, strict=True):
        sent = [found.cost.sent_by(party, step) for party in ("server", *HOSTILE)]
        expected = [sent[0], min(sent[1:]), np.median(sent[1:]), max(sent[1:])]
        assert row[2:6] == [size(n) for n in expected]
    parties = page.tables["Who talks to whom"][1:]
    assert [row[1] for row in parties] == [
        size(found.cost.sent_by(party)) for party in ("server", *HOSTILE)
    ]


def test_calibration_counts_every_row_once() -> None:
    confidence = np.array([0.0, 0.05, 0.1, 0.99, 1.0])
    right = np.array([False, True, True, True, False])
    bins = calibration(confidence, right)
    assert bins.rows.tolist() == [2, 1, *[0] * 7, 2]
    assert bins.right is not None
    assert bins.right.tolist() == [1, 1, *[0] * 7, 1]
    assert bins.confidence[bins.rows > 0] == pytest.approx([0.025, 0.1, 0.995])


def test_confusion_and_accuracy_by_client() -> None:
    scores = Scores(
        ("a", "b", "c"), ("x", "y"), np.array([0, 0, 2]), np.array([0, 1, 1]),
        {"xclp": np.array([0, -1, 0])},
    )  # fmt: skip
    assert scores.confusion("xclp").tolist() == [[1, 0, 0], [1, 0, 1]]
    assert scores.accuracy_by_client("xclp")[[0, 2]].tolist() == [0.5, 0.0]
    assert np.isnan(scores.accuracy_by_client("xclp")[1])
    twice = Scores.together([scores, scores])
    assert twice.confusion("xclp").tolist() == [[2, 0, 0], [2, 0, 2]]
    assert twice.confidence is None


def test_a_run_without_truth_says_what_it_cannot() -> None:
    result, truth = report_runs.ran()
    made = report("run")
    text = " ".join(made.text)
    assert "can only estimate how many labels are right" in text
    assert "operator" in made.warnings[0]
    first = made.sections[0]
    assert first.title == "What to look at first"
    assert len(first.text) == len(list(result_lines(result))) > 0
    page = Page(html("run"))
    assert "Accuracy by client" not in page.tables
    rows = page.tables["Confidence of the new labels"][1:]
    assert sum(int(row[1]) for row in rows) == 7 * 16
    assert {row[2] for row in rows} == {"–"}
    given = np.array([[int(v) for v in row[2:]] for row in page.tables["Labels by client"][1:]])
    shown = [result.labels(client).tolist() for client in result.predictions]
    for j, labels in enumerate(shown):
        for c, name in enumerate(HOSTILE[:3]):
            assert given[j, c] == sum(label == name for label in labels)
    known = run_report(result, truth)
    right = sum(
        label == true
        for j, labels in enumerate(shown)
        for i, (label, true) in enumerate(zip(labels, truth[j], strict=True))
        if i % 5
    )
    matrix = Page(known.html()).tables["Which classes are confused"][1:]
    assert sum(int(row[2 + c]) for c, row in enumerate(matrix)) == right


def test_truth_must_fit_the_run() -> None:
    result, truth = report_runs.ran()
    with pytest.raises(DataError, match="truth has labels of 6 clients, the run had 7"):
        run_report(result, truth[:-1])
    with pytest.raises(DataError, match="truth has 19 labels for 20 rows"):
        run_report(result, [*truth[:-1], truth[-1][:-1]])
    with pytest.raises(DataError, match=r"row 1 \(counted from 0\): label 'zebra' is none"):
        run_report(result, [*truth[:-1], [truth[0][0], "zebra", *truth[-1][2:]]])
    with pytest.raises(DataError, match="truth says nothing of any row"):
        run_report(result, [[None] * 20] * 7)


@pytest.mark.filterwarnings("ignore:only two|only .* are in the sums")
def test_who_dropped_out_is_said() -> None:
    names = ("a", "b", "c", "d")
    page = Page(report_runs.demonstration(names, drops="b").html())
    text = "".join(page.text)
    assert "b dropped out before the end of the step 'hamming'" in text
    whole = "".join(Page(report_runs.demonstration(names).html()).text)
    (rows,), (fewer,) = (
        re.findall(r"the distances were among (\d+) rows of \d clients", found)
        for found in (whole, text)
    )
    assert "of 4 clients" in whole
    assert "of 3 clients" in text
    assert int(fewer) < int(rows)
    assert [row[0] for row in page.tables["Accuracy by client"][1:]] == ["a", "c", "d"]


# Experiments


def test_the_report_of_an_experiment() -> None:
    page = Page(html("experiment"))
    head, *rows = page.tables["Accuracy"]
    assert head == [
        *("labels per client", "each client alone", "XCLP", "pooled data, exact cosines")
    ]
    assert [row[0] for row in rows] == ["1", "3"]
    assert all(re.fullmatch(r"\d+\.\d ± \d+\.\d%", cell) for row in rows for cell in row[1:])
    assert "over all seeds, of labels per client 3." in "".join(page.text)
    by_client = page.tables["Accuracy by client"][1:]
    assert [row[0] for row in by_client] == ["client-01", "client-02", "client-03"]
    # The mean over clients, weighted by rows, is the mean over seeds of the table's last row.
    total = sum(int(row[1]) for row in by_client)
    mean = sum(int(row[1]) * float(row[3].rstrip("%")) for row in by_client) / total
    assert mean == pytest.approx(float(rows[-1][2].split(" ± ")[0]), abs=0.1)


def test_leaving_one_out_shows_every_client() -> None:
    made = report_runs.experiment("leave-one-out", (1.0,))
    page = Page(made.html())
    assert len(page.tables["Accuracy by client"]) == 1 + 3
    assert "over all seeds, of all clients left out." in "".join(page.text)
    assert made.pictures[0].name == "accuracy"


def test_groups_of_an_experiment_are_federations_of_their_own() -> None:
    result, details = report_runs.experimented("groups", (0.5,), clients=7, group_size=3)
    assert experiment_report(result, details).pictures
    record = details[0].record
    assert record is not None
    assert sorted(map(len, record.groups.values())) == [3, 4]
    assert sorted(c for own in record.groups.values() for c in own) == sorted(record.rows)
    assert "Each group is a federation of its own" in " ".join(remarks(record))
    for traffic in record.cost.messages:  # and nobody talks to another group
        ends = {traffic.sender, traffic.receiver} - {"server"}
        assert any(ends <= set(own) for own in record.groups.values())
    # Labels are where their clients are, whatever the order of the groups.
    labels = [d.scores.accuracy("xclp") for d in details]
    assert min(labels) > 0.4


def test_the_papers_numbers_stand_apart_where_it_has_this_form() -> None:
    page = Page(report_runs.experiment("size", (0.1, 0.2)).html())
    caption, head, rows = PAPER["size"]
    assert page.tables["What the paper reports"] == [list(head), *map(list, rows)]
    assert f"{caption}." in "".join(page.text)
    assert "What the paper reports" not in Page(html("experiment")).tables


def test_the_papers_numbers_are_those_of_the_documentation() -> None:
    text = (ROOT / "docs" / "do" / "experiments.md").read_text(encoding="utf-8")
    for _, head, rows in PAPER.values():
        for row in (head, *rows):
            assert f"| {' | '.join(row)} |" in text


# Federated training


def test_the_numbers_of_a_training_report() -> None:
    result, histories, holdings = report_runs.trained()
    page = Page(html("training"))
    text = "".join(page.text)
    head, *rows = page.tables["Accuracy"]
    assert "Means over 2 seeds; ± and bars are one standard deviation" in text
    assert head[:3] == ["method", "accuracy", "balanced accuracy"]
    assert [row[0] for row in rows] == [
        "FedAvg, labelled only", "FedAvg + per-client LP", "FedAvg + XCLP", "FedMatch"
    ]  # fmt: skip
    for row, method in zip(rows, report_runs.METHODS, strict=True):
        own = [r for r in result["runs"] if r["method"] == method]
        for cell, metric in zip(
            row[1:6],
            ("accuracy", "balanced_accuracy", "last_accuracy", "validation_accuracy",
             "pseudo_accuracy"),
            strict=True,
        ):  # fmt: skip
            values = [r[metric] for r in own]
            expected = "–"
            if None not in values:
                expected = f"{100 * np.mean(values):.1f} ± {np.std(values, ddof=1):.1%}"
            assert cell == expected
        assert row[6] == ", ".join(f"{r['best_round'] + 1}" for r in own)
        assert row[7] == f"{np.mean([r['seconds'] for r in own]):.0f}"
        assert f"{row[0]}{row[1]}" in text.replace("\n", "")  # and in the facts
    # By round: means and deviations over the seeds, of the first two over one seed only.
    xclp = [h.metrics for h in histories if h.method == "fedavg+xclp"]
    head, *rows = page.tables["Accuracy of pseudo-labels"]
    assert head == ["rounds", "FedAvg + per-client LP", "FedAvg + XCLP"]
    assert [row[0] for row in rows] == [str(turn + 1) for turn in range(12)]
    for turn, row in enumerate(rows):
        values = [m["pseudo_accuracy"][turn] for m in xclp][-1 if turn < 2 else 0 :]
        spread = f" ± {100 * np.std(values, ddof=1):.1f}" if turn >= 2 else ""
        assert row[2] == f"{100 * np.mean(values):.1f}{spread}%"
    assert "Not measured with: FedAvg, labelled only; FedMatch." in text
    head, *rows = page.tables["Validation accuracy"]
    assert [row[0] for row in rows] == ["2", "4", "6", "8", "10", "12"]
    head, *rows = page.tables["Loss"]
    values = [m["loss"][11] for m in xclp]
    assert rows[11][3] == f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    head, *rows = page.tables["Rows and labels by client"]
    assert head == ["client", "labels, seed 3", "rows, seed 3", "labels, seed 5", "rows, seed 5"]
    for j, row in enumerate(rows):
        expected = [str(n) for h in holdings for n in (j % 3, j % 3 + h.unlabelled[j])]
        assert row == [str(j), *expected]
    parameters = dict(page.tables["Parameters"])
    for name, value in (result["experiment"] | {"software": result["software"]}).items():
        assert parameters[name] == shown(json.dumps(value, ensure_ascii=False), 1000)


def test_a_training_report_of_one_seed_and_of_no_pseudo_labels() -> None:
    made = training_report(*report_runs.trained(("fedavg", "fedsiam"), (4,), pseudo=False))
    written = made.html()
    page = Page(written)
    text = "".join(page.text)
    assert "±" not in text
    assert "One seed, so nothing is said about luck." in text
    assert "Not measured with: FedAvg, labelled only; FedSiam." in text
    assert [p.name for p in made.pictures] == [
        "accuracy", "validation-accuracy", "loss", "rows-by-client"
    ]  # fmt: skip
    assert "nan" not in written


def test_a_training_report_of_one_round() -> None:
    result, histories, holdings = report_runs.trained(("fedavg+xclp",), rounds=2)
    for history in histories:
        for values in history.metrics.values():
            values[0] = np.nan
    page = Page(training_report(result, histories, holdings).html())
    assert [row[0] for row in page.tables["Loss"]] == ["rounds", "2"]


def test_long_training_is_thinned_and_says_so() -> None:
    page = Page(html("long training"))
    text = "".join(page.text)
    assert "100 of 1,000 measured rounds are shown." in text
    assert "Table of the first 1,000 of 1,200 rows" in text
    turns = [row[0] for row in page.tables["Validation accuracy"][1:]]
    assert len(turns) == 100
    assert (turns[0], turns[-1]) == ("2", "2,000")


def test_courses_are_over_the_seeds_that_were_measured() -> None:
    nan = np.nan
    runs = {("a", 0): [nan, 1.0, 2.0], ("b", 0): [nan], ("a", 1): [nan, nan, 4.0, 5.0]}
    histories = [History(m, s, {"loss": np.array(values)}) for (m, s), values in runs.items()]
    assert [*courses(histories, "loss")] == ["a"]
    course = courses(histories, "loss")["a"]
    assert course.at.tolist() == [2, 3, 4]
    np.testing.assert_allclose(course.mean, [1, 3, 5])
    np.testing.assert_allclose(course.deviation, [nan, np.sqrt(2), nan])
    short, long = (Course(np.arange(1, n + 1), np.zeros(n), np.zeros(n)) for n in (15, 40))
    assert some_rounds({"short": short}, 15) == [*range(1, 16)]
    chosen = some_rounds({"short": short, "long": long}, 5)
    assert {1, 15, 40} <= set(chosen)
    assert len(chosen) == 6


@pytest.mark.parametrize(
    "content",
    [b"", b"turn,loss\n0,1.0\n", b"\xff", b"validation_accuracy,loss,pseudo_accuracy\n1,x,1\n",
     b"validation_accuracy,loss,pseudo_accuracy\n1\n"],
)  # fmt: skip
def test_what_is_no_file_of_metrics_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "fedavg-0.csv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"fedavg-0\.csv has no metrics of rounds"):
        History.read(file, "fedavg", 0)
    with pytest.raises(DataError, match="has no metrics of rounds"):
        History.read(tmp_path / "none.csv", "fedavg", 0)


# Who saw what


def test_what_each_party_learns_is_what_the_documentation_says() -> None:
    page = ROOT / "docs" / "understand" / "security.md"
    text = " ".join(page.read_text(encoding="utf-8").split()).replace("*", "")
    for words in (
        *views_module.SERVER_LEARNS,
        *views_module.CLIENT_LEARNS,
        ", ".join(views_module.SERVER_DOES_NOT),
        views_module.CLIENT_OF_TWO_LEARNS,
        views_module.CLIENT_DOES_NOT,
        views_module.CLIENT_LEARNS_TOTALS,
        views_module.RELAY_LEARNS,
        views_module.RELAY_DOES_NOT,
        views_module.PUBLIC,
        views_module.DISTANCES_TELL,
        "one client that hands its keys to the server reveals every client's hashes",
        "the server gets the hashes",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("hamming", "words"),
    [
        ("masked", "reveals every client's hashes"),
        ("plain", "the server gets the hashes"),
    ],
)
def test_a_report_says_with_whom_the_server_may_collude(hamming: str, words: str) -> None:
    record = report_runs.comparison(("a", "b", "c"), hamming=hamming).record
    assert any(words in line for line in remarks(record))
    server, client, _ = views(record)
    assert ("the hashes" in server.learns) == (hamming == "plain")
    assert ("hashes" in server.not_learned) == (hamming != "plain")
    assert len(client.learns) == 2
    assert words in MAY_COLLUDE[record.trust]


@pytest.mark.filterwarnings("ignore:with two clients")
def test_two_contributors_and_balanced_classes_let_clients_learn_more() -> None:
    record = report_runs.comparison(("a", "b"), class_weight="balanced", threshold=2).record
    learns = views(record)[1].learns
    assert learns[2].endswith(views_module.CLIENT_OF_TWO_LEARNS)
    assert learns[3] == views_module.CLIENT_LEARNS_TOTALS


# Files


def test_files_are_written_whole(tmp_path: Path) -> None:
    made = report("run")
    file, folder = tmp_path / "r.html", tmp_path / "pictures"
    written = made.write(file, folder)
    assert written == [file, *(folder / f"{p.name}.png" for p in made.pictures)]
    assert file.read_text(encoding="utf-8") == html("run")  # and it is the same every time
    for picture in written[1:]:
        with Image.open(io.BytesIO(picture.read_bytes())) as image:
            assert image.format == "PNG"
            assert image.width == 900
            assert len(set(image.convert("L").resize((40, 40)).tobytes())) > 4  # not empty
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pictures", "r.html"]
    (folder / "cost.png").unlink()
    (folder / "cost.png").mkdir()
    (folder / "cost.png" / "x").touch()
    with pytest.raises(DataError, match="the report cannot be written"):
        made.write(png=folder)


def test_pictures_have_names_of_their_own() -> None:
    for kind in REPORTS:
        names = [p.name for p in report(kind).pictures]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch("[a-z0-9-]+", name) for name in names)


def test_drawing_leaves_the_users_settings_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    report_runs.run().pictures[0].png()
    assert dict(matplotlib.rcParams) == before
