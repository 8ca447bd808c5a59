"""The broker itself over HTTP: health, figures, clock."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horolog import __version__
from horolog.admin.answers import answer, broker_name, engine_of
from horolog.admin.endpoints import Access, endpoint
from horolog.admin.requests import AdvanceBody, query, read_body
from horolog.admin.shapes import BrokerName, Clock, Health
from horolog.admin.views import broker_view, clock_view
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import BrokerView, DescribeBroker
from horolog.server.running import RunningEngine

HEALTH_TIMEOUT_S = 2.0  # a core that does not answer within this is not well, whatever it does


@endpoint("GET", "/healthz", answer=Health, status=(200, 503), access=Access.OPEN)
async def health(request: Request) -> Response:
    """GET /healthz: 200 when every named check is ok, else 503; the same body either way."""
    checks = await _checks(engine_of(request))
    healthy = all(check["ok"] for check in checks)
    return answer({"healthy": healthy, "checks": checks}, 200 if healthy else 503)


async def _checks(engine: RunningEngine) -> list[dict[str, Any]]:
    """log: the disk takes writes · core: it answers · store: no damage and space left."""
    if engine.failed.done():
        why = str(engine.failed.exception() or "stopped")
        return [_check("log", why), _check("core", "not asked"), _check("store", "not asked")]
    try:
        view: BrokerView = await asyncio.wait_for(engine.submit(DescribeBroker()), HEALTH_TIMEOUT_S)
    except TimeoutError:
        slow = f"no answer within {HEALTH_TIMEOUT_S:g} s"
        return [_check("log"), _check("core", slow), _check("store", "not asked")]
    except HorologError as error:
        return [_check("log"), _check("core", error.message), _check("store", "not asked")]
    counted = {"holes": view.holes, "repairs": view.repairs}
    return [_check("log"), _check("core"), _check("store", "; ".join(view.problems)) | counted]


def _check(name: str, problem: str = "") -> dict[str, Any]:
    return {"name": name, "ok": not problem, "detail": problem}


@endpoint("GET", "/v1/broker", answer=(BrokerName, BrokerView))
async def describe_broker(request: Request) -> Response:
    """GET /v1/broker."""
    query(request)
    view: BrokerView = await engine_of(request).submit(DescribeBroker())
    return answer(broker_view(view, __version__, broker_name(request)))


@endpoint("GET", "/v1/clock", answer=Clock)
async def show_clock(request: Request) -> Response:
    """GET /v1/clock."""
    query(request)
    return answer(clock_view(engine_of(request).clock))


@endpoint("POST", "/v1/clock/advance", body=AdvanceBody, answer=Clock)
async def advance_clock(request: Request) -> Response:
    """POST /v1/clock/advance.

    What became due is handed over and committed when the answer comes.
    """
    wanted = await read_body(request, AdvanceBody)
    engine = engine_of(request)
    if not engine.clock.simulated:
        raise HorologError(
            ErrorCode.FORBIDDEN,
            "clock: this broker runs on the system clock; only --clock simulated can be moved",
            field="clock",
        )
    await engine.advance(wanted.by_ms)
    return answer(clock_view(engine.clock))
