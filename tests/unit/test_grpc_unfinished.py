"""Requests of 5.x clients that do not come to their end: bounded in bytes, all connections together, and in time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.grpc_peer import Peer, head, run
from tests.unit.test_grpc_pongs import SEND

from horolog.limits import KIB, MIB, UNFINISHED_FRAME_MS, UNFINISHED_SMALL
from horolog.protocol.http2 import frames, hpack
from horolog.protocol.http2.faults import Code
from horolog.protocol.http2.frames import END_HEADERS, END_STREAM, Type
from horolog.protocol.http2.grpc_wire import DEADLINE_EXCEEDED, PREFIX_BYTES, framed
from horolog.server.door import Door
from horolog.server.grpc_front import GrpcFront
from horolog.server.intake import Intake
from horolog.server.loop import Engine

FRAME = 16 * KIB
LARGE = b"\0" + (100 * MIB).to_bytes(PREFIX_BYTES - 1, "big")  # what a large message begins with


def begin(peer: Peer, block: bytes | None = None) -> None:
    """Begin a send, and its message."""
    peer.stream += 2
    block = head("SendMessage") if block is None else block
    peer.say(frames.frame(Type.HEADERS, END_HEADERS, peer.stream, block))
    peer.say(frames.frame(Type.DATA, 0, peer.stream, LARGE))


def add(peer: Peer, size: int) -> None:
    """So many more bytes of it; fewer if the connection ends."""
    for _ in range(size // FRAME):
        if peer.link.calls.http.closed:
            return
        peer.say(frames.frame(Type.DATA, 0, peer.stream, bytes(FRAME)))


def is_over(peer: Peer) -> bool:
    return peer.link.calls.http.closed and peer.writes[-1][-1] is Type.GOAWAY


def gone(peer: Peer) -> None:
    peer.link.connection_lost(None)


@pytest.mark.parametrize("share", [100, 50], ids=["of all", "of an address"])
def test_unfinished_requests_of_all_connections_are_bounded(tmp_path: Path, share: int) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        room = 4 * MIB * share // 100
        door.intake = Intake(unfinished=4 * MIB, share=share)
        one, two = Peer(door, front), Peer(door, front)
        begin(one)
        begin(two)
        add(one, room - MIB)
        assert not is_over(one)
        add(two, 2 * MIB)
        assert is_over(two)
        assert not is_over(one), "who adds too much is cut off, and nobody else"
        door.intake.check_invariants()
        gone(two)
        door.intake.check_invariants()
        begin(three := Peer(door, front))
        add(three, MIB // 2)
        assert not is_over(three), "there is room again"
        for peer in (one, three):
            gone(peer)
        door.intake.check_invariants()
        assert door.intake._unfinished == 0

    run(tmp_path, story)


def test_what_ends_is_not_held(tmp_path: Path) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        door.intake = Intake(unfinished=MIB)
        peer = Peer(door, front)
        rest = framed(SEND + b"\x7a\x80\x80\x20" + bytes(512 * KIB))  # a field that nobody knows
        for count in range(1, 9):
            peer.stream += 2
            peer.say(frames.frame(Type.HEADERS, END_HEADERS, peer.stream, head("SendMessage")))
            for at in range(0, len(rest), FRAME):
                flags = END_STREAM if at + FRAME >= len(rest) else 0
                peer.say(frames.frame(Type.DATA, flags, peer.stream, rest[at : at + FRAME]))
            await peer.answers(count)
            assert door.intake._unfinished == 0
        assert not peer.link.calls.http.closed
        peer.link.calls.check_invariants()

    run(tmp_path, story)


def test_fields_of_requests_that_have_not_ended_count(tmp_path: Path) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        door.intake = Intake(unfinished=MIB)
        peer = Peer(door, front)
        for number in range(200):
            if is_over(peer):
                break
            more = hpack.encode([(b"authorization", b"%d" % number * 4 * KIB)])
            peer.stream += 2
            peer.say(frames.frame(Type.HEADERS, END_HEADERS, peer.stream, head("Send") + more))
        assert is_over(peer)
        assert MIB < door.intake._unfinished < MIB + 32 * KIB
        peer.link.calls.check_invariants()

    run(tmp_path, story)


def test_frames_and_header_blocks_in_part_count(tmp_path: Path) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        half = FRAME.to_bytes(3, "big") + b"\0\0" + (1).to_bytes(4, "big") + bytes(FRAME // 2 + KIB)
        (peer := Peer(door, front)).say(half)
        assert door.intake._unfinished == len(half) > UNFINISHED_SMALL
        block = frames.frame(Type.HEADERS, 0, 1, bytes(UNFINISHED_SMALL + 1))
        (other := Peer(door, front)).say(block)
        assert door.intake._unfinished == len(half) + UNFINISHED_SMALL + 1
        gone(peer)
        gone(other)
        assert door.intake._unfinished == 0

    run(tmp_path, story)


def test_a_request_that_does_not_end_in_time_is_refused_alone(tmp_path: Path) -> None:
    """Other calls of its connection go on; a stream of messages may be silent, but not within one."""

    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        peer = Peer(door, front)
        link = peer.link
        peer.stream += 2
        silent = peer.stream
        peer.say(frames.frame(Type.HEADERS, END_HEADERS, silent, head("Telemetry")))
        begin(peer)
        late = peer.stream
        add(peer, 64 * KIB)
        peer.stream += 2
        within = peer.stream
        peer.say(frames.frame(Type.HEADERS, END_HEADERS, within, head("Telemetry")))
        peer.say(frames.frame(Type.DATA, 0, within, LARGE))
        began = [each.since_ms for each in link.calls._requests.values() if each.since_ms]
        first_ms, last_ms = min(began), max(began)

        def look(now_ms: int) -> None:
            link.last_received_ms = now_ms
            link.check_timeouts(now_ms, 1 << 40, 1 << 40)

        look(first_ms + UNFINISHED_FRAME_MS)
        assert link.calls.overdue(first_ms) == []
        assert link.calls.http.is_open(late)
        assert link.calls.http.is_open(within)
        look(last_ms + UNFINISHED_FRAME_MS + 1)
        while not {late, within} <= peer.heads.keys():
            await peer.change()
        refused = peer.heads[late]
        assert refused[b"grpc-status"] == b"%d" % DEADLINE_EXCEEDED
        assert b"within 60000 ms" in refused[b"grpc-message"]
        assert peer.heads[within][b"grpc-status"] == b"%d" % DEADLINE_EXCEEDED
        assert not link.calls.http.is_open(within)
        assert link.calls.http.is_open(silent)
        assert door.intake._unfinished == 0
        link.calls.check_invariants()
        peer.say(peer.call(head("SendMessage"), SEND))
        while peer.stream not in peer.bodies:
            await peer.change()
        assert link.calls.http.fault is None

    run(tmp_path, story)


def test_who_is_cut_off_hears_why(tmp_path: Path) -> None:
    async def story(_: Engine, door: Door, front: GrpcFront) -> None:
        door.intake = Intake(unfinished=MIB)
        peer = Peer(door, front)
        said: list[bytes] = []
        write = peer.write
        peer.write = lambda raw: (said.append(raw), write(raw))[1]  # type: ignore[method-assign]
        begin(peer)
        add(peer, 2 * MIB)
        assert is_over(peer)
        code = Code.ENHANCE_YOUR_CALM.to_bytes(4, "big")
        assert said[-1].endswith(code + b"too many bytes of unfinished requests are held already")

    run(tmp_path, story)
