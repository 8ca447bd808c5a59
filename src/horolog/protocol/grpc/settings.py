"""Settings that a client is told over its Telemetry stream, and routes (protocol notes §1.7, §1.8)."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from horolog.errors import ErrorCode, HorologError
from horolog.limits import BODY_MAX, POLL_MAX_MS, RECEIVE_BATCH_MAX
from horolog.protocol.accepted import ACCEPTED
from horolog.protocol.commands import TopicView
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.translate import duration_ms
from horolog.protocol.queue_commands import GroupSettings

_ATTEMPTS = GroupSettings().retry_max + 1
_LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


def merged_settings(sent: pb.Settings, language: str) -> pb.Settings:
    """What the client sent, with the broker's part filled in."""
    settings = pb.Settings()
    settings.CopyFrom(sent)
    settings.metric.CopyFrom(pb.Metric(on=False))
    if settings.HasField("publishing"):
        settings.publishing.max_body_size = BODY_MAX
        settings.publishing.validate_message_type = True
        settings.backoff_policy.CopyFrom(
            pb.RetryPolicy(
                max_attempts=3,
                exponential_backoff=pb.ExponentialBackoff(
                    initial=Duration(nanos=10_000_000), max=Duration(seconds=1), multiplier=2
                ),
            )
        )
        return settings
    subscription = settings.subscription
    subscription.fifo = False
    subscription.receive_batch_size = RECEIVE_BATCH_MAX
    if sent.client_type == pb.PUSH_CONSUMER or not subscription.HasField("long_polling_timeout"):
        subscription.long_polling_timeout.CopyFrom(Duration(seconds=POLL_MAX_MS // 1000))
    settings.backoff_policy.CopyFrom(_consumer_policy(language))
    return settings


def polling_ms(merged: pb.Settings) -> int | None:
    """How long a consumer's polls wait that do not say so themselves, as Java 5.0.3; None: no consumer."""
    if not merged.HasField("subscription"):
        return None
    return check_polling(
        duration_ms(
            merged.subscription.long_polling_timeout,
            "long_polling_timeout",
            ErrorCode.ILLEGAL_POLLING_TIME,
        )
    )


def check_polling(poll_ms: int) -> int:
    """The time itself, ILLEGAL_POLLING_TIME if it is negative; too much is cut by whoever polls."""
    if poll_ms < 0:
        raise HorologError(
            ErrorCode.ILLEGAL_POLLING_TIME,
            f"long_polling_timeout: {poll_ms} ms; 0 or more is needed",
            field="long_polling_timeout",
            limit="at least 0 ms",
        )
    return poll_ms


def _consumer_policy(language: str) -> pb.RetryPolicy:
    """How long a push consumer waits before it takes a failed message again, attempt by attempt.

    The official clients give up after `max_attempts` for FIFO consumers only, and leave the others to the broker.
    A group with settings of its own has another number, which the caller knows.
    """
    if language == "HTTP":  # the Node client knows only this one
        return pb.RetryPolicy(
            max_attempts=_ATTEMPTS,
            exponential_backoff=pb.ExponentialBackoff(
                initial=Duration(seconds=5), max=Duration(seconds=7200), multiplier=2
            ),
        )
    return pb.RetryPolicy(
        max_attempts=_ATTEMPTS,
        customized_backoff=pb.CustomizedBackoff(next=[Duration(seconds=s) for s in _LEVELS_S]),
    )


def route(
    topic: pb.Resource, view: TopicView, broker_name: str, endpoints: pb.Endpoints
) -> list[pb.MessageQueue]:
    """One queue after the other, reachable where the client dialled; clients send only what it accepts."""
    broker = pb.Broker(name=broker_name, id=0, endpoints=endpoints)
    accepted: list[pb.MessageType | str] = [kind.name for kind in ACCEPTED[view.type]]
    return [
        pb.MessageQueue(
            topic=topic,
            id=queue_id,
            permission=pb.READ_WRITE,
            broker=broker,
            accept_message_types=accepted,
        )
        for queue_id in range(view.queues)
    ]
