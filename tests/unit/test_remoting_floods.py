"""The remoting doors under clients that mean no good, or are slow: bounded memory, and the others are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_fuzz import requests
from tests.support.remoting_requests import pulling, sending

from horolog.clock import SimulatedClock
from horolog.errors import ErrorCode, HorologError
from horolog.limits import BYTES_UNDER_WAY_MAX, LINK_BYTES_UNDER_WAY_MAX, MIB, UNREAD_BYTES_MAX
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.frame_reader import Reader
from horolog.protocol.remoting.frame_writer import encode
from horolog.server.intake import Intake
from horolog.server.link import Stopped

CHUNK = 64


def links(door: RemotingDoor) -> list[Any]:
    """Connections of the broker's door."""
    return list(door.front.doors["broker"]._links)


def fuzz(door: RemotingDoor, seed: int, count: int) -> None:
    """Send so many frames; a client whose connection was ended, or whose frame says that it is longer, comes again."""
    client = door.client()
    pending: list[bytes] = []
    for number, raw in enumerate(requests(seed, count), 1):
        pending.append(raw)
        if len(pending) < CHUNK and number < count:
            continue
        try:
            client.socket.sendall(b"".join(pending))
            client.call(Code.GET_KV_CONFIG, timeout_s=1.0)
        except (ConnectionError, TimeoutError):
            client.close()
            client = door.client()
        client._answers.clear()
        client.pushed.clear()
        pending.clear()
    client.close()


def test_changed_frames_leave_the_broker_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every request is answered by the rules, and none of them meets a mistake of ours."""
    with remoting_door(tmp_path) as door, door.client() as other, caplog.at_level(logging.ERROR):
        door.create("t", queues=2)
        fuzz(door, 1, 10_000)
        other.done(Code.GET_BROKER_CLUSTER_INFO)
        for link in door.within(lambda: links(door)):
            link.check_invariants()
        door.within(door.front.node.registry.check_invariants)
        door.within(door.front.node.locks.check_invariants)
    assert [record.message for record in caplog.records if "unexpected" in record.message] == []


@pytest.mark.parametrize(
    ("seed", "count"),
    [
        pytest.param(2, 100_000, marks=pytest.mark.slow),
        *(pytest.param(10 + i, 100_000, marks=pytest.mark.full) for i in range(10)),
    ],
)
def test_a_million_changed_frames_leave_the_broker_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int, count: int
) -> None:
    """In ten parts: a test has a quarter of an hour, and a machine may be busy."""
    with remoting_door(tmp_path) as door, caplog.at_level(logging.ERROR):
        door.create("t", queues=2)
        fuzz(door, seed, count)
        with door.client() as other:
            other.done(Code.GET_BROKER_CLUSTER_INFO)
    assert [record.message for record in caplog.records if "unexpected" in record.message] == []


def test_a_frame_in_single_bytes_costs_what_it_has() -> None:
    """Each byte is looked at once: a reader that joined them again for every chunk would need hours."""
    reader = Reader()
    raw = encode(Frame(Code.SEND_MESSAGE_V2, body=b"x" * MIB))
    found = []
    for at in range(len(raw)):
        found += reader.receive(raw[at : at + 1])
        assert reader.held <= at + 1
    (frame,) = found
    assert len(frame.body) == MIB
    assert reader.held == 0
    reader.check_invariants()


def test_unfinished_frames_of_all_together_are_bounded(tmp_path: Path) -> None:
    with remoting_door(tmp_path, intake=Intake(unfinished=MIB)) as door, door.client() as other:
        begun = (4 * MIB).to_bytes(4, "big") + bytes(4) + b"x" * (600 * 1024)
        with door.client() as one, door.client() as two:
            one.socket.sendall(begun)
            while not door.within(lambda: door.front._intake._unfinished):
                other.call(Code.GET_BROKER_CLUSTER_INFO)
            with suppress(ConnectionError):
                two.socket.sendall(begun)
            assert two.is_closed()
            other.done(Code.GET_BROKER_CLUSTER_INFO)
        while door.within(lambda: door.front._intake._unfinished):
            other.call(Code.GET_BROKER_CLUSTER_INFO)


def test_a_client_that_reads_nothing_is_not_given_more(tmp_path: Path) -> None:
    """Its pulls are refused once too many answers wait for it; everybody else is served."""
    with remoting_door(tmp_path) as door, door.client() as client, door.client() as other:
        door.create("orders")
        for _ in range(4):
            client.done(Code.SEND_MESSAGE_V2, sending(), b"x" * MIB)
        one = encode(client.request(Code.PULL_MESSAGE, pulling(), opaque=7))
        client.socket.sendall(one * 100)
        other.done(Code.GET_BROKER_CLUSTER_INFO)
        for link in door.within(lambda: links(door)):
            assert door.within(lambda link=link: link.unread_bytes) <= UNREAD_BYTES_MAX + 2 * MIB
        got = {client.answer(7).code}
        for _ in range(99):
            with suppress(TimeoutError):
                got.add(client.answer(7, 0.01).code)
        assert got <= {Status.SUCCESS, Status.SYSTEM_BUSY}


_REFUSAL = HorologError(ErrorCode.DISK_FULL, "disk: full")


class StalledEngine:
    """Takes commands, and answers them when it is told to."""

    def __init__(self) -> None:
        self.thens: list[Callable[[object], None]] = []
        self.clock = SimulatedClock(1_000)

    def before_turn(self, ask: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(ask)

    def ask(self, command: object, then: Callable[[object], None]) -> None:
        self.thens.append(then)


def test_a_stalled_disk_stops_reading_from_who_sends_and_then_from_everybody(
    tmp_path: Path,
) -> None:
    with remoting_door(tmp_path) as door, door.client() as other, ExitStack() as ends:
        other.done(Code.GET_BROKER_CLUSTER_INFO)
        clients = [ends.enter_context(door.client()) for _ in range(5)]
        engine, stalled = door.engine, StalledEngine()
        door.front.node.engine = stalled  # type: ignore[assignment]
        one = encode(other.request(Code.SEND_MESSAGE_V2, sending(), b"x" * (4 * MIB - 1)))
        intake = door.front._intake
        for client in clients:
            reached = door.within(lambda: intake._under_way)
            assert reached < BYTES_UNDER_WAY_MAX
            other.done(Code.GET_BROKER_CLUSTER_INFO)
            client.socket.settimeout(0.2)
            sent = 0
            with suppress(TimeoutError):
                while sent < 4 * BYTES_UNDER_WAY_MAX:
                    sent += client.socket.send(memoryview(one)[sent % len(one) :])
            gone_on = door.within(lambda: intake._under_way) - reached
            assert gone_on <= LINK_BYTES_UNDER_WAY_MAX + 8 * MIB
            if door.within(lambda: intake._stopped):
                break
        assert door.within(lambda: intake._under_way) <= BYTES_UNDER_WAY_MAX + 8 * MIB
        stops = door.within(lambda: [link._stopped for link in links(door)])
        assert all(stop & Stopped.BY_DOOR for stop in stops)
        door.front.node.engine = engine

        def refuse_all() -> None:
            thens, stalled.thens = stalled.thens, []
            for then in thens:
                then(_REFUSAL)

        door.within(refuse_all)
        other.done(Code.GET_BROKER_CLUSTER_INFO)
