"""List everything of a kind that the broker has, page by page, for admin tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from horolog.errors import ErrorCode, HorologError
from horolog.limits import TURN_TOPICS_MAX
from horolog.protocol.commands import ListTopics, QueueRead, ReadQueue, TopicView
from horolog.protocol.queue_commands import CountLags, FindGroup, GroupView, Lag, ListGroups
from horolog.protocol.rocketmq.layout import decode
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES
from horolog.protocol.rocketmq.names import check_group
from horolog.server.running import RunningEngine

_READS = 16  # messages that are read at a time
_CLIENTS = 1_024  # clients looked at before other tasks of the loop run: 2 to 10 ms
_T = TypeVar("_T")


async def paced(clients: Iterable[_T]) -> AsyncIterator[_T]:
    """Yield the clients; others are served between some and the next."""
    for at, client in enumerate(clients):
        if at % _CLIENTS == _CLIENTS - 1:
            await asyncio.sleep(0)
        yield client


async def topics(engine: RunningEngine) -> AsyncIterator[TopicView]:
    """Yield all topics, by name."""
    after = ""
    while True:
        found: list[TopicView] = await engine.submit(ListTopics(after, with_pending=False))
        for topic in found:
            yield topic
        if len(found) < TURN_TOPICS_MAX:
            return
        after = found[-1].name


async def groups(engine: RunningEngine) -> AsyncIterator[GroupView]:
    """Yield all consumer groups, by name."""
    after = ""
    while page := await _page(engine, after):
        for group in page:
            yield group
        after = page[-1].name


async def _page(engine: RunningEngine, after: str) -> list[GroupView]:
    page: list[GroupView] = await engine.submit(ListGroups(after))
    return page


async def known_group(engine: RunningEngine, name: str) -> GroupView:
    """Return a consumer group; raise GROUP_NOT_FOUND if there is none."""
    group: GroupView = await engine.submit(FindGroup(check_group(name)))
    return group


async def lags(engine: RunningEngine, pairs: Sequence[tuple[str, str]]) -> list[Lag]:
    """Return the lag of all these (group, topic) pairs, asking for as many as fit into a turn."""
    found: list[Lag] = []
    while rest := list(pairs[len(found) :]):
        some: list[Lag] = await engine.submit(CountLags(rest))
        assert some, "a turn counts one at least"
        found += some
    return found


async def some_of(
    listed: AsyncIterable[_T], first: int, limit: int, encode: Callable[[_T], bytes]
) -> tuple[int, list[bytes]]:
    """Return how many are listed, and those from number `first` on, at most `limit`, encoded."""
    count, found = 0, []
    async for each in listed:
        if first <= count < first + limit:
            found.append(encode(each))
        count += 1
    return count, found


async def unless_deleted(asked: Awaitable[_T], otherwise: _T) -> _T:
    """Return the answer about a listed group or topic; `otherwise` if it was deleted meanwhile."""
    try:
        return await asked
    except HorologError as error:
        if error.code not in (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.GROUP_NOT_FOUND):
            raise
        return otherwise


async def stored_ms(
    engine: RunningEngine, topic: str, offsets: Sequence[tuple[int, int]]
) -> list[int]:
    """Return when the messages at these (queue, offset) became visible, in epoch ms.

    0: there is no message, or no longer.
    """
    found: list[int] = []
    for first in range(0, len(offsets), _READS):
        some = offsets[first : first + _READS]
        found += await asyncio.gather(*(_stored_ms(engine, topic, *each) for each in some))
    return found


async def _stored_ms(engine: RunningEngine, topic: str, queue_id: int, offset: int) -> int:
    if offset < 0:
        return 0
    try:
        read: QueueRead = await engine.submit(ReadQueue(topic, queue_id, offset, 1, 1))
    except HorologError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return 0
        raise
    return decode(read.records[0][RECORD_HEAD_BYTES:]).store_ms if read.records else 0
