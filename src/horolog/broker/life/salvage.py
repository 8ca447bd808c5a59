"""Salvage of a stopped shard: find what of its log must be given up (`log.salvage`)."""

from __future__ import annotations

from collections.abc import Callable

from horolog.broker.life import retention
from horolog.broker.life.facts import ShardMeta, gather
from horolog.errors import ErrorCode, refused
from horolog.log.salvage import SALVAGED_DIR, Lost, Plan, carry_out, plan
from horolog.log.scan import Identity
from horolog.log.segment import bases_on_disk, segment_name
from horolog.storage.api import Storage, replace_file
from horolog.storage.meta import META, Meta, encode_meta
from horolog.storage.sectors import read_around, read_if_any


def survey(
    storage: Storage,
    directory: str,
    meta: ShardMeta,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> Plan:
    """Return what a salvage would give up; nothing is changed.

    Raise NOT_FOUND if there is no log; DAMAGED if a salvage is of no help: the beginning of the log
    is gone and no checkpoint is valid, or a file in `log/` is none of its segments.
    """
    facts = gather(storage, directory, meta, [])
    place = f"{directory}/log"
    start = retention.start_of(facts.checkpoints[0]) if facts.checkpoints else None
    bases = [base for base in bases_on_disk(storage, place) if base >= (start or 0)]
    if not bases:
        raise refused("DIR", "there is no commit log to salvage", code=ErrorCode.NOT_FOUND)
    if misnamed := [base for base in bases if base % meta.segment_bytes]:
        raise refused(
            "DIR", f"{place} has no segment that begins at {misnamed[0]}", code=ErrorCode.DAMAGED
        )
    if not facts.checkpoints and bases[0]:
        raise refused(
            "DIR",
            f"the log begins at {bases[0]} and no checkpoint is valid; only a backup helps",
            code=ErrorCode.DAMAGED,
        )
    return plan(
        storage,
        place,
        Identity(meta.log_id, meta.shard),
        meta.segment_bytes,
        start=bases[0] if start is None else start,
        covered=facts.covered,
        epoch=max((checkpoint.epoch for checkpoint in facts.checkpoints), default=1),
        report=report,
    )


def bytes_of(storage: Storage, directory: str, meta: ShardMeta, lost: Lost, length: int) -> bytes:
    """Read the first `length` bytes of a lost stretch, as far as they are there."""
    base = lost.first - lost.first % meta.segment_bytes
    path = f"{directory}/log/{segment_name(base)}"
    if not storage.exists(path):
        return b""
    segment = storage.open(path)
    try:
        return read_around(segment, lost.first - base, min(length, lost.stop - lost.first))
    finally:
        segment.close()


def write_meta(storage: Storage, directory: str, meta: Meta) -> None:
    """Write a `meta` where it is damaged or missing, and keep a damaged one.

    Both are durable on return.
    """
    if storage.exists(META):
        kept = f"{directory}/{SALVAGED_DIR}"
        storage.make_dir(kept)
        storage.sync_dir(directory)
        replace_file(storage, kept, META, read_if_any(storage, META))
    replace_file(storage, "", META, encode_meta(meta))


def salvage(storage: Storage, directory: str, meta: ShardMeta, found: Plan) -> None:
    """Give up what a survey has found; durable on return."""
    for lost in found.lost:
        carry_out(storage, directory, Identity(meta.log_id, meta.shard), meta.segment_bytes, lost)
