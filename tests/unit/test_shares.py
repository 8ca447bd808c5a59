"""What one address may take of what all share: connections, bytes under way and unfinished, waiting polls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from tests.support.grpc_door import HEADERS, Door, with_door
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import popping, pulling, sending

from horolog.limits import MIB, PARKED_POLLS_MAX
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.remoting.codes import Code, Status
from horolog.server.intake import Intake
from horolog.server.shares import Share, key_of

HERE, THERE = "127.0.0.1", "127.0.0.2"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_who_an_address_counts_for(address: str, key: str) -> None:
    assert key_of(address) == key


@pytest.fixture
def intake() -> Intake:
    return Intake(8, unfinished=MIB, share=50)


@pytest.fixture
def door(tmp_path: Path, intake: Intake) -> Iterator[RemotingDoor]:
    with remoting_door(tmp_path, intake=intake) as opened:
        opened.create("orders", queues=1)
        yield opened
        opened.within(intake.check_invariants)


def client(door: RemotingDoor, source: str = HERE) -> RemotingClient:
    return RemotingClient(door.broker, source=source)


def share(door: RemotingDoor, intake: Intake, key: str = HERE) -> Share:
    return door.within(lambda: intake._shares.get(key) or Share(key, intake._bounds))


def serves(client: RemotingClient) -> None:
    client.done(Code.GET_BROKER_CLUSTER_INFO)


def test_one_address_takes_its_share_of_connections(
    door: RemotingDoor, intake: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    ours = [client(door) for _ in range(4)]
    for each in ours:
        serves(each)
    assert client(door).is_closed()
    theirs = [client(door, THERE) for _ in range(4)]
    for each in theirs:
        serves(each)
    assert client(door, "127.0.0.3").is_closed()  # all are taken
    ours.pop().close()
    while door.within(lambda: len(intake._links)) == 8:
        serves(theirs[0])
    assert client(door, THERE).is_closed()
    serves(client(door, "127.0.0.3"))
    door.within(lambda: [each._log_refused() for each in door.front.doors.values()])
    assert "4 of 127.0.0.2 are open, the most that are allowed of one address" in caplog.text


def test_one_address_takes_its_share_of_unfinished_bytes(
    door: RemotingDoor, intake: Intake
) -> None:
    begun = (4 * MIB).to_bytes(4, "big") + bytes(4) + b"x" * (400 * 1024)
    one, two, other = client(door), client(door), client(door, THERE)
    one.socket.sendall(begun)
    while not share(door, intake).unfinished:
        serves(other)
    two.socket.sendall(begun[: 300 * 1024])
    assert two.is_closed()
    other.socket.sendall(begun)
    while not share(door, intake, THERE).unfinished:
        serves(client(door, "127.0.0.3"))
    one.close()
    while HERE in door.within(lambda: dict(intake._shares)):
        pass


def test_bytes_under_way_stop_a_connection_and_then_its_address(
    door: RemotingDoor, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulls that wait for nothing keep little; sends whose sync does not end keep all."""
    monkeypatch.setattr("horolog.server.intake.LINK_BYTES_UNDER_WAY_MAX", 2 * MIB)
    held: list[Any] = []
    engine = door.front.node.engine
    ask = type(engine).ask

    def hold(command: Any, then: Any) -> Any:
        if type(command).__name__ != "SendMessages" or command.topic != "orders":
            return ask(engine, command, then)
        held.append((command, then))
        return None

    monkeypatch.setattr(engine, "ask", hold, raising=False)
    intake._bounds.bytes_under_way = 3 * MIB
    intake._bounds.unfinished = intake._unfinished_max = 64 * MIB
    one, two, near, other = client(door), client(door), client(door), client(door, THERE)
    for each in (near, other):
        serves(each)
    for _ in range(3):
        one.ask(Code.SEND_MESSAGE_V2, sending(), b"x" * MIB)
    while not door.within(lambda: [link for link in intake._links if link.is_full]):
        serves(near)
    serves(near)  # another connection of the same address
    for _ in range(3):
        two.ask(Code.SEND_MESSAGE_V2, sending(), b"x" * MIB)
    while not share(door, intake).is_stopped:
        serves(other)
    waiting = near.ask(Code.GET_BROKER_CLUSTER_INFO)
    with pytest.raises(TimeoutError):
        near.answer(waiting, 0.2)
    serves(other)
    late = client(door)
    unread = late.ask(Code.GET_BROKER_CLUSTER_INFO)
    with pytest.raises(TimeoutError):
        late.answer(unread, 0.2)

    def go_on() -> None:
        monkeypatch.delattr(engine, "ask")
        for command, then in held:
            engine.ask(command, then)

    door.within(go_on)
    assert near.answer(waiting).code == late.answer(unread).code == Status.SUCCESS
    while door.within(lambda: [link for link in intake._links if link.is_full]):
        serves(near)  # the sends are answered when their sync ends


def test_one_address_takes_its_share_of_polls(door: RemotingDoor, intake: Intake) -> None:
    intake._bounds.polls = 3
    ours, other = client(door), client(door, THERE)
    for _ in range(3):
        ours.ask(Code.PULL_MESSAGE, pulling(sysFlag=6))
    while share(door, intake).polls < 3:
        serves(other)
    refused = ours.call(Code.PULL_MESSAGE, pulling(sysFlag=6))
    assert refused.code == Status.SYSTEM_BUSY
    assert "3 polls of 127.0.0.1 are waiting already" in refused.remark
    refused = ours.call(Code.POP_MESSAGE, popping(pollTime=15_000))
    assert refused.code == Status.POLLING_FULL
    waiting = other.ask(Code.PULL_MESSAGE, pulling(sysFlag=6))
    while share(door, intake, THERE).polls < 1:
        serves(client(door, "127.0.0.3"))
    other.done(Code.SEND_MESSAGE_V2, sending(), b"x")
    assert other.answer(waiting).code == Status.SUCCESS
    while share(door, intake).polls or share(door, intake, THERE).polls:
        pass
    ours.ask(Code.PULL_MESSAGE, pulling(sysFlag=6) | {"queueOffset": "1"})
    while not share(door, intake).polls:
        serves(other)
    ours.close()
    while HERE in door.within(lambda: dict(intake._shares)):
        serves(other)


def test_polls_over_grpc_are_of_the_address_as_well(tmp_path: Path) -> None:
    intake = Intake(share=50)
    assert intake._bounds.polls == PARKED_POLLS_MAX // 2
    intake._bounds.polls = 2

    async def story(door: Door) -> None:
        async def polled(name: str) -> list[Any]:
            return await door.receive(
                headers=[("x-mq-client-id", name), *HEADERS[1:]],
                long_polling_timeout=Duration(seconds=9),
            )

        waiting = [asyncio.create_task(polled(f"c{number}")) for number in range(2)]
        while sum(each.polls for each in intake._shares.values()) < 2:
            await asyncio.sleep(0)
        [refused] = await polled("c2")
        assert refused.status.code == pb.TOO_MANY_REQUESTS
        assert "2 polls of 127.0.0.1" in refused.status.message
        for task in waiting:
            task.cancel()
        while sum(each.polls for each in intake._shares.values()):
            await asyncio.sleep(0)
        intake.check_invariants()

    with_door(tmp_path, story, intake=intake)
