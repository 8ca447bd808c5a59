"""Settings and routes as each client needs them."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from horolog.limits import BODY_MAX
from horolog.protocol.commands import TopicType, TopicView
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.settings import consumer_policy, merged_settings, route
from horolog.protocol.queue_commands import GroupSettings
from horolog.protocol.remoting.request import I32_MAX
from horolog.protocol.topic_commands import TopicSettings

ENDPOINTS = pb.Endpoints(scheme=pb.DOMAIN_NAME, addresses=[pb.Address(host="mq.test", port=8081)])


def consumer(client_type: int, **more: object) -> pb.Settings:
    return pb.Settings(
        client_type=client_type,
        request_timeout=Duration(seconds=3),
        access_point=ENDPOINTS,
        subscription=pb.Subscription(group=pb.Resource(name="g"), **more),
        user_agent=pb.UA(hostname="here"),
        metric=pb.Metric(on=True),
    )


def test_a_producer_may_send_full_bodies_and_retries_with_an_exponential_policy() -> None:
    sent = pb.Settings(
        client_type=pb.PRODUCER,
        publishing=pb.Publishing(topics=[pb.Resource(name="t")], max_body_size=1 << 27),
    )
    settings = merged_settings(sent, "JAVA")
    assert settings.publishing.max_body_size == BODY_MAX
    assert settings.publishing.validate_message_type
    assert list(settings.publishing.topics) == [pb.Resource(name="t")]
    policy = settings.backoff_policy
    assert policy.max_attempts == 3
    assert policy.exponential_backoff == pb.ExponentialBackoff(
        initial=Duration(nanos=10_000_000), max=Duration(seconds=1), multiplier=2
    )
    assert sent.publishing.max_body_size == 1 << 27, "the request itself is left alone"


@pytest.mark.parametrize("language", ["JAVA", "PYTHON", "GO", ""])
def test_a_push_consumer_gets_the_ladder_of_delays(language) -> None:
    settings = merged_settings(consumer(pb.PUSH_CONSUMER), language)
    ladder = [pause.seconds for pause in settings.backoff_policy.customized_backoff.next]
    assert (len(ladder), ladder[0], ladder[-1]) == (18, 1, 7200)
    assert ladder == sorted(ladder)
    assert settings.backoff_policy.max_attempts == 17
    assert settings.subscription.long_polling_timeout.seconds == 20
    assert settings.subscription.receive_batch_size == 32
    assert not settings.subscription.fifo


def test_the_node_client_gets_the_only_policy_it_knows() -> None:
    policy = merged_settings(consumer(pb.PUSH_CONSUMER), "HTTP").backoff_policy
    assert policy.exponential_backoff.initial.seconds == 5
    assert policy.exponential_backoff.multiplier == 2
    assert policy.max_attempts == 17


@pytest.mark.parametrize("language", ["JAVA", "PYTHON", "HTTP"])
@pytest.mark.parametrize(("retry_max", "attempts"), [(-1, 1), (0, 1), (I32_MAX, I32_MAX)])
def test_the_fewest_and_the_most_retries_of_a_group(language, retry_max, attempts) -> None:
    policy = consumer_policy(GroupSettings(retry_max=retry_max), language)
    assert policy.max_attempts == attempts


def test_a_simple_consumer_keeps_its_polling_time() -> None:
    sent = consumer(pb.SIMPLE_CONSUMER, long_polling_timeout=Duration(seconds=7))
    assert merged_settings(sent, "PYTHON").subscription.long_polling_timeout.seconds == 7
    none = consumer(pb.SIMPLE_CONSUMER)
    assert merged_settings(none, "PYTHON").subscription.long_polling_timeout.seconds == 20


def test_the_settings_that_a_client_sends_are_returned() -> None:
    sent = consumer(pb.PUSH_CONSUMER)
    settings = merged_settings(sent, "PYTHON")
    for name in ("client_type", "request_timeout", "access_point", "user_agent"):
        assert getattr(settings, name) == getattr(sent, name)
    assert settings.subscription.group == sent.subscription.group
    assert settings.metric == pb.Metric(on=False)


ADVERTISED = {
    TopicType.NORMAL: [pb.NORMAL],
    TopicType.DELAY: [pb.DELAY],
    TopicType.MIXED: [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION],
    TopicType.FIFO: [pb.FIFO],
    TopicType.TRANSACTION: [pb.TRANSACTION],
}


@pytest.mark.parametrize("kind", list(TopicType))
def test_a_route_has_nothing_that_a_client_refuses(kind) -> None:
    topic = pb.Resource(name="t", resource_namespace="ns")
    queues = route(topic, TopicView("t", kind, 3, [0, 0, 0], 0), "broker-a", ENDPOINTS)
    assert [queue.id for queue in queues] == [0, 1, 2]
    for queue in queues:
        assert queue.topic == topic
        assert queue.permission == pb.READ_WRITE
        assert queue.broker == pb.Broker(name="broker-a", id=0, endpoints=ENDPOINTS)
        accepted = list(queue.accept_message_types)
        assert accepted == ADVERTISED[kind], "what a send is taken for, and nothing else"


@pytest.mark.parametrize(
    ("settings", "permissions"),
    [
        (TopicSettings(), [pb.READ_WRITE] * 3),
        (TopicSettings(perm=4), [pb.READ] * 3),
        (TopicSettings(perm=2), [pb.WRITE] * 3),
        (TopicSettings(perm=0), [pb.NONE]),
        (TopicSettings(write_queues=1), [pb.READ_WRITE, pb.READ, pb.READ]),
        (TopicSettings(read_queues=2), [pb.READ_WRITE, pb.READ_WRITE, pb.WRITE]),
        (TopicSettings(perm=4, read_queues=2), [pb.READ] * 2),
    ],
)
def test_a_route_has_the_permission_of_each_queue(settings, permissions) -> None:
    view = TopicView("t", TopicType.MIXED, 3, [0, 0, 0], 0, settings=settings)
    queues = route(pb.Resource(name="t"), view, "broker-a", ENDPOINTS)
    assert [queue.permission for queue in queues] == permissions
    assert [queue.id for queue in queues] == list(range(len(permissions)))
