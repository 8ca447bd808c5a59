"""Notify connected 4.x consumers that their group was reset: they keep offsets of their own.

Push consumers apply the offsets that the broker sends.  Pull consumers ignore them: the next pull
of each queue notifies them, and until then their commits are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from horolog.protocol.remoting import group_bodies
from horolog.protocol.remoting.codes import Code
from horolog.server.remoting.node import Node

_CPP = "CPP"


def notify_reset(
    node: Node, group: str, topic: str, offsets: Mapping[int, int], at_ms: int = 0
) -> None:
    """Notify all members of a group; the stored offsets have changed already."""
    node.pulled.forget(group, topic)
    if node.registry.has_pulling(group):
        node.moved.record(group, topic, offsets)
    fields = {"topic": topic, "group": group, "timestamp": str(at_ms), "isForce": "true"}
    for member in node.registry.members(group):
        encode_offsets = (
            group_bodies.offsets_for_cpp if member.language == _CPP else group_bodies.offsets
        )
        body = encode_offsets(topic, node.broker_name, offsets)
        member.link.push(Code.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
