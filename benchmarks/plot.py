"""Draws the results of `make bench` beside those of RocketMQ 5.5.0 and Redis, measured with the same loads on two cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Result = dict[str, Any]
OURS, OTHERS = "#2b6cb0", ("#a0aec0", "#cbd5e0")
# Messages a second as clients see them: row, label, the best of RocketMQ 5.5.0 and of Redis (AOF always, ZSET); 0 where
# they cannot do it.
WIRE = [
    ("remoting_single", "delayed, one a request (remoting)", 47_000, 86_000),
    ("remoting_batch", "delayed, 32 a request (remoting)", 0, 0),
    ("remoting_normal", "32 a request (remoting)", 227_000, 0),
    ("remoting_pull", "pulled (remoting)", 399_000, 0),
    ("remoting_due", "due in one second, pulled", 84_000, 247_000),
    ("grpc_single", "delayed, one a request (gRPC)", 9_000, 0),
    ("grpc_normal", "32 a request (gRPC)", 79_000, 0),
    ("grpc_receive", "received, an ack each (gRPC)", 5_300, 0),
]


def plot(results: Result, path: Path) -> None:
    """The spine above, what clients see below."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(13, 9))
    upper, lower = figure.subfigures(2, 1, height_ratios=(4, 5))
    _spine(results, upper.subplots(1, 3))
    _wire(results["wire"], lower.subplots(1, 2, width_ratios=(2, 1)))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _spine(results: Result, axes: Any) -> None:
    left, middle, right = axes
    bars = {
        "horolog": results["hand_over"]["per_second"],
        "Redis (ZSET + Lua)": 183_000,
        "RocketMQ 5.5.0": 84_000,
    }
    left.barh(list(bars), [v / 1000 for v in bars.values()], color=[OURS, OTHERS[0], OTHERS[0]])
    left.set_title(
        f"{results['hand_over']['messages']:,} due in one second:\nthousand handed over / s"
    )
    for row in results["lateness"]:
        total = sum(row["histogram"])
        share = np.cumsum(row["histogram"]) / total * 100
        middle.plot(
            range(len(share)),
            share,
            label=f"{row['due_per_second']:,} due / s",
            drawstyle="steps-post",
        )
    middle.set_title("lateness while sends go on:\n% of messages not later than … ms")
    middle.set_xlim(0, 20)
    middle.legend(loc="lower right")
    ready = {"horolog": results["ready"]["seconds"], "RocketMQ 5.5.0": 7.6}
    right.barh(list(ready), list(ready.values()), color=[OURS, OTHERS[0]])
    right.set_title(f"ready after kill −9,\n{results['ready']['pending']:,} pending: seconds")
    for axis in (left, right):
        axis.invert_yaxis()
    left.figure.subplots_adjust(left=0.12, wspace=0.6, top=0.85)


def _wire(wire: Result, axes: Any) -> None:
    left, right = axes
    at = np.arange(len(WIRE))
    columns = {
        "horolog": ([wire[name]["per_second"] for name, *_ in WIRE], OURS),
        "RocketMQ 5.5.0": ([rocketmq for *_, rocketmq, _ in WIRE], OTHERS[0]),
        "Redis (AOF always, ZSET)": ([redis for *_, redis in WIRE], OTHERS[1]),
    }
    for i, (name, (values, color)) in enumerate(columns.items()):
        left.barh(
            at + (i - 1) * 0.27, [v / 1000 for v in values], height=0.25, color=color, label=name
        )
    left.set_yticks(at, [label for _, label, *_ in WIRE])
    left.invert_yaxis()
    left.legend(loc="lower right")
    left.set_title("as clients see it, on the same two cores: thousand messages / s")
    rows = {
        "send answered": wire["remoting_rtt"]["rtt_p99_ms"],
        "send answered,\nRocketMQ 5.5.0": 23,
        "late": wire["remoting_lateness"]["late_p99_ms"],
        "late, Redis": 13.8,
        "late,\nRocketMQ 5.5.0": 1076,
    }
    colors = [OURS, OTHERS[0], OURS, OTHERS[1], OTHERS[0]]
    right.barh(list(rows), list(rows.values()), color=colors)
    right.set_xscale("log")
    right.invert_yaxis()
    rate = wire["remoting_rtt"]["rate"]
    right.set_title(f"p99 in ms: answers to {rate:,} sends / s;\nlate at a client, 5,000 due / s")
    left.figure.subplots_adjust(left=0.22, wspace=0.6, top=0.88, right=0.97)
