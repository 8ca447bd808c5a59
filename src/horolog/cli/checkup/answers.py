"""Answers of a running broker to the doctor's requests, gathered once; `running` judges them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from horolog.admin.client import AdminClient, path_of
from horolog.cli.checkup.local_process import LocalProcess, listening_on
from horolog.errors import ErrorCode, HorologError

_GROUPS = 1_000  # groups on the first page; further ones are only mentioned
_LOOKED_AT = 10  # groups whose topics are asked for: those with the most waiting messages
_REFUSED = (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN)


@dataclass
class Answers:
    """Bodies of the admin API as they came; None: this broker does not know the path.

    now_ms     this machine's clock when the broker's clock was read
    slack_ms   duration of that request: how far the two clock readings may be apart
    groups     rows of /v1/groups
    lagging    the groups with the longest backlog, each in full
    guarded    whether a request without a key is refused
    process    the broker's process, if it runs on this machine and may be inspected
    """

    health: dict[str, Any]
    broker: dict[str, Any]
    clock: dict[str, Any]
    now_ms: int
    slack_ms: int
    overview: dict[str, Any] | None = None
    groups: list[dict[str, Any]] = field(default_factory=list)
    more_groups: bool = False
    lagging: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    guarded: bool = False
    process: LocalProcess | None = None


def gather(client: AdminClient) -> Answers:
    """Ask for everything; raise UnreachableError, or the HorologError of a broker that refuses."""
    health = client.get("/healthz")
    begun = time.monotonic()
    clock = client.get("/v1/clock")
    slack_ms = int((time.monotonic() - begun) * 1_000)
    found = Answers(
        health=health,
        broker=client.get("/v1/broker"),
        clock=clock,
        now_ms=time.time_ns() // 1_000_000,
        slack_ms=slack_ms,
        overview=_maybe(client, "/v1/overview"),
        guarded=_is_guarded(client),
        process=listening_on(client.host, client.port),
    )
    page = _maybe(client, "/v1/groups", {"limit": _GROUPS}) or {"groups": [], "next": None}
    found.groups, found.more_groups = page["groups"], page["next"] is not None
    busy = sorted(
        (row for row in found.groups if row["waiting"] and row["members"]),
        key=lambda row: -int(row["waiting"]),
    )
    for row in busy[:_LOOKED_AT]:
        if (group := _maybe(client, path_of("groups", str(row["group"])))) is not None:
            found.lagging.append(group)
    found.dead_letters = (_maybe(client, "/v1/dead-letters") or {"groups": []})["groups"]
    return found


def _maybe(
    client: AdminClient, path: str, parameters: dict[str, object] | None = None
) -> dict[str, Any] | None:
    """Return the answer; None from a broker of another version, or if the object is gone."""
    try:
        return client.get(path, parameters)
    except HorologError as error:
        if error.code in _REFUSED:
            raise
        return None


def _is_guarded(client: AdminClient) -> bool:
    """Return whether a request without a key is refused."""
    try:
        client.without_key().get("/v1/clock")
    except HorologError as error:
        return error.code in _REFUSED
    return False
