"""The attacks of docs/understand/reveals.md find what the page says, and no more than they can."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "reconstruction" / "attack.py"


@pytest.fixture(scope="module")
def attack():
    spec = importlib.util.spec_from_file_location("attack", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(attack):
    return attack.attacks()[0]


def test_distances_give_the_geometry_up_to_rotation(attack, found):
    assert found["error of an angle, degrees"] < 1
    assert found["correlation of inner products"] > 0.98
    # A rotation of all points gives the same distances, so it cannot be found.
    points = np.random.default_rng(0).normal(size=(9, 4))
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))
    inner = [attack.directions(x) @ attack.directions(x).T for x in (points, points @ rotation)]
    assert np.allclose(*inner)


def test_known_points_place_all_others(attack, found):
    assert found["cosine of a picture and its reconstruction"] > 0.95
    assert found["cosine of a picture and the known ones' mean"] < 0.85
    # From exact angles and as many known points as there are dimensions, all are exact.
    points = attack.directions(np.random.default_rng(0).normal(size=(30, 5)))
    angles = np.arccos(np.clip(points @ points.T, -1, 1))
    placed = attack.geometry(angles / np.pi * attack.BITS, 5)
    assert np.allclose(attack.align(placed, points[:5], slice(0, 5)), points, atol=1e-5)
    assert not np.allclose(attack.align(placed, points[:2], slice(0, 2)), points, atol=1e-1)


def test_a_column_of_the_influence_matrix_tells_who_is_near(found):
    assert found["share of the 10 nearest rows of others found"] > 0.4
    assert found["the same by chance"] < 0.05


def test_the_server_and_a_client_solve_for_the_others_labels(attack, found):
    assert found["share of the others' labels solved for"] == 1
    # With fewer rows than labels there are many solutions.
    rng = np.random.default_rng(0)
    columns, classes = rng.random((40, 30)), rng.integers(0, 10, 30)
    scores = columns @ np.eye(10)[classes]
    assert (attack.solve_labels(columns, scores) == classes).all()
    assert (attack.solve_labels(columns[:5], scores[:5]) == classes).mean() < 0.9


def test_the_page_has_the_numbers_that_the_script_prints(found):
    page = (ROOT / "docs" / "understand" / "reveals.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    for what, pattern, unit in (
        ("error of an angle, degrees", r"an error of (\d\.\d+) degrees", 1),
        ("correlation of inner products", r"have a correlation of (\d\.\d+) with", 1),
        ("cosine of a picture and its reconstruction", r"reconstruction is (\d\.\d+) on", 1),
        ("cosine of a picture and the known ones' mean", r"mean of the known ones is (\d\.\d+)", 1),
        ("share of the others' labels solved for", r"24 labels, (\d+)% of the others'", 100),
        ("share of the 10 nearest rows of others found", r"labelled row, (\d+)% are among", 100),
        ("the same by chance", r"by chance it would be (\d+)%", 100),
    ):
        stated = re.search(pattern, text)
        assert stated is not None, what
        assert float(stated[1]) == pytest.approx(unit * found[what], abs=0.006 * unit), what


def test_the_picture_is_drawn(attack, tmp_path):
    path = tmp_path / "digits.png"
    attack.draw(path, np.arange(128.0).reshape(2, 64), np.ones((2, 64)))
    assert path.read_bytes().startswith(b"\x89PNG")
