"""Floods of long polls in a simulation: up to thousands parked, cancelled, served and timed out.

Most of them wait on a topic without messages, as long polls do. The checks are from outside: a poll
is answered at the first step after its deadline, a cancelled poll is never answered, and nothing of
a finished poll stays in memory (the broker held the last reference to its token).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

from horolog.limits import POLL_MAX_MS
from horolog.protocol.commands import CancelReceive, ClientGone, Receive
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import PromiseBroken

QUIET = "quiet"  # a topic without messages
_FILTERS = ("*", "*", "TagA", "TagB || TagC", "TagZ")


class Polls(Actor):
    """The client that floods one simulation with polls."""

    def __init__(self, seed: int, broker: SimBroker) -> None:
        super().__init__(seed, [0, 0, 0.03, 0.1])
        self._broker = broker
        self._parked: dict[Answer, int] = {}  # poll → monotonic ms when it must be answered
        self._over: weakref.WeakSet[Answer] = weakref.WeakSet()  # cancelled, answered or lost

    def turn(self, topics: Sequence[str], _wall_ms: int, mono_ms: int) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        if self._parked and self._random.random() < 0.3:
            return self._cancel()
        if self._random.random() < 0.1:
            gone = f"flood-{self._random.randrange(4)}"
            return [Answer(ClientGone(gone))], f"client {gone} leaves"
        count = self._random.choices([3, 40, 300, 3_000], [40, 30, 8, 1])[0]
        chosen = self._random.choice([(QUIET,), (QUIET,), (QUIET, *topics)])
        polls = [Answer(self._poll(chosen)) for _ in range(count)]
        for each in polls:
            assert isinstance(each.command, Receive)
            self._parked[each] = mono_ms + min(each.command.poll_ms, POLL_MAX_MS)
        return polls, f"{count} polls on {', '.join(chosen)}"

    def _poll(self, topics: Sequence[str]) -> Receive:
        draw = self._random
        number = draw.randrange(4)
        return Receive(
            f"flood-{number}",
            draw.choice(topics),
            draw.choice([-1, -1, 0]),
            draw.choice(_FILTERS),
            draw.choice([1, 8]),
            10_000,
            draw.random() < 0.2,
            draw.choice([1, 700, 5_000, 20_000, 60_000]),
            f"flood-{number}",
        )

    def _cancel(self) -> tuple[list[Answer], str]:
        """Cancel some polls; a few of them have been answered in the same moment."""
        some = self._random.choice([1, len(self._parked) // 2, len(self._parked)])
        gone = self._random.sample(list(self._parked), max(1, some))
        for each in gone:
            del self._parked[each]
            self._over.add(each)
        return [Answer(CancelReceive(each)) for each in gone], f"{len(gone)} polls give up"

    def looked(self, mono_ms: int) -> None:
        """Check after a step at this time: answered polls are finished, and none may be late."""
        for each, deadline in list(self._parked.items()):
            if each.done:
                del self._parked[each]
                self._over.add(each)
            elif deadline <= mono_ms:
                raise PromiseBroken(
                    f"a poll is not answered {mono_ms - deadline} ms after its time"
                )

    def is_given_up(self, answer: Answer) -> bool:
        """Return whether an answer belongs to a poll that was cancelled."""
        return isinstance(answer.command, Receive) and answer in self._over and not answer.done

    def lost(self) -> None:
        """Note that the broker has died, so that no poll is answered."""
        self._over.update(self._parked)
        self._parked.clear()

    def finish(self) -> None:
        """Check, after all time has passed, that no poll waits and none is in memory."""
        if self._parked:
            raise PromiseBroken(f"{len(self._parked)} polls are not answered")
        ready = self._broker.shard.ready
        if ready.parked or ready.polls.next_at() is not None:
            raise PromiseBroken(f"{ready.parked} polls are parked, and all are answered")
        if self._over:
            gc.collect()  # the rest may be held by a reference cycle of the simulation itself
        if self._over:
            raise PromiseBroken(f"{len(self._over)} polls are over, and still in memory")
