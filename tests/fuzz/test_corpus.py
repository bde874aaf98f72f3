"""The kept inputs of the fuzzer, through every decoder; needs no fuzzer.

`make fuzz` looks for new ones.
"""

import importlib
import pkgutil
import tempfile
from pathlib import Path

import pytest
from corpus import FOLDER, read_corpus
from decoders import Decoder, Finding, encodes_to_same
from every import decoders

import xclp_crypto
import xclp_lp
from xclp_crypto import wire
from xclp_crypto.errors import DecodeError

SCRATCH = tempfile.TemporaryDirectory(prefix="xclp-fuzz-")
DECODERS = decoders(Path(SCRATCH.name))


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.filterwarnings("default")  # what libraries say of damaged files
def test_every_kept_input_is_taken_or_refused_by_a_typed_error(name):
    decoder = DECODERS[name]
    taken = [decoder.check(data) for data in (*decoder.seeds, *read_corpus(name))]
    assert any(taken), "no input shows that the decoder takes anything"


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.filterwarnings("default")
def test_short_inputs_are_taken_or_refused_by_a_typed_error(name):
    for data in (b"", b"\0", b"\xff", bytes(64), b"\xff" * 64):
        DECODERS[name].check(data)


def test_every_message_type_has_a_decoder_here():
    for package in (xclp_crypto, xclp_lp):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".flower" not in module.name and module.name != "xclp_lp.__main__":
                importlib.import_module(module.name)
    ours = [
        k for k in wire._registry.values() if k.__module__.startswith(("xclp_crypto.", "xclp_lp."))
    ]
    missing = {kind.__name__ for kind in ours} - set(DECODERS)
    assert not missing, (
        f"no examples of {', '.join(sorted(missing))}: those of xclp_crypto come from EXAMPLES in "
        "tests/crypto/test_wire.py, those of xclp_lp from OF_SESSIONS in tests/fuzz/messages.py"
    )
    assert len(ours) > 40


def test_every_corpus_belongs_to_a_decoder_and_all_are_small():
    files = sorted(FOLDER.iterdir())
    assert {file.stem for file in files} <= set(DECODERS)
    assert sum(file.stat().st_size for file in files) < 1 << 20


def refusing(data):
    if data != b"good":
        raise DecodeError("bad")
    return data


@pytest.mark.parametrize("data", [b"good", b"bad"])
def test_a_strict_decoder_passes_the_check(data):
    decoder = Decoder("x", refusing, (), encodes_to_same(bytes))
    assert decoder.check(data) is (data == b"good")


def test_a_lax_decoder_and_an_untyped_error_are_findings():
    lax = Decoder("x", bytes.strip, (), encodes_to_same(bytes))
    assert lax.check(b"a")
    with pytest.raises(Finding):
        lax.check(b"a ")
    untyped = Decoder("x", lambda data: data[3], (), encodes_to_same(bytes))
    with pytest.raises(IndexError):
        untyped.check(b"abc")
