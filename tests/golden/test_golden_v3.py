"""The files of the first horolog in which groups commit offsets keep opening, with the same content."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_files import ask, extract, opened_at

from horolog.broker.life.opening import Opened
from horolog.cli.inspection.files import inspect_file, inspect_tree
from horolog.errors import ErrorCode, HorologError
from horolog.protocol.commands import (
    DescribeBroker,
    DescribeGroup,
    DescribeTopic,
    FindMessages,
    ListTopics,
    TopicSettings,
)
from horolog.protocol.queue_commands import (
    GetOffsets,
    GroupSettings,
    ListGroups,
    Pull,
    PullStatus,
    PutGroup,
)
from horolog.storage.disk import Disk
from horolog.verify.directory import verify_directory

NOW_MS = 1_810_000_001_000
PARTS = ("below", "behind")
# floor, next offset and leases in both queues of the groups that went back in the first
WENT_BACK = {"below": [(4, 4, 0), (0, 10, 6)], "behind": [(4, 4, 0), (0, 20, 20)]}


@pytest.fixture(params=["newest checkpoint", "older checkpoint", "from the log alone"])
def opened(request, tmp_path) -> Opened:
    extract("data_v3.zip", tmp_path)
    kept = sorted((tmp_path / "shard-00" / "checkpoint").iterdir())
    gone = {"newest checkpoint": [], "older checkpoint": kept[1:], "from the log alone": kept}
    for path in gone[request.param]:
        path.unlink()
    return opened_at(tmp_path, 65_536, NOW_MS)


def test_topics_with_their_settings(opened) -> None:
    topics = {view.name: view for view in ask(opened, ListTopics(), NOW_MS)}
    wanted = {f"{kind}-{part}" for kind in ("settings", "changed") for part in PARTS}
    assert set(topics) == {"golden", *wanted}
    for part in PARTS:
        view = topics[f"settings-{part}"]
        assert (view.queues, view.read_queues, view.write_queues) == (3, 3, 2)
        assert view.settings == TopicSettings(4, True, 3, 2, {"of": part})
        view = topics[f"changed-{part}"]
        assert (view.queues, view.settings) == (2, TopicSettings(2))
    assert ask(opened, DescribeBroker(), NOW_MS).problems == []


def test_a_deleted_topic_is_gone_and_its_id_is_not_given_again(opened) -> None:
    refused = ask(opened, DescribeTopic("again"), NOW_MS)
    assert isinstance(refused, HorologError)
    assert refused.code is ErrorCode.TOPIC_NOT_FOUND
    assert opened.broker.shard.topics.last == 8
    assert isinstance(ask(opened, FindMessages("again", "second-0"), NOW_MS), HorologError)


def test_groups_with_their_settings(opened) -> None:
    groups = {view.name: view for view in ask(opened, ListGroups(), NOW_MS)}
    assert set(groups) == {f"{kind}-{p}" for kind in ("forward", "back", "settings") for p in PARTS}
    for part in PARTS:
        settings = groups[f"settings-{part}"].settings
        fields = {"brokerId": 0, "of": part}
        assert settings == GroupSettings(orderly=True, retry_max=7, attributes=fields)
        assert groups[f"forward-{part}"].settings == GroupSettings()
        assert groups[f"forward-{part}"].topics == ["golden"]
    ask(opened, PutGroup("new"), NOW_MS)
    assert opened.broker.shard.ready.groups.ids["new"] == 9


def test_offsets(opened) -> None:
    for part in PARTS:
        assert ask(opened, GetOffsets(f"forward-{part}", "golden"), NOW_MS) == {0: 5, 1: 3}
        rows = ask(opened, DescribeGroup(f"back-{part}", "golden"), NOW_MS)
        assert [(row.ack_floor, row.next_offset, row.leased) for row in rows] == WENT_BACK[part]
    found = ask(opened, Pull("golden", 0, 0, 100, 1 << 20, "*", 0), NOW_MS)
    assert (found.status, len(found.layouts)) == (PullStatus.FOUND, 21)


def test_the_directory_verifies(tmp_path) -> None:
    path = extract("data_v3.zip", tmp_path)
    verdict = verify_directory(Disk(path, read_only=True))
    assert verdict.findings.kept == []
    for report in inspect_tree(path):
        assert report.problems == [], report.path
        assert inspect_file(Path(report.path), limit=3, show_records=True).problems == []
