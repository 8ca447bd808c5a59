"""GET /v1/pending/histogram: every message in the row of its step, and none twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from admin_api import exchange, serve
from offloads import begin, exported, hour_after, open_world, schedule

from horolog.admin.app import make_app
from horolog.limits import DAY_MS, HISTOGRAM_ROWS, HOUR_MS, MINUTE_MS, SECOND_MS
from horolog.protocol.commands import CountPending, CreateTopic, NewMessage, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.send_commands import MessageType
from horolog.protocol.tier_commands import CommitOffload
from horolog.server.open_broker import open_engine
from horolog.units import parse_time_ms

Get = Callable[[str], Awaitable[dict[str, Any]]]
Story = Callable[[Get], Awaitable[None]]
NOW = "2037-10-24T22:30:00Z"
DUE = {  # Berlin leaves summer time on 2037-10-25 at 01:00 UTC
    "orders": [
        "2037-10-24T22:45:00Z",
        "2037-10-24T23:59:59.999Z",
        "2037-10-25T00:00:00Z",
        "2037-10-25T22:59:59Z",
        "2037-10-25T23:00:00Z",
        "2037-10-31T23:30:00Z",
        "2037-12-31T23:00:00Z",
        "2038-01-01T00:00:00Z",
    ],
    "mails": ["2037-10-25T00:00:00.250Z", "2037-10-25T00:00:30Z", "2040-02-29T12:00:00Z"],
}


def messages(topic: str) -> list[NewMessage]:
    return [
        encode(
            topic=topic,
            body=b"x",
            message_id=f"{topic}-{at}",
            due_ms=parse_time_ms(due),
            type=MessageType.DELAY,
        )
        for at, due in enumerate(DUE[topic])
    ]


def on_a_broker(directory: Path, story: Story) -> None:
    """Run a story against the admin API of a broker that has all of `DUE`."""

    async def run() -> None:
        engine = await open_engine(directory / "data", clock="simulated")
        await engine.advance(parse_time_ms(NOW) - engine.clock.wall_ms())
        for topic in DUE:
            await engine.submit(CreateTopic(topic, TopicType.DELAY, 2))
            sent = await engine.submit(SendMessages(topic, messages(topic)))
            assert not sent.refused, sent.refused
        transport = httpx.ASGITransport(make_app(engine, broker_name="b"))
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:

                async def get(query: str) -> dict[str, Any]:
                    answer = await client.get(f"/v1/pending/histogram?{query}")
                    assert answer.status_code == 200, answer.text
                    return dict(answer.json()["result"])

                await story(get)
        finally:
            await engine.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def expected(dues: list[str], found: dict[str, Any]) -> list[int]:
    """Counts of an answer's own rows, one message at a time."""
    starts = [start for start, _ in found["rows"]] + [found["to_ms"]]
    at_ms = [parse_time_ms(due) for due in dues]
    return [sum(start <= at < stop for at in at_ms) for start, stop in pairwise(starts)]


WINDOWS = {
    "second": "from=2037-10-25T00:00:00Z&to=2037-10-25T00:01:00Z",
    "minute": "from=2037-10-24T22:30:00Z&to=2037-10-25T02:00:00Z",
    "hour": "",
    "day": "",
    "month": "",
    "year": "",
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_every_message_is_in_the_row_of_its_step(tmp_path: Path, zone: str) -> None:
    async def story(get: Get) -> None:
        for step, window in WINDOWS.items():
            if step == "hour":
                window = "from=2037-10-24T22:30:00Z&to=2038-02-01T00:00:00Z"
            for topics in (["orders"], ["mails"], ["orders", "mails"]):
                only = f"&topic={topics[0]}" if len(topics) == 1 else ""
                found = await get(f"step={step}&zone={zone}&{window}{only}")
                dues = [due for topic in topics for due in DUE[topic]]
                assert [n for _, n in found["rows"]] == expected(dues, found), (step, topics)
                assert found["total"] == sum(n for _, n in found["rows"])
                assert found["in_tier"] == 0
                if not window:
                    assert found["total"] == len(dues)

    on_a_broker(tmp_path, story)


def test_days_of_a_zone_begin_at_its_midnight_also_when_the_clocks_change(tmp_path: Path) -> None:
    async def story(get: Get) -> None:
        found = await get(
            "step=day&zone=Europe/Berlin&from=2037-10-24T22:30:00Z&to=2037-10-26T12:00:00Z"
        )
        starts = [start for start, _ in found["rows"]]
        assert starts == [
            parse_time_ms("2037-10-24T22:00:00Z"),
            parse_time_ms("2037-10-25T23:00:00Z"),
        ]
        assert found["to"] == "2037-10-26T23:00:00.000Z"
        assert [n for _, n in found["rows"]] == [6, 1]

    on_a_broker(tmp_path, story)


def test_zones_of_half_hours_begin_their_days_at_the_hour_before(tmp_path: Path) -> None:
    async def story(get: Get) -> None:
        found = await get("step=day&zone=Asia/Kolkata")
        assert found["total"] == sum(map(len, DUE.values()))
        assert all(start % HOUR_MS == 0 for start, _ in found["rows"])
        assert found["from"] == "2037-10-24T18:00:00.000Z"

    on_a_broker(tmp_path, story)


def test_a_window_is_widened_to_whole_steps(tmp_path: Path) -> None:
    async def story(get: Get) -> None:
        found = await get("step=minute&from=2037-10-25T00:00:10Z&to=2037-10-25T00:00:20Z")
        assert found["to_ms"] - found["from_ms"] == MINUTE_MS
        assert found["rows"] == [[parse_time_ms("2037-10-25T00:00:00Z"), 3]]
        year = await get("step=hour&from=2037-01-01T00:00:00Z&to=2038-01-01T00:00:00Z")
        assert len(year["rows"]) == 365 * 24
        assert year["total"] == 9

    on_a_broker(tmp_path, story)


def test_nothing_waits_and_no_window_is_no_row() -> None:
    def nothing(engine: Any) -> None:
        engine.answers[CountPending].rows.clear()

    for step in ("second", "hour", "day", "year"):
        _, body, _ = exchange("GET", f"/v1/pending/histogram?step={step}", None, nothing)
        assert (body["result"]["rows"], body["result"]["total"]) == ([], 0)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("step=week", "step"),
        ("zone=Mars/Olympus", "zone"),
        ("from=now", "from"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "to"),
        ("to=9999-12-31T00:00:00Z", "to"),
        ("step=second&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z", "to"),
        ("step=day&from=1970-01-01T00:00:00Z&to=2060-01-01T00:00:00Z", "to"),
        ("colour=red", "colour"),
        ("topic=a%20b", "topic"),
    ],
)
def test_bad_windows_are_refused(query: str, field: str) -> None:
    status, body, engine = exchange("GET", f"/v1/pending/histogram?{query}")
    assert (status, body["error"]["field"]) == (400, field)
    if field != "to":
        assert engine.asked == []


def test_rows_are_bounded() -> None:
    assert HISTOGRAM_ROWS >= 366 * 24
    assert HISTOGRAM_ROWS * SECOND_MS < DAY_MS


def test_what_waits_in_the_lake_is_counted_beside_the_seconds(make_world: Any) -> None:
    world = open_world(make_world)
    made = schedule(world, 60)
    before = world.broker.ask(CountPending()).rows
    view = begin(world, hour_after(world, 48 * HOUR_MS))
    rows = exported(world, view)
    world.broker.ask(CommitOffload(view.offload_id, len(rows), "lake"))
    assert world.broker.ask(CountPending()).rows == before
    hour = made["m2"][1] // HOUR_MS
    whole = dict(before)[hour * HOUR_MS]
    seconds = world.broker.ask(CountPending(hour=hour, partly=True))
    assert seconds.in_tier > 0
    assert seconds.total + seconds.in_tier == whole
    first, last = before[0][0], before[-1][0]
    part = world.broker.ask(CountPending(from_ms=first + 1, to_ms=last)).rows
    assert part == before[1:-1]


def test_those_who_ask_the_same_within_a_second_share_an_answer() -> None:
    async def use(client: httpx.AsyncClient, engine: Any) -> None:
        same = "/v1/pending/histogram?step=hour"
        answers = await asyncio.gather(*(client.get(same) for _ in range(10)))
        assert len({answer.content for answer in answers}) == 1
        assert len(engine.asked) == 1
        await client.get(f"{same}&topic=reminders")
        assert len(engine.asked) == 2

    serve(use)
