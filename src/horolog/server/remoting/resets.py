"""Notify connected 4.x consumers that their group was reset: they keep offsets of their own.

Push consumers apply the offsets that the broker sends.  Pull consumers ignore them: the next pull
of each queue notifies them, and until then their commits are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from horolog.limits import KIB, MIB
from horolog.protocol.remoting import group_bodies
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import CPP
from horolog.server.remoting.node import Node

_HEADER_BYTES = KIB  # of a notification, rounded up for the work of a small one
_TURN_BYTES = MIB  # of notifications written in one turn: up to 1 000 small ones, some 10 ms


async def notify_reset(
    node: Node, group: str, topic: str, offsets: Mapping[int, int], at_ms: int = 0
) -> None:
    """Notify all members of a group, some in each turn; the stored offsets have changed already."""
    node.pulled.forget(group, topic)
    if node.registry.has_pulling(group):
        node.unseen_resets.record(group, topic, offsets)
    fields = {"topic": topic, "group": group, "timestamp": str(at_ms), "isForce": "true"}
    bodies = {
        True: group_bodies.offsets_for_cpp(topic, node.broker_name, offsets),
        False: group_bodies.offsets(topic, node.broker_name, offsets),
    }
    size = 0
    for member in node.registry.members(group):
        body = bodies[member.language == CPP]
        member.link.push(Code.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
        size += _HEADER_BYTES + len(body)
        if size > _TURN_BYTES:
            size = 0
            await asyncio.sleep(0)
