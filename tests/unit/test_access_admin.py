"""Access over HTTP: administrators by key and secret, or by token."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.support.access_files import access_file

from horolog.access.guard import Guard
from horolog.admin.access import OWN_TOKEN
from horolog.admin.app import make_app
from horolog.admin.client import AdminClient
from horolog.errors import HorologError
from horolog.protocol.commands import (
    CountPending,
    FindMessages,
    ListTopics,
    PendingCounts,
    TopicType,
    TopicView,
)
from horolog.protocol.history_commands import (
    FindTopics,
    MessageHistory,
    ShowMessage,
    TopicsKnown,
)
from horolog.protocol.move_commands import BulkAct, BulkView, DescribeBulk
from horolog.protocol.queue_commands import CountLags, GroupSettings, GroupView, ListGroups
from horolog.protocol.rocketmq.recall_handle import RecallHandle, encode_recall_handle
from horolog.testing.engine import ScriptedEngine


def ask(tmp_path: Path, path: str, *authorization: str) -> httpx.Response:
    found: list[Any] = []

    async def run() -> None:
        guard = Guard(access_file(tmp_path))
        app = make_app(ScriptedEngine(), broker_name="broker-a", guard=guard)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            headers = [("authorization", each) for each in authorization]
            found.append(await client.get(path, headers=headers))

    asyncio.run(asyncio.wait_for(run(), 10))
    response: httpx.Response = found[0]
    return response


def basic(access_key: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{access_key}:{secret}".encode()).decode()


@pytest.mark.parametrize(
    "authorization",
    [basic("operator", "operator-secret"), "Bearer operator-token", f"Bearer {OWN_TOKEN}"],
    ids=["secret", "token", "of this process"],
)
def test_administrators_are_answered(tmp_path: Path, authorization: str) -> None:
    assert ask(tmp_path, "/v1/broker", authorization).status_code == 200


@pytest.mark.parametrize(
    ("authorization", "status", "said"),
    [
        ([], 401, "authorization: missing"),
        (["Digest x"], 401, "authorization: missing"),
        (["Bearer another"], 401, "the token is nobody's"),
        (["Bearer "], 401, "the token is nobody's"),
        (["Basic ???"], 401, "no base64"),
        ([basic("operator", "wrong")], 401, "check signature failed"),
        ([basic("nobody", "operator-secret")], 401, "'nobody' is not known"),
        (["Bearer operator-token", "Bearer operator-token"], 401, "missing"),
        ([basic("app", "app-secret")], 403, "administrator"),
        ([basic("elsewhere", "elsewhere-secret")], 401, "not accepted from 127.0.0.1"),
    ],
)
def test_others_are_not(tmp_path: Path, authorization: list[str], status: int, said: str) -> None:
    answer = ask(tmp_path, "/v1/broker", *authorization)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
    assert ("www-authenticate" in answer.headers) == (status == 401)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_is_for_everybody(tmp_path: Path, path: str) -> None:
    assert ask(tmp_path, path).status_code == 200


def request(
    tmp_path: Path, method: str, path: str, body: object, known: list[str] | None = None
) -> tuple[int, Any, list[Any]]:
    """Of `app`: status, answer, and what the engine was asked; `known`: topics that know any id."""
    found: list[Any] = []

    async def run() -> None:
        engine = ScriptedEngine()
        engine.answers[FindTopics] = TopicsKnown(known or [], None)
        engine.answers[ShowMessage] = MessageHistory(engine.answers[FindMessages])
        engine.answers[DescribeBulk] = [
            BulkView(BulkAct.RECALL, topic, 0, 9, "", False, "", 5, 5)
            for topic in ("orders", "other", "in-secret")
        ]
        app = make_app(engine, broker_name="broker-a", guard=Guard(access_file(tmp_path)))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            headers = {"authorization": basic("app", "app-secret")}
            answer = await client.request(method, path, json=body, headers=headers)
            found.extend([answer.status_code, answer.json(), engine.asked])

    asyncio.run(asyncio.wait_for(run(), 10))
    return found[0], found[1], found[2]


def recall_handle(topic: str) -> str:
    return encode_recall_handle(RecallHandle(topic, "broker-a", 1_772_964_090_000, "01AB"))


def of(topic: str) -> list[tuple[str, str, object]]:
    """What users ask of a topic: by PUB, by SUB, and by either."""
    named = {"topic": topic, "message_id": "01AB", "deliver_at_ms": 1_772_964_090_000}
    window = {"topic": topic, "from_ms": 1, "to_ms": 2}
    lease = {"topic": topic, "group": "app-1"}
    return [
        ("POST", "/v1/messages", {"topic": topic, "body": "x"}),
        ("POST", "/v1/recall", named),
        ("POST", "/v1/recall", {"handle": recall_handle(topic)}),
        ("POST", "/v1/recall/key", {"topic": topic, "key": "k"}),
        ("POST", "/v1/recall/window", window),
        ("POST", "/v1/reschedule", {**named, "in_ms": 9}),
        ("POST", "/v1/receive", lease),
        ("POST", "/v1/ack", {**lease, "receipt_handles": ["handle-1"]}),
        ("GET", f"/v1/messages/find?topic={topic}&id=01AB", None),
        ("GET", f"/v1/pending?topic={topic}", None),
        ("GET", f"/v1/pending/messages?topic={topic}", None),
    ]


_PUBLISHES, _SUBSCRIBES = range(6), range(6, 9)


@pytest.mark.parametrize("number", range(11))
def test_users_may_do_over_http_what_they_may_do_over_the_doors(
    tmp_path: Path, number: int
) -> None:
    """And who lacks the right changes nothing: the engine is not asked."""

    def may(topic: str) -> bool:
        status, content, asked = request(tmp_path, *of(topic)[number])
        assert (status < 300) == bool(asked)
        assert status < 300 or (status, content["error"]["code"]) == (403, "forbidden")
        return status < 300

    assert may("orders")
    assert not may("other")
    assert not may("in-secret")
    assert may("out-1") == (number not in _SUBSCRIBES)
    assert may("in-1") == (number not in _PUBLISHES)


def test_users_see_the_progress_of_windows_of_their_topics(tmp_path: Path) -> None:
    status, content, _ = request(tmp_path, "GET", "/v1/bulk", None)
    assert status == 200
    assert [row["topic"] for row in content["result"]["under_way"]] == ["orders"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/pending", None),
        ("GET", "/v1/pending/messages", None),
        ("GET", "/v1/messages/search", None),
        ("GET", "/v1/topics/other", None),
        ("GET", "/v1/topics/in-secret", None),
        ("POST", "/v1/topics", {"name": "orders"}),
        ("PATCH", "/v1/topics/orders", {"queues": 2}),
        ("GET", "/v1/schedules", None),
        ("POST", "/v1/clock/advance", {"by_ms": 1}),
        ("DELETE", "/v1/topics/orders", None),
        ("GET", "/v1/groups/other", None),
        ("GET", "/v1/clients", None),
        ("POST", "/v1/groups/app-1/reset", {"topic": "orders", "to": "earliest"}),
        ("GET", "/v1/broker", None),
        ("GET", "/openapi.json", None),
        ("GET", "/nothing", None),
        ("POST", "/v1/receive", {"topic": "orders", "group": "other"}),
        ("POST", "/v1/receive", {"topic": "", "group": "app-1"}),
        ("POST", "/v1/receive", {"topic": "orders", "group": ""}),
    ],
)
def test_all_else_is_for_administrators(
    tmp_path: Path, method: str, path: str, body: object
) -> None:
    status, content, asked = request(tmp_path, method, path, body)
    assert (status, content["error"]["code"]) == (403, "forbidden")
    assert not asked


def test_slashes_do_not_open_what_is_closed(tmp_path: Path) -> None:
    assert ask(tmp_path, "/healthz/").status_code == 401


def test_the_client_says_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the URL, else from the environment; the secret is in no sentence."""
    monkeypatch.delenv("HOROLOG_SECRET_KEY", raising=False)

    def header(url: str) -> str:
        client = AdminClient(url)
        assert "secret" not in client.url
        return client.headers.get("authorization", "")

    assert header("http://127.0.0.1:8090") == ""
    assert header("http://operator:a%40secret@127.0.0.1:8090") == basic("operator", "a@secret")
    assert header("http://:a-secret-token@127.0.0.1:8090") == "Bearer a-secret-token"
    monkeypatch.setenv("HOROLOG_ACCESS_KEY", "operator")
    monkeypatch.setenv("HOROLOG_SECRET_KEY", "a-secret")
    assert header("http://127.0.0.1:8090") == basic("operator", "a-secret")
    with pytest.raises(HorologError) as met:
        AdminClient("ftp://operator:a-secret@127.0.0.1")
    assert "secret" not in met.value.message


def test_by_an_id_alone_users_see_what_is_theirs(tmp_path: Path) -> None:
    """Nobody is told of a topic that it may not read; the same answer as for an id that nobody knows."""
    for path in ("/v1/messages/01AB", "/v1/messages/find?id=01AB", "/v1/messages/search?id=01AB"):
        status, answer, asked = request(tmp_path, "GET", path, None, known=["orders", "reminders"])
        assert status == 200 or "messages of" not in answer["error"]["message"]
        looked_at = {each.topic for each in asked if not isinstance(each, FindTopics)}
        assert looked_at == {"orders"}
        status, answer, asked = request(tmp_path, "GET", path, None, known=["in-secret"])
        if "search" in path:
            assert (status, answer["result"]["messages"]) == (200, [])
        else:
            assert (status, answer["error"]["code"]) == (404, "not_found")
        assert [type(each) for each in asked] == [FindTopics]


def result_of(path: str, **answers: Any) -> Any:
    """The result that `app` gets."""
    status, content, _ = answered("app", path, **answers)
    assert status == 200, content
    return content["result"]


def answered(who: str, path: str, **answers: Any) -> tuple[int, Any, list[Any]]:
    found: list[Any] = []

    async def run(folder: Path) -> None:
        engine = ScriptedEngine()
        engine.answers |= {KINDS[name]: given for name, given in answers.items()}
        app = make_app(engine, broker_name="broker-a", guard=Guard(access_file(folder)))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get(path, headers={"authorization": basic(who, f"{who}-secret")})
            found.extend([answer.status_code, answer.json(), engine.asked])

    with TemporaryDirectory() as folder:
        asyncio.run(asyncio.wait_for(run(Path(folder)), 10))
    return found[0], found[1], found[2]


KINDS = {"topics": ListTopics, "groups": ListGroups, "lags": CountLags, "pending": CountPending}
_NAMES = ["audit", "in-1", "in-secret", "orders", "out-1"]


def test_lists_are_of_what_somebody_has_a_right_to() -> None:
    """Topics with PUB or SUB, groups, what waits by topic: the rest is not named, and not counted."""
    topics = [TopicView(name, TopicType.DELAY, 1, [0], 0) for name in _NAMES]
    counts = PendingCounts(31, [], [(name, 1 << n) for n, name in enumerate(_NAMES)])
    listed = result_of("/v1/topics", topics=topics, pending=counts)["topics"]
    assert [(each["name"], each["pending"]) for each in listed] == [
        ("in-1", 2),
        ("orders", 8),
        ("out-1", 16),
    ]
    two = result_of("/v1/topics?limit=2", topics=topics, pending=counts)["topics"]
    assert [each["name"] for each in two] == ["in-1", "orders"]
    counted = result_of("/v1/pending?by=topic", pending=replace(counts))
    assert (counted["total"], [each["topic"] for each in counted["rows"]]) == (
        26,
        ["in-1", "orders", "out-1"],
    )
    everything = answered("operator", "/v1/pending?by=topic", pending=replace(counts))[1]["result"]
    assert (everything["total"], len(everything["rows"])) == (31, 5)


def test_groups_are_those_of_the_user() -> None:
    groups = [GroupView(name, GroupSettings(), []) for name in ("app-1", "app-2", "other")]
    listed = result_of("/v1/groups", groups=groups, lags=[])
    assert ([each["group"] for each in listed["groups"]], listed["next"]) == (
        ["app-1", "app-2"],
        None,
    )
    assert result_of("/v1/groups?limit=1", groups=groups[:2], lags=[])["next"] == "app-1"


def test_an_overview_of_a_user_says_nothing_of_others() -> None:
    counts = PendingCounts(31, [], [(name, 1 << n) for n, name in enumerate(_NAMES)])
    look = result_of("/v1/overview", pending=counts)
    assert (look["pending"], look["healthy"], look["name"]) == (26, True, "broker-a")
    assert [each["topic"] for each in look["topics"]] == ["out-1", "orders", "in-1"]
    assert (look["disk"], look["connections"], look["hot_seconds"]) == (None, {}, [])
    assert answered("operator", "/v1/overview", pending=counts)[1]["result"]["pending"] == 5


@pytest.mark.parametrize(
    ("who", "topic", "rights"),
    [
        ("app", "orders", ["PUB", "SUB"]),
        ("app", "out-1", ["PUB"]),
        ("app", "in-secret", []),
        ("app", "%RETRY%app-1", ["PUB", "SUB"]),
        ("operator", "anything", ["PUB", "SUB"]),
    ],
)
def test_each_identity_sees_its_own_rights(who: str, topic: str, rights: list[str]) -> None:
    found = answered(who, f"/v1/identity?topic={quote(topic)}")[1]["result"]
    assert found["rights"] == rights
    assert (found["access_key"], found["admin"]) == (who, who == "operator")


def test_the_page_is_for_everybody_who_is_known(tmp_path: Path) -> None:
    user = basic("app", "app-secret")
    for path in ("/", "/page/app.js"):
        assert ask(tmp_path, path, user).status_code == 200
        assert ask(tmp_path, path).status_code == 401
