"""The golden directories of released formats, opened by this horolog."""

from __future__ import annotations

import zipfile
from pathlib import Path

from horolog.broker.broker import Input
from horolog.broker.life.opening import Opened, ShardMeta, open_shard
from horolog.broker.settings import ShardSettings
from horolog.storage.disk import Disk

GOLDEN = Path(__file__).parents[1] / "golden"
LOG_ID = 0x5EED5EED5EED5EED


def extract(name: str, target: Path) -> Path:
    """Extract a golden directory, to be opened."""
    with zipfile.ZipFile(GOLDEN / name) as archive:
        archive.extractall(target)
    return target


def opened_at(directory: Path, segment_bytes: int, wall_ms: int) -> Opened:
    meta = ShardMeta(LOG_ID, 0, segment_bytes)
    return open_shard(
        Disk(directory), "shard-00", meta, ShardSettings(), wall_ms=wall_ms, mono_ms=0
    )


def ask(opened: Opened, command, wall_ms: int):
    """Run steps until the reply arrives; everything that is appended counts as durable at once."""
    answers = []
    inputs = [Input("token", command)]
    for _ in range(50):
        end = opened.broker.shard.log.end
        effects = opened.broker.step(inputs, wall_ms=wall_ms, mono_ms=0, commit=end, durable=end)
        opened.writer.write(effects.writes)
        answers += [reply.result for reply in effects.prompt + effects.replies]
        inputs = []
    assert len(answers) == 1
    return answers[0]
