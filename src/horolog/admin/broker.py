"""The broker itself over HTTP: health, status, identity, clock."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from horolog import __version__
from horolog.access import rules
from horolog.admin.answers import (
    admit_known_caller,
    answer,
    broker_name,
    engine_of,
    identity_of,
    is_admin,
    may,
)
from horolog.admin.endpoints import Access, endpoint, text_parameter
from horolog.admin.request_shapes import AdvanceBody
from horolog.admin.requests import query, read_body
from horolog.admin.shapes import BrokerName, Check, Clock, Health, Identity, Status
from horolog.admin.views import broker_view, clock_view
from horolog.errors import ErrorCode, HorologError, refused
from horolog.protocol.commands import BrokerView, DescribeBroker
from horolog.protocol.rocketmq.names import check_topic
from horolog.server.running import RunningEngine

HEALTH_TIMEOUT_S = 2.0  # a core that does not answer within this is reported as failing


@endpoint("GET", "/healthz", answer=Health, status=(200, 503), access=Access.OPEN)
async def health(request: Request) -> Response:
    """GET /healthz: check the broker; 200 when every check is ok, else 503, with the same body."""
    checks = await _checks(engine_of(request))
    healthy = all(check["ok"] for check in checks)
    return answer({"healthy": healthy, "checks": checks}, 200 if healthy else 503)


@endpoint("GET", "/livez", answer=Status, status=(200, 503), access=Access.OPEN)
async def show_alive(request: Request) -> Response:
    """GET /livez: check that the log takes writes; 503 when only a restart can help."""
    query(request)
    engine = engine_of(request)
    return _status([_check("log", _why_failed(engine))])


@endpoint("GET", "/readyz", answer=Status, status=(200, 503), access=Access.OPEN)
async def show_ready(request: Request) -> Response:
    """GET /readyz: check that clients can be served.

    Three checks: the log takes writes, the core answers, the doors are open.
    """
    query(request)
    log_and_core = (await _checks(engine_of(request)))[:2]
    stopping = "stopping" if request.app.state.closing.is_set() else ""
    return _status([*log_and_core, _check("doors", stopping)])


def _status(checks: list[Check]) -> Response:
    is_well = all(check["ok"] for check in checks)
    view: Status = {"status": "ok" if is_well else "failing", "checks": checks}
    return answer(view, 200 if is_well else 503)


def _why_failed(engine: RunningEngine) -> str:
    return str(engine.failed.exception() or "stopped") if engine.failed.done() else ""


async def _checks(engine: RunningEngine) -> list[Check]:
    """Check the broker.

    log    the disk takes writes
    core   the core answers
    store  no damage, and space left
    """
    if engine.failed.done():
        return [
            _check("log", _why_failed(engine)),
            _check("core", "not asked"),
            _check("store", "not asked"),
        ]
    try:
        view: BrokerView = await asyncio.wait_for(engine.submit(DescribeBroker()), HEALTH_TIMEOUT_S)
    except TimeoutError:
        slow = f"no answer within {HEALTH_TIMEOUT_S:g} s"
        write_s = engine.log.under_way_s  # the disk hangs: the core waits for it
        hangs = f"a write has taken {write_s:.0f} s" if write_s >= HEALTH_TIMEOUT_S else ""
        return [_check("log", hangs), _check("core", slow), _check("store", "not asked")]
    except HorologError as error:
        return [_check("log"), _check("core", error.message), _check("store", "not asked")]
    store: Check = {
        **_check("store", "; ".join(view.problems)),
        "holes": view.holes,
        "repairs": view.repairs,
    }
    return [_check("log"), _check("core"), store]


def _check(name: str, problem: str = "") -> Check:
    return {"name": name, "ok": not problem, "detail": problem}


@endpoint("GET", "/v1/broker", answer=(BrokerName, BrokerView))
async def describe_broker(request: Request) -> Response:
    """GET /v1/broker: show the state of the broker."""
    query(request)
    view: BrokerView = await engine_of(request).submit(DescribeBroker())
    return answer(broker_view(view, __version__, broker_name(request)))


@endpoint(
    "GET", "/v1/identity", query=(text_parameter("topic"),), answer=Identity, access=Access.USERS
)
async def show_identity(request: Request) -> Response:
    """GET /v1/identity?topic=: show who the caller is, and its rights to a topic."""
    topic = query(request, "topic").get("topic", "")
    identity = identity_of(request)
    rights = [
        right.name
        for right in (rules.Right.PUB, rules.Right.SUB)
        if topic and may(request, rules.need_of_topic(check_topic(topic), right))
    ]
    return answer(
        {
            "access_key": identity.access_key if identity is not None else "",
            "admin": is_admin(request),
            "topic": topic,
            "rights": rights,
        }
    )


@endpoint("GET", "/v1/clock", answer=Clock, access=Access.USERS)
async def show_clock(request: Request) -> Response:
    """GET /v1/clock: show the broker's clock."""
    query(request)
    admit_known_caller(request)
    return answer(clock_view(engine_of(request).clock))


@endpoint("POST", "/v1/clock/advance", body=AdvanceBody, answer=Clock)
async def advance_clock(request: Request) -> Response:
    """POST /v1/clock/advance: move the simulated clock forward.

    When the answer arrives, all messages that became due are handed over and committed.
    """
    wanted = await read_body(request, AdvanceBody)
    engine = engine_of(request)
    if not engine.clock.simulated:
        raise refused(
            "clock",
            "this broker runs on the system clock; only --clock simulated can be moved",
            code=ErrorCode.FORBIDDEN,
        )
    await engine.advance(wanted.by_ms)
    return answer(clock_view(engine.clock))
