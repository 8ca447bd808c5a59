"""One byte flipped in any file once the log is gone: reported, never delivered, and the rest is (P2, P3, P9, P11)."""

from __future__ import annotations

import copy
from random import Random

import pytest

from horolog.delay.far import FarSettings
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.protocol.commands import (
    Ack,
    CreateTopic,
    DescribeBroker,
    MessageType,
    Recall,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_broker import SimBroker

FAR = FarSettings(buffer_bytes=6_000, runs_max=2, part_runs_max=1)
DELAYS = [2 * HOUR_MS, 2 * HOUR_MS + 1, 5 * HOUR_MS, 3 * DAY_MS, 3 * DAY_MS + 7, 50 * DAY_MS]


def body_of(message_id: str) -> bytes:
    return (message_id * 9).encode()


def made(message_id: str, due_ms: int):
    return encode(
        topic="t",
        body=body_of(message_id),
        message_id=message_id,
        type=MessageType.DELAY if due_ms else MessageType.NORMAL,
        due_ms=due_ms,
    )


@pytest.fixture(scope="module")
def at_rest(make_world):
    """A disk with hours, a far buffer, runs of both levels, recalled rows, and a log that begins after 0."""
    world = make_world(segment_bytes=65_536)
    world.broker.settings = world.broker.settings._replace(far=FAR, retention_ms=1_000)
    world.broker.open()
    world.broker.ask(CreateTopic("t", TopicType.MIXED, 1))
    waiting = {}
    start = world.clock.wall_ms()
    for i in range(0, 180, 6):
        batch = {f"m{i + j}": start + delay for j, delay in enumerate(DELAYS)}
        world.broker.ask(SendMessages("t", [made(k, due) for k, due in batch.items()]))
        waiting |= batch
    for i in (0, 3, 4, 5, 60, 63, 65):
        message_id = f"m{i}"
        world.broker.ask(Recall("t", message_id, waiting.pop(message_id)))
    for i in range(8):  # traffic, so that the log moves on and its beginning is dropped
        world.clock.advance(61_000)
        fill = [made(f"n{i}-{j}", 0) for j in range(300)]
        world.broker.ask(SendMessages("t", fill))
        world.broker.want_checkpoint()
        world.broker.settle()
    view = world.broker.ask(DescribeBroker())
    assert view.pending == len(waiting)
    assert view.log_start > 0
    assert not view.problems
    world.disk.crash(power_cut=True)
    return world, waiting


def consume(world) -> dict[str, bytes]:
    got: dict[str, bytes] = {}
    command = Receive("g", "t", -1, "*", 32, 3_600_000, False, 0, "c")
    while messages := world.broker.ask(command).messages:
        for message in messages:
            stored = layout.decode(message.layout)
            message_id = properties.decode(stored.properties)["UNIQ_KEY"]
            assert message_id not in got, "P3"
            got[message_id] = stored.body
        world.broker.ask(Ack("g", "t", [m.receipt_handle for m in messages]))
    return got


def again(before):
    """The same disk and clock once more."""
    world = copy.copy(before)
    world.disk, world.clock = copy.deepcopy((before.disk, before.clock))
    world.broker = SimBroker(Random(1), world.disk, world.clock, "sync", 65_536)
    world.broker.settings = before.broker.settings
    return world


def flipped(at_rest, path: str, offset: int, bit: int) -> None:
    """Flip, start, let all time pass, and compare."""
    before, waiting = at_rest
    world = again(before)
    world.disk.flip(path, offset, bit)
    where = f"{path} byte {offset} bit {bit}"
    try:
        world.broker.open()
    except HorologError as error:
        assert error.code is ErrorCode.DAMAGED, where
        return
    world.clock.advance(51 * DAY_MS)
    world.broker.settle(2_000)
    got = {k: v for k, v in consume(world).items() if k.startswith("m")}
    for message_id, body in got.items():
        assert message_id in waiting, f"{where}: {message_id} was recalled"
        assert body == body_of(message_id), f"{where}: {message_id} is garbled"
    missing = waiting.keys() - got.keys()
    problems = world.broker.ask(DescribeBroker()).problems + world.broker.reports
    if missing:
        assert problems, f"{where}: {len(missing)} are missing and nobody says so"
    # Without its header, footer or directories a run can't be read: it is set aside whole.
    whole = path.endswith(".run") and any("quarantined" in problem for problem in problems)
    if path.endswith(("delay.log", "delay.idx", ".run")) and not whole:
        assert len(missing) <= 1, f"{where}: {len(missing)} are missing: {problems}"


def test_nothing_flipped_nothing_missing(at_rest) -> None:
    before, waiting = at_rest
    world = again(before)
    world.broker.open()
    world.clock.advance(51 * DAY_MS)
    world.broker.settle(2_000)
    assert {k for k in consume(world) if k.startswith("m")} == waiting.keys()


@pytest.mark.parametrize(
    "part", ["delay.log", "delay.idx", "state.", ".run", ".ckpt", "/keys/", "/queues/"]
)
def test_a_flipped_byte_is_reported_and_never_delivered(at_rest, part) -> None:
    disk = at_rest[0].disk
    random = Random(part)
    paths = [path for path in disk.names() if part in path]
    assert paths, f"there is no {part} in {disk.names()}"
    for path in paths if len(paths) < 6 else random.sample(paths, 6):
        size = disk.open(path).size()
        offsets = {0, size - 1, *(random.randrange(size) for _ in range(5))}
        for offset in sorted(offsets):
            flipped(at_rest, path, offset, random.randrange(8))
