"""What filters of consumers cost: `python -m benchmarks.filters`.

Through the whole core (`Broker.step`) on the disk that holds build/, without syncs and without doors.  One queue of n
messages of 200 bytes, of which one in a hundred is wanted; CPU time of the one thread that does it all.

tag      pulls and receives of one tag of a hundred: units of the consume queue that were passed, a second, until all
         messages that match were given out; and of the comparison of codes alone
tags     the same of one of three tags (`a || b || c`), of which each is as rare
several  topics whose messages have several tags: which part of the messages that have not got a tag pass for it by their
         bits, and what that would be with the 32-bit hashes of RocketMQ's tags, joined by OR
sql92    pulls of a condition on two properties: messages that were read and evaluated, a second; and of the evaluation
         of their properties alone
"""

from __future__ import annotations

import argparse
import json
import time
from random import Random
from typing import Any

import numpy as np

from benchmarks.load import BODY
from benchmarks.recall import Core
from horolog.limits import HOUR_MS, PULL_BYTES_MAX, RECEIVE_BATCH_MAX
from horolog.log.record import HEAD_BYTES
from horolog.protocol.commands import (
    CreateTopic,
    Receive,
    Received,
    SendMessages,
    TopicType,
)
from horolog.protocol.queue_commands import Pull, Pulled
from horolog.protocol.rocketmq.message import encode
from horolog.protocol.rocketmq.tags import bits_of, bits_of_tag, tags_code
from horolog.ready.filter import Filter, parse_filter

TOGETHER = 1_000  # messages of one send
RARE = 100  # one message of so many is wanted
SQL = "tier = 7 AND region IN ('eu', 'us')"
Result = dict[str, Any]


def filled(n: int) -> Core:
    """A core with n messages in one queue; tags t0 to t99 in turns, and properties that say the same."""
    core = Core()
    core.ask(CreateTopic("busy", TopicType.NORMAL, 1))
    for first in range(0, n, TOGETHER):
        messages = [
            encode(
                topic="busy",
                body=BODY,
                message_id=f"{i:032X}",
                tag=f"t{i % RARE}",
                user_properties={"tier": str(i % RARE), "region": ("eu", "us")[i & 1]},
            )
            for i in range(first, min(first + TOGETHER, n))
        ]
        core.ask(SendMessages("busy", messages))
    return core


def pulled(core: Core, n: int, expression: str, *, is_sql: bool = False) -> tuple[float, int]:
    """CPU seconds of pulls from the first message to the last, and how many messages they gave."""
    at = found = 0
    began = time.thread_time()
    while at < n:
        answer = core.ask(Pull("busy", 0, at, 32, PULL_BYTES_MAX, expression, 0, is_sql=is_sql))
        assert isinstance(answer, Pulled), answer
        found += len(answer.layouts)
        at = answer.next_offset
    return time.thread_time() - began, found


def received(core: Core, expression: str, group: str, wanted: int) -> float:
    """CPU seconds of receives until all that match were given out."""
    found = 0
    began = time.thread_time()
    while found < wanted:
        command = Receive(
            group, "busy", 0, expression, RECEIVE_BATCH_MAX, HOUR_MS, False, 0, "client"
        )
        answers = core.turn([command])
        while not answers:
            answers = core.turn([])  # the turn has looked at its part, and goes on in the next one
        (answer,) = answers
        assert isinstance(answer, Received), answer
        found += len(answer.messages)
    assert found == wanted, (found, wanted)
    return time.thread_time() - began


def compared(core: Core, n: int, tags: Filter) -> float:
    """CPU seconds of the comparison of all codes."""
    queue = core.opened.broker.shard.topics.get("busy").queues[0]
    units = queue.read(0, n)
    began = time.thread_time()
    for first in range(0, len(units), 4_096):
        tags.may_match(units[first : first + 4_096])
    return (time.thread_time() - began) * n / len(units)


def evaluated(core: Core, n: int, tags: Filter) -> float:
    """CPU seconds of the exact test of all messages, of which 10 000 are tested again and again."""
    shard = core.opened.broker.shard
    units = shard.topics.get("busy").queues[0].read(0, 10_000).tolist()
    topic = shard.topics.get("busy")
    stored = [
        memoryview(shard.queued.record(topic, 0, i, position, size) or b"")[HEAD_BYTES:]
        for i, (position, size, _) in enumerate(units)
    ]
    began = time.thread_time()
    for layout in stored:
        tags.takes(layout)
    return (time.thread_time() - began) * n / len(stored)


def tags(core: Core, n: int, expression: str) -> Result:
    """Rates of a TAG expression."""
    by_pull, found = pulled(core, n, expression)
    by_receive = received(core, expression, f"g{len(expression)}", found)
    return {
        "messages": n,
        "expression": expression,
        "matched": found,
        "compared_a_second": round(n / compared(core, n, parse_filter(expression, is_sql=False))),
        "pulled_units_a_second": round(n / by_pull),
        "received_units_a_second": round(n / by_receive),
    }


def sql92(core: Core, n: int) -> Result:
    """Rates of a condition."""
    took, found = pulled(core, n, SQL, is_sql=True)
    return {
        "messages": n,
        "expression": SQL,
        "matched": found,
        "evaluated_a_second": round(n / evaluated(core, n, parse_filter(SQL, is_sql=True))),
        "pulled_messages_a_second": round(n / took),
    }


def several(n: int) -> Result:
    """Messages that pass by their bits and have not got the tag, of so many tags each."""
    found: Result = {"messages": n}
    random = Random(15)
    names = [f"{random.getrandbits(40):x}" for _ in range(1_000)]
    for count in (1, 2, 3, 5, 8):
        codes = np.array([bits_of(random.sample(names, count)) for _ in range(n)], np.int64)
        hashes = np.array([_joined(random.sample(names, count)) for _ in range(n)], np.int64)
        others = [f"{random.getrandbits(48):x}" for _ in range(200)]
        wanted = [bits_of_tag(tag) for tag in others]
        pass_by_bits = np.mean([np.mean(codes & bits == bits) for bits in wanted])
        joined = [tags_code(tag) & 0xFFFFFFFF for tag in others]
        pass_by_hash = np.mean([np.mean(hashes & bits == bits) for bits in joined])
        found[f"false_positives_of_{count}"] = round(float(pass_by_bits), 5)
        found[f"by_joined_hashes_of_{count}"] = round(float(pass_by_hash), 5)
    return found


def _joined(tags: list[str]) -> int:
    code = 0
    for tag in tags:
        code |= tags_code(tag) & 0xFFFFFFFF
    return code


def filters(n: int) -> Result:
    """All rows."""
    core = filled(n)
    return {
        "tag": tags(core, n, "t7"),
        "tags": tags(core, n, "t7 || t8 || t9"),
        "several": several(min(n, 20_000)),
        "sql92": sql92(core, n),
    }


def main() -> None:
    """Print a line of JSON for each row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--n", type=int, default=1_000_000, help="messages")
    for name, row in filters(parser.parse_args().n).items():
        print(json.dumps({name: row}), flush=True)


if __name__ == "__main__":
    main()
