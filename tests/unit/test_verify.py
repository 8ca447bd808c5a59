"""`horolog verify` finds every flipped byte, and nothing where a crash has left what a start repairs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import orjson
import pytest
from directories import FAR, HOUR, SEGMENT, findings_text, make, story, verify
from run_rows import LOG_ID, Source, new_disk

from horolog.delay.entry import ENTRY
from horolog.delay.entry_keys import KeyRuns
from horolog.delay.near import store
from horolog.delay.state import EntryState, decode_state, encode_state
from horolog.errors import ErrorCode, HorologError
from horolog.log.checkpoint import decode_checkpoint, encode_checkpoint
from horolog.log.frame import HEADER_BYTES, parse
from horolog.log.segment import segment_name
from horolog.server.open_broker import open_engine
from horolog.storage.api import replace_file
from horolog.storage.disk import Disk
from horolog.testing.simulation import Simulation
from horolog.verify.balance import Balance
from horolog.verify.directory import Verdict, verify_directory
from horolog.verify.entries import check_key_runs
from horolog.verify.findings import Findings
from horolog.verify.holes import Holes
from horolog.verify.offline import lock_directory
from horolog.verify.reading import Reading
from horolog.verify.runs import RunFile


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a little of everything; tests leave it as it is."""
    data_dir = tmp_path_factory.mktemp("verify") / "data"
    asyncio.run(asyncio.wait_for(make(data_dir), 60))
    return data_dir


def files_of(data_dir: Path) -> Iterator[Path]:
    for path in sorted((data_dir / "shard-00").rglob("*")):
        if path.is_file():
            yield path


# --- clean ----------------------------------------------------------------------------------------


def test_a_directory_as_left_is_clean(made: Path) -> None:
    """It has a file of every kind, all of them are read, and nothing is changed."""
    before = {path: path.read_bytes() for path in files_of(made)}
    kinds = {path.parent.name.split(".")[0] for path in before}
    assert {"log", "checkpoint", "keys", "runs"} <= kinds
    assert any(path.suffix == ".run" for path in before)
    assert any(".state." in path.name for path in before)
    for quick in (False, True):
        verdict = verify(made, quick=quick)
        assert verdict.clean, findings_text(verdict)
        assert not verdict.findings.notes
        assert verdict.log_end == verdict.checkpoint
        assert (verdict.as_json()["scheduled"] is None) == quick  # not counted is not 0
    assert (verdict.scheduled, verify(made).scheduled) == (0, 4 * 40 + 5 - 3), (
        "three were due already"
    )
    assert {path: path.read_bytes() for path in files_of(made)} == before


def test_what_somebody_has_left_in_a_directory_of_the_broker_is_no_hindrance(
    made: Path, tmp_path: Path
) -> None:
    """Such a file ended the verification, or was damage in `log`; a name of other digits than ASCII's ended a start with a traceback."""
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    for part in ("hours", "queues"):
        (data_dir / "shard-00" / part / "NOTES").write_text("mine")
    (data_dir / "shard-00/log" / f"{segment_name(0)}.tmp").write_text("mine")
    for digit in "²٣":
        (data_dir / f"shard-00/hours/{digit}").mkdir()
    verdict = verify(data_dir)
    assert verdict.clean
    assert "log.tmp is not a file of the broker" in verdict.findings.notes[0]

    async def start_and_stop() -> None:
        engine = await open_engine(data_dir, clock="simulated", settings=FAR)
        await engine.stop()

    asyncio.run(asyncio.wait_for(start_and_stop(), 60))
    assert verify(data_dir).clean


@pytest.mark.parametrize("stem", ["²", "٣", "4194304", "0" * 21, "{} copy", "{}."])
def test_a_file_whose_name_is_not_twenty_digits_is_none_of_the_brokers(
    made: Path, tmp_path: Path, stem: str
) -> None:
    """Such names were read as numbers: a start, a salvage or a verification ended with a traceback, or refused."""
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    strays = []
    for pattern in ("log/*.log", "queues/*/*.cq", "keys/*.keys"):
        intact = min((made / "shard-00").glob(pattern))
        name = stem.format(intact.stem) + intact.suffix
        strays.append(data_dir / intact.relative_to(made).with_name(name))
        shutil.copy(intact, strays[-1])
    log, _, keys = (str(path.relative_to(data_dir)) for path in strays)
    assert {each.file for each in verify(data_dir).findings.kept} == {log, keys}

    async def start_and_stop() -> list[str]:
        engine = await open_engine(data_dir, clock="simulated", settings=FAR)
        await engine.stop()
        return [line for line in engine.report if "row" in line]

    assert "row 1" in str(asyncio.run(asyncio.wait_for(start_and_stop(), 60)))


def test_progress_ends_at_the_total(made: Path) -> None:
    reported: list[tuple[int, int]] = []
    verify_directory(Disk(made), report=lambda what, done, total: reported.append((done, total)))
    assert reported == sorted(reported)
    done, total = reported[-1]
    assert 0.8 * total < done <= total


def test_queues_and_progress_of_unknown_topics_are_found(made: Path, tmp_path: Path) -> None:
    """In a checkpoint whose CRCs are right: a fault of the broker, and not of the disk."""
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    path = max((data_dir / "shard-00/checkpoint").iterdir())
    checkpoint = decode_checkpoint(path.read_bytes())
    assert checkpoint is not None
    (queue,) = np.array([(77, 3, 5)], checkpoint.columns["queues"].dtype)
    checkpoint.columns["queues"] = np.append(checkpoint.columns["queues"], queue)
    (progress,) = np.array([(1, 78, 4, 2, 2)], checkpoint.columns["progress"].dtype)
    checkpoint.columns["progress"] = np.append(checkpoint.columns["progress"], progress)
    path.write_bytes(encode_checkpoint(checkpoint))
    assert {finding.what for finding in verify(data_dir).findings.kept} >= {
        "names queue 3 of topic 77, but does not list that topic",
        "group 1 has progress 2 to 2 in queue 4 of topic 78, which has no messages",
    }


def test_scheduled_messages_are_counted_also_after_the_checkpoint(
    made: Path, tmp_path: Path
) -> None:
    """As records are: all that the log has."""
    data_dir = shutil.copytree(made, tmp_path / "data")
    for path in (data_dir / "shard-00" / "checkpoint").iterdir():
        path.unlink()
    assert verify(data_dir).scheduled == verify(made).scheduled > 0


def test_a_quick_verification_reads_the_messages_that_a_start_reads(
    made: Path, tmp_path: Path
) -> None:
    """It read none, so `horolog doctor` found a directory well whose start is refused."""
    data_dir = shutil.copytree(made, tmp_path / "data")
    segment = data_dir / "shard-00" / "log" / segment_name(0)
    content = bytearray(segment.read_bytes())
    header = parse(bytes(content[:HEADER_BYTES]))
    assert header is not None
    for at in range(HEADER_BYTES, HEADER_BYTES + header.length):
        content[at] ^= 0xFF
    segment.write_bytes(content)
    assert verify(data_dir, quick=True).clean  # the frame is before the checkpoint
    for path in (data_dir / "shard-00" / "checkpoint").iterdir():
        path.unlink()
    assert "the body does not match its CRC" in findings_text(verify(data_dir, quick=True))


def test_a_copy_of_a_running_broker_is_clean(tmp_path: Path) -> None:
    """As a `kill -9` would leave it at any moment: what a start cuts off is no finding."""

    async def run() -> None:
        engine = await open_engine(
            tmp_path / "data", clock="simulated", segment_bytes=SEGMENT, settings=FAR
        )
        copies = []

        async def copy_often() -> None:
            while True:
                copies.append(tmp_path / f"copy{len(copies)}")
                shutil.copytree(tmp_path / "data", copies[-1])
                for _ in range(40):
                    await asyncio.sleep(0)

        copying = asyncio.create_task(copy_often())
        try:
            await story(engine)
        finally:
            copying.cancel()
            await engine.stop()
        for copy in copies[:20]:
            verdict = verify(copy)
            assert verdict.clean, findings_text(verdict)
        assert len(copies) > 3

    asyncio.run(asyncio.wait_for(run(), 60))


class VerifiedSimulation(Simulation):
    """Verifies the disk after every crash."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.verified = 0
        crash = self.disk.crash

        def crash_and_verify(*, power_cut: bool) -> None:
            crash(power_cut=power_cut)
            hook, self.disk.on_effect = self.disk.on_effect, None
            room, self.disk.capacity_bytes = self.disk.capacity_bytes, None
            meta = self.broker.meta
            fields = {
                "format": 1,
                "log_id": f"{meta.log_id:016x}",
                "shards": 1,
                "clock": "simulated",
                "segment_bytes": meta.segment_bytes,
            }
            replace_file(self.disk, "", "meta", orjson.dumps(fields))
            verdict = verify_directory(self.disk)
            assert verdict.clean, findings_text(verdict)
            self.disk.remove("meta")
            self.disk.on_effect, self.disk.capacity_bytes = hook, room
            self.verified += 1

        self.disk.crash = crash_and_verify  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 32), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_what_crashes_and_power_cuts_leave_is_clean(
    monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    """Un-synced bytes lost or torn, names lost, killed in recovery: nothing that was promised is wrong."""
    # An hour that was dropped and comes again takes the place of the one that a checkpoint names.
    monkeypatch.setattr(store, "HOUR_KEEP_MS", 1 << 50)
    verified = 0
    for seed in seeds:
        simulation = VerifiedSimulation(seed)
        simulation.run()
        verified += simulation.verified
    assert verified > 2 * len(seeds)


# --- flipped bytes --------------------------------------------------------------------------------


def is_promised(path: Path, at: int, verdict: Verdict) -> bool:
    """Whether a byte means anything: not space allocated ahead, after the end of the log."""
    return path.parent.name != "log" or int(path.stem) + at < verdict.log_end


def apart(data_dir: Path) -> Iterator[list[Path]]:
    """All files, those together that are not read by one another: a flip in each is found in one verification."""
    parts: dict[str, list[Path]] = {}
    for path in files_of(data_dir):
        part = path.relative_to(data_dir / "shard-00").parts[0]
        parts.setdefault(part, []).append(path)
    for part in ("log", "checkpoint"):  # everything else is compared with these
        yield from ([path] for path in parts.pop(part))
    for row in range(max(map(len, parts.values()))):
        yield [paths[row] for paths in parts.values() if row < len(paths)]


def test_one_flipped_byte_anywhere_is_found(made: Path, tmp_path: Path) -> None:
    """In any file at any place that a checkpoint counts, and the finding names the file."""
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    whole = verify(data_dir)
    random = Random(11)
    tried = 0
    for paths in apart(data_dir):
        contents = {path: path.read_bytes() for path in paths}
        places = {
            path: sorted({0, len(each) - 1, *(random.randrange(len(each)) for _ in range(3))})
            for path, each in contents.items()
        }
        for lap in range(5):
            broken = {}
            for path, content in contents.items():
                if lap < len(places[path]) and is_promised(path, places[path][lap], whole):
                    at = places[path][lap]
                    flipped = bytearray(content)
                    flipped[at] ^= 1 << random.randrange(8)
                    path.write_bytes(flipped)
                    broken[str(path.relative_to(data_dir))] = at
            if broken:
                verdict = verify(data_dir)
                found = {finding.file for finding in verdict.findings.kept}
                assert found >= broken.keys(), (broken, findings_text(verdict))
                tried += len(broken)
            for path, content in contents.items():
                path.write_bytes(content)
    assert tried > 100
    assert verify(data_dir).clean


def test_every_byte_of_small_structures(made: Path, tmp_path: Path) -> None:
    """Every other byte: the heads of files, an entry, a unit, a row of the key index."""
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    shard = data_dir / "shard-00"
    patterns = ("hours/*/delay.idx", "queues/*/*.cq", "keys/*0.keys", "runs/*.run")
    together = [sorted(shard.glob(pattern))[0] for pattern in patterns]
    for paths in ([sorted(shard.glob("log/*0.log"))[0]], together):
        contents = {path: path.read_bytes() for path in paths}
        for at in range(0, 72, 2):
            flipped = {path for path, content in contents.items() if at < len(content)}
            for path in flipped:
                broken = bytearray(contents[path])
                broken[at] ^= 0x10
                path.write_bytes(broken)
            found = {data_dir / finding.file for finding in verify(data_dir).findings.kept}
            assert found >= flipped, (at, flipped - found)
        for path, content in contents.items():
            path.write_bytes(content)


def test_a_flip_in_space_allocated_ahead_is_reported_as_a_torn_tail(
    made: Path, tmp_path: Path
) -> None:
    """Nothing was promised there, and a start cuts it off; it is told, but it is no damage."""
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    end = verify(data_dir).log_end
    base = end - end % SEGMENT
    path = data_dir / "shard-00" / "log" / f"{base:020d}.log"
    content = bytearray(path.read_bytes())
    content[end - base + 500] = 1
    path.write_bytes(content)
    verdict = verify(data_dir)
    assert verdict.clean
    assert "the log is torn at log position" in verdict.findings.notes[0]


# --- what no check sum shows ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("log/*.log", "the segment is missing"),
        ("hours/*/delay.log", "missing"),
        ("hours/*/state.*", "missing"),
        ("queues/*/*.cq", "missing"),
        ("keys/*128.keys", "missing"),
        ("runs/*.run", "missing"),
        ("runs/*.state.*", "missing"),
    ],
)
def test_a_missing_file_is_found(made: Path, tmp_path: Path, pattern: str, what: str) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    path = sorted((data_dir / "shard-00").glob(pattern))[0]
    path.unlink()
    assert what in findings_text(verify(data_dir))


def test_a_message_that_was_made_to_vanish_is_missed(made: Path, tmp_path: Path) -> None:
    """A state file that says "handed over", all its sums right: the log knows better."""
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    for path in sorted((data_dir / "shard-00" / "hours").glob("*/state.*")):
        state = decode_state(path.read_bytes())
        assert state is not None
        waiting = np.flatnonzero(state.states == EntryState.WAITING)
        if not len(waiting):
            continue
        entries = np.frombuffer((path.parent / "delay.idx").read_bytes(), ENTRY)
        entry = entries[waiting[-1]]
        state.states[waiting[-1]] = EntryState.HANDED_OVER
        state.handed_over += 1
        topic, second = int(entry["topic"]), int(entry["due_ms"]) // 1000 % 3_600
        state.by_topic[topic] -= 1
        if not state.by_topic[topic]:
            del state.by_topic[topic]
        state.heads["waiting"][second] -= 1
        path.write_bytes(encode_state(state))
    verdict = verify(data_dir)
    assert "messages are missing" in findings_text(verdict)
    assert "does not match" not in findings_text(verdict)


def test_the_balance_is_of_messages_not_of_numbers() -> None:
    hours = np.array([5, 5, 6])
    balance = Balance(100)
    balance.add(hours, np.array([100, 200, 300]), 1)
    balance.add(np.array([1]), np.array([99]), 1)  # before the log begins
    balance.add(hours, np.array([100, 200, 300]), -1)
    assert not balance.faults()
    balance.add(np.array([7, 8]), np.array([400, 500]), 1)
    balance.add(np.array([7]), np.array([401]), -1)
    assert balance.faults() == [(7, 0), (8, 1)]


def test_what_a_salvage_has_given_up_is_on_neither_side_of_the_balance() -> None:
    holes = Holes()
    holes.add(150, 250)
    balance = Balance(100, holes)
    balance.add(np.array([5, 5, 5]), np.array([120, 200, 260]), -1)
    assert balance.faults() == [(5, -2)]
    balance.add(np.array([5, 5, 6]), np.array([120, 260, 300]), 1)
    assert not balance.faults(), "the record of the end of 300 may have been given up"


def test_key_runs_are_compared_with_their_entries(tmp_path: Path) -> None:
    """Every byte of a file; one that was being written is no finding."""
    disk = Disk(tmp_path)
    disk.make_dir("hour")
    entries = np.zeros(300, ENTRY)
    entries["key"] = np.random.default_rng(1).integers(0, 50, 300)
    replace_file(disk, "hour", "delay.idx", entries.tobytes())
    runs = KeyRuns(disk, "hour", buffer_rows=64)
    runs.add(entries["key"])
    runs.close()

    def found() -> Findings:
        findings = Findings()
        reading = Reading(disk, findings, quick=False, report=lambda what, done, total: None)
        check_key_runs(reading, "hour", "hour/delay.idx", 300)
        return findings

    assert not found().count
    paths = sorted((tmp_path / "hour").glob("keys.*"))
    assert len(paths) == 4
    content = paths[0].read_bytes()
    for at in range(0, len(content), 3):
        broken = bytearray(content)
        broken[at] ^= 1
        paths[0].write_bytes(broken)
        assert found().count == 1, at
    paths[0].write_bytes(bytes(32) + content[32:])
    assert not found().count
    assert "was being written" in found().notes[0]
    paths[0].write_bytes(content)
    paths[0].rename(paths[0].with_name("keys.0000000290.0000000064"))
    assert "no checkpoint names" in found().notes[0]


@pytest.mark.parametrize("size", [1, 20, 25])
def test_a_record_shorter_than_its_head_is_a_finding(size: int) -> None:
    """Its CRC is right, for a writer of files to adopt may have made it so."""
    disk = new_disk()
    short = Source([HOUR + i for i in range(9)], size=size)
    info = short.flush(disk, "a")
    findings = Findings()
    reading = Reading(disk, findings, quick=False, report=lambda what, done, total: None)
    with reading.source("runs/a.run") as file:
        run = RunFile(reading, file, "a", LOG_ID)
        assert sum(len(batch.entries) for batch in run.batches(None))
    assert [found.position for found in findings.kept] == list(range(info.rows))
    assert all("another size, due time, topic or key" in found.what for found in findings.kept)


# --- refusals -------------------------------------------------------------------------------------


def test_a_directory_in_use_or_none_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        engine = await open_engine(tmp_path / "data", clock="simulated", segment_bytes=SEGMENT)
        try:
            with pytest.raises(HorologError, match=r"^DIR: .* is in use by process") as refused:
                lock_directory(tmp_path / "data")
            assert refused.value.code is ErrorCode.DIRECTORY_IN_USE
        finally:
            await engine.stop()

    asyncio.run(run())
    with pytest.raises(HorologError, match="is not a data directory"):
        lock_directory(tmp_path)
    assert not (tmp_path / "lock").exists(), "nothing is left in a directory that is none"


def test_meta_that_cannot_be_read_is_reported(made: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(made, data_dir)
    meta = data_dir / "meta"
    content = meta.read_bytes()
    for broken, code in {
        b"{": ErrorCode.DAMAGED,
        b"{}": ErrorCode.DAMAGED,
        content.replace(b'"format": 1', b'"format": 9'): ErrorCode.VERSION_UNSUPPORTED,
    }.items():
        meta.write_bytes(broken)
        with pytest.raises(HorologError) as refused:
            verify(data_dir)
        assert refused.value.code is code
    log_id = orjson.loads(content)["log_id"]
    meta.write_bytes(content.replace(log_id.encode(), b"00" * 8))
    assert "belongs to log" in findings_text(verify(data_dir))
