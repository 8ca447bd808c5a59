"""A real browser on a real broker.

A page of these tests fails its test when it logs an error, raises one, or asks another host than the broker's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import other_site
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from horolog.testing.broker import BrokerProcess

SWITCHES = [
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--host-resolver-rules=MAP {other_site.NAME} 127.0.0.1",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path is not None, "these tests need Chromium: make page-tools"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def still() -> Iterator[BrokerProcess]:
    """A broker whose clock stands still unless a test moves it."""
    with BrokerProcess() as started:
        yield started


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    """A broker with the machine's clock."""
    with BrokerProcess(clock="system", flush="os") as started:
        yield started


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A browser that has seen nothing yet."""
    context = chromium.new_context()
    context.set_default_timeout(15_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """An empty page; a test that provokes an error takes it out of `page.faults`."""
    page = context.new_page()
    faults: list[str] = []
    page.faults = faults  # type: ignore[attr-defined]
    page.on("pageerror", lambda error: faults.append(f"raised: {error}"))
    page.on(
        "console",
        lambda message: (
            faults.append(f"logged: {message.text}") if message.type == "error" else None
        ),
    )
    page.on("request", lambda request: _note_stranger(request.url, faults))
    yield page
    assert not faults, faults


def _note_stranger(url: str, faults: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname != "127.0.0.1":
        faults.append(f"asked: {url}")
