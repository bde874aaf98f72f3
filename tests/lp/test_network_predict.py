"""`xclp join --keep`, and later `--predict`, between real processes over TLS."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
from command_lines import Xclp
from network_processes import CLASSES, SERVER, Death, Federation

from xclp_crypto.transport.tls import make_authority
from xclp_lp import CrossClientLabelPropagation

PARAMETERS = {
    "preset": "default",
    "n_bits": 256,
    "k": 4,
    "hamming": "masked",
    "scale": "shared-by-two",
}


@pytest.mark.filterwarnings("ignore:with two clients")
def test_later_rows_get_labels_from_what_clients_kept(tmp_path: Path, xclp: Xclp) -> None:
    """A newcomer has the rows of hospital-0; hospital-1 has none. It and the server are killed."""
    certificates, kept = tmp_path / "certs", tmp_path / "kept"
    make_authority(certificates, [f"hospital-{i}" for i in range(3)], ["localhost"])
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = (
        Federation(folder, clients=n, rows=9, certificates=certificates, **PARAMETERS)
        for folder, n in zip(folders, (2, 3), strict=True)
    )
    first.serve()
    for name in first.clients:
        first.start(name, "--keep", str(kept))
    assert set(first.finish().values()) == {0}, first.output(SERVER)
    assert [f.name for f in sorted(kept.iterdir())] == [f"{c}.kept" for c in first.clients]
    assert {stat.S_IMODE(f.stat().st_mode) for f in kept.iterdir()} == {0o600}
    assert "kept in " in first.output("hospital-0")

    new = dict.fromkeys(("hospital-0", "hospital-2"), first.Xs[0][:5] + 0.1)
    for name, x in new.items():
        np.save(second.folder / f"{name}-new.npy", x)
        line = f'features = "{name}.npy"\n'
        old = "" if name == "hospital-2" else line
        second.edit(name, line, f'{old}new_features = "{name}-new.npy"\n')
    second.edit("hospital-2", 'labels = "hospital-2-labels.csv"\n', "")
    second.edit("hospital-2", 'label_column = "bird"\n', "")
    second.serve("--predict", death=Death(3, "propagation"))

    def says(code: int, words: str, party: str, *options: str | Path) -> None:
        found, out, err = xclp("join", second.file(party), "--dry-run", *options)
        assert found == code, out + err
        assert words in out + err

    key = ("--key-file", second.key_file)
    predict = ("--predict", "--keep", kept, *key)
    words = "must agree on session (here 'of all rows: without --predict'); the server has another"
    says(2, words, "hospital-0")
    says(0, "the server accepts this", "hospital-0", *predict)
    says(0, "the server accepts this", "hospital-2", "--predict")
    says(2, "--predict needs --keep FOLDER, where", "hospital-0", "--predict")
    says(2, "nothing was kept of 'hospital-0'", "hospital-0", "--predict", "--keep", ".", *key)
    second.edit("hospital-0", "k = 4", "k = 3")
    says(2, "agree on k (here 3); the session of the kept file", "hospital-0", *predict)
    second.edit("hospital-0", "k = 3", "k = 4")
    says(2, "--key-file is the key of what", "hospital-0", "--predict", *key)

    options = {c: ("--predict", "--keep", str(kept)) for c in first.clients}
    options["hospital-2"] = ("--predict",)
    for name in second.clients:  # the last one dies of who takes part, which the second server says
        last = name == "hospital-1"
        second.start(name, *options[name], death=Death(4, "row sums") if last else None)
    assert second.exit_code(SERVER) == -9
    second.serve("--predict")
    assert second.exit_code("hospital-1") == -9
    second.start("hospital-1", *options["hospital-1"])
    assert set(second.finish().values()) == {0}, second.output("hospital-1")

    fit = CrossClientLabelPropagation(
        classes=CLASSES, random_state=0, client_names=first.clients, **first.parameters
    ).fit(first.Xs, first.ys)
    wanted = fit.predict([new.get(c, np.zeros((0, 5))) for c in first.clients])

    def labels(name: str) -> list[str]:
        file = second.folder / "results" / "new" / f"{name}.csv"
        return [line.split(",")[1] for line in file.read_text().splitlines()[1:]]

    for name, own in zip(first.clients, wanted, strict=True):
        assert labels(name) == own.tolist()
    assert labels("hospital-2") == labels("hospital-0")
    assert "10 new rows of hospital-0, " in second.output(SERVER)
    assert "9 rows kept of the session" in second.output("hospital-1")
    assert "was not in the session: another client will tell" in second.output("hospital-2")
    assert not any(second.state(party).exists() for party in (SERVER, *second.clients))
