"""What a client sees: `python -m benchmarks.wire`, or as part of `make bench`.

A broker in a process of its own (flush sync, bodies of 200 bytes), and a generator in another one, `grpc_load`, which
shares the cores with it: 2 connections with 128 requests under way each, 32 where they carry batches.

grpc_single           scheduled messages, one a request
grpc_batch            scheduled messages, 32 a request
grpc_normal           messages that are visible at once, 32 a request
grpc_receive          receives of up to 32 messages, and an ack for each message
grpc_receive_batched  the same with one ack for the messages of a receive

`us` is CPU time of the broker a message, in µs, of its event loop and of all its threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from horolog.testing.broker import BrokerProcess

ROOT = Path(__file__).resolve().parents[1]
DUE_IN_MS = 36_000_000
Result = dict[str, Any]
ROWS: dict[str, list[str]] = {
    "grpc_single": ["send", "--topic", "later", "--due-in-ms", str(DUE_IN_MS)],
    "grpc_batch": [
        *("send", "--topic", "later", "--due-in-ms", str(DUE_IN_MS)),
        *("--batch", "32", "--window", "32"),
    ],
    "grpc_normal": ["send", "--topic", "now", "--batch", "32", "--window", "32"],
    "grpc_receive": ["receive", "--topic", "now", "--group", "one", "--acks", "1"],
    "grpc_receive_batched": ["receive", "--topic", "now", "--group", "batched"],
}
SINGLE_PART = 4  # single sends are so many times fewer than messages of the other rows


def _cpu_s(pid: int, task: int | None = None) -> float:
    path = f"/proc/{pid}/stat" if task is None else f"/proc/{pid}/task/{task}/stat"
    fields = Path(path).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def row(broker: BrokerProcess, name: str, n: int) -> Result:
    """One run of the generator."""
    port = broker.grpc_endpoint.rpartition(":")[2]
    command = [sys.executable, "-m", "benchmarks.grpc_load", *ROWS[name]]
    before = _cpu_s(broker.pid), _cpu_s(broker.pid, broker.pid)
    ran = subprocess.run(
        [*command, "--port", port, "--n", str(n)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    used = _cpu_s(broker.pid) - before[0], _cpu_s(broker.pid, broker.pid) - before[1]
    result: Result = json.loads(ran.stdout)
    done = result["n"]
    result["us"] = {"loop": round(used[1] / done * 1e6, 1), "all": round(used[0] / done * 1e6, 1)}
    return result


def wire(n: int, names: list[str] | None = None) -> Result:
    """All rows against one broker; receives need what `grpc_normal` has sent."""
    results: Result = {}
    with BrokerProcess(clock="system") as broker:
        broker.create_topic("later", "delay", 4)
        broker.create_topic("now", "normal", 4)
        sent = 0
        for name in names or list(ROWS):
            receives = ROWS[name][0] == "receive"
            count = sent if receives else n // SINGLE_PART if name == "grpc_single" else n
            results[name] = row(broker, name, count)
            sent = results[name]["n"] if name == "grpc_normal" else sent
            print(name, json.dumps(results[name]), flush=True)
    return results


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(ROWS))
    parser.add_argument("--n", type=int, default=200_000, help="messages; single sends a quarter")
    options = parser.parse_args()
    wire(options.n, options.only)


if __name__ == "__main__":
    main()
