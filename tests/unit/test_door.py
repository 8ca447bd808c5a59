"""Checks of quiet connections: each in every period, some at a time."""

from __future__ import annotations

import logging
from typing import Any, cast

from horolog.server.door import CHECKED_AT_ONCE, Door
from horolog.server.intake import Intake


class Loop:
    """Keeps what a door wants called later."""

    def __init__(self) -> None:
        self.pauses_s: list[float] = []

    def call_later(self, pause_s: float, _: object) -> None:
        self.pauses_s.append(pause_s)


class QuietLink:
    checked = 0

    def is_late(self, _: int) -> bool:
        return False

    def check_timeouts(self, *_: int) -> None:
        self.checked += 1


def checked(links: list[QuietLink]) -> int:
    return sum(link.checked for link in links)


def test_many_links_are_checked_once_a_period_in_pieces() -> None:
    links = [QuietLink() for _ in range(2 * CHECKED_AT_ONCE + 1)]
    loop = Loop()
    door = Door(
        cast(Any, None), cast(Any, None), intake=Intake(), log=logging.getLogger("horolog.grpc")
    )
    door.loop = cast(Any, loop)
    door._links = cast(Any, set(links))
    door._check_links()
    assert checked(links) == CHECKED_AT_ONCE
    [gone, *_] = (link for link in links if not link.checked)
    door._links.remove(cast(Any, gone))
    for _ in range(2):
        door._check_links()
    assert [link for link in links if link.checked != 1] == [gone]
    assert round(sum(loop.pauses_s), 6) == 1.0
    door._check_links()
    assert checked(links) == len(links) - 1 + CHECKED_AT_ONCE, "a new period has begun"
