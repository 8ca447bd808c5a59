"""Somebody looks for a message, reads why it is late, and changes what becomes of it."""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from many_pending import load
from playwright.sync_api import Browser, Page, Route, expect
from scenario_grpc import GrpcSide

from horolog.testing.broker import BrokerProcess
from horolog.units import parse_time_ms

pytestmark = pytest.mark.page

ORDER = '{"order":7,"total":12345678901234567890,"lines":[{"sku":"A-1","n":2}],"note":"5 \\u20ac"}'


@pytest.fixture
def view(page: Page, still: BrokerProcess) -> Page:
    page.goto(still.admin_url)
    return page


@pytest.fixture(scope="module", autouse=True)
def topics(still: BrokerProcess) -> None:
    still.create_topic("orders")
    still.create_topic("mixed", "mixed")


def send(broker: BrokerProcess, **fields: Any) -> dict[str, Any]:
    given = {"topic": "orders", "body": "hello", "in_ms": 3_600_000, **fields}
    return broker.admin.post("/v1/messages", given)


def open_message(page: Page, broker: BrokerProcess, sent: dict[str, Any]) -> None:
    page.goto(f"{broker.admin_url}/#/messages/{sent['topic']}/{sent['message_id']}")
    expect(page.get_by_role("heading", name="History")).to_be_visible()


def states(broker: BrokerProcess, sent: dict[str, Any]) -> list[str]:
    found = broker.admin.get(
        "/v1/messages/find", {"topic": sent["topic"], "id": sent["message_id"]}
    )
    return [each["state"] for each in found["messages"]]


def why(page: Page) -> list[str]:
    return page.locator(".why li").all_inner_texts()


def outcome(page: Page) -> Any:
    return page.locator(".outcome strong")


# --- finding ------------------------------------------------------------------------------------


def test_a_key_leads_to_the_message_by_keyboard_alone(view: Page, still: BrokerProcess) -> None:
    sent = send(still, keys=["UA1545", "Zürich"], tag="eu")
    view.keyboard.press("g")
    view.keyboard.press("s")
    view.get_by_label("Topic").fill("orders")
    view.keyboard.press("Tab")
    view.keyboard.type("UA1545")
    view.keyboard.press("Enter")
    row = view.get_by_role("row").filter(has_text=sent["message_id"])
    expect(row).to_contain_text("UA1545 Zürich")
    expect(row).to_contain_text("in 1 h")
    assert "key=UA1545" in view.url
    view.keyboard.press("j")
    expect(row).to_be_focused()
    view.keyboard.press("Enter")
    expect(view.get_by_role("heading", level=1)).to_have_text(sent["message_id"])
    expect(view).to_have_title(f"{sent['message_id']} · horolog")


def test_an_id_is_known_as_one_and_an_address_can_be_passed_on(
    view: Page, still: BrokerProcess
) -> None:
    sent = send(still)
    view.goto(f"{still.admin_url}/#/search?topic=orders")
    view.get_by_label("Id or key").fill(sent["message_id"])
    view.keyboard.press("Enter")
    expect(view.get_by_role("row")).to_have_count(2)
    address = view.url
    view.goto("about:blank")
    view.goto(address)
    expect(view.get_by_label("Id or key")).to_have_value(sent["message_id"])
    expect(view.get_by_role("row")).to_have_count(2)


def test_an_id_from_a_log_line_is_enough(view: Page, still: BrokerProcess) -> None:
    """No topic: in the search, and in an address; what is a key needs one, and that is said."""
    if all(each["name"] != "other" for each in still.admin.get("/v1/topics")["topics"]):
        still.create_topic("other")
    sent = send(still)
    view.goto(f"{still.admin_url}/#/search")
    expect(view.get_by_label("Id or key")).to_be_focused()
    view.keyboard.type(sent["message_id"])
    view.keyboard.press("Enter")
    expect(view.get_by_role("row")).to_have_count(2)
    view.get_by_role("link", name=sent["message_id"]).click()
    expect(view).to_have_url(f"{still.admin_url}/#/messages/orders/{sent['message_id']}")
    view.goto(f"{still.admin_url}/#/messages/{sent['message_id']}")
    expect(view.locator("dd", has_text="orders").first).to_be_visible()
    view.goto(f"{still.admin_url}/#/search?key=order-7")
    expect(view.get_by_text("If it is a key, give its topic.")).to_be_visible()


def test_now_is_that_of_the_broker(view: Page, still: BrokerProcess) -> None:
    """Its clock is days ahead of the browser's, and stands still: "the next hour" is one of the broker's."""
    still.advance(3 * 86_400_000)
    now_ms = still.admin.get("/v1/clock")["wall_ms"]
    sent = send(still, in_ms=1_800_000)
    view.goto(f"{still.admin_url}/#/search?topic=orders")
    view.reload()
    view.get_by_role("button", name="Due in the next hour").click()
    expect(view.get_by_role("link", name=sent["message_id"])).to_be_visible()
    asked = parse_qs(urlsplit(view.url).fragment.partition("?")[2])
    assert [parse_time_ms(asked[name][0]) for name in ("from", "to")] == [
        now_ms,
        now_ms + 3_600_000,
    ]
    view.keyboard.press("z")  # instants are typed in UTC
    view.goto(f"{still.admin_url}/#/many?topic=orders")
    view.get_by_label("What").select_option("move")
    shown = view.get_by_label("new due time").input_value()
    assert 0 <= parse_time_ms(f"{shown}:00Z") - (now_ms + 3_600_000) <= 60_000


def test_a_window_is_listed_a_page_at_a_time(view: Page, still: BrokerProcess) -> None:
    still.create_topic("paged")
    for at in range(230):
        send(still, topic="paged", in_ms=86_400_000 + at, tag="b" if at % 2 else "a")
    view.goto(f"{still.admin_url}/#/search?topic=paged&state=pending")
    seen: list[str] = []
    for rows in (100, 100, 30):
        expect(view.locator("tbody tr")).to_have_count(rows)
        seen += view.locator("tbody td.name").all_inner_texts()
        if rows == 100:
            first = view.locator("tbody tr").first.inner_text()
            view.get_by_role("link", name="Next page").click()
            expect(view.locator("tbody tr").first).not_to_have_text(first)
    assert len(set(seen)) == 230
    expect(view.get_by_role("link", name="Next page")).to_have_count(0)
    view.get_by_label("Tag").fill("a")
    view.get_by_role("button", name="Search").click()
    expect(view.get_by_role("status").filter(has_text="100 messages on this page")).to_be_visible()


def test_nothing_and_mistakes_are_said(view: Page, still: BrokerProcess) -> None:
    view.goto(f"{still.admin_url}/#/search?topic=orders&tag=nobody-has-it")
    expect(view.get_by_text("No message matches")).to_be_visible()
    view.goto(f"{still.admin_url}/#/search?topic=nope&key=x")
    expect(view.get_by_role("alert")).to_contain_text("topic 'nope' does not exist")
    view.goto(f"{still.admin_url}/#/messages/orders/{'0' * 32}")
    expect(view.get_by_role("alert")).to_contain_text("is known")
    expect_refusals(view, 2)


def expect_refusals(page: Page, most: int) -> None:
    """A browser logs each answer that is a refusal: these were provoked."""
    faults: list[str] = page.faults  # type: ignore[attr-defined]
    provoked = [each for each in faults if "Failed to load resource" in each]
    assert len(provoked) <= most
    faults[:] = [each for each in faults if each not in provoked]


# --- one message --------------------------------------------------------------------------------


def test_a_message_that_waits_says_when(view: Page, still: BrokerProcess) -> None:
    open_message(view, still, send(still, properties={"region": "eu-west"}, tag="eu"))
    assert why(view) == ["It is pending and not late: it is due in 1 h."]
    expect(view.get_by_role("row").filter(has_text="region")).to_contain_text("eu-west")
    expect(view.locator(".timeline li")).to_have_count(1)


def test_why_a_message_is_late_is_said_in_words(view: Page, still: BrokerProcess) -> None:
    """Each wait has its sentence: the broker's, the group's, and the consumer's own."""
    slow = send(still, topic="mixed", in_ms=60_000)
    still.advance("61s")
    still.advance("12m")
    side = GrpcSide(still)
    (leased,) = side.receive("mixed", "billing", "*")
    still.advance("3s")
    side.ack("mixed", "billing", [leased])
    side.close()
    open_message(view, still, slow)
    on_time, taken, acked = why(view)
    assert re.fullmatch(r"The broker handed it over on time: \d+ ms after it was due\.", on_time)
    assert taken.startswith("Group billing first took it 12 min 1 s after the hand-over")
    assert acked == "Group billing acknowledged it 3.0 s later."
    events = [
        each.get_attribute("data-event") for each in view.locator(".timeline li").element_handles()
    ]
    assert events == ["accepted", "handed_over", "leased", "acked"]


def test_a_broker_that_was_down_is_named_as_the_reason(page: Page, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", clock="system", flush="os") as broker:
        broker.create_topic("orders")
        sent = send(broker, in_ms=500)
        broker.stop()
        broker.start()
        open_message(page, broker, sent)
        first, second = why(page)
    assert re.fullmatch(r"The broker handed it over .* after it was due\. It was down.*", first)
    assert second == "No consumer group takes from its topic yet."


def test_a_body_is_shown_as_text_json_and_hex(view: Page, still: BrokerProcess) -> None:
    open_message(view, still, send(still, body=ORDER))
    body = view.get_by_label("The body", exact=True)
    expect(body).to_contain_text('"total": 12345678901234567890,')
    assert json.loads(body.inner_text()) == json.loads(ORDER)
    view.get_by_role("button", name="Text").click()
    expect(body).to_have_text(ORDER)
    view.get_by_role("button", name="Hex").click()
    expect(body).to_contain_text("00000000  7b 22 6f 72 64 65 72 22")

    open_message(view, still, send(still, body=None, body_base64="/wD+AEhp"))
    expect(body).to_have_text(re.compile(r"^00000000  ff 00 fe 00 48 69 +\.\.\.\.Hi$"))
    expect(view.get_by_role("button", name="Text")).to_have_count(0)


def test_a_large_body_is_cut_and_can_be_saved_whole(view: Page, still: BrokerProcess) -> None:
    text = "".join(f"line {at}\n" for at in range(40_000))
    open_message(
        view,
        still,
        send(
            still,
            body=None,
            body_base64=base64.b64encode(text.encode()).decode()[: 60_000 // 4 * 4],
        ),
    )
    shown = text.encode()[:45_000]
    body = view.get_by_label("The body", exact=True)
    view.get_by_role("button", name="Hex").click()
    expect(view.get_by_text("The first 8.0 KiB are shown; the download has all.")).to_be_visible()
    assert len(body.inner_text().splitlines()) == 512
    with view.expect_download() as saved:
        view.get_by_role("button", name="Download").click()
    assert saved.value.path().read_bytes() == shown


# --- acting -------------------------------------------------------------------------------------


def test_a_recall_asks_first_and_is_true(view: Page, still: BrokerProcess) -> None:
    sent = send(still)
    open_message(view, still, sent)
    view.get_by_role("button", name="Recall …").click()
    view.get_by_role("button", name="Leave it").click()
    assert states(still, sent) == ["pending"]
    view.get_by_role("button", name="Recall …").click()
    view.get_by_role("dialog").get_by_role("button", name="Recall").click()
    expect(outcome(view)).to_have_text("Recalled: no consumer will get it.")
    assert states(still, sent) == ["recalled"]
    expect(view.locator(".why")).to_contain_text("It was recalled")
    expect(view.get_by_role("button", name="Recall …")).to_have_count(0)


def test_a_message_is_moved_by_a_date_or_by_a_duration(view: Page, still: BrokerProcess) -> None:
    sent = send(still)
    open_message(view, still, sent)
    view.get_by_role("button", name="Move …").click()
    box = view.get_by_role("dialog")
    box.get_by_label("new due time").fill("2031-05-06T07:08")
    expect(box.get_by_role("status")).to_contain_text("2031-05-06 07:08:00.000")
    box.get_by_role("button", name="Move").click()
    expect(outcome(view)).to_contain_text("Moved: it is due at 2031-05-06 07:08:00.000")

    view.get_by_role("button", name="Move …").click()
    box.get_by_label("how long from now").fill("soon")
    expect(box.get_by_role("button", name="Move")).to_be_disabled()
    box.get_by_label("how long from now").fill("1h30m")
    box.get_by_role("button", name="Move").click()
    expect(outcome(view)).to_contain_text("Moved: it is due at")
    (waiting,) = still.admin.get(
        "/v1/messages/search", {"topic": "orders", "id": sent["message_id"], "state": "pending"}
    )["messages"]
    assert waiting["deliver_at_ms"] == still.now_ms() + 5_400_000
    expect(view.locator(".why")).to_contain_text("It was moved 2 times")


def test_nothing_can_be_done_to_what_has_just_been_moved_until_it_is_read_again(
    view: Page, still: BrokerProcess
) -> None:
    """A second move would name the due time of before the first, and be refused."""
    sent = send(still)
    open_message(view, still, sent)
    held: list[Route] = []
    of_message = re.compile("/v1/messages/")

    def hold(route: Route) -> None:
        held.append(route)

    view.route(of_message, hold)
    view.get_by_role("button", name="Move …").click()
    box = view.get_by_role("dialog")
    box.get_by_label("how long from now").fill("1h30m")
    box.get_by_role("button", name="Move").click()
    expect(outcome(view)).to_contain_text("Moved: it is due at")
    for name in ("Move …", "Hand over now …", "Recall …"):
        expect(view.get_by_role("button", name=name)).to_be_disabled()
    for route in held:
        route.continue_()
    view.unroute(of_message)
    for name in ("Move …", "Hand over now …", "Recall …"):
        expect(view.get_by_role("button", name=name)).to_be_enabled()


def test_changes_in_the_meantime_are_reported_and_nothing_is_done(
    view: Page, still: BrokerProcess
) -> None:
    """The page shows a message as it was; the broker decides by what it is."""
    moved = send(still)
    open_message(view, still, moved)
    still.admin.post("/v1/reschedule", {"handle": moved["recall_handle"], "in_ms": 7_200_000})
    view.get_by_role("button", name="Recall …").click()
    view.get_by_role("dialog").get_by_role("button", name="Recall").click()
    expect(outcome(view)).to_contain_text("Nothing was changed")
    expect(view.locator(".outcome")).to_contain_text("moved")
    assert sorted(states(still, moved)) == ["moved", "pending"]

    gone = send(still, in_ms=60_000)
    open_message(view, still, gone)
    still.advance("2m")
    view.get_by_role("button", name="Recall …").click()
    view.get_by_role("dialog").get_by_role("button", name="Recall").click()
    expect(outcome(view)).to_contain_text("Too late: it has been handed over already")
    assert states(still, gone) == ["delivered"]
    expect_refusals(view, 2)


def test_no_answer_is_not_reported_as_a_failure(page: Page, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.create_topic("orders")
        sent = send(broker)
        open_message(page, broker, sent)
        page.get_by_role("button", name="Recall …").click()
        broker.kill()
        page.get_by_role("dialog").get_by_role("button", name="Recall").click()
        expect(outcome(page)).to_contain_text("it may have been done or not")
        page.goto("about:blank")
        page.faults.clear()  # type: ignore[attr-defined]  # the broker is gone


def test_many_are_counted_before_anything_is_done(view: Page, still: BrokerProcess) -> None:
    still.create_topic("campaign")
    for at in range(12):
        send(still, topic="campaign", in_ms=3_600_000 + at, tag="b" if at % 3 else "a")
    now_ms = still.now_ms()
    view.goto(
        f"{still.admin_url}/#/many?topic=campaign&from={now_ms}&to={now_ms + 86_400_000}&tag=b"
    )
    view.get_by_role("button", name="Dry run …").click()
    box = view.get_by_role("dialog", name="Recall 8 messages?")
    expect(box).to_contain_text("campaign")
    go_on = box.get_by_role("button", name="Recall")
    expect(go_on).to_be_disabled()
    box.get_by_label("type 8").fill("7")
    expect(go_on).to_be_disabled()
    assert still.pending("campaign") == 12
    view.keyboard.press("Escape")
    expect(outcome(view)).to_contain_text("Nothing was changed: 8 messages")

    view.get_by_role("button", name="Dry run …").click()
    expect(box).to_be_visible()
    send(still, topic="campaign", in_ms=3_600_000, tag="b")
    box.get_by_label("type 8").fill("8")
    go_on.click()
    expect(outcome(view)).to_have_text("9 messages were recalled.")
    expect(view.locator(".outcome")).to_contain_text("1 more were sent in between")
    assert still.pending("campaign") == 4


@pytest.mark.parametrize(
    ("way", "text", "by_ms"),
    [("shift by", "-15m", -900_000), ("new due time", "2031-05-06T07:08", None)],
)
def test_many_are_moved(
    view: Page, still: BrokerProcess, way: str, text: str, by_ms: int | None
) -> None:
    topic = f"moved-{by_ms or 'all'}"
    still.create_topic(topic)
    sent = [send(still, topic=topic, in_ms=3_600_000 + at) for at in range(5)]
    now_ms = still.now_ms()
    view.goto(f"{still.admin_url}/#/many?topic={topic}&from={now_ms}&to={now_ms + 86_400_000}")
    view.get_by_label("What").select_option("Move")
    view.get_by_label(way).fill(text)
    view.get_by_role("button", name="Dry run …").click()
    box = view.get_by_role("dialog", name="Move 5 messages?")
    box.get_by_label("type 5").fill("5")
    box.get_by_role("button", name="Move").click()
    expect(outcome(view)).to_have_text("5 messages were moved.")
    waiting = still.admin.get("/v1/pending/messages", {"topic": topic})["messages"]
    due = [each["deliver_at_ms"] for each in waiting]
    if by_ms is None:
        assert set(due) == {1_935_817_680_000}  # the browser of these tests lives by UTC
    else:
        assert due == [each["deliver_at_ms"] + by_ms for each in sent]


def test_it_is_seen_how_far_many_are(view: Page, still: BrokerProcess) -> None:
    """By whoever looks, also when somebody else has asked."""
    still.create_topic("mass")
    now_ms = still.now_ms()
    load(still, "mass", now_ms + 3_600_000 + np.arange(40_000), b"x")
    window = {"topic": "mass", "from_ms": now_ms, "to_ms": now_ms + 86_400_000}
    view.goto(f"{still.admin_url}/#/many?topic=mass")
    expect(view.get_by_role("region", name="Under way")).to_be_hidden()
    is_seen = Event()

    def move() -> list[int]:
        found = []
        while not is_seen.is_set():  # the page asks once a second, and a move may take less
            asked = {**window, "shift_ms": 1_000 + len(found)}
            found.append(still.admin.post("/v1/reschedule/window", asked, timeout_s=60)["moved"])
        return found

    with ThreadPoolExecutor(1) as other:
        moved = other.submit(move)
        try:
            expect(view.get_by_role("region", name="Under way")).to_contain_text("Move mass")
        finally:
            is_seen.set()
        assert set(moved.result()) == {40_000}
    expect(view.get_by_role("region", name="Under way")).to_be_hidden()


def test_many_are_handed_over_now(view: Page, still: BrokerProcess) -> None:
    still.create_topic("now")
    for at in range(5):
        send(still, topic="now", in_ms=3_600_000 + at)
    now_ms = still.now_ms()
    view.goto(f"{still.admin_url}/#/many?topic=now&from={now_ms}&to={now_ms + 86_400_000}")
    view.get_by_label("What").select_option("Hand over now")
    view.get_by_role("button", name="Dry run …").click()
    box = view.get_by_role("dialog", name="Hand over now 5 messages?")
    box.get_by_label("type 5").fill("5")
    box.get_by_role("button", name="Hand over now").click()
    expect(outcome(view)).to_have_text("5 messages were handed over.")
    received = still.admin.post("/v1/receive", {"topic": "now", "group": "any", "limit": 32})
    assert len(received["messages"]) == 5


def test_it_fits_a_phone(chromium: Browser, still: BrokerProcess) -> None:
    sent = send(still, body=ORDER * 40, keys=["k" * 60], properties={"p" * 40: "v" * 300})
    context = chromium.new_context(viewport={"width": 360, "height": 740})
    page = context.new_page()
    for path in (
        "search?topic=orders",
        f"messages/orders/{sent['message_id']}",
        "many?topic=orders",
    ):
        page.goto(f"{still.admin_url}/#/{path}")
        expect(page.get_by_role("heading").first).to_be_visible()
        expect(page.get_by_text("Loading")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        # A long name does not leave its value a column of one letter
        if path.startswith("messages"):
            box = page.locator(".properties td").first.bounding_box()
            assert box is not None
            assert box["width"] > 200
    page.goto(f"{still.admin_url}/#/search?topic=orders")
    expect(page.locator("td .id").first).to_be_in_viewport(ratio=0.01)  # not beside the screen
    page.goto(f"{still.admin_url}/#/problems")
    expect(page.get_by_role("link", name="Problems")).to_be_in_viewport()
    context.close()
