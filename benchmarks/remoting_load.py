"""Requests of 4.x clients from raw sockets, for `benchmarks.wire`: a process of its own that costs little.

    python -m benchmarks.remoting_load send     --port 10911 --topic t --n 100000 --batch 32 --due-in-ms 36000000
    python -m benchmarks.remoting_load rtt      --port 10911 --topic t --n 100000 --rate 40000
    python -m benchmarks.remoting_load pull     --port 10911 --topic t --n 100000
    python -m benchmarks.remoting_load due      --port 10911 --topic t --n 500000
    python -m benchmarks.remoting_load lateness --port 10911 --topic t --n 50000 --rate 20000 --due-rate 5000

send      messages as fast as they are answered
rtt       single sends at a fixed rate: ms from when a request should have been sent until its answer is there
pull      what a topic holds, by one puller for each queue
due       messages that are all due in one second, and pullers that wait: until the last of them has come
lateness  ms from when a message was due until a waiting puller has it, while single sends go on

Requests are made before the clock starts.  Of what is pulled none may be lost, come twice or early.  Prints one line
of JSON.
"""

from __future__ import annotations

import argparse
import json
import selectors
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.remoting_peers import Peer, Puller, Receipts, Sender, ends, sends
from benchmarks.tables import Column

MADE_MAX = 64 << 20  # bytes of requests that are made at once
MESSAGE_BYTES = 600  # about what a message takes in a request of its own
SLOT_S = 0.001  # requests of a fixed rate are sent in bunches, one in so long
UNDER_WAY_MAX = 2_048  # requests of a connection at a fixed rate, where the broker falls behind
LEAD_S = 1.0  # sends begin so long before the first message is due
SENT_PER_SECOND = 30_000  # what a slow machine takes at least, in batches of 32
Result = dict[str, Any]


def drive(read: dict[Peer, Callable[[], object]], over: Callable[[], bool]) -> None:
    """Read from whoever has something until it is over."""
    with selectors.DefaultSelector() as selector:
        for peer, act in read.items():
            selector.register(peer, selectors.EVENT_READ, act)
        while not over():
            for key, _ in selector.select():
                key.data()


def filled(senders: Sequence[Sender], window: int) -> None:
    """Send all tables, so many requests at a time on each connection."""

    def turn(sender: Sender) -> None:
        sender.read()
        sender.send(sender.answered + window)

    for sender in senders:
        sender.send(window)
    drive(
        {sender: lambda sender=sender: turn(sender) for sender in senders},  # type: ignore[misc]
        lambda: all(sender.over for sender in senders),
    )


def send_all(options: argparse.Namespace, due_ms: Column, first: int = 0) -> float:
    """Send a message for each due time (0: not scheduled) over all connections; gives the seconds it took."""
    senders = [Sender(options.port) for _ in range(options.connections)]
    unit = options.batch * len(senders)
    part = max(1, MADE_MAX // MESSAGE_BYTES // unit) * unit
    took, at = 0.0, 0
    while at < len(due_ms):
        dues = due_ms[at : at + part]
        for sender, mine in zip(senders, np.split(dues, len(senders)), strict=True):
            sender.give(_table(options, first + at, mine))
            at += len(mine)
        began = time.perf_counter()
        filled(senders, options.window)
        took += time.perf_counter() - began
    return took


def _table(options: argparse.Namespace, first: int, due_ms: Column) -> Any:
    now_ms = time.time_ns() // 1_000_000
    return sends(options.topic, options.batch, first, options.queues, due_ms, now_ms)


def send(options: argparse.Namespace) -> Result:
    """As many requests at a time as the window has places, until all are answered."""
    unit = options.batch * options.connections
    n = options.n // unit * unit
    now_ms = time.time_ns() // 1_000_000
    due = now_ms + options.due_in_ms + np.arange(n) * options.spread_ms // n
    took = send_all(options, due if options.due_in_ms else np.zeros(n, np.int64))
    return {"n": n, "seconds": round(took, 3), "per_second": int(n / took)}


# --- at a fixed rate ------------------------------------------------------------------------------


class Paced:
    """Single sends at a fixed rate over all connections, the same for each, in bunches of a slot."""

    def __init__(self, options: argparse.Namespace, topic: str, n: int) -> None:
        self.senders = [Sender(options.port, timed=True) for _ in range(options.connections)]
        self._each = options.rate / len(self.senders)
        n //= len(self.senders)
        now_ms = time.time_ns() // 1_000_000
        for i, sender in enumerate(self.senders):
            due = np.full(n, now_ms + options.due_in_ms)
            sender.give(sends(topic, 1, i * n, options.queues, due, now_ms))
        slots = np.arange(n) // (self._each * SLOT_S)
        self._wanted_s = slots * SLOT_S  # when each should be sent

    def drive(self, others: dict[Peer, Callable[[], object]], over: Callable[[], bool]) -> None:
        """Send and read, and read what the others get, until everything is sent and answered and it is over."""
        began = time.perf_counter()
        self._wanted_s = self._wanted_s + began
        read = others | {sender: sender.read for sender in self.senders}
        # Other selectors round what is less than a millisecond up.
        with selectors.SelectSelector() as selector:
            for peer, act in read.items():
                selector.register(peer, selectors.EVENT_READ, act)
            slot, done = 0, False
            while not done:
                now = time.perf_counter()
                if now >= began + slot * SLOT_S:
                    slot = int((now - began) / SLOT_S) + 1
                    upto = int(np.searchsorted(self._wanted_s, now, "right"))
                    for sender in self.senders:
                        sender.send(min(upto, sender.answered + UNDER_WAY_MAX))
                for key, _ in selector.select(max(0.0, began + slot * SLOT_S - now)):
                    key.data()
                done = all(sender.over for sender in self.senders) and over()

    @property
    def rtt_ms(self) -> Any:
        """Of all requests, from when each should have been sent."""
        return np.concatenate([s.came_s - self._wanted_s for s in self.senders]) * 1000


def rtt(options: argparse.Namespace) -> Result:
    """Round trips of single sends at a fixed rate."""
    paced = Paced(options, options.topic, options.n)
    paced.drive({}, lambda: True)
    return {"n": len(paced.rtt_ms), "rate": options.rate, **_percentiles("rtt", paced.rtt_ms)}


def _percentiles(name: str, values: Any) -> Result:
    cuts = np.percentile(values, [50, 99, 100])
    return {
        f"{name}_{cut}_ms": round(float(value), 1)
        for cut, value in zip(("p50", "p99", "max"), cuts, strict=True)
    }


# --- pulls ----------------------------------------------------------------------------------------


def _pullers(options: argparse.Namespace, receipts: Receipts) -> list[Puller]:
    pullers = [
        Puller(options.port, options.topic, queue, receipts) for queue in range(options.queues)
    ]
    for puller in pullers:
        puller.pull()
    return pullers


def _until_all(pullers: list[Puller], receipts: Receipts) -> None:
    read: dict[Peer, Callable[[], object]] = {puller: puller.read for puller in pullers}
    drive(read, lambda: receipts.count >= receipts.n)


def _check(options: argparse.Namespace, receipts: Receipts) -> None:
    """What has come is right, and there is nothing else."""
    receipts.check()
    there = ends(options.port, options.topic, options.queues)
    assert there == receipts.n, f"{there} messages in the queues, {receipts.n} were sent"


def pull(options: argparse.Namespace) -> Result:
    """All that is there."""
    receipts = Receipts(options.n)
    began = time.time()
    _until_all(_pullers(options, receipts), receipts)
    took = receipts.last_s - began
    _check(options, receipts)
    return {"n": options.n, "seconds": round(took, 3), "per_second": int(options.n / took)}


def due(options: argparse.Namespace) -> Result:
    """All due in one second, which begins when they are sent."""
    options.batch = 32
    n = options.n // 64 * 64
    at_ms = (int(time.time()) + 5 + n // SENT_PER_SECOND) * 1000
    took = send_all(options, at_ms + np.arange(n) % 1000)
    receipts = Receipts(n)
    pullers = _pullers(options, receipts)
    assert time.time() * 1000 < at_ms, "the machine was too slow to send them before they were due"
    _until_all(pullers, receipts)
    _check(options, receipts)
    waited = receipts.last_s - at_ms / 1000
    return {
        "n": n,
        "seconds": round(waited, 3),
        "per_second": int(n / waited),
        "sent_per_second": int(n / took),
    }


def lateness(options: argparse.Namespace) -> Result:
    """Messages that are due at a fixed rate, while single sends go on that are due much later."""
    seconds = options.n / options.due_rate
    paced = Paced(options, options.sends, int((seconds + 2 * LEAD_S) * options.rate))
    options.batch = 32
    n = options.n // 64 * 64
    begin_ms = (int(time.time()) + 3 + n // SENT_PER_SECOND) * 1000
    send_all(options, begin_ms + np.arange(n) * 1000 // options.due_rate)
    receipts = Receipts(n)
    pullers = _pullers(options, receipts)
    wait_s = begin_ms / 1000 - LEAD_S - time.time()
    assert wait_s > 0, "the machine was too slow to send them before they were due"
    time.sleep(wait_s)
    read: dict[Peer, Callable[[], object]] = {puller: puller.read for puller in pullers}
    paced.drive(read, lambda: receipts.count >= n)
    _check(options, receipts)
    return {
        "n": n,
        "due_per_second": options.due_rate,
        "sends_per_second": options.rate,
        **_percentiles("late", receipts.late_ms),
        **_percentiles("rtt", paced.rtt_ms),
    }


def main() -> None:
    """From the command line."""
    runs = {"send": send, "rtt": rtt, "pull": pull, "due": due, "lateness": lateness}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", choices=list(runs))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--sends", help="lateness: topic of the sends that go on", default="later")
    parser.add_argument("--queues", type=int, default=4, help="of the topic")
    parser.add_argument("--n", type=int, default=100_000, help="messages")
    parser.add_argument("--batch", type=int, default=1, help="messages of a send")
    parser.add_argument("--due-in-ms", type=int, default=0, help="0: not scheduled")
    parser.add_argument("--spread-ms", type=int, default=0, help="of due times, from then on")
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--window", type=int, default=128, help="requests under way a connection")
    parser.add_argument("--rate", type=int, default=20_000, help="sends a second")
    parser.add_argument("--due-rate", type=int, default=5_000, help="messages due a second")
    options = parser.parse_args()
    print(json.dumps(runs[options.run](options)), flush=True)


if __name__ == "__main__":
    main()
