"""Messages in the lake are moved, and cancelled by window, as those on the disk are."""

from __future__ import annotations

from typing import Any

import pytest
from adopted_runs import stage
from lake_world import now_ms, receive_all, total

from horolog.errors import ErrorCode, HorologError
from horolog.limits import HOUR_MS
from horolog.pipeline.audit import audit
from horolog.pipeline.audit_report import balance
from horolog.pipeline.offload import offload
from horolog.pipeline.promote import promote_due
from horolog.protocol.commands import MessageType
from horolog.protocol.rocketmq.message import encode

DAY_MS = 24 * HOUR_MS


@pytest.fixture
def sent(broker) -> dict[str, dict[str, Any]]:
    """Messages of `alpha`, one every twelve hours from 30 hours ahead, with tag A or B: body → answer to its send."""
    for topic in ("alpha", "beta"):
        broker.create_topic(topic)
    now = now_ms(broker)
    found = {}
    for i in range(20):
        body = {
            "topic": "alpha",
            "body": f"b{i}",
            "tag": "AB"[i % 2],
            "keys": [f"k{i}"],
            "deliver_at_ms": now + 30 * HOUR_MS + i * 12 * HOUR_MS,
        }
        found[f"b{i}"] = broker.admin.post("/v1/messages", body) | body
    body = {"topic": "beta", "body": "other", "tag": "A", "deliver_at_ms": now + 4 * DAY_MS}
    found["other"] = broker.admin.post("/v1/messages", body) | body
    return found


def to_the_lake(broker, tmp_path) -> int:
    return offload(broker.admin, str(tmp_path / "lake"), now_ms(broker) + 2 * DAY_MS).rows


def refused(broker, path: str, body: dict[str, Any]) -> HorologError:
    with pytest.raises(HorologError) as error:
        broker.admin.post(path, body)
    return error.value


def states(broker, message_id: str) -> set[str]:
    found = broker.admin.get("/v1/messages/find", {"topic": "alpha", "id": message_id})["messages"]
    return {each["state"] for each in found}


def test_a_message_in_the_lake_is_rescheduled(broker, spark, sent, tmp_path) -> None:
    """To another hour, by handle and by id; killed after it; the audit knows it as moved."""
    assert to_the_lake(broker, tmp_path) == 19
    b5, b6, b7 = (sent[name] for name in ("b5", "b6", "b7"))
    soon = now_ms(broker) + 3 * HOUR_MS
    moved = broker.admin.post(
        "/v1/reschedule", {"handle": b5["recall_handle"], "new_deliver_at_ms": soon}
    )
    assert (moved["status"], moved["message_id"]) == ("RESCHEDULED", b5["message_id"])
    named = {key: b6[key] for key in ("topic", "message_id", "deliver_at_ms")}
    later = b6["deliver_at_ms"] + 90 * DAY_MS
    far = broker.admin.post("/v1/reschedule", {**named, "new_deliver_at_ms": later})
    assert (far["deliver_at_ms"], far["copies"]) == (later, 1)
    broker.kill()
    broker.start()
    assert total(broker) == len(sent)
    assert broker.admin.get("/v1/offloads")["waiting"] == 17
    again = refused(broker, "/v1/reschedule", {**named, "new_deliver_at_ms": later})
    assert again.code is ErrorCode.NOT_FOUND
    assert "was moved to" in again.message
    assert "was moved to" in refused(broker, "/v1/recall", named).message
    assert states(broker, b5["message_id"]) == {"moved", "pending"}
    cancelled = broker.admin.post("/v1/recall", {"handle": far["recall_handle"]})
    assert cancelled["status"] == "CANCELLED"
    at_once = {"handle": b7["recall_handle"], "new_deliver_at_ms": now_ms(broker)}
    assert broker.admin.post("/v1/reschedule", at_once)["queue_offset"] >= 0
    assert receive_all(broker) == ["b7"]
    broker.advance(3 * HOUR_MS)
    assert receive_all(broker) == ["b5"]
    broker.advance(120 * DAY_MS)
    assert sorted(receive_all(broker)) == sorted(set(sent) - {"b5", "b6", "b7"})
    assert total(broker) == 0
    proof = audit(spark, broker.data_dir)
    assert proof.counts == {}
    assert proof.overdue == 0
    # b5 and b6 came in once more; b7 was moved to a consumer at once
    assert [n for _, n in balance(proof)] == [len(sent) + 2, 0, 2 - len(sent), -1, -3, 0, 0]


def test_a_bulk_loaded_message_in_the_lake_is_rescheduled(broker, spark, tmp_path) -> None:
    """Its record is in no log."""
    broker.create_topic("alpha")
    due = now_ms(broker) + 3 * DAY_MS
    made = [
        encode(
            topic="alpha",
            body=f"m{i}".encode().ljust(3_000_000),  # small transactions go through the log
            message_id=f"m{i}",
            type=MessageType.DELAY,
            due_ms=due + i,
        )
        for i in range(3)
    ]
    load = {"app": "load", "version": 1, "topic": "alpha"}
    begun = broker.admin.post("/v1/adoptions/begin", load)
    done = {**load, "token": begun["token"], "files": [stage(begun, "all", made)]}
    assert broker.admin.post("/v1/adoptions/commit", done)["files"] == 1
    assert to_the_lake(broker, tmp_path) == 3
    named = {"topic": "alpha", "message_id": "m1", "deliver_at_ms": due + 1}
    broker.admin.post("/v1/reschedule", {**named, "in_ms": HOUR_MS})
    broker.restart()
    assert "was moved to" in refused(broker, "/v1/recall", named).message
    broker.advance(HOUR_MS)
    asked = {"topic": "alpha", "group": "g", "limit": 1}
    (first,) = broker.admin.post("/v1/receive", asked)["messages"]
    assert (first["message_id"], len(first["body"])) == ("m1", 3_000_000)
    assert total(broker) == 2
    assert [n for _, n in balance(audit(spark, broker.data_dir))] == [1, 3, -1, 0, -1, 0, 2]
    broker.advance(4 * DAY_MS)
    assert total(broker) == 0
    assert [n for _, n in balance(audit(spark, broker.data_dir))] == [1, 3, -3, 0, -1, 0, 0]


def test_a_window_is_recalled_wherever_it_is(broker, spark, sent, tmp_path) -> None:
    """Part of it lies on the disk, part in the lake, part was promoted, part moved there a second time."""
    assert to_the_lake(broker, tmp_path) == 19
    near = {"topic": "alpha", "body": "near", "tag": "A", "deliver_at_ms": now_ms(broker) + HOUR_MS}
    far = {**near, "body": "far", "deliver_at_ms": now_ms(broker) + 5 * DAY_MS + 1}
    for body in (near, far):
        broker.admin.post("/v1/messages", body)
    assert to_the_lake(broker, tmp_path) == 1
    promote_due(broker.admin_url, ahead_ms=3 * DAY_MS)
    assert 10 < broker.admin.get("/v1/offloads")["waiting"] < 20
    start = now_ms(broker)
    window = {"topic": "alpha", "from_ms": start, "to_ms": start + 7 * DAY_MS, "tag": "A"}
    meant = {
        name
        for name, each in sent.items()
        if each["topic"] == "alpha"
        and each["tag"] == "A"
        and each["deliver_at_ms"] < window["to_ms"]
    } | {"near", "far"}
    assert len(meant) == 2 + 6
    counted = broker.admin.post("/v1/recall/window", {**window, "dry_run": True})
    assert (counted["matched"], counted["cancelled"]) == (len(meant), 0)
    assert total(broker) == len(sent) + 2
    done = broker.admin.post("/v1/recall/window", window)
    assert (done["matched"], done["cancelled"]) == (len(meant), len(meant))
    assert done["size_bytes"] == counted["size_bytes"] > 100 * len(meant)
    assert broker.admin.post("/v1/recall/window", window)["matched"] == 0
    broker.kill()
    broker.start()
    assert total(broker) == len(sent) + 2 - len(meant)
    broker.advance(30 * DAY_MS)
    assert sorted(receive_all(broker)) == sorted((set(sent) | {"near", "far"}) - meant)
    proof = audit(spark, broker.data_dir)
    assert (proof.counts, proof.overdue) == ({}, 0)
    assert proof.total("recalled") == len(meant)


def test_nothing_changes_if_the_lake_cannot_be_read(broker, sent, tmp_path) -> None:
    to_the_lake(broker, tmp_path)
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    start = now_ms(broker)
    handle = sent["b9"]["recall_handle"]
    for path, body in (
        ("/v1/reschedule", {"handle": handle, "in_ms": 5}),
        ("/v1/recall/window", {"topic": "alpha", "from_ms": start, "to_ms": start + 9 * DAY_MS}),
        (
            "/v1/recall/window",
            {"topic": "alpha", "from_ms": start, "to_ms": start + 9 * DAY_MS, "dry_run": True},
        ),
    ):
        error = refused(broker, path, body)
        assert error.code is ErrorCode.IN_TIER
        assert "cannot be read just now" in error.message
    assert total(broker) == len(sent)
    assert (
        refused(broker, "/v1/reschedule", {"handle": handle, "in_ms": 1 << 50}).code
        is not ErrorCode.IN_TIER
    )
    (tmp_path / "elsewhere").rename(tmp_path / "lake")
    unknown = {"topic": "alpha", "message_id": "none", "deliver_at_ms": sent["b9"]["deliver_at_ms"]}
    assert refused(broker, "/v1/reschedule", {**unknown, "in_ms": 5}).code is ErrorCode.NOT_FOUND
    empty = {"topic": "alpha", "from_ms": start + 1, "to_ms": start}
    assert refused(broker, "/v1/recall/window", empty).code is ErrorCode.BAD_REQUEST
    assert total(broker) == len(sent)
