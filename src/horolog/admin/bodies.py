"""Request bodies while they arrive: each has a time limit, and all together use bounded memory.

A body that arrives too slowly loses its connection and the bytes received so far.  Small bodies
always have room, so the number of connections bounds them; larger ones share one limit of bytes.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from horolog.errors import ErrorCode, HorologError, refused
from horolog.limits import ADMIN_BODIES_BYTES, ADMIN_BODY_S, ADMIN_SMALL_BODY


class Bodies:
    """The bodies that one app reads.

    wait_s     how long one body may take to arrive
    bytes_max  of all large bodies that have arrived in part
    """

    def __init__(
        self, *, wait_s: float = ADMIN_BODY_S, bytes_max: int = ADMIN_BODIES_BYTES
    ) -> None:
        self._wait_s = wait_s
        self._bytes_max = bytes_max
        self._large = 0  # bytes of bodies that are not small

    async def read(self, request: Request, limit: int) -> bytearray:
        """Return the whole body of a request.

        BODY_TOO_LARGE above `limit`, TOO_MANY_REQUESTS without room, BAD_REQUEST when late.  After
        a refusal the connection is closed: the rest of the body is not read.
        """
        received = bytearray()
        counted = 0
        request.state.hang_up = True
        try:
            async with asyncio.timeout(self._wait_s):
                async for piece in request.stream():
                    received += piece
                    if len(received) > limit:
                        raise _too_large(limit)
                    if len(received) > ADMIN_SMALL_BODY:
                        self._large += len(received) - counted
                        counted = len(received)
                        if self._large > self._bytes_max and self._large > counted:
                            raise _no_room(self._bytes_max)
        except TimeoutError:
            raise _late(self._wait_s) from None
        finally:
            self._large -= counted
        request.state.hang_up = False
        return received


def _too_large(limit: int) -> HorologError:
    return refused(
        "request", f"more than {limit} bytes", f"{limit} bytes", code=ErrorCode.BODY_TOO_LARGE
    )


def _no_room(limit: int) -> HorologError:
    return refused(
        "request",
        "too many large bodies are on their way; try again later",
        f"{limit} bytes",
        code=ErrorCode.TOO_MANY_REQUESTS,
    )


def _late(wait_s: float) -> HorologError:
    return refused("request", f"the body did not come within {wait_s:g} s", f"{wait_s:g} s")
