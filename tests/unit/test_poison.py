"""A message that nobody can work: what clients are told of an end is what the broker does."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_door import Door, message, sending, with_door

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.protocol.grpc.settings import merged_settings

CONSUMERS = pb.Settings(
    client_type=pb.PUSH_CONSUMER, subscription=pb.Subscription(group=pb.Resource(name="g"))
)


@pytest.mark.parametrize("language", ["JAVA", "HTTP"])
def test_attempts_end_where_settings_say(tmp_path, language) -> None:
    """It comes again as often as clients are told, however often it failed, and then is a dead letter."""
    settings = merged_settings(CONSUMERS, language).backoff_policy.max_attempts

    async def story(door: Door) -> None:
        await door.call("SendMessage", sending(message()))
        attempts = []
        for _ in range(settings):
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
        assert attempts == list(range(1, settings + 1))
        frames = await door.receive()
        assert [f.status.code for f in frames if f.HasField("status")] == [pb.MESSAGE_NOT_FOUND]
        waiting = Duration(seconds=10)
        dead = await door.receive(topic="%DLQ%g", group="dead", long_polling_timeout=waiting)
        assert [f.message.body for f in dead if f.HasField("message")] == [message().body]

    with_door(tmp_path, story)
