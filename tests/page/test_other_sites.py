"""A page of another site, in a browser on the broker's machine, can neither drive the broker nor learn from it.

The other site is a real one: a web server whose name Chromium resolves to 127.0.0.1, as an attacker's DNS would.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_files import access_file
from other_site import ATTACKS, other_site
from other_site import NAME as SITE
from playwright.sync_api import Browser, BrowserContext, Page, expect

from horolog.admin.client import AdminClient
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.page

TOPIC = "reminders"
EVERYTHING = {"from_ms": 0, "to_ms": 4_102_444_800_000}
LOGIN = {"username": "operator", "password": "operator-secret"}


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    with other_site() as port:
        yield port


@pytest.fixture(scope="module", params=["open", "with access control"])
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker with one message that waits: for everybody, or for administrators."""
    arguments = []
    if request.param != "open":
        path = access_file(tmp_path_factory.mktemp("access"))
        arguments = ["--access", str(path)]
    with BrokerProcess(arguments=arguments) as broker:
        admin = admin_of(broker)
        admin.post("/v1/topics", {"name": TOPIC, "type": "delay", "queues": 1})
        admin.post("/v1/messages", {"topic": TOPIC, "body": "stand up", "in_ms": 3_600_000})
        yield broker


def admin_of(broker: BrokerProcess) -> AdminClient:
    """A client with the operator's key, which a broker without access control does not look at."""
    return AdminClient(broker.admin_url.replace("http://", "http://operator:operator-secret@", 1))


def what_is_there(broker: BrokerProcess) -> Any:
    return admin_of(broker).get("/v1/topics"), admin_of(broker).get("/v1/pending/messages")


@pytest.fixture
def victim(chromium: Browser, target: BrokerProcess) -> Iterator[BrowserContext]:
    """A browser whose user is logged in at the broker."""
    context = chromium.new_context(http_credentials=LOGIN)
    context.set_default_timeout(15_000)
    page = context.new_page()
    answer = page.goto(f"{target.admin_url}/v1/clock")
    assert answer is not None
    assert answer.status == 200, "the user cannot use the broker"
    page.close()
    yield context
    context.close()


def attack(context: BrowserContext, page_url: str, target: BrokerProcess) -> dict[str, str]:
    window = json.dumps({"topic": TOPIC, **EVERYTHING})
    send = json.dumps({"topic": TOPIC, "body": "from another site"})
    page = context.new_page()
    page.goto(page_url)
    learnt: dict[str, str] = page.evaluate(
        ATTACKS,
        {
            "admin": target.admin_url,
            "topic": TOPIC,
            "message": {"window": window, "send": send},
        },
    )
    page.close()
    return learnt


@pytest.mark.parametrize("host", ["127.0.0.1", SITE])
def test_requests_of_another_site_do_nothing(
    victim: BrowserContext, target: BrokerProcess, site: int, host: str
) -> None:
    """Neither a site of this machine, which browsers call the same site, nor one elsewhere."""
    before = what_is_there(target)
    statuses: list[tuple[str, int]] = []
    victim.on(
        "response",
        lambda answer: (
            statuses.append((answer.url, answer.status))
            if answer.url.startswith(target.admin_url)
            else None
        ),
    )
    learnt = attack(victim, f"http://{host}:{site}/", target)
    assert learnt == dict.fromkeys(learnt, "nothing")
    assert len(learnt) == 13
    assert len(statuses) >= 5, "the attacks did not reach the broker"
    assert {status for _, status in statuses} <= {401, 403}
    assert what_is_there(target) == before


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_a_form_of_another_site_does_nothing(
    victim: BrowserContext, target: BrokerProcess, site: int, kind: str
) -> None:
    """A form needs no permission to be sent anywhere, and takes the whole page along."""
    before = what_is_there(target)
    page = victim.new_page()
    page.goto(f"http://{SITE}:{site}/")
    with page.expect_navigation() as navigation:
        page.evaluate(
            """([action, kind, body]) => {
                const form = document.createElement('form');
                Object.assign(form, {action, method: 'POST', enctype: kind});
                const field = document.createElement('input');
                // As text/plain this is JSON: the = comes to lie within a string.
                Object.assign(field, {name: body.slice(0, -1) + ', "tag": "', value: '"}'});
                form.append(field);
                document.body.append(form);
                form.submit();
            }""",
            [
                f"{target.admin_url}/v1/recall/window",
                kind,
                json.dumps({"topic": TOPIC, **EVERYTHING}),
            ],
        )
    assert navigation.value is not None
    assert navigation.value.status == 403
    assert what_is_there(target) == before
    page.close()


def test_a_name_that_is_pointed_at_this_machine_is_refused(
    victim: BrowserContext, target: BrokerProcess
) -> None:
    """DNS rebinding: the page's own site becomes the broker, so all requests are of the same origin."""
    before = what_is_there(target)
    port = target.ready["admin-port"]
    page = victim.new_page()
    answer = page.goto(f"http://{SITE}:{port}/")
    assert answer is not None
    assert answer.status == 403
    learnt = page.evaluate(
        """async ([topic, window]) => {
            const json = {'content-type': 'application/json'};
            const answers = [
                await fetch('/v1/topics'),
                await fetch('/healthz'),
                await fetch('/v1/recall/window', {method: 'POST', headers: json, body: window}),
                await fetch('/v1/topics/' + topic, {method: 'DELETE'}),
            ];
            return Promise.all(answers.map(async each => [each.status, await each.text()]));
        }""",
        [TOPIC, json.dumps({"topic": TOPIC, **EVERYTHING})],
    )
    assert [status for status, _ in learnt] == [403] * 4
    assert not [text for _, text in learnt if TOPIC in text]
    assert what_is_there(target) == before
    page.close()


def test_the_broker_cannot_be_framed(
    victim: BrowserContext, target: BrokerProcess, site: int
) -> None:
    """Clickjacking: a frame in which the user would click on what he does not see."""
    page = victim.new_page()
    page.goto(f"http://{SITE}:{site}/")
    for path in ("/", "/v1/topics"):
        page.evaluate(
            """url => new Promise(done => {
                const frame = document.createElement('iframe');
                frame.onload = done;
                frame.src = url;
                document.body.append(frame);
            })""",
            target.admin_url + path,
        )
    for frame in page.frames[1:]:
        assert TOPIC not in frame.locator("body").inner_text()
    page.close()


def test_another_site_opens_no_window_that_it_can_read(
    victim: BrowserContext, target: BrokerProcess, site: int
) -> None:
    page = victim.new_page()
    page.goto(f"http://{SITE}:{site}/")
    with victim.expect_page() as opened:
        page.evaluate(
            "url => { window.opened = window.open(url); }", f"{target.admin_url}/v1/topics"
        )
    opened.value.wait_for_load_state()
    assert TOPIC not in opened.value.locator("body").inner_text()
    seen = page.evaluate(
        """() => {
            try { return window.opened.document.body.textContent; } catch { return 'nothing'; }
        }"""
    )
    assert seen == "nothing"
    page.close()


def test_a_name_that_the_operator_allows_is_answered(chromium: Browser, tmp_path: Path) -> None:
    """What refuses the other names is the name alone."""
    with BrokerProcess(arguments=["--admin-hosts", SITE]) as broker:
        context: BrowserContext = chromium.new_context()
        page: Page = context.new_page()
        answer = page.goto(f"http://{SITE}:{broker.ready['admin-port']}/v1/topics")
        assert answer is not None
        assert answer.status == 200
        context.close()


def test_a_link_of_another_site_opens_the_page_and_gives_nothing_away(
    victim: BrowserContext, target: BrokerProcess, site: int
) -> None:
    """From a wiki or a chart; what the link prepares is done by nobody but the user."""
    before = what_is_there(target)
    page = victim.new_page()
    page.goto(f"http://{SITE}:{site}/")
    asked = f"/#/many?topic={TOPIC}&from=0&to={EVERYTHING['to_ms']}"
    with victim.expect_page() as opened:
        page.evaluate("url => { window.opened = window.open(url); }", target.admin_url + asked)
    expect(opened.value.get_by_role("heading", level=1)).to_have_text("Many at once")
    seen = page.evaluate(
        """() => {
            try { return window.opened.document.body.textContent; } catch { return 'nothing'; }
        }"""
    )
    assert seen in ("nothing", "")
    assert what_is_there(target) == before
    page.close()
