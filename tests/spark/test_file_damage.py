"""Files of pending messages that are missing, cut or rotten are named, and nothing is counted from them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from adopted_story import adopt, spread
from audited import START_MS, TOPICS, message, open_directory

from horolog.delay.entry import ENTRY_BYTES
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, HOUR_MS
from horolog.log.checkpoint import newest_checkpoint
from horolog.pipeline.audit import audit
from horolog.pipeline.audit_report import audit_page, notes, sentence
from horolog.pipeline.data_files import AdoptedFile, files_of, plan_log
from horolog.pipeline.file_damage import damaged_files
from horolog.pipeline.pending_rows import pending_parts, read_pending
from horolog.protocol.commands import CreateTopic, SendMessages, TopicType

PLACES = {  # what holds messages → files, and how many wait
    "hour": ("shard-00/hours/*/delay.idx", 60),
    "hour's log": ("shard-00/hours/*/delay.log", 60),
    "state": ("shard-00/hours/*/state.*", 60),
    "buffer": ("shard-00/runs/buffer.*/delay.idx", 40),
    "run": ("shard-00/runs/adopted.*.run", 30),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A directory with messages in an hour, in a far buffer and in an adopted run; none is due."""
    path = tmp_path_factory.mktemp("damage") / "data"

    async def make() -> None:
        engine = await open_directory(path)
        await engine.submit(CreateTopic(TOPICS[0], TopicType.DELAY, 2))
        near = [message(TOPICS[0], n, START_MS + 2 * HOUR_MS + n) for n in range(60)]
        far = [message(TOPICS[0], 100 + n, START_MS + 40 * DAY_MS + n) for n in range(40)]
        await engine.submit(SendMessages(TOPICS[0], near + far))
        await adopt(engine, path, "load", 1, [spread(1_000, 30, START_MS + 9 * DAY_MS, HOUR_MS)])
        await engine.stop()

    asyncio.run(make())
    return path


@pytest.fixture
def copy(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def found_in(path: Path, gone: tuple[AdoptedFile, ...] = ()) -> list[tuple[str, int]]:
    damaged = damaged_files(files_of(str(path)), plan_log(path).log_id, gone)
    return [(file.why, file.waiting) for file in damaged]


def read(path: Path, *, lossy: bool = False) -> int:
    files = files_of(str(path))
    checkpoint = newest_checkpoint(files, "shard-00/checkpoint", plan_log(path).log_id)
    parts = pending_parts(checkpoint)
    return sum(
        len(rows.entries) for part in parts for rows in read_pending(files, part, lossy=lossy)
    )


@pytest.mark.parametrize("how", ["missing", "cut"])
@pytest.mark.parametrize("place", PLACES)
def test_a_missing_or_cut_file_is_damage(copy, place, how) -> None:
    pattern, waiting = PLACES[place]
    assert found_in(copy) == []
    (file,) = copy.glob(pattern)
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    ((why, count),) = found_in(copy)
    assert file.stem in why
    assert count == waiting


def test_an_adopted_run_that_no_checkpoint_names_is_damage_unless_a_newer_one_was_made(
    copy,
) -> None:
    plan = plan_log(copy)
    late, early = (AdoptedFile(plan.checkpoint + n, 0, 7, f"adopted.{n}") for n in (0, -1))
    assert found_in(copy, (late, early)) == [("is missing", 7)]


@pytest.mark.parametrize("place", ["hour", "buffer", "run"])
def test_rows_that_cannot_be_read_are_not_counted(copy, caplog, place) -> None:
    (file,) = copy.glob(PLACES[place][0])
    content = bytearray(file.read_bytes())
    content[5 * ENTRY_BYTES + 24] ^= 1
    file.write_bytes(content)
    with pytest.raises(HorologError, match="1 row of its index cannot be read") as error:
        read(copy)
    assert error.value.code is ErrorCode.DAMAGED
    assert error.value.field in str(file)
    assert read(copy, lossy=True) == 129
    assert "1 row of its index cannot be read, and left out" in caplog.text


@pytest.mark.parametrize("place", ["hour", "state", "buffer", "run"])
def test_a_file_that_is_missing_is_named_or_left_out(copy, caplog, place) -> None:
    pattern, waiting = PLACES[place]
    (file,) = copy.glob(pattern)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="is not there, and the newest checkpoint names it"):
        read(copy)
    assert read(copy, lossy=True) == 130 - waiting
    assert "its messages are left out" in caplog.text


def test_the_audit_names_damaged_files(spark, copy) -> None:
    """Their messages are not due yet, so the log itself shows no fault."""
    assert audit(spark, copy).faults == 0
    (run,), (hour,) = (copy.glob(PLACES[place][0]) for place in ("run", "hour"))
    run.unlink()
    hour.write_bytes(hour.read_bytes()[:-1])
    result = audit(spark, copy)
    assert (result.faults, result.counts, result.damaged) == (2, {}, [])
    assert sentence(result) == "2 faults: 2 damaged files."
    assert [file.waiting for file in result.files] == [60, 30]
    for name in (f"shard-00/hours/{hour.parent.name}", f"shard-00/runs/{run.name}"):
        assert name in audit_page(result)
        assert any(note.startswith(name) for note in notes(result))
