"""Files of released format versions keep opening, with the same content."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from golden_files import ask, extract, opened_at

from horolog.broker.life.opening import Opened
from horolog.cli.inspection.files import inspect_file, inspect_tree
from horolog.limits import DAY_MS
from horolog.protocol.commands import (
    CountPending,
    DescribeBroker,
    DescribeGroup,
    FindMessages,
    ListPending,
    Recall,
    Receive,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.storage.disk import Disk
from horolog.testing.sim_broker import properties_of
from horolog.verify.directory import verify_directory

HERE = Path(__file__).parent
START_MS = 1_700_000_000_000
NOW_MS = START_MS + 1_200_000
V2 = json.loads((HERE / "data_v2.json").read_text(encoding="utf-8"))
WAITING = [tuple(row) for row in V2["waiting"]]  # id, topic, due ms; by due ms
# Messages that the consume queues name
KEPT = sorted(each for each in V2["visible"] if not each.startswith("old-"))
V2_KINDS = {
    "commit log segment", "checkpoint", "consume queue", "delay index", "delay log", "hour state",
    "key index chunk", "meta", "run", "run state",
}  # fmt: skip


def received(opened: Opened, topic: str, wall_ms: int) -> dict[int, list[str]]:
    """Ids of everything that a new group gets, by queue."""
    ids: dict[int, list[str]] = {}
    command = Receive("new", topic, -1, "*", 32, 60_000, False, 0, "c")
    while got := ask(opened, command, wall_ms).messages:
        for m in got:
            known = properties_of(m)
            ids.setdefault(m.queue_id, []).append(known["UNIQ_KEY"])
    return ids


def sorted_ids(*by_queue: dict[int, list[str]]) -> list[str]:
    return sorted(m for each in by_queue for ids in each.values() for m in ids)


# --- format 1 ---------------------------------------------------------------------------------------


@pytest.fixture(params=["with checkpoints", "from the log alone"])
def opened(request, tmp_path) -> Opened:
    extract("data_v1.zip", tmp_path)
    if request.param == "from the log alone":
        for path in (tmp_path / "shard-00" / "checkpoint").iterdir():
            path.unlink()
    return opened_at(tmp_path, 65_536, NOW_MS)


def test_format_1_opens_with_everything_in_it(opened) -> None:
    view = ask(opened, DescribeBroker(), NOW_MS)
    assert (view.epoch, view.topics, view.groups) == (2, 1, 1)
    assert (view.pending, view.handed_over, view.recalled) == (37, 2, 1)
    assert view.problems == []
    counts = ask(opened, CountPending(), NOW_MS)
    assert counts.total == 37
    listed = ask(opened, ListPending(0, 1 << 50, limit=1_000), NOW_MS)
    assert [m.message_id for m in listed] == [f"late-{i}" for i in range(2, 39)]
    first = layout.decode(listed[0].layout)
    known = properties.decode(first.properties)
    assert (first.body, known["TAGS"], known["KEYS"], known["n"]) == (b"body 2", "TagA", "k2", "2")
    progress = ask(opened, DescribeGroup("g", "golden"), NOW_MS)
    assert sum(row.leased for row in progress) == 2
    assert sum(row.max_offset for row in progress) == 6
    assert sorted_ids(received(opened, "golden", NOW_MS)) == [
        "late-0",
        "late-1",
        "now-0",
        "now-1",
        "now-2",
        "now-3",
    ]


# --- the formats of the far store -------------------------------------------------------------------


@pytest.fixture(params=["newest checkpoint", "older checkpoint"])
def v2(request, tmp_path) -> Path:
    extract("data_v2.zip", tmp_path)
    if request.param == "older checkpoint":
        max((tmp_path / "shard-00" / "checkpoint").iterdir()).unlink()
    return tmp_path


def open_v2(directory: Path, wall_ms: int = V2["now_ms"]) -> Opened:
    return opened_at(directory, 16_384, wall_ms)


def test_far_store_opens_with_everything_that_waits(v2) -> None:
    now = V2["now_ms"]
    opened = open_v2(v2)
    view = ask(opened, DescribeBroker(), now)
    assert view.problems == []
    assert view.log_start == 98_304
    assert (view.epoch, view.topics, view.groups) == (2, 2, 2)
    assert (view.pending, view.handed_over) == (len(WAITING), V2["handed_over"])
    assert view.recalled == len(V2["recalled"]) + len(V2["moved"])
    listed = ask(opened, ListPending(0, 1 << 50, limit=1_000), now)
    assert sorted((m.message_id, m.topic, m.due_ms) for m in listed) == sorted(WAITING)
    assert [m.due_ms for m in listed] == [due for _, _, due in WAITING]
    for m in listed:
        prefix, _, number = m.message_id.rpartition("-")
        stored = layout.decode(m.layout)
        known = properties.decode(stored.properties)
        assert stored.body == f"body of {m.message_id} ".encode() + bytes(60)
        assert known["TAGS"] == ("TagB" if int(number) % 2 else "TagA")
        assert known["KEYS"] == f"key-{prefix} {int(number) % 3}"
        assert known["n"] == number
    by_topic = Counter(topic for _, topic, _ in WAITING)
    for topic, count in by_topic.items():
        assert ask(opened, CountPending(topic), now).total == count


def test_far_store_has_delivered_what_it_had(v2) -> None:
    now = V2["now_ms"]
    opened = open_v2(v2)
    slow = ask(opened, DescribeGroup("slow", "golden"), now)
    assert [(row.min_offset, row.ack_floor, row.leased) for row in slow] == [
        (30, 30, 5), (30, 30, 0),
    ]  # fmt: skip
    done = ask(opened, DescribeGroup("done", "golden"), now)
    assert [(row.ack_floor, row.next_offset) for row in done] == [(30, 30), (30, 30)]
    got = [received(opened, topic, now) for topic in ("golden", "other")]
    assert sorted_ids(*got) == KEPT


def test_far_store_reports_recalled_moved_and_delivered_messages_correctly(v2) -> None:
    now = V2["now_ms"]
    opened = open_v2(v2)
    states = {"tail-far-1": "recalled", "near-b-20": "recalled", "far0-8": "delivered"}
    for message_id, state in states.items():
        topic = "other" if "tail-far" in message_id else "golden"
        found = ask(opened, FindMessages(topic, message_id), now)
        assert [m.state for m in found] == [state], message_id
    found = ask(opened, FindMessages("golden", "near-b-21"), now)
    assert sorted(m.state for m in found) == ["moved", "pending"]
    by_key = ask(opened, FindMessages("other", key="key-tail-far"), now)
    assert sorted((m.message_id, m.state) for m in by_key) == [
        ("tail-far-0", "pending"), ("tail-far-1", "recalled"), ("tail-far-2", "pending"),
    ]  # fmt: skip
    for message_id, due_ms in V2["moved"].items():
        answer = ask(opened, Recall("golden", message_id, due_ms), now)
        assert answer.status == "NOT_FOUND", message_id
    for message_id, topic, due_ms in WAITING[::7]:
        assert ask(opened, Recall(topic, message_id, due_ms), now).status == "CANCELLED"


def test_far_store_hands_over_all_of_it_in_order(v2) -> None:
    """Every record is verified for that."""
    late = V2["now_ms"] + 3_700 * DAY_MS
    opened = open_v2(v2, late)
    view = ask(opened, DescribeBroker(), late)
    while view.pending:
        before, view = view.pending, ask(opened, DescribeBroker(), late)
        assert view.pending < before
    assert view.problems == []
    got = [received(opened, topic, late) for topic in ("golden", "other")]
    due_of = {message_id: due for message_id, _, due in WAITING}
    assert sorted_ids(*got) == sorted([*KEPT, *due_of])
    for by_queue in got:
        for ids in by_queue.values():
            dues = [due_of.get(message_id, 0) for message_id in ids]
            assert dues == sorted(dues)


def test_far_store_verifies(tmp_path) -> None:
    verdict = verify_directory(Disk(extract("data_v2.zip", tmp_path), read_only=True))
    assert verdict.findings.kept == []
    assert verdict.findings.notes == []
    assert (verdict.log_start, verdict.log_end) == (98_304, 147_051)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("data_v1.zip", V2_KINDS - {"key index chunk", "meta", "run", "run state"}),
        ("data_v2.zip", V2_KINDS),
    ],
)
def test_every_file_can_be_inspected(tmp_path, name, kinds) -> None:
    reports = list(inspect_tree(extract(name, tmp_path)))
    assert {report.kind for report in reports} == kinds
    for report in reports:
        assert report.problems == [], report.path
        assert inspect_file(Path(report.path), limit=3, show_records=True).problems == []


def test_far_store_has_all_the_records(tmp_path) -> None:
    """Below the checkpoint and after it, so that a later horolog reads them in a replay."""
    extract("data_v2.zip", tmp_path)
    path = tmp_path / "shard-00" / "log" / f"{131_072:020d}.log"
    rows = inspect_file(path, limit=1_000, show_records=True).rows
    newest = 143_846
    for part in (
        [row[1] for row in rows if int(str(row[0])) < newest],
        [row[1] for row in rows if int(str(row[0])) >= newest],
    ):
        assert {"SCHEDULED", "HAND_OVER", "HANDED", "RECALL", "RECALL_MANY"} <= set(part)
