r"""Shapes: what the messages of a producer have in common, learned from one of them and used to read the next ones.

A program sends messages that differ in a few places only.  Properties, with · for \x01 and | for \x02:

    KEYS·order-1|UNIQ_KEY·0A01|DELAY·5|
    KEYS·order-2|UNIQ_KEY·0A02|DELAY·7|

are of one shape, the names in their order:

    KEYS·…|UNIQ_KEY·(…)|DELAY·(…)|

As a regular expression it reads a message in one go, and what the broker goes by are its groups: id, tag, message group,
and the value that delays.  Many messages are read with one call, their texts joined.

A shape knows nothing but the usual: each name once, an id of letters and digits, a plain number, at most one property
that delays.  What it does not match is read the full way (`wanted`), so shapes change how long a message takes and never
what it means.  Values cannot hold what separates them, so an expression never goes back: its time is linear.

To learn a shape costs as much as to read a hundred messages.  So it is done after many that no shape has matched, and
after ever more if what was learned last was of little use: who sends no two messages alike pays next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from horolog.limits import SHAPE_NAMES_MAX, SHAPE_TEXT_MAX, SHAPES_MAX
from horolog.protocol.remoting.wanted import Wanted, Ways
from horolog.protocol.rocketmq.delays import PLAIN_DELAYS, plain_dues
from horolog.protocol.rocketmq.properties import CANCELS, IN_REGION, REGION

_LEARN_AFTER = 64  # messages that no shape has matched
_LEARN_AFTER_MAX = 65_536
_OF_USE = 1_024  # messages that a shape must have matched to have been worth it
_ID, _TAGS, _KEYS, _GROUP = b"UNIQ_KEY", b"TAGS", b"KEYS", b"__SHARDINGKEY"
_FULL_WAY = frozenset(
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
    """Tells when it is time to learn a shape.

    matched  messages that were read by their shape since one was learned
    """

    def __init__(self) -> None:
        self._wait = _LEARN_AFTER
        self._missed = self.matched = 0

    def missed(self, count: int) -> bool:
        """Count so many more that have matched no shape: whether one is to be learned from them."""
        self._missed += count
        if self._missed < self._wait:
            return False
        of_use = self.matched >= _OF_USE
        self._wait = _LEARN_AFTER if of_use else min(2 * self._wait, _LEARN_AFTER_MAX)
        self._missed = self.matched = 0
        return True


class PropertyShape:
    """Properties with the same names in the same order.

    names      each once; none with a meaning of its own that `_CAUGHT` does not know
    ends       whether a separator stands after the last value too
    keyed      whether KEYS is one of them
    region     what is stored in front of them
    delay      the one that delays; empty: none
    separator  what stands between these properties and more of them
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
        pattern += rb"()" * len(missing)  # so that there are always four
        self._id, self._tag, self._group, self._due = map((groups + missing).index, wanted)
        self.separator = b"" if ends or not names else b"\x02"
        self._expression = re.compile(rb"\x00" + pattern + rb"(?=\x00)")

    @classmethod
    def of(cls, text: bytes) -> PropertyShape | None:
        """The shape of these properties; None if they are none that are read by their shape."""
        if len(text) > SHAPE_TEXT_MAX or b"\0" in text:
            return None
        ends = text.endswith(b"\x02")
        pairs = [pair.split(b"\x01") for pair in text[: len(text) - ends].split(b"\x02")]
        if not text:
            pairs = []
        names = [pair[0] for pair in pairs]
        if any(len(pair) != 2 for pair in pairs) or len(names) > SHAPE_NAMES_MAX:
            return None
        if len(set(names)) != len(names) or not _FULL_WAY.isdisjoint(names):
            return None
        if sum(name in PLAIN_DELAYS for name in names) > 1:
            return None
        return cls(names, ends=ends)

    def fits(self, text: bytes) -> bool:
        """Whether these properties are of this shape; `read` may refuse them all the same."""
        return self._expression.match(b"\0%b\0" % text) is not None

    def read(self, joined: bytes, texts: Sequence[bytes], ways: Ways) -> Wanted | None:
        """What these want; None if not all of them are of this shape.

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
            plain = plain_dues(self.delay, numbers, ways.levels)
            if plain is None:
                return None
            due_ms, lanes = plain
        ids: Sequence[bytes] = columns[self._id]
        between = self.separator
        if not self._has_id:
            ids = ways.new_ids(len(texts))
            texts = [
                b"%b%bUNIQ_KEY\x01%b\x02" % (text, between, name)
                for text, name in zip(texts, ids, strict=True)
            ]
            between = b""
        if self.delay:
            texts = [text + between + real for text, real in zip(texts, ways.reals, strict=True)]
        if self.region:
            texts = [self.region + text for text in texts]
        keyed = [self.keyed] * len(texts)
        return Wanted(texts, ids, keyed, columns[self._tag], columns[self._group], due_ms, lanes)


class Shapes:
    """The shapes of one connection, the one that was met last first."""

    def __init__(self) -> None:
        self._known: list[PropertyShape] = []
        self._pace = Pace()

    def read(self, texts: Sequence[bytes], ways: Ways) -> Wanted | None:
        """What messages with these properties want, if all are of one shape; None: read them the full way."""
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
            wanted = shape.read(joined, texts, ways)
            if wanted is not None:
                if place:
                    known.insert(0, known.pop(place))
                self._pace.matched += len(texts)
                return wanted
        return self._read_mixed(texts, ways) if len(known) > 1 else None

    def _read_mixed(self, texts: Sequence[bytes], ways: Ways) -> Wanted | None:
        """The same where they are of several shapes."""
        rows_of: dict[PropertyShape, list[int]] = {}
        for row, text in enumerate(texts):
            shape = self.shape_of(text)
            if shape is None:
                return None
            rows_of.setdefault(shape, []).append(row)
        columns: list[list[Any]] = [[None] * len(texts) for _ in Wanted._fields]
        for shape, rows in rows_of.items():
            chosen = [texts[row] for row in rows]
            reals = [ways.reals[row] for row in rows]
            joined = b"\0%b\0" % b"\0".join(chosen)
            wanted = shape.read(joined, chosen, ways._replace(reals=reals))
            if wanted is None:
                return None
            for column, values in zip(columns, wanted, strict=True):
                for row, value in zip(rows, values, strict=True):
                    column[row] = value
        self._pace.matched += len(texts)
        return Wanted(*columns)

    def shape_of(self, text: bytes) -> PropertyShape | None:
        """The one that properties are of."""
        return next((shape for shape in self._known if shape.fits(text)), None)

    def matched(self, count: int) -> None:
        """Count so many messages that were read by a shape that was asked for."""
        self._pace.matched += count

    def missed(self, texts: Sequence[bytes]) -> None:
        """Messages with these properties were read the full way, and are sound: a shape may be learned from them."""
        if not self._pace.missed(len(texts)):
            return
        text = next((text for text in texts if self.shape_of(text) is None), None)
        shape = PropertyShape.of(text) if text is not None else None
        if shape is not None:
            self._known.insert(0, shape)
            del self._known[SHAPES_MAX:]

    def check_invariants(self) -> None:
        """What is kept is bounded."""
        assert len(self._known) <= SHAPES_MAX
