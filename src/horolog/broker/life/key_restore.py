"""Restore the key index at a start; rebuild it from the log if its files cannot be used."""

from __future__ import annotations

from horolog.broker.life.replay import index_frame
from horolog.broker.shard import Shard
from horolog.errors import Problem
from horolog.log.checkpoint import Checkpoint
from horolog.log.scan import Identity, SalvageScan
from horolog.log.segment import SegmentReader, segment_name


def restore_keys(
    shard: Shard, used: Checkpoint | None, log_start: int, reader: SegmentReader, identity: Identity
) -> list[str]:
    """Restore the key index up to the checkpoint in use; return sentences for the operator.

    used       None: replay begins where the log does, and adds all rows
    log_start  base of the first segment
    """
    if used is None:
        shard.key_index.clear()
        return []
    why = "it was not kept by an older horolog"
    if "keys" in used.registry:
        why = shard.key_index.restore(used.registry["keys"], shard.log.start)
    if not why:
        return []
    report = [f"the key index is rebuilt from the commit log: {why}"]
    shard.key_index.clear()
    start = max(log_start, shard.log.start)
    scan = SalvageScan(reader, identity, start=start, stop=used.position)
    for header, body in scan.frames():
        index_frame(shard, header, body)
    for first, end in scan.gaps:
        text = f"the key index lacks log positions {first} to {end}: damaged"
        segment = segment_name(first - first % reader.segment_bytes)
        shard.problems.append(Problem(text, f"{shard.directory}/log/{segment}"))
        report.append(text)
    return report
