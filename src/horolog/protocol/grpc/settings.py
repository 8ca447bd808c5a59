"""Settings that a client receives over its Telemetry stream, and routes."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from horolog.errors import ErrorCode, refused
from horolog.limits import BODY_MAX, POLL_MAX_MS, RECEIVE_BATCH_MAX, RETRY_MULTIPLIER_MAX
from horolog.protocol.accepted import ACCEPTED
from horolog.protocol.commands import TopicView
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.translate import duration_ms
from horolog.protocol.queue_commands import GroupSettings
from horolog.protocol.rocketmq.backoff import BY_LEVELS, Exponential, Pauses
from horolog.protocol.topic_commands import PERM_READ, PERM_WRITE


def merged_settings(sent: pb.Settings, language: str) -> pb.Settings:
    """Return the settings that the client sent, with the broker's part filled in."""
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
    settings.backoff_policy.CopyFrom(consumer_policy(GroupSettings(), language))
    return settings


def order(subscription: pb.Subscription, language: str, *, orderly: bool) -> None:
    """Set whether the group of a consumer consumes in order.

    While a failed message waits for its next attempt, the Go client consumes the rest of what it
    received.  So it receives one message at a time: the broker delivers no message of a message
    group while another one is with the client.
    """
    subscription.fifo = orderly
    if orderly and language == "GO":
        subscription.receive_batch_size = 1


def polling_ms(merged: pb.Settings) -> int | None:
    """Return how long polls wait without their own timeout (Java 5.0.3); None: no consumer."""
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
    """Return the time; ILLEGAL_POLLING_TIME if it is negative.

    The poll itself shortens a time that is too long.
    """
    if poll_ms < 0:
        raise refused(
            "long_polling_timeout",
            f"{poll_ms} ms; 0 or more is needed",
            "at least 0 ms",
            code=ErrorCode.ILLEGAL_POLLING_TIME,
        )
    return poll_ms


def consumer_policy(settings: GroupSettings, language: str) -> pb.RetryPolicy:
    """Return how long a push consumer waits before it retries a failed message, attempt by attempt.

    The official clients give up after `max_attempts` for FIFO consumers only, and leave the others
    to the broker.  The Node client knows an exponential policy only, the Python client only a list,
    of whole seconds.

    language  the header x-mq-language
    """
    backoff, attempts = settings.backoff or BY_LEVELS, settings.attempts_max
    if language == "HTTP" and settings.backoff is None:
        backoff = Exponential()
    if language == "HTTP" and isinstance(backoff, Pauses):
        backoff = _grown(backoff)
    if language == "PYTHON" or isinstance(backoff, Pauses):
        pauses = [_duration(ms, whole=language == "PYTHON") for ms in backoff.listed(attempts)]
        return pb.RetryPolicy(
            max_attempts=attempts, customized_backoff=pb.CustomizedBackoff(next=pauses)
        )
    grown = pb.ExponentialBackoff(
        initial=_duration(backoff.initial_ms),
        max=_duration(backoff.max_ms),
        multiplier=backoff.multiplier,
    )
    return pb.RetryPolicy(max_attempts=attempts, exponential_backoff=grown)


def _grown(pauses: Pauses) -> Exponential:
    """Approximate a list of pauses: grow from the first to the longest pause, in as many steps."""
    first, last = max(1, pauses.next_ms[0]), max(1, *pauses.next_ms)
    steps = max(1, pauses.next_ms.index(max(pauses.next_ms)))
    multiplier = round((last / first) ** (1 / steps))
    return Exponential(first, last, min(max(multiplier, 1), RETRY_MULTIPLIER_MAX))


def _duration(ms: int, *, whole: bool = False) -> Duration:
    """Convert milliseconds to a Duration; with `whole` to seconds, rounded up."""
    if whole:
        return Duration(seconds=-(-ms // 1_000))
    return Duration(seconds=ms // 1_000, nanos=ms % 1_000 * 1_000_000)


def route(
    topic: pb.Resource, view: TopicView, broker_name: str, endpoints: pb.Endpoints
) -> list[pb.MessageQueue]:
    """Return the queues of a topic, at the address that the client dialled.

    Clients send only message types that the topic accepts.  If a topic has fewer queues for one
    direction than for the other, the queues for both come first.
    """
    broker = pb.Broker(name=broker_name, id=0, endpoints=endpoints)
    # Without fields that this version does not know: each queue has a copy.
    named = pb.Resource(resource_namespace=topic.resource_namespace, name=topic.name)
    accepted: list[pb.MessageType | str] = [kind.name for kind in ACCEPTED[view.type]]
    return [
        pb.MessageQueue(
            topic=named,
            id=queue_id,
            permission=permission,
            broker=broker,
            accept_message_types=accepted,
        )
        for queue_id, permission in enumerate(_permissions(view))
    ]


def _permissions(view: TopicView) -> list[pb.Permission]:
    """Return a permission for each queue that clients see; one NONE where nothing is allowed."""
    perm = view.settings.perm
    read = view.read_queues if perm & PERM_READ else 0
    write = view.write_queues if perm & PERM_WRITE else 0
    both, most = min(read, write), max(read, write)
    surplus = pb.READ if read > write else pb.WRITE
    return [pb.READ_WRITE] * both + [surplus] * (most - both) or [pb.NONE]
