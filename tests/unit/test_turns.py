"""Turns of a busy engine: between two of them whatever else waits in the event loop gets its turn, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from horolog.protocol.commands import CreateTopic, Receive, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.server.open_broker import open_engine

MESSAGES = 20_000
DEADLINE_S = 60


def test_turns_of_a_long_search_do_not_pile_up(tmp_path: Path) -> None:
    """Each write that ended in a busy time left one more turn in every pass of the event loop.

    So sockets, timers and ends of writes waited for ten turns after ten writes, and for a hundred after a hundred.
    """

    async def story() -> None:
        engine = await open_engine(tmp_path, clock="simulated", flush="os", segment_bytes=1 << 24)
        try:
            for topic in ("t", "other"):
                await engine.submit(CreateTopic(topic, TopicType.NORMAL, 1))
            for first in range(0, MESSAGES, 1_000):
                numbers = range(first, first + 1_000)
                sent = [
                    encode(topic="t", body=b"x", message_id=f"m{n}", user_properties={"a": "1"})
                    for n in numbers
                ]
                await engine.submit(SendMessages("t", sent))
            turns = engine.meters.turn_s
            begin = before = sum(turns.counts)
            in_a_pass: list[int] = []
            nothing = Receive("g", "t", -1, "a = '2'", 1, 30_000, False, 0, "c", is_sql=True)
            search = engine.submit(nothing)
            other: asyncio.Future[object] | None = None
            while not search.done():
                if other is None or other.done():
                    message = encode(topic="other", body=b"x", message_id=f"o{len(in_a_pass)}")
                    other = engine.submit(SendMessages("other", [message]))
                await asyncio.sleep(0)
                in_a_pass.append(sum(turns.counts) - before)
                before = sum(turns.counts)
            assert search.result().messages == []
            assert before - begin > 30, "it took many turns"
            assert max(in_a_pass) <= 2, "that of the search, and the one after a write"
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))
