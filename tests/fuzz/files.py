"""The decoders of files that others made: identities, certificates, settings, tables, data sets.

They have no canonical form that anybody relies on; what must hold is that only errors of xclp are
raised. Many take the path of a file, so each input becomes one.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import rdata
from decoders import Decoder, Finding, require_nothing
from PIL import Image

from xclp_crypto.transport.tls import common_name, make_authority, tls_context
from xclp_lp.files import federation as federation_file
from xclp_lp.files import network as network_file
from xclp_lp.files import tables
from xclp_lp.files.credentials import read_identities
from xclp_lp.study.data import cifar, fashion, femnist, hapt, isic, mini_imagenet, vowel
from xclp_lp.study.data.archives import archive_files, unzipped
from xclp_lp.study.data.pickles import read_pickle
from xclp_lp.study.data.pictures import small_picture
from xclp_lp.study.experiments.config import Experiment, read_described
from xclp_lp.study.experiments.document import read_result
from xclp_lp.study.training.split import Split


def _from_file(file: Path, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """Return a decoder of bytes that writes them to a file, for one of paths."""

    def decode(data: bytes) -> Any:
        file.write_bytes(data)
        return read(file)

    return decode


def _decoder(name: str, decode: Callable[[bytes], Any], *seeds: bytes, size: int = 4096) -> Decoder:
    return Decoder(name, decode, seeds, require_nothing, size)


def _file_decoder(
    name: str, file: Path, read: Callable[[Path], Any], *seeds: bytes, size: int = 4096
) -> Decoder:
    return _decoder(name, _from_file(file, read), *seeds, size=size)


NESTED = b"[" * 3000


# Settings, identities and certificates


def _settings(folder: Path) -> Iterator[Decoder]:
    make_authority(folder / "certificates", ["north", "south"], ["localhost"])
    table = b"x0,x1,label\n1,2,cat\n3,4,dog\n5,6,\n"

    def federation(file: Path) -> Any:
        for name in ("north", "south"):
            (file.parent / f"{name}.csv").write_bytes(table)
        return federation_file.load_federation(file)

    whole = b"""output = "results"
[parameters]
n_bits = 64
k = 2
hamming = "masked"
[parameters.privacy]
epsilon = 3.0
[clients.north]
features = "north.csv"
label_column = "label"
[clients.south]
features = "south.csv"
label_column = "label"
"""
    yield _file_decoder(
        "federation-file",
        folder / "federation.toml",
        federation,
        whole,
        whole.replace(b"epsilon = 3.0", b"epsilon = 3.0\ndelta = 1e-5\nnoise_contributors = 2"),
        b"x = " + NESTED,
        b"a" + b".a" * 1500 + b" = 1",
    )
    common = b"""clients = ["north", "south"]
identities = false
columns = ["x0", "x1"]
[parameters]
scale = "client"
threshold = 2
classes = ["cat", "dog"]
k = 3
[tls]
authority = "certificates/authority.pem"
certificate = "certificates/CERT.pem"
key = "certificates/CERT.key"
[limits]
grace = 60
"""
    server = common.replace(b"CERT", b"server") + b'[server]\nlisten = "0.0.0.0:7878"\n'
    client = common.replace(b"CERT", b"north") + (
        b'[client]\nname = "north"\nserver = "[::1]:7878"\nfeatures = "north.csv"\n'
        b'label_column = "label"\n'
    )

    def read_client(file: Path) -> Any:
        (file.parent / "north.csv").write_bytes(table)
        return network_file.load_client_file(file).load()

    def read_server(file: Path) -> Any:
        return network_file.load_server_file(file).agreement()

    yield _file_decoder(
        "server-file", folder / "server.toml", read_server, server, client, b"x = " + NESTED
    )
    yield _file_decoder("client-file", folder / "client.toml", read_client, client, server)

    pins = (folder / "certificates" / "identities.toml").read_bytes()
    own = (folder / "certificates" / "north.identity").read_bytes()

    def identities(data: bytes) -> Any:
        """The first byte says which file the rest is; the other one is sound."""
        (folder / "identities.toml").write_bytes(pins if data[:1] == b"\1" else data[1:])
        (folder / "own.identity").write_bytes(data[1:] if data[:1] == b"\1" else own)
        (folder / "own.identity").chmod(0o600)
        return read_identities(
            "identities.toml", "own.identity", folder / "x.toml", "north", ("north", "south")
        )

    yield _decoder(
        "identity-files",
        identities,
        b"\0" + pins,
        b"\1" + own,
        b"\0north = 1",
        b"\1\xff",
        b"\1" + own + b"\n",
    )

    names = ("authority.pem", "north.pem", "north.key")

    def certificates(data: bytes) -> Any:
        """The first byte says which of authority, certificate and key the rest is."""
        files = [folder / "certificates" / name for name in names]
        if data:
            files[data[0] % 3] = folder / "changed.pem"
            files[data[0] % 3].write_bytes(data[1:])
        return common_name({}), tls_context(*files, server=bool(data) and data[0] > 127)

    sound = [(folder / "certificates" / name).read_bytes() for name in names]
    yield _decoder(
        "certificates",
        certificates,
        *(bytes([i]) + content for i, content in enumerate(sound)),
        b"\x81" + sound[0],
        b"\2" + sound[2].replace(b"PRIVATE", b"ENCRYPTED PRIVATE"),
    )
    experiment = b"""form = "labels"
dataset = "digits"
methods = ["xclp", "pooled"]
seeds = [0, 1]
[data]
n_clients = 3
"""
    yield _file_decoder(
        "experiment-file",
        folder / "experiment.toml",
        lambda file: read_described(Experiment, file, {}),
        experiment,
        b"x = " + NESTED,
    )


# Tables, results and splits


def _npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def _npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _header(text: bytes) -> bytes:
    """Return an .npy file with this header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _tables(folder: Path) -> Iterator[Decoder]:
    def read(file: Path) -> Any:
        found = tables.read_file(file, "north")
        columns = [] if found.table is None else found.feature_columns(columns=None, leave_out=[])
        return found.features(columns=columns)

    yield _file_decoder(
        "table-csv",
        folder / "x.csv",
        read,
        b"a,b\n1,2\n3,4.5\n",
        b'\xef\xbb\xbf"a","b, c"\n"1",2\n\n',
        b"a;b\n1;2\n",
        b"a,b\n1\n",
        b"a\n" + b"9" * 400 + b"\n",
        size=512,
    )
    yield _file_decoder(
        "table-npy",
        folder / "x.npy",
        read,
        _npy(np.eye(3)),
        _npy(np.arange(6, dtype=np.int8).reshape(2, 3)),
        _npy(np.array(["a", "b"])),
        _header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3000000000, 4000000000), }\n"),
        _header(b"{'descr': " + b"[" * 300 + b"}\n"),
        _header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2), }\n") + bytes(64),
        _header(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"),
        size=1024,
    )
    archive = _npz(x=np.eye(2))
    yield _file_decoder(
        "table-npz",
        folder / "x.npz",
        read,
        archive,
        _npz(x=np.eye(2), y=np.arange(2)),
        archive.replace(b"PK\x01\x02", b"PK\x01\x03"),
        _encrypted(archive),
        size=2048,
    )
    yield _file_decoder(
        "result-file",
        folder / "result.json",
        read_result,
        b'{"experiment": {"metric": "accuracy"}, "data": {}, "table": []}',
        b"[1, 2]",
        NESTED,
        size=4096,
    )
    yield _file_decoder(
        "split-file",
        folder / "split.json",
        Split.read,
        b'{"clients": [{"labelled": [0, 1], "unlabelled": [2]}], "validation": [3]}',
        b'{"clients": [], "validation": [1e400]}',
        b'{"clients": [], "validation": [99999999999999999999]}',
        b'{"clients": [], "validation": [[1]]}',
        NESTED,
    )


def _encrypted(archive: bytes) -> bytes:
    """Set the flag of encryption in all headers of a zip archive."""
    out = bytearray(archive)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = out.find(mark)
        while at >= 0:
            out[at + place] |= 1
            at = out.find(mark, at + 1)
    return bytes(out)


# Published data sets


def _picture(kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (6, 4), (200, 10, 60)).save(out, kind)
    return out.getvalue()


def _zip(compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("data/train/a.json", "{}" * 40)
    return out.getvalue()


def _tar(mode: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        member = tarfile.TarInfo("data/train/a.json")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"{}"))
    return out.getvalue()


def _shared(levels: int) -> list[Any]:
    """Return lists of the same list twice, so that few bytes stand for 2^levels lists."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found, found]
    return found


def _pickle(content: Any, protocol: int = 2) -> bytes:
    return pickle.dumps(content, protocol)


def _copies_of_text(times: int) -> bytes:
    """A pickle that makes bytes of the same text many times."""
    text = b"X" + (50_000).to_bytes(4, "little") + bytes(50_000)
    copy = b"h\x01(h\x00X\x06\x00\x00\x00latin1tR"
    return text + b"q\x000c_codecs\nencode\nq\x010(" + copy * times + b"l."


def _frugally_read(data: bytes) -> Any:
    tracemalloc.start()
    try:
        return read_pickle(data)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if peak > (4 << 20) + 400 * len(data):
            raise Finding(f"a pickle of {len(data)} bytes takes {peak}")


def _data_sets(folder: Path) -> Iterator[Decoder]:
    values: list[Any] = [
        {"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [0, 1]},
        [1, -2.5, "text", b"bytes", None, (True, {"a": []})],
        np.array(["a", None], dtype=object),
        np.asfortranarray(np.eye(2, dtype=np.float32)),
    ]
    yield _decoder(
        "pickle",
        _frugally_read,
        *(_pickle(v, protocol) for v in values for protocol in (0, 2, 4)),
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\nslice\n(I1\nI2\nNtR.",
        b"cnumpy\ndtype\n(S'f8'\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb.",
        b"]\x94h\x00a.",
        _pickle(_shared(30)),
        b"](K\x01K\x01e\x94" + b"h\x00c__builtin__\nslice\n(K\x00K\x00NtRh\x00s0" * 12 + b".",
        _copies_of_text(1 << 10),
        size=1024,
    )
    leaf = {"users": ["w"], "num_samples": [1], "user_data": {"w": {"x": [[0.5] * 784], "y": [3]}}}
    small = {"users": ["w"], "num_samples": [0], "user_data": {"w": {"x": [], "y": []}}}
    yield _decoder(
        "femnist",
        lambda data: femnist._writers(data, "x.json"),
        json.dumps(leaf).encode(),
        json.dumps(small).encode(),
        json.dumps({**small, "users": 3}).encode(),
        json.dumps({**small, "users": [["w"]]}).encode(),
        json.dumps({**small, "user_data": [1]}).encode(),
        json.dumps({**small, "user_data": {"w": {"x": [], "y": [10**30]}}}).encode(),
        NESTED,
    )
    pixels = np.zeros((1, 3072), np.uint8)
    batch = {"data": pixels, "labels": [3], "fine_labels": [3]}
    archives = {"cifar-10": cifar._CIFAR_10, "cifar-100": cifar._CIFAR_100}
    for name, kind in archives.items():
        yield _decoder(
            f"{name}-python",
            lambda data, kind=kind: cifar._python({"b": data}, "b", kind),
            _pickle(batch),
            _pickle({**batch, "labels": [[1], [2, 3]], "fine_labels": [[1], [2, 3]]}),
            _pickle({**batch, "labels": [2**70], "fine_labels": [2**70]}),
            _pickle({**batch, "labels": _shared(30), "fine_labels": _shared(30)}),
        )
    yield _decoder(
        "cifar-binary",
        lambda data: [cifar._binary({"b.bin": data}, "b.bin", kind) for kind in archives.values()],
        bytes(3073),
        b"",
        bytes(3074),
        size=8192,
    )
    idx = bytes([0, 0, 8, 3]) + struct.pack(">III", 2, 1, 3) + bytes(range(6))
    yield _file_decoder(
        "idx",
        folder / "x.idx",
        lambda file: fashion.read_idx(file, 3),
        idx,
        gzip.compress(idx, mtime=0),
        idx[:12],
        bytes([0, 0, 8, 3]) + struct.pack(">III", 0, 2**32 - 1, 2**32 - 1),
        gzip.compress(idx, mtime=0)[:-12] + bytes(12),
        b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 20,
        size=256,
    )
    yield _file_decoder(
        "gzip",
        folder / "x.gz",
        unzipped,
        gzip.compress(b"text", mtime=0),
        b"text",
        b"\x1f\x8b",
        size=256,
    )
    images = np.zeros((2, 4, 4, 3), np.uint8)
    yield _file_decoder(
        "mini-imagenet",
        folder / "x.pkl",
        lambda file: mini_imagenet._from_pickles([file], 4),
        _pickle({"image_data": images, "class_dict": {"n01": [0], "n02": [1]}}),
        _pickle({"image_data": images, "class_dict": {"n01": [[0], [1, 0]]}}),
        _pickle({"image_data": images, "class_dict": {"n01": 0}}),
        _pickle({"image_data": images[:, :2], "class_dict": {}}),
        size=1024,
    )
    frames = {a: np.zeros(3) for a in ("acc-x", "acc-y", "acc-z", "gyro-x", "gyro-y", "gyro-z")}
    yield _file_decoder(
        "hapt-pickle",
        folder / "x.pkl",
        hapt._from_pickle,
        _pickle({1: [{**frames, "label": np.ones(3, np.int64)}]}),
        _pickle({"a": [{**frames, "label": [1, 2, 3]}]}),
        _pickle({1: [{**frames, "acc-x": [1, 2], "label": [1, 2, 3]}]}),
        _pickle({1: [{**frames, "label": ["x"]}], "b": [frames]}),
        size=2048,
    )
    yield _file_decoder(
        "hapt-archive",
        folder / "x.zip",
        hapt._from_archive,
        _recordings(),
        _encrypted(_recordings()),
        size=2048,
    )
    split = b"image,target,center,fold,fold2\nISIC_0,1,0,train,train_0\n"

    def isic_table(data: bytes) -> Any:
        (folder / "train_test_split").write_bytes(data)
        return isic._table(folder)

    yield _decoder(
        "isic-table",
        isic_table,
        split,
        split + b"ISIC_1,1\n",
        split + b"\xff,1,0,train,train_0\n",
        b'image,target,center,fold,fold2\n"' + b"a" * 300,
        split.replace(b"ISIC_0", b"\0"),
        size=512,
    )
    yield _decoder(
        "picture",
        lambda data: small_picture(data, 2, "x"),
        _picture("PNG"),
        _picture("JPEG"),
        _bomb(),
        size=2048,
    )
    yield _file_decoder(
        "archive",
        folder / "x.archive",
        lambda file: archive_files(file, ("train/*.json",)),
        _zip(),
        _zip(zipfile.ZIP_STORED),
        _zip(zipfile.ZIP_LZMA),
        _encrypted(_zip()),
        _zip().replace(b"\x08\x00\x00\x00", b"\x63\x00\x00\x00"),
        *(_tar(mode) for mode in ("w", "w:gz", "w:bz2", "w:xz")),
        size=2048,
    )

    yield _file_decoder(
        "vowel",
        folder / "x.rda",
        vowel.load_vowel,
        _vowels(folder),
        gzip.compress(RDA, mtime=0),
        RDA,
        RDA[:20],
        b"RDX2\nX\n"
        + struct.pack(">III", 2, 0x20300, 0x20300)
        + struct.pack(">II", 0x40E, 2**31 - 1),
        size=1024,
    )


RDA = (
    b"RDX2\nX\n"
    + struct.pack(">III", 2, 0x20300, 0x20300)
    + struct.pack(">I", 0x402)  # a pair list with a tag
    + struct.pack(">II", 1, 0x40009)  # a symbol, which is text
    + struct.pack(">I", 1)
    + b"x"
    + struct.pack(">IId", 14, 1, 1.0)  # a vector of one number
    + struct.pack(">I", 254)  # the end
)
"""The file that R writes for ``x <- 1``."""


def _vowels(folder: Path) -> bytes:
    """Return the smallest file of R data that the loader takes."""
    frame = pd.DataFrame({f"V{i}": [0.5, 1.5] for i in range(1, 11)}).astype({"V1": int})
    frame["Class"] = pd.Categorical(["hid", "had"])
    file = folder / "Vowel.rda"
    rdata.write_rda(file, {"Vowel": frame})
    return file.read_bytes()


def _recordings() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("RawData/labels.txt", "1 1 5 1 2\n")
        for kind in ("acc", "gyro"):
            archive.writestr(f"RawData/{kind}_exp01_user01.txt", "0.1 0.2 0.3\n" * 3)
    return out.getvalue()


def _bomb() -> bytes:
    """Return a PNG that says that it has 2^31 − 1 pixels in each direction."""
    sound = _picture("PNG")
    at = sound.index(b"IHDR") + 4
    head = struct.pack(">II", 2**31 - 1, 2**31 - 1) + sound[at + 8 : at + 13]
    crc = struct.pack(">I", zlib.crc32(b"IHDR" + head))
    return sound[:at] + head + crc + sound[at + 17 :]


def files(folder: Path) -> Iterator[Decoder]:
    """Yield the decoders of files, which they write to a folder."""
    yield from _settings(folder)
    yield from _tables(folder)
    yield from _data_sets(folder)
