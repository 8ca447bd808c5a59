"""Files of released format versions keep opening, with the same content."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from horolog.broker.broker import Input
from horolog.broker.opening import Opened, ShardMeta, open_shard
from horolog.broker.shard import Settings
from horolog.protocol.commands import (
    CountPending,
    DescribeBroker,
    DescribeGroup,
    ListPending,
    Receive,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.storage.disk import Disk

START_MS = 1_700_000_000_000
NOW_MS = START_MS + 1_200_000


def ask(opened: Opened, command, wall_ms: int = NOW_MS):
    """Steps until the reply is there; everything that is appended counts as durable at once."""
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


@pytest.fixture(params=["with checkpoints", "from the log alone"])
def opened(request, tmp_path) -> Opened:
    with zipfile.ZipFile(Path(__file__).with_name("data_v1.zip")) as archive:
        archive.extractall(tmp_path)
    if request.param == "from the log alone":
        for path in (tmp_path / "shard-00" / "checkpoint").iterdir():
            path.unlink()
    return open_shard(
        Disk(tmp_path),
        "shard-00",
        ShardMeta(0x5EED5EED5EED5EED, 0, 65_536),
        Settings(),
        wall_ms=NOW_MS,
        mono_ms=0,
    )


def test_format_1_opens_with_everything_in_it(opened) -> None:
    view = ask(opened, DescribeBroker())
    assert (view.epoch, view.topics, view.groups) == (2, 1, 1)
    assert (view.pending, view.handed_over, view.recalled) == (37, 2, 1)
    assert view.problems == []
    counts = ask(opened, CountPending())
    assert counts.total == 37
    listed = ask(opened, ListPending(0, 1 << 50, limit=1_000))
    assert [m.message_id for m in listed] == [f"late-{i}" for i in range(2, 39)]
    first = layout.decode(listed[0].layout)
    known = properties.decode(first.properties)
    assert (first.body, known["TAGS"], known["KEYS"], known["n"]) == (b"body 2", "TagA", "k2", "2")
    progress = ask(opened, DescribeGroup("g", "golden"))
    assert sum(row.leased for row in progress) == 2
    assert sum(row.max_offset for row in progress) == 6
    got = ask(opened, Receive("new", "golden", -1, "*", 32, 60_000, False, 0, "c")).messages
    ids = [properties.decode(layout.decode(m.layout).properties)["UNIQ_KEY"] for m in got]
    assert sorted(ids) == ["late-0", "late-1", "now-0", "now-1", "now-2", "now-3"]
