"""Every kind of bad input over remoting: its own code and a sentence; docs/reference/refusals.md has the same table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import orjson
from tests.support.refusals import differences, rows_of
from tests.support.remoting_door import RemotingDoor, remoting_door
from tests.support.remoting_requests import popping, pulling, sending

from horolog.protocol.commands import ChangeTopic, TopicType
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.topic_commands import TopicSettings


class Case(NamedTuple):
    """What is asked, and in words what is wrong with it."""

    code: int
    wrong: str
    fields: dict[str, object]
    body: bytes = b"x"


def send(wrong: str, body: bytes = b"x", **fields: object) -> Case:
    return Case(Code.SEND_MESSAGE_V2, wrong, sending() | fields, body)


def pull(wrong: str, **fields: object) -> Case:
    return Case(Code.PULL_MESSAGE, wrong, pulling() | fields, b"")


def pop(wrong: str, **fields: object) -> Case:
    return Case(Code.POP_MESSAGE, wrong, popping() | fields, b"")


def reply(wrong: str, to: str = "nobody", topic: str = "DefaultCluster_REPLY_TOPIC") -> Case:
    said = {"i": properties(REPLY_TO_CLIENT=to) if to else ""}
    return Case(Code.SEND_REPLY_MESSAGE_V2, wrong, sending(topic) | said, b"x")


def asked(code: Code, wrong: str, body: bytes = b"", **fields: object) -> Case:
    return Case(code, wrong, fields, body)


def properties(**named: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in named.items())


HANDLE = "djEgbm9ybWFsIGJyb2tlci1hIDIgbQ=="
QUEUE = {"topic": "orders", "queueId": 9}
CASES = [
    send("no topic", b=""),
    send("a topic of 128 characters", b="t" * 128),
    send("a topic with a blank", b="a b"),
    send("a system topic", b="SCHEDULE_TOPIC_XXXX"),
    send("an unknown topic, where sends make none", b="unknown"),
    send("a queue that the topic has not", e=9),
    send("a queue that is no number", e="x"),
    send("a topic that cannot be written", b="read-only"),
    send("an empty body", b""),
    send("a body of 4 MiB and a byte", bytes((4 << 20) + 1)),
    send("32,768 bytes of properties", i=properties(p="v" * 32_768)),
    send("a delay level that is no number", i=properties(DELAY="x")),
    send("a due time that is no number", i=properties(TIMER_DELIVER_MS="x")),
    send("a delay of eleven years", i=properties(TIMER_DELAY_SEC=str(11 * 366 * 86_400))),
    Case(
        Code.SEND_BATCH_MESSAGE, "a batch that is cut short", sending() | {"m": "true"}, b"\0\0\1"
    ),
    pull("an unknown topic", topic="unknown"),
    pull("a blank group", consumerGroup=""),
    pull("a queue that the topic has not", queueId=9),
    pull("a topic that cannot be read", topic="write-only"),
    pull("fewer messages than none", maxMsgNums=-1),
    pull("tags without a tag", subscription="||"),
    pull("a condition that is none", subscription="a >", expressionType="SQL92"),
    pull("no subscription, and none in a heartbeat", sysFlag=0),
    asked(Code.QUERY_MESSAGE, "no key", topic="orders"),
    asked(Code.QUERY_MESSAGE, "a key that no message has", topic="orders", key="k"),
    asked(
        Code.QUERY_CONSUMER_OFFSET,
        "a group without an offset",
        consumerGroup="g",
        topic="orders",
        queueId=0,
    ),
    asked(Code.UPDATE_CONSUMER_OFFSET, "no offset", consumerGroup="g", **QUEUE),
    asked(Code.UPDATE_AND_CREATE_TOPIC, "a topic with a blank", topic="a b", perm=6),
    asked(Code.UPDATE_AND_CREATE_TOPIC, "an unknown permission", topic="new", perm=9),
    asked(Code.SEARCH_OFFSET_BY_TIMESTAMP, "a queue that the topic has not", timestamp=0, **QUEUE),
    asked(Code.GET_MAX_OFFSET, "a queue that the topic has not", **QUEUE),
    asked(Code.GET_MIN_OFFSET, "an unknown topic", topic="unknown", queueId=0),
    asked(Code.VIEW_MESSAGE_BY_ID, "a position without a message", offset=7),
    asked(Code.HEART_BEAT, "a body that is no JSON object", b"?"),
    asked(Code.CONSUMER_SEND_MSG_BACK, "an unknown group", group="g", offset=7, delayLevel=0),
    asked(Code.GET_CONSUMER_LIST_BY_GROUP, "a group without a member", consumerGroup="g"),
    asked(Code.LOCK_BATCH_MQ, "a body that is no JSON object", b"?"),
    asked(
        Code.CHECK_CLIENT_CONFIG,
        "a condition that is none",
        orjson.dumps(
            {
                "clientId": "c",
                "group": "g",
                "subscriptionData": {
                    "topic": "orders",
                    "subString": "a >",
                    "expressionType": "SQL92",
                },
            }
        ),
    ),
    asked(Code.GET_ROUTEINFO_BY_TOPIC, "an unknown topic", topic="unknown"),
    asked(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "a body that is no JSON object", b"?"),
    asked(Code.GET_TOPIC_STATS_INFO, "an unknown topic", topic="unknown"),
    asked(Code.GET_CONSUME_STATS, "an unknown group", consumerGroup="g"),
    asked(
        Code.GET_CONSUMER_RUNNING_INFO,
        "a client that is not there",
        consumerGroup="g",
        clientId="c",
    ),
    asked(Code.GET_KV_CONFIG, "a key that is not there", namespace="n", key="k"),
    asked(Code.RECALL_MESSAGE, "a handle that is none", topic="orders", recallHandle="?"),
    asked(Code.RECALL_MESSAGE, "the handle of another topic", topic="orders", recallHandle=HANDLE),
    pop("an unknown topic", topic="unknown"),
    pop("33 messages", maxMsgNums=33),
    pop("a topic that cannot be read", topic="write-only"),
    pop("a queue that the topic has not", queueId=9),
    asked(
        Code.ACK_MESSAGE,
        "a handle that is none",
        consumerGroup="g",
        topic="orders",
        queueId=0,
        extraInfo="?",
        offset=0,
    ),
    asked(
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        "a handle that is none",
        consumerGroup="g",
        topic="orders",
        queueId=0,
        extraInfo="?",
        offset=0,
        invisibleTime=10_000,
    ),
    reply("a reply to a client that is not here"),
    reply("a reply to no client", to=""),
    reply("a reply to another topic", topic="orders"),
    asked(Code.QUERY_ASSIGNMENT, "a body that is no JSON object", b"?"),
    asked(Code.REGISTER_BROKER, "a broker beside this one"),
    Case(77_777, "a code that does not exist", {}),
]


def answered(door: RemotingDoor, case: Case) -> tuple[str, ...]:
    with door.client() as client:
        answer = client.call(case.code, case.fields, case.body)
    status_text = f"`{Status(answer.code).name}` {answer.code}"
    known = case.code in Code.__members__.values()
    name = f"`{Code(case.code).name}` {case.code}" if known else f"{case.code}"
    return name, case.wrong, status_text, answer.remark


def test_each_has_its_code_and_a_sentence(tmp_path: Path) -> None:
    with remoting_door(tmp_path, auto_create=False) as door:
        door.create("orders", queues=1)
        door.create("normal", TopicType.NORMAL, 1)
        for name, perm in (("read-only", 4), ("write-only", 2)):
            door.create(name, queues=1)
            door.submit(ChangeTopic(name, settings=TopicSettings(perm=perm)))
        made = [answered(door, case) for case in CASES]
    assert not [row for row in made if re.search("unexpected|Error|Exception", row[3])]
    found = differences("Remoting", made)
    assert not found, found


def test_what_is_not_supported_is_listed(tmp_path: Path) -> None:
    """Every code of released clients and tools is answered, or on the page among those that are not."""
    with remoting_door(tmp_path) as door:
        codes = set(door.front.codes)
    rows = rows_of("Request codes that are not supported")
    ranges = [[int(number) for number in code.split(" to ")] for code, *_ in rows]
    listed = {code for ends in ranges for code in range(ends[0], ends[-1] + 1)}
    assert set(Code) - codes <= listed
    assert not listed & codes
