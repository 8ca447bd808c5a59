"""Connections of 4.x clients as raw sockets, for `benchmarks.remoting_load`: frames made beforehand, answers counted.

Every body begins with the number of its message and its due time (both u64, big-endian), so who receives it can tell
what is lost, comes twice or comes early without believing anything that the broker says.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from typing import Any

import numpy as np

from benchmarks.tables import Column, Table, places, put_binary, put_digits, repeat
from horolog.protocol.remoting.codes import Code, Status

BODY_BYTES = 200
BODY_AT = 88  # in a stored message, with hosts of IPv4
STORED_AT = 56  # the store time in it
PULLED_MAX = 1_024  # messages of a pull
POLL_MS = 5_000
_BODY = struct.Struct(">QQ")
_PREFIX = struct.Struct(">II")
_OPAQUE = 100_000_000  # of the first request: all have as many digits
_OPAQUE_DIGITS = 9
_QUEUE = 7  # of a template, which stands nowhere else as a field of its own
_MARK = 0x7F01_0203_7F04_0506  # the number of a template's first message
_RUN = f"{os.getpid():08X}{int(time.time()):08X}"  # so that no id was ever sent before
_ID_DIGITS = 16
_ID_MARK = 4_242_420_000_000_000
_DUE_MARK = 7_654_321_098_765  # milliseconds: thirteen digits, as every due time has
_MAY_WAIT, _SUBSCRIBES = 2, 4
_FOUND = re.compile(rb'"nextBeginOffset":"(\d+)"')


def _frame(code: Code, fields: dict[str, str], body: bytes = b"") -> bytes:
    header = json.dumps(
        {
            "code": int(code),
            "language": "JAVA",
            "version": 401,
            "opaque": _OPAQUE,
            "flag": 0,
            "serializeTypeCurrentRPC": "JSON",
            "extFields": fields,
        },
        separators=(",", ":"),
    ).encode()
    return _PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


def _properties(number: int, *, due: bool) -> str:
    kept = f"UNIQ_KEY\x01{_RUN}{number:0{_ID_DIGITS}d}\x02WAIT\x01true\x02"
    return kept + (f"TIMER_DELIVER_MS\x01{_DUE_MARK}\x02" if due else "")


def sends(topic: str, batch: int, first: int, queues: int, due_ms: Column, born_ms: int) -> Table:
    """One request for every `batch` of the due times, 0 for messages that are not scheduled."""
    assert queues <= 9, "a queue is one digit"
    n = len(due_ms) // batch
    due = bool(due_ms[0])
    table = repeat(_template(topic, batch, due=due, born_ms=born_ms), n)
    template = table[0].tobytes()
    at = places(template, b'"opaque":%d' % _OPAQUE, 1)[0] + len('"opaque":')
    put_digits(table, at, _OPAQUE_DIGITS, _OPAQUE + np.arange(n))
    at = places(template, b'"e":"%d"' % _QUEUE, 1)[0] + len('"e":"')
    put_digits(table, at, 1, np.arange(n) % queues)
    for i in range(batch):
        numbers, dues = first + np.arange(n) * batch + i, due_ms[i : n * batch : batch]
        at = places(template, _BODY.pack(_MARK + i, _DUE_MARK), 1)[0]
        put_binary(table, at, ">u8", numbers)
        put_binary(table, at + 8, ">u8", dues)
        at = places(template, b"%016d" % (_ID_MARK + i), 1)[0]
        put_digits(table, at, _ID_DIGITS, numbers)
        if due:
            at = template.index(b"%d" % _DUE_MARK, at)
            put_digits(table, at, 13, dues)
    return table


def _template(topic: str, batch: int, *, due: bool, born_ms: int) -> bytes:
    bodies = [_BODY.pack(_MARK + i, _DUE_MARK).ljust(BODY_BYTES, b"x") for i in range(batch)]
    alone = batch == 1
    fields = {
        "a": "benchmarks",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(_QUEUE),
        "f": "0",
        "g": str(born_ms),
        "h": "0",
        "i": _properties(_ID_MARK, due=due) if alone else "",
        "j": "0",
        "k": "false",
        "m": "false" if alone else "true",
        "n": "broker-a",
    }
    if alone:
        return _frame(Code.SEND_MESSAGE_V2, fields, bodies[0])
    items = []
    for i, body in enumerate(bodies):
        kept = _properties(_ID_MARK + i, due=due).encode()
        size = 5 * 4 + len(body) + 2 + len(kept)
        items.append(struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body)
        items.append(struct.pack(">H", len(kept)) + kept)
    return _frame(Code.SEND_BATCH_MESSAGE, fields, b"".join(items))


class Peer:
    """One connection; `take` gives the answers that have come, whole."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def fileno(self) -> int:
        """For selectors."""
        return self.socket.fileno()

    def take(self) -> list[tuple[bytes, memoryview]]:
        """Header and body of each."""
        chunk = self.socket.recv(1 << 20)
        assert chunk, "the broker hung up"
        if self._buffer:
            self._buffer += chunk
            if len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
                return []
            chunk = bytes(self._buffer)
            self._buffer.clear()
        found, at, end = [], 0, len(chunk)
        view = memoryview(chunk)
        while end - at >= _PREFIX.size:
            length, mark = _PREFIX.unpack_from(chunk, at)
            stop = at + 4 + length
            if stop > end:
                break
            body_at = at + _PREFIX.size + (mark & 0xFF_FFFF)
            found.append((chunk[at + _PREFIX.size : body_at], view[body_at:stop]))
            at = stop
        self._buffer += chunk[at:]
        return found


_OK = b'{"code":0,"flag":1,"language":"JAVA","opaque":'
_OK_END = len(_OK) + _OPAQUE_DIGITS


def ends(port: int, topic: str, queues: int) -> int:
    """How many messages the queues of a topic have ever had."""
    peer, total = Peer(port), 0
    for queue in range(queues):
        peer.socket.sendall(_frame(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)}))
        while not (answers := peer.take()):
            pass
        total += int(json.loads(answers[0][0])["extFields"]["offset"])
    return total


class Sender(Peer):
    """Sends a table of requests; `came_s` has when the answer of each came, where that is wanted."""

    def __init__(self, port: int, *, timed: bool = False) -> None:
        super().__init__(port)
        self.sent = self.answered = 0
        self.table: Table = None
        self.came_s: Any = None
        self._timed = timed

    def give(self, table: Table) -> None:
        """The next table; the answers to the last one are all there."""
        assert self.sent == self.answered
        self.table, self.sent, self.answered = table, 0, 0
        self.came_s = np.zeros(len(table)) if self._timed else None

    @property
    def over(self) -> bool:
        """Whether everything is answered."""
        return self.answered == len(self.table)

    def send(self, upto: int) -> None:
        """Send the requests below that number that are not sent yet."""
        upto = min(upto, len(self.table))
        if upto > self.sent:
            self.socket.sendall(self.table[self.sent : upto].reshape(-1))
            self.sent = upto

    def read(self) -> None:
        """Count the answers that have come."""
        headers = [header for header, _ in self.take()]
        refused = [header for header in headers if not header.startswith(_OK)]
        assert not refused, f"a send was refused: {refused[0]!r}"
        self.answered += len(headers)
        if self._timed and headers:
            opaques = [int(header[len(_OK) : _OK_END]) - _OPAQUE for header in headers]
            self.came_s[opaques] = time.perf_counter()


class Puller(Peer):
    """Pulls one queue from its beginning, each time from where the last answer ended."""

    def __init__(self, port: int, topic: str, queue: int, receipts: Receipts) -> None:
        super().__init__(port)
        self._receipts = receipts
        self._offset = 0
        self._fields = {
            "consumerGroup": "benchmarks",
            "topic": topic,
            "queueId": str(queue),
            "commitOffset": "0",
            "maxMsgNums": str(PULLED_MAX),
            "sysFlag": str(_MAY_WAIT | _SUBSCRIBES),
            "suspendTimeoutMillis": str(POLL_MS),
            "subscription": "*",
            "subVersion": "1",
            "expressionType": "TAG",
        }

    def pull(self) -> None:
        """Ask for what is there, and wait for it if there is nothing."""
        asked = {**self._fields, "queueOffset": str(self._offset)}
        self.socket.sendall(_frame(Code.PULL_MESSAGE, asked))

    def read(self) -> None:
        """Take an answer, if a whole one has come, and ask for more."""
        for header, body in self.take():
            self._heard(header, body)
            self.pull()

    def _heard(self, header: bytes, body: memoryview) -> None:
        found = _FOUND.search(header)
        assert found is not None, f"a pull was refused: {header!r}"
        self._offset = int(found[1])
        if not header.startswith(_OK):
            code = json.loads(header)["code"]
            assert code in (Status.PULL_NOT_FOUND, Status.PULL_RETRY_IMMEDIATELY), header
            return
        self._receipts.take(body)


class Receipts:
    """What came, against what was sent: n messages with the numbers from 0 on."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.count = 0
        self.last_s = 0.0  # when the last of them came
        self._numbers: list[Any] = []
        self._late_ms: list[Any] = []

    def take(self, body: memoryview) -> None:
        """Messages in their stored form, of which all have the same size."""
        now_s = time.time()
        size = int.from_bytes(body[:4], "big")
        rows = np.frombuffer(body, np.uint8).reshape(-1, size)
        columns = rows.view(_stored(size)).reshape(-1)
        assert (columns["size"] == size).all(), "messages of different sizes"
        self._numbers.append(columns["number"].astype(np.int64))
        due_ms = columns["due_ms"].astype(np.int64)
        assert (columns["stored_ms"].astype(np.int64) >= due_ms).all(), "stored before it was due"
        self._late_ms.append(now_s * 1000 - due_ms)
        self.count += len(rows)
        self.last_s = now_s

    def check(self) -> None:
        """None lost, none twice, none early."""
        counts = np.bincount(np.concatenate(self._numbers), minlength=self.n)
        assert len(counts) == self.n, "a message that nobody has sent"
        lost, twice = int((counts == 0).sum()), int((counts > 1).sum())
        early = int((self.late_ms < 0).sum())
        assert lost == twice == early == 0, f"{lost} lost, {twice} twice, {early} early"

    @property
    def late_ms(self) -> Any:
        """When each came, less when it was due."""
        return np.concatenate(self._late_ms)


def _stored(size: int) -> Any:
    names = ["size", "stored_ms", "number", "due_ms"]
    offsets = [0, STORED_AT, BODY_AT, BODY_AT + 8]
    formats = [">u4", ">u8", ">u8", ">u8"]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
