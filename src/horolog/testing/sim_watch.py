"""Checker of the promises that reads every frame a step appends, and does not ask the core."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from horolog.log.control_records import IS_EXPIRED
from horolog.log.controls import read_control
from horolog.log.frame import HEADER_BYTES, parse
from horolog.log.record import ENVELOPE_BYTES, FLAGS_AT, KIND_AT, Kind
from horolog.log.segment import Write
from horolog.testing.sim_checks import broken

_SIZE_KIND = struct.Struct("<IB")
_DUE = struct.Struct("<q")
_KEY = struct.Struct("<Q")
_KEY_AT = 24
_VISIBLE = frozenset({1, 4})  # MESSAGE, HANDED
_MESSAGES = frozenset({1, 2, 4})  # _VISIBLE and SCHEDULED


class Frame(NamedTuple):
    """A frame as written: log positions, and key hash → position of its messages, half ones too."""

    base: int
    end: int
    durable: int
    keys: dict[int, int]


class HandOverWatch:
    """P1 at the source: no message is appended as visible before its due time, by the step's clock.

    `positions` has the log position of each visible message by key hash, to tell what retention may
    have dropped. `frames` are all frames that were written, in order.
    """

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.frames: list[Frame] = []
        # Origin of a message that was too late → position of the record that says so
        self.expired: dict[tuple[int, int], int] = {}

    def new_life(self, end: int, head_at: Callable[[int], bytes]) -> None:
        """Note that a process has begun; `end` is where the log of earlier lives ends now.

        head_at  returns the first bytes of a record in the present log: a record that a power cut
                 has torn may have been overwritten by a process that was killed while it started
        """
        self.positions = {key: at for key, at in self.positions.items() if at < end}
        self.expired = {
            origin: at
            for origin, at in self.expired.items()
            if at < end and _is_expiry(head_at(at))
        }
        while self.frames and self.frames[-1].base >= end:
            self.frames.pop()

    def see(self, writes: Sequence[Write], wall_ms: int) -> None:
        """Check the writes of one step."""
        for write in writes:
            header = parse(bytes(write.content))
            if header is not None:
                self.frames.append(Frame(header.base, header.end, header.durable, {}))
            elif self.frames and write.position == self.frames[-1].base + HEADER_BYTES:
                self._see_body(write.position, bytes(write.content), wall_ms)

    def _see_body(self, position: int, content: bytes, wall_ms: int) -> None:
        keys = self.frames[-1].keys
        at = 0
        while at + 16 <= len(content):
            size, kind = _SIZE_KIND.unpack_from(content, at)
            due_ms = _DUE.unpack_from(content, at + 8)[0]
            if _is_expiry(content[at : at + 16]):
                ended = read_control(content, at, position + at).ended()
                assert ended is not None
                origins = ended.origins[["position", "row"]].tolist()
                self._see_expired(position + at, origins)
            if kind in _VISIBLE and due_ms > wall_ms:
                raise broken("P1", f"due {due_ms} handed over at {wall_ms}")
            if kind == Kind.HALF:
                keys[_KEY.unpack_from(content, at + ENVELOPE_BYTES + _KEY_AT)[0]] = position + at
            if kind in _MESSAGES and size >= _KEY_AT + _KEY.size:
                key = _KEY.unpack_from(content, at + _KEY_AT)[0]
                keys[key] = position + at
                if kind in _VISIBLE:
                    self.positions[key] = position + at
            at += size

    def _see_expired(self, position: int, origins: list[tuple[int, int]]) -> None:
        for origin in origins:
            if origin in self.expired:
                raise broken("P3", f"the message at {origin} was too late twice")
            self.expired[origin] = position


def _is_expiry(head: bytes) -> bool:
    """Return whether a record says that messages were too late; True if its segment is gone."""
    if not head:
        return True
    return head[KIND_AT] == Kind.RECALL_MANY and bool(head[FLAGS_AT] & IS_EXPIRED)
