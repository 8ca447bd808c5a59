"""Somebody makes a recurring schedule, changes it, pauses it and removes it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from horolog.admin.client import path_of
from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page


@pytest.fixture(scope="module", autouse=True)
def topic(still: BrokerProcess) -> None:
    still.create_topic("reminders")


def firings(page: Page) -> list[str]:
    return page.get_by_role("table", name="Next firings").locator("tbody tr").all_inner_texts()


def test_a_schedule_is_made_after_its_firings_were_seen(page: Page, still: BrokerProcess) -> None:
    page.goto(f"{still.admin_url}/#/schedules")
    page.get_by_role("link", name="New schedule …").click()
    page.get_by_label("Name").fill("standup")
    page.get_by_label("Topic").fill("reminders")
    page.get_by_label("Cron expression").fill("30 2 * * *")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_label("Body").fill("stand up")
    save = page.get_by_role("button", name="Create")
    expect(save).to_be_disabled()
    page.get_by_role("button", name="Show the next ten firings").click()
    expect(save).to_be_enabled()
    assert len(firings(page)) == 10
    assert still.admin.get("/v1/schedules")["schedules"] == []
    page.get_by_label("Cron expression").fill("0 9 * * 1-5")
    expect(save).to_be_disabled()
    page.get_by_role("button", name="Show the next ten firings").click()
    expect(page.get_by_role("table", name="Next firings")).to_contain_text("T09:00:00+01:00")
    foreseen = firings(page)
    save.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("standup")
    expect(page.get_by_role("table", name="Next firings")).to_be_visible()
    assert [each.split("\t")[:3] for each in firings(page)] == [
        each.split("\t")[:3] for each in foreseen
    ]
    made = still.admin.get(path_of("schedules", "standup"))
    assert (made["cron"], made["zone"], made["body"]) == (
        "0 9 * * 1-5",
        "Europe/Berlin",
        "stand up",
    )


def test_mistakes_are_said_and_nothing_is_made(page: Page, still: BrokerProcess) -> None:
    page.goto(f"{still.admin_url}/#/schedules/new%20schedule")
    page.get_by_label("Name").fill("wrong")
    page.get_by_label("Topic").fill("reminders")
    look = page.get_by_role("button", name="Show the next ten firings")
    look.click()
    expect(page.get_by_text("Give either a cron expression or an interval.")).to_be_visible()
    page.get_by_label("Cron expression").fill("61 * * * *")
    look.click()
    expect(page.locator(".preview .notice")).to_contain_text("cron")
    page.get_by_label("Cron expression").fill("")
    page.get_by_label("or every").fill("soon")
    look.click()
    expect(page.locator(".preview .notice")).to_contain_text("soon is not a duration")
    expect(page.get_by_role("button", name="Create")).to_be_disabled()
    faults = page.faults  # type: ignore[attr-defined]
    assert len(faults) == 1, "the broker refused once"
    faults.clear()


def test_a_schedule_is_changed_paused_resumed_and_removed(page: Page, still: BrokerProcess) -> None:
    given = {"name": "poll", "topic": "reminders", "body": "poll", "every_ms": 900_000}
    given |= {"properties": {"kept": "yes"}, "jitter_ms": 60_000}
    still.admin.post("/v1/schedules", given)
    page.goto(f"{still.admin_url}/#/schedules/poll/change")
    expect(page.get_by_label("or every")).to_have_value("15min")
    page.get_by_label("or every").fill("20m")
    page.get_by_role("button", name="Show the next ten firings").click()
    expect(page.get_by_role("table", name="Next firings")).to_be_visible()
    assert still.admin.get(path_of("schedules", "poll"))["every_ms"] == 900_000
    foreseen = firings(page)
    page.get_by_role("button", name="Save the change").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("poll")
    expect(page.get_by_text("every 20 min")).to_be_visible()
    assert [each.split("\t")[1:3] for each in firings(page)] == [
        each.split("\t")[1:3] for each in foreseen
    ]
    changed = still.admin.get(path_of("schedules", "poll"))
    assert (changed["every_ms"], changed["properties"]) == (1_200_000, {"kept": "yes"})

    page.get_by_role("button", name="Pause …").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("If it were resumed now.")).to_be_visible()
    assert still.admin.get(path_of("schedules", "poll"))["state"] == "paused"
    page.get_by_role("button", name="Resume …").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause …")).to_be_visible()
    page.get_by_role("button", name="Remove …").click()
    sure = page.get_by_role("dialog")
    expect(sure.get_by_role("button", name="Remove")).to_be_disabled()
    sure.get_by_label("type poll").fill("poll")
    sure.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Schedules")
    with pytest.raises(HorologError):
        still.admin.get(path_of("schedules", "poll"))


def test_somebody_elses_change_is_not_overwritten(page: Page, still: BrokerProcess) -> None:
    given = {"topic": "reminders", "body": "a", "every_ms": 900_000}
    still.admin.post("/v1/schedules", {"name": "shared", **given})
    page.goto(f"{still.admin_url}/#/schedules/shared/change")
    page.get_by_label("Body").fill("mine")
    page.get_by_role("button", name="Show the next ten firings").click()
    expect(page.get_by_role("button", name="Save the change")).to_be_enabled()
    still.admin.put(path_of("schedules", "shared"), {**given, "body": "theirs"})
    page.get_by_role("button", name="Save the change").click()
    expect(page.locator(".outcome strong")).to_contain_text(
        "somebody else has changed the schedule"
    )
    assert still.admin.get(path_of("schedules", "shared"))["body"] == "theirs"
    page.faults.clear()  # type: ignore[attr-defined]  # the refusal
