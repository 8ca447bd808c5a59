"""The process ring: the installed broker killed with SIGKILL again and again while clients use it.

    python -m horolog.testing.ring --kills 200 --seed 7

Senders, a recaller and consumers talk gRPC to a real `horolog serve`; the moment of each kill follows from the
seed and from how many answers have come.  A send whose answer is lost is sent again with the same ids.  At the end
a new consumer group reads everything from offset 0, and what was acknowledged, recalled, seen and consumed is
compared with it (P1, P2, P3, P8).  Messages due in days and years gather in far buffers that are small here, become
runs and are merged; at the end exactly those that were acknowledged and not cancelled are pending (P2, P8, P10).
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.group_commit import Flush
from horolog.server.grpc_front import SERVICE
from horolog.testing.broker import BrokerProcess

TOPIC = "ring"
FAR_TOPIC = "ring-far"
_HEADERS = [("x-mq-client-id", "ring"), ("x-mq-language", "PYTHON")]
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]
_CALL_S = 5.0
_DRAIN_S = 60.0
_READY_S = 120.0  # a start that is slow on a busy machine breaks no promise
_READ_S = 600.0  # to read everything at the end; the leases of what was read last longer
_PAUSE_S = 0.01  # between recalls
_AGAIN_S = 60.0  # how long a send is repeated: less than the dedup window
_FAR_BUFFER_BYTES = 65_536
_CHECKPOINT_EVERY = 20  # kills
_LOOK_S = 0.5
_DAY_MS = 86_400_000
_PAGE = 1_000
_Place = tuple[int, int]  # queue, offset


class Budget(NamedTuple):
    """How long a ring may kill: so many seconds, and at least so many kills."""

    seconds: float
    kills_min: int


UNLIMITED = Budget(math.inf, 0)


class RingBroken(AssertionError):
    """A promise did not hold; the text names it."""


def _check(holds: bool, promise: str, why: str) -> None:
    if not holds:
        raise RingBroken(f"{promise}: {why}")


class Ring:
    """One broker, its clients, and what they know."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.broker = broker
        self.random = Random(seed)
        self.due: dict[str, int] = {}  # every id ever sent → due ms, 0: at once
        self.far: set[str] = set()  # ids of the far topic
        self.stored: dict[str, str] = {}  # acknowledged id → recall handle
        self.recalls: dict[
            str, str
        ] = {}  # id → CANCELLED, ALREADY_DELIVERED, NOT_FOUND, or "" (no answer)
        self.places: dict[_Place, str] = {}
        self.consumed: set[_Place] = set()
        self.answers = 0
        self._progress = asyncio.Event()
        self._closing = False
        self._far_from = time.time_ns() // 1_000_000 + 2 * _DAY_MS
        self._n = 0

    # --- calls ----------------------------------------------------------------------------------

    async def _call(self, name: str, request: Any) -> Any:
        """A unary call's answer; None if it was lost."""
        answer = getattr(pb, f"{name}Response")
        method = self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            found = await method(request, metadata=_HEADERS, timeout=_CALL_S, wait_for_ready=True)
        except grpc.aio.AioRpcError:
            return None
        self.answers += 1
        self._progress.set()
        return found

    async def _receive(self, group: str, lease_s: int = 30) -> list[Any]:
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=group),
            message_queue=pb.MessageQueue(topic=pb.Resource(name=TOPIC), id=-1),
            batch_size=32,
            invisible_duration=Duration(seconds=lease_s),
            long_polling_timeout=Duration(nanos=500_000_000),
        )
        method = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=pb.ReceiveMessageRequest.SerializeToString,
            response_deserializer=pb.ReceiveMessageResponse.FromString,
        )
        got = []
        try:
            stream = method(request, metadata=_HEADERS, timeout=_CALL_S, wait_for_ready=True)
            async for frame in stream:
                if frame.HasField("message"):
                    got.append(frame.message)
        except grpc.aio.AioRpcError:
            pass
        return got

    # --- clients --------------------------------------------------------------------------------

    def _message(self, topic: str) -> pb.Message:
        self._n += 1
        message_id = f"ring-{self._n}"
        system = pb.SystemProperties(message_id=message_id)
        self.due[message_id] = 0
        far = topic == FAR_TOPIC
        if far:
            self.far.add(message_id)
        if far or self.random.random() < 0.8:
            at = time.time_ns() // 1_000_000 + self.random.randrange(200, 2_500)
            if far:  # every due time only once, so that the list can be read page by page
                at = self._far_from + self.random.randrange(3_000) * _DAY_MS + self._n
            self.due[message_id] = at
            system.delivery_timestamp.CopyFrom(
                Timestamp(seconds=at // 1000, nanos=at % 1000 * 1_000_000)
            )
        return pb.Message(
            topic=pb.Resource(name=topic), body=message_id.encode(), system_properties=system
        )

    async def _send(self) -> None:
        while not self._closing:
            topic = self.random.choice([TOPIC, TOPIC, FAR_TOPIC])
            messages = [self._message(topic) for _ in range(self.random.choice([1, 1, 4, 16]))]
            request = pb.SendMessageRequest(messages=messages)
            answer, until = None, time.monotonic() + _AGAIN_S
            while answer is None and time.monotonic() < until:
                answer = await self._call("SendMessage", request)
            for entry in answer.entries if answer is not None else ():
                _check(entry.status.code == pb.OK, "P2", f"a send was refused: {entry.status}")
                self.stored[entry.message_id] = entry.recall_handle

    async def _recall(self) -> None:
        while not self._closing:
            free = [i for i, h in list(self.stored.items())[-400:] if h and i not in self.recalls]
            if not free:
                await asyncio.sleep(_PAUSE_S)
                continue
            message_id = self.random.choice(free)
            self.recalls[message_id] = ""
            request = pb.RecallMessageRequest(
                topic=pb.Resource(name=FAR_TOPIC if message_id in self.far else TOPIC),
                recall_handle=self.stored[message_id],
            )
            answer = await self._call("RecallMessage", request)
            if answer is not None:
                ok = answer.status.code == pb.OK
                self.recalls[message_id] = (
                    "CANCELLED" if ok else answer.status.message.split(":")[0]
                )
            await asyncio.sleep(_PAUSE_S)

    async def _consume(self) -> None:
        while not self._closing:
            for message in await self._receive("workers"):
                place = self._see(message)
                _check(place not in self.consumed, "P3", f"{place} was acknowledged and came again")
                entry = pb.AckMessageEntry(
                    message_id=message.system_properties.message_id,
                    receipt_handle=message.system_properties.receipt_handle,
                )
                answer = await self._call(
                    "AckMessage",
                    pb.AckMessageRequest(
                        group=pb.Resource(name="workers"),
                        topic=pb.Resource(name=TOPIC),
                        entries=[entry],
                    ),
                )
                if answer is not None and answer.status.code == pb.OK:
                    self.consumed.add(place)

    def _see(self, message: pb.Message) -> _Place:
        system = message.system_properties
        place = (system.queue_id, system.queue_offset)
        stored = system.store_timestamp
        store_ms = stored.seconds * 1000 + stored.nanos // 1_000_000
        _check(system.message_id in self.due, "P2", f"{system.message_id} was never sent")
        _check(self.due[system.message_id] <= store_ms, "P1", f"{system.message_id} came early")
        known = self.places.setdefault(place, system.message_id)
        _check(known == system.message_id, "P3", f"{place} held {known}, now {system.message_id}")
        return place

    # --- the run --------------------------------------------------------------------------------

    async def run(self, kills: int, budget: Budget = UNLIMITED) -> str:
        """Kill and restart under load, `kills` times or until the budget is used; then compare.

        Gives a line of figures.
        """
        ends = time.monotonic() + budget.seconds
        done = 0
        endpoint = self.broker.grpc_endpoint
        async with grpc.aio.insecure_channel(endpoint, options=_OPTIONS) as channel:
            self._channel = channel
            clients = [
                asyncio.ensure_future(client())
                for client in (self._send, self._send, self._recall, self._consume, self._consume)
            ]
            try:
                for i in range(kills):
                    if i % _CHECKPOINT_EVERY == _CHECKPOINT_EVERY - 1:
                        await self._next_checkpoint()
                    await self._kill_after(self.random.randrange(20, 150), clients)
                    done += 1
                    if done >= budget.kills_min and time.monotonic() > ends:
                        break
                self._closing = True
                await asyncio.wait_for(asyncio.gather(*clients), _DRAIN_S)
            finally:
                for client in clients:
                    client.cancel()
            delivered = await self._drain()
        self._compare(delivered)
        waiting = await asyncio.to_thread(self._compare_far)
        cancelled = sum(status == "CANCELLED" for status in self.recalls.values())
        return (
            f"{done} kills: {len(self.due)} sent, {len(self.stored)} acknowledged, {cancelled} recalled, "
            f"{len(delivered)} delivered once, none early, {len(self.consumed)} consumed, {waiting} far ahead"
        )

    async def _next_checkpoint(self) -> None:
        """Let it live long enough for a checkpoint, so that some starts begin from one."""
        deadline = time.monotonic() + _DRAIN_S
        path = "/v1/broker"
        before = (await asyncio.to_thread(self.broker.admin.get, path))["checkpoint_position"]
        now = before
        while now == before:
            _check(time.monotonic() < deadline, "P5", f"no checkpoint in {_DRAIN_S:g} s")
            await asyncio.sleep(_LOOK_S)
            now = (await asyncio.to_thread(self.broker.admin.get, path))["checkpoint_position"]

    async def _kill_after(self, more: int, clients: Sequence[asyncio.Future[None]]) -> None:
        target = self.answers + more
        while self.answers < target:
            for client in clients:
                if client.done():
                    client.result()
            self._progress.clear()
            await asyncio.wait_for(self._progress.wait(), _DRAIN_S)
        await asyncio.to_thread(self.broker.kill)
        await asyncio.to_thread(self.broker.restart, _READY_S)

    async def _drain(self) -> dict[str, _Place]:
        """Everything in the topic, read by a new group from offset 0, once all is due."""
        deadline = time.monotonic() + _DRAIN_S
        while await asyncio.to_thread(self.broker.pending, TOPIC):
            _check(time.monotonic() < deadline, "P2", "messages stay pending although they are due")
        delivered: dict[str, _Place] = {}
        empty = 0
        deadline = time.monotonic() + _READ_S
        while empty < 3:
            _check(
                time.monotonic() < deadline, "P2", f"{len(delivered)} were read in {_READ_S:g} s"
            )
            got = await self._receive("auditors", lease_s=2 * int(_READ_S))
            empty = 0 if got else empty + 1
            for message in got:
                place = self._see(message)
                message_id = message.system_properties.message_id
                known = delivered.setdefault(message_id, place)
                _check(known == place, "P3", f"{message_id} was handed over at {known} and {place}")
        return delivered

    def _compare(self, delivered: dict[str, _Place]) -> None:
        for place, message_id in self.places.items():
            _check(delivered.get(message_id) == place, "P2", f"{message_id} at {place} is gone")
        for message_id in self.stored.keys() - self.far:
            status = self.recalls.get(message_id)
            if status == "CANCELLED":
                _check(
                    message_id not in delivered, "P8", f"{message_id} was CANCELLED and delivered"
                )
            elif status == "NOT_FOUND":
                _check(False, "P8", f"{message_id} was acknowledged and its recall NOT_FOUND")
            elif status != "":  # "" is a recall whose answer was lost: it may have worked
                _check(message_id in delivered, "P2", f"{message_id} was acknowledged and is lost")

    def _compare_far(self) -> int:
        """Gives how many wait."""
        found: dict[str, int] = {}
        from_ms = self._far_from
        while True:
            page = self.broker.admin.get(
                "/v1/pending/messages", {"topic": FAR_TOPIC, "from": from_ms, "limit": _PAGE}
            )["messages"]
            for row in page:
                _check(row["message_id"] not in found, "P3", f"{row['message_id']} waits twice")
                found[row["message_id"]] = row["deliver_at_ms"]
            if len(page) < _PAGE:
                break
            from_ms = page[-1]["deliver_at_ms"] + 1
        counted = self.broker.pending(FAR_TOPIC)
        _check(counted == len(found), "P10", f"{counted} are counted, {len(found)} wait")
        for message_id, due_ms in found.items():
            _check(self.due.get(message_id) == due_ms, "P2", f"{message_id} waits for {due_ms}")
            _check(self.recalls.get(message_id) != "CANCELLED", "P8", f"{message_id} still waits")
        for message_id in self.far & self.stored.keys():
            status = self.recalls.get(message_id)
            _check(status in (None, "", "CANCELLED"), "P8", f"{message_id}: {status}")
            if status is None:
                _check(message_id in found, "P2", f"{message_id} was acknowledged and is lost")
        return len(found)


def run_ring(
    kills: int, seed: int, directory: Path, flush: str = "sync", budget: Budget = UNLIMITED
) -> str:
    """Run a whole ring on a new data directory; gives its figures, raises RingBroken."""
    with BrokerProcess(
        directory,
        clock="system",
        flush=cast("Flush", flush),
        arguments=[f"--far-buffer-bytes={_FAR_BUFFER_BYTES}"],
    ) as broker:
        for topic in (TOPIC, FAR_TOPIC):
            broker.create_topic(topic, type="mixed", queues=3)
        try:
            return asyncio.run(Ring(broker, seed).run(kills, budget))
        except RingBroken as error:
            replay = f"python -m horolog.testing.ring --kills {kills} --seed {seed} --flush {flush}"
            raise RingBroken(f"{error}\nreplay: {replay}") from error


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m horolog.testing.ring")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush", choices=["sync", "interval", "os"], default="sync")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="horolog-ring-") as directory:
        print(run_ring(options.kills, options.seed, Path(directory) / "data", options.flush))
    return 0


if __name__ == "__main__":
    sys.exit(main())
