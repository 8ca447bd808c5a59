"""Check which rights a call of a 5.x client needs, and whether its sender has them.

Routes may be read by senders and consumers of a topic; the end of a transaction needs the rights of
its sends; a heartbeat says which group it is of, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horolog.access.guard import Guard
from horolog.access.rules import ADMIN, EITHER, Needs, Right, need_of_group, need_of_topic
from horolog.errors import HorologError
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.quick_acks import QuickAck
from horolog.protocol.grpc.quick_sends import QuickSend
from horolog.protocol.grpc.translate import name_of
from horolog.server.call import Call

_PUB, _SUB = int(Right.PUB), int(Right.SUB)


def _send(request: QuickSend | pb.SendMessageRequest) -> Needs:
    if isinstance(request, QuickSend):
        return (need_of_topic(request.topic, _PUB),)
    if not request.messages:
        return ()
    return (need_of_topic(name_of(request.messages[0].topic), _PUB),)  # others are refused later


def _publish(request: Any) -> Needs:
    return (need_of_topic(name_of(request.topic), _PUB),)


def _route(request: pb.QueryRouteRequest) -> Needs:
    return (need_of_topic(name_of(request.topic), EITHER),)


def _consume(request: Any) -> Needs:
    if isinstance(request, QuickAck):
        return need_of_group(request.group), need_of_topic(request.topic, _SUB)
    return need_of_group(name_of(request.group)), need_of_topic(name_of(request.topic), _SUB)


def _of_queue(request: Any) -> Needs:
    of_topic = need_of_topic(name_of(request.message_queue.topic), _SUB)
    if "group" not in request.DESCRIPTOR.fields_by_name:
        return (of_topic,)
    return need_of_group(name_of(request.group)), of_topic


def _of_member(request: Any) -> Needs:
    # The Go client sends an empty group when a producer terminates.
    return (need_of_group(name_of(request.group)),) if request.group.name else ()


NEEDS: dict[str, Callable[[Any], Needs]] = {
    "SendMessage": _send,
    "RecallMessage": _publish,
    "EndTransaction": _publish,
    "QueryRoute": _route,
    "QueryAssignment": _consume,
    "ReceiveMessage": _of_queue,
    "AckMessage": _consume,
    "ChangeInvisibleDuration": _consume,
    "ForwardMessageToDeadLetterQueue": _consume,
    "PullMessage": _of_queue,
    "UpdateOffset": _of_queue,
    "GetOffset": _of_queue,
    "QueryOffset": _of_queue,
    "SyncLiteSubscription": _consume,
    "Heartbeat": _of_member,
    "NotifyClientTermination": _of_member,
}
"""By the name of the call; for any other one must be an administrator."""


def _of_settings(settings: pb.Settings) -> Needs:
    if settings.HasField("publishing"):
        return tuple(need_of_topic(name_of(each), _PUB) for each in settings.publishing.topics)
    wanted = settings.subscription
    topics = [need_of_topic(name_of(each.topic), _SUB) for each in wanted.subscriptions]
    return need_of_group(name_of(wanted.group)), *topics


class GrpcAccess:
    """Checks the rights of calls of the gRPC door."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def check(self, name: str, request: Any, call: Call) -> None:
        """Raise UNAUTHORIZED or FORBIDDEN unless the sender of a request may make the call."""
        needs = NEEDS.get(name)
        self._check(call, ADMIN if needs is None else needs(request))

    def check_settings(self, call: Call, settings: pb.Settings) -> None:
        """Raise UNAUTHORIZED or FORBIDDEN unless a client may do what its settings say."""
        self._check(call, _of_settings(settings))

    def may_publish(self, call: Call, name: str) -> bool:
        """Return whether the caller may send to a topic, with the access file as it is now."""
        try:
            self._check(call, (need_of_topic(name, _PUB),))
        except HorologError:
            return False
        return True

    def _check(self, call: Call, needs: Needs) -> None:
        fields = call.head.fields
        identity = self._guard.signer_of_headers(
            fields.get(b"authorization", b""), fields.get(b"x-mq-date-time", b""), call.address
        )
        identity.check(needs)
