"""Clients of 5.x where admin tools ask: consumer and producer connections, subscriptions, groups of a topic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from tests.support.grpc_door import Door, with_door
from tests.support.remoting_client import RemotingClient

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.transaction_commands import CheckDue
from horolog.server.grpc_unary import SERVICE
from horolog.server.remoting.front import RemotingFront
from horolog.server.remoting.node import Node
from horolog.server.remoting.presence import version_ordinal


@pytest.mark.parametrize(
    ("said", "ordinal"),
    [("5.0.0", 413), ("5.0.3", 419), ("V5_2_0", 453), ("5.3.3", 479), ("1.0.8", 479), ("", 479)],
)
def test_versions_are_numbered_as_rocketmq_numbers_them(said: str, ordinal: int) -> None:
    assert version_ordinal(said) == ordinal


class Tool:
    """An admin tool beside clients of 5.x."""

    def __init__(self, door: Door, client: RemotingClient) -> None:
        self._door, self._client = door, client

    async def json(self, code: Code, **fields: str) -> Any:
        return await asyncio.to_thread(self._client.json, code, fields)

    async def refusal(self, code: Code, **fields: str) -> Any:
        return await asyncio.to_thread(self._client.call, code, fields)

    async def beat(self, client_id: str, group: str) -> None:
        """Join a group, as a 4.x client does."""
        said = {"clientID": client_id, "consumerDataSet": [{"groupName": group}]}
        answer = await asyncio.to_thread(self._client.call, Code.HEART_BEAT, None, said)
        assert answer.code == Status.SUCCESS, answer.remark

    async def stored(self) -> str:
        """The id of a message, by which tools name its place in the log."""
        fields = {"topic": "mixed", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1"}
        fields |= {"producerGroup": "p", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
        answer = await asyncio.to_thread(self._client.call, Code.SEND_MESSAGE, fields, b"one")
        return str(answer.fields["msgId"])

    async def settle(self, client_id: str, language: str, settings: pb.Settings) -> Any:
        """Open a Telemetry stream, and say this on it; the stream."""
        stream = self._door.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )(
            metadata=[
                ("x-mq-client-id", client_id),
                ("x-mq-language", language),
                ("x-mq-client-version", "5.0.3"),
            ]
        )
        await self.say(stream, settings)
        return stream

    @staticmethod
    async def say(stream: Any, settings: pb.Settings) -> None:
        await stream.write(pb.TelemetryCommand(settings=settings))
        assert await stream.read() is not grpc.aio.EOF


def consuming(kind: Any, group: str, **wanted: tuple[Any, str]) -> pb.Settings:
    settings = pb.Settings(client_type=kind)
    settings.subscription.group.name = group
    for topic, (type_, expression) in wanted.items():
        settings.subscription.subscriptions.add(
            topic=pb.Resource(name=topic),
            expression=pb.FilterExpression(type=type_, expression=expression),
        )
    return settings


def with_tool(tmp_path: Path, story: Any) -> None:
    async def run(door: Door) -> None:
        remoting = RemotingFront(Node(door.engine, neighbours=[door.front]))
        ports = await remoting.start()
        try:
            with RemotingClient(("127.0.0.1", ports.broker)) as client:
                await story(Tool(door, client))
        finally:
            await remoting.stop(0)

    with_door(tmp_path, run)


def test_consumers_and_what_they_want(tmp_path: Path) -> None:
    """What the one says that spoke last, also a filter that no receive may have."""

    async def story(tool: Tool) -> None:
        asked = {"consumerGroup": "workers"}
        nobody = await tool.refusal(Code.GET_CONSUMER_CONNECTION_LIST, **asked)
        assert nobody.code == Status.CONSUMER_NOT_ONLINE
        first = consuming(pb.PUSH_CONSUMER, "workers", mixed=(pb.TAG, "*"))
        push = await tool.settle("one", "JAVA", first)
        second = consuming(
            pb.SIMPLE_CONSUMER,
            "workers",
            mixed=(pb.TAG, "TagA || TagB"),
            fifo=(pb.SQL, "a > 1"),
            delay=(pb.TAG, "||"),
        )
        await tool.settle("two", "KLINGON", second)
        shown = await tool.json(Code.GET_CONSUMER_CONNECTION_LIST, **asked)
        one, two = shown["connectionSet"]
        assert (one["clientId"], one["language"], one["version"]) == ("one", "JAVA", 419)
        assert (two["clientId"], two["language"]) == ("two", "OTHER")
        assert one["clientAddr"].startswith("127.0.0.1:")
        assert (shown["consumeType"], shown["messageModel"], shown["consumeFromWhere"]) == (
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
        )
        wanted = shown["subscriptionTable"]
        assert sorted(wanted) == ["delay", "fifo", "mixed"]
        assert (wanted["delay"]["subString"], wanted["delay"]["tagsSet"]) == ("||", [])
        assert (wanted["fifo"]["expressionType"], wanted["fifo"]["subString"]) == ("SQL92", "a > 1")
        assert wanted["mixed"]["tagsSet"] == ["TagA", "TagB"]
        asked = {"group": "workers", "topic": "mixed"}
        found = await tool.json(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, **asked)
        assert found["subscriptionData"] == wanted["mixed"]
        who = await tool.json(Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="mixed")
        assert who == {"groupList": ["workers"]}
        await tool.say(push, consuming(pb.PUSH_CONSUMER, "others", mixed=(pb.TAG, "*")))
        shown = await tool.json(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="workers")
        assert [each["clientId"] for each in shown["connectionSet"]] == ["two"]
        assert shown["consumeType"] == "CONSUME_ACTIVELY"
        push.cancel()
        code = Code.GET_CONSUMER_CONNECTION_LIST
        while (await tool.refusal(code, consumerGroup="others")).code == Status.SUCCESS:
            pass
        who = await tool.json(Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="mixed")
        assert who == {"groupList": ["workers"]}

    with_tool(tmp_path, story)


def test_each_topic_of_a_producer_is_its_group(tmp_path: Path) -> None:
    async def story(tool: Tool) -> None:
        nobody = await tool.refusal(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="mixed")
        assert nobody.remark == "producerGroup: 'mixed' has no client just now"
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.topics.extend([pb.Resource(name="mixed"), pb.Resource(name="fifo")])
        await tool.settle("sender", "GO", settings)
        shown = await tool.json(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="fifo")
        [connection] = shown["connectionSet"]
        assert (connection["clientId"], connection["language"]) == ("sender", "GO")
        table = (await tool.json(Code.GET_ALL_PRODUCER_INFO))["data"]
        assert sorted(table) == ["fifo", "mixed"]
        assert table["mixed"][0]["remoteIP"] == connection["clientAddr"]

    with_tool(tmp_path, story)


def running(client_id: str, group: str = "workers", **more: str) -> dict[str, str]:
    return {"consumerGroup": group, "clientId": client_id, **more}


def test_a_tool_hears_of_all_clients_and_a_member_of_those_it_shares_queues_with(
    tmp_path: Path,
) -> None:
    async def story(tool: Tool) -> None:
        asked = {"consumerGroup": "workers"}
        await tool.settle("new", "JAVA", consuming(pb.PUSH_CONSUMER, "workers"))
        code = Code.GET_CONSUMER_LIST_BY_GROUP
        assert await tool.json(code, **asked) == {"consumerIdList": ["new"]}
        await tool.beat("old", "others")
        assert await tool.json(code, **asked) == {"consumerIdList": ["new"]}
        await tool.beat("old", "workers")
        assert await tool.json(code, **asked) == {"consumerIdList": ["old"]}

    with_tool(tmp_path, story)


def test_what_is_known_of_a_client_that_keeps_no_queues(tmp_path: Path) -> None:
    async def story(tool: Tool) -> None:
        code = Code.GET_CONSUMER_RUNNING_INFO
        wanted = consuming(pb.SIMPLE_CONSUMER, "workers", mixed=(pb.TAG, "TagA"))
        stream = await tool.settle("new", "JAVA", wanted)
        shown = await tool.json(code, **running("new", jstackEnable="false"))
        known = shown.pop("properties")
        assert int(known.pop("PROP_CONSUMER_START_TIMESTAMP")) > 1_700_000_000_000
        assert known == {
            "PROP_CLIENT_VERSION": "JAVA 5.0.3",
            "PROP_CONSUMEORDERLY": "false",
            "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
        }
        [subscription] = shown.pop("subscriptionSet")
        assert (subscription["topic"], subscription["tagsSet"]) == ("mixed", ["TagA"])
        empty = ("mqPopTable", "mqTable", "statusTable", "userConsumerInfo")
        assert shown == {"jstack": None, **{name: {} for name in empty}}
        for other in (running("newer"), running("new", "others")):
            nobody = await tool.refusal(code, **other)
            assert nobody.code == Status.CONSUMER_NOT_ONLINE
        given = await tool.refusal(
            Code.CONSUME_MESSAGE_DIRECTLY, **running("new", msgId=await tool.stored())
        )
        assert (given.code, given.remark) == (
            Status.SYSTEM_ERROR,
            "clientId: 'new' is a 5.x client, and takes no message from tools",
        )
        stream.cancel()

    with_tool(tmp_path, story)


def test_the_threads_of_a_client_are_asked_of_it(tmp_path: Path) -> None:
    async def story(tool: Tool) -> None:
        asked = running("new", jstackEnable="true")
        stream = await tool.settle("new", "JAVA", consuming(pb.PUSH_CONSUMER, "workers"))
        stranger = await tool.settle("stranger", "JAVA", consuming(pb.PUSH_CONSUMER, "workers"))
        answer = asyncio.ensure_future(tool.json(Code.GET_CONSUMER_RUNNING_INFO, **asked))
        nonce = (await stream.read()).print_thread_stack_trace_command.nonce
        said = pb.ThreadStackTrace(nonce=nonce, thread_stack_trace="forged")
        await stranger.write(pb.TelemetryCommand(thread_stack_trace=said))
        await tool.say(stranger, consuming(pb.PUSH_CONSUMER, "workers"))  # which is heard after it
        said.thread_stack_trace = "main: waits"
        await stream.write(pb.TelemetryCommand(thread_stack_trace=said))
        assert (await answer)["jstack"] == "main: waits"
        await stream.write(pb.TelemetryCommand(thread_stack_trace=said))  # late: nobody waits
        answer = asyncio.ensure_future(tool.json(Code.GET_CONSUMER_RUNNING_INFO, **asked))
        assert (await stream.read()).print_thread_stack_trace_command.nonce != nonce
        stream.cancel()
        assert (await answer)["jstack"] is None

    with_tool(tmp_path, story)


def test_who_has_said_good_bye_is_gone_though_its_stream_is_open(tmp_path: Path) -> None:
    """The Go client leaves it open, and answers nothing."""

    async def story(door: Door) -> None:
        async def leaves(client_id: str, settings: pb.Settings) -> None:
            stream = door.channel.stream_stream(
                f"/{SERVICE}/Telemetry",
                request_serializer=pb.TelemetryCommand.SerializeToString,
                response_deserializer=pb.TelemetryCommand.FromString,
            )(metadata=[("x-mq-client-id", client_id), ("x-mq-language", "GO")])
            for _ in range(2):  # who comes again by the same stream is there again
                await Tool.say(stream, settings)
                assert [each.client_id for each in door.front.connected()] == [client_id]
                assert door.front.member_count("g") == settings.HasField("subscription")
                assert has_producer() == settings.HasField("publishing")
                bye = pb.NotifyClientTerminationRequest()
                await door.call("NotifyClientTermination", bye, [("x-mq-client-id", client_id)])
                assert not list(door.front.connected())
                assert not door.front.member_count("g")
                assert not has_producer()
            stream.cancel()

        def has_producer() -> bool:
            return door.front.producers.has(CheckDue(0, "transaction", "transaction"))

        topics = [pb.Resource(name="transaction")]
        producer = pb.Settings(client_type=pb.PRODUCER, publishing=pb.Publishing(topics=topics))
        await leaves("producer", producer)
        await leaves("consumer", consuming(pb.PUSH_CONSUMER, "g"))

    with_door(tmp_path, story)
