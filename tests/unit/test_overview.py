"""GET /v1/overview: one look for all who watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from admin_api import exchange

from horolog.admin.overview import FRESH_S, HOT_S, RECENT_S, Overview
from horolog.errors import ErrorCode, HorologError
from horolog.metrics.figures import Figures
from horolog.protocol.commands import CreateTopic, DescribeBroker, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.send_commands import MessageType
from horolog.server.open_broker import open_engine
from horolog.testing.engine import NOW_MS, PARKED, ScriptedEngine


class Watched:
    """An overview, its engine, and a clock that a test moves."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine()
        self.now_s = 100.0
        self.overview = Overview(self.engine, "broker-a", now_s=lambda: self.now_s)

    async def look(self) -> dict[str, Any]:
        return dict(orjson.loads(await self.overview.content())["result"])

    @property
    def looks(self) -> int:
        return sum(isinstance(command, DescribeBroker) for command in self.engine.asked)


def run(test: Callable[[Watched], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await test(Watched())

    asyncio.run(asyncio.wait_for(all_of_it(), 10))


def test_the_answer_has_what_the_page_shows() -> None:
    status, body, _ = exchange("GET", "/v1/overview")
    assert status == 200
    look = body["result"]
    assert (look["name"], look["epoch"], look["pending"]) == ("broker-a", 3, 5)
    assert look["now_ms"] == NOW_MS
    assert look["next_due_ms"] is None
    assert look["rates"] is None
    assert look["healthy"] is True


def test_many_who_ask_within_a_second_are_one_look() -> None:
    async def test(watched: Watched) -> None:
        answers = await asyncio.gather(*(watched.overview.content() for _ in range(100)))
        assert len(set(answers)) == 1
        watched.now_s += FRESH_S - 0.01
        await watched.look()
        assert watched.looks == 1
        watched.now_s += 0.01
        await asyncio.gather(*(watched.overview.content() for _ in range(100)))
        assert watched.looks == 2

    run(test)


def test_who_gives_up_spoils_it_for_nobody() -> None:
    async def test(watched: Watched) -> None:
        impatient = asyncio.ensure_future(watched.overview.content())
        patient = asyncio.ensure_future(watched.overview.content())
        await asyncio.sleep(0)
        impatient.cancel()
        assert orjson.loads(await patient)["result"]["pending"] == 5
        assert watched.looks == 1

    run(test)


def test_a_failed_look_fails_for_all_that_waited_and_is_not_kept() -> None:
    async def test(watched: Watched) -> None:
        good = watched.engine.answers[DescribeBroker]
        watched.engine.answers[DescribeBroker] = HorologError(ErrorCode.INTERNAL, "broken")
        answers = await asyncio.gather(
            *(watched.overview.content() for _ in range(3)), return_exceptions=True
        )
        assert [str(each) for each in answers] == ["broken"] * 3
        watched.engine.answers[DescribeBroker] = good
        assert (await watched.look())["pending"] == 5

    run(test)


def test_rates_lateness_and_hot_seconds_are_those_of_the_broker(tmp_path: Path) -> None:
    async def story() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated")
        figures = Figures(engine, broker_name="b", data_dir=tmp_path)
        now_s = [100.0]

        async def look(later_s: float) -> dict[str, Any]:
            now_s[0] += later_s
            figures._next_s = 0.0  # the numbers of now
            return dict(orjson.loads(await overview.content())["result"])

        overview = Overview(engine, "b", figures, now_s=lambda: now_s[0])
        await engine.submit(CreateTopic("orders", TopicType.DELAY, 1))
        assert (await look(0))["rates"] is None
        due_ms = engine.clock.wall_ms() + 5_000
        for at in range(20):
            message = encode(
                topic="orders",
                body=b"x",
                message_id=f"m{at}",
                due_ms=due_ms,
                type=MessageType.DELAY,
            )
            await engine.submit(SendMessages("orders", [message]))
        found = await look(2)
        assert found["rates"]["scheduled"] == 10
        assert found["topics"][0]["topic"] == "orders"
        assert found["topics"][0]["rates"]["scheduled"] == 10
        assert found["next_due_ms"] == due_ms // 1000 * 1000
        assert found["pending"] == sum(found["waiting"].values()) == 20
        assert found["disk"]["free"] > 0
        hot = (await look(HOT_S))["hot_seconds"]
        assert hot == [{"at_ms": due_ms // 1000 * 1000, "count": 20}]
        await engine.advance(6_000)
        found = await look(4)
        assert found["rates"]["handed_over"] == 5
        assert sum(found["lateness"]["minute"]) == sum(found["lateness"]["counts"]) == 20
        assert found["hot_seconds"] == []
        found = await look(RECENT_S + 1)
        assert found["rates"] is None
        assert sum(found["lateness"]["minute"]) == 0
        assert sum(found["lateness"]["counts"]) == 20
        await engine.stop()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_look_that_hangs_is_one_look() -> None:
    async def test(watched: Watched) -> None:
        watched.engine.answers[DescribeBroker] = PARKED
        waiting = [asyncio.ensure_future(watched.overview.content()) for _ in range(5)]
        await asyncio.sleep(0)
        watched.now_s += 60
        waiting.append(asyncio.ensure_future(watched.overview.content()))
        await asyncio.sleep(0)
        assert watched.looks == 1
        for each in waiting:
            each.cancel()

    run(test)
