"""A flipped byte or a lost page of the log: the audit reports it, and the topic source does as `failOnDataLoss` says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from damaged_log import KINDS, MESSAGES, SEGMENT, damage_log, frames_of, is_sent

from horolog.errors import ErrorCode, HorologError
from horolog.log.frame import HEADER_BYTES
from horolog.log.record_check import SegmentRecords
from horolog.pipeline.audit import audit
from horolog.pipeline.audit_report import sentence
from horolog.pipeline.data_files import plan_log
from horolog.pipeline.log_walk import SegmentWalk, walk_log
from horolog.spark.topic_files import TopicFiles
from horolog.spark.topic_parts import read_part

HANDED_OVER = MESSAGES // 4


def without_checkpoints(data_dir: Path) -> Path:
    """As a copy that was made before the first one: all of the topic is known from the log alone."""
    for path in (data_dir / "shard-00" / "checkpoint").iterdir():
        path.unlink()
    return data_dir


def read_all(data_dir: Path, *, lossy: bool) -> list[tuple[int, int]]:
    """(queue, offset) of all messages."""
    files, found = TopicFiles(str(data_dir), "t", None, lossy=lossy), []
    for queue, (first, stop) in files.bounds().items():
        for records in read_part(files.part(queue, first, stop)._replace(lossy=lossy)):
            found += [(queue, offset) for offset in records.queue_offsets.tolist()]
            assert len(records.as_bytes()) == len(records)
    return found


@pytest.mark.parametrize("known_by", ["queues", "log"])
@pytest.mark.parametrize("how", KINDS)
def test_a_topic_of_files_goes_on_after_damage_only_if_it_may(data_dir, how, known_by) -> None:
    before = read_all(data_dir, lossy=False)
    assert len(before) == MESSAGES
    damage = damage_log(data_dir, how, 0.2)
    if known_by == "log":
        without_checkpoints(data_dir)
    with pytest.raises(HorologError, match="failOnDataLoss=false goes on") as refused:
        read_all(data_dir, lossy=False)
    assert refused.value.code is ErrorCode.DAMAGED
    found = read_all(data_dir, lossy=True)
    assert set(found) < set(before)
    assert len(found) == len(set(found))
    lost = len(before) - len(found)
    # The rest was scheduled
    assert damage.messages * 3 // 4 - 2 <= lost <= damage.messages * 3 // 4 + 2


def test_damage_is_reported_where_it_is_passed_over(data_dir, caplog) -> None:
    damage_log(data_dir, "page", 0.2)
    read_all(data_dir, lossy=True)
    text = " ".join(caplog.messages)
    assert "cannot be read" in text
    assert "is passed over" in text


def test_a_unit_that_points_elsewhere_is_damage_too(data_dir) -> None:
    path = next((data_dir / "shard-00" / "queues").glob("*-00000/*.cq"))
    units = bytearray(path.read_bytes())
    for row, position in ((3, 1 << 40), (5, 12), (7, 57_313)):
        units[row * 20 : row * 20 + 8] = position.to_bytes(8, "little")
    units[9 * 20 + 8 : 9 * 20 + 12] = bytes(4)
    path.write_bytes(units)
    with pytest.raises(HorologError, match="queue offset 3 of queue 0 cannot be read"):
        read_all(data_dir, lossy=False)
    found = read_all(data_dir, lossy=True)
    assert {(0, offset) for offset in range(12)} - set(found) == {(0, 3), (0, 5), (0, 7), (0, 9)}
    assert len(found) == MESSAGES - 4


def test_a_batch_fails_or_leaves_out_what_is_lost(spark, data_dir) -> None:
    damage_log(data_dir, "page", 0.2)
    reader = spark.read.format("horolog").option("path", str(data_dir)).option("topic", "t")
    with pytest.raises(Exception, match="cannot be read"):
        reader.load().count()
    rows = reader.option("failOnDataLoss", "false").load().select("body", "queue_offset").collect()
    assert MESSAGES - 16 < len(rows) < MESSAGES
    assert all(bytes(row.body).startswith(b"m") for row in rows)


@pytest.mark.parametrize("how", KINDS)
def test_the_walk_of_the_jobs_goes_on_after_damage(data_dir, how) -> None:
    plan = plan_log(data_dir)
    before = sum(len(stretch.at) for stretch in walk_log(plan))
    damage = damage_log(data_dir, how, 0.2)
    walk = SegmentWalk(plan, plan.segments[0])
    found = sum(len(stretch.at) for stretch in walk.stretches())
    found += sum(len(rest.at) for rest in walk_log(plan, start=plan.segments[1].start))
    assert walk.gaps == [(damage.first, damage.first + damage.bytes)]
    assert found == before - sum(frame.count for frame in damage.frames)


def test_the_audit_reports_damage_and_accuses_nobody(spark, data_dir) -> None:
    path, handed = next(each for each in frames_of(data_dir) if each[1].count > 100)
    damage = damage_log(data_dir, "page", 0.2)
    content = bytearray(path.read_bytes())
    content[handed.base % SEGMENT + HEADER_BYTES + 1_000] ^= 3
    path.write_bytes(content)
    result = audit(spark, data_dir)
    assert result.damaged == [
        (damage.first, damage.first + damage.bytes),
        (handed.base, handed.end),
    ]
    # What lies there may have been scheduled, and handed over, or not: nobody is accused of having lost it.
    assert set(result.counts) == {"unproven"}
    assert 0 < result.total("handed_over") < HANDED_OVER
    assert "2 damaged stretches of the log" in sentence(result)


@pytest.mark.parametrize("seed", range(3))
def test_columns_say_of_a_record_what_its_frame_says(data_dir, seed) -> None:
    """Bits anywhere in the segment, and any positions: a record is good exactly if its frame is, and it begins there."""
    chance = np.random.default_rng(seed)
    frames = [each for each in frames_of(data_dir) if each[1].base < SEGMENT]
    path = frames[0][0]
    content = bytearray(path.read_bytes())
    spoilt = sorted(chance.integers(0, frames[-1][1].end, 12).tolist())
    for at in spoilt:
        content[at] ^= 1 << int(chance.integers(8))
    wanted, at, sizes = [], [], []
    for _, header in frames:
        if header.count != 1:
            continue
        at.append(header.base + HEADER_BYTES)
        sizes.append(header.length)
        wanted.append(not any(header.base <= bad < header.end for bad in spoilt))
        if chance.random() < 0.2:
            at.append(header.base + HEADER_BYTES + int(chance.integers(1, header.length)))
            sizes.append(int(chance.integers(-5, 400)))
            wanted.append(False)
    raw = np.frombuffer(bytes(content), np.uint8)
    records = SegmentRecords(raw, 0, frames[0][1].log_id)
    order = chance.permutation(len(at))
    found = records.intact(np.array(at)[order], np.array(sizes)[order])
    assert found.tolist() == np.array(wanted)[order].tolist()
    assert not SegmentRecords(raw, 0, 1).intact(np.array(at), np.array(sizes)).any()
    assert sum(is_sent(header) for _, header in frames) > 500
