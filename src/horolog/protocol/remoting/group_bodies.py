"""Bodies about consumer groups for admin tools, with the field names of Java's classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from horolog.errors import refused
from horolog.protocol.queue_commands import GroupSettings, GroupView
from horolog.protocol.remoting import object_keys
from horolog.protocol.remoting.request import I32_MAX, I32_MIN
from horolog.protocol.remoting.topic_bodies import DATA_VERSION, encode, queue_key
from horolog.protocol.rocketmq import backoff

_UNUSED: dict[str, object] = {
    "brokerId": 0,
    "consumeFromMinEnable": True,
    "consumeTimeoutMinute": 15,
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""Keys that Java's tools read and this broker ignores, with the values shown until a client sets
others.
"""
_SWITCHES = {
    "consumeEnable": "consume_enable",
    "consumeBroadcastEnable": "broadcast_enable",
    "consumeMessageOrderly": "orderly",
}
_ATTRIBUTES = "attributes"
_SUBSCRIPTIONS = "subscriptionDataSet"
_KNOWN = {
    "lite.bind.topic",
    "lite.sub.client.max.event.cnt",
    "lite.sub.client.quota",
    "lite.sub.model",
    "lite.sub.reset.offset.exclusive",
    "lite.sub.reset.offset.unsubscribe",
    "lite.sub.wildcard",
    "priority.factor",
}
"""Group attributes that RocketMQ defines and this broker ignores."""
_NUMBERS = {"retryQueueNums": "retry_queues", "retryMaxTimes": "retry_max"}


class QueueProgress(NamedTuple):
    """Progress of a group in one queue.

    pulled       next offset to deliver; at least `committed`
    consumed_ms  when the last consumed message was stored; 0: unknown
    """

    topic: str
    queue_id: int
    max_offset: int
    committed: int
    pulled: int
    consumed_ms: int


def group_config(group: GroupView) -> dict[str, Any]:
    """Build a SubscriptionGroupConfig."""
    settings = group.settings
    found = {**_UNUSED, **settings.attributes, "groupName": group.name}
    found |= {key: getattr(settings, name) for key, name in _SWITCHES.items()}
    found[backoff.FIELD] = backoff.policy_of(settings.backoff)
    return found | {key: getattr(settings, name) for key, name in _NUMBERS.items()}


def config_entry(group: GroupView) -> bytes:
    """Encode an entry of a table of SubscriptionGroupConfigs: one by one, as of topics."""
    return orjson.dumps(group.name) + b":" + encode(group_config(group))


def group_configs(entries: Iterable[bytes]) -> bytes:
    """Encode a SubscriptionGroupWrapper of `config_entry`s."""
    return encode(
        {
            "dataVersion": DATA_VERSION,
            "forbiddenTable": {},
            "subscriptionGroupTable": object_keys.table_of(entries),
        }
    )


def read_group_config(body: Mapping[str, Any]) -> tuple[str, GroupSettings]:
    """Return name and settings from a SubscriptionGroupConfig.  BAD_REQUEST names what is wrong."""
    name = body.get("groupName")
    if not isinstance(name, str):
        raise refused("groupName", "a name is needed")
    known: dict[str, Any] = {}
    others: dict[str, object] = {}
    for key, value in body.items():
        if key in _SWITCHES:
            known[_SWITCHES[key]] = _switch(key, value)
        elif key in _NUMBERS:
            known[_NUMBERS[key]] = _number(key, value)
        elif key == backoff.FIELD:
            known["backoff"] = backoff.backoff_of(value)
        elif key != "groupName" and value is not None:
            _check_unused(key, value)
            others[key] = value
    return name, GroupSettings(**known, attributes=others)


def _switch(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise refused(key, f"{value!r:.40} is neither true nor false")
    return value


def _number(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise refused(key, f"{value!r:.40} is no number")
    return value


def _check_unused(key: str, value: object) -> None:
    """Check the type of a value that is only shown: Java's tools fail for all groups on another."""
    if isinstance(_UNUSED.get(key), bool):
        _switch(key, value)
    elif key in _UNUSED and not I32_MIN <= _number(key, value) <= I32_MAX:
        raise refused(key, f"{value}; {I32_MIN} to {I32_MAX} are allowed")
    elif key == _SUBSCRIPTIONS:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise refused(key, f"{value!r:.40} is no list of objects")
        for entry in value:
            _number(f"{key}.version", entry.get("version") or 0)


def with_attributes_of(before: GroupSettings, settings: GroupSettings) -> GroupSettings:
    """Return settings sent by a client, with the group's attributes changed as the client asks.

    `+name` sets an attribute and `-name` removes it, as tools send them; a bare name, as tools
    receive it, sets it too.  BAD_REQUEST for setting an unknown name: otherwise a mistyped name
    would go unnoticed.
    """
    changes = settings.attributes.get(_ATTRIBUTES, {})
    if not isinstance(changes, dict):
        raise refused(_ATTRIBUTES, f"{changes!r:.40} is no table")
    found = before.attributes.get(_ATTRIBUTES)
    kept = dict(found) if isinstance(found, dict) else {}
    for change, value in changes.items():
        name = change.removeprefix("+")
        if name.startswith("-"):
            kept.pop(name[1:], None)
        elif name in _KNOWN:
            kept[name] = value
        else:
            known = ", ".join(sorted(_KNOWN))
            raise refused(_ATTRIBUTES, f"{name[:40]!r} is not known; there are {known}")
    others = {key: value for key, value in settings.attributes.items() if key != _ATTRIBUTES}
    if kept or _ATTRIBUTES in settings.attributes:
        others[_ATTRIBUTES] = kept
    return replace(settings, attributes=others)


def progress_entry(broker: str, queue: QueueProgress) -> bytes:
    """Encode an entry of a ConsumeStats."""
    return object_keys.entry(
        queue_key(queue.topic, broker, queue.queue_id),
        {
            "brokerOffset": queue.max_offset,
            "consumerOffset": queue.committed,
            "lastTimestamp": queue.consumed_ms,
            "pullOffset": queue.pulled,
        },
    )


def consume_stats(entries: Iterable[bytes], rate: float) -> dict[str, Any]:
    """Build a ConsumeStats of `progress_entry`s; `rate` is in messages a second."""
    return {"consumeTps": rate, "offsetTable": object_keys.table_of(entries)}


def offsets(topic: str, broker: str, found: Mapping[int, int]) -> bytes:
    """Encode a ResetOffsetBody, as Java and Go read it."""
    rows = ((queue_key(topic, broker, queue_id), offset) for queue_id, offset in found.items())
    return encode({"offsetTable": object_keys.table(rows)})


def offsets_for_cpp(topic: str, broker: str, found: Mapping[int, int]) -> bytes:
    """Encode a ResetOffsetBodyForC, which has the offsets as a list."""
    rows = [
        {**queue_key(topic, broker, queue_id), "offset": offset}
        for queue_id, offset in found.items()
    ]
    return encode({"offsetTable": rows})
