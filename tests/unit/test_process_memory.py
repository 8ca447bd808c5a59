"""Memory that answers took goes back to the system, and turns leave no garbage that has to be looked for."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from remoting_sends import send_frame
from tests.support.remoting_door import remoting_door
from turns import Turns

from horolog.protocol.commands import Ack, Receive, SendMessages
from horolog.protocol.queue_commands import CommitOffsets, Pull
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.rocketmq.message import encode

HELD = """
from pathlib import Path
from horolog.server.memory import give_back_large_blocks

def megabytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 >> 20

give_back_large_blocks()
for _ in range(3):
    bytes(30 << 20)  # glibc learns that large blocks come and go
before = megabytes()
answers, small = [], []
for i in range(30):
    answers.append(b"x" * (6 << 20))
    small += [bytes(700) for _ in range(100)]
during = megabytes()
answers.clear()
print(during - before, megabytes() - before)
"""


def test_large_blocks_go_back_to_the_system_when_they_are_freed() -> None:
    command = [sys.executable, "-c", HELD]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    during, after = (int(word) for word in done.stdout.split())  # MiB more than before
    assert during >= 100
    assert after <= 10


@contextmanager
def no_garbage() -> Iterator[None]:
    """Whatever is done in it leaves nothing that reference counting does not free."""
    gc.collect()
    gc.disable()
    try:
        yield
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_refused_command_leaves_no_garbage(world) -> None:
    """A refusal kept the frames in which it was raised, and they kept it, and with it all commands of its turn."""
    turns = Turns(world)
    refused = (
        SendMessages("nowhere", [encode(topic="nowhere", body=b"x", message_id="m")]),
        Receive("g", "nowhere", -1, "*", 32, 30_000, False, 0, "c"),
        Pull("nowhere", 0, 0, 32, 1 << 18, "*", 0, "c"),
        CommitOffsets("g", "nowhere", {0: 1}),
        Ack("g", "nowhere", ["handle"]),
    )
    turns.turn(*refused)
    with no_garbage():
        for _ in range(10):
            assert all(isinstance(each, Exception) for each in turns.turn(*refused))
            turns.answers = {}


@pytest.mark.parametrize(
    "wrong",
    [
        send_frame({}, topic="b@d"),
        send_frame({"DELAY": "x"}),
        send_frame({}, code=Code.SEND_BATCH_MESSAGE, body=b"xyz"),
    ],
    ids=["topic", "level", "batch"],
)
def test_a_refused_send_leaves_no_garbage(tmp_path: Path, wrong: Frame) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("t")

        def refused(first: int) -> None:
            asked = range(first, first + 10)
            client.send(*[wrong._replace(opaque=opaque) for opaque in asked])
            assert all(client.answer(opaque).code != Status.SUCCESS for opaque in asked)

        refused(10)
        with no_garbage():
            refused(20)


def test_sends_and_pulls_leave_no_garbage(tmp_path: Path) -> None:
    pull = {
        "consumerGroup": "g", "topic": "t", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
        "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 1, "subscription": "*",
    }  # fmt: skip
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("t")

        def traffic(first: int) -> None:
            asked = range(first, first + 20)
            sends = [
                send_frame({"DELAY": str(n % 2)}, opaque=opaque) for n, opaque in enumerate(asked)
            ]
            client.send(*sends)
            assert all(client.answer(opaque).code == Status.SUCCESS for opaque in asked)
            end = client.done(Code.PULL_MESSAGE, pull).fields["nextBeginOffset"]
            waited = client.call(Code.PULL_MESSAGE, {**pull, "queueOffset": end})
            assert waited.code == Status.PULL_NOT_FOUND

        traffic(20)
        with no_garbage():
            traffic(40)
