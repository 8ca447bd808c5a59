"""Frames of 4.x clients, with changed bits and fields."""

from __future__ import annotations

import random
from collections.abc import Iterator

import orjson

from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Flag, Frame, Serializer
from horolog.protocol.remoting.frame_writer import encode

_NAMES = ("topic", "b", "consumerGroup", "group", "queueId", "e", "offset", "queueOffset", "properties", "i",
          "sysFlag", "maxMsgNums", "commitOffset", "timestamp", "key", "clientID", "subscription", "isForce",
          "suspendTimeoutMillis", "recallHandle", "producerGroup", "delayLevel", "extraInfo", "attributes")  # fmt: skip
_VALUES = ("", "0", "-1", "1", "t", "g", "%RETRY%g", "%DLQ%g", "no blank", "9223372036854775807", "-9223372036854775808",
           "99999999999999999999", "4294967296", "true", "TagA || TagB", "||", "*", "\x01\x02", "DELAY\x013\x02",
           "TIMER_DELAY_SEC\x011\x02", "UNIQ_KEY\x01A\x02KEYS\x01k\x02", "é☃", "x" * 300, "TBW102")  # fmt: skip
_BODIES = (
    b"", b"{}", b"[]", b"null", b"body", b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
    b'[{"topic":"t","subString":"*"}]}]}', b'{"groupName":"g"}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"t","brokerName":"b","queueId":0}]}',
    b"\0\0\0\x1b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05hello\0\0",
)  # fmt: skip
_WELL_FORMED = {
    "a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "WAIT\x01true\x02",
    "j": "0", "k": "false", "m": "false", "topic": "t", "consumerGroup": "g", "group": "g", "queueId": "0",
    "queueOffset": "0", "offset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "clientID": "c",
    "subscription": "*", "key": "k", "timestamp": "0", "beginTimestamp": "0", "endTimestamp": "9", "maxNum": "9",
}  # fmt: skip


def requests(seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` frames: most could be a client's requests, some have a wrong bit, some are noise."""
    chance = random.Random(seed)
    for number in range(count):
        raw = encode(_request(chance, number))
        if chance.random() < 0.02:
            raw = _spoilt(chance, raw)
        yield raw


def _request(chance: random.Random, number: int) -> Frame:
    fields = dict(_WELL_FORMED)
    for _ in range(chance.choice((0, 0, 1, 2, 4))):
        fields[chance.choice(_NAMES)] = chance.choice(_VALUES)
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        fields.pop(chance.choice(list(fields)), None)
    # There is nothing to wait for here, and any offset commit will do.
    fields["suspendTimeoutMillis"] = "0"
    body = chance.choice(_BODIES)
    if chance.random() < 0.1:
        body = _mutated_json(chance, body)
    serializer = chance.choice((Serializer.JSON, Serializer.JSON, Serializer.ROCKETMQ))
    code = chance.choice(list(Code)) if chance.random() < 0.95 else chance.randrange(-5, 40_000)
    if serializer is Serializer.ROCKETMQ and not -(1 << 15) <= code < 1 << 15:
        serializer = Serializer.JSON
    flag = Flag.ONE_WAY if chance.random() < 0.05 else Flag(0)
    return Frame(
        code, number, flag, fields, body, language="JAVA", version=401, serializer=serializer
    )


def _mutated_json(chance: random.Random, body: bytes) -> bytes:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    if isinstance(found, dict) and found:
        found[chance.choice(list(found))] = chance.choice(
            (None, 1, "x", [], {}, [1], [[]], [{}], 1e300)
        )
    return orjson.dumps(found)


def _spoilt(chance: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)
