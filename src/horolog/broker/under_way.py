"""Operations that a shard has taken up or appended and not finished, for `broker.waits`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from horolog.broker.adopt.adoptions import Adoptions
from horolog.broker.life.checkpoints import Checkpoints
from horolog.broker.pending_lists import PendingLists
from horolog.broker.recall.recall_decisions import RecallDecisions
from horolog.broker.send.sends import Sends
from horolog.broker.shard import Shard
from horolog.broker.topic_changes import TopicChanges
from horolog.broker.waits import Wait
from horolog.protocol.commands import DeleteTopic, FindMessages, Recall, RecallByKey, Reschedule
from horolog.protocol.rocketmq.message import key_hash, user_key_hash
from horolog.protocol.schedules import ChangeSchedule, PauseSchedule, RemoveSchedule


class ShardUnderWay:
    """Looks up in the parts of one shard which operations are not over."""

    def __init__(
        self,
        shard: Shard,
        topics: TopicChanges,
        sends: Sends,
        adoptions: Adoptions,
        recalls: RecallDecisions,
        lists: PendingLists,
        checkpoints: Checkpoints,
    ) -> None:
        self._shard = shard
        self._topics = topics
        self._sends = sends
        self._adoptions = adoptions
        self._recalls = recalls
        self._questions: Mapping[Wait, Callable[[Any, object], bool]] = {
            Wait.LOG: lambda _command, _token: shard.is_log_full,
            Wait.TIER_STEP: lambda _command, _token: shard.is_tier_changing,
            Wait.EARLIER: self._earlier,
            Wait.BULK_PIECE: lambda _command, _token: recalls.bulk.is_uncommitted,
            Wait.ADOPTION: self._adoption,
            Wait.UNFILED: self._unfiled,
            Wait.TOPIC: self._topic,
            Wait.BULK_RECALL: lambda _command, _token: recalls.bulk.under_way,
            Wait.BULK_COUNT: lambda _command, _token: recalls.bulk.is_counting,
            Wait.FROZEN_BUFFERS: lambda command, _token: shard.tier.is_sealing(
                shard.delay, command.offload_id
            ),
            Wait.RECALLS: lambda _command, _token: shard.tier.is_contended(shard.delay),
            Wait.KEY_SEARCH: self._key_search,
            Wait.LISTING: lists.is_reading,
            Wait.HISTORY: recalls.is_searching_log,
            Wait.CHECKPOINT: lambda _command, _token: checkpoints.is_decided,
        }

    def has(self, what: Wait, command: object, token: object) -> bool:
        """Return whether an operation of that kind concerns the command.

        Raise DISK_FULL if the command concerns messages that cannot be filed; TOPIC_NOT_FOUND or
        ILLEGAL_KEY if a key search meets them.
        """
        return self._questions[what](command, token)

    def _earlier(self, _command: object, _token: object) -> bool:
        position = self._recalls.bulk.begins_at
        return position is not None and not self._shard.is_applied(position)

    def _adoption(self, _command: object, _token: object) -> bool:
        return len(self._adoptions) > 0 or self._shard.uncommitted.adoptions > 0

    def _unfiled(
        self,
        command: Recall
        | Reschedule
        | RecallByKey
        | ChangeSchedule
        | PauseSchedule
        | RemoveSchedule,
        _token: object,
    ) -> bool:
        if isinstance(command, ChangeSchedule | PauseSchedule | RemoveSchedule):
            planned = self._shard.schedules.keys_planned(command.name)
            return any(self._shard.is_in_flight(key) for key in planned)
        if isinstance(command, RecallByKey):
            key = user_key_hash(command.topic, command.key)
            return self._sends.has_keyed() or self._shard.is_in_flight(key)
        key = key_hash(command.topic, command.message_id)
        return self._sends.has_key(key) or self._shard.is_in_flight(key)

    def _topic(self, command: DeleteTopic, _token: object) -> bool:
        return self._topics.is_under_way(command.name) or self._sends.has_topic(command.name)

    def _key_search(self, command: RecallByKey | FindMessages, token: object) -> bool:
        if isinstance(command, FindMessages) and command.message_id:
            return False
        return self._recalls.searches.found(token, command) is None
