"""Topics: which can be made, which messages they take."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from work import bytecodes
from worlds import refused

from horolog.admin.app import make_app
from horolog.broker.life.snapshot import capture, decide
from horolog.errors import ErrorCode
from horolog.limits import TURN_TOPICS_MAX
from horolog.protocol.accepted import ACCEPTED
from horolog.protocol.commands import (
    NOT_COUNTED,
    ChangeTopic,
    CreateTopic,
    DescribeTopic,
    ListTopics,
    MessageType,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.transaction_commands import SendHalf
from horolog.server.open_broker import open_engine


def made(topic: str, type: MessageType = MessageType.NORMAL, **more):
    return encode(topic=topic, body=b"b", message_id="m", type=type, **more)


@pytest.mark.parametrize("type", TopicType)
@pytest.mark.parametrize("kind", MessageType)
def test_a_topic_takes_what_its_type_says_and_nothing_else(world, type, kind) -> None:
    world.broker.ask(CreateTopic(type.value, type, 2))
    assert world.broker.ask(DescribeTopic(type.value)).type is type
    due_ms = world.clock.wall_ms() + 60_000 if kind is MessageType.DELAY else 0
    send = SendHalf if kind is MessageType.TRANSACTION else SendMessages
    sent = world.broker.ask(send(type.value, [made(type.value, kind, due_ms=due_ms)]))
    assert (0 not in sent.refused) == (kind in ACCEPTED[type])


def test_a_transaction_is_begun_by_a_half_message_only(world) -> None:
    world.broker.ask(CreateTopic("mixed", TopicType.MIXED, 2))
    half = made("mixed", MessageType.TRANSACTION)
    sent = world.broker.ask(SendMessages("mixed", [half]))
    assert sent.refused[0].code is ErrorCode.TYPE_CONFLICT


def test_what_exists_is_created_again_only_just_so(world) -> None:
    world.broker.ask(CreateTopic("temps", TopicType.DELAY, 2))
    end = world.broker.shard.log.end
    assert world.broker.ask(CreateTopic("temps", TopicType.DELAY, 2)).queues == 2
    for command, field, difference in (
        (CreateTopic("temps", TopicType.DELAY, 8), "queues", "exists with 2 queues, not 8"),
        (CreateTopic("temps", TopicType.DELAY, 1), "queues", "exists with 2 queues, not 1"),
        (CreateTopic("temps", TopicType.MIXED, 2), "type", "exists with type delay"),
        (CreateTopic("temps", TopicType.FIFO, 2), "type", "exists with type delay"),
    ):
        error = refused(world.broker, command)
        assert (error.code, error.field) == (ErrorCode.TOPIC_EXISTS, field)
        assert difference in error.message
    assert world.broker.shard.log.end == end, "nothing was written"
    assert world.broker.ask(DescribeTopic("temps")).queues == 2


def test_a_topic_is_changed_to_have_more_queues_and_never_fewer(world) -> None:
    world.broker.ask(CreateTopic("temps", TopicType.MIXED, 2))
    assert world.broker.ask(ChangeTopic("temps", 8)).queues == 8
    assert world.broker.ask(ChangeTopic("temps", 8)).queues == 8, "as it is: no change"
    for queues, limit in ((7, "8 to 1024"), (-1, "1 to 1024"), (1_025, "1 to 1024")):
        error = refused(world.broker, ChangeTopic("temps", queues))
        assert (error.code, error.field, error.limit) == (ErrorCode.BAD_REQUEST, "queues", limit)
    assert refused(world.broker, ChangeTopic("no", 1)).code is ErrorCode.TOPIC_NOT_FOUND
    for _ in range(2):
        world.reopen()
        assert world.broker.ask(DescribeTopic("temps")).queues == 8
        world.broker.request_checkpoint()
        world.broker.settle()
    sent = world.broker.ask(SendMessages("temps", [made("temps")] * 2))
    assert not sent.refused


def test_a_list_comes_a_turn_at_a_time_and_by_name(world) -> None:
    names = [f"t{i:05d}" for i in range(TURN_TOPICS_MAX + 10)]
    topics = world.broker.shard.topics
    for number, name in enumerate(reversed(names), 1):
        topics.put(number, name, TopicType.MIXED, 1)
    topics.check_invariants()
    first = world.broker.ask(ListTopics())
    assert [view.name for view in first] == names[:TURN_TOPICS_MAX]
    rest = world.broker.ask(ListTopics(first[-1].name, with_pending=False))
    assert [view.name for view in rest] == names[TURN_TOPICS_MAX:]
    assert {view.pending for view in rest} == {NOT_COUNTED}
    assert world.broker.ask(ListTopics("t00003x"))[0].name == "t00004"
    assert world.broker.ask(ListTopics("u")) == []


def test_topics_that_nobody_sends_to_cost_a_checkpoint_nothing(world) -> None:
    """With 65 000 topics of 8 queues every checkpoint held up the turns for a second."""

    def checkpoint() -> int:
        number = len(world.broker.shard.topics.by_id)
        world.broker.ask(SendMessages("t", [made("t")]))
        took = bytecodes(lambda: capture(world.broker.shard, decide(world.broker.shard, 0), 0, 0))
        assert len(world.broker.shard.topics.registry()) == number
        return took

    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    few = checkpoint()
    for number in range(2, 300):
        world.broker.shard.topics.put(number, f"t{number}", TopicType.MIXED, 8)
    assert checkpoint() < few + 300


def test_all_topics_over_http_or_a_page_of_them(tmp_path) -> None:
    names = [f"t{i:05d}" for i in range(TURN_TOPICS_MAX + 3)]

    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated")
        for number, name in enumerate(names, 1):
            engine.broker.shard.topics.put(number, name, TopicType.DELAY, 1)
        due_ms = engine.clock.wall_ms() + 60_000
        message = made("t00002", MessageType.DELAY, due_ms=due_ms)
        await engine.submit(SendMessages("t00002", [message]))
        transport = httpx.ASGITransport(make_app(engine, broker_name="b"))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:

                async def listed(query: str) -> list[str]:
                    topics = (await client.get(f"/v1/topics{query}")).json()["result"]["topics"]
                    waiting = {view["name"]: view["pending"] for view in topics if view["pending"]}
                    assert waiting == ({"t00002": 1} if "t00002" in str(topics) else {})
                    return [view["name"] for view in topics]

                assert await listed("") == names
                assert await listed("?limit=2") == names[:2]
                assert await listed(f"?limit=9&after={names[-3]}") == names[-2:]
                assert await listed("?after=u") == []
                bad = (await client.get("/v1/topics?limit=0")).json()
                assert bad["error"]["field"] == "limit"
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_start_looks_for_the_files_of_no_empty_queue(world, monkeypatch) -> None:
    """A directory that is not there need not be asked for: one listing tells which are."""
    world.broker.ask(CreateTopic("empty", TopicType.NORMAL, 1_000))
    world.broker.ask(CreateTopic("full", TopicType.NORMAL, 3))
    for number in range(3):
        message = encode(topic="full", body=b"x", message_id=f"m{number}")
        world.broker.ask(SendMessages("full", [message]))
    world.broker.request_checkpoint()
    world.broker.settle()
    listed, of_disk = [], world.disk.list
    monkeypatch.setattr(world.disk, "list", lambda path: (listed.append(path), of_disk(path))[1])
    world.reopen()
    queues = [path for path in listed if "/queues/" in path]
    assert len(queues) == 3
    assert world.broker.ask(DescribeTopic("full")).queue_offsets == [1, 1, 1]
    assert world.broker.ask(DescribeTopic("empty")).queue_offsets == [0] * 1_000
