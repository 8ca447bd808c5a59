"""What the admin API needs of the running broker.

`server.loop.Engine` has it, and so have the fakes of tests.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from horolog.backup.status import BackupView
from horolog.clock import Clock
from horolog.protocol.commands import Command


class BackupMaker(Protocol):
    """Makes one backup at a time (`server.backups.Backups`)."""

    async def begin(self, directory: str, *, full: bool = False) -> BackupView:
        """Start a backup into a directory; refusals are HorologErrors that name `directory`."""
        ...

    def view(self) -> BackupView:
        """The newest one, running or ended."""
        ...


class Engine(Protocol):
    """Commands in, results as futures.

    See `protocol.commands` for which result belongs to which command.
    """

    failed: asyncio.Future[None]

    @property
    def backups(self) -> BackupMaker | None:
        """What makes backups; None where there is no data directory."""
        ...

    @property
    def clock(self) -> Clock:
        """The broker's clock; due times mean this one."""
        ...

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """A future of the command's result; a refusal is a HorologError."""
        ...

    async def advance(self, by_ms: int) -> None:
        """Move a simulated clock.

        Returns when everything that became due is handed over and committed.
        """
        ...
