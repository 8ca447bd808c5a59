"""Figures and settings of the broker, for admin tools.

Keys are RocketMQ's, since its tools look for them.  Figures that this broker does not have are left
out, except keys without which a tool fails (mqadmin, the dashboard, the exporter for Prometheus):
`_NOTHING_WAITS` and `_NOT_MEASURED` have those.
"""

from __future__ import annotations

import shutil
import time
from typing import Any

from horolog import __version__
from horolog.limits import ADMIN_LIST_MAX, QUEUES_MAX, TURN_READ_BYTES
from horolog.protocol.commands import (
    BrokerView,
    DescribeBroker,
    ListPending,
    PendingMessage,
    QueueRead,
    ReadQueue,
)
from horolog.protocol.remoting import broker_bodies as bodies
from horolog.protocol.remoting.broker_bodies import Unit
from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import VERSION
from horolog.protocol.remoting.request import Answer, integer, text
from horolog.protocol.rocketmq import properties
from horolog.protocol.rocketmq.layout import MULTI_TAGS, decode
from horolog.protocol.rocketmq.message import RECORD_HEAD_BYTES
from horolog.protocol.rocketmq.names import check_topic
from horolog.protocol.rocketmq.tags import tags_code
from horolog.server.rates import Rate
from horolog.server.remoting.family import Handler
from horolog.server.remoting.node import Node
from horolog.server.remoting.request import Request
from horolog.server.remoting.subscriptions import as_java, tags_of
from horolog.server.threads import in_pool

_NOTHING_WAITS = {  # no requests wait in queues of threads here, and no messages wait to be filed
    "sendThreadPoolQueueSize": 0,
    "sendThreadPoolQueueHeadWaitTimeMills": 0,
    "pullThreadPoolQueueSize": 0,
    "pullThreadPoolQueueHeadWaitTimeMills": 0,
    "ackThreadPoolQueueSize": 0,
    "ackThreadPoolQueueHeadWaitTimeMills": 0,
    "queryThreadPoolQueueSize": 0,
    "queryThreadPoolQueueHeadWaitTimeMills": 0,
    "sendThreadPoolQueueCapacity": 0,
    "pullThreadPoolQueueCapacity": 0,
    "queryThreadPoolQueueCapacity": 0,
    "dispatchMaxBuffer": 0,
    "pageCacheLockTimeMills": 0,
    "timerOffsetBehind": 0,
}
_PUT_TIMES = (  # RocketMQ's bounds of its counts of sends by duration
    "<=0ms 0~10ms 10~50ms 50~100ms 100~200ms 200~500ms 500ms~1s 1~2s 2~3s 3~4s 4~5s 5~10s 10s~"
)
_NOT_MEASURED = {  # values that RocketMQ reports where it has not measured anything
    "earliestMessageTimeStamp": -1,
    "getMessageEntireTimeMax": 0,
    "getMissTps": "0.00",
    "putMessageDistributeTime": " ".join(f"[{bounds}]:0" for bounds in _PUT_TIMES.split()),
    "putMessageEntireTimeMax": 0,
    "remainTransientStoreBufferNumbs": (1 << 31) - 1,  # there is no such buffer that could run out
    "startAcceptSendRequestTimeStamp": 0,  # sends are accepted from the start
}
_STATS = "TOPIC_PUT_NUMS, GROUP_GET_NUMS, BROKER_PUT_NUMS, BROKER_GET_NUMS"


class FigureCodes:
    """Handlers of requests about the broker itself."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._engine = node.engine
        self._rates = node.rates
        self._booted_ms = time.time_ns() // 1_000_000

    def handlers(self) -> dict[Code, Handler]:
        """Map each request code to its handler."""
        return {
            Code.GET_BROKER_CONFIG: self.settings,
            Code.GET_NAMESRV_CONFIG: self.settings,
            Code.GET_BROKER_RUNTIME_INFO: self.runtime,
            Code.VIEW_BROKER_STATS_DATA: self.stats,
            Code.QUERY_CONSUME_QUEUE: self.units,
        }

    def settings(self, request: Request) -> Answer:
        """Return the broker's settings, as text of Java's `Properties`."""
        node = self._node
        address = node.address(request)
        host, _, port = address.rpartition(":")
        table: dict[str, object] = {
            "brokerClusterName": node.cluster_name,
            "brokerId": 0,
            "brokerIP1": host,
            "brokerName": node.broker_name,
            "listenPort": port,
            **node.settings,
        }
        return Answer(body=bodies.properties(table))

    async def runtime(self, request: Request) -> Answer:
        """Return figures of the broker."""
        del request
        await self._rates.read_totals()
        view: BrokerView = await self._engine.submit(DescribeBroker())
        now_ms = self._engine.clock.wall_ms()
        late: list[PendingMessage] = await self._engine.submit(ListPending(0, now_ms, limit=1))
        puts, gets = self._rates.puts(), self._rates.gets()
        put, got = self._rates.puts_of_day.day(), self._rates.gets_of_day.day()
        got_a_second = f"{gets.minute.a_second:.2f}"
        table: dict[str, object] = {
            **_NOTHING_WAITS,
            **_NOT_MEASURED,
            "bootTimestamp": self._booted_ms,
            "brokerActive": "true",
            "brokerVersion": VERSION,
            "brokerVersionDesc": f"horolog-{__version__}",
            "commitLogMaxOffset": view.log_end,
            "commitLogMinOffset": view.log_start,
            "dispatchBehindBytes": view.log_end - view.commit_position,
            "getFoundTps": got_a_second,
            "getTotalTps": got_a_second,
            "getTransferedTps": got_a_second,  # the spelling of 4.x
            "getTransferredTps": got_a_second,
            "msgGetTotalTodayMorning": got.this_morning,
            "msgGetTotalTodayNow": got.now,
            "msgGetTotalYesterdayMorning": got.yesterday_morning,
            "msgPutTotalTodayMorning": put.this_morning,
            "msgPutTotalTodayNow": put.now,
            "msgPutTotalYesterdayMorning": put.yesterday_morning,
            "putMessageAverageSize": f"{view.log_end / max(put.now, 1):.1f}",
            "putMessageSizeTotal": view.log_end,
            "putMessageTimesTotal": put.now,
            "putTps": f"{puts.minute.a_second:.2f}",
            "remainHowManyDataToFlush": f"{view.log_end - view.durable_position} B",
            "runtime": _duration(time.time_ns() // 1_000_000 - self._booted_ms),
            "timerCongestNum": view.pending,
            "timerReadBehind": (now_ms - late[0].due_ms) // 1000 if late else 0,
        }
        return Answer(body=bodies.kv_table(table | await in_pool(self._disk)))

    def _disk(self) -> dict[str, object]:
        """Return figures of the disk.

        Runs in a thread: tools may ask often, and a network file system may be slow.
        """
        if self._node.data_dir is None:
            return {}
        total, used, free = shutil.disk_usage(self._node.data_dir)
        ratio = f"{used / max(used + free, 1):.4f}"  # of the unreserved space, as in `df`
        return {
            "commitLogDirCapacity": f"Total : {_size(total)}, Free : {_size(free)}.",
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
        }

    def stats(self, request: Request) -> Answer:
        """Return the messages of the last minute, hour and day: a topic's, a group's, or all."""
        name = text(request.frame, "statsName")
        key = text(request.frame, "statsKey")
        topic, _, group = key.partition("@")
        if name == "TOPIC_PUT_NUMS":
            recent = self._rates.puts(key)
        elif name == "GROUP_GET_NUMS" and topic and group:
            recent = self._rates.gets(topic, group)
        elif name == "BROKER_PUT_NUMS":
            recent = self._rates.puts()
        elif name == "BROKER_GET_NUMS":
            recent = self._rates.gets()
        else:  # exporters report no error for this code alone
            return Answer(
                Status.SYSTEM_ERROR,
                remark=f"statsName: {name[:40]!r} of {key[:200]!r} is not kept; there are {_STATS}",
            )
        return Answer(body=bodies.stats_data(*map(_item, recent)))

    async def units(self, request: Request) -> Answer:
        """Return some messages of a queue, and whether a group's filter matches each."""
        frame = request.frame
        topic = check_topic(text(frame, "topic"))
        group = text(frame, "consumerGroup", "")
        wanted = self._node.registry.subscription(group, topic) if group else None
        tags = tags_of(wanted)
        read: QueueRead = await self._engine.submit(
            ReadQueue(
                topic,
                integer(frame, "queueId", low=0, high=QUEUES_MAX),
                integer(frame, "index", 0, low=0),
                integer(frame, "count", 32, low=1, high=ADMIN_LIST_MAX),
                TURN_READ_BYTES,
            )
        )
        units = []
        for record in read.records:
            stored = decode(record[RECORD_HEAD_BYTES:])
            tag = properties.decode(stored.properties).get(properties.TAGS, "")
            size = len(record) - RECORD_HEAD_BYTES
            units.append(
                Unit(
                    stored.position,
                    size,
                    tags_code(tag) if tag else 0,
                    tags.matches(tag, has_many=bool(stored.sys_flag & MULTI_TAGS)),
                )
            )
        return Answer(
            body=bodies.queue_units(units, read.min_offset, read.max_offset, as_java(wanted))
        )


def _item(rate: Rate) -> dict[str, Any]:
    return bodies.stats_item(rate.sum, rate.a_second)


def _size(size: int) -> str:
    """Format bytes as RocketMQ does, for tools that cut at the blank: `252.0 GiB`."""
    number, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if number < 1024 or unit == "PiB":
            break
        number /= 1024
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"


def _duration(ms: int) -> str:
    """Format how long the broker has been running, as RocketMQ does."""
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
