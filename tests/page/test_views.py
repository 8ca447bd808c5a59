"""What the views show of a broker, against what its admin API tells."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def busy() -> Iterator[BrokerProcess]:
    """A broker with a clock that stands still: 30 messages wait, 20 were handed over, 5 are leased, 3 acknowledged."""
    with BrokerProcess(flush="os") as broker:
        admin = AdminClient(broker.admin_url)
        broker.create_topic("orders")
        for delay_ms, n in ((1_000, 20), (60_000, 25), (90_000_000, 5)):
            for at in range(n):
                admin.post(
                    "/v1/messages", {"topic": "orders", "body": f"order {at}", "in_ms": delay_ms}
                )
        broker.advance("2s")
        wanted = {"topic": "orders", "group": "shipping", "limit": 8}
        leased = admin.post("/v1/receive", wanted)["messages"]
        handles = [message["receipt_handle"] for message in leased[:3]]
        del wanted["limit"]
        admin.post("/v1/ack", {**wanted, "receipt_handles": handles})
        yield broker


def figure(page: Page, label: str) -> str:
    found = page.locator(".figure").filter(has=page.get_by_text(label, exact=True))
    return found.locator(".value").text_content() or ""


def test_the_overview_shows_what_waits_and_how_late_it_was(page: Page, busy: BrokerProcess) -> None:
    page.goto(busy.admin_url)
    expect(page.locator(".figure").first).to_contain_text("30")
    assert figure(page, "Problems") == "0"
    expect(
        page.get_by_role("region", name="Lateness of hand-overs, since the start")
    ).to_contain_text("20 messages")
    hot = page.get_by_role("region", name="Fullest seconds, this hour and the next")
    expect(hot.get_by_role("listitem").first).to_contain_text("25")
    expect(page.get_by_role("region", name="Broker")).to_contain_text("simulated")
    expect(page.get_by_role("table", name="Topics with the most pending messages")).to_contain_text(
        "orders"
    )


def test_topics_and_groups_lead_to_each_other(page: Page, busy: BrokerProcess) -> None:
    page.goto(f"{busy.admin_url}/#/topics")
    row = page.get_by_role("row").filter(has_text="orders")
    expect(row).to_contain_text("30")
    row.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.get_by_role("region", name="Settings")).to_contain_text("send and consume")
    group = (
        page.get_by_role("table", name="Consumer groups of this topic").get_by_role("row").nth(1)
    )
    expect(group).to_contain_text("shipping")
    expect(group).to_contain_text("17")
    group.get_by_role("link").click()
    expect(page.get_by_role("heading", name="shipping")).to_be_visible()
    topics = page.get_by_role("table", name="Topics of this group")
    expect(topics.get_by_role("row").nth(1)).to_contain_text(re.compile(r"orders\D*17\D*5"))
    expect(page.get_by_text("No client is connected", exact=True)).to_be_visible()
    page.goto(f"{busy.admin_url}/#/groups")
    expect(page.get_by_role("table", name="Consumer groups")).to_contain_text("shipping")


def test_topics_are_found_by_a_part_of_their_name(page: Page, busy: BrokerProcess) -> None:
    for name in ("invoices", "in-transit"):
        busy.create_topic(name)
    page.goto(f"{busy.admin_url}/#/topics")
    page.get_by_role("searchbox").fill("IN")
    rows = page.get_by_role("table", name="Topics").get_by_role("row")
    expect(rows).to_have_count(3)
    page.reload()
    expect(rows).to_have_count(3)
    page.get_by_role("searchbox").fill("nope")
    expect(page.get_by_text("No topic has a matching name")).to_be_visible()


def test_problems_lists_the_checks(page: Page, busy: BrokerProcess) -> None:
    page.goto(f"{busy.admin_url}/#/problems")
    expect(page.get_by_role("table", name="Checks").get_by_text("ok", exact=True)).to_have_count(3)
    expect(page.get_by_text("No problems")).to_be_visible()


def test_what_is_not_there_is_said(page: Page, busy: BrokerProcess) -> None:
    page.goto(f"{busy.admin_url}/#/topics/nope")
    expect(page.get_by_role("alert")).to_contain_text("does not exist")
    page.goto(f"{busy.admin_url}/#/groups/nope")
    expect(page.get_by_role("alert")).to_contain_text("does not exist")
    page.faults.clear()  # type: ignore[attr-defined]  # a browser logs a 404


def test_names_are_text_wherever_they_are_shown(page: Page, busy: BrokerProcess) -> None:
    """An address is a stranger's text too."""
    page.goto(f"{busy.admin_url}/#/topics/<img src=x onerror=alert(1)>")
    expect(page.get_by_role("heading", level=1)).to_have_text("<img src=x onerror=alert(1)>")
    expect(page.get_by_role("main").locator("img")).to_have_count(0)
    page.faults.clear()  # type: ignore[attr-defined]  # a browser logs a 400


def test_ten_tabs_are_one_look_a_second_and_none_when_nobody_sees_them(
    chromium: Browser, running: BrokerProcess
) -> None:
    """Tabs of one browser ask through one of them; the broker looks once, whoever else asks."""
    context = chromium.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    tabs = [context.new_page() for _ in range(10)]
    for tab in tabs:
        tab.goto(running.admin_url)
    for tab in tabs:
        expect(tab.locator(".figure").first).to_contain_text("Pending")
    looks = [url for url in asked if url.endswith("/v1/overview")]
    asked.clear()
    seen = "new Promise(done => { const c = new BroadcastChannel('horolog-overview'); let n = 0; c.onmessage = () => ++n === 5 && done(n) })"
    assert tabs[0].evaluate(seen) == 5  # looks, as whoever asks tells them
    asked_now = [url for url in asked if url.endswith("/v1/overview")]
    assert 4 <= len(asked_now) <= 7, (len(asked_now), len(looks))
    hide = "Object.defineProperty(document, 'hidden', {value: true, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))"
    for tab in tabs:
        tab.evaluate(hide)
    leaders = "navigator.locks.query().then(({held}) => held.length)"
    assert tabs[0].evaluate(leaders) == 0
    tabs[3].evaluate(hide.replace("true", "false", 1))
    with tabs[3].expect_request("**/v1/overview"):
        pass
    context.close()
