"""The effects that one step of the core returns; the loop performs them in this order.

1. `prompt` answers go out at once: they promise nothing that is not committed.
2. `writes` go to the log, followed by a sync as the flush policy says.  Later steps may run
   meanwhile.
3. When the commit position has reached `end`, the loop passes it to the core
   (`begin_turn(..., commit, durable)`) and then releases `replies`: nothing above the commit
   position is visible to any client.
4. `checkpoint` is carried out in a thread (`broker.life.checkpoint_job.CheckpointJob`), and the
   loop reports its end.  So is `job`, which makes runs of far messages.  `checks` are for the
   doors, which know the connected producers.
5. The next step comes when there is input, after `wake_in_ms`, or after `due_in_ms` of wall time (a
   loop looks at a system clock more often than that, since it may be stepped).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from horolog.errors import HorologError
from horolog.log.segment import Write
from horolog.protocol.transaction_commands import CheckDue

if TYPE_CHECKING:
    from horolog.broker.life.checkpoint_job import CheckpointJob
    from horolog.delay.far.jobs import FarJob


class Now(NamedTuple):
    """The time of a step: UTC epoch ms, and monotonic ms."""

    wall_ms: int
    mono_ms: int


@dataclass(slots=True)
class Reply:
    """The result of a command, or the HorologError that refuses it, with the token of the command.

    waits  the reply answers a poll but has to wait for the commit position, unlike replies to other
           polls
    """

    token: object
    result: object
    waits: bool = False


@dataclass(slots=True)
class Effects:
    """Everything that one step asks the loop to do."""

    writes: list[Write] = field(default_factory=list)
    end: int = 0  # log end after this step
    replies: list[Reply] = field(default_factory=list)
    prompt: list[Reply] = field(default_factory=list)
    checkpoint: CheckpointJob | None = None
    no_checkpoint: HorologError | None = None  # why the decided one could not be captured
    job: FarJob | None = None  # to be carried out in the background; the loop reports its end
    wake_in_ms: int | None = None  # by the monotonic clock; None: no reason to wake
    due_in_ms: int | None = None  # by the wall clock, until work is due; None: nothing is pending
    checks: list[CheckDue] = field(default_factory=list)  # whose producers are to be asked
    given_up: list[str] = field(default_factory=list)  # transactions, for the log of the process
    # New problems, and repairs, for the log of the process
    problems: list[str] = field(default_factory=list)

    def answer_poll(self, reply: Reply) -> None:
        """Queue the answer to a poll: prompt, unless it has to wait for the commit position."""
        (self.replies if reply.waits else self.prompt).append(reply)
