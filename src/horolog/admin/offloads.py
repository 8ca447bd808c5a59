"""Offloads over HTTP, and the tier they go to: freeze, commit, abort, list what waits there."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from horolog.admin.adoption_shapes import (
    REFUSED,
    AbortedOffload,
    CommittedOffload,
    Offload,
    Offloads,
    RecalledRows,
)
from horolog.admin.answers import answer, engine_of
from horolog.admin.endpoints import endpoint, integer_parameter
from horolog.admin.request_shapes import BeginOffloadBody, CommitOffloadBody, OffloadBody
from horolog.admin.requests import query, query_int, read_body
from horolog.errors import ErrorCode, HorologError, refused
from horolog.server.running import OffloadMaker
from horolog.units import TIME_MAX_MS, parse_unsigned

_NUMBER_MAX = (1 << 63) - 1


@endpoint(
    "GET",
    "/v1/offloads",
    query=(integer_parameter("to_ms", 0, TIME_MAX_MS, 0),),
    answer=Offloads,
    codes=REFUSED,
)
async def show_offloads(request: Request) -> Response:
    """GET /v1/offloads?to_ms=: list all offloads, and messages in the tier in hours before `to_ms`."""
    to_ms = query_int(query(request, "to_ms"), "to_ms", 0, 0, TIME_MAX_MS)
    return answer(await _offloads(request).show(to_ms))


@endpoint("POST", "/v1/offloads/begin", body=BeginOffloadBody, answer=Offload, codes=REFUSED)
async def begin_offload(request: Request) -> Response:
    """POST /v1/offloads/begin: freeze runs for an offload, and return its id and these runs."""
    wanted = await read_body(request, BeginOffloadBody)
    return answer(await _offloads(request).begin(wanted.app, wanted.from_ms))


@endpoint(
    "POST", "/v1/offloads/commit", body=CommitOffloadBody, answer=CommittedOffload, codes=REFUSED
)
async def commit_offload(request: Request) -> Response:
    """POST /v1/offloads/commit: leave the messages to the tier, and drop them from the broker."""
    wanted = await read_body(request, CommitOffloadBody)
    return answer(
        await _offloads(request).commit(wanted.number, wanted.rows, wanted.checksum, wanted.uri)
    )


@endpoint("POST", "/v1/offloads/abort", body=OffloadBody, answer=AbortedOffload, codes=REFUSED)
async def abort_offload(request: Request) -> Response:
    """POST /v1/offloads/abort: abort an offload; return whether there was one to abort."""
    wanted = await read_body(request, OffloadBody)
    return answer({"aborted": await _offloads(request).abort(wanted.number)})


@endpoint(
    "GET",
    "/v1/offloads/{number}/recalled",
    query=(integer_parameter("hour", 0, 1 << 32),),
    answer=RecalledRows,
    codes=REFUSED,
)
async def list_recalled(request: Request) -> Response:
    """GET /v1/offloads/{number}/recalled?hour=N: list recalled origins (position, row).

    A reader of the offload must leave these messages out.
    """
    text = request.path_params["number"]
    number = parse_unsigned(text)
    if number is None:
        raise refused("number", f"{text[:40]!r} is not the number of an offload")
    parameters = query(request, "hour")
    hour = query_int(parameters, "hour", 0, 0, 1 << 32) if "hour" in parameters else None
    found = await _offloads(request).recalled_origins(min(number, _NUMBER_MAX), hour)
    return answer({"number": number, "recalled": found})


def _offloads(request: Request) -> OffloadMaker:
    maker = engine_of(request).offloads
    if maker is None:
        raise HorologError(
            ErrorCode.NOT_IMPLEMENTED, "offloads: this broker has no data directory", field="path"
        )
    return maker
