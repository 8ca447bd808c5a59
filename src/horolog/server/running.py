"""Protocols of the running broker, as the doors and the admin API use it.

`server.loop.Engine` implements them, and so do the fakes of tests.
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
        """Return the state of the newest backup, running or ended."""
        ...


class AdoptionMaker(Protocol):
    """Stages and commits the files of adoptions, each transaction as a whole.

    Implemented by `server.adoptions.Adoptions`.
    """

    async def begin(
        self, app: str, version: int, topic: str, *, join: bool, fingerprint: str
    ) -> dict[str, Any]:
        """Return what a writer of files must know, and where it may write them."""
        ...

    async def put(self, token: str, name: str, offset: int, content: bytes) -> int:
        """Write a piece of a staged file; return the length of the file after that."""
        ...

    async def commit(self, wanted: BeginAdoption, token: str, claims: Sequence[FileRow]) -> Adopted:
        """Adopt all files of a transaction; or adopt none, and raise an error naming the field."""
        ...

    async def abort(self, app: str, version: int, token: str) -> bool:
        """Remove what was staged, unless it is committed; return whether it is committed."""
        ...


class TierReader(Protocol):
    """Finds and reads messages that a tier holds (`delay.tier`), for `server.messages`.

    Every method raises IN_TIER if the tier cannot be read.
    """

    name: str  # of the tier, as sentences name it

    async def look_for(self, command: Recall | Reschedule) -> Elsewhere:
        """Return the rows of one message in the tier; for a reschedule also the record of one row.

        Raise IN_TIER if they cannot be read.
        """
        ...

    async def places(self, command: RecallMany) -> list[TierPlace]:
        """Return the places of the tier where messages of a window may wait."""
        ...

    async def recall_rows(
        self, command: RecallMany, places: Sequence[TierPlace], done: RecalledMany
    ) -> None:
        """Recall, or count, the pending messages of a window in `places`; add to `done`."""
        ...

    async def having_key(self, topic: str, key: str) -> list[tuple[str, int]]:
        """Return (message id, due ms) of the messages that wait in the tier with this key."""
        ...

    async def find(self, query: FindMessages) -> list[FoundMessage]:
        """Return messages with this id or key that wait in the tier or were recalled there."""
        ...

    async def topics_with(self, message_id: str) -> list[str]:
        """Return the topics in which `find` finds a message with this id."""
        ...


class Promote(Protocol):
    """Brings back from a tier the hours that begin within `ahead_ms`.

    Returns how many hours and rows were brought back.  Promotion is a job, and the daemon imports
    no job: the code that starts the broker passes one in.  The job runs in a thread.
    """

    def __call__(self, broker: str, *, ahead_ms: int, timeout_ms: int) -> tuple[int, int]:
        """Run the job; `broker` is the URL of the broker's admin port."""
        ...


class LateFetch(Protocol):
    """Fetches from a tier the messages that are due soon and that no job has promoted."""

    def clock_step_ms(self, most: int) -> int:
        """Return the ms, up to `most`, that a simulated clock may advance before a fetch is due."""
        ...

    async def promote_late_hours(self, *, again: bool = True) -> None:
        """Fetch what is late; with `again` also if the last fetch has just failed."""
        ...


class OffloadMaker(Protocol):
    """Moves messages that are due far ahead to the tier (`delay.tier`)."""

    async def begin(self, app: str, from_ms: int) -> dict[str, Any]:
        """Freeze runs; return when they may be read."""
        ...

    async def commit(self, offload_id: int, rows: int, checksum: str, uri: str) -> dict[str, Any]:
        """Compare the rows in the tier with the frozen runs, and cut the runs."""
        ...

    async def abort(self, offload_id: int) -> bool:
        """Thaw the runs of an offload; return whether there was an offload to abort."""
        ...

    async def show(self, to_ms: int) -> dict[str, Any]:
        """Return all offloads, and what waits in the tier in hours that begin before `to_ms`."""
        ...

    async def recalled_origins(self, offload_id: int, hour: int | None) -> list[tuple[int, int]]:
        """Return the origins of messages recalled from an offload, or from one hour of it."""
        ...

    @property
    def messages(self) -> TierReader:
        """The reader that finds messages in the tier."""
        ...

    @property
    def late(self) -> LateFetch | None:
        """The part that fetches hours that are due soon; None before `promote_late`."""
        ...

    def promote_late(self, promote: Promote, url: str) -> None:
        """Begin to fetch hours that are due soon, with the job `promote`.

        `url` is the URL of the broker's own admin port.
        """
        ...

    async def close(self) -> None:
        """Stop fetching."""
        ...


class TakesCommands(Protocol):
    """Takes commands and returns futures; `protocol.commands` names the result of each command."""

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Queue a command; the future returns its result, or raises a HorologError when refused."""
        ...


class TieredEngine(TakesCommands, Protocol):
    """An engine that may have a tier."""

    @property
    def offloads(self) -> OffloadMaker | None:
        """The part that moves messages to the tier; None where there is no data directory."""
        ...


class LogWrites(Protocol):
    """Writes the log (`server.group_commit.GroupCommit`)."""

    @property
    def under_way_s(self) -> float:
        """How long the write under way has taken, its sync included; 0 if there is none."""
        ...


class RunningEngine(TieredEngine, Protocol):
    """The running broker, for the code that starts, asks and stops it."""

    failed: asyncio.Future[None]

    @property
    def log(self) -> LogWrites:
        """The part that writes the log."""
        ...

    @property
    def backups(self) -> BackupMaker | None:
        """The part that makes backups; None where there is no data directory."""
        ...

    @property
    def adoptions(self) -> AdoptionMaker | None:
        """The part that adopts files; None where there is no data directory."""
        ...

    @property
    def clock(self) -> Clock:
        """The broker's clock; due times are compared with this clock."""
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
    """The running broker, as the door of 5.x clients uses it.

    Implemented by `server.loop.Engine`, and by `AutoCreate`, which wraps the engine.
    """

    @property
    def clock(self) -> Clock:
        """The broker's clock."""
        ...

    @property
    def on_answers(self) -> list[Callable[[], None]]:
        """Callbacks for when answers were given that can be written before the turn goes on."""
        ...

    def ask(self, command: Command, then: Callable[[object], None]) -> Ticket:
        """Queue a command; `then` gets the result or the HorologError, after `ask` has returned."""
        ...

    def before_turn(self, ask: Callable[[], None]) -> None:
        """Call `ask` once, before the next turn takes its commands, or within two milliseconds."""
        ...
