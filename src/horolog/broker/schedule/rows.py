"""A schedule as JSON: its definition and its progress.

A SCHEDULE record has both, or the progress only (a firing is planned), or says that the schedule is
removed.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, NamedTuple

import orjson

from horolog.broker.schedule.schedule import Schedule
from horolog.protocol.schedules import (
    Content,
    Cursor,
    Firing,
    Gap,
    Missed,
    Overlap,
    Rule,
    State,
)

_RULE, _CONTENT = Rule(), Content("", b"")


def rule_row(rule: Rule) -> dict[str, Any]:
    """Return the fields of a rule that differ from the defaults."""
    defaults = _RULE._asdict()
    return {field: value for field, value in rule._asdict().items() if value != defaults[field]}


def content_row(content: Content) -> dict[str, Any]:
    """Return the fields of a message content that differ from the defaults, as JSON types."""
    defaults = _CONTENT._asdict()
    row = {field: value for field, value in content._asdict().items() if value != defaults[field]}
    row["body"] = b64encode(content.body).decode()
    if content.keys:
        row["keys"] = list(content.keys)
    if content.properties:
        row["properties"] = dict(content.properties)
    return row


def definition_row(rule: Rule, content: Content, created_ms: int) -> dict[str, Any]:
    """Return the definition of a schedule."""
    return {"created_ms": created_ms, "rule": rule_row(rule), "content": content_row(content)}


def size_of(definition: dict[str, Any]) -> int:
    """Return the size of a definition as JSON, in bytes."""
    return len(orjson.dumps(definition))


class Progress(NamedTuple):
    """The progress of a schedule."""

    revision: int
    state: State
    sequence: int
    fired: int
    cursor: Cursor
    before: Cursor
    planned: tuple[Firing, ...]
    used: tuple[int, ...] = ()


def progress_row(schedule: Schedule) -> dict[str, Any]:
    """Return the progress of a schedule as a row."""
    return {
        "id": schedule.schedule_id,
        "name": schedule.name,
        "revision": schedule.revision,
        "state": schedule.state.value,
        "sequence": schedule.sequence,
        "fired": schedule.fired,
        "cursor": list(schedule.cursor),
        "before": list(schedule.before),
        "planned": [list(firing) for firing in schedule.planned],
        "used": list(schedule.used),
    }


def progress_of(row: dict[str, Any]) -> Progress:
    """Read the progress from a row."""
    return Progress(
        row["revision"],
        State(row["state"]),
        row["sequence"],
        row["fired"],
        Cursor(*row["cursor"]),
        Cursor(*row["before"]),
        tuple(Firing(*firing) for firing in row["planned"]),
        tuple(row["used"]),
    )


def definition_in(row: dict[str, Any]) -> tuple[Rule, Content, int]:
    """Read the definition of a schedule from a row that has both parts."""
    return _rule_of(row["rule"]), _content_of(row["content"]), row["created_ms"]


def _rule_of(row: dict[str, Any]) -> Rule:
    found = Rule(**row)
    return found._replace(
        gap=Gap(found.gap), overlap=Overlap(found.overlap), missed=Missed(found.missed)
    )


def _content_of(row: dict[str, Any]) -> Content:
    found = Content(**row)
    return found._replace(body=b64decode(row["body"]), keys=tuple(found.keys))
