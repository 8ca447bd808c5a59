"""A topic read through the broker's admin API, without a shared disk."""

from __future__ import annotations

import http.client
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import numpy as np

from horolog.admin.client import (
    AdminClient,
    TimedConnection,
    no_answer,
    one_call_s,
    path_of,
)
from horolog.admin.status import UnreachableError, error_from_body
from horolog.errors import ErrorCode, HorologError
from horolog.limits import ADMIN_READ_MAX
from horolog.protocol.queue_read import ReadAnswer, decode_read
from horolog.spark.failures import silent_broker
from horolog.spark.message_decode import Records

_log = logging.getLogger("horolog.spark")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_Result = TypeVar("_Result")


class Bounds(NamedTuple):
    """Queue offsets that can be read: [first, stop)."""

    first: int
    stop: int


def retry_until(call: Callable[[], _Result], timeout_ms: int, option: str = "broker") -> _Result:
    """Return the result of a call to a broker that may be restarting.

    option  the option that has the broker's URL
    Errors: the last failure, once the time is over.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except UnreachableError as error:
            if time.monotonic() + pause >= deadline:
                raise silent_broker(error, option) from None
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE_S, pause * 2)


class TopicAnswers:
    """One topic of a broker, read over HTTP."""

    def __init__(self, url: str, topic: str, timeout_ms: int) -> None:
        self._admin = AdminClient(url, timeout_s=one_call_s(timeout_ms))
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._connection: http.client.HTTPConnection | None = None

    def bounds(self) -> dict[int, Bounds]:
        """Return the offsets of each queue that can be read now."""
        view = retry_until(
            lambda: self._admin.get(path_of("topics", self._topic)), self._timeout_ms
        )
        stops: list[int] = view["queue_offsets"]
        firsts: list[int] = view.get("min_offsets") or [0] * len(stops)
        pairs = zip(firsts, stops, strict=True)
        return {queue: Bounds(first, stop) for queue, (first, stop) in enumerate(pairs)}

    def commit_position(self) -> int:
        """Return the broker's commit position."""
        view = retry_until(lambda: self._admin.get(path_of("broker")), self._timeout_ms)
        return int(view["commit_position"])

    def store_ms(self, queue: int, offset: int) -> int:
        """Return when the message at an offset, or the next one, became visible, in epoch ms.

        −1 if there is no such message.
        """
        records = _records(self._ask(queue, offset, 1))
        return int(records.store_ms[0]) if len(records) else -1

    def read(self, queue: int, first: int, stop: int, *, lossy: bool = False) -> Iterator[Records]:
        """Yield the messages [first, stop) of a queue, in order, in pieces.

        lossy  log a message that the broker cannot read and pass over it, instead of raising
               DAMAGED
        """
        while first < stop:
            answer = self._ask(queue, first, min(stop - first, ADMIN_READ_MAX))
            if answer.next_offset <= first:
                raise HorologError(
                    ErrorCode.NOT_FOUND,
                    f"topic {self._topic!r}: queue {queue} ends at {answer.max_offset}, before "
                    f"{stop}",
                    field="queue_offset",
                )
            records = _records(answer)
            end = min(stop, answer.next_offset)
            missing = end - first - int((records.queue_offsets < end).sum())
            if missing:
                self._report_holes(queue, first, end, missing, lossy=lossy)
            first = answer.next_offset
            if first > stop:  # with holes, an answer may reach past `stop`
                records = records.chosen(records.queue_offsets < stop)
            if len(records):
                yield records

    def _report_holes(
        self, queue: int, first: int, stop: int, missing: int, *, lossy: bool
    ) -> None:
        text = (
            f"topic {self._topic!r}: {missing} of the queue offsets {first} to {stop - 1} of queue "
            f"{queue} cannot be read; the broker's /healthz says why"
        )
        if not lossy:
            raise HorologError(
                ErrorCode.DAMAGED,
                f"{text} (failOnDataLoss=false goes on with what there is)",
                field="failOnDataLoss",
            )
        _log.warning("%s, and are passed over", text)

    def _ask(self, queue: int, first: int, limit: int) -> ReadAnswer:
        path = path_of("topics", self._topic, "queues", str(queue), "messages")
        return retry_until(
            lambda: decode_read(self._get(f"{path}?from={first}&limit={limit}")), self._timeout_ms
        )

    def _get(self, path: str) -> bytes:
        """Get a body of bytes; the connection is kept for the next request."""
        admin = self._admin
        if self._connection is None:
            self._connection = TimedConnection(
                admin.host, admin.port, timeout=one_call_s(self._timeout_ms)
            )
        try:
            self._connection.request("GET", quote(path, safe="/?=&%"), headers=admin.headers)
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise no_answer(admin.url, error) from None
        if response.status != http.client.OK:
            raise error_from_body(_json(body))
        return body

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body[:200]


def _records(answer: ReadAnswer) -> Records:
    sizes = answer.sizes.astype(np.int64)
    return Records(np.frombuffer(answer.records, np.uint8), np.cumsum(sizes) - sizes, sizes)
