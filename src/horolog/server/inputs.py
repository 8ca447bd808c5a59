"""Commands that wait for a turn, bounded in count and in bytes.

Turns wait for the disk when it lags (`UNSYNCED_BYTES_MAX`), and commands wait for turns.  Commands
above the bound are refused at once: clients wait and try again.  Commands that settle or take back
what was accepted before (acks, recalls, signs of life) have as many places again of their own, so
that they go on when sends do not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from horolog.broker.broker import Input
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import INPUTS_BYTES_MAX, INPUTS_MAX, MIB
from horolog.protocol.adoption_commands import Adopt
from horolog.protocol.commands import (
    Ack,
    CancelReceive,
    ChangeInvisible,
    ClientGone,
    ClientSeen,
    Command,
    DescribeBroker,
    Recall,
    RecallByKey,
    RecallMany,
    Receive,
    Reschedule,
    SendMessages,
)
from horolog.protocol.queue_commands import CommitOffsets, Pull
from horolog.protocol.tier_commands import RecallRows, TellTierProblem

_SETTLING = (
    Ack,
    ChangeInvisible,
    ClientGone,
    ClientSeen,
    CommitOffsets,
    DescribeBroker,
    Recall,
    RecallByKey,
    RecallMany,
    RecallRows,
    Reschedule,
    TellTierProblem,
)


def _bytes_of(command: Command) -> int:
    """Return the bytes of the messages that a command carries."""
    if isinstance(command, SendMessages):
        return command.size_bytes
    if isinstance(command, Adopt):
        return sum(map(len, command.records))
    return 0


class Inputs:
    """A first-in, first-out queue of commands.

    A receive or pull whose caller has gone while it waits in the queue is dropped, not decided.
    """

    def __init__(self, *, count_max: int = INPUTS_MAX, bytes_max: int = INPUTS_BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiting: deque[Input] = deque()
        self._sizes: deque[int] = deque()  # bytes of each command in `_waiting`
        self._bytes = 0
        self._gone: set[object] = set()  # tokens of receives whose callers have gone

    def __len__(self) -> int:
        """Return how many commands wait."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[Input]:
        """Iterate over the waiting commands, the oldest first."""
        return iter(self._waiting)

    @property
    def message_bytes(self) -> int:
        """Bytes of all messages that the waiting commands carry."""
        return self._bytes

    def put(self, item: Input) -> HorologError | None:
        """Queue a command, or return the refusal (TOO_MANY_REQUESTS)."""
        size = _bytes_of(item.command)
        refusal = self._refusal(item.command, size)
        if refusal is None:
            self._waiting.append(item)
            self._sizes.append(size)
            self._bytes += size
            if isinstance(item.command, CancelReceive) and not item.command.answer:
                self._gone.add(item.command.token)
        return refusal

    def _refusal(self, command: Command, size: int) -> HorologError | None:
        count = len(self._waiting)
        if count >= self._count_max:
            if isinstance(command, CancelReceive):
                return None  # there are never more cancels than receives
            places = 2 * self._count_max if isinstance(command, _SETTLING) else self._count_max
            if count >= places:
                return _busy(f"{count} requests", f"{places} requests")
        # A command that is larger than the bound by itself is taken when no other message waits.
        if size and self._bytes and self._bytes + size > self._bytes_max:
            waiting = f"{self._bytes // MIB} MiB of messages"
            return _busy(waiting, f"{self._bytes_max} bytes")
        return None

    def take(self, most: int) -> list[Input]:
        """Take the oldest commands, at most `most`."""
        count = min(len(self._waiting), most)
        self._bytes -= sum([self._sizes.popleft() for _ in range(count)])
        assert self._bytes >= 0
        taken = [self._waiting.popleft() for _ in range(count)]
        return self._without_gone(taken) if self._gone else taken

    def _without_gone(self, taken: list[Input]) -> list[Input]:
        """Drop receives whose callers have gone: a lease for them would have no holder."""
        wanted = []
        for item in taken:
            if isinstance(item.command, Receive | Pull) and item.token in self._gone:
                continue
            if isinstance(item.command, CancelReceive):
                self._gone.discard(item.command.token)
            wanted.append(item)
        return wanted

    def put_back(self, taken: list[Input]) -> None:
        """Put commands that were taken back at the front of the queue."""
        sizes = [_bytes_of(item.command) for item in taken]
        self._waiting.extendleft(reversed(taken))
        self._sizes.extendleft(reversed(sizes))
        self._bytes += sum(sizes)

    def clear(self) -> None:
        """Drop all waiting commands."""
        self._waiting.clear()
        self._sizes.clear()
        self._bytes = 0
        self._gone.clear()


def _busy(waiting: str, limit: str) -> HorologError:
    return refused(
        "broker",
        f"{waiting} wait for the disk already; try again later",
        limit,
        code=ErrorCode.TOO_MANY_REQUESTS,
    )
