"""Recalls, reschedules and look-ups by key, here and in the lake: what waits for what is appended and not filed yet."""

from __future__ import annotations

from collections.abc import Mapping

from horolog.broker import lake_recalls, queries
from horolog.broker.adopt.adoptions import Adoptions
from horolog.broker.deciding import LATER, Handler, Input
from horolog.broker.effects import Effects, Now
from horolog.broker.life.space import DiskPressure
from horolog.broker.recall.bulk_recalls import BulkRecalls
from horolog.broker.recall.key_searches import KeySearches
from horolog.broker.recall.look_ups import find_messages
from horolog.broker.recall.recalls import recall, with_key, worth_telling
from horolog.broker.recall.reschedules import reschedule
from horolog.broker.send.sends import Sends
from horolog.broker.shard import Settled, Shard
from horolog.protocol.commands import (
    FindMessages,
    Recall,
    RecallByKey,
    Recalled,
    RecallMany,
    Reschedule,
)
from horolog.protocol.offload_commands import (
    RecallFromLake,
    RecallManyFromLake,
    RescheduleFromLake,
)
from horolog.protocol.rocketmq.message import key_hash, user_key_hash


class RecallDecisions:
    """Decides them for `broker.decisions`.

    records   collects control records for the turn's frame; `settled` says what they settle
    deferred  takes what must wait for a later turn
    """

    def __init__(
        self,
        shard: Shard,
        disk: DiskPressure,
        sends: Sends,
        adoptions: Adoptions,
        records: list[bytes],
        deferred: list[Input],
    ) -> None:
        self._shard = shard
        self._disk = disk
        self._sends = sends
        self._adoptions = adoptions
        self._records = records
        self._deferred = deferred
        self.bulk = BulkRecalls(shard)
        self.searches = KeySearches(shard)
        self.settled: list[Settled] = []  # by records of this turn

    def handlers(self) -> Mapping[type, Handler]:
        """Its part of the table."""
        return {
            Recall: self._recall_one,
            RecallByKey: self._by_key,
            FindMessages: self._find,
            RecallMany: self._begin_recall_many,
            Reschedule: self._reschedule,
            RecallFromLake: self._recall_from_lake,
            RescheduleFromLake: self._reschedule_from_lake,
            RecallManyFromLake: self._recall_many_from_lake,
        }

    def _recall_one(self, item: Input, command: Recall, _: Now, _effects: Effects) -> object:
        if self._defers(item, command):
            return LATER
        lake_recalls.check_recalls(self._shard, [command])
        return self._recall(command)

    def _begin_recall_many(self, item: Input, command: RecallMany, _: Now, _e: Effects) -> object:
        lake_recalls.check_recall_many(self._shard, command)
        self.bulk.add(item.token, command)
        return LATER

    def _reschedule(self, item: Input, command: Reschedule, now: Now, _: Effects) -> object:
        self._disk.check(now.mono_ms, now.wall_ms, 0)
        if self._defers(item, command):
            return LATER
        lake_recalls.check_recalls(self._shard, [command])
        return reschedule(self._shard, command, now.wall_ms)

    def _find(self, item: Input, command: FindMessages, _: Now, _effects: Effects) -> object:
        if command.message_id:
            return queries.answer(self._shard, command)
        adopted = self.searches.found(item.token, command)
        if adopted is None:
            self._deferred.append(item)
            return LATER
        self.searches.end(item.token)
        return find_messages(self._shard, command, adopted)

    def _by_key(self, item: Input, command: RecallByKey, _: Now, _effects: Effects) -> object:
        """What became of each message, unless that has to wait."""
        adopted = self.searches.found(item.token, command)
        if adopted is None:
            self._deferred.append(item)
            return LATER
        recalls = with_key(self._shard, command, adopted)
        if self._defers(item, command, *recalls):
            return LATER
        self.searches.end(item.token)
        lake_recalls.check_recalls(self._shard, recalls)
        return worth_telling([self._recall(each) for each in recalls])

    def _defers(self, item: Input, *commands: Recall | RecallByKey | Reschedule) -> bool:
        """Whether it must wait, because what it is about is appended but not filed yet."""
        if self._shard.delay.far.lake.in_flight:
            self._deferred.append(item)
            return True
        for each in commands:
            if isinstance(each, RecallByKey):
                key = user_key_hash(each.topic, each.key)
                is_new = self._sends.has_keyed()
            else:
                key = key_hash(each.topic, each.message_id)
                is_new = self._sends.has_key(key)
            if is_new or len(self._adoptions) or self._shard.is_in_flight(key):
                self._deferred.append(item)
                return True
        return False

    def _recall(self, command: Recall) -> Recalled:
        result, record, settled = recall(self._shard, command)
        if record is not None and settled is not None:
            self._records.append(record)
            self.settled.append(settled)
        return result

    def recall_many(self, effects: Effects) -> None:
        """A turn's worth of the bulk recalls that are under way."""
        records, settled, replies = self.bulk.work()
        self._records += records
        self.settled += settled
        effects.replies += replies

    def _recall_from_lake(
        self, item: Input, command: RecallFromLake, now: Now, _: Effects
    ) -> object:
        meant = Recall(command.topic, command.message_id, command.due_ms)
        if self._defers(item, meant):
            return LATER
        there = lake_recalls.recall(self._shard, command, now.wall_ms)
        here = self._recall(meant)
        return there or here

    def _reschedule_from_lake(
        self, item: Input, command: RescheduleFromLake, now: Now, _: Effects
    ) -> object:
        if self._defers(item, Recall(command.topic, command.message_id, command.due_ms)):
            return LATER
        self._disk.check(now.mono_ms, now.wall_ms, 0)
        return lake_recalls.move(self._shard, command, now.wall_ms)

    def _recall_many_from_lake(
        self, item: Input, command: RecallManyFromLake, now: Now, _: Effects
    ) -> object:
        if self._shard.delay.far.lake.in_flight:
            self._deferred.append(item)
            return LATER
        return lake_recalls.recall_rows(self._shard, command, now.wall_ms)
