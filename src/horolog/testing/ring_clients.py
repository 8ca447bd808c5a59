"""The clients of the process ring: they send, recall and consume while the broker is killed.

They note what they know, for the comparison at the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from random import Random
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from horolog.protocol.grpc import messaging_pb2 as pb
from horolog.server.grpc_unary import SERVICE

TOPIC = "ring"
FAR_TOPIC = "ring-far"
_HEADERS = [("x-mq-client-id", "ring"), ("x-mq-language", "PYTHON")]
_CALL_S = 5.0
_PAUSE_S = 0.01  # between recalls
_AGAIN_S = 60.0  # for how long a send is repeated: less than the dedup window
_DAY_MS = 86_400_000
Place = tuple[int, int]  # queue, offset


class RingBroken(AssertionError):
    """A promise did not hold; the text names it."""


def check(holds: bool, promise: str, why: str) -> None:
    """Raise RingBroken unless a promise holds."""
    if not holds:
        raise RingBroken(f"{promise}: {why}")


class RingClients:
    """All clients of a ring, and what they know; `channel` leads to a broker that comes and goes.

    due       due ms of every id ever sent, 0: at once; `far` are the ids of the far topic
    stored    acknowledged id → recall handle
    recalls   id → CANCELLED, ALREADY_DELIVERED, NOT_FOUND, or "" (no answer)
    places    where messages were seen; `consumed`: places whose message was acknowledged
    answers   how many answers have come; `progress` is set with each
    """

    def __init__(self, random: Random, channel: grpc.aio.Channel) -> None:
        self._random = random
        self.channel = channel
        self.due: dict[str, int] = {}
        self.far: set[str] = set()
        self.stored: dict[str, str] = {}
        self.recalls: dict[str, str] = {}
        self.places: dict[Place, str] = {}
        self.consumed: set[Place] = set()
        self.answers = 0
        self.progress = asyncio.Event()
        self.closing = False
        self.far_from_ms = time.time_ns() // 1_000_000 + 2 * _DAY_MS
        self._n = 0

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines of all clients, which run until `closing` is set."""
        return [self._send(), self._send(), self._recall(), self._consume(), self._consume()]

    async def _call(self, name: str, request: Any) -> Any:
        """Make a unary call, and return its answer, or None if the answer was lost."""
        answer = getattr(pb, f"{name}Response")
        method = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            found = await method(request, metadata=_HEADERS, timeout=_CALL_S, wait_for_ready=True)
        except grpc.aio.AioRpcError:
            return None
        self.answers += 1
        self.progress.set()
        return found

    async def receive(self, group: str, lease_s: int = 30) -> list[Any]:
        """Receive as a consumer of a group, and return the messages it was given."""
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=group),
            message_queue=pb.MessageQueue(topic=pb.Resource(name=TOPIC), id=-1),
            batch_size=32,
            invisible_duration=Duration(seconds=lease_s),
            long_polling_timeout=Duration(nanos=500_000_000),
        )
        method = self.channel.unary_stream(
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

    def _message(self, topic: str) -> pb.Message:
        self._n += 1
        message_id = f"ring-{self._n}"
        system = pb.SystemProperties(message_id=message_id)
        self.due[message_id] = 0
        far = topic == FAR_TOPIC
        if far:
            self.far.add(message_id)
        if far or self._random.random() < 0.8:
            at = time.time_ns() // 1_000_000 + self._random.randrange(200, 2_500)
            if far:  # each due time only once, so that pending messages can be listed page by page
                at = self.far_from_ms + self._random.randrange(3_000) * _DAY_MS + self._n
            self.due[message_id] = at
            system.delivery_timestamp.CopyFrom(
                Timestamp(seconds=at // 1000, nanos=at % 1000 * 1_000_000)
            )
        return pb.Message(
            topic=pb.Resource(name=topic), body=message_id.encode(), system_properties=system
        )

    async def _send(self) -> None:
        while not self.closing:
            topic = self._random.choice([TOPIC, TOPIC, FAR_TOPIC])
            messages = [self._message(topic) for _ in range(self._random.choice([1, 1, 4, 16]))]
            request = pb.SendMessageRequest(messages=messages)
            answer, until = None, time.monotonic() + _AGAIN_S
            while answer is None and time.monotonic() < until:
                answer = await self._call("SendMessage", request)
            for entry in answer.entries if answer is not None else ():
                check(entry.status.code == pb.OK, "P2", f"a send was refused: {entry.status}")
                self.stored[entry.message_id] = entry.recall_handle

    async def _recall(self) -> None:
        while not self.closing:
            free = [i for i, h in list(self.stored.items())[-400:] if h and i not in self.recalls]
            if not free:
                await asyncio.sleep(_PAUSE_S)
                continue
            message_id = self._random.choice(free)
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
        while not self.closing:
            for message in await self.receive("workers"):
                place = self.see(message)
                check(place not in self.consumed, "P3", f"{place} was acknowledged and came again")
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

    def see(self, message: pb.Message) -> Place:
        """Note where a consumer has found a message, and return the place.

        Raise RingBroken if the message came early, or was at another place before.
        """
        system = message.system_properties
        place = (system.queue_id, system.queue_offset)
        stored = system.store_timestamp
        store_ms = stored.seconds * 1000 + stored.nanos // 1_000_000
        check(system.message_id in self.due, "P2", f"{system.message_id} was never sent")
        check(self.due[system.message_id] <= store_ms, "P1", f"{system.message_id} came early")
        known = self.places.setdefault(place, system.message_id)
        check(known == system.message_id, "P3", f"{place} held {known}, now {system.message_id}")
        return place
