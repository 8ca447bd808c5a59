"""Parked polls of both kinds, receives of groups and pulls of queues: serve, time out, cancel."""

from __future__ import annotations

from horolog.broker.consume.pulls import Pulls
from horolog.broker.consume.receives import Receives
from horolog.broker.effects import Now, Reply
from horolog.broker.shard import Shard
from horolog.limits import TURN_SERVED_MAX
from horolog.ready.polls import News, Waiter


class Waiting:
    """The parked polls of a shard."""

    def __init__(self, shard: Shard, receives: Receives, pulls: Pulls) -> None:
        self._shard = shard
        self._receives = receives
        self._pulls = pulls

    def serve(self, now: Now) -> list[Reply]:
        """Answer parked polls that now get messages."""
        ready, visible = self._shard.ready, self._shard.visible
        for topic_id, queue_id in visible:
            ready.polls.note_grown(topic_id, queue_id)
        visible.clear()
        ready.note_ended(now.mono_ms)
        ready.note_room(lambda topic: len(self._shard.topics.by_id[topic].queues))
        replies: list[Reply] = []
        self._receives.begin_turn()
        went_on: list[News] = []
        waited: list[News] = []
        for news in ready.polls.take_news(TURN_SERVED_MAX):
            has_turn = self._receives.may_scan
            answers, left = self._receives.serve(news, now)
            replies += answers
            if left is not None:
                (went_on if has_turn else waited).append(left)
        for left in [*waited, *went_on]:  # polls that got nothing are first in the next turn
            ready.polls.postpone(left)
        for topic_id, queue_id in ready.polls.take_grown():
            replies += self._pulls.serve(topic_id, queue_id)
        return replies

    def time_out(self, now: Now) -> list[Reply]:
        """Answer parked polls whose time is over: empty, or with the reason for no messages."""
        return [
            self._ended(waiter) for waiter in self._shard.ready.polls.take_timed_out(now.mono_ms)
        ]

    def cancel(self, token: object, *, answer: bool) -> Reply | None:
        """Remove the parked poll of a caller that has gone, if there is one.

        With `answer`, return its reply, as if its time were over.
        """
        waiter = self._shard.ready.polls.cancel(token)
        return self._ended(waiter) if waiter is not None and answer else None

    def end_client(self, client_id: str) -> list[Reply]:
        """End the parked polls of a client now, empty."""
        polls = self._shard.ready.polls
        waiting = polls.of_client(client_id)
        for waiter in waiting:
            polls.leave(waiter)
        return [self._ended(waiter) for waiter in waiting]

    def _ended(self, waiter: Waiter) -> Reply:
        owner = self._receives if waiter.group else self._pulls
        return Reply(waiter.token, owner.empty_answer(waiter))
