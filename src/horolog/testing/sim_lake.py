"""The lake in a simulation: what `pipeline.offload` and `pipeline.promote` do around the core.

Offloads are begun, frozen, read, committed and aborted, hours are promoted early or late, and
messages in the lake are recalled, each step in a turn of its own. The table is in memory, outlives
the process, as a real one does, and is written before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from horolog.broker.adopt.staging import Begun
from horolog.delay.tier import Promotion
from horolog.errors import ErrorCode, HorologError
from horolog.lake.core.recalled_set import LAKE_ROW
from horolog.lake.core.stages import Stage
from horolog.limits import DAY_MS, HOUR_MS, LAKE_MARGIN_MS, OFFLOAD_MARGIN_MS
from horolog.protocol.adoption_commands import Adopted
from horolog.protocol.commands import Command, Recall, RecallMany, Reschedule
from horolog.protocol.tier_commands import (
    AbortOffload,
    BeginOffload,
    CommitOffload,
    DescribeOffload,
    DescribeTier,
    Elsewhere,
    FreezeOffload,
    ListRecalled,
    OffloadView,
    RecallRows,
    TierHour,
    TierRow,
    TierView,
)
from horolog.testing.sim_adoptions import Transaction
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import History, PromiseBroken
from horolog.testing.sim_clients import TOPICS
from horolog.testing.sim_lake_rows import LakeMessage, frozen_messages, stage

_APP = "sim"
_TURNS = 40  # for which a step is waited for
_TO_MS = 1 << 52
_STEP_ROWS = 64  # rows of a step of a bulk recall: simulated segments are small
_AHEAD_MS = (3 * HOUR_MS, 30 * HOUR_MS, 5 * DAY_MS, 500 * DAY_MS)


class LakeJobs:
    """The client that runs the offload and promotion jobs of one simulation."""

    def __init__(self, seed: int, broker: SimBroker, history: History) -> None:
        self._random = Random(seed)
        self.share = self._random.choice([0, 0.1, 0.4])  # share of the turns
        self._broker = broker
        self._history = history
        self._tables: dict[int, list[LakeMessage]] = {}  # rows of each offload
        self._transactions = 0

    def wants_turn(self) -> bool:
        """Return whether the jobs act in this turn."""
        return self._random.random() < self.share

    def turn(self, now_ms: int) -> tuple[Answer | None, str]:
        """Run one step; return a command to ask for, if any, and a description of the step."""
        view = self._ask(DescribeTier(now_ms + self._random.choice(_AHEAD_MS)))
        if not isinstance(view, TierView):
            return None, "no answer"
        if view.waiting and self._random.random() < 0.25:
            return self._change(now_ms)
        if view.hours and self._random.random() < 0.5:
            return None, self._promote(self._first(view.hours), now_ms)
        return None, self._offload(view, now_ms)

    def _ask(self, command: Command) -> Any:
        """Return the result or the refusal; None, an unknown outcome, if no answer came in time."""
        answer = Answer(command)
        self._broker.step([answer])
        for _ in range(_TURNS):
            if answer.done:
                break
            self._broker.step([])
        return answer.result

    # --- to the lake ------------------------------------------------------------------------------

    def _offload(self, view: TierView, now_ms: int) -> str:
        chance = self._random.random()
        mine = next((each for each in view.offloads if each.stage != Stage.LAKE.value), None)
        if mine is None:
            first = now_ms + OFFLOAD_MARGIN_MS + self._random.choice([0, 1, 40, 2_000]) * HOUR_MS
            return f"begin: {self._ask(BeginOffload(_APP, -(-first // HOUR_MS) * HOUR_MS))}"
        offload_id = mine.offload_id
        if mine.stage == Stage.SEALING.value:
            return f"freeze {offload_id}: {self._ask(FreezeOffload(offload_id))}"
        if mine.stage == Stage.BROKEN.value or chance < 0.1:
            return f"abort {offload_id}: {self._ask(AbortOffload(offload_id))}"
        sealed = self._ask(FreezeOffload(offload_id))  # as every job asks that resumes
        if not isinstance(sealed, OffloadView):
            return f"{offload_id} is frozen: {sealed}"
        if offload_id not in self._tables or chance < 0.3:
            self._tables[offload_id] = self._read(offload_id)
            return f"{len(self._tables[offload_id])} rows of {offload_id} are in the table"
        return self._commit(offload_id)

    def _commit(self, offload_id: int) -> str:
        table, now = self._tables[offload_id], self._read(offload_id)
        missing = set(table) - set(now)
        may_be_due_ms = self._history.latest_ms + LAKE_MARGIN_MS
        if set(now) - set(table) or any(each.due_ms > may_be_due_ms for each in missing):
            raise PromiseBroken(f"P2: what is frozen of offload {offload_id} has changed")
        done = self._ask(CommitOffload(offload_id, len(table), f"sim:{offload_id}"))
        if isinstance(done, HorologError) and done.field == "rows":
            if not missing:
                raise PromiseBroken(f"P2: offload {offload_id}: {done.message}")
        elif missing and isinstance(done, OffloadView):
            raise PromiseBroken(f"P2: offload {offload_id} took away more than is there")
        return f"commit {offload_id}: {done}"

    def _read(self, offload_id: int) -> list[LakeMessage]:
        view = self._ask(DescribeOffload(offload_id))
        if not isinstance(view, OffloadView):
            return self._tables.get(offload_id, [])
        return frozen_messages(self._broker.place, view)

    # --- and back ---------------------------------------------------------------------------------

    def _first(self, hours: Sequence[TierHour]) -> TierHour:
        """Return the first hour of one offload and topic, because hours are promoted in order."""
        one = self._random.choice(hours)
        return min(
            hour for hour in hours if (hour.offload_id, hour.topic) == (one.offload_id, one.topic)
        )

    def _note_origin(self, topic: str, message_id: str, origin: float | None) -> None:
        """Note the new origin of a message of the history; re-driven copies are left out."""
        sent = self._history.messages.get(message_id)
        if sent is not None and sent["topic"] == topic:
            sent["origin"] = origin

    def _promote(self, hour: TierHour, now_ms: int) -> str:
        text = f"promote hour {hour.hour} of offload {hour.offload_id}, topic {hour.topic_name}"
        gone = self._ask(ListRecalled(hour.offload_id, hour.hour))
        if not isinstance(gone, list):
            return f"{text}: {gone}"
        rows = self._waiting(hour, set(gone))
        if len(rows) != hour.waiting:
            return f"{text}: {len(rows)} rows, {hour.waiting} wait"  # some were recalled meanwhile; see also `finish`
        for row in rows:  # from here on the origin is unknown
            self._note_origin(hour.topic_name, row.message_id, None)
        try:
            done = self._adopt(hour, rows, now_ms)
        except HorologError as error:
            if error.code is ErrorCode.DISK_FAILED:
                raise
            return f"{text}: {error.message}"
        if isinstance(done, Adopted) and not done.already:
            for place, row in enumerate(rows):
                self._note_origin(hour.topic_name, row.message_id, done.position + place * 1e-6)
        return f"{text}: {done}"

    def _waiting(self, hour: TierHour, gone: set[tuple[int, int]]) -> list[LakeMessage]:
        return [
            each
            for each in self._tables[hour.offload_id]
            if (each.due_ms // HOUR_MS, each.topic) == (hour.hour, hour.topic)
            and each.origin not in gone
        ]

    def _adopt(self, hour: TierHour, rows: list[LakeMessage], now_ms: int) -> object:
        place = self._broker.place
        topic = self._broker.shard.topics.get(hour.topic_name)
        self._transactions += 1
        token = f"{self._random.randrange(1 << 32):08x}{self._transactions:08x}"
        app = Promotion(hour.offload_id, hour.hour, hour.topic).app
        begun = Begun(token, app, hour.hour, hour.topic_name, now_ms)
        made = Transaction(place, begun, topic.id, len(topic.queues))
        made.begin()
        cut = self._random.choice([0, len(rows) // 2])
        for index, part in enumerate([rows[:cut], rows[cut:]]):
            if part:
                made.claims.append(stage(made, f"part-{index}", part))
        done = self._ask(made.prepare(now_ms, inline=self._random.random() < 0.4 and made.is_small))
        if isinstance(done, Adopted) and not done.already:
            made.end()
        elif done is not None:
            made.undo()
        return done

    # --- recalls, and the end ---------------------------------------------------------------------

    def _change(self, now_ms: int) -> tuple[Answer | None, str]:
        view = self._ask(DescribeTier(_TO_MS))
        messages = [row for rows in self._tables.values() for row in rows if self._is_first(row)]
        if not isinstance(view, TierView) or not messages:
            return None, "nothing to recall"
        if self._random.random() < 0.35:
            return self._recall_window(view, now_ms)
        one = self._random.choice(messages)
        message_id, due_ms = one.message_id, one.due_ms
        there = [h for h in view.hours if (h.hour, h.topic) == (due_ms // HOUR_MS, one.topic)]
        offload_ids = tuple(hour.offload_id for hour in there)
        named = [
            (TierRow(offload_id, row.position, row.row, due_ms), row.record)
            for offload_id in offload_ids
            for row in self._tables[offload_id]
            if (row.message_id, row.due_ms) == (message_id, due_ms)
        ]
        rows = tuple(row for row, _ in named)
        topic = self._broker.shard.topics.by_id[one.topic].name
        command: Recall | Reschedule
        if self._random.random() < 0.5:
            command = Recall(topic, message_id, due_ms, elsewhere=Elsewhere(rows, offload_ids))
        else:
            new = now_ms + self._random.choice([-1_000, 0, 2_000, HOUR_MS, *_AHEAD_MS])
            while new in self._history.messages[message_id]["dues"]:
                new += 1
            self._history.reschedule_asked(message_id, new)
            found = Elsewhere(rows, offload_ids, tuple(record for _, record in named))
            command = Reschedule(topic, message_id, due_ms, new, elsewhere=found)
        answer = Answer(command)
        answer.notes["ids"] = {message_id}
        answer.notes["seen"] = message_id in self._history.places
        return answer, f"{type(command).__name__} {message_id} of {topic}, {len(rows)} rows there"

    def _is_first(self, row: LakeMessage) -> bool:
        """Return whether a row is the message that was sent, not a re-driven copy that may wait."""
        sent = self._history.messages.get(row.message_id)
        topic = self._broker.shard.topics.by_id.get(row.topic)
        return sent is not None and topic is not None and sent["topic"] == topic.name

    def _recall_window(self, view: TierView, now_ms: int) -> tuple[Answer | None, str]:
        """Recall as `lake.serve.reader` does: in the lake, row by row, then in the shard."""
        start = now_ms + self._random.choice([0, *_AHEAD_MS])
        dry_run = self._random.random() < 0.3
        one = self._random.choice(sorted(self._tables))
        topics = self._broker.shard.topics
        # Other clients check their own topics, and would miss messages that are recalled there.
        ours = {topics.by_name[name].id for name in TOPICS if name in topics.by_name}
        there_are = [row.topic for row in self._tables[one] if row.topic in ours]
        topic = topics.by_id[self._random.choice(there_are or [1])]
        window = RecallMany(topic.name, start, start + self._random.choice(_AHEAD_MS), "", dry_run)
        there = [
            hour
            for hour in view.hours
            if hour.topic == topic.id
            and window.from_ms < (hour.hour + 1) * HOUR_MS
            and hour.hour * HOUR_MS < window.to_ms
        ]
        looked = tuple(sorted({hour.offload_id for hour in there}))
        window = replace(window, looked=looked)
        certain = self._history.certain(window)
        self._history.bulk_lost(window)
        for offload_id in looked:
            rows = [
                (offload_id, row.position, row.row, row.topic, row.due_ms)
                for row in self._tables[offload_id]
                if row.topic == topic.id and window.from_ms <= row.due_ms < window.to_ms
            ]
            for first in range(0, len(rows), _STEP_ROWS):
                step = np.array(rows[first : first + _STEP_ROWS], LAKE_ROW)
                meant = self._ask(RecallRows(step, dry_run))
                if not isinstance(meant, np.ndarray):
                    return None, f"recall many in the lake: {meant}"
        answer = Answer(window)
        answer.notes["ids"] = set(self._history.messages)
        answer.notes["certain"] = certain
        return answer, f"recall many, {len(certain)} at least, dry run {dry_run}"

    def finish(self, now_ms: int) -> None:
        """After the last start, abort open offloads and promote all rows; none may be missing."""
        self._broker.settle(2_000)
        while (view := self._broker.ask(DescribeTier(_TO_MS))).hours:
            hour = view.hours[0]
            result = self._promote(hour, now_ms)
            self._broker.settle(2_000)
            left = self._broker.ask(DescribeTier(_TO_MS))
            if left.waiting >= view.waiting:
                raise PromiseBroken(f"P2: {result}")
        for offload in view.offloads:
            if offload.stage != Stage.LAKE.value:
                self._broker.ask(AbortOffload(offload.offload_id))
