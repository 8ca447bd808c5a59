"""What the doors and the admin API need of the running broker.

`server.loop.Engine` has it, and so have the fakes of tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from horolog.backup.status import BackupView
from horolog.clock import Clock
from horolog.protocol.adoption_commands import Adopted, BeginAdoption, FileRow
from horolog.protocol.commands import (
    Command,
    FindMessages,
    FoundMessage,
    Recall,
    RecalledMany,
    RecallMany,
    Reschedule,
)
from horolog.protocol.tier_commands import Elsewhere, TierPlace
from horolog.server.ticket import Ticket


class BackupMaker(Protocol):
    """Makes one backup at a time (`server.backups.Backups`)."""

    async def begin(self, directory: str, *, full: bool = False) -> BackupView:
        """Start a backup into a directory; refusals are HorologErrors that name `directory`."""
        ...

    def view(self) -> BackupView:
        """The newest one, running or ended."""
        ...


class AdoptionMaker(Protocol):
    """Stages and commits whole transactions (`server.adoptions.Adoptions`)."""

    async def begin(
        self, app: str, version: int, topic: str, *, join: bool, fingerprint: str
    ) -> dict[str, Any]:
        """What a writer of files must know, and where it may write them."""
        ...

    async def put(self, token: str, name: str, offset: int, content: bytes) -> int:
        """Write a piece of a staged file; its length after that."""
        ...

    async def commit(self, wanted: BeginAdoption, token: str, claims: Sequence[FileRow]) -> Adopted:
        """All files of a transaction, or an error that names the field, and nothing."""
        ...

    async def abort(self, app: str, version: int, token: str) -> bool:
        """Remove what was staged, unless it is committed; whether it is."""
        ...


class TierReader(Protocol):
    """Looks for messages that a tier holds (`delay.tier`), and reads them there; `server.messages` asks it.

    Each of these is IN_TIER if the tier cannot be read.
    """

    name: str  # of the tier, in sentences

    async def look_for(self, command: Recall | Reschedule) -> Elsewhere:
        """Rows of one message, and of a reschedule the record of one of them; IN_TIER if they cannot be read."""
        ...

    async def places(self, command: RecallMany) -> list[TierPlace]:
        """Where messages of a window may wait."""
        ...

    async def recall_rows(
        self, command: RecallMany, places: Sequence[TierPlace], done: RecalledMany
    ) -> None:
        """Recall, or count, what waits of a window in these places, and add it to `done`."""
        ...

    async def having_key(self, topic: str, key: str) -> list[tuple[str, int]]:
        """(message id, due ms) of what waits in the tier with this key."""
        ...

    async def find(self, query: FindMessages) -> list[FoundMessage]:
        """What waits in the tier with this id or key, or was recalled there."""
        ...

    async def topics_with(self, message_id: str) -> list[str]:
        """Topics of which `find` finds something with this id."""
        ...


class Promote(Protocol):
    """Brings back from a tier the hours that begin within `ahead_ms`; gives how many hours and rows those were.

    That is a job, and the daemon imports none: whoever starts the broker gives it one.  It runs in a thread.
    """

    def __call__(self, broker: str, *, ahead_ms: int, timeout_ms: int) -> tuple[int, int]:
        """`broker` is the URL of its admin port."""
        ...


class LateFetch(Protocol):
    """Fetches from a tier what is due soon and nobody has promoted."""

    def least_in_ms(self, most: int) -> int:
        """How far a simulated clock may be moved, `most` at most, before it has to look."""
        ...

    async def look(self, *, again: bool = True) -> None:
        """Fetch what is late; `again`: also if it has just failed."""
        ...


class OffloadMaker(Protocol):
    """Moves what is due far ahead to the tier (`delay.tier`)."""

    async def begin(self, app: str, from_ms: int) -> dict[str, Any]:
        """Freeze runs; returns when they may be read."""
        ...

    async def commit(self, offload_id: int, rows: int, checksum: str, uri: str) -> dict[str, Any]:
        """Compare what the tier has with the frozen runs, and cut them."""
        ...

    async def abort(self, offload_id: int) -> bool:
        """Thaw; whether there was something to abort."""
        ...

    async def show(self, to_ms: int) -> dict[str, Any]:
        """All offloads, and what waits in the tier in hours that begin before `to_ms`."""
        ...

    async def gone(self, offload_id: int, hour: int | None) -> list[tuple[int, int]]:
        """Origins of what was recalled of an offload (and hour)."""
        ...

    @property
    def messages(self) -> TierReader:
        """What it finds there again."""
        ...

    @property
    def late(self) -> LateFetch | None:
        """What fetches hours that are due soon, once it was begun."""
        ...

    def promote_late(self, promote: Promote, url: str) -> None:
        """Fetch hours that are due soon with that job, through the broker's own admin port."""
        ...

    async def close(self) -> None:
        """Fetch no more."""
        ...


class TakesCommands(Protocol):
    """Commands in, results as futures: see `protocol.commands` for which result belongs to which command."""

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """A future of the command's result; a refusal is a HorologError."""
        ...


class TieredEngine(TakesCommands, Protocol):
    """An engine that may have a tier."""

    @property
    def offloads(self) -> OffloadMaker | None:
        """What moves messages to the tier; None where there is no data directory."""
        ...


class RunningEngine(TieredEngine, Protocol):
    """The running broker, as those see it who start, ask and stop it."""

    failed: asyncio.Future[None]

    @property
    def backups(self) -> BackupMaker | None:
        """What makes backups; None where there is no data directory."""
        ...

    @property
    def adoptions(self) -> AdoptionMaker | None:
        """What takes over files; None where there is no data directory."""
        ...

    @property
    def clock(self) -> Clock:
        """The broker's clock; due times mean this one."""
        ...

    async def advance(self, by_ms: int) -> None:
        """Move a simulated clock.

        Returns when everything that became due is handed over and committed.
        """
        ...

    async def stop(self) -> None:
        """Write, sync and close everything."""
        ...


class GrpcEngine(TieredEngine, Protocol):
    """What the door of 5.x clients needs of the running broker: `server.loop.Engine`, or `AutoCreate` before it."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""
        ...

    @property
    def on_answers(self) -> list[Callable[[], None]]:
        """Called when answers were given that can be written before the turn goes on."""
        ...

    def ask(self, command: Command, then: Callable[[object], None]) -> Ticket:
        """Have `then` called with the result or the HorologError, after this has returned."""
        ...

    def before_turn(self, ask: Callable[[], None]) -> None:
        """Call `ask` once, before the next turn takes its commands, or two milliseconds from now."""
        ...
