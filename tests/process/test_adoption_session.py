"""Adoptions in a broker that is killed while it commits them: the same commit sent again gives exactly the rows."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from adopted_runs import stage

from horolog.admin.status import UnreachableError
from horolog.errors import HorologError
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq.message import encode
from horolog.testing.broker import BrokerProcess

ROWS = 2_500
HOUR_MS = 3_600_000


def rows_of(version: int, now_ms: int, body_bytes: int):
    return [
        encode(
            topic="t",
            body=b"x" * body_bytes,
            message_id=f"v{version}-{row}",
            type=MessageType.DELAY,
            due_ms=now_ms + HOUR_MS + row,
        )
        for row in range(ROWS)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("body_bytes", [20, 4_000])
def test_killed_in_mid_commit(body_bytes: int) -> None:
    """Small transactions go through the log, those of more than 8 MiB as files."""
    with BrokerProcess() as broker:
        broker.create_topic("t")
        for version, wait_ms in enumerate((5, 20, 40, 80)):
            begun = broker.admin.post(
                "/v1/adoptions/begin", {"app": "load", "version": version, "topic": "t"}
            )
            file = stage(begun, "part", rows_of(version, begun["now_ms"], body_bytes))
            body = {
                "app": "load",
                "version": version,
                "topic": "t",
                "token": begun["token"],
                "files": [file],
            }

            def commit(body: dict[str, object] = body) -> None:
                with suppress(UnreachableError, HorologError):
                    broker.admin.post("/v1/adoptions/commit", body)

            sender = threading.Thread(target=commit)
            sender.start()
            sender.join(wait_ms / 1000)
            broker.kill()
            sender.join()
            broker.restart()
            done = broker.admin.post("/v1/adoptions/commit", body)
            assert done["already"] or done["rows"] == ROWS
            assert broker.pending() == ROWS * (version + 1)
        assert broker.admin.get("/v1/adoptions", {"app": "load"})["version"] == 3
        broker.advance(HOUR_MS + ROWS)
        assert broker.admin.get("/v1/topics/t")["queue_offsets"] == [4 * ROWS]
        assert broker.admin.get("/v1/broker")["problems"] == []
