"""The paper's own numbers, by the form of experiment; docs/do/experiments.md shows the same."""

from __future__ import annotations

PAPER: dict[str, tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]] = {
    "size": (
        "Fed-ISIC2019, features of an EfficientNet: balanced accuracy in %, mean ± standard "
        "deviation over three runs",
        ("training rows (Table 1)", "each client alone, pretrained", "XCLP, pretrained", "FedAvg",
         "each client alone, fine-tuned", "XCLP, fine-tuned"),
        (
            ("954", "30.70 ± 1.25", "34.00 ± 1.12", "43.78 ± 0.88", "45.35 ± 1.25", "47.48 ± 1.12"),
            ("1,882", "31.40 ± 1.18", "34.61 ± 0.93", "46.83 ± 0.75", "48.10 ± 1.18",
             "52.34 ± 0.93"),
            ("3,744", "37.41 ± 0.20", "38.49 ± 0.88", "52.87 ± 0.14", "56.98 ± 0.20",
             "59.49 ± 0.88"),
            ("18,597", "55.10 ± 0.51", "53.38 ± 0.67", "63.78 ± 0.20", "73.30 ± 0.51",
             "74.22 ± 0.67"),
        ),
    ),
    "groups": (
        "FEMNIST, groups of clients: accuracy in %, by share of labelled rows",
        ("labelled", "each client alone, identity", "XCLP, identity", "FedAvg",
         "each client alone, linear", "XCLP, linear"),
        (
            ("0.1", "33.74 ± 0.20", "49.29 ± 0.16", "53.09 ± 0.19", "37.27 ± 0.12", "52.39 ± 0.30"),
            ("0.2", "44.79 ± 0.03", "53.93 ± 0.04", "57.54 ± 0.46", "50.89 ± 0.11", "58.57 ± 0.13"),
            ("0.5", "50.99 ± 0.06", "59.37 ± 0.13", "61.07 ± 0.49", "59.20 ± 0.19", "63.46 ± 0.11"),
            ("1.0", "51.91 ± 0.07", "62.35 ± 0.07", "62.90 ± 0.31", "59.42 ± 0.11", "66.18 ± 0.20"),
        ),
    ),
}  # fmt: skip
"""Caption, head and rows of the paper's table."""
