"""The lake with a real broker and Spark: offloaded, asked in SQL, recalled, promoted, handed over."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from access_files import access_file
from adopted_runs import stage
from lake_world import TOPICS, fill, now_ms, receive_all, total

from horolog.errors import ErrorCode, HorologError
from horolog.lake.jobs import broker as lake_broker
from horolog.lake.jobs import table as lake_table
from horolog.lake.jobs.rows import plan
from horolog.lake.table import delta
from horolog.limits import HOUR_MS
from horolog.pipeline.audit import audit
from horolog.pipeline.audit_report import balance
from horolog.pipeline.forecast import forecast
from horolog.pipeline.offload import APP, offload, write
from horolog.pipeline.promote import promote_due
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq.message import encode
from horolog.testing.broker import BrokerProcess


def test_pending_messages_are_a_table_before_they_are_due(broker, spark, tmp_path) -> None:
    made = fill(broker)
    before = broker.admin.get("/v1/pending")
    uri = str(tmp_path / "lake")
    from_ms = now_ms(broker) + 48 * HOUR_MS
    done = offload(broker.admin, uri, from_ms, spark=spark)
    expected = {body for body, due in made.items() if due >= done.from_ms}
    assert done.rows == len(expected) > 10
    assert broker.admin.get("/v1/pending") == before
    again = offload(broker.admin, uri, from_ms, spark=spark)
    assert again.rows == 0
    lake_table.pending_view(spark, uri).createOrReplaceTempView("pending")
    rows = spark.sql(
        "select cast(body as string) b, due_ms, topic, keys[0] k from pending"
    ).collect()
    assert {row.b for row in rows} == expected
    assert len(rows) == len(expected)
    assert all(made[row.b] == row.due_ms and row.k == f"k{row.b[1:]}" for row in rows)
    days = spark.sql("select day, count(*) n from pending group by day order by day").collect()
    assert sum(row.n for row in days) == len(expected)
    from deltalake import DeltaTable

    assert DeltaTable(uri).count() == len(expected)


@pytest.mark.parametrize("how", ["flipped", "empty"])
def test_a_damaged_file_is_no_smaller_view(broker, spark, tmp_path, how) -> None:
    fill(broker)
    uri = str(tmp_path / "lake")
    assert offload(broker.admin, uri, now_ms(broker) + 48 * HOUR_MS).files > 1
    path = next(Path(uri).rglob("*.parquet"))
    names = pq.read_schema(path).names
    chunk = pq.read_metadata(path).row_group(0).column(names.index("due_ms"))
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 64
    path.write_bytes(content if how == "flipped" else b"")

    def due() -> list[int]:
        return [row.due_ms for row in lake_table.pending_view(spark, uri).collect()]

    with pytest.raises(Exception, match=path.name):
        due()


def test_the_view_has_each_message_that_waits_in_the_lake_once(broker, spark, tmp_path) -> None:
    """And none that was given up, recalled, promoted, or went to another table."""
    made = fill(broker)
    uri, start = str(tmp_path / "lake"), now_ms(broker) + 48 * HOUR_MS
    frozen = lake_broker.begin(broker.admin, APP, -(-start // HOUR_MS) * HOUR_MS)
    files = write(frozen, plan(frozen.opened(), frozen.from_ms), uri, None)
    delta.commit_files(uri, frozen.log_id, frozen.offload_id, files)
    broker.admin.post("/v1/offloads/abort", {"number": frozen.offload_id})  # and is killed
    assert offload(broker.admin, uri, start + 20 * HOUR_MS).rows > 5

    def shown() -> list[str]:
        view = lake_table.pending_view(spark, uri, broker.admin)
        return sorted(row.b for row in view.selectExpr("cast(body as string) b").collect())

    assert len(shown()) == broker.admin.get("/v1/offloads")["waiting"]
    assert offload(broker.admin, uri, start).rows > 5
    far = sorted(body for body, due in made.items() if due >= frozen.from_ms)
    assert shown() == far
    last, first = (pick(far, key=lambda body: made[body]) for pick in (max, min))
    by_key = {"topic": TOPICS[int(last[1:]) % 2], "key": f"k{last[1:]}"}
    assert broker.admin.post("/v1/recall/key", by_key)["cancelled"] == 1
    assert promote_due(broker.admin_url, ahead_ms=made[first] - now_ms(broker) + 1).rows == 1
    assert shown() == sorted({*far} - {first, last})
    assert len(shown()) == broker.admin.get("/v1/offloads")["waiting"]


def test_promoted_once_and_handed_over_in_time(broker, tmp_path) -> None:
    made = fill(broker)
    uri = str(tmp_path / "lake")
    done = offload(broker.admin, uri, now_ms(broker) + 48 * HOUR_MS)
    first = min(due for due in made.values() if due >= done.from_ms)
    assert promote_due(broker.admin_url) == (0, 0)
    broker.advance(first // HOUR_MS * HOUR_MS - HOUR_MS - now_ms(broker))
    total = broker.admin.get("/v1/pending")["total"]
    one = promote_due(broker.admin_url)
    assert one.rows >= 1
    assert promote_due(broker.admin_url) == (0, 0)
    assert broker.admin.get("/v1/pending")["total"] == total
    broker.restart()
    assert broker.admin.get("/v1/pending")["total"] == total
    got = receive_all(broker)
    for _ in range(200):
        if len(got) == len(made):
            break
        broker.advance(HOUR_MS)
        promote_due(broker.admin_url)
        got += receive_all(broker)
    assert got == [f"b{i}" for i in range(len(made))] or sorted(got) == sorted(made)
    assert len(got) == len(made)
    assert broker.admin.get("/v1/offloads")["waiting"] == 0


def test_the_broker_fetches_what_nobody_has_promoted(broker, spark, tmp_path) -> None:
    made = fill(broker)
    uri = tmp_path / "lake"
    done = offload(broker.admin, str(uri), now_ms(broker) + 48 * HOUR_MS)
    assert done.rows > 10
    broker.advance(60 * HOUR_MS)
    broker.restart()
    broker.advance(70 * HOUR_MS)
    broker.kill()
    broker.restart()
    broker.advance(40 * HOUR_MS)
    got = receive_all(broker)
    assert sorted(got) == sorted(made)
    assert broker.admin.get("/healthz")["healthy"]
    proof = audit(spark, broker.data_dir)
    assert (proof.counts, proof.overdue) == ({}, 0)
    assert proof.total("scheduled") == proof.total("handed_over") == len(made)


def test_an_audit_balances_what_was_loaded_and_came_back_from_the_lake(
    broker, spark, tmp_path
) -> None:
    """Files of the load and of a promotion are done with when their messages are; an hour of 4 MB goes into the log."""
    broker.create_topic("alpha")
    due = now_ms(broker) // HOUR_MS * HOUR_MS + 72 * HOUR_MS
    made = [
        encode(
            topic="alpha",
            body=bytes(4 << 20),
            message_id=f"m{i}",
            type=MessageType.DELAY,
            due_ms=at,
        )
        for i, at in enumerate([due, due + 1, due + 2, due + HOUR_MS])
    ]
    load = {"app": "load", "version": 1, "topic": "alpha"}
    begun = broker.admin.post("/v1/adoptions/begin", load)
    done = {**load, "token": begun["token"], "files": [stage(begun, "all", made)]}
    assert broker.admin.post("/v1/adoptions/commit", done)["files"] == 1
    broker.admin.post("/v1/messages", {"topic": "alpha", "body": "s", "deliver_at_ms": due})
    assert offload(broker.admin, str(tmp_path / "lake"), now_ms(broker) + 48 * HOUR_MS).rows == 5
    assert promote_due(broker.admin_url, ahead_ms=100 * HOUR_MS).rows == 5
    broker.advance(80 * HOUR_MS)
    for _ in range(2):
        broker.restart()  # checkpoints that do not name the files any more
    proof = audit(spark, broker.data_dir)
    assert (proof.faults, proof.overdue, proof.forgotten) == (0, 0, 0)
    assert (proof.total("adopted"), proof.total("scheduled")) == (4, 1)
    assert proof.total("handed_over") == 5
    assert balance(proof)[-1][1] == 0


def test_it_does_so_with_access_control(spark, tmp_path, monkeypatch) -> None:
    """By its own token: it is told no key."""
    monkeypatch.setenv("HOROLOG_ACCESS_KEY", "operator")
    monkeypatch.setenv("HOROLOG_SECRET_KEY", "operator-secret")
    nobody = {"HOROLOG_ACCESS_KEY": "", "HOROLOG_SECRET_KEY": ""}
    access = f"--access={access_file(tmp_path)}"
    with BrokerProcess(arguments=[access], environment=nobody) as broker:
        made = fill(broker)
        uri = str(tmp_path / "lake")
        assert offload(broker.admin, uri, now_ms(broker) + 48 * HOUR_MS).rows > 10
        broker.advance(200 * HOUR_MS)
        assert broker.admin.get("/healthz")["healthy"]
        assert broker.admin.get("/v1/offloads")["waiting"] == 0
        assert sorted(receive_all(broker)) == sorted(made)


def test_a_lake_that_cannot_be_read_is_a_problem_and_loses_nothing(broker, spark, tmp_path) -> None:
    made = fill(broker)
    uri = tmp_path / "lake"
    offload(broker.admin, str(uri), now_ms(broker) + 48 * HOUR_MS)
    uri.rename(tmp_path / "elsewhere")
    broker.advance(200 * HOUR_MS)
    health = broker.admin.get("/v1/broker")
    assert any("lake" in problem for problem in health["problems"])
    left = broker.admin.get("/v1/offloads")["waiting"]
    assert left == broker.admin.get("/v1/pending")["total"] > 10
    (tmp_path / "elsewhere").rename(uri)
    assert promote_due(broker.admin_url).rows == left
    broker.advance(1_000)
    assert sorted(receive_all(broker)) == sorted(made)
    proof = audit(spark, broker.data_dir)
    assert proof.counts == {"late": left}
    assert proof.total("scheduled") == proof.total("handed_over") == len(made)
    assert proof.total("visible_at_once") == 0
    assert forecast(spark, broker.data_dir).total == 0


def test_recalls_in_the_lake_are_true(broker, tmp_path) -> None:
    fill(broker)
    due = now_ms(broker) + 72 * HOUR_MS
    sent = [
        broker.admin.post("/v1/messages", {"topic": "alpha", "body": "x", "deliver_at_ms": due})
        for _ in range(3)
    ]
    uri = tmp_path / "lake"
    offload(broker.admin, str(uri), now_ms(broker) + 48 * HOUR_MS)
    total = broker.admin.get("/v1/pending")["total"]
    by_handle = {"handle": sent[0]["recall_handle"]}
    named = {"topic": "alpha", "message_id": sent[1]["message_id"], "deliver_at_ms": due}
    for body in (by_handle, named):
        assert broker.admin.post("/v1/recall", body)["status"] == "CANCELLED"
        assert refused(broker, "/v1/recall", body) is ErrorCode.NOT_FOUND
    assert refused(broker, "/v1/recall", {**named, "message_id": "none"}) is ErrorCode.NOT_FOUND
    assert broker.admin.get("/v1/pending")["total"] == total - 2
    uri.rename(tmp_path / "elsewhere")
    named = {**named, "message_id": sent[2]["message_id"]}
    assert refused(broker, "/v1/recall", named) is ErrorCode.IN_TIER
    (tmp_path / "elsewhere").rename(uri)
    promote_due(broker.admin_url, ahead_ms=200 * HOUR_MS)
    assert broker.admin.get("/v1/pending")["total"] == total - 2
    assert broker.admin.post("/v1/recall", named)["status"] == "CANCELLED"
    assert refused(broker, "/v1/recall", by_handle) is ErrorCode.NOT_FOUND


def test_what_is_in_the_lake_is_found_and_recalled_by_key(broker, tmp_path) -> None:
    """Messages that were sent, which an index knows, and bulk loaded ones, which none does."""
    for topic in TOPICS:
        broker.create_topic(topic)
    due = now_ms(broker) + 72 * HOUR_MS
    for i, (key, at) in enumerate([("a b", due), ("b", due), ("a", due - 60 * HOUR_MS)]):
        sent = {"topic": "alpha", "body": f"s{i}", "deliver_at_ms": at, "keys": key.split()}
        broker.admin.post("/v1/messages", sent)
    made = [
        encode(
            topic="alpha",
            body=bytes(3_000_000),  # small transactions go through the log
            message_id=f"m{i}",
            type=MessageType.DELAY,
            due_ms=due + i * HOUR_MS,
            keys=[["a"], ["c", "d"], ["d"], ["a", "d"]][i],
        )
        for i in range(4)
    ]
    load = {"app": "load", "version": 1, "topic": "alpha"}
    begun = broker.admin.post("/v1/adoptions/begin", load)
    files = [stage(begun, "all", made)]
    done = {**load, "token": begun["token"], "files": files}
    assert broker.admin.post("/v1/adoptions/commit", done)["files"] == 1
    offload(broker.admin, str(tmp_path / "lake"), now_ms(broker) + 48 * HOUR_MS)
    assert broker.admin.get("/v1/offloads")["waiting"] == 6
    by_key = {"topic": "alpha", "key": "d"}
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    assert refused(broker, "/v1/recall/key", by_key) is ErrorCode.IN_TIER
    with pytest.raises(HorologError, match="cannot be read just now"):
        look_up(broker, id="m3")
    assert total(broker) == 7
    (tmp_path / "elsewhere").rename(tmp_path / "lake")
    assert look_up(broker, key="d") == [("m1", "lake"), ("m2", "lake"), ("m3", "lake")]
    assert sorted(state for _, state in look_up(broker, key="a")) == ["lake"] * 3 + ["pending"]
    by_id = {"topic": "alpha", "id": "m0"}
    m0 = broker.admin.get("/v1/messages/find", by_id)["messages"]
    assert [(each["keys"], each["deliver_at_ms"]) for each in m0] == [(["a"], due)]
    assert broker.admin.get("/v1/messages/find", {"id": "m0"})["messages"] == m0
    assert broker.admin.get("/v1/messages/m0")["state"] == "lake"
    by_handle = {"handle": m0[0]["recall_handle"]}
    assert broker.admin.post("/v1/recall", by_handle)["status"] == "CANCELLED"
    assert look_up(broker, id="m0") == [("m0", "recalled")]
    with pytest.raises(HorologError, match="is known"):
        look_up(broker, id="m9")
    answer = broker.admin.post("/v1/recall/key", by_key)
    assert answer["cancelled"] == 3
    assert [each["message_id"] for each in answer["results"]] == ["m1", "m2", "m3"]
    assert refused(broker, "/v1/recall/key", by_key) is ErrorCode.NOT_FOUND
    answer = broker.admin.post("/v1/recall/key", {**by_key, "key": "a"})
    assert answer["cancelled"] == len(answer["results"]) == 2  # s0 in the lake, s2 here
    assert look_up(broker, key="d") == [("m1", "recalled"), ("m2", "recalled"), ("m3", "recalled")]
    assert total(broker) == 1
    broker.advance(30 * 24 * HOUR_MS)
    assert receive_all(broker) == ["s1"]


def look_up(broker, **wanted: str) -> list[tuple[str, str]]:
    """(message id, state) of what is found in `alpha`."""
    found = broker.admin.get("/v1/messages/find", {"topic": "alpha", **wanted})["messages"]
    return [(each["message_id"], each["state"]) for each in found]


def refused(broker, path: str, body: dict[str, object]) -> ErrorCode:
    with pytest.raises(HorologError) as found:
        broker.admin.post(path, body)
    return found.value.code
