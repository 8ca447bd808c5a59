"""HTTP/2 frames by hand (RFC 9113), for requests that no client library would send."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
CANCEL = (8).to_bytes(4, "big")
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Build one frame."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """Build a header field that is in no table, without Huffman coding (RFC 7541 §6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_headers(path: str) -> bytes:
    """Build the header block of a gRPC call."""
    return (
        b"\x83\x86"  # POST, http
        + b"\x04" + bytes([len(path)]) + path.encode()  # :path, by its name in the static table
        + b"\x01\x01a"  # :authority
        + _literal(b"content-type", b"application/grpc")
        + _literal(b"te", b"trailers")
        + _literal(b"x-mq-client-id", b"flood")
    )  # fmt: skip


def message(content: bytes) -> bytes:
    """Build a gRPC message, as it is in DATA frames."""
    return b"\0" + struct.pack(">I", len(content)) + content


class Http2Connection:
    """One connection; a thread reads the peer's frames, answers pings, and counts frames by kind."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.counts: Counter[int] = Counter()
        self.goaway = b""
        self._changed = threading.Condition()
        self.closed = False
        self.socket.sendall(PREFACE + frame(SETTINGS))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        buffer = b""
        try:
            while piece := self.socket.recv(1 << 16):
                buffer += piece
                while len(buffer) >= 9 and len(buffer) >= 9 + int.from_bytes(buffer[:3], "big"):
                    stop = 9 + int.from_bytes(buffer[:3], "big")
                    self._take(buffer[3], buffer[4], buffer[9:stop])
                    buffer = buffer[stop:]
        except OSError:
            pass
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _take(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        with self._changed:
            self.counts[kind] += 1
            if kind == GOAWAY:
                self.goaway = payload
            self._changed.notify_all()

    def ping(self, timeout_s: float = 30) -> None:
        """Wait until the peer has read everything that was sent before."""
        before = self.counts[PING]
        self.socket.sendall(frame(PING, 0, 0, b"12345678"))
        with self._changed:
            done = self._changed.wait_for(
                lambda: self.closed or self.counts[PING] > before, timeout_s
            )
            assert done, "a ping was not answered"

    def until_closed(self) -> None:
        """Wait until the peer has hung up."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.closed, 30), "still open"

    def reset_rapidly(self, streams: int, path: str, content: bytes | None) -> None:
        """Open this many streams one after the other, and cancel each at once."""
        headers = call_headers(path)
        for first in range(1, 2 * streams, 100):
            piece = bytearray()
            for stream in range(first, min(first + 100, 2 * streams), 2):
                piece += frame(HEADERS, END_HEADERS, stream, headers)
                if content is not None:
                    piece += frame(DATA, END_STREAM, stream, message(content))
                piece += frame(RST_STREAM, 0, stream, CANCEL)
            try:
                self.socket.sendall(piece)
            except OSError:
                return  # the peer has closed the connection

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the reader
        self._reader.join(10)
        self.socket.close()
