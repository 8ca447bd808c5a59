"""What strangers put into messages and names is text on the page, and nothing else: no script of it runs, anywhere.

A broker full of hostile text is looked at through every view, by its addresses and by every link that the views show.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from scenario_grpc import GrpcSide

from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page

IMAGE = "<img/src=x/onerror=window.ran='image'>"
SCRIPT = "<script>window.ran='script'</script>"
ATTRIBUTE = "\"/onfocus='window.ran=1'/autofocus/x=\""
URL = "javascript:window.ran='url'"
TEMPLATE = "${window.ran='template'}{{window.ran}}"
TURNED = "\u202egnp.exe\u2066"
BODY = "\n".join(
    (IMAGE, SCRIPT, ATTRIBUTE, URL, TEMPLATE, TURNED, "]]>--><svg/onload=window.ran=2>")
)
# Names have letters, digits, %, |, _ and - only: what is hostile is what becomes of them when they are decoded twice.
TOPIC = "%3Cimg%20src=x%20onerror=ran=1%3E".replace("=", "%3D")
GROUP = "%3Cscript%3Ewindow|ran%3C%2Fscript%3E"
SCHEDULE = "%22onfocus%3D%22ran|-__proto__"
VIEWS = (
    "",
    "topics",
    "groups",
    "clients",
    "future",
    "problems",
    "search",
    "many",
    "dead-letters",
    "schedules",
    "messages",
)


@pytest.fixture(scope="module")
def hostile(still: BrokerProcess) -> Iterator[dict[str, str]]:
    """A broker in which every text that somebody else may choose is hostile; ids by what they are of."""
    admin = still.admin
    admin.post("/v1/topics", {"name": TOPIC, "type": "mixed", "queues": 1})
    given = {
        "topic": TOPIC,
        "body": BODY,
        "tag": IMAGE,
        "keys": [IMAGE, ATTRIBUTE, URL, "__proto__", TURNED],
        "properties": {
            "<b>bold</b>": SCRIPT,
            "__proto__": IMAGE,
            "href": URL,
            "constructor": TEMPLATE,
        },
    }
    waiting = admin.post("/v1/messages", {**given, "in_ms": 3_600_000})
    side = GrpcSide(still)
    side._headers[0] = ("x-mq-client-id", IMAGE)
    (dead,) = side.send(TOPIC, [{"body": BODY, "properties": {"x": IMAGE}, "keys": URL}])
    for shown in side.receive(TOPIC, GROUP, "*"):
        side.bury(TOPIC, GROUP, shown)
    admin.post("/v1/schedules", {"name": SCHEDULE, "every_ms": 900_000, **given})
    yield {"waiting": waiting["message_id"], "dead": dead.message_id}
    side.close()


def look(page: Page, broker: BrokerProcess, address: str) -> str:
    """Open a view, wait until it has nothing more to load, and see that nothing of the text has come alive."""
    page.goto(f"{broker.admin_url}/#/{address}")
    expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
    expect(page.locator("main .loading")).to_have_count(0)
    check(page)
    return page.get_by_role("main").inner_text()


def check(page: Page) -> None:
    assert page.evaluate("window.ran") is None
    alive = "main script, main iframe, main svg[onload], main img, main [onerror], main [onfocus], main [autofocus], main b:text-is('bold')"
    assert page.locator(alive).count() == 0
    hrefs = page.eval_on_selector_all("main a", "all => all.map(each => each.getAttribute('href'))")
    assert not [href for href in hrefs if not href.startswith(("#", "/"))]
    faults: list[str] = page.faults  # type: ignore[attr-defined]
    faults[:] = [each for each in faults if "Failed to load resource" not in each]  # refusals


def test_no_view_runs_what_it_shows(
    page: Page, still: BrokerProcess, hostile: dict[str, str]
) -> None:
    for view in VIEWS:
        look(page, still, view)
    name, group, schedule = (quote(each, safe="") for each in (TOPIC, GROUP, SCHEDULE))
    assert TOPIC in look(page, still, f"topics/{name}")
    look(page, still, f"groups/{group}")
    assert SCHEDULE in look(page, still, "schedules")
    shown = look(page, still, f"schedules/{schedule}")
    assert IMAGE in shown
    assert SCRIPT in shown
    look(page, still, f"schedules/{schedule}/change")
    expect(page.get_by_label("Body")).to_have_value(BODY)
    assert hostile["dead"] in look(page, still, f"dead-letters/{group}")
    listed = look(page, still, f"search?topic={name}&tag={quote(IMAGE)}")
    assert URL in listed
    assert ATTRIBUTE in listed


def test_a_message_shows_every_letter_of_it(
    page: Page, still: BrokerProcess, hostile: dict[str, str]
) -> None:
    name = quote(TOPIC, safe="")
    shown = look(page, still, f"messages/{name}/{hostile['waiting']}")
    for text in (IMAGE, ATTRIBUTE, URL, TEMPLATE, SCRIPT, "<b>bold</b>", "__proto__"):
        assert text in shown, text
    expect(page.get_by_label("The body", exact=True)).to_have_text(BODY, use_inner_text=True)
    page.get_by_role("button", name="Hex").click()
    for button in ("Move …", "Hand over now …", "Recall …"):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("dialog")).to_contain_text(TOPIC)
        check(page)
        page.keyboard.press("Escape")
    look(page, still, f"messages/{quote(f'%DLQ%{GROUP}', safe='')}/{hostile['dead']}")


@pytest.mark.parametrize("text", [IMAGE, SCRIPT, ATTRIBUTE, URL, "%", "../../v1/clock", "\x00\x7f"])
def test_an_address_that_somebody_else_made_does_nothing(
    page: Page, still: BrokerProcess, text: str
) -> None:
    """Also in the sentences with which the broker refuses it."""
    before = still.admin.get("/v1/topics"), still.pending()
    hostile = quote(text, safe="")
    for address in (
        hostile,
        f"topics/{hostile}",
        f"groups/{hostile}",
        f"messages/{hostile}/{hostile}",
        f"search?topic={hostile}&key={hostile}&from={hostile}&state={hostile}&after={hostile}",
        f"many?topic={hostile}&from={hostile}&to={hostile}&tag={hostile}",
        f"dead-letters/{hostile}?from={hostile}&all={hostile}",
        f"schedules/{hostile}",
        f"schedules/{hostile}/change?after={hostile}",
    ):
        look(page, still, address)
    assert (still.admin.get("/v1/topics"), still.pending()) == before
