"""GET /v1/overview: one look for all who watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from admin_api import exchange

from horolog.admin.overview import FRESH_S, RATED_S, Overview
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import BrokerView, DescribeBroker
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


def handed_over(n: int) -> BrokerView:
    return BrokerView(3, 900, 900, 900, 500, pending=5, handed_over=n, recalled=1, topics=1, groups=1, parked_polls=0, loaded=2)  # fmt: skip


def test_the_answer_has_what_the_page_shows() -> None:
    status, body, _ = exchange("GET", "/v1/overview")
    assert status == 200
    look = body["result"]
    assert (look["name"], look["epoch"], look["pending"]) == ("broker-a", 3, 5)
    assert look["now_ms"] == NOW_MS
    assert look["next_due_ms"] == NOW_MS + 90_000
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


def test_a_failed_look_is_told_to_those_who_waited_and_not_kept() -> None:
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


def test_rates_are_since_the_look_before() -> None:
    async def test(watched: Watched) -> None:
        for seen, rate in ((10, None), (210, 100.0), (210, 0.0)):
            watched.engine.answers[DescribeBroker] = handed_over(seen)
            rates = (await watched.look())["rates"]
            assert (rates and rates["handed_over"]) == rate
            watched.now_s += 2
        watched.now_s += RATED_S
        assert (await watched.look())["rates"] is None

    run(test)


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
