"""The page of a broker with an access file: for administrators, and a plain sentence for everybody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from access_files import access_file
from playwright.sync_api import Browser, Page, expect

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    path = access_file(tmp_path_factory.mktemp("access"))
    with BrokerProcess(arguments=["--access", str(path)]) as broker:
        yield broker


def visit(chromium: Browser, broker: BrokerProcess, key: str, secret: str) -> tuple[Page, int]:
    context = chromium.new_context(http_credentials={"username": key, "password": secret})
    page = context.new_page()
    answer = page.goto(broker.admin_url)
    assert answer is not None
    return page, answer.status


def test_an_administrator_may_look_and_act(chromium: Browser, guarded: BrokerProcess) -> None:
    admin = AdminClient(guarded.admin_url.replace("//", "//operator:operator-secret@", 1))
    admin.post("/v1/topics", {"name": "orders", "queues": 1})
    sent = admin.post("/v1/messages", {"topic": "orders", "body": "x", "in_ms": 3_600_000})
    page, status = visit(chromium, guarded, "operator", "operator-secret")
    assert status == 200
    expect(page.get_by_role("status").filter(has_text="healthy")).to_be_visible()
    page.goto(f"{guarded.admin_url}/#/messages/orders/{sent['message_id']}")
    page.get_by_role("button", name="Recall …").click()
    page.get_by_role("dialog").get_by_role("button", name="Recall").click()
    expect(page.locator(".outcome strong")).to_have_text("Recalled: nobody gets it.")
    page.context.close()


@pytest.mark.parametrize(
    ("key", "secret", "status", "sentence"),
    [
        ("app", "app-secret", 403, "You have no rights here"),
        ("operator", "guessed", 401, "Nobody is logged in"),
    ],
)
def test_others_are_told_so_in_words(
    chromium: Browser, guarded: BrokerProcess, key: str, secret: str, status: int, sentence: str
) -> None:
    page, found = visit(chromium, guarded, key, secret)
    assert found == status
    expect(page.get_by_role("heading", level=1)).to_have_text(sentence)
    assert "orders" not in page.content()
    page.context.close()


def test_rights_that_were_taken_away_show_on_an_open_page(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = access_file(tmp_path_factory.mktemp("access"))
    with BrokerProcess(arguments=["--access", str(path)]) as broker:
        page, status = visit(chromium, broker, "operator", "operator-secret")
        assert status == 200
        expect(page.get_by_role("status").filter(has_text="healthy")).to_be_visible()
        path.write_text(path.read_text().replace("admin = true", "admin = false"))
        broker.restart()
        page.goto(f"{broker.admin_url}/#/schedules")
        expect(page.get_by_role("alert").first).to_contain_text("You have no rights")
        page.context.close()
