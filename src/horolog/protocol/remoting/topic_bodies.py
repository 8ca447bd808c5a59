"""Bodies about topics for admin tools, with the field names of Java's classes.

The `attributes` of a topic are one text, `+message.type=DELAY,+cleanup.policy=DELETE`: `+` sets an
attribute, `-` removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from horolog.errors import HorologError, refused
from horolog.protocol.commands import TopicType, TopicView
from horolog.protocol.remoting import object_keys

MESSAGE_TYPE = "message.type"
MULTI_TAG = "multi.tag"  # ours: of RocketMQ's tools, only Java programs send `topicFilterType`
_UNSPECIFIED = "UNSPECIFIED"  # a RocketMQ topic without a type accepts all messages of 4.x clients
LATE = "horolog.late"  # attribute with the late policy
_KEPT = ("cleanup.policy", "lite.topic.expiration", "queue.type", "reserve.time")
"""Topic attributes that RocketMQ defines and this broker only stores and shows."""
_KNOWN = frozenset({*_KEPT, MESSAGE_TYPE, MULTI_TAG, LATE})
DATA_VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 0}  # configuration has no versions


class QueueState(NamedTuple):
    """State of one queue of a topic."""

    min_offset: int
    max_offset: int
    stored_ms: int  # when the newest message was stored; 0: the queue has none


def encode(body: Mapping[str, Any]) -> bytes:
    """Encode a body as compact JSON, since older clients read no other form."""
    return orjson.dumps(body)


def queue_key(topic: str, broker: str, queue_id: int) -> dict[str, object]:
    """Return a queue as a key of a table."""
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}


def topic_config(topic: TopicView) -> dict[str, Any]:
    """Build a TopicConfig."""
    attributes = {**topic.settings.attributes, MESSAGE_TYPE: topic.type.value.upper()}
    policy = topic.settings.late_policy
    if not policy.is_default:
        attributes[LATE] = str(policy)
    if topic.settings.multi_tag:
        attributes[MULTI_TAG] = "true"
    return {
        "attributes": attributes,
        "order": topic.settings.order,
        "perm": topic.settings.perm,
        "readQueueNums": topic.read_queues,
        "topicFilterType": "MULTI_TAG" if topic.settings.multi_tag else "SINGLE_TAG",
        "topicName": topic.name,
        "topicSysFlag": 0,
        "writeQueueNums": topic.write_queues,
    }


def fields_of_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a TopicConfig as the fields of a request about one topic.

    Attribute names keep their signs.
    """
    attributes = config.get("attributes")
    found = {
        name: str(config[name])
        for name in ("readQueueNums", "writeQueueNums", "perm", "order", "topicFilterType")
        if config.get(name) is not None
    }
    if isinstance(config.get("topicName"), str):
        found["topic"] = config["topicName"]
    if isinstance(attributes, dict):
        found["attributes"] = ",".join(f"{name}={value}" for name, value in attributes.items())
    return found


def config_entry(topic: TopicView) -> bytes:
    """Encode an entry of a table of TopicConfigs: one by one, since there may be thousands."""
    return orjson.dumps(topic.name) + b":" + orjson.dumps(topic_config(topic))


def topic_configs(entries: Iterable[bytes]) -> bytes:
    """Encode a TopicConfigSerializeWrapper of `config_entry`s."""
    table = orjson.Fragment(b"{" + b",".join(entries) + b"}")
    return encode({"dataVersion": DATA_VERSION, "topicConfigTable": table})


def topic_list(names: Iterable[str], broker_address: str = "") -> bytes:
    """Encode a TopicList."""
    found: dict[str, Any] = {"topicList": list(names)}
    if broker_address:
        found["brokerAddr"] = broker_address
    return encode(found)


def topic_stats(topic: str, broker: str, queues: Sequence[QueueState], puts: float) -> bytes:
    """Encode a TopicStatsTable: an entry for every queue, also one that never had a message.

    puts  messages a second
    """
    rows = (
        (
            queue_key(topic, broker, queue_id),
            {
                "lastUpdateTimestamp": queue.stored_ms,
                "maxOffset": queue.max_offset,
                "minOffset": queue.min_offset,
            },
        )
        for queue_id, queue in enumerate(queues)
    )
    return encode({"offsetTable": object_keys.table(rows), "topicPutTps": puts})


def multi_tag_wanted(filter_type: str, changes: dict[str, str | None]) -> bool | None:
    """Return whether messages shall have several tags; None if the request does not say.

    The attribute is removed from `changes`.  SINGLE_TAG does not count: mqadmin sends it with every
    change of a topic.
    """
    if MULTI_TAG not in changes:
        return True if filter_type == "MULTI_TAG" else None
    value = changes.pop(MULTI_TAG)
    if value not in (None, "true", "false"):
        raise _bad_attribute(f"{MULTI_TAG} {value[:40]!r}; true and false are allowed")
    return value == "true"


def attributes_wanted(attributes: str) -> tuple[TopicType | None, dict[str, str | None]]:
    """Return the type that attributes ask for (None: no type), and other changes (None: remove).

    BAD_REQUEST names what is wrong, also an unknown name to set: otherwise a mistyped name would go
    unnoticed.  Any name can be removed.
    """
    type: TopicType | None = None
    changes: dict[str, str | None] = {}
    for change in filter(None, (piece.strip() for piece in attributes.split(","))):
        name, is_set, value = change[1:].partition("=")
        if change[0] not in "+-" or not name or bool(is_set) != (change[0] == "+"):
            raise _bad_attribute(f"{change[:40]!r} is neither +name=value nor -name")
        if is_set and name not in _KNOWN:
            raise _bad_attribute(
                f"{name[:40]!r} is not known; there are {', '.join(sorted(_KNOWN))}"
            )
        if name == MESSAGE_TYPE:
            type = _type_named(value)
        else:
            changes[name] = value if is_set else None
    return type, changes


def _type_named(name: str) -> TopicType:
    if name.upper() in ("", _UNSPECIFIED):
        return TopicType.MIXED
    try:
        return TopicType(name.lower())
    except ValueError:
        known = ", ".join(type.name for type in TopicType)
        raise _bad_attribute(f"{MESSAGE_TYPE} {name[:40]!r}; there are {known}") from None


def _bad_attribute(why: str) -> HorologError:
    return refused("attributes", why)
