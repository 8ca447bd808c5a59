"""Commands that wait for a turn, bounded by number and by bytes.

Turns wait for the disk when it is behind (`UNSYNCED_BYTES_MAX`), and commands for turns.  What would be too much is
refused at once: clients wait and try again.  Whatever settles or takes back what was accepted before (acks, recalls,
signs of life) has as many places again for itself, so that it goes on when sends do not.
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
    """What it carries of messages."""
    if isinstance(command, SendMessages):
        return command.size_bytes
    if isinstance(command, Adopt):
        return sum(map(len, command.records))
    return 0


class Inputs:
    """First in, first out; but a receive whose caller goes while it waits here is decided by nobody."""

    def __init__(self, *, count_max: int = INPUTS_MAX, bytes_max: int = INPUTS_BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiting: deque[Input] = deque()
        self._sizes: deque[int] = deque()  # of each in `_waiting`
        self._bytes = 0
        self._gone: set[object] = set()  # tokens of receives whose callers have gone

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[Input]:
        """The oldest first."""
        return iter(self._waiting)

    @property
    def message_bytes(self) -> int:
        """What they carry of messages."""
        return self._bytes

    def put(self, item: Input) -> HorologError | None:
        """Let a command wait, or give why not (TOO_MANY_REQUESTS)."""
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
                return None  # not more of them than receives
            places = 2 * self._count_max if isinstance(command, _SETTLING) else self._count_max
            if count >= places:
                return _busy(f"{count} requests", f"{places} requests")
        # One that is larger than the bound by itself is taken when no other message waits.
        if size and self._bytes and self._bytes + size > self._bytes_max:
            waiting = f"{self._bytes // MIB} MiB of messages"
            return _busy(waiting, f"{self._bytes_max} bytes")
        return None

    def take(self, most: int) -> list[Input]:
        """The oldest, at most so many."""
        count = min(len(self._waiting), most)
        self._bytes -= sum([self._sizes.popleft() for _ in range(count)])
        assert self._bytes >= 0
        taken = [self._waiting.popleft() for _ in range(count)]
        return self._without_gone(taken) if self._gone else taken

    def _without_gone(self, taken: list[Input]) -> list[Input]:
        """Without receives that nobody waits for: a lease for them would be nobody's."""
        wanted = []
        for item in taken:
            if isinstance(item.command, Receive | Pull) and item.token in self._gone:
                continue
            if isinstance(item.command, CancelReceive):
                self._gone.discard(item.command.token)
            wanted.append(item)
        return wanted

    def put_back(self, taken: list[Input]) -> None:
        """What was taken is the oldest again."""
        sizes = [_bytes_of(item.command) for item in taken]
        self._waiting.extendleft(reversed(taken))
        self._sizes.extendleft(reversed(sizes))
        self._bytes += sum(sizes)

    def clear(self) -> None:
        """Forget them."""
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
