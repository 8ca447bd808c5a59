"""What a connection with TLS takes of memory, and how long its handshake may last."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from itertools import accumulate
from typing import Any, cast

import pytest
from tests.unit.test_tls import Nobody, trusting

from horolog.limits import (
    KIB,
    MIB,
    TLS_HANDSHAKE_BYTES,
    TLS_HANDSHAKE_MAX,
    TLS_RECORD_BYTES,
    UNFINISHED_FRAME_MS,
)
from horolog.protocol.http2.events import Limits
from horolog.server.door import Door
from horolog.server.http2_link import Http2Link
from horolog.server.intake import Intake
from horolog.server.link import Link, Stopped
from horolog.server.tls import Certificate, Tls

CERTIFICATE = Certificate(None, None, "127.0.0.1")
RECORD = 17 * KIB  # a full record, with its header and checksum


class Client:
    """The client's end of a connection, without a socket."""

    def __init__(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting().wrap_bio(self._incoming, self._outgoing)
        self.hello = self.answer(b"")

    def answer(self, records: bytes) -> bytes:
        """What it says to these records of the server's handshake."""
        self._incoming.write(records)
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    def encrypt(self, plain: bytes) -> bytes:
        self.tls.write(plain)
        return self._outgoing.read()

    def decrypt(self, records: bytes) -> bytes:
        self._incoming.write(records)
        found = []
        try:
            while True:
                found.append(self.tls.read(RECORD))
        except ssl.SSLWantReadError:
            return b"".join(found)


class Transport:
    """Takes what a link writes; ends only once."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.ended = ""

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "10.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def write(self, raw: bytes) -> None:
        self.written.append(raw)

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or "aborted"


def make_door(unfinished: int = MIB) -> Door:
    return Door(
        lambda door: Http2Link(door, Nobody(), Limits()),
        cast(Any, None),
        intake=Intake(unfinished=unfinished),
        log=logging.getLogger("horolog.grpc"),
        certificate=CERTIFICATE,
    )


def connect(door: Door) -> tuple[Link, Transport]:
    link, transport = Http2Link(door, Nobody(), Limits()), Transport()
    link.connection_made(cast(Any, transport))
    return link, transport


class Watched:
    """A memory file, and the most bytes that it has held."""

    def __init__(self, file: ssl.MemoryBIO) -> None:
        self._file = file
        self.most = 0

    @property
    def pending(self) -> int:
        return self._file.pending

    def write(self, raw: Any) -> int:
        written = self._file.write(raw)
        self.most = max(self.most, self.pending)
        return written

    def read(self) -> bytes:
        self.most = max(self.most, self.pending)
        return self._file.read()


def test_large_messages_leave_no_large_buffers() -> None:
    """A memory file of OpenSSL keeps what it once needed as long as the connection lasts."""
    client, server = Client(), Tls(CERTIFICATE.context)
    watched = Watched(server._incoming), Watched(server._outgoing)
    server._incoming, server._outgoing = cast(Any, watched)
    body = bytes(range(256)) * (4 * MIB // 256)
    server.encrypt(body[:MIB])  # before the handshake
    assert server.decrypt(client.hello) == b""
    assert server.decrypt(client.answer(server.to_write())) == b""
    assert client.decrypt(server.to_write()) == body[:MIB]
    server.encrypt(body)
    assert client.decrypt(server.to_write()) == body
    assert server.decrypt(client.encrypt(body)) == body
    assert all(16 * KIB <= each.most <= RECORD for each in watched)


def test_a_handshake_counts_as_unfinished_until_it_is_done() -> None:
    door = make_door()
    link, transport = connect(door)
    client = Client()
    link.data_received(client.hello[:100])
    assert door.intake._unfinished == TLS_HANDSHAKE_BYTES
    link.data_received(client.hello[100:])
    assert door.intake._unfinished == TLS_HANDSHAKE_BYTES
    link.data_received(client.answer(transport.written.pop()))
    assert door.intake._unfinished == 0
    assert not transport.ended
    link.connection_lost(None)
    door.intake.check_invariants()


def test_handshakes_are_bounded_and_who_leaves_gives_room() -> None:
    door = make_door(2 * TLS_HANDSHAKE_BYTES)
    links = [connect(door) for _ in range(3)]
    for link, _ in links:
        link.data_received(b"\x16")
    assert [transport.ended for _, transport in links] == ["", "", "closed"]
    for link, _ in links[1:]:
        link.connection_lost(None)
    door.intake.check_invariants()
    assert door.intake._unfinished == TLS_HANDSHAKE_BYTES


def test_a_handshake_that_is_too_long_ends() -> None:
    door = make_door()
    link, transport = connect(door)
    record = b"\x16\x03\x01" + (KIB).to_bytes(2, "big")
    link.data_received(record + b"\x01\x01\x00\x00\x03\x03" + bytes(KIB - 6))  # of 64 KiB
    for _ in range(TLS_HANDSHAKE_MAX // KIB - 2):
        link.data_received(record + bytes(KIB))
    assert not transport.ended
    link.data_received(record + bytes(KIB))
    assert transport.ended == "closed"


@pytest.mark.parametrize("known", [1, 100], ids=["a byte", "a part"])
def test_a_handshake_that_trickles_ends_in_time(known: int) -> None:
    async def story() -> None:
        door = make_door()
        door.loop = asyncio.get_running_loop()
        (slow, aborted), (done, stays) = connect(door), connect(door)
        slow.data_received(Client().hello[:known])
        client = Client()
        done.data_received(client.hello)
        done.data_received(client.answer(stays.written.pop()))
        for link in (slow, done):
            link._begun_ms -= UNFINISHED_FRAME_MS
        slow.stop_reading(Stopped.BY_DOOR)
        door._check_links()
        assert not aborted.ended, "the broker does not read what it sends"
        slow._stopped = Stopped(0)
        door._check_links()
        door._timer.cancel()
        assert (aborted.ended, stays.ended) == ("aborted", "")

    asyncio.run(story())


def connect_client(door: Door) -> tuple[Link, Transport, Client]:
    """A connection whose handshake is done."""
    link, transport = connect(door)
    client = Client()
    link.data_received(client.hello)
    link.data_received(client.answer(transport.written.pop()))
    return link, transport, client


@pytest.mark.parametrize("pieces", [1, 4, 5, 6, 1_000, RECORD])
def test_a_part_of_a_record_counts_as_unfinished_until_it_is_complete(pieces: int) -> None:
    door = make_door()
    link, transport, client = connect_client(door)
    heard: list[bytes] = []
    link.receive = lambda data, _: heard.append(data)  # type: ignore[method-assign]
    plain = [bytes(size) for size in (16_384, 1, 10, 16_384)]
    encrypted = list(map(client.encrypt, plain))
    ends = set(accumulate(map(len, encrypted)))
    records = b"".join(encrypted)
    for start in range(0, len(records), pieces):
        link.data_received(records[start : start + pieces])
        is_whole = min(start + pieces, len(records)) in ends
        assert door.intake._unfinished == (0 if is_whole else TLS_RECORD_BYTES)
    assert b"".join(heard) == b"".join(plain)
    assert not transport.ended
    link.data_received(client.encrypt(b"a")[:-1])
    link.connection_lost(None)
    assert door.intake._unfinished == 0
    door.intake.check_invariants()


def test_parts_of_records_are_bounded() -> None:
    door = make_door(TLS_HANDSHAKE_BYTES)
    links = [connect_client(door) for _ in range(TLS_HANDSHAKE_BYTES // TLS_RECORD_BYTES + 1)]
    for link, _, client in links:
        link.data_received(client.encrypt(bytes(100))[:50])
    assert [transport.ended for _, transport, _ in links] == ["", "", "", "closed"]


def test_a_record_that_trickles_ends_in_time() -> None:
    async def story() -> None:
        door = make_door()
        door.loop = asyncio.get_running_loop()
        slow, stays, new = (connect_client(door) for _ in range(3))
        for link, _, _ in (slow, stays, new):
            link.receive = lambda data, _: None  # type: ignore[method-assign]
        record = slow[2].encrypt(bytes(100))
        slow[0].data_received(record[:50])
        for link, _, _ in (slow, stays, new):
            link._begun_ms -= UNFINISHED_FRAME_MS
        slow[0].data_received(record[50:60])
        new[0].data_received(new[2].encrypt(bytes(100))[:50])
        door._check_links()
        door._timer.cancel()
        assert [each[1].ended for each in (slow, stays, new)] == ["aborted", "", ""]

    asyncio.run(story())
