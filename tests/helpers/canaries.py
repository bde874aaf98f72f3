"""Inputs of a client that cannot be used, with a word in them that nobody else may see."""

import numpy as np

CANARY = "zeisig"
"""In cells, labels, ids, names of columns and paths, and in the key of a log."""

TABLE = "id,bird,x,y\n" + "".join(f"{CANARY}-{i},,{i}.5,{3 * i % 7}\n" for i in range(7))
LABELS = f"id,bird\n{CANARY}-0,barn owl\n"


def spoilt_inputs(folder):
    """Yield what each fault is called, and the fields of a section [client] that has it."""
    place = folder / f"{CANARY}-data"
    place.mkdir(exist_ok=True)
    sound = {"features": "table.csv", "id_column": "id", "label_column": "bird"}
    labels = {"features": "features.csv", "labels": "labels.csv"}
    faults = {
        "a cell": (sound, TABLE.replace("3.5", f"{CANARY}3.5"), LABELS),
        "a label": (sound, TABLE.replace(",,4.5", f",{CANARY} owl,4.5"), LABELS),
        "an id twice": (sound, TABLE.replace(f"{CANARY}-3", f"{CANARY}-4"), LABELS),
        "an id of no row": (sound | labels, TABLE, LABELS.replace(f"{CANARY}-0", f"{CANARY}-8")),
        "a column": (sound | {"id_column": f"{CANARY}-id"}, TABLE, LABELS),
        "a file that is not there": (sound | {"features": f"{CANARY}.csv"}, TABLE, LABELS),
        "an array": ({"features": "x.npz", "features_array": f"{CANARY}-key"}, TABLE, LABELS),
        "a line": (sound, TABLE + f'"{CANARY}\n', LABELS),
    }
    for what, (section, table, of_rows) in faults.items():
        (place / "table.csv").write_text(table)
        (place / "features.csv").write_text(table.replace("bird", "z"))
        (place / "labels.csv").write_text(of_rows)
        np.savez(place / "x.npz", other=np.ones((7, 2)))
        files = {k: str(place / v) for k, v in section.items() if k in ("features", "labels")}
        yield what, section | files
