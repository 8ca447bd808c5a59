"""Somebody looks at dead letters and sends them once more."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from scenario_grpc import GrpcSide

from horolog.admin.client import path_of
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page


def die(broker: BrokerProcess, topic: str, group: str, count: int) -> list[str]:
    """Let a group give messages up; gives their ids."""
    broker.create_topic(topic, "mixed", 1)
    side = GrpcSide(broker)
    sent = side.send(topic, [{"body": f"m{at}", "properties": {}} for at in range(count)])
    for shown in side.receive(topic, group, "*"):
        side.bury(topic, group, shown)
    side.close()
    return [each.message_id for each in sent]


def test_those_that_were_chosen_are_sent_after_a_dry_run(page: Page, still: BrokerProcess) -> None:
    ids = die(still, "chosen", "clerks", 5)
    page.goto(f"{still.admin_url}/#/dead-letters")
    page.get_by_role("row").filter(has_text="clerks").get_by_role("link").click()
    expect(page.get_by_text("5 dead letters waiting, 0 re-driven.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text=ids[0])).to_contain_text("chosen")
    for each in ids[1:3]:
        page.get_by_label(f"choose {each}").check()
    page.get_by_role("button", name="Re-drive 2 chosen …").click()
    how = page.get_by_role("dialog", name="Re-drive 2 dead letters")
    how.get_by_label("Due in").fill("soon")
    expect(how.get_by_role("button", name="Dry run")).to_be_disabled()
    how.get_by_label("Due in").fill("10m")
    how.get_by_label("Messages a second").fill("4")
    how.get_by_role("button", name="Dry run").click()
    sure = page.get_by_role("dialog", name="Re-drive 2 dead letters?")
    expect(sure).to_contain_text("First due")
    assert still.pending("chosen") == 0
    sure.get_by_role("button", name="Re-drive").click()
    expect(page.locator(".outcome strong")).to_have_text("2 dead letters re-driven.")
    expect(page.get_by_text("3 dead letters waiting, 2 re-driven.")).to_be_visible()
    waiting = still.admin.get("/v1/pending/messages", {"topic": "chosen"})["messages"]
    assert [each["message_id"] for each in waiting] == ids[1:3]
    assert waiting[1]["deliver_at_ms"] - waiting[0]["deliver_at_ms"] == 250

    page.get_by_role("link", name="with those that were re-driven").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    expect(page.get_by_label(f"choose {ids[1]}")).to_be_disabled()


def test_all_need_their_number_and_refusals_are_named(page: Page, still: BrokerProcess) -> None:
    die(still, "all-of-them", "typists", 3)
    still.create_topic("only-now", "normal")
    page.goto(f"{still.admin_url}/#/dead-letters/typists")
    page.get_by_role("button", name="Re-drive all …").click()
    how = page.get_by_role("dialog", name="Re-drive all that remain")
    how.get_by_label("To topic").fill("only-now")
    how.get_by_label("Due in").fill("10m")
    how.get_by_role("button", name="Dry run").click()
    expect(page.locator(".outcome strong")).to_have_text("None of them can be re-driven.")
    expect(page.locator(".outcome")).to_contain_text("none that are due later")

    page.get_by_role("button", name="Re-drive all …").click()
    how.get_by_role("button", name="Dry run").click()
    sure = page.get_by_role("dialog", name="Re-drive 3 dead letters?")
    expect(sure.get_by_role("button", name="Re-drive")).to_be_disabled()
    sure.get_by_label("type 3").fill("3")
    sure.get_by_role("button", name="Re-drive").click()
    expect(page.locator(".outcome strong")).to_have_text("3 dead letters re-driven.")
    expect(page.get_by_text("None waits")).to_be_visible()
    topic = still.admin.get(path_of("topics", "all-of-them"))
    assert sum(topic["queue_offsets"]) == 3 + 3


def test_a_dead_letter_leads_to_its_message(page: Page, still: BrokerProcess) -> None:
    (letter,) = die(still, "one-letter", "readers", 1)
    page.goto(f"{still.admin_url}/#/dead-letters/readers")
    page.get_by_role("link", name=letter).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(letter)
    expect(page.get_by_label("The body", exact=True)).to_have_text("m0")


def test_a_group_without_any_says_so(page: Page, still: BrokerProcess) -> None:
    still.admin.put("/v1/groups/calm", {"retry_max": 3})
    page.goto(f"{still.admin_url}/#/dead-letters/calm")
    expect(page.get_by_text("None waits")).to_be_visible()
    expect(page.get_by_role("button", name="Re-drive all …")).to_be_disabled()
