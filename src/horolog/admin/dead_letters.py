"""Dead letters over HTTP: count, list and re-drive them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horolog.admin.answers import answer, engine_of
from horolog.admin.dead_letter_shapes import Letter, LetterCount, LetterCounts, Letters, Redriven
from horolog.admin.endpoints import endpoint, flag_parameter, integer_parameter, text_parameter
from horolog.admin.request_shapes import RedriveBody
from horolog.admin.requests import query, query_flag, query_int, read_body
from horolog.admin.status import error_body
from horolog.admin.views import iso, message_view
from horolog.errors import ErrorCode, refused
from horolog.limits import ADMIN_LIST_MAX
from horolog.protocol.dead_letter_commands import (
    BEGINNING,
    CountDeadLetters,
    DeadLetter,
    DeadLetterCount,
    DeadLetterPage,
    LetterPlace,
    ListDeadLetters,
    Redrive,
)
from horolog.protocol.rocketmq import layout, retry
from horolog.protocol.rocketmq.names import check_group, check_topic
from horolog.server.dead_letters import RedriveReport, count_letters, redrive, redrive_ids
from horolog.units import TIME_MAX_MS, parse_unsigned

_DIGITS = 18  # most digits of a queue offset


@endpoint("GET", "/v1/dead-letters", answer=LetterCounts)
async def count_dead_letters(request: Request) -> Response:
    """GET /v1/dead-letters: count the dead letters of all groups that have some."""
    query(request)
    counts = await count_letters(engine_of(request))
    return answer({"groups": [_count_view(each) for each in counts]})


@endpoint(
    "GET",
    "/v1/groups/{group}/dead-letters",
    query=(
        integer_parameter("limit", 1, ADMIN_LIST_MAX, 100),
        text_parameter("from"),
        flag_parameter("all"),
    ),
    answer=Letters,
    codes=(ErrorCode.GROUP_NOT_FOUND,),
)
async def list_letters(request: Request) -> Response:
    """GET /v1/groups/{group}/dead-letters: list the oldest dead letters that wait, and count all."""
    parameters = query(request, "limit", "from", "all")
    group = check_group(request.path_params["group"])
    every = query_flag(parameters, "all")
    first = _place(parameters["from"]) if "from" in parameters else BEGINNING
    limit = query_int(parameters, "limit", 100, 1, ADMIN_LIST_MAX)
    engine = engine_of(request)
    page: DeadLetterPage = await engine.submit(ListDeadLetters(group, first, limit, all=every))
    counts: list[DeadLetterCount] = await engine.submit(CountDeadLetters(group=group))
    count = counts[0] if counts else DeadLetterCount(group, 0, 0)
    return answer(
        {
            **_count_view(count),
            "messages": [_letter_view(each) for each in page.letters],
            "next": _place_text(page.next),
        }
    )


@endpoint(
    "POST",
    "/v1/groups/{group}/dead-letters/redrive",
    body=RedriveBody,
    answer=Redriven,
    codes=(ErrorCode.GROUP_NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND),
)
async def redrive_letters(request: Request) -> Response:
    """POST /v1/groups/{group}/dead-letters/redrive: send dead letters once more.

    The answer comes when all are done, with the outcome.
    """
    wanted = await read_body(request, RedriveBody)
    group = check_group(request.path_params["group"])
    engine = engine_of(request)
    command = Redrive(
        group,
        check_topic(wanted.to) if wanted.to else "",
        _place(wanted.first) if wanted.first is not None else BEGINNING,
        wanted.limit,
        due_ms=_due_ms(wanted, engine.clock.wall_ms()),
        rate=wanted.rate or 0,
        dry_run=wanted.dry_run,
    )
    if command.rate and not command.due_ms:
        command = replace(command, due_ms=engine.clock.wall_ms())
    if wanted.ids is None:
        report = await redrive(engine, command)
    elif wanted.first is not None:
        raise refused("ids", "goes with no from: give one of them")
    else:
        report = await redrive_ids(engine, command, wanted.ids)
    return answer(_report_view(report, group, dry_run=wanted.dry_run))


def _due_ms(wanted: RedriveBody, wall_ms: int) -> int:
    if wanted.deliver_at_ms is not None and wanted.in_ms is not None:
        raise refused("in_ms", "give either deliver_at_ms or in_ms")
    if wanted.in_ms is not None:
        return min(wall_ms + wanted.in_ms, TIME_MAX_MS) if wanted.in_ms else 0
    return wanted.deliver_at_ms or 0


def _place(text: str) -> LetterPlace:
    queue_text, _, offset_text = text.partition("-")
    queue = parse_unsigned(queue_text, digits_max=_DIGITS)
    offset = parse_unsigned(offset_text, digits_max=_DIGITS)
    if queue is None or offset is None:
        raise refused("from", f"{text[:40]!r} is no place of a dead letter, such as 0-120")
    return LetterPlace(queue, offset)


def _place_text(place: LetterPlace | None) -> str | None:
    return None if place is None else f"{place.queue}-{place.offset}"


def _count_view(count: DeadLetterCount) -> LetterCount:
    topic = retry.dead_letter_topic(count.group)
    return {
        "group": count.group,
        "topic": topic,
        "waiting": count.waiting,
        "redriven": count.redriven,
    }


def _letter_view(letter: DeadLetter) -> Letter:
    """Return a dead letter for a list: all but its payload, which may be large."""
    view = message_view(letter.layout)
    return {
        "place": _place_text(letter.place),
        "redriven": letter.redriven,
        "message_id": view["message_id"],
        "origin_topic": retry.letter_of(letter.layout).topic,
        "tag": view["tag"],
        "keys": view["keys"],
        "attempts": layout.reconsume_times(letter.layout),
        "dead_ms": view["store_ms"],
        "dead": iso(view["store_ms"]),
        "size_bytes": len(letter.layout),
    }


def _report_view(report: RedriveReport, group: str, *, dry_run: bool) -> dict[str, Any]:
    refusals = [
        {"place": _place_text(each.place), "message_id": each.message_id, **error_body(each.error)}
        for each in report.refusals
    ]
    return {
        "group": group,
        "redriven": report.redriven,
        "already": report.already,
        "refused": report.refused,
        "refusals": refusals,
        "unknown": report.unknown,
        "first_due_ms": report.first_due_ms,
        "first_due": iso(report.first_due_ms),
        "last_due_ms": report.last_due_ms,
        "last_due": iso(report.last_due_ms),
        "next": _place_text(report.next),
        "dry_run": dry_run,
    }
