"""Replies that wait for the commit position: in order, once, and never before it."""

from __future__ import annotations

import asyncio

from horolog.broker.effects import Reply
from horolog.errors import ErrorCode, HorologError
from horolog.server.replies import HeldReplies, settle_replies
from horolog.server.ticket import Ticket


def test_replies_are_given_at_their_commit_position_and_not_before() -> None:
    got: list[object] = []
    held = HeldReplies()
    assert not held.are_due(100)
    held.hold(10, [Reply(Ticket(got.append), n) for n in (1, 2)])
    held.hold(15, [])
    held.hold(20, [Reply(Ticket(got.append), 3)])
    assert not held.are_due(9)
    held.release(9)
    assert not got
    assert held.are_due(10)
    held.release(19)
    assert got == [1, 2]
    held.release(20)
    held.release(20)
    assert got == [1, 2, 3]


def test_after_a_failure_all_get_the_error_and_nobody_waits() -> None:
    got: list[object] = []
    held = HeldReplies()
    for end in (10, 20):
        held.hold(end, [Reply(Ticket(got.append), end)])
    lost = HorologError(ErrorCode.DISK_FAILED, "gone")
    held.refuse(lost)
    assert got == [lost, lost]
    assert not held.are_due(100)


def test_a_future_gets_its_result_or_its_error_unless_its_caller_has_gone() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        done, refused, gone = [loop.create_future() for _ in range(3)]
        gone.cancel()
        error = HorologError(ErrorCode.BAD_REQUEST, "no")
        settle_replies([Reply(gone, 1), Reply(done, 2), Reply(refused, error)])
        assert await done == 2
        assert refused.exception() is error

    asyncio.run(run())
