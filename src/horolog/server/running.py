"""What the doors and the admin API need of the running broker.

`server.loop.Engine` has it, and so have the fakes of tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from horolog.backup.status import BackupView
from horolog.broker.adopt.staging import Claim
from horolog.broker.recall.recalls import worth_telling
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.adoption_commands import Adopted, BeginAdoption
from horolog.protocol.commands import (
    Command,
    FindMessages,
    FoundMessage,
    Recall,
    RecallByKey,
    Recalled,
    RecalledMany,
    RecallMany,
    Reschedule,
    Rescheduled,
)

_Result = TypeVar("_Result")


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

    async def commit(self, wanted: BeginAdoption, token: str, claims: Sequence[Claim]) -> Adopted:
        """All files of a transaction, or an error that names the field, and nothing."""
        ...

    async def abort(self, app: str, version: int, token: str) -> bool:
        """Remove what was staged, unless it is committed; whether it is."""
        ...


class TierReader(Protocol):
    """Looks for messages that a tier holds (`delay.tier`), and reads them there."""

    async def recall(self, command: Recall) -> Recalled:
        """Recall a message that may be in the tier."""
        ...

    async def reschedule(self, command: Reschedule) -> Rescheduled:
        """Reschedule a message that may be in the tier."""
        ...

    async def recall_many(self, command: RecallMany) -> RecalledMany:
        """Recall all of a window, of which something may be in the tier."""
        ...

    async def having_key(self, topic: str, key: str) -> list[tuple[str, int]]:
        """(message id, due ms) of what waits in the tier with this key."""
        ...

    async def find(self, query: FindMessages) -> list[FoundMessage]:
        """What waits in the tier with this id or key, or was recalled there."""
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

    async def commit(self, number: int, rows: int, checksum: str, uri: str) -> dict[str, Any]:
        """Compare what the tier has with the frozen runs, and cut them."""
        ...

    async def abort(self, number: int) -> bool:
        """Thaw; whether there was something to abort."""
        ...

    async def show(self, to_ms: int) -> dict[str, Any]:
        """All offloads, and what waits in the tier in hours that begin before `to_ms`."""
        ...

    async def gone(self, number: int, hour: int | None) -> list[tuple[int, int]]:
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

    def promote_late(self, url: str) -> None:
        """Fetch hours that are due soon, through the broker's own admin port."""
        ...

    async def close(self) -> None:
        """Fetch no more."""
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
    def adoptions(self) -> AdoptionMaker | None:
        """What takes over files; None where there is no data directory."""
        ...

    @property
    def offloads(self) -> OffloadMaker | None:
        """What moves messages to the tier; None where there is no data directory."""
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


async def recalled(engine: Engine, command: Recall) -> Recalled:
    """The truth about one message, also if it is in the tier; IN_TIER if that cannot be read."""
    return await _here_or_there(engine, command, lambda tier: tier.recall(command))


async def rescheduled(engine: Engine, command: Reschedule) -> Rescheduled:
    """A message that is due at another time now, also if it was in the tier; IN_TIER if that cannot be read."""
    return await _here_or_there(engine, command, lambda tier: tier.reschedule(command))


async def recalled_many(engine: Engine, command: RecallMany) -> RecalledMany:
    """How many of a window were meant, also of those in the tier; IN_TIER if that cannot be read."""
    return await _here_or_there(engine, command, lambda tier: tier.recall_many(command))


async def _here_or_there(
    engine: Engine, command: Command, there: Callable[[TierReader], Awaitable[_Result]]
) -> _Result:
    """The core's answer, or that of the tier where the core says that it cannot know."""
    try:
        found: _Result = await engine.submit(command)
    except HorologError as error:
        if error.code is not ErrorCode.IN_TIER or engine.offloads is None:
            raise
        return await there(engine.offloads.messages)
    return found


async def found_messages(engine: Engine, query: FindMessages) -> list[FoundMessage]:
    """Messages with an id or key, also those of which only the tier knows; IN_TIER if that cannot be read.

    By id the tier is asked about what the broker does not know.
    """
    here: list[FoundMessage] = await engine.submit(query)
    if engine.offloads is None or (query.message_id and here):
        return here
    told = {(each.message_id, each.due_ms) for each in here}
    there = await engine.offloads.messages.find(query)
    return here + [each for each in there if (each.message_id, each.due_ms) not in told]


async def recalled_by_key(engine: Engine, command: RecallByKey) -> list[Recalled]:
    """What became of every message with a key, also of those in the tier, which are recalled one by one.

    IN_TIER if that cannot be read; nothing is changed then.
    """
    if engine.offloads is None:
        found: list[Recalled] = await engine.submit(command)
        return found
    topic = command.topic
    wanted = await engine.offloads.messages.having_key(topic, command.key)
    try:
        found = await engine.submit(command)
    except HorologError as error:
        if error.code is not ErrorCode.IN_TIER:
            raise
        here: list[FoundMessage] = await engine.submit(FindMessages(topic, key=command.key))
        found = []
        wanted += [(each.message_id, each.due_ms) for each in here if each.due_ms]
    for message_id, due_ms in dict.fromkeys(wanted):
        found.append(await recalled(engine, Recall(topic, message_id, due_ms)))
    return worth_telling(found)
