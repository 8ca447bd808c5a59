"""JSON objects whose keys are objects, as Java's fastjson writes and reads a map with such keys.

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":7}}}

No JSON parser reads this form, but official tools and clients write their tables of queues so, and
read no other form.  Maps with numbers as keys come without quotation marks: `{0:"10.0.0.1:10911"}`.

Reading turns the text into JSON and leaves the rest to the parser: a key that is an object becomes
the text of the object, in quotation marks.  It takes one pass for any input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from horolog.errors import refused

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\],]|[^"{}\[\],:\s]++|[:\s]++', re.DOTALL)
_OPENING = {b"}": b"{", b"]": b"["}


def table(rows: Iterable[tuple[Mapping[str, object], object]]) -> orjson.Fragment:
    """Return an object with these keys and values as a fragment, for encoding with orjson."""
    return table_of(entry(key, value) for key, value in rows)


def entry(key: Mapping[str, object], value: object) -> bytes:
    """Encode an entry of a table: one by one, where there may be thousands."""
    return orjson.dumps(key) + b":" + orjson.dumps(value)


def table_of(entries: Iterable[bytes]) -> orjson.Fragment:
    """Return an object with these entries as a fragment, for encoding with orjson."""
    return orjson.Fragment(b"{" + b",".join(entries) + b"}")


def read(body: bytes) -> dict[str, Any]:
    """Parse a body that is an object; keys that are objects become compact JSON.

    BAD_REQUEST otherwise.
    """
    try:
        found = orjson.loads(_as_json(body))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise refused("body", "no JSON object")
    return found


def rows(table: Mapping[str, Any]) -> list[tuple[dict[str, Any], Any]]:
    """Return (key object, value) of each entry of a parsed table; other keys are left out."""
    found = []
    for text, value in table.items():
        try:
            key = orjson.loads(text)
        except ValueError:
            continue
        if isinstance(key, dict):
            found.append((key, value))
    return found


def _as_json(text: bytes) -> bytes:
    pieces: list[bytes] = []
    open_: list[bytes] = []  # open brackets
    key_from = -1  # index of the piece where an object key begins; −1: outside of one
    key_depth = 0
    awaits_key = False
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError("an open string")
        token = found[0]
        at = found.end()
        pieces.append(token)
        if token == b"{" and awaits_key:
            if key_from >= 0:
                raise ValueError("an object key within an object key")
            key_from, key_depth = len(pieces) - 1, len(open_)
        if token in (b"{", b"["):
            open_.append(token)
            awaits_key = token == b"{"
        elif token in (b"}", b"]"):
            if not open_ or open_.pop() != _OPENING[token]:
                raise ValueError("brackets do not match")
            awaits_key = False
            if key_from >= 0 and len(open_) == key_depth:
                key = orjson.dumps(orjson.loads(b"".join(pieces[key_from:])))
                pieces[key_from:] = [orjson.dumps(key.decode())]
                key_from = -1
        elif token == b",":
            awaits_key = bool(open_) and open_[-1] == b"{"
        elif not token.strip(b": \t\r\n"):
            continue
        elif awaits_key:
            awaits_key = False
            if token[:1] != b'"':
                pieces[-1] = b'"' + token + b'"'
    return b"".join(pieces)
