"""A message of 200 MB through a SuperLink and SuperNodes, and what each process takes in memory."""

from __future__ import annotations

import json
from pathlib import Path

from processes import Federation

SIZE = 200_000_000
APP = Path(__file__).parent / "large_app"


def resident(pid, field):
    """Return a field of a process's status in bytes; see proc(5)."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def test_a_message_of_200_megabytes_takes_twice_as_much_memory(tmp_path):
    peaks = tmp_path / "peaks"
    peaks.mkdir()
    environment = {"XCLP_LARGE": str(SIZE), "XCLP_PEAKS": str(peaks)}
    environment["MALLOC_MMAP_THRESHOLD_"] = "1048576"  # as docs/do/deployment.md says
    with Federation(tmp_path, names=["a", "b"], app=APP, environment=environment) as federation:
        federation.start_all()
        for name in federation.clients:
            federation.wait_for(name, "SuperNode ID")
        programs = {"superlink": "SuperLink", "a": "SuperNode of a", "b": "SuperNode of b"}
        pids = {name: federation.processes[name].pid for name in programs}
        before = {name: resident(pid, "VmRSS") for name, pid in pids.items()}
        federation.run(threshold=2, scale="client")
        federation.wait_for("run", "labels of a, b were counted", 900)
        taken = {
            f"{what} (Flower's program)": resident(pids[name], "VmHWM") - before[name]
            for name, what in programs.items()
        }
        assert federation.processes["run"].wait(120) == 0
    for kind in ("ServerApp", "ClientApp"):
        found = [json.loads(file.read_text()) for file in peaks.glob(f"{kind}-*.json")]
        assert len(found) >= (1 if kind == "ServerApp" else 6)
        taken[kind] = max(one["peak"] for one in found) - min(one["before"] for one in found)
    for what, size in taken.items():
        print(f"{what}: {size / SIZE:.2f} times the message")  # noqa: T201
    assert max(taken.values()) < 2.5 * SIZE
