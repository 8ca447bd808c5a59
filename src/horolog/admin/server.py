"""The admin port: uvicorn inside the broker's own loop, on 127.0.0.1.

Without its signal handlers, which are the process's, and without its ticking.
"""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette

from horolog.errors import ErrorCode, HorologError

ADMIN_HOST = "127.0.0.1"  # there is no authentication, so it is not offered to other machines
SHUTDOWN_TIMEOUT_S = 1
KEEP_ALIVE_S = 75


def port_in_use(flag: str, port: int, why: str) -> HorologError:
    """The error for a port that cannot be had; it names the flag and the way out."""
    return HorologError(
        ErrorCode.CONFIG,
        f"{flag}: port {port} cannot be opened ({why}); 0 takes a free one",
        field=flag,
    )


def bind(host: str, port: int, flag: str) -> socket.socket:
    """A bound TCP socket; a port that is taken or not allowed is CONFIG and names `flag`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(128)  # at once: SO_REUSEADDR lets two sockets bind, but only one listen
    except OSError as error:
        sock.close()
        why = "in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
        raise port_in_use(flag, port, why) from None
    return sock


class AdminServer:
    """Serves an app until `stop`.

    Make it, `await start()`, and `await stop()` before the engine stops.
    """

    def __init__(self, app: Starlette, port: int) -> None:
        self._app = app
        self._port = port
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None

    async def start(self) -> int:
        """Open the port and give its real number; in use: CONFIG naming --admin-port."""
        self._socket = bind(ADMIN_HOST, self._port, "--admin-port")
        config = uvicorn.Config(
            self._app,
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
        # startup() alone: main_loop() would wake ten times a second for what we do not use
        await self._server.startup(sockets=[self._socket])
        port: int = self._socket.getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close the port and finish what is being answered, for at most `SHUTDOWN_TIMEOUT_S`."""
        server, sock = self._server, self._socket
        self._server = self._socket = None
        if server is not None and sock is not None:
            self._app.state.closing.set()  # parked polls are answered
            with suppress(OSError):
                await server.shutdown(sockets=[sock])
