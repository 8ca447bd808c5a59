"""Topics whose messages have several tags: everything a consumer gets, against a plain look at the texts."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from admin_api import exchange
from tests.support.remoting_door import remoting_door

from horolog.limits import POLL_MAX_MS
from horolog.log.queue_unit import MANY_CODE
from horolog.protocol.commands import (
    Ack,
    ChangeTopic,
    CreateTopic,
    MessageType,
    Receive,
    SendMessages,
    TopicSettings,
    TopicType,
)
from horolog.protocol.queue_commands import Pull
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.rocketmq.tags import bits_of, bits_of_tag, split_tags
from horolog.server.open_broker import open_engine
from horolog.storage.disk import Disk
from horolog.testing.sim_broker import Answer
from horolog.verify.directory import verify_directory

MANY = TopicSettings(multi_tag=True)
TAGS = ["Aa", "BB", "C", "AaAa", "BBBB", "paid", "late", "eu", "us", "Ü"]


@pytest.fixture
def broker(any_world):
    any_world.broker.ask(CreateTopic("t", TopicType.MIXED, 2, MANY))
    return any_world.broker


def message(name: str, tags: str | None, due_ms: int = 0, topic: str = "t"):
    """With a tag as 4.x clients may send it; 5.x clients send none with a bar."""
    kind = MessageType.DELAY if due_ms else MessageType.NORMAL
    has_bar = tags is not None and "|" in tags
    return encode(
        topic=topic,
        body=b"x",
        message_id=name,
        type=kind,
        due_ms=due_ms,
        tag=None if has_bar else tags or None,
        system_properties=f"TAGS\x01{tags}\x02".encode() if has_bar else b"",
    )


def ids(layouts) -> list[str]:
    found = [properties.decode(layout.decode(bytes(each)).properties) for each in layouts]
    return sorted(each["UNIQ_KEY"] for each in found)


def received(broker, expression: str, topic: str = "t", group: str = "g") -> list[str]:
    got = []
    command = Receive(group, topic, -1, expression, 32, 60_000, False, 0, "c")
    while messages := broker.ask(command).messages:
        got += [each.layout for each in messages]
        broker.ask(Ack(group, topic, [each.receipt_handle for each in messages]))
    return ids(got)


def pulled(broker, expression: str, topic: str = "t", queues: int = 2) -> list[str]:
    got = []
    for queue in range(queues):
        at, answer = 0, None
        while answer is None or at < answer.max_offset:
            answer = broker.ask(Pull(topic, queue, at, 32, 1 << 18, expression, 0))
            got += answer.layouts
            at = answer.next_offset
    return ids(got)


def has_one(text: str, expression: str) -> bool:
    wanted = {part.strip() for part in expression.split("||")}
    return any(tag.strip() in wanted for tag in text.replace(",", "||").split("||"))


def test_all_ways_of_consuming_agree_with_the_texts(any_world, broker) -> None:
    random = Random(15)
    texts = {}
    for i in range(400):
        chosen = random.sample(TAGS, random.randrange(4))
        texts[f"m{i:03d}"] = random.choice(["||", ",", " || "]).join(chosen)
    now = any_world.clock.wall_ms()
    names = list(texts)
    for first in range(0, 400, 50):
        due_ms = now + 5_000 if first % 100 else 0
        batch = [message(name, texts[name], due_ms) for name in names[first : first + 50]]
        broker.ask(SendMessages("t", batch))
    any_world.clock.advance(6_000)
    broker.settle()
    for again in range(2):
        for number, expression in enumerate(("Aa", "BB || C", "nobody", "late||Ü|| eu")):
            wanted = [name for name, text in texts.items() if has_one(text, expression)]
            assert pulled(broker, expression) == wanted, expression
            group = f"g{again}-{number}"
            assert received(broker, expression, group=group) == wanted, expression
        broker.check_invariants(rows=True)
        any_world.reopen(power_cut=again == 0)
    assert received(broker, "*", group="all") == names


def test_a_waiting_pull_is_not_woken_by_a_tag_that_only_has_the_bits(any_world, broker) -> None:
    bits = bits_of(["a", "b", "c"])
    looks_alike = next(tag for tag in map(str, range(100_000)) if not bits_of_tag(tag) & ~bits)
    broker.ask(CreateTopic("one", TopicType.NORMAL, 1, MANY))
    wait = Pull("one", 0, 0, 32, 1 << 18, looks_alike, POLL_MAX_MS)
    waits = Answer(wait)
    broker.step([waits])
    broker.settle()
    broker.ask(SendMessages("one", [message("m1", "a||b||c", topic="one")]))
    assert not waits.done
    broker.ask(SendMessages("one", [message("m2", f"a||{looks_alike}", topic="one")]))
    assert ids(waits.result.layouts) == ["m2"]


def test_the_setting_counts_when_a_message_becomes_visible(any_world, broker) -> None:
    broker.ask(CreateTopic("plain", TopicType.MIXED, 1))
    now = any_world.clock.wall_ms()
    batch = [message("m0", "a||b", topic="plain"), message("m1", "a||b", now + 5_000, "plain")]
    broker.ask(SendMessages("plain", batch))
    assert pulled(broker, "a", "plain", 1) == [], "one tag, whose text is a||b"
    broker.ask(ChangeTopic("plain", settings=MANY))
    any_world.clock.advance(6_000)
    broker.settle()
    broker.ask(ChangeTopic("plain", settings=TopicSettings()))
    broker.ask(SendMessages("plain", [message("m2", "a||b", topic="plain")]))
    any_world.reopen()
    assert pulled(broker, "a", "plain", 1) == ["m1"]
    assert received(broker, "b", "plain") == ["m1"]
    codes = broker.shard.topics.get("plain").queues[0].read(0, 3)["tags"].tolist()
    assert codes[1] == MANY_CODE + bits_of(["a", "b"])
    assert codes[0] == codes[2] != codes[1]
    assert abs(codes[0]) < 1 << 31


def test_verify_knows_the_codes_of_several_tags(tmp_path) -> None:
    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", start_ms=1_700_000_000_000)
        await engine.submit(CreateTopic("t", TopicType.MIXED, 1, MANY))
        batch = [message("m1", "a||b"), message("m2", None), message("m3", "c")]
        due_ms = engine.clock.wall_ms() + 5_000
        await engine.submit(SendMessages("t", [*batch, message("m4", "c,d", due_ms)]))
        await engine.advance(6_000)
        await engine.checkpoint()
        await engine.stop()

    asyncio.run(asyncio.wait_for(story(), 60))
    verdict = verify_directory(Disk(tmp_path / "data", read_only=True))
    assert not [found.what for found in verdict.findings.kept]


def test_no_tag_sets_no_bit_and_a_tag_at_most_four() -> None:
    assert bits_of([]) == 0
    assert split_tags(" a ||b,,c|| ") == ["a", "b", "c"]
    for tag in TAGS:
        assert 1 <= bits_of_tag(tag).bit_count() <= 4
    assert bits_of_tag("paid") == 0x0480000A, "it is stored, and may not change"


def test_it_is_set_and_shown_over_http() -> None:
    body = {"name": "events", "multi_tag": True}
    status, answer, engine = exchange("POST", "/v1/topics", body)
    assert (status, engine.asked[-1].settings) == (201, MANY)
    assert answer["result"]["multi_tag"] is False, "of the scripted topic"
    _, _, engine = exchange("PATCH", "/v1/topics/events", {"multi_tag": True})
    assert engine.asked[-1] == ChangeTopic("events", 0, MANY)


def test_it_is_set_and_shown_over_remoting(tmp_path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        ways = {
            "one": ({"topicFilterType": "MULTI_TAG"}, True),
            "two": (
                {"attributes": "+multi.tag=true,+reserve.time=-1", "topicFilterType": "SINGLE_TAG"},
                True,
            ),
            "three": ({"topicFilterType": "SINGLE_TAG"}, False),
        }
        for name, (fields, is_multi) in ways.items():
            asked = {"topic": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, **fields}
            client.done(Code.UPDATE_AND_CREATE_TOPIC, asked)
            config = client.json(Code.GET_TOPIC_CONFIG, {"topic": name})
            assert config["topicFilterType"] == ("MULTI_TAG" if is_multi else "SINGLE_TAG")
            assert ("multi.tag" in config["attributes"]) is is_multi
        asked = {"topic": "one", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        client.done(Code.UPDATE_AND_CREATE_TOPIC, {**asked, "topicFilterType": "SINGLE_TAG"})
        config = client.json(Code.GET_TOPIC_CONFIG, {"topic": "one"})
        assert config["topicFilterType"] == "MULTI_TAG", "mqadmin says SINGLE_TAG with every change"
        client.done(Code.UPDATE_AND_CREATE_TOPIC, {**asked, "attributes": "-multi.tag"})
        config = client.json(Code.GET_TOPIC_CONFIG, {"topic": "one"})
        assert config["topicFilterType"] == "SINGLE_TAG"
        answer = client.call(
            Code.UPDATE_AND_CREATE_TOPIC, {**asked, "attributes": "+multi.tag=perhaps"}
        )
        assert answer.code == Status.INVALID_PARAMETER
        assert "multi.tag" in answer.remark
