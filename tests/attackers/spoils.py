"""Which messages an attacker can spoil results with; docs/understand/security.md has the same."""

from typing import Final

_ROWS = "its rows, and so the distances to them"
_SHARES = "the distances between its rows, and to them"
_PAIR = "the distances between its rows and those of the receiver"
_CHOSEN = "the messages of its transfers, or the distances that they carry"
_TRANSFERS = ("OtSetup", "OtChoices", "OtColumns", "OtOffers", "OtCorrections")
_SHARED = "what two parties compute on bits that they share"
_PRODUCTS = "inner products, similarities and masked distances, of the other program or the server"
_SUM = "the sum, by any number"

SPOILS: Final[dict[tuple[str, str], str]] = {
    **{("client", m): _ROWS for m in ("PlainBits", "MaskedRows", "Prepared")},
    **{("client", m): _SHARES for m in ("DistanceShares", "BlockShares", "PaillierShares")},
    **{("client", m): _PAIR for m in ("RlweCiphertexts", "RlweMasks", "RlweAnswers")},
    **{("client", m): _PAIR for m in ("PaillierRows", "PaillierAnswers")},
    **{("client", m): _CHOSEN for m in _TRANSFERS},
    **{("client", m): _SHARED for m in ("DealtSeed", "DealtCorrections")},
    **{("client", m): _SHARED for m in ("GateOpenings", "OutputShares")},
    **{("client", m): _SUM for m in ("SumReady", "SumUpload", "RowSumsUpload")},
    **{("client", m): _PRODUCTS for m in ("ProductShares", "SetSizes")},
    ("server", "SumTotal"): "the sum or mean that clients are told, by any number; of a mean not "
    "so that the weights are less than one's own",
    ("server", "Roster"): "the common secret: clients have different ones",
    ("server", "SumSurvivors"): "the sum, over others than it says",
    ("server", "RowSumsBlock"): "the sum, by any number",
    ("server", "Influence"): "the scores, by any number",
    ("server", "Reach"): "the scores, by any number",
}
"""By sender and message, what comes out wrong without anybody being named."""
