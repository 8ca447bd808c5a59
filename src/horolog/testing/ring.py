"""The process ring: the installed broker killed with SIGKILL again and again while clients use it.

    python -m horolog.testing.ring --kills 200 --seed 7

Senders, a recaller and consumers use a real `horolog serve` over gRPC; the moment of each kill
follows from the seed and from how many answers have come. A send whose answer is lost is sent again
with the same ids. At the end a new consumer group reads everything from offset 0, and the messages
that were acknowledged, recalled, seen and consumed are compared with it (P1, P2, P3, P8). Messages
due in days and years gather in small far buffers, become runs and are merged; at the end exactly
those that were acknowledged and not cancelled are pending (P2, P8, P10).
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
from typing import NamedTuple, cast

import grpc
import grpc.aio

from horolog.server.group_commit import Flush
from horolog.testing.broker import BrokerProcess
from horolog.testing.ring_clients import FAR_TOPIC, TOPIC, Place, RingBroken, RingClients, check

_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]
_DRAIN_S = 60.0
_READY_S = 120.0  # a start that is slow on a busy machine breaks no promise
_READ_S = 600.0  # to read everything at the end; the leases of that read last longer
_FAR_BUFFER_BYTES = 65_536
_CHECKPOINT_EVERY = 20  # kills
_LOOK_S = 0.5
_PAGE = 1_000


class Budget(NamedTuple):
    """How long a ring may kill: for this many seconds, and for at least this many kills."""

    seconds: float
    kills_min: int


UNLIMITED = Budget(math.inf, 0)


class Ring:
    """One broker that is killed, and the comparison with what its clients know."""

    _clients: RingClients  # the clients of this run

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self._broker = broker
        self._random = Random(seed)

    async def run(self, kills: int, budget: Budget = UNLIMITED) -> str:
        """Kill and restart under load, `kills` times or until the budget is used; then compare.

        Return a line of figures.
        """
        ends = time.monotonic() + budget.seconds
        done = 0
        endpoint = self._broker.grpc_endpoint
        async with grpc.aio.insecure_channel(endpoint, options=_OPTIONS) as channel:
            known = self._clients = RingClients(self._random, channel)
            clients = [asyncio.ensure_future(client) for client in known.work()]
            try:
                for i in range(kills):
                    if i % _CHECKPOINT_EVERY == _CHECKPOINT_EVERY - 1:
                        await self._next_checkpoint()
                    await self._kill_after(self._random.randrange(20, 150), clients)
                    done += 1
                    if done >= budget.kills_min and time.monotonic() > ends:
                        break
                known.closing = True
                await asyncio.wait_for(asyncio.gather(*clients), _DRAIN_S)
            finally:
                for client in clients:
                    client.cancel()
            delivered = await self._drain()
        self._compare(delivered)
        waiting = await asyncio.to_thread(self._compare_far)
        cancelled = sum(status == "CANCELLED" for status in known.recalls.values())
        return (
            f"{done} kills: {len(known.due)} sent, {len(known.stored)} acknowledged, {cancelled} "
            f"recalled, {len(delivered)} delivered once, none early, {len(known.consumed)} "
            f"consumed, {waiting} far ahead"
        )

    async def _next_checkpoint(self) -> None:
        """Wait until the broker has made a checkpoint, so that some starts begin from one."""
        deadline = time.monotonic() + _DRAIN_S
        path = "/v1/broker"
        before = (await asyncio.to_thread(self._broker.admin.get, path))["checkpoint_position"]
        now = before
        while now == before:
            check(time.monotonic() < deadline, "P5", f"no checkpoint in {_DRAIN_S:g} s")
            await asyncio.sleep(_LOOK_S)
            now = (await asyncio.to_thread(self._broker.admin.get, path))["checkpoint_position"]

    async def _kill_after(self, more: int, clients: Sequence[asyncio.Future[None]]) -> None:
        known = self._clients
        target = known.answers + more
        while known.answers < target:
            for client in clients:
                if client.done():
                    client.result()
            known.progress.clear()
            await asyncio.wait_for(known.progress.wait(), _DRAIN_S)
        await asyncio.to_thread(self._broker.kill)
        await asyncio.to_thread(self._broker.restart, _READY_S)

    async def _drain(self) -> dict[str, Place]:
        """Read all of the topic with a new group from offset 0, once all messages are due."""
        deadline = time.monotonic() + _DRAIN_S
        while await asyncio.to_thread(self._broker.pending, TOPIC):
            check(time.monotonic() < deadline, "P2", "messages stay pending although they are due")
        delivered: dict[str, Place] = {}
        empty = 0
        deadline = time.monotonic() + _READ_S
        while empty < 3:
            check(time.monotonic() < deadline, "P2", f"{len(delivered)} were read in {_READ_S:g} s")
            got = await self._clients.receive("auditors", lease_s=2 * int(_READ_S))
            empty = 0 if got else empty + 1
            for message in got:
                place = self._clients.see(message)
                message_id = message.system_properties.message_id
                first = delivered.setdefault(message_id, place)
                check(first == place, "P3", f"{message_id} was handed over at {first} and {place}")
        return delivered

    def _compare(self, delivered: dict[str, Place]) -> None:
        known = self._clients
        for place, message_id in known.places.items():
            check(delivered.get(message_id) == place, "P2", f"{message_id} at {place} is gone")
        for message_id in known.stored.keys() - known.far:
            status = known.recalls.get(message_id)
            if status == "CANCELLED":
                check(
                    message_id not in delivered, "P8", f"{message_id} was CANCELLED and delivered"
                )
            elif status == "NOT_FOUND":
                check(False, "P8", f"{message_id} was acknowledged and its recall NOT_FOUND")
            elif status != "":  # "" is a recall whose answer was lost: it may have worked
                check(message_id in delivered, "P2", f"{message_id} was acknowledged and is lost")

    def _compare_far(self) -> int:
        """Compare pending far messages with the acknowledged ones; return how many are pending."""
        known = self._clients
        found: dict[str, int] = {}
        from_ms = known.far_from_ms
        while True:
            page = self._broker.admin.get(
                "/v1/pending/messages", {"topic": FAR_TOPIC, "from": from_ms, "limit": _PAGE}
            )["messages"]
            for row in page:
                check(row["message_id"] not in found, "P3", f"{row['message_id']} waits twice")
                found[row["message_id"]] = row["deliver_at_ms"]
            if len(page) < _PAGE:
                break
            from_ms = page[-1]["deliver_at_ms"] + 1
        counted = self._broker.pending(FAR_TOPIC)
        check(counted == len(found), "P10", f"{counted} are counted, {len(found)} wait")
        for message_id, due_ms in found.items():
            check(known.due.get(message_id) == due_ms, "P2", f"{message_id} waits for {due_ms}")
            check(known.recalls.get(message_id) != "CANCELLED", "P8", f"{message_id} still waits")
        for message_id in known.far & known.stored.keys():
            status = known.recalls.get(message_id)
            check(status in (None, "", "CANCELLED"), "P8", f"{message_id}: {status}")
            if status is None:
                check(message_id in found, "P2", f"{message_id} was acknowledged and is lost")
        return len(found)


def run_ring(
    kills: int, seed: int, directory: Path, flush: str = "sync", budget: Budget = UNLIMITED
) -> str:
    """Run a whole ring on a new data directory; return its figures, or raise RingBroken."""
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
    """Run the ring from the command line."""
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
