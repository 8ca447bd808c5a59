"""What a client sees: `python -m benchmarks.wire`, or as part of `make bench`.

A broker in a process of its own (flush sync, bodies of 200 bytes), and a generator in another one, which shares the
cores with it: `grpc_load` for 5.x clients, `remoting_load` for 4.x clients, with 2 connections each.  128 requests are
under way on a connection; 32 (gRPC) or 16 (remoting) where they carry batches.

grpc_single           scheduled messages, one a request
grpc_batch            scheduled messages, 32 a request
grpc_normal           messages that are visible at once, 32 a request
grpc_each             scheduled messages, of 64 connections with one request under way on each
grpc_receive          receives of up to 32 messages, and an ack for each message
grpc_receive_batched  the same with one ack for the messages of a receive
remoting_single       scheduled messages, one a request
remoting_each         scheduled messages, of 64 connections with one request under way on each
remoting_batch        scheduled messages, 32 a request, each with its own due time
remoting_normal       messages that are visible at once, 32 a request
remoting_pull         pulls of what remoting_normal has sent, by one puller for each queue
remoting_due          500 000 messages due in one second, until the last of them is with a puller that waits
remoting_lateness     ms from the due time until a puller has it: 5 000 due a second, while 20 000 single sends a second go on
remoting_rtt          ms until a single send is answered, at a fixed rate

First of all it measures what the core schedules, and every row is told as a share of that: machines, and hours of one
machine, differ by a factor of two.  The rate of `remoting_rtt` is the peak of RocketMQ 5.5.0 (40 000 a second where the
core schedules 130 000) scaled by it.  `us` is CPU time of the broker a message, in µs, of its event loop and of all its
threads.  Generators check what they get: nothing is lost, comes twice or early.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from benchmarks.load import WORK, schedule
from horolog.testing.broker import BrokerProcess

ROOT = Path(__file__).resolve().parents[1]
PEAK_PER_SECOND = 40_000  # single sends of RocketMQ 5.5.0, on a machine
PEAK_SCHEDULED = 130_000  # whose core schedules so many a second
RTT_SECONDS = 5
DEADLINE_S = 600  # of a row
Result = dict[str, Any]


class Row(NamedTuple):
    """One run of a generator.

    part     messages, as a share of --n
    reads    the row that has sent what this one reads
    """

    generator: str
    arguments: str
    part: float = 1
    reads: str = ""


_EACH = "--connections 64 --window 1"
_LATER = "--topic later --due-in-ms 36000000"
# Rows of one list share a broker.
ROWS: list[dict[str, Row]] = [
    {
        "grpc_single": Row("grpc_load", f"send {_LATER}", 0.25),
        "grpc_each": Row("grpc_load", f"send {_LATER} {_EACH}", 0.25),
        "grpc_batch": Row("grpc_load", f"send {_LATER} --batch 32 --window 32"),
        "grpc_normal": Row("grpc_load", "send --topic now --batch 32 --window 32"),
        "grpc_receive": Row(
            "grpc_load", "receive --topic now --group one --acks 1", reads="grpc_normal"
        ),
        "grpc_receive_batched": Row(
            "grpc_load", "receive --topic now --group batched", reads="grpc_normal"
        ),
    },
    {
        "remoting_single": Row("remoting_load", f"send {_LATER} --spread-ms 36000000"),
        "remoting_each": Row("remoting_load", f"send {_LATER} --spread-ms 36000000 {_EACH}", 0.25),
        "remoting_batch": Row(
            "remoting_load", f"send {_LATER} --spread-ms 36000000 --batch 32 --window 16", 2
        ),
        "remoting_normal": Row("remoting_load", "send --topic now --batch 32 --window 16", 2),
        "remoting_pull": Row("remoting_load", "pull --topic now", reads="remoting_normal"),
    },
    {"remoting_due": Row("remoting_load", "due --topic due --window 16", 2.5)},
    {
        "remoting_lateness": Row(
            "remoting_load",
            f"lateness {_LATER} --topic due --rate 20000 --due-rate 5000 --window 16",
            0.25,
        )
    },
    {"remoting_rtt": Row("remoting_load", f"rtt {_LATER}")},
]
NAMES = [name for rows in ROWS for name in rows]


def _cpu_s(pid: int, task: int | None = None) -> float:
    path = f"/proc/{pid}/stat" if task is None else f"/proc/{pid}/task/{task}/stat"
    fields = Path(path).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(broker: BrokerProcess, row: Row, n: int, further: list[str]) -> Result:
    """One run of the generator."""
    address = broker.grpc_endpoint if row.generator == "grpc_load" else broker.broker_address
    port = address.rpartition(":")[2]
    command = [sys.executable, "-m", f"benchmarks.{row.generator}", *row.arguments.split()]
    before = _cpu_s(broker.pid), _cpu_s(broker.pid, broker.pid)
    ran = subprocess.run(
        [*command, "--port", port, "--n", str(n), *further],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    used = _cpu_s(broker.pid) - before[0], _cpu_s(broker.pid, broker.pid) - before[1]
    result: Result = json.loads(ran.stdout)
    done = result["n"]
    result["us"] = {"loop": round(used[1] / done * 1e6, 1), "all": round(used[0] / done * 1e6, 1)}
    return result


def wire(n: int, scheduled: int, names: list[str] | None = None, rate: int = 0) -> Result:
    """All rows; `scheduled` is what the core schedules a second now, `rate` the one of `remoting_rtt` (0: scaled)."""
    results: Result = {"scheduled_by_core": scheduled}
    rate = rate or int(PEAK_PER_SECOND * scheduled / PEAK_SCHEDULED)
    for rows in ROWS:
        wanted = {name for name in rows if names is None or name in names}
        wanted |= {rows[name].reads for name in wanted if rows[name].reads}
        if wanted:
            _scene({name: row for name, row in rows.items() if name in wanted}, n, rate, results)
    return results


def _scene(rows: dict[str, Row], n: int, rate: int, results: Result) -> None:
    """Rows that share a broker."""
    directory = WORK / "wire"
    shutil.rmtree(directory, ignore_errors=True)
    with BrokerProcess(directory, clock="system") as broker:
        for topic, kind in {"later": "delay", "due": "delay", "now": "normal"}.items():
            broker.create_topic(topic, kind, 4)
        for name, row in rows.items():
            count = results[row.reads]["n"] if row.reads else int(n * row.part)
            further = []
            if name == "remoting_rtt":
                count, further = rate * RTT_SECONDS, ["--rate", str(rate)]
            result = run(broker, row, count, further)
            if "per_second" in result:
                result["of_core"] = round(result["per_second"] / results["scheduled_by_core"], 2)
            results[name] = result
            print(name, json.dumps(result), flush=True)
    shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=NAMES)
    parser.add_argument("--n", type=int, default=200_000, help="messages, of most rows")
    parser.add_argument("--rate", type=int, default=0, help="of remoting_rtt; 0: scaled")
    options = parser.parse_args()
    core = uvloop.run(schedule(options.n))
    print("core", json.dumps(core), flush=True)
    wire(options.n, core["per_second_over_20_hours"], options.only, options.rate)


if __name__ == "__main__":
    main()
