"""Recall, move and hand-over from the page while hand-over runs: whatever the page says has happened, has."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page

BETWEEN_MS = 150  # due times are that far apart, so that some come while the page asks
ACTS = {
    "Recall …": ("Recall", "Recalled: no consumer will get it.", "recalled"),
    "Move …": ("Move", "Moved: it is due at", "pending"),
    "Hand over now …": ("Hand over now", "Handed over: queue", "delivered"),
}


def state_of(broker: BrokerProcess, sent: dict[str, Any]) -> list[dict[str, Any]]:
    found = broker.admin.get("/v1/messages/find", {"topic": "rush", "id": sent["message_id"]})
    return list(found["messages"])


def test_every_answer_is_true_while_hand_over_runs(page: Page, running: BrokerProcess) -> None:
    running.create_topic("rush")
    outcomes: dict[str, int] = {}
    for attempt in range(4):
        for name, act in ACTS.items():
            # The message is due just about when the button is pressed; others are handed over all the time.
            sent = [
                running.admin.post(
                    "/v1/messages",
                    {"topic": "rush", "body": "x", "in_ms": 400 + attempt * 200 + at},
                )
                for at in range(0, 20 * BETWEEN_MS, BETWEEN_MS)
            ]
            kind = press(page, running, sent[0], name, act)
            outcomes[kind] = outcomes.get(kind, 0) + 1
            kind = press(page, running, sent[-1], name, act)
            outcomes[kind] = outcomes.get(kind, 0) + 1
    assert outcomes["done"] >= 6, outcomes
    faults: list[str] = page.faults  # type: ignore[attr-defined]
    assert len(faults) == outcomes.get("too late", 0), faults
    faults.clear()


def press(
    page: Page,
    broker: BrokerProcess,
    sent: dict[str, Any],
    name: str,
    act: tuple[str, str, str],
) -> str:
    """Do it to a message, and hold what the page says against what the broker knows; how it ended."""
    label, success, state = act
    page.goto(f"{broker.admin_url}/#/messages/rush/{sent['message_id']}")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    button = page.get_by_role("button", name=name)
    if not button.count():  # it was handed over before the page had it
        assert [each["state"] for each in state_of(broker, sent)] == ["delivered"]
        return "seen too late"
    button.click()
    box = page.get_by_role("dialog")
    if label == "Move":
        box.get_by_label("how long from now").fill("2h")
    box.get_by_role("button", name=label, exact=True).click()
    ending = page.locator(".outcome strong")
    expect(ending).not_to_have_text("")
    text = ending.inner_text()
    found = state_of(broker, sent)
    if text.startswith(success):
        newest = max(found, key=lambda each: each["origin"])
        assert newest["state"] == state, (text, found)
        # Moved or handed over by request it is there once more; what it was before is not delivered as well.
        assert [each["state"] for each in found].count("delivered") == (state == "delivered")
        return "done"
    assert text == "Too late: it has been handed over already, and nothing was changed."
    assert [each["state"] for each in found] == ["delivered"]
    assert found[0]["deliver_at_ms"] == sent["deliver_at_ms"]
    return "too late"
