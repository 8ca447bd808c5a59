"""The pauses between attempts are those of the group: as its policy says, as clients are told, as the broker makes them."""

from __future__ import annotations

from typing import Any

import pytest

from horolog.errors import ErrorCode, HorologError
from horolog.limits import AUTO_RENEW_MS, AUTO_RENEW_TOTAL_MAX_MS, REDELIVERY_MIN_MS
from horolog.protocol.commands import (
    ChangeInvisible,
    ClientSeen,
    CreateTopic,
    Delivered,
    DescribeTopic,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.grpc.settings import consumer_policy
from horolog.protocol.queue_commands import FindGroup, GroupSettings, PutGroup
from horolog.protocol.remoting.group_bodies import group_config, read_group_config
from horolog.protocol.retry_commands import SendBack
from horolog.protocol.rocketmq import layout
from horolog.protocol.rocketmq.backoff import BY_LEVELS, Backoff, Exponential, Pauses, backoff_of
from horolog.protocol.rocketmq.message import encode
from horolog.ready.groups import settings_of_row, settings_row

LISTED = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1_500, 2_000, 7_000]}}
GROWN = {
    "type": "EXPONENTIAL",
    "exponentialRetryPolicy": {"initial": 1_000, "max": 9_000, "multiplier": 2},
}


@pytest.fixture
def broker(world):
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    return world.broker


def put(broker, backoff: Backoff | None) -> None:
    broker.ask(PutGroup("g", GroupSettings(backoff=backoff)))


def receive(broker, *, auto_renew: bool = False) -> list[Delivered]:
    command = Receive("g", "t", -1, "*", 32, 10_000, auto_renew, 0, "c")
    found: list[Delivered] = broker.ask(command).messages
    return found


# --- the policy itself --------------------------------------------------------------------------


def test_a_list_counts_as_delay_levels_do_where_the_broker_decides() -> None:
    assert [BY_LEVELS.after(n) for n in (1, 2, 3, 16, 99)] == [
        10_000, 30_000, 60_000, 7_200_000, 7_200_000,
    ]  # fmt: skip
    assert [Pauses((1, 2)).after(n) for n in (1, 5)] == [2, 2]


def test_an_exponential_policy_grows_to_its_longest_pause() -> None:
    policy = Exponential(1_000, 9_000, 2)
    assert [policy.after(n) for n in (1, 2, 3, 4, 5, 1_000)] == [
        1_000, 2_000, 4_000, 8_000, 9_000, 9_000,
    ]  # fmt: skip
    assert policy.listed(17) == [1_000, 2_000, 4_000, 8_000, 9_000]


@pytest.mark.parametrize("policy", [None, {}, {"type": "CUSTOMIZED"}, {"type": "EXPONENTIAL"}])
def test_without_a_table_it_is_the_default(policy: Any) -> None:
    assert backoff_of(policy) is None


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (7, "groupRetryPolicy"),
        ({"type": "LINEAR"}, "groupRetryPolicy"),
        ({"customizedRetryPolicy": []}, "groupRetryPolicy.customizedRetryPolicy"),
        ({"customizedRetryPolicy": {"next": []}}, "groupRetryPolicy.customizedRetryPolicy.next"),
        ({"customizedRetryPolicy": {"next": [-1]}}, "groupRetryPolicy.customizedRetryPolicy.next"),
        (
            {"customizedRetryPolicy": {"next": [1] * 129}},
            "groupRetryPolicy.customizedRetryPolicy.next",
        ),
        (
            {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 9, "max": 8}},
            "groupRetryPolicy.exponentialRetryPolicy.initial",
        ),
        (
            {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"multiplier": 0}},
            "groupRetryPolicy.exponentialRetryPolicy.multiplier",
        ),
        (
            {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"max": 1 << 40}},
            "groupRetryPolicy.exponentialRetryPolicy.max",
        ),
    ],
)
def test_what_nobody_can_keep_to_is_refused(policy: Any, field: str) -> None:
    with pytest.raises(HorologError) as refused:
        backoff_of(policy)
    assert (refused.value.code, refused.value.field) == (ErrorCode.BAD_REQUEST, field)


@pytest.mark.parametrize("policy", [LISTED, GROWN, {"type": "CUSTOMIZED"}])
def test_it_is_returned_as_it_was_put(world, broker, policy: dict[str, Any]) -> None:
    name, settings = read_group_config({"groupName": "g", "groupRetryPolicy": policy})
    broker.ask(PutGroup(name, settings))
    for _ in range(2):
        found = broker.ask(FindGroup("g"))
        assert group_config(found)["groupRetryPolicy"] == policy
        broker.request_checkpoint()
        broker.settle()
        world.reopen(power_cut=True)


def test_what_an_older_horolog_kept_among_the_attributes_holds_now() -> None:
    row = settings_row(GroupSettings(attributes={"groupRetryPolicy": GROWN, "brokerId": 0}))
    found = settings_of_row(row)
    assert found is not None
    assert found.backoff == Exponential(1_000, 9_000, 2)
    assert found.attributes == {"brokerId": 0}


# --- what clients are told ----------------------------------------------------------------------


def test_clients_get_the_settings_of_the_group() -> None:
    policy = consumer_policy(GroupSettings(retry_max=4, backoff=backoff_of(LISTED)), "JAVA")
    pauses = policy.customized_backoff.next
    assert (policy.max_attempts, [each.ToMilliseconds() for each in pauses]) == (
        5, [1_500, 2_000, 7_000],
    )  # fmt: skip
    grown = consumer_policy(GroupSettings(backoff=backoff_of(GROWN)), "GO").exponential_backoff
    assert (grown.initial.ToMilliseconds(), grown.max.ToMilliseconds(), grown.multiplier) == (
        1_000, 9_000, 2.0,
    )  # fmt: skip


def test_python_gets_a_list_of_whole_seconds() -> None:
    for policy, seconds in ((LISTED, [2, 2, 7]), (GROWN, [1, 2, 4, 8, 9])):
        pauses = consumer_policy(GroupSettings(backoff=backoff_of(policy)), "PYTHON")
        assert [each.ToSeconds() for each in pauses.customized_backoff.next] == seconds
        assert not any(each.nanos for each in pauses.customized_backoff.next)


def test_node_gets_an_exponential_policy() -> None:
    grown = consumer_policy(GroupSettings(backoff=backoff_of(LISTED)), "HTTP").exponential_backoff
    assert (grown.initial.ToMilliseconds(), grown.max.ToMilliseconds()) == (1_500, 7_000)
    assert grown.multiplier == 2


# --- what the broker does -----------------------------------------------------------------------


def test_a_nack_without_a_time_waits_as_the_group_says(world, broker) -> None:
    put(broker, Pauses((1_000, 2_000, 3_000, 5_000)))
    broker.ask(SendMessages("t", [encode(topic="t", body=b"x", message_id="a")]))
    (message,) = receive(broker)
    for pause_ms in (3_000, 5_000, 5_000):
        broker.ask(ChangeInvisible("g", "t", message.receipt_handle, 0, by_group=True))
        world.clock.advance(pause_ms - 1)
        assert receive(broker) == []
        world.clock.advance(1)
        (message,) = receive(broker)


def test_no_pause_is_shorter_than_the_least(world, broker) -> None:
    put(broker, Pauses((0,)))
    broker.ask(SendMessages("t", [encode(topic="t", body=b"x", message_id="a")]))
    for by_group in (False, True):
        (message,) = receive(broker)
        broker.ask(ChangeInvisible("g", "t", message.receipt_handle, 0, by_group=by_group))
        world.clock.advance(REDELIVERY_MIN_MS - 1)
        assert receive(broker) == []
        world.clock.advance(1)


def test_what_was_renewed_for_too_long_waits_as_the_group_says(world, broker) -> None:
    put(broker, Exponential(100_000, 200_000, 2))
    broker.ask(SendMessages("t", [encode(topic="t", body=b"x", message_id="a")]))
    assert receive(broker, auto_renew=True)
    passed = 0
    while passed < AUTO_RENEW_TOTAL_MAX_MS + AUTO_RENEW_MS:
        world.clock.advance(5_000)
        passed += 5_000
        broker.ask(ClientSeen("c"))
    world.clock.advance(100_000 - AUTO_RENEW_MS - 10_000)
    assert receive(broker) == []
    world.clock.advance(20_000)
    (message,) = receive(broker)
    assert message.attempt == 2


def test_a_send_back_without_a_level_waits_as_the_group_says(world, broker) -> None:
    put(broker, Pauses((500, 500, 1_234)))
    broker.ask(SendMessages("t", [encode(topic="t", body=b"x", message_id="a")]))
    (message,) = receive(broker)
    position = layout.decode(message.layout).position
    broker.ask(SendBack("g", position))
    world.clock.advance(1_233)
    broker.settle()
    assert sum(broker.ask(DescribeTopic("%RETRY%g")).queue_offsets) == 0
    world.clock.advance(1)
    broker.settle()
    assert sum(broker.ask(DescribeTopic("%RETRY%g")).queue_offsets) == 1
