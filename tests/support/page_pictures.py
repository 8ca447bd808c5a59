"""The pictures of docs/guides/page.md, taken of a live broker with a million messages.

This needs Chromium:

    .venv/bin/python tests/support/page_pictures.py docs/guides/page

tests/page/test_late_walk.py takes the pictures of docs/start/late.md.
"""

from __future__ import annotations

import random
import shutil
import sys
import threading
from pathlib import Path

from many_pending import load, year_of_dues
from playwright.sync_api import Browser, expect, sync_playwright

from horolog.testing.broker import BrokerProcess

_TOPICS = {"orders": 700_000, "reminders": 250_000, "retries": 50_000}
_LIVE_S = 75
_DAY_MS = 86_400_000


def live(broker: BrokerProcess, over: threading.Event) -> None:
    """Send some twenty messages a second, due within the minute, and consume them as a group."""
    chance = random.Random(7)
    admin = broker.admin
    while not over.wait(0.3):
        for _ in range(chance.randrange(3, 9)):
            topic = "orders" if chance.random() < 0.9 else "reminders"
            admin.post(
                "/v1/messages", {"topic": topic, "body": "x", "in_ms": chance.randrange(60_000)}
            )
        for topic, group in (("orders", "shop"), ("reminders", "mailer")):
            wanted = {"topic": topic, "group": group, "limit": 32}
            taken = admin.post("/v1/receive", wanted)["messages"]
            if taken:
                handles = [each["receipt_handle"] for each in taken]
                admin.post("/v1/ack", {"topic": topic, "group": group, "receipt_handles": handles})


def take(browser: Browser, broker: BrokerProcess, target: Path, over: threading.Event) -> None:
    """Take all pictures."""
    light = browser.new_context(viewport={"width": 1180, "height": 900}).new_page()
    light.goto(broker.admin_url)
    over.wait(_LIVE_S)  # so that the page has seen rates to draw
    light.screenshot(path=target / "overview.png")
    light.set_viewport_size({"width": 1180, "height": 690})
    light.goto(f"{broker.admin_url}/#/future")
    expect(light.locator(".heat-total")).to_contain_text("messages wait")
    light.screenshot(path=target / "future.png")
    dark = browser.new_context(
        viewport={"width": 1180, "height": 760}, color_scheme="dark"
    ).new_page()
    at_ms = (broker.now_ms() // _DAY_MS + 1) * _DAY_MS
    dark.goto(f"{broker.admin_url}/#/future?level=day&at={at_ms}")
    expect(dark.locator(".heat-total")).to_contain_text("messages wait here")
    dark.screenshot(path=target / "day.png")


def main() -> None:
    """Take the pictures into the directory that is named."""
    target = Path(sys.argv[1])
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path is not None, "this needs Chromium: make page-tools"
    over, never = threading.Event(), threading.Event()
    with BrokerProcess(clock="system", flush="os") as broker, sync_playwright() as playwright:
        for topic, n in _TOPICS.items():
            broker.create_topic(topic)
            load(broker, topic, year_of_dues(broker.now_ms(), n, seed=n), b'{"order": 4711}')
        traffic = threading.Thread(target=live, args=(broker, over))
        traffic.start()
        try:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            take(browser, broker, target, never)
            browser.close()
        finally:
            over.set()
            traffic.join()


if __name__ == "__main__":
    main()
