"""Check which rights a request of a 4.x client needs, and whether its sender has them.

Codes without an entry in `NEEDS` are for administrators only: topics and groups, settings, figures,
the consumption of others.  Messages are read and sent back by log position, and old clients end
transactions by log position; the rights needed for these are known once that message has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from horolog.access.guard import ACCESS_KEY, ADDED_LATER, Guard
from horolog.access.rules import (
    ADMIN,
    EITHER,
    Identity,
    Need,
    Needs,
    Patterns,
    Right,
    need_of_group,
    need_of_topic,
)
from horolog.errors import HorologError
from horolog.limits import HEARTBEAT_BYTES_MAX
from horolog.protocol.remoting.codes import Code
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.lenient_json import loads
from horolog.protocol.remoting.send_reader import Alike
from horolog.protocol.rocketmq.layout import topic_and_properties
from horolog.server.remoting.link import RemotingLink

_PUB, _SUB = int(Right.PUB), int(Right.SUB)
NO_NEEDS: Needs = ()  # any client with a key may ask


def _send(frame: Frame) -> Needs:
    return (need_of_topic(frame.fields.get("topic", ""), _PUB),)


def _send_short(frame: Frame) -> Needs:
    return (need_of_topic(frame.fields.get("b", ""), _PUB),)


def _end(frame: Frame) -> Needs:
    """Return the needs of ending a transaction; for old clients, which name no topic, none.

    Their topic is looked up later, by the position of the half message.
    """
    return NO_NEEDS if names_no_topic(frame) else _send(frame)


def _consume(frame: Frame) -> Needs:
    of_group = need_of_group(frame.fields.get("consumerGroup", ""))
    return of_group, need_of_topic(frame.fields.get("topic", ""), _SUB)


def _look(frame: Frame) -> Needs:
    return (need_of_topic(frame.fields.get("topic", ""), _SUB),)


def _either(frame: Frame) -> Needs:
    return (need_of_topic(frame.fields.get("topic", ""), EITHER),)


def _member(frame: Frame) -> Needs:
    return (need_of_group(frame.fields.get("consumerGroup", "")),)


def _send_back(frame: Frame) -> Needs:
    return (need_of_group(frame.fields.get("group", "")),)


def _anybody(_frame: Frame) -> Needs:
    return NO_NEEDS


def _heartbeat(frame: Frame) -> Needs:
    needs: list[Need] = []
    for consumer in _objects(_body(frame).get("consumerDataSet")):
        needs.append(need_of_group(_name(consumer, "groupName")))
        needs += _topics(consumer.get("subscriptionDataSet"))
    return tuple(needs)


def _locks(frame: Frame) -> Needs:
    body = _body(frame)
    return need_of_group(_name(body, "consumerGroup")), *_topics(body.get("mqSet"))


def _check_client(frame: Frame) -> Needs:
    body = _body(frame)
    return need_of_group(_name(body, "group")), *_topics([body.get("subscriptionData")])


def _assignment(frame: Frame) -> Needs:
    body = _body(frame)
    return need_of_group(_name(body, "consumerGroup")), need_of_topic(_name(body, "topic"), _SUB)


def _batch_ack(frame: Frame) -> Needs:
    needs: list[Need] = []
    for ack in _objects(_body(frame).get("acks")):
        needs += (need_of_group(_name(ack, "c")), need_of_topic(_name(ack, "t"), _SUB))
    return tuple(needs)


def _body(frame: Frame) -> dict[str, Any]:
    """Return the body as a JSON object, as its handler reads it; empty if the handler refuses it."""
    if len(frame.body) > HEARTBEAT_BYTES_MAX:
        return {}
    try:
        found = loads(frame.body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _objects(listed: object) -> list[dict[str, Any]]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _name(fields: dict[str, Any], field: str) -> str:
    value = fields.get(field)
    return value if isinstance(value, str) else ""


def _topics(listed: object) -> Iterable[Need]:
    return [need_of_topic(_name(each, "topic"), _SUB) for each in _objects(listed)]


NEEDS: dict[int, Callable[[Frame], Needs]] = {
    Code.SEND_MESSAGE: _send,
    Code.SEND_MESSAGE_V2: _send_short,
    Code.SEND_BATCH_MESSAGE: _send_short,
    Code.SEND_REPLY_MESSAGE: _anybody,  # to a client that waits for the reply, by client id
    Code.SEND_REPLY_MESSAGE_V2: _anybody,
    Code.RECALL_MESSAGE: _send,
    Code.END_TRANSACTION: _end,
    Code.PULL_MESSAGE: _consume,
    Code.LITE_PULL_MESSAGE: _consume,
    Code.POP_MESSAGE: _consume,
    Code.ACK_MESSAGE: _consume,
    Code.BATCH_ACK_MESSAGE: _batch_ack,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _consume,
    Code.NOTIFICATION: _consume,
    Code.POLLING_INFO: _consume,
    Code.QUERY_ASSIGNMENT: _assignment,
    Code.CONSUMER_SEND_MSG_BACK: _send_back,
    Code.VIEW_MESSAGE_BY_ID: _anybody,
    Code.QUERY_MESSAGE: _look,
    Code.QUERY_CONSUMER_OFFSET: _consume,
    Code.UPDATE_CONSUMER_OFFSET: _consume,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _look,
    Code.GET_MAX_OFFSET: _look,
    Code.GET_MIN_OFFSET: _look,
    Code.GET_EARLIEST_MSG_STORETIME: _look,
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _member,
    Code.GET_CONSUMER_LIST_BY_GROUP: _member,
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.CHECK_CLIENT_CONFIG: _check_client,
    Code.GET_ROUTEINFO_BY_TOPIC: _either,
    Code.GET_KV_CONFIG: _anybody,
    Code.GET_KVLIST_BY_NAMESPACE: _anybody,
}
"""By the code of the request; for any other one must be an administrator."""

_ALIBABAS = "OnsChannel"
_SIGNED_UNSENT = {"split": "\x01"}
"""A constant of the class of route requests in Alibaba Cloud's ons-client.

The client signs it with what it sends.  The C++ client names the same channel and signs no more
than it sends.
"""

_ANONYMOUS = Identity("", b"", "", False, Patterns({}), Patterns({}))
BY_POSITION = frozenset({Code.VIEW_MESSAGE_BY_ID, Code.CONSUMER_SEND_MSG_BACK})


class RemotingAccess:
    """Checks the rights of requests at the remoting doors.

    open_routes  topics whose routes any client with a key may ask for, to make topics or to reply
    """

    def __init__(self, guard: Guard, open_routes: frozenset[str]) -> None:
        self._guard = guard
        self._open_routes = open_routes

    def check(self, link: RemotingLink, frame: Frame) -> Identity:
        """Return the identity of a request's sender.

        Raise UNAUTHORIZED or FORBIDDEN unless the sender may make the request.
        """
        is_route = frame.code == Code.GET_ROUTEINFO_BY_TOPIC
        if is_route and ACCESS_KEY not in frame.fields and self._guard.unsigned_routes:
            return _ANONYMOUS
        unsent = _SIGNED_UNSENT if is_route and _ALIBABAS in frame.fields else None
        identity = self._guard.signer_of_fields(frame.fields, frame.body, link.address, unsent)
        link.identity, link.guard = identity, self._guard
        needs_of = NEEDS.get(frame.code)
        if is_route and frame.fields.get("topic") in self._open_routes:
            return identity
        identity.check(ADMIN if needs_of is None else needs_of(frame))
        return identity

    def may_send(self, link: RemotingLink, run: Alike) -> bool:
        """Return whether all sends of a run are signed and allowed; if not, check each alone."""
        fields = run.sample.fields
        if not run.shape.is_signed or ADDED_LATER in fields:
            return False
        access_key = fields.get(ACCESS_KEY, "")
        try:
            identity = self._guard.signer_of_all(
                access_key, run.signed(), run.columns.signatures, link.address
            )
            if identity is not None:
                identity.check(NEEDS[run.sample.code](run.sample))
        except HorologError:
            return False
        return identity is not None


def names_no_topic(frame: Frame) -> bool:
    """Return whether a request ends a transaction by position only, without a topic."""
    return frame.code == Code.END_TRANSACTION and not frame.fields.get("topic")


def check_half(identity: Identity, name: str) -> None:
    """Raise FORBIDDEN unless the identity may end transactions of this topic."""
    identity.check((need_of_topic(name, _PUB),))


def check_stored(identity: Identity, layout: bytes) -> None:
    """Raise FORBIDDEN unless the identity may read the topic of this message."""
    identity.check((need_of_topic(topic_and_properties(layout)[0], _SUB),))
