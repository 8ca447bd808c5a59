"""Requests of `horolog top` to the broker, and how often they are made.

Every second one request, GET /v1/overview, which the broker answers from one look however many
clients ask.  Groups are asked for every fifth time, and the texts of problems when there are some.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from horolog.admin.client import AdminClient
from horolog.admin.status import UnreachableError
from horolog.errors import HorologError

_GROUPS_EVERY = 5
_GROUPS = 1_000


@dataclass
class Look:
    """The newest answers; `silent` says why there is no newer one, "" when there is."""

    overview: dict[str, Any]
    groups: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    silent: str = ""


class Watch:
    """Repeated looks at one broker."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._looks = 0
        self._newest: Look | None = None

    def look(self) -> Look:
        """Ask once more.  Raises UnreachableError and HorologError only before the first answer."""
        try:
            self._newest = self._ask(self._newest)
        except (UnreachableError, HorologError) as error:
            if self._newest is None:
                raise
            self._newest.silent = str(error).partition(";")[0]
            self._looks = 0  # the broker that answers next may be another one
        return self._newest

    def _ask(self, before: Look | None) -> Look:
        look = Look(self._client.get("/v1/overview"))
        if before is None or self._looks % _GROUPS_EVERY == 0:
            look.groups = self._client.get("/v1/groups", {"limit": _GROUPS})["groups"]
        else:
            look.groups = before.groups
        if look.overview["problems"]:
            look.problems = [str(text) for text in self._client.get("/v1/broker")["problems"]]
        self._looks += 1
        return look
