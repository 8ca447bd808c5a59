"""Message groups: messages that are consumed one after another, in the order of their arrival.

A message names its group in the property __SHARDINGKEY, which the 5.x protocol calls
`message_group`.  All messages of a group go to one queue, so their order is that of the queue.
"""

from __future__ import annotations

from xxhash import xxh64_intdigest

from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.tags import tags_code

NO_GROUP = 0


def group_code(message_group: str) -> int:
    """Return the Java hash (u32) that chooses a group's queue, as in RocketMQ; 0 only for none."""
    return tags_code(message_group) & 0xFFFFFFFF or (1 if message_group else 0)


def group_hash(stored_layout: memoryview) -> int:
    """Return a u64 for the message group of a stored message; `NO_GROUP` if it has none.

    Two groups with the same hash wait for each other; no message gets out of order.
    """
    group = properties.value_of(layout.properties_of(stored_layout), properties.SHARDING_KEY)
    return xxh64_intdigest(group.encode()) if group else NO_GROUP
