"""Map each kind of command to the handler that decides it.

Before a handler is called, `broker.waits` says whether its command has to wait; such a command is
deferred to a later turn.  A handler returns one of three: the result, which waits for the commit
position; `LATER`, if the command was answered at once (`Effects.prompt`) or is answered at the end
of the turn; or `WAIT`, if the handler itself finds that the command has to wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from horolog.broker import queries
from horolog.broker.adopt import adoptions
from horolog.broker.adopt.adoptions import Adoptions
from horolog.broker.consume.lease_changes import LeaseChanges
from horolog.broker.consume.offsets import Offsets
from horolog.broker.consume.pulls import Pulls
from horolog.broker.consume.queue_times import earliest_store_time, read_message, search_offset
from horolog.broker.consume.receives import Receives
from horolog.broker.consume.waiting import Waiting
from horolog.broker.effects import Effects, Now, Reply
from horolog.broker.groups import Groups
from horolog.broker.handlers import LATER, WAIT, Handler, Input
from horolog.broker.late_messages import LateMessages
from horolog.broker.life.checkpoints import Checkpoints
from horolog.broker.life.space import DiskPressure
from horolog.broker.pages import Pages
from horolog.broker.pending_lists import PendingLists
from horolog.broker.recall.recall_decisions import RecallDecisions
from horolog.broker.schedule.schedule_changes import ScheduleChanges
from horolog.broker.send.dead_letters import DeadLetters
from horolog.broker.send.send_backs import SendBacks
from horolog.broker.send.sends import Sends
from horolog.broker.shard import Shard
from horolog.broker.topic_changes import TopicChanges
from horolog.broker.transactions.transactions import Transactions
from horolog.broker.under_way import ShardUnderWay
from horolog.broker.waits import SIGNALLED, WAITS, Wait, waits_for
from horolog.errors import HorologError
from horolog.limits import TURN_SEARCHES_MAX
from horolog.protocol.adoption_commands import Adopt, BeginAdoption
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    ChangeInvisible,
    ChangeTopic,
    ClientGone,
    ClientSeen,
    Command,
    CreateTopic,
    DeleteTopic,
    DescribeBroker,
    DescribeGroup,
    Receive,
    SendMessages,
    Sent,
)
from horolog.protocol.dead_letter_commands import CountDeadLetters, ListDeadLetters, Redrive
from horolog.protocol.queue_commands import (
    CommitOffsets,
    DeleteGroup,
    EarliestStoreTime,
    FindGroup,
    GetOffsets,
    Pull,
    PutGroup,
    ReadMessage,
    SearchOffset,
)
from horolog.protocol.retry_commands import ForwardToDeadLetters, SendBack, SendRetry
from horolog.protocol.tier_commands import (
    TellTierProblem,
    TierQuestion,
    TierStep,
)


class Decisions:
    """Decides the commands of a turn in order, with the parts of the shard."""

    def __init__(
        self, shard: Shard, disk: DiskPressure, checkpoints: Checkpoints, mono_ms: int
    ) -> None:
        self._shard = shard
        self._disk = disk
        self._records: list[bytes] = []
        self.topics = TopicChanges(shard, self._records)
        self.groups = Groups(shard, self._records)
        self.sends = Sends(shard, mono_ms)
        self.send_backs = SendBacks(shard, self.groups, self.topics, self.sends, disk)
        self.late = LateMessages(shard, self.topics, self._records)
        self.dead_letters = DeadLetters(shard, self.groups, disk)
        self.receives = Receives(shard, self.groups, self.send_backs, self._records)
        renewals = self.receives.renewals
        self.lease_changes = LeaseChanges(shard, self.send_backs, renewals, self._records)
        self.pulls = Pulls(shard, self.groups)
        self.offsets = Offsets(shard, self.groups, renewals, self.send_backs, self._records)
        self.transactions = Transactions(shard, disk, self.topics, self._records)
        self.waiting = Waiting(shard, self.receives, self.pulls)
        self.adoptions = Adoptions(shard)
        self._deferred: list[Input] = []  # commands that have to wait
        self._searches_left = 0  # of queues, in this turn
        self._are_signalled = True  # every deferred command waits for an event that brings a turn
        self.recalls = RecallDecisions(shard, disk, self._records, self.waits)
        self.schedules = ScheduleChanges(shard, disk)
        self.lists = PendingLists(shard)
        self._pages = Pages(shard, self.groups)
        self._under_way = ShardUnderWay(
            shard, self.topics, self.sends, self.adoptions, self.recalls, self.lists, checkpoints
        )
        self._handlers = self._table()
        assert self._handlers.keys() == set(get_args(Command)), "a command without a handler"

    def _table(self) -> Mapping[type, Handler]:
        return {
            **dict.fromkeys(get_args(queries.Query), self._query),
            SendMessages: self._send,
            SendBack: self._send_back,
            SendRetry: self._send_back,
            ForwardToDeadLetters: self._forward,
            CountDeadLetters: lambda _item, command, _now, _: self.dead_letters.count(command),
            ListDeadLetters: lambda _item, command, _now, _: self.dead_letters.page(command),
            Redrive: self._redrive,
            Receive: self._receive,
            Pull: self._pull,
            Ack: self._ack,
            ChangeInvisible: self._change,
            CommitOffsets: lambda _item, command, _now, _: self.offsets.commit(command),
            GetOffsets: lambda _item, command, _now, _: self.offsets.get(command),
            SearchOffset: self._search,
            EarliestStoreTime: lambda _item, command, _now, _: earliest_store_time(
                self._shard, command
            ),
            ReadMessage: lambda _item, command, _now, _: read_message(self._shard, command),
            PutGroup: self._put_group,
            FindGroup: lambda _item, command, _now, _: self.groups.find(command),
            DescribeGroup: lambda _item, command, now, _: queries.describe_group(
                self._shard, command, now.mono_ms
            ),
            DeleteGroup: self._delete_group,
            CancelReceive: self._cancel,
            ClientSeen: lambda _item, command, now, _: self.receives.renewals.note_seen(
                command.client_id, now
            ),
            ClientGone: self._client_gone,
            CreateTopic: self._make_topic,
            ChangeTopic: self._make_topic,
            DeleteTopic: self._delete_topic,
            BeginAdoption: self._begin_adoption,
            Adopt: self._adopt,
            DescribeBroker: self._describe,
            **dict.fromkeys(get_args(TierStep | TierQuestion), self._ask_tier),
            TellTierProblem: self._note_problem,
            **self.recalls.handlers(),
            **self.lists.handlers(),
            **self._pages.handlers(),
            **self.transactions.handlers(),
            **self.schedules.handlers(),
        }

    def decide(self, inputs: Sequence[Input], now: Now, effects: Effects) -> None:
        """Decide the deferred commands, then `inputs`; a refusal is a reply like any other."""
        self.pulls.begin_turn()
        self._pages.begin_turn()
        self._searches_left = TURN_SEARCHES_MAX
        deferred = self._deferred.copy()
        self._deferred.clear()
        self._are_signalled = True
        handlers = self._handlers
        for item in (*deferred, *inputs):
            kind = type(item.command)
            handler = handlers[kind]
            try:
                wait = self._waits_for(item) if kind in WAITS else None
                if wait is not None:
                    result = WAIT
                else:
                    result = handler(item, item.command, now, effects)
            except HorologError as error:
                if error.fatal:
                    raise
                self.recalls.forget(item.token)
                result = error.without_traceback()
            if result is WAIT:
                self._deferred.append(item)
                self._are_signalled = self._are_signalled and wait in SIGNALLED
            elif result is not LATER:
                effects.replies.append(Reply(item.token, result))
        self.offsets.seal()

    def waits(self, command: object) -> bool:
        """Return whether the command has to wait for something that is not over."""
        return waits_for(command, self._under_way) is not None

    def _waits_for(self, item: Input) -> Wait | None:
        """Return what an input has to wait for; raise HorologError if it is refused at once."""
        if isinstance(item.command, DeleteTopic):
            self.offsets.seal()
            self.topics.check_may_delete(item.command)
        return waits_for(item.command, self._under_way, item.token)

    def take_records(self) -> list[bytes]:
        """Return the control records of this turn, and start an empty list."""
        taken = self._records.copy()
        self._records.clear()
        return taken

    def check_invariants(self) -> None:
        """Raise AssertionError if something was decided but will not be appended."""
        self.receives.renewals.check_invariants()
        self.offsets.check_invariants()
        self.transactions.check_invariants()
        assert not self.recalls.settled, "decided, and not appended"
        assert not len(self.adoptions), "an adoption was taken up, and not appended"

    @property
    def has_deferred(self) -> bool:
        """Whether commands are deferred."""
        return bool(self._deferred)

    @property
    def wants_turn(self) -> bool:
        """Whether a deferred command may be decided in a turn that nothing else would bring."""
        log = self._shard.log
        return bool(self._deferred) and not self._are_signalled and log.commit_position == log.end

    # --- sends and consumers --------------------------------------------------------------------

    def _send(self, item: Input, command: SendMessages, now: Now, _: Effects) -> object:
        self._disk.check(now.mono_ms, now.wall_ms, command.size_bytes)
        self.sends.add(item.token, command)
        return LATER

    def _send_back(
        self, item: Input, command: SendBack | SendRetry, now: Now, _: Effects
    ) -> object:
        return LATER if self.send_backs.add(item.token, command, now) else Sent([], [], [])

    def _forward(self, item: Input, command: ForwardToDeadLetters, now: Now, _: Effects) -> object:
        self.offsets.seal()
        return LATER if self.lease_changes.give_up(item.token, command, now) else Sent([], [], [])

    def _redrive(self, item: Input, command: Redrive, now: Now, _: Effects) -> object:
        """Queue a re-drive of dead letters, which is appended and answered later in the turn."""
        self.dead_letters.add(item.token, command, now)
        return LATER

    def _receive(self, item: Input, command: Receive, now: Now, effects: Effects) -> object:
        reply = self.receives.receive(item.token, command, now, self.offsets)
        if reply is not None:
            effects.answer_poll(reply)
        return LATER

    def _ack(self, _: Input, command: Ack, now: Now, _effects: Effects) -> object:
        self.offsets.seal()
        return self.lease_changes.ack(command, now)

    def _change(self, _: Input, command: ChangeInvisible, now: Now, _effects: Effects) -> object:
        self.offsets.seal()
        return self.lease_changes.change(command, now)

    def _put_group(self, _: Input, command: PutGroup, _now: Now, effects: Effects) -> object:
        view, ended = self.groups.put(command)
        effects.prompt += ended
        return view

    def _delete_group(self, _: Input, command: DeleteGroup, _now: Now, effects: Effects) -> None:
        self.offsets.seal()
        gone = self.groups.existing_id(command.name)
        self.receives.renewals.release_group(gone)
        self.send_backs.take_buried(lambda group, _: group == gone)  # its progress is gone
        effects.prompt += self.groups.delete(command)

    def _pull(self, item: Input, command: Pull, now: Now, effects: Effects) -> object:
        if not self.pulls.may_read:
            return WAIT
        reply = self.pulls.pull(item.token, command, now)
        if reply is not None:
            effects.prompt.append(reply)
        return LATER

    def _search(self, _: Input, command: SearchOffset, _now: Now, _effects: Effects) -> object:
        if not self._searches_left:
            return WAIT
        self._searches_left -= 1
        return search_offset(self._shard, command)

    def _cancel(self, _: Input, command: CancelReceive, _now: Now, effects: Effects) -> None:
        reply = self.waiting.cancel(command.token, answer=command.answer)
        if reply is not None:
            effects.prompt.append(reply)

    def _client_gone(self, _: Input, command: ClientGone, now: Now, effects: Effects) -> None:
        self.offsets.seal()
        self.receives.renewals.release_client(command.client_id, now)
        effects.prompt += self.waiting.end_client(command.client_id)

    # --- topics and the shard -------------------------------------------------------------------

    def _make_topic(
        self, _: Input, command: CreateTopic | ChangeTopic, now: Now, effects: Effects
    ) -> object:
        self._disk.check(now.mono_ms, now.wall_ms, 0)
        view, ended = self.topics.make(command)
        effects.prompt += ended
        return view

    def _delete_topic(self, _: Input, command: DeleteTopic, _now: Now, effects: Effects) -> None:
        gone = self._shard.topics.get(command.name).id
        effects.prompt += self.topics.delete(command, self.receives.renewals)
        self.send_backs.take_buried(lambda _, place: place.topic == gone)  # consumed by nobody

    def _query(self, _: Input, query: queries.Query, _now: Now, _effects: Effects) -> object:
        return queries.answer(self._shard, query)

    def _describe(self, _: Input, command: DescribeBroker, now: Now, _effects: Effects) -> object:
        self._disk.refresh(now.mono_ms, now.wall_ms)
        return queries.answer(self._shard, command)

    # --- adoptions ------------------------------------------------------------------------------

    def _begin_adoption(self, _: Input, command: BeginAdoption, now: Now, _e: Effects) -> object:
        self._disk.check(now.mono_ms, now.wall_ms, adoptions.space_for(command))
        return adoptions.begin(self._shard, command, now.wall_ms)

    def _adopt(self, item: Input, command: Adopt, now: Now, _: Effects) -> object:
        """Queue an adoption, which is appended and answered later in the turn."""
        self._disk.check(now.mono_ms, now.wall_ms, adoptions.space_for(command))
        self.adoptions.add(item.token, command)
        return LATER

    # --- the tier -------------------------------------------------------------------------------

    def _ask_tier(
        self, _: Input, command: TierStep | TierQuestion, now: Now, _effects: Effects
    ) -> object:
        return self._shard.tier.decide(self._shard, command, now.wall_ms)

    def _note_problem(self, _: Input, command: TellTierProblem, _now: Now, _e: Effects) -> None:
        self._shard.tier.problem = command.why
