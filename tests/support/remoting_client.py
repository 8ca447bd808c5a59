"""A synchronous 4.x client of raw frames, which also sends frames that no real client would."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import orjson

from horolog.protocol.remoting.codes import Code, Status
from horolog.protocol.remoting.frame import Flag, Frame, Serializer
from horolog.protocol.remoting.frame_reader import Reader
from horolog.protocol.remoting.frame_writer import encode

DEADLINE_S = 20.0
_CHUNK = 1 << 18


class RemotingClient:
    """One connection.

    pushed  requests of the broker that have come so far
    """

    def __init__(
        self,
        address: str | tuple[str, int],
        *,
        serializer: Serializer = Serializer.JSON,
        source: str = "",
    ) -> None:
        """Connect; `source` is the local address to connect from."""
        if isinstance(address, str):
            host, port = address.rsplit(":", 1)
            address = host, int(port)
        self.socket = socket.create_connection(
            address, DEADLINE_S, source_address=(source, 0) if source else None
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.serializer = serializer
        self.pushed: list[Frame] = []
        self._answers: dict[int, Frame] = {}
        self._reader = Reader()
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    # --- requests ---------------------------------------------------------------------------------

    def call(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: object = b"",
        *,
        timeout_s: float = DEADLINE_S,
        **frame: Any,
    ) -> Frame:
        """Send a request, and wait for the answer.  A body that is not bytes is sent as JSON."""
        return self.answer(self.ask(code, fields, body, **frame), timeout_s)

    def ask(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: object = b"",
        *,
        one_way: bool = False,
        **frame: Any,
    ) -> int:
        """Send a request; return its opaque, for `answer`."""
        self._opaque += 1
        self.send(self.request(code, fields, body, one_way=one_way, **frame))
        return self._opaque

    def request(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: object = b"",
        *,
        one_way: bool = False,
        **frame: Any,
    ) -> Frame:
        """Build a request, without sending it."""
        return Frame(
            code,
            flag=Flag.ONE_WAY if one_way else Flag(0),
            fields={name: _text(value) for name, value in (fields or {}).items()},
            body=body if isinstance(body, bytes) else orjson.dumps(body),
            **{
                "opaque": self._opaque,
                "language": "JAVA",
                "version": 401,
                "serializer": self.serializer,
                **frame,
            },
        )

    def send(self, *frames: Frame) -> None:
        """Send frames as they are, in one write."""
        self.socket.sendall(b"".join(map(encode, frames)))

    def done(
        self, code: int, fields: Mapping[str, object] | None = None, body: object = b""
    ) -> Frame:
        """Send a request, and check that it succeeded."""
        answer = self.call(code, fields, body)
        assert answer.code == Status.SUCCESS, (Code(code).name, answer.code, answer.remark)
        return answer

    def json(
        self, code: int, fields: Mapping[str, object] | None = None, body: object = b""
    ) -> Any:
        """Send a request, check that it succeeded, and return the JSON of the body."""
        return orjson.loads(self.done(code, fields, body).body)

    # --- answers and requests of the broker --------------------------------------------------------

    def answer(self, opaque: int, timeout_s: float = DEADLINE_S) -> Frame:
        """Return the answer to a request.

        Raise TimeoutError, or ConnectionError if the broker has closed the connection.
        """
        deadline = time.monotonic() + timeout_s
        while opaque not in self._answers:
            self._read(deadline)
        return self._answers.pop(opaque)

    def push(self, timeout_s: float = DEADLINE_S) -> Frame:
        """Return the oldest request of the broker that was not returned yet."""
        deadline = time.monotonic() + timeout_s
        while not self.pushed:
            self._read(deadline)
        return self.pushed.pop(0)

    def reply(self, request: Frame, code: int = 0, body: bytes = b"") -> None:
        """Answer a request of the broker."""
        self.send(Frame(code, request.opaque, Flag.ANSWER, {}, body))

    def is_closed(self, timeout_s: float = DEADLINE_S) -> bool:
        """Return whether the broker closes the connection within this time; earlier frames are kept."""
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                self._read(deadline)
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def _read(self, deadline: float) -> None:
        self.socket.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = self.socket.recv(_CHUNK)
        if not chunk:
            raise ConnectionError("the broker has closed the connection")
        for frame in self._reader.receive(chunk):
            if frame.is_answer:
                self._answers[frame.opaque] = frame
            else:
                self.pushed.append(frame)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def put_group(address: str, name: str, **settings: Any) -> None:
    """Create a consumer group, or change its settings, as `mqadmin updateSubGroup` does."""
    client = RemotingClient(address)
    answer = client.call(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": name, **settings}
    )
    client.close()
    assert answer.code == Status.SUCCESS, answer.remark
