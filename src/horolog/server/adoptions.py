"""Adoptions of the running broker: staging directories, and the file work of commits in threads.

    begin → a staging directory → files, written there directly or by `put` → commit:
        in a thread   check and sync the files; read a small transaction, or move it into `runs`
        in the core   append the ADOPT record
        in a thread   remove the staging directory

`broker.adopt.adoptions` describes the decisions, `broker.adopt.staging` what a crash leaves.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import orjson
from xxhash import xxh64_intdigest

from horolog.broker.adopt import staged_files, staging
from horolog.broker.adopt.staging import Begun, ShardFiles
from horolog.clock import Clock
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import ADOPTION_INLINE_BYTES, HOUR_MS
from horolog.protocol.adoption_commands import (
    Adopt,
    Adopted,
    AdoptionBegun,
    AdoptionState,
    BeginAdoption,
    DescribeAdoption,
    FileRow,
)
from horolog.server.running import TakesCommands
from horolog.server.threads import in_pool

_log = logging.getLogger("horolog.adoptions")
BORN_HOST = "127.0.0.1:0"  # messages of files come from no connection


class Core(TakesCommands, Protocol):
    """The methods of the engine that adoptions use."""

    @property
    def clock(self) -> Clock:
        """The broker's clock."""
        ...


class Adoptions:
    """All adoptions of a broker.  Belongs to the event loop's thread, except the file work."""

    def __init__(self, engine: Core, place: ShardFiles, data_dir: Path, segment_bytes: int) -> None:
        self._engine = engine
        self._place = place
        self._directory = data_dir / place.stagings  # as other processes see it
        self.inline_bytes = min(ADOPTION_INLINE_BYTES, segment_bytes // 8)
        # One commit or abort of a transaction at a time.  A task that holds a lock or waits for it
        # keeps it alive; between two holders it is not locked, and must still be the same lock.
        self._busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def begin(
        self, app: str, version: int, topic: str, *, join: bool = False, fingerprint: str = ""
    ) -> dict[str, Any]:
        """Make a staging directory, or join the one of the same transaction.

        Raise the errors of `broker.adopt.adoptions.begin`.
        """
        command = BeginAdoption(app, version, topic, fingerprint)
        begun: AdoptionBegun = await self._engine.submit(command)
        now_ms = self._engine.clock.wall_ms()
        token = "" if begun.already else secrets.token_hex(8)
        if join and token:
            token = f"{xxh64_intdigest(orjson.dumps([app, version, topic])):016x}"
        if token:
            made = Begun(token, app, version, topic, now_ms)
            async with self._lock(token):
                await in_pool(self._begin, made)
            _log.info("begun app=%s version=%d topic=%s token=%s", app, version, topic, token)
        return {
            "already": begun.already,
            "topic": begun.topic,
            "topic_number": begun.topic_id,
            "queues": begun.queues,
            "log_id": f"{self._place.log_id:016x}",
            "shard": 0,
            "staging": str(self._directory.absolute() / token) if token else "",
            "token": token,
            "now_ms": now_ms,
            "max_due_ms": begun.max_due_ms,
            "born_host": BORN_HOST,
        }

    def _begin(self, begun: Begun) -> None:
        for token in staging.sweep_staging(self._place, begun.begun_ms, keep=self._busy):
            _log.info("swept token=%s", token)
        with suppress(HorologError):
            staging.find(self._place, begun.token)
            return  # joined
        staging.begin(self._place, begun)

    async def put(self, token: str, name: str, offset: int, content: bytes) -> int:
        """Write a piece of a staged file at its offset; return the file's length after that."""
        staging.check_name(name)
        return await in_pool(self._put, token, name, offset, content)

    def _put(self, token: str, name: str, offset: int, content: bytes) -> int:
        place = self._place
        staging.find(place, token)
        staging.check_room(place.storage, len(content))
        file = place.storage.open(f"{place.staging(token)}/{name}", create=True)
        try:
            if offset > file.size():
                raise refused("offset", f"{offset} lies after the end, {file.size()}")
            file.write(offset, content)
            return file.size()
        finally:
            file.close()

    async def commit(self, wanted: BeginAdoption, token: str, claims: Sequence[FileRow]) -> Adopted:
        """Adopt all files of a transaction; or adopt none, and raise an error naming the field."""
        work = self._commit(wanted, token, claims)
        # If the caller goes away, the next attempt must not begin while this one is in the core.
        return await asyncio.shield(asyncio.create_task(work))

    async def _commit(
        self, wanted: BeginAdoption, token: str, claims: Sequence[FileRow]
    ) -> Adopted:
        app, version = wanted.app, wanted.version
        async with self._lock(token):
            begun: AdoptionBegun = await self._engine.submit(wanted)
            if begun.already:
                await in_pool(self._end, app, version, token)
                return Adopted(True)
            command = await self._prepare(wanted, token, claims, begun)
            result: Adopted = await self._engine.submit(command)
            if result.already:  # another transaction of that version was committed meanwhile
                await in_pool(partial(self._end, app, version, token, undo=True))
            else:
                await in_pool(self._end, app, version, token)
            _log.info(
                "committed app=%s version=%d rows=%d files=%d position=%d already=%s",
                app, version, result.rows, result.files, result.position, result.already,
            )  # fmt: skip
            return result

    async def _prepare(
        self, wanted: BeginAdoption, token: str, claims: Sequence[FileRow], begun: AdoptionBegun
    ) -> Adopt:
        found = await in_pool(staging.find, self._place, token)
        for name, given, was in (
            ("app", wanted.app, found.app),
            ("version", wanted.version, found.version),
            ("topic", wanted.topic, found.topic),
        ):
            if given != was:
                raise refused(name, f"the transaction was begun with {was!r}, not {given!r}")
        now_ms = self._engine.clock.wall_ms()
        command = await in_pool(self._check_and_place, begun, now_ms, found, claims)
        return replace(command, fingerprint=wanted.fingerprint)

    def _check_and_place(
        self, begun: AdoptionBegun, now_ms: int, found: Begun, claims: Sequence[FileRow]
    ) -> Adopt:
        place = self._place
        checked = staged_files.check(
            place, found, claims, begun.topic_id, begun.queues, now_ms + HOUR_MS
        )
        for number, claim in enumerate(claims):
            if claim.last_ms > begun.max_due_ms:
                raise HorologError(
                    ErrorCode.ILLEGAL_DELIVERY_TIME,
                    f"files.{number}.last_ms: {claim.last_ms} is too far ahead; at most "
                    f"{begun.max_due_ms} is allowed",
                    field=f"files.{number}.last_ms",
                    limit=f"{begun.max_due_ms}",
                )
        command = Adopt(found.app, found.version, found.topic, topic_id=begun.topic_id)
        if sum(claim.bytes for claim in claims) <= self.inline_bytes:
            records = staged_files.read_records(place, claims, checked, begun.queues)
            return replace(command, records=records)
        staged_files.move(place, claims, checked)
        return replace(command, files=checked.files, soon_bytes=checked.soon_bytes)

    async def abort(self, app: str, version: int, token: str) -> bool:
        """Remove what a transaction has staged, unless it is committed; return whether it is."""
        async with self._lock(token):
            state: AdoptionState = await self._engine.submit(DescribeAdoption(app))
            is_committed = version <= state.version
            await in_pool(partial(self._end, app, version, token, undo=not is_committed))
            return is_committed

    def _end(self, app: str, version: int, token: str, *, undo: bool = False) -> None:
        """Remove a transaction's staging directory; with `undo`, also the files moved from it."""
        try:
            found = staging.find(self._place, token)
        except HorologError:
            return  # removed before
        if (found.app, found.version) != (app, version):
            raise refused("token", f"is of version {found.version} of {found.app!r}")
        if undo:
            staging.undo(self._place, found)
        else:
            staging.end(self._place, token)

    def _lock(self, token: str) -> asyncio.Lock:
        return self._busy.setdefault(token, asyncio.Lock())
