"""Access over HTTP: administrators by key and secret, or by token."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.access_files import access_file

from horolog.access.guard import Guard
from horolog.admin.access import OWN_TOKEN
from horolog.admin.app import make_app
from horolog.admin.client import AdminClient
from horolog.errors import HorologError
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
    assert ask(tmp_path, "/v1/clock", authorization).status_code == 200


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
    answer = ask(tmp_path, "/v1/clock", *authorization)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_health_is_for_everybody(tmp_path: Path) -> None:
    assert ask(tmp_path, "/healthz").status_code == 200
    assert ask(tmp_path, "/healthz/").status_code == 401


def test_the_client_says_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the URL, else from the environment; the secret is in no sentence."""
    monkeypatch.delenv("HOROLOG_SECRET_KEY", raising=False)

    def header(url: str) -> str:
        client = AdminClient(url)
        assert "secret" not in client.url
        return client._authorization

    assert header("http://127.0.0.1:8090") == ""
    assert header("http://operator:a%40secret@127.0.0.1:8090") == basic("operator", "a@secret")
    assert header("http://:a-secret-token@127.0.0.1:8090") == "Bearer a-secret-token"
    monkeypatch.setenv("HOROLOG_ACCESS_KEY", "operator")
    monkeypatch.setenv("HOROLOG_SECRET_KEY", "a-secret")
    assert header("http://127.0.0.1:8090") == basic("operator", "a-secret")
    with pytest.raises(HorologError) as met:
        AdminClient("ftp://operator:a-secret@127.0.0.1")
    assert "secret" not in met.value.message
