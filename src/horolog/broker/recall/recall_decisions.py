"""Decide recalls, reschedules and look-ups by key, here and in the tier.

They wait until messages are filed that may concern them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from horolog.broker.applied import Settled
from horolog.broker.effects import Effects, Now
from horolog.broker.handlers import LATER, WAIT, Handler, Input
from horolog.broker.life.space import DiskPressure
from horolog.broker.recall.bulk_moves import check_move
from horolog.broker.recall.bulk_recalls import BulkRecalls
from horolog.broker.recall.endings import Endings
from horolog.broker.recall.histories import Histories
from horolog.broker.recall.key_searches import KeySearches
from horolog.broker.recall.recalls import cancelled, recall, recalls_with_key
from horolog.broker.recall.reschedules import reschedule
from horolog.broker.shard import Shard
from horolog.errors import HorologError
from horolog.protocol.commands import (
    FindMessages,
    Recall,
    RecallByKey,
    Recalled,
    RecallMany,
    Reschedule,
)
from horolog.protocol.history_commands import ShowMessage
from horolog.protocol.move_commands import DescribeBulk, MoveMany
from horolog.protocol.recall_commands import without_redundant_not_found
from horolog.protocol.tier_commands import LookElsewhere, RecallRows


class RecallDecisions:
    """The recall handlers of `broker.decisions`.

    records  collects control records for the turn's frame; `settled` has what these settle
    waits    tells whether a recall has to wait (`broker.waits`): a recall by key was checked only
             as a whole before its handler
    """

    def __init__(
        self,
        shard: Shard,
        disk: DiskPressure,
        records: list[bytes],
        waits: Callable[[Recall], bool],
    ) -> None:
        self._shard = shard
        self._disk = disk
        self._records = records
        self._waits = waits
        self.bulk = BulkRecalls(shard, disk)
        self.searches = KeySearches(shard)
        self.histories = Histories(shard)
        self.endings = Endings(shard)
        self.settled: list[Settled] = []  # by records of this turn

    def handlers(self) -> Mapping[type, Handler]:
        """Return the rows of the handler table for the commands of this class."""
        return {
            Recall: self._recall_one,
            RecallByKey: self._by_key,
            FindMessages: self._find,
            ShowMessage: self._show,
            RecallMany: self._begin_recall_many,
            MoveMany: self._begin_move_many,
            DescribeBulk: lambda _item, _command, _now, _: self.bulk.views(),
            Reschedule: self._reschedule,
            RecallRows: self._recall_rows,
        }

    def _recall_one(self, _: Input, command: Recall, now: Now, _effects: Effects) -> object:
        unseen = self._unseen(command)
        if unseen is not None:
            return LookElsewhere(unseen)
        rows = self._shard.tier.waiting_rows(self._topic_id(command), command)
        if len(rows):
            self._shard.append_step(self._shard.tier.recall_step(rows), now.wall_ms)
        here = self._recall(command)
        return cancelled(command) if len(rows) else here

    def _begin_recall_many(self, item: Input, command: RecallMany, _: Now, _e: Effects) -> object:
        unseen = self._unseen(command)
        if unseen is not None:
            return LookElsewhere(unseen)
        self.bulk.add(item.token, command)
        return LATER

    def _begin_move_many(self, item: Input, command: MoveMany, now: Now, _e: Effects) -> object:
        if not command.dry_run:
            self._disk.check(now.mono_ms, now.wall_ms, 0)
        check_move(self._shard, command, now.wall_ms)
        window = RecallMany(command.topic, command.from_ms, command.to_ms)
        unseen = self._unseen(window)
        if unseen is not None:
            raise unseen
        self.bulk.add(item.token, command)
        return LATER

    def _reschedule(self, _: Input, command: Reschedule, now: Now, _effects: Effects) -> object:
        self._disk.check(now.mono_ms, now.wall_ms, 0)
        unseen = self._unseen(command)
        if unseen is not None:
            return LookElsewhere(unseen)
        return reschedule(self._shard, command, now.wall_ms)

    def _find(self, item: Input, command: FindMessages, _: Now, _effects: Effects) -> object:
        self.searches.end(item.token)
        return self.endings.take(item.token)

    def is_searching_log(self, command: FindMessages | ShowMessage, token: object) -> bool:
        """Return whether the log is being searched for what became of the messages of a look-up."""
        if isinstance(command, ShowMessage):
            return self.histories.is_searching(token, command)
        adopted = [] if command.message_id else self.searches.found(token, command)
        assert adopted is not None, "it waits for that before"
        return self.endings.is_searching(token, command, adopted)

    def _show(self, item: Input, command: ShowMessage, _: Now, _effects: Effects) -> object:
        return self.histories.show(item.token, command) or WAIT

    def _by_key(self, item: Input, command: RecallByKey, _: Now, _effects: Effects) -> object:
        """Return what became of each message, or WAIT if one of the recalls has to wait."""
        adopted = self.searches.found(item.token, command)
        assert adopted is not None, "it waits for that"
        recalls = recalls_with_key(self._shard, command, adopted)
        if any(self._waits(each) for each in recalls):
            return WAIT
        self.searches.end(item.token)
        for each in recalls:
            unseen = self._unseen(each)
            if unseen is not None:
                return LookElsewhere(unseen, tuple((one.message_id, one.due_ms) for one in recalls))
        return without_redundant_not_found([self._recall(each) for each in recalls])

    def _recall(self, command: Recall) -> Recalled:
        result, record, settled = recall(self._shard, command)
        if record is not None and settled is not None:
            self._records.append(record)
            self.settled.append(settled)
        return result

    @property
    def wants_turn(self) -> bool:
        """Whether a search is not done."""
        parts = (self.searches, self.histories, self.endings)
        return any(part.wants_turn for part in parts)

    def do_searches(self) -> None:
        """Do one turn's worth of all searches."""
        self.searches.work()
        self.histories.work()
        self.endings.work()

    def forget(self, token: object) -> None:
        """Forget the searches of a command that is answered or refused."""
        self.searches.end(token)
        self.histories.end(token)
        self.endings.end(token)

    def do_bulk(self, now: Now, effects: Effects) -> None:
        """Do one turn's worth of the bulk recalls and moves that are under way."""
        records, settled, replies = self.bulk.work(now)
        self._records += records
        self.settled += settled
        effects.replies += replies

    def _unseen(self, command: Recall | Reschedule | RecallMany) -> HorologError | None:
        """Return why the tier has to be searched first; None if that is not needed."""
        return self._shard.tier.why_needs_search(self._topic_id(command), command)

    def _topic_id(self, command: Recall | Reschedule | RecallMany) -> int:
        return self._shard.topics.get(command.topic).id

    def _recall_rows(self, _: Input, command: RecallRows, now: Now, _effects: Effects) -> object:
        """Recall those of the rows that are still pending in the tier; return the mask of these."""
        shard = self._shard
        waits = shard.tier.waits(command.rows)
        if bool(waits.any()) and not command.dry_run:
            self._disk.check_ends(command.done)
            step = shard.tier.recall_step(command.rows[waits], done=command.done)
            shard.append_step(step, now.wall_ms)
        return waits
