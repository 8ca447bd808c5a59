r"""Shapes: what a producer's messages have in common, learned from one to read the next ones.

A program sends messages that differ in a few places only.  Properties (· for \x01, | for \x02):

    KEYS·order-1|UNIQ_KEY·0A01|DELAY·5|
    KEYS·order-2|UNIQ_KEY·0A02|DELAY·7|

These share a shape, the names in their order:

    KEYS·…|UNIQ_KEY·(…)|DELAY·(…)|

As a regular expression a shape reads a message with one match.  Its groups are the values that the
broker uses: id, tag, message group, and the value that delays.  Many messages are read with one
call, their texts joined.

A shape covers the usual case only: each name once, an id of letters and digits, a plain number, at
most one property that delays.  Messages that no shape matches are read in full (`wanted`), so
shapes change how long a message takes and never what it means.  Values cannot contain the
separators, so the expression never backtracks: its time is linear.

To learn a shape costs as much as to read a hundred messages.  So a shape is learned only after many
messages that no shape has matched, and after ever more if the last learned shape was of little use:
a client that sends no two messages alike pays next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from horolog.limits import SHAPE_NAMES_MAX, SHAPE_TEXT_MAX, SHAPES_MAX
from horolog.protocol.remoting.wanted import SendContext, Wanted
from horolog.protocol.rocketmq.delays import PLAIN_DELAYS, plain_dues
from horolog.protocol.rocketmq.properties import CANCELS, IN_REGION, REGION

_LEARN_AFTER = 64  # messages that no shape has matched
_LEARN_AFTER_MAX = 65_536
_USEFUL_MIN = 1_024  # messages that a useful shape has matched
_ID, _TAGS, _KEYS, _GROUP = b"UNIQ_KEY", b"TAGS", b"KEYS", b"__SHARDINGKEY"
_NEED_FULL_PARSER = frozenset(
    {b"POP_CK", b"TRAN_MSG", b"REAL_TOPIC", b"REAL_QID", b"TIMER_OUT_MS", b"REPLY_TO_CLIENT"}
    | {CANCELS.encode()}
)
_VALUE = rb"[^\x00-\x02]*"
_CAUGHT = {
    _ID: rb"([0-9A-Za-z]{1,40})",
    _TAGS: b"(%b)" % _VALUE,
    _GROUP: b"(%b)" % _VALUE,
    **{name: b"(%b)" % digits for name, digits in PLAIN_DELAYS.items()},
}


class Pace:
    """Decides when to learn a shape.

    matched  messages that were read by their shape since one was learned
    """

    def __init__(self) -> None:
        self._wait = _LEARN_AFTER
        self._missed = self.matched = 0

    def missed(self, count: int) -> bool:
        """Count messages that matched no shape; return whether to learn a shape from them."""
        self._missed += count
        if self._missed < self._wait:
            return False
        was_useful = self.matched >= _USEFUL_MIN
        self._wait = _LEARN_AFTER if was_useful else min(2 * self._wait, _LEARN_AFTER_MAX)
        self._missed = self.matched = 0
        return True


class PropertyShape:
    """Properties with the same names in the same order.

    names      each once; none with a meaning of its own that `_CAUGHT` does not know
    ends       whether a separator follows the last value too
    keyed      whether KEYS is one of the names
    region     properties to store before these ones
    delay      the name that delays; empty: none
    separator  what to put between these properties and further ones
    """

    def __init__(self, names: Sequence[bytes], *, ends: bool) -> None:
        pieces = [re.escape(name) + rb"\x01" + _CAUGHT.get(name, _VALUE) for name in names]
        pattern = rb"\x02".join(pieces) + (rb"\x02" if ends else b"")
        self.names = names
        self.keyed = _KEYS in names
        self.region = b"" if REGION.encode() in names else IN_REGION
        self._has_id = _ID in names
        self.delay = next((name for name in names if name in PLAIN_DELAYS), b"")
        groups = [name for name in names if name in _CAUGHT]
        wanted = (_ID, _TAGS, _GROUP, self.delay)
        missing = [name for name in wanted if name not in groups]
        pattern += rb"()" * len(missing)  # so that there are always four groups
        self._id, self._tag, self._group, self._due = map((groups + missing).index, wanted)
        self.separator = b"" if ends or not names else b"\x02"
        self._expression = re.compile(rb"\x00" + pattern + rb"(?=\x00)")

    @classmethod
    def of(cls, text: bytes) -> PropertyShape | None:
        """Return the shape of properties; None if they have to be read in full."""
        if len(text) > SHAPE_TEXT_MAX or b"\0" in text:
            return None
        ends = text.endswith(b"\x02")
        pairs = [pair.split(b"\x01") for pair in text[: len(text) - ends].split(b"\x02")]
        if not text:
            pairs = []
        names = [pair[0] for pair in pairs]
        if any(len(pair) != 2 for pair in pairs) or len(names) > SHAPE_NAMES_MAX:
            return None
        if len(set(names)) != len(names) or not _NEED_FULL_PARSER.isdisjoint(names):
            return None
        if sum(name in PLAIN_DELAYS for name in names) > 1:
            return None
        return cls(names, ends=ends)

    def fits(self, text: bytes) -> bool:
        """Return whether properties have this shape; `read` may refuse them all the same."""
        return self._expression.match(b"\0%b\0" % text) is not None

    def read(self, joined: bytes, texts: Sequence[bytes], context: SendContext) -> Wanted | None:
        """Read the properties of many messages; None if not all of them have this shape.

        joined  the texts, with a zero byte around each and nowhere else
        """
        if self._expression.match(joined) is None:
            return None
        found = self._expression.findall(joined)
        if len(found) != len(texts):
            return None
        columns = list(zip(*found, strict=True))
        due_ms: Sequence[int]
        lanes: Sequence[int]
        due_ms = lanes = [0] * len(texts)
        if self.delay:
            numbers = list(map(int, columns[self._due]))
            plain = plain_dues(self.delay, numbers, context.levels)
            if plain is None:
                return None
            due_ms, lanes = plain
        ids: Sequence[bytes] = columns[self._id]
        between = self.separator
        if not self._has_id:
            ids = context.new_ids(len(texts))
            texts = [
                b"%b%bUNIQ_KEY\x01%b\x02" % (text, between, name)
                for text, name in zip(texts, ids, strict=True)
            ]
            between = b""
        if self.delay:
            texts = [
                text + between + added
                for text, added in zip(texts, context.delayed_properties, strict=True)
            ]
        if self.region:
            texts = [self.region + text for text in texts]
        keyed = [self.keyed] * len(texts)
        return Wanted(texts, ids, keyed, columns[self._tag], columns[self._group], due_ms, lanes)


class Shapes:
    """The shapes of one connection, the last used one first."""

    def __init__(self) -> None:
        self._known: list[PropertyShape] = []
        self._pace = Pace()

    def read(self, texts: Sequence[bytes], context: SendContext) -> Wanted | None:
        """Read the properties of messages by their shapes; None: they have to be read in full."""
        known = self._known
        if not known:
            return None
        joined = b"\0%b\0" % b"\0".join(texts)
        if joined.count(b"\0") != len(texts) + 1 or max(map(len, texts)) > SHAPE_TEXT_MAX:
            return None
        if not joined.isascii():
            try:
                joined.decode()
            except UnicodeDecodeError:
                return None
        for place, shape in enumerate(known):
            wanted = shape.read(joined, texts, context)
            if wanted is not None:
                if place:
                    known.insert(0, known.pop(place))
                self._pace.matched += len(texts)
                return wanted
        return self._read_mixed(texts, context) if len(known) > 1 else None

    def _read_mixed(self, texts: Sequence[bytes], context: SendContext) -> Wanted | None:
        """Read the properties of messages of several shapes; None if one has no known shape."""
        rows_of: dict[PropertyShape, list[int]] = {}
        for row, text in enumerate(texts):
            shape = self.shape_of(text)
            if shape is None:
                return None
            rows_of.setdefault(shape, []).append(row)
        columns: list[list[Any]] = [[None] * len(texts) for _ in Wanted._fields]
        for shape, rows in rows_of.items():
            chosen = [texts[row] for row in rows]
            delayed_properties = [context.delayed_properties[row] for row in rows]
            joined = b"\0%b\0" % b"\0".join(chosen)
            wanted = shape.read(
                joined, chosen, context._replace(delayed_properties=delayed_properties)
            )
            if wanted is None:
                return None
            for column, values in zip(columns, wanted, strict=True):
                for row, value in zip(rows, values, strict=True):
                    column[row] = value
        self._pace.matched += len(texts)
        return Wanted(*columns)

    def shape_of(self, text: bytes) -> PropertyShape | None:
        """Return the known shape of properties, or None."""
        return next((shape for shape in self._known if shape.fits(text)), None)

    def matched(self, count: int) -> None:
        """Count messages that the caller read by a shape from `shape_of`."""
        self._pace.matched += count

    def missed(self, texts: Sequence[bytes]) -> None:
        """Note that sound messages were read in full; perhaps learn a shape from one of them."""
        if not self._pace.missed(len(texts)):
            return
        text = next((text for text in texts if self.shape_of(text) is None), None)
        shape = PropertyShape.of(text) if text is not None else None
        if shape is not None:
            self._known.insert(0, shape)
            del self._known[SHAPES_MAX:]

    def check_invariants(self) -> None:
        """Check that the known shapes are bounded."""
        assert len(self._known) <= SHAPES_MAX
