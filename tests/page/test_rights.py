"""The page of a broker with an access file: whole for administrators, for users what they have rights to."""

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
    admin.post("/v1/topics", {"name": "orders", "type": "mixed", "queues": 1})
    sent = admin.post("/v1/messages", {"topic": "orders", "body": "x", "in_ms": 3_600_000})
    page, status = visit(chromium, guarded, "operator", "operator-secret")
    assert status == 200
    expect(page.get_by_role("status").filter(has_text="healthy")).to_be_visible()
    page.goto(f"{guarded.admin_url}/#/messages/orders/{sent['message_id']}")
    page.get_by_role("button", name="Recall …").click()
    page.get_by_role("dialog").get_by_role("button", name="Recall").click()
    expect(page.locator(".outcome strong")).to_have_text("Recalled: no consumer will get it.")
    page.context.close()


def test_an_unknown_identity_is_refused_in_words(chromium: Browser, guarded: BrokerProcess) -> None:
    page, status = visit(chromium, guarded, "operator", "guessed")
    assert status == 401
    expect(page.get_by_role("heading", level=1)).to_have_text("Nobody is logged in")
    page.context.close()


@pytest.fixture
def filled(guarded: BrokerProcess) -> dict[str, str]:
    """Message ids by topic: of some `app` has both rights, or one, or none."""
    admin = AdminClient(guarded.admin_url.replace("//", "//operator:operator-secret@", 1))
    known = {each["name"] for each in admin.get("/v1/topics")["topics"]}
    ids = {}
    for topic in ("orders", "in-1", "out-1", "in-secret", "payroll"):
        if topic not in known:
            admin.post("/v1/topics", {"name": topic, "type": "mixed", "queues": 1})
        sent = admin.post("/v1/messages", {"topic": topic, "body": "x", "in_ms": 3_600_000})
        ids[topic] = sent["message_id"]
        for group in ("app-1", "payroll-group"):
            admin.post("/v1/receive", {"topic": topic, "group": group, "poll_ms": 0})
    return ids


def test_a_user_sees_what_it_has_a_right_to(
    chromium: Browser, guarded: BrokerProcess, filled: dict[str, str]
) -> None:
    """Every view: its own topics and groups, nothing of others, and no error of the page."""
    page, status = visit(chromium, guarded, "app", "app-secret")
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("response", lambda answer: answer.status >= 400 and faults.append(answer.url))
    assert status == 200
    expect(page.locator("#broker-name")).to_contain_text("as app")
    expect(page.get_by_role("row").filter(has_text="orders")).to_be_visible()
    expect(page.get_by_role("navigation", name="Views").get_by_role("link")).to_have_text(
        ["Overview", "Future", "Topics", "Groups", "Search"]
    )
    for view in ("", "future", "topics", "groups", "topics/orders", "groups/app-1", "search"):
        page.goto(f"{guarded.admin_url}/#/{view}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading")).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(0)
        shown = page.locator("main").inner_text()
        assert "payroll" not in shown
        assert "secret" not in shown
    page.goto(f"{guarded.admin_url}/#/topics")
    expect(page.get_by_role("row")).to_have_count(1 + 3)
    page.goto(f"{guarded.admin_url}/#/groups")
    expect(page.get_by_role("row")).to_have_count(1 + 1)
    page.goto(f"{guarded.admin_url}/#/future")
    page.get_by_role("link", name="orders").click()
    expect(page.locator(".heat")).to_be_visible()
    assert not faults
    page.context.close()


def test_a_user_may_act_where_it_may_send(
    chromium: Browser, guarded: BrokerProcess, filled: dict[str, str]
) -> None:
    """Found by its id alone; without PUB nothing is offered, and what is not its own is not known."""
    page, _ = visit(chromium, guarded, "app", "app-secret")
    page.goto(f"{guarded.admin_url}/#/messages/{filled['in-1']}")
    expect(page.locator(".notice")).to_contain_text("the right PUB to in-1")
    expect(page.get_by_role("button", name="Recall …")).to_have_count(0)
    page.goto(f"{guarded.admin_url}/#/messages/{filled['payroll']}")
    expect(page.get_by_role("alert")).to_contain_text("is known")
    page.goto(f"{guarded.admin_url}/#/topics/payroll")
    expect(page.get_by_role("alert").first).to_contain_text("You have no rights here")
    page.goto(f"{guarded.admin_url}/#/schedules")
    expect(page.get_by_text("This view is for administrators")).to_be_visible()
    page.goto(f"{guarded.admin_url}/#/search?state=pending")
    expect(page.get_by_text("Give a topic, or an id")).to_be_visible()
    page.goto(f"{guarded.admin_url}/#/messages/{filled['orders']}")
    page.get_by_role("button", name="Recall …").click()
    page.get_by_role("dialog").get_by_role("button", name="Recall").click()
    expect(page.locator(".outcome strong")).to_have_text("Recalled: no consumer will get it.")
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
