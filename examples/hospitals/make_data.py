"""Make the data files of this folder again: 910 invented patients of four hospitals.

Run ``python make_data.py`` here, or ``python make_data.py FOLDER`` to write somewhere else.

Each patient has one of four diagnoses, which shift the mean of each measurement, in each of two
courses of the disease. Measurements have the units in which hospitals write them down, so that
platelets per microlitre are 10^5 times as large as creatinine. Hospitals differ in size and in
their cases: none has all four diagnoses.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

SEED = 2026
MEASUREMENTS = {  # usual value, standard deviation, digits that are written down
    "age": (58, 14, 0),
    "bmi": (26.5, 4.2, 1),
    "systolic": (131, 17, 0),
    "pulse": (77, 11, 0),
    "temperature": (37.1, 0.6, 1),
    "saturation": (95.6, 1.9, 1),
    "sodium": (139, 3.5, 0),
    "creatinine": (0.95, 0.28, 2),
    "glucose": (112, 24, 0),
    "crp": (24, 11, 1),
    "leukocytes": (8_900, 2_400, -2),
    "platelets": (262_000, 61_000, -3),
}
DIAGNOSES = ("asthma", "embolism", "heart failure", "pneumonia")
SHIFT, SPREAD = 1.0, 0.75
"""Standard deviations by which a course moves each measurement, and around which patients vary."""
CASES = {  # patients by diagnosis
    "city": (150, 90, 0, 110),
    "coast": (0, 40, 140, 70),
    "hill": (60, 0, 70, 30),
    "lake": (50, 30, 70, 0),
}
LABELLED = 0.06


def main(folder: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(SEED))
    usual, deviation, digits = (np.array(v) for v in zip(*MEASUREMENTS.values(), strict=True))
    courses = SHIFT * rng.choice([-1.0, 1.0], (len(DIAGNOSES), 2, len(usual)))
    truth = [["hospital", "patient", "diagnosis"]]
    for hospital, cases in CASES.items():
        diagnosis = rng.permutation(np.repeat(np.arange(len(DIAGNOSES)), cases))
        n = len(diagnosis)
        noise = SPREAD * rng.standard_normal((n, len(usual)))
        values = usual + deviation * (courses[diagnosis, rng.integers(0, 2, n)] + noise)
        shown = rng.permutation(n) < round(LABELLED * n)
        with (folder / f"{hospital}.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(["patient", "diagnosis", *MEASUREMENTS])
            for i in range(n):
                name, known = f"{hospital}-{i + 1:03d}", DIAGNOSES[diagnosis[i]]
                cells = [
                    f"{round(v, d):.{max(d, 0)}f}" for v, d in zip(values[i], digits, strict=True)
                ]
                out.writerow([name, known if shown[i] else "", *cells])
                truth.append([hospital, name, known])
    with (folder / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(truth)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
