"""Sends delayed messages with the official Python client, which has an environment of its own (.venv-client).

    .venv-client/bin/python benchmarks/client_sends.py ENDPOINT TOPIC DUE_S MESSAGES THREADS BODY_BYTES

Prints the seconds from the first send to the last answer.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from rocketmq import ClientConfiguration, Credentials, Message, Producer


def main() -> None:
    """Command line."""
    endpoint, topic = sys.argv[1:3]
    due_s, messages, threads, size = (int(text) for text in sys.argv[3:7])
    producer = Producer(ClientConfiguration(endpoint, Credentials()), [topic])
    producer.startup()

    def send(number: int) -> None:
        message = Message()
        message.topic = topic
        message.body = str(number).rjust(size, "0").encode()
        message.delivery_timestamp = due_s + number % 3_600
        producer.send(message)

    send(0)  # connects
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(send, range(messages)):
            pass
    print(time.perf_counter() - began)
    producer.shutdown()


if __name__ == "__main__":
    main()
