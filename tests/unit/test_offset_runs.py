"""Runs of queue offsets are a set; and one lease that never ends does not make memory or checkpoints grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_sends import send_plain

from horolog.log.checkpoint import decode_checkpoint, encode_checkpoint
from horolog.metrics.group_figures import Marks, group_figures
from horolog.protocol.commands import Ack, CreateTopic, DescribeGroup, Receive, TopicType
from horolog.protocol.queue_commands import CountLags
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.offset_runs import OffsetRuns
from horolog.ready.progress import QueueProgress

OFFSETS = st.integers(0, 40)
STEPS = st.one_of(
    st.tuples(st.just("add"), OFFSETS, st.integers(1, 9)),
    st.tuples(st.just("take_from"), OFFSETS, st.just(0)),
    st.tuples(st.just("drop_below"), OFFSETS, st.just(0)),
)
HOUR_MS = 3_600_000


@given(st.lists(STEPS, max_size=30))
def test_runs_are_a_set(steps) -> None:
    runs, plain = OffsetRuns(), set()
    for what, offset, count in steps:
        if what == "add":
            runs.add(offset, offset + count)
            plain.update(range(offset, offset + count))
        elif what == "drop_below":
            runs.drop_below(offset)
            plain = {each for each in plain if each >= offset}
        elif plain and offset == min(plain):
            stop = runs.take_from(offset)
            gone = set(range(offset, stop))
            assert gone <= plain
            assert stop not in plain
            plain -= gone
        runs.check_invariants()
        assert list(runs) == sorted(plain)
        assert (len(runs), bool(runs)) == (len(plain), bool(plain))
        assert runs.count_below(20) == sum(each < 20 for each in plain)
        assert [each in runs for each in range(50)] == [each in plain for each in range(50)]
    runs.clear()
    assert not runs


@given(
    st.lists(st.tuples(st.sampled_from(["lease", "ack", "skip"]), OFFSETS), max_size=40),
)
def test_progress_is_as_with_a_set_of_offsets(steps) -> None:
    progress, consumed, leased = QueueProgress(), set(), set()
    for what, offset in steps:
        if what == "lease" and offset not in consumed and offset not in leased:
            progress.skip_to(offset, {offset})
            progress.lease(offset, Lease(1, offset, HOUR_MS, 0, HOUR_MS), Event.GRANT)
            consumed |= set(range(offset)) - leased
            progress.skip_to(offset + 1, {offset})
            leased.add(offset)
        elif what == "ack":
            progress.consume(offset, Event.ACK)
            consumed.add(offset)
            leased.discard(offset)
        elif what == "skip":
            progress.skip_to(offset, set())
            consumed |= set(range(offset)) - leased
        progress.check_invariants()
        assert {each for each in range(60) if progress.state(each) == "consumed"} == consumed
        assert set(progress.leases) == leased


def test_one_lease_that_is_kept_costs_nothing_for_what_is_consumed_after_it(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    send_plain(world, "t", 3_000)
    (kept,) = world.broker.ask(Receive("g", "t", -1, "*", 1, HOUR_MS, False, 0, "c")).messages
    sizes = []
    for _ in range(2_999 // 32 + 1):
        got = world.broker.ask(Receive("g", "t", -1, "*", 32, HOUR_MS, False, 0, "c")).messages
        world.broker.ask(Ack("g", "t", [each.receipt_handle for each in got]))
        progress = world.broker.shard.ready.progress_if_any(1, 1, 0)
        sizes.append(len(list(progress.acked.runs())))
    assert set(sizes) == {1}
    assert len(progress.acked) == 2_999
    world.broker.request_checkpoint()
    world.broker.settle()
    (name, *_) = reversed(world.disk.list("shard-00/checkpoint"))
    content = world.disk.open(f"shard-00/checkpoint/{name}")
    checkpoint = decode_checkpoint(content.read(0, content.size()))
    assert checkpoint is not None
    assert len(checkpoint.columns["acked"]) == 0
    assert checkpoint.columns["acked_runs"].tolist() == [(1, 1, 0, 1, 3_000)]
    assert decode_checkpoint(encode_checkpoint(checkpoint)).columns["acked_runs"].size == 1
    for power_cut in (False, True):
        world.reopen(power_cut=power_cut)
        (view,) = world.broker.ask(DescribeGroup("g", "t"))
        assert (view.ack_floor, view.next_offset, view.leased) == (0, 3_000, 1)
        (lag,) = world.broker.ask(CountLags([("g", "t")]))
        (figures,), _ = group_figures(world.broker.shard, Marks(), 1, 0, 0)
        assert view.waiting == lag.waiting == figures.lag == 1, "what is consumed waits no more"
    world.broker.ask(Ack("g", "t", [kept.receipt_handle]))
    (view,) = world.broker.ask(DescribeGroup("g", "t"))
    assert (view.ack_floor, view.leased) == (3_000, 0)


def test_a_checkpoint_of_an_older_horolog_has_single_offsets(world) -> None:
    world.broker.ask(CreateTopic("t", TopicType.NORMAL, 1))
    send_plain(world, "t", 3)
    got = world.broker.ask(Receive("g", "t", -1, "*", 3, HOUR_MS, False, 0, "c")).messages
    world.broker.ask(Ack("g", "t", [got[1].receipt_handle]))
    world.broker.request_checkpoint()
    world.broker.settle()
    (name, *_) = reversed(world.disk.list("shard-00/checkpoint"))
    content = world.disk.open(f"shard-00/checkpoint/{name}")
    raw = content.read(0, content.size())
    assert raw[6:8] == b"\0\0", "readable for those who know no runs"
    checkpoint = decode_checkpoint(raw)
    assert checkpoint is not None
    assert checkpoint.columns["acked"].tolist() == [(1, 1, 0, 1)]
    world.reopen()
    assert list(world.broker.shard.ready.progress_if_any(1, 1, 0).acked) == [1]


def test_runs_that_overlap_what_cannot_be_are_refused() -> None:
    with pytest.raises(AssertionError):
        OffsetRuns().add(5, 5)
