"""Reading of requests: bodies (`request_shapes`) and query parameters; refusals name the field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError
from starlette.requests import Request

from horolog import limits
from horolog.admin.bodies import Bodies
from horolog.admin.endpoints import declared_by
from horolog.admin.request_shapes import Body
from horolog.errors import HorologError, refused
from horolog.units import (
    DURATION_MAX_MS,
    TIME_MAX_MS,
    format_duration_ms,
    parse_time_ms,
    parse_unsigned,
)

BodyT = TypeVar("BodyT", bound=Body)


async def read_bytes(request: Request, limit: int) -> bytearray:
    """Return the body of a request; BAD_REQUEST if compressed, refusals as `bodies.Bodies.read`."""
    encoding = request.headers.get("content-encoding", "identity").strip()
    if encoding.lower() != "identity":
        raise refused("content-encoding", f"{encoding!r} is not read; send the body as it is")
    bodies: Bodies = request.app.state.bodies
    return await bodies.read(request, limit)


async def read_body(request: Request, model: type[BodyT]) -> BodyT:
    """Return the JSON body of a request as `model`.

    BAD_REQUEST when it is not JSON or a field is wrong, BODY_TOO_LARGE above the limit.
    """
    # A page in a browser can send forms to 127.0.0.1 without asking, but not this content type.
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind.lower() != "application/json":
        raise refused("content-type", "must be application/json")
    declared = declared_by(request.scope.get("endpoint"))
    assert declared is None or declared.body is model, "another body than the route declares"
    received = await read_bytes(request, limits.ADMIN_REQUEST_MAX)
    try:
        content = orjson.loads(received)
    except orjson.JSONDecodeError as error:
        raise refused("request", f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise refused("request", "not a JSON object")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise explain(error) from None


@contextmanager
def given_as(name: str, field: str) -> Iterator[None]:
    """Let a refusal of `field` name the field as this request calls it."""
    try:
        yield
    except HorologError as error:
        if error.field != field:
            raise
        raise error.with_field(name) from None


def explain(error: ValidationError) -> HorologError:
    """Return the first error of pydantic in our words: field, reason and limit."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "request"
    context: dict[str, Any] = first.get("ctx", {})
    bounds = [
        f"{name} {context[name]}"
        for name in ("ge", "le", "min_length", "max_length")
        if name in context
    ]
    why = first["msg"]
    exceeded = {"less_than_equal": "le", "greater_than_equal": "ge"}.get(first["type"], "")
    if exceeded and field.endswith("_ms"):
        why += f" ms{_as_duration(context[exceeded])}"
    return refused(field, why[:1].lower() + why[1:], ", ".join(bounds))


def _as_duration(bound_ms: int) -> str:
    """Return a bound as people type a duration; "" for a point in time, or less than a second."""
    is_long = limits.SECOND_MS <= bound_ms <= DURATION_MAX_MS
    return f" ({format_duration_ms(bound_ms)})" if is_long else ""


def query(request: Request, *allowed: str) -> dict[str, str]:
    """Return the query parameters; BAD_REQUEST for one that is not `allowed`, or is repeated."""
    declared = declared_by(request.scope.get("endpoint"))
    if declared is not None:
        names = {parameter.name for parameter in declared.query}
        assert names == set(allowed), "other parameters than the route declares"
    for name in request.query_params:
        if name not in allowed:
            known = ", ".join(allowed) or "none"
            raise refused(name, f"unknown query parameter; allowed: {known}")
        if len(request.query_params.getlist(name)) > 1:
            raise refused(name, "given twice")
    return dict(request.query_params)


def query_int(parameters: dict[str, str], name: str, default: int, low: int, high: int) -> int:
    """Return an integer query parameter within [low, high], or the default."""
    text = parameters.get(name)
    if text is None:
        return default
    number = parse_unsigned(text)
    if number is None or not low <= number <= high:
        raise refused(
            name, f"{text[:40]!r} is not a number from {low} to {high}", f"{low} to {high}"
        )
    return number


def query_window(parameters: dict[str, str]) -> tuple[int, int]:
    """Return the window [from, to) of due times, UTC epoch milliseconds; by default all times."""
    from_ms = parse_time_ms(parameters["from"], field="from") if "from" in parameters else 0
    to_ms = parse_time_ms(parameters["to"], field="to") if "to" in parameters else TIME_MAX_MS
    if parameters.keys() >= {"from", "to"} and to_ms <= from_ms:
        raise refused("to", "is not after from")
    return from_ms, to_ms


def query_flag(parameters: dict[str, str], name: str) -> bool:
    """Return a query parameter that is `true` or `false`, which is the default."""
    text = parameters.get(name, "false")
    if text not in ("true", "false"):
        raise refused(name, f"{text[:40]!r} is neither true nor false")
    return text == "true"


def query_word(parameters: dict[str, str], name: str, words: Sequence[str]) -> str:
    """Return a query parameter that is one of `words`; the first is the default."""
    text = parameters.get(name, words[0])
    if text not in words:
        raise refused(name, f"{text[:40]!r} is not one of {', '.join(words)}")
    return text
