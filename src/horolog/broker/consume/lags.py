"""How far consumer groups have consumed topics, for operators."""

from __future__ import annotations

from horolog.broker.shard import Shard
from horolog.limits import TURN_LAG_QUEUES_MAX
from horolog.protocol.queue_commands import CountLags, Lag


def count_lags(shard: Shard, command: CountLags, mono_ms: int) -> list[Lag]:
    """Count the lags of the first pairs, until one question's limit of queues has been read."""
    found: list[Lag] = []
    queues = 0
    for group, topic in command.pairs:
        if queues >= TURN_LAG_QUEUES_MAX:
            break
        lag, looked_at = _count(shard, group, topic, mono_ms)
        found.append(lag)
        queues += looked_at
    return found


def _count(shard: Shard, group_name: str, topic_name: str, mono_ms: int) -> tuple[Lag, int]:
    """Return the lag of a group in a topic, and the count of queues that it covers."""
    topic = shard.topics.by_name.get(topic_name)
    group_id = shard.ready.groups.ids.get(group_name)
    if topic is None or group_id is None:
        return Lag(group_name, topic_name, 0, 0, 0), 1
    waiting = leased = 0
    consumed = -shard.ready.dropped.get((group_id, topic.id), 0)
    known = shard.ready.progress.get((group_id, topic.id), {})
    for queue_id, queue in enumerate(topic.queues):
        progress = known.get(queue_id)
        floor = queue.first if progress is None else progress.floor
        waiting += queue.length - floor if progress is None else progress.waiting(queue.length)
        consumed += 0 if progress is None else floor
        leased += 0 if progress is None else progress.ends.count_after(mono_ms)
    return Lag(group_name, topic_name, waiting, leased, consumed), len(topic.queues)
