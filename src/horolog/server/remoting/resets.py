"""Tells connected 4.x consumers that their group goes on elsewhere: they keep offsets of their own.

Push consumers do what the broker sends them.  Pull consumers take no notice of it: the next pull of each queue tells
them, and until then what they commit is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from horolog.protocol.remoting import group_bodies
from horolog.protocol.remoting.codes import Code
from horolog.server.remoting.node import Node

_CPP = "CPP"


def tell_reset(
    node: Node, group: str, topic: str, offsets: Mapping[int, int], at_ms: int = 0
) -> None:
    """All members of a group; what is stored has changed already."""
    node.pulled.forget(group, topic)
    if node.registry.has_pulling(group):
        node.moved.note(group, topic, offsets)
    fields = {"topic": topic, "group": group, "timestamp": str(at_ms), "isForce": "true"}
    for member in node.registry.members(group):
        encode_offsets = (
            group_bodies.offsets_for_cpp if member.language == _CPP else group_bodies.offsets
        )
        body = encode_offsets(topic, node.broker_name, offsets)
        member.link.push(Code.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
