"""Makes tests/golden/data_v1.zip: a data directory of format 1 with something of everything in it.

Run once per format version, by hand; the file stays for ever and `test_golden.py` opens it with every later
horolog.  Everything is deterministic but the compression.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from random import Random

from horolog.clock import SimulatedClock
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    MessageType,
    Recall,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode
from horolog.storage.api import read_file
from horolog.testing.disk import FaultyDisk
from horolog.testing.sim_broker import SimBroker

START_MS = 1_700_000_000_000


def fill(broker: SimBroker, clock: SimulatedClock) -> None:
    """Normal and scheduled messages, a recall, leases, an ack, two checkpoints and a tail after them."""
    broker.ask(CreateTopic("golden", TopicType.MIXED, 2))
    now = clock.wall_ms()
    for first in (0, 20):
        broker.ask(
            SendMessages(
                "golden",
                [
                    encode(
                        topic="golden",
                        body=f"body {i}".encode(),
                        message_id=f"late-{i}",
                        type=MessageType.DELAY,
                        due_ms=now + (i + 1) * 600_000,
                        tag="TagA",
                        keys=[f"k{i}"],
                        user_properties={"n": str(i)},
                        born_ms=now,
                    )
                    for i in range(first, first + 20)
                ],
            )
        )
        broker.request_checkpoint()
        broker.settle()
    normal = [
        encode(topic="golden", body=b"now", message_id=f"now-{i}", born_ms=now) for i in range(4)
    ]
    broker.ask(SendMessages("golden", normal))
    broker.ask(Recall("golden", "late-39", now + 40 * 600_000))
    got = broker.ask(Receive("g", "golden", -1, "*", 3, 3_600_000, False, 0, "c")).messages
    broker.ask(Ack("g", "golden", [got[0].receipt_handle]))
    clock.advance(600_000)
    broker.settle()
    broker.request_checkpoint()
    broker.settle()
    clock.advance(600_000)
    broker.settle()


def main() -> int:
    """Write the file."""
    disk, clock = FaultyDisk(1), SimulatedClock(START_MS)
    broker = SimBroker(Random(1), disk, clock, "sync", 65_536)
    broker.open()
    fill(broker, clock)
    target = Path(__file__).with_name("data_v1.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(disk.names()):
            archive.writestr(zipfile.ZipInfo(name), read_file(disk, name), zipfile.ZIP_DEFLATED)
    print(target, target.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
