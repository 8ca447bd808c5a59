"""Makes tests/golden/data_v2.zip, with data_v2.json beside it: the formats of the first horolog with a far store.

Never to be run again: the files stay as they are for ever, and `test_golden.py` opens them with every later horolog.
A later change of a format gets a maker and files of its own (docs/reference/formats.md, "Changing a format").

The data directory has something of everything that came after format 1: a log that begins above 0, checkpoints of
version 2, consume queues that have dropped their beginning, chunks of the key index (sealed and open), near hours
whose entries wait, were handed over, recalled and moved, runs of days and months beside runs that are not merged,
with states and with a cursor in the middle, a far buffer with settled rows; and in the log hand-overs, RECALL,
*moved* RECALL and RECALL_MANY, below the last checkpoint and after it.

`data_v2.json` says what must be found in it.  It is written from what was asked of the broker, not from its files.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from random import Random
from typing import Any

from horolog.clock import SimulatedClock
from horolog.delay.far.compaction import FarSettings
from horolog.limits import DAY_MS, HOUR_MS, MINUTE_MS
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    MessageType,
    Recall,
    RecallMany,
    Receive,
    Reschedule,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.storage.api import read_file, replace_file
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_broker import SimBroker

START_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
SEGMENT_BYTES = 16_384
FAR = FarSettings(buffer_bytes=6_000, runs_max=2, part_runs_max=2)


class Maker:
    """A broker, and a book of what was asked of it."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(2)
        self.clock = SimulatedClock(START_MS)
        self.broker = SimBroker(Random(2), self.disk, self.clock, "sync", SEGMENT_BYTES)
        self.broker.settings = self.broker.settings._replace(
            turn_bytes=4_096, far=FAR, retention_ms=HOUR_MS
        )
        self.waiting: dict[str, tuple[str, int, str]] = {}  # id → topic, due ms, tag
        self.visible: dict[str, str] = {}  # id → topic
        self.recalled: list[str] = []
        self.moved: dict[str, int] = {}  # id → the due time that it had
        self.handed_over = 0

    def send(self, topic: str, prefix: str, delays_ms: list[int], *, size: int = 60) -> None:
        """Messages `<prefix>-0`, `<prefix>-1` …; a delay of 0 is none.  Every second one has TagB."""
        now = self.clock.wall_ms()
        made = []
        for i, delay in enumerate(delays_ms):
            tag = "TagB" if i % 2 else "TagA"
            made.append(
                encode(
                    topic=topic,
                    body=f"body of {prefix}-{i} ".encode() + bytes(size),
                    message_id=f"{prefix}-{i}",
                    type=MessageType.DELAY if delay else MessageType.NORMAL,
                    due_ms=now + delay if delay else 0,
                    tag=tag,
                    keys=[f"key-{prefix}", f"{i % 3}"],
                    user_properties={"n": str(i)},
                    born_ms=now,
                )
            )
            if delay:
                self.waiting[f"{prefix}-{i}"] = (topic, now + delay, tag)
            else:
                self.visible[f"{prefix}-{i}"] = topic
        for first in range(0, len(made), 20):
            sent = self.broker.ask(SendMessages(topic, made[first : first + 20]))
            assert not sent.refused, sent.refused

    def recall(self, message_id: str) -> None:
        """Cancel one that waits."""
        topic, due_ms, _ = self.waiting.pop(message_id)
        assert self.broker.ask(Recall(topic, message_id, due_ms)).status == "CANCELLED"
        self.recalled.append(message_id)

    def move(self, message_id: str, delay_ms: int) -> None:
        """Reschedule one that waits."""
        topic, due_ms, tag = self.waiting.pop(message_id)
        new_ms = self.clock.wall_ms() + delay_ms
        moved = self.broker.ask(Reschedule(topic, message_id, due_ms, new_ms))
        assert moved.status == "RESCHEDULED"
        self.moved[message_id] = due_ms
        self.waiting[message_id] = (topic, new_ms, tag)

    def recall_many(self, topic: str, from_ms: int, to_ms: int, tag: str = "") -> None:
        """Cancel a window."""
        meant = [
            message_id
            for message_id, (of_topic, due_ms, of_tag) in self.waiting.items()
            if of_topic == topic and from_ms <= due_ms < to_ms and (not tag or tag == of_tag)
        ]
        done = self.broker.ask(RecallMany(topic, from_ms, to_ms, tag))
        assert done.cancelled == len(meant) > 0, (done, meant)
        for message_id in meant:
            del self.waiting[message_id]
        self.recalled += meant

    def pass_time(self, by_ms: int) -> None:
        """Everything due meanwhile becomes visible."""
        self.clock.advance(by_ms)
        self.broker.settle()
        for message_id, (topic, due_ms, _) in list(self.waiting.items()):
            if due_ms <= self.clock.wall_ms():
                del self.waiting[message_id]
                self.visible[message_id] = topic
                self.handed_over += 1

    def checkpoint(self) -> None:
        """Take one."""
        self.broker.request_checkpoint()
        self.broker.settle()

    def expected(self) -> dict[str, Any]:
        """What must be found."""
        rows = sorted((due, topic, m) for m, (topic, due, _) in self.waiting.items())
        return {
            "now_ms": self.clock.wall_ms(),
            "waiting": [[m, topic, due] for due, topic, m in rows],
            "visible": sorted(self.visible),
            "recalled": sorted(self.recalled),
            "moved": self.moved,
            "handed_over": self.handed_over,
        }


def fill(maker: Maker) -> None:
    """The story."""
    broker = maker.broker
    broker.ask(CreateTopic("golden", TopicType.MIXED, 2))
    broker.ask(CreateTopic("other", TopicType.DELAY, 1))
    maker.send("golden", "old", [0] * 60, size=400)
    while got := broker.ask(
        Receive("done", "golden", -1, "*", 32, HOUR_MS, False, 0, "c")
    ).messages:
        broker.ask(Ack("done", "golden", [m.receipt_handle for m in got]))
    maker.send("golden", "near", [(i + 1) * 20 * MINUTE_MS for i in range(30)])
    maker.send("other", "near-other", [HOUR_MS + i * 100 for i in range(6)])
    for i in range(6):  # each about a buffer full: runs, and merges of them
        maker.send("golden", f"far{i}", [(2 + 9 * i + j % 7) * DAY_MS + j for j in range(20)])
        maker.send("other", f"year{i}", [(i + 1) * 365 * DAY_MS + j for j in range(4)])
        maker.checkpoint()
    maker.recall("near-20")
    maker.recall("far0-3")
    maker.move("near-21", 400 * DAY_MS)
    maker.move("far1-4", 3 * HOUR_MS)
    maker.move("far2-0", 50 * DAY_MS)
    now = maker.clock.wall_ms()
    maker.recall_many("golden", now + 8 * HOUR_MS, now + 9 * HOUR_MS)
    maker.recall_many("golden", now + 20 * DAY_MS, now + 24 * DAY_MS, "TagB")
    maker.checkpoint()
    maker.pass_time(2 * HOUR_MS)
    for i in range(3):  # checkpoints after the retention: old segments go
        maker.send("golden", f"new{i}", [0] * 4)
        maker.checkpoint()
    day_3 = START_MS + 3 * DAY_MS
    maker.pass_time(day_3 - 30 * MINUTE_MS - maker.clock.wall_ms())  # the first run is finished
    for i in range(2):
        maker.send("golden", f"newer{i}", [0] * 4)
        maker.checkpoint()
    maker.send("golden", "near-b", [(i + 1) * 10 * MINUTE_MS for i in range(24)])
    for i in range(2):
        maker.send("golden", f"level0-{i}", [(3 + j) * DAY_MS + i for j in range(21)])
    maker.send("golden", "gathered", [(5 + j) * DAY_MS for j in range(9)])
    maker.recall("near-b-20")
    maker.recall("gathered-0")
    maker.move("gathered-1", 60 * DAY_MS)
    maker.move("near-b-21", 22 * HOUR_MS)
    now = maker.clock.wall_ms()
    maker.recall_many("golden", now + 5 * DAY_MS, now + 6 * DAY_MS)
    broker.ask(Receive("slow", "golden", -1, "*", 5, HOUR_MS, False, 0, "c"))
    maker.pass_time(day_3 + 1 - maker.clock.wall_ms())  # the first row of the second run
    maker.checkpoint()
    # after the last checkpoint
    maker.send("golden", "tail-near", [2, 5, HOUR_MS])
    maker.send("other", "tail-far", [(100 + i) * DAY_MS for i in range(3)])
    maker.send("golden", "tail-now", [0, 0])
    maker.recall("tail-far-1")
    maker.move("level0-1-20", 9 * HOUR_MS)
    maker.recall_many("other", now + 365 * DAY_MS, now + 3 * 365 * DAY_MS, "TagB")
    maker.pass_time(7)  # the second row of that run, and two of the tail


def main() -> int:
    """Write the files."""
    maker = Maker()
    maker.broker.open()
    fill(maker)
    meta = {
        "format": 1,
        "log_id": "5eed5eed5eed5eed",
        "shards": 1,
        "clock": "simulated",
        "segment_bytes": SEGMENT_BYTES,
    }
    replace_file(maker.disk, "", "meta", json.dumps(meta, indent=2).encode() + b"\n")
    replace_file(maker.disk, "", "clock", b"%d\n" % maker.clock.wall_ms())
    target = Path(__file__).with_name("data_v2.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(maker.disk.names()):
            archive.writestr(
                zipfile.ZipInfo(name), read_file(maker.disk, name), zipfile.ZIP_DEFLATED
            )
    for info in zipfile.ZipFile(target).infolist():
        print(f"{info.file_size:8} {info.filename}")
    expected = json.dumps(maker.expected())
    target.with_suffix(".json").write_text(expected + "\n", encoding="utf-8")
    print(target, target.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
