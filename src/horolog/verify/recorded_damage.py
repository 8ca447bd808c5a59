"""Damage that the broker has recorded: `verify` is not clean while `/healthz` is red.

A directory that a start has set aside, with lost messages, is a finding until it is removed.  The
problems that the newest checkpoint lists are notes when there are findings, which are usually about
the same damage; if there are no other findings, the problems themselves are findings.
"""

from __future__ import annotations

from horolog.broker.life.early_end import early_end
from horolog.broker.life.quarantine import read_notes
from horolog.broker.problems import problems_in
from horolog.delay.damage import ASIDE
from horolog.log.checkpoint import Checkpoint, checkpoint_name
from horolog.verify.reading import Reading


def find_early_end(reading: Reading, shard: str, log_id: int, end: int) -> None:
    """Add a finding, as a start reports it, if messages were filed from beyond the log's end."""
    with reading.part(f"{shard}/log"):
        for problem in early_end(reading.storage, shard, log_id, end, now_ms=0):
            reading.findings.add(f"{shard}/log", end, problem.text)


def report_recorded_damage(reading: Reading, shard: str, newest: Checkpoint | None) -> None:
    """Add findings and notes, once everything else has been read."""
    with reading.part(shard):
        for note in read_notes(reading.storage, shard):
            text = f"set aside by a start, and not read: {note.problem().text}"
            if note.lost:
                reading.findings.add(note.place, 0, text)
            else:
                reading.findings.note(text)
    if newest is None:
        return
    is_clean = not reading.findings.count
    for problem in problems_in(newest.registry.get("problems", {})):
        gone = problem.part and not reading.storage.exists(problem.part)
        if gone or ASIDE in problem.part:
            continue
        text = f"met by the broker: {problem.text}"
        if is_clean:
            path = f"{shard}/checkpoint/{checkpoint_name(newest.position)}"
            reading.findings.add(problem.part or path, 0, text)
        else:
            reading.findings.note(text)
