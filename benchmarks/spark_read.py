"""Measure the topic source: messages a second out of a topic, through the broker and from its files.

`python -m benchmarks.spark_read` fills a topic of four queues with messages that are due at once, and reads all of
them, all columns, with Spark on two cores; then once more without Spark, which shows what the decoding costs alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.load import QUEUES, TOPIC, send_all
from horolog.protocol.commands import CreateTopic, DescribeTopic, TopicType
from horolog.server.open_broker import open_engine

WORK = Path(__file__).resolve().parents[1] / "build" / "bench" / "spark_read"
COLUMNS = ("message_id", "tag", "keys", "properties", "body", "born_at", "stored_at", "deliver_at")


async def fill(directory: Path, messages: int) -> None:
    """Messages that are visible at once."""
    engine = await open_engine(directory)
    try:
        await engine.submit(CreateTopic(TOPIC, TopicType.DELAY, QUEUES))
        await send_all(engine, messages, lambda number: 1)
        view = await engine.submit(DescribeTopic(TOPIC))
        assert sum(view.queue_offsets) == messages
    finally:
        await engine.stop()


def decode(directory: Path) -> int:
    """All columns of all messages, in this process."""
    from horolog.spark.topic_files import TopicFiles, read_part

    files = TopicFiles(str(directory), TOPIC, None)
    done = 0
    for queue, (first, stop) in files.bounds().items():
        for records in read_part(files.part(queue, first, stop)):
            done += len(records.columns(COLUMNS)["body"])
    return done


def read(spark: Any, **options: object) -> int:
    """All columns of all messages, by Spark."""
    frame = spark.read.format("horolog").options(topic=TOPIC, **options).load()
    row = frame.selectExpr("count(message_id) AS n", "sum(length(body)) AS bytes").first()
    return int(row.n)


def main() -> None:
    """Fill, read, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    messages = parser.parse_args().messages
    from horolog.spark.session import make_session
    from horolog.testing.broker import BrokerProcess

    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    figures: dict[str, object] = {"messages": messages}

    def timed(name: str, call: Any) -> None:
        begin, used = time.perf_counter(), time.process_time()
        assert call() == messages
        figures[name] = round(messages / (time.perf_counter() - begin))
        if name == "decoded":
            figures["decoded_a_cpu_second"] = round(messages / (time.process_time() - used))

    try:
        asyncio.run(fill(WORK / "data", messages))
        timed("decoded", lambda: decode(WORK / "data"))
        spark = make_session("read", master="local[2]")
        with BrokerProcess(WORK / "data", clock="system") as broker:
            path, url = str(broker.data_dir), broker.admin_url
            read(spark, path=path, broker=url, endingOffsets='{"0": 1, "1": 1, "2": 1, "3": 1}')
            timed("files", lambda: read(spark, path=path, broker=url))
            timed("answers", lambda: read(spark, broker=url))
        spark.stop()
        print(json.dumps(figures))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)


if __name__ == "__main__":
    main()
