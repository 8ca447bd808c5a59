"""Arguments and flags that define a schedule: its rule, its policies, and its message."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from horolog.cli.send import payload, properties_of


class Gap(StrEnum):
    """Values of --gap."""

    SKIP = "skip"
    SHIFT = "shift"


class Overlap(StrEnum):
    """Values of --overlap."""

    FIRST = "first"
    BOTH = "both"


class Missed(StrEnum):
    """Values of --missed."""

    LATEST = "latest"
    ALL = "all"
    SKIP = "skip"


Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, %, |, _ and -.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic that takes scheduled messages.")]
Text = Annotated[str, typer.Argument(metavar="BODY", help="The text to send; - reads stdin.")]
Cron = Annotated[
    str,
    typer.Option(
        metavar="EXPR", help="Cron: minute, hour, day, month, day of week; or seconds first."
    ),
]
Every = Annotated[
    str, typer.Option(metavar="DURATION", help="Interval, such as 15m, 36h, PT15M or P1D.")
]
Zone = Annotated[str, typer.Option(metavar="ZONE", help="IANA time zone of the expression.")]
GapOption = Annotated[
    Gap | None,
    typer.Option(
        help="For a local time that the clocks skip: shift it to the next one, or skip it."
    ),
]
OverlapOption = Annotated[
    Overlap | None,
    typer.Option(help="For a local time that comes twice: fire the first time, or both."),
]
MissedOption = Annotated[
    Missed, typer.Option(help="Which firings to make up for after the broker was down.")
]
Start = Annotated[
    str, typer.Option(metavar="TIME", help="No firing before this time; --every begins here.")
]
End = Annotated[str, typer.Option(metavar="TIME", help="No firing after this time.")]
Times = Annotated[int, typer.Option(metavar="N", help="Firings before it ends; 0: no end.")]
Jitter = Annotated[str, typer.Option(metavar="DURATION", help="Fire up to this much later.")]
Tag = Annotated[str | None, typer.Option(help="Tag, for consumers that filter.")]
Keys = Annotated[
    list[str] | None, typer.Option("--key", metavar="KEY", help="A key; may be repeated.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated."),
]
Group = Annotated[
    str | None, typer.Option(metavar="G", help="Message group; a FIFO topic requires one.")
]


def wanted_fields(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the request for the arguments of `create` or `change`, by name."""
    from horolog.units import parse_duration_ms, parse_time_ms

    every, start, end, jitter = (flags[name] for name in ("every", "start", "end", "jitter"))
    gap, overlap = flags["gap"], flags["overlap"]
    return {
        "topic": flags["topic"],
        **payload(flags["body"]),
        "cron": flags["cron"] or None,
        "every_ms": _interval_ms(every) if every else None,
        "zone": flags["zone"],
        "gap": None if gap is None else gap.value,
        "overlap": None if overlap is None else overlap.value,
        "missed": flags["missed"].value,
        "start_ms": parse_time_ms(start, field="--start") if start else None,
        "end_ms": parse_time_ms(end, field="--end") if end else None,
        "times": flags["times"],
        "jitter_ms": parse_duration_ms(jitter, field="--jitter") if jitter else None,
        "tag": flags["tag"],
        "keys": flags["key"] or None,
        "properties": properties_of(flags["property_"] or []),
        "message_group": flags["message_group"],
    }


def _interval_ms(every: str) -> int:
    """Return the interval of --every; refuse 0, which the broker would take as no interval."""
    from horolog.errors import refused
    from horolog.units import parse_interval_ms

    interval_ms = parse_interval_ms(every, field="--every")
    if not interval_ms:
        raise refused("--every", f"{every!r} is no time at all; at least 1s is needed")
    return interval_ms
