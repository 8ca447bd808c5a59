"""The gates: receive boarding calls with the official Python client and acknowledge them.

Runs in the client's own environment as a process of its own.  It writes what it receives to
stdout, one JSON object a line, and ends when stdin is closed.  An ack whose answer was lost is
repeated with the same receipt handle; when that is refused, the call is delivered again later,
and the demo counts it.

The client's `Message` keeps neither queue nor queue offset, and its store time is private.  They
tell a second hand-over from a second delivery, so `keep_positions` keeps the received system
properties on the message.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from typing import Any

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, SimpleConsumer
from rocketmq.v5.exception import ClientException

# A long poll waits on one queue, drawn at random: 32 leave none of four alone for long.
RECEIVERS = 32
AWAIT_S = 1
BATCH = 16
INVISIBLE_S = 10  # the shortest lease: what a crash tears from our hands comes again soon
RETRY_PAUSE_S = 0.2
ACK_RETRY_FOR_S = 15.0

_stdout_lock = threading.Lock()


def say(kind: str, **fields: object) -> None:
    """Tell the demo, in one line."""
    line = json.dumps({"kind": kind, **fields}) + "\n"
    with _stdout_lock:
        sys.stdout.write(line)
        sys.stdout.flush()


def keep_positions() -> None:
    """Let every received message keep its system properties as `wire`."""
    decode = Message.fromProtobuf

    def decode_and_keep(self: Any, wire: Any) -> Any:
        decode(self, wire)
        self.wire = wire.system_properties
        return self

    Message.fromProtobuf = decode_and_keep


def report(message: Any) -> None:
    """Tell when and where a call arrived."""
    wire = message.wire
    say(
        "received",
        call=" ".join(message.keys),
        id=message.message_id,
        queue=wire.queue_id,
        offset=wire.queue_offset,
        attempt=wire.delivery_attempt,
        due_ms=wire.delivery_timestamp.ToMilliseconds(),
        stored_ms=wire.store_timestamp.ToMilliseconds(),
        arrived_ms=message.decode_message_timestamp,
        corrupted=message.corrupted,
    )


def acknowledge(consumer: Any, message: Any, lease_ends: float) -> None:
    """Ack a call; repeat when the answer is lost.  While the broker was away the lease may have ended."""
    where = {"queue": message.wire.queue_id, "offset": message.wire.queue_offset}
    give_up_at = time.monotonic() + ACK_RETRY_FOR_S
    unanswered = 0
    while True:
        try:
            consumer.ack(message)
        except ClientException as error:
            late = time.monotonic() >= lease_ends
            say("ack refused", **where, unanswered=unanswered, late=late, why=str(error))
            return
        except Exception as error:
            unanswered += 1
            if time.monotonic() > give_up_at:
                say("ack lost", **where, unanswered=unanswered, late=True, why=repr(error))
                return
            time.sleep(RETRY_PAUSE_S)
            continue
        say("acked", **where, unanswered=unanswered, acked_ms=time.time_ns() // 1_000_000)
        return


def receive_until(closing: threading.Event, consumer: Any) -> None:
    """One receive loop."""
    while not closing.is_set():
        lease_ends = time.monotonic() + INVISIBLE_S  # of what comes, or a little later
        try:
            messages = consumer.receive(BATCH, INVISIBLE_S)
        except Exception as error:
            if not closing.is_set():
                say("receive failed", why=repr(error))
                closing.wait(RETRY_PAUSE_S)
            continue
        for message in messages:
            report(message)
        for message in messages:
            acknowledge(consumer, message, lease_ends)


def main() -> int:
    """Receive until stdin is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True, help="gRPC door of the broker, host:port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    arguments = parser.parse_args()
    keep_positions()
    consumer = SimpleConsumer(
        ClientConfiguration(arguments.endpoint, Credentials()),
        arguments.group,
        {arguments.topic: FilterExpression()},
        await_duration=AWAIT_S,
    )
    consumer.startup()
    closing = threading.Event()
    receivers = [
        threading.Thread(target=receive_until, args=(closing, consumer)) for _ in range(RECEIVERS)
    ]
    for receiver in receivers:
        receiver.start()
    say("ready")
    sys.stdin.read()
    closing.set()
    for receiver in receivers:
        receiver.join()
    consumer.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
