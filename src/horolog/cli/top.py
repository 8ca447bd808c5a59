"""`horolog top`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from horolog.cli.options import ADMIN_DEFAULT, Admin

if TYPE_CHECKING:
    from horolog.cli.live.frame import Sort as SortBy
    from horolog.cli.live.look import Watch

_EVERY_S = 1.0
_TIMEOUT_S = 3.0
_QUIT = ("q", "Q", "\x1b", "\x03", "\x04")


def top(
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame with all rows, for scripts.")
    ] = False,
    by_name: Annotated[
        bool,
        typer.Option("--by-name", help="Sort topics and groups by name, not by waiting messages."),
    ] = False,
    admin: Admin = ADMIN_DEFAULT,
) -> None:
    """Watch a broker live: rates, lateness, topics, groups and problems.

    Asks the broker once a second, with one request. Keys: q quits, s changes the order. Without a
    terminal one frame is printed, as with --once.

    Examples:
      horolog top
      horolog top --once --by-name
    """
    from horolog.admin.client import AdminClient
    from horolog.cli.live.frame import Sort
    from horolog.cli.live.look import Watch

    watch = Watch(AdminClient(admin, timeout_s=_TIMEOUT_S))
    sort = Sort.NAME if by_name else Sort.PENDING
    if once or sys.stdout is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print_once(watch, sort)
    else:
        _live(watch, sort)


def _print_once(watch: Watch, sort: SortBy) -> None:
    from rich.console import Console

    from horolog.cli.live.frame import frame

    look = watch.look()
    if look.overview["rates"] is None:  # no earlier look is recent enough: a rate needs two looks
        time.sleep(_EVERY_S + 0.1)
        look = watch.look()
    console = Console(highlight=False)
    console.print(frame(look, width=console.width, height=0, sort=sort, keys=False))


def _live(watch: Watch, sort: SortBy) -> None:
    from rich.console import Console
    from rich.live import Live

    from horolog.cli.live.frame import frame
    from horolog.cli.live.keys import keyboard

    console = Console(highlight=False)
    look = watch.look()

    def draw() -> None:
        width, height = console.size
        live.update(frame(look, width=width, height=height, sort=sort, keys=True), refresh=True)

    with keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        draw()
        next_look = time.monotonic() + _EVERY_S
        while True:
            pressed = keys.wait(next_look - time.monotonic())
            if pressed in _QUIT:
                return
            if pressed in ("s", "S"):
                sort = sort.next()
            elif not pressed:
                look = watch.look()
                next_look = time.monotonic() + _EVERY_S
            draw()
