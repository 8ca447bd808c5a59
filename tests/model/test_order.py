"""Choosing in order against a model that looks at every message of the queue each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horolog.limits import ORDER_COST, SCAN_MAX
from horolog.log.queue_unit import UNIT
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq.message import encode
from horolog.ready import order as order_module
from horolog.ready.filter import ALL_TAGS
from horolog.ready.lease_life import Event
from horolog.ready.leases import Lease
from horolog.ready.order_pick import pick_in_order
from horolog.ready.picking import PickRequest
from horolog.ready.progress import QueueProgress

LEASE_MS = 1_000


def record_of(group: str) -> bytes:
    if group == "-":
        return encode(topic="t", body=b"b", message_id="m").record
    return encode(
        topic="t", body=b"b", message_id="m", type=MessageType.FIFO, message_group=group
    ).record


RECORDS = {group: record_of(group) for group in "abc-"}


class FakeQueue:
    """A consume queue in memory."""

    first = 0

    def __init__(self) -> None:
        self.groups: list[str] = []

    @property
    def length(self) -> int:
        return len(self.groups)

    def read(self, offset: int, count: int):
        rows = np.zeros(max(0, min(count, self.length - offset)), UNIT)
        rows["position"], rows["size"] = offset + np.arange(len(rows)), 1
        return rows


class Model:
    """Each message: done, or with somebody until then, or open; and how often it was tried."""

    def __init__(self) -> None:
        self.until: dict[int, int] = {}
        self.tried: dict[int, int] = {}
        self.given: dict[int, list[int]] = {}  # receive → what it was given last
        self.again: set[int] = set()
        self.forgot = False

    def receive(
        self,
        groups: list[str],
        done: set[int],
        limit: int,
        now: int,
        receive: int,
        found: list[int],
    ) -> list[int]:
        """How often what was `found` is tried now; AssertionError if that is not what may go."""
        for offset in self.given.get(receive, ()) if receive else ():
            self.until.pop(offset, None)
            self.again.add(offset)
        self.until = {offset: end for offset, end in self.until.items() if end > now}
        able: list[int] = []
        for name in set(groups):
            left = [at for at, group in enumerate(groups) if group == name and at not in done]
            if left and left[0] not in self.until:
                able += left
        of_groups = {name: [at for at in able if groups[at] == name] for name in "abc-"}
        for name, members in of_groups.items():
            mine = [offset for offset in found if groups[offset] == name]
            assert mine == members[: len(mine)], f"{mine} of {name}, which has {members}"
        assert len(found) == min(limit, len(able)), (found, able)
        # After a start what was given out before may come before new ones of other groups.
        assert self.forgot or found == sorted(able)[:limit], (found, able)
        taken, picked, begun = found, [], set()
        for offset in taken:
            is_first = groups[offset] not in begun
            begun.add(groups[offset])
            before = self.tried.get(offset, 0)
            counts = not before or (is_first and offset not in self.again)
            self.tried[offset] = before + counts
            picked.append(self.tried[offset])
        for offset in able:  # of a group that goes on, nobody has anything any more
            if groups[offset] in begun:
                self.until.pop(offset, None)
        for offset in taken:
            self.until[offset] = now + LEASE_MS
            self.forget(offset)
            if receive:
                self.given.setdefault(receive, []).append(offset)
        return picked

    def forget(self, offset: int) -> None:
        self.again.discard(offset)
        for offsets in self.given.values():
            if offset in offsets:
                offsets.remove(offset)


STEPS = st.one_of(
    st.tuples(st.just("send"), st.text("abc-", min_size=1, max_size=12)),
    st.tuples(st.just("receive"), st.integers(1, 6), st.integers(0, 2)),
    st.tuples(st.just("ack"), st.integers(0, 30)),
    st.tuples(st.just("change"), st.integers(0, 30), st.integers(1, 3_000)),
    st.tuples(st.just("pass"), st.integers(1, 1_200)),
    st.tuples(st.just("forget")),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_what_is_chosen_is_what_the_model_says(steps) -> None:
    queue, progress, model = FakeQueue(), QueueProgress(), Model()
    done: set[int] = set()
    now, grants = 0, 0
    for step in steps:
        if step[0] == "send":
            queue.groups += step[1]
        elif step[0] == "receive":
            limit, receive = step[1:]
            progress.put_in_order(in_order=True)
            ask = PickRequest(
                0, queue, ALL_TAGS, limit, 1 << 20, lambda at, *_: record(queue, at), receive
            )
            chosen = pick_in_order(progress, progress.order, ask, 1_000, now)
            found = [(each.offset, each.attempt) for each in chosen.picked]
            offsets = [offset for offset, _ in found]
            tried = model.receive(queue.groups, done, limit, now, receive, offsets)
            assert [attempt for _, attempt in found] == tried
            progress.skip_to(chosen.upto, {offset for offset, _ in found})
            leases = {}
            for offset, attempt in found:
                grants += 1
                leases[offset] = Lease(attempt, grants, now + LEASE_MS, 0, LEASE_MS)
            progress.lease_all(leases, now + LEASE_MS, Event.GRANT)
            if receive:
                progress.order.record_given(receive, leases)
        elif step[0] == "pass":
            now += step[1]
            progress.expire(now)
            model.until = {at: end for at, end in model.until.items() if end > now}
        elif step[0] == "forget":  # a start, or a receive that is not in order
            progress.put_in_order(in_order=False)
            model.forgot = True
            model.given.clear()
            model.again.clear()
        elif step[1] in progress.ends:
            if step[0] == "ack":
                progress.consume(step[1], Event.ACK)
                done.add(step[1])
                model.until.pop(step[1])
                model.forget(step[1])
            else:
                ends = now + step[2]
                lease = progress.leases[step[1]]._replace(ends_at=ends)
                progress.lease(step[1], lease, Event.CHANGE)
                model.until[step[1]] = ends
                model.forget(step[1])
        progress.check_invariants()
        assert dict(progress.ends.items()) == model.until


def record(queue: FakeQueue, offset: int) -> bytes:
    return RECORDS[queue.groups[offset]]


@pytest.mark.parametrize("held", [1, 3, 10])
def test_what_comes_after_what_is_held_waits(monkeypatch, held: int) -> None:
    monkeypatch.setattr(order_module, "ORDER_HELD_MAX", held)
    queue, progress = FakeQueue(), QueueProgress()
    queue.groups += "a" * 12 + "b"
    progress.put_in_order(in_order=True)
    order = progress.order
    assert order is not None

    def pick() -> list[int]:
        ask = PickRequest(0, queue, ALL_TAGS, 1, 1 << 20, lambda at, *_: record(queue, at))
        chosen = pick_in_order(progress, order, ask, 1_000, 0)
        offsets = [each.offset for each in chosen.picked]
        progress.skip_to(chosen.upto, set(offsets))
        for offset in offsets:
            progress.lease(offset, Lease(1, 1, LEASE_MS, 0, LEASE_MS), Event.GRANT)
        progress.check_invariants()
        return offsets

    assert pick() == [0]
    assert pick() == []
    assert len(order.held) == held
    progress.consume(0, Event.ACK)
    for offset in range(1, 12):
        if offset + held < 12:
            assert pick() == [offset]
            assert pick() == []
        else:
            assert sorted(pick() + pick()) in ([offset, 12], [offset])
        progress.consume(offset, Event.ACK)


def test_a_look_is_bounded() -> None:
    queue, progress = FakeQueue(), QueueProgress()
    queue.groups += "a" * 4_000
    progress.put_in_order(in_order=True)
    read = []

    def reading(offset: int, *_: int) -> bytes:
        read.append(offset)
        return record(queue, offset)

    for _ in range(3):
        before = len(read)
        ask = PickRequest(0, queue, ALL_TAGS, 1, 1 << 20, reading)
        chosen = pick_in_order(progress, progress.order, ask, 1_000, 0)
        progress.skip_to(chosen.upto, {each.offset for each in chosen.picked})
        for each in chosen.picked:
            lease = Lease(each.attempt, 1, LEASE_MS, 0, LEASE_MS)
            progress.lease(each.offset, lease, Event.GRANT)
        assert len(read) - before <= SCAN_MAX // ORDER_COST + 1
