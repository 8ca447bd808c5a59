"""Makes tests/golden/data_v3.zip: the first horolog in which groups commit offsets, and topics and groups have settings.

Never to be run again: the files stay as they are for ever, and `test_golden_v3.py` opens them with every later horolog.

Each thing is there twice, below the last checkpoint and after it: offsets committed forwards and back beside leases and
acks, groups with settings, changed and deleted, topics with settings, changed and deleted, and made again.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from random import Random

from horolog.clock import SimulatedClock
from horolog.protocol.commands import (
    Ack,
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    Receive,
    SendMessages,
    TopicSettings,
    TopicType,
)
from horolog.protocol.queue_commands import CommitOffsets, DeleteGroup, GroupSettings, PutGroup
from horolog.protocol.rocketmq.message import encode
from horolog.storage.api import read_file, replace_file
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_broker import SimBroker

START_MS = 1_810_000_000_000
SEGMENT_BYTES = 65_536


def send(broker: SimBroker, topic: str, prefix: str, count: int) -> None:
    """Messages `<prefix>-0`, `<prefix>-1` …, visible at once."""
    messages = [
        encode(topic=topic, body=b"body", message_id=f"{prefix}-{i}", keys=[prefix])
        for i in range(count)
    ]
    broker.ask(SendMessages(topic, messages))


def part(broker: SimBroker, name: str) -> None:
    """Everything, with names of its own but for the topic `golden` and the topic `again`."""
    send(broker, "golden", name, 20)
    broker.ask(CommitOffsets(f"forward-{name}", "golden", {0: 5, 1: 3}))
    broker.ask(CommitOffsets(f"back-{name}", "golden", {0: 9}))
    receive = Receive(f"back-{name}", "golden", -1, "*", 32, 3_600_000, False, 0, "c")
    messages = broker.ask(receive).messages
    handles = [each.receipt_handle for each in messages[2:6]]
    broker.ask(Ack(f"back-{name}", "golden", handles))
    broker.ask(CommitOffsets(f"back-{name}", "golden", {0: 4}))
    settings = GroupSettings(orderly=True, retry_max=7, attributes={"brokerId": 0, "of": name})
    broker.ask(PutGroup(f"settings-{name}", settings))
    broker.ask(PutGroup(f"gone-{name}", settings))
    broker.ask(CommitOffsets(f"gone-{name}", "golden", {0: 5}))
    broker.ask(DeleteGroup(f"gone-{name}"))
    attributes: dict[str, object] = {"of": name}
    of_topic = TopicSettings(4, order=True, read_queues=3, write_queues=2, attributes=attributes)
    broker.ask(CreateTopic(f"settings-{name}", TopicType.MIXED, 3, of_topic))
    broker.ask(CreateTopic(f"changed-{name}", TopicType.MIXED, 1))
    broker.ask(ChangeTopic(f"changed-{name}", 2, TopicSettings(2)))
    broker.ask(CreateTopic("again", TopicType.NORMAL, 1))
    send(broker, "again", f"again-{name}", 3)
    broker.ask(CommitOffsets(f"forward-{name}", "again", {0: 2}))
    if name == "below":
        broker.ask(DeleteTopic("again"))
        broker.ask(CreateTopic("again", TopicType.NORMAL, 2))
        send(broker, "again", "second", 2)
    else:
        broker.ask(DeleteTopic("again"))


def main() -> int:
    """Write the files."""
    disk, clock = FaultyDisk(3), SimulatedClock(START_MS)
    broker = SimBroker(Random(3), disk, clock, "sync", SEGMENT_BYTES)
    broker.open()
    broker.ask(CreateTopic("golden", TopicType.MIXED, 2))
    part(broker, "below")
    broker.request_checkpoint()
    broker.settle()
    send(broker, "golden", "between", 2)
    broker.request_checkpoint()
    broker.settle()
    broker.ask(DeleteTopic("again"))
    part(broker, "behind")
    clock.advance(1_000)
    broker.settle()
    meta = {
        "format": 1,
        "log_id": "5eed5eed5eed5eed",
        "shards": 1,
        "clock": "simulated",
        "segment_bytes": SEGMENT_BYTES,
    }
    replace_file(disk, "", "meta", json.dumps(meta, indent=2).encode() + b"\n")
    replace_file(disk, "", "clock", b"%d\n" % clock.wall_ms())
    target = Path(__file__).with_name("data_v3.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(disk.names()):
            content = read_file(disk, name)
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    print(target, target.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
