"""What Spark rebuilds from a commit log is what the broker had built."""

from __future__ import annotations

import asyncio
import shutil
import struct
from itertools import product
from pathlib import Path

import numpy as np
import orjson
import pytest
from adopted_story import begin, commit, make_adopted, make_offloaded
from audited import (
    TOPICS,
    Made,
    Surgery,
    make_directory,
    message_id,
    note,
    open_directory,
)

from horolog.broker.life.opening import ShardMeta
from horolog.broker.life.salvage import salvage, survey
from horolog.delay.entry import ENTRY
from horolog.delay.far.names import state_file
from horolog.delay.far.run_state import RunState, decode_run_state
from horolog.errors import ErrorCode, HorologError
from horolog.limits import DAY_MS, RENEW_FIRST_MS
from horolog.log.checkpoint import Checkpoint, held_leases, newest_checkpoint
from horolog.log.record import Kind
from horolog.pipeline.rebuild import check_new_directory, rebuild
from horolog.protocol.commands import (
    Ack,
    ClientSeen,
    CreateTopic,
    DescribeGroup,
    DescribeTopic,
    FindMessages,
    ListPending,
    MessageType,
    NewMessage,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import ListGroups
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.tier_commands import AbortOffload, DescribeTier, ListRecalled
from horolog.protocol.transaction_commands import (
    CheckTransactions,
    EndTransaction,
    Resolution,
    SendHalf,
)
from horolog.storage.disk import Disk
from horolog.storage.meta import parse_meta
from horolog.verify.directory import verify_directory


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Made]:
    """A directory that a broker has written and closed; its log has several segments."""
    path = tmp_path_factory.mktemp("rebuild") / "data"
    found = asyncio.run(make_directory(path, 1_500, segment_bytes=1 << 18))
    assert len(list((path / "shard-00" / "log").glob("*.log"))) > 2
    return path, found


def _queue_files(path: Path) -> dict[str, bytes]:
    place = path / "shard-00" / "queues"
    return {str(f.relative_to(place)): f.read_bytes() for f in sorted(place.rglob("*.cq"))}


async def _look(path: Path, later_ms: int = 0) -> dict[str, object]:
    """Everything that clients can see, now and after some time."""
    engine = await open_directory(path)
    found: dict[str, object] = {"report": []}
    for moment in ("now", "later"):
        counted = Made()
        await note(engine, counted)
        found[moment, "counts"] = counted
        for topic in TOPICS:
            view = await engine.submit(DescribeTopic(topic))
            found[moment, topic] = view
            listed = await engine.submit(ListPending(0, 1 << 42, topic, 5_000))
            found[moment, topic, "pending"] = listed
        groups = found[moment, "groups"] = await engine.submit(ListGroups())
        for group, topic in product([view.name for view in groups], TOPICS):
            found[moment, group, topic] = await engine.submit(DescribeGroup(group, topic))
        if moment == "now":
            await engine.advance(later_ms)
    for number in (0, 1, 2, 40, 41, 42):
        found["message", number] = await engine.submit(
            FindMessages(TOPICS[0], message_id=message_id(number))
        )
    found["adoptions"] = dict(engine.broker.shard.adoptions)
    lake = await engine.submit(DescribeTier(1 << 50))
    found["lake"] = lake
    for offload in lake.offloads:
        found["gone", offload.offload_id] = sorted(
            await engine.submit(ListRecalled(offload.offload_id))
        )
    await engine.stop()
    return found


def test_a_broker_serves_the_same_from_what_was_rebuilt(spark, made, tmp_path):
    path, counted = made
    result = rebuild(spark, path, tmp_path / "new")
    assert result.pending == counted.pending
    assert result.hours > 0
    assert result.runs > 0
    before, after = _queue_files(path), _queue_files(tmp_path / "new")
    assert {name: content for name, content in after.items() if content} == before
    verdict = verify_directory(Disk(tmp_path / "new", read_only=True))
    assert verdict.findings.kept == []
    old = asyncio.run(_look(path, 2 * DAY_MS))
    new = asyncio.run(_look(tmp_path / "new", 2 * DAY_MS))
    assert new == old
    assert old["later", "counts"].pending < old["now", "counts"].pending


def half(number: int) -> NewMessage:
    known = {properties.PRODUCER_GROUP: "pg", properties.TRANSACTION: "true"}
    return encode(
        topic="trades",
        body=b"%d" % number,
        message_id=f"h{number}",
        type=MessageType.TRANSACTION,
        system_properties=properties.encode(known),
    )


async def open_and_ended(path: Path) -> int:
    """A committed, a rolled back, and an open transaction, which was asked for once; gives the position of that."""
    engine = await open_directory(path)
    await engine.submit(CreateTopic("trades", TopicType.TRANSACTION, 1))
    sent = await engine.submit(SendHalf("trades", [half(n) for n in range(3)]))
    await engine.submit(EndTransaction(sent.origins[0], Resolution.COMMIT))
    await engine.submit(EndTransaction(sent.origins[1], Resolution.ROLLBACK))
    await engine.submit(CheckTransactions((sent.origins[2],)))
    await engine.stop()
    return sent.origins[2]


async def ended_later(path: Path, position: int) -> tuple[int, list[bytes]]:
    """How often the open one was asked for, and what is there when it is committed."""
    engine = await open_directory(path)
    checks = engine.broker.shard.halves.open[position].checks
    await engine.submit(EndTransaction(position, Resolution.COMMIT))
    received = await engine.submit(Receive("g", "trades", -1, "*", 8, 10_000, False, 0, "me"))
    await engine.stop()
    return checks, [layout.decode(each.layout).body for each in received.messages]


def test_open_transactions_are_open_in_what_was_rebuilt(spark, tmp_path):
    position = asyncio.run(open_and_ended(tmp_path / "data"))
    rebuild(spark, tmp_path / "data", tmp_path / "new")
    assert verify_directory(Disk(tmp_path / "new", read_only=True)).findings.kept == []
    assert asyncio.run(ended_later(tmp_path / "new", position)) == (1, [b"0", b"2"])


async def held(path: Path) -> None:
    """What a push consumer works on, over a start."""
    engine = await open_directory(path)
    await engine.submit(CreateTopic("t", TopicType.NORMAL, 2))
    every = [encode(topic="t", body=b"x", message_id=f"m{n}") for n in range(20)]
    await engine.submit(SendMessages("t", every))
    for client, renew in (("pusher-1", True), ("asker", False), ("pusher-2", True)):
        received = await engine.submit(Receive("g", "t", -1, "*", 6, 60_000, renew, 0, client))
        await engine.submit(Ack("g", "t", [received.messages[0].receipt_handle]))
    await engine.advance(RENEW_FIRST_MS)
    await engine.stop()
    engine = await open_directory(
        path
    )  # renews them, for as long as their clients need to come again
    await engine.submit(ClientSeen("pusher-1"))
    await engine.stop()


def test_push_consumers_hold_the_same_in_what_was_rebuilt(spark, tmp_path):
    asyncio.run(held(tmp_path / "data"))
    rebuild(spark, tmp_path / "data", tmp_path / "new")
    own, new = _newest(tmp_path / "data"), _newest(tmp_path / "new")
    assert sorted(new.columns["leases"].tolist()) == sorted(own.columns["leases"].tolist())
    holders = held_leases(new)
    assert {holder.client_id for holder in holders.values()} == {"pusher-1", "pusher-2"}
    assert holders == held_leases(own)


def test_what_cannot_be_rebuilt_is_refused(spark, made, tmp_path):
    path, _ = made
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("mine")
    with pytest.raises(HorologError) as refused:
        rebuild(spark, path, tmp_path / "full")
    assert refused.value.code is ErrorCode.FORBIDDEN
    assert "--out" in refused.value.message
    with Surgery(path, tmp_path / "bad") as log:
        log.flip(log.records(Kind.SCHEDULED)[20].position + 40)
    _refused_as_damaged(spark, tmp_path / "bad", tmp_path / "new")
    _salvage(tmp_path / "bad")
    _refused_as_damaged(spark, tmp_path / "bad", tmp_path / "new")


def _refused_as_damaged(spark, source: Path, out: Path) -> None:
    """And it is said what to do instead."""
    with pytest.raises(
        HorologError, match="start a broker on it, which serves the rest"
    ) as refused:
        rebuild(spark, source, out)
    assert refused.value.code is ErrorCode.DAMAGED
    assert not out.exists()


def _salvage(path: Path) -> None:
    """Of a log of which no checkpoint is intact."""
    for checkpoint in (path / "shard-00" / "checkpoint").glob("*.ckpt"):
        checkpoint.write_bytes(b"")  # its name still says how far the log was durable
    written = parse_meta((path / "meta").read_bytes())
    meta = ShardMeta(written.log_id, 0, written.segment_bytes)
    found = survey(Disk(path), "shard-00", meta)
    assert len(found.lost) == 1
    salvage(Disk(path), "shard-00", meta, found)


# --- adopted runs and offloads --------------------------------------------------------------------


def _copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


@pytest.fixture(scope="module")
def adopted(tmp_path_factory) -> Path:
    """A directory with adopted runs."""
    path = tmp_path_factory.mktemp("adopted") / "data"
    asyncio.run(make_adopted(path))
    return path


@pytest.fixture(scope="module")
def offloaded(tmp_path_factory) -> Path:
    """A directory of which a part is in the lake."""
    path = tmp_path_factory.mktemp("offloaded") / "data"
    asyncio.run(make_offloaded(path))
    return path


def _newest(path: Path) -> Checkpoint:
    disk = Disk(path, read_only=True)
    log_id = int(orjson.loads((path / "meta").read_bytes())["log_id"], 16)
    found = newest_checkpoint(disk, "shard-00/checkpoint", log_id)
    assert found is not None
    return found


def _adopted_runs(path: Path) -> dict[str, tuple[dict[str, object], RunState | None]]:
    """Name → row of the registry and state, of every adopted run."""
    found = {}
    for row in _newest(path).registry["far"]["runs"]:
        if "position" in row:
            state = None
            if version := row.pop("version"):
                name = path / "shard-00" / "runs" / state_file(row["name"], version)
                state = decode_run_state(name.read_bytes())
                assert state is not None
                state.maps = {kind: bits.tolist() for kind, bits in state.maps.items()}
            found[row["name"]] = row, state
    return found


def _serves_the_same(path: Path, new: Path, later_ms: int) -> dict[str, object]:
    before, after = _queue_files(path), _queue_files(new)
    assert {name: content for name, content in after.items() if content} == before
    verdict = verify_directory(Disk(new, read_only=True))
    assert verdict.findings.kept == []
    old = asyncio.run(_look(path, later_ms))
    assert asyncio.run(_look(new, later_ms)) == old
    return old


def test_adopted_runs_are_kept_and_their_state_is_rebuilt(spark, adopted, tmp_path):
    path, new = _copied(adopted, tmp_path / "old"), tmp_path / "new"
    for file in path.glob("shard-00/checkpoint/*"):
        file.unlink()  # nothing but the log and the adopted files is needed
    result = rebuild(spark, path, new)
    assert (result.adopted, result.rotten) == (3, 0)
    assert _adopted_runs(new) == _adopted_runs(adopted)
    states = [state for _, state in _adopted_runs(new).values() if state is not None]
    assert len(states) == 2
    old = _serves_the_same(_copied(adopted, tmp_path / "broker"), new, 40 * DAY_MS)
    assert result.pending == old["now", "counts"].pending
    assert old["adoptions"] == {"load": 2, "other": 7}


def test_pending_messages_of_adopted_files_that_do_not_verify_are_counted(spark, adopted, tmp_path):
    """Of the last rows, which wait: one in the index, one in its record; of the first, handed over, one."""
    path = _copied(adopted, tmp_path / "old")
    file = max(path.glob("shard-00/runs/adopted.*.run"), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    (rows,) = struct.unpack_from("<Q", content, 24)
    for row in (0, rows - 1):
        content[64 + 64 * row + 30] ^= 1
    entries = np.frombuffer(content, ENTRY, rows, 64)
    content[int(entries[rows - 2]["position"]) + 60] ^= 1
    file.write_bytes(content)
    assert rebuild(spark, path, tmp_path / "new").rotten == 2


def test_an_adopted_file_that_is_gone_with_messages_that_wait_is_refused(spark, adopted, tmp_path):
    path = _copied(adopted, tmp_path / "old")
    largest = max(path.glob("shard-00/runs/adopted.*.run"), key=lambda file: file.stat().st_size)
    largest.unlink()
    with pytest.raises(HorologError) as refused:
        rebuild(spark, path, tmp_path / "new")
    assert refused.value.code is ErrorCode.DAMAGED
    assert largest.stem in refused.value.message
    assert "messages wait" in refused.value.message
    assert not (tmp_path / "new").exists()


def test_what_went_to_the_lake_is_counted_there_and_nowhere_else(spark, offloaded, tmp_path):
    path, new = _copied(offloaded, tmp_path / "old"), tmp_path / "new"
    for file in path.glob("shard-00/checkpoint/*"):
        file.unlink()
    result = rebuild(spark, path, new)
    assert result.adopted == 3, "one file went as a whole"
    assert _adopted_runs(new) == _adopted_runs(offloaded)
    old = _serves_the_same(_copied(offloaded, tmp_path / "broker"), new, 2 * DAY_MS)
    assert result.in_lake == old["lake"].waiting > 50
    assert result.pending == old["now", "counts"].pending
    gone = [len(old[key]) for key in old if key[0] == "gone"]
    assert len(gone) == 2
    assert all(gone)


def test_an_offload_under_way_is_to_be_begun_again(spark, tmp_path):
    path, new = tmp_path / "old", tmp_path / "new"
    asyncio.run(make_offloaded(path, under_way=True))
    result = rebuild(spark, path, new)
    old, made = asyncio.run(_look(path)), asyncio.run(_look(new))
    assert [each.stage for each in old["lake"].offloads] == ["lake", "lake", "frozen"]
    assert [each.stage for each in made["lake"].offloads] == ["lake", "lake", "broken"]
    assert made["now", "counts"] == old["now", "counts"]
    assert result.pending == old["now", "counts"].pending
    assert verify_directory(Disk(new, read_only=True)).findings.kept == []
    asyncio.run(_abort_and_begin_again(new))


async def _abort_and_begin_again(path: Path) -> None:
    engine = await open_directory(path)
    lake = engine.broker.shard.tier
    assert lake.open is not None
    from_ms, before = lake.open.from_ms, lake.waiting
    assert await engine.submit(AbortOffload(lake.open.offload_id))
    view = await begin(engine, from_ms)
    assert len(await commit(engine, path, view)) == lake.waiting - before > 10
    await engine.stop()


def test_what_a_killed_rebuild_has_left_is_named(tmp_path) -> None:
    check_new_directory(tmp_path / "new")
    check_new_directory(tmp_path)
    (tmp_path / "shard-00").mkdir()
    with pytest.raises(HorologError, match="stopped on the way, and no broker takes it; remove it"):
        check_new_directory(tmp_path)
    (tmp_path / "meta").touch()
    with pytest.raises(HorologError, match="exists and is not an empty directory"):
        check_new_directory(tmp_path)
