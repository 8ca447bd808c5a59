"""The search for the next frame after damage: by its magic, position, log id and check sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from horolog.log.flipped_frame import flipped_frame
from horolog.log.frame import HEADER_BYTES, MAGIC, FrameHeader, body_intact, check_version, parse

_CHUNK = 4 << 20


def intact_frame(
    read: Callable[[int, int], bytes], log_id: int, at: int
) -> tuple[FrameHeader, bytes] | None:
    """Read the frame at `at` with its body; None if it is not intact.

    VERSION_UNSUPPORTED if a newer horolog wrote it.
    """
    header = parse(read(at, HEADER_BYTES))
    if header is None or header.base != at or header.log_id != log_id:
        return None
    check_version(header)
    body = b"" if header.padding else read(at + HEADER_BYTES, header.length)
    return (header, body) if body_intact(header, body) else None


def frame_at(
    read: Callable[[int, int], bytes], log_id: int, at: int, stop: int
) -> tuple[FrameHeader, bytes] | None:
    """Read the frame at `at`, which ends by `stop`, repairing a flipped bit; None if damaged."""
    found = intact_frame(read, log_id, at)
    if found is None and (flipped := flipped_frame(read, log_id, at, stop)) is not None:
        return flipped.header, flipped.body
    return found


def next_frame(
    read: Callable[[int, int], bytes], log_id: int, at: int, stop: int
) -> FrameHeader | None:
    """Find the first intact frame in [at, stop), a range within one segment; None if there is none.

    A frame that a client forged inside a body would have to name its own log position and the
    random id of this log.
    """
    for header in headers_in(read, at, stop):
        if header.end <= stop and intact_frame(read, log_id, header.base) is not None:
            return header
    return None


def headers_in(
    read: Callable[[int, int], bytes | memoryview], at: int, stop: int
) -> Iterator[FrameHeader]:
    """Yield the intact headers in [at, stop) of one segment that name their own log position."""
    while at + HEADER_BYTES <= stop:
        chunk = bytes(read(at, min(_CHUNK, stop - at)))
        if len(chunk) < HEADER_BYTES:
            return
        found = chunk.find(MAGIC)
        while found >= 0:
            header = parse(read(at + found, HEADER_BYTES))
            if header is not None and header.base == at + found:
                yield header
            found = chunk.find(MAGIC, found + 1)
        at += len(chunk) - len(MAGIC) + 1
