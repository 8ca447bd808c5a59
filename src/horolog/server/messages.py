"""Recall, reschedule and find messages, wherever they rest; all doors use this module.

The core decides.  It knows the messages that wait on the disk, near or far, sent or adopted, that
are not filed yet, and that were handed over; of messages in a tier it knows only counts.  Where a
tier could matter, the core answers `LookElsewhere` and changes nothing.  Then the tier is read
(`server.running.TierReader`), and the core is asked again with the rows that were found.  It
answers `LookElsewhere` again if more messages have gone to the tier in between.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import astuple, replace
from typing import Any

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import HOUR_MS
from horolog.protocol.commands import (
    FindMessages,
    FoundMessage,
    MessageState,
    Recall,
    RecallByKey,
    Recalled,
    RecalledMany,
    RecallMany,
    RecallStatus,
    Reschedule,
    Rescheduled,
)
from horolog.protocol.history_commands import (
    FindTopics,
    HistoryEvent,
    MessageEvent,
    MessageHistory,
    ShowMessage,
    TopicsKnown,
)
from horolog.protocol.recall_commands import without_redundant_not_found
from horolog.protocol.tier_commands import DescribeTier, LookElsewhere, TierView
from horolog.server.running import TieredEngine, TierReader

_IN_TIER = {
    MessageState.IN_TIER: MessageEvent.OFFLOADED,
    MessageState.RECALLED: MessageEvent.RECALLED,
}
_TRIES_MAX = 8  # times that the tier is read while messages go there or come back


async def recall(engine: TieredEngine, command: Recall) -> Recalled:
    """Recall one message; raise IN_TIER if it may be in a tier that cannot be read."""
    found: Recalled = await _decide(engine, command)
    return found


async def recall_within_second(engine: TieredEngine, command: Recall) -> list[Recalled]:
    """Recall every message with an id that is due in the same second, as RocketMQ's timers count.

    Such a second ends at a full second, and includes it.  IN_TIER as in `recall`.
    """
    exact = await recall(engine, command)
    if exact.status is not RecallStatus.NOT_FOUND:
        return [exact]
    if not command.message_id:
        return []
    second = -(-command.due_ms // 1_000)
    known = await find(engine, FindMessages(command.topic, command.message_id))
    dues = {each.due_ms for each in known if each.due_ms and -(-each.due_ms // 1_000) == second}
    return [await recall(engine, replace(command, due_ms=due_ms)) for due_ms in sorted(dues)]


async def reschedule(engine: TieredEngine, command: Reschedule) -> Rescheduled:
    """Change the due time of a message; IN_TIER as in `recall`."""
    done: Rescheduled = await _decide(engine, command)
    return done


async def _decide(engine: TieredEngine, command: Recall | Reschedule) -> Any:
    answer = await engine.submit(command)
    for _ in range(_TRIES_MAX):
        if not isinstance(answer, LookElsewhere):
            return answer
        tier = _tier_of(engine, answer)
        command = replace(command, elsewhere=await tier.look_for(command))
        answer = await engine.submit(command)
    if isinstance(answer, LookElsewhere):
        raise answer.refusal
    return answer


def _tier_of(engine: TieredEngine, answer: LookElsewhere) -> TierReader:
    if engine.offloads is None:
        raise answer.refusal
    return engine.offloads.messages


async def recall_many(engine: TieredEngine, command: RecallMany) -> RecalledMany:
    """Recall a window, the rows in the tier first, then the core's messages; return counts.

    Messages that come back from the tier meanwhile are recalled by the core; the tier is read again
    for messages that go there meanwhile.  IN_TIER as in `recall`.
    """
    here: RecalledMany | LookElsewhere = await engine.submit(command)
    if isinstance(here, RecalledMany):
        return here
    tier = _tier_of(engine, here)
    done = RecalledMany(0, 0, 0)
    for _ in range(_TRIES_MAX):
        places = await tier.places(command)
        if command.dry_run:
            done = RecalledMany(0, 0, 0)
        await tier.recall_rows(command, places, done)
        looked = tuple(place.offload_id for place in places)
        asked = engine.submit(replace(command, looked=looked))
        here = await _with_count(asked, done.cancelled, tier.name)
        if isinstance(here, LookElsewhere):
            continue
        if command.dry_run and places != await tier.places(command):
            continue  # a message may have been counted twice, or not at all
        counts = zip(astuple(done), astuple(here), strict=True)
        return RecalledMany(*(there + n for there, n in counts))
    raise refused(
        "topic",
        f"messages of {command.topic} are on their way to the {tier.name}, or back; "
        f"{done.cancelled} were cancelled; try again",
        code=ErrorCode.TOO_MANY_REQUESTS,
    )


async def _with_count(
    asked: Awaitable[RecalledMany | LookElsewhere], cancelled: int, tier: str
) -> RecalledMany | LookElsewhere:
    """Return the core's answer; add to a refusal how many the tier has recalled before."""
    try:
        return await asked
    except HorologError as error:
        if not cancelled:
            raise
        text = f"{error.message} ({cancelled} more in the {tier})"
        raise HorologError(error.code, text, field=error.field, limit=error.limit) from None


async def recall_by_key(engine: TieredEngine, command: RecallByKey) -> list[Recalled]:
    """Recall every message with a key, and return what became of each.

    The core decides about all messages that it knows in one step; messages that may be in the tier
    are recalled one by one.  IN_TIER as in `recall`, and then nothing is changed.
    """
    wanted: list[tuple[str, int]] = []
    if engine.offloads is not None:
        wanted = await engine.offloads.messages.having_key(command.topic, command.key)
    found = await engine.submit(command)
    if isinstance(found, LookElsewhere):
        _tier_of(engine, found)
        wanted += [each for each in found.messages if each[1]]
        found = []
    for message_id, due_ms in dict.fromkeys(wanted):
        found.append(await recall(engine, Recall(command.topic, message_id, due_ms)))
    return without_redundant_not_found(found)


async def find(engine: TieredEngine, query: FindMessages) -> list[FoundMessage]:
    """Return messages with an id or key; IN_TIER as in `recall`.

    By id, the tier is asked only if the core knows no such message.
    """
    here: list[FoundMessage] = await engine.submit(query)
    if engine.offloads is None or (query.message_id and here):
        return here
    known = {(each.message_id, each.due_ms) for each in here}
    there = await engine.offloads.messages.find(query)
    return here + [each for each in there if (each.message_id, each.due_ms) not in known]


async def topics_with(engine: TieredEngine, message_id: str) -> list[str]:
    """Return the topics that know an id, by name; the tier is asked if the core knows none.

    IN_TIER as in `recall`.
    """
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        known: TopicsKnown = await engine.submit(FindTopics(message_id, after))
        found += known.topics
        after = known.next
    if found or engine.offloads is None:
        return found
    return await engine.offloads.messages.topics_with(message_id)


async def show(engine: TieredEngine, query: ShowMessage) -> MessageHistory:
    """Return everything that is known of the messages with an id; IN_TIER as in `find`."""
    here: MessageHistory = await engine.submit(query)
    if engine.offloads is None:
        return here
    if here.messages:
        return await _with_offload(engine, query.topic, here)
    wanted = FindMessages(query.topic, query.message_id)
    there = await engine.offloads.messages.find(wanted)
    events = [
        HistoryEvent(MessageEvent.ACCEPTED, each.store_ms or None, {"deliver_at_ms": each.due_ms})
        for each in there
    ]
    events += [HistoryEvent(_IN_TIER[each.state], None, {}) for each in there]
    found = MessageHistory(there, events, complete=False)
    return await _with_offload(engine, query.topic, found)


async def _with_offload(
    engine: TieredEngine, topic: str, history: MessageHistory
) -> MessageHistory:
    """Return the history with the time at which its message went to the tier.

    The core counts the messages in the tier by hour, topic and offload, so the time is known only
    if a single offload has messages of that hour and topic.
    """
    there = [each.due_ms for each in history.messages if each.state is MessageState.IN_TIER]
    if len(there) != 1:
        return history
    hour = there[0] // HOUR_MS
    view: TierView = await engine.submit(DescribeTier((hour + 1) * HOUR_MS))
    held_by = {
        each.offload_id for each in view.hours if (each.hour, each.topic_name) == (hour, topic)
    }
    came_ms = [each.committed_ms for each in view.offloads if each.offload_id in held_by]
    if len(came_ms) != 1 or not came_ms[0]:
        return history
    events = [
        event._replace(at_ms=came_ms[0])
        if event.event is MessageEvent.OFFLOADED and event.at_ms is None
        else event
        for event in history.events
    ]
    return replace(history, events=events)
