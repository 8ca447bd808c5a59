"""Messages by id or key over HTTP, limited to those that the caller may see.

A message id alone is enough, because it may be all that a user has; a key belongs to a topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from horolog.access import rules
from horolog.admin.answers import admit_known_caller, engine_of, may, require
from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.commands import FindMessages, FoundMessage
from horolog.protocol.rocketmq.names import check_topic
from horolog.server import messages

_OF_OTHERS = "%"  # %RETRY%group and the like hold further records of other topics' messages


async def find_named(request: Request, parameters: Mapping[str, str]) -> list[FoundMessage]:
    """Return messages with the query's `id` or `key`, of its `topic` if given; may be empty."""
    topic, message_id, key = (parameters.get(name, "") for name in ("topic", "id", "key"))
    if bool(message_id) == bool(key) or (key and not topic):
        require(request)
        raise refused("topic", "give id, or topic and key")
    if topic:
        require(request, rules.need_of_topic(check_topic(topic), rules.Right.SUB))
        return await messages.find(engine_of(request), FindMessages(topic, message_id, key))
    found: list[FoundMessage] = []
    for each in await _topics_with(request, message_id):
        found += await messages.find(engine_of(request), FindMessages(each, message_id))
    return found


async def topic_of(request: Request, message_id: str) -> str:
    """Return the topic of the message with an id; NOT_FOUND, or BAD_REQUEST that names several."""
    topics = await _topics_with(request, message_id)
    own = [topic for topic in topics if not topic.startswith(_OF_OTHERS)] or topics
    if not own:
        raise HorologError(
            ErrorCode.NOT_FOUND,
            f"no message with id {message_id!r} is known; what retention has dropped is not",
            field="id",
        )
    if len(own) > 1:
        raise refused("topic", f"messages of {', '.join(own)} have that id: give the topic")
    return own[0]


async def _topics_with(request: Request, message_id: str) -> list[str]:
    """Return the topics with messages of an id, if the caller may read them."""
    admit_known_caller(request)
    known = await messages.topics_with(engine_of(request), message_id)
    return [topic for topic in known if may(request, rules.need_of_topic(topic, rules.Right.SUB))]
