"""What `meta` must say, derived from the log and the checkpoints of a stopped shard.

It is used to repair or salvage `meta`.  Nothing else in a data directory says these things alone,
so damage to `meta` refuses every start.  All of its fields follow from the rest: each frame and
checkpoint has the log id, segments are as long as they are allocated, and only a simulated clock
leaves a file `clock`, once it was moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from horolog.errors import ErrorCode, refused
from horolog.limits import SEGMENT_BYTES
from horolog.log.checkpoint import decode_checkpoint
from horolog.log.frame import HEADER_BYTES, MAGIC, body_intact, parse
from horolog.log.segment import bases_on_disk, segment_name
from horolog.storage.api import Storage, replace_file
from horolog.storage.meta import FORMAT, META, Meta, check_format, encode_meta, parse_meta
from horolog.storage.sectors import read_around, read_if_any

_LOOK_BYTES = 4 << 20  # that are searched at the beginning of each segment


def derive_meta(storage: Storage, directory: str) -> Meta | None:
    """Derive `meta` from the files of a shard; None if incomplete or contradictory."""
    place = f"{directory}/log"
    bases = bases_on_disk(storage, place)
    if not bases:
        return None
    sizes, ids = [], set(_ids_of_checkpoints(storage, directory))
    for base in bases:
        file = storage.open(f"{place}/{segment_name(base)}")
        try:
            sizes.append(file.size())
            ids |= _first_id(read_around(file, 0, min(_LOOK_BYTES, sizes[-1])), base)
        finally:
            file.close()
    # A single segment may be too short, because the disk was full.
    segment_bytes = min((b - a for a, b in pairwise(bases)), default=SEGMENT_BYTES)
    is_size = max(sizes) == segment_bytes and not any(base % segment_bytes for base in bases)
    if len(ids) != 1 or not is_size:
        return None
    clock = "simulated" if storage.exists("clock") else "system"
    return Meta(FORMAT, ids.pop(), 1, clock, segment_bytes)


def _ids_of_checkpoints(storage: Storage, directory: str) -> Iterator[int]:
    place = f"{directory}/checkpoint"
    for name in storage.list(place):
        checkpoint = decode_checkpoint(read_if_any(storage, f"{place}/{name}"))
        if checkpoint is not None:
            yield checkpoint.log_id


def _first_id(content: bytes, base: int) -> set[int]:
    """Return the log id of the first intact frame in its place in a segment, if any."""
    at = content.find(MAGIC)
    while at >= 0:
        header = parse(content, at)
        if header is not None and header.base == base + at and not header.padding:
            body = content[at + HEADER_BYTES : at + HEADER_BYTES + header.length]
            if body_intact(header, body):
                return {header.log_id}
        at = content.find(MAGIC, at + 1)
    return set()


def repair_meta(storage: Storage, directory: str) -> bool:
    """Write `meta` again if one bit differs from log and checkpoints; return whether it did."""
    derived = derive_meta(storage, directory)
    if derived is None:
        return False
    right, found = encode_meta(derived), read_if_any(storage, META)
    flipped = int.from_bytes(right, "big") ^ int.from_bytes(found, "big")
    if len(found) != len(right) or flipped.bit_count() != 1:
        return False
    replace_file(storage, "", META, right)
    return True


def salvaged_meta(storage: Storage, directory: str) -> tuple[Meta, str]:
    """Return what `meta` must say, and why it has to be written again; "" if it says so already.

    Raise DAMAGED if neither `meta` nor the files beside it say so; VERSION_UNSUPPORTED.
    """
    derived = derive_meta(storage, directory)
    try:
        written = parse_meta(read_if_any(storage, META))
    except ValueError as error:
        why = f"meta cannot be read ({error})" if storage.exists(META) else "meta is gone"
        if derived is None:
            raise refused(
                "DIR",
                f"{why}, and the log does not say what was in it",
                code=ErrorCode.DAMAGED,
            ) from error
        return derived, why
    check_format(written, "DIR")
    if derived is not None and written.clock == "simulated":
        # If it was never moved, there is no file.
        derived = derived._replace(clock=written.clock)
    if derived is None or written[1:] == derived[1:]:
        return written, ""
    return derived, "meta says something else than all of the log and its checkpoints"
