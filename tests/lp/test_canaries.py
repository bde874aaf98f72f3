"""Canaries of every input, searched for in all that anybody else gets, and in every log.

One federation of four: the data of the last cannot be used, in several ways, and the others finish.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from canaries import (
    CANARY,
    RANDOM_STATE,
    Forms,
    forms_of,
    keep_logs,
    leaks,
    opened,
    spoilt_inputs,
    watch,
    write_table,
)
from command_lines import Xclp
from network_processes import CLASSES, SERVER, Federation

from xclp_crypto.params import SEED_BYTES
from xclp_crypto.primitives.sealed_box import SealedBox
from xclp_crypto.transport.network.frames import Codec
from xclp_crypto.transport.tls import make_authority
from xclp_lp import CrossClientLabelPropagation

KEYS = {SERVER: "5eed0123" * 8, "hospital-0": f"{CANARY} passphrase"}
KEYS |= {f"hospital-{i}": f"{i}badcafe" * 8 for i in (1, 2, 3)}
"""Of logs and of what clients keep."""

SHOWN = {
    **{suffix: set[str]() for suffix in (".sent", ".jsonl", ".json")},
    **{suffix: set[str]() for suffix in (".state", ".kept", ".labels", ".epoch")},
    ".csv": {"ids", "labels", "columns"},
    ".out": {"labels", "columns", "paths"},
}
"""Kinds of files, and which canaries they show: results and terminal of a client, its own ones."""


class Watched(Federation):
    """A federation whose clients are given tables, keys and certificates in a folder apart."""

    def __init__(self, folder: Path) -> None:
        self.given = folder / f"{CANARY}-place"
        for place in (folder / "found", self.given):
            place.mkdir()
        clients = [f"hospital-{i}" for i in range(4)]
        make_authority(self.given / "certs", clients, ["localhost"])
        super().__init__(folder / "found", certificates=self.given / "certs", identities=True)
        self.key_file.unlink()
        for party in (SERVER, *clients):
            numbers = f"random_state = {RANDOM_STATE}\nprivacy.epsilon = 50.0"  # changes no label
            self.edit(party, "random_state = 0", numbers)
            (self.given / f"{party}.log.key").write_text(KEYS[party])
            (self.given / f"{party}.log.key").chmod(0o600)
        self.edit(SERVER, "[server]", '[server]\noutput = "results"')
        for name, x, y in zip(clients, self.Xs, self.ys, strict=True):
            table = self.given / f"{CANARY}-table-{name}.csv"
            write_table(table, name, x, y)
            self.edit(name, f'features = "{name}.npy"', f'features = "{table}"')
            self.edit(name, f'labels = "{name}-labels.csv"', f'id_column = "{CANARY} id"')
            self.edit(name, 'label_column = "bird"', f'label_column = "{CANARY} label"')
            for file in (f"{name}.npy", f"{name}-labels.csv"):
                (self.folder / file).unlink()

    def begin(self, party: str) -> None:
        """Start a party that writes down what it hands to others."""
        self.key_file = self.given / f"{party}.log.key"
        inside = [keep_logs, partial(watch, self.folder / f"{party}.sent")]
        if party == SERVER:
            self.serve(inside=inside)
        else:
            labels = str(self.folder / f"{party}.labels")
            kept = ("--keep", str(self.folder / "kept"), "--remember", labels)
            passphrase = party == "hospital-0"  # of which each file takes a third of a second
            self.start(party, *([] if passphrase else kept), inside=inside)

    def forms(self, party: str) -> Forms:
        """Return the canaries of a party that took part."""
        certs = self.given / "certs"
        x = dict(zip(self.clients, self.Xs, strict=True)).get(party, np.zeros((0, 5)))
        (start, *_) = opened(self.folder / f"{party}.state", KEYS[party])
        return forms_of(
            party,
            x,
            CLASSES,
            start[-SEED_BYTES:],
            key_file=KEYS[party],
            identity=(certs / f"{party}.identity").read_text(),
            certificate=(certs / f"{party}.key").read_bytes(),
        )


def test_attack_9_nobody_else_and_no_log_gets_what_is_in_the_inputs_of_a_client(
    tmp_path: Path, xclp: Xclp, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Watched(tmp_path)
    *taking_part, refused = federation.clients
    federation.begin(SERVER)
    with monkeypatch.context() as patched:
        patched.setattr(SealedBox, "seal", SealedBox.seal)
        patched.setattr(Codec, "encode", Codec.encode)
        watch(sent := federation.folder / f"{refused}.sent")
        file = federation.file(refused)
        kept = file.read_text().partition("features = ")[0]
        for what, section in spoilt_inputs(federation.given):
            before = sent.stat().st_size if sent.exists() else 0
            file.write_text(kept + "".join(f'{k} = "{v}"\n' for k, v in section.items()))
            code, *said = xclp("join", file)
            assert (code, CANARY in "".join(said)) == (2, True), what
            assert sent.stat().st_size > before, "it says goodbye"
    for name in taking_part:
        federation.begin(name)
    assert set(federation.finish().values()) == {0}, federation.output(SERVER)

    data = [(x, y) for x, y in zip(federation.Xs[:3], federation.ys[:3], strict=True)]
    fit = CrossClientLabelPropagation(
        classes=CLASSES,
        random_state=RANDOM_STATE,
        client_names=taking_part,
        **federation.parameters,
    ).fit(*zip(*data, strict=True))
    for name, own in zip(taking_part, fit.transduction_, strict=True):
        assert federation.labels(name) == list(own)

    forms = {party: federation.forms(party) for party in (SERVER, *taking_part)}
    files = [f for f in federation.folder.rglob("*") if f.is_file() and f.suffix != ".toml"]
    assert {f.suffix for f in files} == SHOWN.keys()
    assert "server-cost.json" in {f.name for f in files}
    for file in files:
        shown = set() if file.stem == SERVER else SHOWN[file.suffix]
        for party, own in forms.items():
            found = leaks(file.read_bytes(), own)
            assert found <= (shown if party == file.stem else shown - {"ids"}), (file, party)

    # The same search finds all of it in the inputs, and in what is encrypted.
    inputs = [f for f in federation.given.rglob("*") if f.is_file()]
    inputs += map(federation.file, forms)
    for party, own in forms.items():
        content = b"".join(f.read_bytes() for f in inputs)
        content += b"".join(opened(federation.folder / f"{party}.state", KEYS[party]))
        assert leaks(content, own) == {kind for kind in own if own[kind]}
    kept = opened(federation.folder / "kept" / "hospital-1.kept", KEYS["hospital-1"])
    assert "labels" in leaks(b"".join(kept), forms["hospital-1"])
