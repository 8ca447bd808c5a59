"""The admin port: uvicorn's protocol inside the broker's own loop, on 127.0.0.1.

uvicorn's signal handlers, which belong to the process, its ticking and its accepting are not used:
an operator must reach the broker also when clients have taken all file descriptors
(`storage.descriptors`), and when others hold idle connections to this port.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from horolog.admin.outgoing import BoundedAnswers
from horolog.admin.status import error_body
from horolog.admin.warning_limit import UVICORN, WarningLimit
from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import ADMIN_CONNECTIONS_MAX, ADMIN_UNREAD_BYTES_MAX
from horolog.server.ports import ADMIN_HOST, bind
from horolog.server.unread_answers import UnreadAnswers
from horolog.storage.descriptors import hard_limit, reserve_of, with_reserve

SHUTDOWN_TIMEOUT_S = 1
KEEP_ALIVE_S = 75
_ACCEPTS = 64  # connections to accept before other tasks of the loop run
_PAUSE_S = 1.0  # when even the reserve has no descriptor left

_NO_HTTP = refused(
    "request", "is not HTTP/1.1: its first line, a header or the length of its body is not allowed"
)
_log = logging.getLogger("horolog.admin")


def _last_answer(status: str, error: HorologError) -> bytes:
    """Return an error as bytes: the last answer of a connection that the app does not see."""
    body = orjson.dumps(error_body(error))
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


class _Connection(H11Protocol):
    """One connection; it calls `gone` with itself at its end."""

    def __init__(self, gone: Callable[[_Connection], None], **rest: Any) -> None:
        super().__init__(**rest)
        self._gone = gone

    def connection_lost(self, exc: Exception | None) -> None:
        """Also tell the server that the connection has ended."""
        super().connection_lost(exc)
        self._gone(self)

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP in the one error shape, and hang up; `msg` is for uvicorn's log."""
        del msg
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            # Not in the middle of an answer, as when the body of the request is wrong.
            self.transport.write(_last_answer("400 Bad Request", _NO_HTTP))
        self.transport.close()

    @property
    def is_waiting(self) -> bool:
        """Whether the connection has no complete request left to answer."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the client has not read."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def cut_off(self) -> None:
        """End the connection now, even if answers are unread."""
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection now."""
        if self.transport is not None:
            self.transport.abort()


def _connections_max() -> int:
    """Return the most connections to hold: at worst they take half of the reserve."""
    return min(ADMIN_CONNECTIONS_MAX, reserve_of(hard_limit()) // 2)


class AdminServer:
    """The server of the app on the admin port, until `stop`.

    Make it, `await start()`, and `await stop()` before the engine stops.
    """

    def __init__(self, app: Starlette, port: int) -> None:
        self._app = app
        self._port = port
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None
        self._open: dict[_Connection, None] = {}  # the oldest connection first
        self._making: set[asyncio.Task[Any]] = set()
        self._answers = UnreadAnswers(self._open.keys(), ADMIN_UNREAD_BYTES_MAX)
        self._most = _connections_max()
        self.accepted = self.refused = 0

    @property
    def connections(self) -> int:
        """Count of open connections."""
        return len(self._open)

    @property
    def doors(self) -> dict[str, AdminServer]:
        """This server, by the name of its port."""
        return {"admin": self}

    async def start(self) -> int:
        """Open the port and return its actual port; CONFIG naming --admin-port if it is in use."""
        self._socket = bind(ADMIN_HOST, self._port, "--admin-port")
        self._socket.setblocking(False)
        config = uvicorn.Config(
            BoundedAnswers(self._app, self._answers),
            http="h11",
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            date_header=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._server.servers = []
        self._loop = asyncio.get_running_loop()
        self._warning_limit = WarningLimit(self._loop)
        UVICORN.addFilter(self._warning_limit)
        self._loop.add_reader(self._socket.fileno(), self._accept)
        port: int = self._socket.getsockname()[1]
        return port

    def _accept(self) -> None:
        sock = self._socket
        for _ in range(_ACCEPTS):
            if sock is None or (self._making and len(self._open) >= self._most):
                return  # connections still being made can be closed for room only once they are open
            try:
                connection, _ = with_reserve(sock.accept)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("admin port not answered: %s", error.strerror)
                self._loop.remove_reader(sock.fileno())
                self._loop.call_later(_PAUSE_S, self._accept_again)
                return
            self._admit(connection)

    def _accept_again(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _admit(self, connection: socket.socket) -> None:
        if len(self._open) >= self._most and not self._make_room():
            self.refused += 1
            self._refuse(connection)
            return
        server = self._server
        assert server is not None
        protocol = _Connection(
            self._forget,
            config=server.config,
            server_state=server.server_state,
            app_state={},
            _loop=self._loop,
        )
        self._open[protocol] = None
        self.accepted += 1
        connection.setblocking(False)
        making = self._loop.create_task(self._make(protocol, connection))
        self._making.add(making)
        making.add_done_callback(self._making.discard)

    async def _make(self, protocol: _Connection, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError:  # the client has gone already
            connection.close()
            self._forget(protocol)

    def _forget(self, protocol: _Connection) -> None:
        self._open.pop(protocol, None)

    def _make_room(self) -> bool:
        """Hang up on the oldest connection without a request to answer; return if there is one."""
        for protocol in self._open:
            if protocol.is_waiting and protocol.transport is not None:
                self._forget(protocol)
                protocol.hang_up()
                return True
        return False

    def _refuse(self, connection: socket.socket) -> None:
        error = HorologError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"connections: {self._most} have requests that are being answered; try again later",
            field="connections",
            limit=f"{self._most}",
        )
        with suppress(OSError), connection:
            connection.setblocking(False)
            connection.recv(1 << 16)
            connection.send(_last_answer("429 Too Many Requests", error))

    async def stop(self) -> None:
        """Close the port and finish answers under way, for at most `SHUTDOWN_TIMEOUT_S`."""
        server, sock = self._server, self._socket
        self._server = self._socket = None
        if server is not None and sock is not None:
            self._loop.remove_reader(sock.fileno())
            UVICORN.removeFilter(self._warning_limit)
            self._app.state.closing.set()  # lets parked polls be answered
            if self._making:
                await asyncio.wait(self._making)
            with suppress(OSError):
                await server.shutdown(sockets=[sock])
