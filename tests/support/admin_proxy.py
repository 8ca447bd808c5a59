"""A proxy before the admin port in which a test can act at a given request."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Forward = Callable[[], tuple[int, bytes]]
Hook = Callable[[str, Forward], "tuple[int, bytes] | None"]


class AdminProxy:
    """A proxy that forwards every request to `target`.

    `hook(path, forward)` may return another answer, or None to hang up.
    """

    def __init__(self, target: str, hook: Hook) -> None:
        host = urlsplit(target)

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *given: object) -> None:
                """Log nothing."""

            def do_GET(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length) if length else None

                def forward() -> tuple[int, bytes]:
                    connection = http.client.HTTPConnection(host.hostname, host.port, timeout=120)
                    kind = self.headers.get("content-type")
                    headers = {"content-type": kind} if kind else {}
                    connection.request(self.command, self.path, body, headers)
                    answer = connection.getresponse()
                    content = answer.read()
                    connection.close()
                    return answer.status, content

                answer = hook(self.path, forward)
                self.close_connection = True
                if answer is None:
                    return
                status, content = answer
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_PUT = do_GET  # noqa: N815 - names of http.server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> AdminProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
