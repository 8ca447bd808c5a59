"""Does anybody notice that dashboards are open?  `python -m benchmarks.page`, which needs Chromium.

One broker with 200 000 messages that wait over a year; in each turn a stream of messages comes due, and how late each
was handed over is its store time − due time.  Turns alternate:

none      nobody looks
tabs      ten windows of one browser, all in sight, overview and map of an hour in turns (Chromium runs on the same
          machine, at a lower priority)
browsers  what ten browsers on other machines would ask: ten clients that ask for the overview every second and for the
          map of an hour every three

Prints p50 and p99 of each turn; the machine is shared, so compare turns of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from many_pending import load, year_of_dues  # noqa: E402

from horolog.testing.broker import BrokerProcess  # noqa: E402

TABS = 10
PENDING = 200_000
GROUP = "bench"


async def stream(broker: BrokerProcess, topic: str, seconds: float, rate: int) -> None:
    """Messages that come due from 5 s from now on, so many a second; ends when all are due."""
    first_ms = int(time.time() * 1_000) + 5_000
    dues_ms = first_ms + np.arange(int(seconds * rate)) * 1_000 // rate
    load(broker, topic, dues_ms, b"x" * 200)
    await asyncio.sleep(max(dues_ms[-1] / 1_000 + 2 - time.time(), 0))


async def lateness(client: httpx.AsyncClient, topic: str) -> np.ndarray[Any, Any]:
    """ms from due time to store time of everything in a topic."""
    late: list[int] = []
    wanted = {"topic": topic, "group": GROUP, "limit": 32}
    while messages := (await client.post("/v1/receive", json=wanted)).json()["result"]["messages"]:
        late += [message["store_ms"] - message["deliver_at_ms"] for message in messages]
    return np.array(late)


async def ask_on(url: str) -> None:
    """What a page of another browser asks."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        for second in range(1_000_000):
            await client.get("/v1/overview")
            if second % 3 == 0:
                hour_ms = int(time.time()) // 3_600 * 3_600_000
                window = {"step": "second", "from": hour_ms, "to": hour_ms + 3_600_000}
                await client.get("/v1/pending/histogram", params=window)
            await asyncio.sleep(1)


async def open_tabs(ends: AsyncExitStack, url: str) -> None:
    """Ten tabs of one browser; it ends with `ends`."""
    from playwright.async_api import async_playwright

    playwright = await ends.enter_async_context(async_playwright())
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium is not None, "this needs Chromium: make page-tools"
    browser = await playwright.chromium.launch(
        executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
    )
    ends.push_async_callback(browser.close)
    context = await browser.new_context()
    for at in range(TABS):
        tab = await context.new_page()
        await tab.goto(url + ("/" if at % 2 else "/#/future?level=hour"))


async def turn(broker: BrokerProcess, how: str, topic: str, seconds: float, rate: int) -> str:
    """One turn: a row of the table."""
    url = broker.admin_url
    async with AsyncExitStack() as ends:
        client = await ends.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60))
        await client.post("/v1/topics", json={"name": topic, "type": "delay", "queues": 1})
        if how == "tabs":
            await open_tabs(ends, url)
        askers = [asyncio.create_task(ask_on(url)) for _ in range(TABS if how == "browsers" else 0)]
        await stream(broker, topic, seconds, rate)
        late = await lateness(client, topic)
        for each in askers:
            each.cancel()
    p50, p99 = np.percentile(late, (50, 99))
    return f"{how:<10} {len(late):>7} messages   p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   max {late.max():6.0f} ms"


async def main() -> None:
    """All turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    with BrokerProcess(clock="system", flush="os") as broker:
        broker.create_topic("year")
        os.nice(15)  # Chromium and this program, not the broker
        load(broker, "year", year_of_dues(int(time.time() * 1_000), PENDING), b"x")
        for at in range(wanted.rounds):
            for how in ("none", "tabs", "browsers"):
                row = await turn(broker, how, f"{how}-{at}", wanted.seconds, wanted.rate)
                print(row, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
