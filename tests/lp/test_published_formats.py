"""Loaders of the paper's data sets, on small files in exactly their formats."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from published_files import FINE, TEN, cache, cifar_10, cifar_100, refused, tagged

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.study.data import Federation, load
from xclp_lp.study.data.femnist import CHARACTERS
from xclp_lp.study.data.isic import LESIONS
from xclp_lp.study.data.pickles import read_pickle


def numbers(federation: Federation) -> list[int]:
    return [round(float(x)) for x in np.concatenate([f[:, 0] for f in federation.features]) * 255]


# FEMNIST


def leaf_file(file: Path, writers: dict[str, list[int]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(writers),
        "num_samples": [len(y) for y in writers.values()],
        "user_data": {
            w: {"x": [[round(c / 255, 6)] * 784 for c in y], "y": y} for w, y in writers.items()
        },
    }
    file.write_text(json.dumps(content))


@pytest.fixture
def leaf(tmp_path: Path) -> Path:
    leaf_file(tmp_path / "data/train/all_data_0_train_9.json", {"f0_1": [0, 61], "f1_2": [10]})
    leaf_file(tmp_path / "data/train/all_data_1_train_9.json", {"f2_3": [36, 1, 2]})
    leaf_file(tmp_path / "data/test/all_data_0_test_9.json", {"f0_1": [3], "f2_3": [35]})
    return tmp_path


def test_femnist_keeps_writers_and_the_division_of_leaf(leaf: Path) -> None:
    federation = load("femnist", path=leaf)
    assert federation.names == ("f0_1", "f1_2", "f2_3")
    assert [y.tolist() for y in federation.labels] == [["0", "z", "3"], ["A"], ["a", "1", "2", "Z"]]
    assert federation.test is not None
    assert [t.tolist() for t in federation.test] == [
        [False, False, True],
        [False],
        [False, False, False, True],
    ]
    for x, y in zip(federation.features, federation.labels, strict=True):
        assert x.shape == (len(y), 784)
        np.testing.assert_allclose(x[:, 5] * 255, [CHARACTERS.index(c) for c in y], atol=1e-3)
    two = load("femnist", path=leaf, n_clients=2, seed=1)
    assert len(two.names) == 2
    assert set(two.names) < set(federation.names)
    for options in ({"n_clients": 4}, {"n_clients": 0}, {"n_clients": 1, "seed": -1}):
        with pytest.raises(ParameterError):
            load("femnist", path=leaf, **options)


def changed(content: dict[str, Any], change: str) -> str:
    data = content["user_data"]["f0_1"]
    match change:
        case "users":
            del content["users"]
        case "no x":
            del data["x"]
        case "pixels":
            data["x"][0] = data["x"][0][:-1]
        case "label":
            data["y"][0] = 62
        case "count":
            content["num_samples"][0] = 5
        case "writer":
            content["user_data"]["other"] = data
    return json.dumps(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("users", "lacks users"),
        ("no x", "'f0_1' has no x"),
        ("pixels", "'f0_1' has no x with 784"),
        ("label", "outside 0..61"),
        ("count", "of 5"),
        ("writer", "name different writers"),
    ],
)
def test_what_is_not_femnist(leaf: Path, change: str, message: str) -> None:
    file = leaf / "data/train/all_data_0_train_9.json"
    file.write_text(changed(json.loads(file.read_text()), change))
    refused("femnist", leaf, message)
    file.write_text("{")
    refused("femnist", leaf, "all_data_0_train_9.json is no JSON")


def test_a_folder_without_leafs_files(tmp_path: Path) -> None:
    refused("femnist", tmp_path, r"has no train/\*\.json")
    refused("femnist", tmp_path / "none", "neither a folder")


# Fed-ISIC2019


HEAD = "image,MEL,NV,BCC,AK,BKL,DF,VASC,SCC,UNK,target,center,fold,fold2"


def picture(colour: int, size: tuple[int, int] = (60, 40)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (colour, 10, 200)).save(out, "JPEG", quality=95)
    return out.getvalue()


@pytest.fixture
def flamby(tmp_path: Path) -> Path:
    folder = tmp_path / "ISIC_2019_Training_Input_preprocessed"
    folder.mkdir()
    lines = [HEAD]
    for i, (target, centre, fold) in enumerate(
        [(1, 0, "train"), (0, 0, "test"), (7, 4, "train"), (2, 0, "train"), (7, 4, "test")]
    ):
        name = f"ISIC_{i:07d}" + ("_downsampled" if centre == 4 else "")
        (folder / f"{name}.jpg").write_bytes(picture(50 * i))
        onehot = ",".join(str(float(c == target)) for c in range(9))
        lines.append(f"{name},{onehot},{target},{centre},{fold},{fold}_{centre}")
    (tmp_path / "train_test_split").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_isic_keeps_centres_and_flambys_division(flamby: Path) -> None:
    federation = load("fed-isic2019", path=flamby, side=4)
    assert federation.names == ("centre-0", "centre-4")
    assert federation.classes == LESIONS
    assert [y.tolist() for y in federation.labels] == [["NV", "MEL", "BCC"], ["SCC", "SCC"]]
    assert federation.test is not None
    assert [t.tolist() for t in federation.test] == [[False, True, False], [False, True]]
    for features, colours in zip(federation.features, ([0, 50, 150], [100, 200]), strict=True):
        assert features.shape == (len(colours), 48)
        np.testing.assert_allclose(features[:, ::3] * 255, np.repeat([colours], 16, 0).T, atol=4)
    (flamby / "ISIC_2019_Training_Input_preprocessed").rename(flamby / "ISIC_2019_Training_Input")
    (flamby / "train_test_split").rename(flamby / "train_test_split.csv")
    assert load("fed-isic2019", path=flamby, side=4).names == federation.names
    with pytest.raises(ParameterError, match="side must be at least 1, got 0"):
        load("fed-isic2019", path=flamby, side=0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fold2", "part", "lacks one of the columns"),
        (",train_0", ",train_1", "line 2 is none"),
        (",1,0,train", ",x,0,train", "line 2: target or center"),
        (",1,0,train", ",8,0,train", "line 2 is none"),
        ("ISIC_0000000", "../ISIC_0000000", "line 2 is none"),
        ("ISIC_0000000", "ISIC_1", r"has no ISIC_1\.jpg"),
    ],
)
def test_what_is_not_isic(flamby: Path, old: str, new: str, message: str) -> None:
    table = flamby / "train_test_split"
    table.write_text(table.read_text().replace(old, new))
    refused("fed-isic2019", flamby, message)


def test_isic_without_its_files(flamby: Path) -> None:
    table = flamby / "train_test_split"
    table.write_text(HEAD + "\n")
    refused("fed-isic2019", flamby, "no rows")
    table.unlink()
    refused("fed-isic2019", flamby, "has no train_test_split")
    refused("fed-isic2019", flamby / "ISIC_2019_Training_Input_preprocessed", "has no ISIC_2019")


def test_what_is_no_picture(flamby: Path) -> None:
    file = flamby / "ISIC_2019_Training_Input_preprocessed" / "ISIC_0000000.jpg"
    for content in (b"", b"no picture", picture(0)[:200], b"GIF89a" + bytes(40)):
        file.write_bytes(content)
        refused("fed-isic2019", flamby, r"ISIC_0000000\.jpg is not a picture")


# CIFAR


CIFARS = [("cifar-10", cifar_10), ("cifar-100", cifar_100)]


@pytest.mark.parametrize(("name", "write"), CIFARS)
@pytest.mark.parametrize("kind", ["py", "bin"])
@pytest.mark.parametrize("packed", [True, False])
def test_cifar_from_every_archive(
    tmp_path: Path, name: str, write: Callable[[Path, str], Path], kind: str, packed: bool
) -> None:
    source = write(tmp_path, kind)
    path = source
    if packed:
        path = tmp_path / "archive.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(source, source.name)
    federation = load(name, path=path, n_clients=3, n_rows=120)
    classes = TEN if name == "cifar-10" else FINE
    assert federation.classes == tuple(classes)
    found = numbers(federation)
    assert sorted(found) == list(range(120))
    labels = np.concatenate(federation.labels).tolist()
    assert labels == [classes[i % len(classes)] for i in found]
    assert federation.test is not None
    assert np.concatenate(federation.test).tolist() == [i >= 100 for i in found]
    assert federation.features[0].shape[1] == 3072


@pytest.mark.parametrize(("name", "write"), CIFARS)
def test_what_is_not_cifar(tmp_path: Path, name: str, write: Callable[[Path, str], Path]) -> None:
    python, binary = write(tmp_path, "py"), write(tmp_path, "bin")
    other = {"cifar-10": "cifar-100", "cifar-100": "cifar-10"}[name]
    refused(other, python, "has no|not all files")
    batch = "test_batch" if name == "cifar-10" else "test"
    key = "labels" if name == "cifar-10" else "fine_labels"
    good = {"data": tagged(2, 3072), key: [0, 1]}
    for content, message in (
        ({"data": good["data"]}, "lacks data or"),
        ([1], "lacks data or"),
        ({**good, "data": good["data"][:, :-1]}, "pictures of 3072"),
        ({**good, "data": good["data"].astype(float)}, "pictures of 3072"),
        ({**good, key: [0]}, "2 pictures and labels"),
        ({**good, key: [0, len(TEN if name == "cifar-10" else FINE)]}, "has labels 0 to"),
    ):
        (python / batch).write_bytes(pickle.dumps(content, 2))
        refused(name, python, message)
    (python / batch).write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    refused(name, python, r"names os\.system")
    (python / batch).unlink()
    refused(name, python, "not all files")
    file = binary / f"{batch}.bin"
    file.write_bytes(file.read_bytes()[:-1])
    refused(name, binary, "not made of records")
    names = binary / ("batches.meta.txt" if name == "cifar-10" else "fine_label_names.txt")
    file.write_bytes(b"")
    names.write_text("a\nb\n")
    refused(name, binary, "does not name")


# Mini-ImageNet


def test_mini_imagenet_from_pickles(tmp_path: Path) -> None:
    cache(tmp_path / "mini-imagenet-cache-train.pkl", {"n02": 12, "n01": 6}, 0)
    cache(tmp_path / "mini-imagenet-cache-test.pkl", {"n03": 6}, 18)
    federation = load("mini-imagenet", path=tmp_path, n_clients=2, n_rows=24)
    assert federation.classes == ("n01", "n02", "n03")
    found = numbers(federation)
    assert sorted(found) == list(range(24))
    expected = ["n02"] * 12 + ["n01"] * 6 + ["n03"] * 6
    assert np.concatenate(federation.labels).tolist() == [expected[i] for i in found]
    assert federation.test is not None
    test = [expected[i] for i, t in zip(found, np.concatenate(federation.test), strict=True) if t]
    assert sorted(test) == ["n01", "n02", "n02", "n03"]
    cache(tmp_path / "mini-imagenet-cache-val.pkl", {"n03": 6}, 24)
    refused("mini-imagenet", tmp_path, "'n03' is in another file")
    with pytest.raises(ParameterError, match="84 pixels, not 32"):
        load("mini-imagenet", path=tmp_path, side=32)


def test_mini_imagenet_from_folders(tmp_path: Path) -> None:
    for c, name in enumerate(("n01", "n02")):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        for i in range(6):
            (folder / f"{i}.{'jpg' if c else 'JPEG'}").write_bytes(picture(100 * c + 10 * i))
    federation = load("mini-imagenet", path=tmp_path, side=2, n_clients=2, n_rows=12)
    assert federation.classes == ("n01", "n02")
    assert federation.features[0].shape[1] == 12
    for number, label in zip(
        numbers(federation), np.concatenate(federation.labels).tolist(), strict=True
    ):
        assert label == ("n02" if number > 75 else "n01")
    for options in ({"side": 0}, {"seed": -1}, {"n_rows": 13}):
        with pytest.raises(ParameterError):
            load("mini-imagenet", path=tmp_path, **{"side": 2, **options})


def test_what_is_not_mini_imagenet(tmp_path: Path) -> None:
    refused("mini-imagenet", tmp_path, "has neither")
    file = tmp_path / "mini-imagenet-cache-train.pkl"
    data = np.zeros((4, 84, 84, 3), dtype=np.uint8)
    for content, message in (
        ({"image_data": data}, "with class_dict"),
        ({"image_data": data[0], "class_dict": {}}, "with class_dict"),
        ({"image_data": data, "class_dict": {"n01": [4]}}, "'n01' names rows"),
        ([], "with class_dict"),
    ):
        file.write_bytes(pickle.dumps(content, 2))
        refused("mini-imagenet", tmp_path, message)
    file.write_bytes(b"c__builtin__\neval\n(S'1'\ntR.")
    refused("mini-imagenet", tmp_path, "names __builtin__.eval")


@pytest.mark.parametrize(
    "data",
    [
        b"](K\x01K\x01eq\x00" + b"h\x00c__builtin__\nslice\n(K\x00K\x00NtRh\x00s0" * 22 + b"h\x00.",
        b"X\x50\xc3\x00\x00" + bytes(50_000) + b"q\x000c_codecs\nencode\nq\x010("
        + b"h\x01(h\x00X\x06\x00\x00\x00latin1tR" * 2000 + b"l.",
        b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01)cnumpy\ndtype\n(S'u1'\ntR"
        b"\x89J\x00\x00\x00\x40tb.",
    ],
    ids=["a slice of a list is set to the list", "copies of a text", "bytes of a number"],
)  # fmt: skip
def test_attack_13_a_short_pickle_does_not_take_much_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            read_pickle(data)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
