"""The bytes of a file on a faulty disk: durable, as a process sees them, and after a power cut.

A file is its durable content and the list of changes since the last sync, which applied in order
give the content that a process sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

SECTOR = 512  # bytes; a torn write leaves whole sectors


@dataclass
class _Change:
    """One un-synced change: bytes at an offset, or a new length (`content` None)."""

    offset: int
    content: bytes | None


@dataclass
class Inode:
    """One file.  `doubtful`: a sync failed, and the changes un-synced then may be lost for good."""

    durable: bytearray = field(default_factory=bytearray)
    durable_size: int = 0
    seen: bytearray = field(default_factory=bytearray)
    size: int = 0  # may be beyond len(seen): the rest reads as zeros
    changes: list[_Change] = field(default_factory=list)
    doubtful: bool = False

    def put(self, offset: int, piece: bytes) -> None:
        """Write bytes at an offset."""
        self.changes.append(_Change(offset, piece))
        _put(self.seen, offset, piece)
        self.size = max(self.size, offset + len(piece))

    def resize(self, size: int) -> None:
        """Cut or extend the file."""
        self.changes.append(_Change(size, None))
        self.size = size
        del self.seen[size:]

    def sync(self) -> None:
        """Make the seen content durable, unless a sync has failed before."""
        if self.changes and not self.doubtful:
            self.durable = bytearray(self.seen)
            self.durable_size = self.size
            self.changes = []

    def flip(self, offset: int, bit: int) -> None:
        """Flip one bit of the stored content."""
        for content in (self.seen, self.durable):
            if offset < len(content):
                content[offset] ^= 1 << bit

    def cut_power(self, random: Random) -> None:
        """Keep, drop or tear each un-synced change at random."""
        content, size = bytearray(self.durable), self.durable_size
        for change in self.changes:
            fate = random.random()
            if change.content is None:
                if fate < 0.5:
                    size = change.offset
                    del content[size:]
                continue
            if fate < 0.3:
                continue
            piece = change.content
            if fate < 0.6:
                _tear(random, content, change.offset, piece)
            else:
                _put(content, change.offset, piece)
            size = max(size, min(len(content), change.offset + len(piece)))
        self.durable, self.durable_size = content, size
        self.seen, self.size = bytearray(content), size
        self.changes, self.doubtful = [], False


def _put(content: bytearray, offset: int, piece: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(piece)] = piece


def _tear(random: Random, content: bytearray, offset: int, piece: bytes) -> None:
    """Write some of the sectors of a piece."""
    at = 0
    while at < len(piece):
        stop = min(len(piece), (offset + at) // SECTOR * SECTOR + SECTOR - offset)
        if random.random() < 0.5:
            _put(content, offset + at, piece[at:stop])
        at = stop
