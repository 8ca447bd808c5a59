"""A message that nobody can work: what clients are told of an end is what the broker does."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_door import Door, message, sending, with_door

from horolog.log.record import GRANTED
from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.settings import merged_settings

DELIVERIES = 40  # official brokers would have ended at 17
CONSUMERS = pb.Settings(
    client_type=pb.PUSH_CONSUMER, subscription=pb.Subscription(group=pb.Resource(name="g"))
)


@pytest.mark.parametrize("language", ["JAVA", "HTTP"])
def test_settings_promise_no_end_of_attempts_where_there_is_none(tmp_path, language) -> None:
    """Until there are dead letters: it comes again until it is acknowledged, however often it failed."""
    told = merged_settings(CONSUMERS, language).backoff_policy.max_attempts

    async def story(door: Door) -> None:
        await door.call("SendMessage", sending(message()))
        attempts = []
        for _ in range(DELIVERIES):
            system = (await door.receive())[1].message.system_properties
            attempts.append(system.delivery_attempt)
            failed = pb.ChangeInvisibleDurationRequest(
                group=pb.Resource(name="g"),
                topic=pb.Resource(name="mixed"),
                receipt_handle=system.receipt_handle,
                invisible_duration=Duration(seconds=1),
            )
            assert (await door.call("ChangeInvisibleDuration", failed)).status.code == pb.OK
            await door.engine.advance(1_000)
        assert attempts == list(range(1, DELIVERIES + 1))
        assert attempts[-1] < told, "an end that was promised, and did not come"

    with_door(tmp_path, story)


def test_what_is_promised_is_all_that_settings_and_the_log_can_count(tmp_path) -> None:
    told = merged_settings(CONSUMERS, "JAVA").backoff_policy
    largest = (1 << 31) - 1
    assert told.max_attempts == largest
    with pytest.raises(ValueError, match="range"):
        told.max_attempts = largest + 1
    assert GRANTED["attempt"].itemsize == 4, "a grant's record counts further"
