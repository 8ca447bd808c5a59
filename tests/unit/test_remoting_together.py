"""Sends that several connections send at once are one command, and answered as if each had come alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.asked import note_asked
from tests.support.remoting_client import RemotingClient
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import layouts, pulling, sending

from horolog.protocol.commands import ChangeTopic, DeleteTopic, TopicSettings, TopicType
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.frame_writer import encode

CLIENTS = 5
LEARNED = 70  # requests, by which the reader of a connection knows their shape


class Crowd:
    """Clients whose requests reach the broker in one turn of its event loop."""

    def __init__(self, door: RemotingDoor, clients: list[RemotingClient]) -> None:
        self.door = door
        self.clients = clients
        for client in clients:
            client.call(Code.GET_BROKER_CLUSTER_INFO)  # so that its connection is there
        self.ports = [client.socket.getsockname()[1] for client in clients]
        self.asked = note_asked(door.engine)

    def links(self) -> dict[int, Any]:
        """The broker's ends of their connections, by their ports."""
        return {link.peer.port: link for link in self.door.front.doors["broker"]._links}

    def say(self, *requests: Frame) -> list[Any]:
        """A request of each; gives the commands that they became."""
        self.asked.clear()
        ports = self.ports

        def hear() -> None:
            links = self.links()
            for port, request in zip(ports, requests, strict=True):
                links[port].data_received(encode(request))

        self.door.within(hear)
        self.door.run(self.door.engine.until_quiet())  # they may wait for a write under way
        return self.asked

    def sends(self, opaque: int, topic: str = "orders", **fields: Any) -> list[Frame]:
        """A send of each."""
        return [
            client.request(
                Code.SEND_MESSAGE_V2,
                sending(topic, properties={"UNIQ_KEY": f"ID{opaque}{n}", **fields}),
                b"%d" % n,
                opaque=opaque,
            )
            for n, client in enumerate(self.clients)
        ]

    def answers(self, opaque: int) -> list[Any]:
        return [client.answer(opaque) for client in self.clients]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with remoting_door(tmp_path) as door, ExitStack() as open_clients:
        door.create("orders", TopicType.MIXED, 1)
        clients = [open_clients.enter_context(door.client()) for _ in range(CLIENTS)]
        found = Crowd(door, clients)
        for client in clients:  # until it is known what their requests look like
            client.send(*[
                client.request(
                    Code.SEND_MESSAGE_V2,
                    sending("orders", properties={"UNIQ_KEY": f"F{n}"}),
                    b"x",
                    opaque=n,
                )
                for n in range(1_000, 1_000 + LEARNED)
            ])  # fmt: skip
            assert not any(client.answer(n).code for n in range(1_000, 1_000 + LEARNED))
        yield found


def test_one_command_and_an_answer_for_each(crowd: Crowd) -> None:
    (command,) = crowd.say(*crowd.sends(2))
    assert len(command.columns().sizes) == CLIENTS
    answers = crowd.answers(2)
    assert [answer.fields["transactionId"] for answer in answers] == [
        f"ID2{n}" for n in range(CLIENTS)
    ]
    assert [int(answer.fields["queueOffset"]) for answer in answers] == [
        LEARNED + n for n in range(CLIENTS)
    ]
    pulled = crowd.clients[0].done(Code.PULL_MESSAGE, pulling(queueOffset=LEARNED))
    assert [(each.body, each.born_host[1]) for each in layouts(pulled.body)] == [
        (b"%d" % n, port) for n, port in enumerate(crowd.ports)
    ]


def test_scheduled_ones_have_handles_of_their_own(crowd: Crowd) -> None:
    crowd.say(*crowd.sends(2, TIMER_DELAY_SEC="60"))
    crowd.answers(2)
    (command,) = crowd.say(*crowd.sends(3, TIMER_DELAY_SEC="60"))
    handles = [answer.fields["recallHandle"] for answer in crowd.answers(3)]
    assert len(set(handles)) == CLIENTS
    for n, (client, handle) in enumerate(zip(crowd.clients, handles, strict=True)):
        recall = {"topic": "orders", "recallHandle": handle}
        assert client.done(Code.RECALL_MESSAGE, recall).fields == {"msgId": f"ID3{n}"}
    assert command.topic == "orders"


def test_an_error_of_one_is_answered_to_it_alone(crowd: Crowd) -> None:
    requests = crowd.sends(2)
    requests[3] = crowd.clients[3].request(
        Code.SEND_MESSAGE_V2, sending(properties={"UNIQ_KEY": "ID2x"}), b"", opaque=2
    )
    crowd.say(*requests)
    codes = [answer.code for answer in crowd.answers(2)]
    assert codes == [0, 0, 0, Status.MESSAGE_ILLEGAL, 0]


def test_a_refusal_of_the_command_is_answered_to_all(crowd: Crowd) -> None:
    crowd.door.submit(ChangeTopic("orders", settings=TopicSettings(perm=4)))
    assert len(crowd.say(*crowd.sends(2))) == 1
    answers = crowd.answers(2)
    assert {answer.code for answer in answers} == {Status.NO_PERMISSION}
    assert len({answer.remark for answer in answers}) == 1


def test_a_topic_that_is_not_there_is_made_and_takes_all(crowd: Crowd) -> None:
    crowd.door.submit(DeleteTopic("orders"))
    crowd.say(*crowd.sends(2))
    assert [answer.code for answer in crowd.answers(2)] == [0] * CLIENTS
    assert len(crowd.say(*crowd.sends(3))) == 1
    assert [answer.code for answer in crowd.answers(3)] == [0] * CLIENTS


def test_what_comes_while_their_topic_is_made_stays_in_the_order_of_each(crowd: Crowd) -> None:
    links, ports = crowd.links(), crowd.ports

    async def say(rounds: range) -> None:
        """A send of each, again and again, as fast as the loop turns."""
        for n in rounds:
            for port, request in zip(ports, crowd.sends(n), strict=True):
                links[port].data_received(encode(request))
            await asyncio.sleep(0)

    for first in range(2_000, 2_500, 100):
        rounds = range(first, first + 40)
        crowd.door.submit(DeleteTopic("orders"))
        crowd.door.run(say(rounds))
        for client in crowd.clients:
            offsets = [int(client.answer(n).fields["queueOffset"]) for n in rounds]
            assert offsets == sorted(offsets)


def test_an_internal_error_is_answered_to_each(crowd: Crowd) -> None:
    class Broken:
        def take(self, *_: object) -> list[bytes]:
            raise RuntimeError("a mistake")

    node = crowd.door.front.node
    ids, node._ids = node._ids, Broken()  # type: ignore[assignment]
    requests = [
        client.request(Code.SEND_MESSAGE_V2, sending(properties={}), b"x", opaque=2)
        for client in crowd.clients
    ]
    assert not crowd.say(*requests)
    answers = crowd.answers(2)
    assert {(answer.code, answer.remark) for answer in answers} == {
        (Status.SYSTEM_ERROR, "broker: unexpected RuntimeError")
    }
    alone = crowd.clients[0]
    assert alone.answer(alone.ask(Code.SEND_MESSAGE_V2, sending(), b"x")).code == (
        Status.SYSTEM_ERROR
    )
    node._ids = ids
    crowd.say(*requests)
    assert {answer.code for answer in crowd.answers(2)} == {Status.SUCCESS}


def test_who_wants_no_answer_gets_none(crowd: Crowd) -> None:
    requests = crowd.sends(2)
    one_way = [
        client.request(Code.SEND_MESSAGE_V2, sending(), b"silent", opaque=2, one_way=True)
        for client in crowd.clients[:2]
    ]
    crowd.say(*one_way, *requests[2:])
    assert [client.answer(2).code for client in crowd.clients[2:]] == [0] * (CLIENTS - 2)
    crowd.say(*[
        client.request(Code.SEND_MESSAGE_V2, sending(), b"silent", opaque=3, one_way=True)
        for client in crowd.clients
    ])  # fmt: skip
    (command,) = crowd.say(*crowd.sends(4))
    assert [answer.opaque for answer in crowd.answers(4)] == [4] * CLIENTS
    assert len(command.columns().sizes) == CLIENTS


def test_a_client_that_has_gone_leaves_the_others_their_answers(crowd: Crowd) -> None:
    requests = crowd.sends(2)
    ports = crowd.ports

    def hear() -> None:
        links = crowd.links()
        for port, request in zip(ports, requests, strict=True):
            links[port].data_received(encode(request))
        links[ports[1]].cut_off()

    crowd.door.within(hear)
    others = [client for n, client in enumerate(crowd.clients) if n != 1]
    assert [client.answer(2).code for client in others] == [0] * (CLIENTS - 1)


def test_what_a_connection_sends_in_several_chunks_stays_in_order(crowd: Crowd) -> None:
    client, port = crowd.clients[0], crowd.ports[0]
    alike, unlike, last = [
        client.request(
            Code.SEND_MESSAGE_V2,
            sending(properties={"UNIQ_KEY": f"ID{n}", "name": name}),
            b"%d" % n,
            opaque=n,
        )
        for n, name in enumerate(["plain", '"quoted"', "plain"])
    ]

    def hear() -> None:
        link = crowd.links()[port]
        link.data_received(encode(alike))
        link.data_received(encode(unlike) + encode(last))

    crowd.door.within(hear)
    assert [client.answer(n).code for n in range(3)] == [0, 0, 0]
    pulled = client.done(Code.PULL_MESSAGE, pulling(queueOffset=LEARNED))
    assert [each.body for each in layouts(pulled.body)] == [b"0", b"1", b"2"]


def test_chunks_of_a_connection_that_come_together_are_one_command(crowd: Crowd) -> None:
    """Also beside those of other connections; what is unlike the others goes on in its place."""
    first, second, third = crowd.sends(2), crowd.sends(3), crowd.sends(4, name="x")
    links, ports = crowd.links(), crowd.ports
    crowd.asked.clear()

    def hear() -> None:
        for requests in (first, second, third):
            for port, request in zip(ports[:2], requests, strict=False):
                links[port].data_received(encode(request))

    crowd.door.within(hear)
    for opaque in (2, 3, 4):
        assert [client.answer(opaque).code for client in crowd.clients[:2]] == [0, 0]
    assert len(crowd.asked) == 1
    assert len(crowd.asked[0].columns().sizes) == 6
    pulled = crowd.clients[0].done(Code.PULL_MESSAGE, pulling(queueOffset=LEARNED))
    found = [(each.born_host[1], each.properties) for each in layouts(pulled.body)]
    for n, port in enumerate(ports[:2]):
        mine = [properties for born, properties in found if born == port]
        for properties, opaque in zip(mine, (2, 3, 4), strict=True):
            assert b"UNIQ_KEY\x01ID%d%d\x02" % (opaque, n) in properties
