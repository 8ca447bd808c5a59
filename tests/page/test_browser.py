"""The ring itself: a browser reaches a broker."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page


def test_a_browser_reads_health(page: Page, still: BrokerProcess) -> None:
    """The admin port answers a browser on this machine."""
    answer = page.goto(f"{still.admin_url}/healthz")
    assert answer is not None
    assert answer.status == 200
    assert answer.json()["result"]["healthy"] is True
    page.faults.clear()  # type: ignore[attr-defined]  # a browser asks for an icon, and there is none
