"""Message groups: messages that are consumed one after the other, in the order they came.

A message names its group in the property __SHARDINGKEY, which the 5.x protocol calls `message_group`.  All messages of
a group go to one queue, so that their order is that of the queue.
"""

from __future__ import annotations

from xxhash import xxh64_intdigest

from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.tags import tags_code

NO_GROUP = 0


def group_code(message_group: str) -> int:
    """u32 that chooses the queue of a group: its Java hash, as in RocketMQ; 0 only without a group."""
    return tags_code(message_group) & 0xFFFFFFFF or (1 if message_group else 0)


def group_hash(stored_layout: memoryview) -> int:
    """u64 that stands for the message group of a stored message, `NO_GROUP` if it has none.

    Two groups with the same one wait for each other; nothing is out of order.
    """
    group = properties.value_of(layout.properties_of(stored_layout), properties.SHARDING_KEY)
    return xxh64_intdigest(group.encode()) if group else NO_GROUP
