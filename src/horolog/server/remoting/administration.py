"""All families of handlers for admin tools."""

from __future__ import annotations

from horolog.server.remoting.family import Family
from horolog.server.remoting.figures import FigureCodes
from horolog.server.remoting.groups import GroupCodes
from horolog.server.remoting.members import MemberCodes
from horolog.server.remoting.node import Node
from horolog.server.remoting.topics import TopicCodes


def admin_families(node: Node) -> list[Family]:
    """Return the handlers of the requests of `mqadmin` and RocketMQ's dashboard."""
    return [
        TopicCodes(node),
        GroupCodes(node),
        MemberCodes(node),
        FigureCodes(node),
    ]
