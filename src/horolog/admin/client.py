"""A client of the admin API on the standard library alone.

The CLI and `horolog.testing` use it.

    admin = AdminClient("http://127.0.0.1:8090")
    admin.post("/v1/topics", {"name": "orders", "type": "delay"})

Where the broker has an access file, requests carry a key and a secret: those of the URL,
http://KEY:SECRET@host:port, else HOROLOG_ACCESS_KEY and HOROLOG_SECRET_KEY of the environment.
Messages to the user never show a URL with its secret.

Calls block, with one connection per call, so the client needs no reconnect after the broker was
restarted.  A timeout is of the whole answer: one that trickles does not prolong it.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from horolog.admin.status import Silence, UnreachableError, error_from_body
from horolog.errors import ErrorCode, refused
from horolog.protocol.rocketmq.names import check_group_name, check_schedule, check_topic

DEFAULT_URL = "http://127.0.0.1:8090"
TIMEOUT_S = 30.0
_SHORTEST_S = 1.0
_SHOWN = 100  # characters shown of an answer that is not a broker's
ADVANCE_TIMEOUT_S = 600.0  # advancing returns when all messages that became due are handed over
# Checks of names by the path segment before them; the broker makes the same checks.
_CHECKS: Mapping[str, Callable[[str], str]] = {
    "topics": check_topic,
    "groups": check_group_name,
    "schedules": check_schedule,
}


def _authorization(parts: SplitResult) -> str:
    """Return the Authorization header; "" without a secret.  A secret without a key is a token."""
    access_key, secret = unquote(parts.username or ""), unquote(parts.password or "")
    if not secret:
        access_key = os.environ.get("HOROLOG_ACCESS_KEY", "")
        secret = os.environ.get("HOROLOG_SECRET_KEY", "")
    if not secret:
        return ""
    if not access_key:
        return f"Bearer {secret}"
    return f"Basic {base64.b64encode(f'{access_key}:{secret}'.encode()).decode()}"


def _address(parts: SplitResult) -> tuple[str, int]:
    """Return host and port of a URL; ValueError unless it is http://host:port of a valid host."""
    host, port = parts.hostname or "", parts.port
    if parts.scheme != "http" or not host or port == 0 or parts.path not in ("", "/"):
        raise ValueError(parts.netloc)
    if not host.isprintable() or " " in host:
        raise ValueError(host)
    host.encode("idna")  # an empty or too long label raises UnicodeError, which is a ValueError
    return host, port or 80


def one_call_s(timeout_ms: int) -> float:
    """Return the timeout of one call for a caller that asks again until `timeout_ms` are over."""
    return min(TIMEOUT_S, max(_SHORTEST_S, timeout_ms / 1_000))


class _TimedSocket(socket.socket):
    """A socket whose reads end at a time; Python bounds a whole write, but each read by itself."""

    until = 0.0

    def recv_into(self, *given: Any) -> int:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self.settimeout(left)
        return super().recv_into(*given)


class TimedConnection(http.client.HTTPConnection):
    """A connection whose timeout is of the whole answer, and as before of connecting and sending."""

    def connect(self) -> None:
        """Connect, within the timeout."""
        super().connect()
        plain = self.sock
        self.sock = _TimedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())

    def send(self, data: Any) -> None:
        """Send a part of a request; from its end on the answer has the timeout."""
        if self.sock is None:
            self.connect()
        assert self.timeout is not None
        assert isinstance(self.sock, _TimedSocket)
        self.sock.settimeout(self.timeout)
        super().send(data)
        self.sock.until = time.monotonic() + self.timeout


class AdminClient:
    """A client of one broker.  Refusals raise HorologError, a missing answer `UnreachableError`.

    url           for messages: without key and secret
    url_as_given  for another client of the same broker
    host, port    to connect to
    headers       the Authorization header of every request; empty without key and secret
    """

    def __init__(self, url: str = DEFAULT_URL, *, timeout_s: float = TIMEOUT_S) -> None:
        try:
            parts = urlsplit(url)
            self.host, self.port = _address(parts)
        except ValueError:
            raise refused(
                "--admin",
                f"{url.rpartition('@')[2]!r} is not a URL such as {DEFAULT_URL}",
                code=ErrorCode.CONFIG,
            ) from None
        self.url = f"http://{parts.netloc.rpartition('@')[2]}"
        self.url_as_given = f"http://{parts.netloc}"
        authorization = _authorization(parts)
        self.headers = {"authorization": authorization} if authorization else {}
        self._timeout_s = timeout_s

    def without_key(self) -> AdminClient:
        """Return a client of the same broker that sends no key."""
        stranger = AdminClient(self.url, timeout_s=self._timeout_s)
        stranger.headers = {}
        return stranger

    def get(self, path: str, parameters: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the result of a GET; parameters that are None or "" are left out."""
        return self._call("GET", _with(path, parameters), None)

    def post(
        self, path: str, body: Mapping[str, object], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Return the result of a POST; fields that are None are left out."""
        given = {name: setting for name, setting in body.items() if setting is not None}
        return self._call("POST", path, json.dumps(given).encode(), timeout_s)

    def patch(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Return the result of a PATCH."""
        return self._call("PATCH", path, json.dumps(body).encode())

    def put(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Return the result of a PUT; fields that are None are left out."""
        given = {name: setting for name, setting in body.items() if setting is not None}
        return self._call("PUT", path, json.dumps(given).encode())

    def delete(self, path: str) -> dict[str, Any]:
        """Return the result of a DELETE."""
        return self._call("DELETE", path, None)

    def put_bytes(
        self, path: str, content: bytes, parameters: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Return the result of a PUT of raw bytes; parameters as for `get`."""
        return self._call("PUT", _with(path, parameters), content, kind="application/octet-stream")

    def advance(self, by_ms: int) -> dict[str, Any]:
        """Move the simulated clock; return the clock when everything due is handed over."""
        return self.post("/v1/clock/advance", {"by_ms": by_ms}, timeout_s=ADVANCE_TIMEOUT_S)

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout_s: float | None = None,
        kind: str = "application/json",
    ) -> dict[str, Any]:
        connection = TimedConnection(self.host, self.port, timeout=timeout_s or self._timeout_s)
        headers = {"content-type": kind} if body is not None else {}
        headers |= self.headers
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            if not isinstance(error, (OSError, http.client.IncompleteRead)):
                # A server that does not speak HTTP answered; its text may be anything.
                raise self._not_a_broker(str(error) or type(error).__name__) from None
            raise no_answer(self.url, error) from None
        finally:
            connection.close()
        return self._result(response.status, text)

    def _result(self, status: int, text: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        match answer:
            case {"result": dict(result)}:
                return result
            case {"error": {"code": str(), "message": str(), "field": str(), "limit": str()}}:
                raise error_from_body(answer)
        raise self._not_a_broker(f"HTTP {status}, {text[:_SHOWN].decode(errors='replace')}")

    def _not_a_broker(self, seen: str) -> UnreachableError:
        """Build the error for the answer of a proxy, of another server, or of half a broker."""
        shown = "".join(c if c.isprintable() else "·" for c in seen[:_SHOWN])
        return UnreachableError(self.url, shown, Silence.STRANGER)


def no_answer(url: str, error: Exception) -> UnreachableError:
    """Build the error for a call that ended without an answer, in the system's own words."""
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    silence = Silence.HANGS if isinstance(error, TimeoutError) else Silence.NO_ANSWER
    return UnreachableError(url, why, silence)


def _with(path: str, parameters: Mapping[str, object] | None) -> str:
    """Return a path with its query."""
    given = {
        name: str(setting)
        for name, setting in (parameters or {}).items()
        if setting is not None and setting != ""
    }
    return f"{path}?{urlencode(given)}" if given else path


def path_of(*parts: str) -> str:
    """Return a path under /v1 with its parts escaped (topic names may hold % and |).

    A name that no topic, group or schedule may have is refused as the broker would: a / in it would
    lead to another path.
    """
    for kind, name in pairwise(parts):
        if (check := _CHECKS.get(kind)) is not None:
            check(name)
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)
