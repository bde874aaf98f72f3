"""Packets of the loopback device, as tcpdump records them, and what can be read in them."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from pathlib import Path
from typing import Any

from xclp_crypto import wire
from xclp_crypto.primitives.sealed_box import OVERHEAD, SealedBox
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.tls import tls_context
from xclp_lp.files import credentials

ALL_PROTOCOLS, IPV4, IPV6, TCP = 3, 0x0800, 0x86DD, 6
SO_RCVBUFFORCE = 33
FIN, SYN = 1, 2
CHANGE_CIPHER, HANDSHAKE, APPLICATION_DATA = 20, 22, 23
"""Kinds of TLS records (RFC 8446, section 5.1)."""

MARKER_BYTES = 16


class Capture:
    """Captures the TCP connections of one port, from now until `stop`.

    Raises:
        PermissionError: root may capture, or who has CAP_NET_RAW.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PROTOCOLS)
        )
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self._socket.bind(("lo", ALL_PROTOCOLS))
        self._socket.settimeout(0.1)
        self._segments: dict[tuple[int, int], list[tuple[int, int, bytes]]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                packet, (_, protocol, kind, *_) = self._socket.recvfrom(1 << 17)
            except TimeoutError:
                if self._stopping.is_set():
                    return
                continue
            if kind == socket.PACKET_HOST:  # on this device each packet also passes as outgoing
                self._take(protocol, packet)

    def _take(self, protocol: int, packet: bytes) -> None:
        if protocol == IPV4 and packet[9] == TCP:
            start, end = 4 * (packet[0] & 15), int.from_bytes(packet[2:4], "big")
        elif protocol == IPV6 and packet[6] == TCP:
            start, end = 40, 40 + int.from_bytes(packet[4:6], "big")
        else:
            return
        source, target, number, _, words, flags = struct.unpack_from(">HHIIBB", packet, start)
        if self._port in (source, target):
            data = packet[start + 4 * (words >> 4) : end]
            self._segments.setdefault((source, target), []).append((number, flags, data))

    def stop(self) -> list[bytes]:
        """Return what was sent, for both directions of each connection; fails if packets lack."""
        self._stopping.set()
        self._thread.join()
        self._socket.close()
        return [self._joined(segments) for segments in self._segments.values()]

    @staticmethod
    def _joined(segments: list[tuple[int, int, bytes]]) -> bytes:
        begun = [number for number, flags, _ in segments if flags & SYN]
        assert begun or not any(data for *_, data in segments), "the beginning was not captured"
        stream = bytearray()
        placed = [
            ((number - begun[0] - 1) % 2**32, data)
            for number, flags, data in segments
            if data or flags & FIN
        ]
        for offset, data in sorted(placed):
            assert offset <= len(stream), "packets were not captured"
            stream += data[len(stream) - offset :]
        return bytes(stream)


def tls_records(stream: bytes) -> list[tuple[int, bytes]]:
    """Return kind and content of each TLS record; fails where something else is between them."""
    records = []
    at = 0
    while at + 5 <= len(stream):
        kind, major, _, length = struct.unpack_from(">BBBH", stream, at)
        known = CHANGE_CIPHER <= kind <= APPLICATION_DATA
        assert (major, known) == (3, True), f"no TLS record: {stream[at : at + 40]!r}"
        records.append((kind, stream[at + 5 : at + 5 + length]))
        at += 5 + length
    return records


def markers_of(data: bytes) -> list[bytes]:
    """Return pieces of `data` that nothing else has by chance; none of what is short or uniform."""
    places = {0, (len(data) - MARKER_BYTES) // 2, len(data) - MARKER_BYTES}
    pieces = [data[at : at + MARKER_BYTES] for at in places if at >= 0]
    return [piece for piece in pieces if len(set(piece)) >= MARKER_BYTES // 2]


def record(file: Path, *, clear: bool) -> None:
    """Let this process write down what it sends, before and after sealing.

    Args:
        file: gets lines ``type or receiver, kind of line, content``.
        clear: whether nothing is encrypted: TLS has no cipher, and messages are not sealed.
    """
    seal, forward = SealedBox.seal, DurableRole._forward

    def write(*fields: str) -> None:
        with file.open("a") as lines:
            lines.write(" ".join(fields) + "\n")

    def sealing(box: SealedBox, plaintext: bytes, associated: bytes = b"") -> bytes:
        write("inside", wire.tag_name(int.from_bytes(associated, "big")), bytes(plaintext).hex())
        return bytes(plaintext) + bytes(OVERHEAD) if clear else seal(box, plaintext, associated)

    def forwarding(role: DurableRole, sender: str, receiver: str, payload: bytes, n: int) -> None:
        write("sent", receiver, payload.hex())
        forward(role, sender, receiver, payload, n)

    SealedBox.seal = sealing  # type: ignore[method-assign]
    DurableRole._forward = forwarding  # type: ignore[method-assign]
    if clear:
        SealedBox.open = lambda box, ciphertext, _=b"": ciphertext[:-OVERHEAD]  # type: ignore[method-assign, assignment, misc]
        credentials.tls_context = _without_cipher


def _without_cipher(*files: Path, server: bool, **options: Any) -> ssl.SSLContext:
    context = tls_context(*files, server=server, **options)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("eNULL:@SECLEVEL=0")
    return context


def recorded(file: Path) -> list[tuple[str, str, bytes]]:
    """Return the lines of `record`."""
    lines: list[Any] = [line.split(" ") for line in file.read_text().splitlines()]
    return [(kind, what, bytes.fromhex(data)) for kind, what, data in lines]
