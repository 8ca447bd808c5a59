"""The docs page about a late message, as somebody does it who has never seen the broker: typed, opened, read.

    SCREENSHOTS=docs/start .venv/bin/python -m pytest tests/page/test_late_walk.py

takes the pictures of the docs page again.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from horolog.testing.broker import BrokerProcess, installed_command

pytestmark = pytest.mark.page

GUIDE = Path(__file__).parents[2] / "docs" / "start" / "late.md"
TWO_MINUTES_S = 120


def typed(broker: BrokerProcess, command: str) -> str:
    """One command of the guide, in a shell that knows the broker's port."""
    ended = subprocess.run(
        [*installed_command(), *shlex.split(command)[1:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOROLOG_ADMIN": broker.admin_url},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def picture(page: Page, name: str) -> None:
    target = os.environ.get("SCREENSHOTS")
    if target:
        page.screenshot(path=Path(target) / name)


def test_a_stranger_finds_out_why_a_message_was_late(page: Page, tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
        if not line.startswith("horolog serve")
    ]
    *before, receive = lines
    began_s = time.monotonic()
    with BrokerProcess(tmp_path / "late-data", clock="system") as broker:
        for line in before:
            typed(broker, line.replace("--in 10s", "--in 1s"))
        due_s = time.time() + 1  # at the latest
        broker.stop()
        page.wait_for_timeout(max(0, due_s - time.time()) * 1_000)
        broker.start()
        assert "your table is ready" in typed(broker, receive)

        page.set_viewport_size({"width": 1100, "height": 720})
        page.goto(broker.admin_url)
        page.keyboard.press("g")
        page.keyboard.press("s")
        expect(page.get_by_label("Topic")).to_have_value("reminders")
        expect(page.get_by_label("Id or key")).to_be_focused()
        page.keyboard.type("order-1042")
        page.keyboard.press("Enter")
        row = page.get_by_role("row").filter(has_text="order-1042")
        expect(row).to_contain_text("delivered")
        row.hover()
        picture(page, "late-search.png")
        page.keyboard.press("ArrowDown")
        expect(row).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="In short")).to_be_visible()
        sentences = page.locator(".why li").all_inner_texts()
        picture(page, "late-message.png")
    assert time.monotonic() - began_s < TWO_MINUTES_S
    assert re.match(
        r"The broker handed it over [\d.]+ m?s after it was due\. It was down", sentences[0]
    )
    assert sentences[1].startswith("Group mailer first took it")
    assert sentences[2].startswith("Group mailer acknowledged it")
