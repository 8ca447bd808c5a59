"""Pages of other sites cannot use the admin API: Host, Origin and Sec-Fetch-Site."""

from __future__ import annotations

import asyncio
import http.client
from typing import Any

import httpx
import pytest

from horolog.admin.app import make_app
from horolog.config_sources import load
from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess
from horolog.testing.engine import ScriptedEngine


def ask(url: str, headers: dict[str, str], names: tuple[str, ...] = ()) -> tuple[int, Any]:
    """GET /v1/clock of a broker that is bound to 127.0.0.1:8090."""
    found: list[Any] = []

    async def run() -> None:
        app = make_app(ScriptedEngine(), broker_name="broker-a", hosts=names)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            response = await client.get("/v1/clock", headers=headers)
            found.extend([response.status_code, response.json()])

    asyncio.run(asyncio.wait_for(run(), 10))
    return found[0], found[1]


URL = "http://127.0.0.1:8090"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost:8090"},
        {"host": "LOCALHOST:8090"},
        {"host": "[::1]:8090"},
        {"origin": "http://localhost:8090"},
        {"origin": "http://127.0.0.1:8090", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
def test_the_broker_itself_is_answered(headers: dict[str, str]) -> None:
    assert ask(URL, headers)[0] == 200


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"host": "evil.example"}, "host"),
        ({"host": "evil.example:8090"}, "host"),
        ({"host": "localhost"}, "host"),
        ({"host": "localhost:8091"}, "host"),
        ({"host": "localhost.evil.example:8090"}, "host"),
        ({"host": "127.0.0.1:8090.evil.example"}, "host"),
        ({"host": ""}, "host"),
        ({"origin": "http://evil.example"}, "origin"),
        ({"origin": "http://evil.example:8090"}, "origin"),
        ({"origin": "http://localhost:3000"}, "origin"),
        ({"origin": "https://localhost:3000"}, "origin"),
        ({"origin": "null"}, "origin"),
        ({"origin": "localhost:8090"}, "origin"),
        ({"sec-fetch-site": "cross-site"}, "sec-fetch-site"),
        ({"sec-fetch-site": "same-site"}, "sec-fetch-site"),
    ],
)
def test_another_site_is_refused(headers: dict[str, str], field: str) -> None:
    """403 in the one error shape, which says what is allowed."""
    status, answer = ask(URL, headers)
    assert status == 403
    error = answer["error"]
    assert (error["code"], error["field"]) == ("forbidden", field)
    assert error["limit"] == "127.0.0.1:8090, localhost:8090, [::1]:8090"
    assert error["message"].startswith(f"{field}: ")
    assert "--admin-hosts" in error["message"]


def test_a_host_given_twice_is_refused() -> None:
    sent: list[Any] = []

    async def run() -> None:
        app = make_app(ScriptedEngine(), broker_name="broker-a")
        scope = {
            "type": "http", "method": "GET", "path": "/v1/clock", "query_string": b"",
            "server": ("127.0.0.1", 8090),
            "headers": [(b"host", b"127.0.0.1:8090"), (b"host", b"evil.example")],
        }  # fmt: skip

        async def send(event: Any) -> None:
            sent.append(event)

        await app(scope, lambda: None, send)  # type: ignore[arg-type,return-value]

    asyncio.run(run())
    assert sent[0]["status"] == 403


@pytest.mark.parametrize(
    ("headers", "names", "status"),
    [
        ({"host": "broker.internal:9000"}, ("broker.internal",), 200),
        ({"host": "broker.internal"}, ("broker.internal",), 200),
        ({"host": "broker.internal:9000"}, ("broker.internal:9000",), 200),
        ({"host": "broker.internal:9001"}, ("broker.internal:9000",), 403),
        ({"host": "other.internal:9000"}, ("broker.internal",), 403),
        ({"origin": "https://broker.internal"}, ("broker.internal",), 200),
        ({"origin": "https://broker.internal"}, ("broker.internal:443",), 200),
    ],
)
def test_names_that_are_allowed_besides(
    headers: dict[str, str], names: tuple[str, ...], status: int
) -> None:
    assert ask(URL, headers, names)[0] == status


def test_the_setting() -> None:
    assert load({}, environment={}).admin_host_names == ()
    settings = load({"admin_hosts": "broker.internal, [fe80::1]:9000,A"}, environment={})
    assert settings.admin_host_names == ("broker.internal", "[fe80::1]:9000", "a")
    for bad in ("*", "http://broker", "a b", "broker:port", "a,,b"):
        with pytest.raises(HorologError) as refused:
            load({"admin_hosts": bad}, environment={})
        assert refused.value.field == "--admin-hosts"


@pytest.mark.process
def test_a_real_broker_answers_its_own_names_only() -> None:
    """Over a socket, and with a name of the setting."""
    with BrokerProcess(arguments=["--admin-hosts=broker.internal"]) as broker:
        port = int(broker.admin_url.rpartition(":")[2])

        def status(host: str, **headers: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/v1/clock", headers={"host": host, **headers})
            found = connection.getresponse().status
            connection.close()
            return found

        assert status(f"127.0.0.1:{port}") == status(f"localhost:{port}") == 200
        assert status("broker.internal:1") == 200
        assert status("evil.example") == status(f"evil.example:{port}") == 403
        assert status(f"localhost:{port}", origin="http://evil.example") == 403
