"""The airline: schedules, recalls and re-schedules boarding calls with the official Python client.

Runs in the client's own environment as a process of its own.  It reads one line of JSON from
stdin (a list of orders, see `Order`) and writes what it does to stdout, one JSON object a line;
it ends when stdin is closed.

What it does when an answer is lost (the broker was killed, the connection broke) is what any
application would do.  The client itself sends a request up to three times at once, with the same
message id, so a second copy of the same id may be stored.  When it gives up, we send the call
again until it is accepted: the client gives every `send` a new message id, so the first id may
be stored too, without anybody knowing.  A recall is simply repeated; NOT_FOUND then means that
the first attempt had worked.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from rocketmq import ClientConfiguration, Credentials, Message, Producer
from rocketmq.v5.exception import ClientException

WORKERS = 8
RETRY_PAUSE_S = 0.2
RETRY_FOR_S = 30.0  # the broker is expected back long before
LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
TRUTHS = ("ALREADY_DELIVERED", "NOT_FOUND")  # first words of a refused recall

_stdout_lock = threading.Lock()


def say(kind: str, **fields: object) -> None:
    """Tell the demo, in one line."""
    line = json.dumps({"kind": kind, **fields}) + "\n"
    with _stdout_lock:
        sys.stdout.write(line)
        sys.stdout.flush()


def answer_lost(error: Exception) -> bool:
    """Whether the request may or may not have been carried out; else it was refused."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() in LOST
    return isinstance(error, (TimeoutError, CancelledError))


@dataclass(frozen=True)
class Order:
    """What is to be done for one flight; times are epoch seconds."""

    key: str
    body: str
    due_s: int
    news_at_s: float | None  # when the first call is recalled
    new_due_s: int | None  # due time of the second call


class Airline:
    """A producer that does not give up when the broker goes away for a while."""

    def __init__(self, endpoint: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(ClientConfiguration(endpoint, Credentials()), [topic])
        self._requests: Counter[str] = Counter()
        self._count_requests()
        self._producer.startup()

    def _count_requests(self) -> None:
        """Count what the client puts on the wire per message id; its own retries show only here."""
        rpc_client = self._producer.rpc_client
        send = rpc_client.send_message_async

        def counted(endpoints: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            self._requests[request.messages[0].system_properties.message_id] += 1
            return send(endpoints, request, *args, **kwargs)

        rpc_client.send_message_async = counted

    def schedule(self, order: Order, number: int, due_s: int) -> str:
        """Schedule one call; gives its recall handle.  A refusal by the broker is an error.

        The handle is "" if the broker was away until the call was due: it is visible at once then.
        """
        give_up_at = time.monotonic() + RETRY_FOR_S
        call = f"{order.key}#{number}"
        while True:
            message = Message()
            message.topic = self._topic
            message.body = order.body.encode()
            message.keys = call
            message.delivery_timestamp = due_s  # whole seconds
            say("sending", call=call)
            try:
                receipt = self._producer.send(message)
            except Exception as error:
                requests = self._requests[message.message_id]
                say(
                    "unanswered",
                    call=call,
                    id=message.message_id,
                    requests=requests,
                    why=repr(error),
                )
                if not answer_lost(error) or time.monotonic() > give_up_at:
                    raise
                time.sleep(RETRY_PAUSE_S)
                continue
            if not receipt.recall_handle and time.time() < due_s:
                raise RuntimeError(f"the broker gave no recall handle for {call}")
            say(
                "scheduled",
                call=call,
                id=receipt.message_id,
                due_ms=due_s * 1_000,
                answered_ms=time.time_ns() // 1_000_000,
                requests=self._requests[receipt.message_id],
            )
            return str(receipt.recall_handle or "")

    def recall(self, order: Order, handle: str) -> None:
        """Recall the first call of a flight and report the truth about it."""
        give_up_at = time.monotonic() + RETRY_FOR_S
        call = f"{order.key}#1"
        unanswered = 0
        while True:
            say("recalling", call=call)
            if not handle:
                say("recalled", call=call, truth="ALREADY_DELIVERED", unanswered=unanswered)
                return
            try:
                self._producer.recall_message(self._topic, handle)
                truth = "CANCELLED"
            except ClientException as error:
                truth = str(error.args[0]).split(":")[0].split(" ")[0]
                if truth not in TRUTHS:
                    raise
            except Exception as error:
                unanswered += 1
                if not answer_lost(error) or time.monotonic() > give_up_at:
                    raise
                time.sleep(RETRY_PAUSE_S)
                continue
            say("recalled", call=call, truth=truth, unanswered=unanswered)
            return

    def close(self) -> None:
        """Leave the broker."""
        self._producer.shutdown()


def fly(airline: Airline, orders: list[Order]) -> None:
    """Carry out all orders: the first calls at once, the rest when the news come."""
    workers = ThreadPoolExecutor(WORKERS)
    first = {order.key: workers.submit(airline.schedule, order, 1, order.due_s) for order in orders}
    running: list[Future[Any]] = list(first.values())
    news = [(order.news_at_s, order.key, order) for order in orders if order.news_at_s is not None]
    heapq.heapify(news)
    try:
        while news:
            at_s, key, order = heapq.heappop(news)
            time.sleep(max(0.0, at_s - time.time()))
            running.append(workers.submit(_on_news, airline, order, first[key]))
            _raise_failed(running)
        for future in running:
            future.result()
    finally:
        workers.shutdown(wait=False, cancel_futures=True)  # after an error: no more sends


def _on_news(airline: Airline, order: Order, first: Future[str]) -> None:
    airline.recall(order, first.result())  # queued after it, so this waits for a retry at most
    if order.new_due_s is not None:
        airline.schedule(order, 2, order.new_due_s)


def _raise_failed(running: list[Future[Any]]) -> None:
    for future in running:
        if future.done():
            future.result()


def main() -> int:
    """Read the orders, carry them out, wait for stdin to close."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", required=True, help="gRPC door of the broker, host:port")
    parser.add_argument("--topic", required=True)
    arguments = parser.parse_args()
    airline = Airline(arguments.endpoint, arguments.topic)
    say("ready")
    line = sys.stdin.readline()
    if line:
        fly(airline, [Order(**fields) for fields in json.loads(line)])
        say("done")
        sys.stdin.read()
    airline.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
