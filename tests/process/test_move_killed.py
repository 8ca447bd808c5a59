"""A real broker is killed while it moves a window: none twice, none lost, and the same request again moves the rest."""

from __future__ import annotations

import threading
import time
from urllib.request import urlopen

import forked
import numpy as np
import pytest
from many_pending import load

from horolog.admin.views import message_view
from horolog.log.record import HEAD_BYTES
from horolog.protocol.queue_read import decode_read
from horolog.testing.broker import BrokerProcess, installed_command
from horolog.units import format_time_ms

pytestmark = pytest.mark.process

COUNT = 12_000  # a dozen turns of the core
HOUR_MS = 3_600_000
SHIFT_MS = 5 * HOUR_MS
DEADLINE_S = 60.0


def moved(broker: BrokerProcess, after_ms: int) -> int:
    """How many are due after that."""
    rows = broker.admin.get("/v1/pending", {"topic": "orders"})["rows"]
    return sum(row["count"] for row in rows if row["start_ms"] >= after_ms)


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_window() -> None:
    with BrokerProcess(flush="os") as broker:
        broker.create_topic("orders")
        now_ms = broker.now_ms()
        load(broker, "orders", now_ms + HOUR_MS + np.arange(COUNT), b"x")
        path = "/v1/reschedule/window"
        body = {
            "topic": "orders",
            "from_ms": now_ms,
            "to_ms": now_ms + 3 * HOUR_MS,
            "shift_ms": SHIFT_MS,
            "operation_id": "once",
        }

        window = [
            "--from",
            format_time_ms(body["from_ms"]),
            "--before",
            format_time_ms(body["to_ms"]),
        ]
        words = ["reschedule", "--topic", "orders", *window, "--by", "5h", "--operation", "once"]
        errors: list[str] = []

        def ask() -> None:
            command = [*installed_command(), *words, "--yes", "--admin", broker.admin_url]
            ended = forked.run(
                command, capture_output=True, text=True, timeout=DEADLINE_S, check=False
            )
            errors.append(ended.stderr)

        def done() -> int:
            return moved(broker, now_ms + SHIFT_MS)

        asking = threading.Thread(target=ask)
        asking.start()
        until = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < until
        broker.kill()
        asking.join(DEADLINE_S)
        assert "Some of it may be done: the same command with --operation once" in errors[0]
        broker.restart()
        before = done()
        assert before > 0  # and mostly fewer than all of them
        assert broker.admin.post(path, body, timeout_s=DEADLINE_S)["moved"] == COUNT - before
        assert done() == COUNT
        assert broker.admin.post(path, body, timeout_s=DEADLINE_S)["moved"] == 0
        broker.advance(SHIFT_MS + 3 * HOUR_MS)
        assert broker.pending("orders") == 0
        with urlopen(
            f"{broker.admin_url}/v1/topics/orders/queues/0/messages?limit=65536"
        ) as answer:
            read = decode_read(answer.read())
        ends = np.cumsum(read.sizes)
        records = [
            bytes(read.records[end - size : end])
            for end, size in zip(ends, read.sizes, strict=True)
        ]
        ids = {message_view(record[HEAD_BYTES:])["message_id"] for record in records}
        assert (len(records), len(ids)) == (COUNT, COUNT)
