"""What consumers that wait cost: `python -m benchmarks.waiting`.

Through the whole core (`Broker.step`) on the disk that holds build/, without syncs and without gRPC.

polls    anonymous memory (RssAnon) after n empty long polls, half of which ran out and half were cancelled, above
         that after the first tenth of them; and µs of CPU time of each
clients  the same after as many clients were seen, and have gone
send     µs of a turn with one send, p50 and p99: with nobody waiting; while groups × queues wait for another topic,
         each group with a lease of an hour; and after all of their polls were cancelled
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from statistics import quantiles
from typing import Any

from benchmarks.memory import memory_mb
from benchmarks.recall import Core
from horolog.limits import CLIENT_EXPIRY_MS, POLL_MAX_MS
from horolog.protocol.commands import (
    CancelReceive,
    ClientSeen,
    CreateTopic,
    Receive,
    SendMessages,
    TopicType,
)
from horolog.protocol.rocketmq.message import encode

HOUR_MS = 3_600_000
TOGETHER = 1_000  # polls of one turn
Result = dict[str, Any]


def receive(group: str, topic: str, poll_ms: int, *, client: str = "c", auto: bool = False) -> Any:
    """A receive of one message by any of the topic's queues."""
    return Receive(group, topic, -1, "*", 1, HOUR_MS, auto, poll_ms, client)


def own_memory_mb() -> float:
    """Anonymous memory of this process, without garbage."""
    gc.collect()
    return memory_mb(os.getpid())


def polls(n: int) -> Result:
    """Memory that empty polls leave behind."""
    core = Core()
    core.ask(CreateTopic("quiet", TopicType.NORMAL, 8))
    first, token = 0.0, 0
    began = time.process_time()
    for at in range(0, n, 2 * TOGETHER):
        if at == n // 10:
            first = own_memory_mb()
        kept = [receive(f"g{i % 100}", "quiet", POLL_MAX_MS) for i in range(TOGETHER)]
        core.turn(kept)
        gone = range(token, token + TOGETHER)
        token += TOGETHER
        core.turn(kept, tokens=list(gone))
        core.turn([CancelReceive(each) for each in gone])
        core.mono_ms += POLL_MAX_MS
        core.turn([])
    took = time.process_time() - began
    return {
        "polls": n,
        "mb": round(own_memory_mb() - first, 1),
        "us_a_poll": round(took / n * 1e6, 1),
    }


def clients(n: int) -> Result:
    """Memory that clients leave behind."""
    core = Core()
    core.ask(CreateTopic("quiet", TopicType.NORMAL, 8))
    first = 0.0
    for at in range(0, n, TOGETHER):
        if at == n // 10:
            first = own_memory_mb()
        names = [f"host-{i:012d}.example.org@4711@{i}@1k2j3h4g5f" for i in range(at, at + TOGETHER)]
        core.turn([ClientSeen(name) for name in names])
        core.mono_ms += CLIENT_EXPIRY_MS // 100
    core.mono_ms += 3 * CLIENT_EXPIRY_MS
    core.turn([])
    return {"clients": n, "mb": round(own_memory_mb() - first, 1)}


def sends(core: Core, n: int) -> dict[str, float]:
    """µs of turns with one send each."""
    taken = []
    for i in range(n):
        message = encode(topic="busy", body=b"x" * 200, message_id=f"{core.mono_ms:032x}{i:04x}")
        began = time.perf_counter()
        core.turn([SendMessages("busy", [message])])
        taken.append((time.perf_counter() - began) * 1e6)
    cuts = quantiles(taken, n=100)
    return {"p50_us": round(cuts[49], 1), "p99_us": round(cuts[98], 1)}


def parked(groups: int, queues: int, n: int) -> Result:
    """Sends beside polls that wait for something else."""
    core = Core()
    core.ask(CreateTopic("busy", TopicType.NORMAL, 8))
    core.ask(CreateTopic("quiet", TopicType.NORMAL, queues))
    core.ask(SendMessages("quiet", [encode(topic="quiet", body=b"x", message_id="m")]))
    sends(core, n // 10)
    result: Result = {"groups": groups, "queues": queues, "nobody": sends(core, n)}
    names = [f"g{i}" for i in range(groups)]
    core.turn([receive(name, "quiet", 0) for name in names])
    core.turn([receive(name, "quiet", POLL_MAX_MS) for name in names], tokens=names)
    assert core.opened.broker.shard.ready.parked == groups
    result["waiting"] = sends(core, n)
    assert core.opened.broker.shard.ready.parked == groups
    core.turn([CancelReceive(name) for name in names])
    result["gone"] = sends(core, n)
    for state in ("waiting", "gone"):
        result[f"{state}_of_nobody"] = round(
            result[state]["p50_us"] / result["nobody"]["p50_us"], 2
        )
    return result


def main() -> None:
    """Print a line of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=["send", "polls", "clients"])
    parser.add_argument("--polls", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--queues", type=int, default=100)
    parser.add_argument("--sends", type=int, default=1_000)
    args = parser.parse_args()
    if "send" in args.only:
        print(json.dumps(parked(args.groups, args.queues, args.sends)), flush=True)
    if "polls" in args.only:
        print(json.dumps(polls(args.polls)), flush=True)
    if "clients" in args.only:
        print(json.dumps(clients(args.clients)), flush=True)


if __name__ == "__main__":
    main()
