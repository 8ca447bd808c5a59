"""Figures and settings of the broker over remoting, as admin tools read them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.support.remoting_door import remoting_door
from tests.support.sent import send

from horolog import __version__
from horolog.config import Settings
from horolog.protocol.queue_commands import CommitOffsets
from horolog.protocol.remoting.broker_bodies import properties
from horolog.protocol.remoting.codes import Code, Status
from horolog.server.remoting import figures
from horolog.server.remoting.settings import properties_of

CLUSTER_LIST = {  # keys without which `mqadmin clusterList` 5.5 prints nothing, or wrong columns
    "brokerActive", "putTps", "getTransferredTps", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize",
    "ackThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills", "commitLogDiskRatio", "timerReadBehind",
    "timerOffsetBehind", "timerCongestNum", "brokerVersionDesc", "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
}  # fmt: skip
NUMBERS = (  # that RocketMQ's exporter for Prometheus parses, and fails without
    "msgPutTotalTodayNow sendThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills"
    " msgGetTotalTodayNow queryThreadPoolQueueSize bootTimestamp msgPutTotalYesterdayMorning"
    " msgGetTotalYesterdayMorning pullThreadPoolQueueSize commitLogMinOffset"
    " pullThreadPoolQueueHeadWaitTimeMills dispatchMaxBuffer brokerVersion consumeQueueDiskRatio"
    " pageCacheLockTimeMills commitLogDiskRatio commitLogMaxOffset getMessageEntireTimeMax"
    " msgPutTotalTodayMorning putMessageTimesTotal msgGetTotalTodayMorning sendThreadPoolQueueSize"
    " startAcceptSendRequestTimeStamp putMessageEntireTimeMax earliestMessageTimeStamp"
    " remainTransientStoreBufferNumbs queryThreadPoolQueueCapacity putMessageAverageSize"
    " dispatchBehindBytes putMessageSizeTotal sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity"
    " putTps getMissTps getTransferedTps getTotalTps getFoundTps"
)
CAPACITY = re.compile(r"Total : \d+\.\d [KMGTP]iB, Free : \d+\.\d [KMGTP]iB\.")


def test_figures_are_those_of_the_broker(tmp_path: Path) -> None:
    with remoting_door(tmp_path, data_dir=tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        client.json(Code.GET_BROKER_RUNTIME_INFO)
        send(door, "orders", b"1", b"2", b"3")
        due_ms = door.engine.clock.wall_ms() + 60_000
        send(door, "orders", b"later", due_ms=due_ms)
        door.submit(CommitOffsets("workers", "orders", {0: 2}))
        found = client.json(Code.GET_BROKER_RUNTIME_INFO)["table"]
        assert found.keys() >= CLUSTER_LIST
        assert all(isinstance(value, str) for value in found.values())
        assert found["brokerVersionDesc"] == f"horolog-{__version__}"
        assert (found["timerCongestNum"], found["timerReadBehind"]) == ("1", "0")
        assert (found["putTps"], found["msgPutTotalTodayNow"]) == ("0.07", "4")
        assert (found["putMessageTimesTotal"], found["getTotalTps"]) == ("4", "0.03")
        assert CAPACITY.fullmatch(found["commitLogDirCapacity"])
        total, used, free = shutil.disk_usage(tmp_path)
        assert used + free <= total
        assert float(found["commitLogDiskRatio"]) == pytest.approx(used / (used + free), abs=0.01)


def test_what_exporters_and_dashboards_parse_is_there(tmp_path: Path) -> None:
    with remoting_door(tmp_path, data_dir=tmp_path) as door, door.client() as client:
        found = client.json(Code.GET_BROKER_RUNTIME_INFO)["table"]
        assert all(float(found[name]) >= -1 for name in NUMBERS.split())
        assert found["putMessageAverageSize"] == f"{door.engine.broker.shard.log.end:.1f}"
        assert found["remainHowManyDataToFlush"] == "0 B"
        runtime = r"\[ 0 days, 0 hours, \d+ minutes, \d+ seconds \]"
        assert re.fullmatch(runtime, found["runtime"])
        times = [each.split(":") for each in found["putMessageDistributeTime"].split()]
        assert len(times) == 13
        assert all(count == "0" for _, count in times)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (252 << 30, "252.0 GiB"),
        (5 << 60, "5120.0 PiB"),
    ],
)
def test_sizes_are_cut_as_by_other_tools(size: int, shown: str) -> None:
    assert figures._size(size) == shown


def test_rates_of_topics_and_groups_are_answered(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        client.json(Code.GET_BROKER_RUNTIME_INFO)
        door.create("orders", queues=1)
        send(door, "orders", *[b"%d" % number for number in range(6)])
        client.json(Code.GET_BROKER_RUNTIME_INFO)
        item = {"avgpt": 0.0, "sum": 6, "tps": 0.1}
        for name, key in (("TOPIC_PUT_NUMS", "orders"), ("BROKER_PUT_NUMS", "DefaultCluster")):
            asked = {"statsName": name, "statsKey": key}
            found = client.json(Code.VIEW_BROKER_STATS_DATA, asked)
            assert found["statsMinute"] == item
            assert (found["statsHour"]["sum"], found["statsDay"]["sum"]) == (6, 6)
        asked = {"statsName": "GROUP_GET_NUMS", "statsKey": "orders@workers"}
        assert client.json(Code.VIEW_BROKER_STATS_DATA, asked)["statsMinute"]["sum"] == 0


@pytest.mark.parametrize(
    ("name", "key"), [("TOPIC_PUT_SIZE", "orders"), ("GROUP_GET_NUMS", "orders"), ("", "")]
)
def test_other_rates_are_refused(tmp_path: Path, name: str, key: str) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        answer = client.call(Code.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        assert answer.code == Status.SYSTEM_ERROR, "as RocketMQ: exporters pass over that one alone"
        assert answer.remark.startswith(f"statsName: {name!r} of {key!r} is not kept; there are T")


def test_settings_have_rocketmqs_names(tmp_path: Path) -> None:
    settings = properties_of(Settings(data_dir=tmp_path))
    assert settings["fileReservedTime"] == 72
    assert settings["flushDiskType"] == "SYNC_FLUSH"
    assert str(settings["messageDelayLevel"]).startswith("1s 5s 10s 30s 1m")
    with remoting_door(tmp_path, settings=settings) as door, door.client() as client:
        for code in (Code.GET_BROKER_CONFIG, Code.GET_NAMESRV_CONFIG):
            lines = client.done(code).body.decode().splitlines()
            assert "brokerName=broker-a" in lines
            assert f"listenPort={door.broker[1]}" in lines
            assert "maxMessageSize=4194304" in lines


def test_text_of_properties_keeps_backslashes_and_lines() -> None:
    assert properties({"path": "a\\b\nc"}) == b"path=a\\\\b\\nc\n"


def test_entries_of_a_queue_are_shown(tmp_path: Path) -> None:
    with remoting_door(tmp_path) as door, door.client() as client:
        door.create("orders", queues=1)
        send(door, "orders", b"1", tag="TagA")
        send(door, "orders", b"2")
        asked = {"topic": "orders", "queueId": 0, "index": 0, "count": 10}
        found = client.json(Code.QUERY_CONSUME_QUEUE, asked)
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 2)
        assert [unit["tagsCode"] for unit in found["queueData"]] == [2598919, 0]
        assert all(unit["eval"] and unit["physicSize"] > 91 for unit in found["queueData"])
        wrong = client.call(Code.QUERY_CONSUME_QUEUE, asked | {"queueId": 1})
        assert wrong.remark == "queue: 1; topic 'orders' has the queues 0 to 0"
        wrong = client.call(Code.QUERY_CONSUME_QUEUE, asked | {"count": 0})
        assert wrong.remark == "count: 0; 1 to 1000 are allowed"
