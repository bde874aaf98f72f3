"""The app of the library with other roles: client a sends client b one large message.

Each process says what it took in memory at most, in a file in the folder ``XCLP_PEAKS``.
"""

import atexit
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from xclp_crypto.fields import Raw
from xclp_crypto.wire import Message, sent
from xclp_lp.predictions import Prediction

SIZE = int(os.environ["XCLP_LARGE"])
DIGEST = 32


class Blob(Message):
    """Any number of bytes."""

    TAG = 0xFF51
    data: bytes = sent(Raw("n"))


async def client_role(io, data, params, invited, rng, projection_seed=None, identities=None):
    """Send the large message, or take it and say what came."""
    if io.name == "a":
        await io.send("b", Blob(np.random.default_rng(0).bytes(SIZE)))
        digest = (await io.recv(Blob, "b", n=DIGEST)).data
        await io.send("server", Blob(digest))
    else:
        blob = await io.recv(Blob, "a", n=SIZE)
        await io.send(("a", "server"), Blob(hashlib.sha256(blob.data).digest()))
    return Prediction.none(len(data.class_ids), len(params.classes))


async def server_role(io, params, invited, rng, identities=None):
    """Wait for both."""
    digests = [(await io.recv(Blob, name, n=DIGEST)).data for name in invited]
    if len(set(digests)) != 1:
        raise AssertionError("another message came than was sent")
    return SimpleNamespace(dropouts=(), contributors=tuple(invited))


def memory(field):
    """Return a field of this process's status in bytes; see proc(5)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


def report_peak(kind):
    """Write what this process takes now, and at its end what it took at most."""
    before = memory("VmHWM")

    def report():
        file = Path(os.environ["XCLP_PEAKS"]) / f"{kind}-{os.getpid()}.json"
        file.write_text(json.dumps({"before": before, "peak": memory("VmHWM")}))

    atexit.register(report)
