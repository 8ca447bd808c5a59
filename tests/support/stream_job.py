"""A driver that copies a topic to another one, a day later: source and sink in one query.

python stream_job.py BROKER CHECKPOINT ROWS

It prints "begun" and waits for a line on stdin. It ends when it has copied the messages of that
time, and prints "copied".
"""

from __future__ import annotations

import sys

from stepped import SHORT_LIFE

from horolog.spark import make_session

COPY = [
    "body",
    "unix_millis(stored_at) + 86400000 + queue_offset as deliver_at",
    "map('from', message_id) as properties",
]


def main() -> None:
    """Run one life of the query."""
    broker, checkpoint, rows = sys.argv[1:4]
    session = make_session("stream job", master="local[1]", conf=SHORT_LIFE)
    print("begun", flush=True)
    if not sys.stdin.readline():
        return
    stream = session.readStream.format("horolog").options(
        broker=broker, topic="in", startingOffsets="earliest", maxOffsetsPerTrigger=rows
    )
    query = (
        stream.load()
        .selectExpr(*COPY)
        .writeStream.format("horolog")
        .options(broker=broker, topic="out", deliverAtUnit="ms", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("copied", flush=True)
    session.stop()


if __name__ == "__main__":
    main()
