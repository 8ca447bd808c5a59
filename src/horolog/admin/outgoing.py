"""Bounded memory for the answers of the admin port that clients have not read.

An answer is made whole, and waits in its connection until the client reads it.  While too many
bytes wait, large answers are refused instead, and connections that have read nothing for a while
are cut off.
"""

from __future__ import annotations

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from horolog.admin.status import error_body, http_status
from horolog.clock import monotonic_ms
from horolog.errors import ErrorCode, refused
from horolog.limits import ADMIN_UNREAD_BYTES_MAX, UNREAD_SMALL
from horolog.server.unread_answers import UnreadAnswers

_TOO_MUCH = refused(
    "answer",
    "too much of other answers is not read yet; try again later",
    f"{ADMIN_UNREAD_BYTES_MAX} bytes",
    ErrorCode.TOO_MANY_REQUESTS,
)


class BoundedAnswers:
    """ASGI wrapper that refuses large answers while too many bytes of others wait to be read."""

    def __init__(self, app: ASGIApp, answers: UnreadAnswers) -> None:
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        start: Message | None = None
        over = False

        async def send_bounded(message: Message) -> None:
            nonlocal start, over
            if over:
                return
            if message["type"] == "http.response.start":
                start = message  # kept back until the size of the answer is known
                return
            if start is not None:
                begun, start = start, None
                if not self._has_room(len(message.get("body", b""))):
                    over = True
                    await _refuse(send)
                    return
                await send(begun)
            await send(message)

        await self._app(scope, receive, send_bounded)

    def _has_room(self, size: int) -> bool:
        if size <= UNREAD_SMALL or self._answers.admit_answer_to_unknown(size):
            return True
        self._answers.cut_off(monotonic_ms())
        return False


async def _refuse(send: Send) -> None:
    body = orjson.dumps(error_body(_TOO_MUCH))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    status = http_status(_TOO_MUCH)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
