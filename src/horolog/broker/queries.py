"""Answer questions that change nothing.

Answers show committed state, and wait for the commit position like any other.
"""

from __future__ import annotations

from horolog.broker.adopt.adoptions import state_of
from horolog.broker.groups import group_not_found
from horolog.broker.recall.look_ups import find_topics
from horolog.broker.shard import Shard
from horolog.broker.topics import Topic, queue_of
from horolog.delay import pending
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import (
    DAY_MS,
    HOUR_MS,
    SCAN_MAX,
    TURN_READ_MAX,
    TURN_TOPICS_MAX,
)
from horolog.protocol.adoption_commands import DescribeAdoption
from horolog.protocol.commands import (
    NOT_COUNTED,
    BrokerView,
    CountBy,
    CountPending,
    DescribeBroker,
    DescribeGroup,
    DescribeLanes,
    DescribeTopic,
    GroupQueueView,
    ListTopics,
    PendingCounts,
    QueueRead,
    ReadQueue,
    TopicView,
)
from horolog.protocol.history_commands import FindTopics
from horolog.ready.progress import QueueProgress

Query = (
    DescribeTopic
    | ListTopics
    | DescribeLanes
    | CountPending
    | FindTopics
    | ReadQueue
    | DescribeBroker
    | DescribeAdoption
)


def answer(shard: Shard, query: Query) -> object:
    """Return the result that the docstring of the command names."""
    match query:
        case DescribeTopic(name, with_pending):
            return view_topic(shard, shard.topics.get(name), with_pending=with_pending)
        case ListTopics(after, with_pending):
            return _topics(shard, after, with_pending=with_pending)
        case CountPending():
            return _counts(shard, query)
        case FindTopics():
            return find_topics(shard, query)
        case ReadQueue():
            return _read(shard, query)
        case DescribeBroker():
            return _broker(shard)
        case DescribeLanes():
            return shard.lanes.rows()
        case DescribeAdoption(app):
            return state_of(shard, app)


def view_topic(shard: Shard, topic: Topic, *, with_pending: bool) -> TopicView:
    """Return a topic as operators see it."""
    waiting = pending.by_topic(shard.delay).get(topic.id, 0) if with_pending else NOT_COUNTED
    return _view(shard, topic, waiting)


def _topics(shard: Shard, after: str, *, with_pending: bool) -> list[TopicView]:
    """Return one turn's worth of topics; pending messages are counted once for all of them."""
    topics = shard.topics.page(after, TURN_TOPICS_MAX)
    if not with_pending:
        return [_view(shard, topic, NOT_COUNTED) for topic in topics]
    waiting = pending.by_topic(shard.delay)
    return [_view(shard, topic, waiting.get(topic.id, 0)) for topic in topics]


def _view(shard: Shard, topic: Topic, waiting: int) -> TopicView:
    lengths = [queue.length for queue in topic.queues]
    firsts = [queue.first for queue in topic.queues]
    return TopicView(
        topic.name,
        topic.type,
        len(topic.queues),
        lengths,
        waiting,
        firsts,
        topic.settings,
        shard.halves.in_topic(topic.id),
    )


def _topic_id(shard: Shard, name: str) -> int | None:
    return shard.topics.get(name).id if name else None


def describe_group(shard: Shard, query: DescribeGroup, mono_ms: int) -> list[GroupQueueView]:
    """Return the progress of a group in each queue of a topic."""
    topic = shard.topics.get(query.topic)
    group_id = shard.ready.groups.ids.get(query.group)
    if group_id is None:
        raise group_not_found(query.group)
    views = []
    for queue_id, queue in enumerate(topic.queues):
        progress = shard.ready.progress_if_any(group_id, topic.id, queue_id) or QueueProgress(
            queue.first
        )
        views.append(
            GroupQueueView(
                queue_id,
                progress.floor,
                progress.next,
                progress.waiting(queue.length),
                progress.ends.count_after(mono_ms),
                queue.length,
                queue.first,
            )
        )
    return views


def _counts(shard: Shard, query: CountPending) -> PendingCounts:
    topic = _topic_id(shard, query.topic)
    if query.hour is not None:
        in_tier = shard.tier.in_hour(query.hour, topic)
        if in_tier and not query.partly:
            raise _in_tier(shard, in_tier)
        seconds = pending.by_second(shard.delay, query.hour, topic)
        rows = [(s * 1000, n) for s, n in seconds]
        return PendingCounts(sum(n for _, n in rows), rows, in_tier=in_tier)
    match query.by:
        case CountBy.DAY:
            days = pending.by_day(shard.delay, topic)
            rows = [(d * DAY_MS, n) for d, n in days]
        case CountBy.HOUR:
            hours = pending.by_hour(
                shard.delay,
                topic,
                -(-query.from_ms // HOUR_MS),
                -(-query.to_ms // HOUR_MS),
            )
            rows = [(h * HOUR_MS, n) for h, n in hours]
        case CountBy.TOPIC:
            return _counts_by_topic(shard, topic)
        case CountBy.SECOND:
            raise refused("by", "second needs an hour")
    return PendingCounts(sum(n for _, n in rows), rows)


def _in_tier(shard: Shard, n: int) -> HorologError:
    return refused(
        "hour",
        f"{n} messages of this hour are in the {shard.tier.name}, and not counted by second here",
        code=ErrorCode.IN_TIER,
    )


def _counts_by_topic(shard: Shard, only: int | None) -> PendingCounts:
    counts = pending.by_topic(shard.delay)
    topics = sorted(
        (shard.topics.by_id[topic_id].name, n)
        for topic_id, n in counts.items()
        if n and only in (None, topic_id)
    )
    return PendingCounts(sum(n for _, n in topics), [], topics)


def _read(shard: Shard, query: ReadQueue) -> QueueRead:
    """Read as many messages and holes as one turn may; the caller asks again for the rest."""
    topic = shard.topics.get(query.topic)
    queue = queue_of(topic, query.queue_id)
    records: list[bytes] = []
    size, at = 0, query.first
    stop = min(queue.length, query.first + SCAN_MAX)
    while at < stop and len(records) < query.limit:
        count = min(query.limit - len(records), TURN_READ_MAX, stop - at)
        units = shard.queued.units(topic, query.queue_id, at, count)
        for position, length, _ in units.tolist():
            record = shard.queued.record(topic, query.queue_id, at, position, length)
            if record is not None:  # not a hole
                if records and size + len(record) > query.max_bytes:
                    return QueueRead(records, at, queue.first, queue.length)
                records.append(record)
                size += len(record)
            at += 1
        if len(records) >= TURN_READ_MAX or not len(units):
            break
    return QueueRead(records, at, queue.first, queue.length)


def _broker(shard: Shard) -> BrokerView:
    log = shard.log
    shard.gather_problems()  # problems that this turn has met
    return BrokerView(
        epoch=log.epoch,
        log_start=log.start,
        log_end=log.end,
        commit_position=log.commit_position,
        durable_position=log.durable_position,
        checkpoint_position=shard.checkpoint_position,
        pending=shard.delay.waiting + sum(len(u.heads) for u in shard.delay.stalled),
        handed_over=shard.handed_over,
        recalled=shard.recalled,
        expired=shard.expired,
        topics=len(shard.topics.by_name),
        groups=len(shard.ready.groups.ids),
        parked_polls=shard.ready.parked,
        loaded=shard.wheel.loaded,
        problems=list(shard.problems)
        + ([shard.disk_refusal.message] if shard.disk_refusal else [])
        + ([shard.tier.problem] if shard.tier.problem else []),
        repairs=shard.problems.repairs,
        holes=shard.queued.holes,
        accepted=shard.counters.accepted(),
    )
