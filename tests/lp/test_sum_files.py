"""`xclp sum`: what comes out of files of every kind, in this process and over TLS."""

import csv

import numpy as np
import pyarrow
import pytest
from network_processes import SERVER, Death, Federation
from pyarrow import parquet

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.transport.tls import make_authority
from xclp_lp.files.sums import load_sum_client
from xclp_lp.files.updates import KINDS, read_update, write_update

TABLE = {"=id": {"flu": 1.5, "+cold": -2.0}, "n": {"flu": 1e6, "+cold": 0.1}}
UPDATES = {
    ".npy": np.float32([[1, 2], [3, 4]]),
    ".npz": {"file": np.int8([1, -2]), "b": np.float64(0.5)},
    ".csv": TABLE,
    ".parquet": TABLE,
}


def same(one, other):
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    return np.array_equal(one, other) and np.asarray(one).dtype == np.asarray(other).dtype


@pytest.mark.parametrize("suffix", UPDATES)
def test_what_is_written_is_read_again(tmp_path, suffix):
    file, ids = tmp_path / f"x{suffix}", "row id" if UPDATES[suffix] is TABLE else None
    write_update(file, UPDATES[suffix], ids)
    assert same(read_update(file, "a", id_column=ids), UPDATES[suffix])
    if suffix == ".csv":
        assert "'=id" in file.read_text()  # which no spreadsheet takes for a formula
        assert file.read_text().splitlines()[1] == "flu,1.5,1000000"


def test_a_state_dict_is_averaged_and_nothing_in_its_file_is_run(tmp_path, xclp):
    torch = pytest.importorskip("torch")
    for at, name in enumerate("abc"):
        state = torch.nn.Linear(2, 1).to(torch.bfloat16).state_dict()
        state = {part: torch.full_like(v, 2.0**at) for part, v in state.items()}
        torch.save(state, tmp_path / f"{name}.pt")
    files = [tmp_path / f"{name}.pt" for name in "abc"]
    options = ("--mean", "--weights", "2,1,1", "--out", tmp_path / "mean.pt")
    code, out, err = xclp("sum", *files, *options)
    assert code == 0, err
    assert "whose weights add up to 4; written to" in out
    mean = read_update(tmp_path / "mean.pt", "x")
    assert mean["weight"].tolist() == [[2, 2]]
    assert mean["bias"].dtype == torch.bfloat16
    torch.save(torch.nn.Linear(2, 1), files[0])  # a pickle of a class
    with pytest.raises(DataError, match=r"client 'a': .*a.pt cannot be read: Weights only load"):
        read_update(files[0], "a")


def tables(folder):
    rows = {"a": "flu,3,x\ncold,4,x\n", "b": "cold,10,y\nflu,20,y\n", "c": "flu,1.5,\ncold,-7,\n"}
    for name, lines in rows.items():
        (folder / f"{name}.csv").write_text(f"disease,count,note\n{lines}")


def test_tables_are_summed_by_id_with_a_dropout(tmp_path, xclp, monkeypatch):
    tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    what = ("a.csv", "b.csv", "c.csv", "--id-column", "disease", "--columns", "count")
    code, out, _ = xclp("sum", *what, "--dry-run")
    assert code == 0
    assert "3 clients, 2 values each; a client sends about" in out
    drop = ("--threshold", "2", "--drop", "b.csv:upload")
    code, _, err = xclp("sum", *what, "--out", "sum.csv", *drop[2:])
    assert code != 0
    assert "3 are needed" in err  # by default, as over TLS
    code, out, _ = xclp("sum", *what, "--out", "sum.csv", *drop)
    assert code == 0
    assert "b.csv dropped out in upload" in out
    assert "sum of a.csv, c.csv; written to sum.csv" in out
    with (tmp_path / "sum.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["disease", "count"], ["flu", "4.5"], ["cold", "-3"]]


OPTIONS = {
    "--weights needs --mean": ("--weights", "1,2,3"),
    "2 weights for 3 clients": ("--mean", "--weights", "1,2"),
    "--weights must be numbers with commas, got '1;2'": ("--mean", "--weights", "1;2"),
    "client 'b.csv': its weight must be a number ≥ 0, got -1.0": ("--mean", "--weights", "1,-1,1"),
    "client 'b.csv': its weight 1e-09 is too small": ("--mean", "--weights", "1,1e-9,1"),
    "--state needs --serve or --join": ("--state", "x.log"),
    "--server-only needs --serve or --join": ("--server-only",),
    "--listen needs --serve": ("--listen", "localhost:1"),
    "--join and --serve are of two parties": ("--serve", "a.toml", "--join", "b.toml"),
    "row 1, column 'note' of a.csv is 'x': not a number": ("--columns", "note"),
    "row 1, column 'note' of c.csv is empty; fill it in\n": ("--columns", "note"),
    "b.csv is given twice; each client": ("./b.csv",),
    "a.csv has no column 'cuont'; its columns are": ("--columns", "cuont"),
    "--out sum.npz is not for a table, which a.csv holds": ("--out", "sum.npz"),
    "--out b.csv is one of the files that are read": ("--out", "b.csv"),
    "sum.txt is none of the kinds that can be summed": ("--out", "sum.txt"),
    "'a.csv' can drop out in setup, share, upload, reveal, not 'setpu'": ("--drop", "a.csv:setpu"),
    "client 'a.csv' has count.cold of shape () and dtype float64, and 'b.csv' not": (),
}


@pytest.mark.parametrize("words", OPTIONS)
def test_what_is_wrong_with_options_and_cells_is_said(tmp_path, xclp, monkeypatch, words):
    tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, old, new in (("a", "x", "1"), ("b", "y", "1")) if "c.csv is" in words else ():
        file = tmp_path / f"{name}.csv"
        file.write_text(file.read_text().replace(f",{old}", f",{new}"))
    if "count.cold" in words:
        (tmp_path / "b.csv").write_text("disease,count\ncough,1\nflu,1\n")
    given = OPTIONS[words]
    usual = ("--out", "sum.csv") if "--out" not in given else ()
    columns = ("--columns", "count") if "--columns" not in given else ()
    files = ("a.csv", "b.csv", "c.csv", "--id-column", "disease")
    code, _, err = xclp("sum", *files, *usual, *columns, *given)
    assert code == 2
    assert words in err
    assert not (tmp_path / "sum.csv").exists()


def test_other_files_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", [1.0])
    np.savez(tmp_path / "x.npz", one=[1.0])
    parquet.write_table(pyarrow.table({"n": [1, None]}), tmp_path / "x.parquet")
    for name, options, kind, words in (
        ("x.npy", {"columns": ["n"]}, ParameterError, "has no columns to choose from"),
        ("x.npz", {"id_column": "n"}, ParameterError, "is not a table"),
        ("x.npz", {"columns": ["on"]}, DataError, "has no array 'on'; .* did you mean 'one'"),
        ("x.parquet", {}, DataError, "row 2, column 'n' of .*x.parquet is empty; fill it in, or"),
        ("x.parquet", {"id_column": "n"}, DataError, "has no columns to sum"),
        *((f"none{suffix}", {}, DataError, "there is no file") for suffix in (".npy", ".pt")),
    ):
        with pytest.raises(kind, match=words):
            read_update(tmp_path / name, "a", **options)
    assert len(KINDS) == 6


@pytest.fixture
def federation(tmp_path):
    make_authority(tmp_path / "certs", [f"hospital-{i}" for i in range(3)], ["localhost"])
    return Federation(tmp_path, clients=3, certificates=tmp_path / "certs")


def test_processes_average_over_tls_with_a_restart_and_a_dropout(federation, xclp, tmp_path):
    """With the files of `xclp serve` and `join`; one client's values are unusable."""
    weights = {"hospital-0": 1, "hospital-1": 3, "hospital-2": 5}
    for name, weight in weights.items():
        x = np.float32([weight, np.nan if weight == 5 else -1])
        np.savez(tmp_path / f"{name}-x.npz", x=x, n=np.int64(weight))
    template = tmp_path / "template.npz"
    np.savez(template, n=np.int64(9), x=np.float32([9, 9]))
    common, out = ("--mean", "--threshold", "2"), tmp_path / "out"
    out.mkdir()
    federation.serve(*common, "--out", str(out / "server.npz"), values=template)
    client = lambda name: tmp_path / f"{name}-x.npz"  # noqa: E731
    asked = ("sum", client("hospital-0"), "--join", federation.file("hospital-0"), "--dry-run")
    code, said, _ = xclp(*asked, *common)
    assert (code, "the server accepts this certificate" in said) == (0, True)
    code, _, err = xclp(*asked, "--threshold", "2")
    assert code == 2
    assert "all parties must agree on content (here 'the sum of n of shape ()" in err
    assert "all parties say the same --mean, --threshold, " in err
    for name, weight in weights.items():
        options = (*common, "--weights", str(weight), "--out", str(out / f"{name}.npz"))
        death = Death(2, "share") if name == "hospital-1" else None
        federation.start(name, *options, death=death, values=client(name))
    assert federation.exit_code("hospital-1") < 0
    options = (*common, "--weights", "3", "--out", str(out / "hospital-1.npz"))
    federation.start("hospital-1", *options, values=client("hospital-1"))
    codes = {SERVER: 0, "hospital-0": 0, "hospital-1": 0, "hospital-2": 2}
    assert federation.finish() == codes, federation.output(SERVER)
    assert "client 'hospital-2': x[1] is nan" in federation.output("hospital-2")
    assert "weights add up to 4; written to" in federation.output(SERVER)
    assert "hospital-2 dropped out in setup" in federation.output(SERVER)
    for party in (SERVER, "hospital-0", "hospital-1"):
        found = read_update(out / f"{party}.npz", party)
        assert same(found["x"], np.float32([2.5, -1]))
        assert same(found["n"], np.int64(2))
        assert not federation.state(party).exists()
    assert not (out / "hospital-2.npz").exists()


def test_files_of_parties_are_checked(federation, xclp, tmp_path):
    values = tmp_path / "x.npy"
    np.save(values, [1.0])

    def says(words, *arguments):
        code, _, err = xclp("sum", *arguments, "--out", tmp_path / "out.npy")
        assert code == 2
        assert words in err

    server, client = federation.file(SERVER), federation.file("hospital-0")
    says("is the server's file; give it to --serve", values, "--join", server)
    says("is a client's file; give it to --join", values, "--serve", client)
    says("with --join name one file", values, values, "--join", client)
    says("--weights is each client's own", values, "--serve", server, "--mean", "--weights", "1")
    federation.edit("hospital-0", "[tls]", "[lts]")
    says("unknown field 'lts'", values, "--join", client)
    federation.edit("hospital-0", "[lts]", "[tls]")
    lines = client.read_text().splitlines()
    start, end = lines.index("[parameters]"), lines.index("[tls]")
    client.write_text("\n".join(lines[:start] + lines[end:]))
    assert load_sum_client(client).name == "hospital-0"
