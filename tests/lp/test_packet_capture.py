"""Real packets of a federation: what they show, beside the same federation without encryption."""

import json
import os
import socket
from functools import partial

import numpy as np
import pytest
import session_runs as sessions
from network_processes import CLASSES, SERVER, Federation
from packet_capture import (
    APPLICATION_DATA,
    CHANGE_CIPHER,
    HANDSHAKE,
    Capture,
    markers_of,
    record,
    recorded,
    tls_records,
)

from xclp_crypto.protocols.hamming.distance import distances_between
from xclp_crypto.transport.network.frames import MAGIC
from xclp_crypto.transport.tls import make_authority
from xclp_lp.lsh import projection_seed
from xclp_lp.session import ClientData

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="root captures packets; test_network_session.py looks at the same bytes at a relay",
)

SEED = projection_seed(0)


def patient(client, row):
    return f"patient-{client}-{row}"


def run(folder, certificates, *, clear):
    """Run a federation; return it, what was captured, and what each party wrote down.

    The back end is the one whose clients send their hashes: nothing but encryption hides them.
    """
    folder.mkdir()
    federation = Federation(folder, certificates=certificates, hamming="plain")
    parties = [SERVER, *federation.clients]
    inside = {p: [partial(record, folder / f"{p}.sent", clear=clear)] for p in parties}
    federation.serve(inside=inside[SERVER])
    capture = Capture(federation.port)
    try:
        for name, x, y in zip(federation.clients, federation.Xs, federation.ys, strict=True):
            rows = [
                [patient(name, i), label or "", *map(repr, row.tolist())]
                for i, (row, label) in enumerate(zip(x, y, strict=True))
            ]
            table = [["patient", "bird", *(f"x{i}" for i in range(x.shape[1]))], *rows]
            (folder / f"{name}.csv").write_text("".join(",".join(row) + "\n" for row in table))
            federation.edit(name, f'features = "{name}.npy"', f'features = "{name}.csv"')
            federation.edit(name, f'labels = "{name}-labels.csv"', 'id_column = "patient"')
            federation.start(name, inside=inside[name])
        codes = federation.finish()
    finally:
        streams = [stream for stream in capture.stop() if stream]
    assert set(codes.values()) == {0}, federation.output(SERVER)
    return federation, streams, {p: recorded(folder / f"{p}.sent") for p in parties}


def hashes_of(federation):
    """The bits of each client's rows."""
    return [
        sessions.bits_of(ClientData(x, np.zeros(len(x), dtype=np.int64)), 64, SEED)
        for x in federation.Xs
    ]


def never_sent(federation):
    """Markers of what no party sends to anybody, not even sealed."""
    bits = np.concatenate(hashes_of(federation))
    distances = distances_between(bits, bits)
    found = [name.encode() for name in CLASSES]
    found += [patient(c, i).encode() for c in federation.clients for i in range(8)]
    found += markers_of(SEED)
    for row in np.concatenate(federation.Xs):
        found += markers_of(row.tobytes()) + markers_of(row.astype(np.float32).tobytes())
        found.append(repr(row[0]).encode())
    for row in distances:
        found += markers_of(row.astype("<u2").tobytes()) + markers_of(row.astype("u1").tobytes())
    return found


def found_in(streams, markers):
    return [marker for marker in markers if any(marker in stream for stream in streams)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same federation twice: encrypted, and in the clear."""
    folder = tmp_path_factory.mktemp("capture")
    make_authority(folder / "certs", [f"hospital-{i}" for i in range(4)], ["localhost"])
    return {
        clear: run(folder / f"{clear}", folder / "certs", clear=clear) for clear in (False, True)
    }


@pytest.mark.parametrize("clear", [False, True])
def test_everything_that_was_sent_is_captured(runs, clear):
    federation, streams, lines = runs[clear]
    assert {c: federation.labels(c) for c in federation.clients} == federation.simulated()
    assert len(streams) == 2 * len(federation.clients)
    metered = relayed = 0
    for party in (SERVER, *federation.clients):
        sizes = [(to, len(data)) for kind, to, data in lines[party] if kind == "sent"]
        sent = sum(size for _, size in sizes)
        metered += sent
        relayed += sum(size for to, size in sizes if SERVER not in (party, to))
        if party != SERVER:
            cost = json.loads((federation.folder / "results" / f"{party}-cost.json").read_text())
            assert cost["bytes"] == sent
    records = [record for stream in streams for record in tls_records(stream)]
    carried = sum(len(data) for kind, data in records if kind == APPLICATION_DATA)
    assert carried > metered + relayed > 10_000


def test_a_capture_shows_no_plaintext(runs):
    """Only TLS records, of which one in each direction, with the server's name, is readable."""
    federation, streams, lines = runs[False]
    for stream in streams:
        kinds = [kind for kind, _ in tls_records(stream)]
        assert kinds[0] == HANDSHAKE
        assert set(kinds[1:]) == {CHANGE_CIPHER, APPLICATION_DATA}
    assert sum(b"localhost" in stream for stream in streams) == len(federation.clients)
    names = [MAGIC, b"hospital", *(c.encode() for c in federation.clients)]
    said = [m for sent in lines.values() for *_, data in sent for m in markers_of(data)]
    assert not found_in(streams, [*names, *said, *never_sent(federation)])


def test_the_same_search_finds_everything_without_encryption(runs):
    """What is sent, hashes among it; and what is not sent is not found even then."""
    federation, streams, lines = runs[True]
    assert found_in(streams, [MAGIC, b"hospital"]) == [MAGIC, b"hospital"]
    inside = {(what, data) for sent in lines.values() for k, what, data in sent if k == "inside"}
    for bits in hashes_of(federation):
        assert ("PlainBits", np.packbits(bits, bitorder="little").tobytes()) in inside
    assert {"SeedShare", "Influence", "PlainBits"} <= {what for what, _ in inside}
    said = [m for sent in lines.values() for *_, data in sent for m in markers_of(data)]
    assert len(said) > 100
    assert found_in(streams, said) == said
    assert not found_in(streams, never_sent(federation))


def test_the_same_search_finds_what_is_sent_without_tls(runs):
    federation, *_ = runs[False]
    markers = never_sent(federation)
    assert len(markers) > 100
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        capture = Capture(address[1])
        try:
            with socket.create_connection(address) as sender, listener.accept()[0] as receiver:
                sender.sendall(b"".join(markers))
                sender.shutdown(socket.SHUT_WR)
                while receiver.recv(1 << 16):
                    pass
        finally:
            streams = capture.stop()
    assert found_in(streams, markers) == markers
