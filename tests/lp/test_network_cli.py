"""What `xclp certs`, `serve` and `join` say before a session begins, and when it cannot."""

import errno
import json
import os
import re
import resource
import shutil
import signal
import socket
import stat
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from network_processes import CLASSES, SERVER, Federation
from network_runs import written

from xclp_crypto import wire
from xclp_crypto.errors import (
    DataError,
    FaultyPeerOrServer,
    ParameterError,
    ProtocolError,
    StorageError,
)
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.protocols.setup import SERVER as SERVER_NAME
from xclp_crypto.transport import network
from xclp_crypto.transport.log import NoLog
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.network.frames import Ready
from xclp_crypto.transport.network.mailboxes import Outbox
from xclp_crypto.transport.network.party import Clock
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.tls import fingerprint_of, make_authority
from xclp_lp.files.network import load_client_file, load_server_file
from xclp_lp.files.parties import parse_address
from xclp_lp.predictions import Prediction
from xclp_lp.session import server_role


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "certs"
    make_authority(folder, ["hospital-0", "hospital-1"], ["localhost"])
    return folder


@pytest.fixture
def federation(tmp_path, certificates):
    return Federation(tmp_path, clients=2, certificates=certificates)


@pytest.fixture
def ahead(monkeypatch):
    """How far the clock of the network is ahead; a list of one number of seconds."""
    ahead = [0.0]
    monkeypatch.setattr(Clock, "__call__", lambda clock: time.monotonic() + ahead[0])
    return ahead


@pytest.fixture
def xclp(xclp):
    """Run the command line; return the exit code and what it printed."""

    def call(*arguments):
        code, out, err = xclp(*arguments)
        return code, out + err

    return call


@pytest.fixture
def says(xclp):
    """Run the command line; it ends with this code and says all these words."""

    def check(code, words, *arguments):
        found, said = xclp(*arguments)
        assert found == code, said
        for word in [words] if isinstance(words, str) else words:
            assert word in said

    return check


def start(federation):
    """The server of the files, in a thread of this process."""
    loaded = load_server_file(federation.file(SERVER))
    ready = threading.Event()

    async def role(io, rng):
        return await server_role(io, loaded.params, loaded.clients, rng, loaded.identities)

    durable = DurableRole(SERVER_NAME, role, NoLog(), peers=loaded.clients)

    def listening(port):
        for name in federation.clients:
            federation.edit(name, "localhost:0", f"localhost:{port}")
        federation.port = port
        ready.set()

    failed = []

    def serve():
        try:
            network.serve(
                durable,
                loaded.clients,
                loaded.agreement(),
                loaded.address,
                loaded.tls,
                limits=loaded.limits,
                listening=listening,
            )
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait()
    return thread, failed


@contextmanager
def waiting(federation, ahead):
    """The server waits for clients that never join."""
    thread, failed = start(federation)
    yield
    ahead[0] = 700  # more than `join`
    thread.join()
    assert "0 of the parties answered" in str(failed[0])


def test_certs_makes_files_that_only_their_owner_reads(tmp_path, says):
    folder = tmp_path / "c"
    north_and_south = ("--clients", "north, south", "--host", "h.org")
    said = ["11 files written", '\n"north" = "sha256:']
    says(0, said, "certs", folder, *north_and_south)
    files = {f.name: stat.S_IMODE(f.stat().st_mode) for f in folder.iterdir()}
    assert set(files) == {"authority.pem", "identities.toml"} | {
        f"{n}.{s}" for n in ("server", "north", "south") for s in ("pem", "key", "identity")
    }
    assert {files[f] for f in files if f.endswith((".key", ".identity"))} == {0o600}
    says(2, "is there already; choose another folder", "certs", folder, "--clients", "north,south")
    says(2, "none is 'server'", "certs", tmp_path / "d", "--clients", "server,a")
    says(2, "cannot be the name", "certs", tmp_path / "d", "--clients", "a/b")


def test_a_dry_run_checks_files_and_data_and_then_compares_parameters(federation, ahead, says):
    with waiting(federation, ahead):
        dry_run = ("join", federation.file("hospital-0"), "--dry-run")
        read = ["8 rows, 5 features", "2 of 8 rows labelled: "]
        says(0, [*read, "the server accepts this certificate and these parameters"], *dry_run)
        (federation.folder / "hospital-0.npy").rename(federation.folder / "away.npy")
        says(2, ["there is no file", "1 problem in"], *dry_run)
        (federation.folder / "away.npy").rename(federation.folder / "hospital-0.npy")
        federation.edit("hospital-0", "k = 2", "k = 3")
        says(2, "all parties must agree on k (here 3)", *dry_run)
        federation.edit("hospital-0", "k = 3", "k = 2\ngamma = 2.0")
        federation.edit("hospital-0", CLASSES[0], "eagle owl")
        labels = federation.folder / "hospital-0-labels.csv"
        labels.write_text(labels.read_text().replace(CLASSES[0], "eagle owl"))
        words = ["must agree on classes (here ('eagle owl', ", "gamma (here 2.0)"]
        says(2, words, *dry_run)
        federation.edit("hospital-0", "hospital-0.pem", "hospital-1.pem")
        federation.edit("hospital-0", "hospital-0.key", "hospital-1.key")
        words = "hospital-1.pem is the certificate of 'hospital-1', and this client is 'hospital-0'"
        says(2, words, *dry_run)
        says(2, words, "join", federation.file("hospital-0"))


def test_who_cannot_take_part_says_so_and_who_was_missing_is_said(federation, says):
    thread, failed = start(federation)
    (federation.folder / "hospital-0.npy").unlink()
    says(2, "there is no file", "join", federation.file("hospital-0"))
    log = federation.state("hospital-1")
    reason = "1 of the parties answered and 2 are needed, without hospital-0; nothing was revealed"
    words = [
        "hospital-1.npy: 8 rows, 5 features\n",
        "connected; waiting for 'hospital-0'\n",
        f"{reason}; to begin a new session, delete the log {log}\n",
    ]
    options = ("--state", log, "--key-file", federation.key_file)
    says(1, words, "join", federation.file("hospital-1"), *options)
    thread.join()
    assert reason in str(failed[0])


def test_data_of_another_shape_end_the_session_for_all(federation, says):
    np.save(federation.folder / "hospital-1.npy", np.ones((8, 3)))
    thread, failed = start(federation)
    loaded = load_client_file(federation.file("hospital-1"))
    other = threading.Thread(target=lambda: federation.start("hospital-1"))
    other.start()
    words = "client 'hospital-1' has 3 features, 'hospital-0' has 5; all must have"
    says(2, words, "join", federation.file("hospital-0"))
    assert federation.exit_code("hospital-1") == 2
    thread.join()
    other.join()
    assert isinstance(failed[0], DataError)
    assert not loaded.output.exists()


def test_a_server_that_swaps_a_key_is_named(tmp_path, certificates, monkeypatch, says):
    federation = Federation(tmp_path, clients=2, certificates=certificates, identities=True)
    thread, failed = start(federation)
    put = Outbox.put

    def swapping(outbox, message):
        """Give hospital-0 another key of hospital-1 than the one that hospital-1 sent."""
        if message.to == "hospital-0" and message.number == 0:
            at = wire.TAG_BYTES + 32 + 1 + 32 + 32  # key, who is present, two keys
            payload = message.payload[: at - 32] + bytes([9] * 32) + message.payload[at:]
            message = replace(message, payload=payload)
        put(outbox, message)

    # Only server and hospital-0 are in this process, and hospital-0 sends itself nothing.
    monkeypatch.setattr(Outbox, "put", swapping)
    federation.start("hospital-1")
    words = [
        "server did not follow the protocol",
        "not signed by the identity that is pinned for hospital-1",
    ]
    says(1, words, "join", federation.file("hospital-0"))
    assert federation.labels("hospital-0") is None
    assert federation.exit_code("hospital-1") == 1
    thread.join()
    assert isinstance(failed[0], ProtocolError)


@pytest.mark.parametrize(
    ("parties", "words"),
    [
        (("hospital-1",), "start again without hospital-1 take 'hospital-1' out of clients = … in"),
        (("hospital-1", "hospital-0"), "without the one of hospital-0, hospital-1 that is at"),
    ],
)
def test_who_is_blamed_and_how_to_start_again_is_said(
    federation, monkeypatch, says, parties, words
):
    def stopped(*_, **__):
        raise FaultyPeerOrServer(parties, "the server ended the session: lies")

    monkeypatch.setattr("xclp_crypto.transport.network.join", stopped)
    said = [f"{' or '.join(parties)} (or the server that relays", words, "all parties' files\n"]
    says(1, said, "join", federation.file("hospital-0"))


def test_other_identities_are_noticed_before_a_session(tmp_path, certificates, says, ahead):
    federation = Federation(tmp_path, clients=2, certificates=certificates, identities=True)
    pins = (certificates / "identities.toml").read_text()
    server = next(line for line in pins.splitlines() if line.startswith('"server"'))
    other = IdentityKey(bytes(range(32))).public.to_text()
    (tmp_path / "other.toml").write_text(pins.replace(server, f'server = "{other}"'))
    with waiting(federation, ahead):
        dry_run = ("join", federation.file("hospital-0"), "--dry-run")
        says(0, "accepts this certificate and these parameters", *dry_run)
        federation.edit("hospital-0", f"{certificates}/identities.toml", f"{tmp_path}/other.toml")
        words = (
            "on identities (here ('those of the file that identities names; where the other party"
        )
        says(2, words, *dry_run)
        federation.edit("hospital-0", f'"{tmp_path}/other.toml"', "false")
        federation.edit("hospital-0", "identity =", "# identity =")
        says(0, "caution: identities = false: a server that swaps", "check", dry_run[1])
        words = "(here ('none, by identities = false; where the others have some, write instead"
        says(2, words, *dry_run)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("identities =", "# identities =", "identity needs identities too"),
        ("identity =", "# identity =", "identities needs identity too"),
        ("identities =", "identities = true #", "the name of a file, or false .* got True"),
        ("identities =", 'identities = "" #', "the name of a file, or false .* got ''"),
        ("identities =", "identities = false #", "got False with identity"),
        ("server.identity", "none.identity", "none.identity cannot be read: No such file"),
        ("server.identity", "server.key", "server.key holds no identity key, which has 64 hex"),
        ("server.identity", "hospital-0.identity", "the own key of server is .*, but .* is pinned"),
        ("identities.toml", "none.toml", "there is no file .*none.toml"),
        ("certs/identities.toml", "certs/short.toml", "no identity is pinned for 'hospital-1'"),
        ("certs/identities.toml", "certs/wrong.toml", "server: the text of an identity is xclp-ed"),
    ],
)
def test_mistakes_in_identities(tmp_path, old, new, words):
    federation = Federation(tmp_path, clients=2, identities=True)
    pins = (tmp_path / "certs" / "identities.toml").read_text().splitlines()
    short = [line for line in pins if "hospital-1" not in line]
    (tmp_path / "certs" / "short.toml").write_text("\n".join(short))
    (tmp_path / "certs" / "wrong.toml").write_text("server = 5")
    federation.edit(SERVER, old, new)
    with pytest.raises(ParameterError, match=words):
        load_server_file(federation.file(SERVER))


def test_identities_are_required_unless_the_file_says_false(federation, says):
    for party in (SERVER, "hospital-0"):
        federation.edit(party, "identities = false", "")
        file = federation.file(party)
        words = [
            f"{file}: identities is missing. Without identities a server that swaps keys reads",
            "xclp certs FOLDER --clients hospital-0,hospital-1",
            f'identity = "FOLDER/{party}.identity"',
            "identities = false",
        ]
        commands = [["serve"]] if party == SERVER else [["join"], ["join", "--dry-run"], ["check"]]
        for command in commands:
            says(2, words, *command, file)


def test_two_clients_are_refused_unless_the_files_say_so(federation, says):
    for party, command in ((SERVER, "serve"), ("hospital-0", "join"), ("hospital-0", "check")):
        if command != "check":
            federation.edit(party, "threshold = 2", "")
        words = "each learns the other's part of every sum that it receives; choose threshold = 2"
        says(2, words, command, federation.file(party))


def test_nobody_answers(federation, says):
    federation.edit("hospital-0", "localhost:0", "localhost:1")
    words = "localhost:1 cannot be reached"
    says(3, words, "join", federation.file("hospital-0"), "--dry-run")


def test_a_client_says_that_it_tries_again_and_for_how_long(federation, xclp):
    federation.edit("hospital-0", "localhost:0", "localhost:1")
    federation.edit("hospital-0", "grace = 60.0", "grace = 1.0")
    events = federation.events_file("hospital-0")
    options = (federation.file("hospital-0"), "--log", events)
    code, said = xclp("join", *options)
    reason = r"localhost:1 cannot be reached: [^\n]+"
    line = rf"  no connection \({reason}\); trying again for up to 1 second\n"
    assert code == 3
    lines = re.sub(r".*(rows|caution).*\n|  setup …\n", "", said)
    assert re.fullmatch(
        rf"{line}xclp: no connection to the server for 1 seconds: {reason}\n", lines
    )
    tries = [e for e in federation.events("hospital-0") if e["event"] == "no connection"]
    assert len(tries) > 1
    assert [e["seconds_left"] for e in (tries[0], tries[-1])] == [1, 0]


def test_wrong_certificates(federation, ahead, says, tmp_path):
    make_authority(tmp_path / "strangers", federation.clients, ["localhost"])
    own, other = (f'authority = "{f}/' for f in (federation.certificates, tmp_path / "strangers"))
    pins = f'server = "{fingerprint_of(federation.certificates / "server.pem")}"'
    with waiting(federation, ahead):
        dry_run = ("join", federation.file("hospital-0"), "--dry-run")
        federation.edit("hospital-0", "[limits]", f"[certificates]\n{pins}\n[limits]")
        says(0, f"; the server's must be {pins[-72:-1]}", *dry_run)
        federation.edit("hospital-0", pins[-9:], f'{"0" * 8}"')
        says(3, f"{pins[-72:-1]}, and another one is pinned", *dry_run)
        federation.edit("hospital-0", f'[certificates]\n{pins[:-9]}{"0" * 8}"\n', "")
        federation.edit("hospital-0", own, other)
        refused = f"the certificate of localhost:{federation.port} is refused: self-signed"
        says(3, [refused, "check the authority's file and the date"], *dry_run)
        federation.edit("hospital-0", str(federation.certificates), str(tmp_path / "strangers"))
        federation.edit("hospital-0", other, own)
        words = "as a rule it refuses this program's certificate, which must come from the"
        says(3, words, *dry_run)


def test_a_wrong_server(tmp_path, ahead, says):
    make_authority(tmp_path / "certs", ["hospital-0", "hospital-1"], ["example.org"])
    federation = Federation(tmp_path, clients=2, certificates=tmp_path / "certs")
    with waiting(federation, ahead):
        place = f"localhost:{federation.port}"
        words = f"whoever answers at {place} has no certificate for 'localhost'; check the a"
        says(3, words, "join", federation.file("hospital-0"), "--dry-run")


def test_a_server_of_another_version(federation, says):
    tls = load_server_file(federation.file(SERVER)).tls
    with socket.create_server(("localhost", 0)) as listener:

        def serve():
            plain, _ = listener.accept()
            with tls.wrap_socket(plain, server_side=True) as sock:
                sock.sendall(written(Ready(version=9)))
                while sock.recv(1000):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        place = f"localhost:{listener.getsockname()[1]}"
        federation.edit("hospital-0", "localhost:0", place)
        words = "the server speaks version 9 and this program version 1; install the same"
        says(3, words, "join", federation.file("hospital-0"), "--dry-run")
        thread.join()


def test_a_port_that_is_taken(federation, says):
    with socket.create_server(("localhost", 0)) as taken:
        place = f"localhost:{taken.getsockname()[1]}"
        words = f"cannot listen on {place}: it is in use; choose another port"
        says(3, words, "serve", federation.file(SERVER), "--listen", place)


def test_logs_need_a_key(federation, monkeypatch, says, tmp_path):
    serve, state = ("serve", federation.file(SERVER)), tmp_path / "state"
    monkeypatch.delenv("XCLP_LOG_KEY", raising=False)
    says(2, "needs a key that it is encrypted under", *serve, "--state", state)
    monkeypatch.setenv("XCLP_LOG_KEY", "short")
    says(2, "XCLP_LOG_KEY: the key of a log is 64 hex digits or", *serve, "--state", state)
    says(
        2,
        "--key-file is the key of what --state, --keep or --remember names",
        *serve,
        "--key-file",
        state,
    )
    says(2, "--epoch is of the log that --state names", *serve, "--epoch", state)
    with_key = (*serve, "--state", state, "--key-file")
    says(2, "cannot be read", *with_key, tmp_path / "none")
    state.write_bytes(b"of something else entirely")
    says(2, "is not a log of xclp", *with_key, tmp_path / "log.key")


@pytest.mark.parametrize("of", ["key", "identity", "log.key"])
def test_secrets_that_others_may_read_are_refused_unless_they_are_named(
    tmp_path, certificates, says, monkeypatch, of
):
    own = tmp_path / "certs"
    shutil.copytree(certificates, own)
    limits = {"grace": 0.1}
    federation = Federation(tmp_path, clients=2, certificates=own, identities=True, limits=limits)
    file, client = own / f"hospital-0.{of}", federation.file("hospital-0")
    file = federation.key_file if of == "log.key" else file
    join = ("join", client, "--state", tmp_path / "a.log", "--key-file", federation.key_file)
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        says(2, f"{file} holds a secret, and others may read or write it: chmod 600", *join)
    if of != "log.key":
        monkeypatch.chdir(tmp_path)
        federation.edit("hospital-0", f"{own}/", "certs/")
        says(2, f'mounted_secrets = ["{file}"]', "check", client.relative_to(tmp_path))
    federation.edit("hospital-0", "[parameters]", f'mounted_secrets = ["{file}"]\n[parameters]')
    says(0, "nothing wrong", "check", client)
    says(3, "no connection to the server", *join)


def test_a_log_that_cannot_be_written(federation, says, tmp_path):
    words = "cannot be written: No such file"
    says(2, words, "serve", federation.file(SERVER), "--log", tmp_path / "no" / "x")


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_results_on_a_full_disk(federation, monkeypatch):
    loaded = load_client_file(federation.file("hospital-0"))
    table, data = loaded.load()
    monkeypatch.setattr("xclp_lp.files.results.write_table", full)
    with pytest.raises(StorageError, match=r"results cannot be written to .*No space left"):
        loaded.write(table, data, Prediction.none(8, 3), Cost())
    assert not loaded.output.exists()


def test_results_that_the_disk_did_not_take_are_written_by_another_start(
    federation, monkeypatch, xclp, tmp_path
):
    """With its log, and not with an older one; the server has ended meanwhile."""
    thread, failed = start(federation)
    federation.start("hospital-1")
    options = ("--state", federation.state("hospital-0"), "--key-file", federation.key_file)
    options = (federation.file("hospital-0"), *options, "--epoch", tmp_path / "epoch")
    with monkeypatch.context() as disk:
        disk.setattr("xclp_lp.files.results.write_table", full)
        code, said = xclp("join", *options)
    assert code == 2
    assert re.search(
        r"xclp: results cannot be written to .*: No space left on device; nor elsewhere\n", said
    )
    assert federation.labels("hospital-0") is None
    assert federation.exit_code("hospital-1") == 0
    thread.join()
    assert not failed
    federation.edit("hospital-0", "grace = 60.0", "grace = 1.0")
    log, epoch = federation.state("hospital-0"), tmp_path / "epoch"
    newest = log.read_bytes()
    log.write_bytes(newest[: len(newest) // 2])
    code, said = xclp("join", *options)
    assert code == 2
    assert "was rolled back: it has" in said
    log.write_bytes(newest)
    assert {file.name for file in tmp_path.glob("*epoch")} == {"epoch"}
    code, said = xclp("join", *options)
    assert code == 0, said
    both = federation.clients
    assert {c: federation.labels(c) for c in both} == federation.labels_of(both, both)
    assert not log.exists()
    assert not epoch.exists()


def test_labels_are_randomised_once_where_a_file_keeps_them(federation, monkeypatch, xclp, says):
    """The role, which is none here, gets what was drawn first."""
    entered = []

    async def role(io, data, *others):
        entered.append(data.class_ids.tolist())
        raise ProtocolError("enough")

    monkeypatch.setattr("xclp_lp.cli.network.client_role", role)
    federation.edit("hospital-0", "grace = 60.0", "grace = 0.1")
    file, join = federation.folder / "labels", ("join", federation.file("hospital-0"))
    options = ("--remember", file, "--key-file", federation.key_file)
    says(2, f"{file} is for labels that are randomised, and these are not", *join, *options)
    says(2, "--remember is of labels, and with --predict", *join, *options, "--predict")
    federation.edit("hospital-0", "[parameters]", "[parameters]\nprivacy = {epsilon = 1e-6}")
    for before, now in ((0, 2), (2, 0), (2, 0)):
        said = f"{file}: {before} labels randomised before, {now} now"
        says(1, (said, "enough"), *join, *options)
    assert entered[0] == entered[1] == entered[2]
    said = "randomised anew in every session, and each spends epsilon = 1e-06; --remember"
    says(1, said, *join)


def small_files():
    """Let this process write no file of more than 4 kB."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))


def test_a_log_that_the_disk_does_not_take(tmp_path, certificates):
    """What cannot be in the log does not leave, and the others hear of it."""
    federation = Federation(tmp_path, clients=2, certificates=certificates, n_bits=1024)
    federation.serve()
    federation.start("hospital-1")
    federation.wait_for(SERVER, "connected", client="hospital-1")  # or nobody might be there for it
    federation.start("hospital-0", inside=[small_files])
    assert federation.finish() == {SERVER: 1, "hospital-0": 2, "hospital-1": 1}
    said = federation.output("hospital-0")
    state = federation.state("hospital-0")
    assert f"xclp: the log {state} cannot be written: File too large\n" in said
    assert "Traceback" not in said


def test_a_server_that_is_interrupted_while_clients_are_connected(tmp_path, certificates):
    federation = Federation(tmp_path, clients=2, certificates=certificates, n_bits=1024)
    federation.serve()
    federation.start("hospital-0")
    federation.wait_for(SERVER, "connected", client="hospital-0")
    os.kill(federation.processes[SERVER].pid, signal.SIGINT)
    assert federation.exit_code(SERVER) == 130
    assert f"xclp: interrupted; --state {federation.state(SERVER)} goes on" in federation.output(
        SERVER
    )
    assert "Traceback" not in federation.output(SERVER)
    federation.processes["hospital-0"].kill()


def test_events_that_the_disk_does_not_take(federation, xclp):
    federation.edit("hospital-0", "localhost:0", "localhost:1")
    federation.edit("hospital-0", "grace = 60.0", "grace = 1.0")
    options = (federation.file("hospital-0"), "--log", "/dev/full")
    code, said = xclp("join", *options)
    assert code == 3
    assert said.count("--log /dev/full cannot be written any more: No space left on device") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("party", "old", "new", "words"),
    [
        (SERVER, "[server]", "[serve]", "unknown field 'serve'.*did you mean 'server'"),
        (SERVER, "localhost:0", "localhost", "listen must be HOST:PORT, got 'localhost'"),
        (SERVER, "listen =", "# listen =", r"\[server\]: listen is missing"),
        (SERVER, "[tls]", '[certificates]\na = "x"\n[tls]', "'a' is none of hospital-0, hosp"),
        (
            SERVER,
            "[tls]",
            '[certificates]\nhospital-0 = "sha1:00"\n[tls]',
            "hospital-0: a certificate is pinned by sha256: and 64",
        ),
        (
            SERVER,
            "[tls]",
            f'[certificates]\nserver = "sha256:{"0" * 64}"\n[tls]',
            "server.pem is sha256:.* another one is pinned for server",
        ),
        (SERVER, "k = 2", "k = 0", r"\[parameters\]: k must be at least 1, got 0"),
        (SERVER, "k = 2", "groups = 2", "unknown field 'groups'"),
        (SERVER, "classes =", "# classes =", "classes is missing; nobody sees the labels of all"),
        (SERVER, "grace = 60.0", "grace = 0", r"\[limits\]: grace must be a positive number"),
        (SERVER, "server.pem", "hospital-0.pem", "server.key is not the key of"),
        (SERVER, "server.key", "no.key", "no.key cannot be read: No such file"),
        (SERVER, "server.pem", "server.key", "must be a certificate and its private key in PEM"),
        (SERVER, "/authority.pem", "/server.key", "holds no certificate in PEM"),
        ("hospital-0", 'name = "hospital-0"', 'name = "hospital-9"', "none of the clients hosp"),
        ("hospital-0", "features =", "feature =", "unknown field 'feature'.*did you mean 'feat"),
        ("hospital-0", 'features = "', '# "', r"\[client\]: features is missing"),
        ("hospital-0", "[client]", "[server]\n[client]", "is the server's file; start it with"),
        (SERVER, "[server]", "[client]\n[server]", "is a client's file; start it with xclp join"),
        (SERVER, 'clients = ["hospital-0", ', "clients = [", "2 or more|at least"),
        (SERVER, "clients = [", "clients = 5 # [", "clients must be a list of all clients' names"),
    ],
)
def test_mistakes_in_files(federation, party, old, new, words):
    federation.edit(party, old, new)
    read = load_server_file if party == SERVER else load_client_file
    with pytest.raises(ParameterError, match=f"(?s){words}"):
        read(federation.file(party))


def test_labels_and_columns_of_a_client(federation):
    (federation.folder / "hospital-0-labels.csv").write_text("bird\npenguin\n" + "\n" * 7)
    with pytest.raises(DataError, match=r"row 0 \(counted from 0\): label 'penguin' is"):
        load_client_file(federation.file("hospital-0")).load()
    (federation.folder / "hospital-0-labels.csv").write_text("bird\n" + "\n" * 8)
    _, data = load_client_file(federation.file("hospital-0")).load()
    assert data.class_ids.tolist() == [-1] * 8
    federation.edit("hospital-0", "[parameters]", 'columns = ["x", "y"]\n[parameters]')
    with pytest.raises(DataError, match="has 5 features, and 2 columns are agreed on"):
        load_client_file(federation.file("hospital-0")).load()


def test_columns_are_matched_by_name(federation):
    for name, header in (("hospital-0", "y,x,bird"), ("hospital-1", "x,y,bird")):
        (federation.folder / f"{name}.csv").write_text(f"{header}\n1,2,barn owl\n3,4,\n")
        federation.edit(name, f'features = "{name}.npy"', f'features = "{name}.csv"')
        federation.edit(name, f'labels = "{name}-labels.csv"\n', "")
        federation.edit(name, "[parameters]", 'columns = ["x", "y"]\n[parameters]')
    own = [load_client_file(federation.file(c)).load()[1].vectors for c in federation.clients]
    assert own[0].tolist() == [[2, 1], [4, 3]]
    assert own[1].tolist() == [[1, 2], [3, 4]]


def test_addresses():
    assert parse_address("[::1]:70", "x") == ("::1", 70)
    assert parse_address("h.org:7878", "x") == ("h.org", 7878)
    for text, words in {
        **dict.fromkeys(("h.org", ":7", "h:port", "h:-1"), "x must be HOST:PORT"),
        **dict.fromkeys(("h:70000", f"h:{'9' * 5000}"), "x must have a port in 1 … 65535"),
    }.items():
        with pytest.raises(ParameterError, match=words):
            parse_address(text, "x")


def test_events_are_json_without_secrets(federation, tmp_path):
    from logging import makeLogRecord

    from xclp_lp.cli.party import JsonFormatter

    record = makeLogRecord({"msg": "dropout", "levelname": "WARNING", "client": "a"})
    line = json.loads(JsonFormatter().format(record))
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "warning", "event": "dropout", "client": "a"}
