"""The admin API under what schemathesis makes of its own OpenAPI description, against a live broker.

No 5xx, every answer as described, and nothing changed by what is refused.  The same requests every time.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from horolog.admin.app import ENDPOINTS
from horolog.admin.client import AdminClient
from horolog.admin.openapi import describe
from horolog.errors import HorologError
from horolog.testing.broker import BrokerProcess

pytestmark = pytest.mark.process

CASES = 6  # of each operation
KNOWN = {  # names of what is there, for one half of the requests
    "topic": ["reminders", "orders", "%RETRY%me"],
    "name": ["reminders", "orders", "nightly"],
    "group": ["me", "others"],
}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
LISTS = (
    "/v1/topics",
    "/v1/groups",
    "/v1/groups/me",
    "/v1/schedules",
    "/v1/dead-letters",
    "/v1/pending",
    "/v1/offloads",
)
"""What together tells whether anything has changed."""


def named(document: dict[str, Any]) -> dict[str, Any]:
    """The description, with known names beside all others."""
    document = copy.deepcopy(document)
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                _name(parameter, "schema", parameter["name"])
    for shape in document["components"]["schemas"].values():
        for field in shape.get("properties", {}):
            _name(shape["properties"], field, field)
    return document


def _name(holder: dict[str, Any], place: str, name: str) -> None:
    if name in KNOWN and holder[place].get("type") == "string":
        holder[place] = {"anyOf": [{"enum": KNOWN[name]}, holder[place]]}


SCHEMA = schemathesis.openapi.from_dict(named(describe(ENDPOINTS)), config=SchemathesisConfig())
OPERATIONS = {each.ok().label: each.ok() for each in SCHEMA.get_all_operations()}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """On the clock of the machine: nobody may move it."""
    with BrokerProcess(tmp_path_factory.mktemp("fuzz") / "data", clock="system") as broker:
        yield broker


def furnish(admin: AdminClient) -> None:
    """Some of everything, again where an earlier request has removed it."""
    for name in ("reminders", "orders"):
        with suppress(HorologError):  # it is there, and has been changed
            admin.post("/v1/topics", {"name": name, "type": "mixed", "queues": 2})
        for in_ms in (None, 86_400_000):
            with suppress(HorologError):
                admin.post("/v1/messages", {"topic": name, "body": "x", "in_ms": in_ms})
    nightly = {"name": "nightly", "topic": "orders", "body": "x", "every_ms": 3_600_000}
    with suppress(HorologError):
        admin.post("/v1/receive", {"topic": "orders", "group": "me"})
    with suppress(HorologError):
        admin.post("/v1/schedules", nightly)


def digest(admin: AdminClient) -> str:
    """All that a refusal must leave alone."""
    found: list[object] = []
    for path in LISTS:
        try:
            found.append(admin.get(path))
        except HorologError as error:
            found.append(error.code)
    return json.dumps(found, sort_keys=True)


def harmless(case: Any, folder: Path) -> None:
    """The same case without long waits, and without directories elsewhere."""
    body = case.body
    if isinstance(body, dict):
        if isinstance(body.get("poll_ms"), int) and body["poll_ms"] > 0:
            body["poll_ms"] = 0
        if isinstance(body.get("directory"), str):
            body["directory"] = str(folder / "backup")


@pytest.mark.slow
@pytest.mark.parametrize("label", OPERATIONS)
def test_nothing_breaks(broker: BrokerProcess, label: str, tmp_path: Path) -> None:
    operation, admin = OPERATIONS[label], broker.admin
    furnish(admin)
    seen = {"digest": digest(admin)}

    @settings(
        max_examples=CASES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy()
        | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
    )
    def ask(case: Any) -> None:
        harmless(case, tmp_path)
        response: Response = case.call(base_url=broker.admin_url)
        assert broker.running, broker.stderr()
        case.validate_response(response, checks=CHECKS)
        if case.method.upper() == "GET":
            return
        if 400 <= response.status_code < 500:
            now = digest(admin)
            assert now == seen["digest"], f"changed by what was refused: {case.as_curl_command()}"
        else:
            seen["digest"] = digest(admin)

    ask()
