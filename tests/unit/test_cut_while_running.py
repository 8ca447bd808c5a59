"""Files of the delay store that are cut while the broker runs: sentences, and the rest goes on (P2, P11)."""

from __future__ import annotations

import pytest

from horolog.delay.far.compaction import FarSettings
from horolog.protocol.commands import (
    Ack,
    CountPending,
    CreateTopic,
    DescribeBroker,
    FindMessages,
    ListPending,
    MessageType,
    Recall,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def sent(world, due_ms: int, n: int) -> None:
    made = [
        encode(
            topic="t",
            body=b"%03d" % i * 40,
            message_id=f"m{i}",
            type=MessageType.DELAY,
            due_ms=due_ms,
        )
        for i in range(n)
    ]
    world.broker.ask(SendMessages("t", made))


def names(layouts) -> list[str]:
    found = []
    for each in layouts:
        stored = layout.decode(each)
        decoded = properties.decode(stored.properties)["UNIQ_KEY"]
        assert stored.body == b"%03d" % int(decoded[1:]) * 40, "garbled"
        found.append(decoded)
    return found


@pytest.mark.parametrize("part", ["delay.log", "delay.idx"])
@pytest.mark.parametrize("delay_ms", [HOUR_MS, 40 * DAY_MS])
def test_a_delay_file_cut_while_running_ends_nothing(any_world, part, delay_ms) -> None:
    world, n = any_world, 30
    ask = world.broker.ask
    ask(CreateTopic("t", TopicType.MIXED, 1))
    due_ms = world.clock.wall_ms() + delay_ms
    sent(world, due_ms, n)
    assert len(names(m.layout for m in ask(ListPending(due_ms, due_ms + 1)))) == n
    place = "hours" if delay_ms < DAY_MS else "runs"
    name = min(n for n in world.disk.list(f"shard-00/{place}") if n[0] in "b0")
    file = world.disk.open(f"shard-00/{place}/{name}/{part}")
    file.truncate(file.size() // 2 + 5)
    names(m.layout for m in ask(ListPending(due_ms, due_ms + 1)))
    for i in (0, n - 1):
        names(each.layout for each in ask(FindMessages("t", f"m{i}")))
    ask(Recall("t", f"m{n - 1}", due_ms))
    ask(Recall("t", "m0", due_ms))
    ask(CountPending())
    world.clock.advance(delay_ms)
    world.broker.settle()
    got = []
    while found := ask(Receive("g", "t", -1, "*", 32, 60_000, False, 0, "c")).messages:
        got += names(each.layout for each in found)
        ask(Ack("g", "t", [each.receipt_handle for each in found]))
    assert set(got) >= {f"m{i}" for i in range(1, n // 2 - 1)}
    if len(got) < n - 2:
        view = ask(DescribeBroker()).problems
        assert view
        assert not any("unpack" in each for each in view)


def test_a_run_cut_while_it_is_mapped_is_set_aside(make_world, tmp_path) -> None:
    """Reading what is not there any more would end the process."""
    world = make_world(root=tmp_path)
    world.broker.settings = world.broker.settings._replace(far=FarSettings(buffer_bytes=2_000))
    world.broker.open()
    ask = world.broker.ask
    ask(CreateTopic("t", TopicType.MIXED, 1))
    due_ms = world.clock.wall_ms() + 3 * DAY_MS
    sent(world, due_ms, 200)
    world.broker.settle()
    world.clock.advance(2_000)
    world.broker.settle()
    assert len(names(m.layout for m in ask(ListPending(due_ms, due_ms + 1)))) == 100
    run = min(world.broker.shard.delay.far.runs)
    world.disk.open(f"shard-00/runs/{run}.run").truncate(4_096)
    names(m.layout for m in ask(ListPending(due_ms, due_ms + 1)))
    names(each.layout for each in ask(FindMessages("t", "m3")))
    ask(Recall("t", "m5", due_ms))
    assert any(
        "quarantined until the next start" in each for each in ask(DescribeBroker()).problems
    )
    world.reopen()
    assert ask(CountPending()).total == 200


@pytest.mark.parametrize("part", ["delay.log", "delay.idx"])
def test_a_full_buffer_that_is_cut_becomes_a_run_all_the_same(make_world, part) -> None:
    world = make_world()
    world.broker.open()
    ask = world.broker.ask
    ask(CreateTopic("t", TopicType.MIXED, 1))
    due_ms = world.clock.wall_ms() + 3 * DAY_MS
    sent(world, due_ms, 30)
    far = world.broker.shard.delay.far
    (buffer,) = far.buffers
    file = world.disk.open(f"{buffer.directory}/{part}")
    file.truncate(file.size() // 2 + 5)
    buffer.sealed = True
    for _ in range(3):
        world.clock.advance(20_000)
        world.broker.settle()
    assert [run.info.rows for run in far.runs.values()] == [30]
    world.clock.advance(3 * DAY_MS)
    world.broker.settle()
    got = ask(Receive("g", "t", -1, "*", 32, 60_000, False, 0, "c")).messages
    assert sorted(names(each.layout for each in got)) == sorted(f"m{i}" for i in range(30))
