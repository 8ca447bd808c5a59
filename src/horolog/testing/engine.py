"""An engine whose answers a test scripts, and which records the commands it was given."""

from __future__ import annotations

import asyncio
from typing import Any

from horolog.backup.status import BackupState, BackupView
from horolog.clock import Clock, SimulatedClock, SystemClock
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    Ack,
    Acked,
    BrokerView,
    CancelReceive,
    ChangeTopic,
    CountPending,
    CreateTopic,
    DeleteTopic,
    Delivered,
    DescribeBroker,
    DescribeGroup,
    DescribeTopic,
    FindMessages,
    FoundMessage,
    GroupQueueView,
    ListTopics,
    MessageState,
    PendingCounts,
    PendingMessage,
    QueueRead,
    ReadQueue,
    Recall,
    RecallByKey,
    Recalled,
    RecalledMany,
    RecallMany,
    RecallStatus,
    Receive,
    Received,
    Reschedule,
    Rescheduled,
    RescheduleStatus,
    SendMessages,
    Sent,
    TopicType,
    TopicView,
)
from horolog.protocol.history_commands import FindTopics, PagePending, PendingPage, TopicsKnown
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES, encode

NOW_MS = 1_772_964_000_000  # 2026-03-08T10:00:00Z
LAYOUT = encode(
    topic="reminders",
    body=b"stand up",
    message_id="01AB",
    due_ms=NOW_MS + 90_000,
    tag="desk",
    keys=["k1", "k2"],
    user_properties={"colour": "red"},
).record[RECORD_HEAD_BYTES:]
PARKED = object()  # the answer of a command that is never answered


class ScriptedBackups:
    """Backups that accept any directory; a backup runs until a test sets `now`."""

    def __init__(self) -> None:
        self.now = BackupView()

    async def begin(self, directory: str, *, full: bool = False) -> BackupView:
        """Record that a backup has begun."""
        self.now = BackupView(BackupState.RUNNING, directory, number=2 if full else 1)
        return self.now

    def view(self) -> BackupView:
        """Return the view that was set."""
        return self.now


class ScriptedLog:
    """A log whose write under way takes as long as the test says."""

    under_way_s = 0.0


class ScriptedEngine:
    """An engine with scripted answers.

    Put results, HorologErrors, or PARKED into `answers`; read the commands it was given from
    `asked`.
    """

    def __init__(self, *, simulated: bool = True) -> None:
        self.clock: Clock = SimulatedClock(NOW_MS) if simulated else SystemClock()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.backups: ScriptedBackups | None = ScriptedBackups()
        self.log = ScriptedLog()
        self.offloads = None
        self.adoptions = None
        self.asked: list[Any] = []
        self.stopped = False
        topic = TopicView("reminders", TopicType.DELAY, 2, [3, 4], 5)
        self.answers: dict[type, Any] = {
            SendMessages: Sent([96], [1], [-1]),
            Recall: Recalled(RecallStatus.CANCELLED, "CANCELLED 01AB", "01AB"),
            RecallByKey: [
                Recalled(RecallStatus.CANCELLED, "CANCELLED 01AB", "01AB", NOW_MS + 90_000)
            ],
            RecallMany: RecalledMany(5, 5, 1_500),
            FindMessages: [
                FoundMessage(
                    MessageState.PENDING,
                    "reminders",
                    "01AB",
                    ["k1", "k2"],
                    NOW_MS + 90_000,
                    96,
                    1,
                    -1,
                    NOW_MS,
                    LAYOUT,
                )
            ],
            FindTopics: TopicsKnown(["reminders"], None),
            Reschedule: Rescheduled(
                RescheduleStatus.RESCHEDULED, "RESCHEDULED 01AB", "01AB", NOW_MS, 960, 1, -1, 1
            ),
            Receive: Received([Delivered(LAYOUT, 1, 7, 1, "handle-1")]),
            CancelReceive: None,
            Ack: Acked([None]),
            CreateTopic: topic,
            ChangeTopic: topic,
            DeleteTopic: None,
            DescribeTopic: topic,
            ListTopics: [topic],
            DescribeGroup: [GroupQueueView(0, 2, 4, 3, 1, 6)],
            CountPending: PendingCounts(5, [(NOW_MS, 2), (NOW_MS + 3_600_000, 3)]),
            PagePending: PendingPage(
                [
                    PendingMessage(
                        NOW_MS + 90_000, "reminders", "01AB", 96, len(LAYOUT) + 32, LAYOUT
                    )
                ],
                None,
            ),
            ReadQueue: QueueRead([bytes(RECORD_HEAD_BYTES) + LAYOUT], 1, 0, 1),
            DescribeBroker: BrokerView(3, 900, 900, 900, 500, 5, 7, 1, 1, 1, 0, 2),
        }

    def submit(self, command: Any) -> asyncio.Future[Any]:
        """Record a command, and answer it as scripted."""
        self.asked.append(command)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        result = self.answers[type(command)]
        if isinstance(result, Exception):
            future.set_exception(result)
        elif result is not PARKED:
            future.set_result(result)
        return future

    async def advance(self, by_ms: int) -> None:
        """Advance the simulated clock."""
        assert isinstance(self.clock, SimulatedClock)
        self.clock.advance(by_ms)

    async def stop(self) -> None:
        """Record that the engine was stopped, for the test to check."""
        self.stopped = True

    def fail(self) -> None:
        """Fail as an engine does when the disk of the log has failed."""
        self.failed.set_exception(HorologError(ErrorCode.DISK_FAILED, "log: write failed"))
        self.failed.exception()
