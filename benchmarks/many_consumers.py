"""What many groups, waiting polls and live leases cost: `python -m benchmarks.many_consumers`.

Through the whole core (`Broker.step`) on the disk that holds build/, without syncs and without doors.  CPU time of the one
thread that does it all; anonymous memory (RssAnon).  Everything with one topic of four queues, messages of 200 bytes.

groups  n groups of one topic, each with a lease and a parked poll: memory of each; µs of a turn with one send to another
        topic; and one message for all of them: µs for each group, the longest turn in ms, and how many turns it took; ms of
        the longest turn of a checkpoint
leases  n live leases of one group: bytes of each; µs of a turn with one send, one with a receive of a message, and one
        with the ack of it; ms of the longest turn: while they were made (with checkpoints, one every 10 s), of those that
        begin and capture a checkpoint, and of acks all over them after it, when what it has is copied

Results go to docs/benchmarks/many_consumers.json and many_consumers.png.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.load import BODY
from benchmarks.recall import Core
from benchmarks.waiting import own_memory_mb, receive
from horolog.limits import POLL_MAX_MS
from horolog.protocol.commands import Ack, CreateTopic, Receive, SendMessages, TopicType
from horolog.protocol.rocketmq.message import encode
from horolog.server.memory import collect_less

OUT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
HOUR_MS = 3_600_000
ROUNDS = 200
ACKS_TOGETHER = 2_000  # in one turn, of leases as far from each other as they are
Result = dict[str, Any]


def sent(topic: str, first: int, count: int) -> SendMessages:
    """A send of so many messages."""
    messages = [
        encode(topic=topic, body=BODY, message_id=f"{i:032X}") for i in range(first, first + count)
    ]
    return SendMessages(topic, messages)


def timed(core: Core, commands: list[Any]) -> tuple[float, list[Any]]:
    """µs of a turn with these commands, and of the one after it, which makes them visible; and what was answered."""
    began = time.thread_time()
    answers = core.turn(commands)
    answers += core.turn([])
    return (time.thread_time() - began) * 1e6, answers


def of_sends(core: Core) -> float:
    """µs of a send of one message that nobody waits for."""
    return median(timed(core, [sent("busy", i, 1)])[0] for i in range(ROUNDS))


def of_checkpoint(core: Core) -> float:
    """ms of the longest of the turns that begin a checkpoint and capture it."""
    core.ask(sent("busy", 0, 1))
    core.longest_ms = 0.0
    before = core.opened.broker.shard.checkpoint_position
    core.opened.broker.checkpoints.request()
    while core.opened.broker.shard.checkpoint_position == before:
        core.turn([])
    return core.longest_ms


def groups(n: int) -> Result:
    """n groups of one topic."""
    core = Core()
    core.ask(CreateTopic("busy", TopicType.NORMAL, 4))
    core.ask(CreateTopic("shared", TopicType.NORMAL, 4))
    core.ask(sent("shared", 0, 1))
    of_sends(core)
    before = own_memory_mb()
    names = [f"group-{i}" for i in range(n)]
    for first in range(0, n, 500):
        some = names[first : first + 500]
        core.turn([receive(name, "shared", 0) for name in some])
        core.turn([receive(name, "shared", POLL_MAX_MS) for name in some], tokens=list(some))
    assert core.opened.broker.shard.ready.parked == n
    core.rest_of_turns()
    memory = own_memory_mb() - before
    send_us = of_sends(core)
    assert core.opened.broker.shard.ready.parked == n
    core.longest_ms = 0.0
    turns = 0
    began = time.thread_time()
    core.turn([sent("shared", 10, 1)])
    while core.opened.broker.shard.ready.parked:
        core.turn([])
        turns += 1
    took = time.thread_time() - began
    longest_ms = core.longest_ms
    return {
        "groups": n,
        "kb_each": round(memory * 1024 / n, 2),
        "send_us": round(send_us, 1),
        "answered_us_each": round(took / n * 1e6, 1),
        "longest_turn_ms": round(longest_ms, 1),
        "turns": turns,
        "checkpoint_turn_ms": round(of_checkpoint(core), 1),
    }


def leases(n: int) -> Result:
    """n live leases."""
    core = Core()
    core.ask(CreateTopic("busy", TopicType.NORMAL, 4))
    core.ask(CreateTopic("leased", TopicType.NORMAL, 4))
    for first in range(0, n + 2 * ROUNDS, 1_000):
        core.ask(sent("leased", first, min(1_000, n + 2 * ROUNDS - first)))
    of_sends(core)
    before = own_memory_mb()
    ready = core.opened.broker.shard.ready
    ready.leases_max = max(n + 2 * ROUNDS, ready.leases_max)
    core.longest_ms = 0.0
    handles: list[str] = []  # one of each receive
    while ready.leased < n:
        few = min(32, n - ready.leased)
        found = core.turn([Receive("g", "leased", -1, "*", few, HOUR_MS, False, 0, "c")])
        handles += [received.messages[0].receipt_handle for received in found]
    making_ms = core.longest_ms
    core.rest_of_turns()
    memory = own_memory_mb() - before
    send_us = of_sends(core)
    of_receives, of_acks = [], []
    core.longest_ms = 0.0
    for _ in range(ROUNDS):
        took, answers = timed(core, [receive("g", "leased", 0)])
        (message,) = answers[0].messages
        of_receives.append(took)
        took, _ = timed(core, [Ack("g", "leased", [message.receipt_handle])])
        of_acks.append(took)
    checkpoint_ms = of_checkpoint(core)
    core.longest_ms = 0.0
    some = handles[:: -(-len(handles) // ACKS_TOGETHER)]
    core.turn([Ack("g", "leased", [handle]) for handle in some])
    copying_ms = core.longest_ms
    return {
        "leases": n,
        "bytes_each": round(memory * 1024 * 1024 / n),
        "send_us": round(send_us, 1),
        "receive_us": round(median(of_receives), 1),
        "ack_us": round(median(of_acks), 1),
        "longest_turn_ms": round(making_ms, 1),
        "checkpoint_turn_ms": round(checkpoint_ms, 1),
        "acks_after_it_ms": round(copying_ms, 1),
    }


def plot(results: dict[str, list[Result]], path: Path) -> None:
    """Three pictures: memory, turns, and the longest turn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    by_group, by_lease = results["groups"], results["leases"]
    counts, leased = [row["groups"] for row in by_group], [row["leases"] for row in by_lease]
    axes[0].plot(counts, [row["kb_each"] * row["groups"] / 1024 for row in by_group], "o-")
    axes[0].plot(leased, [row["bytes_each"] * row["leases"] / 2**20 for row in by_lease], "s-")
    axes[0].set(title="memory, MB", yscale="log", xscale="log", xlabel="groups, leases")
    axes[0].legend(["groups, a lease and a parked poll each", "leases"])
    axes[1].plot(counts, [row["send_us"] for row in by_group], "o-")
    for name, mark in ("send_us", "s-"), ("receive_us", "^-"), ("ack_us", "v-"):
        axes[1].plot(leased, [row[name] for row in by_lease], mark)
    axes[1].set(title="two turns with one command, µs", xscale="log", xlabel="groups, leases")
    axes[1].set_ylim(bottom=0)
    axes[1].legend(["send beside groups", "send beside leases", "receive", "ack"])
    axes[2].plot(counts, [row["longest_turn_ms"] for row in by_group], "o-")
    for name, mark in ("longest_turn_ms", "s-"), ("checkpoint_turn_ms", "^-"):
        axes[2].plot(leased, [row[name] for row in by_lease], mark)
    axes[2].set(title="longest turn, ms", xscale="log", xlabel="groups, leases")
    axes[2].set_ylim(bottom=0)
    axes[2].legend(
        ["one message for all groups", "while leases are made", "of a checkpoint with leases"]
    )
    figure.savefig(path, dpi=110)


def main() -> None:
    """Every size in a process of its own; then the plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, nargs="*", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--leases", type=int, nargs="*", default=[1_000, 10_000, 100_000, 999_000])
    parser.add_argument("--one", nargs=2, metavar=("PART", "N"), help="print one row")
    args = parser.parse_args()
    if args.one:
        collect_less()  # as a broker does
        print(json.dumps({"groups": groups, "leases": leases}[args.one[0]](int(args.one[1]))))
        return
    results: dict[str, list[Result]] = {"groups": [], "leases": []}
    for part, sizes in ("groups", args.groups), ("leases", args.leases):
        for n in sizes:
            command = [sys.executable, "-m", "benchmarks.many_consumers", "--one", part, str(n)]
            row = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ).stdout
            print(row.decode().strip(), flush=True)
            results[part].append(json.loads(row))
    (OUT / "many_consumers.json").write_text(json.dumps(results, indent=2) + "\n")
    plot(results, OUT / "many_consumers.png")


if __name__ == "__main__":
    main()
