"""The audit finds every fault that is put into a log, and none in a clean one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from adopted_runs import stage
from audited import START_MS, Made, Surgery, make_directory, message, open_directory

from horolog.limits import HOUR_MS
from horolog.log.record import Kind
from horolog.pipeline.audit import audit
from horolog.pipeline.audit_report import audit_page, overall, sentence
from horolog.pipeline.forecast import forecast
from horolog.protocol.commands import Ack, CreateTopic, Receive, SendMessages, TopicType
from horolog.protocol.queue_commands import PutGroup
from horolog.protocol.retry_commands import SendBack
from horolog.protocol.rocketmq import layout

MESSAGES = 300


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> tuple[Path, Made]:
    """A directory that a broker has written and closed."""
    path = tmp_path_factory.mktemp("audit") / "data"
    return path, asyncio.run(make_directory(path, MESSAGES))


def test_a_clean_log_has_no_fault(spark, clean, tmp_path):
    path, made = clean
    (tmp_path / "findings.parquet").mkdir()  # as an audit leaves it that has found something
    (tmp_path / "findings.parquet" / "part-0.parquet").touch()
    result = audit(spark, path, out=tmp_path)
    assert (result.faults, result.counts, result.overdue) == (0, {}, 0)
    assert result.total("scheduled") == MESSAGES + made.moved
    assert result.total("handed_over") == made.handed_over > 50
    assert result.total("recalled") == made.recalled
    assert result.total("moved") == made.moved
    settled = made.handed_over + made.recalled + made.moved
    assert result.total("scheduled") - settled == made.pending
    assert "No fault" in sentence(result)
    assert overall(result)[3] < 1_000
    by_hour = pq.read_table(tmp_path / "lateness.parquet").to_pylist()
    assert sum(row["hand_overs"] for row in by_hour) == made.handed_over
    assert {row["topic"] for row in by_hour} == {"calls", "mails"}
    funnel = {(row["group"], row["attempt"]): row["messages"] for row in result.funnel.to_pylist()}
    assert funnel["gates", 0] == 15
    assert funnel["gates", 1] >= 24
    assert funnel["gates", 2] >= 1
    assert pq.read_table(tmp_path / "findings.parquet").num_rows == 0


def test_every_fault_is_found_and_named(spark, clean, tmp_path):
    path, made = clean
    copy = tmp_path / "copy"
    with Surgery(path, copy) as log:
        handed = log.records(Kind.HANDED)
        now = log.newest_ms
        fields = {"lost": handed[3], "early": handed[11], "late": handed[17]}
        log.blank(handed[3])  # a hand-over of which only the control record is left
        log.store_at(handed[11], handed[11].due_ms - 1)
        log.store_at(handed[17], handed[17].due_ms + 3_600_000)
        twice = handed[23]
        log.hand_over(twice, log.hand_over_of(twice)[0], now + 5)
        unplanned = handed[31]
        (schedule,) = [
            each
            for each in log.records(Kind.SCHEDULED)
            if each.position == log.hand_over_of(unplanned)[0]
        ]
        log.blank(schedule)
        recalled = [each for each in log.records(Kind.RECALL) if each.due_ms < now][-1]
        origin = int.from_bytes(recalled.content[32:40], "little")
        (gone,) = [each for each in log.records(Kind.SCHEDULED) if each.position == origin]
        log.hand_over(gone, origin, now + 6)
    result = audit(spark, copy)
    rows = {row["fault"]: row for row in result.findings.to_pylist()}
    assert result.counts == {
        "lost": 1,
        "duplicate": 1,
        "early": 1,
        "late": 3,  # what was put at the end of the log is late as well
        "never_scheduled": 1,
        "after_recall": 1,
    }
    assert rows["lost"]["due_ms"] == fields["lost"].due_ms
    assert rows["early"]["late_ms"] == -1
    assert rows["duplicate"]["hand_overs"] == 2
    assert rows["duplicate"]["message_id"].startswith("01AA")
    assert rows["never_scheduled"]["position"] == unplanned.position
    assert rows["after_recall"]["origin"] == origin
    assert {row["topic"] for row in rows.values()} <= {"calls", "mails"}
    page = audit_page(result)
    assert "handed over twice" in page
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert made.handed_over > 0


def test_a_bad_frame_and_a_message_id_twice_are_faults(spark, clean, tmp_path):
    path, _ = clean
    copy = tmp_path / "copy"
    with Surgery(path, copy) as log:
        handed = log.records(Kind.HANDED)
        pending = [each for each in log.records(Kind.SCHEDULED) if each.due_ms > log.newest_ms]
        log.hand_over(pending[0], pending[0].position, log.newest_ms + 7)
        changed = bytearray(handed[5].content)
        changed[24:32] = handed[6].key  # says that it is another message
        log.put(handed[5].position, bytes(changed))
        log.flip(log.records(Kind.GRANT)[0].position + 20)
    result = audit(spark, copy)
    assert result.damaged
    assert result.counts["early"] == 1
    assert result.counts["altered"] == 1
    assert result.counts["duplicate_id"] == 1


def test_what_is_due_after_the_window_is_left_out(spark, clean):
    path, made = clean
    part = audit(spark, path, from_ms=START_MS, to_ms=START_MS + 30 * 60_000)
    assert 0 < part.total("handed_over") < made.handed_over
    assert part.faults == 0


def test_a_killed_broker_has_lost_nothing(spark, clean, tmp_path):
    """Without its checkpoint, and without the last hand-overs: the next start does them."""
    path, _ = clean
    copy = tmp_path / "copy"
    with Surgery(path, copy) as log:
        control = log.records(Kind.HAND_OVER)[-1]
        last = [each for each in log.records(Kind.HANDED) if each.position > control.position]
        for each in [control, *last]:
            log.blank(each)
    for part in ("checkpoint", "hours", "runs"):
        for file in sorted((copy / "shard-00" / part).rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
    result = audit(spark, copy)
    assert (result.faults, result.overdue) == (0, len(last))


def _adopt(broker, rows: int) -> None:
    """One bulk load of files, too large to go into the log; half of it is due within an hour."""
    begun = broker.admin.post(
        "/v1/adoptions/begin", {"app": "load", "version": 1, "topic": "calls"}
    )
    now = begun["now_ms"]
    messages = [
        message("calls", n, now + (1_000 + n % 20 * 60_000) * (1 + 500 * (n % 2)), bytes(4_500))
        for n in range(rows)
    ]
    files = [stage(begun, name, messages[first::2]) for first, name in enumerate("ab")]
    body = {"app": "load", "version": 1, "topic": "calls", "token": begun["token"]}
    done = broker.admin.post("/v1/adoptions/commit", {**body, "files": files})
    assert done["files"] == 2


def test_adopted_runs_are_schedules(spark, broker, tmp_path):
    broker.create_topic("calls")
    _adopt(broker, 2_000)
    before = forecast(spark, broker.data_dir)
    assert before.total == broker.pending() == 2_000
    broker.advance("2h")
    live = audit(spark, broker.data_dir)
    assert (live.faults, live.overdue) == (0, 0)
    assert live.total("adopted") == 2_000
    assert live.total("handed_over") == 1_000
    assert forecast(spark, broker.data_dir).total == broker.pending() == 1_000
    broker.stop()
    with Surgery(broker.data_dir, tmp_path / "copy") as log:
        handed = log.records(Kind.HANDED)
        position, row = log.hand_over_of(handed[9])
        log.blank(handed[7])
        log.hand_over(handed[9], position, log.newest_ms, row)
    found = audit(spark, tmp_path / "copy", late_ms=1 << 40)
    assert found.counts == {"lost": 1, "duplicate": 1}


def test_attempts_of_a_message_are_no_duplicates(spark, tmp_path):
    """All have the id of the message, and each was scheduled and handed over."""

    async def fail_three_times() -> None:
        engine = await open_directory(tmp_path / "data")
        await engine.submit(CreateTopic("calls", TopicType.MIXED, 1))
        await engine.submit(PutGroup("g"))
        await engine.submit(SendMessages("calls", [message("calls", 1, START_MS + 1_000)]))
        for topic in ("calls", "%RETRY%g", "%RETRY%g"):
            await engine.advance(HOUR_MS)
            received = await engine.submit(Receive("g", topic, -1, "*", 1, 10_000, False, 0, "c"))
            await engine.submit(Ack("g", topic, [received.messages[0].receipt_handle]))
            position = layout.decode(received.messages[0].layout).position
            await engine.submit(SendBack("g", position))
        await engine.advance(HOUR_MS)
        await engine.stop()

    asyncio.run(fail_three_times())
    result = audit(spark, tmp_path / "data", out=tmp_path / "out")
    assert (result.faults, result.counts) == (0, {})
    assert result.total("handed_over") == 4
