"""Names as long as they may be leave the columns beside them their room."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page

TOPIC = (
    "a-topic-whose-name-is-as-long-as-somebody-makes-it-who-writes-down-where-it-comes-from"
    + "x" * 34
)
TAG = "a-tag-of-some-length"


@pytest.fixture(scope="module", autouse=True)
def long_ones(still: BrokerProcess) -> None:
    still.create_topic(TOPIC)
    message = {"topic": TOPIC, "body": "x", "in_ms": 3_600_000, "tag": TAG, "keys": ["k" * 60]}
    still.admin.post("/v1/messages", message)
    schedule = {"topic": TOPIC, "body": "x", "cron": "0 9 * * 1-5", "zone": "Europe/Berlin"}
    still.admin.post("/v1/schedules", {"name": "the-stand-up-of-the-whole-team", **schedule})


@pytest.mark.parametrize("path", [f"search?topic={TOPIC}", "schedules"])
def test_a_long_topic(page: Page, still: BrokerProcess, path: str) -> None:
    page.set_viewport_size({"width": 1180, "height": 720})
    page.goto(f"{still.admin_url}/#/{path}")
    name = page.locator("td.name").first
    expect(name).to_be_visible()
    box = name.bounding_box()
    assert box is not None
    assert box["width"] >= 144  # px: 9rem, sixteen letters
    beside = page.locator(".scroll").first.evaluate("node => node.scrollWidth - node.clientWidth")
    assert beside == 0, "columns are out of sight"


def test_the_lake_has_room_for_its_table(page: Page, still: BrokerProcess) -> None:
    offload = {"number": 1, "app": "horolog-offload", "stage": "away", "waiting": 5}
    offload |= {"from_ms": still.now_ms(), "lake": "file:///srv/lakes/of/the/whole/company/pending"}
    answered = {"result": {"waiting": 5, "offloads": [offload]}}
    page.route(lambda url: "/v1/offloads" in url, lambda route: route.fulfill(json=answered))
    page.set_viewport_size({"width": 1180, "height": 720})
    page.goto(f"{still.admin_url}/#/problems")
    lake = page.get_by_role("region", name="The lake: 5 messages there")
    expect(lake.locator("td.name")).to_have_text("horolog-offload")
    table = lake.locator(".scroll")
    assert table.evaluate("node => node.scrollWidth - node.clientWidth") == 0
    box = lake.locator("td.name").bounding_box()
    assert box is not None
    assert box["height"] < 40, "one line, and not one for each letter"
