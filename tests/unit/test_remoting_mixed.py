"""Sends of all kinds that several connections send at once, in any chunks, are answered and stored as if each had come alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import layouts, pulling
from tests.support.remoting_sends import batch_frame, item, send_frame

from horolog.protocol.commands import ChangeTopic, TopicSettings, TopicType
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Flag, Frame, Serializer
from horolog.protocol.remoting.frame_writer import encode

CLIENTS = 4
TURNS = 8
LEARNED = range(10_000, 10_070)  # requests, by which the reader of a connection knows their shape
DAY_MS = 86_400_000
KINDS: list[dict[str, Any]] = [
    {}, {}, {}, {"TAGS": "A"}, {"KEYS": "k"}, {"DELAY": "2"}, {"TIMER_DELAY_SEC": "60"},
    {"TIMER_DELAY_SEC": "soon"}, {"q": '"'}, {"TAGS": "ä"}, {"__SHARDINGKEY": "g"}, {"MSG_REGION": "mine"},
]  # fmt: skip
Turn = list[tuple[int, Frame]]  # sends, each with the place of its client


def turns_of(chance: random.Random) -> list[Turn]:
    """Sends of all kinds; most of them are alike."""
    found: list[Turn] = []
    number = 1_000  # greater than those of what the clients ask besides
    for _ in range(TURNS):
        found.append([])
        for _ in range(chance.choice([4, 4, 12])):
            number += 1
            properties = {"UNIQ_KEY": f"ID{number}", **chance.choice(KINDS)}
            where = {
                "topic": chance.choice(["orders", "orders", "orders", "made", "read"]),
                "opaque": number,
                "queue": chance.choice([0, 0, 0, 9]),
            }
            body = b"" if chance.random() < 0.05 else b"%d" % number
            code = chance.choice([Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_MESSAGE_V2])
            frame = send_frame(properties, body=body, code=code, **where)
            if chance.random() < 0.1:
                second = item({"UNIQ_KEY": f"X{number}"})
                frame = batch_frame([item(properties, body), second], **where)
            elif chance.random() < 0.1:
                frame = frame._replace(flag=Flag.ONE_WAY)
            elif chance.random() < 0.1:
                frame = frame._replace(serializer=Serializer.ROCKETMQ)
            found[-1].append((chance.randrange(CLIENTS), frame))
    return found


class Crowd:
    """Clients of a broker with a simulated clock, whose shapes of requests it has learned."""

    def __init__(self, door: RemotingDoor, clients: list[RemotingClient]) -> None:
        self.door = door
        self.clients = clients
        self.ports = [client.socket.getsockname()[1] for client in clients]
        for client in clients:
            client.send(
                *[send_frame({"UNIQ_KEY": f"L{n}"}, topic="orders", opaque=n) for n in LEARNED]
            )
            assert not any(client.answer(n).code for n in LEARNED)

    def hear(self, chunks: list[tuple[int, bytes]]) -> None:
        """What clients say in one turn of the event loop."""

        def take() -> None:
            links = {link.peer.port: link for link in self.door.front.doors["broker"]._links}
            for n, chunk in chunks:
                links[self.ports[n]].data_received(chunk)

        self.door.within(take)

    def answers(self, turn: Turn) -> list[Any]:
        """Opaque, code, remark and fields, but for where messages stand."""
        found = []
        for n, frame in turn:
            if not frame.is_one_way:
                answer = self.clients[n].answer(frame.opaque)
                fields = {**answer.fields, "msgId": len(answer.fields.get("msgId", "").split(","))}
                fields["recallHandle"] = "recallHandle" in answer.fields
                fields.pop("queueOffset", None)
                found.append((frame.opaque, answer.code, answer.remark, fields))
        return found

    def stored(self) -> list[Any]:
        """What became of all messages, and by which client each came."""
        self.door.advance(DAY_MS)
        found = []
        for topic in ("orders", "made"):
            pull = pulling(topic, maxMsgNums=1_000)
            for m in layouts(self.clients[0].call(Code.PULL_MESSAGE, pull).body):
                client = self.ports.index(m.born_host[1])
                found.append((topic, client, m.body, m.properties, m.born_ms, m.sys_flag))
        return found


def together(crowd: Crowd, turn: Turn, chance: random.Random) -> None:
    """Whatever a client says comes in one or two chunks, cut anywhere."""
    chunks: list[tuple[int, bytes]] = []
    for n in range(CLIENTS):
        said = b"".join(encode(frame) for client, frame in turn if client == n)
        cut = chance.randrange(2 * len(said) + 1)
        chunks += [(n, chunk) for chunk in (said[:cut], said[cut:]) if chunk]
    crowd.hear(chunks)


def alone(crowd: Crowd, turn: Turn, _: random.Random) -> None:
    for n, frame in turn:
        crowd.hear([(n, encode(frame))])
        crowd.clients[n].call(Code.GET_BROKER_CLUSTER_INFO)


def outcome(folder: Path, seed: int, say: Callable[[Crowd, Turn, random.Random], None]) -> Any:
    """The answers, and what is stored in the end."""
    chance = random.Random(seed)
    with remoting_door(folder) as door, ExitStack() as open_clients:
        for topic in ("orders", "read"):
            door.create(topic, TopicType.MIXED, 1)
        door.submit(ChangeTopic("read", settings=TopicSettings(perm=4)))
        crowd = Crowd(door, [open_clients.enter_context(door.client()) for _ in range(CLIENTS)])
        answers = []
        for turn in turns_of(random.Random(seed)):
            say(crowd, turn, chance)
            answers += crowd.answers(turn)
        return answers, crowd.stored()


@pytest.mark.parametrize("seed", [2, 4])
def test_answers_and_messages_are_those_of_sends_that_come_alone(tmp_path: Path, seed: int) -> None:
    answers, stored = outcome(tmp_path / "together", seed, together)
    answers_alone, stored_alone = outcome(tmp_path / "alone", seed, alone)
    assert answers == answers_alone
    assert sorted(stored) == sorted(stored_alone)
    assert {code for _, code, _, _ in answers} > {0, Status.MESSAGE_ILLEGAL, Status.NO_PERMISSION}
    plain = [
        (c, t, int(body))
        for t, c, body, text, *_ in stored
        if body.isdigit() and b"DEL" not in text
    ]
    for n in range(CLIENTS):
        own = [number for client, topic, number in plain if (client, topic) == (n, "orders")]
        assert own == sorted(own)
