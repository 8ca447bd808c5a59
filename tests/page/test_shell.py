"""What stands around the views: navigation, keys, states, size and colours of the page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page


def test_the_page_opens_on_the_overview(page: Page, still: BrokerProcess) -> None:
    page.goto(still.admin_url)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="healthy")).to_be_visible()
    expect(page).to_have_title("Overview · horolog")


def test_every_view_is_reached_by_keys_alone(page: Page, still: BrokerProcess) -> None:
    page.goto(still.admin_url)
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(links.first).to_be_visible()
    for at in range(links.count()):
        title = links.nth(at).get_attribute("title") or ""
        name = links.nth(at).text_content()
        page.keyboard.press("Escape")  # a view may begin in a field
        for key in title.split():
            page.keyboard.press(key)
        expect(page.get_by_role("navigation", name="Views").locator("[aria-current]")).to_have_text(
            name or ""
        )
        expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()


def test_the_help_lists_the_keys_and_closes(page: Page, still: BrokerProcess) -> None:
    page.goto(still.admin_url)
    page.keyboard.press("?")
    box = page.get_by_role("dialog", name="Keyboard")
    expect(box).to_contain_text("local time or UTC")
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)


def test_an_address_that_leads_nowhere_says_so(page: Page, still: BrokerProcess) -> None:
    page.goto(f"{still.admin_url}/#/nope/<b>x")
    expect(page.get_by_role("heading", name="There is no such view")).to_be_visible()


def test_times_are_shown_in_the_zone_of_choice(chromium: Browser, still: BrokerProcess) -> None:
    context = chromium.new_context(timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto(still.admin_url)
    clock = page.locator("#clock")
    expect(clock).to_contain_text("local")
    local = clock.text_content()
    page.keyboard.press("z")
    expect(clock).to_contain_text("UTC")
    assert clock.text_content() != local
    page.reload()
    expect(clock).to_contain_text("UTC")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(chromium: Browser, still: BrokerProcess, scheme: str) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(still.admin_url)
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(links.first).to_be_visible()
    for at in range(links.count()):
        links.nth(at).click()
        expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, links.nth(at).text_content()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 300) == (scheme == "dark")
    context.close()


def test_a_broker_that_is_gone_leaves_what_was_shown_and_says_so(page: Page) -> None:
    with BrokerProcess() as broker:
        broker.create_topic("orders")
        page.goto(f"{broker.admin_url}/#/topics")
        row = page.get_by_role("row").filter(has_text="orders")
        expect(row).to_be_visible()
        expect(page.locator("#link-state")).to_have_text("healthy")  # or nothing could be stale
        broker.kill()
        expect(page.locator("#link-state")).to_contain_text("stale")
        expect(page.locator(".state.stale").first).to_contain_text("tries again automatically")
        expect(row).to_be_visible()
        page.goto(f"{broker.admin_url}/#/search?topic=orders&state=pending")  # asked for once
        gone = page.get_by_role("alert").filter(has_text="The broker does not answer")
        expect(gone).not_to_contain_text("automatically")
        broker.restart()
        gone.get_by_role("button", name="Try again").click()
        expect(page.get_by_text("No message matches")).to_be_visible()
        expect(page.locator("#link-state")).to_have_text("healthy", timeout=20_000)
    page.faults.clear()  # type: ignore[attr-defined]  # a browser logs requests that nobody answers


def test_nothing_there_is_said_so(page: Page) -> None:
    with BrokerProcess() as broker:
        page.goto(f"{broker.admin_url}/#/topics")
        expect(page.get_by_text("No topics yet")).to_be_visible()
        expect(page.get_by_text("first send of a RocketMQ 4.x client")).to_be_visible()
