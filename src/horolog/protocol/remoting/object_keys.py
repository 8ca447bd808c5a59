"""JSON objects whose keys are objects, as Java's fastjson writes and reads a map with such keys.

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":7}}}

No parser of JSON reads that.  Official tools and clients write their tables of queues so, and read them only so.
Maps with numbers as keys come without quotation marks: `{0:"10.0.0.1:10911"}`.

Reading turns the text into JSON and leaves all else to the parser: a key that is an object becomes the text of that
object, in quotation marks.  One pass, whatever the bytes are.
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
    """An object with these keys and values, to stand anywhere in what is encoded with orjson."""
    entries = [orjson.dumps(key) + b":" + orjson.dumps(value) for key, value in rows]
    return orjson.Fragment(b"{" + b",".join(entries) + b"}")


def read(body: bytes) -> dict[str, Any]:
    """The object that is the body; keys that are objects are compact JSON.  BAD_REQUEST: it is none."""
    try:
        found = orjson.loads(_as_json(body))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise refused("body", "no JSON object")
    return found


def rows(table: Mapping[str, Any]) -> list[tuple[dict[str, Any], Any]]:
    """Keys as the objects they are, and values, of a table that was read; others are left out."""
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
    open_: list[bytes] = []  # brackets that wait for their end
    key_from = -1  # the piece that an object key begins with; −1: outside
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
