"""Look-ups of messages in the lake: searches tables in threads, and asks the core about the rows.

The core knows neither ids nor keys of messages in the lake, so `server.messages` searches the table
first, in a thread, and names the rows to the core (`lake.core.recalls`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from horolog.broker.recall.look_ups import check_count, waiting_view
from horolog.errors import ErrorCode, HorologError, first_line, refused
from horolog.lake.core.state_file import NAME
from horolog.limits import HOUR_MS, LAKE_RECALL_ROWS
from horolog.protocol.commands import (
    FindMessages,
    FoundMessage,
    MessageState,
    Recall,
    RecalledMany,
    RecallMany,
    Reschedule,
)
from horolog.protocol.rocketmq.message import key_hash
from horolog.protocol.tier_commands import (
    DescribeTier,
    Elsewhere,
    ListRecalled,
    RecallRows,
    TierPlace,
    TierRow,
    TierView,
)
from horolog.server.adoptions import Core
from horolog.server.threads import in_pool
from horolog.units import TIME_MAX_MS

if TYPE_CHECKING:
    from horolog.lake.table.reading import LakePlace

_TABLE_ERRORS = (ImportError, OSError, HorologError, RuntimeError, ValueError)  # besides panics


class _Table(NamedTuple):
    """A table with waiting messages of one topic.

    from_ms   due time of the first of them, or before
    recalled  origins of the messages of the offload that were recalled
    """

    uri: str
    offload_id: int
    topic: int
    from_ms: int
    recalled: frozenset[tuple[int, int]]


class LakeMessages:
    """Searches the lake for `server.messages`, on the event loop's thread; reads in others."""

    name = NAME

    def __init__(self, engine: Core) -> None:
        self._engine = engine

    async def look_for(self, command: Recall | Reschedule) -> Elsewhere:
        """Find the rows (and records) of one message; IN_TIER if a table cannot be read."""
        places = await self._hours(command.topic, command.due_ms, command.due_ms + 1)
        rows = await in_pool(_find, command, places)
        records: list[bytes] = []
        if isinstance(command, Reschedule):
            records = await in_pool(_records, command, places, rows)
        looked = tuple(place.offload_id for place in places)
        return Elsewhere(tuple(rows), looked, tuple(records))

    async def places(self, command: RecallMany) -> list[TierPlace]:
        """Return where messages of the command's window of due times may wait."""
        return await self._hours(command.topic, command.from_ms, command.to_ms)

    async def recall_rows(
        self, command: RecallMany, places: Sequence[TierPlace], done: RecalledMany
    ) -> None:
        """Recall (dry run: count) the waiting messages of a window, and add them to `done`.

        IN_TIER if a table cannot be read.
        """
        for place in places:
            await self._recall_there(command, place, done)

    async def _hours(self, topic: str, from_ms: int, to_ms: int) -> list[TierPlace]:
        """Return where messages of a topic wait in the hours of [from_ms, to_ms)."""
        view: TierView = await self._engine.submit(DescribeTier(to_ms))
        uris = {offload.offload_id: offload.uri for offload in view.offloads}
        hours: dict[tuple[int, int], list[int]] = {}
        for each in view.hours:
            if each.topic_name == topic and (each.hour + 1) * HOUR_MS > from_ms:
                hours.setdefault((each.offload_id, each.topic), []).append(each.hour)
        return [
            TierPlace(uris[offload_id], offload_id, id_of_topic, found)
            for (offload_id, id_of_topic), found in sorted(hours.items())
        ]

    async def _recall_there(
        self, command: RecallMany, place: TierPlace, done: RecalledMany
    ) -> None:
        """Recall (dry run: count) the messages of one offload that match the command."""
        pieces = _pieces(command, place)
        with ThreadPoolExecutor(1) as reader:  # Arrow keeps memory for each thread that reads
            while (piece := await in_pool(next, pieces, None, pool=reader)) is not None:
                rows, sizes = piece
                step = RecallRows(rows, command.dry_run, done.cancelled)
                meant: npt.NDArray[np.bool_] = await self._engine.submit(step)
                n = int(meant.sum())
                done.matched += n
                done.cancelled += 0 if command.dry_run else n
                done.bytes += int(sizes[meant].sum())

    async def having_key(self, topic: str, key: str) -> list[tuple[str, int]]:
        """Return (message id, due ms) of the waiting messages with a key; IN_TIER as `find`."""
        query = FindMessages(topic, key=key)
        found = set()
        for table in await self._tables(topic):
            places = await in_pool(_find_all, table, query)
            found |= {each[:2] for each in places if each.origin not in table.recalled}
        return sorted(found, key=lambda each: each[1])

    async def find(self, query: FindMessages) -> list[FoundMessage]:
        """Find messages waiting or recalled in the lake; IN_TIER if a table cannot be read."""
        found: list[FoundMessage] = []
        for table in await self._tables(query.topic):
            found += await in_pool(_views, table, query)
        return found

    async def topics_with(self, message_id: str) -> list[str]:
        """Return the topics with a message of that id, waiting or recalled; IN_TIER as `find`."""
        view: TierView = await self._engine.submit(DescribeTier(TIME_MAX_MS))
        topics = sorted({each.topic_name for each in view.hours})
        return [topic for topic in topics if await self.find(FindMessages(topic, message_id))]

    async def _tables(self, topic: str) -> list[_Table]:
        """Return the tables in which messages of a topic wait."""
        return [
            _Table(
                uri, offload_id, topic_id, min(hours) * HOUR_MS, await self._recalled(offload_id)
            )
            for uri, offload_id, topic_id, hours in await self._hours(topic, 0, TIME_MAX_MS)
        ]

    async def _recalled(self, offload_id: int) -> frozenset[tuple[int, int]]:
        return frozenset(await self._engine.submit(ListRecalled(offload_id)))


def _find(command: Recall | Reschedule, places: Sequence[TierPlace]) -> list[TierRow]:
    """Find the rows of a message in the tables of these offloads."""
    due_ms, name = command.due_ms, command.message_id
    key = key_hash(command.topic, name)
    with _as_in_tier():
        from horolog.lake.table.reading import find_rows

        return [
            TierRow(offload_id, position, row, due_ms)
            for uri, offload_id, topic, _ in places
            for position, row in find_rows(uri, offload_id, topic, name, key, due_ms)
        ]


def _records(
    command: Reschedule, places: Sequence[TierPlace], rows: Sequence[TierRow]
) -> list[bytes]:
    """Read the record of each row; rows are grouped by offload, in the order of the places."""
    with _as_in_tier():
        from horolog.lake.table.reading import LakePlace, records_of

        records = []
        for uri, offload_id, _, _ in places:
            wanted = [
                LakePlace(command.message_id, each.due_ms, (each.position, each.row))
                for each in rows
                if each.offload_id == offload_id
            ]
            records += records_of(uri, offload_id, wanted)
        return records


def _pieces(
    command: RecallMany, place: TierPlace
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Yield the rows of an offload in a window, with their sizes, in pieces of one step each."""
    window = command.from_ms, command.to_ms, place.hours, command.tag
    with _as_in_tier():
        from horolog.lake.table.reading import rows_between

        for rows, sizes in rows_between(place.uri, place.offload_id, place.topic, *window):
            for first in range(0, len(rows), LAKE_RECALL_ROWS):
                piece = slice(first, first + LAKE_RECALL_ROWS)
                yield rows[piece], sizes[piece]


def _find_all(table: _Table, query: FindMessages) -> list[LakePlace]:
    with _as_in_tier():
        from horolog.lake.table.reading import find_id, find_key

        uri, offload_id, topic, from_ms, _ = table
        if query.key:
            return find_key(uri, offload_id, topic, query.key, from_ms)
        name = query.message_id
        return find_id(uri, offload_id, topic, name, key_hash(query.topic, name), from_ms)


def _views(table: _Table, query: FindMessages) -> list[FoundMessage]:
    places = _find_all(table, query)
    check_count(len(places), query)
    with _as_in_tier():
        from horolog.lake.table.reading import records_of

        records = records_of(table.uri, table.offload_id, places)
    return [
        waiting_view(
            query.topic,
            record,
            MessageState.RECALLED if place.origin in table.recalled else MessageState.IN_TIER,
            place.due_ms,
            place.origin[0],
        )
        for place, record in zip(places, records, strict=True)
    ]


@contextmanager
def _as_in_tier() -> Iterator[None]:
    """Turn errors of reading a table into IN_TIER."""
    try:
        yield
    except GeneratorExit:
        raise  # the caller stopped reading
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, _TABLE_ERRORS):
            raise  # a bug of ours
        why = first_line(error)
        raise refused(
            "deliver_at",
            f"the message may be in the lake, which cannot be read just now ({why})",
            code=ErrorCode.IN_TIER,
        ) from error
