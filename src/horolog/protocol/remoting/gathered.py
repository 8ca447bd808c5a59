"""Sends of 4.x clients, gathered into one command whose outcome is split into answers.

The answer to a batch has the ids of all messages but no recall handles: a producer that wants to
recall one of them builds the handle from the id and the due time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from horolog.errors import HorologError
from horolog.protocol.remoting.frame import Frame
from horolog.protocol.remoting.request import Answer
from horolog.protocol.remoting.send_reader import Alike
from horolog.protocol.rocketmq.delays import Levels
from horolog.protocol.rocketmq.recall_handle import RecallHandle, encode_recall_handle
from horolog.protocol.send_commands import NewRecords, SendMessages, Sent

REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
NOT_STORED = {"msgId": "0", "queueId": "0", "queueOffset": "0", **REGION}
"""Fields of the answer to a send that is accepted but not stored."""


class Site(NamedTuple):
    """What front ends know of their broker."""

    broker_name: str
    store_host: bytes  # 4 bytes of IPv4 and 4 of port, as advertised
    levels: Levels
    cluster: str = "DefaultCluster"


class Request(NamedTuple):
    """A frame, and the rows of the command that are its messages."""

    frame: Frame
    rows: range


class Run(NamedTuple):
    """A run of frames of one shape, and the row of the command for each."""

    run: Alike
    rows: range


class Gathered(NamedTuple):
    """A send command of one topic, and the frames that its messages came in."""

    command: SendMessages
    ids: list[bytes]  # id of each message
    taken: list[Request | Run]

    @property
    def requests(self) -> list[Request]:
        """Each frame as a request; most callers, such as `ready_answers`, need only `taken`."""
        found: list[Request] = []
        for each in self.taken:
            if isinstance(each, Run):
                at = each.rows.start
                found += [
                    Request(f, range(row, row + 1)) for row, f in enumerate(each.run.frames(), at)
                ]
            else:
                found.append(each)
        return found

    def answers(self, sent: Sent, site: Site) -> list[tuple[Frame, Answer | HorologError]]:
        """Return the answer to each frame; the front end encodes a refusal."""
        if not self.command.parts and not sent.refused:
            return self._single(sent, site)
        found: list[tuple[Frame, Answer | HorologError]] = []
        for frame, rows in self.requests:
            refusal = sent.refused.get(rows.start) if sent.refused else None
            found.append((frame, refusal or Answer(fields=self._answer_fields(rows, sent, site))))
        return found

    def _single(self, sent: Sent, site: Site) -> list[tuple[Frame, Answer | HorologError]]:
        """Return the answers in the frequent case: one message a frame, and none refused."""
        found: list[tuple[Frame, Answer | HorologError]] = []
        topic, broker, place = self.command.topic, site.broker_name, _place(site.store_host)
        for (frame, _), name, origin, queue, offset, due_ms in zip(
            self.requests,
            self.ids,
            sent.origins,
            sent.queue_ids,
            sent.queue_offsets,
            sent.due_ms,
            strict=True,
        ):
            message_id = name.decode()
            fields = {
                "msgId": place % origin,
                "queueId": str(queue),
                "queueOffset": str(offset) if offset > 0 else "0",
                "transactionId": message_id,
                **REGION,
            }
            if offset < 0:
                handle = RecallHandle(topic, broker, due_ms, message_id, origin)
                fields["recallHandle"] = encode_recall_handle(handle)
            found.append((frame, Answer(0, fields)))
        return found

    def split_by_frame(self) -> list[Gathered]:
        """Split the command into one command for each frame."""
        return self._split(self.requests)

    def split_by_run(self) -> list[Gathered]:
        """Split the command into one command for each frame or run of `taken`."""
        return self._split(self.taken)

    def _split(self, taken: Sequence[Request | Run]) -> list[Gathered]:
        records, sizes = self.command.columns()
        found = []
        at = 0
        for asked, rows in taken:
            chosen = sizes[rows.start : rows.stop]
            end = at + sum(chosen)
            command = type(self.command)(
                self.command.topic,
                NewRecords(records[at:end], chosen),
                reuses_ids=True,
                any_type=True,
            )
            ids = self.ids[rows.start : rows.stop]
            own = range(len(rows))
            each = Run(asked, own) if isinstance(asked, Alike) else Request(asked, own)
            found.append(Gathered(command, ids, [each]))
            at = end
        return found

    def _answer_fields(self, rows: range, sent: Sent, site: Site) -> dict[str, str]:
        first = rows.start
        fields = {
            "msgId": _places(site.store_host, sent.origins[first : rows.stop]),
            "queueId": str(sent.queue_ids[first]),
            "queueOffset": str(max(0, sent.queue_offsets[first])),
            "transactionId": self.ids[first].decode(),
            **REGION,
        }
        if sent.queue_offsets[first] < 0 and len(rows) == 1:
            handle = RecallHandle(
                self.command.topic,
                site.broker_name,
                sent.due_ms[first],
                fields["transactionId"],
                sent.origins[first],
            )
            fields["recallHandle"] = encode_recall_handle(handle)
        return fields


def _places(host: bytes, origins: Sequence[int]) -> str:
    """Return the ids of messages at these log positions, separated by commas."""
    front = host.hex().upper()
    ends = struct.pack(f">{len(origins)}Q", *origins).hex(",", 8).upper()
    return front + ends.replace(",", "," + front)


def _place(host: bytes) -> str:
    """Return a format for the id of a message, which takes the log position."""
    return host.hex().upper() + "%016X"
