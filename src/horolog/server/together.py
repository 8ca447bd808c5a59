"""Requests that several connections have sent in one turn of the event loop, in parts that become a command each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from horolog.limits import MIB

MESSAGES_MAX = 1_024  # of a part, unless one request has more
BYTES_MAX = MIB
_Asked = TypeVar("_Asked")


def parts(
    asked: Iterable[_Asked], size_of: Callable[[_Asked], tuple[int, int]]
) -> Iterator[list[_Asked]]:
    """The requests in order; `size_of` gives the messages of one, and its bytes."""
    part: list[_Asked] = []
    messages = size = 0
    for each in asked:
        more, more_bytes = size_of(each)
        if part and (messages + more > MESSAGES_MAX or size + more_bytes > BYTES_MAX):
            yield part
            part, messages, size = [], 0, 0
        part.append(each)
        messages += more
        size += more_bytes
    if part:
        yield part
