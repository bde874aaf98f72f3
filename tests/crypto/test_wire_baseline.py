"""The bytes of every protocol under fixed randomness are those of the committed baseline."""

import json
import runpy
from pathlib import Path

import pytest

VECTORS = Path(__file__).parents[1] / "vectors"
BASELINE = json.loads((VECTORS / "wire_baseline.json").read_text(encoding="utf-8"))
GENERATOR = runpy.run_path(str(VECTORS / "generate_wire.py"))


def test_the_baseline_covers_all_protocols_and_message_types():
    assert set(BASELINE) == set(GENERATOR["PROTOCOLS"]), (
        "after a change of PROTOCOLS, run `python tests/vectors/generate_wire.py`"
    )
    names = {key.split(":")[0] for forms in BASELINE.values() for key in forms["opened"]}
    listed = {
        *(
            "Hello",
            "Directory",
            "Opening",
            "Openings",
            "SeedShare",
            "Received",
            "Roster",
            "Confirm",
        ),
        *("DealtSeed", "DealtCorrections", "GateOpenings", "OutputShares"),
        *("PlainBits", "MaskedRows", "DistanceShares", "BlockShares"),
        *("RlweCiphertexts", "RlweMasks", "RlweAnswers"),
        *("PaillierKey", "PaillierRows", "PaillierAnswers", "PaillierShares"),
        *("OtSetup", "OtChoices", "OtOffers", "IdealMessages"),
        *("OtColumns", "OtChallenge", "OtProof", "OtCorrections"),
        *("SumShares", "SumReady", "SumClients", "SumUpload"),
        *("SumMasked", "SumSurvivors", "SumSigned", "SumSignatures", "SumReveal"),
        *("RowSumsRound", "RowSumsUpload", "RowSumsBlock", "IdealSumUpload", "IdealBlock"),
    }
    assert names == listed, (
        f"new, so list them here: {sorted(names - listed)}; sent no more: {sorted(listed - names)}"
    )


@pytest.mark.parametrize("protocol", BASELINE)
def test_nothing_that_is_sent_changed(protocol):
    """If this fails on purpose, run tests/vectors/generate_wire.py and say so in the release."""
    assert GENERATOR["digests"](protocol) == BASELINE[protocol]


def test_digests_are_of_different_things():
    digests = [d for forms in BASELINE.values() for d in forms["sealed"].values()]
    # Only key exchanges are the same in protocols with the same clients and numbers.
    assert len(set(digests)) > len(digests) // 2
