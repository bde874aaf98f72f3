"""What clients keep on their disks for rows that come later: its encoding, and its secrecy."""

from __future__ import annotations

import json
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_runs import SMALL, blobs, federation

from xclp_crypto.errors import DecodeError, LogError, ParameterError, StorageError
from xclp_crypto.privacy import RandomizedResponse
from xclp_crypto.testing import run
from xclp_crypto.transport.log import Log, LogKey
from xclp_lp.files.kept import read_kept, sealed, write_kept
from xclp_lp.kept import Hashed, Kept
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction
from xclp_lp.scaling import Moments

KEY = LogKey(bytes(range(32)))
COLUMNS = ("heart rate", "blood pressure")


@st.composite
def kepts(draw: st.DrawFn) -> Kept:
    features, classes, rows, given_rows = (draw(st.integers(1, 4)) for _ in range(4))
    rows, row_bytes = rows - 1, draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    moments = None
    if draw(st.booleans()):
        deviation = np.where(rng.random(features) < 0.3, np.inf, rng.random(features) + 1)
        winsorise = draw(st.sampled_from([None, 3.0]))
        moments = Moments(rng.normal(size=features), deviation, winsorise)
    own = Hashed(
        rng.bytes(32),
        moments,
        features,
        rng.integers(0, 256, (rows, row_bytes), dtype=np.uint8),
        class_ids=rng.integers(-1, classes, rows),
        in_graph=rng.permutation(np.arange(rows + given_rows) < rows),
    )
    totals = rng.integers(0, 99, classes) if draw(st.booleans()) else None
    return Kept(rng.bytes(32), own, rng.normal(size=(rows, classes)), totals)


@given(kepts(), st.data())
@settings(max_examples=60)
def test_an_encoding_decodes_to_the_same_and_no_part_of_it_to_anything(
    kept: Kept, data: st.DataObject
) -> None:
    encoded = kept.encode()
    found = Kept.decode(encoded)
    assert found.encode() == encoded
    for a, b in [(kept, found), (kept.own, found.own)]:
        for name, value in vars(a).items():
            if isinstance(value, np.ndarray):
                assert np.array_equal(value, getattr(b, name)), name
            elif not isinstance(value, Moments | Hashed):
                assert value == getattr(b, name), name
    if kept.own.moments is not None and found.own.moments is not None:
        assert kept.own.moments.deviation.tolist() == found.own.moments.deviation.tolist()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DecodeError):
        Kept.decode(encoded[:cut])
    place = data.draw(st.integers(0, 8 * len(encoded) - 1))
    flipped = bytearray(encoded)
    flipped[place // 8] ^= 1 << place % 8
    with suppress(DecodeError):  # or it is another value, which encodes to these bytes only
        assert Kept.decode(bytes(flipped)).encode() == flipped


def session(params: Parameters = SMALL) -> Prediction:
    data = blobs({"a": 9, "b": 12, "c": 8}, labelled=5, seed=4)
    found: Prediction = run(federation(data, params)).raise_errors().results["a"]
    return found


def test_a_file_gives_back_what_was_kept_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    params = replace(SMALL, validation="leave-one-out", classes=(2**60, 2**60 + 1, 7))
    found = session(params)
    write_kept(tmp_path / "new", {"a": sealed("a", params, COLUMNS, found, KEY)})
    file = tmp_path / "new" / "a.kept"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    read = read_kept(tmp_path / "new", "a", KEY)
    assert found.kept is not None
    assert read.kept.encode() == found.kept.encode()
    assert (read.classes, read.columns) == (params.classes, COLUMNS)
    validation, measured = read.validation(params), found.validation
    assert validation is not None
    assert measured is not None
    assert (validation.used, validation.accuracy()) == (measured.used, measured.accuracy())
    confidence = np.linspace(0, 1, 9)
    assert validation.calibrated(confidence).tolist() == measured.calibrated(confidence).tolist()
    assert repr(read) == "<KeptFile>"
    written = file.read_bytes()
    kept = found.kept
    secrets = [kept.session, kept.own.seed, kept.own.packed.tobytes(), kept.sums.tobytes()]
    for secret in [*secrets, b"heart", str(2**60).encode()]:
        assert not any(secret[i : i + 5] in written for i in range(0, len(secret) - 4, 5))
    read.require(replace(params, hamming="plain", threshold=2))
    with pytest.raises(ParameterError, match=r"agree on k \(here 7\), validation .*kept file"):
        read.require(replace(params, k=7, validation="none"))


def test_a_file_that_is_cut_off_or_changed_anywhere_is_refused(tmp_path: Path) -> None:
    content = sealed("a", SMALL, None, session(), KEY)
    write_kept(tmp_path, {"a": content})
    file = tmp_path / "a.kept"
    step = max(1, len(content) // 100)
    for cut in [*range(0, len(content), step), len(content) - 1]:
        file.write_bytes(content[:cut])
        with pytest.raises(LogError, match=r"a\.kept"):
            read_kept(tmp_path, "a", KEY)
    for place in range(0, len(content), step):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        with pytest.raises(LogError, match=r"a\.kept"):
            read_kept(tmp_path, "a", KEY)


def test_a_file_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="nothing was kept of 'a'; name the folder that"):
        read_kept(tmp_path, "a", KEY)
    content = sealed("b", SMALL, None, session(), KEY)
    write_kept(tmp_path, {"a": content, "b": content})
    with pytest.raises(ParameterError, match="is what 'b' kept, and not 'a'"):
        read_kept(tmp_path, "a", KEY)
    with pytest.raises(LogError, match="does not open: another key was given, or it is damaged"):
        read_kept(tmp_path, "b", LogKey(bytes(32)))
    with pytest.raises(LogError, match="under a key of 32 bytes, and a passphrase was given"):
        read_kept(tmp_path, "b", LogKey.of_passphrase("correct horse battery"))
    with pytest.raises(ParameterError, match="'a' has nothing to keep: it dropped out"):
        sealed("a", SMALL, None, Prediction.none(1, 3), KEY)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be kept in"):
        write_kept(tmp_path / "file", {"a": b""})


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ("5", "must be a section"),
        ("{", "Expecting property name"),
        ({"classes": [1, 2]}, "its classes are not as many"),
        ({"classes": [1, None, 2]}, "must not contain a marker"),
        ({"agreement": "zz"}, "non-hexadecimal"),
        ({"more": 1}, "unknown field 'more'"),
        ({"counts": {"labels": [1]}}, "right is missing"),
    ],
)
def test_records_of_another_program_are_refused(tmp_path: Path, about: object, words: str) -> None:
    params = replace(SMALL, privacy=RandomizedResponse(epsilon=3.0))
    log = Log.from_bytes(sealed("a", params, None, session(params), KEY), KEY)
    (kind, first), (other, second) = log.replay()
    if isinstance(about, dict):
        about = json.dumps(json.loads(first) | about)
    changed = Log.from_bytes(b"", KEY)
    list(changed.replay())
    changed.append(kind, str(about).encode())
    changed.append(other, second)
    (tmp_path / "a.kept").write_bytes(changed.to_bytes())
    with pytest.raises(LogError, match=words):
        read_kept(tmp_path, "a", KEY)
